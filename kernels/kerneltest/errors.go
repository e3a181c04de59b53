package kerneltest

import (
	"math"
	"strings"

	"github.com/openinfer-go/openinfer/kernels"
)

// stepErrors gives each operator what does not fit, and wants an error that names the operator,
// the operators after it ignored, and the next step well.
func stepErrors(h *harness) {
	const T, D = 4, 32
	w := h.load(h.matrix("w", 8, D, encoding{bits: 4, group: 32, typ: kernels.F16}))
	x, wide, dst := h.input(h.rows(T, D)), h.input(h.rows(T, 2*D)), h.tensor(T, 8)
	norm := h.input(h.rows(1, D))
	g := geometry{heads: 2, kvHeads: 1, kDim: 16, vDim: 16, typ: h.d.Info().KVTypes[0], blockTokens: 16, params: kernels.AttentionParams{Scale: 1}}
	world := h.world(g, 3)
	qkv, q, angles := h.input(h.rows(T, 64)), h.input(h.rows(T, 32)), h.input(h.rows(T, 16))
	kv := func(change func(*kernels.KV, *kernels.CacheLayout)) kernels.KV {
		l := world.layout
		v := kernels.KV{Pages: world.pages, Layout: &l, Slots: h.ints(0, 1, 2, 3), Tables: h.ints(0, 1), Stride: 2}
		change(&v, &l)
		return v
	}
	same := func(*kernels.KV, *kernels.CacheLayout) {}
	ragged := func(starts []int32, contexts ...int32) kernels.Ragged {
		return kernels.Ragged{Starts: h.ints(starts...), Contexts: h.ints(contexts...)}
	}
	attn := h.tensor(T, 32)
	whole := ragged([]int32{0, T}, T)
	unknown := kernels.DType(77)
	out := make([]kernels.Sampled, T)
	params := make([]kernels.SampleParams, T)

	for _, c := range []struct {
		name, operator string
		run            func(d kernels.Device)
	}{
		{"embedding of an unknown id", "embedRows", func(d kernels.Device) { d.EmbedRows(x.RowRange(0, 1), w.Weight, h.ints(8), 1) }},
		{"embedding of a negative id", "embedRows", func(d kernels.Device) { d.EmbedRows(x.RowRange(0, 1), w.Weight, h.ints(-1), 1) }},
		{"embedding of too few rows", "embedRows", func(d kernels.Device) { d.EmbedRows(x.RowRange(0, 1), w.Weight, h.ints(1, 2), 1) }},
		{"embedding of another width", "embedRows", func(d kernels.Device) { d.EmbedRows(wide.RowRange(0, 1), w.Weight, h.ints(1), 1) }},
		{"norm of another width", "rmsNorm", func(d kernels.Device) { d.RMSNorm(wide.Tensor, x.Tensor, norm.Tensor, 1e-5) }},
		{"norm with another weight", "rmsNorm", func(d kernels.Device) { d.RMSNorm(x.Tensor, x.Tensor, angles.RowRange(0, 1), 1e-5) }},
		{"linear of another width", "linear", func(d kernels.Device) { d.Linear(dst.Tensor, wide.Tensor, w.Weight) }},
		{"linear of other rows", "linear", func(d kernels.Device) { d.Linear(dst.RowRange(0, 2), x.Tensor, w.Weight) }},
		{"linear to another width", "linearAdd", func(d kernels.Device) { d.LinearAdd(x.Tensor, x.Tensor, w.Weight) }},
		{"linear over itself", "linear", func(d kernels.Device) {
			over := x.Tensor
			over.Cols = 8
			d.Linear(over, x.Tensor, w.Weight)
		}},
		{"linear of halves", "linear", func(d kernels.Device) {
			half := x.Tensor
			half.DType = kernels.F16
			d.Linear(dst.Tensor, half, w.Weight)
		}},
		{"linear beyond a buffer", "linear", func(d kernels.Device) {
			long := x.Tensor
			long.Buf = long.Buf.Slice(0, long.Buf.Len-int64(4*(long.Stride-long.Cols))-4)
			d.Linear(dst.Tensor, long, w.Weight)
		}},
		{"cos of too few positions", "cosSin", func(d kernels.Device) { d.CosSin(angles.Tensor, world.rotaryOf, h.ints(1, 2)) }},
		{"cos of a negative position", "cosSin", func(d kernels.Device) { d.CosSin(angles.Tensor, world.rotaryOf, h.ints(1, 2, 3, -4)) }},
		{"store of another width", "rotaryStore", func(d kernels.Device) {
			d.RotaryStore(q.Tensor, kv(same), x.Tensor, kernels.RotaryParams{CosSin: angles.Tensor})
		}},
		{"store beyond the arena", "rotaryStore", func(d kernels.Device) {
			d.RotaryStore(q.Tensor, kv(func(v *kernels.KV, _ *kernels.CacheLayout) { v.Slots = h.ints(0, 1, 2, 48) }), qkv.Tensor, kernels.RotaryParams{CosSin: angles.Tensor})
		}},
		{"store before the arena", "rotaryStore", func(d kernels.Device) {
			d.RotaryStore(q.Tensor, kv(func(v *kernels.KV, _ *kernels.CacheLayout) { v.Slots = h.ints(0, 1, 2, -2) }), qkv.Tensor, kernels.RotaryParams{CosSin: angles.Tensor})
		}},
		{"store in a layer too many", "rotaryStore", func(d kernels.Device) {
			d.RotaryStore(q.Tensor, kv(func(v *kernels.KV, _ *kernels.CacheLayout) { v.Layer = cacheLayers }), qkv.Tensor, kernels.RotaryParams{CosSin: angles.Tensor})
		}},
		{"store in blocks too small", "rotaryStore", func(d kernels.Device) {
			d.RotaryStore(q.Tensor, kv(func(_ *kernels.KV, l *kernels.CacheLayout) { l.BlockBytes = 64 }), qkv.Tensor, kernels.RotaryParams{CosSin: angles.Tensor})
		}},
		{"store in an unknown type", "rotaryStore", func(d kernels.Device) {
			d.RotaryStore(q.Tensor, kv(func(_ *kernels.KV, l *kernels.CacheLayout) { l.DType = unknown; l.BlockBytes *= 2; l.PageBytes *= 2 }), qkv.Tensor, kernels.RotaryParams{CosSin: angles.Tensor})
		}},
		{"store with too wide angles", "rotaryStore", func(d kernels.Device) {
			d.RotaryStore(q.Tensor, kv(same), qkv.Tensor, kernels.RotaryParams{CosSin: q.Tensor})
		}},
		{"store with another norm", "rotaryStore", func(d kernels.Device) {
			d.RotaryStore(q.Tensor, kv(same), qkv.Tensor, kernels.RotaryParams{QNorm: norm.Tensor, CosSin: angles.Tensor})
		}},
		{"attention of other rows", "attention", func(d kernels.Device) {
			d.Attention(attn.RowRange(0, 2), q.Tensor, kv(same), whole, g.params)
		}},
		{"attention with starts that end early", "attention", func(d kernels.Device) {
			d.Attention(attn.Tensor, q.Tensor, kv(same), ragged([]int32{0, 3}, T), g.params)
		}},
		{"attention with starts that descend", "attention", func(d kernels.Device) {
			d.Attention(attn.Tensor, q.Tensor, kv(same), ragged([]int32{0, 5, T}, 5, T), g.params)
		}},
		{"attention in less context than tokens", "attention", func(d kernels.Device) {
			d.Attention(attn.Tensor, q.Tensor, kv(same), ragged([]int32{0, T}, T-1), g.params)
		}},
		{"attention beyond the block table", "attention", func(d kernels.Device) {
			d.Attention(attn.Tensor, q.Tensor, kv(same), ragged([]int32{0, T}, 33), g.params)
		}},
		{"attention to an unknown block", "attention", func(d kernels.Device) {
			d.Attention(attn.Tensor, q.Tensor, kv(func(v *kernels.KV, _ *kernels.CacheLayout) { v.Tables = h.ints(3, 0) }), whole, g.params)
		}},
		{"gate of another width", "gateMul", func(d kernels.Device) { d.GateMul(dst.Tensor, x.Tensor, dst.Tensor, kernels.SiLU) }},
		{"gather of an unknown row", "gatherRows", func(d kernels.Device) { d.GatherRows(attn.RowRange(0, 1), x.Tensor, h.ints(T)) }},
		{"sample of too many ids", "sample", func(d kernels.Device) { d.Sample(out, x.Tensor, D+1, params) }},
		{"sample with too few parameters", "sample", func(d kernels.Device) { d.Sample(out, x.Tensor, D, params[1:]) }},
		{"sample with too few results", "sample", func(d kernels.Device) { d.Sample(out[1:], x.Tensor, D, params) }},
	} {
		h.sub(c.name, func(h *harness) {
			h.d.Begin()
			c.run(h.d)
			for i := range dst.Rows {
				for j := range dst.Row(i) {
					dst.Row(i)[j] = math.Float32frombits(poison)
				}
			}
			h.d.Linear(dst.Tensor, x.Tensor, w.Weight)
			h.d.Linear(dst.Tensor, wide.Tensor, w.Weight) // a second error, which does not replace the first
			sampled := make([]kernels.Sampled, T)
			h.d.Sample(sampled, x.Tensor, D, params)
			err := h.d.End()
			if err == nil || !strings.HasPrefix(err.Error(), c.operator+":") {
				h.Fatalf("got error %v, want one that begins with %q", err, c.operator+":")
			}
			if got := dst.Row(0)[0]; math.Float32bits(got) != poison {
				h.Errorf("an operator after the error ran and gave %v", got)
			}
			if !sampled[0].NaN {
				h.Errorf("a row sampled after the error counts as good: %+v", sampled[0])
			}
			h.step(func() { h.d.Linear(dst.Tensor, x.Tensor, w.Weight) })
			if got := dst.Row(0)[0]; math.Float32bits(got) == poison {
				h.Error("the step after an error did nothing")
			}
		})
	}
}
