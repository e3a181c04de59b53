package cost

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/kernels/cuda"
	"github.com/openinfer-go/openinfer/kernels/cuda/driver"
	"github.com/openinfer-go/openinfer/models"
	"github.com/openinfer-go/openinfer/models/checkpoint"
	"github.com/openinfer-go/openinfer/models/configs"
	"github.com/openinfer-go/openinfer/models/registry"
)

// Row is one sequence of a step: N tokens after Start.
type Row struct{ Start, N int }

// Decoding is a step of one token for each of so many sequences, after context tokens.
func Decoding(streams, context int) []Row {
	rows := make([]Row, streams)
	for i := range rows {
		rows[i] = Row{context, 1}
	}
	return rows
}

// Subject is a model without a checkpoint, on a metered card or on a real one.
type Subject struct {
	Name    string
	Meter   *meter // nil on a real card
	device  *blank
	Model   models.Model
	pages   kernels.Buffer
	scratch kernels.Buffer
}

// blank is the device, with weights that come from no file. Those of one shape are one on a metered card, where they have no
// values; on a real one they are as many as the card's cache cannot hold, and take turns.
type blank struct {
	*cuda.Device
	meter    *meter // nil on a real card
	headBits int
	cold     int64 // bytes of one shape that are loaded before weights are used again
	kept     map[string]*kin
}

// kin are the weights of one shape.
type kin struct {
	weights []*kernels.Weight
	bytes   int64
	next    int
}

// noise is what weights on a real card are filled with: a card at work on zeros takes less power, and clocks higher.
var noise = func() (b [1 << 16]byte) {
	rand.NewChaCha8([32]byte{}).Read(b[:])
	return b
}()

// fill gives rows values: codes of all sizes, products about as large as their factors.
func fill(r *kernels.Rows, m kernels.Matrix) {
	mask := byte(1<<m.Bits - 1)
	for i := range r.Codes {
		r.Codes[i] = noise[i%len(noise)] & mask
	}
	middle := float64(uint(1) << max(m.Bits-1, 0))
	scale := float32(1 / (middle * math.Sqrt(float64(m.K))))
	for i := range r.Scale {
		r.Scale[i] = scale
	}
	for i := range r.Zero {
		r.Zero[i] = byte(middle)
	}
	for i := range r.Min {
		r.Min[i] = -scale * float32(middle)
	}
	for i := range r.Float {
		r.Float[i] = (float32(noise[i%len(noise)]) - 127.5) / 128 / float32(math.Sqrt(float64(m.K)))
	}
}

// fewRows is what a table that is only looked up is cut to.
const fewRows = 64

// Load implements kernels.Device.
func (b *blank) Load(parts ...kernels.Matrix) (*kernels.Weight, error) {
	key, rows, bytes := "", 0, int64(0)
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
		m := *p
		p.Read = func(r *kernels.Rows, _, _ int) error {
			if b.meter == nil {
				fill(r, m)
				return nil
			}
			clear(r.Codes)
			clear(r.Scale)
			clear(r.Zero)
			clear(r.Min)
			clear(r.Float)
			return nil
		}
		bits := p.Bits
		if bits == 0 {
			bits = 16
		}
		bytes += int64(p.N) * int64(p.K) * int64(bits) / 8
		key += fmt.Sprint(p.N, p.K, p.Bits, p.Group, p.HasMin, p.Symmetric, p.Type, p.ScaleType, p.LookedUp, p.Bias != nil, p.Perm, ";")
	}
	k := b.kept[key]
	if k == nil {
		k = &kin{}
		b.kept[key] = k
	}
	if len(k.weights) > 0 && k.bytes >= b.cold {
		k.next++
		return k.weights[k.next%len(k.weights)], nil
	}
	b.loading(true)
	w, err := b.Device.Load(parts...)
	b.loading(false)
	if err != nil {
		return nil, err
	}
	w.N = rows
	k.weights, k.bytes = append(k.weights, w), k.bytes+bytes
	return w, nil
}

// LoadVector implements kernels.Device: on a real card a vector is of ones, for norms that would make everything 0.
func (b *blank) LoadVector(v []float32) (kernels.Tensor, error) {
	if b.meter == nil {
		v = slices.Repeat([]float32{1}, len(v))
	}
	return b.Device.LoadVector(v)
}

func (b *blank) loading(on bool) {
	if b.meter != nil {
		b.meter.loading = on
	}
}

// Layers of one shape cost the same: on a metered card the cache of the first stands for all, so that their launches are equal.

func (b *blank) layer(n int) int {
	if b.meter != nil {
		return 0
	}
	return n
}

// RotaryStore implements kernels.Device.
func (b *blank) RotaryStore(q kernels.Tensor, kv kernels.KV, qkv kernels.Tensor, p kernels.RotaryParams) {
	kv.Layer = b.layer(kv.Layer)
	b.Device.RotaryStore(q, kv, qkv, p)
}

// Attention implements kernels.Device.
func (b *blank) Attention(dst, q kernels.Tensor, kv kernels.KV, rows kernels.Ragged, p kernels.AttentionParams) {
	kv.Layer = b.layer(kv.Layer)
	b.Device.Attention(dst, q, kv, rows, p)
}

// CausalConv implements kernels.Device.
func (b *blank) CausalConv(dst, x, w kernels.Tensor, s kernels.State) {
	s.Layer = b.layer(s.Layer)
	b.Device.CausalConv(dst, x, w, s)
}

// GatedDelta implements kernels.Device.
func (b *blank) GatedDelta(dst, qkv, alpha, beta kernels.Tensor, p kernels.DeltaParams, s kernels.State) {
	s.Layer = b.layer(s.Layer)
	b.Device.GatedDelta(dst, qkv, alpha, beta, p, s)
}

// Unload implements kernels.Device: the memory goes with the device.
func (b *blank) Unload(*kernels.Weight) {}

// Open loads a model of models/configs, with an output layer of so many bits, on a card that is metered; half: products sum in fp16
// (cuda.Options.HalfAccumulate).
func Open(name string, headBits int, half bool, budget uint64) (*Subject, error) {
	raw, ok := configs.Open(name)
	if !ok {
		return nil, fmt.Errorf("there is no such config")
	}
	m := newMeter(budget)
	return load(name, raw, m, &blank{meter: m, headBits: headBits}, cuda.Options{HalfAccumulate: half})
}

// Metered loads a model of this config.json on a card that is metered; a launch runs about budget lane instructions.
func Metered(name string, config []byte, headBits int, budget uint64) (*Subject, error) {
	m := newMeter(budget)
	return load(name, config, m, &blank{meter: m, headBits: headBits}, cuda.Options{})
}

// OnCard loads a model of this config.json on a card of drv. Of weights of one shape, cold bytes differ in place.
func OnCard(name string, config []byte, headBits int, drv driver.Driver, card int, cold int64) (*Subject, error) {
	return load(name, config, drv, &blank{headBits: headBits, cold: cold}, cuda.Options{Card: card})
}

func load(name string, config []byte, drv driver.Driver, b *blank, o cuda.Options) (*Subject, error) {
	c, err := checkpoint.OpenConfigBytes(name, config)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	o.WorkspaceBytes, o.StepBytes = 256<<20, 64<<20
	if b.Device, err = cuda.Open(drv, o); err != nil {
		return nil, err
	}
	b.kept = map[string]*kin{}
	s := &Subject{Name: name, Meter: b.meter, device: b}
	if s.Model, err = registry.Load(c, b); err != nil {
		b.Device.Close()
		return nil, err
	}
	return s, nil
}

// Close gives the card back.
func (s *Subject) Close() { s.device.Close() }

// Block and page of the cache: as the engine cuts them for one model.
const (
	blockTokens = 16
	pageBytes   = 8 << 20
)

// Step issues a step that samples one token of each row, and returns its launches where they are metered.
func (s *Subject) Step(rows []Row) ([]*Launch, error) {
	d, shape := s.device, s.Model.Shape()
	var ids, positions, contexts, regimes []int32
	starts := []int32{0}
	for _, r := range rows {
		for i := range r.N {
			ids, positions = append(ids, 0), append(positions, int32(r.Start+i))
		}
		starts, contexts = append(starts, int32(len(ids))), append(contexts, int32(r.Start+r.N))
		regime := int32(0)
		for _, limit := range shape.Regimes {
			if r.Start+r.N > limit {
				regime++
			}
		}
		regimes = append(regimes, regime)
	}
	d.Begin()
	up := func(v []int32) kernels.Ints { return d.Upload(kernels.Ints{Host: v}) }
	b := &models.Batch{TokenIDs: up(ids), Positions: up(positions), Ragged: kernels.Ragged{Starts: up(starts), Contexts: up(contexts)}}
	if m := s.Meter; m != nil {
		m.launches, m.contexts, m.rows = nil, b.Ragged.Contexts.Addr, rows
	}
	if len(shape.Regimes) > 0 {
		b.Regimes = regimes
	}
	next := int32(1) // page 0 is nobody's
	var groups []models.GroupBatch
	for _, g := range s.Model.Groups() {
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
			stride = max(stride, (r.Start+r.N+blockTokens-1)/blockTokens)
		}
		tables := make([]int32, stride*len(rows))
		var slots []int32
		block := next * int32(l.BlocksPerPage)
		for i, r := range rows {
			for k := range (r.Start + r.N + blockTokens - 1) / blockTokens {
				tables[i*stride+k], block = block, block+1
			}
			for p := r.Start; p < r.Start+r.N; p++ {
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
	scratch := (s.Model.ScratchBytes(len(ids), len(rows)) + 255) &^ 255
	if err := s.room(&s.scratch, scratch+logits); err != nil {
		return nil, err
	}
	hidden := s.Model.Forward(d, b, kernels.Buffer{Addr: s.scratch.Addr, Len: scratch})
	last := make([]int32, len(rows))
	for i := range last {
		last[i] = starts[i+1] - 1
	}
	to := kernels.Tensor{Buf: kernels.Buffer{Addr: s.scratch.Addr + uint64(scratch), Len: logits}, Rows: len(rows), Cols: shape.Vocab, Stride: shape.Vocab}
	s.Model.Head(d, to, hidden, up(last), kernels.Buffer{Addr: s.scratch.Addr, Len: scratch})
	params := make([]kernels.SampleParams, len(rows))
	for i := range params {
		params[i].Given, params[i].Logprobs = -1, -1 // temperature 0
	}
	d.Sample(make([]kernels.Sampled, len(rows)), to, shape.Vocab, params)
	err := d.End()
	if s.Meter == nil {
		return nil, err
	}
	return s.Meter.launches, err
}

// room sees to it that b has so many bytes.
func (s *Subject) room(b *kernels.Buffer, bytes int64) (err error) {
	if b.Len >= bytes {
		return nil
	}
	s.device.Free(*b)
	*b, err = s.device.Alloc(bytes)
	return err
}

// Graphs is how many graphs were launched so far.
func (s *Subject) Graphs() int { return s.device.GraphsLaunched() }
