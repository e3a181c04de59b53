package cuda

import (
	"github.com/openinfer-go/openinfer/kernels"
)

// A product of one token takes x as a float32 row, and makes it itself where the operator before leaves it to nobody else: each block
// does what one launch before it would do once, while its first weights are on their way. Of two tokens that takes longer than the
// weights do, and than the launches before took (late, in scripts/kernelreport/cost).

const (
	// sourceHeads is the most heads of a normGate, as in linear_source.cuh.
	sourceHeads = 64
	// rowStaticBytes is what the kernel has of shared memory beside what it is launched with, and more.
	rowStaticBytes = 1 << 10
)

// source is what x of a product is made from.
type source struct {
	made       int            // PLAIN, NORMED, HEADS, GATED of linear_source.cuh
	x, gate, w kernels.Tensor // gate and w where it has them
	eps        float32
	f          kernels.Activation
}

// sourceOf is the source that does what o does.
func sourceOf(o *operator) (s source, ok bool) {
	s = source{x: o.x, gate: o.gate, w: o.w, eps: o.eps, f: o.f}
	switch o.kind {
	case rmsNorm:
		s.made = 1
	case normGate:
		s.made = 2
		if o.w.Cols%4 != 0 || o.x.Cols > sourceHeads*o.w.Cols {
			return s, false
		}
	case gateMul:
		s.made = 3
	default:
		return s, false
	}
	return s, true
}

// apart reports whether t shares no byte with what s reads.
func (s source) apart(t kernels.Tensor) bool {
	return apart(t, s.x) && (s.gate.None() || apart(t, s.gate)) && (s.w.None() || apart(t, s.w))
}

// takes reports whether the product o can be made from s.
func (o *operator) takes(s source) bool {
	if s.x.Rows != 1 || s.x.Cols%4 != 0 {
		return false
	}
	for _, t := range []kernels.Tensor{s.x, s.gate, s.w} {
		if !t.None() && t.Buf.Addr%16 != 0 {
			return false
		}
	}
	if !s.apart(o.dst) {
		return false
	}
	for i := range o.weight.Impl.(weight) {
		p := &o.weight.Impl.(weight)[i]
		if p.host != nil || p.kind == kindFloat32 || p.orders != 0 {
			return false
		}
		if _, ok := p.rowShape(1); !ok {
			return false
		}
	}
	return true
}

// made finds in ops a product whose x is made by the operator before it and dropped after it.
func made(ops []operator) (product *operator, s source, ok bool) {
	if len(ops) < 3 {
		return nil, s, false
	}
	first, product := &ops[0], &ops[1]
	if product.kind != linear && product.kind != linearAdd || !same(first.dst, product.x) || !dropped(ops[2:], product.x) {
		return nil, s, false
	}
	s, ok = sourceOf(first)
	return product, s, ok && product.takes(s)
}

// launchFrom queues the launches of a product that is made from s, one for each part of the weight, and returns how many of the operators
// after it they take in.
func (d *Device) launchFrom(o *operator, s source, after []operator) int {
	ps := o.weight.Impl.(weight)
	e, taken := d.endOf(o, s, after)
	if _, ok := ps[0].rowShape(e.strips()); !ok {
		e, taken = end{}, 0
	}
	for i := 0; i < len(ps); i++ {
		p := &ps[i]
		dst := o.dst.ColRange(p.first, p.first+p.N)
		if e.mode == endGate {
			dst = e.after.dst
		}
		shape, _ := p.rowShape(e.strips())
		f := fewRowOf(ps[i:], shape)
		d.row(o.kind.String(), p, shape, dst, s, e, f)
		i += f.parts()
	}
	return taken
}

// row queues a product that makes x itself.
func (d *Device) row(op string, p *part, shape decodeShape, dst kernels.Tensor, s source, e end, f few) {
	d.launchDecode(op, "row", p, shape, dst, e, f, arg(s.made), argT(s.x), argT(s.gate), argT(s.w), arg(p.K), arg(s.w.Cols),
		argF(s.eps), arg(int(s.f)))
}

// rowBytes is what a row takes in shared memory.
func (p *packing) rowBytes() int {
	n := p.tiles * p.xBytes() / 8
	if p.offsets() {
		n += p.tiles * 16
	}
	return n
}

// rowShape chooses the block for a token whose row it makes and keeps; false where that does not fit it.
func (p *packing) rowShape(least int) (s decodeShape, ok bool) {
	x := p.rowBytes()
	s.strips = p.decodeStrips(least)
	stage := func() int { return s.strips * p.cut * (p.tileBytes() + p.slotBytes()) }
	for s.strips > least && 2*stage()+x > blockSharedBytes-rowStaticBytes {
		s.strips /= 2
	}
	// Alone on a multiprocessor, a block has as many stages on their way as fit: they last longest while it makes its row.
	s.stages = min(7, (blockSharedBytes-rowStaticBytes-x)/stage())
	if n := (halfSharedBytes - rowStaticBytes - x) / stage(); n >= 3 && ceil(p.strips(), s.strips) > 2*leastBlocks {
		s.stages = min(4, n)
	}
	s.sharedBytes = max(s.stages*stage()+x, sumBytes(p.cut, 1, s.strips))
	return s, s.stages >= 2
}
