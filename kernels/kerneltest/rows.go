package kerneltest

import (
	"fmt"
	"math"

	"github.com/openinfer-go/openinfer/kernels"
)

func rmsNorm(h *harness) {
	const T = 37
	for _, cols := range []int{1, 3, 16, 64, 100, 576, 2048} {
		h.sub(fmt.Sprint(cols, " columns"), func(h *harness) {
			const eps = 1e-5
			values := h.rows(T, cols)
			for i := range values[4] {
				values[4][i] *= 1e-4 // where eps counts
				values[5][i] *= 1e6
			}
			clear(values[6])
			x, w := h.input(values), h.input(h.rows(1, cols))
			all := h.tensor(T, cols)
			h.step(func() { h.d.RMSNorm(all.Tensor, x.Tensor, w.Tensor, eps) })
			for t, row := range values {
				want := normed(row, w.Row(0), eps)
				for i := range row {
					h.close(fmt.Sprintf("row %d, value %d", t, i), all.Row(t)[i], want[i], h.tol.Elements*(1+math.Abs(want[i])))
				}
			}
			h.intact("rmsNorm", all)
			h.alone("rmsNorm", all, nil, func(dst kernels.Tensor, from, to int) {
				h.d.RMSNorm(dst, x.RowRange(from, to), w.Tensor, eps)
			})
			h.step(func() { h.d.RMSNorm(x.Tensor, x.Tensor, w.Tensor, eps) })
			for t := range T {
				h.sameBits(fmt.Sprintf("in place: row %d", t), x.Row(t), all.Row(t))
			}
		})
	}
}

func normed(x, w []float32, eps float64) []float64 {
	var squares float64
	for _, v := range x {
		squares += float64(v) * float64(v)
	}
	y := make([]float64, len(x))
	for i, v := range x {
		y[i] = float64(v) / math.Sqrt(squares/float64(len(x))+eps) * float64(w[i])
	}
	return y
}

func cosSin(h *harness) {
	var positions []int32
	for p := range int32(40) {
		positions = append(positions, p)
	}
	positions = append(positions, 1000, 4095, 8191, 32767, 131071)
	for _, dim := range []int{2, 16, 32, 48, 64, 80, 96, 128, 256} {
		h.sub(fmt.Sprint(dim, " values"), func(h *harness) {
			r := kernels.Rotary{InvFreq: make([]float32, dim/2), Scale: 1.25}
			for i := range r.InvFreq {
				r.InvFreq[i] = float32(math.Pow(10000, -2*float64(i)/float64(dim)))
			}
			all := h.tensor(len(positions), dim)
			h.step(func() { h.d.CosSin(all.Tensor, r, h.ints(positions...)) })
			for t, p := range positions {
				for i, f := range r.InvFreq {
					angle := float64(float32(p) * f) // the angle is a float32, as in the reference library
					h.close(fmt.Sprintf("cos of position %d, pair %d", p, i), all.Row(t)[i], 1.25*math.Cos(angle), 2*h.tol.Elements)
					h.close(fmt.Sprintf("sin of position %d, pair %d", p, i), all.Row(t)[dim/2+i], 1.25*math.Sin(angle), 2*h.tol.Elements)
				}
			}
			h.intact("cosSin", all)
			h.alone("cosSin", all, nil, func(dst kernels.Tensor, from, to int) {
				h.d.CosSin(dst, r, h.ints(positions[from:to]...))
			})
		})
	}
}

func gatherRows(h *harness) {
	x := h.input(h.rows(20, 33))
	rows := []int32{19, 0, 7, 7, 3, 19}
	dst := h.tensor(len(rows), 33)
	h.step(func() { h.d.GatherRows(dst.Tensor, x.Tensor, h.ints(rows...)) })
	for i, r := range rows {
		h.sameBits(fmt.Sprintf("row %d of x as row %d", r, i), dst.Row(i), x.Row(int(r)))
	}
	h.intact("gatherRows", dst)
}
