package ref

import (
	"math"
	"unsafe"

	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/kernels/check"
)

// unit returns one unit of a layer in the state on these pages: a head's, or a piece of the
// convolution's columns.
func unit(s kernels.State, pages []int32, i int) []float32 {
	l := s.Layout
	off := l.Offset(pages, s.Layer, i)
	b := s.Pages.Host[off:][:l.UnitBytes()]
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/4)
}

// run is one of a step's runs.
type run struct {
	from, to int
	in, out  []int32 // in nil: zeros
}

func runs(s kernels.State) []run {
	n := s.Layout.StatePages()
	starts := s.Runs.Starts.Host
	rs := make([]run, len(starts)-1)
	for i := range rs {
		rs[i] = run{int(starts[i]), int(starts[i+1]), s.Runs.In.Host[i*n : (i+1)*n], s.Runs.Out.Host[i*n : (i+1)*n]}
		if rs[i].in[0] == 0 {
			rs[i].in = nil
		}
	}
	return rs
}

// CausalConv implements kernels.Device.
func (d *Device) CausalConv(dst, x, w kernels.Tensor, s kernels.State) {
	if d.err != nil || !d.ok(check.CausalConv(dst, x, w, s)) {
		return
	}
	l := s.Layout
	n, per := l.ConvColumns, l.UnitChannels()
	weights := w.Row(0)
	seen := make([]float32, n+1) // what a token sees of a channel, itself last
	for _, r := range runs(s) {
		if r.from == r.to {
			continue
		}
		for c := range x.Cols {
			clear(seen)
			at := c % per * n
			if r.in != nil {
				copy(seen[1:], unit(s, r.in, l.Heads+c/per)[at:at+n])
			}
			for t := r.from; t < r.to; t++ {
				copy(seen, seen[1:])
				seen[n] = x.Row(t)[c]
				var sum float64
				for j, v := range seen {
					sum += float64(v) * float64(weights[c*(n+1)+j])
				}
				dst.Row(t)[c] = float32(activate(kernels.SiLU, sum))
			}
			copy(unit(s, r.out, l.Heads+c/per)[at:at+n], seen[1:])
		}
	}
}

// GatedDelta implements kernels.Device.
func (d *Device) GatedDelta(dst, qkv, a, b kernels.Tensor, p kernels.DeltaParams, s kernels.State) {
	if d.err != nil || !d.ok(check.GatedDelta(dst, qkv, a, b, p, s)) {
		return
	}
	l := s.Layout
	K, V := l.KDim, l.VDim
	rate, bias := p.Rate.Row(0), p.DtBias.Row(0)
	rs := runs(s)
	d.each(l.Heads, func(first, last int) {
		q, k, error := make([]float64, K), make([]float64, K), make([]float64, V)
		for h := first; h < last; h++ {
			g := h / (l.Heads / p.KeyHeads)
			for _, r := range rs {
				if r.from == r.to {
					continue
				}
				S := unit(s, r.out, h)
				if r.in == nil {
					clear(S)
				} else {
					copy(S, unit(s, r.in, h))
				}
				for t := r.from; t < r.to; t++ {
					row := qkv.Row(t)
					unitLength(q, row[g*K:(g+1)*K], p.Eps)
					unitLength(k, row[(p.KeyHeads+g)*K:][:K], p.Eps)
					v := row[2*p.KeyHeads*K+h*V:][:V]
					decay := math.Exp(-float64(rate[h]) * softplus(float64(a.Row(t)[h])+float64(bias[h])))
					beta := activate(kernels.Sigmoid, float64(b.Row(t)[h]))
					for j := range error {
						var known float64
						for i := range k {
							known += float64(S[i*V+j]) * k[i]
						}
						error[j] = beta * (float64(v[j]) - decay*known)
					}
					y := dst.Row(t)[h*V:][:V]
					for j := range error {
						var sum float64
						for i := range k {
							next := float32(float64(S[i*V+j])*decay + k[i]*error[j])
							S[i*V+j] = next
							sum += float64(next) * q[i]
						}
						y[j] = float32(sum / math.Sqrt(float64(K)))
					}
				}
			}
		}
	})
}

func unitLength(dst []float64, x []float32, eps float32) {
	var squares float64
	for _, v := range x {
		squares += float64(v) * float64(v)
	}
	scale := 1 / math.Sqrt(squares+float64(eps))
	for i, v := range x {
		dst[i] = float64(v) * scale
	}
}

func softplus(x float64) float64 {
	if x > 30 { // where exp(-x) no longer counts
		return x
	}
	return math.Log1p(math.Exp(x))
}
