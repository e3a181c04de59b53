package gemma4

import (
	"fmt"
	"slices"

	"github.com/openinfer-go/openinfer/models/checkpoint"
	"github.com/openinfer-go/openinfer/models/config"
	"github.com/openinfer-go/openinfer/models/rope"
)

// ggufNames are those of architecture "gemma4". Norms are stored as they are.
var ggufNames = checkpoint.Names{
	Global: map[string]string{
		"model.embed_tokens": "token_embd",
		"model.norm":         "output_norm",
		"lm_head":            "output",
	},
	Layer: map[string]string{
		"input_layernorm":            "attn_norm",
		"post_attention_layernorm":   "post_attention_norm",
		"pre_feedforward_layernorm":  "ffn_norm",
		"post_feedforward_layernorm": "post_ffw_norm",
		"self_attn.q_proj":           "attn_q",
		"self_attn.k_proj":           "attn_k",
		"self_attn.v_proj":           "attn_v",
		"self_attn.o_proj":           "attn_output",
		"self_attn.q_norm":           "attn_q_norm",
		"self_attn.k_norm":           "attn_k_norm",
		"mlp.gate_proj":              "ffn_gate",
		"mlp.up_proj":                "ffn_up",
		"mlp.down_proj":              "ffn_down",
	},
}

// layerScalar is the name of a layer's factor, which is a tensor of its own in safetensors and a
// module's weight in GGUF.
func layerScalar(c *checkpoint.Checkpoint, prefix string, layer int) string {
	if c.Format() == checkpoint.GGUF {
		return fmt.Sprintf("blk.%d.layer_output_scale.weight", layer)
	}
	return fmt.Sprintf("%slayers.%d.layer_scalar", prefix, layer)
}

// metadata reads keys of an architecture; the first error is kept.
type metadata struct {
	*checkpoint.Metadata
	arch string
	err  error
}

func (m *metadata) key(name string) string { return m.arch + "." + name }

// fail records an error about a key, unless there was one before.
func (m *metadata) fail(name, format string, args ...any) {
	if m.err == nil {
		m.err = fmt.Errorf("metadata %s: %s", m.key(name), fmt.Sprintf(format, args...))
	}
}

// each reads n sizes, or one that stands for all.
func (m *metadata) each(name string, n int) []int {
	if m.err != nil {
		return nil
	}
	var list []int
	if list, m.err = m.EachInt(m.key(name), n); m.err != nil {
		return nil
	}
	for _, v := range list {
		if v < 1 || v > config.Limit {
			m.fail(name, "%d is not within 1 and %d", v, config.Limit)
		}
	}
	return list
}

// size reads one size; without the key it is def, unless that is 0.
func (m *metadata) size(name string, def int) int {
	if def != 0 && !m.Has(m.key(name)) {
		return def
	}
	if list := m.each(name, 1); m.err == nil {
		return list[0]
	}
	return 0
}

// number reads a positive number; without the key it is def.
func (m *metadata) number(name string, def float64) float64 {
	if m.err != nil {
		return 0
	}
	var v float64
	if v, m.err = m.FloatOr(m.key(name), def); m.err == nil && m.Has(m.key(name)) && !(float32(v) > 0 && v < 1e30) {
		m.fail(name, "%v is not a positive number", v)
	}
	return v
}

// off refuses a count that is not 0.
func (m *metadata) off(name, what string) {
	if m.err != nil {
		return
	}
	var n int
	if n, m.err = m.IntOr(m.key(name), 0); n != 0 {
		m.fail(name, "%d: %s are not supported", n, what)
	}
}

func fromGGUF(c *checkpoint.Checkpoint) (Config, error) {
	c.SetNames(ggufNames)
	m := &metadata{Metadata: c.GGUF(), arch: c.Architecture()}
	m.off("embedding_length_per_layer_input", "per-layer inputs")
	m.off("attention.shared_kv_layers", "layers that share a cache")
	m.off("expert_count", "mixtures of experts")
	cfg := Config{
		Hidden:      m.size("embedding_length", 0),
		Layers:      m.size("block_count", 0),
		Heads:       m.size("attention.head_count", 0),
		MaxPosition: m.size("context_length", 0),
		RMSEps:      float32(m.number("attention.layer_norm_rms_epsilon", 1e-6)),
		LogitCap:    float32(m.number("final_logit_softcapping", 0)),
		Tied:        !c.Has("lm_head"),
	}
	if m.err != nil {
		return cfg, m.err
	}
	widths := m.each("feed_forward_length", cfg.Layers)
	if m.err == nil {
		if cfg.Intermediate = widths[0]; slices.ContainsFunc(widths, func(w int) bool { return w != widths[0] }) {
			m.fail("feed_forward_length", "%v: feed-forward layers of several widths are not supported", widths)
		}
	}
	cfg.readLayersGGUF(c, m)
	if m.err != nil {
		return cfg, m.err
	}
	if m.Has(m.key("vocab_size")) {
		cfg.Vocab = m.size("vocab_size", 0)
		return cfg, m.err
	}
	tokens, err := m.Strings("tokenizer.ggml.tokens")
	cfg.Vocab = len(tokens)
	return cfg, err
}

// readLayersGGUF reads what kind each layer is and what differs between kinds.
func (c *Config) readLayersGGUF(file *checkpoint.Checkpoint, m *metadata) {
	const pattern = "attention.sliding_window_pattern"
	var sliding []bool
	if m.err == nil {
		sliding, m.err = m.Bools(m.key(pattern))
	}
	if m.err == nil && len(sliding) != c.Layers {
		m.fail(pattern, "has %d entries for %d layers", len(sliding), c.Layers)
	}
	kvHeads := m.each("attention.head_count_kv", c.Layers)
	if m.err != nil {
		return
	}
	c.Kinds = make([]Kind, c.Layers)
	for i, is := range sliding {
		if !is {
			c.Kinds[i] = Global
		}
	}
	for k := range kinds {
		first := slices.Index(c.Kinds, k)
		if first < 0 {
			continue
		}
		g := &c.Geometry[k]
		g.KVHeads = kvHeads[first]
		for i, n := range kvHeads {
			if c.Kinds[i] == k && n != g.KVHeads {
				m.fail("attention.head_count_kv", "layer %d has %d, layer %d, which is %s too, %d", i, n, first, kindNames[k], g.KVHeads)
			}
		}
		suffix := ""
		if k == Sliding {
			suffix = "_swa"
			g.Window = m.size("attention.sliding_window", 0)
		}
		g.HeadDim = m.size("attention.key_length"+suffix, 0)
		if v := m.size("attention.value_length"+suffix, max(g.HeadDim, 1)); v != g.HeadDim {
			m.fail("attention.value_length"+suffix, "%d differs from key_length%s %d", v, suffix, g.HeadDim)
		}
		if m.err != nil {
			return
		}
		if k == Sliding {
			if n := m.size("rope.dimension_count_swa", g.HeadDim); n != g.HeadDim {
				m.fail("rope.dimension_count_swa", "%d of a head of %d is not supported: all of a head is rotated", n, g.HeadDim)
			}
			g.Rotary = rope.Params{Theta: m.number("rope.freq_base_swa", 10000)}.Rotary(g.HeadDim)
			continue
		}
		g.KeysAsValues = !file.Has(fmt.Sprintf("model.layers.%d.self_attn.v_proj", first))
		// What stands still in a global layer is said by divisors alone.
		if !file.Has("rope_freqs.weight") {
			m.err = fmt.Errorf("tensor rope_freqs.weight is missing")
			return
		}
		var p rope.Params
		if p, m.err = rope.FromGGUF(file, m.arch, g.HeadDim); m.err == nil {
			g.Rotary = p.Rotary(g.HeadDim)
		}
	}
}
