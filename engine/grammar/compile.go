package grammar

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
)

// Grammar is an expression compiled for a vocabulary. It may be used from any goroutine.
type Grammar struct {
	v     *Vocabulary
	edges [][]edge // by state; states of all rules
	calls [][]call
	final []bool
	start []int32 // by rule
	left  []int32 // bytes at least from a state to the end of its rule
	first *set

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
	g.first = g.closed([]config{{g.start[0], nil}}, false, false)
	return g, nil
}

// append adds the states of the next rule. Bytes that the vocabulary cannot spell alone are left out, so that what a
// state allows always can be said.
func (g *Grammar) append(d *dfa) {
	first := int32(len(g.final))
	g.start = append(g.start, first)
	if len(d.final) == 0 {
		d = &dfa{[][]edge{nil}, [][]call{nil}, []bool{false}}
	}
	for i := range d.final {
		var edges []edge
		for _, e := range d.edges[i] {
			for lo := e.lo; lo <= e.hi; {
				hi := lo
				if lo >= firstControl {
					hi = e.hi
				} else if !g.v.spells[lo] {
					lo++
					continue
				}
				for hi < min(e.hi, 255) && g.v.spells[hi+1] {
					hi++
				}
				edges = append(edges, edge{lo, hi, first + e.to})
				lo = hi + 1
			}
		}
		var calls []call
		for _, c := range d.calls[i] {
			calls = append(calls, call{c.rule, first + c.to})
		}
		g.edges, g.calls, g.final = append(g.edges, edges), append(g.calls, calls), append(g.final, d.final[i])
	}
}

// measure fills left: the least solution, found by letting every improvement go on to whom it concerns.
func (g *Grammar) measure() {
	n := len(g.final)
	ruleOf := make(map[int32]int32, len(g.start))
	for r, s := range g.start {
		ruleOf[s] = int32(r)
	}
	type user struct{ state, rule int32 } // rule -1: by an edge
	back := make([][]user, n)
	type caller struct{ state, to int32 }
	callers := make([][]caller, len(g.start))
	g.left = make([]int32, n)
	var todo []int32
	for s := range n {
		g.left[s] = never
		if g.final[s] {
			g.left[s] = 0
			todo = append(todo, int32(s))
		}
		for _, e := range g.edges[s] {
			back[e.to] = append(back[e.to], user{int32(s), -1})
		}
		for _, c := range g.calls[s] {
			back[c.to] = append(back[c.to], user{int32(s), c.rule})
			callers[c.rule] = append(callers[c.rule], caller{int32(s), c.to})
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
		for _, u := range back[s] {
			if u.rule < 0 {
				improve(u.state, g.left[s]+1)
			} else {
				improve(u.state, g.left[s]+g.left[g.start[u.rule]])
			}
		}
		if r, ok := ruleOf[s]; ok {
			for _, c := range callers[r] {
				improve(c.state, g.left[s]+g.left[c.to])
			}
		}
	}
}

// prune drops ways that lead to no end.
func (g *Grammar) prune() {
	for s := range g.final {
		g.edges[s] = slices.DeleteFunc(g.edges[s], func(e edge) bool { return g.left[e.to] >= never })
		g.calls[s] = slices.DeleteFunc(g.calls[s], func(c call) bool {
			return g.left[c.to] >= never || g.left[g.start[c.rule]] >= never
		})
	}
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
			for _, c := range g.calls[s] {
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
