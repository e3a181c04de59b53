// Package utf8x cuts bytes that may not be UTF-8 into characters and what is none, as Unicode recommends
// and Rust and Python do: a maximal subpart of an ill-formed sequence counts as one. Go's own
// conversions count each byte.
package utf8x

import "unicode/utf8"

// State is what stands at the start of some bytes.
type State int

// What Next may find.
const (
	Whole   State = iota // a character
	Broken               // a maximal subpart of an ill-formed sequence
	Partial              // a prefix of a character that runs to the end of the data
)

// Next measures what stands at the start of data (not empty): its length in bytes and what it is.
func Next[T string | []byte](data T) (int, State) {
	b := data[0]
	if b < utf8.RuneSelf {
		return 1, Whole
	}
	// The second byte's range depends on the first; later ones are 80..BF (table 3-7).
	low, high, size := byte(0x80), byte(0xBF), 0
	switch {
	case b >= 0xC2 && b <= 0xDF:
		size = 2
	case b >= 0xE0 && b <= 0xEF:
		size = 3
		if b == 0xE0 {
			low = 0xA0
		} else if b == 0xED {
			high = 0x9F
		}
	case b >= 0xF0 && b <= 0xF4:
		size = 4
		if b == 0xF0 {
			low = 0x90
		} else if b == 0xF4 {
			high = 0x8F
		}
	default:
		return 1, Broken
	}
	for i := 1; i < size; i++ {
		if i == len(data) {
			return i, Partial
		}
		if data[i] < low || data[i] > high {
			return i, Broken
		}
		low, high = 0x80, 0xBF
	}
	return size, Whole
}
