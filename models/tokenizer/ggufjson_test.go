package tokenizer

import (
	"slices"
	"strings"
	"testing"
)

// What is written as tokenizer.json gives the ids that the vocabulary gives.
func TestGGUFVocabAsJSON(t *testing.T) {
	base := GGUFVocab{
		Model: "gpt2", Pre: "qwen2", BOS: -1, EOS: -1, UNK: -1, PAD: -1, EOT: -1, EOM: -1,
		Merges: []string{"h e", "l l", "he ll", "hell o", "Ġ w", "o r"},
	}
	for b := range 256 {
		base.Tokens, base.Types = append(base.Tokens, toByteChars(string([]byte{byte(b)}))), append(base.Types, typeNormal)
	}
	for _, m := range base.Merges {
		base.Tokens, base.Types = append(base.Tokens, strings.Replace(m, " ", "", 1)), append(base.Types, typeNormal)
	}
	add := func(v GGUFVocab, at int, token string, kind int32) GGUFVocab {
		v.Tokens, v.Types = slices.Insert(slices.Clone(v.Tokens), at, token), slices.Insert(slices.Clone(v.Types), at, kind)
		return v
	}
	end := len(base.Tokens)
	last := add(add(add(base, end, "<|end|>", typeControl), end+1, "<think>", typeUserDefined), end+2, "[PAD1]", typeUnused)
	gap := add(add(base, end, "[PAD0]", typeUnused), end+1, "<|end|>", typeControl)
	first := add(base, 0, "<|end|>", typeControl)
	bos := last
	yes := true
	bos.BOS, bos.EOS, bos.AddBOS, bos.AddEOS, bos.Pre = int32(end), int32(end), &yes, &yes, "llama-bpe"
	smol := add(base, 3, "<|im_start|>", typeControl)
	smol.Pre = "smollm"
	for name, v := range map[string]GGUFVocab{"plain": base, "added last": last, "a gap": gap, "added first": first, "bos and eos": bos, "digits": smol} {
		t.Run(name, func(t *testing.T) {
			want, err := FromGGUF(v)
			if err != nil {
				t.Fatal(err)
			}
			raw, err := v.JSON()
			if err != nil {
				t.Fatal(err)
			}
			got, err := FromJSON(raw)
			if err != nil {
				t.Fatalf("%v\n%s", err, raw)
			}
			for _, text := range []string{"", "hello world", "hello <|end|> 1234", "<think>\n\nhell'll", "né 漢字 e\u0301", "<|im_start|>user\n"} {
				for _, o := range []Options{{}, {AddSpecial: true}, {NoControl: true}} {
					if a, b := got.Encode(text, o), want.Encode(text, o); !slices.Equal(a, b) {
						t.Errorf("%q, %+v: ids %v, want %v", text, o, a, b)
					}
				}
			}
			for _, id := range []int32{0, 100, 260, int32(len(v.Tokens) - 1)} {
				a, okA := got.Token(id)
				b, okB := want.Token(id)
				if v.tokenType(int(id)) != typeUnused && (a != b || okA != okB) {
					t.Errorf("token %d is %q, want %q", id, a, b)
				}
			}
		})
	}
	if _, err := (GGUFVocab{Model: "llama", Tokens: []string{"a"}, Scores: []float32{0}, BOS: -1, EOS: -1, UNK: -1, PAD: -1, EOT: -1, EOM: -1}).JSON(); err == nil ||
		!strings.Contains(err.Error(), "llama") {
		t.Errorf("a SentencePiece vocabulary: %v", err)
	}
}
