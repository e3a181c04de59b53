package quantize

import (
	"errors"
	"fmt"

	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/models"
)

// runner computes whole sequences, each in one step from an empty cache.
type runner struct {
	device  kernels.Device
	model   models.Model
	tokens  int // of a step, at most
	longest int // sequence
	rows    int // of logits at once
	scratch kernels.Buffer
	logits  kernels.Buffer
	groups  []cacheGroup
}

// cacheGroup is the memory of one cache group for a step.
type cacheGroup struct {
	pages  kernels.Buffer
	layout *kernels.CacheLayout
	state  *kernels.StateLayout
}

const (
	blockTokens   = 16
	logitsBytes   = 64 << 20
	stateUnitsMax = 16
)

// newRunner takes memory for steps of up to tokens tokens in sequences of up to longest.
func newRunner(d kernels.Device, m models.Model, kv kernels.DType, tokens, longest int) (*runner, error) {
	longest = min(longest, tokens)
	r := &runner{device: d, model: m, tokens: tokens, longest: longest}
	vocab := m.Shape().Vocab
	r.rows = max(1, min(tokens, logitsBytes/4/vocab))
	var err error
	take := func(n int64) (b kernels.Buffer) {
		if err == nil {
			b, err = d.Alloc(n)
		}
		return b
	}
	r.scratch, r.logits = take(m.ScratchBytes(tokens, r.rows)), take(int64(r.rows)*int64(vocab)*4)
	sequences := tokens/longest + 1
	for _, g := range m.Groups() {
		var c cacheGroup
		if g.Kind == models.Recurrent {
			l := &kernels.StateLayout{
				Layers: g.Layers, Heads: g.Heads, KDim: g.KDim, VDim: g.VDim, ConvChannels: g.ConvChannels, ConvColumns: g.ConvColumns,
			}
			l.PageBytes = stateUnitsMax * l.UnitBytes()
			c.state = l
			c.pages = take(int64(1+sequences*l.StatePages()) * l.PageBytes)
		} else {
			l := &kernels.CacheLayout{
				DType: kv, Layers: g.Layers, Heads: g.Heads, KDim: g.KDim, VDim: g.VDim, BlockTokens: blockTokens, BlocksPerPage: 1,
			}
			l.BlockBytes = (blockTokens*l.TokenBytes() + 63) &^ 63
			l.PageBytes = l.BlockBytes
			c.layout = l
			c.pages = take(int64(1+tokens/blockTokens+sequences) * l.PageBytes)
		}
		r.groups = append(r.groups, c)
	}
	if err != nil {
		r.free()
		return nil, fmt.Errorf("memory for steps of %d tokens: %w", tokens, err)
	}
	return r, nil
}

func (r *runner) free() {
	give := func(b kernels.Buffer) {
		if b.Len > 0 {
			r.device.Free(b)
		}
	}
	give(r.scratch)
	give(r.logits)
	for _, g := range r.groups {
		give(g.pages)
	}
}

// step computes the sequences together and calls each, when it is not nil, with the logits of every token
// of every sequence but its first from tokens, which predict the token after it.
func (r *runner) step(sequences [][]int32, from []int, each func(sequence, position int, logits []float32)) error {
	d := r.device
	var ids, positions, regimes []int32
	var wanted [][2]int // sequence, position
	var rows []int32
	starts, contexts := []int32{0}, []int32{}
	levels := r.model.Shape().Regimes
	for i, s := range sequences {
		if len(s) > r.longest || len(ids)+len(s) > r.tokens {
			return fmt.Errorf("a sequence of %d tokens in steps of %d", len(s), r.tokens)
		}
		for p, id := range s {
			if each != nil && p >= from[i] {
				wanted, rows = append(wanted, [2]int{i, p}), append(rows, int32(len(ids)))
			}
			ids, positions = append(ids, id), append(positions, int32(p))
		}
		regime := int32(0)
		for _, n := range levels {
			if len(s) > n {
				regime++
			}
		}
		regimes = append(regimes, regime)
		starts, contexts = append(starts, int32(len(ids))), append(contexts, int32(len(s)))
	}
	d.Begin()
	up := func(v []int32) kernels.Ints { return d.Upload(kernels.Ints{Host: v}) }
	b := &models.Batch{
		TokenIDs: up(ids), Positions: up(positions), Ragged: kernels.Ragged{Starts: up(starts), Contexts: up(contexts)},
	}
	if len(levels) > 0 {
		b.Regimes = regimes
	}
	for _, g := range r.groups {
		b.Groups = append(b.Groups, g.batch(sequences, starts, up))
	}
	hidden := r.model.Forward(d, b, r.scratch)
	vocab := r.model.Shape().Vocab
	for len(rows) > 0 {
		n := min(len(rows), r.rows)
		logits := kernels.Tensor{Buf: r.logits, Rows: n, Cols: vocab, Stride: vocab}
		r.model.Head(d, logits, hidden, up(rows[:n]), r.scratch)
		if !waited(d, logits) {
			if err := d.End(); err != nil {
				return err
			}
			return errors.New("a logit is no number")
		}
		for i, w := range wanted[:n] {
			each(w[0], w[1], logits.Row(i))
		}
		rows, wanted = rows[n:], wanted[n:]
	}
	return d.End()
}

// waited waits for what was issued, by drawing from its result. It is false when nothing could be drawn: after an
// error, or from logits that are no numbers.
func waited(d kernels.Device, logits kernels.Tensor) bool {
	var out [1]kernels.Sampled
	d.Sample(out[:], logits.RowRange(0, 1), logits.Cols, []kernels.SampleParams{{Given: -1, Logprobs: -1}})
	return out[0].ID >= 0
}

// batch hands out blocks and states in order; number 0 stays unused.
func (g *cacheGroup) batch(sequences [][]int32, starts []int32, up func([]int32) kernels.Ints) models.GroupBatch {
	if g.state != nil {
		pages := g.state.StatePages()
		in, out := make([]int32, len(sequences)*pages), make([]int32, len(sequences)*pages)
		for i := range out {
			out[i] = int32(1 + i)
		}
		return models.GroupBatch{
			Pages: g.pages, State: g.state, Runs: kernels.Runs{Starts: up(starts), In: up(in), Out: up(out)},
		}
	}
	stride := 1
	for _, s := range sequences {
		stride = max(stride, (len(s)+blockTokens-1)/blockTokens)
	}
	var slots []int32
	tables := make([]int32, len(sequences)*stride)
	next := int32(1)
	for i, s := range sequences {
		for p := range s {
			if p%blockTokens == 0 {
				tables[i*stride+p/blockTokens] = next
				next++
			}
			slots = append(slots, (next-1)*blockTokens+int32(p%blockTokens))
		}
	}
	return models.GroupBatch{Pages: g.pages, Layout: g.layout, Slots: up(slots), Tables: up(tables), Stride: stride}
}
