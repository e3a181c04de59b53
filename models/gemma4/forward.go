package gemma4

import (
	"math"
	"slices"

	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/models"
)

// views are named pieces of a step's scratch. x outlives the pass; the pieces of attention, of each
// kind of layer, and of the feed-forward network share their bytes, and so do those of the head with
// all but x.
type views struct {
	x         kernels.Tensor // [T,D], the residual stream
	h         kernels.Tensor // [T,D]
	attention [kinds]attentionViews
	gateUp    kernels.Tensor // [T,2F]
	act       kernels.Tensor // [T,F]
	last      kernels.Tensor // [S,D], of the head
	hLast     kernels.Tensor // [S,D]
}

type attentionViews struct {
	cosSin kernels.Tensor // [T,head size], shared with nothing
	qkv    kernels.Tensor // [T,Q+2KV], or [T,Q+KV] with keys as values
	q      kernels.Tensor // [T,Q]
	out    kernels.Tensor // [T,Q]
}

// carve cuts the views for T tokens and S rows of logits.
func (m *Model) carve(c *kernels.Carver, T, S int) (v views) {
	D, F := m.cfg.Hidden, m.cfg.Intermediate
	f32 := func(rows, cols int) kernels.Tensor { return c.Tensor(kernels.F32, rows, cols) }

	v.x = f32(T, D)
	start := c.Bytes
	v.h = f32(T, D)
	for k, g := range m.cfg.Geometry {
		if slices.Contains(m.cfg.Kinds, Kind(k)) {
			v.attention[k].cosSin = f32(T, g.HeadDim)
		}
	}
	shared := c.Bytes
	v.gateUp, v.act = f32(T, 2*F), f32(T, F)
	end := c.Bytes
	for k, g := range m.cfg.Geometry {
		Q, KV := m.cfg.Heads*g.HeadDim, g.KVHeads*g.HeadDim
		if !g.KeysAsValues {
			KV *= 2
		}
		c.Bytes = shared
		a := &v.attention[k]
		a.qkv, a.q, a.out = f32(T, Q+KV), f32(T, Q), f32(T, Q)
		end = max(end, c.Bytes)
	}
	c.Bytes = start
	v.last, v.hLast = f32(S, D), f32(S, D)
	c.Bytes = max(end, c.Bytes)
	return v
}

// ScratchBytes implements models.Model.
func (m *Model) ScratchBytes(t, s int) int64 {
	c := kernels.NewCarver(kernels.Buffer{})
	m.carve(c, t, s)
	return c.Bytes
}

// Forward implements models.Model.
func (m *Model) Forward(d kernels.Device, b *models.Batch, scratch kernels.Buffer) kernels.Tensor {
	t := m.carve(kernels.NewCarver(scratch), len(b.TokenIDs.Host), 0)
	eps, F := m.cfg.RMSEps, m.cfg.Intermediate

	// A model in bfloat16 rounds this factor; the weights' type is not the activations' here.
	d.EmbedRows(t.x, m.embed, b.TokenIDs, float32(math.Sqrt(float64(m.cfg.Hidden))))
	for k := range kinds {
		if cosSin := t.attention[k].cosSin; !cosSin.None() {
			d.CosSin(cosSin, m.cfg.Geometry[k].Rotary, b.Positions)
		}
	}
	for _, l := range m.layers {
		g, a := &m.cfg.Geometry[l.kind], &t.attention[l.kind]
		kv := b.Groups[m.group(l.kind)].KV(l.index)

		d.RMSNorm(t.h, t.x, l.inputNorm, eps)
		d.Linear(a.qkv, t.h, l.qkv)
		d.Drop(t.h)
		d.RotaryStore(a.q, kv, a.qkv, kernels.RotaryParams{
			QNorm: l.qNorm, KNorm: l.kNorm, VNorm: true, KeysAsValues: g.KeysAsValues, Eps: eps, CosSin: a.cosSin,
		})
		d.Drop(a.qkv)
		// Normed queries and keys need no other scale.
		d.Attention(a.out, a.q, kv, b.Ragged, kernels.AttentionParams{Scale: 1, Window: g.Window})
		d.Drop(a.q)
		d.Linear(t.h, a.out, l.o)
		d.Drop(a.out)
		d.RMSNormAdd(t.x, t.h, l.postAttentionNorm, eps, 1)
		d.Drop(t.h)

		d.RMSNorm(t.h, t.x, l.preFeedforwardNorm, eps)
		d.Linear(t.gateUp, t.h, l.gateUp)
		d.Drop(t.h)
		d.GateMul(t.act, t.gateUp.ColRange(0, F), t.gateUp.ColRange(F, 2*F), kernels.GELUTanh)
		d.Drop(t.gateUp)
		d.Linear(t.h, t.act, l.down)
		d.Drop(t.act)
		d.RMSNormAdd(t.x, t.h, l.postFeedforwardNorm, eps, l.scalar)
		d.Drop(t.h)
	}
	return t.x
}

// Head implements models.Model.
func (m *Model) Head(d kernels.Device, logits, hidden kernels.Tensor, rows kernels.Ints, scratch kernels.Buffer) {
	t := m.carve(kernels.NewCarver(scratch), hidden.Rows, len(rows.Host))
	d.GatherRows(t.last, hidden, rows)
	d.RMSNorm(t.hLast, t.last, m.norm, m.cfg.RMSEps)
	d.Linear(logits, t.hLast, m.lmHead)
	d.Drop(t.hLast)
	d.Drop(t.last)
	if m.cfg.LogitCap > 0 {
		d.SoftCap(logits, m.cfg.LogitCap)
	}
}
