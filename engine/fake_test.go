package engine

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/models"
	"github.com/openinfer-go/openinfer/models/tokenizer"
)

// fakeModel is a model whose next token is a hash of every token before it as the KV cache has
// them. One wrong slot, block table, position or hidden row changes the answer, and what the
// answer should be follows from the tokens alone.
//
// With a window it has a second cache group whose layers see that many tokens, and the tokens in the
// window count once more. With a recurrent group it keeps the hash as its state, too, and a state
// that is not the tokens' own spoils the answer. With a limit, longer sequences are under another
// regime: what the cache has of a token and the hash depend on it.
type fakeModel struct {
	seed      uint64
	window    int
	recurrent bool
	limit     int
	gone      bool // its weights
	// nan are hashes at which the logits are not numbers.
	nan map[uint64]bool
}

const (
	fakeVocab   = 300 // ids that exist
	fakePadded  = 320
	fakeEnd     = 256
	fakeSpecial = 257
)

func fakeHash(seed uint64, tokens []int32) uint64 { return fakeFold(mix(seed+1), tokens) }

func fakeFold(h uint64, tokens []int32) uint64 {
	for pos, id := range tokens {
		h = fold(h, id, pos)
	}
	return h
}

func fold(h uint64, id int32, pos int) uint64 { return mix(h ^ uint64(id+1)<<20 ^ uint64(pos)) }

// fakeNext is the token that greedy sampling draws: mostly letters and spaces, at times half a
// character, a special token or the end.
func fakeNext(h uint64) int32 {
	r := h >> 8 % 1000
	switch {
	case r < 10:
		return fakeEnd
	case r < 30:
		return fakeSpecial
	case r < 200:
		return ' '
	case r < 300: // bytes of two-byte characters, in no order
		return int32(0x80 + h>>24%0x60)
	}
	return int32('a' + h>>24%26)
}

// fakeAnswer is what the model of that seed says, until its end token or n tokens.
func fakeAnswer(seed uint64, prompt []int32, n int, ignoreEnd bool) []int32 {
	tokens := slices.Clone(prompt)
	for len(tokens) < len(prompt)+n {
		next := fakeNext(fakeHash(seed, tokens))
		tokens = append(tokens, next)
		if next == fakeEnd && !ignoreEnd {
			break
		}
	}
	return tokens[len(prompt):]
}

func (m *fakeModel) Shape() models.Shape {
	s := models.Shape{Architecture: "fake", Vocab: fakePadded, MaxPosition: 4096, Layers: 1, Hidden: 4, WeightBytes: 1000}
	if m.limit > 0 {
		s.Regimes = []int{m.limit}
	}
	return s
}

func (m *fakeModel) Groups() []models.CacheGroup {
	groups := []models.CacheGroup{{Kind: models.Full, Layers: 2, Heads: 2, KDim: 64, VDim: 64}}
	if m.window > 0 {
		groups = append(groups, models.CacheGroup{Kind: models.SlidingWindow, Layers: 1, Heads: 2, KDim: 64, VDim: 64, Window: m.window})
	}
	if m.recurrent {
		// Three layers of four units on pages of 256 KiB: a state of two pages.
		groups = append([]models.CacheGroup{{
			Kind: models.Recurrent, Layers: 3, Heads: 3, KDim: 128, VDim: 64, ConvChannels: 100, ConvColumns: 3,
		}}, groups...)
	}
	return groups
}

// states folds the step's tokens into the recurrent states and returns what these are after each.
func (m *fakeModel) states(g *models.GroupBatch, b *models.Batch, seeds []uint64) []uint64 {
	after := make([]uint64, len(b.TokenIDs.Host))
	starts, n := g.Runs.Starts.Host, g.State.StatePages()
	for r := range len(starts) - 1 {
		in, out := g.Runs.In.Host[r*n:(r+1)*n], g.Runs.Out.Host[r*n:(r+1)*n]
		for layer := range g.State.Layers {
			for unit := range g.State.LayerUnits() {
				at := func(pages []int32) []byte { return g.Pages.Host[g.State.Offset(pages, layer, unit):][:8] }
				h := seeds[starts[r]]
				if in[0] != 0 {
					h = binary.LittleEndian.Uint64(at(in))
				}
				for t := starts[r]; t < starts[r+1]; t++ {
					h = fold(h, b.TokenIDs.Host[t], int(b.Positions.Host[t]))
					if after[t] == 0 {
						after[t] = h
					} else if after[t] != h {
						after[t] = mix(h) // the parts of a state disagree
					}
				}
				binary.LittleEndian.PutUint64(at(out), h)
			}
		}
	}
	return after
}

func (m *fakeModel) ScratchBytes(t, s int) int64 {
	c := kernels.NewCarver(kernels.Buffer{})
	c.Tensor(kernels.F32, t, 4)
	return c.Bytes
}

func (m *fakeModel) Forward(d kernels.Device, b *models.Batch, scratch kernels.Buffer) kernels.Tensor {
	if m.gone {
		panic("a step of a model whose weights are gone")
	}
	hidden := kernels.NewCarver(scratch).Tensor(kernels.F32, len(b.TokenIDs.Host), 4)
	seeds := make([]uint64, len(b.TokenIDs.Host)) // by token
	for s := range b.Ragged.Contexts.Host {
		for t := b.Ragged.Starts.Host[s]; t < b.Ragged.Starts.Host[s+1]; t++ {
			seeds[t] = m.seed + 1
			if m.limit > 0 {
				seeds[t] += uint64(b.Regimes[s]) << 32
			}
			seeds[t] = mix(seeds[t])
		}
	}
	first := 0 // of the groups that keep tokens
	var states []uint64
	if m.recurrent {
		states = m.states(&b.Groups[0], b, seeds)
		first = 1
	}
	for g := first; g < len(b.Groups); g++ {
		for t, slot := range b.Groups[g].Slots.Host {
			at := fakeSlot(&b.Groups[g], int(slot))
			binary.LittleEndian.PutUint32(at, uint32(b.TokenIDs.Host[t]))
			binary.LittleEndian.PutUint32(at[4:], uint32(b.Positions.Host[t])^uint32(seeds[t]))
		}
	}
	for s, context := range b.Ragged.Contexts.Host {
		from, to := int(b.Ragged.Starts.Host[s]), int(b.Ragged.Starts.Host[s+1])
		read := func(h uint64, g, pos int) uint64 {
			group := &b.Groups[first+g]
			block := group.Tables.Host[s*group.Stride+pos/group.Layout.BlockTokens]
			at := fakeSlot(group, int(block)*group.Layout.BlockTokens+pos%group.Layout.BlockTokens)
			return fold(h, int32(binary.LittleEndian.Uint32(at)), int(int32(binary.LittleEndian.Uint32(at[4:])^uint32(seeds[from]))))
		}
		if from == to {
			continue
		}
		h := seeds[from]
		for pos := range int(context) {
			h = read(h, 0, pos)
			t := from + pos - (int(context) - (to - from))
			if t < from {
				continue
			}
			seen := h
			if m.recurrent {
				seen ^= states[t] ^ h // which cancels
			}
			for p := max(0, pos+1-m.window); m.window > 0 && p <= pos; p++ {
				seen = read(seen, 1, p)
			}
			for i := range 4 {
				hidden.Row(t)[i] = float32(seen >> (16 * i) & 0xffff)
			}
		}
	}
	return hidden
}

// fakeSlot is where a token's id and position are kept.
func fakeSlot(g *models.GroupBatch, slot int) []byte {
	off := g.Layout.BlockOffset(int32(slot/g.Layout.BlockTokens)) + int64(slot%g.Layout.BlockTokens)*g.Layout.TokenBytes()
	return g.Pages.Host[off : off+8]
}

func (m *fakeModel) Head(d kernels.Device, logits, hidden kernels.Tensor, rows kernels.Ints, scratch kernels.Buffer) {
	for i, r := range rows.Host {
		h := uint64(0)
		for j, v := range hidden.Row(int(r)) {
			h |= uint64(v) << (16 * j)
		}
		row := logits.Row(i)
		for v := range row {
			row[v] = float32(mix(h+uint64(v)) % 1000 / 250)
			if v >= fakeVocab {
				row[v] = 100 // padding that must never be drawn
			}
		}
		row[fakeNext(h)] = 8
		if m.nan[h] {
			row[7] = float32(math.NaN())
		}
	}
}

func (m *fakeModel) Unload(kernels.Device) {
	if m.gone {
		panic("weights unloaded twice")
	}
	m.gone = true
}

// fakeTokens is one token a byte.
type fakeTokens struct{}

func (fakeTokens) TokenBytes(id int32) []byte {
	switch {
	case id < 256:
		return []byte{byte(id)}
	case id == fakeEnd:
		return []byte("<end>")
	case id == fakeSpecial:
		return []byte("<special>")
	}
	return []byte("<extra>")
}
func (fakeTokens) IsSpecial(id int32) bool { return id == fakeEnd || id == fakeSpecial }
func (fakeTokens) Size() int               { return fakeVocab }
func (fakeTokens) Encode(text string, _ tokenizer.Options) []int32 {
	var ids []int32
	for _, b := range []byte(text) {
		ids = append(ids, int32(b))
	}
	return ids
}
func (f fakeTokens) EncodeSegments(segs []tokenizer.Segment, o tokenizer.Options) (ids []int32) {
	for _, s := range segs {
		ids = append(ids, f.Encode(s.Text, o)...)
	}
	return ids
}
func (f fakeTokens) Decode(ids []int32, skipSpecial bool) string {
	var b []byte
	for _, id := range ids {
		if !skipSpecial || !f.IsSpecial(id) {
			b = append(b, f.TokenBytes(id)...)
		}
	}
	return string(b)
}

// fakeDevice is the reference device with faults to order.
type fakeDevice struct {
	kernels.Device
	before func() error // called by End; may panic or wait
}

func (d *fakeDevice) End() error {
	err := d.Device.End()
	if d.before != nil {
		if err2 := d.before(); err2 != nil {
			return err2
		}
	}
	return err
}

var fakeNames = []string{"a", "b", "c"}

// fakeOptions are those of an engine over fake models a, b and c (seeds 1, 2 and 3).
func fakeOptions() Options {
	o := Options{
		Device: "ref", KVMemory: 64 << 20, MaxBatchedTokens: 64, MaxNumSeqs: 32,
		Log:  slog.New(slog.NewTextHandler(io.Discard, nil)),
		wrap: func(d kernels.Device) kernels.Device { return &fakeDevice{d, nil} },
	}
	for _, name := range fakeNames {
		o.Models = append(o.Models, ModelSpec{Name: name, Path: "."})
	}
	o.loadWeights = func(_ kernels.Device, m *model) (models.Model, error) {
		f := *m.impl.(*fakeModel)
		f.gone = false
		return &f, nil
	}
	o.loadModel = func(_ kernels.Device, m *model) error {
		m.impl, m.tok = &fakeModel{seed: uint64(m.index + 1)}, fakeTokens{}
		m.vocab, m.padded, m.maxPosition, m.ends = fakeVocab, fakePadded, 4096, []int32{fakeEnd}
		m.info.Vocab, m.info.EndTokens = fakeVocab, m.ends
		return nil
	}
	return o
}

// openFake opens an engine over the fake models.
func openFake(t *testing.T, change func(*Options), before func() error) *Engine {
	t.Helper()
	o := fakeOptions()
	o.wrap = func(d kernels.Device) kernels.Device { return &fakeDevice{d, before} }
	overlap := overlapping
	o.Overlap = &overlap
	if change != nil {
		change(&o)
	}
	e, err := Open(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

// answer is what came of one sequence.
type answer struct {
	text   string
	tokens []int32
	all    []Token
	prompt []Token
	final  Event
	finals int
}

// gather ranges over a request's events and checks what holds for all of them.
func gather(t *testing.T, e *Engine, r Request) []answer {
	t.Helper()
	events, err := e.Generate(context.Background(), r)
	if err != nil {
		t.Errorf("Generate: %v", err)
		return make([]answer, max(r.N, 1))
	}
	out := make([]answer, max(r.N, 1))
	for ev := range events {
		a := &out[ev.Index]
		if a.finals > 0 {
			t.Errorf("sequence %d: an event after the final one: %+v", ev.Index, ev)
		}
		a.text += ev.Text
		for _, tok := range ev.Tokens {
			a.tokens = append(a.tokens, tok.ID)
			a.all = append(a.all, tok)
		}
		if ev.Prompt != nil {
			a.prompt = ev.Prompt
		}
		if ev.Finish != FinishNone {
			a.finals++
			a.final = ev
		}
	}
	for i, a := range out {
		if a.finals != 1 {
			t.Errorf("sequence %d: %d final events", i, a.finals)
		}
		if a.final.Usage.Completion != len(a.tokens) {
			t.Errorf("sequence %d: usage counts %d tokens, %d came", i, a.final.Usage.Completion, len(a.tokens))
		}
	}
	return out
}

// idle waits until nothing runs and checks that nothing is left.
func idle(t *testing.T, e *Engine) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for {
		live, open := 0, 0
		for _, m := range e.Stats().Models {
			live += m.LiveBlocks + m.LiveStates
			open += m.Running + m.Waiting
		}
		if live == 0 && open == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d blocks live, %d sequences left: %+v", live, open, e.Stats())
		}
		e.signal()
		time.Sleep(time.Millisecond)
	}
}

// fault makes the device fail once at a chosen step.
type fault struct {
	mu    sync.Mutex
	steps int
	at    int
	f     func() error
}

func (f *fault) before() error {
	f.mu.Lock()
	f.steps++
	hit := f.steps == f.at
	f.mu.Unlock()
	if hit {
		return f.f()
	}
	return nil
}

var errFault = errors.New("the device caught fire")
