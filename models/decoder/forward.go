package decoder

import (
	"math"

	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/models"
)

// views are named pieces of a step's scratch. x outlives the pass; the pieces of attention and of
// the feed-forward network share their bytes, and so do those of the head with all but x.
type views struct {
	x      kernels.Tensor // [T,D], the residual stream
	cosSin kernels.Tensor // [T,rotated values of a head]
	h      kernels.Tensor // [T,D]
	qkv    kernels.Tensor // [T,Q+2KV]
	q      kernels.Tensor // [T,Q]
	attn   kernels.Tensor // [T,Q]
	gateUp kernels.Tensor // [T,2F]
	act    kernels.Tensor // [T,F]
	last   kernels.Tensor // [S,D], of the head
	hLast  kernels.Tensor // [S,D]
}

// carve cuts the views for T tokens and S rows of logits.
func (m *Model) carve(c *kernels.Carver, T, S int) (v views) {
	D, F := m.cfg.Hidden, m.cfg.Intermediate
	Q, KV := m.cfg.Heads*m.cfg.HeadDim, m.cfg.KVHeads*m.cfg.HeadDim
	f32 := func(rows, cols int) kernels.Tensor { return c.Tensor(kernels.F32, rows, cols) }

	v.x = f32(T, D)
	start := c.Bytes
	v.cosSin, v.h = f32(T, m.cfg.Rotary.Cols()), f32(T, D)
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
	params := kernels.AttentionParams{Scale: float32(1 / math.Sqrt(float64(m.cfg.HeadDim))), Window: m.cfg.Window}

	d.EmbedRows(t.x, m.embed, b.TokenIDs, 1)
	m.cfg.Rotary.CosSin(d, t.cosSin, b)
	F := m.cfg.Intermediate
	for i, l := range m.layers {
		kv := b.Groups[0].KV(i)

		d.RMSNorm(t.h, t.x, l.InputNorm, m.cfg.RMSEps)
		d.Linear(t.qkv, t.h, l.QKV)
		d.Drop(t.h)
		d.RotaryStore(t.q, kv, t.qkv, kernels.RotaryParams{
			QNorm: l.QNorm, KNorm: l.KNorm, Eps: m.cfg.RMSEps, CosSin: t.cosSin,
		})
		d.Drop(t.qkv)
		d.Attention(t.attn, t.q, kv, b.Ragged, params)
		d.Drop(t.q)
		d.LinearAdd(t.x, t.attn, l.O)
		d.Drop(t.attn)

		d.RMSNorm(t.h, t.x, l.PostNorm, m.cfg.RMSEps)
		d.Linear(t.gateUp, t.h, l.GateUp)
		d.Drop(t.h)
		d.GateMul(t.act, t.gateUp.ColRange(0, F), t.gateUp.ColRange(F, 2*F), kernels.SiLU)
		d.Drop(t.gateUp)
		d.LinearAdd(t.x, t.act, l.Down)
		d.Drop(t.act)
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
}
