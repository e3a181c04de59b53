package main

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/openinfer-go/openinfer/kernels/cuda"
	"github.com/openinfer-go/openinfer/kernels/cuda/driver"
	"github.com/openinfer-go/openinfer/scripts/kernelreport/cost"
)

// plan says what is checked, and how long.
type plan struct {
	models    []model
	steps     []stepShape
	headBits  int
	copyBytes int64   // of each of the two buffers of the card's own copy
	cold      int64   // bytes of weights of one shape that differ in place, more than the card's cache
	loops     int     // of mma
	blocks    int     // of the card's own rates; 0: by the card
	list      int     // launches of a timed graph, at least
	ms        float64 // that a measurement takes, at least
	budget    uint64  // lane instructions of a launch that is counted for its prediction
}

type model struct {
	name   string
	config []byte
}

type stepShape struct {
	name string
	rows []cost.Row
}

// tokens is how many tokens of the step a client counts: those that are sampled, or those of the prompt.
func (s stepShape) tokens() (n int) {
	for _, r := range s.rows {
		n += r.N
	}
	return n
}

// kernelRow is one kernel with one grid in one step.
type kernelRow struct {
	Model       string  `json:"model"`
	Step        string  `json:"step"`
	Kernel      string  `json:"kernel"`
	Grid        [3]int  `json:"grid"`
	Block       [3]int  `json:"block"`
	SharedBytes int     `json:"shared_bytes"`
	Launches    int     `json:"launches"`
	Seconds     float64 `json:"seconds"`             // of one launch
	Predicted   float64 `json:"predicted_seconds"`   // on the card of docs/kernels.md
	LimitedBy   string  `json:"predicted_limit"`     // what limits it there
	Bytes       float64 `json:"bytes_per_second"`    // counted bytes over the time measured
	Operations  float64 `json:"operations_a_second"` // on tensor cores, likewise
}

// stepRow is a whole step.
type stepRow struct {
	Model     string  `json:"model"`
	Step      string  `json:"step"`
	Tokens    int     `json:"tokens"`
	Seconds   float64 `json:"seconds"`
	Predicted float64 `json:"predicted_seconds"`
	Graphs    int     `json:"graphs_launched"`
}

func (s *stepRow) perSecond() float64          { return float64(s.Tokens) / s.Seconds }
func (s *stepRow) predictedPerSecond() float64 { return float64(s.Tokens) / s.Predicted }

// kind is what launches have in common that are timed together.
type kind struct {
	name        string
	grid, block [3]int
	sharedBytes int
}

// counted are the metered launches of each step of a model, in the plan's order.
type counted [][]*cost.Launch

// count meters a model's steps on the interpreter.
func count(m model, p plan) (counted, error) {
	s, err := cost.Metered(m.name, m.config, p.headBits, p.budget)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	var c counted
	for _, step := range p.steps {
		launches, err := s.Step(step.rows)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", step.name, err)
		}
		c = append(c, slices.Clone(launches))
	}
	return c, nil
}

// checkModel times a model's steps and their kernels on a card.
func checkModel(drv driver.Driver, card int, m model, c counted, p plan) (kernels []kernelRow, steps []stepRow, err error) {
	r := &recorder{Driver: drv, names: map[driver.Function]string{}}
	s, err := cost.OnCard(m.name, m.config, p.headBits, r, card, p.cold)
	if err != nil {
		return nil, nil, err
	}
	defer s.Close()
	for i, step := range p.steps {
		row, err := timeStep(s, r, step, p)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", step.name, err)
		}
		registers := map[string]cost.Entry{}
		for _, l := range r.launches {
			// Without them (the interpreter knows none) the prediction takes it that they limit nothing.
			n, _ := drv.FunctionAttribute(l.f, driver.Registers)
			registers[l.name] = cost.Entry{Registers: n}
		}
		predicted := cost.PredictAll(c[i], registers)
		row.Model, row.Predicted = m.name, cost.Total(predicted)
		steps = append(steps, row)
		rows, err := timeKernels(r, predicted, p)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", step.name, err)
		}
		for _, k := range rows {
			k.Model, k.Step = m.name, step.name
			kernels = append(kernels, k)
		}
	}
	return kernels, steps, nil
}

// timeStep runs a step until it comes as graphs, and then for as long as the plan says. r has its launches afterwards.
func timeStep(s *cost.Subject, r *recorder, step stepShape, p plan) (stepRow, error) {
	row := stepRow{Step: step.name, Tokens: step.tokens()}
	run := func() error {
		_, err := s.Step(step.rows)
		return err
	}
	r.launches = nil
	r.on = true
	err := run() // launch by launch, as nothing came before it
	r.on = false
	if err != nil {
		return row, err
	}
	if err := run(); err != nil { // is captured
		return row, err
	}
	before := s.Graphs()
	start, n := time.Now(), 0
	for n == 0 || n < repetitionsMost && float64(time.Since(start).Microseconds()) < p.ms*5e3 {
		if err := run(); err != nil {
			return row, err
		}
		n++
	}
	row.Seconds = time.Since(start).Seconds() / float64(n)
	row.Graphs = s.Graphs() - before
	return row, nil
}

// timeKernels times what was recorded, alike launches together, the longest first.
func timeKernels(r *recorder, predicted []cost.Estimate, p plan) (rows []kernelRow, err error) {
	if err := r.SetContext(r.ctx); err != nil {
		return nil, err
	}
	t, err := newTimer(r.Driver, p.list, p.ms)
	if err != nil {
		return nil, err
	}
	defer t.close()
	alike := map[kind][]recorded{}
	var kinds []kind
	for _, l := range r.launches {
		k := kind{l.name, l.grid, l.block, l.sharedBytes}
		if alike[k] == nil {
			kinds = append(kinds, k)
		}
		alike[k] = append(alike[k], l)
	}
	expected := map[kind][]cost.Estimate{}
	for _, e := range predicted {
		k := kind{e.Launch.Entry, e.Grid, e.Block, e.SharedBytes}
		expected[k] = append(expected[k], e)
	}
	for _, k := range kinds {
		row := kernelRow{Kernel: k.name, Grid: k.grid, Block: k.block, SharedBytes: k.sharedBytes, Launches: len(alike[k])}
		if row.Seconds, err = t.seconds(alike[k]); err != nil {
			return nil, err
		}
		// A card with more multiprocessors may have other grids, of which nothing is predicted.
		if es := expected[k]; len(es) > 0 {
			bytes, operations := 0.0, 0.0
			for _, e := range es {
				row.Predicted += e.Seconds / float64(len(es))
				bytes += e.DRAM / float64(len(es))
				operations += e.Operations() / float64(len(es))
			}
			row.LimitedBy = es[0].By.String()
			row.Bytes, row.Operations = bytes/row.Seconds, operations/row.Seconds
		}
		rows = append(rows, row)
	}
	slices.SortStableFunc(rows, func(a, b kernelRow) int {
		return cmp.Compare(float64(b.Launches)*b.Seconds, float64(a.Launches)*a.Seconds)
	})
	return rows, nil
}

// describe says what the card is, and whether the kernels run on it.
func describe(drv driver.Driver, card int) (cuda.Card, error) {
	cards, unusable, err := cuda.Cards(drv)
	if err != nil {
		return cuda.Card{}, err
	}
	if card < 0 || card >= len(cards) {
		return cuda.Card{}, fmt.Errorf("no card %d: the driver has %d", card, len(cards))
	}
	return cards[card], unusable[card]
}
