package cuda

// What linear_decode makes of its sums, as linear_end.cuh numbers it.
const (
	endStore = iota
	endAdd
	endGate
	endConv
)

// end is what a product does with its outputs: it stores them in its dst, or adds them to what is there, or is followed by
// another operator in the same launch.
type end struct {
	mode  int
	after *operator // of endGate and endConv
}

// endOf is the end of product o from s, of which after are the operators that follow, and how many of these it takes in.
//
// A gate is taken in when it takes the one half of the outputs times the other and nobody reads these again: a block computes
// pairs of strips. A convolution is taken in over the first outputs, in a step whose tokens are runs that need nothing of each
// other: a thread that has an output has all that it needs. Neither may write what the product's other blocks read, nor
// what they write.
func (d *Device) endOf(o *operator, s source, after []operator) (e end, taken int) {
	if o.kind == linearAdd {
		return end{mode: endAdd}, 0
	}
	i := 0
	for i < len(after) && after[i].kind == drop {
		i++
	}
	if i == len(after) {
		return end{}, 0
	}
	next, rest := &after[i], after[i+1:]
	ps := o.weight.Impl.(weight)
	switch next.kind {
	case gateMul:
		F, p := next.dst.Cols, &ps[0]
		if o.dst.Cols == 2*F && same(next.gate, o.dst.ColRange(0, F)) && same(next.x, o.dst.ColRange(F, 2*F)) && dropped(rest, o.dst) &&
			len(ps) == 1 && p.kind != kindFloat32 && p.host == nil && F%stripRows == 0 && 2*p.cut <= p.decodeWarps() && s.apart(next.dst) {
			return end{endGate, next}, i + 1
		}
	case causalConv:
		C := next.x.Cols
		if C > o.dst.Cols || !same(next.x, o.dst.ColRange(0, C)) || !dropped(rest, next.x) || next.state.Layout.ConvColumns > maxColumns ||
			!s.apart(next.dst) || !apart(next.dst, o.dst) || !apart(next.w, o.dst) || !d.chainsOf(next.state).alone {
			break
		}
		for _, p := range ps {
			if p.first < C && (p.kind == kindFloat32 || p.host != nil) {
				return end{}, 0
			}
		}
		return end{endConv, next}, i + 1
	}
	return end{}, 0
}

// strips is the least that a block of linear_decode needs.
func (e end) strips() int {
	if e.mode == endGate {
		return 2
	}
	return 1
}

// args are arguments of linear_decode.
func (e end) args(p *part) []uint64 {
	a := make([]uint64, 0, 16)
	if e.mode == endGate {
		a = append(a, arg(int(e.after.f)))
	}
	if e.mode != endConv {
		return a[:cap(a)]
	}
	o := e.after
	s, l := o.state, o.state.Layout
	return append(a, 0, arg(p.first), argT(o.dst), arg(o.dst.Stride), argT(o.w), arg(o.dst.Cols), arg(l.ConvColumns), s.Pages.Addr, uint64(l.PageBytes),
		s.Runs.In.Addr, s.Runs.Out.Addr, arg(l.StatePages()), arg(l.UnitsPerPage()), arg(s.Layer*l.LayerUnits()+l.Heads), arg(l.UnitChannels()),
		uint64(l.UnitBytes()))
}
