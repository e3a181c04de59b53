package kvcache

import (
	"fmt"
	"math"
	"slices"
)

// BlockTable is the blocks of one sequence, per cache group. The tokens that its cache is called
// with may only grow, until Truncate takes some away.
//
// What a token asks for is mostly nothing, and then neither Extend nor Seal looks beyond the first line of memory.
type BlockTable struct {
	tokens int // positions that Match or Seal has seen
	given  int // every group has blocks for the positions before it; 0 without the state block that it needs
	next   int // Seal up to fewer tokens fills no block, moves no window and passes no snapshot; 0: not known
	listed int // 1 + where it is in Cache.tables; 0: it is not
	groups []groupTable
	one    [1]groupTable // groups of a model that has one, so that it is in the next line
	state  stateTable
}

type groupTable struct {
	sealed int       // blocks before this one were offered to the index
	first  int       // blocks before this one are Padding
	blocks []BlockID // by position; Padding where a window has moved on
	chain  []hash    // of the full blocks, as far as they were needed; outlives Release

	// tip is the hash of block hashed-1, if hashed > 0, and last is block ends-1, if ends > 0: the newest, mostly, at hand without
	// the ends of chain and blocks, which are far away.
	tip    hash
	hashed int
	ends   int
	last   BlockID
	root   hash
}

// hashOf is the hash of a full block, which chain has, and blockAt the block.
func (g *groupTable) hashOf(i int) *hash {
	if i == g.hashed-1 {
		return &g.tip
	}
	return &g.chain[i]
}

func (g *groupTable) blockAt(i int) BlockID {
	if i == g.ends-1 {
		return g.last
	}
	return g.blocks[i]
}

// newest keeps the block that was added last.
func (g *groupTable) newest(id BlockID) {
	g.blocks = append(g.blocks, id)
	g.ends, g.last = len(g.blocks), id
}

// NewTable returns an empty table.
func (c *Cache) NewTable(id Identity) *BlockTable {
	t := &BlockTable{}
	if t.groups = t.one[:]; len(c.cfg.Groups) > 1 {
		t.groups = make([]groupTable, len(c.cfg.Groups))
	}
	if !c.cfg.NoPrefixCache {
		for g := range t.groups {
			t.groups[g].root = c.root(id, g)
		}
	}
	return t
}

// Blocks returns group g's blocks: entry i has positions i*BlockTokens to (i+1)*BlockTokens-1.
// Entries that a window has left behind are Padding. A recurrent group has none. The slice is the table's own.
func (t *BlockTable) Blocks(g int) []BlockID { return t.groups[g].blocks }

// Tokens is how many positions Match or Seal has seen since the table was empty.
func (t *BlockTable) Tokens() int { return t.tokens }

func (t *BlockTable) clear() {
	t.tokens, t.given, t.next, t.state = 0, 0, 0, stateTable{}
	for i := range t.groups {
		g := &t.groups[i]
		g.blocks, g.first, g.sealed, g.ends = g.blocks[:0], 0, 0, 0
	}
}

// Extend gives the table blocks for the positions before n in every group and, so that a prompt
// that was admitted also fits, for those before ahead in the groups that keep everything; and a
// state block when the model has recurrent state. It returns false and changes nothing when there is
// not enough: check and reservation are one. The answer is counted first and exact, so a refusal
// evicts nothing and nothing is to be undone.
func (c *Cache) Extend(t *BlockTable, n, ahead int) bool {
	c.pool.fence = c.pool.clock
	return n <= t.given && ahead <= t.given || c.extend(t, n, ahead)
}

func (c *Cache) extend(t *BlockTable, n, ahead int) bool {
	need, pages := 0, 0
	for i, cfg := range c.cfg.Groups {
		need += max(0, c.want(cfg, n, ahead)-len(t.groups[i].blocks))
	}
	if c.statePages > 0 && t.state.own == nil {
		pages = c.statePages
	}
	if need+pages == 0 {
		return true
	}
	if !c.room(need, pages) {
		return false
	}
	c.list(t)
	if pages > 0 {
		c.reserve(t)
	}
	for i, cfg := range c.cfg.Groups {
		g := &t.groups[i]
		for want := c.want(cfg, n, ahead); len(g.blocks) < want; {
			g.newest(c.alloc(i))
		}
	}
	t.given = c.given(t)
	return true
}

// Quiet is how many tokens a table can have before it needs another Extend, and a Seal: with fewer, that would find nothing to do.
// Of a model with recurrent state it is 0, for each step plans where it is.
func (c *Cache) Quiet(t *BlockTable) int {
	if c.statePages > 0 {
		return 0
	}
	return min(t.given, t.next)
}

// Growing is a table and the tokens that Seal is to be called with soon, or the first of them.
type Growing struct {
	Table  *BlockTable
	Tokens []int32
}

// Prepare reads what Extend and Seal are going to ask for where they have something to do, and hashes what will be full blocks.
// In many tables at once the processor waits for their memory once, and not for one after the other. Nothing else changes by it;
// the sum is only so that no look is left out.
func (c *Cache) Prepare(list []Growing) (sum int) {
	for _, x := range list {
		sum += x.Table.tokens + len(x.Table.one[0].chain) + int(x.Table.one[0].last)
	}
	for _, x := range list { // where the next block and the next hash are written, too, for a store waits as long as a look
		for i := range x.Table.groups {
			g := &x.Table.groups[i]
			if n := len(g.blocks); n < cap(g.blocks) {
				sum += int(g.blocks[:n+1][n])
			}
			if n := len(g.chain); n < cap(g.chain) {
				sum += int(g.chain[:n+1][n][0])
			}
			if g.ends > 0 {
				sum += int(c.block(g.last).refs)
			}
		}
	}
	if c.cfg.NoPrefixCache {
		return sum
	}
	for _, x := range list {
		for i, cfg := range c.cfg.Groups {
			if n := len(x.Tokens) / cfg.BlockTokens; cfg.Kind != Recurrent && n > len(x.Table.groups[i].chain) {
				c.chainTo(x.Table, i, n-1, x.Tokens)
			}
		}
	}
	for _, x := range list {
		for i := range x.Table.groups {
			if g := &x.Table.groups[i]; len(g.chain) > g.sealed {
				sum += int(c.index.slots[c.index.home(g.hashOf(g.sealed))])
			}
		}
	}
	return sum
}

// given is what BlockTable.given is.
func (c *Cache) given(t *BlockTable) int {
	if c.statePages > 0 && t.state.own == nil {
		return 0
	}
	n := math.MaxInt
	for i, cfg := range c.cfg.Groups {
		if cfg.Kind != Recurrent {
			n = min(n, len(t.groups[i].blocks)*cfg.BlockTokens)
		}
	}
	return n
}

// nextWork is what BlockTable.next may be after Seal.
func (c *Cache) nextWork(t *BlockTable) int {
	n := math.MaxInt
	if c.statePages > 0 {
		n = (t.tokens/c.step + 1) * c.step
	}
	for i, cfg := range c.cfg.Groups {
		g := &t.groups[i]
		if cfg.Kind != Recurrent && !c.cfg.NoPrefixCache {
			n = min(n, (g.sealed+1)*cfg.BlockTokens)
		}
		if cfg.Kind == SlidingWindow {
			n = min(n, (g.first+1)*cfg.BlockTokens+cfg.Window-1)
		}
	}
	return n
}

// list notes that a table holds something, and unlist that it does not.
func (c *Cache) list(t *BlockTable) {
	if t.listed == 0 {
		c.tables = append(c.tables, t)
		t.listed = len(c.tables)
	}
}

func (c *Cache) unlist(t *BlockTable) {
	if t.listed == 0 {
		return
	}
	last := len(c.tables) - 1
	c.tables[t.listed-1] = c.tables[last]
	c.tables[t.listed-1].listed = t.listed
	c.tables[last] = nil
	c.tables = c.tables[:last]
	t.listed = 0
}

// Reserve makes room in an empty or growing table for n positions, so that they are given and sealed without an allocation.
func (c *Cache) Reserve(t *BlockTable, n int) {
	for i, cfg := range c.cfg.Groups {
		g := &t.groups[i]
		if cfg.Kind != Recurrent {
			g.blocks = slices.Grow(g.blocks, max(0, ceilDiv(n, cfg.BlockTokens)-len(g.blocks)))
		}
		if !c.cfg.NoPrefixCache {
			g.chain = slices.Grow(g.chain, max(0, n/cfg.BlockTokens-len(g.chain)))
		}
	}
}

func (c *Cache) want(g Group, n, ahead int) int {
	switch g.Kind {
	case Full:
		n = max(n, ahead)
	case Recurrent:
		return 0
	}
	return ceilDiv(n, g.BlockTokens)
}

// Release empties the table. Its full blocks stay cached, the last ones to be evicted first: a
// block is no use without those before it.
func (c *Cache) Release(t *BlockTable) {
	for i := range t.groups {
		g := &t.groups[i]
		for j := len(g.blocks) - 1; j >= g.first; j-- {
			c.unref(g.blocks[j])
		}
	}
	c.releaseState(t)
	t.clear()
	c.unlist(t)
}

// slide lets go of what no token from position t.tokens on can see.
func (c *Cache) slide(t *BlockTable) {
	for i, cfg := range c.cfg.Groups {
		if cfg.Kind != SlidingWindow {
			continue
		}
		g := &t.groups[i]
		for keep := firstSeen(cfg, t.tokens); g.first < keep; g.first++ {
			c.unref(g.blocks[g.first])
			if g.blocks[g.first] = Padding; g.ends == g.first+1 {
				g.ends = 0
			}
		}
	}
}

// firstSeen is the first block that the token at position n can see.
func firstSeen(g Group, n int) int {
	if g.Kind != SlidingWindow {
		return 0
	}
	return max(0, n-g.Window+1) / g.BlockTokens
}

// Truncate forgets the positions from n on, blocks included that were taken ahead, and returns
// how many positions are kept, which the next token follows. That is n as long as n is not less
// than what Seal has seen and, with recurrent state, Advance has planned. Below that a sealed block
// cannot be written to again, a window does not come back, and state only to a snapshot: then fewer
// are kept, perhaps none, and the rest is to be computed again.
func (c *Cache) Truncate(t *BlockTable, n int) int {
	if n < 0 {
		panic(fmt.Sprintf("kvcache: truncate to %d positions", n))
	}
	if n < t.state.at {
		n = c.rollBack(t, n)
	} else if n < t.tokens {
		n = c.truncatable(t, n)
	}
	for i, cfg := range c.cfg.Groups {
		g := &t.groups[i]
		keep := ceilDiv(n, cfg.BlockTokens)
		for j := len(g.blocks) - 1; j >= max(keep, g.first); j-- {
			c.unref(g.blocks[j])
		}
		g.blocks = g.blocks[:min(keep, len(g.blocks))]
		g.first = min(g.first, len(g.blocks))
		g.sealed = min(g.sealed, n/cfg.BlockTokens)
		g.chain = g.chain[:min(len(g.chain), n/cfg.BlockTokens)]
		if g.hashed > len(g.chain) {
			g.hashed = 0
		}
		if g.ends > len(g.blocks) {
			g.ends = 0
		}
	}
	t.tokens = min(t.tokens, n)
	if n == 0 {
		c.releaseState(t)
		c.unlist(t)
	}
	t.given, t.next = c.given(t), 0
	return n
}

// truncatable is the longest length up to n at which every group can go on writing.
func (c *Cache) truncatable(t *BlockTable, n int) int {
	for again := true; again && n > 0; {
		again = false
		for i, cfg := range c.cfg.Groups {
			if cfg.Kind == Recurrent {
				continue
			}
			g := &t.groups[i]
			if firstSeen(cfg, n) < g.first {
				return 0
			}
			if part := n % cfg.BlockTokens; part != 0 {
				if b := c.block(g.blocks[n/cfg.BlockTokens]); b.sealed || b.refs > 1 {
					n -= part
					again = true
				}
			}
		}
	}
	return n
}
