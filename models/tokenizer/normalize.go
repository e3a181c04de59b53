// Normalisers: what is done to a text, or to the added tokens within it, before it is cut.

package tokenizer

import "strings"

// normalizer rewrites a text.
type normalizer interface{ normalize(s string) string }

type normalizers []normalizer

func (ns normalizers) normalize(s string) string {
	for _, n := range ns {
		s = n.normalize(s)
	}
	return s
}

type lowercase struct{}

func (lowercase) normalize(s string) string { return lower(s) }

// replace puts content in the place of each match.
type replace struct {
	matcher matcher
	content string
}

func (n replace) normalize(s string) string {
	if m, ok := n.matcher.(literalMatcher); ok {
		return strings.ReplaceAll(s, string(m), n.content)
	}
	var b strings.Builder
	at := 0
	n.matcher.find(s, func(start, end int) {
		b.WriteString(s[at:start])
		b.WriteString(n.content)
		at = end
	})
	b.WriteString(s[at:])
	return b.String()
}

// prepend puts a string before a text that is not empty.
type prepend string

func (n prepend) normalize(s string) string {
	if s == "" {
		return s
	}
	return string(n) + s
}
