package grammar

import "slices"

// group is a list of schemas of which a value satisfies one at least; one exactly, if one.
type group struct {
	where        string
	alternatives []*value
	one          bool
}

// choices are a schema's groups.
func (c *compiler) choices(v *value) []group {
	if v.kind != '{' {
		return nil
	}
	all, ok := c.groups[v]
	if ok {
		return all
	}
	if v.not != nil {
		if alternatives := c.complement(v); len(alternatives) != 1 { // a single one is flattened
			all = []group{{v.not.pointer, alternatives, false}}
		}
		c.groups[v] = all
		return all
	}
	for i, name := range v.names {
		g := v.items[i]
		switch name {
		case "anyOf", "oneOf":
			all = append(all, group{g.pointer, schemas(g), name == "oneOf"})
		case "if":
			yes, no := made(g.pointer).with("allOf", list(g.pointer, g)), made(g.pointer).with("allOf", list(g.pointer, c.not(g)))
			then, other := v.member("then"), v.member("else")
			if then != nil {
				yes.add("allOf", then)
			}
			if other != nil {
				no.add("allOf", other)
			}
			if then != nil || other != nil {
				all = append(all, group{g.pointer, []*value{yes, no}, false})
			}
		case "dependentRequired", "dependentSchemas", "dependencies":
			members(g)
			for j, member := range g.names {
				all = append(all, group{g.items[j].pointer, []*value{without(g.pointer, member), depends(g.items[j], member)}, false})
			}
		}
	}
	c.groups[v] = all
	return all
}

// without is that an object, if it is one, has no such member.
func without(pointer, name string) *value {
	return made(pointer).with("properties", made(pointer).with(name, &value{kind: 'f', pointer: pointer}))
}

// depends is an object that has the member, and what v, of dependentRequired and the like, asks for then.
func depends(v *value, name string) *value {
	required := list(v.pointer, str(v.pointer, name))
	out := typed(v.pointer, "object").with("required", required)
	if v.kind == '[' {
		required.items = append(required.items, names(v)...)
		return out
	}
	return out.with("allOf", list(v.pointer, v))
}

// schemas are those of a list.
func schemas(v *value) []*value {
	if v.kind != '[' || len(v.items) == 0 {
		fail(v.pointer, "want an array of schemas")
	}
	return v.items
}

// names are the strings of a list.
func names(v *value) []*value {
	if v.kind != '[' || slices.ContainsFunc(v.items, func(n *value) bool { return n.kind != '"' }) {
		fail(v.pointer, "want an array of names")
	}
	return v.items
}

func members(v *value) {
	if v.kind != '{' {
		fail(v.pointer, "want an object")
	}
}

// branches makes the first choice that is open, one conjunction for each alternative; open is false when all are made.
func (c *compiler) branches(flat conjunction) (each []conjunction, open bool) {
	if slices.ContainsFunc(flat, func(p part) bool { return p.v.kind == 'f' }) {
		return nil, false
	}
	for i, p := range flat {
		groups := c.choices(p.v)
		if p.done >= len(groups) {
			continue
		}
		g := groups[p.done]
		for _, alt := range g.alternatives {
			next := slices.Clone(flat)
			next[i].done++
			each = append(each, append(next, part{v: alt, up: &trail{p.v, p.up}}))
		}
		if g.one {
			c.exclude(g, each, &trail{p.v, p.up})
		}
		return each, true
	}
	return nil, false
}

// exclude has each branch of a oneOf exclude the others, where it is not sure that none of what is written for it satisfies them.
func (c *compiler) exclude(g group, each []conjunction, up *trail) {
	if len(each) > 200 {
		fail(g.where, "more than 200 branches")
	}
	specs := make([]*spec, len(each))
	closed := make([]bool, len(each))
	for i, all := range each {
		flat := c.flatten(all)
		specs[i] = c.spec(flat)
		_, open := c.branches(flat)
		closed[i] = !open && specs[i].closed()
	}
	for i, a := range specs {
		names := map[string]bool{}
		if closed[i] {
			for _, name := range a.names() {
				names[name] = true
			}
		}
		for j, b := range specs {
			lacks := closed[i] && b.types == isObject && slices.ContainsFunc(b.required, func(name string) bool { return !names[name] })
			if j != i && !lacks && !c.differ(a, b, 0) {
				each[i] = append(each[i], part{v: c.not(g.alternatives[j]), up: up})
			}
		}
	}
}

// differ reports whether it is sure that no value satisfies both.
func (c *compiler) differ(a, b *spec, deep int) bool {
	if a.never || b.never {
		return true
	}
	if a.values != nil && b.values != nil {
		return !slices.ContainsFunc(a.values, func(v *value) bool {
			return slices.ContainsFunc(b.values, v.equal)
		})
	}
	for _, pair := range [][2]*spec{{a, b}, {b, a}} {
		if pair[0].values != nil {
			return !slices.ContainsFunc(pair[0].values, func(v *value) bool { return pair[1].types&typeOf(v) != 0 })
		}
	}
	both := a.types & b.types
	if both == 0 {
		return true
	}
	if both != isObject || deep > 3 {
		return false
	}
	for _, name := range a.required {
		if !b.isRequired[name] {
			if b.forbids(name) {
				return true
			}
			continue
		}
		x, y := a.property(name), b.property(name)
		if len(x) == 0 || len(y) == 0 {
			continue
		}
		if c.differ(c.spec(c.flatten(x)), c.spec(c.flatten(y)), deep+1) {
			return true
		}
	}
	return slices.ContainsFunc(b.required, func(name string) bool { return !a.isRequired[name] && a.forbids(name) })
}
