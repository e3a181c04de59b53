package gemma4_test

import (
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/openinfer-go/openinfer/internal/testdata"
	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/kernels/ref"
	"github.com/openinfer-go/openinfer/models/modeltest"
)

var onRef = modeltest.Float32("ref", func(testing.TB) kernels.Device { return ref.Open() })

// stored is a checkpoint of the reference data.
func stored(t *testing.T, name string) modeltest.Checkpoint {
	t.Helper()
	list := modeltest.Checkpoints("gemma4")
	i := slices.IndexFunc(list, func(c modeltest.Checkpoint) bool { return c.Name == "models/"+name })
	if i < 0 {
		t.Fatalf("no checkpoint %s", name)
	}
	return list[i]
}

// The same model, written otherwise: its results are those of the original.
func TestOtherFormsOfACheckpoint(t *testing.T) {
	const nested, layer1 = "model.language_model.", "model.language_model.layers.1."
	for name, change := range map[string]func(modeltest.Files) modeltest.Files{
		// As a text model is saved alone: one config, no nesting, nothing but text; what has a default
		// left out. The output layer is written although it is tied.
		"text alone": func(f modeltest.Files) modeltest.Files {
			alone := text(f)
			modeltest.Set(alone, keys{"rope_parameters": nil, "layer_types": nil, "rms_norm_eps": nil})
			tensors := map[string]testdata.Tensor{"lm_head.weight": f.Tensors[nested+"embed_tokens.weight"]}
			for name, x := range f.Tensors {
				if rest, ok := strings.CutPrefix(name, nested); ok {
					tensors["model."+rest] = x
				}
			}
			return modeltest.Files{Config: alone, Tensors: tensors}
		},
		// As newer versions of the library save it, keys and values in two tensors, the output layer untied.
		"per_layer_config, v_proj, lm_head": func(f modeltest.Files) modeltest.Files {
			modeltest.Set(text(f), keys{
				"global_head_dim": nil, "num_global_key_value_heads": nil, "attention_k_eq_v": false, "tie_word_embeddings": false,
				"per_layer_config": keys{"1": keys{"head_dim": 128, "num_key_value_heads": 1}},
			})
			f.Config["tie_word_embeddings"] = false
			f.Tensors[layer1+"self_attn.v_proj.weight"] = f.Tensors[layer1+"self_attn.k_proj.weight"]
			f.Tensors["lm_head.weight"] = f.Tensors[nested+"embed_tokens.weight"]
			return f
		},
		// The last layer's factor scales all that the last norm takes back: the residual stream holds
		// what fp16 cannot.
		"gemma4, large factor": func(f modeltest.Files) modeltest.Files {
			f.Config["model_type"], text(f)["model_type"] = "gemma4", "gemma4_text"
			scalar := binary.LittleEndian.Uint16(f.Tensors[layer1+"layer_scalar"].Data)
			f.Tensors[layer1+"layer_scalar"] = bf16(scalar + 12<<7) // times 4096
			return f
		},
	} {
		t.Run(name, func(t *testing.T) {
			stored(t, "gemma4_multimodal").Compare(t, onRef, change(readFiles(t, "gemma4_multimodal")).Write(t))
		})
	}
}

// ggufParts are the names that llama.cpp's converter gives a layer's tensors.
var ggufParts = map[string]string{
	"input_layernorm.weight": "attn_norm.weight", "post_attention_layernorm.weight": "post_attention_norm.weight",
	"pre_feedforward_layernorm.weight": "ffn_norm.weight", "post_feedforward_layernorm.weight": "post_ffw_norm.weight",
	"self_attn.q_proj.weight": "attn_q.weight", "self_attn.k_proj.weight": "attn_k.weight", "self_attn.v_proj.weight": "attn_v.weight",
	"self_attn.o_proj.weight": "attn_output.weight", "self_attn.q_norm.weight": "attn_q_norm.weight", "self_attn.k_norm.weight": "attn_k_norm.weight",
	"mlp.gate_proj.weight": "ffn_gate.weight", "mlp.up_proj.weight": "ffn_up.weight", "mlp.down_proj.weight": "ffn_down.weight",
	"layer_scalar": "layer_output_scale.weight",
}

// ggufFile is a checkpoint as llama.cpp's converter writes it in float32, with changes: to keys, where
// nil removes one, and to tensors.
func ggufFile(t *testing.T, changes keys, change func(map[string]testdata.Tensor)) []byte {
	t.Helper()
	tensors := map[string]testdata.Tensor{}
	for name, x := range readFiles(t, "gemma4").Tensors {
		name = strings.TrimPrefix(name, "model.language_model.")
		if rest, ok := strings.CutPrefix(name, "layers."); ok {
			layer, part, _ := strings.Cut(rest, ".")
			if ggufParts[part] == "" {
				t.Fatalf("no name for %s", part)
			}
			name = "blk." + layer + "." + ggufParts[part]
		} else {
			name = map[string]string{"embed_tokens.weight": "token_embd.weight", "norm.weight": "output_norm.weight"}[name]
		}
		tensors[name] = modeltest.Widened(x)
	}
	// A quarter of the pairs of a global head of 128 are rotated.
	divisors := slices.Concat(slices.Repeat([]float32{1}, 16), slices.Repeat([]float32{1e30}, 48))
	tensors["rope_freqs.weight"] = testdata.Tensor{Shape: []int{64}, Data: float32s(divisors)}
	if change != nil {
		change(tensors)
	}
	pairs := keys{
		"general.architecture": "gemma4", "gemma4.block_count": uint32(6), "gemma4.context_length": uint32(2048),
		"gemma4.embedding_length": uint32(128), "gemma4.feed_forward_length": uint32(128), "gemma4.attention.head_count": uint32(4),
		"gemma4.attention.head_count_kv": []int32{2, 2, 2, 2, 2, 1}, "gemma4.rope.freq_base": float32(1e6), "gemma4.rope.freq_base_swa": float32(1e4),
		"gemma4.attention.layer_norm_rms_epsilon": float32(1e-6), "gemma4.attention.key_length": uint32(128), "gemma4.attention.value_length": uint32(128),
		"gemma4.final_logit_softcapping": float32(30), "gemma4.attention.sliding_window": uint32(48), "gemma4.attention.shared_kv_layers": uint32(0),
		"gemma4.embedding_length_per_layer_input": uint32(0), "gemma4.attention.sliding_window_pattern": []bool{true, true, true, true, true, false},
		"gemma4.attention.key_length_swa": uint32(64), "gemma4.attention.value_length_swa": uint32(64),
		"gemma4.rope.dimension_count": uint32(128), "gemma4.rope.dimension_count_swa": uint32(64),
		"tokenizer.ggml.model": "gemma4", "tokenizer.ggml.tokens": make([]string, 640),
	}
	modeltest.Set(pairs, changes)
	return modeltest.GGUF(t, pairs, tensors)
}

func float32s(v []float32) (b []byte) {
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	return b
}

func TestGGUFEqualsReference(t *testing.T) {
	path := filepath.Join(t.TempDir(), "gemma4.gguf")
	if err := os.WriteFile(path, ggufFile(t, nil, nil), 0o600); err != nil {
		t.Fatal(err)
	}
	stored(t, "gemma4").Compare(t, onRef, path)
}
