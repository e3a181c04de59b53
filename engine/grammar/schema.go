package grammar

import (
	"context"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Limits of one schema.
const (
	maxConjunctions = 8_000 // different schemas it is made of, after anyOf was multiplied out
	maxSchemaNested = 400   // of schemas in each other while they are compiled
	maxSchemaWork   = 1_200_000
)

// Schema is the JSON values that a JSON Schema (drafts 7 to 2020-12) describes, in a normal form: members in the order of
// properties, others after them, white space as White says, numbers with at most 18 digits before and after the point. Where a
// schema has properties and says nothing of others there are no others; one with properties and no type is of
// an object. What is unevaluated is what the branch taken does not evaluate; items that are to differ and are of a set of more than ten come in
// its order; a member that only has to exist under some name, as not may ask for, comes last. Annotations are ignored; a keyword that is not
// supported is an *Error with its place.
func Schema(raw []byte) (Expr, error) { return SchemaWithSpace(raw, Expr{}, false) }

// SchemaWithSpace is Schema with white space of the caller's own, if own, between parts of arrays and objects.
func SchemaWithSpace(schema []byte, space Expr, own bool) (Expr, error) {
	root, err := parseValue(schema)
	if err != nil {
		return Expr{}, err
	}
	c := &compiler{root: root, rules: map[string]Expr{}, ids: map[*value]int{}, space: white, dfas: map[string]*dfa{}, same: map[string]Expr{},
		groups: map[*value][]group{}, nots: map[*value]*value{}, apart: map[*value][]*value{}, exact: map[*value]*value{}, either: map[[2]*value]*value{},
		check: newBuilder(context.Background(), &Vocabulary{})}
	if draft := root.member("$schema"); draft != nil {
		c.alone = oldDraft.MatchString(draft.text)
	}
	if own {
		c.space = named("white space", space)
	}
	return c.compile(root)
}

// oldDraft is the $schema of drafts in which what stands beside a $ref is ignored.
var oldDraft = regexp.MustCompile(`^https?://json-schema\.org/draft-0[3-7]/schema`)

// compiler makes an expression of a schema.
type compiler struct {
	root    *value
	alone   bool // a $ref is all there is of its schema
	space   Expr
	rules   map[string]Expr // by conjunction
	ids     map[*value]int
	any     Expr
	deep    int
	work    int // schemas looked at in conjunctions
	groups  map[*value][]group
	nots    map[*value]*value    // complements
	apart   map[*value][]*value  // alternatives of those
	exact   map[*value]*value    // schemas of constants
	either  map[[2]*value]*value // schemas of which one holds
	uris    map[string]*value    // of schemas with an $id or an anchor
	bases   map[*value]*url.URL  // that references are relative to
	dynamic map[string]int       // $dynamicAnchor by name: how many
	check   *builder             // of automata that constants and names are checked with
	dfas    map[string]*dfa      // of patterns
	same    map[string]Expr      // strings and numbers by what is asked of them
}

// part is one schema of a conjunction; its first done choices (anyOf, oneOf) have been made.
type part struct {
	v    *value
	done int
	up   *trail
}

// trail leads to the schema that a part is asked for by, and on: what comes back to one that it is on holds only if it holds.
type trail struct {
	v  *value
	up *trail
}

func (t *trail) has(v *value) bool {
	for ; t != nil; t = t.up {
		if t.v == v {
			return true
		}
	}
	return false
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
	return c.expr(conjunction{{v: root}}), nil
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
	defer c.deeper(all)()
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

// deeper counts schemas within each other; what it returns is called behind the inner one.
func (c *compiler) deeper(all conjunction) func() {
	if c.deep++; c.deep > maxSchemaNested {
		fail(all[0].v.pointer, "schemas nest more than %d deep", maxSchemaNested)
	}
	return func() { c.deep-- }
}

func (c *compiler) body(all conjunction) Expr {
	flat := c.flatten(all)
	if each, open := c.branches(flat); open {
		var parts []Expr
		for _, next := range each {
			if len(each) == 1 || !c.impossible(next, 0) {
				parts = append(parts, c.expr(next))
			}
		}
		return Alt(parts...)
	}
	return c.spec(flat).expr()
}

// impossible reports whether it is soon seen that nothing satisfies a conjunction, so that choices that exclude each other do not multiply.
func (c *compiler) impossible(all conjunction, deep int) bool {
	s := c.spec(c.flatten(all))
	if s.never || s.types == 0 {
		return true
	}
	if s.values != nil && len(s.values) <= 100 {
		return !slices.ContainsFunc(s.values, s.holds)
	}
	return s.types == isObject && deep < 3 && slices.ContainsFunc(s.required, func(name string) bool {
		all := s.property(name)
		return len(all) > 0 && c.impossible(all, deep+1)
	})
}

// flatten follows $ref, allOf and not.
func (c *compiler) flatten(all conjunction) conjunction {
	if c.work += len(all); c.work > maxSchemaWork {
		fail("", "the schema takes more work than the limit to compile: its anyOf, oneOf, not and if multiply each other")
	}
	var out conjunction
	done := map[*value]int{} // 1: on the way, 2: in out
	var add func(p part)
	add = func(p part) {
		switch {
		case done[p.v] == 1:
			fail(p.v.pointer, "refers to itself without end")
		case p.up.has(p.v): // by way of a choice, so that another may be made
			out = append(out, part{v: truth(p.v.pointer, false)})
			return
		case done[p.v] == 2:
			return
		}
		next := func(v *value) { add(part{v: v, up: &trail{p.v, p.up}}) }
		if len(done) > 10_000 {
			fail(p.v.pointer, "too many schemas in allOf and $ref")
		}
		done[p.v] = 1
		if ref := p.v.member("$ref"); ref != nil && c.alone {
			next(c.resolve(ref))
			done[p.v] = 2
			return
		}
		out = append(out, p)
		for _, name := range []string{"$ref", "$dynamicRef", "$recursiveRef"} {
			if ref := p.v.member(name); ref != nil {
				next(c.resolve(ref))
			}
		}
		if not := p.v.member("not"); not != nil {
			next(c.not(not))
		}
		if p.v.not != nil {
			if alternatives := c.complement(p.v); len(alternatives) == 1 {
				next(alternatives[0])
			}
		}
		if list := p.v.member("allOf"); list != nil {
			if list.kind != '[' || len(list.items) == 0 {
				fail(list.pointer, "want an array of schemas")
			}
			for _, v := range list.items {
				next(v)
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
