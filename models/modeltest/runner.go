// Package modeltest holds models on a device to stored results of the reference library.
//
// It owns a small engine for that purpose: an arena of pages whose blocks are handed out in random
// order, and steps over any mixture of sequences. One suite runs over every device; a device that
// quantises activations is measured instead of compared, and held to the same bits.
//
// Invariant: a token's logits have the same bits whether a prompt was computed in one pass, in
// chunks, token by token, beside strangers, in other blocks, or once more after all was dropped.
package modeltest

import (
	"math/rand/v2"
	"testing"

	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/models"
)

// Runner runs steps of one model.
type Runner struct {
	tb      testing.TB
	device  kernels.Device
	model   models.Model
	scratch kernels.Buffer
	logits  kernels.Buffer
	groups  []group
	rnd     *rand.Rand
}

// group is one cache group's arena.
type group struct {
	layout kernels.CacheLayout
	pages  kernels.Buffer
	free   []int32
}

const (
	blockTokens = 16
	maxStep     = 640 // tokens
	maxRows     = 640 // of logits
)

// NewRunner returns a runner whose cache holds tokens, in the given type.
func NewRunner(tb testing.TB, d kernels.Device, m models.Model, kv kernels.DType, tokens int) *Runner {
	tb.Helper()
	r := &Runner{tb: tb, device: d, model: m, rnd: rand.New(rand.NewPCG(3, 4))}
	r.scratch = r.alloc(m.ScratchBytes(maxStep, maxRows))
	r.logits = r.alloc(int64(maxRows) * int64(m.Shape().Vocab) * 4)
	for _, g := range m.Groups() {
		l := kernels.CacheLayout{
			DType: kv, Layers: g.Layers, Heads: g.Heads, KDim: g.KDim, VDim: g.VDim, BlockTokens: blockTokens, BlocksPerPage: 4,
		}
		l.BlockBytes = blockTokens * l.TokenBytes()
		l.PageBytes = 4*l.BlockBytes + 4096
		pages := (tokens/blockTokens + 64 + 3) / 4
		a := group{layout: l, pages: r.alloc(int64(pages) * l.PageBytes)}
		for i := range a.pages.Host {
			a.pages.Host[i] = 0xff
		}
		for _, b := range r.rnd.Perm(pages * 4) {
			a.free = append(a.free, int32(b))
		}
		r.groups = append(r.groups, a)
	}
	return r
}

func (r *Runner) alloc(n int64) kernels.Buffer {
	b, err := r.device.Alloc(n)
	if err != nil {
		r.tb.Fatal(err)
	}
	r.tb.Cleanup(func() { r.device.Free(b) })
	return b
}

// Sequence is a sequence of tokens of which the first Done are in the cache.
type Sequence struct {
	Tokens []int32
	Done   int
	blocks [][]int32 // by group
}

// Drop gives a sequence's blocks back, in another order, as a preemption does.
func (r *Runner) Drop(s *Sequence) {
	for i, b := range s.blocks {
		r.rnd.Shuffle(len(b), func(i, j int) { b[i], b[j] = b[j], b[i] })
		r.groups[i].free = append(b, r.groups[i].free...)
		k := min(len(r.groups[i].free), 2*len(b)+8)
		r.rnd.Shuffle(k, func(x, y int) {
			f := r.groups[i].free
			f[x], f[y] = f[y], f[x]
		})
	}
	s.Done, s.blocks = 0, nil
}

// Row is the next N tokens of a sequence in a step; logits of all of them come back, or of the
// last alone.
type Row struct {
	*Sequence
	N   int
	All bool
}

// Step advances the rows and returns the logits of each.
func (r *Runner) Step(rows ...Row) [][][]float32 {
	r.tb.Helper()
	d := r.device
	var ids, positions, wanted []int32
	starts, contexts := []int32{0}, []int32{}
	for _, row := range rows {
		for p := row.Done; p < row.Done+row.N; p++ {
			if row.All || p == row.Done+row.N-1 {
				wanted = append(wanted, int32(len(ids)))
			}
			ids, positions = append(ids, row.Tokens[p]), append(positions, int32(p))
		}
		starts, contexts = append(starts, int32(len(ids))), append(contexts, int32(row.Done+row.N))
	}
	up := func(v []int32) kernels.Ints { return d.Upload(kernels.Ints{Host: v}) }
	d.Begin()
	b := &models.Batch{
		TokenIDs: up(ids), Positions: up(positions),
		Ragged: kernels.Ragged{Starts: up(starts), Contexts: up(contexts)},
	}
	for i := range r.groups {
		slots, tables, stride := r.place(i, rows)
		g := &r.groups[i]
		b.Groups = append(b.Groups, models.GroupBatch{Pages: g.pages, Layout: &g.layout, Slots: up(slots), Tables: up(tables), Stride: stride})
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
	at := 0
	for i, row := range rows {
		n := 1
		if row.All {
			n = row.N
		}
		for range n {
			out[i] = append(out[i], append([]float32(nil), logits.Row(at)...))
			at++
		}
		row.Done += row.N
	}
	return out
}

// place gives the rows blocks of group i and returns the group's arrays.
func (r *Runner) place(i int, rows []Row) (slots, tables []int32, stride int) {
	g := &r.groups[i]
	for _, row := range rows {
		if row.blocks == nil {
			row.blocks = make([][]int32, len(r.groups))
		}
		for len(row.blocks[i])*blockTokens < row.Done+row.N {
			if len(g.free) == 0 {
				r.tb.Fatal("the runner's cache is full")
			}
			row.blocks[i] = append(row.blocks[i], g.free[0])
			g.free = g.free[1:]
		}
		stride = max(stride, len(row.blocks[i]))
		for p := row.Done; p < row.Done+row.N; p++ {
			slots = append(slots, row.blocks[i][p/blockTokens]*blockTokens+int32(p%blockTokens))
		}
	}
	for _, row := range rows {
		table := make([]int32, stride)
		copy(table, row.blocks[i])
		tables = append(tables, table...)
	}
	return slots, tables, stride
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
