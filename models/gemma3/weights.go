package gemma3

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
	Name: "gemma3",
	HF:   []string{"gemma3", "gemma3_text", "Gemma3ForConditionalGeneration", "Gemma3ForCausalLM"},
	GGUF: []string{"gemma3"},
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
	global bool
	index  int // within its cache group

	inputNorm, postAttentionNorm            kernels.Tensor
	preFeedforwardNorm, postFeedforwardNorm kernels.Tensor
	qkv                                     *kernels.Weight // [Q+2KV,D]
	qNorm, kNorm                            kernels.Tensor  // [head size]
	o                                       *kernels.Weight // [D,Q]
	gateUp                                  *kernels.Weight // [2F,D]
	down                                    *kernels.Weight // [D,F]
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

// prefixes begin the names of the text model's tensors, and of the output layer: alone, or beside a
// vision tower, as newer and older versions of the library save it.
func prefixes(c *checkpoint.Checkpoint) (text, head string) {
	switch {
	case c.Has("model.language_model.norm.weight"):
		return "model.language_model.", ""
	case c.Has("language_model.model.norm.weight"):
		return "language_model.model.", "language_model."
	}
	return "model.", ""
}

func (m *Model) gather(l *loader.Loader, c *checkpoint.Checkpoint) {
	D, F := m.cfg.Hidden, m.cfg.Intermediate
	Q, KV := m.cfg.Heads*m.cfg.HeadDim, m.cfg.KVHeads*m.cfg.HeadDim
	bias := loader.Bias(c, m.cfg.AttentionBias)
	norm := func(dst *kernels.Tensor, name string, n int) {
		if c.Format() == checkpoint.GGUF {
			l.Vector(dst, name, n)
		} else {
			l.Vector(dst, name, n, addOne)
		}
	}
	text, head := prefixes(c)
	l.Weight(&m.embed, loader.Part{Module: text + "embed_tokens", N: m.cfg.Vocab, K: D, Options: loader.Embedding(m.cfg.Tied)})
	count := map[bool]int{}
	for i := 0; i < m.cfg.Layers && l.Err() == nil; i++ {
		name := fmt.Sprintf("%slayers.%d.", text, i)
		y := &layer{global: m.cfg.Global[i]}
		y.index = count[y.global]
		count[y.global]++
		m.layers = append(m.layers, y)
		norm(&y.inputNorm, name+"input_layernorm.weight", D)
		l.Weight(&y.qkv,
			loader.Part{Module: name + "self_attn.q_proj", N: Q, K: D, Options: bias},
			loader.Part{Module: name + "self_attn.k_proj", N: KV, K: D, Options: bias},
			loader.Part{Module: name + "self_attn.v_proj", N: KV, K: D, Options: bias})
		norm(&y.qNorm, name+"self_attn.q_norm.weight", m.cfg.HeadDim)
		norm(&y.kNorm, name+"self_attn.k_norm.weight", m.cfg.HeadDim)
		l.Weight(&y.o, loader.Part{Module: name + "self_attn.o_proj", N: D, K: Q, Options: bias})
		norm(&y.postAttentionNorm, name+"post_attention_layernorm.weight", D)
		norm(&y.preFeedforwardNorm, name+"pre_feedforward_layernorm.weight", D)
		l.Weight(&y.gateUp,
			loader.Part{Module: name + "mlp.gate_proj", N: F, K: D},
			loader.Part{Module: name + "mlp.up_proj", N: F, K: D})
		l.Weight(&y.down, loader.Part{Module: name + "mlp.down_proj", N: D, K: F})
		norm(&y.postFeedforwardNorm, name+"post_feedforward_layernorm.weight", D)
	}
	norm(&m.norm, text+"norm.weight", D)
	if !m.cfg.Tied {
		l.Weight(&m.lmHead, loader.Part{Module: head + "lm_head", N: m.cfg.Vocab, K: D})
	} else if l.Err() == nil {
		l.Fail(c.Alias(head+"lm_head.weight", text+"embed_tokens.weight"))
	}
	c.SkipMultimodal()
}

// addOne is for the weights of norms, which multiply by 1 + weight.
func addOne(v []float32) {
	for i := range v {
		v[i]++
	}
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
	for _, global := range []bool{false, true} {
		g := models.CacheGroup{Kind: models.SlidingWindow, Heads: m.cfg.KVHeads, KDim: m.cfg.HeadDim, VDim: m.cfg.HeadDim, Window: m.cfg.Window}
		if global {
			g.Kind, g.Window = models.Full, 0
		}
		for _, is := range m.cfg.Global {
			if is == global {
				g.Layers++
			}
		}
		if g.Layers > 0 {
			groups = append(groups, g)
		}
	}
	return groups
}

// group is the index of a layer's cache group.
func (m *Model) group(l *layer) int {
	if l.global && slices.Contains(m.cfg.Global, false) {
		return 1
	}
	return 0
}
