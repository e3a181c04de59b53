package kvcache

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
)

// hash names what a full block holds: SHA-256 over the hash of the block before it, or the root
// of identity and group, and its tokens. Nobody can make two prompts that collide, so equal
// hashes need no second look at the tokens, and a prompt without the salt finds nothing.
type hash [sha256.Size]byte

// root starts the chain of one cache group.
func (c *Cache) root(id Identity, group int) hash {
	h := sha256.New()
	var n [8]byte
	for _, s := range []string{c.cfg.Model, id.Adapter, id.Regime, id.Salt} {
		binary.LittleEndian.PutUint64(n[:], uint64(len(s))) // so that no two lists read the same
		h.Write(n[:])
		h.Write([]byte(s))
	}
	binary.LittleEndian.PutUint64(n[:], uint64(group))
	h.Write(n[:])
	return hash(h.Sum(nil))
}

// chainTo returns the hash of group g's block i, whose tokens are known.
func (c *Cache) chainTo(t *BlockTable, g, i int, tokens []int32) hash {
	gt, size := &t.groups[g], c.cfg.Groups[g].BlockTokens
	for j := len(gt.chain); j <= i; j++ {
		parent := &gt.root
		if j > 0 {
			parent = gt.hashOf(j - 1)
		}
		c.buf = slices.Grow(c.buf[:0], len(hash{})+4*size)[:len(hash{})+4*size]
		to := c.buf[copy(c.buf, parent[:]):]
		for k, id := range tokens[j*size : (j+1)*size] {
			binary.LittleEndian.PutUint32(to[4*k:], uint32(id))
		}
		gt.tip, gt.hashed = sha256.Sum256(c.buf), j+1
		gt.chain = append(gt.chain, gt.tip)
	}
	return *gt.hashOf(i)
}

// find returns the block that holds what group g's block i of tokens would hold.
func (c *Cache) find(t *BlockTable, g, i int, tokens []int32) (BlockID, bool) {
	c.chainTo(t, g, i, tokens)
	id, _ := c.sealedAs(&t.groups[g].chain[i])
	return id, id != 0
}

// Peek is how many of the leading tokens Match would find for a table now. It takes nothing; a table that is matched
// with the same tokens later has their hashes by then.
func (c *Cache) Peek(t *BlockTable, tokens []int32) int {
	n, _ := c.look(t, tokens)
	return n
}

// look is how many leading tokens are cached and, of a model with state, the snapshot after them.
func (c *Cache) look(t *BlockTable, tokens []int32) (int, *state) {
	n := (len(tokens) - 1) / c.step * c.step
	if c.cfg.NoPrefixCache || n <= 0 || c.index.n+len(c.snapshots) == 0 {
		return 0, nil
	}
	for g, cfg := range c.cfg.Groups { // an unbroken run from the start
		if cfg.Kind != Full {
			continue
		}
		for i := 0; i < n/cfg.BlockTokens; i++ {
			if _, ok := c.find(t, g, i, tokens); !ok {
				n = i * cfg.BlockTokens / c.step * c.step
			}
		}
	}
	var snapshot *state
	for again := true; again && n > 0; { // all that a window sees from n, and the state there
		again = false
		if c.statePages > 0 {
			n, snapshot = c.matchState(t, n, tokens)
		}
		for g, cfg := range c.cfg.Groups {
			if cfg.Kind != SlidingWindow {
				continue
			}
			for i := n/cfg.BlockTokens - 1; i >= firstSeen(cfg, n); i-- {
				if _, ok := c.find(t, g, i, tokens); !ok {
					n = i * cfg.BlockTokens / c.step * c.step
					again = true
				}
			}
		}
	}
	if n == 0 {
		return 0, nil
	}
	return n, snapshot
}

// Match fills an empty table with blocks that hold the leading tokens and returns how many these
// are: the most that every group can continue from, but never the last token, since something
// must be computed to sample from.
func (c *Cache) Match(t *BlockTable, tokens []int32) int {
	if t.tokens != 0 || len(t.groups[0].blocks) != 0 || t.state.own != nil {
		panic(fmt.Sprintf("kvcache: match into a table of %d blocks", len(t.groups[0].blocks)))
	}
	c.pool.fence = c.pool.clock
	n, snapshot := c.look(t, tokens)
	if n == 0 {
		return 0
	}
	c.list(t)
	t.tokens = n
	if snapshot != nil {
		c.refState(snapshot)
		snapshot.kept = true // others may come back to it
		t.state.in, t.state.at, t.state.snaps = snapshot, n, append(t.state.snaps, snapshot)
	}
	for g, cfg := range c.cfg.Groups {
		if cfg.Kind == Recurrent {
			continue
		}
		gt := &t.groups[g]
		gt.first = firstSeen(cfg, n)
		gt.sealed = n / cfg.BlockTokens
		for i := range gt.sealed {
			id := Padding
			if i >= gt.first {
				id, _ = c.find(t, g, i, tokens)
				c.ref(id)
			}
			gt.blocks = append(gt.blocks, id)
		}
	}
	t.given = c.given(t)
	return n
}

// Seal says that tokens, all of the sequence's from its first, are computed and stored: full
// blocks and snapshots can be found from now on, and blocks that a window has left are let go. A block
// whose content another one holds already stays the sequence's own and is not found.
func (c *Cache) Seal(t *BlockTable, tokens []int32) {
	if n := len(tokens); n < t.next && n >= t.tokens && n <= t.given && (c.statePages == 0 || n <= t.state.at) {
		t.tokens = n
		return
	}
	c.sealAll(t, tokens)
}

// sealAll is Seal where blocks are full or left by a window.
func (c *Cache) sealAll(t *BlockTable, tokens []int32) {
	n := len(tokens)
	if n < t.tokens {
		panic(fmt.Sprintf("kvcache: seal %d tokens after %d", n, t.tokens))
	}
	if c.statePages > 0 {
		if n > t.state.at {
			panic(fmt.Sprintf("kvcache: seal %d tokens, state at %d", n, t.state.at))
		}
		c.sealStates(t, tokens)
	}
	for g, cfg := range c.cfg.Groups {
		if cfg.Kind == Recurrent {
			continue
		}
		gt := &t.groups[g]
		if n > len(gt.blocks)*cfg.BlockTokens {
			panic(fmt.Sprintf("kvcache: seal %d tokens in %d blocks of %d", n, len(gt.blocks), cfg.BlockTokens))
		}
		if c.cfg.NoPrefixCache {
			continue
		}
		for ; (gt.sealed+1)*cfg.BlockTokens <= n; gt.sealed++ {
			c.chainTo(t, g, gt.sealed, tokens)
			c.enter(gt.blockAt(gt.sealed), gt.hashOf(gt.sealed))
		}
	}
	t.tokens = n
	c.slide(t)
	t.next = c.nextWork(t)
}
