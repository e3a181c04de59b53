package engine

import (
	"strings"
	"sync"

	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/kernels/cpu"
	"github.com/openinfer-go/openinfer/kernels/cuda"
	"github.com/openinfer-go/openinfer/kernels/sim"
	"github.com/openinfer-go/openinfer/models"
	"github.com/openinfer-go/openinfer/sched"
)

// What a device's data sheet says of steps' times, before any has run: the model's own forward pass is issued
// on a sim.Meter, which only adds up what its operators cost.

// stepRow is one sequence of an imagined step: n tokens after start.
type stepRow struct{ start, n int }

// stopwatch tells how long steps of a model take.
type stopwatch struct {
	meter  *sim.Meter
	model  models.Model
	shape  models.Shape
	cut    cut
	batch  models.Batch
	starts []int32
}

// newStopwatch takes the weights of any device: their shapes and sizes count, not what is in them.
func newStopwatch(m models.Model, kv kernels.DType, spec sim.Spec) *stopwatch {
	c := cutCache(m.Groups(), kv)
	return &stopwatch{meter: sim.NewMeter(spec), model: m, shape: m.Shape(), cut: c.inPages(smallestPage([]cut{c}))}
}

// seconds is the time of a step that samples one token of each row.
func (w *stopwatch) seconds(rows []stepRow) float64 {
	w.build(rows)
	w.meter.Begin()
	hidden := w.model.Forward(w.meter, &w.batch, kernels.Buffer{})
	for from := 0; from < len(rows); from += headTile {
		n := min(headTile, len(rows)-from)
		tile := kernels.Tensor{Rows: n, Cols: w.shape.Vocab, Stride: w.shape.Vocab}
		last := kernels.Ints{Host: w.starts[from+1 : from+n+1]}
		w.model.Head(w.meter, tile, hidden, last, kernels.Buffer{})
		w.meter.Sample(make([]kernels.Sampled, n), tile, w.shape.Vocab, make([]kernels.SampleParams, n))
	}
	return w.meter.Elapsed()
}

// build makes the batch of the rows. Only what decides time is filled in: neither ids nor blocks.
func (w *stopwatch) build(rows []stepRow) {
	b := &w.batch
	w.starts = append(w.starts[:0], 0)
	var contexts, regimes, in []int32
	for _, r := range rows {
		w.starts = append(w.starts, w.starts[len(w.starts)-1]+int32(r.n))
		contexts = append(contexts, int32(r.start+r.n))
		regime := int32(0)
		for _, limit := range w.shape.Regimes {
			if r.start+r.n > limit {
				regime++
			}
		}
		regimes = append(regimes, regime)
		for range w.cut.statePages() {
			in = append(in, int32(min(r.start, 1))) // page 0: there is no state yet
		}
	}
	tokens := int(w.starts[len(rows)])
	b.TokenIDs = kernels.Ints{Host: make([]int32, tokens)}
	b.Positions = b.TokenIDs
	starts := kernels.Ints{Host: w.starts}
	b.Ragged = kernels.Ragged{Starts: starts, Contexts: kernels.Ints{Host: contexts}}
	b.Regimes = regimes
	b.Groups = b.Groups[:0]
	for i, g := range w.cut.groups {
		if g.Kind == models.Recurrent {
			b.Groups = append(b.Groups, models.GroupBatch{State: w.cut.state, Runs: kernels.Runs{Starts: starts, In: kernels.Ints{Host: in}}})
		} else {
			b.Groups = append(b.Groups, models.GroupBatch{Layout: &w.cut.layouts[i]})
		}
	}
}

// work is what the scheduler knows of such a step.
func work(rows []stepRow) sched.Work {
	w := sched.Work{Rows: len(rows), Samples: len(rows)}
	for _, r := range rows {
		w.Tokens += r.n
		sum := int64(r.n)*int64(r.start) + int64(r.n)*int64(r.n+1)/2 // of what each token attends to
		if r.n == 1 {
			w.Context += sum
		} else {
			w.PromptContext += sum
		}
	}
	return w
}

// stepTimes are the times of steps of all kinds that the model's context and so many tokens in a step allow: decoding,
// parts of prompts, and both.
func stepTimes(m models.Model, kv kernels.DType, spec sim.Spec, mostTokens int) []sched.Observation {
	w := newStopwatch(m, kv, spec)
	var out []sched.Observation
	observe := func(rows ...stepRow) {
		tokens, context := 0, 0
		for _, r := range rows {
			tokens, context = tokens+r.n, max(context, r.start+r.n)
		}
		if tokens <= mostTokens && context <= w.shape.MaxPosition {
			out = append(out, sched.Observation{Work: work(rows), Seconds: w.seconds(rows)})
		}
	}
	decoding := func(n, start int) []stepRow {
		rows := make([]stepRow, n)
		for i := range rows {
			rows[i] = stepRow{start, 1}
		}
		return rows
	}
	for _, start := range []int{0, 1 << 10, 4 << 10, 16 << 10} {
		for n := 1; n <= 64; n *= 2 {
			observe(decoding(n, start)...)
		}
	}
	for _, start := range []int{0, 4 << 10, 16 << 10} {
		for n := 16; n <= 2048; n *= 2 {
			observe(stepRow{start, n})
		}
	}
	for _, n := range []int{4, 32} {
		for _, prompt := range []int{64, 512} {
			observe(append(decoding(n, 1<<10), stepRow{0, prompt})...)
		}
	}
	return out
}

// What the processor's kernels reach, from docs/bench-cpu.md: a single stream reads weights at 76 % of the bandwidth,
// and prompts of the 1B shape run at 101 tokens a second on two cores, at 2 GOP a token. Floats run at about a quarter.
// Observations soon correct all of it.
const (
	cpuBandwidthShare = 0.76

	cpuInt8Rate  = 100e9
	cpuFloatRate = 25e9
)

// readBandwidth is measured once for a number of threads.
var readBandwidth = struct {
	sync.Mutex
	of map[int]float64
}{of: map[int]float64{}}

// spec describes the engine's device; false: nothing is known of it.
func (e *Engine) spec() (sim.Spec, bool) {
	if card, ok := strings.CutPrefix(e.options.Device, simPrefix); ok {
		s, err := sim.Find(card)
		return s, err == nil
	}
	if d, ok := e.device.(*cuda.Device); ok && e.options.Device != ptxDevice {
		return cardSpec(d.Card())
	}
	info := e.device.Info()
	if info.Name != "cpu" {
		return sim.Spec{}, false
	}
	threads := max(info.Threads, 1)
	readBandwidth.Lock()
	defer readBandwidth.Unlock()
	bandwidth, ok := readBandwidth.of[threads]
	if !ok {
		var err error
		if bandwidth, err = cpu.ReadBandwidth(threads); err != nil {
			e.log.Warn("the memory's bandwidth is not known: the first steps' times are not predicted", "error", err)
			return sim.Spec{}, false
		}
		readBandwidth.of[threads] = bandwidth
	}
	s := sim.Host(info.Description, bandwidth, float64(threads)*cpuFloatRate, float64(threads)*cpuInt8Rate)
	s.BandwidthShare = cpuBandwidthShare
	if e.options.Exact {
		s.Coded = sim.Acc32
	}
	return s, true
}

// prior is what the scheduler is told of a model's steps before the first; nil: nothing.
func (e *Engine) prior(m *model) []sched.Observation {
	spec, ok := e.spec()
	if !ok {
		return nil
	}
	kv, err := KVCacheType(m.spec.KVCacheDType, e.device.Info().KVTypes...)
	if err != nil {
		return nil
	}
	return stepTimes(m.impl, kv, spec, e.options.MaxBatchedTokens)
}
