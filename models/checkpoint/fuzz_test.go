package checkpoint

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/models/checkpoint/ggufwrite"
)

// smallGGUF is a file with every part that one can have.
func smallGGUF(t testing.TB) []byte {
	return ggufFile(t, func(f *ggufwrite.File) {
		f.Set("llama.context_length", uint32(64))
		f.Set("general.sampling.temp", float32(0.5))
		f.Set("tokenizer.ggml.model", "gpt2")
		f.Set("tokenizer.ggml.tokens", []string{"a", "<|im_end|>"})
		f.Set("tokenizer.ggml.token_type", []int32{1, 3})
		f.Set("tokenizer.ggml.merges", []string{"a a"})
		f.Set("tokenizer.ggml.eos_token_id", uint32(1))
		f.Set("tokenizer.ggml.add_bos_token", false)
		f.Set("tokenizer.chat_template", "{{ x }}")
		f.Set("nested", [][]string{{"x"}, {}})
		f.Add(ggufTensor("output_norm.weight", ggufwrite.F32, []int{3}, []float32{1, 2, 3}))
		f.Add(ggufTensor("blk.0.attn_q.weight", ggufwrite.Q4_0, []int{4, 32}, make([]float32, 128)))
		f.Add(ggufTensor("blk.0.attn_k.weight", ggufwrite.Q6_K, []int{2, 256}, make([]float32, 512)))
	})
}

func smallSafetensors(testing.TB) []byte {
	layer, _ := packedLayer(rand.New(rand.NewPCG(1, 1)), "a", 2, 16, 4, 8, nil)
	return safetensorsFile(append(layer, f32Tensor("n.weight", 1, 2), storedTensor{"w.weight", "BF16", []int{2, 2}, make([]byte, 8)})...)
}

// quantisedSeeds are a config.json and a model.safetensors of each format.
func quantisedSeeds() (list [][2][]byte) {
	r := rand.New(rand.NewPCG(5, 6))
	add := func(config []byte, tensors []storedTensor) {
		list = append(list, [2][]byte{config, safetensorsFile(tensors...)})
	}
	l := newCTLayer(r, 4, 16, 4, 8, "group", true)
	add(l.config(packFormat, asymmetric+ordered), l.stored(true, "packed", true))
	add(l.config("naive-quantized", asymmetric+ordered), l.stored(false, "I8", true))
	one := newCTLayer(r, 2, 8, 8, 8, "tensor", false)
	add(one.config(packFormat, asymmetric), one.stored(true, "I8", false))
	c := newColumnLayer(r, 8, 32, 4, 16, true)
	add(quantJSON(`"quant_method":"gptq","bits":4,"group_size":16,"desc_act":true,"dynamic":{"-:b":{},"+:a":{"sym":false}}`), c.tensors("a", "gptq", 1))
	add(quantJSON(`"quant_method":"auto-round","bits":4,"group_size":16,"sym":true,"extra_config":{"a":{"bits":4}}`), c.constant(8).tensors("a", "gptq", 1))
	add(quantJSON(`"quant_method":"awq","bits":4,"group_size":16,"version":"gemm","modules_to_not_convert":["b"]`), c.tensors("a", "awq", 0))
	return list
}

// smallConfig fits smallSafetensors.
func smallConfig() string {
	return string(ctJSON(`"ignore":["re:w"],`, `["Linear"]`, weightsJSON(4, "group", 8)))
}

const smallTokenizer = `{"chat_template":[{"name":"default","template":"x"}],"eos_token":{"content":"</s>"},"add_bos_token":true,"model_max_length":1e30}`

// readAll opens files and asks for every tensor as what its name and shape say.
func readAll(files map[string][]byte) {
	c, err := OpenFiles("fuzz", files)
	if err != nil {
		return
	}
	defer c.Close()
	_, _ = c.Vocabulary()
	c.ChatTemplate()
	c.EOS()
	if m := c.GGUF(); m != nil {
		for _, key := range m.Keys() {
			_, _ = m.Int(key)
			_, _ = m.Float(key)
			_, _ = m.String(key)
			_, _ = m.Strings(key)
			_, _ = m.Floats(key)
			_, _ = m.Ints(key)
			_, _ = m.Bool(key)
		}
	}
	var rows kernels.Rows
	for _, t := range c.order {
		switch len(t.shape) {
		case 1:
			_, _ = c.Vector(t.name, t.shape[0])
		case 2:
			i := strings.LastIndexByte(t.name, '.')
			n, k := t.shape[0], t.shape[1]
			shapes := [][2]int{{n, k}}
			switch t.name[max(i, 0):] {
			case ".weight_packed":
				shapes = [][2]int{{n, 8 * k}, {n, 4 * k}}
			case ".qweight":
				shapes = [][2]int{{k, 8 * n}, {k, 4 * n}, {8 * k, n}}
			}
			for _, s := range shapes {
				m, err := c.Matrix(t.name[:max(i, 0)], s[0], s[1], WithOptionalBias(), Unpermute(2))
				if err == nil {
					_ = m.CheckPerm()
					_ = m.Read(&rows, 0, m.N)
					_ = m.Read(&rows, m.N-1, 1)
					_ = m.Read(&rows, m.N-1, 2)
				}
			}
		}
	}
	_ = c.Finish()
	_ = c.Warnings()
}

// bounded fails when read allocates more than a fixed multiple of the size of its input.
func bounded(t *testing.T, size int, read func()) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	read()
	runtime.ReadMemStats(&after)
	if got, limit := after.TotalAlloc-before.TotalAlloc, uint64(4<<20+200*size); got > limit {
		t.Errorf("%d bytes of input allocated %d", size, got)
	}
}

func FuzzSafetensors(f *testing.F) {
	f.Add(smallSafetensors(f))
	f.Fuzz(func(t *testing.T, b []byte) {
		bounded(t, len(b), func() {
			readAll(map[string][]byte{"config.json": []byte(smallConfig()), "model.safetensors": b})
		})
	})
}

func FuzzGGUF(f *testing.F) {
	f.Add(smallGGUF(f))
	f.Fuzz(func(t *testing.T, b []byte) {
		bounded(t, len(b), func() { readAll(map[string][]byte{"m.gguf": b}) })
	})
}

func FuzzQuantised(f *testing.F) {
	for _, seed := range quantisedSeeds() {
		f.Add(string(seed[0]), seed[1])
	}
	f.Fuzz(func(t *testing.T, config string, b []byte) {
		bounded(t, len(config)+len(b), func() {
			files := map[string][]byte{"config.json": []byte(config), "model.safetensors": b}
			readAll(files)
			// The exporters' own files have the same members.
			files["config.json"] = []byte(plainConfig)
			files[gptqFile], files[awqFile] = []byte(config), []byte(config)
			readAll(files)
		})
	})
}

func FuzzConfig(f *testing.F) {
	f.Add(smallConfig(), smallTokenizer, `{"weight_map":{"a.weight":"x.safetensors"}}`)
	tensors := smallSafetensors(f)
	f.Fuzz(func(t *testing.T, config, tokenizer, index string) {
		bounded(t, len(config)+len(tokenizer)+len(index)+len(tensors), func() {
			files := map[string][]byte{"config.json": []byte(config), "tokenizer_config.json": []byte(tokenizer), "generation_config.json": []byte(config)}
			files[indexFile] = []byte(index)
			files["x.safetensors"] = tensors
			readAll(files)
			delete(files, indexFile)
			readAll(files)
		})
	})
}

// TestCutAndChangedFiles runs inputs of the kind that the committed corpus has: a small good file, cut and
// changed in places. With OPENINFER_WRITE_CORPUS=1 it writes the corpus: the first of them.
func TestCutAndChangedFiles(t *testing.T) {
	type input struct {
		fuzz, config string
		file         []byte
	}
	inputs := []input{{"FuzzSafetensors", smallConfig(), smallSafetensors(t)}, {"FuzzGGUF", "", smallGGUF(t)}}
	for _, seed := range quantisedSeeds() {
		inputs = append(inputs, input{"FuzzQuantised", string(seed[0]), seed[1]})
	}
	for n, in := range inputs {
		r := rand.New(rand.NewPCG(11, 13))
		for i := range 600 {
			b := change(r, in.file, i%4 == 0)
			config := in.config
			if in.fuzz == "FuzzQuantised" && i%3 == 0 {
				config, b = string(change(r, []byte(in.config), false)), in.file
			}
			if os.Getenv("OPENINFER_WRITE_CORPUS") == "1" {
				writeCorpus(t, in.fuzz, config, b, n, i)
			}
			files := map[string][]byte{"m.gguf": b}
			if in.fuzz != "FuzzGGUF" {
				files = map[string][]byte{"config.json": []byte(config), "model.safetensors": b}
			}
			bounded(t, len(b)+len(config), func() { readAll(files) })
		}
	}
}

// change cuts b or changes some of its bytes.
func change(r *rand.Rand, b []byte, cut bool) []byte {
	b = append([]byte{}, b...)
	if cut {
		b = b[:r.IntN(len(b))]
	}
	for range r.IntN(4) {
		if len(b) > 0 {
			// Small values, bits and all ones: what counts and lengths go wrong with.
			at := r.IntN(len(b))
			b[at] = []byte{0, 1, 0x7f, 0x80, 0xff, b[at] ^ 1, b[at] + 1, byte(r.Uint32())}[r.IntN(8)]
		}
	}
	return b
}

// writeCorpus commits the first inputs of a kind.
func writeCorpus(t *testing.T, fuzz, config string, b []byte, n, i int) {
	name, text := fmt.Sprintf("changed-%02d", i), fmt.Sprintf("go test fuzz v1\n[]byte(%q)\n", b)
	if i >= 12 {
		return
	}
	if fuzz == "FuzzQuantised" {
		name, text = fmt.Sprintf("changed-%d-%02d", n, i), fmt.Sprintf("go test fuzz v1\nstring(%q)\n[]byte(%q)\n", config, b)
	}
	dir := filepath.Join("testdata", "fuzz", fuzz)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
