package main

import (
	"fmt"

	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/kernels/cuda"
	"github.com/openinfer-go/openinfer/models"
	"github.com/openinfer-go/openinfer/models/checkpoint"
	"github.com/openinfer-go/openinfer/models/configs"
	"github.com/openinfer-go/openinfer/models/registry"
)

// row is one sequence of a step: n tokens after start.
type row struct{ start, n int }

func decoding(streams, context int) []row {
	rows := make([]row, streams)
	for i := range rows {
		rows[i] = row{context, 1}
	}
	return rows
}

// subject is a model without values on a metered card.
type subject struct {
	name    string
	meter   *meter
	device  *blank
	model   models.Model
	pages   kernels.Buffer
	scratch kernels.Buffer
}

// blank is the device, with weights that have no values: those of one shape are one.
type blank struct {
	*cuda.Device
	meter    *meter
	headBits int
	kept     map[string]*kernels.Weight
}

// fewRows is what a table that is only looked up is cut to.
const fewRows = 64

// Load implements kernels.Device.
func (b *blank) Load(parts ...kernels.Matrix) (*kernels.Weight, error) {
	key, rows := "", 0
	for i := range parts {
		p := &parts[i]
		rows += p.N
		if p.Name == "lm_head.weight" || p.Name == "model.embed_tokens.weight" && !p.LookedUp {
			if p.Bits = b.headBits; p.Bits == 4 {
				p.Group = 128
			}
		}
		if p.LookedUp {
			p.N = min(p.N, fewRows)
		}
		p.Read = func(r *kernels.Rows, _, _ int) error {
			clear(r.Codes)
			clear(r.Scale)
			clear(r.Zero)
			clear(r.Min)
			clear(r.Float)
			return nil
		}
		key += fmt.Sprint(p.N, p.K, p.Bits, p.Group, p.HasMin, p.Symmetric, p.Type, p.ScaleType, p.LookedUp, p.Bias != nil, p.Perm, ";")
	}
	if w := b.kept[key]; w != nil {
		return w, nil
	}
	b.meter.loading = true
	w, err := b.Device.Load(parts...)
	b.meter.loading = false
	if err != nil {
		return nil, err
	}
	w.N = rows
	b.kept[key] = w
	return w, nil
}

// Layers of one shape cost the same: the cache of the first stands for all, so that their launches are equal.

// RotaryStore implements kernels.Device.
func (b *blank) RotaryStore(q kernels.Tensor, kv kernels.KV, qkv kernels.Tensor, p kernels.RotaryParams) {
	kv.Layer = 0
	b.Device.RotaryStore(q, kv, qkv, p)
}

// Attention implements kernels.Device.
func (b *blank) Attention(dst, q kernels.Tensor, kv kernels.KV, rows kernels.Ragged, p kernels.AttentionParams) {
	kv.Layer = 0
	b.Device.Attention(dst, q, kv, rows, p)
}

// CausalConv implements kernels.Device.
func (b *blank) CausalConv(dst, x, w kernels.Tensor, s kernels.State) {
	s.Layer = 0
	b.Device.CausalConv(dst, x, w, s)
}

// GatedDelta implements kernels.Device.
func (b *blank) GatedDelta(dst, qkv, alpha, beta kernels.Tensor, p kernels.DeltaParams, s kernels.State) {
	s.Layer = 0
	b.Device.GatedDelta(dst, qkv, alpha, beta, p, s)
}

// Unload implements kernels.Device: the memory goes with the device.
func (b *blank) Unload(*kernels.Weight) {}

// open loads a model of models/configs with an output layer of so many bits.
func open(name string, headBits int, budget uint64) (*subject, error) {
	raw, ok := configs.Open(name)
	if !ok {
		return nil, fmt.Errorf("there is no such config")
	}
	c, err := checkpoint.OpenConfigBytes(name, raw)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	s := &subject{name: name, meter: newMeter(budget)}
	d, err := cuda.Open(s.meter, cuda.Options{WorkspaceBytes: 256 << 20, StepBytes: 64 << 20})
	if err != nil {
		return nil, err
	}
	s.device = &blank{Device: d, meter: s.meter, headBits: headBits, kept: map[string]*kernels.Weight{}}
	s.model, err = registry.Load(c, s.device)
	return s, err
}

func (s *subject) close() { s.device.Close() }

// Block and page of the cache: as the engine cuts them for one model.
const (
	blockTokens = 16
	pageBytes   = 8 << 20
)

// step issues a step that samples one token of each row, and returns its launches.
func (s *subject) step(rows []row) ([]*launch, error) {
	d, shape := s.device, s.model.Shape()
	var ids, positions, contexts, regimes []int32
	starts := []int32{0}
	for _, r := range rows {
		for i := range r.n {
			ids, positions = append(ids, 0), append(positions, int32(r.start+i))
		}
		starts, contexts = append(starts, int32(len(ids))), append(contexts, int32(r.start+r.n))
		regime := int32(0)
		for _, limit := range shape.Regimes {
			if r.start+r.n > limit {
				regime++
			}
		}
		regimes = append(regimes, regime)
	}
	s.meter.launches = nil
	d.Begin()
	up := func(v []int32) kernels.Ints { return d.Upload(kernels.Ints{Host: v}) }
	b := &models.Batch{TokenIDs: up(ids), Positions: up(positions), Ragged: kernels.Ragged{Starts: up(starts), Contexts: up(contexts)}}
	s.meter.contexts, s.meter.rows = b.Ragged.Contexts.Addr, rows
	if len(shape.Regimes) > 0 {
		b.Regimes = regimes
	}
	next := int32(1) // page 0 is nobody's
	var groups []models.GroupBatch
	for _, g := range s.model.Groups() {
		if g.Kind == models.Recurrent {
			l := &kernels.StateLayout{Layers: g.Layers, Heads: g.Heads, KDim: g.KDim, VDim: g.VDim, ConvChannels: g.ConvChannels, ConvColumns: g.ConvColumns, PageBytes: pageBytes}
			var in []int32
			for range len(rows) * l.StatePages() {
				in, next = append(in, next), next+1
			}
			groups = append(groups, models.GroupBatch{State: l, Runs: kernels.Runs{Starts: up(starts), In: up(in), Out: up(in)}})
			continue
		}
		l := &kernels.CacheLayout{DType: kernels.F8E4M3, Layers: g.Layers, Heads: g.Heads, KDim: g.KDim, VDim: g.VDim, BlockTokens: blockTokens, PageBytes: pageBytes}
		l.BlockBytes = (l.TokenBytes()*blockTokens + 63) / 64 * 64
		l.BlocksPerPage = int(l.PageBytes / l.BlockBytes)
		if l.BlocksPerPage == 0 {
			return nil, fmt.Errorf("a block of %d bytes is more than a page", l.BlockBytes)
		}
		stride := 0
		for _, r := range rows {
			stride = max(stride, (r.start+r.n+blockTokens-1)/blockTokens)
		}
		tables := make([]int32, stride*len(rows))
		var slots []int32
		block := next * int32(l.BlocksPerPage)
		for i, r := range rows {
			for k := range (r.start + r.n + blockTokens - 1) / blockTokens {
				tables[i*stride+k], block = block, block+1
			}
			for p := r.start; p < r.start+r.n; p++ {
				slots = append(slots, tables[i*stride+p/blockTokens]*blockTokens+int32(p%blockTokens))
			}
		}
		next = block/int32(l.BlocksPerPage) + 1
		groups = append(groups, models.GroupBatch{Layout: l, Slots: up(slots), Tables: up(tables), Stride: stride})
	}
	if err := s.room(&s.pages, int64(next)*pageBytes); err != nil {
		return nil, err
	}
	for i := range groups {
		groups[i].Pages = s.pages
	}
	b.Groups = groups
	logits := int64(len(rows)) * int64(shape.Vocab) * 4
	scratch := (s.model.ScratchBytes(len(ids), len(rows)) + 255) &^ 255
	if err := s.room(&s.scratch, scratch+logits); err != nil {
		return nil, err
	}
	hidden := s.model.Forward(d, b, kernels.Buffer{Addr: s.scratch.Addr, Len: scratch})
	last := make([]int32, len(rows))
	for i := range last {
		last[i] = starts[i+1] - 1
	}
	to := kernels.Tensor{Buf: kernels.Buffer{Addr: s.scratch.Addr + uint64(scratch), Len: logits}, Rows: len(rows), Cols: shape.Vocab, Stride: shape.Vocab}
	s.model.Head(d, to, hidden, up(last), kernels.Buffer{Addr: s.scratch.Addr, Len: scratch})
	params := make([]kernels.SampleParams, len(rows))
	for i := range params {
		params[i].Given, params[i].Logprobs = -1, -1 // temperature 0
	}
	d.Sample(make([]kernels.Sampled, len(rows)), to, shape.Vocab, params)
	return s.meter.launches, d.End()
}

// room sees to it that b has so many bytes.
func (s *subject) room(b *kernels.Buffer, bytes int64) (err error) {
	if b.Len >= bytes {
		return nil
	}
	s.device.Free(*b)
	*b, err = s.device.Alloc(bytes)
	return err
}
