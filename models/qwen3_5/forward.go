package qwen3_5

import (
	"math"

	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/models"
)

// views are named pieces of a step's scratch. x outlives the pass; the pieces of attention, of a
// delta rule and of the feed-forward network share their bytes, and so do those of the head with all
// but x.
type views struct {
	x      kernels.Tensor // [T,D], the residual stream
	cosSin kernels.Tensor // [T,rotated values of a head]
	h      kernels.Tensor // [T,D]

	gateQKV kernels.Tensor // [T,2Q+2KV]
	q       kernels.Tensor // [T,Q]
	attn    kernels.Tensor // [T,Q]

	in     kernels.Tensor // [T,C+V+2H]: channels, output gate z, b, a
	mixed  kernels.Tensor // [T,C], after the convolution
	values kernels.Tensor // [T,V]

	gateUp kernels.Tensor // [T,2F]
	act    kernels.Tensor // [T,F]

	last  kernels.Tensor // [S,D], of the head
	hLast kernels.Tensor // [S,D]
}

// carve cuts the views for T tokens and S rows of logits.
func (m *Model) carve(c *kernels.Carver, T, S int) (v views) {
	D, F, C := m.cfg.Hidden, m.cfg.Intermediate, m.cfg.channels()
	Q, KV := m.cfg.Heads*m.cfg.HeadDim, m.cfg.KVHeads*m.cfg.HeadDim
	H, V := m.cfg.ValueHeads, m.cfg.ValueHeads*m.cfg.ValueDim
	f32 := func(rows, cols int) kernels.Tensor { return c.Tensor(kernels.F32, rows, cols) }

	v.x = f32(T, D)
	start, end := c.Bytes, c.Bytes
	// again starts at the same byte as what was cut before.
	again := func(from int64) {
		end = max(end, c.Bytes)
		c.Bytes = from
	}
	v.cosSin, v.h = f32(T, m.cfg.Rotary.Cols()), f32(T, D)
	shared := c.Bytes
	v.gateQKV, v.q, v.attn = f32(T, 2*Q+2*KV), f32(T, Q), f32(T, Q)
	again(shared)
	v.in, v.mixed, v.values = f32(T, C+V+2*H), f32(T, C), f32(T, V)
	again(shared)
	v.gateUp, v.act = f32(T, 2*F), f32(T, F)
	again(start)
	v.last, v.hLast = f32(S, D), f32(S, D)
	again(end)
	c.Bytes = end
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

	d.EmbedRows(t.x, m.embed, b.TokenIDs, 1)
	m.cfg.Rotary.CosSin(d, t.cosSin, b)
	for _, l := range m.layers {
		d.RMSNorm(t.h, t.x, l.inputNorm, m.cfg.RMSEps)
		if l.attention != nil {
			m.attend(d, &t, l.attention, b.Groups[0].KV(l.index), b.Ragged)
		} else {
			m.recall(d, &t, l.delta, b.Groups[1].LayerState(l.index))
		}
		m.feedForward(d, &t, l)
	}
	return t.x
}

// attend adds gated attention over h to x.
func (m *Model) attend(d kernels.Device, t *views, l *attention, kv kernels.KV, rows kernels.Ragged) {
	Q := m.cfg.Heads * m.cfg.HeadDim
	d.Linear(t.gateQKV, t.h, l.gateQKV)
	d.Drop(t.h)
	d.RotaryStore(t.q, kv, t.gateQKV.ColRange(Q, t.gateQKV.Cols), kernels.RotaryParams{
		QNorm: l.qNorm, KNorm: l.kNorm, Eps: m.cfg.RMSEps, CosSin: t.cosSin,
	})
	d.Drop(t.gateQKV.ColRange(Q, t.gateQKV.Cols))
	d.Attention(t.attn, t.q, kv, rows, kernels.AttentionParams{Scale: float32(1 / math.Sqrt(float64(m.cfg.HeadDim)))})
	d.Drop(t.q)
	d.GateMul(t.attn, t.gateQKV.ColRange(0, Q), t.attn, kernels.Sigmoid)
	d.LinearAdd(t.x, t.attn, l.o)
	d.Drop(t.attn)
	d.Drop(t.gateQKV)
}

// recall adds what the gated delta rule makes of h to x.
func (m *Model) recall(d kernels.Device, t *views, l *delta, s kernels.State) {
	C, H, V := m.cfg.channels(), m.cfg.ValueHeads, t.values.Cols
	d.Linear(t.in, t.h, l.in)
	d.Drop(t.h)
	z, b, a := t.in.ColRange(C, C+V), t.in.ColRange(C+V, C+V+H), t.in.ColRange(C+V+H, C+V+2*H)
	d.CausalConv(t.mixed, t.in.ColRange(0, C), l.conv, s)
	d.Drop(t.in.ColRange(0, C))
	d.GatedDelta(t.values, t.mixed, a, b, kernels.DeltaParams{
		KeyHeads: m.cfg.KeyHeads, Rate: l.rate, DtBias: l.dtBias, Eps: keyEps, Chunked: d.Info().ChunkedDelta,
	}, s)
	d.Drop(t.mixed)
	d.NormGate(t.values, t.values, z, l.norm, m.cfg.RMSEps)
	d.LinearAdd(t.x, t.values, l.out)
	d.Drop(t.values)
	d.Drop(t.in)
}

// feedForward adds the layer's network over x to it.
func (m *Model) feedForward(d kernels.Device, t *views, l *layer) {
	F := m.cfg.Intermediate
	d.RMSNorm(t.h, t.x, l.postNorm, m.cfg.RMSEps)
	d.Linear(t.gateUp, t.h, l.gateUp)
	d.Drop(t.h)
	d.GateMul(t.act, t.gateUp.ColRange(0, F), t.gateUp.ColRange(F, 2*F), kernels.SiLU)
	d.Drop(t.gateUp)
	d.LinearAdd(t.x, t.act, l.down)
	d.Drop(t.act)
}

// keyEps is within the root that queries and keys of the delta rule are divided by; no config has it.
const keyEps = 1e-6

// Head implements models.Model.
func (m *Model) Head(d kernels.Device, logits, hidden kernels.Tensor, rows kernels.Ints, scratch kernels.Buffer) {
	t := m.carve(kernels.NewCarver(scratch), hidden.Rows, len(rows.Host))
	d.GatherRows(t.last, hidden, rows)
	d.RMSNorm(t.hLast, t.last, m.norm, m.cfg.RMSEps)
	d.Linear(logits, t.hLast, m.lmHead)
	d.Drop(t.hLast)
	d.Drop(t.last)
}
