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
}

// page is what the pool knows of one page. Links between pages are 0 for none: page 0 is padding
// and in no list.
type page struct {
	owner              *Cache // nil: in Pool.free
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
	sealed bool // Cache.index[hash] is this block
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
		for t := range c.tables {
			t.clear()
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
			Capacity: c.capacity(), Evictions: c.evictions, Sealed: c.sealed,
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

// reclaim evicts what has been cached longest, by age over weight: one cached block of c, or a
// page of another model that has no live block. Pages of others with a live block would not come
// free, so their cached blocks stay. The caller has counted that there is something.
func (p *Pool) reclaim(c *Cache) {
	var from *Cache
	best := -1.0
	age := func(stamp uint64, weight float64) float64 { return float64(p.clock-stamp) / weight }
	if c.oldest != 0 {
		from, best = c, age(c.block(c.oldest).stamp, c.cfg.Weight)
	}
	for _, o := range p.caches {
		if o == c || o.idleHead == 0 {
			continue
		}
		if a := age(p.pages[o.idleHead].stamp, o.cfg.Weight); a > best {
			from, best = o, a
		}
	}
	switch from {
	case nil:
		panic("kvcache: nothing to reclaim")
	case c:
		c.evict(c.oldest)
	default:
		from.evictPage(from.idleHead)
	}
}
