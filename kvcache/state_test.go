package kvcache

import (
	"fmt"
	"strings"
	"testing"
)

// hybrid returns a cache of one full group, with blocks of 16 tokens, a page each, and recurrent state
// of two pages.
func hybrid(t *testing.T, p *Pool, snapshots, every int) *Cache {
	t.Helper()
	c, err := p.NewCache(Config{Model: "h", BlocksPerPage: 1, Snapshots: snapshots, SnapshotTokens: every,
		Groups: []Group{{BlockTokens: 16}, {Kind: Recurrent, StatePages: 2}}})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// row computes the tokens of a table up to n, as a step of one row, and returns where it was cut.
func row(t *testing.T, c *Cache, tab *BlockTable, tokens []int32, n int, marks ...int) (cuts []int) {
	t.Helper()
	if !c.Extend(tab, n, 0) {
		t.Fatalf("no room for %d tokens", n)
	}
	from := tab.state.at
	for _, r := range c.Advance(nil, tab, from, n, marks) {
		if r.From > from || r.From > 0 && fmt.Sprint(r.In) != fmt.Sprint(r.Out) {
			cuts = append(cuts, r.From)
		}
	}
	c.Seal(tab, tokens[:n])
	verify(t, c.pool)
	return cuts
}

// TestSnapshotPlaces: a row is cut at marks, at every so many tokens, and where its last whole block
// ends; what the budget does not cover is left out, the least useful first.
func TestSnapshotPlaces(t *testing.T) {
	for _, x := range []struct {
		snapshots, every, from, to int
		marks                      []int
		want                       string
	}{
		{9, 0, 0, 50, nil, "[48]"},
		{9, 0, 0, 48, nil, "[32]"},
		{9, 0, 0, 16, nil, "[]"},
		{9, 0, 20, 31, nil, "[]"},
		{9, 0, 32, 33, nil, "[32]"},
		{9, 0, 0, 100, []int{15, 40, 47, 64, 130}, "[32 64 96]"},
		{9, 0, 50, 100, []int{40, 52, 70, 99}, "[64 96]"},
		{9, 40, 0, 200, nil, "[48 96 144 192]"},
		{9, 40, 96, 145, []int{130}, "[96 128 144]"},
		{0, 40, 0, 200, []int{70}, "[]"},
		{1, 40, 0, 200, []int{70}, "[192]"},
		{2, 40, 0, 200, []int{70, 100}, "[64 192]"},
		{3, 40, 0, 200, []int{35, 70, 100}, "[32 96 192]"},
		{4, 40, 0, 200, []int{70, 100}, "[64 96 144 192]"},
	} {
		c := hybrid(t, NewPool(60), x.snapshots, x.every)
		tab, tokens := c.NewTable(Identity{}), count(x.to)
		if x.from > 0 {
			c.cfg.Snapshots = 0
			row(t, c, tab, tokens, x.from)
			c.cfg.Snapshots = x.snapshots
		}
		if got := fmt.Sprint(row(t, c, tab, tokens, x.to, x.marks...)); got != x.want {
			t.Errorf("%+v: cut at %s", x, got)
		}
	}
}

// TestHitOnlyToASnapshot: blocks alone do not let a sequence go on.
func TestHitOnlyToASnapshot(t *testing.T) {
	c := hybrid(t, NewPool(60), 4, 0)
	tab := c.NewTable(Identity{})
	row(t, c, tab, count(100), 100, 40)
	c.Release(tab)
	for _, x := range []struct{ tokens, hit int }{{32, 0}, {33, 32}, {96, 32}, {97, 96}, {200, 96}} {
		tab := c.NewTable(Identity{})
		if hit := c.Match(tab, count(x.tokens)); hit != x.hit || len(tab.Blocks(0)) != x.hit/16 || len(tab.Blocks(1)) != 0 {
			t.Errorf("%d tokens: hit of %d, want %d; blocks %v %v", x.tokens, hit, x.hit, tab.Blocks(0), tab.Blocks(1))
		}
		c.Release(tab)
	}
	if hit := c.Match(c.NewTable(Identity{Salt: "x"}), count(100)); hit != 0 {
		t.Errorf("another salt hit %d", hit)
	}
}

// TestRollingSnapshot: while a sequence goes on, one snapshot follows it, at most a block behind,
// beside the one at the mark, which it does not replace; it costs no more memory however long that is.
func TestRollingSnapshot(t *testing.T) {
	for budget := 1; budget <= 4; budget++ {
		c := hybrid(t, NewPool(60), budget, 0)
		tab, tokens := c.NewTable(Identity{}), count(300)
		row(t, c, tab, tokens, 50, 49)
		for n := 51; n <= 300; n++ {
			row(t, c, tab, tokens, n)
			snapshots := min(budget, 2)
			if n <= 64 {
				snapshots = 1
			}
			if s := c.pool.Stats().Models[0]; s.States != 1 || s.Snapshots != snapshots {
				t.Fatalf("budget %d, at %d: %+v", budget, n, s)
			}
		}
		c.Release(tab)
		for n, want := range map[int]int{300: 288, 60: 48} {
			if budget == 1 {
				want = 48
			}
			tab := c.NewTable(Identity{})
			if hit := c.Match(tab, tokens[:n]); hit != want {
				t.Fatalf("budget %d: hit of %d for %d tokens", budget, hit, n)
			}
			c.Release(tab)
		}
	}
}

// TestEndStays: the state of a sequence that ends where a block does is the snapshot, in the place of the
// one that followed it; not so when the step that wrote it was never committed.
func TestEndStays(t *testing.T) {
	for _, x := range []struct{ budget, sealed, hit, snapshots int }{{2, 64, 64, 1}, {1, 64, 64, 1}, {2, 60, 48, 1}, {0, 64, 0, 0}} {
		c := hybrid(t, NewPool(60), x.budget, 0)
		tab, tokens := c.NewTable(Identity{}), count(100)
		row(t, c, tab, tokens, 50)
		c.Extend(tab, 64, 0)
		c.Advance(nil, tab, 50, 64, nil)
		c.Seal(tab, tokens[:x.sealed])
		c.Release(tab)
		verify(t, c.pool)
		if s := c.pool.Stats().Models[0]; s.Snapshots != x.snapshots || s.States != 0 {
			t.Errorf("%+v: %+v", x, s)
		}
		if hit := c.Match(c.NewTable(Identity{}), tokens); hit != x.hit {
			t.Errorf("%+v: hit of %d", x, hit)
		}
	}
}

// TestFoundSnapshotStays: one that another sequence began with is not replaced by the next.
func TestFoundSnapshotStays(t *testing.T) {
	c := hybrid(t, NewPool(60), 4, 0)
	tab, tokens := c.NewTable(Identity{}), count(100)
	row(t, c, tab, tokens, 40)
	for range 2 {
		other := c.NewTable(Identity{})
		if hit := c.Match(other, tokens[:40]); hit != 32 {
			t.Fatalf("hit of %d", hit)
		}
		c.Release(other)
		row(t, c, tab, tokens, tab.state.at+30)
	}
}

// TestSnapshotsInFlight: a snapshot is found when the step that made it was committed, not before,
// though the next step is planned already; nor when that never happens.
func TestSnapshotsInFlight(t *testing.T) {
	c := hybrid(t, NewPool(60), 8, 0)
	tab, tokens := c.NewTable(Identity{}), count(120)
	hit := func() int {
		other := c.NewTable(Identity{})
		defer c.Release(other)
		return c.Match(other, tokens)
	}
	c.Extend(tab, 120, 0)
	c.Advance(nil, tab, 0, 50, []int{20})
	c.Advance(nil, tab, 50, 80, nil)
	c.Seal(tab, tokens[:50])
	if got := hit(); got != 48 {
		t.Fatalf("hit of %d when 50 are computed", got)
	}
	c.Advance(nil, tab, 80, 100, nil)
	verify(t, c.pool)
	c.Release(tab)
	verify(t, c.pool)
	if got := hit(); got != 48 {
		t.Fatalf("hit of %d when 80 and 100 were given up", got)
	}
	if s := c.pool.Stats().Models[0]; s.Snapshots != 2 || s.States != 0 {
		t.Fatalf("%+v", s)
	}
}

// TestRollBack: state goes back to the latest snapshot that is there, and on from there.
func TestRollBack(t *testing.T) {
	for _, x := range []struct{ to, want int }{{100, 100}, {99, 96}, {96, 96}, {95, 48}, {48, 48}, {47, 32}, {32, 32}, {31, 0}} {
		c := hybrid(t, NewPool(60), 9, 0)
		tab, tokens := c.NewTable(Identity{}), count(130)
		row(t, c, tab, tokens, 60, 32, 48)
		row(t, c, tab, tokens, 100)
		if got := c.Truncate(tab, x.to); got != x.want {
			t.Errorf("truncate to %d: %d, want %d", x.to, got, x.want)
			continue
		}
		verify(t, c.pool)
		other := append(count(100)[:x.want:x.want], 7, 7, 7, 7, 7)
		row(t, c, tab, other, x.want+5)
		c.Release(tab)
		verify(t, c.pool)
	}
}

// TestRollBackWithoutRoom: the snapshot that a sequence goes on from is read before its pages serve
// for anything else.
func TestRollBackWithoutRoom(t *testing.T) {
	c := hybrid(t, NewPool(10), 1, 0) // all nine pages: five blocks, its own state, one snapshot
	tab, tokens := c.NewTable(Identity{}), count(80)
	row(t, c, tab, tokens, 60)
	if got := c.Truncate(tab, 55); got != 48 {
		t.Fatalf("kept %d", got)
	}
	snapshot := tab.state.in
	c.Extend(tab, 80, 0)
	runs := c.Advance(nil, tab, 48, 79, nil)
	if len(runs) != 1 || &runs[0].In[0] != &snapshot.pages[0] || runs[0].Out[0] == runs[0].In[0] {
		t.Fatalf("runs %+v", runs)
	}
	verify(t, c.pool)
	c.Seal(tab, tokens[:79])
	c.Release(tab)
	if hit := c.Match(c.NewTable(Identity{}), tokens); hit != 48 {
		t.Fatalf("hit of %d", hit)
	}
}

// TestSnapshotBudget: the one unused for longest makes place, but a sequence that just goes on takes
// no place from those that came after it.
func TestSnapshotBudget(t *testing.T) {
	c := hybrid(t, NewPool(200), 3, 0)
	long, tokens := c.NewTable(Identity{Salt: "long"}), count(300)
	row(t, c, long, tokens, 10)
	for _, salt := range []string{"a", "b", "c", "d"} {
		tab := c.NewTable(Identity{Salt: salt})
		row(t, c, tab, count(40), 40, 33)
		c.Release(tab)
	}
	for n := 11; n < 200; n++ {
		row(t, c, long, tokens, n)
	}
	hits := func() string {
		var out []int
		for _, salt := range []string{"a", "b", "c", "d"} {
			tab := c.NewTable(Identity{Salt: salt})
			out = append(out, c.Match(tab, count(40)))
			c.Release(tab)
		}
		return fmt.Sprint(out)
	}
	if got := hits(); got != "[0 32 32 32]" {
		t.Fatalf("hits %s", got)
	}
	row(t, c, long, tokens, 250, 230) // a mark does
	if got := hits(); got != "[0 0 32 32]" {
		t.Fatalf("hits %s", got)
	}
	c.Release(long) // and is as young as the sequence's blocks
	tab := c.NewTable(Identity{Salt: "e"})
	row(t, c, tab, count(40), 40, 33)
	if hit := c.Match(long, tokens); hit != 224 || hits() != "[0 0 0 32]" {
		t.Fatalf("hit of %d", hit)
	}
}

// TestSnapshotsAreExtra: they take no memory that a block or another model needs, and give back what
// they have, unless a sequence is about to go on from one.
func TestSnapshotsAreExtra(t *testing.T) {
	p := NewPool(13) // twelve pages
	c, other := hybrid(t, p, 4, 0), newCache(t, p, "o", 1)
	tab := c.NewTable(Identity{})
	row(t, c, tab, count(64), 64, 16, 32, 48) // 4 blocks, its own state, three snapshots
	if s := p.Stats(); s.FreePages != 0 || s.Models[0].Snapshots != 3 || other.Available() != 6 {
		t.Fatalf("%+v, %d blocks available", s, other.Available())
	}
	x := fill(t, other, Identity{}, count(16*5))
	verify(t, p)
	if s := p.Stats(); s.FreePages != 1 || s.Models[0].Snapshots != 0 || s.Models[0].States != 1 || s.Models[0].Evictions != 3 {
		t.Fatalf("%+v", s)
	}
	other.Release(x)
	other.Flush()
	row(t, c, tab, count(150), 90)
	c.Release(tab)
	if hit := c.Match(tab, count(81)); hit != 80 { // 5 blocks, a live snapshot
		t.Fatalf("hit of %d", hit)
	}
	if got := c.Available(); got != 12-5-2 {
		t.Fatalf("%d blocks available", got)
	}
	if c.Extend(tab, 80+16*4, 0) || !c.Extend(tab, 80+16*3, 0) {
		t.Fatal("room for a state block and three blocks, no more")
	}
	c.Advance(nil, tab, 80, 81, nil)
	if got := c.Available(); got != 2 { // of the step after
		t.Fatalf("%d blocks available", got)
	}
	verify(t, p)
}

// TestFitsWithState: the last page counts.
func TestFitsWithState(t *testing.T) {
	c := hybrid(t, NewPool(8), 0, 0)
	if n := c.MaxTokens(16, 1000); n != 80 {
		t.Fatalf("%d tokens beside a state block in seven pages", n)
	}
	if small := hybrid(t, NewPool(2), 0, 0); small.Fits(1, 1) || small.MaxTokens(1, 10) != 0 {
		t.Fatal("a state of two pages fits one")
	}
}

func TestStatePanics(t *testing.T) {
	for want, f := range map[string]func(*Cache, *BlockTable){
		"advance from 3 to 5, state at 0": func(c *Cache, x *BlockTable) { c.Extend(x, 5, 0); c.Advance(nil, x, 3, 5, nil) },
		"advance from 0 to 5":             func(c *Cache, x *BlockTable) { c.Advance(nil, x, 0, 5, nil) },
		"advance from 0 to 0":             func(c *Cache, x *BlockTable) { c.Extend(x, 5, 0); c.Advance(nil, x, 0, 0, nil) },
		"seal 5 tokens, state at 0":       func(c *Cache, x *BlockTable) { c.Extend(x, 5, 0); c.Seal(x, count(5)) },
		"freed twice":                     func(c *Cache, x *BlockTable) { c.Extend(x, 5, 0); c.dropState(x.state.own); c.Release(x) },
		"0 live blocks and 1 states":      func(c *Cache, x *BlockTable) { c.reserve(x); c.Close() },
	} {
		func() {
			defer func() {
				if r := fmt.Sprint(recover()); !strings.Contains(r, want) {
					t.Errorf("got panic %s, want %s", r, want)
				}
			}()
			c := hybrid(t, NewPool(20), 2, 0)
			f(c, c.NewTable(Identity{}))
		}()
	}
}

func TestBadStateConfig(t *testing.T) {
	state := Group{Kind: Recurrent, StatePages: 1}
	for want, cfg := range map[string]Config{
		"group 0: recurrent, 0 pages": {Groups: []Group{{Kind: Recurrent}}},
		"group 1: recurrent, 1 pages": {Groups: []Group{state, state}},
		"kind 3":                      {Groups: []Group{{Kind: 3, BlockTokens: 16}}},
		"-1 snapshots":                {Groups: []Group{state}, Snapshots: -1},
		"every -2 tokens":             {Groups: []Group{state}, SnapshotTokens: -2},
	} {
		cfg.BlocksPerPage = 1
		if _, err := NewPool(2).NewCache(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: got %v, want an error with %q", cfg, err, want)
		}
	}
}

// TestVerifyFindsStates plants what Verify is for.
func TestVerifyFindsStates(t *testing.T) {
	for name, plant := range map[string]func(*Pool, *Cache, *BlockTable){
		"a lost state block":      func(_ *Pool, _ *Cache, x *BlockTable) { x.state.own = nil },
		"a lost reference":        func(_ *Pool, c *Cache, _ *BlockTable) { c.oldestState.refs++ },
		"a state block freed":     func(_ *Pool, c *Cache, x *BlockTable) { c.owners--; c.dropState(x.state.own) },
		"a shared page":           func(_ *Pool, c *Cache, x *BlockTable) { x.state.own.pages[0] = c.oldestState.pages[0] },
		"a page of another":       func(p *Pool, c *Cache, x *BlockTable) { p.pages[x.state.own.pages[0]].state = c.oldestState },
		"a block in a state":      func(p *Pool, _ *Cache, x *BlockTable) { x.groups[0].blocks[0] = BlockID(x.state.own.pages[0]) },
		"a stale index":           func(_ *Pool, c *Cache, _ *BlockTable) { c.snapshots[hash{1}] = c.oldestState },
		"a cut list":              func(_ *Pool, c *Cache, _ *BlockTable) { c.oldestState.next = nil },
		"a wrong count":           func(_ *Pool, c *Cache, _ *BlockTable) { c.cachedStates-- },
		"a budget overrun":        func(_ *Pool, c *Cache, _ *BlockTable) { c.cfg.Snapshots = 1 },
		"a state behind":          func(_ *Pool, _ *Cache, x *BlockTable) { x.state.at = 30 },
		"a state from nowhere":    func(_ *Pool, _ *Cache, x *BlockTable) { x.state.in = nil },
		"a wrong place":           func(_ *Pool, c *Cache, _ *BlockTable) { c.newestState.at += 3 },
		"one never to be found":   func(_ *Pool, c *Cache, _ *BlockTable) { c.newestState.maker = nil },
		"one that reads another":  func(_ *Pool, c *Cache, x *BlockTable) { x.state.in = c.oldestState },
		"blocks of a state group": func(_ *Pool, _ *Cache, x *BlockTable) { x.groups[1].blocks = []BlockID{0} },
	} {
		p := NewPool(40)
		c := hybrid(t, p, 3, 0)
		cached := c.NewTable(Identity{Salt: "cached"})
		row(t, c, cached, count(40), 40)
		c.Release(cached)
		x := c.NewTable(Identity{})
		row(t, c, x, count(40), 40)
		c.Extend(x, 60, 0)
		c.Advance(nil, x, 40, 60, nil)
		verify(t, p)
		if plant(p, c, x); p.Verify() == nil {
			t.Errorf("%s was not found", name)
		}
	}
}
