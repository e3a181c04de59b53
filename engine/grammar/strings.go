package grammar

import (
	"fmt"
	"slices"
	"strings"
)

// maxChars is the longest string that is counted: one that may have more characters has at most so many.
const maxChars = 2000

// stringExpr is the strings that satisfy s.
func (s *spec) stringExpr() Expr {
	if !s.limitsStrings() {
		return anyString()
	}
	key := fmt.Sprintf("string %d %d", s.minChars, s.maxChars)
	for _, v := range slices.Concat(s.patterns, s.formats) {
		key += fmt.Sprintf(" %s %q", v.pointer[strings.LastIndexByte(v.pointer, '/')+1:], v.text)
	}
	for _, v := range s.notPatterns {
		key += fmt.Sprintf(" not %q", v.text)
	}
	for _, v := range s.except {
		if v.kind == '"' {
			key += fmt.Sprintf(" other %q", v.text)
		}
	}
	e, ok := s.c.same[key]
	if !ok {
		e = named("string", Seq(raw(`"`), s.stringBody(), raw(`"`)))
		s.c.same[key] = e
	}
	return e
}

// limitsStrings reports whether some string does not satisfy s.
func (s *spec) limitsStrings() bool {
	return len(s.patterns)+len(s.formats)+len(s.notPatterns) > 0 || s.minChars > 0 || s.maxChars >= 0 ||
		slices.ContainsFunc(s.except, func(v *value) bool { return v.kind == '"' })
}

// stringBody is what stands between the quotes: regular.
func (s *spec) stringBody() Expr {
	var all []Expr
	for _, v := range s.patterns {
		all = append(all, s.c.pattern(v, v.text))
	}
	for _, v := range s.formats {
		if e, ok := formatExpr(v.text); !ok {
			fail(v.pointer, "format %q is not supported", shortened(v.text))
		} else if e.n != nil {
			all = append(all, e)
		}
	}
	if s.minChars > 0 || s.maxChars >= 0 {
		most := s.maxChars
		if s.minChars > maxChars {
			fail(s.where+"/minLength", "more than %d is not supported", maxChars)
		}
		if most > maxChars {
			most = maxChars
		}
		if most >= 0 && most < s.minChars {
			return Alt()
		}
		all = append(all, Repeat(anyWritten(), s.minChars, most))
	}
	if !s.limitsStrings() {
		return Repeat(freeChar(), 0, -1)
	}
	if len(all) == 0 {
		all = append(all, Repeat(anyWritten(), 0, -1))
	}
	e := all[0]
	for _, o := range all[1:] {
		e = and(e, o)
	}
	for _, v := range s.notPatterns {
		if v.kind != '"' {
			fail(v.pointer, "want a string")
		}
		e = minus(e, s.c.pattern(v, v.text))
	}
	var others []Expr
	for _, v := range s.except {
		if v.kind == '"' {
			others = append(others, raw(escaped(v.text)))
		}
	}
	if len(others) > 0 {
		e = minus(e, Alt(others...))
	}
	return e
}

// strings is what stands between the quotes of the strings that satisfy a schema.
func (c *compiler) strings(all conjunction) Expr {
	defer c.deeper(all)()
	flat := c.flatten(all)
	if each, open := c.branches(flat); open {
		parts := make([]Expr, len(each))
		for i, next := range each {
			parts[i] = c.strings(next)
		}
		return Alt(parts...)
	}
	s := c.spec(flat)
	switch {
	case s.never || s.types&isString == 0:
		return Alt()
	case s.values != nil:
		var parts []Expr
		for _, v := range s.values {
			if v.kind == '"' && s.holds(v) {
				parts = append(parts, raw(escaped(v.text)))
			}
		}
		return Alt(parts...)
	}
	return s.stringBody()
}

// accepts reports whether a text is in what d was made of.
func (d *dfa) accepts(text string) bool {
	at := int32(0)
	for i := range len(text) {
		next := int32(-1)
		for _, e := range d.edges(at) {
			if int32(text[i]) >= e.lo && int32(text[i]) <= e.hi {
				next = e.to
			}
		}
		if next < 0 {
			return false
		}
		at = next
	}
	return d.final[at]
}

// body is the automaton of stringBody.
func (s *spec) body() *dfa {
	if s.bodyDFA == nil {
		s.bodyDFA = s.c.check.compile(s.stringBody())
	}
	return s.bodyDFA
}

// formats by name; "": one that is an annotation to what it is used for. Days are those of every year: the 29th of February is left out.
var formats = map[string]string{
	"date":                  date,
	"time":                  clock,
	"date-time":             date + `T` + clock,
	"uuid":                  `[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}`,
	"ipv4":                  octet + `(\.` + octet + `){3}`,
	"ipv6":                  `([0-9a-fA-F]{1,4}:){7}[0-9a-fA-F]{1,4}|::([0-9a-fA-F]{1,4}(:[0-9a-fA-F]{1,4}){0,5})?|[0-9a-fA-F]{1,4}(:[0-9a-fA-F]{1,4}){0,2}::([0-9a-fA-F]{1,4}(:[0-9a-fA-F]{1,4}){0,2})?`,
	"email":                 address,
	"hostname":              host,
	"uri":                   link,
	"duration":              `P([0-9]{1,4}W|[0-9]{1,4}D(T` + hours + `)?|[0-9]{1,4}M([0-9]{1,4}D)?(T` + hours + `)?|[0-9]{1,4}Y([0-9]{1,4}M([0-9]{1,4}D)?)?(T` + hours + `)?|T` + hours + `)`,
	"json-pointer":          pointer,
	"relative-json-pointer": `(0|[1-9][0-9]{0,3})(#|` + pointer + `)`,
	"uri-reference":         reference,
	"iri":                   link,
	"iri-reference":         reference,
	"uri-template":          `(https?|ftp)://` + label + `(\.` + label + `){0,3}(/([A-Za-z0-9._~-]|\{[a-z][a-z0-9_]*\})*)*`,
	"idn-email":             address,
	"idn-hostname":          host,
	"regex":                 `(([A-Za-z0-9 _-]|\.|\\\\[dDwWsS.])[*+?]?)*`, // a backslash is written as two
	"int32":                 "", "int64": "", "float": "", "double": "", "password": "",
}

const (
	date      = `[0-9]{4}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-8]))`
	clock     = `([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])`
	octet     = `(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])`
	label     = `[a-z0-9]([a-z0-9]{0,20}[a-z0-9])?`
	host      = label + `(\.` + label + `){0,3}`
	address   = `[A-Za-z0-9_+-]{1,20}(\.[A-Za-z0-9_+-]{1,20}){0,2}@` + label + `(\.` + label + `){1,3}`
	link      = `(https?|ftp)://` + label + `(\.` + label + `){0,3}(:[1-9][0-9]{0,3})?` + path
	path      = `(/[A-Za-z0-9._~-]*)*(\?[A-Za-z0-9._~=&-]*)?(#[A-Za-z0-9._~-]*)?`
	reference = link + `|([A-Za-z0-9_~-]+)?` + path
	pointer   = `(/([A-Za-z0-9_.-]|~[01])*)*`
	hours     = `([0-9]{1,4}S|[0-9]{1,4}M([0-9]{1,4}S)?|[0-9]{1,4}H([0-9]{1,4}M([0-9]{1,4}S)?)?)`
)

func formatExpr(name string) (e Expr, ok bool) {
	text, ok := formats[name]
	if !ok || text == "" {
		return Expr{}, ok
	}
	return mustRegex(text), true
}
