package grammar

import (
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"slices"
	"unicode/utf8"
)

// Expr is a set of texts. It is immutable; the zero Expr is the empty text alone.
type Expr struct{ n *node }

type op uint8

const (
	opBytes  op = iota // text
	opClass            // one character of class
	opSeq              // kids one after the other
	opAlt              // one of kids; none: nothing at all
	opRepeat           // kids[0], min to max times
	opRule             // rule
	opNet              // edges from state 0 to a final one
	opAnd              // in kids[0] and kids[1], which are regular
	opMinus            // in kids[0] and not in kids[1], which are regular
	opAny              // any byte
)

type node struct {
	op       op
	text     string
	control  bool // text may be spelt by control tokens
	class    class
	kids     []Expr
	min, max int
	rule     *rule
	net      *net
}

// rule is a named part that is compiled once however often it is used, and that may use itself.
type rule struct {
	name string
	body Expr
}

// net is an automaton whose edges are expressions.
type net struct {
	states int
	final  []int
	edges  []netEdge
}

type netEdge struct {
	from, to int
	on       Expr
}

func (n *net) state() int { n.states++; return n.states - 1 }

func (n *net) edge(from, to int, on Expr) { n.edges = append(n.edges, netEdge{from, to, on}) }

func (n *net) expr() Expr { return Expr{&node{op: opNet, net: n}} }

// Literal is s. Control tokens of the vocabulary whose text occurs in s may spell it.
func Literal(s string) Expr { return Expr{&node{op: opBytes, text: s, control: true}} }

// raw is s, spelt by ordinary tokens alone.
func raw(s string) Expr { return Expr{&node{op: opBytes, text: s}} }

// Seq is its parts one after the other.
func Seq(parts ...Expr) Expr { return Expr{&node{op: opSeq, kids: slices.Clone(parts)}} }

// Alt is any one of its parts; without parts nothing satisfies it.
func Alt(parts ...Expr) Expr { return Expr{&node{op: opAlt, kids: slices.Clone(parts)}} }

// Repeat is e at least min and at most max times; max < 0: without bound.
func Repeat(e Expr, min, max int) Expr {
	return Expr{&node{op: opRepeat, kids: []Expr{e}, min: min, max: max}}
}

func optional(e Expr) Expr { return Repeat(e, 0, 1) }

// Until is any text that does not contain stop, which is not empty; no control token spells it.
func Until(stop string) Expr {
	if stop == "" {
		return Alt()
	}
	any := Expr{&node{op: opAny}}
	contains := Seq(Repeat(any, 0, -1), raw(stop), Repeat(any, 0, -1))
	return Expr{&node{op: opMinus, kids: []Expr{Repeat(any, 0, -1), contains}}}
}

// oneOf is a character of c.
func oneOf(c class) Expr { return Expr{&node{op: opClass, class: c}} }

// and and minus take regular expressions: none of their parts is a rule.
func and(a, b Expr) Expr   { return Expr{&node{op: opAnd, kids: []Expr{a, b}}} }
func minus(a, b Expr) Expr { return Expr{&node{op: opMinus, kids: []Expr{a, b}}} }

// named makes a rule of e.
func named(name string, e Expr) Expr { return Expr{&node{op: opRule, rule: &rule{name, e}}} }

// Choice is one of the texts.
func Choice(texts []string) Expr {
	parts := make([]Expr, len(texts))
	for i, s := range texts {
		parts[i] = raw(s)
	}
	return Alt(parts...)
}

// Key is a digest of what e means: expressions of one Key compile to the same Grammar.
func (e Expr) Key() [sha256.Size]byte {
	k := keyer{sha256.New(), map[*rule]uint64{}, map[*node]uint64{}}
	k.expr(e)
	return [sha256.Size]byte(k.h.Sum(nil))
}

type keyer struct {
	h     hash.Hash
	rules map[*rule]uint64
	seen  map[*node]uint64
}

func (k keyer) num(ns ...int) {
	var b []byte
	for _, n := range ns {
		b = binary.AppendVarint(b, int64(n))
	}
	k.h.Write(b)
}

func (k keyer) expr(e Expr) {
	n := e.n
	if n == nil {
		k.num(-1)
		return
	}
	if id, ok := k.seen[n]; ok {
		k.num(-2, int(id))
		return
	}
	k.seen[n] = uint64(len(k.seen))
	control := 0
	if n.control {
		control = 1
	}
	k.num(int(n.op), control, len(n.text), len(n.class), len(n.kids), n.min, n.max)
	k.h.Write([]byte(n.text))
	for _, r := range n.class {
		k.num(int(r.lo), int(r.hi))
	}
	for _, kid := range n.kids {
		k.expr(kid)
	}
	if n.net != nil {
		k.num(n.net.states, len(n.net.final), len(n.net.edges))
		k.num(n.net.final...)
		for _, ed := range n.net.edges {
			k.num(ed.from, ed.to)
			k.expr(ed.on)
		}
	}
	if n.rule != nil {
		if id, ok := k.rules[n.rule]; ok {
			k.num(int(id))
			return
		}
		k.rules[n.rule] = uint64(len(k.rules))
		k.num(len(k.rules))
		k.expr(n.rule.body)
	}
}

// class is a set of characters: sorted ranges that do not touch. Surrogates are in none.
type class []span

type span struct{ lo, hi rune }

var anyChar = newClass(span{0, utf8.MaxRune})

func newClass(spans ...span) class {
	all := slices.Clone(spans)
	slices.SortFunc(all, func(a, b span) int { return int(a.lo - b.lo) })
	var out class
	for _, s := range all {
		if n := len(out); n > 0 && s.lo <= out[n-1].hi+1 {
			out[n-1].hi = max(out[n-1].hi, s.hi)
			continue
		}
		out = append(out, s)
	}
	return out.without(0xD800, 0xDFFF)
}

func chars(s string) class {
	var c []span
	for _, r := range s {
		c = append(c, span{r, r})
	}
	return newClass(c...)
}

func (c class) without(lo, hi rune) class {
	var out class
	for _, s := range c {
		if s.hi < lo || s.lo > hi {
			out = append(out, s)
			continue
		}
		if s.lo < lo {
			out = append(out, span{s.lo, lo - 1})
		}
		if s.hi > hi {
			out = append(out, span{hi + 1, s.hi})
		}
	}
	return out
}

func (c class) minus(d class) class {
	for _, s := range d {
		c = c.without(s.lo, s.hi)
	}
	return c
}

func (c class) has(r rune) bool {
	_, ok := slices.BinarySearchFunc(c, r, func(s span, r rune) int {
		switch {
		case s.hi < r:
			return -1
		case s.lo > r:
			return 1
		}
		return 0
	})
	return ok
}

// Error is a schema, pattern or grammar that cannot be compiled: what is wrong and where.
type Error struct {
	Where   string // a JSON pointer into a schema, or a byte or line; "" when it is about the whole
	Message string
}

func (e *Error) Error() string {
	if e.Where == "" {
		return e.Message
	}
	return e.Where + ": " + e.Message
}
