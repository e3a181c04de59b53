package kvcache

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"
)

// TestIndex compares the index with a map while blocks come and go, some of them with the same first bytes of their hash.
func TestIndex(t *testing.T) {
	const n = 3000
	p := NewPool(n/10 + 2)
	c := newCache(t, p, "m", 10)
	x := c.NewTable(Identity{})
	if !c.Extend(x, n*16, 0) {
		t.Fatal("full")
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	want := map[hash]BlockID{}
	hashOf := func(i int) (h hash) {
		binary.LittleEndian.PutUint64(h[:], uint64(i/3)) // three at a time want one place
		binary.LittleEndian.PutUint64(h[8:], uint64(i))
		return h
	}
	check := func(i int) {
		h := hashOf(i)
		if got, _ := c.sealedAs(&h); got != want[h] {
			t.Fatalf("hash %d: block %d, want %d", i, got, want[h])
		}
	}
	for range 40 * n {
		i := rnd.IntN(n)
		h, id := hashOf(i), x.Blocks(0)[i]
		if want[h] == 0 {
			c.enter(id, &h)
			twin := x.Blocks(0)[(i+1)%n] // stays as it is: another one holds the same
			c.enter(twin, &h)
			want[h] = id
		} else if rnd.IntN(3) > 0 {
			c.strike(&h)
			c.block(id).sealed = false
			delete(want, h)
		}
		check(i)
		check(rnd.IntN(n))
	}
	for i := range n {
		check(i)
	}
	if c.index.n != len(want) {
		t.Errorf("%d entries, want %d", c.index.n, len(want))
	}
	for i, id := range x.Blocks(0) {
		if h := hashOf(i); c.block(id).sealed != (want[h] != 0) {
			t.Errorf("block %d: sealed %t", id, c.block(id).sealed)
		}
	}
}
