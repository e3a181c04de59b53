package grammar

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// Types of JSON values; a whole number is of both its types.
const (
	isNull = 1 << iota
	isBool
	isString
	isNumber
	isObject
	isArray
	allTypes = 1<<iota - 1
)

var typeNames = map[string]int{"null": isNull, "boolean": isBool, "string": isString, "number": isNumber, "integer": isNumber, "object": isObject, "array": isArray}

func typeOf(v *value) int {
	return map[byte]int{'n': isNull, 't': isBool, 'f': isBool, '"': isString, '0': isNumber, '{': isObject, '[': isArray}[byte(v.kind)]
}

// spec is what a conjunction asks for, its choices aside.
type spec struct {
	c      *compiler
	parts  conjunction
	where  string
	never  bool
	types  int
	values []*value // of enum and const; nil: any

	number bounds

	patterns           []*value
	formats            []*value
	minChars, maxChars int

	minItems, maxItems int

	required           []string
	isRequired         map[string]bool
	minProps, maxProps int
	hasProperties      bool
	bodyDFA            *dfa
}

// annotations say nothing of what is allowed. Definitions are read where they are referred to.
var annotations = []string{"title", "description", "default", "examples", "example", "deprecated", "readOnly", "writeOnly", "$schema", "$id", "$anchor",
	"$comment", "$defs", "definitions", "contentEncoding", "contentMediaType", "contentSchema", "$vocabulary", "discriminator", "externalDocs", "xml", "strict", "name"}

// known are the keywords that are read somewhere.
var known = []string{"type", "enum", "const", "anyOf", "oneOf", "allOf", "$ref", "pattern", "format", "minLength", "maxLength",
	"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "items", "prefixItems", "additionalItems", "minItems", "maxItems",
	"uniqueItems", "properties", "required", "additionalProperties", "patternProperties", "propertyNames", "minProperties", "maxProperties",
	"unevaluatedProperties", "unevaluatedItems"}

func (c *compiler) spec(all conjunction) *spec {
	s := &spec{c: c, parts: all, types: allTypes, maxChars: -1, maxItems: -1, maxProps: -1, where: "#"}
	if len(all) > 0 {
		s.where = all[0].v.pointer
	}
	typed := false
	for _, p := range all {
		v := p.v
		switch v.kind {
		case 't':
			continue
		case 'f':
			s.never = true
			continue
		case '{':
		default:
			fail(v.pointer, "want a schema, which is an object, true or false")
		}
		for i, name := range v.names {
			switch {
			case slices.Contains(known, name):
				if name == "type" {
					typed = true
				}
				s.keyword(name, v.items[i])
			case slices.Contains(annotations, name), strings.HasPrefix(name, "x-"):
			default:
				fail(v.pointer+"/"+escapePointer(name), "keyword %q is not supported", shortened(name))
			}
		}
	}
	if s.hasProperties && !typed && s.types == allTypes && s.values == nil {
		s.types = isObject
	}
	return s
}

func (s *spec) keyword(name string, v *value) {
	want := func(ok bool, what string) {
		if !ok {
			fail(v.pointer, "want %s", what)
		}
	}
	count := func() int {
		want(v.kind == '0', "a whole number")
		r := v.number()
		want(r != nil && r.IsInt() && r.Sign() >= 0, "a whole number that is not negative")
		if !r.Num().IsInt64() || r.Num().Int64() > math.MaxInt32 {
			return math.MaxInt32
		}
		return int(r.Num().Int64())
	}
	least := func(n *int) { *n = max(*n, count()) }
	most := func(n *int) {
		if k := count(); *n < 0 || k < *n {
			*n = k
		}
	}
	switch name {
	case "type":
		s.setType(v)
	case "const":
		s.restrict([]*value{v})
	case "enum":
		want(v.kind == '[' && len(v.items) > 0, "an array of values")
		s.restrict(v.items)
	case "pattern":
		want(v.kind == '"', "a string")
		s.patterns = append(s.patterns, v)
	case "format":
		want(v.kind == '"', "a string")
		s.formats = append(s.formats, v)
	case "minLength":
		least(&s.minChars)
	case "maxLength":
		most(&s.maxChars)
	case "minItems":
		least(&s.minItems)
	case "maxItems":
		most(&s.maxItems)
	case "minProperties":
		least(&s.minProps)
	case "maxProperties":
		most(&s.maxProps)
	case "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf":
		want(v.kind == '0', "a number")
		r := v.number()
		want(r != nil, "a number of a size that is supported")
		switch name {
		case "minimum":
			s.number.above(r, false)
		case "exclusiveMinimum":
			s.number.above(r, true)
		case "maximum":
			s.number.below(r, false)
		case "exclusiveMaximum":
			s.number.below(r, true)
		default:
			want(r.Sign() > 0, "a number above 0")
			if s.number.multiple != nil && s.number.multiple.Cmp(r) != 0 {
				fail(v.pointer, "several different multipleOf of one value are not supported")
			}
			s.number.multiple = r
		}
	case "uniqueItems":
		want(v.kind == 't' || v.kind == 'f', "true or false")
		if v.kind == 't' {
			if s.maxItems == 0 || s.maxItems == 1 {
				return
			}
			for _, p := range s.parts {
				if m := p.v.member("maxItems"); m != nil && (m.text == "0" || m.text == "1") {
					return
				}
			}
			fail(v.pointer, "uniqueItems is not supported")
		}
	case "required":
		want(v.kind == '[', "an array of names")
		for _, n := range v.items {
			want(n.kind == '"', "an array of names")
			if s.isRequired == nil {
				s.isRequired = map[string]bool{}
			}
			if !s.isRequired[n.text] {
				s.isRequired[n.text] = true
				s.required = append(s.required, n.text)
			}
		}
	case "properties", "patternProperties":
		want(v.kind == '{', "an object of schemas")
		s.hasProperties = s.hasProperties || name == "properties"
	case "unevaluatedItems":
		fail(v.pointer, "keyword %q is not supported", name)
	}
}

func (s *spec) setType(v *value) {
	names := []*value{v}
	if v.kind == '[' {
		names = v.items
	}
	types, fractions := 0, false
	for _, n := range names {
		t, ok := typeNames[n.text]
		if !ok || n.kind != '"' {
			fail(v.pointer, "%q is no type", shortened(n.text))
		}
		types |= t
		fractions = fractions || n.text == "number"
	}
	if len(names) == 0 {
		fail(v.pointer, "want a type")
	}
	s.types &= types
	if types&isNumber != 0 && !fractions {
		s.number.whole = true
	}
}

// restrict leaves only values that equal one of these.
func (s *spec) restrict(values []*value) {
	if s.values == nil {
		s.values = values
		return
	}
	if len(s.values)*len(values) > 1_000_000 {
		fail(s.where, "two large enum of one value are not supported")
	}
	var both []*value
	for _, v := range s.values {
		if slices.ContainsFunc(values, v.equal) {
			both = append(both, v)
		}
	}
	if s.values = both; both == nil {
		s.never = true
	}
}

// expr is the values that satisfy s.
func (s *spec) expr() Expr {
	if s.never {
		return Alt()
	}
	if s.values != nil {
		return s.constants()
	}
	if s.unconstrained() {
		return s.c.anyValue()
	}
	var parts []Expr
	if s.types&isNull != 0 {
		parts = append(parts, raw("null"))
	}
	if s.types&isBool != 0 {
		parts = append(parts, raw("true"), raw("false"))
	}
	if s.types&isString != 0 {
		parts = append(parts, s.stringExpr())
	}
	if s.types&isNumber != 0 {
		parts = append(parts, s.numberExpr())
	}
	if s.types&isObject != 0 {
		parts = append(parts, s.objectExpr())
	}
	if s.types&isArray != 0 {
		parts = append(parts, s.arrayExpr())
	}
	return Alt(parts...)
}

// unconstrained reports whether every value satisfies s.
func (s *spec) unconstrained() bool {
	if s.types != allTypes || s.number.whole {
		return false
	}
	for _, p := range s.parts {
		for _, name := range p.v.names {
			switch name {
			case "anyOf", "oneOf", "allOf", "$ref": // followed already
			default:
				if slices.Contains(known, name) {
					return false
				}
			}
		}
	}
	return true
}

func (s *spec) numberExpr() Expr {
	b := &s.number
	key := fmt.Sprint("number ", b.low, b.openLow, b.high, b.openHigh, b.multiple, b.whole)
	if e, ok := s.c.same[key]; ok {
		return e
	}
	e, why := b.expr()
	if why != "" {
		where := s.where
		for _, p := range s.parts {
			if m := p.v.member("multipleOf"); m != nil {
				where = m.pointer
			}
		}
		fail(where, "%s", why)
	}
	if s.number.free() {
		return e
	}
	e = named("number", e)
	s.c.same[key] = e
	return e
}

// constants are the values of enum and const that satisfy the rest.
func (s *spec) constants() Expr {
	var parts []Expr
	for _, v := range s.values {
		if s.holds(v) {
			parts = append(parts, s.c.constant(v))
		}
	}
	return Alt(parts...)
}

// holds checks a constant against the other keywords.
func (s *spec) holds(v *value) bool {
	t := typeOf(v)
	if s.types&t == 0 {
		return false
	}
	if t == isNumber {
		r := v.number()
		if r == nil {
			fail(v.pointer, "a number of a size that is not supported")
		}
		return s.number.contains(r) && (!s.number.whole || r.IsInt())
	}
	if t == isString && (len(s.patterns)+len(s.formats) > 0 || s.minChars > 0 || s.maxChars >= 0) {
		return s.body().accepts(escaped(v.text))
	}
	if t&(isObject|isArray) != 0 {
		for _, p := range s.parts {
			for i, name := range p.v.names {
				switch name {
				case "items", "prefixItems", "additionalItems", "minItems", "maxItems", "properties", "required", "additionalProperties",
					"patternProperties", "propertyNames", "minProperties", "maxProperties", "unevaluatedProperties":
					fail(p.v.items[i].pointer, "together with an enum or const of objects or arrays it is not supported")
				}
			}
		}
	}
	return true
}

// constant is one value.
func (c *compiler) constant(v *value) Expr {
	switch v.kind {
	case '"':
		return raw(quoted(v.text))
	case '0':
		return raw(v.text)
	case '[':
		var items []Expr
		for i, item := range v.items {
			if i > 0 {
				items = append(items, raw(","), c.space)
			}
			items = append(items, c.constant(item))
		}
		return Seq(raw("["), c.space, Seq(items...), c.closing(len(items)), raw("]"))
	case '{':
		var items []Expr
		for i, item := range v.items {
			if i > 0 {
				items = append(items, raw(","), c.space)
			}
			items = append(items, raw(quoted(v.names[i])+":"), c.space, c.constant(item))
		}
		return Seq(raw("{"), c.space, Seq(items...), c.closing(len(items)), raw("}"))
	}
	return raw(map[byte]string{'n': "null", 't': "true", 'f': "false"}[byte(v.kind)])
}

// closing is the white space before the end of what has n parts; without parts there was some already.
func (c *compiler) closing(n int) Expr {
	if n == 0 {
		return Expr{}
	}
	return c.space
}
