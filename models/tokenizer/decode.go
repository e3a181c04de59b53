// Decoding: ids back to text. What a decoder does to one token is worked out once at load, so
// that a token is a byte string; what it does to the start of the text is a state of Decoder.

package tokenizer

import (
	"strings"
	"unicode/utf8"

	"github.com/openinfer-go/openinfer/internal/utf8x"
)

// decoding is what a tokenizer's decoder does.
type decoding struct {
	tokenOps []func(string) string // on each token, in order
	// byteLevel: a token in the byte alphabet stands for its bytes.
	byteLevel bool
	// byteFallback: <0x0A> stands for the byte.
	byteFallback bool
	// space joins tokens where there is no decoder.
	space bool
	// stripChar is taken off the start of the text, up to stripCount times; with
	// stripFirstToken wherever it stands in the first token.
	stripChar       rune
	stripCount      int
	stripFirstToken bool
}

// tokenBytes returns what a token adds in the middle of a text.
func (d *decoding) tokenBytes(token string) string {
	for _, op := range d.tokenOps {
		token = op(token)
	}
	if d.byteLevel {
		if b, ok := fromByteChars(token); ok {
			return b
		}
		return token
	}
	if b, ok := fallbackByte(token); ok && d.byteFallback {
		return string([]byte{b})
	}
	return token
}

// fallbackByte reads tokens of the form <0x0A>.
func fallbackByte(token string) (byte, bool) {
	if len(token) != 6 || token[:3] != "<0x" || token[5] != '>' {
		return 0, false
	}
	v := 0
	for _, c := range token[3:5] {
		k := strings.IndexRune("0123456789ABCDEFabcdef", c)
		if k < 0 {
			return 0, false
		}
		if k > 15 {
			k -= 6
		}
		v = v<<4 | k
	}
	return byte(v), true
}

// Decoder turns ids into bytes one by one. Not safe for concurrent use.
//
// Over a sequence of ids the concatenated results are the bytes of Decode before it makes them
// valid UTF-8. The one difference lies in what cannot be valid: Decode replaces every byte of a
// run of byte-fallback tokens if any part of the run is broken, as the reference does, whereas
// here the run comes out as it is.
type Decoder struct {
	t           *Tokenizer
	skipSpecial bool
	started     bool // a token has been kept
	strip       int  // how many leading characters may still be taken off
}

// NewDecoder starts a text. skipSpecial drops special added tokens.
func (t *Tokenizer) NewDecoder(skipSpecial bool) *Decoder {
	return &Decoder{t: t, skipSpecial: skipSpecial, strip: t.decoding.stripCount}
}

// Next returns what id adds to the text: not necessarily whole characters. An id that is no
// token adds nothing. The result must not be modified.
func (d *Decoder) Next(id int32) []byte {
	t := d.t
	if !t.known(id) || d.skipSpecial && t.IsSpecial(id) {
		return nil
	}
	b := t.TokenBytes(id)
	first := !d.started
	d.started = true
	if t.decoding.space && !first {
		return append([]byte{' '}, b...)
	}
	if first && t.decoding.stripFirstToken {
		return []byte(t.firstTokenText(id))
	}
	for d.strip > 0 && len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		if r != t.decoding.stripChar {
			d.strip = 0
			break
		}
		b = b[n:]
		d.strip--
	}
	return b
}

// firstTokenText is a token at the start of a text whose metaspace characters are dropped.
func (t *Tokenizer) firstTokenText(id int32) string {
	token, _ := t.Token(id)
	return strings.ReplaceAll(token, string(t.decoding.stripChar), "")
}

// Decode returns the text of ids, as the reference library does: ids that are no tokens are
// skipped, and bytes that are no UTF-8 become U+FFFD. skipSpecial drops special added tokens, also
// those that a normaliser rewrites, which the reference keeps.
func (t *Tokenizer) Decode(ids []int32, skipSpecial bool) string {
	d := t.NewDecoder(skipSpecial)
	var b []byte
	run := -1 // where a run of byte-fallback tokens begins
	flush := func() {
		if run >= 0 && !utf8.Valid(b[run:]) {
			n := len(b) - run
			b = append(b[:run], strings.Repeat("\uFFFD", n)...)
		}
		run = -1
	}
	for _, id := range ids {
		if t.decoding.byteFallback && t.known(id) && !(skipSpecial && t.IsSpecial(id)) {
			if !t.isFallback(id) {
				flush()
			} else if run < 0 {
				run = len(b)
			}
		}
		b = append(b, d.Next(id)...)
	}
	flush()
	return validUTF8(string(b))
}

// validUTF8 puts one U+FFFD in the place of each maximal broken part of a character, as Unicode
// recommends and Rust and Python do; Go's own conversions put one for each byte.
func validUTF8(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		n, state := utf8x.Next(s[i:])
		if state == utf8x.Whole {
			b.WriteString(s[i : i+n])
		} else {
			b.WriteString("\uFFFD")
		}
		i += n
	}
	return b.String()
}
