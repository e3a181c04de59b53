package quant

import (
	"encoding/binary"
	"fmt"
)

// Packed unpacks codes of 4 or 8 bits that lie one after the other in little-endian words, the
// first in the lowest bits (compressed-tensors' pack-quantized, along the inputs of a row):
//
//	int32   |  word 0                          |  word 1 ...
//	4 bits  |  c0 c1 c2 c3 c4 c5 c6 c7         |  c8 ...        c0 = word & 15
//	8 bits  |  c0    c1    c2    c3            |  c4 ...        c0 = word & 255
func Packed(codes []uint8, bits int, src []byte) {
	switch bits {
	case 8:
		copy(codes, src[:len(codes)])
	case 4:
		src = src[:(len(codes)+1)/2]
		for ; len(codes) >= 8; codes, src = codes[8:], src[4:] {
			binary.LittleEndian.PutUint64(codes, nibbles8(binary.LittleEndian.Uint32(src)))
		}
		for i := range codes {
			codes[i] = src[i/2] >> (4 * (i % 2)) & 15
		}
	default:
		panic(fmt.Sprintf("quant: packed codes of %d bits", bits))
	}
}

// Signed turns signed bytes into codes of 8 bits, code = value + 128.
func Signed(codes, src []uint8) {
	src = src[:len(codes)]
	for ; len(codes) >= 8; codes, src = codes[8:], src[8:] {
		store(codes, load(src)^0x8080808080808080)
	}
	for i := range codes {
		codes[i] = src[i] ^ 0x80
	}
}
