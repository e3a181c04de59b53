package cuda

import (
	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/kernels/check"
)

// ceil is a / b rounded up.
func ceil(a, b int) int { return (a + b - 1) / b }

// rowThreads is a block for a row, eight columns a thread, and at most as many as the sums of rowScale in row.cuh are of.
func rowThreads(cols int) [3]int { return [3]int{min(512, ceil(ceil(cols, 8), 32)*32), 1, 1} }

// pieces are the grid and the block for threads that take four columns each.
func pieces(rows, cols int) (grid, block [3]int) {
	threads := min(256, ceil(ceil(cols, 4), 32)*32)
	return [3]int{rows, ceil(cols, 4*threads), 1}, [3]int{threads, 1, 1}
}

// RMSNorm implements kernels.Device.
func (d *Device) RMSNorm(dst, x, w kernels.Tensor, eps float32) {
	if d.err == nil && d.ok(check.RMSNorm(dst, x, w)) {
		d.list(operator{kind: rmsNorm, dst: dst, x: x, w: w, eps: eps})
	}
}

func (d *Device) launchRMSNorm(o *operator) {
	d.launch("rmsNorm", "rows", "rms_norm", [3]int{o.dst.Rows, 1, 1}, rowThreads(o.dst.Cols), 0,
		argT(o.dst), arg(o.dst.Stride), argT(o.x), arg(o.x.Stride), argT(o.w), arg(o.dst.Cols), argF(o.eps))
}

// RMSNormAdd implements kernels.Device.
func (d *Device) RMSNormAdd(dst, x, w kernels.Tensor, eps, scale float32) {
	if d.err == nil && d.ok(check.RMSNormAdd(dst, x, w)) {
		d.launch("rmsNormAdd", "rows", "rms_norm_add", [3]int{dst.Rows, 1, 1}, rowThreads(dst.Cols), 0,
			argT(dst), arg(dst.Stride), argT(x), arg(x.Stride), argT(w), arg(dst.Cols), argF(eps), argF(scale))
	}
}

// NormGate implements kernels.Device.
func (d *Device) NormGate(dst, x, gate, w kernels.Tensor, eps float32) {
	if d.err == nil && d.ok(check.NormGate(dst, x, gate, w)) {
		d.list(operator{kind: normGate, dst: dst, x: x, gate: gate, w: w, eps: eps})
	}
}

func (d *Device) launchNormGate(o *operator) {
	const warps = 8
	heads := o.dst.Cols / o.w.Cols
	d.launch("normGate", "rows", "norm_gate", [3]int{ceil(o.dst.Rows*heads, warps), 1, 1}, [3]int{warps * 32, 1, 1}, 0,
		argT(o.dst), arg(o.dst.Stride), argT(o.x), arg(o.x.Stride), argT(o.gate), arg(o.gate.Stride), argT(o.w),
		arg(o.dst.Rows), arg(heads), arg(o.w.Cols), argF(o.eps))
}

// GateMul implements kernels.Device.
func (d *Device) GateMul(dst, gate, x kernels.Tensor, f kernels.Activation) {
	if d.err == nil && d.ok(check.GateMul(dst, gate, x, f)) {
		d.list(operator{kind: gateMul, dst: dst, x: x, gate: gate, f: f})
	}
}

func (d *Device) launchGateMul(o *operator) {
	entry := [...]string{kernels.SiLU: "gate_mul_silu", kernels.GELUTanh: "gate_mul_gelu", kernels.Sigmoid: "gate_mul_sigmoid"}[o.f]
	grid, block := pieces(o.dst.Rows, o.dst.Cols)
	d.launch("gateMul", "rows", entry, grid, block, 0,
		argT(o.dst), arg(o.dst.Stride), argT(o.gate), arg(o.gate.Stride), argT(o.x), arg(o.x.Stride), arg(o.dst.Cols))
}

// SoftCap implements kernels.Device.
func (d *Device) SoftCap(x kernels.Tensor, c float32) {
	if d.err == nil && d.ok(check.SoftCap(x, c)) {
		grid, block := pieces(x.Rows, x.Cols)
		d.launch("softCap", "rows", "soft_cap", grid, block, 0, argT(x), arg(x.Stride), arg(x.Cols), argF(c))
	}
}

// GatherRows implements kernels.Device.
func (d *Device) GatherRows(dst, x kernels.Tensor, rows kernels.Ints) {
	if d.err == nil && d.ok(check.GatherRows(dst, x, rows)) {
		grid, block := pieces(dst.Rows, dst.Cols)
		d.launch("gatherRows", "rows", "gather_rows", grid, block, 0,
			argT(dst), arg(dst.Stride), argT(x), arg(x.Stride), rows.Addr, arg(dst.Cols))
	}
}
