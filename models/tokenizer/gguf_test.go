package tokenizer

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/openinfer-go/openinfer/internal/testdata"
)

// ggufVocab reads the tokenizer.ggml.* values of a GGUF file.
func ggufVocab(tb testing.TB, path string) GGUFVocab {
	tb.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	r := ggufReader{data: data}
	if string(r.bytes(4)) != "GGUF" {
		tb.Fatalf("%s is no GGUF file", path)
	}
	r.uint(4)
	r.uint(8)
	kv := map[string]any{}
	for range r.uint(8) {
		key := r.string()
		kv[key] = r.value(r.uint(4))
	}
	id := func(key string) int32 {
		if v, ok := kv["tokenizer.ggml."+key].(uint64); ok {
			return int32(v)
		}
		return -1
	}
	flag := func(key string) *bool {
		if v, ok := kv["tokenizer.ggml."+key].(bool); ok {
			return &v
		}
		return nil
	}
	v := GGUFVocab{
		BOS: id("bos_token_id"), EOS: id("eos_token_id"), UNK: id("unknown_token_id"), PAD: id("padding_token_id"),
		EOT: id("eot_token_id"), EOM: id("eom_token_id"), AddBOS: flag("add_bos_token"), AddEOS: flag("add_eos_token"),
		AddSpacePrefix: flag("add_space_prefix"), RemoveExtraWhitespaces: flag("remove_extra_whitespaces"),
	}
	v.Model, _ = kv["tokenizer.ggml.model"].(string)
	v.Pre, _ = kv["tokenizer.ggml.pre"].(string)
	for _, x := range kv["tokenizer.ggml.tokens"].([]any) {
		v.Tokens = append(v.Tokens, x.(string))
	}
	if xs, ok := kv["tokenizer.ggml.merges"].([]any); ok {
		for _, x := range xs {
			v.Merges = append(v.Merges, x.(string))
		}
	}
	if xs, ok := kv["tokenizer.ggml.token_type"].([]any); ok {
		for _, x := range xs {
			v.Types = append(v.Types, int32(x.(uint64)))
		}
	}
	if xs, ok := kv["tokenizer.ggml.scores"].([]any); ok {
		for _, x := range xs {
			v.Scores = append(v.Scores, math.Float32frombits(uint32(x.(uint64))))
		}
	}
	return v
}

type ggufReader struct{ data []byte }

func (r *ggufReader) bytes(n uint64) []byte {
	b := r.data[:n]
	r.data = r.data[n:]
	return b
}

func (r *ggufReader) uint(n uint64) uint64 {
	var b [8]byte
	copy(b[:], r.bytes(n))
	return binary.LittleEndian.Uint64(b[:])
}

func (r *ggufReader) string() string { return string(r.bytes(r.uint(8))) }

// value reads a value; numbers come as their bits.
func (r *ggufReader) value(kind uint64) any {
	switch kind {
	case 7:
		return r.uint(1) != 0
	case 8:
		return r.string()
	case 9:
		kind := r.uint(4)
		var xs []any
		for range r.uint(8) {
			xs = append(xs, r.value(kind))
		}
		return xs
	}
	return r.uint([]uint64{1, 1, 2, 2, 4, 4, 4, 0, 0, 0, 8, 8, 8}[kind])
}

func fromGGUFFile(tb testing.TB, path string) *Tokenizer {
	tb.Helper()
	t, err := FromGGUF(ggufVocab(tb, path))
	if err != nil {
		tb.Fatalf("%s: %v", path, err)
	}
	return t
}

// TestGGUFSmolLM2 compares a real file's vocabulary with the reference's results.
func TestGGUFSmolLM2(t *testing.T) {
	tok := fromGGUFFile(t, testdata.Cache(t, "gguf", "SmolLM2-135M-Instruct.Q4_1.gguf"))
	checkRows(t, tok, readRows(t, testdata.Shared(t, "golden/tokenizers/smollm2.jsonl")))
	if tok.BOS() != 1 || tok.EOS() != 2 || !tok.IsSpecial(2) {
		t.Errorf("BOS %d, EOS %d, special %v", tok.BOS(), tok.EOS(), tok.IsSpecial(2))
	}
}

// TestGGUFEqualsJSON compares the vocabulary of a GGUF file with that of the checkpoint it was
// made from.
func TestGGUFEqualsJSON(t *testing.T) {
	for _, name := range []string{"llama_k256", "qwen3_k256"} {
		dir := testdata.Shared(t, "golden/gguf", name)
		a := fromGGUFFile(t, dir+"/"+name+"-Q4_0.gguf")
		b := loadFile(t, dir+"/hf_tokenizer.json")
		if a.Size() != b.Size() {
			t.Errorf("%s: sizes %d, %d", name, a.Size(), b.Size())
		}
		r := rand.New(rand.NewPCG(3, 4))
		for range 3000 {
			s := randomText(r, r.IntN(30))
			if r.IntN(3) == 0 {
				s += b.added[r.IntN(len(b.added))].Content + randomText(r, 3)
			}
			for _, o := range []Options{{}, {AddSpecial: true}, {NoControl: true}} {
				x, y := a.Encode(s, o), b.Encode(s, o)
				if !slices.Equal(x, y) {
					t.Fatalf("%s: %+q, %+v\n gguf %v\n json %v", name, s, o, x, y)
				}
				if x, y := a.Decode(x, true), b.Decode(y, true); x != y {
					t.Fatalf("%s: decoded %q and %q", name, x, y)
				}
			}
		}
	}
}

// TestGGUFScores merges by score: each expectation is worked out by hand.
func TestGGUFScores(t *testing.T) {
	v := GGUFVocab{Model: "llama", BOS: 1, EOS: 2, UNK: 0, PAD: -1, EOT: -1, EOM: -1}
	add := func(token string, score float32, typ int32) int32 {
		v.Tokens = append(v.Tokens, token)
		v.Scores = append(v.Scores, score)
		v.Types = append(v.Types, typ)
		return int32(len(v.Tokens) - 1)
	}
	add("<unk>", 0, typeUnknown)
	add("<s>", 0, typeControl)
	add("</s>", 0, typeControl)
	bytes := int32(len(v.Tokens))
	for b := range 256 {
		add("<0x"+strings.ToUpper(string("0123456789abcdef"[b>>4])+string("0123456789abcdef"[b&15]))+">", 0, typeByte)
	}
	space := add("▁", -10, typeNormal)
	a, b, c := add("a", -11, typeNormal), add("b", -12, typeNormal), add("c", -13, typeNormal)
	ab, bc, sa := add("ab", -2, typeNormal), add("bc", -1, typeNormal), add("▁a", -3, typeNormal)
	abc, less := add("abc", -5, typeNormal), add("<", -14, typeNormal)
	sTok, gt := add("s", -15, typeNormal), add(">", -16, typeNormal)
	user := add("  x", 0, typeUserDefined)
	tok, err := FromGGUF(v)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		text string
		o    Options
		want []int32
		back string
	}{
		// bc has the best score, then ▁a; no token joins them.
		{"abc", Options{}, []int32{sa, bc}, "abc"},
		{"abab", Options{}, []int32{space, ab, ab}, "abab"},
		{"babc", Options{}, []int32{space, b, abc}, "babc"},
		{"c", Options{AddSpecial: true}, []int32{1, space, c}, "<s> c"},
		{"é", Options{}, []int32{space, bytes + 0xC3, bytes + 0xA9}, "é"},
		{"a<s>b", Options{}, []int32{sa, 1, space, b}, "a<s> b"},
		{"a<s>b", Options{NoControl: true}, []int32{sa, less, sTok, gt, b}, "a<s>b"},
		{"a  xb", Options{}, []int32{sa, user, space, b}, "a  x b"},
	} {
		got := tok.Encode(x.text, x.o)
		if !slices.Equal(got, x.want) {
			t.Errorf("Encode(%q, %+v) = %v, want %v", x.text, x.o, got, x.want)
		}
		if back := tok.Decode(got, false); back != x.back {
			t.Errorf("Decode(%v) = %q, want %q", got, back, x.back)
		}
	}
	_ = a
	no := false
	v.AddSpacePrefix, v.AddBOS = &no, &no
	tok, err = FromGGUF(v)
	if err != nil {
		t.Fatal(err)
	}
	if got := tok.Encode("c", Options{AddSpecial: true}); !slices.Equal(got, []int32{c}) {
		t.Errorf("without prefix and BOS: %v", got)
	}
}

// TestGGUFGemma4 reads characters, merges and byte fallback without scores.
func TestGGUFGemma4(t *testing.T) {
	v := GGUFVocab{Model: "gemma4", Tokens: []string{"<pad>", "<eos>", "<bos>", "<unk>", "▁", "a", "b", "▁a", "\n", "\n\n", "<0xC3>", "<0xA9>"},
		Types: []int32{3, 3, 3, 3, 1, 1, 1, 1, 1, 1, 6, 6}, Merges: []string{"▁ a", "\n \n"}, BOS: 2, EOS: 1, UNK: 3, PAD: 0, EOT: -1, EOM: -1}
	tok, err := FromGGUF(v)
	if err != nil {
		t.Fatal(err)
	}
	got := tok.Encode("b a\n\n\né", Options{AddSpecial: true})
	if want := []int32{2, 6, 7, 9, 8, 10, 11}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if s := tok.Decode(got, true); s != "b a\n\n\né" {
		t.Errorf("decoded %q", s)
	}
}

func TestGGUFErrors(t *testing.T) {
	base := func() GGUFVocab {
		return GGUFVocab{Model: "gpt2", Pre: "gpt-2", Tokens: []string{"a", "b", "ab"}, Merges: []string{"a b"}, BOS: -1, EOS: -1, UNK: -1, PAD: -1, EOT: -1, EOM: -1}
	}
	yes := true
	for _, c := range []struct {
		want   string
		change func(v *GGUFVocab)
	}{
		{`pre: "nonesuch"`, func(v *GGUFVocab) { v.Pre = "nonesuch" }},
		{`model: "bert"`, func(v *GGUFVocab) { v.Model = "bert" }},
		{"scores: 0 for 3", func(v *GGUFVocab) { v.Model = "llama" }},
		{"token_type: 1 for 3", func(v *GGUFVocab) { v.Types = []int32{1} }},
		{"bos_token_id: 3", func(v *GGUFVocab) { v.BOS = 3 }},
		{"add_bos_token", func(v *GGUFVocab) { v.AddBOS = &yes }},
		{"add_eos_token", func(v *GGUFVocab) { v.AddEOS = &yes }},
		{"merges: 0", func(v *GGUFVocab) { v.Merges = []string{"ab"} }},
		{`"c" is not in the vocabulary`, func(v *GGUFVocab) { v.Merges = []string{"a c"} }},
		{"tokens: 0", func(v *GGUFVocab) { v.Tokens = nil }},
	} {
		v := base()
		c.change(&v)
		if _, err := FromGGUF(v); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error %v, want one with %s", err, c.want)
		}
	}
	if _, err := FromGGUF(base()); err != nil {
		t.Error(err)
	}
}

// TestPreTokenizers compiles every pre-tokenizer and sees that it loses nothing.
func TestPreTokenizers(t *testing.T) {
	v := GGUFVocab{Model: "gpt2", BOS: -1, EOS: -1, UNK: -1, PAD: -1, EOT: -1, EOM: -1}
	for _, c := range byteToChar {
		v.Tokens = append(v.Tokens, string(c))
	}
	r := rand.New(rand.NewPCG(5, 6))
	for name, pre := range preTokenizers {
		v.Pre = name
		tok, err := FromGGUF(v)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for range 100 {
			s := randomText(r, 20)
			want := s
			if pre.nfc {
				want = tok.normalizer.normalize(s)
			}
			if got := tok.Decode(tok.Encode(s, Options{}), false); got != want {
				t.Errorf("%s: %q became %q", name, want, got)
			}
		}
	}
}
