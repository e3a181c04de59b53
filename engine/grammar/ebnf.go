package grammar

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// EBNF reads a grammar in GBNF notation, as xgrammar and llama.cpp have it: rules name ::= expression, of which root is
// the answer; "literals" with the escapes of C, [classes], (groups), alternatives with |, the quantifiers * + ? {n,m},
// and # comments. A rule may use itself but not begin with itself.
func EBNF(text string) (e Expr, err error) {
	p := &ebnf{regex: regex{text: text, spell: oneOf}, rules: map[string]*rule{}, used: map[string]int{}}
	defer func() {
		switch f := recover().(type) {
		case nil:
		case syntax:
			at := min(p.at, len(text))
			f.Where = fmt.Sprintf("line %d", 1+strings.Count(text[:at], "\n"))
			e, err = Expr{}, f.Error
		default:
			panic(f)
		}
	}()
	if len(text) > maxPattern {
		p.fail("the grammar has more than %d bytes", maxPattern)
	}
	if !utf8.ValidString(text) {
		p.fail("the grammar is not UTF-8")
	}
	for p.space(true); p.more(); p.space(true) {
		p.rule()
	}
	for name, at := range p.used {
		if p.rules[name].body.n == nil && !p.defined(name) {
			p.at = at
			p.fail("rule %q is not defined", name)
		}
	}
	root := p.rules["root"]
	if root == nil || !p.defined("root") {
		p.fail("there is no rule root (the notation is GBNF: root ::= ...)")
	}
	return Expr{&node{op: opRule, rule: root}}, nil
}

type ebnf struct {
	regex
	rules   map[string]*rule
	used    map[string]int
	defines map[string]bool
}

func (p *ebnf) defined(name string) bool { return p.defines[name] }

// space skips white space and comments; lines: also ends of lines.
func (p *ebnf) space(lines bool) {
	for p.more() {
		switch c := p.text[p.at]; {
		case c == ' ', c == '\t', (c == '\n' || c == '\r') && lines:
			p.at++
		case c == '#':
			for p.more() && p.text[p.at] != '\n' {
				p.at++
			}
		default:
			return
		}
	}
}

func isName(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-' || c == '.'
}

func (p *ebnf) name() string {
	from := p.at
	for p.more() && isName(p.text[p.at]) {
		p.at++
	}
	return p.text[from:p.at]
}

func (p *ebnf) of(name string) *rule {
	r := p.rules[name]
	if r == nil {
		r = &rule{name: name}
		p.rules[name] = r
	}
	return r
}

func (p *ebnf) rule() {
	name := p.name()
	p.space(false)
	if name == "" || !p.accept("::=") {
		p.fail("want a rule: name ::= expression (the notation is GBNF)")
	}
	if p.defined(name) {
		p.fail("rule %q is defined twice", name)
	}
	if p.defines == nil {
		p.defines = map[string]bool{}
	}
	p.defines[name] = true
	p.of(name).body = p.alternatives()
	p.space(false)
	if p.more() && p.text[p.at] != '\n' && p.text[p.at] != '\r' && !p.begins() {
		p.fail("%q is not expected here", p.text[p.at:p.at+1])
	}
}

// begins reports whether a new rule begins here, skipping lines.
func (p *ebnf) begins() bool {
	back := p.at
	defer func() { p.at = back }()
	p.space(true)
	if p.name() == "" {
		return false
	}
	p.space(false)
	return p.accept("::=")
}

func (p *ebnf) alternatives() Expr {
	var all []Expr
	for {
		all = append(all, p.sequence())
		back := p.at
		p.space(true)
		if !p.accept("|") {
			p.at = back
			break
		}
	}
	if len(all) == 1 {
		return all[0]
	}
	return Alt(all...)
}

func (p *ebnf) sequence() Expr {
	var parts []Expr
	for {
		back := p.at
		p.space(true)
		if !p.more() || p.text[p.at] == '|' || p.text[p.at] == ')' || p.begins() {
			p.at = back
			return Seq(parts...)
		}
		parts = append(parts, p.item())
	}
}

func (p *ebnf) item() Expr {
	var e Expr
	switch c := p.text[p.at]; {
	case c == '"':
		e = p.literal()
	case c == '[':
		e = oneOf(p.class())
	case c == '.':
		p.at++
		e = oneOf(anyChar)
	case c == '(':
		p.at++
		if p.deep++; p.deep > maxNesting {
			p.fail("groups nest more than %d deep", maxNesting)
		}
		e = p.alternatives()
		p.deep--
		p.space(true)
		if !p.accept(")") {
			p.fail("a ( without a )")
		}
	case isName(c):
		at := p.at
		name := p.name()
		p.used[name] = at
		e = Expr{&node{op: opRule, rule: p.of(name)}}
	default:
		r, _ := utf8.DecodeRuneInString(p.text[p.at:])
		p.fail("%q is not expected here", r)
	}
	for p.more() {
		switch {
		case p.accept("*"):
			e = Repeat(e, 0, -1)
		case p.accept("+"):
			e = Repeat(e, 1, -1)
		case p.accept("?"):
			e = optional(e)
		case p.text[p.at] == '{':
			low, high := p.bounds()
			e = Repeat(e, low, high)
		default:
			return e
		}
	}
	return e
}

func (p *ebnf) literal() Expr {
	p.at++
	var out []rune
	for {
		if !p.more() || p.text[p.at] == '\n' {
			p.fail("a \" without its end")
		}
		if p.accept(`"`) {
			return raw(string(out))
		}
		if p.text[p.at] == '\\' {
			c := p.escape(true)
			if len(c) != 1 || c[0].lo != c[0].hi {
				p.fail("a class in a literal")
			}
			out = append(out, c[0].lo)
			continue
		}
		r, n := utf8.DecodeRuneInString(p.text[p.at:])
		p.at += n
		out = append(out, r)
	}
}
