package ref

import (
	"math"

	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/kernels/check"
)

// EmbedRows implements kernels.Device.
func (d *Device) EmbedRows(dst kernels.Tensor, table *kernels.Weight, ids kernels.Ints, scale float32) {
	if d.err != nil || !d.ok(check.EmbedRows(dst, table, ids)) {
		return
	}
	row := make([]float64, table.K)
	for t, id := range ids.Host {
		table.Impl.(weight).row(row, int(id))
		for k, v := range row {
			dst.Row(t)[k] = float32(v * float64(scale))
		}
	}
}

// RMSNorm implements kernels.Device.
func (d *Device) RMSNorm(dst, x, w kernels.Tensor, eps float32) {
	if d.err != nil || !d.ok(check.RMSNorm(dst, x, w)) {
		return
	}
	for t := range x.Rows {
		rmsNorm(dst.Row(t), x.Row(t), w.Row(0), eps)
	}
}

// rmsNorm takes a nil w for ones.
func rmsNorm(dst, x, w []float32, eps float32) {
	var squares float64
	for _, v := range x {
		squares += float64(v) * float64(v)
	}
	scale := 1 / math.Sqrt(squares/float64(len(x))+float64(eps))
	for i, v := range x {
		y := float64(v) * scale
		if w != nil {
			y *= float64(w[i])
		}
		dst[i] = float32(y)
	}
}

// RMSNormAdd implements kernels.Device.
func (d *Device) RMSNormAdd(dst, x, w kernels.Tensor, eps, scale float32) {
	if d.err != nil || !d.ok(check.RMSNormAdd(dst, x, w)) {
		return
	}
	y := make([]float32, x.Cols)
	for t := range x.Rows {
		rmsNorm(y, x.Row(t), w.Row(0), eps)
		for i, v := range dst.Row(t) {
			dst.Row(t)[i] = float32((float64(v) + float64(y[i])) * float64(scale))
		}
	}
}

// NormGate implements kernels.Device.
func (d *Device) NormGate(dst, x, gate, w kernels.Tensor, eps float32) {
	if d.err != nil || !d.ok(check.NormGate(dst, x, gate, w)) {
		return
	}
	n := w.Cols
	for t := range x.Rows {
		for h := 0; h < x.Cols; h += n {
			y, g := dst.Row(t)[h:h+n], gate.Row(t)[h:h+n]
			rmsNorm(y, x.Row(t)[h:h+n], w.Row(0), eps)
			for i := range y {
				y[i] = float32(float64(y[i]) * activate(kernels.SiLU, float64(g[i])))
			}
		}
	}
}

// Linear implements kernels.Device.
func (d *Device) Linear(dst, x kernels.Tensor, w *kernels.Weight) {
	if d.err == nil && d.ok(check.Linear("linear", dst, x, w)) {
		d.linear(dst, x, w, false)
	}
}

// LinearAdd implements kernels.Device.
func (d *Device) LinearAdd(dst, x kernels.Tensor, w *kernels.Weight) {
	if d.err == nil && d.ok(check.Linear("linearAdd", dst, x, w)) {
		d.linear(dst, x, w, true)
	}
}

// linear decodes each row of w once for some rows of x at a time.
func (d *Device) linear(dst, x kernels.Tensor, w *kernels.Weight, add bool) {
	const tile = 64
	rows, K := w.Impl.(weight), w.K
	wide := make([]float64, min(tile, x.Rows)*K)
	for from := 0; from < x.Rows; from += tile {
		to := min(from+tile, x.Rows)
		for t := from; t < to; t++ {
			widen(wide[(t-from)*K:], x.Row(t))
		}
		d.each(w.N, func(first, last int) {
			row := make([]float64, K)
			for n := first; n < last; n++ {
				rows.row(row, n)
				bias := float64(rows.biasOf(n))
				for t := from; t < to; t++ {
					y := dot(wide[(t-from)*K:], row) + bias
					if add {
						y += float64(dst.Row(t)[n])
					}
					dst.Row(t)[n] = float32(y)
				}
			}
		})
	}
}

func widen(dst []float64, x []float32) {
	for i, v := range x {
		dst[i] = float64(v)
	}
}

// dot sums in four interleaved runs, each in ascending order: one chain of additions would wait
// for itself.
func dot(x, w []float64) float64 {
	x = x[:len(w)]
	var a, b, c, e float64
	for len(w) >= 4 && len(x) >= 4 {
		a += x[0] * w[0]
		b += x[1] * w[1]
		c += x[2] * w[2]
		e += x[3] * w[3]
		x, w = x[4:], w[4:]
	}
	for i := range w {
		a += x[i] * w[i]
	}
	return (a + b) + (c + e)
}

// CosSin implements kernels.Device. The angle is rounded to float32, as the reference library
// does; that counts at large positions.
func (d *Device) CosSin(dst kernels.Tensor, r kernels.Rotary, positions kernels.Ints) {
	if d.err != nil || !d.ok(check.CosSin(dst, r, positions)) {
		return
	}
	half := len(r.InvFreq)
	for t, p := range positions.Host {
		row := dst.Row(t)
		for i, f := range r.InvFreq {
			sin, cos := math.Sincos(float64(float32(p) * f))
			row[i] = float32(cos * float64(r.Scale))
			row[half+i] = float32(sin * float64(r.Scale))
		}
	}
}

// GateMul implements kernels.Device.
func (d *Device) GateMul(dst, gate, x kernels.Tensor, f kernels.Activation) {
	if d.err != nil || !d.ok(check.GateMul(dst, gate, x, f)) {
		return
	}
	for t := range dst.Rows {
		y, g, x := dst.Row(t), gate.Row(t), x.Row(t)
		for i := range y {
			y[i] = float32(activate(f, float64(g[i])) * float64(x[i]))
		}
	}
}

func activate(f kernels.Activation, x float64) float64 {
	switch f {
	case kernels.SiLU:
		return x / (1 + math.Exp(-x))
	case kernels.GELUTanh:
		return x / 2 * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(x+0.044715*x*x*x)))
	}
	return 1 / (1 + math.Exp(-x))
}

// SoftCap implements kernels.Device.
func (d *Device) SoftCap(x kernels.Tensor, c float32) {
	if d.err != nil || !d.ok(check.SoftCap(x, c)) {
		return
	}
	for t := range x.Rows {
		for i, v := range x.Row(t) {
			x.Row(t)[i] = float32(float64(c) * math.Tanh(float64(v)/float64(c)))
		}
	}
}

// Drop implements kernels.Device. Whoever reads t after all finds NaNs.
func (d *Device) Drop(t kernels.Tensor) {
	if d.err != nil || !d.ok(check.Drop(t)) {
		return
	}
	for i := range t.Rows {
		for k := range t.Row(i) {
			t.Row(i)[k] = float32(math.NaN())
		}
	}
}

// GatherRows implements kernels.Device.
func (d *Device) GatherRows(dst, x kernels.Tensor, rows kernels.Ints) {
	if d.err != nil || !d.ok(check.GatherRows(dst, x, rows)) {
		return
	}
	for i, r := range rows.Host {
		copy(dst.Row(i), x.Row(int(r)))
	}
}
