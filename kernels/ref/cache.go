package ref

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"sort"
	"sync"
	"unsafe"

	"github.com/openinfer-go/openinfer/kernels"
)

// cell is where a key or a value of one head and token lies in a block. scale is empty where the type has none.
//
// A block of the cache holds, layer after layer, the keys and then the values of a layer, and then their scales:
//
//	layer 0: keys   [Heads][BlockTokens][KDim]
//	         values [Heads][BlockTokens][VDim]
//	         key scales   [Heads][BlockTokens]
//	         value scales [Heads][BlockTokens]
//	layer 1: ...
type cell struct{ codes, scale []byte }

// entry returns the cells of one head for the token at offset of block.
func entry(kv kernels.KV, block int32, offset, head int) (key, value cell) {
	l := kv.Layout
	size, scale := l.DType.Bytes(), l.ScaleBytes()
	all, token := l.Heads*l.BlockTokens, head*l.BlockTokens+offset
	b := kv.Pages.Host[l.BlockOffset(block)+int64(kv.Layer)*int64(l.BlockTokens)*l.LayerBytes():]
	cut := func(n int) []byte {
		c := b[token*n:][:n]
		b = b[all*n:]
		return c
	}
	key.codes, value.codes = cut(l.KDim*size), cut(l.VDim*size)
	key.scale, value.scale = cut(scale), cut(scale)
	return key, value
}

func (d *Device) cacheType(op string, kv kernels.KV) error {
	if slices.Contains(d.info.KVTypes, kv.Layout.DType) {
		return nil
	}
	return fmt.Errorf("%s: no KV cache of %v", op, kv.Layout.DType)
}

// store rounds x to the cache's type.
func (c cell) store(x []float32, t kernels.DType) {
	p := unsafe.Pointer(unsafe.SliceData(c.codes))
	switch t {
	case kernels.F32:
		copy(unsafe.Slice((*float32)(p), len(x)), x)
	case kernels.F16, kernels.BF16:
		halves := unsafe.Slice((*uint16)(p), len(x))
		for i, v := range x {
			halves[i] = toHalf(v, t)
		}
	case kernels.F8E4M3, kernels.I8:
		scale := scaleOf(x, kernels.CacheTop(t))
		binary.NativeEndian.PutUint16(c.scale, uint16(math.Float32bits(scale)>>16))
		for i, v := range x {
			switch {
			case scale != scale || scale == 0:
				c.codes[i] = 0
			case t == kernels.I8:
				c.codes[i] = byte(int8(math.RoundToEven(float64(v / scale))))
			default:
				c.codes[i] = toE4M3(v / scale)
			}
		}
	}
}

// load returns the values of c, in x when they have to be decoded.
func (c cell) load(x []float32, t kernels.DType) []float32 {
	p := unsafe.Pointer(unsafe.SliceData(c.codes))
	switch t {
	case kernels.F32:
		return unsafe.Slice((*float32)(p), len(x))
	case kernels.F16, kernels.BF16:
		for i, h := range unsafe.Slice((*uint16)(p), len(x)) {
			x[i] = fromHalf(h, t)
		}
	case kernels.F8E4M3, kernels.I8:
		scale := fromHalf(binary.NativeEndian.Uint16(c.scale), kernels.BF16)
		values := e4m3()
		for i, code := range c.codes {
			if t == kernels.I8 {
				x[i] = float32(int8(code)) * scale
			} else {
				x[i] = values[code] * scale
			}
		}
	}
	return x
}

// scaleOf is the least bfloat16 that is not below max|x| / top, NaN when x is not finite. It is kernels.CacheLayout's.
func scaleOf(x []float32, top float32) float32 {
	var largest float32
	for _, v := range x {
		if v-v != 0 { // a NaN, or an infinity
			return float32(math.NaN())
		}
		largest = max(largest, max(v, -v))
	}
	return math.Float32frombits((math.Float32bits(largest/top) + 0xffff) &^ 0xffff)
}

// e4m3 has the value of every OCP E4M3 code (OCP 8-bit Floating Point Specification, revision 1.0): a sign, 4
// bits of exponent with a bias of 7, 3 of mantissa, subnormals, NaN for all ones and no infinities.
var e4m3 = sync.OnceValue(func() *[256]float32 {
	var t [256]float32
	for code := range 128 {
		exponent, mantissa := code>>3, float64(code&7)
		v := math.Ldexp(8+mantissa, exponent-7-3)
		switch {
		case code == 0x7f:
			v = math.NaN()
		case exponent == 0:
			v = math.Ldexp(mantissa, -6-3)
		}
		t[code], t[code|0x80] = float32(v), float32(-v)
	}
	return &t
})

// toE4M3 is the code whose value is nearest to v, the even one of two, for |v| up to 464, which still rounds to 448.
func toE4M3(v float32) byte {
	sign, size, values := byte(math.Float32bits(v)>>31<<7), max(v, -v), e4m3()
	// Codes 0 to 0x7e are in the order of their values.
	high := byte(min(0x7e, sort.Search(0x7f, func(c int) bool { return values[c] >= size })))
	if high == 0 {
		return sign
	}
	low := high - 1
	toHigh, toLow := values[high]-size, size-values[low] // exact
	if toLow < toHigh || toLow == toHigh && low%2 == 0 {
		return sign | low
	}
	return sign | high
}
