package grammar

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
)

// Limits of one grammar, so that nobody's schema takes seconds or gigabytes.
const (
	maxNFA      = 1_000_000 // states before they are made deterministic, all rules together
	maxStates   = 300_000   // after
	maxWork     = 30_000_000
	maxExprDeep = 2_000
)

// Symbols of edges: bytes, and from firstControl on the control tokens of the vocabulary.
const firstControl = 256

// edge is taken by any symbol in [lo, hi].
type edge struct{ lo, hi, to int32 }

// call runs a rule and goes on at to.
type call struct{ rule, to int32 }

type nfaState struct {
	edges []edge
	eps   []int32
	calls []call
}

// dfa is a deterministic automaton but for its calls; state 0 is the first. With no states nothing satisfies it.
type dfa struct {
	edges [][]edge // sorted
	calls [][]call
	final []bool
}

// builder compiles the rules of one grammar.
type builder struct {
	ctx    context.Context
	v      *Vocabulary
	nums   map[*rule]int32
	rules  []*rule
	nfas   int
	states int
	work   int
}

type tooMuch struct{ err error }

func (b *builder) limit(format string, args ...any) {
	panic(tooMuch{&Error{"", fmt.Sprintf(format, args...)}})
}

func (b *builder) spend(n int) {
	if b.work += n; b.work > maxWork {
		b.limit("the grammar is too complex: it takes more work than the limit to compile")
	}
	if b.work&1023 < n && b.ctx.Err() != nil {
		panic(tooMuch{b.ctx.Err()})
	}
}

// number returns the number of a rule, which is compiled when its turn comes.
func (b *builder) number(r *rule) int32 {
	n, ok := b.nums[r]
	if !ok {
		n = int32(len(b.rules))
		b.nums[r] = n
		b.rules = append(b.rules, r)
	}
	return n
}

// nfa is an automaton under construction.
type nfa struct {
	b      *builder
	states []nfaState
	deep   int
}

func (a *nfa) state() int32 {
	if a.b.nfas++; a.b.nfas > maxNFA {
		a.b.limit("the grammar is too large: more than %d states (repeats and lengths multiply what they repeat)", maxNFA)
	}
	a.states = append(a.states, nfaState{})
	return int32(len(a.states) - 1)
}

func (a *nfa) eps(from, to int32) {
	a.states[from].eps = append(a.states[from].eps, to)
}

func (a *nfa) on(from int32, lo, hi int, to int32) {
	a.states[from].edges = append(a.states[from].edges, edge{int32(lo), int32(hi), to})
}

// add lets e lead from from; it returns where it ends.
func (a *nfa) add(from int32, e Expr) int32 {
	n := e.n
	if n == nil {
		return from
	}
	if a.deep++; a.deep > maxExprDeep {
		a.b.limit("the grammar nests more than %d deep", maxExprDeep)
	}
	defer func() { a.deep-- }()
	switch n.op {
	case opBytes:
		return a.bytes(from, n)
	case opAny:
		to := a.state()
		a.on(from, 0, 255, to)
		return to
	case opClass:
		to := a.state()
		for _, s := range n.class {
			a.utf8(from, to, s)
		}
		return to
	case opSeq:
		for _, kid := range n.kids {
			from = a.add(from, kid)
		}
		return from
	case opAlt:
		to := a.state()
		for _, kid := range n.kids {
			begin := a.state()
			a.eps(from, begin)
			a.eps(a.add(begin, kid), to)
		}
		return to
	case opRepeat:
		return a.repeat(from, n)
	case opRule:
		to := a.state()
		a.states[from].calls = append(a.states[from].calls, call{a.b.number(n.rule), to})
		return to
	case opNet:
		first := int32(len(a.states))
		for range n.net.states {
			a.state()
		}
		a.eps(from, first)
		for _, ed := range n.net.edges {
			begin := a.state()
			a.eps(first+int32(ed.from), begin)
			a.eps(a.add(begin, ed.on), first+int32(ed.to))
		}
		to := a.state()
		for _, f := range n.net.final {
			a.eps(first+int32(f), to)
		}
		return to
	}
	return a.embed(from, a.b.product(n))
}

func (a *nfa) bytes(from int32, n *node) int32 {
	at := make([]int32, len(n.text)+1)
	at[0] = from
	for i := range len(n.text) {
		at[i+1] = a.state()
		a.on(at[i], int(n.text[i]), int(n.text[i]), at[i+1])
	}
	if n.control {
		for k, c := range a.b.v.controls {
			for i := 0; i+len(c.text) <= len(n.text); i++ {
				if n.text[i:i+len(c.text)] == c.text {
					a.on(at[i], firstControl+k, firstControl+k, at[i+len(c.text)])
				}
			}
		}
	}
	return at[len(n.text)]
}

func (a *nfa) repeat(from int32, n *node) int32 {
	for range n.min {
		a.b.spend(1)
		from = a.add(from, n.kids[0])
	}
	if n.max < 0 {
		loop := a.state()
		a.eps(from, loop)
		begin := a.state()
		a.eps(loop, begin)
		a.eps(a.add(begin, n.kids[0]), loop)
		out := a.state()
		a.eps(loop, out)
		return out
	}
	out := a.state()
	for range n.max - n.min {
		a.b.spend(1)
		a.eps(from, out)
		begin := a.state()
		a.eps(from, begin)
		from = a.add(begin, n.kids[0])
	}
	a.eps(from, out)
	return out
}

// utf8 lets the encodings of s lead from from to to: s is cut so that each piece is a product of byte ranges.
func (a *nfa) utf8(from, to int32, s span) {
	for _, top := range []rune{0x7F, 0x7FF, 0xFFFF} {
		if s.lo <= top && s.hi > top {
			a.utf8(from, to, span{s.lo, top})
			a.utf8(from, to, span{top + 1, s.hi})
			return
		}
	}
	if s.hi <= 0x7F {
		a.on(from, int(s.lo), int(s.hi), to)
		return
	}
	for shift := 6; shift <= 18; shift += 6 {
		low := rune(1)<<shift - 1
		if s.lo&^low == s.hi&^low {
			continue
		}
		if s.lo&low != 0 {
			a.utf8(from, to, span{s.lo, s.lo | low})
			a.utf8(from, to, span{(s.lo | low) + 1, s.hi})
			return
		}
		if s.hi&low != low {
			a.utf8(from, to, span{s.lo, s.hi&^low - 1})
			a.utf8(from, to, span{s.hi &^ low, s.hi})
			return
		}
	}
	lo, hi := []byte(string(s.lo)), []byte(string(s.hi))
	for i := range lo {
		next := to
		if i < len(lo)-1 {
			next = a.state()
		}
		a.on(from, int(lo[i]), int(hi[i]), next)
		from = next
	}
}

// embed copies a deterministic automaton.
func (a *nfa) embed(from int32, d *dfa) int32 {
	first := int32(len(a.states))
	for range d.final {
		a.state()
	}
	to := a.state()
	for i := range d.final {
		s := &a.states[first+int32(i)]
		for _, e := range d.edges[i] {
			s.edges = append(s.edges, edge{e.lo, e.hi, first + e.to})
		}
		if d.final[i] {
			s.eps = append(s.eps, to)
		}
	}
	if len(d.final) > 0 {
		a.eps(from, first)
	}
	return to
}

// compile makes a deterministic automaton of e.
func (b *builder) compile(e Expr) *dfa {
	a := &nfa{b: b}
	begin := a.state()
	end := a.add(begin, e)
	d := &dfa{}
	ids := map[string]int32{}
	var sets [][]int32
	mark := make([]bool, len(a.states))
	var key []byte
	intern := func(set []int32) int32 {
		set = a.closure(set, mark)
		key = key[:0]
		for _, s := range set {
			key = binary.LittleEndian.AppendUint32(key, uint32(s))
		}
		id, ok := ids[string(key)]
		if !ok {
			if b.states++; b.states > maxStates {
				b.limit("the grammar is too large: more than %d states", maxStates)
			}
			id = int32(len(sets))
			ids[string(key)] = id
			sets = append(sets, set)
		}
		return id
	}
	intern([]int32{begin})
	var all []edge
	var cuts []int32
	for i := 0; i < len(sets); i++ {
		all, cuts = all[:0], cuts[:0]
		var calls []call
		final := false
		for _, s := range sets[i] {
			all = append(all, a.states[s].edges...)
			calls = append(calls, a.states[s].calls...)
			final = final || s == end
		}
		b.spend(len(sets[i]) + len(all))
		var edges []edge
		if len(all) == 1 {
			edges = append(edges, edge{all[0].lo, all[0].hi, intern([]int32{all[0].to})})
		} else if len(all) > 0 {
			slices.SortFunc(all, func(x, y edge) int { return int(x.lo - y.lo) })
			for _, e := range all {
				cuts = append(cuts, e.lo, e.hi+1)
			}
			slices.Sort(cuts)
			cuts = slices.Compact(cuts)
			first := 0
			for k := 0; k+1 < len(cuts); k++ {
				lo, hi := cuts[k], cuts[k+1]-1
				var to []int32
				for first < len(all) && all[first].hi < lo && all[first].lo <= lo {
					first++
				}
				for j := first; j < len(all) && all[j].lo <= lo; j++ {
					b.work++
					if all[j].hi >= hi {
						to = append(to, all[j].to)
					}
				}
				if to == nil {
					continue
				}
				id := intern(to)
				if n := len(edges); n > 0 && edges[n-1].to == id && edges[n-1].hi+1 == lo {
					edges[n-1].hi = hi
				} else {
					edges = append(edges, edge{lo, hi, id})
				}
			}
		}
		// Calls of one rule go on at one state.
		slices.SortFunc(calls, func(x, y call) int { return int(x.rule - y.rule) })
		var joined []call
		for k := 0; k < len(calls); {
			var to []int32
			r := calls[k].rule
			for ; k < len(calls) && calls[k].rule == r; k++ {
				to = append(to, calls[k].to)
			}
			joined = append(joined, call{r, intern(to)})
		}
		d.edges, d.calls, d.final = append(d.edges, edges), append(d.calls, joined), append(d.final, final)
	}
	return d
}

// closure adds what is reached without a symbol; sorted. mark is all false, before and after.
func (a *nfa) closure(set []int32, mark []bool) []int32 {
	out := make([]int32, 0, len(set)+4)
	for _, s := range set {
		if !mark[s] {
			mark[s] = true
			out = append(out, s)
		}
	}
	for i := 0; i < len(out); i++ {
		for _, t := range a.states[out[i]].eps {
			if !mark[t] {
				mark[t] = true
				out = append(out, t)
			}
		}
	}
	a.b.spend(len(out))
	for _, s := range out {
		mark[s] = false
	}
	slices.Sort(out)
	return out
}

// product is what both of an opAnd accept, or the first and not the second of an opMinus.
func (b *builder) product(n *node) *dfa {
	x, y := b.compile(n.kids[0]), b.compile(n.kids[1])
	for _, d := range []*dfa{x, y} {
		for _, c := range d.calls {
			if len(c) > 0 {
				panic("grammar: a part that is not regular is intersected")
			}
		}
	}
	type pair struct{ x, y int32 } // y -1: the second has no way on
	ids := map[pair]int32{}
	var pairs []pair
	minus := n.op == opMinus
	intern := func(p pair) int32 {
		id, ok := ids[p]
		if !ok {
			if b.states++; b.states > maxStates {
				b.limit("the grammar is too large: more than %d states", maxStates)
			}
			id = int32(len(pairs))
			ids[p] = id
			pairs = append(pairs, p)
		}
		return id
	}
	d := &dfa{}
	if len(x.final) == 0 {
		return d
	}
	intern(pair{0, 0})
	for i := 0; i < len(pairs); i++ {
		p := pairs[i]
		var others []edge
		inY := false
		if p.y >= 0 {
			others, inY = y.edges[p.y], y.final[p.y]
		}
		var edges []edge
		for _, e := range x.edges[p.x] {
			at := e.lo
			for _, o := range others {
				b.spend(1)
				lo, hi := max(at, o.lo), min(e.hi, o.hi)
				if lo > hi {
					continue
				}
				if minus && at < lo {
					edges = append(edges, edge{at, lo - 1, intern(pair{e.to, -1})})
				}
				edges = append(edges, edge{lo, hi, intern(pair{e.to, o.to})})
				at = hi + 1
			}
			if minus && at <= e.hi {
				edges = append(edges, edge{at, e.hi, intern(pair{e.to, -1})})
			}
		}
		d.edges, d.calls = append(d.edges, edges), append(d.calls, nil)
		d.final = append(d.final, x.final[p.x] && inY != minus)
	}
	return d.trim()
}

// trim drops states from which no end is reached.
func (d *dfa) trim() *dfa {
	back := make([][]int32, len(d.final))
	for i, es := range d.edges {
		for _, e := range es {
			back[e.to] = append(back[e.to], int32(i))
		}
	}
	live := slices.Clone(d.final)
	var todo []int32
	for i, f := range d.final {
		if f {
			todo = append(todo, int32(i))
		}
	}
	for len(todo) > 0 {
		s := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for _, p := range back[s] {
			if !live[p] {
				live[p] = true
				todo = append(todo, p)
			}
		}
	}
	out := &dfa{}
	if !live[0] {
		return out
	}
	to := make([]int32, len(live))
	n := int32(0)
	for i, l := range live {
		if to[i] = n; l {
			n++
		}
	}
	for i, l := range live {
		if !l {
			continue
		}
		var edges []edge
		for _, e := range d.edges[i] {
			if live[e.to] {
				edges = append(edges, edge{e.lo, e.hi, to[e.to]})
			}
		}
		out.edges, out.calls, out.final = append(out.edges, edges), append(out.calls, nil), append(out.final, d.final[i])
	}
	return out
}
