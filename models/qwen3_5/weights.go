package qwen3_5

import (
	"fmt"

	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/models"
	"github.com/openinfer-go/openinfer/models/checkpoint"
	"github.com/openinfer-go/openinfer/models/loader"
)

// Architecture is the entry of models/registry.
var Architecture = models.Architecture{
	Name: "qwen3_5",
	HF:   []string{"qwen3_5", "qwen3_5_text", "Qwen3_5ForConditionalGeneration", "Qwen3_5ForCausalLM"},
	GGUF: []string{"qwen35"},
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

// layer is one of two kinds: it has attention or a delta rule. F is the intermediate size.
type layer struct {
	index int // within its cache group

	inputNorm, postNorm kernels.Tensor
	attention           *attention
	delta               *delta
	gateUp              *kernels.Weight // [2F,D]
	down                *kernels.Weight // [D,F]
}

// attention has its first matrices stacked for one product. Q and KV are the widths of queries and
// of keys or values.
type attention struct {
	gateQKV      *kernels.Weight // [2Q+2KV,D]: gates, queries, keys, values
	qNorm, kNorm kernels.Tensor  // [head size]
	o            *kernels.Weight // [D,Q]
}

// delta is a gated delta rule with a convolution before it. C are its channels (queries, keys and
// values), V is the width of values, H the number of their heads.
type delta struct {
	in           *kernels.Weight // [C+V+2H,D]: channels, output gate z, b, a
	conv         kernels.Tensor  // [C*width]
	rate, dtBias kernels.Tensor  // [H]
	norm         kernels.Tensor  // [value head size]
	out          *kernels.Weight // [D,V]
}

// Load loads the checkpoint.
func Load(c *checkpoint.Checkpoint, d kernels.Device) (models.Model, error) {
	c.SetNames(ggufNames)
	cfg, err := ReadConfig(c)
	if err != nil {
		return nil, err
	}
	m := &Model{cfg: cfg}
	g := &gatherer{Loader: loader.New(c), c: c, cfg: &m.cfg, gguf: c.Format() == checkpoint.GGUF}
	g.model(m)
	if m.loaded, err = g.Load(d); err != nil {
		return nil, err
	}
	if m.cfg.Tied {
		m.lmHead = m.embed
	}
	return m, nil
}

// gatherer finds the model's tensors, which a GGUF file has in another form.
type gatherer struct {
	*loader.Loader
	c    *checkpoint.Checkpoint
	cfg  *Config
	gguf bool
}

func (g *gatherer) model(m *Model) {
	prefix := "model."
	if nested := "model.language_model."; g.c.Has(nested + "norm.weight") {
		prefix = nested
	}
	D, V := g.cfg.Hidden, g.cfg.Vocab
	g.Weight(&m.embed, loader.Part{Module: prefix + "embed_tokens", N: V, K: D, Options: loader.Embedding(g.cfg.Tied)})
	var count [2]int
	for i := 0; i < g.cfg.Layers && g.Err() == nil; i++ {
		y := &layer{}
		m.layers = append(m.layers, y)
		name := fmt.Sprintf("%slayers.%d.", prefix, i)
		if g.cfg.Linear[i] {
			y.index, count[1] = count[1], count[1]+1
			y.delta = g.delta(name, i)
		} else {
			y.index, count[0] = count[0], count[0]+1
			y.attention = g.attention(name)
		}
		g.feedForward(y, name)
	}
	g.norm(&m.norm, prefix+"norm.weight", D)
	if !g.cfg.Tied {
		g.Weight(&m.lmHead, loader.Part{Module: "lm_head", N: V, K: D})
	} else if g.Err() == nil {
		g.Fail(g.c.Alias("lm_head.weight", prefix+"embed_tokens.weight"))
	}
	g.draft()
	g.c.SkipMultimodal()
}

// norm will load the weight of a norm that multiplies by 1 + what is stored.
func (g *gatherer) norm(dst *kernels.Tensor, name string, n int) {
	if g.gguf {
		g.Vector(dst, name, n)
	} else {
		g.Vector(dst, name, n, addOne)
	}
}

func (g *gatherer) feedForward(y *layer, name string) {
	D, F := g.cfg.Hidden, g.cfg.Intermediate
	g.norm(&y.inputNorm, name+"input_layernorm.weight", D)
	g.norm(&y.postNorm, name+"post_attention_layernorm.weight", D)
	g.Weight(&y.gateUp,
		loader.Part{Module: name + "mlp.gate_proj", N: F, K: D},
		loader.Part{Module: name + "mlp.up_proj", N: F, K: D})
	g.Weight(&y.down, loader.Part{Module: name + "mlp.down_proj", N: D, K: F})
}

func (g *gatherer) attention(name string) *attention {
	D, size := g.cfg.Hidden, g.cfg.HeadDim
	Q, KV := g.cfg.Heads*size, g.cfg.KVHeads*size
	bias := loader.Bias(g.c, g.cfg.AttentionBias)
	// q_proj has the queries of a head and then its gates, head by head.
	apart := checkpoint.RowOrder(func(i int) int {
		gates := i < Q
		if i %= Q; gates {
			i += size + i/size*size
		} else {
			i += i / size * size
		}
		return i
	})
	y := &attention{}
	g.Weight(&y.gateQKV,
		loader.Part{Module: name + "self_attn.q_proj", N: 2 * Q, K: D, Options: append(bias, apart)},
		loader.Part{Module: name + "self_attn.k_proj", N: KV, K: D, Options: bias},
		loader.Part{Module: name + "self_attn.v_proj", N: KV, K: D, Options: bias})
	g.norm(&y.qNorm, name+"self_attn.q_norm.weight", size)
	g.norm(&y.kNorm, name+"self_attn.k_norm.weight", size)
	g.Weight(&y.o, loader.Part{Module: name + "self_attn.o_proj", N: D, K: Q, Options: bias})
	return y
}

func (g *gatherer) delta(name string, layer int) *delta {
	D, C, H, V := g.cfg.Hidden, g.cfg.channels(), g.cfg.ValueHeads, g.cfg.ValueHeads*g.cfg.ValueDim
	name += "linear_attn."
	qkv := loader.Part{Module: name + "in_proj_qkv", N: C, K: D}
	z := loader.Part{Module: name + "in_proj_z", N: V, K: D}
	b := loader.Part{Module: name + "in_proj_b", N: H, K: D}
	a := loader.Part{Module: name + "in_proj_a", N: H, K: D}
	out := loader.Part{Module: name + "out_proj", N: D, K: V}
	conv := []int{C, 1, g.cfg.ConvWidth}
	rate, rateChange, dtBias := name+"A_log", exp, name+"dt_bias"
	var heads, rows func(int) int
	if g.gguf {
		conv = []int{C, g.cfg.ConvWidth}
		rate, rateChange, dtBias = fmt.Sprintf("blk.%d.ssm_a", layer), negate, fmt.Sprintf("blk.%d.ssm_dt.bias", layer)
		if heads, rows = g.cfg.valueOrder(1), g.cfg.valuesLast(); heads != nil {
			order := func(p *loader.Part, o checkpoint.Option) { p.Options = append(p.Options, o) }
			order(&qkv, checkpoint.RowOrder(rows))
			order(&z, checkpoint.RowOrder(g.cfg.valueOrder(g.cfg.ValueDim)))
			order(&b, checkpoint.RowOrder(heads))
			order(&a, checkpoint.RowOrder(heads))
			order(&out, checkpoint.InputOrder(g.cfg.inputs()))
		}
	}
	y := &delta{}
	g.Weight(&y.in, qkv, z, b, a)
	g.Tensor(&y.conv, name+"conv1d.weight", conv, reorder(rows, g.cfg.ConvWidth))
	g.Vector(&y.rate, rate, H, reorder(heads, 1), rateChange, g.positive(rate))
	g.Vector(&y.dtBias, dtBias, H, reorder(heads, 1))
	g.Vector(&y.norm, name+"norm.weight", g.cfg.ValueDim)
	g.Weight(&y.out, out)
	return y
}

// positive refuses rates that are none: a head cannot remember more than all.
func (g *gatherer) positive(name string) func(v []float32) {
	return func(v []float32) {
		for i, x := range v {
			if !(x >= 0) || x > 1e30 {
				g.Fail(fmt.Errorf("%s: tensor %s: value %d makes a rate of %v", g.c.Path(), name, i, x))
			}
		}
	}
}

// draft checks the tensors of the head for further tokens, where the checkpoint has it: they must be
// whole. Nothing of it is loaded.
func (g *gatherer) draft() {
	fc, enorm, hnorm, norm := "mtp.fc", "mtp.pre_fc_norm_embedding", "mtp.pre_fc_norm_hidden", "mtp.norm"
	named := func(i int) string { return fmt.Sprintf("mtp.layers.%d.", i) }
	if g.gguf {
		named = func(i int) string { return fmt.Sprintf("model.layers.%d.", g.cfg.Layers+i) }
		first := named(0) + "nextn."
		fc, enorm, hnorm, norm = first+"eh_proj", first+"enorm", first+"hnorm", first+"shared_head_norm"
	}
	if g.cfg.DraftLayers == 0 || !g.c.Has(fc) {
		g.cfg.DraftLayers = 0
		return
	}
	model := g.Loader
	g.Loader = loader.New(g.c) // what is never loaded
	D := g.cfg.Hidden
	var w *kernels.Weight
	var v kernels.Tensor
	g.Weight(&w, loader.Part{Module: fc, N: D, K: 2 * D})
	for _, name := range []string{enorm, hnorm, norm} {
		g.norm(&v, name+".weight", D)
	}
	for i := range g.cfg.DraftLayers {
		g.attention(named(i))
		g.feedForward(&layer{}, named(i))
	}
	model.Fail(g.Err())
	g.Loader = model
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
		DraftLayers:  m.cfg.DraftLayers,
	}
}

// Groups implements models.Model: the layers with attention, and those with a delta rule if there are any.
func (m *Model) Groups() []models.CacheGroup {
	linear := m.cfg.linearLayers()
	groups := []models.CacheGroup{{
		Kind: models.Full, Layers: m.cfg.Layers - linear, Heads: m.cfg.KVHeads, KDim: m.cfg.HeadDim, VDim: m.cfg.HeadDim,
	}}
	if linear > 0 {
		groups = append(groups, models.CacheGroup{
			Kind: models.Recurrent, Layers: linear, Heads: m.cfg.ValueHeads, KDim: m.cfg.KeyDim, VDim: m.cfg.ValueDim,
			ConvChannels: m.cfg.channels(), ConvColumns: m.cfg.ConvWidth - 1,
		})
	}
	return groups
}
