// Package phi3 is the architecture of Phi-3 and Phi-4: llama's layers with queries, keys and values in
// one matrix and gate and up in another, part of a head rotated, and frequencies that change where a
// sequence outgrows the context of the first training (LongRoPE).
//
// It owns what config.json or GGUF metadata mean, and which tensors there are; models/decoder
// has the forward pass.
package phi3

import (
	"fmt"

	"github.com/openinfer-go/openinfer/models/checkpoint"
	"github.com/openinfer-go/openinfer/models/config"
	"github.com/openinfer-go/openinfer/models/rope"
)

// Config is what a checkpoint says of its shape.
type Config struct {
	config.Decoder
	Rotary rope.Embedding
	Window int // positions a token sees counting itself; 0: all
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
	if cfg.Window >= cfg.MaxPosition {
		cfg.Window = 0 // it never ends before the context does
	}
	return cfg, nil
}

func fromJSON(c *checkpoint.Checkpoint) (Config, error) {
	r := config.New(c.ConfigJSON())
	cfg := Config{Decoder: r.Decoder(config.Defaults{RMSEps: 1e-5}), Window: r.SizeOr("sliding_window", 0)}
	for _, key := range []string{"attention_bias", "mlp_bias", "lm_head_bias"} {
		if r.BoolOr(key, false) {
			r.Fail(key, "biases are not supported in this architecture")
		}
	}
	rotary := rope.FromConfig(r, rope.Model{HeadDim: cfg.HeadDim, MaxPosition: cfg.MaxPosition, Original: 4096, Partial: true})
	if r.Err() != nil {
		return cfg, r.Err()
	}
	cfg.Rotary = rotary.Embedding()
	return cfg, nil
}

func fromGGUF(c *checkpoint.Checkpoint) (Config, error) {
	k := config.NewMetadata(c)
	cfg := Config{Decoder: k.Decoder()}
	cfg.Tied = !c.Has("lm_head")
	if n := k.IntOr("attention.sliding_window", 0); n != 0 { // a model without one has 0
		cfg.Window = k.Size("attention.sliding_window")
	}
	rotary := rope.FromGGUF(c, k, rope.Model{HeadDim: cfg.HeadDim, MaxPosition: cfg.MaxPosition})
	if k.Err() != nil {
		return cfg, k.Err()
	}
	cfg.Rotary = rotary.Embedding()
	return cfg, nil
}
