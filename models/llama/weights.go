package llama

import (
	"slices"

	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/models"
	"github.com/openinfer-go/openinfer/models/checkpoint"
	"github.com/openinfer-go/openinfer/models/decoder"
	"github.com/openinfer-go/openinfer/models/loader"
)

// Architectures are the entries of models/registry. A GGUF file of a Mistral model is one of a Llama.
var Architectures = []models.Architecture{
	{Name: llama, HF: []string{"llama", "LlamaForCausalLM"}, GGUF: []string{"llama"}, Load: Load},
	{Name: mistral, HF: []string{"mistral", "MistralForCausalLM"}, Load: Load},
	{Name: qwen2, HF: []string{"qwen2", "Qwen2ForCausalLM"}, GGUF: []string{"qwen2"}, Load: Load},
}

// Load loads the checkpoint.
func Load(c *checkpoint.Checkpoint, d kernels.Device) (models.Model, error) {
	cfg, err := ReadConfig(c)
	if err != nil {
		return nil, err
	}
	D, F := cfg.Hidden, cfg.Intermediate
	Q, KV := cfg.Heads*cfg.HeadDim, cfg.KVHeads*cfg.HeadDim
	qkv, out, mlp := loader.Bias(c, cfg.QKVBias), loader.Bias(c, cfg.OutBias), loader.Bias(c, cfg.MLPBias)
	// rotated are options for the matrices whose rows a llama GGUF file has in another order.
	rotated := func(heads int) []checkpoint.Option {
		if cfg.kind != llama {
			return qkv
		}
		return append(slices.Clone(qkv), checkpoint.Unpermute(heads))
	}
	return decoder.Load(c, d, cfg.kind, decoder.Config{Decoder: cfg.Decoder, Rotary: cfg.Rotary, Window: cfg.Window}, func(l *loader.Loader, prefix string, y *decoder.Layer) {
		l.Weight(&y.QKV,
			loader.Part{Module: prefix + "self_attn.q_proj", N: Q, K: D, Options: rotated(cfg.Heads)},
			loader.Part{Module: prefix + "self_attn.k_proj", N: KV, K: D, Options: rotated(cfg.KVHeads)},
			loader.Part{Module: prefix + "self_attn.v_proj", N: KV, K: D, Options: qkv})
		l.Weight(&y.O, loader.Part{Module: prefix + "self_attn.o_proj", N: D, K: Q, Options: out})
		l.Weight(&y.GateUp,
			loader.Part{Module: prefix + "mlp.gate_proj", N: F, K: D, Options: mlp},
			loader.Part{Module: prefix + "mlp.up_proj", N: F, K: D, Options: mlp})
		l.Weight(&y.Down, loader.Part{Module: prefix + "mlp.down_proj", N: D, K: F, Options: mlp})
	})
}
