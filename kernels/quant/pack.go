package quant

import "fmt"

// Pack is the reverse of Packed: codes of 4 or 8 bits one after the other, the first in the lowest
// bits. The bits of dst that no code fills are zeros.
func Pack(dst []byte, bits int, codes []uint8) {
	switch bits {
	case 8:
		clear(dst[copy(dst, codes):])
	case 4:
		clear(dst[len(codes)/2:])
		for i := range len(codes) / 2 {
			dst[i] = codes[2*i] | codes[2*i+1]<<4
		}
		if len(codes)%2 == 1 {
			dst[len(codes)/2] = codes[len(codes)-1]
		}
	default:
		panic(fmt.Sprintf("quant: pack codes of %d bits", bits))
	}
}

// PackOutputs packs codes [n, groups] along the outputs: word [i, g] of dst has the codes of group g of
// outputs i*32/bits and on, the first in the lowest bits (compressed-tensors' zero points).
func PackOutputs(dst []byte, bits int, codes []uint8, n, groups int) {
	clear(dst)
	per := 32 / bits
	for i := range n {
		for g := range groups {
			at := i % per * bits
			dst[4*(i/per*groups+g)+at/8] |= codes[i*groups+g] << (at % 8)
		}
	}
}
