package quant

import (
	"encoding/binary"
	"math"
	"unsafe"

	"github.com/openinfer-go/openinfer/kernels"
)

var littleEndian = binary.NativeEndian.Uint16([]byte{1, 0}) == 1

// F16 returns the value of the fp16 number h, exactly. It keeps the payload of a NaN.
func F16(h uint16) float32 {
	// The exponent is moved up by a multiplication, which also normalises subnormals.
	f := math.Float32frombits(uint32(h&0x7fff)<<13) * 0x1p112
	bits := math.Float32bits(f)
	if h&0x7c00 == 0x7c00 { // infinity and NaN
		bits = 0x7f800000 | uint32(h&0x3ff)<<13
	}
	return math.Float32frombits(bits | uint32(h&0x8000)<<16)
}

// BF16 returns the value of the bfloat16 number h, exactly.
func BF16(h uint16) float32 { return math.Float32frombits(uint32(h) << 16) }

// Floats fills dst with the little-endian values of type t in src, exactly.
func Floats(dst []float32, t kernels.DType, src []byte) {
	switch t {
	case kernels.F32:
		if littleEndian && len(dst) > 0 {
			copy(unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(dst))), 4*len(dst)), src[:4*len(dst)])
			return
		}
		for i := range dst {
			dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
		}
	case kernels.BF16:
		src = src[:2*len(dst)]
		for ; len(dst) >= 4; dst, src = dst[4:], src[8:] {
			x := binary.LittleEndian.Uint64(src)
			dst[0] = math.Float32frombits(uint32(x << 16))
			dst[1] = math.Float32frombits(uint32(x) &^ 0xffff)
			dst[2] = math.Float32frombits(uint32(x>>32) << 16)
			dst[3] = math.Float32frombits(uint32(x>>32) &^ 0xffff)
		}
		for i := range dst {
			dst[i] = BF16(binary.LittleEndian.Uint16(src[2*i:]))
		}
	case kernels.F16:
		src = src[:2*len(dst)]
		for ; len(dst) >= 4; dst, src = dst[4:], src[8:] {
			x := binary.LittleEndian.Uint64(src)
			dst[0] = F16(uint16(x))
			dst[1] = F16(uint16(x >> 16))
			dst[2] = F16(uint16(x >> 32))
			dst[3] = F16(uint16(x >> 48))
		}
		for i := range dst {
			dst[i] = F16(binary.LittleEndian.Uint16(src[2*i:]))
		}
	default:
		panic("quant: Floats of " + t.String())
	}
}
