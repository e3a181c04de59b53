package ggufwrite

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/x448/float16"
)

// Type is GGUF's number of a tensor type.
type Type uint32

// The types that Encode knows.
const (
	F32  Type = 0
	F16  Type = 1
	Q4_0 Type = 2
	Q4_1 Type = 3
	Q8_0 Type = 8
	Q4_K Type = 12
	Q6_K Type = 14
)

type form struct {
	name          string
	values, bytes int
	encode        func(dst []byte, x []float32)
}

var forms = map[Type]form{
	F32:  {"f32", 1, 4, func(b []byte, x []float32) { binary.LittleEndian.PutUint32(b, math.Float32bits(x[0])) }},
	F16:  {"f16", 1, 2, func(b []byte, x []float32) { putF16(b, x[0]) }},
	Q4_0: {"q4_0", 32, 18, encodeQ4_0},
	Q4_1: {"q4_1", 32, 20, encodeQ4_1},
	Q8_0: {"q8_0", 32, 34, encodeQ8_0},
	Q4_K: {"q4_k", 256, 144, encodeQ4_K},
	Q6_K: {"q6_k", 256, 210, encodeQ6_K},
}

// ParseType finds a type by its lower-case name ("q4_0").
func ParseType(name string) (Type, error) {
	for t, f := range forms {
		if f.name == name {
			return t, nil
		}
	}
	return 0, fmt.Errorf("tensor type %q: f32, f16, q4_0, q4_1, q8_0, q4_k and q6_k are known", name)
}

// Values is how many weights a block has.
func (t Type) Values() int { return forms[t].values }

// Bytes is what n weights take.
func (t Type) Bytes(n int) int64 {
	f := forms[t]
	return int64(n) / int64(f.values) * int64(f.bytes)
}

// Encode fills dst with the blocks of x, whose length is a multiple of Values.
func (t Type) Encode(dst []byte, x []float32) {
	f := forms[t]
	for ; len(x) > 0; dst, x = dst[f.bytes:], x[f.values:] {
		f.encode(dst[:f.bytes], x[:f.values])
	}
}

// putF16 stores x as fp16 and returns what that is.
func putF16(b []byte, x float32) float32 {
	h := float16.Fromfloat32(x)
	binary.LittleEndian.PutUint16(b, h.Bits())
	return h.Float32()
}

// code is round(x/d) + zero, within 0..max. Halves go up: rounding to even is slower, and no reader can tell.
func code(x, inverse float32, zero, max int) byte {
	n := int(x*inverse+float32(zero)+1024.5) - 1024
	if n < 0 {
		n = 0
	}
	if n > max {
		n = max
	}
	return byte(n)
}

func inverse(d float32) float32 {
	if d == 0 {
		return 0
	}
	return 1 / d
}

func bounds(x []float32) (lo, hi, largest float32) {
	lo, hi = x[0], x[0]
	for _, v := range x {
		lo, hi = min(lo, v), max(hi, v)
	}
	if largest = hi; -lo > hi {
		largest = lo
	}
	return lo, hi, largest
}

func encodeQ4_0(b []byte, x []float32) {
	_, _, largest := bounds(x)
	d := putF16(b, largest/-8)
	inv := inverse(d)
	for i := range 16 {
		b[2+i] = code(x[i], inv, 8, 15) | code(x[i+16], inv, 8, 15)<<4
	}
}

func encodeQ4_1(b []byte, x []float32) {
	lo, hi, _ := bounds(x)
	d, m := putF16(b, (hi-lo)/15), putF16(b[2:], lo)
	inv := inverse(d)
	for i := range 16 {
		b[4+i] = code(x[i]-m, inv, 0, 15) | code(x[i+16]-m, inv, 0, 15)<<4
	}
}

func encodeQ8_0(b []byte, x []float32) {
	lo, hi, _ := bounds(x)
	d := putF16(b, max(hi, -lo)/127)
	inv := inverse(d)
	for i, v := range x {
		b[2+i] = code(v, inv, 128, 255) - 128
	}
}

func encodeQ4_K(b []byte, x []float32) {
	var scale, low [8]float32
	var most, lowest float32
	for g := range scale {
		lo, hi, _ := bounds(x[32*g : 32*g+32])
		low[g] = max(-lo, 0)
		scale[g] = (hi + low[g]) / 15
		most, lowest = max(most, scale[g]), max(lowest, low[g])
	}
	d, m := putF16(b, most/63), putF16(b[2:], lowest/63)
	dInv, mInv := inverse(d), inverse(m)
	var s, t [8]byte
	for g := range 8 {
		s[g], t[g] = code(scale[g], dInv, 0, 63), code(low[g], mInv, 0, 63)
	}
	for g := range 4 {
		b[4+g] = s[g] | s[g+4]>>4<<6
		b[8+g] = t[g] | t[g+4]>>4<<6
		b[12+g] = s[g+4]&15 | t[g+4]<<4
	}
	clear(b[16:])
	for i, v := range x {
		g := i / 32
		c := code(v+m*float32(t[g]), inverse(d*float32(s[g])), 0, 15)
		b[16+g/2*32+i%32] |= c << (4 * (g % 2))
	}
}

func encodeQ6_K(b []byte, x []float32) {
	var scale [16]float32
	var most float32
	for g := range scale {
		lo, hi, _ := bounds(x[16*g : 16*g+16])
		scale[g] = max(hi, -lo) / 31
		most = max(most, scale[g])
	}
	clear(b)
	d := putF16(b[208:], most/127)
	dInv := inverse(d)
	for g := range scale {
		b[192+g] = code(scale[g], dInv, 0, 127)
	}
	for i, v := range x {
		c := code(v, inverse(d*float32(b[192+i/16])), 32, 63)
		half, quarter, l := i/128, i%128/32, i%32
		b[64*half+quarter%2*32+l] |= c & 15 << (quarter / 2 * 4)
		b[128+32*half+l] |= c >> 4 << (2 * quarter)
	}
}
