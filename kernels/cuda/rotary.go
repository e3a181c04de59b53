package cuda

import (
	"fmt"

	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/kernels/check"
)

// CosSin implements kernels.Device.
func (d *Device) CosSin(dst kernels.Tensor, r kernels.Rotary, positions kernels.Ints) {
	if d.err != nil || !d.ok(check.CosSin(dst, r, positions)) {
		return
	}
	half := len(r.InvFreq)
	frequencies := d.stage(bytesOf(r.InvFreq[:half]))
	threads := min(128, ceil(half, 32)*32)
	d.launch("cosSin", "rotary", "cos_sin", [3]int{dst.Rows, ceil(half, threads), 1}, [3]int{threads, 1, 1}, 0,
		argT(dst), arg(dst.Stride), frequencies, positions.Addr, arg(half), argF(r.Scale))
}

// What rotary_store does, as in rotary.cu.
const (
	normValues   = 1
	keysAsValues = 2
)

// maxHead is the largest head that kernels keep in registers.
const maxHead = 512

// RotaryStore implements kernels.Device.
func (d *Device) RotaryStore(q kernels.Tensor, kv kernels.KV, qkv kernels.Tensor, p kernels.RotaryParams) {
	const op = "rotaryStore"
	if d.err != nil || !d.ok(check.RotaryStore(q, kv, qkv, p)) || !d.ok(cacheFits(op, kv)) {
		return
	}
	l := kv.Layout
	if l.KDim > maxHead || l.VDim > maxHead {
		d.ok(fmt.Errorf("%s: heads of %d and %d, at most %d", op, l.KDim, l.VDim, maxHead))
		return
	}
	entry := map[kernels.DType]string{
		kernels.F16: "rotary_store_f16", kernels.BF16: "rotary_store_bf16", kernels.F8E4M3: "rotary_store_f8", kernels.I8: "rotary_store_i8",
	}[l.DType]
	flags := 0
	if p.VNorm {
		flags |= normValues
	}
	if p.KeysAsValues {
		flags |= keysAsValues
	}
	heads := q.Cols / l.KDim
	args := []uint64{
		argT(q), arg(q.Stride), argT(qkv), arg(qkv.Stride), argT(p.CosSin), arg(p.CosSin.Stride), arg(p.CosSin.Cols / 2),
		argT(p.QNorm), argT(p.KNorm), argF(p.Eps), arg(flags), arg(heads), kv.Slots.Addr,
	}
	d.launch(op, "rotary", entry, [3]int{qkv.Rows, ceil(heads+2*l.Heads, 8), 1}, [3]int{256, 1, 1}, 0, append(args, cacheArgs(kv)...)...)
}
