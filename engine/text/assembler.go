package text

import (
	"strings"
	"unicode/utf8"

	"github.com/openinfer-go/openinfer/internal/utf8x"
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
		n, state := utf8x.Next(data)
		switch state {
		case utf8x.Whole:
			out.Write(data[:n])
		case utf8x.Broken:
			out.WriteRune(utf8.RuneError)
		case utf8x.Partial:
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
