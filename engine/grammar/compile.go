package grammar

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
)

// Grammar is an expression compiled for a vocabulary. It may be used from any goroutine.
type Grammar struct {
	dfa   // of all rules
	v     *Vocabulary
	start []int32 // by rule
	left  []int32 // bytes at least from a state to the end of its rule
	first *set
	runs  []atomic.Pointer[run] // by state, as far as asked for

	mu    sync.Mutex
	bytes int             // that sets take, about
	sets  map[uint64]*set // by hash
	base  map[int32]*set  // by state, called by who is not known
}

const never = math.MaxInt32 / 4

// Compile makes masks' automata of e for v. Its error is an *Error, or ctx's.
func Compile(ctx context.Context, e Expr, v *Vocabulary) (g *Grammar, err error) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case tooMuch:
			g, err = nil, p.err
		default:
			panic(p)
		}
	}()
	b := newBuilder(ctx, v)
	b.number(&rule{"root", e})
	g = &Grammar{v: v}
	for i := 0; i < len(b.rules); i++ {
		g.append(b.compile(b.rules[i].body))
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
	g.measure()
	if g.left[g.start[0]] >= never {
		return nil, &Error{"", "nothing can satisfy it (or the model's vocabulary cannot spell what does)"}
	}
	g.prune()
	if r := g.leftRecursive(); r >= 0 {
		return nil, &Error{"", fmt.Sprintf("rule %q begins with itself, which is not supported", b.rules[r].name)}
	}
	g.forget()
	g.runs = make([]atomic.Pointer[run], len(g.final))
	g.first = g.closed([]config{{g.start[0], nil}}, false, false)
	return g, nil
}

// append adds the states of the next rule. Bytes that the vocabulary cannot spell alone are
// left out, so that what a state allows always can be said.
func (g *Grammar) append(d *dfa) {
	first := int32(len(g.final))
	g.start = append(g.start, first)
	if len(d.final) == 0 {
		d.add(nil, nil, false)
	}
	var edges []edge
	var calls []call
	for i := range d.final {
		edges, calls = edges[:0], calls[:0]
		for _, e := range d.edges(int32(i)) {
			e.to += first
			edges = g.v.spelt(edges, e)
		}
		for _, c := range d.calls(int32(i)) {
			calls = append(calls, call{c.rule, c.to + first})
		}
		g.add(edges, calls, d.final[i])
	}
}

// unspelt reports whether the vocabulary cannot spell some byte of e alone.
func (v *Vocabulary) unspelt(e edge) bool {
	return e.lo < firstControl && v.spellsFrom[e.lo] <= e.hi
}

// spelt appends the parts of e that the vocabulary can spell.
func (v *Vocabulary) spelt(edges []edge, e edge) []edge {
	if !v.unspelt(e) {
		return append(edges, e)
	}
	for lo := e.lo; lo <= e.hi; {
		if to := v.spellsFrom[lo]; to > lo {
			edges = append(edges, edge{lo, min(to-1, e.hi), e.to})
			lo = to
		} else {
			lo++
		}
	}
	return edges
}

// measure fills left: the least solution, found by letting every improvement go on to whom it concerns.
func (g *Grammar) measure() {
	n := len(g.final)
	ruleOf := make([]int32, n) // one more than the rule that begins at a state
	for r, s := range g.start {
		ruleOf[s] = int32(r) + 1
	}
	type user struct{ state, rule int32 } // rule -1: by an edge
	back := newLists[user](n)
	callers := newLists[call](len(g.start)) // rule: the state that calls
	for fill := range 2 {
		for s := range int32(n) {
			for _, e := range g.edges(s) {
				back.add(e.to, user{s, -1})
			}
			for _, c := range g.calls(s) {
				back.add(c.to, user{s, c.rule})
				callers.add(c.rule, call{s, c.to})
			}
		}
		if fill == 0 {
			back.counted()
			callers.counted()
		}
	}
	g.left = make([]int32, n)
	todo := make([]int32, 0, n)
	for s := range n {
		g.left[s] = never
		if g.final[s] {
			g.left[s] = 0
			todo = append(todo, int32(s))
		}
	}
	improve := func(s, d int32) {
		if d < g.left[s] {
			g.left[s] = d
			todo = append(todo, s)
		}
	}
	for i := 0; i < len(todo); i++ {
		s := todo[i]
		for _, u := range back.of(s) {
			if u.rule < 0 {
				improve(u.state, g.left[s]+1)
			} else {
				improve(u.state, g.left[s]+g.left[g.start[u.rule]])
			}
		}
		if r := ruleOf[s]; r > 0 {
			for _, c := range callers.of(r - 1) {
				improve(c.rule, g.left[s]+g.left[c.to])
			}
		}
	}
}

// lists are one list for each of some numbers, in one piece: what belongs to them is added twice, counted between.
type lists[T any] struct {
	at  []int32
	all []T
}

func newLists[T any](n int) *lists[T] { return &lists[T]{at: make([]int32, n+2)} }

func (l *lists[T]) add(i int32, t T) {
	if l.at[i+1]++; l.all != nil {
		l.all[l.at[i+1]-1] = t
	}
}

// counted lays the lists out: at[i+1] is where the next of i goes, and in the end where the list after it begins.
func (l *lists[T]) counted() {
	sum := int32(0)
	for i := 1; i < len(l.at); i++ {
		l.at[i], sum = sum, sum+l.at[i]
	}
	l.all = make([]T, max(sum, 1))
}

func (l *lists[T]) of(i int32) []T { return l.all[l.at[i]:l.at[i+1]] }

// prune drops ways that lead to no end.
func (g *Grammar) prune() {
	all := g.dfa
	edges, calls := all.out[:0], all.outCalls[:0] // what is written has been read
	from, fromCalls := int32(0), int32(0)
	for s := range all.final {
		for _, e := range all.out[from:all.outEnd[s]] {
			if g.left[e.to] < never {
				edges = append(edges, e)
			}
		}
		for _, c := range all.outCalls[fromCalls:all.callEnd[s]] {
			if g.left[c.to] < never && g.left[g.start[c.rule]] < never {
				calls = append(calls, c)
			}
		}
		from, fromCalls = all.outEnd[s], all.callEnd[s]
		all.outEnd[s], all.callEnd[s] = int32(len(edges)), int32(len(calls))
	}
	g.out, g.outCalls = slices.Clip(edges), slices.Clip(calls)
}

// leftRecursive returns a rule that calls itself before anything is read, -1: there is none.
func (g *Grammar) leftRecursive() int {
	firsts := make([][]int32, len(g.start))
	for r := range g.start {
		seen := map[int32]bool{}
		todo := []int32{g.start[r]}
		for len(todo) > 0 {
			s := todo[len(todo)-1]
			todo = todo[:len(todo)-1]
			if seen[s] {
				continue
			}
			seen[s] = true
			for _, c := range g.calls(s) {
				firsts[r] = append(firsts[r], c.rule)
				if g.left[g.start[c.rule]] == 0 {
					todo = append(todo, c.to)
				}
			}
		}
	}
	const open, done = 1, 2
	state := make([]uint8, len(g.start))
	at := make([]int, len(g.start))
	for r := range g.start {
		if state[r] != 0 {
			continue
		}
		state[r] = open
		for path := []int{r}; len(path) > 0; {
			top := path[len(path)-1]
			if at[top] == len(firsts[top]) {
				state[top] = done
				path = path[:len(path)-1]
				continue
			}
			next := int(firsts[top][at[top]])
			at[top]++
			switch state[next] {
			case open:
				return next
			case 0:
				state[next] = open
				path = append(path, next)
			}
		}
	}
	return -1
}

// For reports whether the grammar was compiled for v.
func (g *Grammar) For(v *Vocabulary) bool { return g.v == v }

// States is how many states the automata have.
func (g *Grammar) States() int { return len(g.final) }
