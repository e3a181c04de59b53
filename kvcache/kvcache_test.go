package kvcache

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func newCache(t *testing.T, p *Pool, name string, perPage int, groups ...Group) *Cache {
	t.Helper()
	if groups == nil {
		groups = []Group{{BlockTokens: 16}}
	}
	c, err := p.NewCache(Config{Model: name, BlocksPerPage: perPage, Groups: groups})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func count(n int) []int32 {
	out := make([]int32, n)
	for i := range out {
		out[i] = int32(i)
	}
	return out
}

// fill computes tokens in a new table.
func fill(t *testing.T, c *Cache, id Identity, tokens []int32) *BlockTable {
	t.Helper()
	tab := c.NewTable(id)
	if !c.Extend(tab, len(tokens), 0) {
		t.Fatalf("no room for %d tokens", len(tokens))
	}
	c.Seal(tab, tokens)
	return tab
}

func verify(t *testing.T, p *Pool) {
	t.Helper()
	if err := p.Verify(); err != nil {
		t.Fatal(err)
	}
}

// TestMatchLeavesTheLastToken: something must be computed to sample from.
func TestMatchLeavesTheLastToken(t *testing.T) {
	p := NewPool(10)
	c := newCache(t, p, "m", 4)
	c.Release(fill(t, c, Identity{}, count(64)))
	for _, x := range []struct{ tokens, hit int }{{1, 0}, {16, 0}, {17, 16}, {31, 16}, {32, 16}, {33, 32}, {64, 48}, {65, 64}, {200, 64}} {
		tab := c.NewTable(Identity{})
		if hit := c.Match(tab, count(x.tokens)); hit != x.hit {
			t.Errorf("%d tokens: hit of %d, want %d", x.tokens, hit, x.hit)
		}
		c.Release(tab)
	}
	verify(t, p)
}

// TestIdentity: blocks are found by the same model, adapter, regime and salt only, however the
// parts are split.
func TestIdentity(t *testing.T) {
	p := NewPool(10)
	c, other := newCache(t, p, "m", 4), newCache(t, p, "ma", 4)
	own := Identity{Adapter: "a", Regime: "b", Salt: "c"}
	c.Release(fill(t, c, own, count(40)))
	for _, id := range []Identity{{}, {Adapter: "ab", Salt: "c"}, {Adapter: "a", Regime: "bc"}, {Adapter: "a", Regime: "b"}, {Regime: "ab", Salt: "c"}} {
		if hit := c.Match(c.NewTable(id), count(40)); hit != 0 {
			t.Errorf("%+v found %d tokens of %+v", id, hit, own)
		}
	}
	if hit := other.Match(other.NewTable(own), count(40)); hit != 0 {
		t.Errorf("another model found %d tokens", hit)
	}
	if hit := c.Match(c.NewTable(own), count(40)); hit != 32 {
		t.Errorf("hit of %d, want 32", hit)
	}
}

// TestReclaimAcrossModels: cached blocks of one model are room for another, oldest first, and a
// page that a live block holds does not count.
func TestReclaimAcrossModels(t *testing.T) {
	p := NewPool(5) // four pages
	a, b := newCache(t, p, "a", 2), newCache(t, p, "b", 1)
	live := fill(t, a, Identity{Salt: "live"}, count(16)) // half a page
	a.Release(fill(t, a, Identity{}, count(16*7)))        // the rest, cached
	if s := p.Stats(); s.FreePages != 0 || s.Models[0].Live != 1 || s.Models[0].Cached != 7 || s.Models[0].Capacity != 8 {
		t.Fatalf("%+v", s)
	}
	if got := b.Available(); got != 3 {
		t.Fatalf("%d blocks available to b, want 3", got)
	}
	tab := b.NewTable(Identity{})
	if b.Extend(tab, 16*4, 0) {
		t.Fatal("b got the page of a live block")
	}
	if s := p.Stats(); s.Models[0].Cached != 7 {
		t.Fatalf("a refusal evicted: %+v", s)
	}
	if !b.Extend(tab, 16*3, 0) {
		t.Fatal("b was refused")
	}
	if s := p.Stats(); s.Models[0].Pages != 1 || s.Models[0].Cached != 1 || s.Models[0].Evictions != 6 || s.Models[1].Live != 3 {
		t.Fatalf("%+v", s)
	}
	verify(t, p)
	a.Release(live)
	b.Release(tab)
	verify(t, p)
}

// TestEvictionOrder: the end of the longest unused prompt goes first, and weight counts as youth.
func TestEvictionOrder(t *testing.T) {
	p := NewPool(7)
	a := newCache(t, p, "a", 1)
	b, err := p.NewCache(Config{Model: "b", BlocksPerPage: 1, Groups: []Group{{BlockTokens: 16}}, Weight: 100})
	if err != nil {
		t.Fatal(err)
	}
	b.Release(fill(t, b, Identity{}, count(32))) // older, but dear
	a.Release(fill(t, a, Identity{Salt: "1"}, count(32)))
	a.Release(fill(t, a, Identity{Salt: "2"}, count(32)))
	x := fill(t, a, Identity{Salt: "3"}, count(16))
	hits := func() string {
		n := func(c *Cache, salt string) int {
			tab := c.NewTable(Identity{Salt: salt})
			defer c.Release(tab)
			return c.Match(tab, count(33))
		}
		return fmt.Sprint(n(b, ""), n(a, "1"), n(a, "2"))
	}
	if got := hits(); got != "32 16 32" {
		t.Fatalf("hits %s", got)
	}
	a.Release(x)
	verify(t, p)
}

// TestTwins: two sequences that computed the same at the same time hold a block each; one can be
// found, and both come back.
func TestTwins(t *testing.T) {
	p := NewPool(10)
	c := newCache(t, p, "m", 4)
	x, y := c.NewTable(Identity{}), c.NewTable(Identity{})
	for _, tab := range []*BlockTable{x, y} {
		if c.Match(tab, count(40)) != 0 || !c.Extend(tab, 40, 0) {
			t.Fatal("no room")
		}
	}
	c.Seal(x, count(40))
	c.Seal(y, count(40))
	verify(t, p)
	z := c.NewTable(Identity{})
	if hit := c.Match(z, count(40)); hit != 32 || z.Blocks(0)[0] != x.Blocks(0)[0] || x.Blocks(0)[0] == y.Blocks(0)[0] {
		t.Fatalf("hit of %d: %v %v %v", hit, x.Blocks(0), y.Blocks(0), z.Blocks(0))
	}
	for _, tab := range []*BlockTable{x, y, z} {
		c.Release(tab)
		verify(t, p)
	}
	if s := p.Stats().Models[0]; s.Live != 0 || s.Cached != 2 {
		t.Fatalf("%+v", s)
	}
}

// TestQuiet: where Quiet says that there is nothing to do, tables that are left alone, and prepared before the rest, get what those get of
// which each token is told.
func TestQuiet(t *testing.T) {
	for name, cfg := range map[string]Config{
		"full":    {Groups: []Group{{BlockTokens: 16}}},
		"groups":  {Groups: []Group{{BlockTokens: 48}, {Kind: SlidingWindow, BlockTokens: 16, Window: 37}, {BlockTokens: 32}}},
		"window":  {Groups: []Group{{Kind: SlidingWindow, BlockTokens: 32, Window: 5}}},
		"nocache": {Groups: []Group{{Kind: SlidingWindow, BlockTokens: 16, Window: 20}}, NoPrefixCache: true},
		"state":   {Groups: []Group{{BlockTokens: 16}, {Kind: Recurrent, StatePages: 1}}},
	} {
		cfg.Model, cfg.BlocksPerPage = "m", 3
		tokens, tables, caches := count(400), [2]*BlockTable{}, [2]*Cache{}
		for i := range caches {
			c, err := NewPool(100).NewCache(cfg)
			if err != nil {
				t.Fatal(err)
			}
			caches[i], tables[i] = c, c.NewTable(Identity{})
		}
		left := 0
		for at, cut := 0, 20; at < len(tokens); at++ {
			if at == cut { // as rejected drafts are
				to := at - cut%4
				cut += 21
				at = caches[0].Truncate(tables[0], to)
				if also := caches[1].Truncate(tables[1], to); also != at {
					t.Fatalf("%s: cut to %d tokens, %d are kept, and %d of a table that was left alone", name, to, at, also)
				}
			}
			for i, c := range caches {
				tab := tables[i]
				if i == 1 {
					c.Prepare([]Growing{{tab, tokens[:at+1]}})
				}
				if quiet := c.Quiet(tab); i == 0 || at+1 > quiet {
					if !c.Extend(tab, at+1, 0) {
						t.Fatal("full")
					}
				} else {
					left++
				}
				c.Advance(nil, tab, at, at+1, nil)
				if i == 0 || at+1 >= c.Quiet(tab) {
					c.Seal(tab, tokens[:at+1])
				}
			}
			for g := range cfg.Groups {
				if a, b := tables[0].Blocks(g), tables[1].Blocks(g); !slices.Equal(a, b) {
					t.Fatalf("%s: %d tokens: blocks %v, and %v of a table that was left alone", name, at+1, a, b)
				}
			}
			if a, b := caches[0].pool.Stats(), caches[1].pool.Stats(); !reflect.DeepEqual(a, b) {
				t.Fatalf("%s: %d tokens: %+v, and %+v of a table that was left alone", name, at+1, a, b)
			}
			if a, b := caches[0].Peek(caches[0].NewTable(Identity{}), tokens), caches[1].Peek(caches[1].NewTable(Identity{}), tokens); a != b {
				t.Fatalf("%s: %d tokens: %d are found, and %d of a table that was left alone", name, at+1, a, b)
			}
		}
		if want := name != "state"; left > len(tokens)/2 != want {
			t.Errorf("%s: %d of %d tokens asked for no blocks", name, left, len(tokens))
		}
		verify(t, caches[1].pool)
	}
}

// TestWindow: a group with a window keeps what the next token can see, and the padding block
// stands for the rest; a hit needs the window only.
func TestWindow(t *testing.T) {
	p := NewPool(20)
	c := newCache(t, p, "m", 4, Group{BlockTokens: 16}, Group{Kind: SlidingWindow, BlockTokens: 16, Window: 17})
	tab := fill(t, c, Identity{}, count(100))
	var held []bool
	for _, id := range tab.Blocks(1) {
		held = append(held, id != Padding)
	}
	// The token at 100 sees 84 to 100: from the block of 80 on.
	if got := fmt.Sprint(held); got != "[false false false false false true true]" {
		t.Fatalf("held %s", got)
	}
	if kept := c.Truncate(tab, 50); kept != 0 {
		t.Fatalf("truncated to %d without a window", kept)
	}
	c.Release(tab)
	if hit := c.Match(tab, count(97)); hit != 96 {
		t.Fatalf("hit of %d", hit)
	}
	verify(t, p)
}

// TestPagesComeBack: the fullest page is filled first, so the others empty.
// TestWeightIsTime shows for how long a model's blocks are found while others push them out: as many times as long as
// those of another one as it is dearer.
func TestWeightIsTime(t *testing.T) {
	p := NewPool(41)
	caches := map[float64]*Cache{}
	for _, w := range []float64{1, 3} {
		c, err := p.NewCache(Config{Model: fmt.Sprint(w), BlocksPerPage: 1, Groups: []Group{{BlockTokens: 16}}, Weight: w})
		if err != nil {
			t.Fatal(err)
		}
		caches[w] = c
	}
	kept := func(c *Cache, now int) (n int) { // how many of the latest prompts are found, without touching them
		for i := now; i >= 0; i-- {
			tab := c.NewTable(Identity{Salt: fmt.Sprint(i)})
			if _, ok := c.find(tab, 0, 0, count(16)); !ok {
				break
			}
			n++
		}
		return n
	}
	for i := range 400 {
		for _, w := range []float64{1, 3} { // equal traffic
			caches[w].Release(fill(t, caches[w], Identity{Salt: fmt.Sprint(i)}, count(16)))
		}
		if i < 100 {
			continue
		}
		if cheap, dear := kept(caches[1], i), kept(caches[3], i); cheap+dear != 40 || dear < 29 || dear > 31 {
			t.Fatalf("after %d of each, %d prompts of weight 1 are kept and %d of weight 3", i, cheap, dear)
		}
	}
	verify(t, p)
}

func TestPagesComeBack(t *testing.T) {
	p := NewPool(10)
	c, err := p.NewCache(Config{Model: "m", BlocksPerPage: 4, Groups: []Group{{BlockTokens: 16}}, NoPrefixCache: true})
	if err != nil {
		t.Fatal(err)
	}
	var tabs []*BlockTable
	for range 16 {
		tabs = append(tabs, fill(t, c, Identity{}, count(5)))
	}
	for i, tab := range tabs { // one block left on page 1, three on page 2
		if i >= 8 || i%4 != 0 && i != 5 && i != 6 {
			c.Release(tab)
		}
	}
	fill(t, c, Identity{}, count(5))
	if s := p.Stats(); s.Models[0].Pages != 2 || s.FreePages != 7 {
		t.Fatalf("%+v", s)
	}
	for pg, want := range map[PageID]int32{1: 1, 2: 4} {
		if got := p.pages[pg].live; got != want {
			t.Errorf("page %d has %d live blocks, want %d", pg, got, want)
		}
	}
}

func TestPanics(t *testing.T) {
	p := NewPool(4)
	c := newCache(t, p, "m", 2)
	for name, f := range map[string]func(){
		"freed twice": func() {
			tab := fill(t, c, Identity{}, count(5))
			copied := &BlockTable{groups: []groupTable{{blocks: tab.groups[0].blocks}}}
			keep := fill(t, c, Identity{}, count(5)) // so that the page stays
			defer c.Release(keep)
			c.Release(copied)
			c.Release(&BlockTable{groups: []groupTable{{blocks: tab.groups[0].blocks[:1]}}})
		},
		"not its own":      func() { c.unref(Padding) },
		"closed with":      func() { fill(t, c, Identity{}, count(5)); c.Close() },
		"in 1 blocks":      func() { c.Seal(fill(t, c, Identity{}, count(5)), count(17)) },
		"after 16":         func() { c.Seal(fill(t, c, Identity{}, count(16)), count(3)) },
		"match into":       func() { c.Match(fill(t, c, Identity{}, count(5)), count(17)) },
		"pool of 1 pages":  func() { NewPool(1) },
		"truncate to -1":   func() { c.Truncate(c.NewTable(Identity{}), -1) },
		"shared but free":  func() { fill(t, c, Identity{}, count(5)); c.ref(3) },
		"on no page":       func() { c.fullest() },
		"nothing to recla": func() { p.reclaim(c, false, noLimit) },
	} {
		p.Reset()
		func() {
			defer func() {
				if r := fmt.Sprint(recover()); !strings.Contains(r, name) {
					t.Errorf("%s: panic %s", name, r)
				}
			}()
			f()
		}()
	}
}

func TestBadConfig(t *testing.T) {
	full := []Group{{BlockTokens: 16}}
	for want, cfg := range map[string]Config{
		"0 blocks per page":   {Groups: full},
		"0 cache groups":      {BlocksPerPage: 1},
		"multiple of 16":      {BlocksPerPage: 1, Groups: []Group{{BlockTokens: 24}}},
		"kind 1, window 0":    {BlocksPerPage: 1, Groups: []Group{{Kind: SlidingWindow, BlockTokens: 16}}},
		"weight -1":           {BlocksPerPage: 1, Groups: full, Weight: -1},
		"more than 2^31 slot": {BlocksPerPage: 1 << 28, Groups: full},
	} {
		if _, err := NewPool(2).NewCache(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: got %v, want an error with %q", cfg, err, want)
		}
	}
}

// TestVerifyFinds plants what Verify is for.
func TestVerifyFinds(t *testing.T) {
	for name, plant := range map[string]func(*Pool, *Cache, *BlockTable){
		"a lost reference": func(_ *Pool, c *Cache, x *BlockTable) { c.block(x.Blocks(0)[0]).refs++ },
		"a lost block": func(_ *Pool, _ *Cache, x *BlockTable) {
			x.groups[0].blocks = x.groups[0].blocks[:1]
			x.tokens, x.given, x.next = 16, 16, 32
		},
		"a shared block":     func(_ *Pool, _ *Cache, x *BlockTable) { x.groups[0].blocks[0] = x.groups[0].blocks[1] },
		"a lost page":        func(p *Pool, _ *Cache, _ *BlockTable) { p.free = p.free[1:] },
		"a page freed twice": func(p *Pool, _ *Cache, _ *BlockTable) { p.free[1] = p.free[0] },
		"a wrong count":      func(_ *Pool, c *Cache, _ *BlockTable) { c.cached-- },
		"a stale index":      func(_ *Pool, c *Cache, _ *BlockTable) { c.index.slots[slices.Index(c.index.slots, 0)] = 3 },
		"a cut cached list":  func(_ *Pool, c *Cache, _ *BlockTable) { c.block(c.oldest).next = 0 },
		"a cut idle list":    func(_ *Pool, c *Cache, _ *BlockTable) { c.idleTail = 0 },
		"a padding page":     func(p *Pool, _ *Cache, _ *BlockTable) { p.free[0] = 0 },
		"a free list loop":   func(p *Pool, c *Cache, _ *BlockTable) { p.pages[c.fullest()].freeHead = 0 },
	} {
		p := NewPool(9)
		c := newCache(t, p, "m", 2)
		c.Release(fill(t, c, Identity{Salt: "cached"}, count(64)))
		x := fill(t, c, Identity{}, count(48))
		verify(t, p)
		if plant(p, c, x); p.Verify() == nil {
			t.Errorf("%s was not found", name)
		}
	}
}
