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

func fromGGUF(c *checkpoint.Checkpoint) (Config, error) {
	c.SetNames(ggufNames)
	m := config.NewMetadata(c)
	for _, o := range []struct{ name, what string }{
		{"embedding_length_per_layer_input", "per-layer inputs"},
		{"attention.shared_kv_layers", "layers that share a cache"},
		{"expert_count", "mixtures of experts"},
	} {
		if n := m.IntOr(o.name, 0); n != 0 {
			m.Fail(o.name, "%d: %s are not supported", n, o.what)
		}
	}
	cfg := Config{
		Vocab:       m.Vocab(),
		Hidden:      m.Size("embedding_length"),
		Layers:      m.Size("block_count"),
		Heads:       m.Size("attention.head_count"),
		MaxPosition: m.Size("context_length"),
		RMSEps:      float32(m.Positive("attention.layer_norm_rms_epsilon")),
		LogitCap:    float32(m.PositiveOr("final_logit_softcapping", 0)),
		Tied:        !c.Has("lm_head"),
	}
	sliding := m.EachBool("attention.sliding_window_pattern", cfg.Layers)
	widths := m.EachSize("feed_forward_length", cfg.Layers)
	kvHeads := m.EachSize("attention.head_count_kv", cfg.Layers)
	if m.Err() != nil {
		return cfg, m.Err()
	}
	if cfg.Intermediate = widths[0]; slices.ContainsFunc(widths, func(w int) bool { return w != widths[0] }) {
		m.Fail("feed_forward_length", "%v: feed-forward layers of several widths are not supported", widths)
	}
	cfg.Kinds = make([]Kind, cfg.Layers)
	for i, is := range sliding {
		if !is {
			cfg.Kinds[i] = Global
		}
	}
	for k := range kinds {
		first := slices.Index(cfg.Kinds, k)
		if first < 0 {
			continue
		}
		g := &cfg.Geometry[k]
		g.KVHeads = kvHeads[first]
		for i, n := range kvHeads {
			if cfg.Kinds[i] == k && n != g.KVHeads {
				m.Fail("attention.head_count_kv", "%d in layer %d, but %d in layer %d, which is %s, too", n, i, g.KVHeads, first, kindNames[k])
			}
		}
		if k == Sliding {
			g.readSliding(m)
		} else {
			g.readGlobal(c, m, first)
		}
	}
	if m.Err() != nil {
		return cfg, m.Err()
	}
	return cfg, cfg.check()
}

// readHeads reads how wide heads are, from keys that end in suffix.
func (g *Geometry) readHeads(m *config.Metadata, suffix string) {
	g.HeadDim = m.Size("attention.key_length" + suffix)
	if v := m.SizeOr("attention.value_length"+suffix, g.HeadDim); v != g.HeadDim {
		m.Fail("attention.value_length"+suffix, "%d differs from key_length%s %d", v, suffix, g.HeadDim)
	}
	if n := m.SizeOr("rope.dimension_count"+suffix, g.HeadDim); n != g.HeadDim {
		m.Fail("rope.dimension_count"+suffix, "%d of a head of %d is not supported: frequencies are those of all of a head", n, g.HeadDim)
	}
}

func (g *Geometry) readSliding(m *config.Metadata) {
	g.readHeads(m, "_swa")
	g.Window = m.Size("attention.sliding_window")
	theta := m.PositiveOr("rope.freq_base_swa", 10000)
	g.Rotary = rope.Params{Theta: theta, Dim: g.HeadDim, Turned: g.HeadDim / 2, Scale: 1}.Embedding().ByRegime[0]
}

// readGlobal reads what global layers have, of which first is one.
func (g *Geometry) readGlobal(c *checkpoint.Checkpoint, m *config.Metadata, first int) {
	g.readHeads(m, "")
	g.KeysAsValues = !c.Has(fmt.Sprintf("model.layers.%d.self_attn.v_proj", first))
	// Which pairs stand still is said by divisors alone.
	if !c.Has("rope_freqs.weight") {
		m.Keep(fmt.Errorf("tensor rope_freqs.weight is missing"))
		return
	}
	p := rope.FromGGUF(c, m, rope.Model{HeadDim: g.HeadDim})
	if p.Scaling == rope.LongRoPE {
		m.Fail("rope.scaling.type", "longrope is not supported in this architecture")
	}
	if m.Err() == nil {
		g.Rotary = p.Embedding().ByRegime[0]
	}
}
