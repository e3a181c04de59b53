package main

import (
	"bytes"
	"testing"

	"github.com/openinfer-go/openinfer/internal/testdata"
	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/models/checkpoint"
	"github.com/openinfer-go/openinfer/models/checkpoint/ggufwrite"
)

func TestTheSameFlagsWriteTheSameModel(t *testing.T) {
	s := shape{vocab: 600, hidden: 256, intermediate: 512, layers: 2, heads: 4, kvHeads: 2, headSize: 64, context: 128,
		ropeBase: 10000, ropeFactor: 8, lowFactor: 1, highFactor: 4, originalContext: 64}
	vocabulary := testdata.Shared(t, "golden/gguf/llama_k256/llama_k256-F16.gguf")
	write := func(seed uint64) []byte {
		f, err := model("test", s, ggufwrite.Q4_0, ggufwrite.Q8_0, vocabulary, seed)
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		if _, err := f.WriteTo(&b); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	first := write(1)
	if !bytes.Equal(first, write(1)) {
		t.Error("two runs differ")
	}
	if bytes.Equal(first, write(2)) {
		t.Error("another seed changes nothing")
	}

	c, err := checkpoint.OpenFiles("test", map[string][]byte{"m.gguf": first})
	if err != nil {
		t.Fatal(err)
	}
	v, err := c.Vocabulary()
	if err != nil || len(v.Tokens) != s.vocab {
		t.Errorf("%d tokens, %v", len(v.Tokens), err)
	}
	m, err := c.Matrix("model.layers.1.mlp.down_proj", s.hidden, s.intermediate)
	if err != nil {
		t.Fatal(err)
	}
	var r kernels.Rows
	if err := m.Read(&r, 0, m.N); err != nil {
		t.Fatal(err)
	}
	square := 0.0
	for i, code := range r.Codes {
		x := float64(r.Scale[i/m.Group]) * float64(int(code)-int(r.Zero[i/m.Group]))
		square += x * x
	}
	// 1/sqrt(2 layers x 2 additions) / sqrt(inputs)
	if want := 1.0 / 4 / float64(s.intermediate); square/float64(len(r.Codes)) < 0.8*want || square/float64(len(r.Codes)) > 1.2*want {
		t.Errorf("mean square of down_proj is %g, want about %g", square/float64(len(r.Codes)), want)
	}
	// The file's own scaling factors of the rotary frequencies are those of the same rule.
	golden, err := checkpoint.Open(vocabulary)
	if err != nil {
		t.Fatal(err)
	}
	defer golden.Close()
	want, err := golden.Vector("rope_freqs.weight", s.headSize/2)
	if err != nil {
		t.Fatal(err)
	}
	got := ropeFactors(s)
	for i := range want {
		if d := got[i] - want[i]; d > 1e-5*want[i] || -d > 1e-5*want[i] {
			t.Errorf("rope factor %d is %v, want %v", i, got[i], want[i])
		}
	}
}
