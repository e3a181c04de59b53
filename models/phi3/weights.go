package phi3

import (
	"fmt"

	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/models"
	"github.com/openinfer-go/openinfer/models/checkpoint"
	"github.com/openinfer-go/openinfer/models/loader"
)

// Architecture is the entry of models/registry.
var Architecture = models.Architecture{
	Name: "phi3",
	HF:   []string{"phi3", "Phi3ForCausalLM"},
	GGUF: []string{"phi3"},
	Load: Load,
}

// ggufNames are the modules' names in a GGUF file.
var ggufNames = checkpoint.Names{
	Global: map[string]string{
		"model.embed_tokens": "token_embd",
		"model.norm":         "output_norm",
		"lm_head":            "output",
	},
	Layer: map[string]string{
		"input_layernorm":          "attn_norm",
		"self_attn.qkv_proj":       "attn_qkv",
		"self_attn.o_proj":         "attn_output",
		"post_attention_layernorm": "ffn_norm",
		"mlp.gate_up_proj":         "ffn_up", // gate and up in one
		"mlp.down_proj":            "ffn_down",
	},
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

// layer has its matrices as the checkpoint has them. Q and KV are the widths of queries and of keys or
// values, F is the intermediate size.
type layer struct {
	inputNorm, postNorm kernels.Tensor
	qkv                 *kernels.Weight // [Q+2KV,D]
	o                   *kernels.Weight // [D,Q]
	gateUp              *kernels.Weight // [2F,D]
	down                *kernels.Weight // [D,F]
}

// Load loads the checkpoint.
func Load(c *checkpoint.Checkpoint, d kernels.Device) (models.Model, error) {
	c.SetNames(ggufNames)
	cfg, err := ReadConfig(c)
	if err != nil {
		return nil, err
	}
	m := &Model{cfg: cfg}
	l := loader.New(c)
	m.gather(l)
	if m.loaded, err = l.Load(d); err != nil {
		return nil, err
	}
	if m.cfg.Tied {
		m.lmHead = m.embed
	}
	return m, nil
}

func (m *Model) gather(l *loader.Loader) {
	D, F := m.cfg.Hidden, m.cfg.Intermediate
	Q, KV := m.cfg.Heads*m.cfg.HeadDim, m.cfg.KVHeads*m.cfg.HeadDim

	l.Weight(&m.embed, loader.Part{Module: "model.embed_tokens", N: m.cfg.Vocab, K: D})
	for i := 0; i < m.cfg.Layers && l.Err() == nil; i++ {
		name := fmt.Sprintf("model.layers.%d.", i)
		y := &layer{}
		m.layers = append(m.layers, y)
		l.Vector(&y.inputNorm, name+"input_layernorm.weight", D)
		l.Weight(&y.qkv, loader.Part{Module: name + "self_attn.qkv_proj", N: Q + 2*KV, K: D})
		l.Weight(&y.o, loader.Part{Module: name + "self_attn.o_proj", N: D, K: Q})
		l.Vector(&y.postNorm, name+"post_attention_layernorm.weight", D)
		l.Weight(&y.gateUp, loader.Part{Module: name + "mlp.gate_up_proj", N: 2 * F, K: D})
		l.Weight(&y.down, loader.Part{Module: name + "mlp.down_proj", N: D, K: F})
	}
	l.Vector(&m.norm, "model.norm.weight", D)
	l.Head(&m.lmHead, m.cfg.Tied, m.cfg.Vocab, D)
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
		Regimes:      m.cfg.Rotary.Regimes,
		Parameters:   m.loaded.Parameters,
		WeightBytes:  m.loaded.Bytes,
	}
}

// Groups implements models.Model.
func (m *Model) Groups() []models.CacheGroup {
	g := models.CacheGroup{Kind: models.Full, Layers: m.cfg.Layers, Heads: m.cfg.KVHeads, KDim: m.cfg.HeadDim, VDim: m.cfg.HeadDim}
	if m.cfg.Window > 0 {
		g.Kind, g.Window = models.SlidingWindow, m.cfg.Window
	}
	return []models.CacheGroup{g}
}
