package checkpoint

import (
	"slices"
	"testing"

	"github.com/openinfer-go/openinfer/internal/testdata"
	"github.com/openinfer-go/openinfer/models/checkpoint/ggufwrite"
)

// TestOrders reads rows that hold their own numbers back to front, a pair at a time.
func TestOrders(t *testing.T) {
	const n, k = 12, 32
	var stored, bias []float32
	for row := range n {
		bias = append(bias, float32(row))
		stored = append(stored, slices.Repeat([]float32{float32(row)}, k)...)
	}
	c := openFiles(t, map[string][]byte{"m.gguf": ggufFile(t, func(f *ggufwrite.File) {
		f.Add(ggufTensor("a.weight", ggufwrite.Q8_0, []int{n, k}, stored))
		f.Add(ggufTensor("a.bias", ggufwrite.F32, []int{n}, bias))
	})})
	order := func(i int) int { return (n/2-1-i/2)*2 + i%2 }
	inputs := make([]int32, k)
	for i := range inputs {
		inputs[i] = int32(k - 1 - i)
	}
	m, err := c.Matrix("a", n, k, WithBias(), RowOrder(order), InputOrder(inputs))
	if err != nil {
		t.Fatal(err)
	}
	for first := range n {
		got := values(t, m, first, n-first)
		for row := first; row < n; row++ {
			if v := got[(row-first)*k]; v < float32(order(row))-0.1 || v > float32(order(row))+0.1 {
				t.Fatalf("read from row %d: row %d is %v", first, row, v)
			}
		}
		if m.Bias[first] != float32(order(first)) {
			t.Errorf("bias %d is %v", first, m.Bias[first])
		}
	}
	if !slices.Equal(m.Perm, inputs) {
		t.Errorf("inputs in the order %v", m.Perm)
	}
}

func TestTwoOrdersOfInputsAreRefused(t *testing.T) {
	c, err := Open(testdata.Shared(t, "golden/quant/llama_ct_g32_actorder_gidx"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}()
	_, err = c.Matrix("model.layers.0.self_attn.q_proj", 256, 128, InputOrder(make([]int32, 128)))
	refused(t, err, "model.layers.0.self_attn.q_proj", "activation order")
}
