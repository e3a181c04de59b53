package grammar

import "slices"

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

// allows reports whether a value satisfies all of a conjunction.
func (c *compiler) allows(all conjunction, v *value) bool {
	defer c.deeper(all)()
	flat := c.flatten(all)
	if each, open := c.branches(flat); open {
		return slices.ContainsFunc(each, func(all conjunction) bool { return c.allows(all, v) })
	}
	s := c.spec(flat)
	return !s.never && (s.values == nil || slices.ContainsFunc(s.values, v.equal)) && s.holds(v)
}

// holds checks a constant against keywords other than enum and const.
func (s *spec) holds(v *value) bool {
	t := typeOf(v)
	if s.types&t == 0 || slices.ContainsFunc(s.except, v.equal) {
		return false
	}
	switch t {
	case isNumber:
		r := v.number()
		if r == nil {
			fail(v.pointer, "a number of a size that is not supported")
		}
		return s.number.contains(r)
	case isString:
		return !s.limitsStrings() || s.body().accepts(escaped(v.text))
	case isArray:
		return s.holdsItems(v)
	case isObject:
		return s.holdsMembers(v)
	}
	return true
}

func (s *spec) holdsItems(v *value) bool {
	if n := len(v.items); n < s.minItems || s.maxItems >= 0 && n > s.maxItems {
		return false
	}
	for i, item := range v.items {
		if all := s.item(i); len(all) > 0 && !s.c.allows(all, item) {
			return false
		}
		if s.unique != nil && slices.ContainsFunc(v.items[:i], item.equal) {
			return false
		}
	}
	return !slices.ContainsFunc(s.contains, func(c contained) bool {
		n := 0
		for i, item := range v.items {
			if i >= c.from && s.c.allows(conjunction{{v: c.schema}}, item) {
				n++
			}
		}
		return n < c.least || c.most >= 0 && n > c.most
	})
}

func (s *spec) holdsMembers(v *value) bool {
	if n := len(v.names); n < s.minProps || s.maxProps >= 0 && n > s.maxProps {
		return false
	}
	for _, name := range s.required {
		if v.member(name) == nil {
			return false
		}
	}
	for i, name := range v.names {
		if all := s.property(name); len(all) > 0 && !s.c.allows(all, v.items[i]) {
			return false
		}
		if !s.mayName(name) {
			return false
		}
	}
	return !slices.ContainsFunc(s.memberDemands, func(d *memberDemand) bool {
		for i, name := range v.names {
			if s.demanded(d, name) && s.c.allows(conjunction{{v: d.value}}, v.items[i]) {
				return false
			}
		}
		return true
	})
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
