// Unicode as the reference library knows it. Its regex engine has the tables of Unicode 16 and
// its normaliser those of Unicode 12.0; Go's are newer. The difference is small and listed here
// (found by asking tokenizers 0.23.3 about every code point), so that a character which the
// reference takes for unassigned is unassigned here too.
//
// When Go's own tables move on, TestUnicodeVersion fails and the lists are to be made anew.

package tokenizer

import (
	"slices"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// pinnedUnicode is the version of Go's tables for which the lists below hold.
const pinnedUnicode = "17.0.0"

type runeRange struct{ lo, hi rune }

// newerRunes are assigned in Go's tables and unassigned in the reference's regex engine.
var newerRunes = []runeRange{
	{0x88F, 0x88F}, {0xC5C, 0xC5C}, {0xCDC, 0xCDC}, {0x1ACF, 0x1ADD}, {0x1AE0, 0x1AEB}, {0x20C1, 0x20C1},
	{0x2B96, 0x2B96}, {0xA7CE, 0xA7CF}, {0xA7D2, 0xA7D2}, {0xA7D4, 0xA7D4}, {0xA7F1, 0xA7F1}, {0xFBC3, 0xFBD2},
	{0xFD90, 0xFD91}, {0xFDC8, 0xFDCE}, {0x10940, 0x10959}, {0x10EC5, 0x10EC7}, {0x10ED0, 0x10ED8}, {0x10EFA, 0x10EFB},
	{0x11B60, 0x11B67}, {0x11DB0, 0x11DDB}, {0x11DE0, 0x11DE9}, {0x16EA0, 0x16EB8}, {0x16EBB, 0x16ED3}, {0x16FF2, 0x16FF6},
	{0x187F8, 0x187FF}, {0x18D09, 0x18D1E}, {0x18D80, 0x18DF2}, {0x1CCFA, 0x1CCFC}, {0x1CEBA, 0x1CED0}, {0x1CEE0, 0x1CEF0},
	{0x1E6C0, 0x1E6DE}, {0x1E6E0, 0x1E6F5}, {0x1E6FE, 0x1E6FF}, {0x1F6D8, 0x1F6D8}, {0x1F777, 0x1F77A}, {0x1F8D0, 0x1F8D8},
	{0x1FA54, 0x1FA57}, {0x1FA8A, 0x1FA8A}, {0x1FA8E, 0x1FA8E}, {0x1FAC8, 0x1FAC8}, {0x1FACD, 0x1FACD}, {0x1FAEA, 0x1FAEA},
	{0x1FAEF, 0x1FAEF}, {0x1FBFA, 0x1FBFA}, {0x2B73A, 0x2B73F}, {0x2CEA2, 0x2CEAD}, {0x323B0, 0x33479},
}

// opaqueRunes are those that the reference's normaliser does not know: it neither decomposes,
// composes nor reorders them.
var opaqueRunes = []runeRange{
	{0x7FD, 0x7FD}, {0x897, 0x89F}, {0x8CA, 0x8D3}, {0x9FE, 0x9FE}, {0xC3C, 0xC3C}, {0xD3B, 0xD3C}, {0xEBA, 0xEBA},
	{0x1715, 0x1715}, {0x1ABF, 0x1ADD}, {0x1AE0, 0x1AEB}, {0x1DF6, 0x1DFA}, {0x32FF, 0x32FF}, {0xA7F1, 0xA7F4},
	{0xA82C, 0xA82C}, {0xAB69, 0xAB69}, {0x105C9, 0x105C9}, {0x105D2, 0x105D2}, {0x105DA, 0x105DA}, {0x105E4, 0x105E4},
	{0x10781, 0x10785}, {0x10787, 0x107B0}, {0x107B2, 0x107BA}, {0x10D24, 0x10D27}, {0x10D69, 0x10D6D}, {0x10EAB, 0x10EAC},
	{0x10EFA, 0x10EFB}, {0x10EFD, 0x10EFF}, {0x10F46, 0x10F50}, {0x10F82, 0x10F85}, {0x11070, 0x11070}, {0x1133B, 0x1133B},
	{0x11382, 0x11385}, {0x1138B, 0x1138B}, {0x1138E, 0x1138E}, {0x11390, 0x11391}, {0x113B8, 0x113B8}, {0x113BB, 0x113BB},
	{0x113C2, 0x113C2}, {0x113C5, 0x113C5}, {0x113C7, 0x113C9}, {0x113CE, 0x113D0}, {0x1145E, 0x1145E}, {0x11839, 0x1183A},
	{0x11930, 0x11930}, {0x11935, 0x11935}, {0x11938, 0x11938}, {0x1193D, 0x1193E}, {0x11943, 0x11943}, {0x119E0, 0x119E0},
	{0x11A34, 0x11A34}, {0x11A47, 0x11A47}, {0x11A99, 0x11A99}, {0x11D42, 0x11D42}, {0x11D44, 0x11D45}, {0x11D97, 0x11D97},
	{0x11F41, 0x11F42}, {0x1611E, 0x16129}, {0x1612F, 0x1612F}, {0x16D63, 0x16D63}, {0x16D67, 0x16D6A}, {0x16FF0, 0x16FF1},
	{0x1CCD6, 0x1CCF9}, {0x1E030, 0x1E06D}, {0x1E08F, 0x1E08F}, {0x1E130, 0x1E136}, {0x1E2AE, 0x1E2AE}, {0x1E2EC, 0x1E2EF},
	{0x1E4EC, 0x1E4EF}, {0x1E5EE, 0x1E5EF}, {0x1E6E3, 0x1E6E3}, {0x1E6E6, 0x1E6E6}, {0x1E6EE, 0x1E6EF}, {0x1E6F5, 0x1E6F5},
	{0x1F16C, 0x1F16C}, {0x1FBF0, 0x1FBF9},
}

// recasedRune is the one character whose category the reference has otherwise: a lower case
// letter (Ll) there, a letter without case (Lo) in Go. recasedLike has the same length and the
// category of the reference.
const (
	recasedRune = 'ʕ'
	recasedLike = 'ʖ'
)

func inRanges(rs []runeRange, r rune) bool {
	_, found := slices.BinarySearchFunc(rs, r, func(x runeRange, r rune) int {
		switch {
		case x.hi < r:
			return -1
		case x.lo > r:
			return 1
		}
		return 0
	})
	return found
}

// pin returns s with the characters whose category differs from the reference's replaced by
// others of the same length in UTF-8 and of the reference's category. Offsets found in the
// result hold in s. Almost always it is s itself.
func pin(s string) string {
	var b []byte
	for i := 0; i < len(s); {
		if s[i] < 0xC8 { // no pinned character is below U+0200
			i++
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		if like := pinRune(r); like != r {
			if b == nil {
				b = []byte(s)
			}
			utf8.EncodeRune(b[i:], like)
		}
		i += n
	}
	if b == nil {
		return s
	}
	return string(b)
}

// pinRune maps a character to one of equal length that Go classifies as the reference does r.
func pinRune(r rune) rune {
	switch {
	case r == recasedRune:
		return recasedLike
	case r < newerRunes[0].lo || !inRanges(newerRunes, r):
		return r
	case r > 0xFFFF:
		return 0x1FFFE // never assigned
	}
	return 0xFFFE // never assigned
}

// Classes of characters, as the patterns of tokenizers use them.
const (
	clLetter uint8 = 1 << iota // L
	clMark                     // M
	clNumber                   // N
	clSpace                    // White_Space
	clBreak                    // carriage return, line feed
	clUpper                    // Lu Lt Lm Lo M
	clLower                    // Ll Lm Lo M
	clSymbol                   // P S
)

// runeClasses holds the classes of all characters, by the upper and the lower bits.
var runeClasses = func() (t [0x110000 >> 8]*[256]uint8) {
	none := new([256]uint8)
	for i := range t {
		t[i] = none
	}
	set := func(bits uint8, tab *unicode.RangeTable) {
		mark := func(lo, hi, stride rune) {
			for r := lo; r <= hi; r += stride {
				if t[r>>8] == none {
					t[r>>8] = new([256]uint8)
				}
				t[r>>8][r&255] |= bits
			}
		}
		for _, x := range tab.R16 {
			mark(rune(x.Lo), rune(x.Hi), rune(x.Stride))
		}
		for _, x := range tab.R32 {
			mark(rune(x.Lo), rune(x.Hi), rune(x.Stride))
		}
	}
	set(clLetter, unicode.L)
	set(clMark|clUpper|clLower, unicode.M)
	set(clNumber, unicode.N)
	set(clSpace, unicode.White_Space)
	set(clUpper, unicode.Lu)
	set(clUpper, unicode.Lt)
	set(clUpper|clLower, unicode.Lm)
	set(clUpper|clLower, unicode.Lo)
	set(clLower, unicode.Ll)
	set(clSymbol, unicode.P)
	set(clSymbol, unicode.S)
	t[0]['\r'] |= clBreak
	t[0]['\n'] |= clBreak
	for _, x := range newerRunes {
		for r := x.lo; r <= x.hi; r++ {
			if t[r>>8] != none {
				t[r>>8][r&255] = 0
			}
		}
	}
	t[recasedRune>>8][recasedRune&255] = t[recasedLike>>8][recasedLike&255]
	return t
}()

// runeClass returns the classes of a character.
func runeClass(r rune) uint8 { return runeClasses[r>>8][r&255] }

// normalForm is a Unicode normalisation with the reference's tables.
type normalForm struct {
	form    norm.Form
	compose bool // NFC, NFKC
}

func (f normalForm) normalize(s string) string {
	// A string that is normal for the newer tables is so for the older ones: those relate
	// fewer characters to each other.
	if f.form.IsNormalString(s) {
		return s
	}
	decomposed := norm.NFD
	if f.form == norm.NFKC || f.form == norm.NFKD {
		decomposed = norm.NFKD
	}
	runes := make([]rune, 0, len(s))
	classes := make([]uint8, 0, len(s))
	put := func(r rune, ccc uint8) {
		runes = append(runes, r)
		classes = append(classes, ccc)
	}
	// The whole-string functions of x/text are not used: they break long runs of marks with
	// U+034F, which the reference does not.
	for i, r := range s {
		if r < 0xC0 && (r < 0x80 || decomposed == norm.NFD) || inRanges(opaqueRunes, r) {
			put(r, 0)
			continue
		}
		p := decomposed.PropertiesString(s[i:])
		d := p.Decomposition()
		if len(d) == 0 {
			if isHangul(r) {
				l, v, t := splitHangul(r)
				put(l, 0)
				put(v, 0)
				if t != hangulTBase {
					put(t, 0)
				}
				continue
			}
			put(r, p.CCC())
			continue
		}
		for len(d) > 0 {
			c, n := utf8.DecodeRune(d)
			put(c, norm.NFD.Properties(d).CCC())
			d = d[n:]
		}
	}
	sortMarks(runes, classes)
	if f.compose {
		runes = composeRunes(runes, classes)
	}
	return string(runes)
}

// sortMarks puts each run of characters with a non-zero combining class in order of class.
func sortMarks(runes []rune, classes []uint8) {
	for i := 0; i < len(runes); {
		if classes[i] == 0 {
			i++
			continue
		}
		j := i
		sorted := true
		for j < len(runes) && classes[j] != 0 {
			sorted = sorted && (j == i || classes[j-1] <= classes[j])
			j++
		}
		if !sorted {
			type mark struct {
				r rune
				c uint8
			}
			ms := make([]mark, j-i)
			for k := range ms {
				ms[k] = mark{runes[i+k], classes[i+k]}
			}
			slices.SortStableFunc(ms, func(a, b mark) int { return int(a.c) - int(b.c) })
			for k, m := range ms {
				runes[i+k], classes[i+k] = m.r, m.c
			}
		}
		i = j
	}
}

// composeRunes joins each starter with the marks after it that are not blocked. It reuses runes.
func composeRunes(runes []rune, classes []uint8) []rune {
	out := runes[:0]
	starter, last := -1, -1 // index into out of the last starter; class of the last character kept after it
	for i, r := range runes {
		c := int(classes[i])
		if starter >= 0 && (last < c && last >= 0 || last == -1) {
			if p, ok := composePair(out[starter], r); ok {
				out[starter] = p
				continue
			}
		}
		out = append(out, r)
		if c == 0 {
			starter, last = len(out)-1, -1
		} else {
			last = c
		}
	}
	return out
}

const (
	hangulBase, hangulLBase, hangulVBase, hangulTBase = 0xAC00, 0x1100, 0x1161, 0x11A7
	hangulL, hangulV, hangulT                         = 19, 21, 28
)

func isHangul(r rune) bool { return r >= hangulBase && r < hangulBase+hangulL*hangulV*hangulT }

func splitHangul(r rune) (l, v, t rune) {
	r -= hangulBase
	return hangulLBase + r/(hangulV*hangulT), hangulVBase + r/hangulT%hangulV, hangulTBase + r%hangulT
}

func composePair(a, b rune) (rune, bool) {
	if a >= hangulLBase && a < hangulLBase+hangulL && b >= hangulVBase && b < hangulVBase+hangulV {
		return hangulBase + ((a-hangulLBase)*hangulV+b-hangulVBase)*hangulT, true
	}
	if isHangul(a) && (a-hangulBase)%hangulT == 0 && b > hangulTBase && b < hangulTBase+hangulT {
		return a + b - hangulTBase, true
	}
	r, ok := compositions()[[2]rune{a, b}]
	return r, ok
}

// compositions maps pairs to the character they compose to, Hangul apart.
var compositions = sync.OnceValue(func() map[[2]rune]rune {
	m := make(map[[2]rune]rune)
	for r := rune(0xC0); r < 0x30000; r++ {
		s := string(r)
		if isHangul(r) || inRanges(opaqueRunes, r) || !norm.NFC.IsNormalString(s) {
			continue
		}
		d := []rune(norm.NFD.String(s))
		if len(d) < 2 {
			continue
		}
		a := []rune(norm.NFC.String(string(d[:len(d)-1])))
		if len(a) == 1 {
			m[[2]rune{a[0], d[len(d)-1]}] = r
		}
	}
	return m
})

// lower is the reference's lower case: each character by itself.
func lower(s string) string {
	var b strings.Builder
	for _, r := range s {
		if r == 'İ' { // the one character whose lower case is two
			b.WriteString("i̇")
			continue
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}
