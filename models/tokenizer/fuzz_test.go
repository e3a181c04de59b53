package tokenizer

import (
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"testing"
)

// FuzzTokenizerJSON: any file is refused, or gives a tokenizer that works.
func FuzzTokenizerJSON(f *testing.F) {
	for _, c := range readOracle(f, "testdata/synthetic.json") {
		// The vocabulary and its merges make a file long; a few of each say as much.
		var file map[string]any
		if err := json.Unmarshal(c.Tokenizer, &file); err != nil {
			f.Fatal(err)
		}
		m := file["model"].(map[string]any)
		m["merges"] = m["merges"].([]any)[:3]
		small, err := json.Marshal(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(small, c.Rows[0].Text)
	}
	f.Add([]byte(`{"model":{"type":"BPE","vocab":{"a":0},"merges":[]},"added_tokens":[{"id":4194303,"content":"x"}]}`), "ax")
	f.Fuzz(func(t *testing.T, file []byte, text string) {
		tok, err := FromJSON(file)
		if err != nil {
			return
		}
		if len(text) > 200 {
			text = text[:200]
		}
		ids := tok.Encode(text, Options{AddSpecial: true})
		tok.Decode(ids, true)
		tok.EncodeSegments([]Segment{{text, true}, {text, false}}, Options{})
		for _, id := range ids {
			if _, ok := tok.Token(id); !ok {
				t.Fatalf("id %d is no token", id)
			}
		}
	})
}

// FuzzEncode: a byte-level tokenizer without a normaliser loses nothing, and long pieces,
// segments and the incremental decoder agree with the plain way.
func FuzzEncode(f *testing.F) {
	tok, cut := fuzzTokenizers(f)
	for _, s := range []string{"", "hello world", "don't  \n\n stop", "\xff\xc3", "été e\u0301", "👨‍👩‍👧", strings.Repeat("the", 40), "<|end|> <think>"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		ids := tok.Encode(s, Options{NoControl: true})
		if got := tok.Decode(ids, false); got != validUTF8(s) {
			t.Fatalf("%q became %q", s, got)
		}
		if other := cut.Encode(s, Options{NoControl: true}); !slices.Equal(ids, other) {
			t.Fatalf("%q: %v with cuts, %v without", s, ids, other)
		}
		d := tok.NewDecoder(false)
		var b []byte
		for _, id := range ids {
			b = append(b, d.Next(id)...)
		}
		if string(b) != validUTF8(s) {
			t.Fatalf("%q became %q piece by piece", s, b)
		}
	})
}

// fuzzTokenizers returns a byte-level tokenizer that takes [R] and the like for text, and one
// that never cuts a piece.
func fuzzTokenizers(tb testing.TB) (tok, uncut *Tokenizer) {
	for _, c := range readOracle(tb, "testdata/synthetic.json") {
		if c.Name == "single digits" {
			var file map[string]any
			if err := json.Unmarshal(c.Tokenizer, &file); err != nil {
				tb.Fatal(err)
			}
			file["added_tokens"] = []any{}
			file["pre_tokenizer"] = map[string]any{"type": "ByteLevel", "use_regex": false, "add_prefix_space": false}
			data, err := json.Marshal(file)
			if err != nil {
				tb.Fatal(err)
			}
			if tok, err = FromJSON(data); err != nil {
				tb.Fatal(err)
			}
			if uncut, err = FromJSON(data); err != nil {
				tb.Fatal(err)
			}
			uncut.model.cuts = nil
			return tok, uncut
		}
	}
	tb.Fatal("no such case")
	return nil, nil
}

// TestLongTexts: long pieces take the heap, cuts and no cache; splitting them at a place where
// the pattern splits anyway must not matter.
func TestLongTexts(t *testing.T) {
	for _, name := range []string{"qwen3", "gemma3"} {
		tok := load(t, name)
		for _, unit := range []string{"a", " ", "aB1 ", "<|", "\n", "é", "中文", "ab'cd", "▁", "=-"} {
			text := strings.Repeat(unit, 200_000/len(unit))
			ids := tok.Encode(text, Options{})
			if got := tok.Decode(ids, false); got != text && unit != "▁" {
				t.Errorf("%s: %d times %q do not come back", name, len(text)/len(unit), unit)
			}
			if d := tok.NewDecoder(false); len(ids) == 0 || len(d.Next(ids[0])) == 0 {
				t.Errorf("%s: %q: nothing", name, unit)
			}
		}
	}
}

// TestLongWordEqualsShort: the heap, the plain search and the cuts make the same merges.
func TestLongWordEqualsShort(t *testing.T) {
	tok, uncut := fuzzTokenizers(t)
	text := strings.Repeat("the hello there barfoo heather foothe ", 30)
	for n := range len(text) {
		s := text[:n]
		if a, b := tok.Encode(s, Options{}), uncut.Encode(s, Options{}); !slices.Equal(a, b) {
			t.Fatalf("%q: %v with cuts, %v without", s, a, b)
		}
		sy := new(symbols)
		uncut.model.byteSymbols(sy, s)
		pair := func(i, j int32) uint32 { r, _ := uncut.model.merges.get(sy.ids[i], sy.ids[j]); return r }
		join := func(i, j int32) { _, sy.ids[i] = uncut.model.merges.get(sy.ids[i], sy.ids[j]) }
		// The same loop as merge, by the plain search whatever the length.
		k := int32(len(sy.ids))
		sy.rank, sy.next, sy.prev = make([]uint32, k), make([]int32, k), make([]int32, k)
		for i := range k {
			sy.prev[i], sy.next[i], sy.rank[i] = i-1, i+1, noRank
			if i+1 < k {
				sy.rank[i] = pair(i, i+1)
			}
		}
		sy.mergeShort(k, pair, join)
		var want []int32
		for i := int32(0); i < k; i = sy.next[i] {
			want = append(want, sy.ids[i])
		}
		if got := uncut.Encode(s, Options{}); !slices.Equal(got, want) {
			t.Fatalf("%q: %v, by plain search %v", s, got, want)
		}
	}
}

// TestConcurrentUse shares one tokenizer; the race detector watches.
func TestConcurrentUse(t *testing.T) {
	tok := load(t, "smollm2")
	texts := []string{"one two three", "été 東京", strings.Repeat("word ", 100), "1234 5678\n\n"}
	var want [][]int32
	for _, s := range texts {
		want = append(want, tok.Encode(s, Options{}))
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for k := range 50 {
				i := k % len(texts)
				if got := tok.Encode(texts[i], Options{}); !slices.Equal(got, want[i]) {
					t.Errorf("%q: %v, want %v", texts[i], got, want[i])
				}
			}
		})
	}
	wg.Wait()
}
