// Patterns: what cuts a text at matches. A regular expression of a tokenizer.json is written
// for Oniguruma in its Ruby syntax; here it is translated to regexp2's, and refused where the
// two would read it differently.

package tokenizer

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/dlclark/regexp2/v2"
)

// patternTimeout bounds the search of one text with one pattern, should a checkpoint bring a
// pattern of exponential cost. What is left then stays one piece.
const patternTimeout = 30 * time.Second

// matcher finds what a splitting step cuts at.
type matcher interface {
	// find calls yield for the matches in s in order; they do not overlap.
	find(s string, yield func(start, end int))
}

// literalMatcher matches a string, which is not empty.
type literalMatcher string

func (m literalMatcher) find(s string, yield func(start, end int)) {
	for i := 0; ; {
		k := strings.Index(s[i:], string(m))
		if k < 0 {
			return
		}
		yield(i+k, i+k+len(m))
		i += k + len(m)
	}
}

// runeMatcher matches single characters.
type runeMatcher func(r rune) bool

func (m runeMatcher) find(s string, yield func(start, end int)) {
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		if m(r) {
			yield(i, i+n)
		}
		i += n
	}
}

// scanMatcher returns the end of the match at i, or i for none.
type scanMatcher func(s string, i int) int

func (m scanMatcher) find(s string, yield func(start, end int)) {
	for i := 0; i < len(s); {
		j := m(s, i)
		if j > i {
			yield(i, j)
			i = j
			continue
		}
		_, n := utf8.DecodeRuneInString(s[i:])
		i += n
	}
}

// regexMatcher is any other regular expression.
type regexMatcher struct{ re *regexp2.Regexp }

func (m regexMatcher) find(s string, yield func(start, end int)) {
	runes := []rune(pin(s))
	deadline := time.Now().Add(patternTimeout)
	at, offset := 0, 0 // a rune index and its byte offset
	offsetOf := func(k int) int {
		for ; at < k; at++ {
			offset += utf8.RuneLen(runes[at])
		}
		return offset
	}
	// An error is a timeout: what follows the matches found stays uncut.
	_ = m.re.FindRunesMatches(runes, 0, func(v regexp2.MatchView) bool {
		index, length, _ := v.GroupRange(0)
		start := offsetOf(index)
		yield(start, offsetOf(index+length))
		return time.Now().Before(deadline)
	})
}

// newRegex compiles a pattern of a tokenizer.json, by a scanner where there is one.
func newRegex(pattern string) (matcher, error) {
	if scan, ok := scanners[pattern]; ok {
		return scanMatcher(scan), nil
	}
	m, err := compileRegex(pattern)
	if err != nil {
		return nil, fmt.Errorf("pattern %q: %w", pattern, err)
	}
	return m, nil
}

func compileRegex(pattern string) (matcher, error) {
	translated, err := translatePattern(pattern)
	if err != nil {
		return nil, err
	}
	re, err := regexp2.Compile(translated, regexp2.Multiline, regexp2.OptionMaxBacktrackingStackSize(-1))
	if err != nil {
		return nil, err
	}
	re.MatchTimeout = patternTimeout
	return regexMatcher{re}, nil
}

// translatePattern rewrites possessive quantifiers, which regexp2 lacks, and refuses what
// regexp2 would accept with another meaning.
func translatePattern(p string) (string, error) {
	var out []byte
	atom := -1 // where the last atom begins in out, -1 if a quantifier cannot follow
	var groups []int
	for i := 0; i < len(p); {
		switch c := p[i]; {
		case c == '\\':
			n, err := escapeLen(p[i:], false)
			if err != nil {
				return "", err
			}
			atom = len(out)
			out = append(out, p[i:i+n]...)
			i += n
		case c == '[':
			n, err := classLen(p[i:])
			if err != nil {
				return "", err
			}
			atom = len(out)
			out = append(out, p[i:i+n]...)
			i += n
		case c == '(':
			n := 1
			if strings.HasPrefix(p[i:], "(?") {
				for _, open := range []string{"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:", "(?i)"} {
					if strings.HasPrefix(p[i:], open) {
						n = len(open)
					}
				}
				if n == 1 {
					return "", fmt.Errorf("group at %d is not supported", i)
				}
			}
			if p[i+n-1] == ')' { // (?i)
				atom = -1
			} else {
				groups = append(groups, len(out))
				atom = -1
			}
			out = append(out, p[i:i+n]...)
			i += n
		case c == ')':
			if len(groups) == 0 {
				return "", fmt.Errorf("unmatched ) at %d", i)
			}
			atom = groups[len(groups)-1]
			groups = groups[:len(groups)-1]
			out = append(out, c)
			i++
		case c == '|' || c == '^' || c == '$':
			atom = -1
			out = append(out, c)
			i++
		case c == '*' || c == '+' || c == '?' || c == '{':
			n := 1
			if c == '{' {
				if n = repeatLen(p[i:]); n == 0 {
					return "", fmt.Errorf("{ at %d is no repeat", i)
				}
			}
			if atom < 0 {
				return "", fmt.Errorf("nothing to repeat at %d", i)
			}
			out = append(out, p[i:i+n]...)
			i += n
			switch {
			case i < len(p) && p[i] == '?':
				out = append(out, '?')
				i++
			case i < len(p) && p[i] == '+' && c != '{':
				out = append(out[:atom:atom], "(?>"+string(out[atom:])+")"...)
				i++
			case i < len(p) && p[i] == '+': // after a repeat, + repeats once more
				out = append(out[:atom:atom], "(?:"+string(out[atom:])+")"...)
				continue
			}
			atom = -1
		default:
			_, n := utf8.DecodeRuneInString(p[i:])
			atom = len(out)
			out = append(out, p[i:i+n]...)
			i += n
		}
	}
	if len(groups) > 0 {
		return "", fmt.Errorf("missing )")
	}
	return string(out), nil
}

// escapeLen returns the length of the escape that p begins with.
func escapeLen(p string, inClass bool) (int, error) {
	if len(p) < 2 {
		return 0, fmt.Errorf("lone \\ at the end")
	}
	switch c := p[1]; {
	case c == 'p' || c == 'P':
		end := strings.IndexByte(p, '}')
		if len(p) < 4 || p[2] != '{' || end < 0 || p[3] == '^' {
			return 0, fmt.Errorf("property %.8q is not supported", p)
		}
		return end + 1, nil
	case c == 'u':
		if len(p) < 6 {
			return 0, fmt.Errorf("short escape %q", p)
		}
		return 6, nil
	case strings.IndexByte("sSdDrntfve", c) >= 0, !inClass && strings.IndexByte("AzZ", c) >= 0:
		return 2, nil
	case 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9':
		return 0, fmt.Errorf("escape \\%c is not supported", c)
	}
	_, n := utf8.DecodeRuneInString(p[1:])
	return 1 + n, nil
}

// classLen returns the length of the character class that p begins with.
func classLen(p string) (int, error) {
	i := 1
	if i < len(p) && p[i] == '^' {
		i++
	}
	for first := i; i < len(p); {
		switch {
		case p[i] == ']' && i > first:
			return i + 1, nil
		case p[i] == ']', p[i] == '[', strings.HasPrefix(p[i:], "&&"):
			return 0, fmt.Errorf("%q inside a character class is not supported", p[i])
		case p[i] == '\\':
			n, err := escapeLen(p[i:], true)
			if err != nil {
				return 0, err
			}
			i += n
		default:
			i++
		}
	}
	return 0, fmt.Errorf("missing ]")
}

// repeatLen returns the length of {n}, {n,} or {n,m}, 0 if p begins with none.
func repeatLen(p string) int {
	end := strings.IndexByte(p, '}')
	if end < 0 {
		return 0
	}
	digits := 0
	for _, c := range p[1:end] {
		switch {
		case '0' <= c && c <= '9':
			digits++
		case c == ',' && digits > 0:
		default:
			return 0
		}
	}
	if digits == 0 {
		return 0
	}
	return end + 1
}
