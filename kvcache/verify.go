package kvcache

import "fmt"

// Verify recounts every page, block, reference and list from the tables up and names the first
// thing that is wrong. It costs time in proportion to the pool.
func (p *Pool) Verify() error {
	seen := make([]bool, len(p.pages))
	for _, id := range p.free {
		if id <= 0 || int(id) >= len(p.pages) || seen[id] || p.pages[id].owner != nil {
			return fmt.Errorf("kvcache: page %d is in the free list, but held, padding or there twice", id)
		}
		seen[id] = true
	}
	held := 0
	for _, c := range p.caches {
		n, err := c.verify()
		if err != nil {
			return fmt.Errorf("kvcache: %s: %w", c.cfg.Model, err)
		}
		held += n
	}
	if got, want := held+len(p.free), len(p.pages)-1; got != want {
		return fmt.Errorf("kvcache: %d pages held and %d free, of %d", held, len(p.free), want)
	}
	return nil
}

// verify returns how many pages the cache holds.
func (c *Cache) verify() (int, error) {
	refs, err := c.countRefs()
	if err != nil {
		return 0, err
	}
	var held, free_, live_, cached_, sealed, idle int
	for id := range c.pool.pages {
		g := &c.pool.pages[id]
		if g.owner != c {
			continue
		}
		held++
		if g.state != nil {
			continue
		}
		if len(g.blocks) != c.cfg.BlocksPerPage {
			return 0, fmt.Errorf("page %d has %d blocks, not %d", id, len(g.blocks), c.cfg.BlocksPerPage)
		}
		var counts [3]int32
		for part := range g.blocks {
			b := &g.blocks[part]
			bid := BlockID(id*c.cfg.BlocksPerPage + part)
			counts[b.state]++
			if int(b.refs) != refs[bid] || (b.state == live) != (b.refs > 0) {
				return 0, fmt.Errorf("block %d: state %d, %d references, in %d tables", bid, b.state, b.refs, refs[bid])
			}
			if b.sealed {
				sealed++
				if at, _ := c.sealedAs(&b.hash); at != bid {
					return 0, fmt.Errorf("block %d is sealed, but the index has %d", bid, at)
				}
			}
			if b.state == free && b.sealed || b.state == cached && !b.sealed {
				return 0, fmt.Errorf("block %d: state %d, sealed %t", bid, b.state, b.sealed)
			}
		}
		if counts != [3]int32{g.free, g.live, g.cached} {
			return 0, fmt.Errorf("page %d counts %d free, %d live, %d cached; recounted %v", id, g.free, g.live, g.cached, counts)
		}
		if g.live == 0 && g.cached == 0 {
			return 0, fmt.Errorf("page %d is held for nothing", id)
		}
		n := int32(0)
		for part := g.freeHead; part >= 0; part = g.blocks[part].next {
			if n++; n > g.free || g.blocks[part].state != free {
				return 0, fmt.Errorf("page %d: part %d in the free list", id, part)
			}
		}
		if n != g.free {
			return 0, fmt.Errorf("page %d: %d in the free list, %d free", id, n, g.free)
		}
		if g.live == 0 {
			idle++
		}
		free_, live_, cached_ = free_+int(g.free), live_+int(g.live), cached_+int(g.cached)
	}
	entries := 0
	for _, e := range c.index.slots {
		if e != 0 {
			entries++
		}
	}
	got := [...]int{c.held, c.free, c.live, c.cached, c.idlePages, c.index.n, entries}
	if want := [...]int{held, free_, live_, cached_, idle, sealed, sealed}; got != want {
		return 0, fmt.Errorf("counts of pages held, blocks free, live, cached, idle pages, index twice: %v; recounted %v", got, want)
	}
	if err := c.verifyStates(); err != nil {
		return 0, err
	}
	return held, c.verifyLists()
}

// countRefs counts how many tables name each block.
func (c *Cache) countRefs() (map[BlockID]int, error) {
	refs := map[BlockID]int{}
	for i, t := range c.tables {
		if t.listed != i+1 {
			return nil, fmt.Errorf("table %d is listed as %d", i, t.listed-1)
		}
		if given, next := c.given(t), c.nextWork(t); t.given != given || t.next > next {
			return nil, fmt.Errorf("blocks for %d tokens, Seal has work at %d; recounted %d, %d", t.given, t.next, given, next)
		}
		for i := range t.groups {
			g, cfg := &t.groups[i], c.cfg.Groups[i]
			if cfg.Kind == Recurrent {
				if len(g.blocks) > 0 {
					return nil, fmt.Errorf("group %d: %d blocks of recurrent state", i, len(g.blocks))
				}
				continue
			}
			if g.hashed > len(g.chain) || g.hashed > 0 && g.tip != g.chain[g.hashed-1] || g.ends > len(g.blocks) || g.ends > 0 && g.last != g.blocks[g.ends-1] {
				return nil, fmt.Errorf("group %d: the newest of %d blocks and %d hashes are said to be %d and %d, and differ", i, len(g.blocks), len(g.chain), g.ends, g.hashed)
			}
			if t.tokens > len(g.blocks)*cfg.BlockTokens || g.first > firstSeen(cfg, t.tokens) {
				return nil, fmt.Errorf("group %d: %d tokens in %d blocks from %d on", i, t.tokens, len(g.blocks), g.first)
			}
			for j, id := range g.blocks {
				pg, _ := c.split(id)
				if j < g.first {
					if id != Padding {
						return nil, fmt.Errorf("group %d: entry %d, left by the window, is block %d", i, j, id)
					}
					continue
				}
				if id <= 0 || int(pg) >= len(c.pool.pages) || c.pool.pages[pg].owner != c || c.pool.pages[pg].state != nil {
					return nil, fmt.Errorf("group %d: entry %d is block %d of a page that is not held", i, j, id)
				}
				if b := c.block(id); int(b.group) != i {
					return nil, fmt.Errorf("group %d: entry %d is block %d of group %d", i, j, id, b.group)
				}
				refs[id]++
			}
		}
	}
	return refs, nil
}

func (c *Cache) verifyLists() error {
	n, prev, stamp := 0, BlockID(0), uint64(0)
	for id := c.oldest; id != 0; {
		b := c.block(id)
		if n++; n > c.cached || b.state != cached || BlockID(b.prev) != prev || b.stamp < stamp {
			return fmt.Errorf("block %d in the cached list: state %d, before it %d, not %d", id, b.state, b.prev, prev)
		}
		prev, stamp, id = id, b.stamp, BlockID(b.next)
	}
	if n != c.cached || c.newest != prev {
		return fmt.Errorf("%d blocks in the cached list, %d cached", n, c.cached)
	}
	n, stamp = 0, 0
	last := PageID(0)
	for id := c.idleHead; id != 0; id = c.pool.pages[id].idleNext {
		g := &c.pool.pages[id]
		if n++; n > c.idlePages || g.owner != c || g.live != 0 || g.idlePrev != last || g.stamp < stamp {
			return fmt.Errorf("page %d in the idle list", id)
		}
		last, stamp = id, g.stamp
	}
	if n != c.idlePages || c.idleTail != last {
		return fmt.Errorf("%d pages in the idle list, %d idle", n, c.idlePages)
	}
	n = 0
	for free, head := range c.shelves {
		if (head != 0) != (c.filled[free/64]>>(free%64)&1 == 1) {
			return fmt.Errorf("shelf %d: first page %d, filled bit differs", free, head)
		}
		last = 0
		for id := head; id != 0; id = c.pool.pages[id].shelfNext {
			g := &c.pool.pages[id]
			if n++; n > c.held || g.owner != c || int(g.free) != free || free == 0 || g.shelfPrev != last {
				return fmt.Errorf("page %d with %d free blocks on shelf %d", id, g.free, free)
			}
			last = id
		}
	}
	for id := range c.pool.pages {
		if g := &c.pool.pages[id]; g.owner == c && g.free == 0 {
			n++
		}
	}
	if n != c.held {
		return fmt.Errorf("%d pages on shelves or full, %d held", n, c.held)
	}
	return nil
}
