package grammar

// Most of a vocabulary is plain text, and where text may stand most of what begins with its first byte may. Such subtrees
// are taken whole: what bytes a subtree has is known of the vocabulary, and how far a set reads on with whichever of them,
// of the set.

// below is what stands below a node of the vocabulary.
type below struct {
	ascii [2]uint64
	high  highBytes
	deep  uint16 // bytes of the longest
	opens bool   // the node begins a character, which is not ascii: all this is of the node too
}

type highBytes uint8

const (
	noHigh     highBytes = iota
	validHigh            // in whole characters, but for the end of a token
	brokenHigh           // otherwise, or the node stands within a character that began before it
)

// lookBelow fills below. It returns where a character stands after each node.
func (v *Vocabulary) lookBelow() (at []utf8State) {
	n := len(v.label)
	v.below = make([]below, n)
	at = make([]utf8State, n)
	up := make([]int32, n)
	path := make([]int32, v.deep+1)
	path[0] = -1
	for i := range n {
		d := v.depth[i]
		up[i], path[d] = path[d-1], int32(i)
		from := whole
		if up[i] >= 0 {
			from = at[up[i]]
		}
		at[i] = from.next(v.label[i])
	}
	high, broken := make([]bool, n), make([]bool, n)
	for i := n - 1; i >= 0; i-- {
		of := &v.below[i]
		p := up[i]
		of.opens = at[i] != whole && (p < 0 || at[p] == whole)
		switch {
		case broken[i] || at[i] == broke || at[i] != whole && !of.opens:
			of.high = brokenHigh
		case high[i] || of.opens:
			of.high = validHigh
		}
		long := of.deep + 1
		if of.opens {
			of.deep = long
		}
		if p < 0 {
			continue
		}
		b := v.label[i]
		high[p] = high[p] || high[i] || b >= 0x80
		broken[p] = broken[p] || broken[i] || at[i] == broke
		to := &v.below[p]
		to.ascii[0] |= of.ascii[0]
		to.ascii[1] |= of.ascii[1]
		if b < 0x80 {
			to.ascii[b/64] |= 1 << (b % 64)
		}
		to.deep = max(to.deep, long)
	}
	return at
}

// utf8State is where a character stands.
type utf8State uint8

const (
	whole utf8State = iota
	oneMore
	twoMore
	threeMore
	afterE0
	afterED
	afterF0
	afterF4
	broke
)

// utf8Edges are what a character may go on with.
var utf8Edges = [broke + 1][]edge{
	whole: {{0, 0x7F, int32(whole)}, {0xC2, 0xDF, int32(oneMore)}, {0xE0, 0xE0, int32(afterE0)}, {0xE1, 0xEC, int32(twoMore)}, {0xED, 0xED, int32(afterED)},
		{0xEE, 0xEF, int32(twoMore)}, {0xF0, 0xF0, int32(afterF0)}, {0xF1, 0xF3, int32(threeMore)}, {0xF4, 0xF4, int32(afterF4)}},
	oneMore:   {{0x80, 0xBF, int32(whole)}},
	twoMore:   {{0x80, 0xBF, int32(oneMore)}},
	threeMore: {{0x80, 0xBF, int32(twoMore)}},
	afterE0:   {{0xA0, 0xBF, int32(oneMore)}},
	afterED:   {{0x80, 0x9F, int32(oneMore)}},
	afterF0:   {{0x90, 0xBF, int32(twoMore)}},
	afterF4:   {{0x80, 0x8F, int32(twoMore)}},
}

func (u utf8State) next(b byte) utf8State {
	for _, e := range utf8Edges[u] {
		if int32(b) >= e.lo && int32(b) <= e.hi {
			return utf8State(e.to)
		}
	}
	return broke
}

// text is how a set reads most characters: those that lead to the same set.
type text struct {
	to    *set
	ascii [2]uint64
	high  bool // all others lead to it too
}

// maxTextCost bounds the sets that are looked at so.
const maxTextCost = 32

// textOf returns nil where there is nothing to gain.
func (s *set) textOf() *text {
	if t := s.text.Load(); t != nil {
		return t
	}
	t := &text{to: dead}
	if s.cost <= maxTextCost {
		run, most := 0, 0 // the longest run of bytes says which set it is
		for b := range byte(0x80) {
			to := s.step(b)
			if run++; b == 0 || to != s.step(b-1) {
				run = 1
			}
			if to != dead && run > most {
				t.to, most = to, run
			}
		}
		for b := range byte(0x80) {
			if t.to != dead && s.step(b) == t.to {
				t.ascii[b/64] |= 1 << (b % 64)
			}
		}
		t.high = t.to != dead && s.leads(whole, t.to)
	}
	s.text.Store(t)
	return t
}

// leads reports whether every way to complete a character of several bytes leads to to.
func (s *set) leads(u utf8State, to *set) bool {
	if s.pops || s.cost > maxTextCost {
		return false
	}
	for _, e := range utf8Edges[u] {
		if e.hi < 0x80 {
			continue
		}
		var last *set
		for b := e.lo; b <= e.hi; b++ {
			next := s.step(byte(b))
			if next == last {
				continue
			}
			last = next
			if next == dead || e.to == int32(whole) && next.hash != to.hash || e.to != int32(whole) && !next.leads(utf8State(e.to), to) {
				return false
			}
		}
	}
	return true
}

// takes reports whether s reads on to the end of whatever is below, and no rule returns to who is not known meanwhile.
func (s *set) takes(b *below) bool {
	if b.high == brokenHigh || s.pops {
		return false
	}
	if len(s.configs) == 1 {
		if taken, known := s.g.takes(s.configs[0].state, b); known {
			return taken
		}
	}
	for range b.deep {
		t := s.textOf()
		if t.to == dead || t.to.pops || b.ascii[0]&^t.ascii[0]|b.ascii[1]&^t.ascii[1] != 0 || b.high == validHigh && !t.high {
			return false
		}
		if t.to.hash == s.hash {
			return true
		}
		s = t.to
	}
	return true
}

// run is a text of one state instead of a set: as long as no rule is called or returns, what a state reads does not
// depend on who called, and the sets on the way need not be made.
type run struct {
	to    int32 // -1: nothing to gain
	ascii [2]uint64
	high  bool
}

var noRun = &run{to: -1}

// takes is what a set of one config of that state takes; not known where a rule is called or returns on the way.
func (g *Grammar) takes(state int32, b *below) (taken, known bool) {
	for range b.deep {
		r := g.runOf(state)
		switch {
		case r.to < 0:
			return false, false
		case b.ascii[0]&^r.ascii[0]|b.ascii[1]&^r.ascii[1] != 0 || b.high == validHigh && !r.high:
			return false, true
		case r.to == state:
			return true, true
		}
		state = r.to
	}
	return true, true
}

// still reports whether no rule is called or returns at a state.
func (g *Grammar) still(state int32) bool { return len(g.calls(state)) == 0 && !g.final[state] }

func (g *Grammar) runOf(state int32) *run {
	if r := g.runs[state].Load(); r != nil {
		return r
	}
	r := noRun
	longest := int32(0)
	edges := g.edges(state)
	for i, e := range edges { // edges that touch and lead to one state are one
		if n := min(e.hi, 0x7F) - e.lo + 1; n > longest && e.lo <= 0x7F {
			longest = n
			r = &run{to: edges[i].to}
		}
	}
	if r.to >= 0 && (!g.still(state) || !g.still(r.to)) {
		r = noRun
	}
	if r.to >= 0 {
		for _, e := range edges {
			if e.to == r.to {
				for b := e.lo; b <= min(e.hi, 0x7F); b++ {
					r.ascii[b/64] |= 1 << (b % 64)
				}
			}
		}
		r.high = g.leads(state, whole, r.to)
	}
	g.runs[state].Store(r)
	return r
}

// leads is set's, of states.
func (g *Grammar) leads(state int32, u utf8State, to int32) bool {
	for _, want := range utf8Edges[u] {
		if want.hi < 0x80 {
			continue
		}
		at, last := want.lo, int32(-1)
		for _, e := range g.edges(state) {
			if e.hi < at || e.lo > want.hi {
				continue
			}
			if e.lo > at {
				return false
			}
			at = e.hi + 1
			if want.to == int32(whole) {
				if e.to != to {
					return false
				}
			} else if e.to != last && (!g.still(e.to) || !g.leads(e.to, utf8State(want.to), to)) {
				return false
			}
			last = e.to
		}
		if at <= want.hi {
			return false
		}
	}
	return true
}
