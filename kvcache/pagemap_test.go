package kvcache

import (
	"fmt"
	"testing"
)

// checkMap says whether a pool's map has as many pages of each kind as a count of its blocks gives.
func checkMap(p *Pool) error {
	runs := p.Map(nil)
	stats := p.Stats()
	counts := map[int]map[PageUse]int{}
	id := 1
	for i, r := range runs {
		if r.Pages < 1 || i > 0 && r.Cache == runs[i-1].Cache && r.Use == runs[i-1].Use {
			return fmt.Errorf("run %d of %v is empty or like the one before", i, runs)
		}
		if counts[r.Cache] == nil {
			counts[r.Cache] = map[PageUse]int{}
		}
		counts[r.Cache][r.Use] += r.Pages
		for range r.Pages {
			g := &p.pages[id]
			held := g.state != nil && g.state.own
			for _, b := range g.blocks {
				held = held || b.state == live
			}
			if (g.owner == nil) != (r.Use == FreePage) || held != (r.Use == LivePage) || g.owner != nil && p.caches[r.Cache] != g.owner {
				return fmt.Errorf("page %d is mapped as %+v", id, r)
			}
			id++
		}
	}
	if id != len(p.pages) || counts[-1][FreePage] != stats.FreePages {
		return fmt.Errorf("%d pages mapped, %d of them free; %d and %d by the pool's count", id-1, counts[-1][FreePage], stats.Pages, stats.FreePages)
	}
	for i, m := range stats.Models {
		if n := counts[i][LivePage] + counts[i][CachedPage]; n != m.Pages {
			return fmt.Errorf("%s: %d pages mapped, %d held", m.Model, n, m.Pages)
		}
	}
	return nil
}

// BenchmarkMap is of a pool as a card of 48 GB has, two models' pages alternating every eight.
func BenchmarkMap(b *testing.B) {
	p := NewPool(16 << 10)
	var caches []*Cache
	for _, name := range []string{"a", "b"} {
		c, err := p.NewCache(Config{Model: name, BlocksPerPage: 4, Groups: []Group{{BlockTokens: 16}}})
		if err != nil {
			b.Fatal(err)
		}
		caches = append(caches, c)
	}
	for i := range 1000 {
		c := caches[i%2]
		if t := c.NewTable(Identity{}); !c.Extend(t, 8*4*16, 0) {
			b.Fatal("no room")
		}
	}
	var runs []PageRun
	for b.Loop() {
		runs = p.Map(runs[:0])
	}
	b.ReportMetric(float64(len(runs)), "runs")
}
