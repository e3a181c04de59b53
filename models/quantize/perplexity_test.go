package quantize

import (
	"math"
	"strings"
	"testing"

	"github.com/openinfer-go/openinfer/models/registry"
)

// Every token but the first is predicted once, from as much before it as the windows allow.
func TestWindows(t *testing.T) {
	for _, n := range []int{1, 2, 9, 10, 11, 40, 41} {
		for _, prefix := range [][]int32{nil, {7}} {
			for _, w := range []Windows{{10, 10}, {10, 3}, {10, 1}, {10, 9}} {
				text := Text{Prefix: prefix}
				for i := range n {
					text.Tokens = append(text.Tokens, int32(100+i))
				}
				scored := map[int32]int{}
				for _, x := range text.windows(w) {
					if len(x.ids) > w.Context || x.new < 1 {
						t.Fatalf("%d tokens, prefix %v, %v: window %+v", n, prefix, w, x)
					}
					for _, id := range x.ids[min(x.new, len(x.ids)):] {
						scored[id]++
					}
					if len(x.ids) == w.Context && x.ids[len(x.ids)-1] > 110 && x.new < w.Context-w.Stride {
						t.Errorf("%d tokens, prefix %v, %v: position %d has less than %d before it", n, prefix, w, x.new, w.Context-w.Stride)
					}
				}
				for i, id := range text.Tokens {
					// The first of a text, and without a prefix the first of each window that does not overlap the one before.
					if i == 0 && prefix == nil || prefix == nil && w.Stride == w.Context && i%w.Context == 0 {
						if scored[id] != 0 {
							t.Errorf("%d tokens, %v: token %d is predicted from nothing", n, w, i)
						}
						continue
					}
					if scored[id] != 1 {
						t.Errorf("%d tokens, prefix %v, %v: token %d is predicted %d times", n, prefix, w, i, scored[id])
					}
				}
			}
		}
	}
}

// The perplexity is what the logits of another runner say, however weights are loaded, and whatever the steps are.
func TestPerplexity(t *testing.T) {
	open := golden(t, "demo-models/demo-tales")
	d := openDevice(t)
	c, err := open()
	if err != nil {
		t.Fatal(err)
	}
	tok, err := registry.Tokenizer(c)
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	const content = "Once upon a time there was a king who had three sons. <|im_end|> The youngest went into the wood, and there he met an old man, who said to him: give me a piece of your bread."
	text := ReadText(tok, content)
	if len(text.Tokens) < 40 {
		t.Fatalf("%d tokens", len(text.Tokens))
	}
	w := Windows{Context: 16, Stride: 8}
	var sum float64
	n := 0
	for _, x := range text.windows(w) {
		rows := logits(t, open, x.ids, nil)
		for p := x.new; p < len(x.ids); p++ {
			var total float64
			for _, v := range rows[p-1] {
				total += math.Exp(float64(v))
			}
			sum += math.Log(total) - float64(rows[p-1][x.ids[p]])
			n++
		}
	}
	want := math.Exp(sum / float64(n))
	loaded, err := MeasureLoaded(t.Context(), open, d, d.Info().KVTypes[0], content, w, nil)
	if err != nil {
		t.Fatal(err)
	}
	streamed, err := MeasureStreamed(t.Context(), open, d, content, w, nil)
	if err != nil {
		t.Fatal(err)
	}
	if loaded != streamed {
		t.Errorf("loaded %+v, one weight at a time %+v", loaded, streamed)
	}
	if loaded.Tokens != n || math.Abs(loaded.Value-want) > 1e-4*want || !(loaded.Error > 0) {
		t.Errorf("perplexity %+v, want %v over %d tokens", loaded, want, n)
	}
	for _, bad := range []Windows{{1, 0}, {5000, 0}, {16, 17}, {16, -1}} {
		if _, err := MeasureLoaded(t.Context(), open, d, d.Info().KVTypes[0], content, bad, nil); err == nil || !strings.Contains(err.Error(), ":") {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	if _, err := MeasureLoaded(t.Context(), open, d, d.Info().KVTypes[0], "", w, nil); err == nil {
		t.Error("an empty text has a perplexity")
	}
}
