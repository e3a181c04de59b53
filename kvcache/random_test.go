package kvcache

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// world is a pool, its arena and the sequences over it.
type world struct {
	pool   *Pool
	arena  *arena
	caches []*Cache
	seqs   []*walker
}

// walker is a sequence whose tokens up to done are computed.
type walker struct {
	c      *Cache
	t      *BlockTable
	id     Identity
	tokens []int32
	done   int
}

func drawConfig(t *rapid.T, name string) Config {
	c := Config{
		Model:         name,
		BlocksPerPage: rapid.SampledFrom([]int{1, 2, 3, 4, 6}).Draw(t, "per page"),
		Weight:        rapid.SampledFrom([]float64{0, 1, 3}).Draw(t, "weight"),
		NoPrefixCache: rapid.IntRange(0, 9).Draw(t, "no prefix cache") == 0,
	}
	for range rapid.IntRange(1, 3).Draw(t, "groups") {
		g := Group{BlockTokens: rapid.SampledFrom([]int{16, 32, 48, 96}).Draw(t, "tokens")}
		if rapid.Bool().Draw(t, "sliding") {
			g.Kind, g.Window = SlidingWindow, rapid.IntRange(1, 70).Draw(t, "window")
		}
		c.Groups = append(c.Groups, g)
	}
	if rapid.IntRange(0, 2).Draw(t, "recurrent") > 0 {
		g := Group{Kind: Recurrent, StatePages: rapid.IntRange(1, 3).Draw(t, "state pages")}
		c.Groups = slices.Insert(c.Groups, rapid.IntRange(0, len(c.Groups)).Draw(t, "at"), g)
		c.Snapshots = rapid.SampledFrom([]int{6, 3, 2, 1, 0}).Draw(t, "snapshots")
		c.SnapshotTokens = rapid.SampledFrom([]int{0, 33, 48, 96}).Draw(t, "snapshot tokens")
	}
	return c
}

func newWorld(t *rapid.T) *world {
	pages := uniform(t, "pages", 3, 30)
	w := &world{pool: NewPool(pages), arena: newArena(pages)}
	for i := range rapid.IntRange(1, 3).Draw(t, "models") {
		c, err := w.pool.NewCache(drawConfig(t, fmt.Sprint("m", i)))
		if err != nil {
			t.Fatal(err)
		}
		w.caches = append(w.caches, c)
	}
	return w
}

// drawTokens draws from few prompts, so that many share a beginning.
func drawTokens(t *rapid.T) []int32 {
	stem := rapid.IntRange(0, 1).Draw(t, "stem")
	n := uniform(t, "length", 1, 260)
	fork := uniform(t, "fork", 0, 260)
	out := make([]int32, n)
	for i := range out {
		out[i] = int32(stem*1000 + i%7)
		if i >= fork {
			out[i] += int32(fork)
		}
	}
	return out
}

func (w *world) drawSeq(t *rapid.T) *walker {
	if len(w.seqs) == 0 {
		t.Skip("no sequence")
	}
	return w.seqs[uniform(t, "sequence", 0, len(w.seqs)-1)]
}

// uniform draws evenly from lo to hi, both included; rapid's own integers are mostly small ones. It
// shrinks to lo.
func uniform(t *rapid.T, name string, lo, hi int) int {
	x := rapid.Uint32().Draw(t, name)
	if x == 0 || hi <= lo {
		return lo
	}
	return lo + int(uint64(x*0x9E3779B1)*uint64(hi-lo+1)>>32)
}

func (w *world) actions() map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"begin": w.begin, "begin again": w.begin,
		"step": w.step, "step again": w.step, "step on": w.step,
		"seal": func(t *rapid.T) {
			s := w.drawSeq(t)
			s.c.Seal(s.t, slices.Clone(s.tokens[:uniform(t, "n", s.t.Tokens(), s.done)]))
		},
		"grow": func(t *rapid.T) {
			s := w.drawSeq(t)
			s.tokens = append(s.tokens, rapid.Int32Range(0, 3).Draw(t, "token"))
		},
		"truncate": func(t *rapid.T) {
			s := w.drawSeq(t)
			n := s.done - min(s.done, rapid.SampledFrom([]int{0, 1, 9, 40, 100}).Draw(t, "back"))
			kept := s.c.Truncate(s.t, n)
			if kept > n || kept < n && kept%s.c.step != 0 && s.c.statePages > 0 || n == s.done && kept != n {
				t.Fatalf("truncate %d to %d kept %d", s.done, n, kept)
			}
			s.done = kept
			s.tokens = slices.Clone(s.tokens[:max(kept, 1)])
			for range rapid.IntRange(0, 40).Draw(t, "regrow") {
				s.tokens = append(s.tokens, 77)
			}
		},
		"preempt": func(t *rapid.T) {
			s := w.drawSeq(t)
			s.c.Release(s.t)
			w.match(t, s)
		},
		"end": func(t *rapid.T) {
			s := w.drawSeq(t)
			s.c.Release(s.t)
			w.seqs = slices.DeleteFunc(w.seqs, func(o *walker) bool { return o == s })
		},
		"flush": func(t *rapid.T) {
			c := rapid.SampledFrom(w.caches).Draw(t, "model")
			c.Flush()
			if c.cached+c.cachedStates != 0 {
				t.Fatalf("%d blocks, %d snapshots cached after a flush", c.cached, c.cachedStates)
			}
		},
		"reset": func(t *rapid.T) {
			if rapid.IntRange(0, 20).Draw(t, "really") != 0 {
				t.Skip()
			}
			w.pool.Reset()
			w.seqs = nil
		},
		"alone": func(t *rapid.T) {
			if rapid.IntRange(0, 5).Draw(t, "really") != 0 {
				t.Skip()
			}
			for _, s := range w.seqs {
				s.c.Release(s.t)
			}
			w.seqs = nil
			w.alone(t, rapid.SampledFrom(w.caches).Draw(t, "model"))
		},
		"": func(t *rapid.T) {
			if err := errors.Join(w.pool.Verify(), checkMap(w.pool)); err != nil {
				t.Fatal(err)
			}
			for _, s := range w.seqs {
				if err := w.arena.check(s.c, s.t, s.id, s.tokens, s.done); err != nil {
					t.Fatal(err)
				}
			}
		},
	}
}

func (w *world) begin(t *rapid.T) {
	c := rapid.SampledFrom(w.caches).Draw(t, "model")
	id := Identity{Salt: rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "salt")}
	s := &walker{c: c, t: c.NewTable(id), id: id, tokens: drawTokens(t)}
	w.seqs = append(w.seqs, s)
	w.match(t, s)
}

func (w *world) match(t *rapid.T, s *walker) {
	s.done = s.c.Match(s.t, s.tokens)
	if s.done >= len(s.tokens) || s.done%s.c.step != 0 {
		t.Fatalf("hit of %d of %d tokens", s.done, len(s.tokens))
	}
}

// step computes tokens of a few sequences at once: first all get their blocks, then all are planned,
// and then they run in any order, for a device runs them side by side.
func (w *world) step(t *rapid.T) {
	var rows []*walker
	to := map[*walker]int{}
	for range uniform(t, "rows", 1, 4) {
		s := w.drawSeq(t)
		n := min(s.done+uniform(t, "n", 1, 90), len(s.tokens))
		if to[s] > 0 || n == s.done {
			continue
		}
		ahead := rapid.SampledFrom([]int{0, len(s.tokens)}).Draw(t, "ahead")
		before, fits := w.pool.Stats(), w.fits(s, n, ahead)
		if s.c.Extend(s.t, n, ahead) != fits {
			t.Fatalf("Extend to %d and %d: %t", n, ahead, !fits)
		}
		if after := w.pool.Stats(); !fits && !reflect.DeepEqual(before, after) {
			t.Fatalf("a refused Extend changed %+v to %+v", before, after)
		}
		if fits {
			rows, to[s] = append(rows, s), n
		}
	}
	runs := map[*walker][]Run{}
	for _, s := range rows {
		runs[s] = w.advance(t, s, to[s])
	}
	for _, s := range rapid.Permutation(rows).Draw(t, "order") {
		w.compute(t, s, to[s], runs[s])
		if rapid.Bool().Draw(t, "seal") {
			s.c.Seal(s.t, s.tokens[:s.done])
		}
	}
}

// fits counts page by page whether Extend has what it needs.
func (w *world) fits(s *walker, n, ahead int) bool {
	scattered, whole := 0, 0
	for id := range w.pool.pages[1:] {
		g := &w.pool.pages[1+id]
		switch {
		case g.state != nil:
			if g.state.refs == 0 {
				whole++
			}
		case g.live == 0:
			whole++
		case g.owner == s.c:
			for _, b := range g.blocks {
				if b.refs == 0 {
					scattered++
				}
			}
		}
	}
	if s.t.state.own == nil {
		whole -= s.c.statePages
	}
	need := 0
	for g, cfg := range s.c.cfg.Groups {
		switch cfg.Kind {
		case Full:
			need += max(0, ceilDiv(max(n, ahead), cfg.BlockTokens)-len(s.t.Blocks(g)))
		case SlidingWindow:
			need += max(0, ceilDiv(n, cfg.BlockTokens)-len(s.t.Blocks(g)))
		}
	}
	return whole >= 0 && need <= scattered+whole*s.c.cfg.BlocksPerPage
}

// advance plans a row and checks that its runs follow each other.
func (w *world) advance(t *rapid.T, s *walker, to int) []Run {
	var marks []int
	for range uniform(t, "marks", 0, 2) {
		marks = append(marks, uniform(t, "mark", 0, len(s.tokens)))
	}
	slices.Sort(marks)
	runs := s.c.Advance(nil, s.t, s.done, to, marks)
	at := s.done
	for _, r := range runs {
		if r.From != at || at > s.done && at%s.c.step != 0 {
			t.Fatalf("from %d to %d in runs %+v", s.done, to, runs)
		}
		at = r.To
	}
	if (runs == nil) != (s.c.statePages == 0) || runs != nil && at != to {
		t.Fatalf("from %d to %d in runs %+v", s.done, to, runs)
	}
	return runs
}

func (w *world) compute(t *rapid.T, s *walker, to int, runs []Run) {
	for _, r := range runs {
		if err := w.arena.run(s.c, s.id, s.tokens, r); err != nil {
			t.Fatal(err)
		}
	}
	w.arena.write(s.c, s.t, s.id, s.tokens[:to], s.done)
	s.done = to
}

// alone grows one sequence to the longest that fits, which must never be refused, unless by what it
// found in the prefix cache.
func (w *world) alone(t *rapid.T, c *Cache) {
	span := rapid.IntRange(1, 100).Draw(t, "span")
	limit := rapid.IntRange(1, 600).Draw(t, "limit")
	n := c.MaxTokens(span, limit)
	if n < limit && c.Fits(n+1, span) || !c.Fits(n, span) && n > 0 {
		t.Fatalf("MaxTokens(%d, %d) = %d", span, limit, n)
	}
	id := Identity{Salt: "alone"}
	s := &walker{c: c, t: c.NewTable(id), id: id, tokens: make([]int32, n)}
	if n > 0 && rapid.Bool().Draw(t, "match") {
		w.match(t, s)
		if !c.Extend(s.t, min(n, s.done+span), n) {
			c.Release(s.t)
			s.done = 0
		}
	}
	for s.done < n {
		to := min(n, s.done+span)
		if !c.Extend(s.t, to, 0) {
			t.Fatalf("refused %d of %d tokens of a lone sequence", to, n)
		}
		w.compute(t, s, to, w.advance(t, s, to))
		c.Seal(s.t, s.tokens[:to])
		if err := w.arena.check(c, s.t, id, s.tokens, to); err != nil {
			t.Fatal(err)
		}
	}
	c.Release(s.t)
}

// TestRandom runs random lives of sequences over one pool: every block holds what its tables say,
// counts and lists agree, and at the end nothing is live.
func TestRandom(t *testing.T) {
	begun, lives, sealed, evictions := time.Now(), 0, uint64(0), uint64(0)
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		t.Repeat(w.actions())
		for _, s := range w.seqs {
			s.c.Release(s.t)
		}
		for _, c := range w.caches {
			sealed, evictions = sealed+c.sealed, evictions+c.evictions
			if c.live+c.owners != 0 {
				t.Fatalf("%d live blocks, %d states at rest", c.live, c.owners)
			}
			c.Close()
		}
		if s := w.pool.Stats(); s.FreePages != s.Pages {
			t.Fatalf("%d of %d pages free after all caches closed", s.FreePages, s.Pages)
		}
		if err := w.pool.Verify(); err != nil {
			t.Fatal(err)
		}
		lives++
	})
	t.Logf("row| random pools | %s | %d pools, %d blocks and snapshots sealed, %d taken for something else |", time.Since(begun).Round(time.Second/10), lives, sealed, evictions)
}

// TestMain sets how many timelines are drawn; -rapid.checks still overrides it.
func TestMain(m *testing.M) {
	checks := "700"
	if os.Getenv("OPENINFER_SOAK") == "1" {
		checks = "100000"
	}
	if err := errors.Join(flag.Set("rapid.checks", checks), flag.Set("rapid.steps", "60"), flag.Set("rapid.nofailfile", "true")); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}
