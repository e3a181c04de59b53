package grammar

import (
	"math"
	"math/big"
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
	notPatterns        []*value
	except             []*value // that it is none of

	minItems, maxItems int
	unique             *value // the keyword, if items are to differ
	contains           []contained

	required           []string
	isRequired         map[string]bool
	minProps, maxProps int
	hasProperties      bool
	hasType            bool
	memberDemands      []*memberDemand
	bodyDFA            *dfa
}

// annotations say nothing of what is allowed. Definitions are read where they are referred to.
var annotations = []string{"title", "description", "default", "examples", "example", "deprecated", "readOnly", "writeOnly", "$schema", "$id", "$anchor",
	"$comment", "$defs", "definitions", "$dynamicAnchor", "$recursiveAnchor", "contentEncoding", "contentMediaType", "contentSchema", "$vocabulary", "discriminator", "externalDocs", "xml", "strict", "name"}

// known are the keywords that are read somewhere.
var known = []string{"type", "enum", "const", "anyOf", "oneOf", "allOf", "$ref", "pattern", "format", "minLength", "maxLength",
	"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "items", "prefixItems", "additionalItems", "minItems", "maxItems",
	"uniqueItems", "properties", "required", "additionalProperties", "patternProperties", "propertyNames", "minProperties", "maxProperties",
	"unevaluatedProperties", "unevaluatedItems", "not", "if", "then", "else", "contains", "minContains", "maxContains", "dependentRequired",
	"dependentSchemas", "dependencies", "$dynamicRef", "$recursiveRef"}

func (c *compiler) spec(all conjunction) *spec {
	s := &spec{c: c, parts: all, types: allTypes, maxChars: -1, maxItems: -1, maxProps: -1, where: "#"}
	if len(all) > 0 {
		s.where = all[0].v.pointer
	}
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
				s.keyword(v, name, v.items[i])
			case slices.Contains(annotations, name), strings.HasPrefix(name, "x-"):
			default:
				fail(v.pointer+"/"+escapePointer(name), "keyword %q is not supported", shortened(name))
			}
		}
	}
	for _, p := range all {
		if p.v.demand != nil {
			s.demand(p.v.demand)
		}
	}
	return s
}

// demand takes what a complement asks for.
func (s *spec) demand(d *demand) {
	s.except = append(s.except, d.others...)
	for _, v := range d.others {
		switch v.kind {
		case 'n':
			s.types &^= isNull
		case '0':
			s.number.exclude(v)
		}
	}
	has := func(kind byte) bool {
		return slices.ContainsFunc(s.except, func(v *value) bool { return byte(v.kind) == kind })
	}
	if has('t') && has('f') {
		s.types &^= isBool
	}
	if d.pattern != nil {
		s.notPatterns = append(s.notPatterns, d.pattern)
	}
	s.number.fraction = s.number.fraction || d.fraction
	if d.multiple != nil {
		s.number.notMultiples = append(s.number.notMultiples, multiple(d.multiple))
	}
	if d.member != nil {
		s.memberDemands = append(s.memberDemands, d.member)
	}
	if d.item != nil {
		s.contains = append(s.contains, contained{d.item.schema, d.item.from, 1, -1})
	}
}

// count is a number of things.
func (v *value) count() int {
	r := v.number()
	if v.kind != '0' || r == nil || !r.IsInt() || r.Sign() < 0 {
		fail(v.pointer, "want a whole number that is not negative")
	}
	if !r.Num().IsInt64() || r.Num().Int64() > math.MaxInt32 {
		return math.MaxInt32
	}
	return int(r.Num().Int64())
}

// multiple is the number of multipleOf.
func multiple(v *value) *big.Rat {
	r := v.number()
	if v.kind != '0' || r == nil || r.Sign() <= 0 {
		fail(v.pointer, "want a number above 0 of a size that is supported")
	}
	return r
}

// keyword takes one of the schema of.
func (s *spec) keyword(of *value, name string, v *value) {
	want := func(ok bool, what string) {
		if !ok {
			fail(v.pointer, "want %s", what)
		}
	}
	least := func(n *int) { *n = max(*n, v.count()) }
	most := func(n *int) {
		if k := v.count(); *n < 0 || k < *n {
			*n = k
		}
	}
	switch name {
	case "type":
		s.setType(of, v)
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
	case "multipleOf":
		s.number.divide(multiple(v))
	case "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum":
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
		default:
			s.number.below(r, true)
		}
	case "uniqueItems":
		want(v.kind == 't' || v.kind == 'f', "true or false")
		if v.kind == 't' {
			s.unique = v
		}
	case "contains":
		least, most := containsCounts(of)
		s.contains = append(s.contains, contained{v, 0, least, most})
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
		s.hasProperties = s.hasProperties || name == "properties" && !of.made
	}
}

func (s *spec) setType(of, v *value) {
	s.hasType = s.hasType || !of.made
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
	if s.hasProperties && !s.hasType && s.types&isObject != 0 {
		s.types = isObject
	}
	if s.unconstrained() {
		return s.c.anyValue()
	}
	var parts []Expr
	if s.types&isNull != 0 {
		parts = append(parts, raw("null"))
	}
	if s.types&isBool != 0 {
		for _, v := range []*value{truth("", true), truth("", false)} {
			if !slices.ContainsFunc(s.except, v.equal) {
				parts = append(parts, s.c.constant(v))
			}
		}
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
		if p.v.demand != nil {
			return false
		}
		for _, name := range p.v.names {
			switch name {
			case "anyOf", "oneOf", "allOf", "$ref", "$dynamicRef", "$recursiveRef", "not", "if", "then", "else": // followed already
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
	key := "number " + b.String()
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
