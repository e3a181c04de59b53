package kvcache

// PageUse is what a page is used for.
type PageUse uint8

// Uses of pages.
const (
	FreePage   PageUse = iota // nobody's
	LivePage                  // a sequence's: it has a live block, or is a part of its state
	CachedPage                // holds only what the prefix cache keeps
)

// PageRun is pages that follow each other and are alike.
type PageRun struct {
	Cache int // as in Stats.Models; -1: free
	Use   PageUse
	Pages int
}

// Map appends what every page but the padding is used for, in order. It costs a few nanoseconds a page.
//
// A page counts as live from its first live block on, so there may be more of them than the pool's live blocks would fill.
func (p *Pool) Map(runs []PageRun) []PageRun {
	index := -1
	var owner *Cache // whose index that is
	for i := 1; i < len(p.pages); i++ {
		g := &p.pages[i]
		if g.owner != owner {
			owner, index = g.owner, -1
			for k, c := range p.caches {
				if c == owner {
					index = k
				}
			}
		}
		use := CachedPage
		switch {
		case owner == nil:
			use = FreePage
		case g.live > 0 || g.state != nil && g.state.own:
			use = LivePage
		}
		if n := len(runs); n > 0 && runs[n-1].Cache == index && runs[n-1].Use == use {
			runs[n-1].Pages++
		} else {
			runs = append(runs, PageRun{index, use, 1})
		}
	}
	return runs
}
