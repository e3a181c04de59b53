// Package llama is the architecture of Llama 2, 3 and those built like them: pre-norm layers of
// grouped-query attention with rotary embedding and of a SiLU-gated feed-forward network.
//
// It owns what config.json or GGUF metadata mean, and which tensors there are; models/decoder
// has the forward pass. Mistral is the same with a window that
// every layer's attention sees, Qwen2 the same with biases of queries, keys and values.
package llama

import (
	"fmt"

	"github.com/openinfer-go/openinfer/models/checkpoint"
	"github.com/openinfer-go/openinfer/models/config"
	"github.com/openinfer-go/openinfer/models/rope"
)

// Names of the architectures in this package.
const (
	llama   = "llama"
	mistral = "mistral"
	qwen2   = "qwen2"
)

// Config is what a checkpoint says of its shape.
type Config struct {
	kind string // llama, mistral or qwen2
	config.Decoder
	Rotary rope.Embedding
	Window int // positions a token sees counting itself; 0: all
	// Biases that a checkpoint in safetensors has; a GGUF file has one or not.
	QKVBias, OutBias, MLPBias bool
}

// ReadConfig reads and checks the config of c. Of a GGUF file it takes the tensors that belong to
// the rotary embedding.
func ReadConfig(c *checkpoint.Checkpoint) (cfg Config, err error) {
	if c.Format() == checkpoint.GGUF {
		cfg, err = fromGGUF(c)
	} else {
		cfg, err = fromJSON(c)
	}
	if err != nil {
		return cfg, fmt.Errorf("%s: %w", c.Path(), err)
	}
	return cfg, nil
}

func fromJSON(c *checkpoint.Checkpoint) (Config, error) {
	r := config.New(c.ConfigJSON())
	cfg := Config{kind: llama, Decoder: r.Decoder(config.Defaults{RMSEps: 1e-6})}
	switch c.Architecture() {
	case "mistral", "MistralForCausalLM":
		cfg.kind = mistral
		// Without the key it is that of the first model; null means that there is none.
		if !r.Is("sliding_window", "null") {
			cfg.Window = r.SizeOr("sliding_window", 4096)
		}
		if cfg.Window >= cfg.MaxPosition {
			cfg.Window = 0 // it never ends before the context does
		}
	case "qwen2", "Qwen2ForCausalLM":
		cfg.kind = qwen2
		cfg.QKVBias = true
		r.FullAttention(cfg.Decoder)
	default:
		cfg.QKVBias = r.BoolOr("attention_bias", false)
		cfg.OutBias = cfg.QKVBias
		cfg.MLPBias = r.BoolOr("mlp_bias", false)
	}
	rotary := rope.FromConfig(r, rope.Model{HeadDim: cfg.HeadDim, MaxPosition: cfg.MaxPosition})
	if r.Err() != nil {
		return cfg, r.Err()
	}
	cfg.Rotary = rotary.Embedding()
	return cfg, nil
}

func fromGGUF(c *checkpoint.Checkpoint) (Config, error) {
	k := config.NewMetadata(c)
	cfg := Config{kind: c.Architecture(), Decoder: k.Decoder()}
	cfg.Tied = !c.Has("lm_head")
	rotary := rope.FromGGUF(c, k, rope.Model{HeadDim: cfg.HeadDim, MaxPosition: cfg.MaxPosition})
	if cfg.kind == llama && rotary.Dim != cfg.HeadDim {
		k.Fail("rope.dimension_count", "%d of a head of %d is not supported: rows are stored for all of a head to be rotated", rotary.Dim, cfg.HeadDim)
	}
	if k.Err() != nil {
		return cfg, k.Err()
	}
	cfg.Rotary = rotary.Embedding()
	return cfg, nil
}
