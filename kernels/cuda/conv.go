package cuda

import (
	"fmt"

	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/kernels/check"
)

const (
	convChannels = 128 // of a block, as in conv.cu
	convTokens   = 32  // of a block of conv_tokens
	maxColumns   = 15  // before a token
)

// CausalConv implements kernels.Device.
func (d *Device) CausalConv(dst, x, w kernels.Tensor, s kernels.State) {
	if d.err == nil && d.ok(check.CausalConv(dst, x, w, s)) && dst.Rows > 0 {
		d.list(operator{kind: causalConv, dst: dst, x: x, w: w, state: s})
	}
}

func (d *Device) launchCausalConv(o *operator) {
	const op = "causalConv"
	dst, x, w, s := o.dst, o.x, o.w, o.state
	l := s.Layout
	runs, n := len(s.Runs.Starts.Host)-1, l.ConvColumns
	switch {
	case runs > maxRuns:
		d.ok(fmt.Errorf("%s: %d runs: at most %d are supported", op, runs, maxRuns))
		return
	case n > maxColumns:
		d.ok(fmt.Errorf("%s: %d columns before a token: at most %d are supported", op, n, maxColumns))
		return
	}
	suffix := ""
	if n == 3 {
		suffix = "_3"
	}
	channels := ceil(dst.Cols, convChannels)
	d.launch(op, "conv", "conv_states"+suffix, [3]int{channels, runs, 1}, [3]int{convChannels, 1, 1}, 2*convChannels*n*4,
		argT(dst), arg(dst.Stride), argT(x), arg(x.Stride), argT(w), arg(dst.Cols), arg(n),
		s.Pages.Addr, uint64(l.PageBytes), s.Runs.Starts.Addr, s.Runs.In.Addr, s.Runs.Out.Addr, d.chains(s),
		arg(l.UnitsPerPage()), arg(s.Layer*l.LayerUnits()+l.Heads), arg(l.StatePages()), arg(l.UnitChannels()), uint64(l.UnitBytes()))
	if dst.Rows > runs { // some run may have more tokens than the columns reach
		d.launch(op, "conv", "conv_tokens"+suffix, [3]int{channels, ceil(dst.Rows, convTokens), 1}, [3]int{convChannels, 1, 1}, 0,
			argT(dst), arg(dst.Stride), argT(x), arg(x.Stride), argT(w), arg(dst.Cols), arg(n), s.Runs.Starts.Addr, arg(runs), arg(dst.Rows))
	}
}
