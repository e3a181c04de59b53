// Package qwen3_5 is the architecture of Qwen3.5's dense models, of Qwen3.6 and Qwen3.8: most layers
// have a gated delta rule with a state of fixed size, every fourth or so has gated full attention.
//
// It owns what config.json or GGUF metadata mean, which tensors there are and how they are stored,
// and the order of operators in a forward pass; it computes nothing itself. Text only: image and
// video encoders are left in the checkpoint, and so is the head for drafts, whose tensors are checked.
package qwen3_5

import (
	"fmt"
	"slices"

	"github.com/openinfer-go/openinfer/models/checkpoint"
	"github.com/openinfer-go/openinfer/models/config"
	"github.com/openinfer-go/openinfer/models/rope"
)

// Config is what a checkpoint says of its shape.
type Config struct {
	config.Decoder
	Rotary        rope.Embedding
	AttentionBias bool
	Linear        []bool // by layer: it has the delta rule, not attention
	// Of the delta rule's layers.
	KeyHeads, ValueHeads int
	KeyDim, ValueDim     int // of a head
	ConvWidth            int
	// DraftLayers are those of the head that predicts more tokens, where the checkpoint has it.
	DraftLayers int
}

// channels are what the convolution of a delta rule's layer runs over: queries, keys and values.
func (c *Config) channels() int { return 2*c.KeyHeads*c.KeyDim + c.ValueHeads*c.ValueDim }

// linearLayers counts them.
func (c *Config) linearLayers() (n int) {
	for _, linear := range c.Linear {
		if linear {
			n++
		}
	}
	return n
}

// ReadConfig reads and checks the config of c. Of a GGUF file it takes the tensors that belong to
// the rotary embedding.
func ReadConfig(c *checkpoint.Checkpoint) (cfg Config, err error) {
	if c.Format() == checkpoint.GGUF {
		cfg, err = fromGGUF(c)
	} else {
		cfg, err = fromJSON(c)
	}
	if err == nil {
		err = cfg.check()
	}
	if err != nil {
		return cfg, fmt.Errorf("%s: %w", c.Path(), err)
	}
	return cfg, nil
}

func fromJSON(c *checkpoint.Checkpoint) (Config, error) {
	whole := config.New(c.ConfigJSON())
	r := whole
	if whole.Has("text_config") {
		r = whole.Object("text_config")
	}
	for _, key := range []string{"moe_intermediate_size", "shared_expert_intermediate_size", "num_experts_per_tok"} {
		if r.Has(key) {
			r.Fail(key, "mixtures of experts are not supported")
		}
	}
	cfg := Config{
		Decoder:       r.Decoder(config.Defaults{RMSEps: 1e-6, HeadDim: 256}),
		AttentionBias: r.BoolOr("attention_bias", false),
		KeyHeads:      r.Size("linear_num_key_heads"),
		ValueHeads:    r.Size("linear_num_value_heads"),
		KeyDim:        r.Size("linear_key_head_dim"),
		ValueDim:      r.Size("linear_value_head_dim"),
		ConvWidth:     r.SizeOr("linear_conv_kernel_dim", 4),
	}
	// The key stands inside, outside or in both places, and exporters that give a model a head of its
	// own change one of them. Then the tensors say what is true.
	if outside := whole.BoolOr("tie_word_embeddings", cfg.Tied); !r.Has("tie_word_embeddings") {
		cfg.Tied = outside
	} else if outside != cfg.Tied {
		cfg.Tied = !c.Has("lm_head")
	}
	if !r.BoolOr("attn_output_gate", true) {
		r.Fail("attn_output_gate", "false is not supported: attention without a gate")
	}
	if gate := r.TextOr("output_gate_type", "swish"); gate != "swish" && gate != "silu" {
		r.Fail("output_gate_type", "%q is not supported (swish is)", gate)
	}
	if r.Has("mtp_num_hidden_layers") && !r.Is("mtp_num_hidden_layers", "0") {
		cfg.DraftLayers = r.Size("mtp_num_hidden_layers")
	}
	if r.BoolOr("mtp_use_dedicated_embeddings", false) {
		r.Fail("mtp_use_dedicated_embeddings", "is not supported: the draft head shares the model's embedding")
	}
	cfg.Linear = layerTypes(r, cfg.Layers)
	if !r.Has("rope_theta") && !r.Object("rope_parameters").Has("rope_theta") {
		r.Fail("rope_parameters.rope_theta", "is missing")
	}
	rotary := rope.FromConfig(r, rope.Model{HeadDim: cfg.HeadDim, MaxPosition: cfg.MaxPosition, Partial: true, Part: 0.25})
	if r.Err() != nil {
		return cfg, r.Err()
	}
	cfg.Rotary = rotary.Embedding()
	return cfg, nil
}

// layerTypes says which of n layers have the delta rule.
func layerTypes(r *config.Reader, n int) []bool {
	interval := r.SizeOr("full_attention_interval", 4)
	types := r.TextsOr("layer_types")
	if r.Err() != nil {
		return nil
	}
	if types == nil {
		return every(interval, n)
	}
	if len(types) != n {
		r.Fail("layer_types", "%d types for %d layers (num_hidden_layers)", len(types), n)
	}
	linear := make([]bool, len(types))
	for i, kind := range types {
		switch kind {
		case "linear_attention":
			linear[i] = true
		case "full_attention":
		default:
			r.Fail("layer_types", "layer %d has %q; linear_attention and full_attention are supported", i, kind)
		}
	}
	return linear
}

// every gives the last of each interval of n layers attention.
func every(interval, n int) []bool {
	linear := make([]bool, n)
	for i := range linear {
		linear[i] = (i+1)%interval != 0
	}
	return linear
}

// check is for what no single key can say.
func (c *Config) check() error {
	switch {
	case !slices.Contains(c.Linear, false):
		return fmt.Errorf("none of the %d layers has full attention (layer_types)", c.Layers)
	case c.ValueHeads%c.KeyHeads != 0:
		return fmt.Errorf("%d value heads (linear_num_value_heads) are no multiple of %d key heads (linear_num_key_heads)", c.ValueHeads, c.KeyHeads)
	case c.KeyDim > maxHead || c.ValueDim > maxHead:
		return fmt.Errorf("heads of %d (linear_key_head_dim) and %d (linear_value_head_dim) values: up to %d are supported", c.KeyDim, c.ValueDim, maxHead)
	case c.KeyHeads*c.KeyDim > config.Limit || c.ValueHeads*c.ValueDim > config.Limit:
		return fmt.Errorf("%d and %d heads (linear_num_key_heads, linear_num_value_heads) are more than %d values", c.KeyHeads, c.ValueHeads, config.Limit)
	case c.ConvWidth < 2 || c.ConvWidth > maxConv:
		return fmt.Errorf("linear_conv_kernel_dim: %d is not within 2 and %d", c.ConvWidth, maxConv)
	case c.KeyDim*c.ValueDim < c.ConvWidth-1: // a unit of state holds a channel's columns
		return fmt.Errorf("heads of %d by %d values (linear_key_head_dim, linear_value_head_dim) are less than the %d columns that a convolution of %d (linear_conv_kernel_dim) keeps",
			c.KeyDim, c.ValueDim, c.ConvWidth-1, c.ConvWidth)
	}
	return nil
}

const (
	maxHead = 1024 // values of a head of the delta rule
	maxConv = 16   // width of the convolution
)
