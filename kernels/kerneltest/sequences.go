package kerneltest

import (
	"fmt"
	"math"

	"github.com/openinfer-go/openinfer/kernels"
)

// A device may make one of operators that follow each other, when what they hand on is dropped. sequences wants what is
// left then to have the bits of the operators one by one, each in a step of its own.

// neighbours are a run of operators over tensors of T rows, with what may be anything after it.
type neighbours struct {
	*harness
	T       int
	tensors []matrix
	ops     []func()
	dropped []kernels.Tensor
}

// made returns a tensor of random values.
func (s *neighbours) made(cols int) matrix {
	m := s.input(s.rows(s.T, cols))
	s.tensors = append(s.tensors, m)
	return m
}

func (s *neighbours) then(ops ...func()) { s.ops = append(s.ops, ops...) }

func (s *neighbours) drop(ts ...kernels.Tensor) {
	for _, t := range ts {
		s.then(func() { s.d.Drop(t) })
	}
	s.dropped = append(s.dropped, ts...)
}

// kept returns what the sequence leaves: all tensors with their gaps, without the values that were dropped.
func (s *neighbours) kept() (all [][]float32) {
	for _, t := range s.dropped {
		for i := range t.Rows {
			for k := range t.Row(i) {
				t.Row(i)[k] = 0
			}
		}
	}
	for _, m := range s.tensors {
		all = append(all, append([]float32(nil), m.whole.Row(0)...))
	}
	return all
}

// check runs the sequence as one step and as a step for each operator.
func (s *neighbours) check() {
	s.Helper()
	before := make([][]float32, len(s.tensors))
	for i, m := range s.tensors {
		before[i] = append([]float32(nil), m.whole.Row(0)...)
	}
	s.step(func() {
		for _, op := range s.ops {
			op()
		}
	})
	got := s.kept()
	for i, m := range s.tensors {
		copy(m.whole.Row(0), before[i])
	}
	for _, op := range s.ops {
		s.step(op)
	}
	for i, want := range s.kept() {
		s.sameBits(fmt.Sprintf("tensor %d, %v", i, s.tensors[i].Tensor), got[i], want)
	}
}

func sequences(h *harness) {
	const eps, heads, head = 1e-6, 5, 20
	quantised := func(group int, e encoding) encoding {
		if e.bits != 0 {
			e.group = group
		}
		return e
	}
	for i, c := range []struct {
		name string
		K, F int // of the stream, and of a network or of heads
		e    []encoding
	}{
		{"4 bits", 192, 4 * head, []encoding{{bits: 4, typ: kernels.F16}}},
		{"4 bits and bf16", 99, heads * head, []encoding{{bits: 4, typ: kernels.F16, min: true, bias: true}, {typ: kernels.BF16}}},
		{"8 bits", 160, 4 * head, []encoding{{bits: 8, typ: kernels.BF16}}},
		{"fp16 and float32", 70, heads * head, []encoding{{typ: kernels.F16, bias: true}, {typ: kernels.F32}}},
		{"4 bits in another order", 64, heads * head, []encoding{{bits: 4, typ: kernels.F32, perm: 1}}},
	} {
		for _, T := range []int{1, 2, 5, 18} {
			if h.light && (T == 2 && i > 1 || T > 2 && i > 0) {
				continue
			}
			h.sub(fmt.Sprint(c.name, ", ", T, " tokens"), func(h *harness) {
				// weight has N outputs, of all encodings.
				weight := func(name string, N, K int) *kernels.Weight {
					var parts []made
					for i, e := range c.e {
						n := N / len(c.e)
						if i == 0 {
							n = N - n*(len(c.e)-1)
						}
						group := 0 // the whole row
						if K%32 == 0 {
							group = 32
						}
						parts = append(parts, h.matrix(name, n, K, quantised(group, e)))
					}
					return h.load(parts...).Weight
				}
				wide, up, down, square := weight("wide", c.F, c.K), weight("up", 2*c.F, c.K), weight("down", c.K, c.F), weight("square", c.K, c.K)
				norm, headNorm := h.input(h.rows(1, c.K)), h.input(h.rows(1, head))
				for _, q := range []struct {
					name string
					make func(s *neighbours)
				}{
					{"norm, product", func(s *neighbours) {
						x, n, y := s.made(c.K), s.made(c.K), s.made(c.F)
						clear(x.Row(T / 2))
						x.Row(T - 1)[c.K/3] = 3e38
						s.then(func() { h.d.RMSNorm(n.Tensor, x.Tensor, norm.Tensor, eps) }, func() { h.d.Linear(y.Tensor, n.Tensor, wide) })
						s.drop(n.Tensor)
					}},
					{"norm of a NaN, product", func(s *neighbours) {
						x, n, y := s.made(c.K), s.made(c.K), s.made(c.F)
						x.Row(T / 2)[c.K-1] = float32(math.NaN())
						s.then(func() { h.d.RMSNorm(n.Tensor, x.Tensor, norm.Tensor, eps) }, func() { h.d.LinearAdd(y.Tensor, n.Tensor, wide) })
						s.drop(n.Tensor)
					}},
					{"norm in place, product", func(s *neighbours) {
						x, y := s.made(c.K), s.made(c.F)
						s.then(func() { h.d.RMSNorm(x.Tensor, x.Tensor, norm.Tensor, eps) }, func() { h.d.Linear(y.Tensor, x.Tensor, wide) })
						s.drop(x.Tensor)
					}},
					{"product alone", func(s *neighbours) {
						x, y := s.made(c.K), s.made(c.F)
						s.then(func() { h.d.Linear(y.Tensor, x.Tensor, wide) })
						s.drop(x.Tensor)
					}},
					{"norm that is kept, product", func(s *neighbours) {
						x, n, y := s.made(c.K), s.made(c.K), s.made(c.F)
						s.then(func() { h.d.RMSNorm(n.Tensor, x.Tensor, norm.Tensor, eps) }, func() { h.d.Linear(y.Tensor, n.Tensor, wide) })
					}},
					{"norm, two products", func(s *neighbours) {
						x, n, y, z := s.made(c.K), s.made(c.K), s.made(c.F), s.made(c.F)
						s.then(func() { h.d.RMSNorm(n.Tensor, x.Tensor, norm.Tensor, eps) }, func() { h.d.Linear(y.Tensor, n.Tensor, wide) },
							func() { h.d.LinearAdd(z.Tensor, n.Tensor, wide) })
						s.drop(n.Tensor)
					}},
					{"norm, change of what was normed, product", func(s *neighbours) {
						x, n, y, g := s.made(c.K), s.made(c.K), s.made(c.F), s.made(c.K)
						s.then(func() { h.d.RMSNorm(n.Tensor, x.Tensor, norm.Tensor, eps) }, func() { h.d.GateMul(x.Tensor, g.Tensor, x.Tensor, kernels.Sigmoid) },
							func() { h.d.Linear(y.Tensor, n.Tensor, wide) })
						s.drop(n.Tensor)
					}},
					{"norm, product over what was normed", func(s *neighbours) {
						x, n := s.made(c.K), s.made(c.K)
						s.then(func() { h.d.RMSNorm(n.Tensor, x.Tensor, norm.Tensor, eps) }, func() { h.d.LinearAdd(x.Tensor, n.Tensor, square) })
						s.drop(n.Tensor)
					}},
					{"norm, product, a part dropped", func(s *neighbours) {
						x, n, y := s.made(c.K), s.made(c.K), s.made(c.F)
						s.then(func() { h.d.RMSNorm(n.Tensor, x.Tensor, norm.Tensor, eps) }, func() { h.d.Linear(y.Tensor, n.Tensor, wide) })
						s.drop(n.ColRange(1, c.K), n.RowRange(0, T-1))
					}},
					{"norm, product of some rows", func(s *neighbours) {
						x, n, y := s.made(c.K), s.made(c.K), s.made(c.F)
						s.then(func() { h.d.RMSNorm(n.Tensor, x.Tensor, norm.Tensor, eps) },
							func() { h.d.Linear(y.RowRange(0, (T+1)/2), n.RowRange(T/2, T), wide) })
						s.drop(n.Tensor)
					}},
					{"norm, norm, product of the first", func(s *neighbours) {
						x, n, o, y := s.made(c.K), s.made(c.K), s.made(c.K), s.made(c.F)
						s.then(func() { h.d.RMSNorm(n.Tensor, x.Tensor, norm.Tensor, eps) }, func() { h.d.RMSNorm(o.Tensor, x.Tensor, norm.Tensor, eps) },
							func() { h.d.Linear(y.Tensor, n.Tensor, wide) })
						s.drop(n.Tensor, o.Tensor)
					}},
					{"gates in place, product", func(s *neighbours) {
						for _, f := range []kernels.Activation{kernels.SiLU, kernels.GELUTanh, kernels.Sigmoid} {
							g, v, y := s.made(c.F+3), s.made(c.F), s.made(c.K)
							for i, e := range extremes {
								g.Row(T / 2)[i*(c.F-1)/len(extremes)] = min(max(e, -1e30), 1e30)
							}
							s.then(func() { h.d.GateMul(v.Tensor, g.ColRange(3, c.F+3), v.Tensor, f) }, func() { h.d.LinearAdd(y.Tensor, v.Tensor, down) })
							s.drop(v.Tensor, g.Tensor)
						}
					}},
					{"gate, product over the gate", func(s *neighbours) {
						g, v, a := s.made(c.K), s.made(c.K), s.made(c.K)
						s.then(func() { h.d.GateMul(a.Tensor, g.Tensor, v.Tensor, kernels.SiLU) }, func() { h.d.Linear(g.Tensor, a.Tensor, square) })
						s.drop(a.Tensor)
					}},
					{"gated norm of heads, product", func(s *neighbours) {
						v, g, y := s.made(c.F), s.made(2*c.F), s.made(c.K)
						clear(v.Row(T / 2)[:head])
						for i := range head {
							v.Row(T - 1)[head+i] *= 1e30
						}
						s.then(func() { h.d.NormGate(v.Tensor, v.Tensor, g.ColRange(c.F, 2*c.F), headNorm.Tensor, eps) },
							func() { h.d.LinearAdd(y.Tensor, v.Tensor, down) })
						s.drop(v.Tensor)
					}},
					{"product, gate", func(s *neighbours) {
						for _, f := range []kernels.Activation{kernels.SiLU, kernels.GELUTanh} {
							x, u, a := s.made(c.K), s.made(2*c.F), s.made(c.F)
							s.then(func() { h.d.Linear(u.Tensor, x.Tensor, up) },
								func() { h.d.GateMul(a.Tensor, u.ColRange(0, c.F), u.ColRange(c.F, 2*c.F), f) })
							s.drop(u.Tensor)
						}
					}},
					{"product, gate over what was multiplied", func(s *neighbours) {
						x, u := s.made(c.K), s.made(2*c.K)
						w := weight("up of the stream", 2*c.K, c.K)
						s.then(func() { h.d.Linear(u.Tensor, x.Tensor, w) },
							func() { h.d.GateMul(x.Tensor, u.ColRange(0, c.K), u.ColRange(c.K, 2*c.K), kernels.SiLU) })
						s.drop(u.Tensor)
					}},
					{"product that is kept, gate", func(s *neighbours) {
						x, u, a := s.made(c.K), s.made(2*c.F), s.made(c.F)
						s.then(func() { h.d.Linear(u.Tensor, x.Tensor, up) },
							func() { h.d.GateMul(a.Tensor, u.ColRange(0, c.F), u.ColRange(c.F, 2*c.F), kernels.SiLU) })
						s.drop(u.ColRange(0, c.F))
					}},
					{"product, gate the other way round", func(s *neighbours) {
						x, u, a := s.made(c.K), s.made(2*c.F), s.made(c.F)
						s.then(func() { h.d.Linear(u.Tensor, x.Tensor, up) },
							func() { h.d.GateMul(a.Tensor, u.ColRange(c.F, 2*c.F), u.ColRange(0, c.F), kernels.SiLU) })
						s.drop(u.Tensor)
					}},
					{"a network", func(s *neighbours) {
						x, n, u, a := s.made(c.K), s.made(c.K), s.made(2*c.F), s.made(c.F)
						for range 2 {
							s.then(func() { h.d.RMSNorm(n.Tensor, x.Tensor, norm.Tensor, eps) }, func() { h.d.Linear(u.Tensor, n.Tensor, up) })
							s.drop(n.Tensor)
							s.then(func() { h.d.GateMul(a.Tensor, u.ColRange(0, c.F), u.ColRange(c.F, 2*c.F), kernels.SiLU) })
							s.drop(u.Tensor)
							s.then(func() { h.d.LinearAdd(x.Tensor, a.Tensor, down) })
							s.drop(a.Tensor)
						}
					}},
				} {
					h.sub(q.name, func(h *harness) {
						s := &neighbours{harness: h, T: T}
						q.make(s)
						s.check()
					})
				}
			})
		}
	}
}

// convolved wants the same of a product, a convolution over some of its outputs, and what comes after it.
func convolved(h *harness) {
	const K = 96
	r := recurrence{1, 3, 16, 24, 72, 3, 5}
	for _, c := range []struct {
		name  string
		kept  bool
		sizes []int // of the runs
	}{
		{"of a token", false, []int{1}},
		{"of a token each", false, []int{1, 1, 1}},
		{"of some tokens", false, []int{4, 1}},
		{"of a token whose outputs are kept", true, []int{1}},
	} {
		h.sub(c.name, func(h *harness) {
			w := h.memory(r, 2*len(c.sizes))
			T := 0
			var starts, in, out []int32
			for _, n := range c.sizes {
				starts, T = append(starts, int32(T)), T+n
				in, out = append(in, w.state()...), append(out, w.state()...)
			}
			starts = append(starts, int32(T))
			for i := range w.layout.StatePages() * len(c.sizes) {
				for u := range r.pageUnits {
					for k, v := range w.rows(1, r.kDim*r.vDim)[0] {
						w.unitAt(in[i], u)[k] = v
					}
				}
			}
			weight := h.load(h.matrix("in", r.channels+24, K, encoding{bits: 4, group: 32, typ: kernels.F16}), h.matrix("gates", 6, K, encoding{typ: kernels.BF16}))
			s := &neighbours{harness: h, T: T}
			x, y, mixed := s.made(K), s.made(weight.N), s.made(r.channels)
			s.then(func() { h.d.Linear(y.Tensor, x.Tensor, weight.Weight) }, func() {
				state := kernels.State{Pages: w.pages, Layout: &w.layout, Layer: stateLayer, Runs: kernels.Runs{Starts: w.ints(starts...), In: w.ints(in...), Out: w.ints(out...)}}
				h.d.CausalConv(mixed.Tensor, y.ColRange(0, r.channels), w.w.Tensor, state)
			})
			if !c.kept {
				s.drop(y.ColRange(0, r.channels))
			}
			pages := w.whole()
			s.tensors = append(s.tensors, matrix{Tensor: pages, whole: pages})
			s.check()
		})
	}
}

// unitAt is a unit of a page.
func (w *memoryWorld) unitAt(page int32, unit int) []float32 {
	n := w.layout.UnitBytes()
	b := w.pages.Slice(int64(page)*w.layout.PageBytes+int64(unit)*n, n)
	return kernels.Tensor{Buf: b}.Float32()
}

// whole is the arena as one row.
func (w *memoryWorld) whole() kernels.Tensor {
	n := int(w.pages.Len / 4)
	return kernels.Tensor{Buf: w.pages, Rows: 1, Cols: n, Stride: n}
}
