package kerneltest

import (
	"fmt"
	"math"
	"slices"

	"github.com/openinfer-go/openinfer/kernels"
)

// activations are the functions of GateMul, in a form of their own: where it is x times something
// between 0 and 1, an infinite x is not multiplied by 0.
var activations = map[kernels.Activation]func(x float64) float64{
	kernels.SiLU: func(x float64) float64 { return x * logistic(x) },
	kernels.GELUTanh: func(x float64) float64 {
		return x * logistic(2*math.Sqrt(2/math.Pi)*(x+0.044715*math.Pow(x, 3)))
	},
	kernels.Sigmoid: logistic,
}

func logistic(x float64) float64 {
	if x < 0 {
		return math.Exp(x) / (1 + math.Exp(x))
	}
	return 1 / (1 + math.Exp(-x))
}

// extremes are values where an exponential overflows, or nearly, or gives a subnormal, and small ones.
var extremes = []float32{0, 1e-30, -1e-30, 1e-3, -1e-3, 0.6, -0.7, 9, -9, 40, -40, 86, -87, 88, -88, 89, -89, 104, -104, 1e4, -1e4, 1e30, -1e30, 3e38, -3e38}

// near wants got near want, or infinite where float32 does not hold want.
func (h *harness) near(what string, got float32, want, size float64) {
	h.Helper()
	if math.Abs(want) > math.MaxFloat32 {
		if !math.IsInf(float64(got), int(math.Copysign(1, want))) {
			h.Fatalf("%s: got %v, want an infinity for %v", what, got, want)
		}
		return
	}
	h.close(what, got, want, h.tol.Elements*(1+math.Abs(want)+size))
}

func gateMul(h *harness) {
	const T = 35
	for f, of := range activations {
		for _, F := range []int{1, 7, 8, 33, 256, 2100} {
			h.sub(fmt.Sprint(f, ", ", F, " columns"), func(h *harness) {
				values, others := h.rows(T, 2*F+9), h.rows(T, F)
				for i, v := range extremes {
					values[i][h.rnd.IntN(F)] = v
				}
				nan := h.rnd.IntN(F)
				values[34][nan] = float32(math.NaN())
				both, x := h.input(values), h.input(others)
				want := func(t, i int, x []float32) float64 { return of(float64(values[t][i])) * float64(x[i]) }
				all := h.tensor(T, F)
				gate, up := both.ColRange(0, F), both.ColRange(F, 2*F) // neighbours, as one matrix product leaves them
				h.step(func() { h.d.GateMul(all.Tensor, gate, up, f) })
				for t := range T {
					for i, got := range all.Row(t) {
						what := fmt.Sprintf("row %d, value %d: %v(%v)*%v", t, i, f, values[t][i], up.Row(t)[i])
						if t == 34 && i == nan {
							if got == got {
								h.Fatalf("%s: got %v", what, got)
							}
							continue
						}
						h.near(what, got, want(t, i, up.Row(t)), math.Abs(float64(up.Row(t)[i])))
					}
				}
				h.intact("gateMul", all)
				h.alone("gateMul", all, nil, func(dst kernels.Tensor, from, to int) {
					h.d.GateMul(dst, gate.RowRange(from, to), up.RowRange(from, to), f)
				})
				// Rows apart from each other, of other strides; and in place.
				h.step(func() { h.d.GateMul(all.Tensor, gate, x.Tensor, f) })
				for i, got := range all.Row(0) {
					h.near(fmt.Sprintf("apart: value %d", i), got, want(0, i, others[0]), math.Abs(float64(others[0][i])))
				}
				h.step(func() { h.d.GateMul(x.Tensor, gate, x.Tensor, f) })
				h.sameBits("in place", x.Row(0), all.Row(0))
				h.intact("gateMul in place", x)
				h.step(func() {
					h.d.GateMul(all.Tensor, gate, up, f)
					h.d.GateMul(up, gate, up, f)
				})
				for t := range T - 1 {
					h.sameBits(fmt.Sprintf("in place beside the gate: row %d", t), up.Row(t), all.Row(t))
				}
				h.intact("gateMul in place beside the gate", both)
			})
		}
	}
}

func softCap(h *harness) {
	const T = 35
	for _, cols := range []int{1, 7, 33, 2100} {
		for _, c := range []float32{30, 0.5, 1e6} {
			h.sub(fmt.Sprint(cols, " columns, cap ", c), func(h *harness) {
				values := h.rows(T, cols)
				for i, v := range extremes {
					values[i][h.rnd.IntN(cols)] = v
				}
				nan := h.rnd.IntN(cols)
				values[34][nan] = float32(math.NaN())
				x := h.input(values)
				h.step(func() { h.d.SoftCap(x.Tensor, c) })
				for t := range T {
					for i, got := range x.Row(t) {
						if t == 34 && i == nan {
							if got == got {
								h.Fatalf("cap of NaN: got %v", got)
							}
							continue
						}
						want := float64(c) * math.Tanh(float64(values[t][i])/float64(c))
						h.close(fmt.Sprintf("row %d, value %d: cap of %v", t, i, values[t][i]), got, want, h.tol.Elements*(1e-3+math.Abs(want)))
					}
				}
				h.intact("softCap", x)
				h.alone("softCap", x, values, func(dst kernels.Tensor, from, to int) { h.d.SoftCap(dst, c) })
			})
		}
	}
}

func rmsNormAdd(h *harness) {
	const T, eps, scale = 37, 1e-5, 0.625
	for _, cols := range []int{1, 3, 16, 100, 2050} {
		h.sub(fmt.Sprint(cols, " columns"), func(h *harness) {
			values, before := h.rows(T, cols), h.rows(T, cols)
			for i := range values[4] {
				values[4][i] *= 1e-4 // where eps counts
				values[5][i] *= 1e6
			}
			clear(values[6])
			x, w, all := h.input(values), h.input(h.rows(1, cols)), h.input(before)
			h.step(func() { h.d.RMSNormAdd(all.Tensor, x.Tensor, w.Tensor, eps, scale) })
			for t, row := range values {
				for i, y := range normed(row, w.Row(0), eps) {
					b := float64(before[t][i])
					h.close(fmt.Sprintf("row %d, value %d", t, i), all.Row(t)[i], (b+y)*scale, h.tol.Elements*(1+math.Abs(b)+math.Abs(y)))
				}
			}
			h.intact("rmsNormAdd", all)
			h.intact("rmsNormAdd's x", x)
			h.alone("rmsNormAdd", all, before, func(dst kernels.Tensor, from, to int) {
				h.d.RMSNormAdd(dst, x.RowRange(from, to), w.Tensor, eps, scale)
			})
		})
	}
}

func normGate(h *harness) {
	const T, eps = 37, 1e-6
	for _, c := range []struct{ heads, size int }{{1, 1}, {3, 5}, {4, 16}, {5, 100}, {32, 128}} {
		h.sub(fmt.Sprint(c.heads, " heads of ", c.size), func(h *harness) {
			cols := c.heads * c.size
			values, gates := h.rows(T, cols), h.rows(T, cols+3)
			for i := range cols {
				values[4][i] *= 1e-5 // where eps counts
				values[5][i] *= 1e6
			}
			for i, v := range extremes {
				gates[i][h.rnd.IntN(cols)] = v
			}
			x, w, wide := h.input(values), h.input(h.rows(1, c.size)), h.input(gates)
			gate := wide.ColRange(0, cols)
			all := h.tensor(T, cols)
			h.step(func() { h.d.NormGate(all.Tensor, x.Tensor, gate, w.Tensor, eps) })
			for t, row := range values {
				for head := 0; head < cols; head += c.size {
					for i, y := range normed(row[head:head+c.size], w.Row(0), eps) {
						g := float64(gates[t][head+i])
						h.near(fmt.Sprintf("row %d, value %d: %v*silu(%v)", t, head+i, y, g), all.Row(t)[head+i], y*activations[kernels.SiLU](g), math.Abs(y))
					}
				}
			}
			h.intact("normGate", all)
			h.alone("normGate", all, nil, func(dst kernels.Tensor, from, to int) {
				h.d.NormGate(dst, x.RowRange(from, to), gate.RowRange(from, to), w.Tensor, eps)
			})
			h.step(func() { h.d.NormGate(x.Tensor, x.Tensor, gate, w.Tensor, eps) })
			for t := range T {
				h.sameBits(fmt.Sprintf("in place: row %d", t), x.Row(t), all.Row(t))
			}
		})
	}
}

// followed wants a matrix product to give the same bits right after the operator that wrote its
// inputs, which may have left them in a form of the device's own, as of the same values from elsewhere.
func followed(h *harness) {
	const T, K = 9, 96
	w := h.load(h.matrix("w", 11, K, encoding{bits: 4, group: 32, typ: kernels.F16}))
	f := h.load(h.matrix("f", 11, K, encoding{typ: kernels.F32}))
	x, gate, norm, small := h.input(h.rows(T, K)), h.input(h.rows(T, K)), h.input(h.rows(1, K)), h.input(h.rows(1, 12))
	before := h.rows(T, K)
	for name, run := range map[string]func(y kernels.Tensor){
		"norm":         func(y kernels.Tensor) { h.d.RMSNorm(y, x.Tensor, norm.Tensor, 1e-6) },
		"norm and add": func(y kernels.Tensor) { h.d.RMSNormAdd(y, x.Tensor, norm.Tensor, 1e-6, 0.75) },
		"norm gate":    func(y kernels.Tensor) { h.d.NormGate(y, x.Tensor, gate.Tensor, small.Tensor, 1e-6) },
		"gate":         func(y kernels.Tensor) { h.d.GateMul(y, gate.Tensor, x.Tensor, kernels.GELUTanh) },
		"cap": func(y kernels.Tensor) {
			h.d.RMSNorm(y, x.Tensor, norm.Tensor, 1e-6)
			h.d.SoftCap(y, 0.5)
		},
	} {
		h.sub(name, func(h *harness) {
			y := h.input(before)
			got, want := [2]matrix{h.tensor(T, 11), h.tensor(T, 11)}, h.tensor(T, 11)
			h.step(func() {
				run(y.Tensor)
				h.d.Linear(got[0].Tensor, y.Tensor, w.Weight)
				h.d.Linear(got[1].Tensor, y.Tensor, f.Weight)
			})
			rows := make([][]float32, T)
			for t := range rows {
				rows[t] = slices.Clone(y.Row(t))
			}
			again := h.input(rows)
			for i, w := range []loaded{w, f} {
				h.step(func() { h.d.Linear(want.Tensor, again.Tensor, w.Weight) })
				for t := range T {
					h.sameBits(fmt.Sprintf("weight %d, row %d", i, t), got[i].Row(t), want.Row(t))
				}
			}
		})
	}
}
