// Package gemma3 is the architecture of Gemma 3's text models: sliding-window layers with a global
// one after every few, which differ in their rotary embedding alone, and norms before and after each
// sublayer that multiply by 1 + weight.
//
// It owns what config.json or GGUF metadata mean, which tensors there are, and the order of
// operators in a forward pass; it computes nothing itself. Images are not its affair.
//
// Invariant: the residual stream is float32. Its entries grow beyond what fp16 holds.
package gemma3

import (
	"fmt"
	"math"
	"slices"

	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/models/checkpoint"
	"github.com/openinfer-go/openinfer/models/config"
	"github.com/openinfer-go/openinfer/models/rope"
)

// Config is what a checkpoint says of its shape.
type Config struct {
	Vocab, Hidden, Intermediate, Layers int
	Heads, KVHeads, HeadDim             int
	MaxPosition                         int
	RMSEps                              float32
	Scale                               float32 // of q.k
	LogitCap                            float32 // logits are c*tanh(logit/c); 0: as they are
	Global                              []bool  // of each layer: it sees all positions
	Window                              int     // positions that the others see, counting itself
	SlidingRotary, GlobalRotary         kernels.Rotary
	Tied                                bool // the output layer is the embedding
	AttentionBias                       bool // safetensors; a GGUF file has a bias or not
}

// ReadConfig reads and checks the config of c.
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

// fromJSON reads config.json of a text model, or text_config in that of a multimodal one. The
// published ones leave out what has the library's defaults. attn_logit_softcapping is a leftover of
// Gemma 2 that nobody heeds: queries and keys are normed instead.
func fromJSON(c *checkpoint.Checkpoint) (Config, error) {
	top := config.New(c.ConfigJSON())
	r := top
	if top.Has("text_config") {
		r = top.Object("text_config")
	}
	cfg := Config{
		Vocab:         r.SizeOr("vocab_size", 262208),
		Hidden:        r.SizeOr("hidden_size", 2304),
		Intermediate:  r.SizeOr("intermediate_size", 9216),
		Layers:        r.SizeOr("num_hidden_layers", 26),
		Heads:         r.SizeOr("num_attention_heads", 8),
		KVHeads:       r.SizeOr("num_key_value_heads", 4),
		HeadDim:       r.SizeOr("head_dim", 256),
		MaxPosition:   r.SizeOr("max_position_embeddings", 131072),
		RMSEps:        float32(r.PositiveOr("rms_norm_eps", 1e-6)),
		Scale:         float32(1 / math.Sqrt(r.PositiveOr("query_pre_attn_scalar", 256))),
		LogitCap:      float32(r.PositiveOr("final_logit_softcapping", 0)),
		Tied:          top.BoolOr("tie_word_embeddings", r.BoolOr("tie_word_embeddings", true)),
		AttentionBias: r.BoolOr("attention_bias", false),
	}
	if act := r.TextOr("hidden_activation", "gelu_pytorch_tanh"); act != "gelu_pytorch_tanh" {
		r.Fail("hidden_activation", "%q is not supported (gelu_pytorch_tanh is)", act)
	}
	r.Causal()
	if r.BoolOr("use_bidirectional_attention", false) {
		r.Fail("use_bidirectional_attention", "is not supported: text sees what comes before it")
	}
	cfg.readKinds(r)
	if slices.Contains(cfg.Global, false) {
		cfg.Window = r.SizeOr("sliding_window", 4096)
	}
	if r.Err() != nil {
		return cfg, r.Err()
	}
	if err := cfg.check(); err != nil {
		return cfg, err
	}
	model := rope.Model{Theta: 1e6, HeadDim: cfg.HeadDim, MaxPosition: cfg.MaxPosition}
	global := rope.FromConfig(r, model)
	model.Theta = r.PositiveOr("rope_local_base_freq", 10000)
	sliding := rope.FromObject(r.Object("rope_parameters").Object("sliding_attention"), model)
	for _, p := range []rope.Params{global, sliding} {
		if p.Scaling == rope.LongRoPE {
			r.Fail("rope_parameters", "longrope is not supported in this architecture")
		}
	}
	if r.Err() != nil {
		return cfg, r.Err()
	}
	cfg.GlobalRotary, cfg.SlidingRotary = global.Embedding().ByRegime[0], sliding.Embedding().ByRegime[0]
	return cfg, nil
}

// readKinds reads layer_types, or how many layers there are to a global one.
func (c *Config) readKinds(r *config.Reader) {
	pattern := r.SizeOr("sliding_window_pattern", 6)
	names := r.TextsOr("layer_types")
	if r.Err() != nil {
		return
	}
	c.Global = every(pattern, c.Layers)
	if names == nil {
		return
	}
	if len(names) != c.Layers {
		r.Fail("layer_types", "has %d entries for %d layers (num_hidden_layers)", len(names), c.Layers)
		return
	}
	for i, name := range names {
		if name != "sliding_attention" && name != "full_attention" {
			r.Fail("layer_types", "layer %d has %q (sliding_attention and full_attention are supported)", i, name)
		}
		c.Global[i] = name == "full_attention"
	}
}

// every makes the last of each n layers global.
func every(n, layers int) []bool {
	global := make([]bool, layers)
	for i := range global {
		global[i] = (i+1)%n == 0
	}
	return global
}

// check is for what no single key can say.
func (c *Config) check() error {
	switch {
	case c.Heads%c.KVHeads != 0:
		return fmt.Errorf("%d attention heads (num_attention_heads) are no multiple of %d key/value heads (num_key_value_heads)", c.Heads, c.KVHeads)
	case c.HeadDim%2 != 0:
		return fmt.Errorf("head_dim: %d is odd, and halves of it are rotated", c.HeadDim)
	case c.Heads*c.HeadDim > config.Limit:
		return fmt.Errorf("num_attention_heads: %d heads of %d (head_dim) are more than %d values", c.Heads, c.HeadDim, config.Limit)
	}
	return nil
}
