// Package modeltest holds models on a device to stored results of the reference library.
//
// It owns a small engine for that purpose: arenas of poisoned pages whose blocks and states are handed
// out in random order, and steps over any mixture of sequences. One suite runs over every device; a device
// that quantises activations is measured instead of compared, and held to the same bits.
//
// Invariant: a token's logits have the same bits whether a prompt was computed in one pass, in
// chunks, token by token, beside strangers, in other blocks, in a state slot that another sequence left,
// from a snapshot of its state, or once more after all was dropped.
package modeltest

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/models"
)

// Runner runs steps of one model.
type Runner struct {
	tb      testing.TB
	device  kernels.Device
	memory  copier // nil when the host sees the device's memory
	model   models.Model
	scratch kernels.Buffer
	logits  kernels.Buffer
	groups  []group
	rnd     *rand.Rand
	reused  int // sequences whose state began on a page that another one had left
	rewound int // times that one went back to a snapshot
}

// group is one cache group's arena. Block and page 0 are never handed out: that is what entries of
// tables name that nothing is behind.
type group struct {
	models.CacheGroup
	pages  kernels.Buffer
	free   []int32             // blocks; of a recurrent group pages
	layout kernels.CacheLayout // but of a recurrent group
	state  kernels.StateLayout // of a recurrent group
	left   map[int32]*Sequence // of a recurrent group: who had the page last
}

const (
	maxStep   = 640 // tokens
	maxRows   = 640 // of logits
	minTokens = 16  // of a block
	maxStates = 64
)

// NewRunner returns a runner whose cache holds tokens, in the given type.
func NewRunner(tb testing.TB, d kernels.Device, m models.Model, kv kernels.DType, tokens int) *Runner {
	tb.Helper()
	r := &Runner{tb: tb, device: d, model: m, rnd: rand.New(rand.NewPCG(3, 4))}
	r.memory, _ = d.(copier)
	r.scratch = r.alloc(m.ScratchBytes(maxStep, maxRows))
	r.logits = r.alloc(int64(maxRows) * int64(m.Shape().Vocab) * 4)
	for _, g := range m.Groups() {
		if g.Kind == models.Recurrent {
			r.groups = append(r.groups, r.states(g))
		} else {
			r.groups = append(r.groups, r.blocks(g, kv, tokens))
		}
	}
	return r
}

// blocks returns the arena of a group with keys and values.
func (r *Runner) blocks(g models.CacheGroup, kv kernels.DType, tokens int) group {
	blockTokens := minTokens * (1 + r.rnd.IntN(4))
	l := kernels.CacheLayout{
		DType: kv, Layers: g.Layers, Heads: g.Heads, KDim: g.KDim, VDim: g.VDim, BlockTokens: blockTokens, BlocksPerPage: 4,
	}
	l.BlockBytes = int64(blockTokens) * l.TokenBytes()
	l.PageBytes = 4*l.BlockBytes + 4096
	pages := (tokens/blockTokens + 64 + 3) / 4
	a := group{CacheGroup: g, layout: l, pages: r.alloc(int64(pages) * l.PageBytes)}
	r.poison(a.pages)
	a.fill(r.rnd, pages*4)
	return a
}

// states returns the arena of a recurrent group.
func (r *Runner) states(g models.CacheGroup) group {
	l := kernels.StateLayout{
		Layers: g.Layers, Heads: g.Heads, KDim: g.KDim, VDim: g.VDim, ConvChannels: g.ConvChannels, ConvColumns: g.ConvColumns,
	}
	l.PageBytes = int64(2+r.rnd.IntN(4))*l.UnitBytes() + 4096 // some of a page is left over
	pages := 1 + maxStates*l.StatePages()
	a := group{CacheGroup: g, state: l, pages: r.alloc(int64(pages) * l.PageBytes), left: map[int32]*Sequence{}}
	r.poison(a.pages)
	a.fill(r.rnd, pages)
	return a
}

// fill frees the arena's n blocks or pages, but the first, in random order.
func (g *group) fill(rnd *rand.Rand, n int) {
	for _, b := range rnd.Perm(n - 1) {
		g.free = append(g.free, int32(b+1))
	}
}

// Sequence is a sequence of tokens of which the first Done are in the cache.
type Sequence struct {
	Tokens []int32
	Done   int
	regime int     // that its cache is computed under
	cache  []cache // by group
}

// cache is what a sequence holds of one group.
type cache struct {
	blocks []int32 // 0: given back, as the window has left it behind

	// Of a recurrent group: the state's pages, and where the next run finds what it begins with when
	// that is not there.
	state, from []int32
	kept        []snapshot
}

// snapshot is a state that stayed behind: that of the first at tokens.
type snapshot struct {
	at    int
	pages []int32
}

const maxKept = 2 // snapshots of a sequence

// Drop gives a sequence's blocks and states back, in another order, as a preemption does.
func (r *Runner) Drop(s *Sequence) {
	for i, c := range s.cache {
		g := &r.groups[i]
		held := slices.DeleteFunc(c.blocks, func(b int32) bool { return b == 0 })
		held = append(held, c.state...)
		for _, k := range c.kept {
			held = append(held, k.pages...)
		}
		r.rnd.Shuffle(len(held), func(i, j int) { held[i], held[j] = held[j], held[i] })
		g.free = append(held, g.free...)
		k := min(len(g.free), 2*len(held)+8)
		r.rnd.Shuffle(k, func(x, y int) { g.free[x], g.free[y] = g.free[y], g.free[x] })
		if g.left != nil {
			for _, p := range held {
				g.left[p] = s
			}
		}
	}
	s.Done, s.cache = 0, nil
}

// Rewind takes a sequence back to one of its snapshots, which stays: the next step continues from it.
// It is false when there is none.
func (r *Runner) Rewind(s *Sequence) bool {
	for i := range s.cache {
		c := &s.cache[i]
		if len(c.kept) > 0 {
			k := c.kept[r.rnd.IntN(len(c.kept))]
			s.Done, c.from = k.at, k.pages
			r.rewound++
			return true
		}
	}
	return false
}

// Row is the next N tokens of a sequence in a step; logits of all of them come back, or of the
// last alone. A sequence whose tokens have come under another regime is computed from its first token again:
// its N grows by what was done.
type Row struct {
	*Sequence
	N   int
	All bool
}

// regime returns the one that a sequence is under: that of all the tokens it has.
func (r *Runner) regime(s *Sequence) int {
	n := 0
	for _, limit := range r.model.Shape().Regimes {
		if len(s.Tokens) > limit {
			n++
		}
	}
	return n
}

// Step advances the rows and returns the logits of each.
func (r *Runner) Step(rows ...Row) [][][]float32 {
	r.tb.Helper()
	d := r.device
	rows = slices.Clone(rows)
	var ids, positions, wanted, regimes []int32
	starts, contexts := []int32{0}, []int32{}
	for i := range rows {
		row := &rows[i]
		if now := r.regime(row.Sequence); row.regime != now {
			row.N += row.Done
			r.Drop(row.Sequence)
			row.regime = now
		}
		if row.cache == nil {
			row.cache = make([]cache, len(r.groups))
		}
		regimes = append(regimes, int32(row.regime))
		for p := row.Done; p < row.Done+row.N; p++ {
			if row.All || p == row.Done+row.N-1 {
				wanted = append(wanted, int32(len(ids)))
			}
			ids, positions = append(ids, row.Tokens[p]), append(positions, int32(p))
		}
		starts, contexts = append(starts, int32(len(ids))), append(contexts, int32(row.Done+row.N))
	}
	d.Begin()
	up := func(v []int32) kernels.Ints { return d.Upload(kernels.Ints{Host: v}) }
	b := &models.Batch{
		TokenIDs: up(ids), Positions: up(positions),
		Ragged: kernels.Ragged{Starts: up(starts), Contexts: up(contexts)},
	}
	if r.model.Shape().Regimes != nil {
		b.Regimes = regimes
	}
	for i := range r.groups {
		g := &r.groups[i]
		a := models.GroupBatch{Pages: g.pages}
		if g.Kind == models.Recurrent {
			starts, in, out := r.runs(i, rows)
			a.State, a.Runs = &g.state, kernels.Runs{Starts: up(starts), In: up(in), Out: up(out)}
		} else {
			slots, tables, stride := r.place(i, rows)
			a.Layout, a.Slots, a.Tables, a.Stride = &g.layout, up(slots), up(tables), stride
		}
		b.Groups = append(b.Groups, a)
	}
	vocab := r.model.Shape().Vocab
	logits := kernels.Tensor{Buf: r.logits, Rows: len(wanted), Cols: vocab, Stride: vocab}
	hidden := r.model.Forward(d, b, r.scratch)
	// The head in two tiles, as a step over many rows computes it.
	half := (len(wanted) + 1) / 2
	r.model.Head(d, logits.RowRange(0, half), hidden, up(wanted[:half]), r.scratch)
	r.model.Head(d, logits.RowRange(half, len(wanted)), hidden, up(wanted[half:]), r.scratch)
	if err := d.End(); err != nil {
		r.tb.Fatalf("step of %d tokens: %v", len(ids), err)
	}
	out := make([][][]float32, len(rows))
	all := r.read(logits)
	for i, row := range rows {
		n := 1
		if row.All {
			n = row.N
		}
		out[i], all = all[:n:n], all[n:]
		row.Done += row.N
		r.tidy(row.Sequence)
	}
	return out
}

// take removes n blocks or pages from the free ones.
func (r *Runner) take(g *group, n int) []int32 {
	if len(g.free) < n {
		r.tb.Fatal("the runner's cache is full")
	}
	taken := slices.Clone(g.free[:n])
	g.free = g.free[n:]
	return taken
}

// place gives the rows blocks of group i and returns the group's arrays.
func (r *Runner) place(i int, rows []Row) (slots, tables []int32, stride int) {
	g := &r.groups[i]
	size := g.layout.BlockTokens
	for _, row := range rows {
		c := &row.cache[i]
		for len(c.blocks)*size < row.Done+row.N {
			c.blocks = append(c.blocks, r.take(g, 1)...)
		}
		stride = max(stride, len(c.blocks))
		for p := row.Done; p < row.Done+row.N; p++ {
			slots = append(slots, c.blocks[p/size]*int32(size)+int32(p%size))
		}
	}
	for _, row := range rows {
		table := make([]int32, stride)
		copy(table, row.cache[i].blocks)
		tables = append(tables, table...)
	}
	return slots, tables, stride
}

// runs cuts the rows into runs at random places and gives each pages of group i to leave its state
// on: now and then other ones than those it begins with, which stay behind as a snapshot.
func (r *Runner) runs(i int, rows []Row) (starts, in, out []int32) {
	g := &r.groups[i]
	pages := g.state.StatePages()
	starts = []int32{0}
	for _, row := range rows {
		c := &row.cache[i]
		for p, end := row.Done, row.Done+row.N; p < end; {
			n := end - p
			if n > 1 && r.rnd.IntN(2) == 0 {
				n = 1 + r.rnd.IntN(n-1)
			}
			begin := c.state
			switch {
			case c.state == nil:
				c.state = r.take(g, pages)
				if slices.ContainsFunc(c.state, func(p int32) bool { return g.left[p] != nil && g.left[p] != row.Sequence }) {
					r.reused++
				}
			case c.from != nil:
				begin, c.from = c.from, nil
			case r.rnd.IntN(3) == 0 && len(g.free) > maxStates/4*pages:
				c.kept = append(c.kept, snapshot{p, c.state})
				c.state = r.take(g, pages)
			}
			if begin == nil {
				begin = make([]int32, pages)
			}
			in, out = append(in, begin...), append(out, c.state...)
			p += n
			starts = append(starts, starts[len(starts)-1]+int32(n))
		}
	}
	return starts, in, out
}

// tidy gives back what a sequence does not need for its next step: snapshots beyond the latest few,
// and blocks that the window has left behind, which it poisons.
func (r *Runner) tidy(s *Sequence) {
	for i := range s.cache {
		g, c := &r.groups[i], &s.cache[i]
		if n := len(c.kept) - maxKept; n > 0 {
			for _, k := range c.kept[:n] {
				g.free = append(g.free, k.pages...)
			}
			c.kept = slices.Delete(c.kept, 0, n)
		}
		if g.Kind != models.SlidingWindow {
			continue
		}
		first := max(0, s.Done+1-g.Window) // position that the next token sees
		for j := range min(first/g.layout.BlockTokens, len(c.blocks)) {
			b := c.blocks[j]
			if b == 0 {
				continue
			}
			r.poison(g.pages.Slice(g.layout.BlockOffset(b), g.layout.BlockBytes))
			g.free, c.blocks[j] = append(g.free, b), 0
		}
	}
}

// Argmax returns the id of the largest logit, the lowest among equals.
func Argmax(logits []float32) int32 {
	best := 0
	for i, v := range logits {
		if v > logits[best] {
			best = i
		}
	}
	return int32(best)
}
