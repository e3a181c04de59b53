package tokenizer

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode"

	"golang.org/x/text/unicode/norm"
)

// alphabet has characters of every kind that a split pattern tells apart, some of them twice
// over so that runs come about, and the awkward ones: the long s, titlecase and modifier
// letters, letters without case, marks, all white space, and characters that are newer than
// the reference's Unicode.
var alphabet = []rune("aabbsStTrevmdlREVMDLZäßſéÉǅǈʰʕʖªºß中中あアー가ا אहि\u0301\u0301\u0308\u093f\u200d\ufe0f" +
	"0123456789²½Ⅷ٣५〇" + "''''’‘`´" + "      \t\t\n\n\n\r\r\v\f\u0085\u00a0\u1680\u2003\u2028\u2029\u202f\u205f\u3000" +
	"!\"#$%&()*+,-./:;<=>?@[\\]^_{|}~«»…—。、¿§¢£€" + "\x00\x01\x7f\u200b\ufeff\ufffd\ue000" +
	"🤷🏽👨👩👧🇩🇪❤" + "\u088f\ua7ce\U00010940\U00033479\U0001f6d8\U00010400\U0001d400\u0378\U0001fffe")

func randomText(r *rand.Rand, n int) string {
	var b strings.Builder
	for range n {
		switch r.IntN(12) {
		case 0:
			b.WriteString([]string{"'s", "'S", "'ſ", "'re", "'RE", "'ll", "'lL", "'ve", "'d", "\r\n", "\n\n", "    ", "  \n", "don't", "HTTPServer", "x1y22z333", "/\n/"}[r.IntN(17)])
		case 1:
			c := rune(r.IntN(0x3000))
			b.WriteRune(c)
		case 2:
			c := rune(r.IntN(unicode.MaxRune))
			if c < 0xD800 || c > 0xDFFF {
				b.WriteRune(c)
			}
		case 3:
			c := alphabet[r.IntN(len(alphabet))]
			b.WriteString(strings.Repeat(string(c), 1+r.IntN(5)))
		default:
			b.WriteRune(alphabet[r.IntN(len(alphabet))])
		}
	}
	return b.String()
}

func matches(m matcher, s string) (all [][2]int) {
	m.find(s, func(start, end int) { all = append(all, [2]int{start, end}) })
	return all
}

// TestScannersEqualPatterns compares each scanner with the pattern it stands for.
func TestScannersEqualPatterns(t *testing.T) {
	for _, pattern := range slices.Sorted(maps.Keys(scanners)) {
		re, err := compileRegex(strings.ReplaceAll(pattern, "(?i:'s", "(?i:'s|'ſ"))
		if err != nil {
			t.Fatal(err)
		}
		r := rand.New(rand.NewPCG(1, 2))
		for range 4000 {
			s := randomText(r, 1+r.IntN(24))
			got, want := matches(scanMatcher(scanners[pattern]), s), matches(re, s)
			if !slices.Equal(got, want) {
				t.Fatalf("pattern %s\n text %+q\n  got %v\n want %v", pattern, s, got, want)
			}
		}
		for _, s := range everyPair() {
			got, want := matches(scanMatcher(scanners[pattern]), s), matches(re, s)
			if !slices.Equal(got, want) {
				t.Fatalf("pattern %s\n text %+q\n  got %v\n want %v", pattern, s, got, want)
			}
		}
	}
}

// everyPair returns texts that hold every pair of characters of the alphabet.
func everyPair() (texts []string) {
	for _, a := range alphabet {
		var b strings.Builder
		for _, c := range alphabet {
			b.WriteRune(a)
			b.WriteRune(c)
		}
		texts = append(texts, b.String())
	}
	return texts
}

// TestEveryCharacter compares scanners and patterns on each character by itself.
func TestEveryCharacter(t *testing.T) {
	var b strings.Builder
	for c := rune(0); c <= unicode.MaxRune; c++ {
		// The ideographs and Hangul syllables are all alike: a few of each will do.
		if alike := c > 0x3500 && c < 0xA000 || c > 0xAC00 && c < 0xD700 || c > 0x20000; alike && c%97 != 0 && !inRanges(newerRunes, c) {
			continue
		}
		if c < 0xD800 || c > 0xDFFF {
			b.WriteRune('a')
			b.WriteRune(c)
			b.WriteRune(' ')
		}
	}
	for _, pattern := range []string{patternQwen35, patternTekken, patternDeepSeek} {
		re, err := compileRegex(pattern)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(matches(scanMatcher(scanners[pattern]), b.String()), matches(re, b.String())) {
			t.Errorf("pattern %s differs", pattern)
		}
	}
}

// TestUnicodeVersion fails when Go's tables have moved on from those that the lists in
// unicode.go were made for.
func TestUnicodeVersion(t *testing.T) {
	if unicode.Version != pinnedUnicode || norm.Version != pinnedUnicode {
		t.Fatalf("unicode %s, norm %s, lists made for %s", unicode.Version, norm.Version, pinnedUnicode)
	}
}

func TestTranslatePattern(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{`a++b`, `(?>a+)b`},
		{`[^\s\p{L}]?+\p{L}++`, `(?>[^\s\p{L}]?)(?>\p{L}+)`},
		{`(?:ab)*+c`, `(?>(?:ab)*)c`},
		{`\p{N}{1,3}+x`, `(?:\p{N}{1,3})+x`},
		{`a+?b|c`, `a+?b|c`},
	} {
		if got, err := translatePattern(c.in); err != nil || got != c.want {
			t.Errorf("translatePattern(%q) = %q, %v, want %q", c.in, got, err, c.want)
		}
	}
	for _, p := range []string{`[a&&b]`, `[[:alpha:]]`, `\w+`, `\bx`, `(?m:.)`, `(?<n>a)`, `(a`, `a)`, `\`, `[a`, `*a`, `\p{^L}`, `a{,3}`, `\h`} {
		if got, err := translatePattern(p); err == nil {
			t.Errorf("translatePattern(%q) = %q, want an error", p, got)
		}
	}
}
