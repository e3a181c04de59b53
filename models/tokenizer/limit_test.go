package tokenizer

import (
	"slices"
	"strings"
	"testing"

	"github.com/openinfer-go/openinfer/internal/testdata"
)

// A limit says nil for exactly the texts with more ids, and changes no id of the others.
func TestLimit(t *testing.T) {
	for name, tok := range map[string]*Tokenizer{
		"smollm2": load(t, "smollm2"), "demo-tales": loadFile(t, testdata.Shared(t, "demo-models/demo-tales/tokenizer.json")),
	} {
		for _, text := range []string{
			"", "a", "Once upon a time there was a king.", strings.Repeat("a", 300), strings.Repeat("<|im_end|>", 20),
			"a <|im_end|> b\n\n\n c", strings.Repeat(" ", 100), "é漢😀", "\xff\xfe",
		} {
			for _, special := range []bool{false, true} {
				o := Options{AddSpecial: special}
				want := tok.Encode(text, o)
				for limit := 1; limit <= len(want)+1; limit++ {
					o.Limit = limit
					segments := []Segment{{text, true}}
					for _, got := range [][]int32{tok.Encode(text, o), tok.EncodeSegments(segments, o)} {
						if limit < len(want) && got != nil || limit >= len(want) && !slices.Equal(got, want) {
							t.Fatalf("%s: %.40q, special %v, limit %d: got %v, the text has %v", name, text, special, limit, got, want)
						}
					}
				}
			}
		}
	}
}

// A text that is far too long is given up before it is merged: merging one word of so many
// symbols takes tables of many bytes for each.
func TestLimitSparesLongWords(t *testing.T) {
	tok := load(t, "smollm2")
	text := strings.Repeat("a", 1<<20)
	got := testing.Benchmark(func(b *testing.B) {
		for b.Loop() {
			if ids := tok.Encode(text, Options{Limit: 1000}); ids != nil {
				b.Fatalf("%d ids", len(ids))
			}
		}
	}).AllocedBytesPerOp()
	if got > int64(len(text)) {
		t.Errorf("refusing a word of %d bytes allocates %d bytes", len(text), got)
	}
}
