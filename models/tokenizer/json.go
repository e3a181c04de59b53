// Reading a tokenizer.json.

package tokenizer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// file is a tokenizer.json. Truncation and padding are settings of one call, which its writer
// happened to have on; they have no bearing on a server's requests.
type file struct {
	AddedTokens   []fileToken     `json:"added_tokens"`
	Normalizer    json.RawMessage `json:"normalizer"`
	PreTokenizer  json.RawMessage `json:"pre_tokenizer"`
	PostProcessor json.RawMessage `json:"post_processor"`
	Decoder       json.RawMessage `json:"decoder"`
	Model         *fileModel      `json:"-"`
}

type fileToken struct {
	ID         *int64 `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"`
	LStrip     bool   `json:"lstrip"`
	RStrip     bool   `json:"rstrip"`
	Normalized *bool  `json:"normalized"`
	Special    bool   `json:"special"`
}

type fileModel struct {
	Type                    *string  `json:"type"`
	Dropout                 *float64 `json:"dropout"`
	UnkToken                *string  `json:"unk_token"`
	ContinuingSubwordPrefix *string  `json:"continuing_subword_prefix"`
	EndOfWordSuffix         *string  `json:"end_of_word_suffix"`
	FuseUnk                 bool     `json:"fuse_unk"`
	ByteFallback            bool     `json:"byte_fallback"`
	IgnoreMerges            bool     `json:"ignore_merges"`

	Vocab  map[string]int64 `json:"-"`
	Merges [][2]string      `json:"-"`
}

// FromJSON reads a tokenizer.json. Errors name the component or the token at fault.
func FromJSON(tokenizerJSON []byte) (*Tokenizer, error) {
	t, err := fromJSON(tokenizerJSON)
	if err != nil {
		return nil, fmt.Errorf("tokenizer.json: %w", err)
	}
	return t, nil
}

func fromJSON(data []byte) (*Tokenizer, error) {
	if !utf8.Valid(data) {
		return nil, fmt.Errorf("not valid UTF-8")
	}
	f, err := readFile(data)
	if err != nil {
		return nil, err
	}
	t := &Tokenizer{bos: -1, eos: -1, unk: -1, pad: -1, eot: -1, eom: -1}
	var ns normalizers
	if err := readNormalizer(f.Normalizer, &ns); err != nil {
		return nil, fmt.Errorf("normalizer: %w", err)
	}
	if len(ns) > 0 {
		t.normalizer = ns
	}
	byteLevel, err := t.readPreTokenizers(f.PreTokenizer)
	if err != nil {
		return nil, fmt.Errorf("pre_tokenizer: %w", err)
	}
	if err := t.readModel(*f.Model, byteLevel); err != nil {
		return nil, fmt.Errorf("model: %w", err)
	}
	if err := t.readAdded(f.AddedTokens, f.Model.Vocab); err != nil {
		return nil, fmt.Errorf("added_tokens: %w", err)
	}
	if err := t.readDecoder(f.Decoder); err != nil {
		return nil, fmt.Errorf("decoder: %w", err)
	}
	if err := t.readPostProcessor(f.PostProcessor); err != nil {
		return nil, fmt.Errorf("post_processor: %w", err)
	}
	t.finish()
	return t, nil
}

// strict decodes JSON and refuses fields that v does not have.
func strict(data []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	return d.Decode(v)
}

// absent says whether a component is missing or null.
func absent(raw json.RawMessage) bool {
	return len(raw) == 0 || string(raw) == "null"
}

// componentType returns the "type" of a component.
func componentType(raw json.RawMessage) (string, error) {
	var c struct{ Type string }
	if err := json.Unmarshal(raw, &c); err != nil {
		return "", err
	}
	if c.Type == "" {
		return "", fmt.Errorf("a component has no type")
	}
	return c.Type, nil
}

// filePattern is {"String": ...} or {"Regex": ...}.
type filePattern struct {
	String *string
	Regex  *string
}

func (p filePattern) matcher() (matcher, error) {
	switch {
	case p.String != nil && p.Regex == nil:
		if *p.String == "" {
			return nil, fmt.Errorf("empty string pattern")
		}
		return literalMatcher(*p.String), nil
	case p.Regex != nil && p.String == nil:
		return newRegex(*p.Regex)
	}
	return nil, fmt.Errorf("a pattern must be one of String, Regex")
}

func readNormalizer(raw json.RawMessage, ns *normalizers) error {
	if absent(raw) {
		return nil
	}
	typ, err := componentType(raw)
	if err != nil {
		return err
	}
	switch typ {
	case "Sequence", "NFC", "NFD", "NFKC", "NFKD", "Lowercase", "Replace", "Prepend":
	default:
		return fmt.Errorf("%s is not supported", typ)
	}
	var c struct {
		Type        string
		Normalizers []json.RawMessage
		Pattern     filePattern
		Content     string
		Prepend     string
	}
	if err := strict(raw, &c); err != nil {
		return fmt.Errorf("%s: %w", typ, err)
	}
	switch typ {
	case "Sequence":
		for _, r := range c.Normalizers {
			if err := readNormalizer(r, ns); err != nil {
				return err
			}
		}
	case "NFC":
		*ns = append(*ns, normalForm{norm.NFC, true})
	case "NFD":
		*ns = append(*ns, normalForm{norm.NFD, false})
	case "NFKC":
		*ns = append(*ns, normalForm{norm.NFKC, true})
	case "NFKD":
		*ns = append(*ns, normalForm{norm.NFKD, false})
	case "Lowercase":
		*ns = append(*ns, lowercase{})
	case "Replace":
		m, err := c.Pattern.matcher()
		if err != nil {
			return fmt.Errorf("Replace: %w", err)
		}
		*ns = append(*ns, replace{m, c.Content})
	case "Prepend":
		*ns = append(*ns, prepend(c.Prepend))
	}
	return nil
}

// readPreTokenizers sets t.steps and says whether the pieces are in bytes.
func (t *Tokenizer) readPreTokenizers(raw json.RawMessage) (byteLevel bool, err error) {
	if err := t.readPreTokenizer(raw); err != nil {
		return false, err
	}
	return t.closeSteps()
}

// closeSteps settles how a byte-level step hands on its pieces.
func (t *Tokenizer) closeSteps() (byteLevel bool, err error) {
	for i, st := range t.steps {
		switch st := st.(type) {
		case byteLevelStep:
			if byteLevel {
				return false, fmt.Errorf("ByteLevel twice")
			}
			byteLevel = true
			st.last = i == len(t.steps)-1
			t.steps[i] = st
		case metaspaceStep:
			if byteLevel {
				return false, fmt.Errorf("Metaspace after ByteLevel is not supported")
			}
		}
	}
	if n := len(t.steps); byteLevel {
		if st, ok := t.steps[n-1].(byteLevelStep); !ok {
			t.steps = append(t.steps, fromByteCharsStep{})
		} else if st.split == nil && !st.addPrefixSpace {
			t.steps = t.steps[:n-1] // it would do nothing
		}
	}
	return byteLevel, nil
}

func (t *Tokenizer) readPreTokenizer(raw json.RawMessage) error {
	if absent(raw) {
		return nil
	}
	typ, err := componentType(raw)
	if err != nil {
		return err
	}
	switch typ {
	case "Sequence", "Split", "ByteLevel", "Digits", "Punctuation", "WhitespaceSplit", "Metaspace":
	default:
		return fmt.Errorf("%s is not supported", typ)
	}
	var c struct {
		Type             string
		PreTokenizers    []json.RawMessage
		Pattern          filePattern
		Behavior         *string
		Invert           bool
		AddPrefixSpace   *bool `json:"add_prefix_space"`
		TrimOffsets      bool  `json:"trim_offsets"` // of no effect on ids
		UseRegex         *bool `json:"use_regex"`
		IndividualDigits bool  `json:"individual_digits"`
		Replacement      string
		PrependScheme    *string `json:"prepend_scheme"`
		Split            *bool
		StrRep           string `json:"str_rep"` // old files: Replacement again
	}
	if err := strict(raw, &c); err != nil {
		return fmt.Errorf("%s: %w", typ, err)
	}
	split := func(m matcher, standard behavior) error {
		b := standard
		if c.Behavior != nil {
			var ok bool
			if b, ok = behaviors[*c.Behavior]; !ok {
				return fmt.Errorf("%s: behavior %q is not supported", typ, *c.Behavior)
			}
		}
		t.steps = append(t.steps, splitStep{m, b, c.Invert})
		return nil
	}
	switch typ {
	case "Sequence":
		for _, r := range c.PreTokenizers {
			if err := t.readPreTokenizer(r); err != nil {
				return err
			}
		}
	case "Split":
		m, err := c.Pattern.matcher()
		if err != nil {
			return fmt.Errorf("Split: %w", err)
		}
		return split(m, isolated)
	case "ByteLevel":
		st := byteLevelStep{addPrefixSpace: c.AddPrefixSpace != nil && *c.AddPrefixSpace}
		if c.UseRegex == nil || *c.UseRegex {
			st.split = scanMatcher(scanGPT2)
		}
		t.steps = append(t.steps, st)
	case "Digits":
		if c.IndividualDigits {
			return split(runeMatcher(isNumeric), isolated)
		}
		return split(runeMatcher(isNumeric), contiguous)
	case "Punctuation":
		return split(runeMatcher(isPunctuation), isolated)
	case "WhitespaceSplit":
		return split(runeMatcher(unicode.IsSpace), removed)
	case "Metaspace":
		scheme, err := metaspaceScheme(c.PrependScheme, c.AddPrefixSpace)
		if err != nil {
			return err
		}
		if utf8.RuneCountInString(c.Replacement) != 1 {
			return fmt.Errorf("Metaspace: replacement %q is not one character", c.Replacement)
		}
		t.steps = append(t.steps, metaspaceStep{c.Replacement, scheme, c.Split == nil || *c.Split})
	}
	return nil
}

// metaspaceScheme reads a Metaspace's prepend_scheme or the flag that old files have for it.
func metaspaceScheme(scheme *string, addPrefixSpace *bool) (prependScheme, error) {
	if scheme == nil {
		if addPrefixSpace != nil && !*addPrefixSpace {
			return prependNever, nil
		}
		return prependAlways, nil
	}
	s, ok := map[string]prependScheme{"always": prependAlways, "first": prependFirst, "never": prependNever}[*scheme]
	if !ok {
		return 0, fmt.Errorf("Metaspace: prepend_scheme %q is not supported", *scheme)
	}
	return s, nil
}

func (t *Tokenizer) readModel(f fileModel, byteLevel bool) error {
	switch {
	case f.Dropout != nil && *f.Dropout != 0:
		return fmt.Errorf("dropout %v is not supported", *f.Dropout)
	case f.ContinuingSubwordPrefix != nil && *f.ContinuingSubwordPrefix != "":
		return fmt.Errorf("continuing_subword_prefix %q is not supported", *f.ContinuingSubwordPrefix)
	case f.EndOfWordSuffix != nil && *f.EndOfWordSuffix != "":
		return fmt.Errorf("end_of_word_suffix %q is not supported", *f.EndOfWordSuffix)
	}
	m := &t.model
	m.byteLevel, m.byteFallback, m.fuseUnk, m.ignoreMerges = byteLevel, f.ByteFallback, f.FuseUnk, f.IgnoreMerges
	m.ids = make(map[string]int32, len(f.Vocab))
	for token, id := range f.Vocab {
		if err := t.setToken(id, token); err != nil {
			return err
		}
		if byteLevel {
			b, ok := fromByteChars(token)
			if !ok {
				continue // no piece has such characters
			}
			token = b
		}
		m.ids[token] = int32(id)
	}
	m.unk = -1
	if f.UnkToken != nil {
		id, ok := f.Vocab[*f.UnkToken]
		if !ok {
			return fmt.Errorf("unk_token %q is not in the vocabulary", *f.UnkToken)
		}
		m.unk = int32(id)
	}
	m.setFallback(func(token string) (int32, bool) {
		id, ok := f.Vocab[token]
		return int32(id), ok
	})
	return m.setMerges(f.Merges)
}

// setFallback finds the tokens <0x00> to <0xFF>.
func (m *model) setFallback(id func(token string) (int32, bool)) {
	for b := range m.fallbackIDs {
		m.fallbackIDs[b] = -1
		if n, ok := id(fmt.Sprintf("<0x%02X>", b)); ok {
			m.fallbackIDs[b] = n
		}
	}
}

// setMerges fills the table of merges and, from their results, that of neighbours.
func (m *model) setMerges(merges [][2]string) error {
	m.merges = newPairTable(len(merges))
	m.cuts = new(adjacency)
	isFallback := make(map[int32]bool)
	if m.byteFallback {
		for _, id := range m.fallbackIDs {
			isFallback[id] = true
		}
	}
	for rank, pair := range merges {
		var ids [2]int32
		for k, token := range pair {
			if m.byteLevel {
				b, ok := fromByteChars(token)
				if !ok {
					return fmt.Errorf("merge %d: %q is not written in the byte alphabet", rank, token)
				}
				pair[k] = b
			}
			id, ok := m.ids[pair[k]]
			if !ok {
				return fmt.Errorf("merge %d: %q is not in the vocabulary", rank, token)
			}
			ids[k] = id
		}
		result := pair[0] + pair[1]
		id, ok := m.ids[result]
		if !ok {
			return fmt.Errorf("merge %d: %q is not in the vocabulary", rank, result)
		}
		m.merges.put(ids[0], ids[1], uint32(rank), id)
		if isFallback[ids[0]] || isFallback[ids[1]] {
			m.cuts = nil // a byte's token may meet anything
		}
		if m.cuts != nil {
			m.cuts.addToken(result, m.byteLevel)
		}
	}
	return nil
}

// readAdded reads the added tokens; ids are those of the model's vocabulary and gain theirs.
func (t *Tokenizer) readAdded(tokens []fileToken, ids map[string]int64) error {
	for i, f := range tokens {
		if f.ID == nil {
			return fmt.Errorf("token %d, %q, has no id", i, f.Content)
		}
		if f.Content == "" {
			continue // the reference drops it, too
		}
		if id, ok := ids[f.Content]; ok && id != *f.ID {
			return fmt.Errorf("%q has id %d, and %d in the vocabulary", f.Content, *f.ID, id)
		}
		if err := t.setToken(*f.ID, f.Content); err != nil {
			return err
		}
		ids[f.Content] = *f.ID
		t.added = append(t.added, AddedToken{
			ID: int32(*f.ID), Content: f.Content, SingleWord: f.SingleWord, LStrip: f.LStrip, RStrip: f.RStrip,
			Normalized: f.Normalized == nil && !f.Special || f.Normalized != nil && *f.Normalized, Special: f.Special,
		})
	}
	return nil
}

func (t *Tokenizer) readPostProcessor(raw json.RawMessage) error {
	if absent(raw) {
		return nil
	}
	typ, err := componentType(raw)
	if err != nil {
		return err
	}
	switch typ {
	case "Sequence":
		var c struct{ Processors []json.RawMessage }
		if err := json.Unmarshal(raw, &c); err != nil {
			return err
		}
		for _, r := range c.Processors {
			if err := t.readPostProcessor(r); err != nil {
				return err
			}
		}
		return nil
	case "ByteLevel":
		return nil // it concerns offsets only
	case "TemplateProcessing":
		if err := t.readTemplate(raw); err != nil {
			return fmt.Errorf("TemplateProcessing: %w", err)
		}
		return nil
	}
	return fmt.Errorf("%s is not supported", typ)
}

func (t *Tokenizer) readTemplate(raw json.RawMessage) error {
	var c struct {
		Type   string
		Single []struct {
			SpecialToken *struct {
				ID     string
				TypeID int `json:"type_id"`
			}
			Sequence *struct {
				ID     string
				TypeID int `json:"type_id"`
			}
		}
		Pair          json.RawMessage
		SpecialTokens map[string]struct {
			ID     string
			IDs    []int64
			Tokens []string
		} `json:"special_tokens"`
	}
	if err := strict(raw, &c); err != nil {
		return err
	}
	var before, after []int32
	seen := false
	for i, item := range c.Single {
		switch {
		case item.Sequence != nil && item.SpecialToken == nil:
			if item.Sequence.ID != "A" || seen {
				return fmt.Errorf("single: item %d: one sequence A is expected", i)
			}
			seen = true
		case item.SpecialToken != nil && item.Sequence == nil:
			tok, ok := c.SpecialTokens[item.SpecialToken.ID]
			if !ok {
				return fmt.Errorf("single: %q is not among special_tokens", item.SpecialToken.ID)
			}
			for _, id := range tok.IDs {
				if id < 0 || id >= maxTokens || !t.known(int32(id)) {
					return fmt.Errorf("special_tokens: %q has id %d, which is no token", item.SpecialToken.ID, id)
				}
				if seen {
					after = append(after, int32(id))
				} else {
					before = append(before, int32(id))
				}
			}
		default:
			return fmt.Errorf("single: item %d is neither Sequence nor SpecialToken", i)
		}
	}
	if !seen {
		return fmt.Errorf("single has no sequence")
	}
	// Processors in a row wrap what the one before made.
	t.prefix = append(before, t.prefix...)
	t.suffix = append(t.suffix, after...)
	return nil
}
