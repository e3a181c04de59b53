// Package quant unpacks weights as foreign checkpoints store them (GGUF blocks, packed integers,
// 16-bit floats) to the canonical form of kernels.Matrix: one code a byte, one scale and one zero
// point or minimum a group.
//
// It knows bits, not files: where a tensor lies and what it is called is models/checkpoint's. Packing
// to the layout that a device computes from is each device's own.
//
// Functions are pure and may be called at once with different destinations. They trust the lengths they are
// given: the caller has checked the tensor against its file.
//
// Invariant: scale*(code-zero), or scale*code + min, in float32 with every operation rounded, is bit
// for bit what the format's own implementation dequantises to. Scales that a format makes of two
// factors (the K types) are multiplied in the order that it does.
package quant
