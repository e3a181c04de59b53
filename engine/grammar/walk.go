package grammar

import (
	"slices"
	"unicode/utf8"
)

// walker finds the tokens that a set lets in, by a walk through the vocabulary's trie.
type walker struct {
	g       *Grammar
	v       *Vocabulary
	mask    []uint32
	most    int // work at which it stops
	work    int // ways looked at
	reached func(node int32)
	frames  []frame // by depth below where the walk began
	sets    map[config]*set
}

// frame is where a text stands: in a set, or, as long as there is one way to read it and no rule is called or returns, at a state
// with a stack, which costs no set.
type frame struct {
	set   *set // nil: at state
	state int32
	stack *stack
}

func (g *Grammar) walker(mask []uint32, most int, reached func(node int32)) *walker {
	return &walker{g: g, v: g.v, mask: mask, most: most, reached: reached, frames: make([]frame, g.v.deep+1)}
}

// at is the frame of a set.
func (g *Grammar) at(s *set) frame {
	if len(s.configs) == 1 && !s.pops && !s.mayEnd {
		if c := s.configs[0]; g.still(c.state) {
			return frame{state: c.state, stack: c.stack}
		}
	}
	return frame{set: s}
}

// step reads a byte; false: there is no way on.
func (w *walker) step(f frame, b byte) (frame, bool) {
	if f.set != nil {
		next := f.set.step(b)
		w.work += next.cost
		if next == dead {
			w.work++
			return frame{}, false
		}
		return w.g.at(next), true
	}
	w.work++
	to := w.g.next(f.state, b)
	switch {
	case to < 0:
		return frame{}, false
	case w.g.still(to):
		return frame{state: to, stack: f.stack}, true
	}
	return w.g.at(w.setOf(config{to, f.stack})), true
}

// setOf is the set of one config.
func (w *walker) setOf(c config) *set {
	if c.stack == unknown {
		return w.g.baseOf(c.state)
	}
	s := w.sets[c]
	if s == nil {
		s = w.g.closed([]config{c}, false, false)
		if w.sets == nil {
			w.sets = map[config]*set{}
		}
		w.sets[c] = s
	}
	return s
}

// next is where a byte leads from a state; -1: nowhere.
func (g *Grammar) next(state int32, b byte) int32 {
	for _, e := range g.edges(state) {
		if int32(b) <= e.hi {
			if int32(b) >= e.lo {
				return e.to
			}
			break
		}
	}
	return -1
}

// takes reports whether everything that is below may follow.
func (w *walker) takes(f frame, b *below) bool {
	if f.set != nil {
		return f.set.takes(b)
	}
	if b.high == brokenHigh {
		return false
	}
	taken, _ := w.g.takes(f.state, b)
	return taken
}

// below sets in mask every token below node i, where a text stands at f, that may follow; i -1 is the root. reached is told
// each node after which a rule has returned to who is not known.
func (w *walker) below(i int32, f frame) {
	if f.set != nil && len(f.set.configs) == 0 {
		w.work++
		return
	}
	v := w.v
	end, base := int32(len(v.label)), uint16(0)
	if i >= 0 {
		end, base = v.end[i], v.depth[i]
	}
	frames := w.frames
	frames[0] = f
	for i++; i < end && w.work < w.most; {
		d := v.depth[i] - base
		if v.below[i].opens && w.takes(frames[d-1], &v.below[i]) {
			w.work++
			v.take(w.mask, v.first[i], v.first[v.end[i]])
			i = v.end[i]
			continue
		}
		next, ok := w.step(frames[d-1], v.label[i])
		if !ok {
			i = v.end[i]
			continue
		}
		frames[d] = next
		if w.node(i, next) {
			i++
		} else {
			i = v.end[i]
		}
	}
}

// node takes the tokens of node i, after which a text stands at f, and reports whether there is more to look for below.
func (w *walker) node(i int32, f frame) bool {
	v := w.v
	v.take(w.mask, v.first[i], v.first[i+1])
	if f.set != nil {
		if f.set.pops {
			w.reached(i)
		}
		if len(f.set.configs) == 0 {
			return false
		}
	}
	if v.end[i] > i+1 && !v.below[i].opens && w.takes(f, &v.below[i]) {
		v.take(w.mask, v.first[i+1], v.first[v.end[i]])
		return false
	}
	return true
}

// all is below from the root.
func (w *walker) all(s *set) {
	f := w.g.at(s)
	if f.set == nil {
		if r := w.g.runOf(f.state); r.to >= 0 && r.high && r.ascii == jsonText {
			w.text(f)
			return
		}
	}
	w.below(-1, f)
}

// text is all where the text of a JSON string may stand: the tokens of nothing else are known, and so are the places where others
// leave it.
func (w *walker) text(f frame) {
	t := &w.v.text
	chain := []int32{f.state} // states by how many characters have been read
	endless := false
	for n := 0; n < t.most && !endless; n++ {
		r := w.g.runOf(chain[n])
		if r.to < 0 || !r.high || r.ascii != jsonText {
			break
		}
		endless = r.to == chain[n]
		chain = append(chain, r.to)
	}
	chars := len(chain) - 1 // that may be read
	if endless {
		chars = t.most
	}
	fits := 0
	for _, ids := range t.ids[:chars+1] {
		fits += len(ids)
	}
	if 2*fits < t.total { // whichever touches fewer bits
		for _, ids := range t.ids[:chars+1] {
			for _, id := range ids {
				w.mask[id/32] |= 1 << (id % 32)
			}
		}
	} else {
		mask := slices.Clone(t.mask)
		for _, ids := range t.ids[chars+1:] {
			for _, id := range ids {
				mask[id/32] &^= 1 << (id % 32)
			}
		}
		for i, m := range mask {
			w.mask[i] |= m
		}
	}
	at := func(n int) frame { return frame{state: chain[min(n, len(chain)-1)], stack: f.stack} }
	for _, x := range t.exits {
		if w.work >= w.most {
			return
		}
		if int(x.chars) >= chars && !endless {
			continue
		}
		next, ok := at(int(x.chars)), true
		for _, b := range x.part[:x.parts] {
			if next, ok = w.step(next, b); !ok {
				break
			}
		}
		if !ok {
			continue
		}
		if next, ok = w.step(next, w.v.label[x.node]); ok && w.node(x.node, next) {
			w.below(x.node, next)
		}
	}
	if endless || chars >= len(t.nodes) {
		return
	}
	last := at(chars)
	if !w.g.still(last.state) {
		last = w.g.at(w.setOf(config{last.state, last.stack}))
	}
	for _, node := range t.nodes[chars] {
		if w.work++; w.work >= w.most {
			return
		}
		w.below(node, last)
	}
}

// jsonText is the ascii part of what a JSON string may hold as it is.
var jsonText = [2]uint64{^uint64(1<<32-1) &^ (1 << '"'), ^uint64(0) &^ (1 << ('\\' - 64))}

// textTokens are the tokens of characters that a JSON string may hold as they are, and how others leave those.
type textTokens struct {
	most  int       // characters of the longest
	ids   [][]int32 // by characters, of which the last may be begun only
	mask  []uint32  // all of them
	total int
	exits []exit
	nodes [][]int32 // by characters, that end there and have more below
}

// exit is a node that is not of text, below one that is.
type exit struct {
	node  int32
	chars uint16 // whole ones before it
	parts uint8  // bytes of the character before it that it breaks off
	part  [utf8.UTFMax]byte
}

// lookText fills text; at says where a character stands after each node.
func (v *Vocabulary) lookText(at []utf8State) {
	t := &v.text
	t.mask = make([]uint32, v.words())
	type place struct {
		chars uint16
		parts uint8
		part  [utf8.UTFMax]byte
	}
	path := make([]place, v.deep+1)
	put := func(list [][]int32, n int, ids ...int32) [][]int32 {
		for len(list) <= n {
			list = append(list, nil)
		}
		list[n] = append(list[n], ids...)
		return list
	}
	t.nodes = put(t.nodes, 0, -1)
	for i := int32(0); i < int32(len(v.label)); {
		p, b := path[v.depth[i]-1], v.label[i]
		if at[i] == broke || b < 0x80 && jsonText[b/64]>>(b%64)&1 == 0 {
			t.exits = append(t.exits, exit{i, p.chars, p.parts, p.part})
			i = v.end[i]
			continue
		}
		chars := int(p.chars) + 1
		if at[i] == whole {
			path[v.depth[i]] = place{chars: uint16(chars)}
			if v.end[i] > i+1 {
				t.nodes = put(t.nodes, chars, i)
			}
		} else {
			p.part[p.parts] = b
			p.parts++
			path[v.depth[i]] = p
		}
		t.ids = put(t.ids, chars, v.ids[v.first[i]:v.first[i+1]]...)
		v.take(t.mask, v.first[i], v.first[i+1])
		t.total += int(v.first[i+1] - v.first[i])
		t.most = max(t.most, chars)
		i++
	}
	if t.ids == nil {
		t.ids = [][]int32{nil}
	}
}

// take sets v.ids from first to end in mask.
func (v *Vocabulary) take(mask []uint32, first, end int32) {
	for _, id := range v.ids[first:end] {
		mask[id/32] |= 1 << (id % 32)
	}
}
