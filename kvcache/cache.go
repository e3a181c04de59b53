package kvcache

import (
	"fmt"
	"math"
	"math/bits"
)

// Cache is one model's blocks: those of the pages it holds, in one list for all its cache groups.
// With a list for each group a lone sequence could be unable to grow although half-empty pages
// abound.
type Cache struct {
	pool *Pool
	cfg  Config
	step int // a prefix hit is a multiple of this: the least common multiple of BlockTokens

	held, free, live, cached int // pages; blocks
	idlePages                int
	evictions, sealed        uint64

	// shelves[n] is the list of pages with n free blocks; bit n of filled says that it has one.
	shelves []PageID
	filled  []uint64

	oldest, newest     BlockID // cached blocks, longest cached first
	idleHead, idleTail PageID
	index              index         // sealed blocks
	tables             []*BlockTable // those that hold something
	buf                []byte

	// Recurrent state.
	recurrent, statePages        int // its group, and the pages of a state block; 0: there is none
	states, owners, cachedStates int // state blocks, those that are a table's own, cached snapshots
	oldestState, newestState     *state
	snapshots                    map[hash]*state // sealed ones
	cuts                         []cut           // scratch
}

// minBlockTokens divides the tokens of every block.
const minBlockTokens = 16

// NewCache adds a model to the pool.
func (p *Pool) NewCache(cfg Config) (*Cache, error) {
	if cfg.BlocksPerPage < 1 || len(cfg.Groups) < 1 || len(cfg.Groups) > math.MaxUint8 {
		return nil, fmt.Errorf("kvcache: %s: %d blocks per page, %d cache groups", cfg.Model, cfg.BlocksPerPage, len(cfg.Groups))
	}
	if cfg.Weight == 0 {
		cfg.Weight = 1
	}
	if !(cfg.Weight > 0) || math.IsInf(cfg.Weight, 0) {
		return nil, fmt.Errorf("kvcache: %s: weight %g is not positive", cfg.Model, cfg.Weight)
	}
	if cfg.Snapshots < 0 || cfg.SnapshotTokens < 0 {
		return nil, fmt.Errorf("kvcache: %s: %d snapshots, one every %d tokens", cfg.Model, cfg.Snapshots, cfg.SnapshotTokens)
	}
	c := &Cache{pool: p, step: minBlockTokens}
	cfg.Groups = append([]Group(nil), cfg.Groups...)
	for i, g := range cfg.Groups {
		if g.Kind == Recurrent {
			if g.StatePages < 1 || c.statePages > 0 {
				return nil, fmt.Errorf("kvcache: %s: group %d: recurrent, %d pages, after a group of %d", cfg.Model, i, g.StatePages, c.statePages)
			}
			c.recurrent, c.statePages = i, g.StatePages
			continue
		}
		if g.BlockTokens < minBlockTokens || g.BlockTokens%minBlockTokens != 0 || g.BlockTokens > 1<<20 {
			return nil, fmt.Errorf("kvcache: %s: group %d: %d tokens per block is not a multiple of 16", cfg.Model, i, g.BlockTokens)
		}
		if g.Kind > SlidingWindow || g.Kind == SlidingWindow && g.Window < 1 {
			return nil, fmt.Errorf("kvcache: %s: group %d: kind %d, window %d", cfg.Model, i, g.Kind, g.Window)
		}
		// A slot number, block * BlockTokens + offset, has 32 bits.
		if slots := float64(len(p.pages)) * float64(cfg.BlocksPerPage) * float64(g.BlockTokens); slots > math.MaxInt32 {
			return nil, fmt.Errorf("kvcache: %s: group %d: %d pages of %d blocks of %d tokens are more than 2^31 slots",
				cfg.Model, i, len(p.pages), cfg.BlocksPerPage, g.BlockTokens)
		}
		c.step = lcm(c.step, g.BlockTokens)
	}
	if c.statePages > 0 {
		cfg.Groups[c.recurrent].BlockTokens = c.step
		cfg.NoPrefixCache = cfg.NoPrefixCache || cfg.Snapshots == 0 // nobody could go on from what is found
		cfg.SnapshotTokens = ceilDiv(cfg.SnapshotTokens, c.step) * c.step
	}
	c.cfg = cfg
	c.reset()
	p.caches = append(p.caches, c)
	return c, nil
}

func lcm(a, b int) int {
	x, y := a, b
	for y != 0 {
		x, y = y, x%y
	}
	return a / x * b
}

// reset forgets all pages, which the pool has taken already.
func (c *Cache) reset() {
	c.held, c.free, c.live, c.cached, c.idlePages = 0, 0, 0, 0, 0
	c.shelves = make([]PageID, c.cfg.BlocksPerPage+1)
	c.filled = make([]uint64, c.cfg.BlocksPerPage/64+1)
	c.oldest, c.newest, c.idleHead, c.idleTail = 0, 0, 0, 0
	c.index = newIndex()
	clear(c.tables)
	c.tables = c.tables[:0]
	c.states, c.owners, c.cachedStates = 0, 0, 0
	c.oldestState, c.newestState = nil, nil
	c.snapshots = map[hash]*state{}
}

// Config returns what the cache was made from. It is the cache's own.
func (c *Cache) Config() *Config { return &c.cfg }

// Pool returns the pool whose pages it cuts.
func (c *Cache) Pool() *Pool { return c.pool }

// Flush forgets what the prefix cache holds and nobody uses.
func (c *Cache) Flush() {
	for c.oldest != 0 {
		c.evict(c.oldest)
	}
	for c.oldestState != nil {
		c.evictState(c.oldestState)
	}
}

// Close gives every page back and leaves the pool. It panics when a block is live.
func (c *Cache) Close() {
	c.Flush()
	if c.held != 0 {
		panic(fmt.Sprintf("kvcache: %s: closed with %d live blocks and %d states", c.cfg.Model, c.live, c.states))
	}
	for i, o := range c.pool.caches {
		if o == c {
			c.pool.caches = append(c.pool.caches[:i], c.pool.caches[i+1:]...)
			return
		}
	}
	panic("kvcache: " + c.cfg.Model + " closed twice")
}

// Available is how many blocks Extend could give now, to a table that needs no state block.
func (c *Cache) Available() int { return c.scattered() + c.pool.wholePages()*c.cfg.BlocksPerPage }

// scattered is how many blocks could be had of its pages that live blocks hold.
func (c *Cache) scattered() int { return c.free + c.cached - c.idlePages*c.cfg.BlocksPerPage }

// room says whether so many blocks and so many whole pages could be had together. It is exact when the
// pages are taken first.
func (c *Cache) room(blocks, pages int) bool {
	pages += ceilDiv(max(0, blocks-c.scattered()), c.cfg.BlocksPerPage)
	return pages <= c.pool.wholePages()
}

// Capacity is how many blocks the whole pool is for this model.
func (c *Cache) Capacity() int { return (len(c.pool.pages) - 1) * c.cfg.BlocksPerPage }

// Fits says whether one sequence of n tokens fits the whole pool, when at most span of its positions are
// given blocks beyond those that Seal has seen. Extend never refuses such a sequence while no other one holds a block.
func (c *Cache) Fits(n, span int) bool {
	return c.need(n, span) <= c.Capacity()-c.statePages*c.cfg.BlocksPerPage
}

func (c *Cache) need(n, span int) int {
	blocks := 0
	for _, g := range c.cfg.Groups {
		if g.Kind == Recurrent {
			continue
		}
		b := ceilDiv(n, g.BlockTokens)
		if g.Kind == SlidingWindow {
			b = min(b, ceilDiv(g.Window-1+span, g.BlockTokens)+1) // + 1: neither end is aligned
		}
		blocks += b
	}
	return blocks
}

// MaxTokens is the longest sequence that Fits, at most limit.
func (c *Cache) MaxTokens(span, limit int) int {
	lo, hi := 0, limit // Fits(lo), and nothing beyond hi
	for lo < hi {
		if mid := (lo + hi + 1) / 2; c.Fits(mid, span) {
			lo = mid
		} else {
			hi = mid - 1
		}
	}
	return lo
}

func ceilDiv(a, b int) int { return (a + b - 1) / b }

// split returns a block's page and part.
func (c *Cache) split(id BlockID) (PageID, int32) {
	n := int32(c.cfg.BlocksPerPage)
	return PageID(int32(id) / n), int32(id) % n
}

func (c *Cache) block(id BlockID) *block {
	pg, part := c.split(id)
	return &c.pool.pages[pg].blocks[part]
}

// alloc makes a block live. The caller has counted that there is one. The page with the fewest
// free blocks gives it, so that the others can empty and go back.
func (c *Cache) alloc(group int) BlockID {
	for c.free == 0 {
		if len(c.pool.free) > 0 {
			c.pool.take(c)
		} else {
			c.pool.reclaim(c, false, noLimit)
		}
	}
	pg := c.fullest()
	g := &c.pool.pages[pg]
	part := g.freeHead
	b := &g.blocks[part]
	c.unshelve(pg)
	g.freeHead = b.next
	g.free--
	c.free--
	c.shelve(pg)
	*b = block{state: live, group: uint8(group), refs: 1}
	c.gainLive(pg)
	return BlockID(int32(pg)*int32(c.cfg.BlocksPerPage) + part)
}

// ref adds a table to a live or cached block.
func (c *Cache) ref(id BlockID) {
	b := c.block(id)
	switch b.state {
	case live:
		b.refs++
	case cached:
		c.uncache(id, b)
		b.state, b.refs = live, 1
		pg, _ := c.split(id)
		c.gainLive(pg)
	default:
		panic(fmt.Sprintf("kvcache: %s: block %d is shared but free", c.cfg.Model, id))
	}
}

// unref takes a table from a live block. The last one leaves it cached if it can be found again,
// else free.
func (c *Cache) unref(id BlockID) {
	pg, _ := c.split(id)
	if id <= 0 || int(pg) >= len(c.pool.pages) || c.pool.pages[pg].owner != c || c.pool.pages[pg].state != nil {
		panic(fmt.Sprintf("kvcache: %s: block %d is not its own", c.cfg.Model, id))
	}
	b := c.block(id)
	if b.state != live {
		panic(fmt.Sprintf("kvcache: %s: block %d freed twice", c.cfg.Model, id))
	}
	if b.refs--; b.refs > 0 {
		return
	}
	g := &c.pool.pages[pg]
	g.live--
	c.live--
	if b.sealed {
		b.state = cached
		c.pool.clock++
		b.stamp = c.pool.clock
		b.prev, b.next = int32(c.newest), 0
		if c.newest == 0 {
			c.oldest = id
		} else {
			c.block(c.newest).next = int32(id)
		}
		c.newest = id
		g.cached++
		c.cached++
	}
	if g.live == 0 {
		c.idlePush(pg)
	}
	if !b.sealed {
		c.toFree(id, b)
	}
}

// evict frees a cached block.
func (c *Cache) evict(id BlockID) {
	b := c.block(id)
	c.uncache(id, b)
	c.strike(&b.hash)
	c.evictions++
	c.toFree(id, b)
}

// evictPage frees all blocks of a page without live ones, and so the page.
func (c *Cache) evictPage(pg PageID) {
	first := BlockID(int32(pg) * int32(c.cfg.BlocksPerPage))
	for i, left := 0, c.pool.pages[pg].cached; left > 0; i++ {
		if c.pool.pages[pg].blocks[i].state == cached {
			left--
			c.evict(first + BlockID(i)) // the last one gives the page back
		}
	}
}

// toFree puts a block that is neither live nor cached on its page's free list.
func (c *Cache) toFree(id BlockID, b *block) {
	pg, part := c.split(id)
	g := &c.pool.pages[pg]
	c.unshelve(pg)
	*b = block{next: g.freeHead}
	g.freeHead = part
	g.free++
	c.free++
	c.shelve(pg)
	if g.live == 0 && g.cached == 0 {
		c.pool.giveBack(pg)
	}
}

// uncache takes a block off the cached list.
func (c *Cache) uncache(id BlockID, b *block) {
	if b.prev == 0 {
		c.oldest = BlockID(b.next)
	} else {
		c.block(BlockID(b.prev)).next = b.next
	}
	if b.next == 0 {
		c.newest = BlockID(b.prev)
	} else {
		c.block(BlockID(b.next)).prev = b.prev
	}
	b.prev, b.next = 0, 0
	pg, _ := c.split(id)
	c.pool.pages[pg].cached--
	c.cached--
}

func (c *Cache) gainLive(pg PageID) {
	g := &c.pool.pages[pg]
	if g.live == 0 {
		c.idleRemove(pg)
	}
	g.live++
	c.live++
}

// shelve files a page under its number of free blocks.
func (c *Cache) shelve(pg PageID) {
	g := &c.pool.pages[pg]
	n := g.free
	if n == 0 {
		return
	}
	next := c.shelves[n]
	g.shelfPrev, g.shelfNext = 0, next
	if next != 0 {
		c.pool.pages[next].shelfPrev = pg
	}
	c.shelves[n] = pg
	c.filled[n/64] |= 1 << (n % 64)
}

func (c *Cache) unshelve(pg PageID) {
	g := &c.pool.pages[pg]
	n := g.free
	if n == 0 {
		return
	}
	if g.shelfPrev == 0 {
		c.shelves[n] = g.shelfNext
		if g.shelfNext == 0 {
			c.filled[n/64] &^= 1 << (n % 64)
		}
	} else {
		c.pool.pages[g.shelfPrev].shelfNext = g.shelfNext
	}
	if g.shelfNext != 0 {
		c.pool.pages[g.shelfNext].shelfPrev = g.shelfPrev
	}
	g.shelfPrev, g.shelfNext = 0, 0
}

// fullest returns a page with the fewest free blocks, but one at least.
func (c *Cache) fullest() PageID {
	for i, w := range c.filled {
		if w != 0 {
			return c.shelves[i*64+bits.TrailingZeros64(w)]
		}
	}
	panic(fmt.Sprintf("kvcache: %s: %d free blocks on no page", c.cfg.Model, c.free))
}

func (c *Cache) idlePush(pg PageID) {
	g := &c.pool.pages[pg]
	g.stamp = c.pool.clock
	g.idlePrev, g.idleNext = c.idleTail, 0
	if c.idleTail == 0 {
		c.idleHead = pg
	} else {
		c.pool.pages[c.idleTail].idleNext = pg
	}
	c.idleTail = pg
	c.idlePages++
}

func (c *Cache) idleRemove(pg PageID) {
	g := &c.pool.pages[pg]
	if g.idlePrev == 0 {
		c.idleHead = g.idleNext
	} else {
		c.pool.pages[g.idlePrev].idleNext = g.idleNext
	}
	if g.idleNext == 0 {
		c.idleTail = g.idlePrev
	} else {
		c.pool.pages[g.idleNext].idlePrev = g.idlePrev
	}
	g.idlePrev, g.idleNext = 0, 0
	c.idlePages--
}
