package quant

import (
	"encoding/binary"
	"fmt"

	"github.com/openinfer-go/openinfer/kernels"
)

// Blocks is a format that stores Values weights, consecutive inputs of one row, in Bytes bytes
// with their scales among them. The fields from Bits on are those of kernels.Matrix.
type Blocks struct {
	Name      string
	Values    int
	Bytes     int
	Bits      int
	Group     int
	HasMin    bool
	ScaleType kernels.DType

	zero   uint8
	unpack func(codes []uint8, scale, min []float32, src []byte)
}

// The formats, by GGUF's names. d and m are fp16, little-endian; q are codes.
//
//	Q4_0  d, 16 bytes: q0|q16<<4 ... q15|q31<<4            w = d*(q-8)
//	Q4_1  d, m, 16 bytes as Q4_0                           w = d*q + m
//	Q5_0  d, 32 fifth bits, 16 bytes as Q4_0               w = d*(q-16)
//	Q5_1  d, m, 32 fifth bits, 16 bytes as Q4_0            w = d*q + m
//	Q8_0  d, 32 int8                                       w = d*q, code q+128
//	Q4_K  d, m, 12 bytes of 6-bit factors s and t for 8 groups of 32 weights, 128 bytes: groups 0
//	      and 1 in the low and high nibbles of the first 32, 2 and 3 in the next, ...
//	                                                       w = (d*s)*q - (m*t)
//	Q5_K  d, m, 12 bytes as Q4_K, 32 bytes whose bit g is the fifth bit of group g, 128 bytes as Q4_K
//	Q6_K  128 bytes of low nibbles, 64 bytes of upper bit pairs, 16 int8 factors s for groups of 16, d;
//	      in each half of 128 weights, weights l, l+32, l+64, l+96 have the low nibble of byte l, of
//	      byte l+32, the high nibble of byte l, of byte l+32, and bit pairs 0 to 3 of byte l
//	                                                       w = (d*s)*(q-32)
var (
	Q4_0 = &Blocks{Name: "Q4_0", Values: 32, Bytes: 18, Bits: 4, Group: 32, ScaleType: kernels.F16, zero: 8, unpack: unpackQ4_0}
	Q4_1 = &Blocks{Name: "Q4_1", Values: 32, Bytes: 20, Bits: 4, Group: 32, HasMin: true, ScaleType: kernels.F16, unpack: unpackQ4_1}
	Q5_0 = &Blocks{Name: "Q5_0", Values: 32, Bytes: 22, Bits: 8, Group: 32, ScaleType: kernels.F16, zero: 16, unpack: unpackQ5_0}
	Q5_1 = &Blocks{Name: "Q5_1", Values: 32, Bytes: 24, Bits: 8, Group: 32, HasMin: true, ScaleType: kernels.F16, unpack: unpackQ5_1}
	Q8_0 = &Blocks{Name: "Q8_0", Values: 32, Bytes: 34, Bits: 8, Group: 32, ScaleType: kernels.F16, zero: 128, unpack: unpackQ8_0}
	Q4_K = &Blocks{Name: "Q4_K", Values: 256, Bytes: 144, Bits: 4, Group: 32, HasMin: true, ScaleType: kernels.F32, unpack: unpackQ4_K}
	Q5_K = &Blocks{Name: "Q5_K", Values: 256, Bytes: 176, Bits: 8, Group: 32, HasMin: true, ScaleType: kernels.F32, unpack: unpackQ5_K}
	Q6_K = &Blocks{Name: "Q6_K", Values: 256, Bytes: 210, Bits: 8, Group: 16, ScaleType: kernels.F32, zero: 32, unpack: unpackQ6_K}
)

// Unpack unpacks the whole blocks of src to dst, whose slices it fills from weight number at (a multiple of
// Values) on.
func (b *Blocks) Unpack(dst *kernels.Rows, at int, src []byte) {
	if at%b.Values != 0 || len(src)%b.Bytes != 0 {
		panic(fmt.Sprintf("quant: %d bytes of %s at weight %d", len(src), b.Name, at))
	}
	n := len(src) / b.Bytes * b.Values
	codes := dst.Codes[at : at+n]
	at, n = at/b.Group, n/b.Group
	scale := dst.Scale[at : at+n]
	if b.HasMin {
		b.unpack(codes, scale, dst.Min[at:at+n], src)
		return
	}
	b.unpack(codes, scale, nil, src)
	zero := dst.Zero[at : at+n]
	for i := range zero {
		zero[i] = b.zero
	}
}

const (
	nibbles = 0x0f0f0f0f0f0f0f0f // the low one of each byte
	ones    = 0x0101010101010101
	pairs   = 0x0303030303030303
)

func f16(b []byte) float32      { return F16(binary.LittleEndian.Uint16(b)) }
func load(b []byte) uint64      { return binary.LittleEndian.Uint64(b) }
func store(b []uint8, x uint64) { binary.LittleEndian.PutUint64(b, x) }
func split(lo, hi []uint8, x uint64) { // the low and high nibbles of 8 bytes
	store(lo, x&nibbles)
	store(hi, x>>4&nibbles)
}

func unpackQ4_0(codes []uint8, scale, _ []float32, src []byte) {
	for i := range scale {
		b, q := src[18*i:18*i+18], codes[32*i:32*i+32]
		scale[i] = f16(b)
		split(q, q[16:], load(b[2:]))
		split(q[8:], q[24:], load(b[10:]))
	}
}

func unpackQ4_1(codes []uint8, scale, min []float32, src []byte) {
	min = min[:len(scale)]
	for i := range scale {
		b, q := src[20*i:20*i+20], codes[32*i:32*i+32]
		scale[i], min[i] = f16(b), f16(b[2:])
		split(q, q[16:], load(b[4:]))
		split(q[8:], q[24:], load(b[12:]))
	}
}

// fifth returns bits 0 to 7 of x as bytes of 0 or 16.
func fifth(x uint32) uint64 {
	y := uint64(x&0xff) * ones & 0x8040201008040201  // bit j of x alone in byte j
	return (y + 0x7f7f7f7f7f7f7f7f) >> 7 & ones << 4 // the carry into bit 7 says that it was set
}

func unpackQ5(q []uint8, high uint32, low []byte) {
	a, b := load(low), load(low[8:])
	store(q, a&nibbles|fifth(high))
	store(q[8:], b&nibbles|fifth(high>>8))
	store(q[16:], a>>4&nibbles|fifth(high>>16))
	store(q[24:], b>>4&nibbles|fifth(high>>24))
}

func unpackQ5_0(codes []uint8, scale, _ []float32, src []byte) {
	for i := range scale {
		b := src[22*i : 22*i+22]
		scale[i] = f16(b)
		unpackQ5(codes[32*i:32*i+32], binary.LittleEndian.Uint32(b[2:]), b[6:])
	}
}

func unpackQ5_1(codes []uint8, scale, min []float32, src []byte) {
	min = min[:len(scale)]
	for i := range scale {
		b := src[24*i : 24*i+24]
		scale[i], min[i] = f16(b), f16(b[2:])
		unpackQ5(codes[32*i:32*i+32], binary.LittleEndian.Uint32(b[4:]), b[8:])
	}
}

func unpackQ8_0(codes []uint8, scale, _ []float32, src []byte) {
	for i := range scale {
		b, q := src[34*i:34*i+34], codes[32*i:32*i+32]
		scale[i] = f16(b)
		for j := 0; j < 32; j += 8 {
			store(q[j:j+8], load(b[2+j:2+j+8])^0x8080808080808080)
		}
	}
}

// factors unpacks the 6-bit factors of scales and minima of Q4_K and Q5_K: those of groups 0 to 3
// are the low six bits of bytes 0 to 3 and 4 to 7; those of groups 4 to 7 have their low nibbles in
// bytes 8 to 11 (scale low, minimum high) and their upper bits in bytes 0 to 7's upper two.
func factors(b []byte) (s, t uint64) {
	x, y, z := binary.LittleEndian.Uint32(b), binary.LittleEndian.Uint32(b[4:]), binary.LittleEndian.Uint32(b[8:12])
	const low6, low4, low2 = 0x3f3f3f3f, 0x0f0f0f0f, 0x03030303
	s = uint64(x&low6) | uint64(z&low4|x>>6&low2<<4)<<32
	t = uint64(y&low6) | uint64(z>>4&low4|y>>6&low2<<4)<<32
	return s, t
}

func scalesK(scale, min []float32, b []byte) {
	d, m := f16(b), f16(b[2:])
	s, t := factors(b[4:16])
	for g := range 8 {
		scale[g] = d * float32(uint8(s>>(8*g)))
		min[g] = -(m * float32(uint8(t>>(8*g))))
	}
}

func unpackQ4_K(codes []uint8, scale, min []float32, src []byte) {
	for i := 0; len(src) >= 144; i, src = i+1, src[144:] {
		scalesK(scale[8*i:8*i+8], min[8*i:8*i+8], src)
		q := codes[256*i : 256*i+256]
		for g := 0; g < 4; g++ {
			b, q := src[16+32*g:16+32*g+32], q[64*g:64*g+64]
			for j := 0; j < 32; j += 8 {
				split(q[j:j+8], q[32+j:32+j+8], load(b[j:j+8]))
			}
		}
	}
}

func unpackQ5_K(codes []uint8, scale, min []float32, src []byte) {
	for i := 0; len(src) >= 176; i, src = i+1, src[176:] {
		scalesK(scale[8*i:8*i+8], min[8*i:8*i+8], src)
		high, q := src[16:48], codes[256*i:256*i+256]
		for g := 0; g < 4; g++ {
			b, q := src[48+32*g:48+32*g+32], q[64*g:64*g+64]
			for j := 0; j < 32; j += 8 {
				x, h := load(b[j:j+8]), load(high[j:j+8])>>(2*g)
				store(q[j:j+8], x&nibbles|h&ones<<4)
				store(q[32+j:32+j+8], x>>4&nibbles|h>>1&ones<<4)
			}
		}
	}
}

func unpackQ6_K(codes []uint8, scale, _ []float32, src []byte) {
	for i := 0; len(src) >= 210; i, src = i+1, src[210:] {
		d := f16(src[208:210])
		for g, s := range src[192:208] {
			scale[16*i+g] = d * float32(int8(s))
		}
		for h := range 2 {
			low, high, q := src[64*h:64*h+64], src[128+32*h:128+32*h+32], codes[256*i+128*h:256*i+128*h+128]
			for j := 0; j < 32; j += 8 {
				a, b, u := load(low[j:j+8]), load(low[32+j:32+j+8]), load(high[j:j+8])
				store(q[j:j+8], a&nibbles|u&pairs<<4)
				store(q[32+j:32+j+8], b&nibbles|u>>2&pairs<<4)
				store(q[64+j:64+j+8], a>>4&nibbles|u>>4&pairs<<4)
				store(q[96+j:96+j+8], b>>4&nibbles|u>>6&pairs<<4)
			}
		}
	}
}
