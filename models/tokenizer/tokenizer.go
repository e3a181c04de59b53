package tokenizer

import (
	"fmt"
	"slices"
	"unicode/utf8"
)

// Tokenizer turns text into ids and back. It is immutable and safe for concurrent use.
type Tokenizer struct {
	model      model
	normalizer normalizer // nil for none
	steps      []step     // pre-tokenizers
	keeping    bool       // no step drops text: what is merged is at least as long as the text

	added        []AddedToken
	addedAt      map[int32]int // by id
	addedIDs     map[string]int32
	raw          *trie   // of the added tokens found in the text
	normalized   *trie   // of those found in the normalised text; nil for none
	prefix       []int32 // what the post-processor puts before and after a text
	suffix       []int32
	decoding     decoding
	tokens       []string // by id; "" may be a gap, see known
	isKnown      []bool
	bytes        [][]byte // by id: TokenBytes
	bos, eos     int32
	unk, pad     int32
	eot, eom     int32
	fallbackByID []bool
}

// Options say how a text is encoded.
type Options struct {
	AddSpecial bool // add what the post-processor adds to a text, such as the BOS token
	NoControl  bool // special added tokens in the text are ordinary text; the others stay one id
	// Marks are ids of added tokens that are not special and yet give a prompt its structure
	// (<think> and <tool_call> in most tokenizers): EncodeSegments treats them like special ones.
	Marks map[int32]bool
	// Limit, if not 0, is how many ids the caller can use: the result is nil when there are more.
	// Work ends where that is certain, so a text far too long costs little more than its reading.
	Limit int
}

// Segment is a part of a rendered prompt. Control says that control tokens (the special added
// tokens and Options.Marks) may be read from it: true for a chat template's own text, false for
// what a user wrote. Other added tokens, such as runs of line breaks, are read from both.
type Segment struct {
	Text    string
	Control bool
}

// Encode returns the ids of a text. Invalid UTF-8 is read as one U+FFFD for each maximal broken
// part of a character.
func (t *Tokenizer) Encode(text string, o Options) []int32 {
	return t.encode(validUTF8(text), o, nil)
}

// EncodeSegments returns the ids of the segments' concatenated text, in which control tokens are
// found only where they lie wholly in adjoining Control segments. Everything else is as if the
// text came in one piece: merges cross the borders. With NoControl no special tokens are found at
// all.
func (t *Tokenizer) EncodeSegments(segs []Segment, o Options) []int32 {
	var text []byte
	for _, s := range segs {
		text = append(text, s.Text...)
	}
	if !utf8.Valid(text) { // else a character may be split between segments
		text = text[:0]
		for _, s := range segs {
			text = append(text, validUTF8(s.Text)...)
		}
		valid := make([]Segment, len(segs))
		for i, s := range segs {
			valid[i] = Segment{validUTF8(s.Text), s.Control}
		}
		segs = valid
	}
	control := spans{}
	at := 0
	for _, s := range segs {
		end := at + len(s.Text)
		if n := len(control); s.Control && n > 0 && control[n-1].end == at {
			control[n-1].end = end
		} else if s.Control && end > at {
			control = append(control, span{at, end})
		}
		at = end
	}
	return t.encode(string(text), o, control)
}

// span is a range of bytes; spans are in order and do not touch.
type span struct{ start, end int }
type spans []span

// cover says whether one span holds all of [start, end).
func (s spans) cover(start, end int) bool {
	lo, hi := 0, len(s)
	for lo < hi { // the first span that ends at or after end
		if mid := (lo + hi) / 2; s[mid].end < end {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo < len(s) && s[lo].start <= start
}

// encoding is one text on its way to ids.
type encoding struct {
	*Tokenizer
	Options
	control spans // where special tokens may be, if not nil
	out     []int32
	full    bool // there are more than Limit ids; out is not all of them
}

// room says whether a text, in pieces, may fit what Limit leaves.
func (e *encoding) room(text string) bool {
	if e.Limit > 0 && (len(e.out) > e.Limit || len(text) > 0 && e.model.covered(text)/max(e.model.longest, 1) > e.Limit-len(e.out)) {
		e.full = true
	}
	return !e.full
}

func (e *encoding) add(id int32) {
	if e.room("") {
		e.out = append(e.out, id)
	}
}

// encode runs the pipeline over valid UTF-8. control, if not nil, is where special tokens may be.
func (t *Tokenizer) encode(text string, o Options, control spans) []int32 {
	size := len(text)/3 + 8
	if o.Limit > 0 {
		size = min(size, o.Limit+8)
	}
	e := &encoding{Tokenizer: t, Options: o, control: control, out: make([]int32, 0, size)}
	if o.AddSpecial {
		e.out = append(e.out, t.prefix...)
	}
	var accept func(start, end, token int) bool
	if control != nil {
		accept = t.onlyIn(control.cover, o)
	}
	t.addedSplit(text, t.raw, o.NoControl, accept, func(start, end, token int) {
		if token >= 0 {
			e.add(t.added[token].ID)
			return
		}
		e.plain(text, start, end)
	})
	if o.AddSpecial {
		e.out = append(e.out, t.suffix...)
	}
	if !e.room("") {
		return nil
	}
	return e.out
}

// onlyIn accepts control tokens where cover does, and all others anywhere.
func (t *Tokenizer) onlyIn(cover func(start, end int) bool, o Options) func(start, end, token int) bool {
	return func(start, end, token int) bool {
		a := &t.added[token]
		return !a.Special && !o.Marks[a.ID] || cover(start, end)
	}
}

// plain appends the ids of text[from:to], which holds no added token but normalised ones.
func (e *encoding) plain(text string, from, to int) {
	if e.full {
		return
	}
	part := text[from:to]
	if e.normalizer != nil {
		part = e.normalizer.normalize(part)
	}
	if e.normalized == nil {
		e.pieces(part, from == 0)
		return
	}
	var accept func(start, end, token int) bool
	if e.control != nil {
		accept = e.onlyIn(e.normalizedCover(text[from:to], part, from, e.control), e.Options)
	}
	e.addedSplit(part, e.normalized, e.NoControl, accept, func(start, end, token int) {
		if token >= 0 {
			e.add(e.added[token].ID)
			return
		}
		e.pieces(part[start:end], from == 0 && start == 0)
	})
}

// normalizedCover returns control.cover for offsets into the normalised form of a text that
// stands at from. A border whose place in it cannot be told belongs to no span.
func (t *Tokenizer) normalizedCover(part, normalized string, from int, control spans) func(start, end int) bool {
	if part == normalized {
		return func(start, end int) bool { return control.cover(from+start, from+end) }
	}
	var moved spans
	place := func(at int) (int, bool) { // where the border at part[at] went
		if at <= 0 {
			return 0, true
		}
		if at >= len(part) {
			return len(normalized), true
		}
		head := t.normalizer.normalize(part[:at])
		return len(head), len(head) <= len(normalized) && normalized[:len(head)] == head
	}
	made := false
	return func(start, end int) bool {
		for _, c := range control {
			if made {
				break
			}
			if c.end <= from || c.start >= from+len(part) {
				continue
			}
			a, okA := place(c.start - from)
			b, okB := place(c.end - from)
			if okA && okB && a < b {
				moved = append(moved, span{a, b})
			}
		}
		made = true
		return moved.cover(start, end)
	}
}

// pieces cuts a text without added tokens and appends the ids of the pieces.
func (e *encoding) pieces(text string, first bool) {
	if text == "" || e.full || e.keeping && !e.room(text) {
		return
	}
	var apply func(k int, p piece)
	apply = func(k int, p piece) {
		if e.full {
			return
		}
		if k == len(e.steps) {
			if e.room(p.text) {
				e.out = e.model.encode(e.out, p.text)
			}
			return
		}
		e.steps[k].apply(p, func(p piece) { apply(k+1, p) })
	}
	apply(0, piece{text, first})
}

// TokenBytes returns the bytes that a token adds in the middle of a text: of a byte-level token
// its bytes, of <0x0A> with byte fallback that byte, of an added token its content. It is nil
// for an id that is no token and must not be modified.
func (t *Tokenizer) TokenBytes(id int32) []byte {
	if !t.known(id) {
		return nil
	}
	return t.bytes[id]
}

// Token returns a token as the vocabulary writes it, or false if the id is none.
func (t *Tokenizer) Token(id int32) (string, bool) {
	if !t.known(id) {
		return "", false
	}
	return t.tokens[id], true
}

// ID returns the id of a token as the vocabulary writes it.
func (t *Tokenizer) ID(token string) (int32, bool) {
	if id, ok := t.addedIDs[token]; ok {
		return id, true
	}
	if t.model.byteLevel {
		b, ok := fromByteChars(token)
		if !ok {
			return t.scanID(token)
		}
		token = b
	}
	id, ok := t.model.ids[token]
	return id, ok
}

// scanID looks for a token outside the byte alphabet: it is in no table, for no text leads to it.
func (t *Tokenizer) scanID(token string) (int32, bool) {
	for id, s := range t.tokens {
		if s == token && t.isKnown[id] {
			return int32(id), true
		}
	}
	return 0, false
}

// Size returns the largest id plus one.
func (t *Tokenizer) Size() int { return len(t.tokens) }

// IsSpecial says whether an id is a special added token.
func (t *Tokenizer) IsSpecial(id int32) bool {
	i, ok := t.addedAt[id]
	return ok && t.added[i].Special
}

// AddedTokens returns the added tokens in the order of the file. It must not be modified.
func (t *Tokenizer) AddedTokens() []AddedToken { return t.added }

// BOS, EOS, UNK, PAD, EOT and EOM return the ids that a GGUF file names for these roles, -1 for
// none. A tokenizer.json names none: they stand in other files of the checkpoint.
func (t *Tokenizer) BOS() int32 { return t.bos }
func (t *Tokenizer) EOS() int32 { return t.eos }
func (t *Tokenizer) UNK() int32 { return t.unk }
func (t *Tokenizer) PAD() int32 { return t.pad }
func (t *Tokenizer) EOT() int32 { return t.eot }
func (t *Tokenizer) EOM() int32 { return t.eom }

func (t *Tokenizer) known(id int32) bool {
	return id >= 0 && int(id) < len(t.isKnown) && t.isKnown[id]
}

func (t *Tokenizer) isFallback(id int32) bool { return t.fallbackByID[id] }

// maxTokens bounds ids: a table is made up to the largest.
const maxTokens = 1 << 20

// setToken records the text of an id.
func (t *Tokenizer) setToken(id int64, token string) error {
	if id < 0 || id >= maxTokens {
		return fmt.Errorf("token %q: id %d is not in 0..%d", token, id, maxTokens-1)
	}
	for int64(len(t.tokens)) <= id {
		t.tokens = append(t.tokens, "")
		t.isKnown = append(t.isKnown, false)
	}
	if t.isKnown[id] && t.tokens[id] != token {
		return fmt.Errorf("id %d is both %q and %q", id, t.tokens[id], token)
	}
	t.tokens[id], t.isKnown[id] = token, true
	return nil
}

// finish derives everything that depends on all tokens. The vocabulary, the added tokens, the
// normaliser and the decoding are set.
func (t *Tokenizer) finish() {
	t.model.cache = newPieceCache()
	t.model.finish()
	t.keeping = !slices.ContainsFunc(t.steps, func(s step) bool { return !s.keeps() })
	t.addedAt = make(map[int32]int, len(t.added))
	t.addedIDs = make(map[string]int32, len(t.added))
	t.raw = newTrie()
	// Of equal patterns the reference takes the first, special ones before the others.
	for _, special := range []bool{true, false} {
		for i, a := range t.added {
			if a.Special != special {
				continue
			}
			if _, ok := t.addedAt[a.ID]; !ok {
				t.addedAt[a.ID] = i
			}
			t.addedIDs[a.Content] = a.ID
			if !a.Normalized {
				t.raw.insert(a.Content, i)
				continue
			}
			content := a.Content
			if t.normalizer != nil {
				content = t.normalizer.normalize(content)
			}
			if t.normalized == nil {
				t.normalized = newTrie()
			}
			t.normalized.insert(content, i)
		}
	}
	t.bytes = make([][]byte, len(t.tokens))
	t.fallbackByID = make([]bool, len(t.tokens))
	for id, token := range t.tokens {
		if !t.isKnown[id] {
			continue
		}
		// The reference decodes a normalised token from what it is in a normalised text.
		if i, ok := t.addedAt[int32(id)]; ok && t.added[i].Normalized && t.normalizer != nil {
			token = t.normalizer.normalize(token)
		}
		t.bytes[id] = []byte(t.decoding.tokenBytes(token))
		if t.decoding.byteFallback {
			for _, op := range t.decoding.tokenOps {
				token = op(token)
			}
			_, t.fallbackByID[id] = fallbackByte(token)
		}
	}
}
