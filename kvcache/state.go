package kvcache

import (
	"fmt"
	"math"
	"slices"
	"sort"
)

// state is a state block: whole pages that need not be neighbours. A sequence has one of its own,
// live, which its runs write. A snapshot is a state block left behind at a position: cached, unless
// a sequence is about to continue from it.
type state struct {
	pages []PageID // never changed: planned steps point here
	kind  blockState
	own   bool // of the one table that refs counts
	refs  int32

	// Of a snapshot.
	at     int         // positions it has seen, a multiple of Cache.step
	kept   bool        // else the next one of its sequence replaces it
	maker  *BlockTable // the table whose Seal is to make it findable; nil when that was done
	sealed bool        // Cache.snapshots[hash] is this one
	hash   hash

	prev, next *state // the list of cached ones
	stamp      uint64 // Pool.clock when it became cached
}

// stateTable is the recurrent state of one sequence.
type stateTable struct {
	at     int    // the position of in, once all planned runs are done
	own    *state // what its runs write; nil before the first Extend
	in     *state // what its next run reads: own, or a snapshot it holds; nil: zeros
	born   uint64 // Pool.clock when own was taken
	end    hash   // of the first hashed positions: own may stay as a snapshot when it is at their end
	hashed int
	snaps  []*state // its snapshots by position, perhaps gone (free) by now
}

// Run is the positions From to To-1 of one sequence: operators read the state before From from the
// pages In, in order, and leave the state after To-1 on the pages Out, which may be the same.
type Run struct {
	From, To int
	In, Out  []PageID // In is nil for zeros; the slices are not to be written to
}

// noLimit as a stamp is after all others.
const noLimit = math.MaxUint64

// Advance plans a row, the positions from..to-1 that follow those planned before, and returns runs with its
// runs, in order, after them; none for a model without recurrent state. The row is cut where a snapshot is to
// stay: at marks, which ascend, and at multiples of SnapshotTokens, all rounded down to whole blocks,
// and at the last place in the row where whole blocks end. The last kind takes the place of its
// sequence's one before when it is sealed. Snapshots are extra: taken from free pages, else in the
// place of what was cached longer ago.
//
// The calls for a step's rows follow all its calls of Match and Extend; then no run writes what
// another row of the step touches.
func (c *Cache) Advance(runs []Run, t *BlockTable, from, to int, marks []int) []Run {
	if c.statePages == 0 {
		return runs
	}
	return c.advance(runs, t, from, to, marks)
}

func (c *Cache) advance(runs []Run, t *BlockTable, from, to int, marks []int) []Run {
	st := &t.state
	if st.own == nil || from != st.at || to <= from {
		panic(fmt.Sprintf("kvcache: %s: advance from %d to %d, state at %d", c.cfg.Model, from, to, st.at))
	}
	var in []PageID
	was := st.in
	if was != nil {
		in = was.pages
	}
	held := was != nil && !was.own
	cuts := c.cut(t, from, to, marks)
	at := from
	for _, k := range cuts {
		if k.at > at {
			runs = append(runs, Run{From: at, To: k.at, In: in, Out: st.own.pages})
			at = k.at
		}
		in = st.own.pages
		c.leave(t, k)
	}
	runs = append(runs, Run{From: at, To: to, In: in, Out: st.own.pages})
	if held {
		c.unrefState(was)
	}
	st.in, st.at = st.own, to
	return runs
}

// cut is a place where a snapshot stays.
type cut struct {
	at   int
	kept bool
	next *state // takes the place of what stays
}

// cut decides where the row is cut, and takes a state block for each place.
func (c *Cache) cut(t *BlockTable, from, to int, marks []int) []cut {
	if c.cfg.Snapshots == 0 || c.cfg.NoPrefixCache {
		return nil
	}
	st := &t.state
	c.cuts = c.cuts[:0]
	want := func(p int, kept bool) {
		if p < max(from, 1) || p >= to || p == from && st.in != nil && !st.in.own {
			return // in another row, or there already
		}
		for i := range c.cuts {
			if c.cuts[i].at == p {
				c.cuts[i].kept = c.cuts[i].kept || kept
				return
			}
		}
		c.cuts = append(c.cuts, cut{at: p, kept: kept})
	}
	// In the order of their worth, for they may not all be had: where the sequence goes on, what
	// most requests share, and then what is nearest to the end.
	want((to-1)/c.step*c.step, false)
	marks = marks[sort.SearchInts(marks, from):]
	if len(marks) > 0 {
		want(marks[0]/c.step*c.step, true)
	}
	for i := len(marks) - 1; i > 0; i-- {
		want(marks[i]/c.step*c.step, true)
	}
	if every := c.cfg.SnapshotTokens; every > 0 {
		for p := (to - 1) / every * every; p >= from && p > 0; p -= every {
			want(p, true)
		}
	}
	n := 0
	for _, k := range c.cuts {
		if k.next = c.spare(t, k.kept); k.next != nil {
			c.cuts[n] = k
			n++
		}
	}
	c.cuts = c.cuts[:n]
	slices.SortFunc(c.cuts, func(a, b cut) int { return a.at - b.at })
	return c.cuts
}

// spare takes a state block that a snapshot costs, or returns nil.
func (c *Cache) spare(t *BlockTable, kept bool) *state {
	p := c.pool
	within := c.snapshotCount() < c.cfg.Snapshots
	if within && len(p.free) >= c.statePages {
		return c.newState()
	}
	before := p.fence + 1 // what was touched since is a part of this step
	if !kept {
		if c.dropRolling(t, before) {
			return c.newState()
		}
		// A sequence that goes on and on does not push out what came after it.
		before = min(before, t.state.born+1)
	}
	if !within {
		s := c.oldestState
		if s == nil || s.stamp >= before {
			return nil
		}
		c.evictState(s)
		return c.newState()
	}
	if !p.reclaimable(before, c.statePages) {
		return nil
	}
	for len(p.free) < c.statePages {
		p.reclaim(c, true, before)
	}
	return c.newState()
}

// dropRolling drops the snapshot that a table's next one is to replace, if it became cached before that stamp.
func (c *Cache) dropRolling(t *BlockTable, before uint64) bool {
	for i := len(t.state.snaps) - 1; i >= 0; i-- {
		if s := t.state.snaps[i]; s.kind == cached && s.sealed && !s.kept && s.stamp < before {
			c.dropState(s)
			return true
		}
	}
	return false
}

// snapshotCount is how many state blocks no table has for its own.
func (c *Cache) snapshotCount() int { return c.states - c.owners }

// leave makes a table's own block the snapshot at k.at, and k.next its own.
func (c *Cache) leave(t *BlockTable, k cut) {
	st := &t.state
	s := st.own
	s.own, s.refs, s.at, s.kept, s.maker = false, 0, k.at, k.kept, t
	c.cacheState(s)
	st.snaps = append(slices.DeleteFunc(st.snaps, func(o *state) bool { return o.kind == free }), s)
	st.own = k.next
	t.next = 0 // Seal has to look at it
}

// reserve gives a table a state block of its own. The caller has counted that there is one.
func (c *Cache) reserve(t *BlockTable) {
	for len(c.pool.free) < c.statePages {
		c.pool.reclaim(c, true, noLimit)
	}
	t.state.own, t.state.born = c.newState(), c.pool.clock
	c.owners++
}

// newState takes free pages for a state block that a table is to own.
func (c *Cache) newState() *state {
	p := c.pool
	s := &state{pages: make([]PageID, c.statePages), kind: live, own: true, refs: 1}
	for i := range s.pages {
		id := p.free[len(p.free)-1]
		p.free = p.free[:len(p.free)-1]
		p.pages[id] = page{owner: c, state: s, blocks: p.pages[id].blocks[:0]}
		s.pages[i] = id
	}
	c.held += c.statePages
	c.states++
	return s
}

// dropState gives the pages of a state block back.
func (c *Cache) dropState(s *state) {
	if s.kind == free {
		panic(fmt.Sprintf("kvcache: %s: the state block on pages %v freed twice", c.cfg.Model, s.pages))
	}
	if s.kind == cached {
		c.uncacheState(s)
	}
	if s.sealed {
		delete(c.snapshots, s.hash)
	}
	s.kind, s.sealed, s.maker, s.refs = free, false, nil, 0
	for i := len(s.pages) - 1; i >= 0; i-- {
		id := s.pages[i]
		c.pool.pages[id] = page{blocks: c.pool.pages[id].blocks[:0]}
		c.pool.free = append(c.pool.free, id)
	}
	c.held -= c.statePages
	c.states--
}

// evictState drops a cached snapshot for the sake of something else.
func (c *Cache) evictState(s *state) {
	c.evictions++
	c.dropState(s)
}

// refState adds a table that reads a snapshot next.
func (c *Cache) refState(s *state) {
	if s.kind == cached {
		c.uncacheState(s)
		s.kind = live
	}
	s.refs++
}

// unrefState takes a table from a snapshot.
func (c *Cache) unrefState(s *state) {
	if s.refs--; s.refs > 0 {
		return
	}
	if s.sealed || s.maker != nil {
		c.cacheState(s)
	} else {
		c.dropState(s)
	}
}

func (c *Cache) cacheState(s *state) {
	c.pool.clock++
	s.kind, s.stamp = cached, c.pool.clock
	s.prev, s.next = c.newestState, nil
	if s.prev == nil {
		c.oldestState = s
	} else {
		s.prev.next = s
	}
	c.newestState = s
	c.cachedStates++
}

func (c *Cache) uncacheState(s *state) {
	if s.prev == nil {
		c.oldestState = s.next
	} else {
		s.prev.next = s.next
	}
	if s.next == nil {
		c.newestState = s.prev
	} else {
		s.next.prev = s.prev
	}
	s.prev, s.next = nil, nil
	c.cachedStates--
}

// matchState returns the most positions, n at most, that a snapshot has seen.
func (c *Cache) matchState(t *BlockTable, n int, tokens []int32) (int, *state) {
	if len(c.snapshots) == 0 {
		return 0, nil
	}
	for ; n > 0; n -= c.step {
		if s := c.snapshots[c.chainTo(t, c.recurrent, n/c.step-1, tokens)]; s != nil {
			return n, s
		}
	}
	return 0, nil
}

// sealStates makes the table's snapshots of tokens findable. The newest one takes the place of
// those before it that are not kept; one that another sequence made as well is dropped.
func (c *Cache) sealStates(t *BlockTable, tokens []int32) {
	for _, s := range t.state.snaps {
		if s.maker != t || s.at > len(tokens) {
			continue
		}
		s.maker = nil
		h := c.chainTo(t, c.recurrent, s.at/c.step-1, tokens)
		if c.snapshots[h] == nil {
			s.sealed, s.hash = true, h
			c.snapshots[h] = s
			c.sealed++
		} else if s.kind == cached {
			c.dropState(s)
		}
		for _, o := range t.state.snaps {
			if o.at < s.at && o.kind == cached && !o.kept {
				c.dropState(o)
			}
		}
	}
	if st := &t.state; st.at == len(tokens) && st.at > 0 && st.at%c.step == 0 && !c.cfg.NoPrefixCache {
		st.end, st.hashed = c.chainTo(t, c.recurrent, st.at/c.step-1, tokens), st.at
	}
}

// stay makes the block that a released table has for its own a snapshot, when it is at the end of
// whole blocks that are computed: it costs nothing but a place among the snapshots.
func (c *Cache) stay(t *BlockTable) bool {
	st := &t.state
	if st.at == 0 || st.hashed != st.at || t.tokens != st.at || !st.in.own || c.snapshots[st.end] != nil {
		return false
	}
	if c.dropRolling(t, noLimit); c.snapshotCount() >= c.cfg.Snapshots {
		s := c.oldestState
		if s == nil || s.stamp > st.born {
			return false
		}
		c.evictState(s)
	}
	s := st.own
	s.own, s.refs, s.at, s.sealed, s.hash = false, 0, st.at, true, st.end
	c.snapshots[s.hash] = s
	c.sealed++
	c.cacheState(s)
	return true
}

// rollBack makes a table go on from its latest snapshot of at most n positions, and returns how
// many these are.
func (c *Cache) rollBack(t *BlockTable, n int) int {
	st := &t.state
	to := len(st.snaps) - 1
	for ; to >= 0; to-- {
		s := st.snaps[to]
		if s.kind != free && s.at <= n && (s.at >= t.tokens || c.truncatable(t, s.at) == s.at) {
			break
		}
	}
	was := st.in
	if st.in, st.at = nil, 0; to >= 0 {
		st.in, st.at = st.snaps[to], st.snaps[to].at
		c.refState(st.in)
	}
	if was != nil && !was.own {
		c.unrefState(was)
	}
	c.forget(t, to+1)
	return st.at
}

// forget drops a table's snapshots from the i-th on as far as nobody else can find them.
func (c *Cache) forget(t *BlockTable, i int) {
	for _, s := range t.state.snaps[i:] {
		if s.maker == t {
			c.dropState(s)
		}
	}
	t.state.snaps = t.state.snaps[:i]
}

// releaseState lets go of all of a table's state. Its snapshots are as young as its blocks then: one
// is no use without the other.
func (c *Cache) releaseState(t *BlockTable) {
	st := &t.state
	if st.in != nil && !st.in.own {
		c.unrefState(st.in)
	}
	if st.own != nil {
		if !c.stay(t) {
			c.dropState(st.own)
		}
		c.owners--
	}
	snaps := st.snaps
	c.forget(t, 0)
	for _, s := range snaps {
		if s.kind == cached {
			c.uncacheState(s)
			c.cacheState(s)
		}
	}
	*st = stateTable{}
}
