package grammar

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// Limits of one schema.
const (
	maxConjunctions = 8_000 // different schemas it is made of, after anyOf was multiplied out
	maxSchemaNested = 400   // of schemas in each other while they are compiled
)

// Schema is the JSON values that a JSON Schema (drafts 7 to 2020-12) describes, in a normal form: members in the order of
// properties, others after them, white space as White says, numbers with at most 18 digits before and after the point. Where a
// schema has properties and says nothing of others there are no others; one with properties and no type is of
// an object. Annotations are ignored; a keyword that is not supported is an *Error with its place.
func Schema(raw []byte) (Expr, error) { return SchemaWithSpace(raw, Expr{}, false) }

// SchemaWithSpace is Schema with white space of the caller's own, if own, between parts of arrays and objects.
func SchemaWithSpace(schema []byte, space Expr, own bool) (Expr, error) {
	root, err := parseValue(schema)
	if err != nil {
		return Expr{}, err
	}
	c := &compiler{root: root, rules: map[string]Expr{}, ids: map[*value]int{}, space: white, dfas: map[string]*dfa{}, same: map[string]Expr{},
		check: newBuilder(context.Background(), &Vocabulary{})}
	if own {
		c.space = named("white space", space)
	}
	return c.compile(root)
}

// compiler makes an expression of a schema.
type compiler struct {
	root  *value
	space Expr
	rules map[string]Expr // by conjunction
	ids   map[*value]int
	any   Expr
	deep  int
	check *builder        // of automata that constants and names are checked with
	dfas  map[string]*dfa // of patterns
	same  map[string]Expr // strings and numbers by what is asked of them
}

// part is one schema of a conjunction; its first done choices (anyOf, oneOf) have been made.
type part struct {
	v    *value
	done int
}

type conjunction []part

func (c *compiler) compile(root *value) (e Expr, err error) {
	defer func() {
		switch f := recover().(type) {
		case nil:
		case syntax:
			e, err = Expr{}, f.Error
		case tooMuch:
			e, err = Expr{}, f.err
		default:
			panic(f)
		}
	}()
	return c.expr(conjunction{{root, 0}}), nil
}

func fail(where, format string, args ...any) {
	panic(syntax{&Error{shortened(where), fmt.Sprintf(format, args...)}})
}

func (c *compiler) anyValue() Expr {
	if c.any.n == nil {
		c.any = anyValue(c.space)
	}
	return c.any
}

// key names a conjunction.
func (c *compiler) key(all conjunction) string {
	var keys []string
	for _, p := range all {
		id, ok := c.ids[p.v]
		if !ok {
			id = len(c.ids)
			c.ids[p.v] = id
		}
		keys = append(keys, strconv.Itoa(id)+"."+strconv.Itoa(p.done))
	}
	slices.Sort(keys)
	return strings.Join(slices.Compact(keys), " ")
}

// expr is what satisfies all of a conjunction. Each is one rule, so that a schema may use itself.
func (c *compiler) expr(all conjunction) Expr {
	key := c.key(all)
	if e, ok := c.rules[key]; ok {
		return e
	}
	if len(c.rules) > maxConjunctions {
		fail("", "the schema is too large: more than %d schemas once its anyOf are multiplied out", maxConjunctions)
	}
	if c.deep++; c.deep > maxSchemaNested {
		fail(all[0].v.pointer, "schemas nest more than %d deep", maxSchemaNested)
	}
	defer func() { c.deep-- }()
	name := "#"
	if len(all) > 0 {
		name = all[0].v.pointer
	}
	r := &rule{name: name}
	e := Expr{&node{op: opRule, rule: r}}
	c.rules[key] = e
	r.body = c.body(all)
	return e
}

func (c *compiler) body(all conjunction) Expr {
	flat := c.flatten(all)
	for i, p := range flat {
		groups := choices(p.v)
		if p.done >= len(groups) {
			continue
		}
		g := groups[p.done]
		if g.kind != '[' || len(g.items) == 0 {
			fail(g.pointer, "want an array of schemas")
		}
		var parts []Expr
		var each []conjunction
		for _, alt := range g.items {
			next := slices.Clone(flat)
			next[i].done++
			next = append(next, part{alt, 0})
			each = append(each, next)
		}
		if strings.HasSuffix(g.pointer, "/oneOf") {
			c.mustDiffer(g, each)
		}
		for _, next := range each {
			parts = append(parts, c.expr(next))
		}
		return Alt(parts...)
	}
	s := c.spec(flat)
	return s.expr()
}

// choices are a schema's lists of alternatives.
func choices(v *value) (out []*value) {
	for _, k := range []string{"anyOf", "oneOf"} {
		if g := v.member(k); g != nil {
			out = append(out, g)
		}
	}
	return out
}

// flatten follows $ref and allOf.
func (c *compiler) flatten(all conjunction) conjunction {
	var out conjunction
	done := map[*value]int{} // 1: on the way, 2: in out
	var add func(p part)
	add = func(p part) {
		switch done[p.v] {
		case 1:
			fail(p.v.pointer, "refers to itself without end")
		case 2:
			return
		}
		if len(done) > 10_000 {
			fail(p.v.pointer, "too many schemas in allOf and $ref")
		}
		done[p.v] = 1
		out = append(out, p)
		if ref := p.v.member("$ref"); ref != nil {
			add(part{c.resolve(ref), 0})
		}
		if list := p.v.member("allOf"); list != nil {
			if list.kind != '[' || len(list.items) == 0 {
				fail(list.pointer, "want an array of schemas")
			}
			for _, v := range list.items {
				add(part{v, 0})
			}
		}
		done[p.v] = 2
	}
	for _, p := range all {
		if done[p.v] == 2 { // keep the later state of its choices
			continue
		}
		add(p)
	}
	for i := range out {
		for _, p := range all {
			if p.v == out[i].v {
				out[i].done = max(out[i].done, p.done)
			}
		}
	}
	return out
}

// resolve finds what a $ref points to: a JSON pointer into this schema, or an $anchor or $id of it.
func (c *compiler) resolve(ref *value) *value {
	if ref.kind != '"' {
		fail(ref.pointer, "want a string")
	}
	text := ref.text
	if id := c.root.member("$id"); id != nil && id.text != "" && strings.HasPrefix(text, strings.TrimSuffix(id.text, "#")) {
		text = strings.TrimPrefix(text, strings.TrimSuffix(id.text, "#"))
	}
	if text == "" || text == "#" {
		return c.root
	}
	if !strings.HasPrefix(text, "#") {
		fail(ref.pointer, "%q is not in this schema: only references that begin with # are supported", shortened(text))
	}
	if !strings.HasPrefix(text, "#/") {
		if v := anchor(c.root, text[1:]); v != nil {
			return v
		}
		fail(ref.pointer, "%q is not in this schema", shortened(text))
	}
	v := c.root
	for _, step := range strings.Split(text[2:], "/") {
		if u, err := url.PathUnescape(step); err == nil {
			step = u
		}
		step = strings.ReplaceAll(strings.ReplaceAll(step, "~1", "/"), "~0", "~")
		var next *value
		switch v.kind {
		case '{':
			next = v.member(step)
		case '[':
			if i, err := strconv.Atoi(step); err == nil && i >= 0 && i < len(v.items) {
				next = v.items[i]
			}
		}
		if next == nil {
			fail(ref.pointer, "%q is not in this schema", shortened(text))
		}
		if v = next; v.kind == '{' && v != c.root && v.member("$id") != nil {
			fail(v.pointer+"/$id", "a schema with an $id of its own inside another is not supported")
		}
	}
	return v
}

func anchor(v *value, name string) *value {
	if a := v.member("$anchor"); a != nil && a.kind == '"' && a.text == name {
		return v
	}
	for _, item := range v.items {
		if found := anchor(item, name); found != nil {
			return found
		}
	}
	return nil
}

// mustDiffer fails unless no value can satisfy two branches of a oneOf.
func (c *compiler) mustDiffer(g *value, each []conjunction) {
	if len(each) > 200 {
		fail(g.pointer, "more than 200 branches")
	}
	specs := make([]*spec, len(each))
	for i, all := range each {
		specs[i] = c.spec(c.flatten(all))
	}
	for i, a := range specs {
		for j, b := range specs[:i] {
			if !c.differ(a, b, 0) {
				fail(g.pointer, "a value could satisfy branches %d and %d: oneOf is supported where types, constants or a required property tell branches apart; use anyOf", j, i)
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
