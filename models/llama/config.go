// Package llama is the architecture of Llama 2, 3 and those built like them: pre-norm layers of
// grouped-query attention with rotary embedding and of a SiLU-gated feed-forward network.
//
// It owns what config.json or GGUF metadata mean, which tensors there are, and the order of
// operators in a forward pass; it computes nothing itself.
package llama

import (
	"fmt"

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
	Rotary                              kernels.Rotary
	Tied                                bool // the output layer is the embedding
	AttentionBias, MLPBias              bool // safetensors; a GGUF file has a bias or not
}

// ReadConfig reads and checks the config of c. Of a GGUF file it takes rope_freqs.weight.
func ReadConfig(c *checkpoint.Checkpoint) (cfg Config, err error) {
	var r rope.Params
	if c.Format() == checkpoint.GGUF {
		cfg, err = fromGGUF(c)
	} else {
		cfg, r, err = fromJSON(c.ConfigJSON())
	}
	if err == nil {
		err = cfg.check()
	}
	if err == nil && c.Format() == checkpoint.GGUF {
		r, err = rope.FromGGUF(c, c.Architecture(), cfg.HeadDim)
	}
	if err != nil {
		return cfg, fmt.Errorf("%s: %w", c.Path(), err)
	}
	cfg.Rotary = r.Rotary(cfg.HeadDim)
	return cfg, nil
}

func fromJSON(raw []byte) (Config, rope.Params, error) {
	r := config.New(raw)
	cfg := Config{
		Vocab:         r.Size("vocab_size"),
		Hidden:        r.Size("hidden_size"),
		Intermediate:  r.Size("intermediate_size"),
		Layers:        r.Size("num_hidden_layers"),
		Heads:         r.Size("num_attention_heads"),
		MaxPosition:   r.Size("max_position_embeddings"),
		RMSEps:        float32(r.PositiveOr("rms_norm_eps", 1e-6)),
		Tied:          r.BoolOr("tie_word_embeddings", false),
		AttentionBias: r.BoolOr("attention_bias", false),
		MLPBias:       r.BoolOr("mlp_bias", false),
	}
	cfg.KVHeads = r.SizeOr("num_key_value_heads", cfg.Heads)
	if cfg.HeadDim = r.SizeOr("head_dim", 0); cfg.HeadDim == 0 && cfg.Heads > 0 {
		if cfg.HeadDim = cfg.Hidden / cfg.Heads; cfg.HeadDim*cfg.Heads != cfg.Hidden {
			r.Fail("num_attention_heads", "%d does not divide hidden_size %d, and there is no head_dim", cfg.Heads, cfg.Hidden)
		}
	}
	if act := r.TextOr("hidden_act", "silu"); act != "silu" && act != "swish" {
		r.Fail("hidden_act", "%q is not supported (silu is)", act)
	}
	for _, key := range []string{"num_local_experts", "num_experts"} {
		if r.Has(key) {
			r.Fail(key, "mixtures of experts are not supported")
		}
	}
	rotary := rope.FromConfig(r, 10000)
	return cfg, rotary, r.Err()
}

func fromGGUF(c *checkpoint.Checkpoint) (cfg Config, err error) {
	m, arch := c.GGUF(), c.Architecture()
	size := func(name string, def int) int {
		if err != nil {
			return 0
		}
		key := arch + "." + name
		var n int
		if def == 0 {
			n, err = m.Int(key)
		} else {
			n, err = m.IntOr(key, def)
		}
		if err == nil && (n < 1 || n > config.Limit) {
			err = fmt.Errorf("metadata %s: %d is not within 1 and %d", key, n, config.Limit)
		}
		return n
	}
	cfg = Config{
		Hidden:       size("embedding_length", 0),
		Intermediate: size("feed_forward_length", 0),
		Layers:       size("block_count", 0),
		Heads:        size("attention.head_count", 0),
		MaxPosition:  size("context_length", 0),
		Tied:         !c.Has("lm_head"),
	}
	cfg.KVHeads = size("attention.head_count_kv", cfg.Heads)
	if err != nil {
		return cfg, err
	}
	whole := cfg.Hidden / cfg.Heads
	if !m.Has(arch+".attention.key_length") && whole*cfg.Heads != cfg.Hidden {
		return cfg, fmt.Errorf("metadata %s.attention.head_count: %d does not divide %s.embedding_length %d", arch, cfg.Heads, arch, cfg.Hidden)
	}
	cfg.HeadDim = size("attention.key_length", max(whole, 1))
	if v := size("attention.value_length", max(cfg.HeadDim, 1)); err == nil && v != cfg.HeadDim {
		return cfg, fmt.Errorf("metadata %s.attention.value_length: %d differs from key_length %d", arch, v, cfg.HeadDim)
	}
	if key := arch + ".expert_count"; err == nil && m.Has(key) {
		var n int
		if n, err = m.Int(key); err == nil && n > 0 {
			return cfg, fmt.Errorf("metadata %s: mixtures of experts are not supported", key)
		}
	}
	if err != nil {
		return cfg, err
	}
	eps, err := m.Float(arch + ".attention.layer_norm_rms_epsilon")
	if err != nil {
		return cfg, err
	}
	if !(eps > 0) || eps > 1 {
		return cfg, fmt.Errorf("metadata %s.attention.layer_norm_rms_epsilon: %v", arch, eps)
	}
	cfg.RMSEps = float32(eps)
	if key := arch + ".vocab_size"; m.Has(key) {
		cfg.Vocab = size("vocab_size", 0)
		return cfg, err
	}
	tokens, err := m.Strings("tokenizer.ggml.tokens")
	cfg.Vocab = len(tokens)
	return cfg, err
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
