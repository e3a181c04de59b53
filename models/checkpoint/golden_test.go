package checkpoint

import (
	"fmt"
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
		g, at := i/m.Group, i
		if m.Perm != nil {
			at = i/m.K*m.K + int(m.Perm[i%m.K])
		}
		if m.HasMin {
			product := r.Scale[g] * float32(code)
			v[at] = product + r.Min[g]
		} else {
			v[at] = r.Scale[g] * float32(int(code)-int(r.Zero[g]))
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
	if w := c.tensors[name+".qweight"]; w != nil {
		per := 8
		if _, ok := c.config.quant.(*awq); ok {
			per = 1
		}
		return c.tensors[name+".scales"].shape[1], w.shape[0] * per
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

func TestQuantisedEqualReference(t *testing.T) {
	for _, dir := range []string{
		"llama_ct_channel_sym", "llama_ct_g128_sym", "llama_ct_g32_sym", "llama_ct_g32_ignore", "llama_ct_g128_asym", "llama_ct_g32_actorder_gidx",
		"qwen3_ct_g128_sym", "qwen3_ct_g32_actorder_weight", "qwen3_ct_channel_asym", "qwen3_ct_g32_asym",
		"phi3_ct_g128_sym", "phi3_mini_ct_g32_asym", "gemma4_ct_g128_sym", "gemma4_ct_g32_asym", "qwen3_5_ct_g128_sym", "qwen3_5_mtp_vision_ct_g32_asym",
		"llama_gptq_g128", "llama_gptq_g32_desc_act", "llama_gptq_v2_g32_asym", "qwen3_gptq_channel", "qwen3_gptq_g32_asym", "qwen3_gptq_v2_g32_desc_act",
		"llama_awq_g128", "qwen3_awq_g32_skip",
	} {
		t.Run(dir, func(t *testing.T) {
			c := openGolden(t, "quant", dir)
			golden := testdata.Tensors(t, testdata.Shared(t, "golden/quant", dir, "golden.safetensors"))
			compareGolden(t, c, golden, "", none)
			if w := c.Warnings(); w != nil {
				t.Errorf("warnings of a good checkpoint: %q", w)
			}
		})
	}
}

// TestZeroPointsEqualReference reads single GPTQ layers as what they are, and symmetric ones under the wrong label.
func TestZeroPointsEqualReference(t *testing.T) {
	const dir = "golden/quant/layer_vectors"
	golden := testdata.Tensors(t, testdata.Shared(t, dir, "golden.safetensors"))
	compared := 0
	for name, want := range golden {
		layer, ok := strings.CutSuffix(name, ".expected")
		if !ok {
			continue
		}
		compared++
		var tensors []storedTensor
		for _, part := range []string{"qweight", "qzeros", "scales", "g_idx"} {
			g := golden[layer+"."+part]
			tensors = append(tensors, storedTensor{"a." + part, g.DType, g.Shape, g.Data})
		}
		format, _, _ := strings.Cut(layer, ".")
		type label struct {
			format string
			sym    bool
			warn   string
		}
		labels := []label{{format, false, ""}}
		if strings.Contains(layer, ".sym.") {
			other := map[string]string{"gptq": "gptq_v2", "gptq_v2": "gptq"}[format]
			labels = append(labels, label{format, true, ""}, label{other, true, "checkpoint_format " + other})
		}
		for _, l := range labels {
			order := strings.Contains(layer, "desc_act")
			files := folderOf(tensors...)
			files["config.json"] = quantJSON(`"quant_method":"gptq","bits":4,"group_size":32,"checkpoint_format":%q,"sym":%v,"desc_act":%v`, l.format, l.sym, order)
			c := openFiles(t, files)
			m, err := c.Matrix("a", 64, 64)
			if err != nil {
				t.Fatal(err)
			}
			if (m.Perm != nil) != order {
				t.Errorf("%s: order %v", layer, m.Perm)
			}
			equal(t, fmt.Sprint(layer, " read as ", l), values(t, m, 0, 64), want.Float32())
			warned := strings.Join(c.Warnings(), "\n")
			if (warned == "") != (l.warn == "") || !strings.Contains(warned, l.warn) || l.warn != "" && !strings.Contains(warned, "a.qzeros") {
				t.Errorf("%s read as %v: warnings %q", layer, l, warned)
			}
			if err := c.Finish(); err != nil {
				t.Error(err)
			}
		}
	}
	if compared != 14 {
		t.Errorf("compared %d layers", compared)
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
