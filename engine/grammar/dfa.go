package grammar

import (
	"context"
	"slices"
)

// dfa is a deterministic automaton but for its calls; state 0 is the first. With no states nothing satisfies it.
// What leaves its states stands in one piece for all of them.
type dfa struct {
	final    []bool
	out      []edge // sorted in each state
	outEnd   []int32
	outCalls []call
	callEnd  []int32
}

// add adds a state.
func (d *dfa) add(edges []edge, calls []call, final bool) {
	d.out, d.outCalls = append(d.out, edges...), append(d.outCalls, calls...)
	d.outEnd, d.callEnd = append(d.outEnd, int32(len(d.out))), append(d.callEnd, int32(len(d.outCalls)))
	d.final = append(d.final, final)
}

func (d *dfa) edges(s int32) []edge {
	if s == 0 {
		return d.out[:d.outEnd[0]]
	}
	return d.out[d.outEnd[s-1]:d.outEnd[s]]
}

func (d *dfa) calls(s int32) []call {
	if s == 0 {
		return d.outCalls[:d.callEnd[0]]
	}
	return d.outCalls[d.callEnd[s-1]:d.callEnd[s]]
}

// newBuilder compiles rules for v until ctx ends.
func newBuilder(ctx context.Context, v *Vocabulary) *builder {
	return &builder{ctx: ctx, v: v, nums: map[*rule]int32{}, made: map[*node]*dfa{}}
}

// subsets are the sets of states that an automaton may be in after some text, each a state of the deterministic one. Of
// a set those states are kept that something leaves, and the end.
type subsets struct {
	a       nfa
	end     int32
	members []int32 // of all sets, sorted in each
	at      []int32 // by set: where its members begin; one more than sets
	hashes  []uint64
	table   []int32 // of sets by hash: one more than the set; 0: none
	alone   []int32 // by state: one more than the set of what is reached from it; 0: not known
	mark    []int32 // by state: the last search that came by
	search  int32
	todo    []int32
	found   []int32
}

// subsets are memory that was used before, or new: automata are compiled within automata, so that some are in use at a time.
func (b *builder) subsets() *subsets {
	n := len(b.idle)
	if n == 0 {
		return &subsets{a: nfa{b: b}}
	}
	u := b.idle[n-1]
	b.idle = b.idle[:n-1]
	a := &u.a
	a.states, a.edges, a.eps, a.calls, a.deep = a.states[:0], a.edges[:0], a.eps[:0], a.calls[:0], 0
	return u
}

// begin makes ready for the states of a, of which end is the end.
func (u *subsets) begin(end int32) {
	n := len(u.a.states)
	u.end, u.search = end, 0
	u.members, u.hashes, u.at = u.members[:0], u.hashes[:0], append(u.at[:0], 0)
	u.alone, u.mark, u.table = zeros(u.alone, n), zeros(u.mark, n), zeros(u.table, 64)
}

// zeros returns n zeros, in list's memory if it is enough.
func zeros(list []int32, n int) []int32 {
	if cap(list) < n {
		return make([]int32, n, n+n/4)
	}
	list = list[:n]
	clear(list)
	return list
}

func (n *nfaState) kept() bool { return n.edges != 0 || n.calls != 0 }

// of returns the set of what is reached from states without a symbol.
func (u *subsets) of(states ...int32) int32 {
	if len(states) == 1 && u.alone[states[0]] > 0 {
		return u.alone[states[0]] - 1
	}
	u.search++
	u.todo, u.found = u.todo[:0], u.found[:0]
	reach := func(s int32) {
		if u.mark[s] != u.search {
			u.mark[s] = u.search
			u.todo = append(u.todo, s)
			if s == u.end || u.a.states[s].kept() {
				u.found = append(u.found, s)
			}
		}
	}
	for _, s := range states {
		reach(s)
	}
	for i := 0; i < len(u.todo); i++ {
		for k := u.a.states[u.todo[i]].eps; k > 0; k = u.a.eps[k-1].next {
			reach(u.a.eps[k-1].to)
		}
	}
	u.a.b.spend(len(u.todo))
	slices.Sort(u.found)
	id := u.intern()
	if len(states) == 1 {
		u.alone[states[0]] = id + 1
	}
	return id
}

// intern returns the set that is found.
func (u *subsets) intern() int32 {
	h := uint64(len(u.found))
	for _, s := range u.found {
		h = (h ^ uint64(s)) * 0x9e3779b97f4a7c15
		h ^= h >> 29
	}
	free := h
	for ; u.table[free%uint64(len(u.table))] != 0; free++ {
		id := u.table[free%uint64(len(u.table))] - 1
		if u.hashes[id] == h && slices.Equal(u.set(id), u.found) {
			return id
		}
	}
	u.a.b.more()
	id := int32(len(u.hashes))
	u.members, u.hashes = append(u.members, u.found...), append(u.hashes, h)
	u.at = append(u.at, int32(len(u.members)))
	u.table[free%uint64(len(u.table))] = id + 1
	if 2*len(u.hashes) > len(u.table) {
		u.table = zeros(u.table, 2*len(u.table))
		for id, h := range u.hashes {
			for ; u.table[h%uint64(len(u.table))] != 0; h++ {
			}
			u.table[h%uint64(len(u.table))] = int32(id) + 1
		}
	}
	return id
}

func (u *subsets) set(id int32) []int32 { return u.members[u.at[id]:u.at[id+1]] }

// more counts one more state of a deterministic automaton.
func (b *builder) more() {
	if b.states++; b.states > maxStates {
		b.limit("the grammar is too large: more than %d states", maxStates)
	}
}

// compile makes a deterministic automaton of e.
func (b *builder) compile(e Expr) *dfa {
	u := b.subsets()
	defer func() { b.idle = append(b.idle, u) }()
	a := &u.a
	begin := a.state()
	end := a.add(begin, e)
	u.begin(end)
	u.of(begin)
	d := &dfa{}
	var all, edges []edge
	var calls, joined []call
	var cuts, to []int32
	for i := int32(0); i < int32(len(u.hashes)); i++ {
		all, edges, calls, joined = all[:0], edges[:0], calls[:0], joined[:0]
		final := false
		for _, s := range u.set(i) {
			for k := a.states[s].edges; k > 0; k = a.edges[k-1].next {
				all = append(all, a.edges[k-1].edge)
			}
			for k := a.states[s].calls; k > 0; k = a.calls[k-1].next {
				calls = append(calls, a.calls[k-1].call)
			}
			final = final || s == end
		}
		b.spend(int(u.at[i+1]-u.at[i]) + len(all))
		put := func(lo, hi, id int32) {
			if n := len(edges); n > 0 && edges[n-1].to == id && edges[n-1].hi+1 == lo {
				edges[n-1].hi = hi
			} else {
				edges = append(edges, edge{lo, hi, id})
			}
		}
		if apart(all) {
			for _, e := range all {
				put(e.lo, e.hi, u.of(e.to))
			}
		} else {
			cuts = cuts[:0]
			for _, e := range all {
				cuts = append(cuts, e.lo, e.hi+1)
			}
			slices.Sort(cuts)
			cuts = slices.Compact(cuts)
			first := 0
			for k := 0; k+1 < len(cuts); k++ {
				lo, hi := cuts[k], cuts[k+1]-1
				to = to[:0]
				for first < len(all) && all[first].hi < lo && all[first].lo <= lo {
					first++
				}
				for j := first; j < len(all) && all[j].lo <= lo; j++ {
					b.work++
					if all[j].hi >= hi {
						to = append(to, all[j].to)
					}
				}
				if len(to) > 0 {
					put(lo, hi, u.of(to...))
				}
			}
		}
		// Calls of one rule go on at one state.
		slices.SortFunc(calls, func(x, y call) int { return int(x.rule - y.rule) })
		for k := 0; k < len(calls); {
			r := calls[k].rule
			to = to[:0]
			for ; k < len(calls) && calls[k].rule == r; k++ {
				to = append(to, calls[k].to)
			}
			joined = append(joined, call{r, u.of(to...)})
		}
		d.add(edges, joined, final)
	}
	return d
}

// apart sorts edges, and reports whether no two of them share a symbol.
func apart(edges []edge) bool {
	if len(edges) > 1 {
		slices.SortFunc(edges, func(x, y edge) int { return int(x.lo - y.lo) })
	}
	for i := 1; i < len(edges); i++ {
		if edges[i].lo <= edges[i-1].hi {
			return false
		}
	}
	return true
}

// product is what both of an opAnd accept, or the first and not the second of an opMinus.
func (b *builder) product(n *node) *dfa {
	if d := b.made[n]; d != nil {
		return d
	}
	x, y := b.compile(n.kids[0]), b.compile(n.kids[1])
	for _, d := range []*dfa{x, y} {
		if len(d.outCalls) > 0 {
			panic("grammar: a part that is not regular is intersected")
		}
	}
	type pair struct{ x, y int32 } // y -1: the second has no way on
	ids := map[pair]int32{}
	var pairs []pair
	minus := n.op == opMinus
	intern := func(p pair) int32 {
		id, ok := ids[p]
		if !ok {
			b.more()
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
	var edges []edge
	for i := 0; i < len(pairs); i++ {
		p := pairs[i]
		var others []edge
		inY := false
		if p.y >= 0 {
			others, inY = y.edges(p.y), y.final[p.y]
		}
		edges = edges[:0]
		for _, e := range x.edges(p.x) {
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
		d.add(edges, nil, x.final[p.x] && inY != minus)
	}
	d = d.trim()
	b.made[n] = d
	return d
}

// trim drops states from which no end is reached.
func (d *dfa) trim() *dfa {
	back := newLists[int32](len(d.final))
	for fill := range 2 {
		for i := range int32(len(d.final)) {
			for _, e := range d.edges(i) {
				back.add(e.to, i)
			}
		}
		if fill == 0 {
			back.counted()
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
		for _, p := range back.of(s) {
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
	var edges []edge
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
		edges = edges[:0]
		for _, e := range d.edges(int32(i)) {
			if live[e.to] {
				edges = append(edges, edge{e.lo, e.hi, to[e.to]})
			}
		}
		out.add(edges, nil, d.final[i])
	}
	return out
}
