package gemma4

import (
	"fmt"
	"slices"

	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/models"
	"github.com/openinfer-go/openinfer/models/checkpoint"
	"github.com/openinfer-go/openinfer/models/loader"
)

// Architecture is the entry of models/registry.
var Architecture = models.Architecture{
	Name: "gemma4",
	HF: []string{
		"gemma4_unified", "gemma4_unified_text", "gemma4", "gemma4_text",
		"Gemma4UnifiedForConditionalGeneration", "Gemma4UnifiedForCausalLM", "Gemma4ForConditionalGeneration", "Gemma4ForCausalLM",
	},
	GGUF: []string{"gemma4"},
	Load: Load,
}

// Model is a loaded model.
type Model struct {
	cfg    Config
	loaded *loader.Loaded

	embed  *kernels.Weight // [V,D]
	layers []*layer
	norm   kernels.Tensor
	lmHead *kernels.Weight // [V,D]; embed when tied
}

// layer has its matrices stacked as they are multiplied: one product for q, k and v, one for gate
// and up. Q and KV are the widths of queries and of keys or values, F is the intermediate size.
type layer struct {
	kind  Kind
	index int // within its cache group

	inputNorm, postAttentionNorm            kernels.Tensor
	preFeedforwardNorm, postFeedforwardNorm kernels.Tensor
	qkv                                     *kernels.Weight // [Q+2KV,D], or [Q+KV,D] with keys as values
	qNorm, kNorm                            kernels.Tensor  // [head size]
	o                                       *kernels.Weight // [D,Q]
	gateUp                                  *kernels.Weight // [2F,D]
	down                                    *kernels.Weight // [D,F]
	scalar                                  float32         // of the residual stream after the layer
}

// Load loads the checkpoint.
func Load(c *checkpoint.Checkpoint, d kernels.Device) (models.Model, error) {
	cfg, err := ReadConfig(c)
	if err != nil {
		return nil, err
	}
	m := &Model{cfg: cfg}
	l := loader.New(c)
	m.gather(l, c)
	if m.loaded, err = l.Load(d); err != nil {
		return nil, err
	}
	if m.cfg.Tied {
		m.lmHead = m.embed
	}
	return m, nil
}

// textPrefix begins the names of the text model's tensors.
func textPrefix(c *checkpoint.Checkpoint) string {
	if nested := "model.language_model."; c.Has(nested + "norm.weight") {
		return nested
	}
	return "model."
}

func (m *Model) gather(l *loader.Loader, c *checkpoint.Checkpoint) {
	D, F := m.cfg.Hidden, m.cfg.Intermediate
	bias := loader.Bias(c, m.cfg.AttentionBias)
	prefix := textPrefix(c)
	l.Weight(&m.embed, loader.Part{Module: prefix + "embed_tokens", N: m.cfg.Vocab, K: D, Options: loader.Embedding(m.cfg.Tied)})
	var count [kinds]int
	for i := 0; i < m.cfg.Layers && l.Err() == nil; i++ {
		kind := m.cfg.Kinds[i]
		g := &m.cfg.Geometry[kind]
		Q, KV := m.cfg.Heads*g.HeadDim, g.KVHeads*g.HeadDim
		name := fmt.Sprintf("%slayers.%d.", prefix, i)
		y := &layer{kind: kind, index: count[kind]}
		count[kind]++
		m.layers = append(m.layers, y)
		l.Vector(&y.inputNorm, name+"input_layernorm.weight", D)
		qkv := []loader.Part{
			{Module: name + "self_attn.q_proj", N: Q, K: D, Options: bias},
			{Module: name + "self_attn.k_proj", N: KV, K: D, Options: bias},
		}
		if !g.KeysAsValues {
			qkv = append(qkv, loader.Part{Module: name + "self_attn.v_proj", N: KV, K: D, Options: bias})
		}
		l.Weight(&y.qkv, qkv...)
		l.Vector(&y.qNorm, name+"self_attn.q_norm.weight", g.HeadDim)
		l.Vector(&y.kNorm, name+"self_attn.k_norm.weight", g.HeadDim)
		l.Weight(&y.o, loader.Part{Module: name + "self_attn.o_proj", N: D, K: Q, Options: bias})
		l.Vector(&y.postAttentionNorm, name+"post_attention_layernorm.weight", D)
		l.Vector(&y.preFeedforwardNorm, name+"pre_feedforward_layernorm.weight", D)
		l.Weight(&y.gateUp,
			loader.Part{Module: name + "mlp.gate_proj", N: F, K: D},
			loader.Part{Module: name + "mlp.up_proj", N: F, K: D})
		l.Weight(&y.down, loader.Part{Module: name + "mlp.down_proj", N: D, K: F})
		l.Vector(&y.postFeedforwardNorm, name+"post_feedforward_layernorm.weight", D)
		if l.Err() == nil {
			v, err := c.Vector(layerScalar(c, prefix, i), 1)
			if l.Fail(err); err == nil {
				y.scalar = v[0]
			}
		}
	}
	l.Vector(&m.norm, prefix+"norm.weight", D)
	if !m.cfg.Tied {
		l.Weight(&m.lmHead, loader.Part{Module: "lm_head", N: m.cfg.Vocab, K: D})
	} else if l.Err() == nil {
		l.Fail(c.Alias("lm_head.weight", prefix+"embed_tokens.weight"))
	}
	c.SkipMultimodal()
}

// Unload implements models.Model.
func (m *Model) Unload(d kernels.Device) { m.loaded.Unload(d) }

// Shape implements models.Model.
func (m *Model) Shape() models.Shape {
	return models.Shape{
		Architecture: Architecture.Name,
		Vocab:        m.cfg.Vocab,
		MaxPosition:  m.cfg.MaxPosition,
		Layers:       m.cfg.Layers,
		Hidden:       m.cfg.Hidden,
		Parameters:   m.loaded.Parameters,
		WeightBytes:  m.loaded.Bytes,
	}
}

// Groups implements models.Model: sliding layers and then global ones, where there are any.
func (m *Model) Groups() (groups []models.CacheGroup) {
	for k, g := range m.cfg.Geometry {
		layers := 0
		for _, of := range m.cfg.Kinds {
			if of == Kind(k) {
				layers++
			}
		}
		if layers == 0 {
			continue
		}
		kind := models.Full
		if g.Window > 0 {
			kind = models.SlidingWindow
		}
		groups = append(groups, models.CacheGroup{
			Kind: kind, Layers: layers, Heads: g.KVHeads, KDim: g.HeadDim, VDim: g.HeadDim, Window: g.Window,
		})
	}
	return groups
}

// group is the index of a kind's cache group.
func (m *Model) group(k Kind) int {
	if k == Global && slices.Contains(m.cfg.Kinds, Sliding) {
		return 1
	}
	return 0
}
