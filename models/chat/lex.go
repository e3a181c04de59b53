package chat

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// The lexer cuts a template source as Jinja2 does with trim_blocks and lstrip_blocks on (the
// reference library's settings): text tokens come out with all white-space rules applied, so
// nothing after it looks at white space again.

type tokenKind uint8

const (
	tokEOF tokenKind = iota
	tokText
	tokName
	tokString
	tokInt
	tokFloat
	tokOp
	tokVarBegin
	tokVarEnd
	tokBlockBegin
	tokBlockEnd
)

type token struct {
	kind tokenKind
	val  string
	line int
}

func (t token) String() string {
	switch t.kind {
	case tokEOF:
		return "end of template"
	case tokVarEnd:
		return "}}"
	case tokBlockEnd:
		return "%}"
	}
	return t.val
}

// normalize unifies line ends and drops one final line break.
func normalize(source string) string {
	source = strings.ReplaceAll(source, "\r\n", "\n")
	source = strings.ReplaceAll(source, "\r", "\n")
	return strings.TrimSuffix(source, "\n")
}

type lexer struct {
	src          string
	pos          int
	line         int
	lineStarting bool // the last token ended with a line break, or there was none
	toks         []token
}

func lex(source string) ([]token, error) {
	l := &lexer{src: source, line: 1, lineStarting: true}
	for l.pos < len(l.src) {
		at, kind := l.nextTag()
		if at < 0 {
			l.text(l.src[l.pos:])
			l.pos = len(l.src)
			break
		}
		text := l.src[l.pos:at]
		sign := byte(0)
		if at+2 < len(l.src) && (l.src[at+2] == '-' || l.src[at+2] == '+') {
			sign = l.src[at+2]
		}
		rawBody, isRaw := 0, false
		if kind == '%' {
			rawBody, isRaw = l.rawBegin(at)
		}
		l.text(l.strip(text, sign, kind))
		l.advance(at)
		var err error
		switch {
		case isRaw:
			l.advance(rawBody)
			err = l.raw()
		case kind == '#':
			err = l.comment()
		default:
			l.advance(at + 2)
			if sign == '-' || sign == '+' && kind == '%' {
				l.advance(l.pos + 1)
			}
			err = l.code(kind)
		}
		if err != nil {
			return nil, err
		}
		if l.pos > 0 {
			l.lineStarting = l.src[l.pos-1] == '\n'
		}
	}
	l.emit(tokEOF, "")
	return l.toks, nil
}

func (l *lexer) emit(kind tokenKind, val string) {
	l.toks = append(l.toks, token{kind, val, l.line})
}

func (l *lexer) text(s string) {
	if s != "" {
		l.emit(tokText, s)
	}
}

func (l *lexer) advance(to int) {
	l.line += strings.Count(l.src[l.pos:to], "\n")
	l.pos = to
}

func (l *lexer) errorf(format string, args ...any) error {
	return fmt.Errorf("chat template: line %d: %s", l.line, fmt.Sprintf(format, args...))
}

// nextTag finds the next {{, {% or {#; at is -1 when there is none.
func (l *lexer) nextTag() (at int, kind byte) {
	for i := l.pos; i+1 < len(l.src); i++ {
		if l.src[i] == '{' {
			switch k := l.src[i+1]; k {
			case '{', '%', '#':
				return i, k
			}
		}
	}
	return -1, 0
}

// strip applies what the tag after it does to a text: "-" removes all white space at its end; a
// block or comment alone on its line so far removes the indentation.
func (l *lexer) strip(text string, sign, kind byte) string {
	if sign == '-' {
		return strings.TrimRightFunc(text, isSpace)
	}
	if sign == '+' || kind == '{' {
		return text
	}
	lineStart := strings.LastIndexByte(text, '\n') + 1
	if indent := text[lineStart:]; (lineStart > 0 || l.lineStarting) && indent != "" && strings.TrimLeftFunc(indent, isSpace) == "" {
		return text[:lineStart]
	}
	return text
}

// end consumes a tag's end at the current place: sign and delimiter, then white space after a
// "-", or one line break where newline says so.
func (l *lexer) end(close string, newline bool) bool {
	rest := l.src[l.pos:]
	switch {
	case strings.HasPrefix(rest, "-"+close):
		rest = rest[1+len(close):]
		l.advance(len(l.src) - len(strings.TrimLeftFunc(rest, isSpace)))
	case newline && strings.HasPrefix(rest, "+"+close):
		l.advance(l.pos + 1 + len(close))
	case strings.HasPrefix(rest, close):
		l.advance(l.pos + len(close))
		if newline && l.pos < len(l.src) && l.src[l.pos] == '\n' {
			l.advance(l.pos + 1)
		}
	default:
		return false
	}
	return true
}

func (l *lexer) comment() error {
	for i := l.pos + 2; i < len(l.src); i++ {
		rest := l.src[i:]
		if strings.HasPrefix(rest, "#}") || strings.HasPrefix(rest, "-#}") || strings.HasPrefix(rest, "+#}") {
			l.advance(i)
			l.end("#}", true)
			return nil
		}
	}
	return l.errorf("comment without end")
}

// word skips white space, one word and white space, from i; ok is false when another word is there.
func (l *lexer) word(i int, word string) (int, bool) {
	skip := func(i int) int { return len(l.src) - len(strings.TrimLeftFunc(l.src[i:], isSpace)) }
	i = skip(i)
	if !strings.HasPrefix(l.src[i:], word) {
		return 0, false
	}
	return skip(i + len(word)), true
}

// rawBegin reports whether {% raw %} stands at i, and where its body begins.
func (l *lexer) rawBegin(i int) (body int, ok bool) {
	i += 2
	if i < len(l.src) && (l.src[i] == '-' || l.src[i] == '+') {
		i++
	}
	i, ok = l.word(i, "raw")
	if !ok {
		return 0, false
	}
	if strings.HasPrefix(l.src[i:], "-%}") {
		return len(l.src) - len(strings.TrimLeftFunc(l.src[i+3:], isSpace)), true
	}
	if strings.HasPrefix(l.src[i:], "%}") {
		return i + 2, true
	}
	return 0, false
}

func (l *lexer) raw() error {
	for i := l.pos; i < len(l.src); i++ {
		if !strings.HasPrefix(l.src[i:], "{%") {
			continue
		}
		j, sign := i+2, byte(0)
		if j < len(l.src) && (l.src[j] == '-' || l.src[j] == '+') {
			sign = l.src[j]
			j++
		}
		after, ok := l.word(j, "endraw")
		if !ok {
			continue
		}
		text := l.src[l.pos:i]
		here := l.pos
		l.pos = after
		if !l.end("%}", true) {
			l.pos = here
			continue
		}
		l.line += strings.Count(text, "\n")
		l.text(l.strip(text, sign, '%'))
		return nil
	}
	return l.errorf("raw block without end")
}

var closers = map[byte]byte{')': '(', ']': '[', '}': '{'}

// code cuts the inside of {{ }} or {% %}. Inside brackets the end delimiter is not one.
func (l *lexer) code(kind byte) error {
	closeTag, begin, endKind, newline := "}}", tokVarBegin, tokVarEnd, false
	if kind == '%' {
		closeTag, begin, endKind, newline = "%}", tokBlockBegin, tokBlockEnd, true
	}
	l.emit(begin, "")
	var open []byte
	for l.pos < len(l.src) {
		if len(open) == 0 && l.end(closeTag, newline) {
			l.emit(endKind, "")
			return nil
		}
		c := l.src[l.pos]
		r, size := utf8.DecodeRuneInString(l.src[l.pos:])
		switch {
		case isSpace(r):
			l.advance(l.pos + size)
		case c >= '0' && c <= '9':
			if err := l.number(); err != nil {
				return err
			}
		case c == '_' || unicode.IsLetter(r):
			if err := l.name(); err != nil {
				return err
			}
		case c == '\'' || c == '"':
			if err := l.string(c); err != nil {
				return err
			}
		default:
			op := ""
			for _, o := range []string{"//", "**", "==", "!=", ">=", "<="} {
				if strings.HasPrefix(l.src[l.pos:], o) {
					op = o
				}
			}
			if op == "" && strings.IndexByte("+-/*%~[](){}<>=.:|,;", c) >= 0 {
				op = string(c)
			}
			switch op {
			case "":
				return l.errorf("unexpected character %q", r)
			case "(", "[", "{":
				open = append(open, c)
			case ")", "]", "}":
				if len(open) == 0 || open[len(open)-1] != closers[c] {
					return l.errorf("unexpected %q", op)
				}
				open = open[:len(open)-1]
			}
			l.emit(tokOp, op)
			l.pos += len(op)
		}
	}
	return l.errorf("%s without end", closeTag)
}

func (l *lexer) name() error {
	i := l.pos
	for i < len(l.src) && isWord(l.src[i]) {
		i++
	}
	if r, _ := utf8.DecodeRuneInString(l.src[i:]); i < len(l.src) && (unicode.IsLetter(r) && r >= utf8.RuneSelf) {
		return l.errorf("the name at %q is not ASCII", l.src[l.pos:min(len(l.src), i+8)])
	}
	name := l.src[l.pos:i]
	if strings.HasPrefix(name, reserved) {
		return l.errorf("names that start with %s are reserved", reserved)
	}
	l.emit(tokName, name)
	l.pos = i
	return nil
}

func isWord(c byte) bool {
	return c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}

// number reads Python's decimal, hexadecimal, octal and binary literals; "_" is taken out.
func (l *lexer) number() error {
	digits := func(i int) int {
		for i < len(l.src) && (l.src[i] >= '0' && l.src[i] <= '9' || l.src[i] == '_' && i+1 < len(l.src) && isDigit(l.src[i+1])) {
			i++
		}
		return i
	}
	start := l.pos
	if l.src[start] == '0' && start+1 < len(l.src) && strings.IndexByte("xXoObB", l.src[start+1]) >= 0 {
		i := start + 2
		for i < len(l.src) && isWord(l.src[i]) {
			i++
		}
		l.emit(tokInt, strings.ReplaceAll(l.src[start:i], "_", ""))
		l.pos = i
		return nil
	}
	i, kind := digits(start), tokInt
	afterDot := start > 0 && l.src[start-1] == '.'
	if !afterDot && i+1 < len(l.src) && l.src[i] == '.' && isDigit(l.src[i+1]) {
		i, kind = digits(i+1), tokFloat
	}
	if !afterDot && i < len(l.src) && (l.src[i] == 'e' || l.src[i] == 'E') {
		j := i + 1
		if j < len(l.src) && (l.src[j] == '+' || l.src[j] == '-') {
			j++
		}
		if j < len(l.src) && isDigit(l.src[j]) {
			i, kind = digits(j), tokFloat
		}
	}
	text := strings.ReplaceAll(l.src[start:i], "_", "")
	if kind == tokInt && len(text) > 1 && text[0] == '0' && strings.Trim(text, "0") != "" {
		return l.errorf("number %s starts with 0", text)
	}
	l.emit(kind, text)
	l.pos = i
	return nil
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

func (l *lexer) string(quote byte) error {
	for i := l.pos + 1; i < len(l.src); i++ {
		switch l.src[i] {
		case '\\':
			i++
		case quote:
			val, err := unescape(l.src[l.pos+1 : i])
			if err != nil {
				return l.errorf("%v", err)
			}
			l.emit(tokString, val)
			l.advance(i + 1)
			return nil
		}
	}
	return l.errorf("string without end")
}

// unescape reads Python's escapes; a backslash before any other character stays.
func unescape(s string) (string, error) {
	if strings.IndexByte(s, '\\') < 0 {
		return s, nil
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 == len(s) {
			b.WriteByte(s[i])
			continue
		}
		i++
		switch c := s[i]; c {
		case '\n':
		case '\\', '\'', '"':
			b.WriteByte(c)
		case 'a', 'b', 'f', 'n', 'r', 't', 'v':
			b.WriteByte("\a\b\f\n\r\t\v"[strings.IndexByte("abfnrtv", c)])
		case 'x', 'u', 'U':
			n := map[byte]int{'x': 2, 'u': 4, 'U': 8}[c]
			r, ok := parseDigits(s[i+1:], n, 16)
			if !ok || !utf8.ValidRune(r) {
				return "", fmt.Errorf("bad escape \\%c", c)
			}
			b.WriteRune(r)
			i += n
		case '0', '1', '2', '3', '4', '5', '6', '7':
			n := 1
			for n < 3 && i+n < len(s) && s[i+n] >= '0' && s[i+n] <= '7' {
				n++
			}
			r, _ := parseDigits(s[i:], n, 8)
			b.WriteRune(r)
			i += n - 1
		case 'N':
			return "", fmt.Errorf("escape \\N is not supported")
		default:
			b.WriteByte('\\')
			b.WriteByte(c)
		}
	}
	return b.String(), nil
}

func parseDigits(s string, n, base int) (rune, bool) {
	if len(s) < n {
		return 0, false
	}
	var r int64
	for i := range n {
		d := strings.IndexByte("0123456789abcdef", s[i]|0x20)
		if isDigit(s[i]) {
			d = int(s[i] - '0')
		}
		if d < 0 || d >= base {
			return 0, false
		}
		r = r*int64(base) + int64(d)
	}
	if r > unicode.MaxRune {
		return 0, false
	}
	return rune(r), true
}

// isSpace is Python's str.isspace for one character.
func isSpace(r rune) bool {
	return unicode.IsSpace(r) || r >= 0x1c && r <= 0x1f
}
