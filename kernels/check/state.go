package check

import (
	"fmt"

	"github.com/openinfer-go/openinfer/kernels"
)

// CausalConv checks the operator of that name.
func CausalConv(dst, x, w kernels.Tensor, s kernels.State) error {
	const op = "causalConv"
	if err := tensors(op, dst, x, w); err != nil {
		return err
	}
	if err := state(op, s, x.Rows); err != nil {
		return err
	}
	l := s.Layout
	if dst.Rows != x.Rows || dst.Cols != x.Cols || x.Cols != l.ConvChannels || w.Rows != 1 || w.Cols != x.Cols*(l.ConvColumns+1) {
		return fmt.Errorf("%s: dst %v, x %v, w %v with %d channels and %d columns before a token", op, dst, x, w, l.ConvChannels, l.ConvColumns)
	}
	return apart(op, dst, x, w)
}

// GatedDelta checks the operator of that name.
func GatedDelta(dst, qkv, a, b kernels.Tensor, p kernels.DeltaParams, s kernels.State) error {
	const op = "gatedDelta"
	if err := tensors(op, dst, qkv, a, b, p.Rate, p.DtBias); err != nil {
		return err
	}
	if err := state(op, s, dst.Rows); err != nil {
		return err
	}
	l := s.Layout
	H, G := l.Heads, p.KeyHeads
	switch {
	case G <= 0 || H%G != 0:
		return fmt.Errorf("%s: %d value heads with %d key heads", op, H, G)
	case dst.Cols != H*l.VDim || qkv.Rows != dst.Rows || qkv.Cols != 2*G*l.KDim+H*l.VDim:
		return fmt.Errorf("%s: dst %v, qkv %v with %d key heads of %d and %d value heads of %d", op, dst, qkv, G, l.KDim, H, l.VDim)
	case a.Rows != dst.Rows || a.Cols != H || b.Rows != dst.Rows || b.Cols != H:
		return fmt.Errorf("%s: a %v, b %v for dst %v of %d heads", op, a, b, dst, H)
	case p.Rate.Rows != 1 || p.Rate.Cols != H || p.DtBias.Rows != 1 || p.DtBias.Cols != H:
		return fmt.Errorf("%s: rate %v, dtBias %v for %d heads", op, p.Rate, p.DtBias, H)
	}
	return apart(op, dst, qkv, a, b)
}

// state wants a layout that makes sense and runs over T tokens whose pages lie in the arena.
func state(op string, s kernels.State, T int) error {
	l := s.Layout
	if l == nil {
		return fmt.Errorf("%s: no state layout", op)
	}
	// Sizes beyond these are of no model, and products of them would not fit an integer.
	if !between(1, 1<<14, l.Layers, l.Heads, l.KDim, l.VDim, l.ConvColumns) || !between(0, 1<<24, l.ConvChannels) ||
		l.KDim*l.VDim < l.ConvColumns || l.UnitsPerPage() <= 0 || l.Layers*l.LayerUnits() > 1<<30 {
		return fmt.Errorf("%s: state layout %+v", op, *l)
	}
	if s.Layer < 0 || s.Layer >= l.Layers {
		return fmt.Errorf("%s: layer %d of a state of %d", op, s.Layer, l.Layers)
	}
	starts, pages := s.Runs.Starts.Host, l.StatePages()
	n := len(starts) - 1
	if n < 0 || starts[0] != 0 || int(starts[n]) != T {
		return fmt.Errorf("%s: runs start at %v for %d tokens", op, starts, T)
	}
	for r := range n {
		if starts[r] > starts[r+1] {
			return fmt.Errorf("%s: runs start at %v", op, starts)
		}
	}
	if len(s.Runs.In.Host) != n*pages || len(s.Runs.Out.Host) != n*pages {
		return fmt.Errorf("%s: %d and %d pages for %d runs of %d", op, len(s.Runs.In.Host), len(s.Runs.Out.Host), n, pages)
	}
	held := s.Pages.Len / l.PageBytes
	for r := range n {
		in, out := s.Runs.In.Host[r*pages:(r+1)*pages], s.Runs.Out.Host[r*pages:(r+1)*pages]
		for i := range pages {
			if in[0] != 0 && (in[i] <= 0 || int64(in[i]) >= held) {
				return fmt.Errorf("%s: run %d begins with page %d, the arena has %d", op, r, in[i], held)
			}
			if out[i] <= 0 || int64(out[i]) >= held {
				return fmt.Errorf("%s: run %d ends on page %d, the arena has %d", op, r, out[i], held)
			}
		}
	}
	return nil
}
