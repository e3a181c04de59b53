package grammar

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"unicode/utf8"
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

// builder compiles the rules of one grammar.
type builder struct {
	ctx    context.Context
	v      *Vocabulary
	nums   map[*rule]int32
	rules  []*rule
	made   map[*node]*dfa // products
	idle   []*subsets     // memory for the next automata
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
	if b.work&1023 < n {
		if b.ctx.Err() != nil {
			panic(tooMuch{b.ctx.Err()})
		}
		runtime.Gosched() // whoever waits for a processor comes first: a step's goroutines do
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

// nfa is an automaton under construction. What leaves a state is a list through arrays without pointers, for there
// are many states and the garbage collector has nothing to look for in them.
type nfa struct {
	b      *builder
	states []nfaState
	edges  []nfaEdge
	eps    []nfaEps
	calls  []nfaCall
	deep   int
}

// nfaState is where the lists of what leaves a state begin; 0: an empty one, else one more than the place.
type nfaState struct{ edges, eps, calls int32 }

type nfaEdge struct {
	edge
	next int32
}

type nfaEps struct{ to, next int32 }

type nfaCall struct {
	call
	next int32
}

func (a *nfa) state() int32 {
	a.room(1)
	a.states = append(a.states, nfaState{})
	return int32(len(a.states) - 1)
}

// room counts n more states.
func (a *nfa) room(n int) {
	if a.b.nfas += n; a.b.nfas > maxNFA {
		a.b.limit("the grammar is too large: more than %d states (repeats and lengths multiply what they repeat)", maxNFA)
	}
}

func (a *nfa) epsilon(from, to int32) {
	s := &a.states[from]
	a.eps = append(a.eps, nfaEps{to, s.eps})
	s.eps = int32(len(a.eps))
}

func (a *nfa) on(from, lo, hi, to int32) {
	s := &a.states[from]
	a.edges = append(a.edges, nfaEdge{edge{lo, hi, to}, s.edges})
	s.edges = int32(len(a.edges))
}

func (a *nfa) call(from, rule, to int32) {
	s := &a.states[from]
	a.calls = append(a.calls, nfaCall{call{rule, to}, s.calls})
	s.calls = int32(len(a.calls))
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
		tails := map[tail]int32{}
		for _, s := range n.class {
			a.utf8(from, to, s, tails)
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
			a.epsilon(from, begin)
			a.epsilon(a.add(begin, kid), to)
		}
		return to
	case opRepeat:
		return a.repeat(from, n)
	case opRule:
		to := a.state()
		a.call(from, a.b.number(n.rule), to)
		return to
	case opNet:
		first := int32(len(a.states))
		for range n.net.states {
			a.state()
		}
		a.epsilon(from, first)
		for _, ed := range n.net.edges {
			begin := a.state()
			a.epsilon(first+int32(ed.from), begin)
			a.epsilon(a.add(begin, ed.on), first+int32(ed.to))
		}
		to := a.state()
		for _, f := range n.net.final {
			a.epsilon(first+int32(f), to)
		}
		return to
	}
	return a.embed(from, a.b.product(n))
}

func (a *nfa) bytes(from int32, n *node) int32 {
	if !n.control {
		for i := range len(n.text) {
			to := a.state()
			a.on(from, int32(n.text[i]), int32(n.text[i]), to)
			from = to
		}
		return from
	}
	at := make([]int32, len(n.text)+1)
	at[0] = from
	for i := range len(n.text) {
		at[i+1] = a.state()
		a.on(at[i], int32(n.text[i]), int32(n.text[i]), at[i+1])
	}
	for k, c := range a.b.v.controls {
		for i := 0; i+len(c.text) <= len(n.text); i++ {
			if n.text[i:i+len(c.text)] == c.text {
				a.on(at[i], int32(firstControl+k), int32(firstControl+k), at[i+len(c.text)])
			}
		}
	}
	return at[len(n.text)]
}

func (a *nfa) repeat(from int32, n *node) int32 {
	if n.max < 0 {
		from = a.times(from, n.kids[0], n.min, -1)
		loop := a.state()
		a.epsilon(from, loop)
		begin := a.state()
		a.epsilon(loop, begin)
		a.epsilon(a.add(begin, n.kids[0]), loop)
		out := a.state()
		a.epsilon(loop, out)
		return out
	}
	from = a.times(from, n.kids[0], n.min, -1)
	out := a.state()
	from = a.times(from, n.kids[0], n.max-n.min, out)
	a.epsilon(from, out)
	return out
}

// times adds e n times, of which each may be left to out; -1: it may not. All but the first are copies of it.
func (a *nfa) times(from int32, e Expr, n int, out int32) int32 {
	if n <= 0 {
		return from
	}
	firstEdge, firstEps, firstCall := len(a.edges), len(a.eps), len(a.calls)
	begin := a.state()
	end := a.add(begin, e)
	block := slices.Clone(a.states[begin:])
	edges, eps, calls := a.edges[firstEdge:], a.eps[firstEps:], a.calls[firstCall:]
	a.states = slices.Grow(a.states, min(n*len(block), maxNFA))
	first, last := begin, end
	for k := range n {
		a.b.spend(1)
		if k > 0 {
			a.room(len(block))
			by := int32(len(a.states)) - first
			byEdge, byEps, byCall := int32(len(a.edges)-firstEdge), int32(len(a.eps)-firstEps), int32(len(a.calls)-firstCall)
			for _, s := range block {
				a.states = append(a.states, nfaState{moved(s.edges, byEdge), moved(s.eps, byEps), moved(s.calls, byCall)})
			}
			for _, x := range edges {
				a.edges = append(a.edges, nfaEdge{edge{x.lo, x.hi, x.to + by}, moved(x.next, byEdge)})
			}
			for _, x := range eps {
				a.eps = append(a.eps, nfaEps{x.to + by, moved(x.next, byEps)})
			}
			for _, x := range calls {
				a.calls = append(a.calls, nfaCall{call{x.rule, x.to + by}, moved(x.next, byCall)})
			}
			begin, end = first+by, last+by
		}
		if out >= 0 {
			a.epsilon(from, out)
		}
		a.epsilon(from, begin)
		from = end
	}
	return from
}

// moved is a place in a list that is copied.
func moved(i, by int32) int32 {
	if i == 0 {
		return 0
	}
	return i + by
}

// tail are the last bytes of a character: n ranges of them.
type tail struct {
	ranges [6]byte
	n      int
}

// utf8 lets the encodings of s lead from from to to: s is cut so that each piece is a product of byte ranges. Tails are the
// states from which some lead there, so that pieces share them.
func (a *nfa) utf8(from, to int32, s span, tails map[tail]int32) {
	for _, top := range []rune{0x7F, 0x7FF, 0xFFFF} {
		if s.lo <= top && s.hi > top {
			a.utf8(from, to, span{s.lo, top}, tails)
			a.utf8(from, to, span{top + 1, s.hi}, tails)
			return
		}
	}
	if s.hi <= 0x7F {
		a.on(from, s.lo, s.hi, to)
		return
	}
	for shift := 6; shift <= 18; shift += 6 {
		low := rune(1)<<shift - 1
		if s.lo&^low == s.hi&^low {
			continue
		}
		if s.lo&low != 0 {
			a.utf8(from, to, span{s.lo, s.lo | low}, tails)
			a.utf8(from, to, span{(s.lo | low) + 1, s.hi}, tails)
			return
		}
		if s.hi&low != low {
			a.utf8(from, to, span{s.lo, s.hi&^low - 1}, tails)
			a.utf8(from, to, span{s.hi &^ low, s.hi}, tails)
			return
		}
	}
	var lo, hi [utf8.UTFMax]byte
	n := utf8.EncodeRune(lo[:], s.lo)
	utf8.EncodeRune(hi[:], s.hi)
	var t tail
	at := to
	for i := n - 1; i > 0; i-- {
		t.ranges[2*t.n], t.ranges[2*t.n+1] = lo[i], hi[i]
		t.n++
		state, ok := tails[t]
		if !ok {
			state = a.state()
			a.on(state, int32(lo[i]), int32(hi[i]), at)
			tails[t] = state
		}
		at = state
	}
	a.on(from, int32(lo[0]), int32(hi[0]), at)
}

// embed copies a deterministic automaton.
func (a *nfa) embed(from int32, d *dfa) int32 {
	first := int32(len(a.states))
	for range d.final {
		a.state()
	}
	to := a.state()
	for i := range d.final {
		for _, e := range d.edges(int32(i)) {
			a.on(first+int32(i), e.lo, e.hi, first+e.to)
		}
		if d.final[i] {
			a.epsilon(first+int32(i), to)
		}
	}
	if len(d.final) > 0 {
		a.epsilon(from, first)
	}
	return to
}
