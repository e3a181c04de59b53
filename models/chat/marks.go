package chat

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// Text that came with the request must never become a control token, and templates may cut, trim
// and compare it before they print it. So while a template runs, each character of request text
// that could begin a control token stands as a private-use character, its mark: one character for
// one, so that lengths and positions do not change, and every operation that looks into a string
// looks at the plain text. Marks show afterwards which control tokens the template wrote: those
// whose first character is not a mark. Their text is the plain text, byte for byte what an
// unmarked rendering gives.

// origin is where a string of the request stands.
type origin uint8

const (
	// fromClient is text of any role but the assistant: no control token may come of it.
	fromClient origin = iota
	// fromModel is text of the assistant. Special tokens in it are text, too; but added tokens
	// that are not special (<think>, <tool_call> in most tokenizers) are part of what the model
	// once wrote and of what templates look for, so they keep their meaning.
	fromModel
)

// control is the set of texts that a tokenizer reads as one token.
type control struct {
	all     map[string]bool // text -> special
	lengths []int           // in bytes, longest first
	first   map[rune]bool   // characters that begin one
}

func newControl(special, added []string, source string) *control {
	c := &control{all: map[string]bool{}, first: map[rune]bool{}}
	add := func(text string, isSpecial bool) {
		if strings.TrimFunc(text, isSpace) == "" || c.all[text] {
			return // runs of spaces or line breaks have their own tokens and control nothing
		}
		c.all[text] = isSpecial
		if !slices.Contains(c.lengths, len(text)) {
			c.lengths = append(c.lengths, len(text))
		}
		r, _ := utf8.DecodeRuneInString(text)
		c.first[r] = true
	}
	for _, text := range added {
		// Tokenizers add ordinary words, too. What the template never writes gives no structure.
		if strings.Contains(source, text) {
			add(text, false)
		}
	}
	for _, text := range special {
		add(text, true)
	}
	slices.SortFunc(c.lengths, func(a, b int) int { return b - a })
	return c
}

// at returns the longest control token that begins text.
func (c *control) at(text string) string {
	for _, n := range c.lengths {
		if n <= len(text) {
			if _, ok := c.all[text[:n]]; ok {
				return text[:n]
			}
		}
	}
	return ""
}

// begins reports whether text begins with a special token, or is the start of one.
func (c *control) begins(text string) bool {
	if t := c.at(text); t != "" {
		return c.all[t]
	}
	for t, special := range c.all {
		if special && len(text) < len(t) && strings.HasPrefix(t, text) {
			return true
		}
	}
	return false
}

// marks is the mapping of one render.
type marks struct {
	control *control
	to      map[rune]rune // first character -> mark
	from    map[rune]rune
}

// marksBegin is the last private-use plane; its characters have a first byte of their own.
const (
	marksBegin = 0x100000
	marksEnd   = 0x10FFFD
	marksByte  = 0xF4
)

// newMarks picks marks that occur in none of the texts.
func newMarks(c *control, used map[rune]bool) *marks {
	m := &marks{control: c, to: map[rune]rune{}, from: map[rune]rune{}}
	next := rune(marksEnd)
	first := make([]rune, 0, len(c.first))
	for r := range c.first {
		first = append(first, r)
	}
	slices.Sort(first)
	for _, r := range first {
		for used[next] && next > marksBegin {
			next--
		}
		if next == marksBegin {
			break
		}
		m.to[r], m.from[next] = next, r
		next--
	}
	return m
}

func (m *marks) isMark(r rune) bool {
	_, ok := m.from[r]
	return ok
}

// char is a character without its mark.
func (m *marks) char(r rune) rune {
	if p, ok := m.from[r]; ok {
		return p
	}
	return r
}

// plain takes the marks off.
func (m *marks) plain(text string) string {
	if strings.IndexByte(text, marksByte) < 0 {
		return text
	}
	return strings.Map(m.char, text)
}

// mapped applies to a text a function that changes the case of characters. A character that stays
// what it was keeps its mark. Where characters became several, who wrote which is lost, and all
// that could begin a control token is marked.
func (m *marks) mapped(text string, f func(string) string) string {
	plain := m.plain(text)
	if len(plain) == len(text) {
		return f(text)
	}
	old, given, out := []rune(plain), []rune(text), []rune(f(plain))
	if len(old) != len(out) {
		return m.mark(string(out), fromClient)
	}
	for i := range out {
		if out[i] == old[i] {
			out[i] = given[i]
		}
	}
	return string(out)
}

// mark puts marks into request text. All of a client's characters that could begin a control
// token are marked, so that none comes together from pieces either.
func (m *marks) mark(text string, from origin) string {
	if len(m.to) == 0 {
		return text
	}
	var b strings.Builder
	done := 0
	for i, r := range text {
		mark, ok := m.to[r]
		if !ok || from == fromModel && !m.control.begins(text[i:]) {
			continue
		}
		b.WriteString(text[done:i])
		b.WriteRune(mark)
		done = i + utf8.RuneLen(r)
	}
	if done == 0 {
		return text
	}
	b.WriteString(text[done:])
	return b.String()
}

// Segment is a part of a prompt. Segments end only at control tokens that the template wrote, so
// each can be tokenized by itself without changing how its text is cut.
type Segment struct {
	Text string
	// Control: added and special tokens in Text are to be read as such. In a segment without it
	// they are what somebody typed, and become ordinary pieces.
	Control bool
}

// segments cuts a marked text: stretches between the template's control tokens that hold a
// look-alike from the request are apart from the rest.
func (m *marks) segments(text string) []Segment {
	plain := m.plain(text)
	if len(plain) == len(text) {
		return []Segment{{plain, true}}
	}
	var out []Segment
	put := func(text string, control bool) {
		if text == "" {
			return
		}
		if n := len(out); n > 0 && control && out[n-1].Control {
			out[n-1].Text += text
			return
		}
		out = append(out, Segment{text, control})
	}
	begin, typed := 0, false // the stretch that began at begin holds a look-alike
	for i, at := 0, 0; at < len(text); {
		r, size := utf8.DecodeRuneInString(text[at:])
		p, marked := m.char(r), m.isMark(r)
		if m.control.first[p] {
			token := m.control.at(plain[i:])
			switch {
			case token == "":
			case marked:
				typed = true
			default:
				put(plain[begin:i], !typed)
				put(token, true)
				i += len(token)
				at += markedLen(m, text[at:], len(token))
				begin, typed = i, false
				continue
			}
		}
		i += utf8.RuneLen(p)
		at += size
	}
	put(plain[begin:], !typed)
	return out
}

// markedLen is the length in marked text of its first n plain bytes.
func markedLen(m *marks, text string, n int) int {
	at := 0
	for n > 0 {
		r, size := utf8.DecodeRuneInString(text[at:])
		n -= utf8.RuneLen(m.char(r))
		at += size
	}
	return at
}

// view is a string and its plain text; offsets are those of the plain text.
type view struct {
	text, plain string
	offsets     []int // plain -> text; nil when they are the same
}

func (m *marks) view(text string) view {
	v := view{text: text, plain: m.plain(text)}
	if len(v.plain) != len(v.text) {
		v.offsets = make([]int, len(v.plain)+1)
		i := 0
		for at, r := range text {
			v.offsets[i] = at
			i += utf8.RuneLen(m.char(r))
		}
		v.offsets[i] = len(text)
	}
	return v
}

// cut is text[i:j] by plain offsets.
func (v view) cut(i, j int) string {
	if v.offsets == nil {
		return v.text[i:j]
	}
	return v.text[v.offsets[i]:v.offsets[j]]
}
