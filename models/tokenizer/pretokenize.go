// Pre-tokenizers: the steps that cut a normalised text into the pieces that are merged alone.

package tokenizer

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// piece is a part of a text on its way through the steps. first says that it begins where the
// whole text does.
type piece struct {
	text  string
	first bool
}

// step is one pre-tokenizer: it hands on what it makes of a piece.
type step interface {
	apply(p piece, emit func(piece))
	// keeps says that no byte of a piece is dropped, however it is written afterwards.
	keeps() bool
}

// behavior says what becomes of a match when a text is split at matches.
type behavior int

const (
	isolated behavior = iota
	removed
	mergedWithPrevious
	mergedWithNext
	contiguous
)

var behaviors = map[string]behavior{
	"Isolated": isolated, "Removed": removed, "MergedWithPrevious": mergedWithPrevious,
	"MergedWithNext": mergedWithNext, "Contiguous": contiguous,
}

// splitStep cuts at the matches of a pattern; with invert, at what is between them.
type splitStep struct {
	matcher  matcher
	behavior behavior
	invert   bool
}

func (st splitStep) apply(p piece, emit func(piece)) {
	out := func(start, end int) {
		if start < end {
			emit(piece{p.text[start:end], p.first && start == 0})
		}
	}
	// Every part of the text passes through part, in order; a part held back may grow.
	held, heldEnd, prev := -1, 0, false
	flush := func() {
		if held >= 0 {
			out(held, heldEnd)
		}
		held = -1
	}
	part := func(start, end int, match bool) {
		if st.invert {
			match = !match
		}
		switch st.behavior {
		case isolated:
			out(start, end)
			return
		case removed:
			if !match {
				out(start, end)
			}
			return
		case contiguous:
			if held >= 0 && match == prev {
				heldEnd = end
				return
			}
		case mergedWithPrevious:
			if held >= 0 && match && !prev {
				heldEnd, prev = end, match
				return
			}
		case mergedWithNext:
			if held >= 0 && prev && !match {
				heldEnd, prev = end, match
				return
			}
		}
		flush()
		held, heldEnd, prev = start, end, match
	}
	at := 0
	st.matcher.find(p.text, func(start, end int) {
		if at < start {
			part(at, start, false)
		}
		part(start, end, true)
		at = end
	})
	if at < len(p.text) {
		part(at, len(p.text), false)
	}
	flush()
}

func (st splitStep) keeps() bool { return st.behavior != removed }

// byteLevelStep writes each byte as one printable character. Where it is the last step the
// pieces keep their bytes instead, and the model's vocabulary is in bytes.
type byteLevelStep struct {
	addPrefixSpace bool
	split          matcher // nil for no split
	last           bool
}

func (st byteLevelStep) apply(p piece, emit func(piece)) {
	if st.addPrefixSpace && !strings.HasPrefix(p.text, " ") {
		p.text = " " + p.text
	}
	one := func(p piece) {
		if !st.last {
			p.text = toByteChars(p.text)
		}
		emit(p)
	}
	if st.split == nil {
		one(p)
		return
	}
	splitStep{matcher: st.split}.apply(p, one)
}

func (byteLevelStep) keeps() bool { return true }

// fromByteCharsStep undoes byteLevelStep once the steps after it have split its characters.
type fromByteCharsStep struct{}

func (fromByteCharsStep) apply(p piece, emit func(piece)) {
	if b, ok := fromByteChars(p.text); ok {
		p.text = b
	}
	emit(p)
}

func (fromByteCharsStep) keeps() bool { return true }

// metaspaceStep writes spaces as another character, usually U+2581, and cuts before it.
type metaspaceStep struct {
	replacement string
	prepend     prependScheme
	split       bool
}

// keeps: a space may become a character that no token has.
func (metaspaceStep) keeps() bool { return false }

type prependScheme int

const (
	prependAlways prependScheme = iota
	prependFirst
	prependNever
)

func (st metaspaceStep) apply(p piece, emit func(piece)) {
	p.text = strings.ReplaceAll(p.text, " ", st.replacement)
	if (st.prepend == prependAlways || st.prepend == prependFirst && p.first) && !strings.HasPrefix(p.text, st.replacement) {
		p.text = st.replacement + p.text
	}
	if !st.split {
		emit(p)
		return
	}
	splitStep{matcher: literalMatcher(st.replacement), behavior: mergedWithNext}.apply(p, emit)
}

func isNumeric(r rune) bool { return runeClass(r)&clNumber != 0 }

func isPunctuation(r rune) bool {
	return r < 0x80 && (r >= '!' && r <= '/' || r >= ':' && r <= '@' || r >= '[' && r <= '`' || r >= '{' && r <= '~') ||
		unicode.In(pinRune(r), unicode.P)
}

// The alphabet of byte-level tokenizers: printable bytes stand for themselves, the others for
// the characters from U+0100 on.
var byteToChar, charToByte = func() (to [256]rune, from map[rune]byte) {
	from = make(map[rune]byte)
	next := rune(0x100)
	for b := range to {
		r := rune(b)
		if !(r >= '!' && r <= '~' || r >= 0xA1 && r <= 0xAC || r >= 0xAE) {
			r = next
			next++
		}
		to[b], from[r] = r, byte(b)
	}
	return to, from
}()

func toByteChars(s string) string {
	var b strings.Builder
	b.Grow(2 * len(s))
	for i := range len(s) {
		b.WriteRune(byteToChar[s[i]])
	}
	return b.String()
}

// fromByteChars returns the bytes that s stands for, or false if it has a character outside the
// alphabet.
func fromByteChars(s string) (string, bool) {
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); {
		if c := s[i]; c >= '!' && c <= '~' {
			b = append(b, c)
			i++
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		c, ok := charToByte[r]
		if !ok {
			return "", false
		}
		b = append(b, c)
		i += n
	}
	return string(b), true
}
