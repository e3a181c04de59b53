package text

import (
	"strings"
	"unicode/utf8"
)

// Assembler turns bytes into UTF-8 text, one whole character at a time. The zero value is ready.
//
// Bytes that can be part of no character become U+FFFD, one for each maximal subpart (Unicode 17,
// section 3.9, table 3-8), which is what a decoder of the whole text does.
type Assembler struct {
	tail [utf8.UTFMax - 1]byte // the start of a character that may still be completed
	n    int
}

// Push takes the next bytes and returns the characters that are complete now.
func (a *Assembler) Push(b []byte) string {
	if a.n == 0 && utf8.Valid(b) {
		return string(b)
	}
	data := b
	if a.n > 0 {
		data = append(append(make([]byte, 0, a.n+len(b)), a.tail[:a.n]...), b...)
		a.n = 0
	}
	var out strings.Builder
	for len(data) > 0 {
		n, state := next(data)
		switch state {
		case whole:
			out.Write(data[:n])
		case broken:
			out.WriteRune(utf8.RuneError)
		case partial:
			a.n = copy(a.tail[:], data)
			return out.String()
		}
		data = data[n:]
	}
	return out.String()
}

// Pending reports whether bytes are held back that do not make a character yet.
func (a *Assembler) Pending() bool { return a.n > 0 }

// Flush ends the text. The start of a character that never came is dropped: an answer cut off
// inside a character ends before it, streamed or not.
func (a *Assembler) Flush() string {
	a.n = 0
	return ""
}

type charState int

const (
	whole   charState = iota // a character
	broken                   // a maximal subpart of an ill-formed sequence
	partial                  // a prefix of a character that runs to the end of the data
)

// next measures what stands at the start of data (not empty): its length in bytes and what it is.
func next(data []byte) (int, charState) {
	b := data[0]
	if b < utf8.RuneSelf {
		return 1, whole
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
		return 1, broken
	}
	for i := 1; i < size; i++ {
		if i == len(data) {
			return i, partial
		}
		if data[i] < low || data[i] > high {
			return i, broken
		}
		low, high = 0x80, 0xBF
	}
	return size, whole
}
