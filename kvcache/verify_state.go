package kvcache

import "fmt"

// verifyStates recounts state blocks from the tables and from the pages.
func (c *Cache) verifyStates() error {
	refs, pending := map[*state]int32{}, map[*state]*BlockTable{}
	owners := 0
	for _, t := range c.tables {
		st := &t.state
		if st.own != nil {
			owners++
			refs[st.own]++
			if !st.own.own || refs[st.own] > 1 {
				return fmt.Errorf("the state block on pages %v is two tables' own", st.own.pages)
			}
		}
		if st.in != nil && st.in != st.own {
			refs[st.in]++
			if st.in.own || st.in.at != st.at {
				return fmt.Errorf("a table at %d goes on from the state of %d on pages %v", st.at, st.in.at, st.in.pages)
			}
		}
		if c.statePages > 0 && t.tokens > st.at || (st.in == nil) != (st.at == 0) {
			return fmt.Errorf("%d tokens, state at %d, none: %t", t.tokens, st.at, st.in == nil)
		}
		last := 0
		for _, s := range st.snaps {
			if s.kind == free {
				continue
			}
			if s.at <= last || s.at > st.at || s.at%c.step != 0 {
				return fmt.Errorf("snapshot at %d after %d, state at %d", s.at, last, st.at)
			}
			if last = s.at; s.maker == t {
				if s.at < t.next {
					return fmt.Errorf("Seal would pass the snapshot at %d, for it has work at %d", s.at, t.next)
				}
				pending[s] = t
			}
		}
	}
	found := map[*state]int{}
	for id := range c.pool.pages {
		g := &c.pool.pages[id]
		if g.owner != c || g.state == nil {
			continue
		}
		if len(g.blocks) != 0 || g.free != 0 || g.live != 0 || g.cached != 0 {
			return fmt.Errorf("page %d of a state block has %d blocks", id, len(g.blocks))
		}
		found[g.state]++
	}
	cached_, sealed := 0, 0
	for s := range refs {
		if found[s] == 0 {
			return fmt.Errorf("a table has the state block of %d on pages %v, which are not its", s.at, s.pages)
		}
	}
	for s, n := range found {
		if n != c.statePages || len(s.pages) != n {
			return fmt.Errorf("the state block on pages %v has %d pages, not %d", s.pages, n, c.statePages)
		}
		for _, id := range s.pages {
			if id <= 0 || int(id) >= len(c.pool.pages) || c.pool.pages[id].state != s {
				return fmt.Errorf("page %d of the state block on pages %v is another's", id, s.pages)
			}
		}
		if s.refs != refs[s] || (s.kind == live) != (s.refs > 0) || s.kind == free || s.own && s.kind != live {
			return fmt.Errorf("the state block on pages %v: state %d, %d references, in %d tables, own %t", s.pages, s.kind, s.refs, refs[s], s.own)
		}
		if pending[s] != s.maker || s.kind == cached && s.sealed == (s.maker != nil) || s.own && (s.sealed || s.maker != nil) {
			return fmt.Errorf("the snapshot at %d on pages %v: sealed %t, to be sealed %t", s.at, s.pages, s.sealed, s.maker != nil)
		}
		if s.kind == cached {
			cached_++
		}
		if s.sealed {
			if sealed++; c.snapshots[s.hash] != s {
				return fmt.Errorf("the snapshot at %d on pages %v is sealed, but not found", s.at, s.pages)
			}
		}
	}
	got := [...]int{c.states, c.owners, c.cachedStates, len(c.snapshots)}
	if want := [...]int{len(found), owners, cached_, sealed}; got != want {
		return fmt.Errorf("counts of state blocks, own ones, cached, findable: %v; recounted %v", got, want)
	}
	if n := c.snapshotCount(); n > c.cfg.Snapshots {
		return fmt.Errorf("%d snapshots of at most %d", n, c.cfg.Snapshots)
	}
	n, stamp := 0, uint64(0)
	var last *state
	for s := c.oldestState; s != nil; s = s.next {
		if n++; n > c.cachedStates || s.kind != cached || s.prev != last || s.stamp < stamp {
			return fmt.Errorf("the snapshot at %d on pages %v in the cached list: state %d", s.at, s.pages, s.kind)
		}
		last, stamp = s, s.stamp
	}
	if n != c.cachedStates || c.newestState != last {
		return fmt.Errorf("%d snapshots in the cached list, %d cached", n, c.cachedStates)
	}
	return nil
}
