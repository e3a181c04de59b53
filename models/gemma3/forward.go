package gemma3

import (
	"math"

	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/models"
)

// views are named pieces of a step's scratch. x outlives the pass; the pieces of attention and of
// the feed-forward network share their bytes, and so do those of the head with all but x.
type views struct {
	x       kernels.Tensor // [T,D], the residual stream
	sliding kernels.Tensor // [T,head size], cosines and sines
	global  kernels.Tensor // [T,head size]
	h       kernels.Tensor // [T,D]
	qkv     kernels.Tensor // [T,Q+2KV]
	q       kernels.Tensor // [T,Q]
	attn    kernels.Tensor // [T,Q]
	gateUp  kernels.Tensor // [T,2F]
	act     kernels.Tensor // [T,F]
	last    kernels.Tensor // [S,D], of the head
	hLast   kernels.Tensor // [S,D]
}

// carve cuts the views for T tokens and S rows of logits.
func (m *Model) carve(c *kernels.Carver, T, S int) (v views) {
	D, F := m.cfg.Hidden, m.cfg.Intermediate
	Q, KV := m.cfg.Heads*m.cfg.HeadDim, m.cfg.KVHeads*m.cfg.HeadDim
	f32 := func(rows, cols int) kernels.Tensor { return c.Tensor(kernels.F32, rows, cols) }

	v.x = f32(T, D)
	start := c.Bytes
	v.sliding, v.global, v.h = f32(T, 2*len(m.cfg.SlidingRotary.InvFreq)), f32(T, 2*len(m.cfg.GlobalRotary.InvFreq)), f32(T, D)
	shared := c.Bytes
	v.qkv, v.q, v.attn = f32(T, Q+2*KV), f32(T, Q), f32(T, Q)
	end := c.Bytes
	c.Bytes = shared
	v.gateUp, v.act = f32(T, 2*F), f32(T, F)
	end = max(end, c.Bytes)
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
	d.CosSin(t.sliding, m.cfg.SlidingRotary, b.Positions)
	d.CosSin(t.global, m.cfg.GlobalRotary, b.Positions)
	for _, l := range m.layers {
		kv := b.Groups[m.group(l)].KV(l.index)
		cosSin, window := t.sliding, m.cfg.Window
		if l.global {
			cosSin, window = t.global, 0
		}

		d.RMSNorm(t.h, t.x, l.inputNorm, eps)
		d.Linear(t.qkv, t.h, l.qkv)
		d.Drop(t.h)
		d.RotaryStore(t.q, kv, t.qkv, kernels.RotaryParams{QNorm: l.qNorm, KNorm: l.kNorm, Eps: eps, CosSin: cosSin})
		d.Drop(t.qkv)
		d.Attention(t.attn, t.q, kv, b.Ragged, kernels.AttentionParams{Scale: m.cfg.Scale, Window: window})
		d.Drop(t.q)
		d.Linear(t.h, t.attn, l.o)
		d.Drop(t.attn)
		d.RMSNormAdd(t.x, t.h, l.postAttentionNorm, eps, 1)
		d.Drop(t.h)

		d.RMSNorm(t.h, t.x, l.preFeedforwardNorm, eps)
		d.Linear(t.gateUp, t.h, l.gateUp)
		d.Drop(t.h)
		d.GateMul(t.act, t.gateUp.ColRange(0, F), t.gateUp.ColRange(F, 2*F), kernels.GELUTanh)
		d.Drop(t.gateUp)
		d.Linear(t.h, t.act, l.down)
		d.Drop(t.act)
		d.RMSNormAdd(t.x, t.h, l.postFeedforwardNorm, eps, 1)
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
