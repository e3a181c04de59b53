package gemma4_test

import (
	"encoding/binary"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/openinfer-go/openinfer/internal/testdata"
	"github.com/openinfer-go/openinfer/models/modeltest"
)

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
