package config

import "fmt"

// Decoder are the sizes that decoders of the llama build have, under the same names in every one
// of them.
type Decoder struct {
	Vocab, Hidden, Intermediate, Layers int
	Heads, KVHeads, HeadDim             int
	MaxPosition                         int
	RMSEps                              float32
	Tied                                bool // the output layer is the embedding
}

// Defaults are what an architecture takes for keys that a config.json lacks.
type Defaults struct {
	RMSEps  float64
	HeadDim int // 0: hidden_size / num_attention_heads
}

// Decoder reads the sizes and checks that they fit each other.
func (r *Reader) Decoder(d Defaults) Decoder {
	c := Decoder{
		Vocab:        r.Size("vocab_size"),
		Hidden:       r.Size("hidden_size"),
		Intermediate: r.Size("intermediate_size"),
		Layers:       r.Size("num_hidden_layers"),
		Heads:        r.Size("num_attention_heads"),
		MaxPosition:  r.Size("max_position_embeddings"),
		RMSEps:       float32(r.PositiveOr("rms_norm_eps", d.RMSEps)),
		Tied:         r.BoolOr("tie_word_embeddings", false),
	}
	c.KVHeads = r.SizeOr("num_key_value_heads", c.Heads)
	if c.HeadDim = r.SizeOr("head_dim", d.HeadDim); c.HeadDim == 0 && c.Heads > 0 {
		if c.HeadDim = c.Hidden / c.Heads; c.HeadDim*c.Heads != c.Hidden {
			r.Fail("num_attention_heads", "%d does not divide hidden_size %d, and there is no head_dim", c.Heads, c.Hidden)
		}
	}
	if act := r.TextOr("hidden_act", "silu"); act != "silu" && act != "swish" {
		r.Fail("hidden_act", "%q is not supported (silu is)", act)
	}
	r.Causal()
	for _, key := range []string{"num_local_experts", "num_experts"} {
		if r.Has(key) {
			r.Fail(key, "mixtures of experts are not supported")
		}
	}
	if r.Has("per_layer_config") && !r.Is("per_layer_config", "{}") {
		r.Fail("per_layer_config", "layers that differ in their sizes are not supported in this architecture")
	}
	if *r.err == nil {
		*r.err = c.check()
	}
	return c
}

// Decoder reads the same sizes from the metadata of a GGUF file. Whether the output layer is the
// embedding is for its tensors to say.
func (m *Metadata) Decoder() Decoder {
	c := Decoder{
		Hidden:       m.Size("embedding_length"),
		Intermediate: m.Size("feed_forward_length"),
		Layers:       m.Size("block_count"),
		Heads:        m.Size("attention.head_count"),
		MaxPosition:  m.Size("context_length"),
		RMSEps:       float32(m.Positive("attention.layer_norm_rms_epsilon")),
	}
	c.KVHeads = m.SizeOr("attention.head_count_kv", c.Heads)
	if m.Err() != nil {
		return c
	}
	whole := c.Hidden / c.Heads
	if !m.Has("attention.key_length") && whole*c.Heads != c.Hidden {
		m.Fail("attention.head_count", "%d does not divide embedding_length %d", c.Heads, c.Hidden)
	}
	c.HeadDim = m.SizeOr("attention.key_length", whole)
	if v := m.SizeOr("attention.value_length", c.HeadDim); v != c.HeadDim {
		m.Fail("attention.value_length", "%d differs from key_length %d", v, c.HeadDim)
	}
	if n := m.IntOr("expert_count", 0); n > 0 {
		m.Fail("expert_count", "mixtures of experts are not supported")
	}
	c.Vocab = m.Vocab()
	if m.err == nil {
		m.err = c.check()
	}
	return c
}

// check is for what no single key can say.
func (c *Decoder) check() error {
	switch {
	case c.Heads%c.KVHeads != 0:
		return fmt.Errorf("%d attention heads (num_attention_heads) are no multiple of %d key/value heads (num_key_value_heads)", c.Heads, c.KVHeads)
	case c.HeadDim%2 != 0:
		return fmt.Errorf("head_dim: %d is odd, and halves of it are rotated", c.HeadDim)
	case c.Heads*c.HeadDim > Limit:
		return fmt.Errorf("num_attention_heads: %d heads of %d (head_dim) are more than %d values", c.Heads, c.HeadDim, Limit)
	}
	return nil
}

// Causal refuses the key by which a decoder becomes an encoder: its tokens see those after them, too.
func (r *Reader) Causal() {
	if !r.BoolOr("is_causal", true) {
		r.Fail("is_causal", "false is not supported: a token sees what comes before it")
	}
}

// FullAttention refuses the windows that Qwen's configs can give to the layers of a decoder. A size without
// use_sliding_window is no window, and layer_types go before both. The numbers are the reference library's
// for keys that are missing.
func (r *Reader) FullAttention(d Decoder) {
	if r.Has("layer_types") {
		names := r.TextsOr("layer_types")
		if *r.err == nil && len(names) != d.Layers {
			r.Fail("layer_types", "has %d entries for %d layers (num_hidden_layers)", len(names), d.Layers)
		}
		for i, kind := range names {
			if kind != "full_attention" {
				r.Fail("layer_types", "layer %d has %q; full_attention is supported", i, kind)
			}
		}
		return
	}
	if !r.BoolOr("use_sliding_window", false) || r.Is("sliding_window", "null") {
		return
	}
	first, window := r.NumberOr("max_window_layers", 28), r.SizeOr("sliding_window", 4096)
	if first < float64(d.Layers) && window < d.MaxPosition {
		r.Fail("use_sliding_window", "windows of %d positions from layer %v on (max_window_layers) are not supported in this architecture", window, first)
	}
}
