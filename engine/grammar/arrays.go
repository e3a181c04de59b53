package grammar

import "slices"

// maxCount is the longest array or object that is counted: one that may have more has at most so many.
const maxCount = 2000

// contained is that an array has at least so many items, and at most, that satisfy a schema; most < 0: any number. Items before from do not count.
type contained struct {
	schema            *value
	from, least, most int
}

// containsCounts are minContains and maxContains of a schema.
func containsCounts(v *value) (least, most int) {
	least, most = 1, -1
	if m := v.member("minContains"); m != nil {
		least = m.count()
	}
	if m := v.member("maxContains"); m != nil {
		most = m.count()
	}
	return least, most
}

// item is what stands at a place; none: anything.
func (s *spec) item(i int) (all conjunction) {
	for _, p := range s.parts {
		list, rest := arrayParts(p.v)
		switch {
		case list != nil && i < len(list.items):
			all = append(all, part{v: list.items[i]})
		case rest != nil:
			all = append(all, part{v: rest})
		}
		if u := p.v.member("unevaluatedItems"); u != nil {
			if v := s.unevaluatedItem(p.v, u, i); v != nil {
				all = append(all, part{v: v})
			}
		}
	}
	return all
}

// unevaluatedItem is what unevaluatedItems of v asks of the item at i, nil for nothing. Contains evaluates the items that satisfy it.
func (s *spec) unevaluatedItem(v, u *value, i int) *value {
	for _, p := range s.inside(v) {
		list, rest := arrayParts(p)
		if list != nil && i < len(list.items) || rest != nil || p != v && p.member("unevaluatedItems") != nil {
			return nil
		}
	}
	for _, p := range s.inside(v) {
		if contains := p.member("contains"); contains != nil {
			u = s.c.one(contains, u)
		}
	}
	return u
}

// one is a schema that either of two satisfies.
func (c *compiler) one(a, b *value) *value {
	v, ok := c.either[[2]*value{a, b}]
	if !ok {
		v = made(a.pointer).with("anyOf", list(a.pointer, a, b))
		c.either[[2]*value{a, b}] = v
	}
	return v
}

// inside are v and the schemas of this conjunction that stand in it and are of the same value: by $ref, and by its allOf and the branches
// that were taken.
func (s *spec) inside(v *value) []*value {
	taken := map[*value]bool{}
	for _, p := range s.parts {
		taken[p.v] = true
	}
	all := []*value{v}
	seen := map[*value]bool{v: true}
	add := func(v *value) {
		if v != nil && taken[v] && !seen[v] {
			seen[v] = true
			all = append(all, v)
		}
	}
	for i := 0; i < len(all); i++ {
		v := all[i]
		for j, name := range v.names {
			k := v.items[j]
			switch name {
			case "$ref", "$dynamicRef", "$recursiveRef":
				add(s.c.resolve(k))
			case "if", "then", "else":
				add(k)
			case "allOf", "anyOf", "oneOf", "dependentSchemas", "dependencies":
				for _, v := range k.items {
					add(v)
				}
			}
		}
	}
	return all
}

// arrayExpr is the arrays that satisfy s.
func (s *spec) arrayExpr() Expr {
	if s.minItems > maxCount {
		fail(s.where+"/minItems", "more than %d is not supported", maxCount)
	}
	most := min(s.maxItems, maxCount)
	prefix := 0
	for _, p := range s.parts {
		if list, _ := arrayParts(p.v); list != nil {
			prefix = max(prefix, len(list.items))
		}
	}
	for _, c := range s.contains {
		prefix = max(prefix, c.from)
	}
	if prefix > maxCount {
		fail(s.where+"/prefixItems", "more than %d is not supported", maxCount)
	}
	if s.unique != nil && (most < 0 || most > 1) {
		return s.uniqueArray(prefix, most)
	}
	if len(s.contains) > 4 {
		fail(s.contains[0].schema.pointer, "more than 4 contains of one array are not supported")
	}
	counted := max(prefix, s.minItems, most) // places that differ from those behind them
	type place struct {
		i int
		n [4]int // items by contains; where there is no most, at most least
	}
	n, sep := &net{}, Seq(raw(","), s.c.space)
	ids := map[place]int{}
	var todo []place
	at := func(p place) int {
		id, ok := ids[p]
		if !ok {
			if len(ids) > 50_000 {
				fail(s.where, "minContains, maxContains and the number of items are too large together")
			}
			id = n.state()
			ids[p] = id
			todo = append(todo, p)
		}
		return id
	}
	begin := at(place{})
	for len(todo) > 0 {
		p := todo[0]
		todo = todo[1:]
		from := ids[p]
		ok := p.i >= s.minItems
		for j, c := range s.contains {
			ok = ok && p.n[j] >= c.least
		}
		if ok {
			n.final = append(n.final, from)
		}
		if most >= 0 && p.i >= most {
			continue
		}
		var step func(j int, to place, all conjunction)
		step = func(j int, to place, all conjunction) {
			if j == len(s.contains) {
				item := s.c.anyValue()
				if len(all) > 0 {
					item = s.c.expr(all)
				}
				if p.i > 0 {
					item = Seq(sep, item)
				}
				n.edge(from, at(to), item)
				return
			}
			c := s.contains[j]
			if p.i < c.from || c.most < 0 && p.n[j] >= c.least {
				step(j+1, to, all)
				return
			}
			// One that counts, unless there are enough; and one that need not count, or must not.
			if c.most < 0 || p.n[j] < c.most {
				counts := to
				counts.n[j]++
				step(j+1, counts, append(slices.Clip(all), part{v: c.schema}))
			}
			if c.most >= 0 {
				all = append(slices.Clip(all), part{v: s.c.not(c.schema)})
			}
			step(j+1, to, all)
		}
		next := p
		if next.i++; next.i > counted { // 0 is before the first
			next.i = max(counted, 1)
		}
		step(0, next, s.item(p.i))
	}
	return Seq(raw("["), s.c.space, closed(n, begin, s.c.space), raw("]"))
}

// maxSubsets is the largest set whose parts in any order are told apart.
const maxSubsets = 10

// uniqueArray is the arrays whose items differ, of items that are one of a set of constants: a larger set comes in its order.
func (s *spec) uniqueArray(prefix, most int) Expr {
	if len(s.contains) > 0 {
		fail(s.unique.pointer, "uniqueItems together with contains is not supported")
	}
	var set []*value // of all places
	sets := make([][]*value, prefix+1)
	for i := range sets {
		var ok bool
		if sets[i], ok = s.c.finite(s.item(i)); !ok {
			fail(s.unique.pointer, "uniqueItems is supported where the items are of an enum, const, boolean or null, and where maxItems is at most 1")
		}
		for _, v := range sets[i] {
			if !slices.ContainsFunc(set, v.equal) {
				set = append(set, v)
			}
		}
	}
	ordered := len(set) > maxSubsets
	if ordered && prefix > 0 {
		fail(s.unique.pointer, "uniqueItems of items by place that have more than %d values is not supported", maxSubsets)
	}
	if s.minItems > len(set) {
		return Alt()
	}
	counted := max(prefix, s.minItems, most, 1)
	if most < 0 {
		most = len(set)
	}
	n, sep := &net{}, Seq(raw(","), s.c.space)
	type place struct{ i, past int } // past: which have come, or how many of the set cannot come
	ids := map[place]int{}
	var todo []place
	at := func(i, past int) int {
		p := place{min(i, counted), past}
		id, ok := ids[p]
		if !ok {
			if len(ids) > 50_000 {
				fail(s.unique.pointer, "uniqueItems of so large a set is not supported")
			}
			id = n.state()
			ids[p] = id
			todo = append(todo, p)
		}
		return id
	}
	begin := at(0, 0)
	for len(todo) > 0 {
		p := todo[0]
		todo = todo[1:]
		from := ids[p]
		if p.i >= s.minItems {
			n.final = append(n.final, from)
		}
		if p.i >= most {
			continue
		}
		take := func(v *value, to int) {
			item := s.c.constant(v)
			if p.i > 0 {
				item = Seq(sep, item)
			}
			n.edge(from, at(p.i+1, to), item)
		}
		if ordered {
			if p.past < len(set) {
				take(set[p.past], p.past+1)
				n.edge(from, at(p.i, p.past+1), Expr{})
			}
			continue
		}
		for j, v := range set {
			if to := p.past | 1<<j; to != p.past && slices.ContainsFunc(sets[min(p.i, prefix)], v.equal) {
				take(v, to)
			}
		}
	}
	return Seq(raw("["), s.c.space, closed(n, begin, s.c.space), raw("]"))
}

// finite is the values that satisfy a conjunction, if they are a set of constants; of equal ones, one.
func (c *compiler) finite(all conjunction) (set []*value, ok bool) {
	if len(all) == 0 {
		return nil, false
	}
	defer c.deeper(all)()
	add := func(v *value) {
		if !slices.ContainsFunc(set, v.equal) {
			set = append(set, v)
		}
	}
	flat := c.flatten(all)
	if each, open := c.branches(flat); open {
		for _, next := range each {
			some, ok := c.finite(next)
			if !ok {
				return nil, false
			}
			for _, v := range some {
				add(v)
			}
		}
		return set, true
	}
	s := c.spec(flat)
	switch {
	case s.never:
		return nil, true
	case s.values == nil && s.types&^(isBool|isNull) != 0:
		return nil, false
	case s.values == nil:
		s.values = []*value{{kind: 'n'}, truth("", true), truth("", false)}
	}
	for _, v := range s.values {
		if s.holds(v) {
			add(v)
		}
	}
	return set, true
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
