package kerneltest

import (
	"math"
	"slices"
	"strings"

	"github.com/openinfer-go/openinfer/kernels"
)

type errorCase struct {
	name, operator string
	run            func(d kernels.Device)
}

// stepErrors gives each operator what does not fit, and wants an error that names the operator,
// the operators after it ignored, and the next step well.
func stepErrors(h *harness) {
	const T, D = 4, 32
	w := h.load(h.matrix("w", 8, D, encoding{bits: 4, group: 32, typ: kernels.F16}))
	x, wide, dst := h.input(h.rows(T, D)), h.input(h.rows(T, 2*D)), h.tensor(T, 8)
	norm := h.input(h.rows(1, D))
	g := geometry{heads: 2, kvHeads: 1, kDim: 16, vDim: 16, typ: h.d.Info().KVTypes[0], blockTokens: 16, params: kernels.AttentionParams{Scale: 1}}
	world := h.world(g, 0)
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
	whole := func() kernels.Ragged { return ragged([]int32{0, T}, T) }
	attn := h.tensor(T, 32)
	unknown := kernels.DType(77)
	out := make([]kernels.Sampled, T)
	params := make([]kernels.SampleParams, T)

	cases := []errorCase{
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
			d.RotaryStore(q.Tensor, kv(func(v *kernels.KV, _ *kernels.CacheLayout) { v.Slots = h.ints(0, 1, 2, 144) }), qkv.Tensor, kernels.RotaryParams{CosSin: angles.Tensor})
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
			d.Attention(attn.RowRange(0, 2), q.Tensor, kv(same), whole(), g.params)
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
			d.Attention(attn.Tensor, q.Tensor, kv(func(v *kernels.KV, _ *kernels.CacheLayout) { v.Tables = h.ints(9, 0) }), whole(), g.params)
		}},
		{"gate of another width", "gateMul", func(d kernels.Device) { d.GateMul(dst.Tensor, x.Tensor, dst.Tensor, kernels.SiLU) }},
		{"gather of an unknown row", "gatherRows", func(d kernels.Device) { d.GatherRows(attn.RowRange(0, 1), x.Tensor, h.ints(T)) }},
		{"sample of too many ids", "sample", func(d kernels.Device) { d.Sample(out, x.Tensor, D+1, params) }},
		{"sample with too few parameters", "sample", func(d kernels.Device) { d.Sample(out, x.Tensor, D, params[1:]) }},
		{"sample with too few results", "sample", func(d kernels.Device) { d.Sample(out[1:], x.Tensor, D, params) }},
		{"scaled embedding of an unknown id", "embedRows", func(d kernels.Device) { d.EmbedRows(x.RowRange(0, 1), w.Weight, h.ints(8), 2) }},
		{"norm and add of another width", "rmsNormAdd", func(d kernels.Device) { d.RMSNormAdd(wide.Tensor, x.Tensor, norm.Tensor, 1e-5, 1) }},
		{"norm and add over itself", "rmsNormAdd", func(d kernels.Device) { d.RMSNormAdd(x.Tensor, x.Tensor, norm.Tensor, 1e-5, 1) }},
		{"norm gate of heads that do not fit", "normGate", func(d kernels.Device) { d.NormGate(x.Tensor, x.Tensor, q.Tensor, norm.ColRange(0, 5), 1e-5) }},
		{"norm gate of another width", "normGate", func(d kernels.Device) { d.NormGate(x.Tensor, x.Tensor, wide.Tensor, norm.Tensor, 1e-5) }},
		{"gate that is no function", "gateMul", func(d kernels.Device) { d.GateMul(q.Tensor, x.Tensor, q.Tensor, kernels.Sigmoid+1) }},
		{"gate over itself", "gateMul", func(d kernels.Device) {
			d.GateMul(wide.ColRange(8, 40), wide.ColRange(0, 32), x.Tensor, kernels.SiLU)
		}},
		{"cap of 0", "softCap", func(d kernels.Device) { d.SoftCap(x.Tensor, 0) }},
		{"cap of no number", "softCap", func(d kernels.Device) { d.SoftCap(x.Tensor, float32(math.NaN())) }},
		{"store of keys as values of another size", "rotaryStore", func(d kernels.Device) {
			d.RotaryStore(q.Tensor, kv(func(_ *kernels.KV, l *kernels.CacheLayout) { l.VDim = 8 }), qkv.ColRange(0, 48), kernels.RotaryParams{KeysAsValues: true, CosSin: angles.Tensor})
		}},
		{"store of values that are not there", "rotaryStore", func(d kernels.Device) {
			d.RotaryStore(q.Tensor, kv(same), qkv.ColRange(0, 48), kernels.RotaryParams{CosSin: angles.Tensor})
		}},
		{"store of values that are too many", "rotaryStore", func(d kernels.Device) {
			d.RotaryStore(q.Tensor, kv(same), qkv.Tensor, kernels.RotaryParams{KeysAsValues: true, CosSin: angles.Tensor})
		}},
	}
	for _, c := range append(cases, stateErrors(h)...) {
		h.sub(c.name, func(h *harness) {
			for i := range dst.Rows {
				for j := range dst.Row(i) {
					dst.Row(i)[j] = math.Float32frombits(poison)
				}
			}
			sampled := make([]kernels.Sampled, T)
			err := h.try(func() {
				c.run(h.d)
				h.d.Linear(dst.Tensor, x.Tensor, w.Weight)
				h.d.Linear(dst.Tensor, wide.Tensor, w.Weight) // a second error, which does not replace the first
				h.d.Sample(sampled, x.Tensor, D, params)
			})
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

// stateErrors are what does not fit operators with a state. One case in two is given to both of them.
func stateErrors(h *harness) (cases []errorCase) {
	const T = 4
	r := recurrence{2, 4, 16, 24, 96, 3, 4}
	w := h.memory(r, 3)
	x, conv, delta := h.input(w.history(T)), h.tensor(T, r.channels), h.tensor(T, r.heads*r.vDim)
	one, two := w.state(), w.state()
	state := func(change func(*kernels.State, *kernels.StateLayout)) kernels.State {
		l := w.layout
		s := kernels.State{Pages: w.pages, Layout: &l, Layer: stateLayer,
			Runs: kernels.Runs{Starts: h.ints(0, 3, T), In: h.ints(append(one, two...)...), Out: h.ints(append(one, two...)...)}}
		change(&s, &l)
		return s
	}
	same := func(*kernels.State, *kernels.StateLayout) {}
	changed := func(a kernels.Ints, i int, to int32) kernels.Ints {
		v := slices.Clone(a.Host)
		v[i] = to
		return h.ints(v...)
	}
	params := kernels.DeltaParams{KeyHeads: r.keyHeads, Rate: w.rate.Tensor, DtBias: w.dtBias.Tensor, Eps: deltaEps}
	rule := func(d kernels.Device, dst kernels.Tensor, p kernels.DeltaParams, s kernels.State) {
		d.GatedDelta(dst, x.ColRange(w.qkv, w.a), x.ColRange(w.a, w.b), x.ColRange(w.b, w.width), p, s)
	}
	held := int32(w.pages.Len / w.layout.PageBytes)
	for name, change := range map[string]func(*kernels.State, *kernels.StateLayout){
		"without a layout":                func(s *kernels.State, _ *kernels.StateLayout) { s.Layout = nil },
		"in a layer too many":             func(s *kernels.State, _ *kernels.StateLayout) { s.Layer = stateLayers },
		"in a layer below 0":              func(s *kernels.State, _ *kernels.StateLayout) { s.Layer = -1 },
		"of units larger than a page":     func(_ *kernels.State, l *kernels.StateLayout) { l.PageBytes = l.UnitBytes() - 4 },
		"of heads without values":         func(_ *kernels.State, l *kernels.StateLayout) { l.VDim = 0 },
		"of heads too large to count":     func(_ *kernels.State, l *kernels.StateLayout) { l.KDim, l.VDim = 1<<31, 1<<31 },
		"of layers too many to count":     func(_ *kernels.State, l *kernels.StateLayout) { l.Layers = math.MaxInt / 8 },
		"of no columns":                   func(_ *kernels.State, l *kernels.StateLayout) { l.ConvColumns = 0 },
		"that begins beyond the arena":    func(s *kernels.State, _ *kernels.StateLayout) { s.Runs.In = changed(s.Runs.In, 1, held) },
		"that begins with nobody's page":  func(s *kernels.State, _ *kernels.StateLayout) { s.Runs.In = changed(s.Runs.In, 1, 0) },
		"that begins on a page below 0":   func(s *kernels.State, _ *kernels.StateLayout) { s.Runs.In = changed(s.Runs.In, 0, -1) },
		"that ends beyond the arena":      func(s *kernels.State, _ *kernels.StateLayout) { s.Runs.Out = changed(s.Runs.Out, len(one), held) },
		"that ends on nobody's page":      func(s *kernels.State, _ *kernels.StateLayout) { s.Runs.Out = changed(s.Runs.Out, 0, 0) },
		"on too few pages":                func(s *kernels.State, _ *kernels.StateLayout) { s.Runs.In = h.ints(s.Runs.In.Host[1:]...) },
		"left on too few pages":           func(s *kernels.State, _ *kernels.StateLayout) { s.Runs.Out = h.ints(one...) },
		"with runs that end early":        func(s *kernels.State, _ *kernels.StateLayout) { s.Runs.Starts = h.ints(0, 2, 3) },
		"with runs that end late":         func(s *kernels.State, _ *kernels.StateLayout) { s.Runs.Starts = h.ints(0, 2, 5) },
		"with runs that begin late":       func(s *kernels.State, _ *kernels.StateLayout) { s.Runs.Starts = h.ints(1, 2, T) },
		"with runs that descend":          func(s *kernels.State, _ *kernels.StateLayout) { s.Runs.Starts = h.ints(0, 5, T) },
		"without runs":                    func(s *kernels.State, _ *kernels.StateLayout) { s.Runs = kernels.Runs{} },
		"in an arena of less than a page": func(s *kernels.State, l *kernels.StateLayout) { s.Pages = s.Pages.Slice(0, l.PageBytes-1) },
		"in an arena that ends with a run": func(s *kernels.State, l *kernels.StateLayout) {
			s.Pages = s.Pages.Slice(0, int64(slices.Max(two))*l.PageBytes)
		},
	} {
		cases = append(cases,
			errorCase{"convolution " + name, "causalConv", func(d kernels.Device) {
				d.CausalConv(conv.Tensor, x.ColRange(0, r.channels), w.w.Tensor, state(change))
			}},
			errorCase{"delta rule " + name, "gatedDelta", func(d kernels.Device) { rule(d, delta.Tensor, params, state(change)) }})
	}
	convolve := func(name string, dst, x, weight kernels.Tensor) {
		cases = append(cases, errorCase{"convolution " + name, "causalConv", func(d kernels.Device) { d.CausalConv(dst, x, weight, state(same)) }})
	}
	convolve("of other channels", conv.ColRange(0, 95), x.ColRange(0, 95), w.w.ColRange(0, 95*4))
	convolve("of another width", conv.Tensor, x.ColRange(0, 96), w.w.ColRange(0, 96*3))
	convolve("of other rows", conv.RowRange(0, 3), x.ColRange(0, 96), w.w.Tensor)
	convolve("in place", x.ColRange(0, 96), x.ColRange(0, 96), w.w.Tensor)
	for name, change := range map[string]func(*kernels.DeltaParams){
		"of heads that do not share keys": func(p *kernels.DeltaParams) { p.KeyHeads = 3 },
		"without key heads":               func(p *kernels.DeltaParams) { p.KeyHeads = 0 },
		"of key heads below 0":            func(p *kernels.DeltaParams) { p.KeyHeads = -2 },
		"of more key heads":               func(p *kernels.DeltaParams) { p.KeyHeads = 4 },
		"of fewer rates":                  func(p *kernels.DeltaParams) { p.Rate = p.Rate.ColRange(0, 3) },
		"of fewer biases":                 func(p *kernels.DeltaParams) { p.DtBias = p.DtBias.ColRange(0, 3) },
		"without rates":                   func(p *kernels.DeltaParams) { p.Rate = kernels.Tensor{} },
	} {
		cases = append(cases, errorCase{"delta rule " + name, "gatedDelta", func(d kernels.Device) {
			p := params
			change(&p)
			rule(d, delta.Tensor, p, state(same))
		}})
	}
	return append(cases,
		errorCase{"delta rule of other rows", "gatedDelta", func(d kernels.Device) { rule(d, delta.RowRange(0, 3), params, state(same)) }},
		errorCase{"delta rule to another width", "gatedDelta", func(d kernels.Device) { rule(d, delta.ColRange(0, 95), params, state(same)) }},
		errorCase{"delta rule over its gates", "gatedDelta", func(d kernels.Device) {
			d.GatedDelta(delta.Tensor, x.ColRange(w.qkv, w.a), delta.ColRange(0, r.heads), x.ColRange(w.b, w.width), params, state(same))
		}})
}
