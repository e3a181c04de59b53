package engine

import (
	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/kvcache"
	"github.com/openinfer-go/openinfer/models"
)

// cut is how a model's cache lies in pages. All its blocks have one size in bytes, so that one list
// of free ones serves every group that keeps tokens; a group whose tokens are small has more of them
// in a block. A recurrent group's state lies on whole pages.
type cut struct {
	groups     []models.CacheGroup
	blockBytes int64
	layouts    []kernels.CacheLayout // by group; of a recurrent one the zero value
	state      *kernels.StateLayout  // of the recurrent group, if there is one
}

// cutCache chooses block size and tokens a block: the group with the largest tokens has
// blockTokens of them.
func cutCache(groups []models.CacheGroup, t kernels.DType) cut {
	c := cut{groups: groups, layouts: make([]kernels.CacheLayout, len(groups))}
	tables := 0
	for i, g := range groups {
		if g.Kind == models.Recurrent {
			c.state = &kernels.StateLayout{
				Layers: g.Layers, Heads: g.Heads, KDim: g.KDim, VDim: g.VDim,
				ConvChannels: g.ConvChannels, ConvColumns: g.ConvColumns,
			}
			continue
		}
		tables++
		c.layouts[i] = kernels.CacheLayout{DType: t, Layers: g.Layers, Heads: g.Heads, KDim: g.KDim, VDim: g.VDim}
		c.blockBytes = max(c.blockBytes, align(c.layouts[i].TokenBytes()*blockTokens, 64))
	}
	// Groups whose values divide each other miss that by a little with their scales: a block grows for as little.
	for _, l := range c.layouts {
		if part := l.TokenBytes() * blockTokens; part > 0 {
			if up := align(ceilDiv(c.blockBytes, part)*part, 64); up-c.blockBytes <= c.blockBytes/32 {
				c.blockBytes = up
			}
		}
	}
	for i := range c.layouts {
		l := &c.layouts[i]
		if l.Layers == 0 {
			continue
		}
		n := int(c.blockBytes / (l.TokenBytes() * blockTokens))
		if tables > 2 { // a prefix is found up to a common multiple of the groups' blocks, which has to stay small
			for n&(n-1) != 0 {
				n &= n - 1
			}
		}
		l.BlockTokens, l.BlockBytes = n*blockTokens, c.blockBytes
	}
	return c
}

// inPages completes the layouts for pages of that size.
func (c cut) inPages(pageBytes int64) cut {
	layouts := c.layouts
	c.layouts = make([]kernels.CacheLayout, len(layouts))
	for i, l := range layouts {
		if l.Layers > 0 {
			l.PageBytes, l.BlocksPerPage = pageBytes, int(pageBytes/c.blockBytes)
			c.layouts[i] = l
		}
	}
	if c.state != nil {
		s := *c.state
		s.PageBytes = pageBytes
		c.state = &s
	}
	return c
}

// blocksFor is how many blocks a sequence of n tokens holds at most, span of them in one step.
func (c cut) blocksFor(n, span int) int64 {
	sum := int64(0)
	for i, g := range c.groups {
		per := int64(c.layouts[i].BlockTokens)
		if per == 0 {
			continue
		}
		blocks := ceilDiv(int64(n), per)
		if g.Kind == models.SlidingWindow {
			blocks = min(blocks, ceilDiv(int64(g.Window-1+span), per)+1)
		}
		sum += blocks
	}
	return sum
}

// pagesFor is how many pages, with the padding page, a sequence alone needs: n tokens, span of them in
// one step, and its state. The cut is one in pages.
func (c cut) pagesFor(n, span int) int64 {
	return 1 + ceilDiv(c.blocksFor(n, span), int64(c.perPage())) + int64(c.statePages())
}

// stateBytes is the size of one sequence's recurrent state.
func (c cut) stateBytes() int64 {
	if c.state == nil {
		return 0
	}
	return c.state.StateBytes()
}

// statePages is how many pages it takes. The cut is one in pages.
func (c cut) statePages() int {
	if c.state == nil {
		return 0
	}
	return c.state.StatePages()
}

// tokenBytes is what a token of context takes as long as no window has left it behind.
func (c cut) tokenBytes() int64 {
	sum := int64(0)
	for _, l := range c.layouts {
		sum += l.TokenBytes()
	}
	return sum
}

// config is what kvcache makes the model's cache from. The cut is one in pages.
func (c cut) config(model string, snapshots, every int) kvcache.Config {
	cfg := kvcache.Config{Model: model, BlocksPerPage: c.perPage()}
	for i, g := range c.groups {
		k := kvcache.Group{BlockTokens: c.layouts[i].BlockTokens, Window: g.Window}
		switch g.Kind {
		case models.Full:
			k.Kind = kvcache.Full
		case models.SlidingWindow:
			k.Kind = kvcache.SlidingWindow
		case models.Recurrent:
			k = kvcache.Group{Kind: kvcache.Recurrent, StatePages: c.statePages()}
			cfg.Snapshots, cfg.SnapshotTokens = snapshots, every
		}
		cfg.Groups = append(cfg.Groups, k)
	}
	return cfg
}

func (c cut) perPage() int {
	for _, l := range c.layouts {
		if l.BlocksPerPage > 0 {
			return l.BlocksPerPage
		}
	}
	return 1
}
