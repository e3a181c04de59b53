package cuda

import (
	"errors"

	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/kernels/check"
)

// RMSNorm implements kernels.Device.
func (d *Device) RMSNorm(dst, x, w kernels.Tensor, eps float32) { d.ok(errors.New("cuda: RMSNorm")) }

// RMSNormAdd implements kernels.Device.
func (d *Device) RMSNormAdd(dst, x, w kernels.Tensor, eps, scale float32) {
	d.ok(errors.New("cuda: RMSNormAdd"))
}

// NormGate implements kernels.Device.
func (d *Device) NormGate(dst, x, gate, w kernels.Tensor, eps float32) {
	d.ok(errors.New("cuda: NormGate"))
}

// CosSin implements kernels.Device.
func (d *Device) CosSin(dst kernels.Tensor, r kernels.Rotary, positions kernels.Ints) {
	d.ok(errors.New("cuda: CosSin"))
}

// RotaryStore implements kernels.Device.
func (d *Device) RotaryStore(q kernels.Tensor, kv kernels.KV, qkv kernels.Tensor, p kernels.RotaryParams) {
	d.ok(errors.New("cuda: RotaryStore"))
}

// GateMul implements kernels.Device.
func (d *Device) GateMul(dst, gate, x kernels.Tensor, f kernels.Activation) {
	d.ok(errors.New("cuda: GateMul"))
}

// SoftCap implements kernels.Device.
func (d *Device) SoftCap(x kernels.Tensor, c float32) { d.ok(errors.New("cuda: SoftCap")) }

// GatherRows implements kernels.Device.
func (d *Device) GatherRows(dst, x kernels.Tensor, rows kernels.Ints) {
	if d.err == nil && d.ok(check.GatherRows(dst, x, rows)) {
		d.launch("gatherRows", "rows", "gather_rows", [3]int{dst.Rows, 1, 1}, [3]int{256, 1, 1}, 0,
			argT(dst), arg(dst.Stride), argT(x), arg(x.Stride), rows.Addr, arg(dst.Cols))
	}
}
