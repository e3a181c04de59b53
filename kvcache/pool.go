package kvcache

import (
	"fmt"
	"math"
)

// Pool is the pages shared by all models.
type Pool struct {
	pages  []page
	free   []PageID // a stack
	caches []*Cache
	clock  uint64 // of releases; the age of cached blocks
	fence  uint64 // clock at the last Match or Extend: what is younger is read by the step being planned
}

// page is what the pool knows of one page. Links between pages are 0 for none: page 0 is padding
// and in no list.
type page struct {
	owner              *Cache // nil: in Pool.free
	state              *state // of which it is a part, or nil when it is cut into blocks
	blocks             []block
	free, live, cached int32
	freeHead           int32 // part of the first free block, -1 for none

	shelfPrev, shelfNext PageID // the owner's pages with equally many free blocks
	idlePrev, idleNext   PageID // the owner's pages without live blocks, longest so first
	stamp                uint64 // Pool.clock when it became idle
}

type blockState uint8

const (
	free blockState = iota
	live
	cached
)

// block is what a page knows of one of its parts.
type block struct {
	state  blockState
	sealed bool // Cache.index has this block
	group  uint8
	refs   int32 // tables it is in
	// The cached list, or for a free block next alone: the part of the next free one, -1 for none.
	prev, next int32
	stamp      uint64 // Pool.clock when it became cached
	hash       hash
}

// NewPool returns a pool of pages, of which the first is padding. It panics below 2.
func NewPool(pages int) *Pool {
	if pages < 2 || pages > math.MaxInt32 {
		panic(fmt.Sprintf("kvcache: a pool of %d pages, of which one is padding", pages))
	}
	p := &Pool{pages: make([]page, pages), free: make([]PageID, 0, pages-1)}
	p.refill()
	return p
}

func (p *Pool) refill() {
	p.free = p.free[:0]
	for id := len(p.pages) - 1; id > 0; id-- { // low ids are given out first
		p.pages[id] = page{blocks: p.pages[id].blocks[:0]}
		p.free = append(p.free, PageID(id))
	}
}

// Reset frees every page and empties every cache and every table: what is left to do when a
// broken invariant was found.
func (p *Pool) Reset() {
	p.refill()
	for _, c := range p.caches {
		for _, t := range c.tables {
			t.clear()
			t.listed = 0
		}
		c.reset()
	}
}

// Stats counts, in the order the caches were made.
func (p *Pool) Stats() Stats {
	s := Stats{Pages: len(p.pages) - 1, FreePages: len(p.free), Models: make([]ModelStats, len(p.caches))}
	for i, c := range p.caches {
		s.Models[i] = ModelStats{
			Model: c.cfg.Model, Pages: c.held, Live: c.live, Cached: c.cached, Free: c.free,
			Capacity: c.Capacity(), States: c.owners, Snapshots: c.snapshotCount(), Evictions: c.evictions, Sealed: c.sealed,
		}
	}
	return s
}

// take gives a free page to c, cut into free blocks.
func (p *Pool) take(c *Cache) {
	id := p.free[len(p.free)-1]
	p.free = p.free[:len(p.free)-1]
	g := &p.pages[id]
	n := int32(c.cfg.BlocksPerPage)
	if cap(g.blocks) < int(n) {
		g.blocks = make([]block, n)
	}
	*g = page{owner: c, blocks: g.blocks[:n], free: n}
	for i := range g.blocks {
		g.blocks[i] = block{next: int32(i) + 1}
	}
	g.blocks[n-1].next = -1
	c.held++
	c.free += int(n)
	c.shelve(id)
	c.idlePush(id)
}

// giveBack returns a page whose blocks are all free.
func (p *Pool) giveBack(id PageID) {
	g := &p.pages[id]
	c := g.owner
	c.unshelve(id)
	c.idleRemove(id)
	c.held--
	c.free -= int(g.free)
	*g = page{blocks: g.blocks[:0]}
	p.free = append(p.free, id)
}

// wholePages is how many pages could be had as a whole.
func (p *Pool) wholePages() int {
	n := len(p.free)
	for _, c := range p.caches {
		n += c.idlePages + c.cachedStates*c.statePages
	}
	return n
}

// reclaimable says whether n whole pages are free or cached since before that stamp.
func (p *Pool) reclaimable(before uint64, n int) bool {
	n -= len(p.free)
	for _, c := range p.caches {
		for s := c.oldestState; s != nil && n > 0 && s.stamp < before; s = s.next {
			n -= c.statePages
		}
		for id := c.idleHead; id != 0 && n > 0 && p.pages[id].stamp < before; id = p.pages[id].idleNext {
			n--
		}
	}
	return n <= 0
}

// reclaim evicts what has been cached longest, by age over weight, and became so before that stamp:
// a snapshot of any model, a page that has no live block, or, unless it is to be a whole page, one
// cached block of c. Of its own pages c needs none as a whole then. Pages with a live block would
// not come free, so their cached blocks stay. The caller has counted that there is something.
func (p *Pool) reclaim(c *Cache, whole bool, before uint64) {
	best := -1.0
	var from *Cache
	var what victim
	offer := func(o *Cache, stamp uint64, v victim) {
		if age := float64(p.clock-stamp) / o.cfg.Weight; age > best && stamp < before {
			best, from, what = age, o, v
		}
	}
	if !whole && c.oldest != 0 {
		offer(c, c.block(c.oldest).stamp, oldestBlock)
	}
	for _, o := range p.caches {
		if (whole || o != c) && o.idleHead != 0 {
			offer(o, p.pages[o.idleHead].stamp, idlePage)
		}
		if o.oldestState != nil {
			offer(o, o.oldestState.stamp, oldestState)
		}
	}
	switch {
	case from == nil:
		panic("kvcache: nothing to reclaim")
	case what == oldestBlock:
		from.evict(from.oldest)
	case what == idlePage:
		from.evictPage(from.idleHead)
	default:
		from.evictState(from.oldestState)
	}
}

// victim is what reclaim evicts of a cache.
type victim uint8

const (
	oldestBlock victim = iota
	idlePage
	oldestState
)
