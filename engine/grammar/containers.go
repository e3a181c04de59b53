package grammar

import (
	"math"
	"slices"
	"strings"
)

// maxCount is the longest array or object that is counted: one that may have more has at most so many.
const maxCount = 2000

// arrayExpr is the arrays that satisfy s.
func (s *spec) arrayExpr() Expr {
	if s.minItems > maxCount {
		fail(s.where+"/minItems", "more than %d is not supported", maxCount)
	}
	most := s.maxItems
	if most > maxCount {
		most = maxCount
	}
	prefix := 0
	for _, p := range s.parts {
		if list, _ := arrayParts(p.v); list != nil {
			prefix = max(prefix, len(list.items))
		}
	}
	if prefix > maxCount {
		fail(s.where+"/prefixItems", "more than %d is not supported", maxCount)
	}
	// at is what stands at a place; ok false: nothing may.
	at := func(i int) Expr {
		var all conjunction
		for _, p := range s.parts {
			list, rest := arrayParts(p.v)
			switch {
			case list != nil && i < len(list.items):
				all = append(all, part{list.items[i], 0})
			case rest != nil:
				all = append(all, part{rest, 0})
			}
		}
		if len(all) == 0 {
			return s.c.anyValue()
		}
		return s.c.expr(all)
	}
	n := &net{}
	begin := n.state()
	if s.minItems == 0 {
		n.final = append(n.final, begin)
	}
	sep := Seq(raw(","), s.c.space)
	from, i := begin, 0
	for ; i < max(prefix, s.minItems) || most >= 0 && i < most; i++ {
		if most >= 0 && i >= most {
			break
		}
		to := n.state()
		item := at(i)
		if i > 0 {
			item = Seq(sep, item)
		}
		n.edge(from, to, item)
		if i+1 >= s.minItems {
			n.final = append(n.final, to)
		}
		from = to
	}
	if most < 0 {
		loop := n.state()
		item := at(math.MaxInt32)
		if i == 0 {
			n.edge(from, loop, item)
		} else {
			n.edge(from, loop, Seq(sep, item))
		}
		n.edge(loop, loop, Seq(sep, item))
		n.final = append(n.final, loop)
	}
	return Seq(raw("["), s.c.space, closed(n, begin, s.c.space), raw("]"))
}

// closed puts white space behind every end of n but the beginning.
func closed(n *net, begin int, space Expr) Expr {
	end := n.state()
	for _, f := range n.final {
		if f == begin {
			n.edge(f, end, Expr{})
		} else {
			n.edge(f, end, space)
		}
	}
	n.final = []int{end}
	return n.expr()
}

// arrayParts are the schemas of the first items and of all further ones, in any draft's spelling.
func arrayParts(v *value) (list, rest *value) {
	list, rest = v.member("prefixItems"), v.member("items")
	if list != nil && list.kind != '[' {
		fail(list.pointer, "want an array of schemas")
	}
	if rest != nil && rest.kind == '[' {
		list, rest = rest, v.member("additionalItems")
	}
	return list, rest
}

// property is what s asks of the member of that name, as far as a schema names it.
func (s *spec) property(name string) (all conjunction) {
	for _, p := range s.parts {
		v := p.v
		found := false
		if props := v.member("properties"); props != nil {
			if m := props.member(name); m != nil {
				all, found = append(all, part{m, 0}), true
			}
		}
		if patterns := v.member("patternProperties"); patterns != nil {
			for i, pattern := range patterns.names {
				if s.keyDFA(patterns.items[i], pattern).accepts(escaped(name)) {
					all, found = append(all, part{patterns.items[i], 0}), true
				}
			}
		}
		if more := v.member("additionalProperties"); more != nil && !found {
			all = append(all, part{more, 0})
		}
	}
	return all
}

func (s *spec) keyPattern(v *value, pattern string) Expr {
	p := &regex{text: pattern, spell: written, search: true}
	e, err := p.parse()
	if err != nil {
		fail(v.pointer, "pattern: %v", err)
	}
	return e
}

func (s *spec) keyDFA(v *value, pattern string) *dfa {
	d := s.c.dfas[pattern]
	if d == nil {
		d = s.c.check.compile(s.keyPattern(v, pattern))
		s.c.dfas[pattern] = d
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
	value Expr
}

// others returns them. Keys of two patterns are left out.
func (s *spec) others(names []string) (all []more) {
	var extra conjunction
	explicit := false
	type pattern struct {
		v   *value
		key Expr
	}
	var patterns []pattern
	for _, p := range s.parts {
		if v := p.v.member("additionalProperties"); v != nil {
			explicit = true
			extra = append(extra, part{v, 0})
		}
		if v := p.v.member("unevaluatedProperties"); v != nil {
			if v.kind != 'f' && v.kind != 't' || v.kind == 'f' && !s.sees(p.v) {
				fail(v.pointer, "keyword \"unevaluatedProperties\" is not supported here")
			}
			explicit = true
			extra = append(extra, part{v, 0})
		}
		if v := p.v.member("patternProperties"); v != nil {
			if len(s.parts) > 1 && len(v.names) > 0 {
				fail(v.pointer, "patternProperties in allOf or beside $ref and anyOf is not supported")
			}
			for i, name := range v.names {
				patterns = append(patterns, pattern{v.items[i], s.keyPattern(v.items[i], name)})
			}
		}
	}
	key := Repeat(anyWritten(), 0, -1)
	if len(names) > 0 {
		var taken []Expr
		for _, name := range names {
			taken = append(taken, raw(escaped(name)))
		}
		key = minus(key, Alt(taken...))
	} else if len(patterns) == 0 {
		key = Repeat(freeChar(), 0, -1)
	}
	for _, p := range s.parts {
		if v := p.v.member("propertyNames"); v != nil {
			n := s.c.spec(s.c.flatten(conjunction{{v, 0}}))
			switch {
			case n.never || n.types&isString == 0:
				return nil
			case len(choices(v)) > 0:
				fail(v.pointer, "propertyNames with anyOf or oneOf is not supported")
			case n.values != nil:
				var parts []Expr
				for _, c := range n.values {
					if c.kind == '"' && n.holds(c) {
						parts = append(parts, raw(escaped(c.text)))
					}
				}
				key = and(key, Alt(parts...))
			default:
				key = and(key, n.stringBody())
			}
		}
	}
	quote := func(e Expr) Expr { return named("key", Seq(raw(`"`), e, raw(`"`))) }
	for i, p := range patterns {
		k := and(key, p.key)
		for j, o := range patterns {
			if j != i {
				k = minus(k, o.key)
			}
		}
		all = append(all, more{quote(k), s.c.expr(conjunction{{p.v, 0}})})
	}
	for _, p := range patterns {
		key = minus(key, p.key)
	}
	if !explicit && s.hasProperties {
		return all
	}
	value := s.c.anyValue()
	if len(extra) > 0 {
		value = s.c.expr(extra)
	}
	return append(all, more{quote(key), value})
}

// sees reports whether every other part stands in an allOf, anyOf or oneOf of v, and none says itself what other members there are: then
// v's unevaluatedProperties are those that none of them names.
func (s *spec) sees(v *value) bool {
	return !slices.ContainsFunc(s.parts, func(p part) bool {
		if p.v == v {
			return v.member("additionalProperties") != nil || v.member("patternProperties") != nil
		}
		inside := slices.ContainsFunc([]string{"/allOf/", "/anyOf/", "/oneOf/"}, func(k string) bool { return strings.HasPrefix(p.v.pointer, v.pointer+k) })
		return !inside || p.v.member("additionalProperties") != nil || p.v.member("patternProperties") != nil
	})
}

// objectExpr is the objects that satisfy s.
func (s *spec) objectExpr() Expr {
	names := s.names()
	for _, p := range s.parts {
		if v := p.v.member("propertyNames"); v != nil && len(names) > 0 {
			n := s.c.spec(s.c.flatten(conjunction{{v, 0}}))
			n.types &= isString
			names = slices.DeleteFunc(names, func(name string) bool {
				switch {
				case n.never || n.types == 0:
				case n.values != nil:
					return !slices.ContainsFunc(n.values, func(v *value) bool { return v.kind == '"' && v.text == name })
				default:
					return !n.body().accepts(escaped(name))
				}
				return n.never || n.types == 0
			})
		}
	}
	allowed := make(map[string]bool, len(names))
	for _, name := range names {
		allowed[name] = true
	}
	for _, name := range s.required {
		if !allowed[name] {
			return Alt() // required, and not allowed
		}
	}
	rest := s.others(s.names())
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
	if limit < 0 && least == 0 {
		return s.object(names, rest, 1, 0, -1)
	}
	top := max(least, limit)
	if top*(len(names)+1) > 50_000 {
		fail(s.where, "minProperties or maxProperties with so many properties is not supported")
	}
	return s.object(names, rest, top, least, limit)
}

// object makes the automaton: at state (i, k) the properties before i are decided and k members, or at least so many as are
// counted, have come.
func (s *spec) object(names []string, rest []more, counted, least, limit int) Expr {
	n := &net{}
	ids := map[[2]int]int{}
	var todo [][2]int
	at := func(i, k int) int {
		k = min(k, counted)
		id, ok := ids[[2]int{i, k}]
		if !ok {
			id = n.state()
			ids[[2]int{i, k}] = id
			todo = append(todo, [2]int{i, k})
		}
		return id
	}
	members := make([]Expr, len(names))
	required := make([]bool, len(names))
	for i, name := range names {
		value := s.c.anyValue()
		if all := s.property(name); len(all) > 0 {
			value = s.c.expr(all)
		}
		members[i] = Seq(raw(quoted(name)+":"), s.c.space, value)
		required[i] = s.isRequired[name]
	}
	sep := Seq(raw(","), s.c.space)
	at(0, 0)
	for len(todo) > 0 {
		p := todo[0]
		todo = todo[1:]
		i, k := p[0], p[1]
		from := ids[p]
		full := limit >= 0 && k >= limit
		add := func(e Expr) Expr {
			if k > 0 {
				return Seq(sep, e)
			}
			return e
		}
		if i < len(names) {
			if !full {
				n.edge(from, at(i+1, k+1), add(members[i]))
			}
			if !required[i] {
				n.edge(from, at(i+1, k), Expr{})
			}
			continue
		}
		if !full {
			for _, m := range rest {
				n.edge(from, at(i, k+1), add(Seq(m.key, raw(":"), s.c.space, m.value)))
			}
		}
		if k >= least {
			n.final = append(n.final, from)
		}
	}
	empty := -1
	if id, ok := ids[[2]int{len(names), 0}]; ok {
		empty = id
	}
	return Seq(raw("{"), s.c.space, closed(n, empty, s.c.space), raw("}"))
}
