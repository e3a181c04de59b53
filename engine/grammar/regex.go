package grammar

import (
	"fmt"
	"strconv"
	"unicode"
	"unicode/utf8"
)

// Limits of patterns and grammars that are read.
const (
	maxRepeat  = 100_000 // of {n,m}
	maxPattern = 256 << 10
	maxNesting = 200
)

// Regex is the texts that a regular expression matches as a whole, in the dialect of ECMAScript with the u flag:
// literals, classes, \d \w \s \p{...}, groups, alternatives and quantifiers, lazy or not. ^ and $ may stand at the ends,
// where they say nothing. Look-around, back references and word borders are not supported.
func Regex(pattern string) (Expr, error) {
	p := &regex{text: pattern, spell: oneOf}
	e, err := p.parse()
	if err != nil {
		return Expr{}, err
	}
	return e, nil
}

// regex reads one pattern.
type regex struct {
	text   string
	at     int
	deep   int
	search bool             // without anchors, anything may stand around it
	spell  func(class) Expr // how a character of a class is written
}

type syntax struct{ *Error }

func (p *regex) fail(format string, args ...any) {
	panic(syntax{&Error{"byte " + strconv.Itoa(p.at), fmt.Sprintf(format, args...)}})
}

func (p *regex) parse() (e Expr, err error) {
	defer func() {
		switch f := recover().(type) {
		case nil:
		case syntax:
			e, err = Expr{}, f.Error
		default:
			panic(f)
		}
	}()
	if len(p.text) > maxPattern {
		p.fail("the pattern has more than %d bytes", maxPattern)
	}
	if !utf8.ValidString(p.text) {
		p.fail("the pattern is not UTF-8")
	}
	e = p.alternatives(true)
	if p.at < len(p.text) {
		p.fail("a ) without a (")
	}
	return e, nil
}

func (p *regex) more() bool { return p.at < len(p.text) }

func (p *regex) accept(s string) bool {
	if len(p.text)-p.at >= len(s) && p.text[p.at:p.at+len(s)] == s {
		p.at += len(s)
		return true
	}
	return false
}

func (p *regex) alternatives(top bool) Expr {
	var all []Expr
	for {
		all = append(all, p.sequence(top))
		if !p.accept("|") {
			break
		}
	}
	if len(all) == 1 {
		return all[0]
	}
	return Alt(all...)
}

func (p *regex) sequence(top bool) Expr {
	var parts []Expr
	begun, ended := false, false
	for p.more() && p.text[p.at] != '|' && p.text[p.at] != ')' {
		if ended {
			p.fail("$ is supported at the end only")
		}
		switch {
		case p.accept("^"):
			if !top || len(parts) > 0 {
				p.at--
				p.fail("^ is supported at the beginning only")
			}
			begun = true
			continue
		case p.accept("$"):
			if !top {
				p.at--
				p.fail("$ is supported at the end only")
			}
			ended = true
			continue
		}
		parts = append(parts, p.quantified())
	}
	if top && p.search {
		around := Repeat(p.spell(anyChar), 0, -1)
		if !begun {
			parts = append([]Expr{around}, parts...)
		}
		if !ended {
			parts = append(parts, around)
		}
	}
	return Seq(parts...)
}

func (p *regex) quantified() Expr {
	e := p.atom()
	for n := 0; p.more(); n++ {
		low, high := 0, -1
		switch {
		case p.accept("*"):
		case p.accept("+"):
			low = 1
		case p.accept("?"):
			high = 1
		case p.text[p.at] == '{':
			low, high = p.bounds()
		default:
			return e
		}
		if n > 0 {
			p.fail("a quantifier after a quantifier")
		}
		p.accept("?") // which match is found first does not matter here
		e = Repeat(e, low, high)
	}
	return e
}

// bounds reads {n}, {n,} or {n,m}.
func (p *regex) bounds() (low, high int) {
	p.at++
	number := func() int {
		from := p.at
		for p.more() && p.text[p.at] >= '0' && p.text[p.at] <= '9' {
			p.at++
		}
		n, err := strconv.Atoi(p.text[from:p.at])
		if err != nil || n > maxRepeat {
			p.fail("want {n}, {n,} or {n,m} with numbers up to %d", maxRepeat)
		}
		return n
	}
	low = number()
	high = low
	if p.accept(",") {
		high = -1
		if p.more() && p.text[p.at] != '}' {
			high = number()
		}
	}
	if !p.accept("}") || high >= 0 && high < low {
		p.fail("want {n}, {n,} or {n,m} with n up to m")
	}
	return low, high
}

func (p *regex) atom() Expr {
	switch c := p.text[p.at]; c {
	case '(':
		p.at++
		if p.accept("?") {
			switch {
			case p.accept(":"):
			case p.accept("<") && p.more() && p.text[p.at] != '=' && p.text[p.at] != '!', p.accept("P<"):
				for p.more() && !p.accept(">") {
					p.at++
				}
			default:
				p.fail("look-around and flags are not supported")
			}
		}
		if p.deep++; p.deep > maxNesting {
			p.fail("groups nest more than %d deep", maxNesting)
		}
		e := p.alternatives(false)
		p.deep--
		if !p.accept(")") {
			p.fail("a ( without a )")
		}
		return e
	case '[':
		return p.spell(p.class())
	case '.':
		p.at++
		return p.spell(anyChar.minus(chars("\n\r\u2028\u2029")))
	case '\\':
		return p.spell(p.escape(false))
	case '*', '+', '?', '{':
		p.fail("a quantifier without anything before it")
	}
	r, n := utf8.DecodeRuneInString(p.text[p.at:])
	p.at += n
	return p.spell(class{{r, r}})
}

var (
	digits = newClass(span{'0', '9'})
	words  = newClass(span{'0', '9'}, span{'A', 'Z'}, span{'a', 'z'}, span{'_', '_'})
	spaces = chars("\t\n\v\f\r \u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000\ufeff")
)

// escape reads what begins with a backslash.
func (p *regex) escape(inClass bool) class {
	p.at++
	if !p.more() {
		p.fail("a \\ at the end")
	}
	r, n := utf8.DecodeRuneInString(p.text[p.at:])
	p.at += n
	one := func(r rune) class { return class{{r, r}} }
	switch r {
	case 'd':
		return digits
	case 'D':
		return anyChar.minus(digits)
	case 'w':
		return words
	case 'W':
		return anyChar.minus(words)
	case 's':
		return spaces
	case 'S':
		return anyChar.minus(spaces)
	case 'n':
		return one('\n')
	case 'r':
		return one('\r')
	case 't':
		return one('\t')
	case 'f':
		return one('\f')
	case 'v':
		return one('\v')
	case '0':
		return one(0)
	case 'b':
		if inClass {
			return one('\b')
		}
	case 'c':
		if p.more() && (p.text[p.at]|0x20) >= 'a' && (p.text[p.at]|0x20) <= 'z' {
			p.at++
			return one(rune(p.text[p.at-1] & 31))
		}
	case 'x':
		return one(p.hex(2))
	case 'u':
		if p.accept("{") {
			from := p.at
			for p.more() && p.text[p.at] != '}' {
				p.at++
			}
			v, err := strconv.ParseUint(p.text[from:p.at], 16, 32)
			if err != nil || v > utf8.MaxRune || !p.accept("}") {
				p.fail("want \\u{hexadecimal digits}")
			}
			return one(rune(v))
		}
		v := p.hex(4)
		if v >= 0xD800 && v < 0xDC00 && p.accept(`\u`) {
			return one(0x10000 + (v-0xD800)<<10 + (p.hex(4) - 0xDC00))
		}
		return one(v)
	case 'p', 'P':
		return p.property(r == 'P')
	default:
		if r < utf8.RuneSelf && !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9') {
			return one(r)
		}
	}
	p.fail("\\%c is not supported", r)
	return nil
}

func (p *regex) hex(n int) rune {
	if p.at+n <= len(p.text) {
		if v, err := strconv.ParseUint(p.text[p.at:p.at+n], 16, 32); err == nil {
			p.at += n
			return rune(v)
		}
	}
	p.fail("want %d hexadecimal digits", n)
	return 0
}

// property reads {Name}, a general category or a script of Unicode.
func (p *regex) property(not bool) class {
	if !p.accept("{") {
		p.fail("want \\p{...}")
	}
	from := p.at
	for p.more() && p.text[p.at] != '}' {
		p.at++
	}
	name := p.text[from:p.at]
	if !p.accept("}") {
		p.fail("want \\p{...}")
	}
	for _, prefix := range []string{"Script=", "sc=", "General_Category=", "gc="} {
		if len(name) > len(prefix) && name[:len(prefix)] == prefix {
			name = name[len(prefix):]
		}
	}
	if short, ok := map[string]string{"Letter": "L", "Number": "N", "Punctuation": "P", "Symbol": "S", "Separator": "Z", "Mark": "M",
		"Uppercase_Letter": "Lu", "Lowercase_Letter": "Ll", "Decimal_Number": "Nd", "digit": "Nd", "punct": "P"}[name]; ok {
		name = short
	}
	table := unicode.Categories[name]
	if table == nil {
		table = unicode.Scripts[name]
	}
	if table == nil {
		p.fail("\\p{%.40s} is not supported", name)
	}
	var all []span
	for _, r := range table.R16 {
		for c := rune(r.Lo); c <= rune(r.Hi); c += rune(r.Stride) {
			if r.Stride == 1 {
				all = append(all, span{rune(r.Lo), rune(r.Hi)})
				break
			}
			all = append(all, span{c, c})
		}
	}
	for _, r := range table.R32 {
		for c := rune(r.Lo); c <= rune(r.Hi); c += rune(r.Stride) {
			if r.Stride == 1 {
				all = append(all, span{rune(r.Lo), rune(r.Hi)})
				break
			}
			all = append(all, span{c, c})
		}
	}
	c := newClass(all...)
	if not {
		return anyChar.minus(c)
	}
	return c
}

func (p *regex) class() class {
	p.at++
	not := p.accept("^")
	var all []span
	for first := true; ; first = false {
		if !p.more() {
			p.fail("a [ without a ]")
		}
		if p.accept("]") && !first {
			break
		} else if first && p.text[p.at-1] == ']' { // an empty class
			break
		}
		from := p.member()
		if p.more() && p.text[p.at] == '-' && p.at+1 < len(p.text) && p.text[p.at+1] != ']' {
			p.at++
			to := p.member()
			if len(from) != 1 || len(to) != 1 || from[0].lo != from[0].hi || to[0].lo != to[0].hi || from[0].lo > to[0].lo {
				p.fail("a range of a class whose ends are not two characters in order")
			}
			from = class{{from[0].lo, to[0].lo}}
		}
		all = append(all, from...)
	}
	c := newClass(all...)
	if not {
		return anyChar.minus(c)
	}
	return c
}

func (p *regex) member() class {
	if !p.more() {
		p.fail("a [ without a ]")
	}
	if p.text[p.at] == '\\' {
		return p.escape(true)
	}
	r, n := utf8.DecodeRuneInString(p.text[p.at:])
	p.at += n
	return class{{r, r}}
}
