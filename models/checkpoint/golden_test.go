package checkpoint

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/openinfer-go/openinfer/internal/testdata"
	"github.com/openinfer-go/openinfer/kernels"
)

func openGolden(t testing.TB, elem ...string) *Checkpoint {
	t.Helper()
	c, err := Open(testdata.Shared(t, append([]string{"golden"}, elem...)...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// values are rows [row, row+n) of m as float32, every operation rounded.
func values(t testing.TB, m kernels.Matrix, row, n int) []float32 {
	t.Helper()
	var r kernels.Rows
	if err := m.Read(&r, row, n); err != nil {
		t.Fatal(err)
	}
	if m.Bits == 0 {
		return r.Float
	}
	v := make([]float32, n*m.K)
	for i, code := range r.Codes {
		g := i / m.Group
		if m.HasMin {
			product := r.Scale[g] * float32(code)
			v[i] = product + r.Min[g]
		} else {
			v[i] = r.Scale[g] * float32(int(code)-int(r.Zero[g]))
		}
	}
	return v
}

func equal(t *testing.T, what string, got, want []float32) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d values, want %d", what, len(got), len(want))
	}
	for i := range got {
		if got[i] != want[i] {
			t.Fatalf("%s: value %d is %v, want %v", what, i, got[i], want[i])
		}
	}
}

// shapeOf is [n, k] of a module's weight, by its stored tensors.
func shapeOf(t *testing.T, c *Checkpoint, module string) (n, k int) {
	t.Helper()
	name := c.stored(module)
	if w := c.tensors[name+".weight"]; w != nil {
		return w.shape[0], w.shape[1]
	}
	w := c.tensors[name+".weight_shape"]
	if w == nil {
		t.Fatalf("%s: no weight", module)
	}
	return int(w.data[0]) | int(w.data[1])<<8, int(w.data[8]) | int(w.data[9])<<8
}

// compareGolden compares with every tensor "<prefix>dequantised.<name>.weight" of a golden file, which holds
// the first rows of a weight.
func compareGolden(t *testing.T, c *Checkpoint, golden map[string]testdata.Tensor, prefix string, opts func(module string) []Option) {
	t.Helper()
	compared := 0
	for name, want := range golden {
		module, ok := strings.CutPrefix(name, prefix+"dequantised.")
		if !ok {
			continue
		}
		module = strings.TrimSuffix(module, ".weight")
		n, k := shapeOf(t, c, module)
		m, err := c.Matrix(module, n, k, opts(module)...)
		if err != nil {
			t.Fatal(err)
		}
		rows := want.Shape[0]
		equal(t, name, values(t, m, 0, rows), want.Float32())
		// A row alone, and rows from the middle on, are the same as among others.
		equal(t, name+" row 3", values(t, m, 3, 1), want.Float32()[3*k:4*k])
		equal(t, name+" rows 5 to 12", values(t, m, 5, 7), want.Float32()[5*k:12*k])
		compared++
	}
	if compared == 0 {
		t.Fatalf("nothing to compare with prefix %q", prefix)
	}
}

func none(string) []Option { return nil }

func TestCompressedTensorsEqualReference(t *testing.T) {
	for _, dir := range []string{
		"llama_ct_channel_sym", "llama_ct_g128_sym", "llama_ct_g32_sym", "llama_ct_g32_ignore",
		"qwen3_ct_g128_sym", "qwen3_ct_g32_actorder_weight", "phi3_ct_g128_sym", "gemma4_ct_g128_sym", "qwen3_5_ct_g128_sym",
	} {
		t.Run(dir, func(t *testing.T) {
			c := openGolden(t, "quant", dir)
			golden := testdata.Tensors(t, testdata.Shared(t, "golden/quant", dir, "golden.safetensors"))
			compareGolden(t, c, golden, "", none)
		})
	}
}

func TestUnsupportedQuantisationIsRefusedByName(t *testing.T) {
	for dir, want := range map[string]string{
		"llama_ct_g128_asym": "symmetric", "llama_ct_g32_actorder_gidx": "actorder", "qwen3_ct_channel_asym": "symmetric",
		"llama_gptq_g128": "gptq", "llama_awq_g128": "awq",
	} {
		_, err := Open(testdata.Shared(t, "golden/quant", dir))
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "config.json") {
			t.Errorf("%s: got %v, want an error that names config.json and %s", dir, err, want)
		}
	}
}

func TestGGUFEqualsReference(t *testing.T) {
	for _, model := range []string{"llama_k256", "qwen3_k256"} {
		golden := testdata.Tensors(t, testdata.Shared(t, "golden/gguf", model, "golden.safetensors"))
		for _, kind := range []string{"F16", "Q4_0", "Q4_K_M"} {
			t.Run(model+"-"+kind, func(t *testing.T) {
				c := openGolden(t, "gguf", model, model+"-"+kind+".gguf")
				heads, err := c.GGUF().Int(c.Architecture() + ".attention.head_count_kv")
				if err != nil {
					t.Fatal(err)
				}
				compareGolden(t, c, golden, kind+".", func(module string) []Option {
					if c.Architecture() == "llama" && strings.HasSuffix(module, "k_proj") {
						return []Option{Unpermute(heads)}
					}
					return nil
				})
			})
		}
	}
}

// TestEveryTensorOfGGUF asks for all tensors of whole files by their Hugging Face names, after which
// nothing may be left.
func TestEveryTensorOfGGUF(t *testing.T) {
	for _, model := range []string{"llama_k256", "qwen3_k256"} {
		for _, kind := range []string{"F16", "Q4_0", "Q4_K_M"} {
			c := openGolden(t, "gguf", model, model+"-"+kind+".gguf")
			takeAll(t, c)
			if err := c.Finish(); err != nil {
				t.Errorf("%s %s: %v", model, kind, err)
			}
		}
	}
	c, err := Open(testdata.Cache(t, "gguf/SmolLM2-135M-Instruct.Q4_1.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	takeAll(t, c)
	if err := c.Finish(); err != nil {
		t.Error(err)
	}
}

// takeAll asks for each tensor of a GGUF file of the llama family by its Hugging Face name.
func takeAll(t testing.TB, c *Checkpoint) {
	t.Helper()
	layers, err := c.GGUF().Int(c.Architecture() + ".block_count")
	if err != nil {
		t.Fatal(err)
	}
	modules := []string{}
	for name := range llamaNames.Global {
		modules = append(modules, name)
	}
	for i := range layers {
		for name := range llamaNames.Layer {
			modules = append(modules, "model.layers."+itoa(i)+"."+name)
		}
	}
	for _, m := range modules {
		stored := c.tensors[c.stored(m)+".weight"]
		if stored == nil {
			if c.Has(m) {
				t.Errorf("Has(%s), but there is no tensor", m)
			}
			continue
		}
		if len(stored.shape) == 1 {
			_, err = c.Vector(m+".weight", stored.shape[0])
		} else {
			_, err = c.Matrix(m, stored.shape[0], stored.shape[1])
		}
		if err != nil {
			t.Error(err)
		}
	}
	if c.Has("rope_freqs.weight") {
		if _, err := c.Vector("rope_freqs.weight", c.tensors["rope_freqs.weight"].shape[0]); err != nil {
			t.Error(err)
		}
	}
}

func TestDemoModelsOpenFromMemory(t *testing.T) {
	for _, name := range []string{"demo-tales", "demo-bard"} {
		dir := testdata.Shared(t, "demo-models", name)
		disk, err := Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer disk.Close()
		memory, err := OpenFiles(name, readDir(t, dir))
		if err != nil {
			t.Fatal(err)
		}
		embedded, err := OpenFS(osDirFS(filepath.Dir(dir)), name)
		if err != nil {
			t.Fatal(err)
		}
		const module = "model.layers.0.mlp.down_proj"
		n, k := shapeOf(t, disk, module)
		var all [3]kernels.Matrix
		for i, c := range []*Checkpoint{disk, memory, embedded} {
			if all[i], err = c.Matrix(module, n, k); err != nil {
				t.Fatal(err)
			}
		}
		want := values(t, all[0], 0, n)
		equal(t, "memory", values(t, all[1], 0, n), want)
		equal(t, "embedded", values(t, all[2], 0, n), want)
	}
}
