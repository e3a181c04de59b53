package gemma3

import (
	"math"
	"slices"

	"github.com/openinfer-go/openinfer/models/checkpoint"
	"github.com/openinfer-go/openinfer/models/config"
	"github.com/openinfer-go/openinfer/models/rope"
)

// ggufNames are those of architecture "gemma3". Norms are stored with the 1 added that they
// multiply by beside their weight.
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

func fromGGUF(c *checkpoint.Checkpoint) (Config, error) {
	c.SetNames(ggufNames)
	m := config.NewMetadata(c)
	sizes := m.Decoder()
	if m.Err() != nil {
		return Config{}, m.Err()
	}
	cfg := Config{
		Vocab: sizes.Vocab, Hidden: sizes.Hidden, Intermediate: sizes.Intermediate, Layers: sizes.Layers,
		Heads: sizes.Heads, KVHeads: sizes.KVHeads, HeadDim: sizes.HeadDim, MaxPosition: sizes.MaxPosition, RMSEps: sizes.RMSEps,
		LogitCap: float32(m.PositiveOr("final_logit_softcapping", 0)),
		Tied:     !c.Has("lm_head"),
		Global:   every(6, sizes.Layers),
	}
	// No key says what queries are divided by: one size, of 62 layers, has another than the root of
	// a head's.
	scalar := cfg.HeadDim
	if cfg.Layers == 62 {
		scalar = cfg.Hidden / cfg.Heads
	}
	cfg.Scale = float32(1 / math.Sqrt(float64(max(scalar, 1))))
	const window, pattern = "attention.sliding_window", "attention.sliding_window_pattern"
	if m.Has(pattern) {
		for i, is := range m.EachBool(pattern, cfg.Layers) {
			cfg.Global[i] = !is
		}
	}
	if m.IntOr(window, 0) == 0 { // as files of the smallest model have it
		cfg.Global = every(1, cfg.Layers)
	} else if slices.Contains(cfg.Global, false) {
		cfg.Window = m.Size(window)
	}
	model := rope.Model{Theta: 1e6, HeadDim: cfg.HeadDim, MaxPosition: cfg.MaxPosition}
	global := rope.FromGGUF(c, m, model)
	theta := m.PositiveOr("rope.freq_base_swa", 10000) // scaling is for global layers
	if global.Scaling == rope.LongRoPE {
		m.Fail("rope.scaling.type", "longrope is not supported in this architecture")
	}
	if m.Err() != nil {
		return cfg, m.Err()
	}
	cfg.GlobalRotary = global.Embedding().ByRegime[0]
	cfg.SlidingRotary = rope.Params{Theta: theta, Dim: cfg.HeadDim, Turned: cfg.HeadDim / 2, Scale: 1}.Embedding().ByRegime[0]
	return cfg, nil
}
