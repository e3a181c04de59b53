package qwen3

import (
	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/models"
	"github.com/openinfer-go/openinfer/models/checkpoint"
	"github.com/openinfer-go/openinfer/models/decoder"
	"github.com/openinfer-go/openinfer/models/loader"
)

const name = "qwen3"

// Architecture is the entry of models/registry.
var Architecture = models.Architecture{
	Name: name,
	HF:   []string{"qwen3", "Qwen3ForCausalLM"},
	GGUF: []string{"qwen3"},
	Load: Load,
}

// Load loads the checkpoint.
func Load(c *checkpoint.Checkpoint, d kernels.Device) (models.Model, error) {
	cfg, err := ReadConfig(c)
	if err != nil {
		return nil, err
	}
	D, F := cfg.Hidden, cfg.Intermediate
	Q, KV := cfg.Heads*cfg.HeadDim, cfg.KVHeads*cfg.HeadDim
	attention, mlp := loader.Bias(c, cfg.AttentionBias), loader.Bias(c, false)
	return decoder.Load(c, d, name, decoder.Config{Decoder: cfg.Decoder, Rotary: cfg.Rotary}, func(l *loader.Loader, prefix string, y *decoder.Layer) {
		l.Weight(&y.QKV,
			loader.Part{Module: prefix + "self_attn.q_proj", N: Q, K: D, Options: attention},
			loader.Part{Module: prefix + "self_attn.k_proj", N: KV, K: D, Options: attention},
			loader.Part{Module: prefix + "self_attn.v_proj", N: KV, K: D, Options: attention})
		l.Vector(&y.QNorm, prefix+"self_attn.q_norm.weight", cfg.HeadDim)
		l.Vector(&y.KNorm, prefix+"self_attn.k_norm.weight", cfg.HeadDim)
		l.Weight(&y.O, loader.Part{Module: prefix + "self_attn.o_proj", N: D, K: Q, Options: attention})
		l.Weight(&y.GateUp,
			loader.Part{Module: prefix + "mlp.gate_proj", N: F, K: D, Options: mlp},
			loader.Part{Module: prefix + "mlp.up_proj", N: F, K: D, Options: mlp})
		l.Weight(&y.Down, loader.Part{Module: prefix + "mlp.down_proj", N: D, K: F, Options: mlp})
	})
}
