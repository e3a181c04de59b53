package grammar

import "slices"

// property is what s asks of the member of that name.
func (s *spec) property(name string) (all conjunction) {
	return s.member(func(props *value) *value { return props.member(name) }, func(v *value, pattern string) bool {
		return s.c.patternDFA(v, pattern).accepts(escaped(name))
	})
}

// member is what s asks of a member: named returns the schema that properties have for its name, and matches reports whether it matches a
// pattern.
func (s *spec) member(named func(props *value) *value, matches func(v *value, pattern string) bool) (all conjunction) {
	of := func(v *value) (all conjunction) {
		if props := v.member("properties"); props != nil {
			if m := named(props); m != nil {
				all = append(all, part{v: m})
			}
		}
		if patterns := v.member("patternProperties"); patterns != nil {
			for i, pattern := range patterns.names {
				if matches(patterns.items[i], pattern) {
					all = append(all, part{v: patterns.items[i]})
				}
			}
		}
		if more := v.member("additionalProperties"); more != nil && len(all) == 0 {
			all = append(all, part{v: more})
		}
		return all
	}
	for _, p := range s.parts {
		all = append(all, of(p.v)...)
		if u := p.v.member("unevaluatedProperties"); u != nil && !slices.ContainsFunc(s.inside(p.v), func(v *value) bool {
			return len(of(v)) > 0 || v != p.v && v.member("unevaluatedProperties") != nil
		}) {
			all = append(all, part{v: u})
		}
	}
	return all
}

// pattern is the texts, as written, that a pattern is found in.
func (c *compiler) pattern(v *value, pattern string) Expr {
	p := &regex{text: pattern, spell: written, search: true}
	e, err := p.parse()
	if err != nil {
		fail(v.pointer, "pattern: %v", err)
	}
	return e
}

func (c *compiler) patternDFA(v *value, pattern string) *dfa {
	d := c.dfas[pattern]
	if d == nil {
		d = c.check.compile(c.pattern(v, pattern))
		c.dfas[pattern] = d
	}
	return d
}

// names are the properties that a schema names, in its order.
func (s *spec) names() (names []string) {
	seen := map[string]bool{}
	add := func(name string) {
		if !seen[name] {
			seen[name] = true
			names = append(names, name)
		}
	}
	for _, p := range s.parts {
		if props := p.v.member("properties"); props != nil {
			for _, name := range props.names {
				add(name)
			}
		}
	}
	for _, name := range s.required {
		add(name)
	}
	return names
}

// forbids reports whether no object that s allows has a member of that name.
func (s *spec) forbids(name string) bool {
	for _, p := range s.parts {
		if more := p.v.member("additionalProperties"); more != nil && more.kind == 'f' {
			props := p.v.member("properties")
			if p.v.member("patternProperties") == nil && (props == nil || props.member(name) == nil) {
				return true
			}
		}
	}
	return false
}

// more are the kinds of members that no schema names: which keys, and what they hold.
type more struct {
	key   Expr
	value conjunction
}

// maxPatterns is how many patterns are told apart in all ways; of more, keys that match two are left out.
const maxPatterns = 4

// closed reports whether an object that is written has no members but those of names.
func (s *spec) closed() bool {
	return s.hasProperties && (s.types == isObject || !s.hasType) && !slices.ContainsFunc(s.parts, func(p part) bool {
		return slices.ContainsFunc([]string{"additionalProperties", "unevaluatedProperties", "patternProperties"}, func(k string) bool { return p.v.member(k) != nil })
	})
}

// others returns them; names are those that have members of their own.
func (s *spec) others(names []string) (all []more) {
	open := !s.hasProperties
	var patterns []*value // as strings
	add := func(vs ...*value) {
		for _, v := range vs {
			if !slices.ContainsFunc(patterns, v.equal) {
				patterns = append(patterns, v)
			}
		}
	}
	for _, p := range s.parts {
		open = open || p.v.member("additionalProperties") != nil || p.v.member("unevaluatedProperties") != nil
		if v := p.v.member("patternProperties"); v != nil {
			for i, name := range v.names {
				add(str(v.items[i].pointer, name))
			}
		}
	}
	var limit []Expr
	for _, p := range s.parts {
		if v := p.v.member("propertyNames"); v != nil {
			limit = append(limit, s.c.strings(conjunction{{v: v}}))
		}
	}
	key := Repeat(anyWritten(), 0, -1)
	if len(names) == 0 && len(patterns) == 0 && len(limit) == 0 && len(s.memberDemands) == 0 {
		key = Repeat(freeChar(), 0, -1)
	} else if len(names) > 0 {
		taken := make([]Expr, len(names))
		for i, name := range names {
			taken[i] = raw(escaped(name))
		}
		key = minus(key, Alt(taken...))
	}
	for _, e := range limit {
		key = and(key, e)
	}
	for set := range 1 << min(len(patterns), 20) {
		if len(patterns) > maxPatterns && set&(set-1) != 0 {
			continue
		}
		k := key
		has := func(text string) bool {
			return slices.ContainsFunc(patterns, func(v *value) bool { return v.text == text && set>>slices.Index(patterns, v)&1 != 0 })
		}
		for _, v := range patterns {
			if has(v.text) {
				k = and(k, s.c.pattern(v, v.text))
			} else {
				k = minus(k, s.c.pattern(v, v.text))
			}
		}
		if set == 0 && !open {
			continue
		}
		all = append(all, more{k, s.member(func(*value) *value { return nil }, func(_ *value, pattern string) bool { return has(pattern) })})
	}
	return all
}

// mayName reports whether propertyNames lets a member have this name.
func (s *spec) mayName(name string) bool {
	return !slices.ContainsFunc(s.parts, func(p part) bool {
		v := p.v.member("propertyNames")
		return v != nil && !s.c.allows(conjunction{{v: v}}, str(v.pointer, name))
	})
}

// demanded reports whether a member of that name may be the one that d asks for.
func (s *spec) demanded(d *memberDemand, name string) bool {
	matches := func(v *value) bool { return s.c.patternDFA(v, v.text).accepts(escaped(name)) }
	return !slices.Contains(d.names, name) && !slices.ContainsFunc(d.not, matches) &&
		!slices.ContainsFunc(d.patterns, func(v *value) bool { return !matches(v) }) &&
		(d.name == nil || s.c.allows(conjunction{{v: d.name}}, str(d.where, name)))
}

// demandedKey is the names for which demanded is true.
func (s *spec) demandedKey(d *memberDemand) Expr {
	key := Repeat(anyWritten(), 0, -1)
	if d.name != nil {
		key = and(key, s.c.strings(conjunction{{v: d.name}}))
	}
	for _, v := range d.patterns {
		key = and(key, s.c.pattern(v, v.text))
	}
	for _, v := range d.not {
		key = minus(key, s.c.pattern(v, v.text))
	}
	for _, name := range d.names {
		key = minus(key, raw(escaped(name)))
	}
	return key
}

// objectExpr is the objects that satisfy s.
func (s *spec) objectExpr() Expr {
	declared := s.names()
	names := slices.DeleteFunc(slices.Clone(declared), func(name string) bool { return !s.mayName(name) })
	for _, name := range s.required {
		if !slices.Contains(names, name) {
			return Alt() // required, and not allowed
		}
	}
	rest := s.others(declared)
	limit := s.maxProps
	least := s.minProps
	if least <= len(s.required) {
		least = 0
	}
	if least > 1 && len(rest) > 0 {
		fail(s.where+"/minProperties", "more than 1, and more than are required, is supported only where additionalProperties is false")
	}
	if limit > maxCount {
		limit = -1
		if len(rest) > 0 {
			limit = maxCount
		}
	}
	if len(s.memberDemands) > 4 {
		fail(s.memberDemands[0].where, "more than 4 members that have to be there under some name are not supported")
	}
	if limit < 0 && least == 0 {
		return s.object(names, rest, 1, 0, -1)
	}
	top := max(least, limit)
	if top*(len(names)+1) > 50_000 {
		fail(s.where, "minProperties or maxProperties with so many properties is not supported")
	}
	return s.object(names, rest, top, least, limit)
}

// object makes the automaton: at (i, k, met) the properties before i are decided, k members, or at least so many as are counted, have come, and
// those demands are met. What no property meets, a last member does: of two that no schema names the second could replace the first.
func (s *spec) object(names []string, rest []more, counted, least, limit int) Expr {
	n := &net{}
	type place struct{ i, k, met int }
	ids := map[place]int{}
	var todo []place
	at := func(i, k, met int) int {
		p := place{i, min(k, counted), met}
		id, ok := ids[p]
		if !ok {
			id = n.state()
			ids[p] = id
			todo = append(todo, p)
		}
		return id
	}
	value := func(all conjunction) Expr {
		if len(all) == 0 {
			return s.c.anyValue()
		}
		return s.c.expr(all)
	}
	members := make([]conjunction, len(names))
	plain := make([]Expr, len(names))
	required := make([]bool, len(names))
	meets := make([]int, len(names)) // demands that a property may meet
	for i, name := range names {
		members[i] = s.property(name)
		plain[i] = value(members[i])
		required[i] = s.isRequired[name]
		for j, d := range s.memberDemands {
			if s.demanded(d, name) {
				meets[i] |= 1 << j
			}
		}
	}
	demanded := func(all conjunction, which int) conjunction {
		all = slices.Clip(all)
		for j, d := range s.memberDemands {
			if which>>j&1 != 0 {
				all = append(all, part{v: d.value})
			}
		}
		return all
	}
	sep := Seq(raw(","), s.c.space)
	all := 1<<len(s.memberDemands) - 1
	keys := make([]Expr, len(rest))
	for i, m := range rest {
		keys[i] = named("key", Seq(raw(`"`), m.key, raw(`"`)))
	}
	at(0, 0, 0)
	for len(todo) > 0 {
		p := todo[0]
		todo = todo[1:]
		i, k := p.i, p.k
		from := ids[p]
		full := limit >= 0 && k >= limit
		add := func(to int, key, value Expr) {
			e := Seq(key, raw(":"), s.c.space, value)
			if k > 0 {
				e = Seq(sep, e)
			}
			n.edge(from, to, e)
		}
		if i < len(names) {
			if !full {
				key := raw(quoted(names[i]))
				add(at(i+1, k+1, p.met), key, plain[i])
				for open := meets[i] &^ p.met; open > 0; open = (open - 1) & (meets[i] &^ p.met) {
					add(at(i+1, k+1, p.met|open), key, value(demanded(members[i], open)))
				}
			}
			if !required[i] {
				n.edge(from, at(i+1, k, p.met), Expr{})
			}
			continue
		}
		if !full && i == len(names) {
			for j, m := range rest {
				add(at(i, k+1, p.met), keys[j], value(m.value))
				if open := all &^ p.met; open != 0 {
					key := m.key
					for j, d := range s.memberDemands {
						if open>>j&1 != 0 {
							key = and(key, s.demandedKey(d))
						}
					}
					add(at(i+1, k+1, all), named("key", Seq(raw(`"`), key, raw(`"`))), value(demanded(m.value, open)))
				}
			}
		}
		if k >= least && p.met == all {
			n.final = append(n.final, from)
		}
	}
	empty := -1
	if id, ok := ids[place{len(names), 0, all}]; ok {
		empty = id
	}
	return Seq(raw("{"), s.c.space, closed(n, empty, s.c.space), raw("}"))
}
