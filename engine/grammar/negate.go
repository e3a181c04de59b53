package grammar

import (
	"slices"
	"strconv"
	"strings"
)

// demand is what a complement asks for and no keyword says.
type demand struct {
	others   []*value // a value that is none of these, which are not arrays or objects
	pattern  *value   // a string that this does not match
	fraction bool     // a number that is not whole
	multiple *value   // a number that is not a multiple of this
	member   *memberDemand
	item     *itemDemand
}

// memberDemand is that an object has a member of some kind.
type memberDemand struct {
	where    string
	patterns []*value // one that its name matches, none for any name
	not      []*value // and it matches none of these patterns
	names    []string // and is none of these
	name     *value   // and satisfies this schema
	value    *value   // schema of its value
}

// itemDemand is that an array has an item at from or later that satisfies a schema.
type itemDemand struct {
	from   int
	schema *value
}

// made is a schema that nobody wrote, from one at pointer.
func made(pointer string) *value { return &value{kind: '{', pointer: pointer, made: true} }

// with adds a member, and add one to a list that is a member.
func (v *value) with(name string, m *value) *value {
	v.names, v.items = append(v.names, name), append(v.items, m)
	return v
}

func (v *value) add(name string, m *value) {
	l := v.member(name)
	l.items = append(l.items, m)
}

func list(pointer string, items ...*value) *value {
	return &value{kind: '[', pointer: pointer, items: items, made: true}
}

func str(pointer, s string) *value { return &value{kind: '"', text: s, pointer: pointer} }

func num(pointer string, n int) *value {
	return &value{kind: '0', text: strconv.Itoa(n), pointer: pointer}
}

func truth(pointer string, is bool) *value {
	if is {
		return &value{kind: 't', pointer: pointer}
	}
	return &value{kind: 'f', pointer: pointer}
}

// typed is a schema of one type.
func typed(pointer, name string) *value { return made(pointer).with("type", str(pointer, name)) }

func demands(pointer, kind string, d demand) *value {
	v := typed(pointer, kind)
	v.demand = &d
	return v
}

// not is the complement of a schema. It is worked out a level at a time, when it is asked for, as schemas may hold themselves.
func (c *compiler) not(v *value) *value {
	if v.not != nil && v.made {
		return v.not
	}
	n, ok := c.nots[v]
	if !ok {
		n = &value{kind: '{', pointer: v.pointer, made: true, not: v}
		c.nots[v] = n
	}
	return n
}

// complement is the alternatives of which one holds where a schema does not.
func (c *compiler) complement(n *value) []*value {
	all, ok := c.apart[n]
	if !ok {
		all = c.opposite(n.not)
		c.apart[n] = all
	}
	return all
}

func (c *compiler) opposite(v *value) (all []*value) {
	switch v.kind {
	case 't':
		return nil
	case 'f':
		return []*value{truth(v.pointer, true)}
	case '{':
	default:
		fail(v.pointer, "want a schema, which is an object, true or false")
	}
	if v.demand != nil {
		fail(v.pointer, "a complement within a complement is not supported")
	}
	for i, name := range v.names {
		if c.alone && v.member("$ref") != nil && name != "$ref" {
			continue
		}
		if !slices.Contains(annotations, name) && !strings.HasPrefix(name, "x-") {
			all = append(all, c.opposed(v, name, v.items[i])...)
		}
	}
	return all
}

// opposed is what breaks one keyword.
func (c *compiler) opposed(v *value, name string, k *value) (all []*value) {
	at := k.pointer
	one := func(vs ...*value) []*value { return vs }
	switch name {
	case "type":
		return opposedTypes(k)
	case "enum", "const":
		values := one(k)
		if name == "enum" {
			values = k.items
		}
		out, compound := made(at), list(at)
		out.demand = &demand{}
		for _, e := range values {
			if e.kind == '{' || e.kind == '[' {
				compound.items = append(compound.items, c.not(c.exactly(e)))
			} else {
				out.demand.others = append(out.demand.others, e)
			}
		}
		if len(compound.items) > 0 {
			out.with("allOf", compound)
		}
		return one(out)
	case "minimum":
		return one(typed(at, "number").with("exclusiveMaximum", k))
	case "maximum":
		return one(typed(at, "number").with("exclusiveMinimum", k))
	case "exclusiveMinimum":
		return one(typed(at, "number").with("maximum", k))
	case "exclusiveMaximum":
		return one(typed(at, "number").with("minimum", k))
	case "multipleOf":
		return one(demands(at, "number", demand{multiple: k}))
	case "pattern":
		return one(demands(at, "string", demand{pattern: k}))
	case "minLength", "maxLength":
		return opposedCount(k, "string", name, "minLength", "maxLength")
	case "minItems", "maxItems":
		return opposedCount(k, "array", name, "minItems", "maxItems")
	case "minProperties", "maxProperties":
		return opposedCount(k, "object", name, "minProperties", "maxProperties")
	case "required":
		for _, n := range names(k) {
			all = append(all, typed(at, "object").with("properties", made(at).with(n.text, truth(at, false))))
		}
		return all
	case "properties":
		members(k)
		for i, n := range k.names {
			all = append(all, typed(at, "object").with("required", list(at, str(at, n))).with("properties", made(at).with(n, c.not(k.items[i]))))
		}
		return all
	case "patternProperties":
		members(k)
		for i, p := range k.names {
			all = append(all, demands(at, "object", demand{member: &memberDemand{where: at, patterns: one(str(k.items[i].pointer, p)), value: c.not(k.items[i])}}))
		}
		return all
	case "additionalProperties":
		d := &memberDemand{where: at, value: c.not(k)}
		if props := v.member("properties"); props != nil {
			d.names = props.names
		}
		if patterns := v.member("patternProperties"); patterns != nil {
			for i, p := range patterns.names {
				d.not = append(d.not, str(patterns.items[i].pointer, p))
			}
		}
		return one(demands(at, "object", demand{member: d}))
	case "propertyNames":
		return one(demands(at, "object", demand{member: &memberDemand{where: at, name: c.not(k), value: truth(at, true)}}))
	case "dependentRequired", "dependentSchemas", "dependencies":
		members(k)
		for i, n := range k.names {
			has := func() *value { return typed(at, "object").with("required", list(at, str(at, n))) }
			if k.items[i].kind != '[' {
				all = append(all, has().with("allOf", list(at, c.not(k.items[i]))))
				continue
			}
			for _, other := range names(k.items[i]) {
				all = append(all, has().with("properties", made(at).with(other.text, truth(at, false))))
			}
		}
		return all
	case "prefixItems", "items", "additionalItems":
		first, rest := arrayParts(v)
		if k == first {
			for i, item := range first.items {
				prefix := list(at)
				for range i {
					prefix.items = append(prefix.items, truth(at, true))
				}
				prefix.items = append(prefix.items, c.not(item))
				all = append(all, typed(at, "array").with("minItems", num(at, i+1)).with("prefixItems", prefix))
			}
		} else if k == rest {
			d := &itemDemand{schema: c.not(k)}
			if first != nil {
				d.from = len(first.items)
			}
			all = one(demands(at, "array", demand{item: d}))
		}
		return all
	case "contains":
		least, most := containsCounts(v)
		if least == 1 {
			all = append(all, typed(at, "array").with("items", c.not(k)))
		} else if least > 1 {
			all = append(all, typed(at, "array").with("contains", k).with("minContains", num(at, 0)).with("maxContains", num(at, least-1)))
		}
		if most >= 0 {
			all = append(all, typed(at, "array").with("contains", k).with("minContains", num(at, most+1)))
		}
		return all
	case "uniqueItems":
		if k.kind == 'f' {
			return nil
		}
	case "unevaluatedProperties", "unevaluatedItems":
		if k.kind == 't' {
			return nil
		}
	case "allOf":
		for _, s := range schemas(k) {
			all = append(all, c.not(s))
		}
		return all
	case "anyOf", "oneOf":
		none := made(at).with("allOf", list(at))
		for i, s := range schemas(k) {
			none.add("allOf", c.not(s))
			for _, o := range k.items[:i] {
				if name == "oneOf" {
					all = append(all, made(at).with("allOf", list(at, s, o)))
				}
			}
		}
		return append(all, none)
	case "not":
		return one(k)
	case "$ref", "$dynamicRef", "$recursiveRef":
		return one(c.not(c.resolve(k)))
	case "if":
		if then := v.member("then"); then != nil {
			all = append(all, made(at).with("allOf", list(at, k, c.not(then))))
		}
		if other := v.member("else"); other != nil {
			all = append(all, made(at).with("allOf", list(at, c.not(k), c.not(other))))
		}
		return all
	case "then", "else", "minContains", "maxContains": // they are nothing by themselves
		return nil
	case "format":
		if e, ok := formats[k.text]; ok && e == "" && k.kind == '"' {
			return nil
		}
	default:
		if !slices.Contains(known, name) {
			fail(v.pointer+"/"+escapePointer(name), "keyword %q is not supported", shortened(name))
		}
	}
	fail(at, "keyword %q is not supported where a schema must not hold: in not, if, and branches of oneOf that no type, constant or required property tells apart", shortened(name))
	return nil
}

// opposedTypes are the other types; and numbers that are not whole, where only those are left out that are.
func opposedTypes(k *value) (all []*value) {
	at := k.pointer
	names := []*value{k}
	if k.kind == '[' {
		names = k.items
	}
	has := func(name string) bool {
		return slices.ContainsFunc(names, func(n *value) bool { return n.text == name })
	}
	rest := list(at)
	for _, name := range []string{"null", "boolean", "string", "number", "object", "array"} {
		switch {
		case has(name):
		case name == "number" && has("integer"):
			all = append(all, demands(at, "number", demand{fraction: true}))
		default:
			rest.items = append(rest.items, str(at, name))
		}
	}
	if len(rest.items) > 0 {
		all = append(all, made(at).with("type", rest))
	}
	return all
}

func opposedCount(k *value, kind, name, min, max string) []*value {
	n := k.count()
	if name == max {
		return []*value{typed(k.pointer, kind).with(min, num(k.pointer, n+1))}
	}
	if n == 0 {
		return nil
	}
	return []*value{typed(k.pointer, kind).with(max, num(k.pointer, n-1))}
}

// exactly is a schema of a constant that is an array or an object, with a level of it spelled out.
func (c *compiler) exactly(k *value) *value {
	if s, ok := c.exact[k]; ok {
		return s
	}
	at := k.pointer
	constant := func(v *value) *value { return made(v.pointer).with("const", v) }
	var s *value
	if k.kind == '[' {
		n := num(at, len(k.items))
		s = typed(at, "array").with("minItems", n).with("maxItems", n)
		if len(k.items) > 0 {
			prefix := list(at)
			for _, item := range k.items {
				prefix.items = append(prefix.items, constant(item))
			}
			s.with("prefixItems", prefix)
		}
	} else {
		required, props := list(at), made(at)
		for i, name := range k.names {
			required.items = append(required.items, str(at, name))
			props.with(name, constant(k.items[i]))
		}
		s = typed(at, "object").with("required", required).with("properties", props).with("additionalProperties", truth(at, false))
	}
	c.exact[k] = s
	return s
}
