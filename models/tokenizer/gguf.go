// Reading the vocabulary of a GGUF file: its tokenizer.ggml.* values.

package tokenizer

import (
	"fmt"
	"slices"
	"strings"

	"golang.org/x/text/unicode/norm"
)

// GGUFVocab holds the tokenizer.ggml.* values of a GGUF file. Ids are -1 where the file has
// none, flags nil.
type GGUFVocab struct {
	Model  string    // gpt2, llama or gemma4
	Pre    string    // name of the pre-tokenizer; "" reads as "default"
	Tokens []string  // by id
	Scores []float32 // by id; for llama
	Types  []int32   // by id: the ggml token types; may be empty
	Merges []string  // "a b", best first; for gpt2 and gemma4

	BOS, EOS, UNK, PAD     int32
	EOT, EOM               int32
	AddBOS, AddEOS         *bool
	AddSpacePrefix         *bool
	RemoveExtraWhitespaces *bool
}

// Token types of GGUF files.
const (
	typeNormal      = 1
	typeUnknown     = 2
	typeControl     = 3
	typeUserDefined = 4
	typeUnused      = 5
	typeByte        = 6
)

// preTokenizer is what the name in tokenizer.ggml.pre stands for: what the tokenizer.json that
// the file was made from says, where that is known, since ids are to equal that file's.
type preTokenizer struct {
	nfc          bool
	splits       []string // each cuts what the one before left
	ignoreMerges bool
	addBOS       bool // unless the file says otherwise
}

var (
	preGPT2   = preTokenizer{splits: []string{patternGPT2}}
	preDigits = preTokenizer{splits: []string{patternDigit, patternGPT2}} // single digits, then as GPT-2
	preLlama3 = preTokenizer{splits: []string{patternLlama3}, ignoreMerges: true, addBOS: true}
	preCL100k = preTokenizer{splits: []string{patternLlama3}}
	preQwen2  = preTokenizer{nfc: true, splits: []string{patternQwen2}}
	preGPT4o  = preTokenizer{splits: []string{patternGPT4o}}
	// Digits, then Han and kana, then the rest.
	preDeepSeek3 = preTokenizer{splits: []string{patternThreeDigits, patternHanKana, patternDeepSeek}}
)

var preTokenizers = map[string]preTokenizer{
	"default": {splits: []string{`[\p{P}\$\+<=>\^~\|]+`, patternGPT2, `\p{N}+`, `[0-9][0-9][0-9]`}},

	"gpt-2": preGPT2, "phi-2": preGPT2, "mpt": preGPT2, "olmo": preGPT2, "jais": preGPT2, "trillion": preGPT2,
	"granite-docling": preGPT2, "exaone4": preGPT2, "mellum": preGPT2, "gigachat": preGPT2, "a.x-4.0": preGPT2,

	"smollm": preDigits, "starcoder": preDigits, "refact": preDigits, "command-r": preDigits, "codeshell": preDigits,
	"exaone": preDigits, "minerva-7b": preDigits, "mellum2": preDigits,

	"llama3": preLlama3, "llama-v3": preLlama3, "llama-bpe": preLlama3, "falcon3": preLlama3, "falcon-h1": preLlama3,
	"pixtral": preLlama3, "midm-2.0": preLlama3, "lfm2": preLlama3,
	"dbrx": preCL100k, "smaug-bpe": preCL100k, "glm4": preCL100k, "chatglm-bpe": preCL100k,

	"qwen2": preQwen2, "deepseek-r1-qwen": preQwen2, "megrez": preQwen2,
	"qwen35":    {nfc: true, splits: []string{patternQwen35}},
	"stablelm2": {splits: []string{patternQwen2}}, "hunyuan": {splits: []string{patternQwen2}},
	"grok-2": {splits: []string{patternQwen2}}, "solar-open": {splits: []string{patternQwen2}},

	"gpt-4o": preGPT4o, "llama4": preGPT4o, "kanana2": preGPT4o, "minimax-m2": preGPT4o,
	"tekken": {splits: []string{patternTekken}, ignoreMerges: true, addBOS: true},

	"deepseek-llm": {splits: []string{"[\r\n]",
		`\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-\u1F7Dᾀ-ᾴᾶ-ᾼ\u1FBEῂ-ῄῆ-ῌῐ-\u1FD3ῖ-\u1FDBῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤ\u2126ℨ\u212A-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+`,
		`\s?[!-/:-~！-／：-～‘-‟　-。]+`, `\s+$`, `[一-龥ࠀ-一가-퟿]+`, `\p{N}+`}},
	"deepseek-coder": {splits: []string{"[\r\n]", `\s?\p{L}+`, `\s?\p{P}+`, `[一-龥ࠀ-一가-퟿]+`, patternDigit}},
	"deepseek-v3":    preDeepSeek3, "hunyuan-dense": preDeepSeek3, "joyai-llm": preDeepSeek3,
	"falcon": {splits: []string{"[\\p{P}\\$\\+<=>\\^~\\|`]+", patternGPT2, `[0-9][0-9][0-9]`}},
}

// FromGGUF makes a tokenizer of a GGUF file's vocabulary. Control tokens are special added
// tokens, user-defined ones the others. Errors name the key at fault.
func FromGGUF(v GGUFVocab) (*Tokenizer, error) {
	t, err := fromGGUF(v)
	if err != nil {
		return nil, fmt.Errorf("tokenizer.ggml: %w", err)
	}
	return t, nil
}

func fromGGUF(v GGUFVocab) (*Tokenizer, error) {
	n := len(v.Tokens)
	switch {
	case n == 0 || n > maxTokens:
		return nil, fmt.Errorf("tokens: %d are not in 1..%d", n, maxTokens)
	case len(v.Types) != 0 && len(v.Types) != n:
		return nil, fmt.Errorf("token_type: %d for %d tokens", len(v.Types), n)
	}
	for _, r := range []struct {
		name string
		id   int32
	}{{"bos", v.BOS}, {"eos", v.EOS}, {"unknown", v.UNK}, {"padding", v.PAD}, {"eot", v.EOT}, {"eom", v.EOM}} {
		if r.id < -1 || int(r.id) >= n {
			return nil, fmt.Errorf("%s_token_id: %d for %d tokens", r.name, r.id, n)
		}
	}
	t := &Tokenizer{bos: v.BOS, eos: v.EOS, unk: v.UNK, pad: v.PAD, eot: v.EOT, eom: v.EOM}
	var addBOS bool
	var err error
	switch v.Model {
	case "gpt2":
		addBOS, err = t.fromGPT2(v)
	case "llama":
		addBOS, err = true, t.fromSPM(v)
	case "gemma4":
		addBOS, err = true, t.fromGemma4(v)
	default:
		err = fmt.Errorf("model: %q is not supported", v.Model)
	}
	if err != nil {
		return nil, err
	}
	for id, token := range v.Tokens {
		if special := v.special(id); token != "" && (special || v.tokenType(id) == typeUserDefined) {
			t.added = append(t.added, AddedToken{ID: int32(id), Content: token, Special: special})
		}
	}
	if v.AddBOS != nil {
		if addBOS = *v.AddBOS; addBOS && v.BOS < 0 {
			return nil, fmt.Errorf("add_bos_token without bos_token_id")
		}
	}
	if addBOS && v.BOS >= 0 {
		t.prefix = []int32{v.BOS}
	}
	if v.AddEOS != nil && *v.AddEOS {
		if v.EOS < 0 {
			return nil, fmt.Errorf("add_eos_token without eos_token_id")
		}
		t.suffix = []int32{v.EOS}
	}
	t.finish()
	return t, nil
}

func (v *GGUFVocab) tokenType(id int) int32 {
	if len(v.Types) == 0 {
		return typeNormal
	}
	return v.Types[id]
}

// special says whether a token is a control token. A file without types names its own by role.
func (v *GGUFVocab) special(id int) bool {
	if len(v.Types) == 0 {
		return slices.Contains([]int32{v.BOS, v.EOS, v.UNK, v.PAD, v.EOT, v.EOM}, int32(id))
	}
	return v.Types[id] == typeControl || v.Types[id] == typeUnknown
}

// setVocab records the tokens. key turns a token into what pieces look like, or says that no
// piece ever does; tokens that text must not merge into are left out.
func (t *Tokenizer) setVocab(v *GGUFVocab, key func(token string) (string, bool)) error {
	m := &t.model
	m.ids = make(map[string]int32, len(v.Tokens))
	byName := make(map[string]int32)
	for id, token := range v.Tokens {
		if err := t.setToken(int64(id), token); err != nil {
			return err
		}
		if _, ok := fallbackByte(token); ok {
			byName[token] = int32(id)
		}
		if token == "" || v.special(id) || v.tokenType(id) == typeByte {
			continue
		}
		if k, ok := key(token); ok {
			m.ids[k] = int32(id)
		}
	}
	m.unk = -1
	m.setFallback(func(token string) (int32, bool) {
		id, ok := byName[token]
		return id, ok
	})
	return nil
}

func asIs(token string) (string, bool) { return token, true }

func (t *Tokenizer) fromGPT2(v GGUFVocab) (addBOS bool, err error) {
	name := v.Pre
	if name == "" {
		name = "default"
	}
	pre, ok := preTokenizers[name]
	if !ok {
		return false, fmt.Errorf("pre: %q is not supported", v.Pre)
	}
	if pre.nfc {
		t.normalizer = normalForm{norm.NFC, true}
	}
	if v.AddSpacePrefix != nil && *v.AddSpacePrefix {
		return false, fmt.Errorf("add_space_prefix with model gpt2 is not supported")
	}
	for _, p := range pre.splits {
		m, err := newRegex(p)
		if err != nil {
			return false, fmt.Errorf("pre: %q: %w", name, err)
		}
		t.steps = append(t.steps, splitStep{matcher: m})
	}
	t.model.byteLevel, t.model.ignoreMerges = true, pre.ignoreMerges
	t.decoding.byteLevel = true
	if err := t.setVocab(&v, fromByteChars); err != nil {
		return false, err
	}
	return pre.addBOS, t.model.setGGUFMerges(v.Merges)
}

// fromGemma4 reads byte-pair encoding over characters, with U+2581 for the space.
func (t *Tokenizer) fromGemma4(v GGUFVocab) error {
	if v.Pre != "" && v.Pre != "gemma4" && v.Pre != "default" {
		return fmt.Errorf("pre: %q with model gemma4 is not supported", v.Pre)
	}
	if err := t.setSpaces(v.AddSpacePrefix != nil && *v.AddSpacePrefix); err != nil {
		return err
	}
	m, err := newRegex(`\n+`)
	if err != nil {
		return err
	}
	t.steps = []step{splitStep{matcher: m}}
	t.model.byteFallback, t.model.wholeBreaks, t.model.fuseUnk = true, true, true
	if err := t.setVocab(&v, asIs); err != nil {
		return err
	}
	t.model.unk = v.UNK
	return t.model.setGGUFMerges(v.Merges)
}

func (m *model) setGGUFMerges(lines []string) error {
	merges := make([][2]string, len(lines))
	for i, line := range lines {
		// A token may begin with a space, never end with one.
		k := -1
		if len(line) > 1 {
			k = strings.IndexByte(line[1:], ' ') + 1
		}
		if k < 1 || k == len(line)-1 {
			return fmt.Errorf("merges: %d: %q is not two tokens", i, line)
		}
		merges[i] = [2]string{line[:k], line[k+1:]}
	}
	if err := m.setMerges(merges); err != nil {
		return fmt.Errorf("merges: %w", err)
	}
	return nil
}

// fromSPM reads a SentencePiece vocabulary with scores.
func (t *Tokenizer) fromSPM(v GGUFVocab) error {
	if len(v.Scores) != len(v.Tokens) {
		return fmt.Errorf("scores: %d for %d tokens", len(v.Scores), len(v.Tokens))
	}
	if v.RemoveExtraWhitespaces != nil && *v.RemoveExtraWhitespaces {
		return fmt.Errorf("remove_extra_whitespaces is not supported")
	}
	if err := t.setSpaces(v.AddSpacePrefix == nil || *v.AddSpacePrefix); err != nil {
		return err
	}
	m := &t.model
	m.byteFallback = true
	if err := t.setVocab(&v, asIs); err != nil {
		return err
	}
	m.unk = v.UNK
	if m.unk < 0 {
		if k := slices.Index(v.Types, typeUnknown); k >= 0 {
			m.unk = int32(k)
		}
	}
	scores := slices.Clone(v.Scores)
	for id, s := range scores {
		if s != s {
			return fmt.Errorf("scores: token %d has no number", id)
		}
	}
	slices.Sort(scores)
	scores = slices.Compact(scores)
	m.spm = &spmModel{rank: make(map[string]uint32, len(m.ids))}
	m.cuts = new(adjacency)
	for token, id := range m.ids {
		k, _ := slices.BinarySearch(scores, v.Scores[id])
		m.spm.rank[token] = uint32(len(scores) - 1 - k)
		m.spm.maxLen = max(m.spm.maxLen, len(token))
		m.cuts.addToken(token, false)
	}
	return nil
}

// setSpaces writes spaces as U+2581, with prefix one more at the start of each text, and undoes
// both when decoding.
func (t *Tokenizer) setSpaces(prefix bool) error {
	const space = "▁"
	ns := normalizers{replace{literalMatcher(" "), space}}
	if prefix {
		ns = append(ns, prepend(space))
		t.decoding.stripChar, t.decoding.stripCount = ' ', 1
	}
	t.normalizer = ns
	t.decoding.byteFallback = true
	t.decoding.tokenOps = []func(string) string{func(s string) string { return strings.ReplaceAll(s, space, " ") }}
	return nil
}
