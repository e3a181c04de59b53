// Hand-written scanners for the split patterns of well-known tokenizers. Each returns what the
// pattern it stands for returns, some ten times faster and in linear time whatever the text;
// TestScannersEqualPatterns compares them.
//
// A scanner is one function: the end of the match that begins at i, or i if none does. Most of
// these patterns match at every position of every text.

package tokenizer

import "unicode/utf8"

// The patterns as tokenizer.json files write them.
const (
	patternGPT2 = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`

	patternLlama3 = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	patternQwen2  = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	patternQwen35 = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`

	patternGPT4o  = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	patternTekken = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`

	patternDigit       = `\p{N}`
	patternThreeDigits = `\p{N}{1,3}`
	patternHanKana     = "[一-龥\u3040-ゟ゠-ヿ]+"
	patternDeepSeek    = "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"
)

// scanners by the pattern they stand for.
var scanners = map[string]func(s string, i int) int{
	patternGPT2:   scanGPT2,
	patternLlama3: wordScanner{letters: clLetter, digits: 3, contractions: true}.next,
	patternQwen2:  wordScanner{letters: clLetter, digits: 1, contractions: true}.next,
	patternQwen35: wordScanner{letters: clLetter | clMark, digits: 1, contractions: true}.next,
	patternGPT4o:  wordScanner{letters: clLetter, digits: 3, contractions: true, cased: true}.next,
	patternTekken: wordScanner{letters: clLetter, digits: 1, cased: true}.next,

	patternDigit:       func(s string, i int) int { return digits(s, i, 1) },
	patternThreeDigits: func(s string, i int) int { return digits(s, i, 3) },
	patternHanKana:     scanHanKana,
	patternDeepSeek:    scanDeepSeek,
}

var asciiClasses = runeClasses[0]

// class returns the classes of the character at s[i] and its length; 0, 0 at the end.
func class(s string, i int) (uint8, int) {
	if i >= len(s) {
		return 0, 0
	}
	if c := s[i]; c < utf8.RuneSelf {
		return asciiClasses[c], 1
	}
	r, n := utf8.DecodeRuneInString(s[i:])
	return runeClass(r), n
}

// run returns the end of the longest run from i of characters with any class of want, or, with
// want 0, with no class of stop.
func run(s string, i int, want, stop uint8) int {
	for {
		c, n := class(s, i)
		if n == 0 || c&stop != 0 || want != 0 && c&want == 0 {
			return i
		}
		i += n
	}
}

// contraction returns the end of 's 't 're 've 'm 'll 'd at i, or i. fold ignores case, under
// which the long s is an s.
func contraction(s string, i int, fold bool) int {
	if i+1 >= len(s) || s[i] != '\'' {
		return i
	}
	low := func(k int) byte {
		if k >= len(s) {
			return 0
		}
		if c := s[k]; fold && 'A' <= c && c <= 'Z' {
			return c + 'a' - 'A'
		}
		return s[k]
	}
	switch a, b := low(i+1), low(i+2); {
	case a == 's', a == 't', a == 'm', a == 'd':
		return i + 2
	case a == 'r' && b == 'e', a == 'v' && b == 'e', a == 'l' && b == 'l':
		return i + 3
	case fold && a == "ſ"[0] && b == "ſ"[1]:
		return i + 3
	}
	return i
}

// spaces returns the end of the match at i of \s+(?!\S)|\s+: white space, without its last
// character if something follows that it could lead.
func spaces(s string, i int) int {
	end, last := i, i
	for {
		c, n := class(s, end)
		if n == 0 {
			return end
		}
		if c&clSpace == 0 {
			break
		}
		last = end
		end += n
	}
	if last > i {
		return last
	}
	return end
}

func scanGPT2(s string, i int) int {
	if j := contraction(s, i, false); j > i {
		return j
	}
	j := i
	if s[i] == ' ' {
		j++
	}
	switch c, n := class(s, j); {
	case n == 0 || c&clSpace != 0:
		return spaces(s, i)
	case c&clLetter != 0:
		return run(s, j+n, clLetter, 0)
	case c&clNumber != 0:
		return run(s, j+n, clNumber, 0)
	default:
		return run(s, j+n, 0, clSpace|clLetter|clNumber)
	}
}

// wordScanner stands for the patterns of the cl100k and o200k families.
type wordScanner struct {
	letters      uint8 // what words are made of
	digits       int   // digits in a piece
	contractions bool  // 's and the like: a piece (cl100k), or part of the word before (o200k)
	cased        bool  // words are cut before a capital (o200k)
}

func (w wordScanner) next(s string, i int) int {
	if w.contractions && !w.cased {
		if j := contraction(s, i, true); j > i {
			return j
		}
	}
	c, n := class(s, i)

	// A word, with any one character before it that is no letter, digit or line break.
	lead := i
	if c&(clBreak|clLetter|clNumber) == 0 {
		lead = i + n
	}
	if w.cased {
		if j := w.casedWord(s, i, lead); j > i {
			return j
		}
	} else if c&w.letters != 0 {
		return run(s, i+n, w.letters, 0)
	} else if c2, n2 := class(s, lead); lead > i && c2&w.letters != 0 {
		return run(s, lead+n2, w.letters, 0)
	}

	if c&clNumber != 0 {
		return digits(s, i, w.digits)
	}

	// Other characters, a space before and line breaks after.
	stop := clSpace | clNumber | w.letters
	j := i
	if s[i] == ' ' {
		j++
	}
	if k := run(s, j, 0, stop); k > j {
		for k < len(s) && (s[k] == '\r' || s[k] == '\n' || w.cased && s[k] == '/') {
			k++
		}
		return k
	}

	return breaks(s, i)
}

// digits returns the end of up to most numbers from i.
func digits(s string, i, most int) int {
	for range most {
		c, n := class(s, i)
		if c&clNumber == 0 {
			break
		}
		i += n
	}
	return i
}

// breaks returns the end of the match at i of \s*[\r\n]+|\s+(?!\S)|\s+: white space up to its
// last line break, if it has one.
func breaks(s string, i int) int {
	end := i
	for j := i; ; {
		c, n := class(s, j)
		if c&clSpace == 0 {
			break
		}
		j += n
		if c&clBreak != 0 {
			end = j
		}
	}
	if end > i {
		return end
	}
	return spaces(s, i)
}

func scanHanKana(s string, i int) int {
	for i < len(s) {
		r, n := utf8.DecodeRuneInString(s[i:])
		if !(r >= '一' && r <= '龥' || r >= 0x3040 && r <= 0x30FF) {
			break
		}
		i += n
	}
	return i
}

func scanDeepSeek(s string, i int) int {
	isAlpha := func(k int) bool { return k < len(s) && (s[k]|0x20) >= 'a' && (s[k]|0x20) <= 'z' }
	c, n := class(s, i)
	if c&clSymbol != 0 && n == 1 && isAlpha(i+1) {
		j := i + 2
		for isAlpha(j) {
			j++
		}
		return j
	}
	const word = clLetter | clMark
	if c&word != 0 {
		return run(s, i+n, word, 0)
	}
	if c2, n2 := class(s, i+n); c&(clBreak|clSymbol) == 0 && c2&word != 0 {
		return run(s, i+n+n2, word, 0)
	}
	j := i
	if s[i] == ' ' {
		j++
	}
	if k := run(s, j, clSymbol, 0); k > j {
		for k < len(s) && (s[k] == '\r' || s[k] == '\n') {
			k++
		}
		return k
	}
	return breaks(s, i)
}

// casedWord matches capitals then small letters, where letters without case count as both.
// lead is where the word begins if the character at i only leads it; i if that cannot be.
func (w wordScanner) casedWord(s string, i, lead int) int {
	ends := [2]int{-1, -1}
	starts := [2]int{lead, i}
	// At least one small letter, else at least one capital; each with the lead, then without.
	for k, start := range starts {
		if k == 1 && lead == i {
			break
		}
		both := -1 // end of the last letter in the run of capitals that counts as small, too
		j := start
		for {
			c, n := class(s, j)
			if c&clUpper == 0 {
				break
			}
			j += n
			if c&clLower != 0 {
				both = j
			}
		}
		ends[k] = j
		if end := run(s, j, clLower, 0); end > j {
			return w.suffix(s, end)
		}
		if both >= 0 {
			return w.suffix(s, both)
		}
	}
	for k, start := range starts {
		if ends[k] > start {
			return w.suffix(s, ends[k])
		}
	}
	return i
}

func (w wordScanner) suffix(s string, i int) int {
	if w.contractions {
		return contraction(s, i, true)
	}
	return i
}
