package grammar

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"
)

const (
	// maxConfigs bounds how many ways a text may be read at a time. What is beyond is not followed: it
	// leaves an answer fewer choices and makes none wrong. One that can be read always is.
	maxConfigs = 512
	// maxWalk bounds the work of a mask, in ways looked at. Tokens of several bytes that it does not come to are left out.
	maxWalk = 1_500_000
	// keptBytes is how much a grammar keeps of sets and masks before it forgets them.
	keptBytes = 32 << 20
)

// stack says where to go on when rules return.
type stack struct {
	to   int32
	left int32 // bytes at least until all have returned
	up   *stack
	hash uint64
}

// unknown is the stack of who is not known.
var unknown = &stack{hash: 0x5bf03635}

// config is a state and where it returns to; nil: nowhere, the text ends.
type config struct {
	state int32
	stack *stack
}

func (c config) hash() uint64 {
	h := uint64(0x9e3779b97f4a7c15)
	if c.stack != nil {
		h = c.stack.hash
	}
	return mix(h ^ uint64(c.state+1)*0xff51afd7ed558ccd)
}

func mix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// set is every way to read a text so far. It is made once for its configs and constant but for what it keeps.
type set struct {
	g       *Grammar
	configs []config // that read on
	mayEnd  bool
	pops    bool // a rule has returned to who is not known
	cut     bool // some way is not followed, here or before
	hash    uint64
	cost    int // ways looked at to make it, about

	next atomic.Pointer[[256]atomic.Pointer[set]]
	text atomic.Pointer[text]
	once sync.Once
	mask []uint32
	pop  []int32 // nodes of the vocabulary at which a walk found pops
	work int     // that mask took
}

// dead is where no reading is left.
var dead = &set{}

// called is the stack of a rule that goes on at to when it returns, called with the stack up.
func (g *Grammar) called(to int32, up *stack) *stack {
	left, h := g.left[to], uint64(1)
	if up != nil {
		left, h = min(left+up.left, never), up.hash
	}
	return &stack{to, left, up, mix(h*0x9e3779b97f4a7c15 + uint64(to) + 7)}
}

// remaining is the bytes at least from c to the end.
func (g *Grammar) remaining(c config) int32 {
	if c.stack == nil {
		return g.left[c.state]
	}
	return g.left[c.state] + c.stack.left
}

// closed makes a set of configs and what they call and return to; mayEnd and cut are of what it is made of.
//
// Beyond the limits it goes on until it has found one way, depth first: no rule begins with itself and what may
// be empty is passed by, so that one is near. With any config to begin with the set is therefore not dead.
func (g *Grammar) closed(kernel []config, mayEnd, cut bool) *set {
	var configs []config
	var pops bool
	seen := make(map[uint64]struct{}, 2*len(kernel))
	todo := make([]config, 0, 2*len(kernel))
	push := func(c config) {
		h := c.hash()
		if _, ok := seen[h]; ok {
			return
		}
		if len(seen) >= 4*maxConfigs && (mayEnd || pops || len(configs) > 0) {
			cut = true
			return
		}
		seen[h] = struct{}{}
		todo = append(todo, c)
	}
	// What is nearest to its end comes last and is followed first, so that the nearest end stays within reach.
	pushAll := func(cs []config) {
		if len(cs) > 1 {
			slices.SortStableFunc(cs, func(a, b config) int { return cmp.Compare(g.remaining(b), g.remaining(a)) })
		}
		for _, c := range cs {
			push(c)
		}
	}
	pushAll(kernel)
	var on []config
	for len(todo) > 0 {
		c := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if len(g.edges(c.state)) > 0 {
			if len(configs) < maxConfigs {
				configs = append(configs, c)
			} else {
				cut = true
			}
		}
		on = on[:0]
		for _, k := range g.calls(c.state) {
			up := c.stack
			if !g.final[k.to] || len(g.edges(k.to))+len(g.calls(k.to)) > 0 { // else it need not come back
				up = g.called(k.to, up)
			}
			on = append(on, config{g.start[k.rule], up})
		}
		for _, k := range g.calls(c.state) {
			if g.left[g.start[k.rule]] == 0 {
				on = append(on, config{k.to, c.stack})
			}
		}
		if g.final[c.state] {
			switch c.stack {
			case nil:
				mayEnd = true
			case unknown:
				pops = true
			default:
				on = append(on, config{c.stack.to, c.stack.up})
			}
		}
		pushAll(on)
	}
	// In one order however it was come by, so that what is cut later on is the same each time.
	slices.SortFunc(configs, func(a, b config) int { return cmp.Compare(a.hash(), b.hash()) })
	if len(configs) == 0 && !mayEnd && !pops {
		return dead
	}
	var h uint64
	for _, c := range configs {
		h += mix(c.hash())
	}
	if mayEnd {
		h = mix(h + 1)
	}
	if pops {
		h = mix(h + 2)
	}
	if cut {
		h = mix(h + 3)
	}
	// What a mask comes to depends on costs, so sets that are told apart by theirs are not one.
	cost := 1 + len(configs)
	if len(seen) > 64+8*len(configs) {
		cost = 1 + len(seen)
		h = mix(h + uint64(cost))
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if s := g.sets[h]; s != nil && len(s.configs) == len(configs) && s.cost == cost {
		return s
	}
	s := &set{g: g, configs: configs, mayEnd: mayEnd, pops: pops, cut: cut, hash: h, cost: cost}
	g.spend(int(unsafe.Sizeof(set{})) + 64*len(configs) + 128)
	g.sets[h] = s
	return s
}

// spend counts what is kept. It is called with mu held.
func (g *Grammar) spend(n int) {
	if g.bytes += n; g.bytes > keptBytes {
		g.forget()
	}
}

// forget drops what was kept; states that are in use keep theirs.
func (g *Grammar) forget() { g.bytes, g.sets, g.base = 0, map[uint64]*set{}, map[int32]*set{} }

// step reads a byte.
func (s *set) step(b byte) *set {
	next := s.next.Load()
	if next == nil {
		s.g.mu.Lock()
		if next = s.next.Load(); next == nil {
			next = new([256]atomic.Pointer[set])
			s.next.Store(next)
			s.g.spend(256 * 8)
		}
		s.g.mu.Unlock()
	}
	to := next[b].Load()
	if to == nil {
		to = s.read(int32(b))
		// The same holds for the bytes around it, as far as no edge begins or ends.
		lo, hi := int32(0), int32(255)
		for _, c := range s.configs {
			for _, e := range s.g.edges(c.state) {
				switch {
				case e.hi < int32(b):
					lo = max(lo, e.hi+1)
				case e.lo > int32(b):
					hi = min(hi, e.lo-1)
				default:
					lo, hi = max(lo, e.lo), min(hi, e.hi)
				}
			}
		}
		for ; lo <= hi; lo++ {
			next[lo].Store(to)
		}
	}
	return to
}

// read reads any symbol.
func (s *set) read(symbol int32) *set {
	var kernel []config
	for _, c := range s.configs {
		for _, e := range s.g.edges(c.state) {
			if symbol >= e.lo && symbol <= e.hi {
				kernel = append(kernel, config{e.to, c.stack})
			}
		}
	}
	if kernel == nil {
		return dead
	}
	return s.g.closed(kernel, false, s.cut)
}

// baseOf is a state called by who is not known.
func (g *Grammar) baseOf(state int32) *set {
	g.mu.Lock()
	s := g.base[state]
	g.mu.Unlock()
	if s == nil {
		s = g.closed([]config{{state, unknown}}, false, false)
		g.mu.Lock()
		g.base[state] = s
		g.mu.Unlock()
	}
	return s
}

// allowed returns the tokens that may come next, of the vocabulary's words. It follows from how the set was come by: one
// that was forgotten and is made again has the same.
func (s *set) allowed() []uint32 {
	s.once.Do(func() {
		v := s.g.v
		mask := make([]uint32, v.words())
		if len(s.configs) > 0 && s.configs[0].stack.open() {
			w := s.g.walker(mask, maxWalk, func(node int32) { s.pop = append(s.pop, node) })
			w.all(s)
			s.work = w.work
		} else {
			s.compose(mask)
		}
		s.mask = mask
		s.g.mu.Lock()
		s.g.spend(4*len(mask) + 4*len(s.pop))
		s.g.mu.Unlock()
	})
	return s.mask
}

// open reports whether a stack ends in who is not known.
func (s *stack) open() bool {
	for ; s != nil; s = s.up {
		if s == unknown {
			return true
		}
	}
	return false
}

// compose joins what each config allows whoever called it, and what comes of its return to who did.
func (s *set) compose(mask []uint32) {
	g := s.g
	for _, c := range s.configs { // a byte at a time everything can be said, whatever work is left undone below
		for _, e := range g.edges(c.state) {
			for b := e.lo; b <= min(e.hi, firstControl-1); b++ {
				for _, id := range g.v.single[b] {
					mask[id/32] |= 1 << (id % 32)
				}
			}
		}
	}
	left := maxWalk
	for _, c := range s.configs {
		if left <= 0 {
			break
		}
		base := g.baseOf(c.state)
		for i, w := range base.allowed() {
			mask[i] |= w
		}
		left -= base.work
		if c.stack != nil && len(base.pop) > 0 {
			after := g.closed([]config{{c.stack.to, c.stack.up}}, false, false)
			w := g.walker(mask, left, func(int32) {})
			for _, node := range base.pop {
				w.below(node, g.at(after))
			}
			left -= w.work
		}
	}
	for _, c := range s.configs {
		for _, e := range g.edges(c.state) {
			for k := max(e.lo, firstControl); k <= e.hi; k++ {
				for _, id := range g.v.controls[k-firstControl].ids {
					mask[id/32] |= 1 << (id % 32)
				}
			}
		}
	}
	if s.mayEnd {
		for _, id := range g.v.ends {
			mask[id/32] |= 1 << (id % 32)
		}
	}
}

// State is where an answer stands in its grammar. It is a value: Advance leaves it as it is. The zero State allows
// everything.
type State struct {
	set   *set
	ended bool // an end token has come
}

// Start is where an answer begins.
func (g *Grammar) Start() State { return State{set: g.first} }

// Mask returns the ids that may come next: bit i of word i/32. End tokens are among them exactly where the answer
// may end. It must not be modified.
func (s State) Mask() []uint32 {
	if s.ended {
		mask := make([]uint32, s.set.g.v.words())
		for _, id := range s.set.g.v.ends {
			mask[id/32] |= 1 << (id % 32)
		}
		return mask
	}
	return s.set.allowed()
}

// Advance returns the state after a token; false, and the state as it was, for one that may not come.
func (s State) Advance(id int32) (State, bool) {
	v := s.set.g.v
	switch {
	case v.isEnd[id]:
		if s.ended || s.set.mayEnd {
			return State{s.set, true}, true
		}
		return s, false
	case s.ended || id < 0 || int(id) >= v.size:
		return s, false
	}
	if k, ok := v.controlN[id]; ok {
		if to := s.set.read(firstControl + k); to != dead {
			return State{set: to}, true
		}
		return s, false
	}
	if len(v.tokens[id]) == 0 {
		return s, false
	}
	// The mask has the last word, for a token is drawn by it: it follows each config by itself, so that it cuts elsewhere.
	if s.set.allowed()[id/32]>>(id%32)&1 == 0 {
		return s, false
	}
	to := s.set
	for _, b := range v.tokens[id] {
		if to = to.step(b); to == dead {
			to = s.set.apart(v.tokens[id])
			break
		}
	}
	return State{set: to}, to != dead
}

// apart reads text as compose does: each config by itself, and what it returns to by itself.
func (s *set) apart(text []byte) *set {
	g := s.g
	var kernel []config
	mayEnd := false
	for _, c := range s.configs {
		at := g.baseOf(c.state)
		for i, b := range text {
			if at = at.step(b); at == dead {
				break
			}
			if i == len(text)-1 {
				for _, k := range at.configs {
					kernel = append(kernel, config{k.state, g.graft(k.stack, c.stack)})
				}
			}
			switch {
			case !at.pops:
			case c.stack == nil:
				mayEnd = mayEnd || i == len(text)-1
			default:
				after := g.closed([]config{{c.stack.to, c.stack.up}}, false, false)
				for _, b := range text[i+1:] {
					if after = after.step(b); after == dead {
						break
					}
				}
				kernel = append(kernel, after.configs...)
				mayEnd = mayEnd || after.mayEnd
			}
		}
	}
	if len(kernel) == 0 && !mayEnd {
		return dead
	}
	return g.closed(kernel, mayEnd, true)
}

// graft is the stack k with who called it in the place of who is not known.
func (g *Grammar) graft(k, caller *stack) *stack {
	if k == unknown {
		return caller
	}
	return g.called(k.to, g.graft(k.up, caller))
}

// AdvanceBytes is Advance for text.
func (s State) AdvanceBytes(text []byte) (State, bool) {
	to := s.set
	for _, b := range text {
		if to = to.step(b); to == dead {
			return s, false
		}
	}
	return State{set: to}, !s.ended
}

// MayEnd reports whether the answer is complete as it is.
func (s State) MayEnd() bool { return s.ended || s.set.mayEnd }

// MustEnd reports whether nothing may follow.
func (s State) MustEnd() bool { return s.ended || len(s.set.configs) == 0 }

// Forced returns the bytes that follow whatever is chosen, as far as there is one choice, at most 4096. Their usual
// tokens need not be those that the model would draw, for what follows may belong to the last one.
func (s State) Forced() []byte {
	var out []byte
	for at := s.set; !s.ended && !at.mayEnd && len(out) < 4096; {
		only := int32(-1)
		for _, c := range at.configs {
			for _, e := range at.g.edges(c.state) {
				if e.lo != e.hi || e.lo >= firstControl || only >= 0 && only != e.lo {
					return out
				}
				only = e.lo
			}
		}
		if only < 0 {
			break
		}
		out = append(out, byte(only))
		at = at.step(byte(only))
	}
	return out
}

// Shortest returns a byte with which the answer goes on to its nearest end; false when it is there, or goes on with a
// control token.
func (s State) Shortest() (byte, bool) {
	at := s.nearest()
	return byte(at), at >= 0 && at < firstControl
}

// ShortestControl returns the control token with which the answer goes on to its nearest end; false when it is there, or goes
// on with a byte.
func (s State) ShortestControl() (id int32, ok bool) {
	if at := s.nearest(); at >= firstControl {
		return s.set.g.v.controls[at-firstControl].ids[0], true
	}
	return -1, false
}

// nearest is the symbol that goes on to the nearest end; -1 when it is there.
func (s State) nearest() int32 {
	if s.MayEnd() {
		return -1
	}
	best, at := int32(never), int32(-1)
	for _, c := range s.set.configs {
		up := int32(0)
		if c.stack != nil {
			up = c.stack.left
		}
		for _, e := range s.set.g.edges(c.state) {
			if d := s.set.g.left[e.to] + up; d < best {
				best, at = d, e.lo
			}
		}
	}
	return at
}
