package registry_test

import (
	"bytes"
	"encoding/binary"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/openinfer-go/openinfer/internal/testdata"
	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/kernels/ref"
	"github.com/openinfer-go/openinfer/models/checkpoint"
	"github.com/openinfer-go/openinfer/models/checkpoint/ggufwrite"
	"github.com/openinfer-go/openinfer/models/config"
	"github.com/openinfer-go/openinfer/models/modeltest"
	"github.com/openinfer-go/openinfer/models/registry"
)

// TestGGUFEqualsSafetensors writes checkpoints as GGUF files, with the keys and names that
// llama.cpp's converter gives these architectures, and wants the same bits of logits from both.
func TestGGUFEqualsSafetensors(t *testing.T) {
	own := filepath.Join(testdata.Repo(), "models", "modeltest", "testdata")
	for _, c := range []struct {
		dir, arch string
		keys      map[string]any
		tokens    int
	}{
		{testdata.Shared(t, "golden/models/phi3"), "phi3", map[string]any{
			"rope.dimension_count": uint32(64), "rope.freq_base": float32(250000), "attention.sliding_window": uint32(0),
		}, 40},
		{testdata.Shared(t, "golden/models/phi3_mini_longrope"), "phi3", map[string]any{
			"rope.dimension_count": uint32(48), "rope.freq_base": float32(10000), "attention.sliding_window": uint32(1024),
			"rope.scaling.original_context_length": uint32(128), "rope.scaling.attn_factor": float32(math.Sqrt(1 + math.Log(8)/math.Log(128))),
		}, 140},
		{filepath.Join(own, "phi3_window"), "phi3", map[string]any{
			"rope.dimension_count": uint32(4), "attention.sliding_window": uint32(8),
		}, 40},
		{filepath.Join(own, "qwen2"), "qwen2", map[string]any{"rope.freq_base": float32(10000)}, 40},
	} {
		t.Run(filepath.Base(c.dir), func(t *testing.T) {
			want := logits(t, c.tokens, func() (*checkpoint.Checkpoint, error) { return checkpoint.Open(c.dir) })
			file := toGGUF(t, c.dir, c.arch, c.keys)
			got := logits(t, c.tokens, func() (*checkpoint.Checkpoint, error) {
				return checkpoint.OpenFiles("made", map[string][]byte{"m.gguf": file})
			})
			for i, row := range got {
				for j, v := range row {
					if math.Float32bits(v) != math.Float32bits(want[i][j]) {
						t.Fatalf("token %d, logit %d: %v, of safetensors %v", i, j, v, want[i][j])
					}
				}
			}
		})
	}
}

// logits are those of n tokens: of some of them under the first regime, then of all.
func logits(t *testing.T, n int, open func() (*checkpoint.Checkpoint, error)) [][]float32 {
	t.Helper()
	c, err := open()
	if err != nil {
		t.Fatal(err)
	}
	d := ref.Open()
	defer func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}()
	m, err := registry.Load(c, d)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Unload(d) })
	r := modeltest.NewRunner(t, d, m, kernels.F32, 1000)
	var tokens []int32
	for i := range n {
		tokens = append(tokens, int32(7*i*i+3*i+5)%int32(m.Shape().Vocab))
	}
	first := r.Step(modeltest.Row{Sequence: &modeltest.Sequence{Tokens: tokens[:30]}, N: 30, All: true})[0]
	return append(first, r.Step(modeltest.Row{Sequence: &modeltest.Sequence{Tokens: tokens}, N: n, All: true})[0]...)
}

var ggufNames = strings.NewReplacer(
	"model.embed_tokens.", "token_embd.", "model.norm.", "output_norm.", "lm_head.", "output.", "model.layers.", "blk.",
	"input_layernorm.", "attn_norm.", "post_attention_layernorm.", "ffn_norm.",
	"self_attn.qkv_proj.", "attn_qkv.", "self_attn.q_proj.", "attn_q.", "self_attn.k_proj.", "attn_k.", "self_attn.v_proj.", "attn_v.",
	"self_attn.o_proj.", "attn_output.",
	"mlp.gate_up_proj.", "ffn_up.", "mlp.gate_proj.", "ffn_gate.", "mlp.up_proj.", "ffn_up.", "mlp.down_proj.", "ffn_down.",
)

func toGGUF(t *testing.T, dir, arch string, keys map[string]any) []byte {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	r := config.New(raw)
	d := r.Decoder(config.Defaults{RMSEps: 1e-6})
	scaling := r.Object("rope_scaling")
	if r.Err() != nil {
		t.Fatal(r.Err())
	}
	var f ggufwrite.File
	f.Set("general.architecture", arch)
	for key, n := range map[string]int{
		"embedding_length": d.Hidden, "feed_forward_length": d.Intermediate, "block_count": d.Layers, "context_length": d.MaxPosition,
		"attention.head_count": d.Heads, "attention.head_count_kv": d.KVHeads, "vocab_size": d.Vocab,
	} {
		f.Set(arch+"."+key, uint32(n))
	}
	f.Set(arch+".attention.layer_norm_rms_epsilon", d.RMSEps)
	for key, v := range keys {
		f.Set(arch+"."+key, v)
	}
	add := func(name string, shape []int, values []float32) {
		f.Add(ggufwrite.Tensor{Name: name, Type: ggufwrite.F32, Shape: shape, Write: func(w io.Writer) error {
			b := make([]byte, 4*len(values))
			ggufwrite.F32.Encode(b, values)
			_, err := w.Write(b)
			return err
		}})
	}
	for name, v := range testdata.Tensors(t, filepath.Join(dir, "model.safetensors")) {
		if v.DType != "BF16" {
			t.Fatalf("%s is %s", name, v.DType)
		}
		values := make([]float32, len(v.Data)/2)
		for i := range values {
			values[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(v.Data[2*i:])) << 16)
		}
		add(ggufNames.Replace(name), v.Shape, values)
	}
	for _, which := range []string{"short", "long"} {
		if key := which + "_factor"; scaling.Has(key) {
			var list []float32
			for _, v := range scaling.Positives(key, 24) {
				list = append(list, float32(v))
			}
			add("rope_factors_"+which+".weight", []int{len(list)}, list)
		}
	}
	var b bytes.Buffer
	if _, err := f.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}
