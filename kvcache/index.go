package kvcache

import (
	"encoding/binary"
	"math/bits"
	"math/rand/v2"
)

// index finds the block that holds what a hash names. It is a table of open addressing whose entries are a tag, 32 bits of
// the hash mixed with a secret, above a block's number: a look reads one line of it, and the block itself, which has the
// whole hash, only when the tag is the same. A built-in map of hashes reads four. 0 is an empty entry, for no block is
// number 0. It grows and does not shrink.
type index struct {
	slots []uint64 // a power of two of them, at most three quarters full
	n     int
	key   uint64 // odd: nobody can make prompts whose blocks all want one place
}

func newIndex() index { return index{slots: make([]uint64, 64), key: rand.Uint64() | 1} }

func (x *index) tag(h *hash) uint32 {
	hi, lo := bits.Mul64(binary.LittleEndian.Uint64(h[:])^x.key, x.key)
	return uint32(hi ^ lo)
}

// home is where an entry belongs that has no other one in its way.
func (x *index) home(h *hash) int { return int(x.tag(h)) & (len(x.slots) - 1) }

// sealedAs returns the block that is sealed with a hash, or 0, and the place in the index where it is or belongs.
func (c *Cache) sealedAs(h *hash) (BlockID, int) {
	x := &c.index
	tag, mask := x.tag(h), len(x.slots)-1
	i := int(tag) & mask
	for ; x.slots[i] != 0; i = (i + 1) & mask {
		if uint32(x.slots[i]>>32) == tag {
			if id := BlockID(uint32(x.slots[i])); c.block(id).hash == *h {
				return id, i
			}
		}
	}
	return 0, i
}

// enter makes a block findable, unless another one holds the same.
func (c *Cache) enter(id BlockID, h *hash) {
	twin, i := c.sealedAs(h)
	if twin != 0 {
		return
	}
	b := c.block(id)
	b.sealed, b.hash = true, *h
	x := &c.index
	x.slots[i] = uint64(x.tag(h))<<32 | uint64(uint32(id))
	c.sealed++
	if x.n++; x.n > len(x.slots)/4*3 {
		x.grow()
	}
}

func (x *index) grow() {
	old := x.slots
	x.slots = make([]uint64, 2*len(old))
	mask := len(x.slots) - 1
	for _, e := range old {
		if e != 0 {
			i := int(e>>32) & mask
			for x.slots[i] != 0 {
				i = (i + 1) & mask
			}
			x.slots[i] = e
		}
	}
}

// strike makes the block that is sealed with a hash findable no more. What lies behind it moves up, so that no search ends early.
func (c *Cache) strike(h *hash) {
	_, i := c.sealedAs(h)
	x := &c.index
	mask := len(x.slots) - 1
	for j := (i + 1) & mask; x.slots[j] != 0; j = (j + 1) & mask {
		// The entry at j may fill the gap at i unless its own place lies between them.
		if home := int(x.slots[j]>>32) & mask; (j-home)&mask >= (j-i)&mask {
			x.slots[i] = x.slots[j]
			i = j
		}
	}
	x.slots[i] = 0
	x.n--
}
