package quant

import (
	"encoding/binary"
	"fmt"
)

// GPTQ and AWQ store a matrix with its inputs as rows: a row of words is some inputs of all outputs, or one
// input of all outputs. They are turned here, a tile at a time, so that a cache line of the destination
// is written whole.
//
//	GPTQ, 4 bits   word [k/8, n]   codes of inputs 8i to 8i+7 of output n, the first in the lowest bits
//	      8 bits   word [k/4, n]   codes of inputs 4i to 4i+3
//	AWQ            word [k, n/8]   codes of outputs 8i + 0, 2, 4, 6, 1, 3, 5, 7 of input k, the first in the
//	                               lowest bits

// tileBytes is a tile of words, copied so that rows of words which lie a power of two apart do not push each
// other out of the cache.
const tileBytes = 8 << 10

// Columns unpacks columns [first, first+n) of src, words [k*bits/32, cols] as GPTQ has them, to
// codes [n, k].
func Columns(codes []uint8, k, bits int, src []byte, cols, first, n int) {
	per := 32 / bits
	if bits != 4 && bits != 8 || k%per != 0 {
		panic(fmt.Sprintf("quant: columns of %d codes of %d bits", k, bits))
	}
	const height, width = 8, tileBytes / 8 / 4
	var tile [tileBytes]byte
	for c0 := 0; c0 < n; c0 += width {
		c1 := min(c0+width, n)
		for w := 0; w < k/per; w += height {
			rows := min(height, k/per-w)
			for i := range rows {
				copy(tile[4*width*i:4*width*(i+1)], src[4*((w+i)*cols+first+c0):4*((w+i)*cols+first+c1)])
			}
			for c := c0; c < c1; c++ {
				out := codes[c*k+w*per : c*k+(w+rows)*per]
				for at := 4 * (c - c0); len(out) >= per; at += 4 * width {
					x := binary.LittleEndian.Uint32(tile[at : at+4])
					if bits == 8 {
						binary.LittleEndian.PutUint32(out, x)
					} else {
						binary.LittleEndian.PutUint64(out, nibbles8(x))
					}
					out = out[per:]
				}
			}
		}
	}
}

// nibbles8 spreads a word's eight nibbles to the bytes of the result, the lowest first.
func nibbles8(word uint32) uint64 {
	x := uint64(word)
	x = (x | x<<16) & 0x0000ffff0000ffff
	x = (x | x<<8) & 0x00ff00ff00ff00ff
	return (x | x<<4) & nibbles
}

// AWQColumns unpacks outputs [first, first+n) of src, words [k, words] as AWQ has them, to codes [n, k].
func AWQColumns(codes []uint8, k int, src []byte, words, first, n int) {
	const height, width = 64, tileBytes / 64 / 4
	var tile [tileBytes]byte
	for w0 := first / 8; w0 < (first+n+7)/8; w0 += width {
		w1 := min(w0+width, (first+n+7)/8)
		for i := 0; i < k; i += height {
			inputs := min(height, k-i)
			for j := range inputs {
				copy(tile[4*width*j:4*width*(j+1)], src[4*((i+j)*words+w0):4*((i+j)*words+w1)])
			}
			for w := w0; w < w1; w++ {
				for j := 0; j < inputs; j += 8 {
					awqBlock(codes, k, i+j, min(8, inputs-j), 8*w-first, n, tile[4*(width*j+w-w0):], 4*width)
				}
			}
		}
	}
}

// awqBlock unpacks 8 outputs, from row on, of some inputs, from i on; words lie stride apart. Rows outside [0, n) are
// left out.
func awqBlock(codes []uint8, k, i, inputs, row, n int, words []byte, stride int) {
	var block [8]uint64 // [input][output], then turned
	for j := range inputs {
		block[j] = awqOrder(binary.LittleEndian.Uint32(words[stride*j:]))
	}
	turn(&block)
	for j, x := range block {
		if c := row + j; c < 0 || c >= n {
			continue
		} else if out := codes[c*k+i : c*k+i+inputs]; inputs == 8 {
			store(out, x)
		} else {
			for b := range out {
				out[b] = uint8(x >> (8 * b))
			}
		}
	}
}

// awqOrder spreads a word's nibbles to bytes in order of output: the low half are those of even
// outputs, the high half those of odd ones.
func awqOrder(word uint32) uint64 {
	half := func(x uint64) uint64 {
		x = (x | x<<24) & 0x000000ff000000ff
		return (x | x<<12) & 0x000f000f000f000f
	}
	return half(uint64(word&0xffff)) | half(uint64(word>>16))<<8
}

// turn transposes 8 by 8 bytes: in blocks of 4, then of 2, then of 1.
func turn(t *[8]uint64) {
	a, b, c, d := t[0], t[1], t[2], t[3]
	e, f, g, h := t[4], t[5], t[6], t[7]
	a, e = swap(a, e, 32, 0x00000000ffffffff)
	b, f = swap(b, f, 32, 0x00000000ffffffff)
	c, g = swap(c, g, 32, 0x00000000ffffffff)
	d, h = swap(d, h, 32, 0x00000000ffffffff)
	a, c = swap(a, c, 16, 0x0000ffff0000ffff)
	b, d = swap(b, d, 16, 0x0000ffff0000ffff)
	e, g = swap(e, g, 16, 0x0000ffff0000ffff)
	f, h = swap(f, h, 16, 0x0000ffff0000ffff)
	a, b = swap(a, b, 8, 0x00ff00ff00ff00ff)
	c, d = swap(c, d, 8, 0x00ff00ff00ff00ff)
	e, f = swap(e, f, 8, 0x00ff00ff00ff00ff)
	g, h = swap(g, h, 8, 0x00ff00ff00ff00ff)
	*t = [8]uint64{a, b, c, d, e, f, g, h}
}

// swap exchanges the upper of each two blocks of x with the lower of y.
func swap(x, y uint64, shift uint, mask uint64) (uint64, uint64) {
	z := (x>>shift ^ y) & mask
	return x ^ z<<shift, y ^ z
}

// Code is the code of bits at a place of the word of that number of src.
func Code(src []byte, word, place, bits int) uint8 {
	return uint8(binary.LittleEndian.Uint32(src[4*word:])>>(place*bits)) & uint8(1<<bits-1)
}

// AWQPlace is where in its word AWQ stores output 8i + j.
func AWQPlace(j int) int { return j/2 + j%2*4 }
