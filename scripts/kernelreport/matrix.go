package main

import (
	"fmt"
	"log"

	"github.com/openinfer-go/openinfer/kernels/sim"
	"github.com/openinfer-go/openinfer/scripts/kernelreport/cost"
)

// The speed-test matrix of ../shared/fleet.md, section C: contexts, requests at once, and what vLLM 0.32.0 reached there.
var (
	contexts    = []int{0, 16 << 10, 32 << 10, 56 << 10}
	requests    = []int{1, 2, 4, 8, 16, 32, 64, 128}
	vllm        = [][]float64{{48.2, 89.4, 172.1, 329.4}, {46.6, 86.2}, {45.3}, {43.5}}
	vllmPrefill = map[int]float64{8 << 10: 2163, 16 << 10: 2039, 32 << 10: 1871, 56 << 10: 1664}
)

const (
	outputMost  = 8192 // tokens that a cell's requests may be answered with
	outputMean  = 700  // tokens behind the prompt at half of a cell's 30 s
	chunk       = 2048 // tokens of a prompt in a step
	scratchRoom = 600 << 20
)

// cell is one of the matrix.
type cell struct {
	context, requests int
	fits              bool
	tokens            float64 // a second, of all requests together
	limit             float64 // the same, if memory were read at its full rate and nothing else took time
}

// matrix are the cells, the prompts, and what they follow from.
type matrix struct {
	cells     [][]cell
	prefill   map[int]float64 // tokens a second by length of prompt
	half      map[int]float64 // the same with sums in fp16
	single8   float64         // one stream, a short context
	single4   float64         // with a 4-bit head
	weights   int64           // bytes
	token     int64           // bytes of cache a token
	state     int64           // and a sequence
	room      int64           // bytes for both
	steps     map[int][]cost.Estimate
	launches  int
	stepBytes float64
}

func newMatrix(s *cost.Subject, entries map[string]cost.Entry) (*matrix, error) {
	m := &matrix{weights: s.Model.Shape().WeightBytes, steps: map[int][]cost.Estimate{}}
	for _, g := range s.Model.Groups() {
		if g.ConvChannels > 0 {
			m.state += int64(g.Layers) * (int64(g.Heads)*int64(g.KDim)*int64(g.VDim) + int64(g.ConvChannels)*int64(g.ConvColumns)) * 4
			continue
		}
		m.token += int64(g.Layers) * int64(g.Heads) * int64(g.KDim+g.VDim+4) // codes of a byte, two scales of two
	}
	m.room = cost.Card.MemoryBytes - sim.ReserveBytes - m.weights - scratchRoom
	for _, context := range contexts {
		var line []cell
		for _, n := range requests {
			c := cell{context: context, requests: n}
			c.fits = int64(n)*(int64(context+outputMost)*m.token+m.state) <= m.room
			if c.fits {
				log.Printf("%d requests after %d tokens", n, context)
				launches, err := s.Step(cost.Decoding(n, context+outputMean))
				if err != nil {
					return nil, err
				}
				es := cost.PredictAll(launches, entries)
				c.tokens = float64(n) / cost.Total(es)
				moved := m.weights + int64(n)*(int64(context+outputMean)*m.token+2*m.state)
				c.limit = float64(n) / (float64(moved) / cost.Card.Bandwidth)
				if context == 0 {
					m.steps[n] = es
				}
			}
			line = append(line, c)
		}
		m.cells = append(m.cells, line)
	}
	m.single8 = m.cells[0][0].tokens
	m.launches = len(m.steps[1])
	for _, e := range m.steps[1] {
		m.stepBytes += e.DRAM
	}
	four, err := cost.Open(s.Name, 4, false, s.Meter.Budget)
	if err != nil {
		return nil, err
	}
	defer four.Close()
	launches, err := four.Step(cost.Decoding(1, outputMean))
	if err != nil {
		return nil, err
	}
	m.single4 = 1 / cost.Total(cost.PredictAll(launches, entries))

	if m.prefill, err = prefill(s, entries); err != nil {
		return nil, err
	}
	half, err := cost.Open(s.Name, 8, true, s.Meter.Budget)
	if err != nil {
		return nil, err
	}
	defer half.Close()
	m.half, err = prefill(half, entries)
	return m, err
}

// prefill predicts tokens a second of a prompt alone, by its length. A chunk's time grows with what is before it in
// proportion: two chunks say how.
func prefill(s *cost.Subject, entries map[string]cost.Entry) (map[int]float64, error) {
	var at [2]float64
	starts := [2]int{0, 48 << 10}
	for i, start := range starts {
		log.Printf("%d tokens of a prompt after %d", chunk, start)
		launches, err := s.Step([]cost.Row{{Start: start, N: chunk}})
		if err != nil {
			return nil, err
		}
		at[i] = cost.Total(cost.PredictAll(launches, entries))
	}
	rates := map[int]float64{}
	for length := range vllmPrefill {
		seconds := 0.0
		for start := 0; start < length; start += chunk {
			seconds += at[0] + (at[1]-at[0])*float64(start)/float64(starts[1])
		}
		rates[length] = float64(length) / seconds
	}
	return rates, nil
}

// filled counts the cells that the memory holds.
func (m *matrix) filled() (n int) {
	for _, line := range m.cells {
		for _, c := range line {
			if c.fits {
				n++
			}
		}
	}
	return n
}

func contextName(n int) string { return fmt.Sprintf("%dK", n>>10) }
