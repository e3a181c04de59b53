package cuda

import (
	"github.com/openinfer-go/openinfer/kernels"
)

// What linear_decode makes of its sums, as linear_end.cuh numbers it.
const (
	endStore = iota
	endAdd
	endGate
	endConv
)

// end is what a decode product does with its outputs.
type end struct {
	mode int
	gate kernels.Activation // of endGate
	// Of endConv: mixed takes what the convolution makes of the weight's first outputs, each token being a run and a chain of
	// its own.
	mixed, filter kernels.Tensor
	state         kernels.State
}

// args are the last arguments of linear_decode.
func (e end) args(p *part) []uint64 {
	a := []uint64{arg(int(e.gate)), arg(p.first)}
	if e.mode != endConv {
		return append(a, make([]uint64, 14)...)
	}
	s, l := e.state, e.state.Layout
	return append(a, argT(e.mixed), arg(e.mixed.Stride), argT(e.filter), arg(e.mixed.Cols), arg(l.ConvColumns), s.Pages.Addr, uint64(l.PageBytes),
		s.Runs.In.Addr, s.Runs.Out.Addr, arg(l.StatePages()), arg(l.UnitsPerPage()), arg(s.Layer*l.LayerUnits()+l.Heads), arg(l.UnitChannels()),
		uint64(l.UnitBytes()))
}
