// Package qwen3 is the architecture of Qwen3's dense models: llama's layers with an RMS norm over
// each head of queries and keys before they are rotated, one weight for all heads of a layer.
//
// It owns what config.json or GGUF metadata mean, and which tensors there are; models/decoder
// has the forward pass.
package qwen3

import (
	"fmt"

	"github.com/openinfer-go/openinfer/models/checkpoint"
	"github.com/openinfer-go/openinfer/models/config"
	"github.com/openinfer-go/openinfer/models/rope"
)

// Config is what a checkpoint says of its shape.
type Config struct {
	config.Decoder
	Rotary        rope.Embedding
	AttentionBias bool // safetensors; a GGUF file has a bias or not
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
	cfg := Config{
		Decoder:       r.Decoder(config.Defaults{RMSEps: 1e-6, HeadDim: 128}),
		AttentionBias: r.BoolOr("attention_bias", false),
	}
	r.FullAttention(cfg.Decoder)
	rotary := rope.FromConfig(r, rope.Model{HeadDim: cfg.HeadDim, MaxPosition: cfg.MaxPosition})
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
	rotary := rope.FromGGUF(c, k, rope.Model{HeadDim: cfg.HeadDim, MaxPosition: cfg.MaxPosition})
	if k.Err() != nil {
		return cfg, k.Err()
	}
	cfg.Rotary = rotary.Embedding()
	return cfg, nil
}
