package ref

import (
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
