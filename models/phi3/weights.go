package phi3

import (
	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/models"
	"github.com/openinfer-go/openinfer/models/checkpoint"
	"github.com/openinfer-go/openinfer/models/decoder"
	"github.com/openinfer-go/openinfer/models/loader"
)

const name = "phi3"

// Architecture is the entry of models/registry.
var Architecture = models.Architecture{
	Name: name,
	HF:   []string{"phi3", "Phi3ForCausalLM"},
	GGUF: []string{"phi3"},
	Load: Load,
}

// ggufNames are the modules' names in a GGUF file.
var ggufNames = checkpoint.Names{
	Global: map[string]string{
		"model.embed_tokens": "token_embd",
		"model.norm":         "output_norm",
		"lm_head":            "output",
	},
	Layer: map[string]string{
		"input_layernorm":          "attn_norm",
		"self_attn.qkv_proj":       "attn_qkv",
		"self_attn.o_proj":         "attn_output",
		"post_attention_layernorm": "ffn_norm",
		"mlp.gate_up_proj":         "ffn_up", // gate and up in one
		"mlp.down_proj":            "ffn_down",
	},
}

// Load loads the checkpoint, which has the matrices as they are multiplied.
func Load(c *checkpoint.Checkpoint, d kernels.Device) (models.Model, error) {
	c.SetNames(ggufNames)
	cfg, err := ReadConfig(c)
	if err != nil {
		return nil, err
	}
	D, F := cfg.Hidden, cfg.Intermediate
	Q, KV := cfg.Heads*cfg.HeadDim, cfg.KVHeads*cfg.HeadDim
	return decoder.Load(c, d, name, decoder.Config{Decoder: cfg.Decoder, Rotary: cfg.Rotary, Window: cfg.Window}, func(l *loader.Loader, prefix string, y *decoder.Layer) {
		l.Weight(&y.QKV, loader.Part{Module: prefix + "self_attn.qkv_proj", N: Q + 2*KV, K: D})
		l.Weight(&y.O, loader.Part{Module: prefix + "self_attn.o_proj", N: D, K: Q})
		l.Weight(&y.GateUp, loader.Part{Module: prefix + "mlp.gate_up_proj", N: 2 * F, K: D})
		l.Weight(&y.Down, loader.Part{Module: prefix + "mlp.down_proj", N: D, K: F})
	})
}
