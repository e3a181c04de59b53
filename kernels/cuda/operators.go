package cuda

import (
	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/kernels/check"
)

// Operators that can share a launch with their neighbours are listed, once their arguments have been checked, until an operator
// comes that is launched at once, or the queue is to go out. Then the list is lowered: what makes a pattern becomes one
// launch, and any other operator launches of its own. Results are the same, bit for bit.

// operator is an entry of the list.
type operator struct {
	kind   kind
	dst, x kernels.Tensor // Drop: dst
	gate   kernels.Tensor // of normGate and gateMul
	w      kernels.Tensor // of rmsNorm, normGate and causalConv
	eps    float32
	f      kernels.Activation
	weight *kernels.Weight // of linear and linearAdd
	state  kernels.State   // of causalConv
}

// add is 1 of a product that is added to what is there.
func (o *operator) add() int {
	if o.kind == linearAdd {
		return 1
	}
	return 0
}

// kind says which operator it is.
type kind uint8

const (
	rmsNorm kind = iota
	normGate
	gateMul
	linear
	linearAdd
	causalConv
	drop
)

// String is the operator's name in errors.
func (k kind) String() string {
	return [...]string{"rmsNorm", "normGate", "gateMul", "linear", "linearAdd", "causalConv", "drop"}[k]
}

// list adds o to the list.
func (d *Device) list(o operator) { d.listed = append(d.listed, o) }

// settle lowers what is listed.
func (d *Device) settle() {
	ops := d.listed
	d.listed = d.listed[:0] // lowering lists nothing
	for len(ops) > 0 && d.err == nil {
		ops = ops[d.lower(ops):]
	}
}

// lower queues the launches of the first operators of ops, at least one, and returns how many.
func (d *Device) lower(ops []operator) int {
	if product, s, ok := made(ops); ok {
		return 2 + d.launchFrom(product, s, ops[2:])
	}
	switch o := &ops[0]; o.kind {
	case rmsNorm:
		d.launchRMSNorm(o)
	case normGate:
		d.launchNormGate(o)
	case gateMul:
		d.launchGateMul(o)
	case linear, linearAdd:
		return 1 + d.launchLinear(o, ops[1:])
	case causalConv:
		d.launchCausalConv(o)
	case drop: // it says something of the operators before it
	}
	return 1
}

// Drop implements kernels.Device.
func (d *Device) Drop(t kernels.Tensor) {
	if d.err == nil && d.ok(check.Drop(t)) {
		d.list(operator{kind: drop, dst: t})
	}
}

// dropped reports whether a Drop among those that ops begin with has all of t.
func dropped(ops []operator, t kernels.Tensor) bool {
	for i := 0; i < len(ops) && ops[i].kind == drop; i++ {
		if covers(ops[i].dst, t) {
			return true
		}
	}
	return false
}

// same reports whether a and b are the same values.
func same(a, b kernels.Tensor) bool {
	return a.Buf.Addr == b.Buf.Addr && a.Rows == b.Rows && a.Cols == b.Cols && (a.Stride == b.Stride || a.Rows == 1)
}

// covers reports whether t is rows and columns of all.
func covers(all, t kernels.Tensor) bool {
	if t.Buf.Addr < all.Buf.Addr || t.Stride != all.Stride {
		return false
	}
	at := int((t.Buf.Addr - all.Buf.Addr) / 4)
	return at/all.Stride+t.Rows <= all.Rows && at%all.Stride+t.Cols <= all.Cols
}

// apart reports whether no byte of a lies between the first and the last of b.
func apart(a, b kernels.Tensor) bool {
	end := func(t kernels.Tensor) uint64 { return t.Buf.Addr + uint64((t.Rows-1)*t.Stride+t.Cols)*4 }
	return a.Rows == 0 || b.Rows == 0 || end(a) <= b.Buf.Addr || end(b) <= a.Buf.Addr
}
