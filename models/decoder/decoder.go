// Package decoder is the forward pass that llama and its variants, qwen3 and phi3 share: pre-norm layers of
// one attention with one cache group, and of a gated feed-forward network.
//
// It owns the order of operators and what every such model loads. It does not own what a config means, nor
// what the matrices of a layer are called and how they are stored: the architecture's own folder says that.
package decoder

import (
	"fmt"

	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/models"
	"github.com/openinfer-go/openinfer/models/checkpoint"
	"github.com/openinfer-go/openinfer/models/config"
	"github.com/openinfer-go/openinfer/models/loader"
	"github.com/openinfer-go/openinfer/models/rope"
)

// Config is what the forward pass needs to know.
type Config struct {
	config.Decoder
	Rotary rope.Embedding
	Window int // positions a token sees counting itself; 0: all
}

// Model is a loaded model.
type Model struct {
	architecture string
	cfg          Config
	loaded       *loader.Loaded

	embed  *kernels.Weight // [V,D]
	layers []*Layer
	norm   kernels.Tensor
	lmHead *kernels.Weight // [V,D]; embed when tied
}

// Layer has its matrices stacked as they are multiplied: one product for q, k and v, one for gate
// and up. Q and KV are the widths of queries and of keys or values, F is the intermediate size.
type Layer struct {
	InputNorm, PostNorm kernels.Tensor
	QKV                 *kernels.Weight // [Q+2KV,D]
	QNorm, KNorm        kernels.Tensor  // [head size], or none
	O                   *kernels.Weight // [D,Q]
	GateUp              *kernels.Weight // [2F,D]
	Down                *kernels.Weight // [D,F]
}

// Load loads the checkpoint as a model of that architecture. layer gathers what a layer has beside its
// InputNorm and PostNorm; its tensors' names begin with prefix.
func Load(c *checkpoint.Checkpoint, d kernels.Device, architecture string, cfg Config, layer func(l *loader.Loader, prefix string, y *Layer)) (models.Model, error) {
	m := &Model{architecture: architecture, cfg: cfg}
	D := cfg.Hidden
	l := loader.New(c)
	l.Weight(&m.embed, loader.Part{Module: "model.embed_tokens", N: cfg.Vocab, K: D, Options: loader.Embedding(cfg.Tied)})
	for i := 0; i < cfg.Layers && l.Err() == nil; i++ {
		prefix := fmt.Sprintf("model.layers.%d.", i)
		y := &Layer{}
		m.layers = append(m.layers, y)
		l.Vector(&y.InputNorm, prefix+"input_layernorm.weight", D)
		layer(l, prefix, y)
		l.Vector(&y.PostNorm, prefix+"post_attention_layernorm.weight", D)
	}
	l.Vector(&m.norm, "model.norm.weight", D)
	l.Head(&m.lmHead, cfg.Tied, cfg.Vocab, D)
	var err error
	if m.loaded, err = l.Load(d); err != nil {
		return nil, err
	}
	if cfg.Tied {
		m.lmHead = m.embed
	}
	return m, nil
}

// Unload implements models.Model.
func (m *Model) Unload(d kernels.Device) { m.loaded.Unload(d) }

// Shape implements models.Model.
func (m *Model) Shape() models.Shape {
	return models.Shape{
		Architecture: m.architecture,
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
