package kvcache

import "fmt"

// arena is the bytes behind a pool, in cells: what a device would store for a token is a tag in
// every cell of the token's place. Models cut the same page differently, so a block given to two
// owners, or kept by one too long, shows as a wrong tag.
type arena struct {
	cells []tag
}

const pageCells = 1152 // divisible by 1, 2, 3, 4, 6 blocks a page times 16, 32, 48, 96 tokens a block

// tag is what is stored for one token: everything that its key and value depend on.
type tag struct {
	model  string
	id     Identity
	group  int
	pos    int
	prefix uint64 // of all tokens up to and including this one
}

func newArena(pages int) *arena { return &arena{cells: make([]tag, pages*pageCells)} }

func (a *arena) place(c *Cache, g int, id BlockID, off int) (lo, hi int) {
	per := pageCells / c.cfg.BlocksPerPage
	tok := per / c.cfg.Groups[g].BlockTokens
	page, part := int(id)/c.cfg.BlocksPerPage, int(id)%c.cfg.BlocksPerPage
	lo = page*pageCells + part*per + off*tok
	return lo, lo + tok
}

func prefixes(tokens []int32) []uint64 {
	h := uint64(14695981039346656037)
	out := make([]uint64, len(tokens))
	for i, t := range tokens {
		h = (h ^ uint64(uint32(t))) * 1099511628211
		h ^= h >> 29
		out[i] = h
	}
	return out
}

// run executes a run: it checks that what it reads is the state after its first From tokens, and
// writes that after To.
func (a *arena) run(c *Cache, id Identity, tokens []int32, r Run) error {
	if len(r.Out) != c.statePages || r.From >= r.To || (r.In == nil) != (r.From == 0) {
		return fmt.Errorf("%s: run %+v", c.cfg.Model, r)
	}
	if err := a.checkState(c, id, tokens, r.From, r.In); err != nil {
		return err
	}
	h := prefixes(tokens[:r.To])
	for _, pg := range r.Out {
		for i := range pageCells {
			a.cells[int(pg)*pageCells+i] = tag{c.cfg.Model, id, c.recurrent, r.To, h[r.To-1]}
		}
	}
	return nil
}

// checkState says whether these pages hold the state after the first n tokens.
func (a *arena) checkState(c *Cache, id Identity, tokens []int32, n int, pages []PageID) error {
	for _, pg := range pages {
		want := tag{c.cfg.Model, id, c.recurrent, n, prefixes(tokens[:n])[n-1]}
		for i := range pageCells {
			if got := a.cells[int(pg)*pageCells+i]; pg <= 0 || got != want {
				return fmt.Errorf("%s: state on page %d: got %+v, want %+v", c.cfg.Model, pg, got, want)
			}
		}
	}
	return nil
}

// write stores positions from..len(tokens)-1 of a sequence.
func (a *arena) write(c *Cache, t *BlockTable, id Identity, tokens []int32, from int) {
	h := prefixes(tokens)
	for g, cfg := range c.cfg.Groups {
		if cfg.Kind == Recurrent {
			continue
		}
		for p := from; p < len(tokens); p++ {
			b := t.Blocks(g)[p/cfg.BlockTokens]
			lo, hi := a.place(c, g, b, p%cfg.BlockTokens)
			for i := lo; i < hi; i++ {
				a.cells[i] = tag{c.cfg.Model, id, g, p, h[p]}
			}
		}
	}
}

// check reads what a token at position n needs: positions 0 to n-1, within the window, and the state.
func (a *arena) check(c *Cache, t *BlockTable, id Identity, tokens []int32, n int) error {
	if s := t.state.in; s != nil {
		if t.state.at != n {
			return fmt.Errorf("%s: state at %d, not %d", c.cfg.Model, t.state.at, n)
		}
		if err := a.checkState(c, id, tokens, n, s.pages); err != nil {
			return err
		}
	}
	h := prefixes(tokens)
	for g, cfg := range c.cfg.Groups {
		if cfg.Kind == Recurrent {
			continue
		}
		from := 0
		if cfg.Kind == SlidingWindow {
			from = max(0, n-cfg.Window+1)
		}
		for p := from; p < n; p++ {
			b := t.Blocks(g)[p/cfg.BlockTokens]
			if b == Padding {
				return fmt.Errorf("%s group %d position %d of %d: padding", c.cfg.Model, g, p, n)
			}
			lo, hi := a.place(c, g, b, p%cfg.BlockTokens)
			for i := lo; i < hi; i++ {
				if want := (tag{c.cfg.Model, id, g, p, h[p]}); a.cells[i] != want {
					return fmt.Errorf("%s group %d position %d of %d in block %d: got %+v, want %+v", c.cfg.Model, g, p, n, b, a.cells[i], want)
				}
			}
		}
	}
	return nil
}
