package quant

import (
	"encoding/binary"

	"github.com/openinfer-go/openinfer/kernels"
)

// The formats of few bits, by GGUF's names. d and m are fp16, little-endian; q are codes.
//
//	Q2_K   16 bytes s|t<<4 of factors for 16 groups of 16 weights, 64 bytes of bit pairs, d, m; in each
//	       half of 128 weights, weights l, l+32, l+64, l+96 have bit pairs 0 to 3 of byte l
//	                                                       w = (d*s)*q - (m*t)
//	Q3_K   32 bytes whose bit i is the third bit of weights 32i to 32i+31, 64 bytes as Q2_K, 12 bytes of
//	       6-bit factors s for 16 groups of 16 weights, d      w = (d*(s-32))*(q-4)
//	IQ4_NL d, 16 bytes: q0|q16<<4 ... q15|q31<<4           w = d*table[q]
//	IQ4_XS d, 8 upper bit pairs and 8 low nibbles of factors s for groups of 32 weights, 8 times 16
//	       bytes as IQ4_NL                                 w = (d*(s-32))*table[q]
//
// The table is of signed bytes, so the codes of the last two are table[q]+128, of 8 bits.
var (
	Q2_K   = &Blocks{Name: "Q2_K", Values: 256, Bytes: 84, Bits: 4, Group: 16, HasMin: true, ScaleType: kernels.F32, unpack: unpackQ2_K}
	Q3_K   = &Blocks{Name: "Q3_K", Values: 256, Bytes: 110, Bits: 4, Group: 16, ScaleType: kernels.F32, zero: 4, unpack: unpackQ3_K}
	IQ4_NL = &Blocks{Name: "IQ4_NL", Values: 32, Bytes: 18, Bits: 8, Group: 32, ScaleType: kernels.F16, zero: 128, unpack: unpackIQ4_NL}
	IQ4_XS = &Blocks{Name: "IQ4_XS", Values: 256, Bytes: 136, Bits: 8, Group: 32, ScaleType: kernels.F32, zero: 128, unpack: unpackIQ4_XS}
)

func unpackQ2_K(codes []uint8, scale, min []float32, src []byte) {
	for i := 0; len(src) >= 84; i, src = i+1, src[84:] {
		d, m := f16(src[80:]), f16(src[82:])
		for g, b := range src[:16] {
			scale[16*i+g] = d * float32(b&15)
			min[16*i+g] = -(m * float32(b>>4))
		}
		for h := range 2 {
			b, q := src[16+32*h:16+32*h+32], codes[256*i+128*h:256*i+128*h+128]
			for j := 0; j < 32; j += 8 {
				x := load(b[j : j+8])
				for s := range 4 {
					store(q[32*s+j:32*s+j+8], x>>(2*s)&pairs)
				}
			}
		}
	}
}

func unpackQ3_K(codes []uint8, scale, _ []float32, src []byte) {
	for i := 0; len(src) >= 110; i, src = i+1, src[110:] {
		d, s := f16(src[108:]), factors3(src[96:108])
		for g := range 16 {
			scale[16*i+g] = d * float32(int(s[g])-32)
		}
		for h := range 2 {
			b, q := src[32+32*h:32+32*h+32], codes[256*i+128*h:256*i+128*h+128]
			for j := 0; j < 32; j += 8 {
				x, high := load(b[j:j+8]), load(src[j:j+8])>>(4*h)
				for s := range 4 {
					store(q[32*s+j:32*s+j+8], x>>(2*s)&pairs|high>>s&ones<<2)
				}
			}
		}
	}
}

// factors3 unpacks the 6-bit factors of Q3_K: those of groups 0 to 7 and 8 to 15 have their low
// nibbles in bytes 0 to 7, low and high, and their upper bits in pairs of bytes 8 to 11: pair
// g/4 of byte 8 + g%4.
func factors3(b []byte) (s [16]uint8) {
	for g := range s {
		s[g] = b[g%8]>>(4*(g/8))&15 | b[8+g%4]>>(2*(g/4))&3<<4
	}
	return s
}

// lookup has the codes of two nibbles, the low one's first.
var lookup = func() (t [256][2]uint8) {
	table := [16]int{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}
	for b := range t {
		t[b] = [2]uint8{uint8(table[b&15] + 128), uint8(table[b>>4] + 128)}
	}
	return t
}()

func unpackIQ4(q []uint8, src []byte) {
	q = q[:32]
	for j, b := range src[:16] {
		q[j], q[16+j] = lookup[b][0], lookup[b][1]
	}
}

func unpackIQ4_NL(codes []uint8, scale, _ []float32, src []byte) {
	for i := range scale {
		b := src[18*i : 18*i+18]
		scale[i] = f16(b)
		unpackIQ4(codes[32*i:], b[2:])
	}
}

func unpackIQ4_XS(codes []uint8, scale, _ []float32, src []byte) {
	for i := 0; len(src) >= 136; i, src = i+1, src[136:] {
		d, high := f16(src), binary.LittleEndian.Uint16(src[2:])
		for g := range 8 {
			s := src[4+g/2]>>(4*(g%2))&15 | uint8(high>>(2*g)&3)<<4
			scale[8*i+g] = d * float32(int(s)-32)
			unpackIQ4(codes[256*i+32*g:], src[8+16*g:])
		}
	}
}
