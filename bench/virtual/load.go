package virtual

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/openinfer-go/openinfer/engine"
)

// Request is one request of a load.
type Request struct {
	At     time.Duration // since the beginning
	Model  string
	Prompt []int32
	Shared int // tokens of Prompt that all of the model begin with
	Output int // tokens of the answer
	SLA    engine.SLA
}

// Demand is one model's part of a load.
type Demand struct {
	Model string
	Share float64 // of the requests, relative to the other models'
	SLA   engine.SLA
}

// Mix describes requests. Lengths are drawn from log-normal distributions.
type Mix struct {
	Demands []Demand
	Prompt  int // mean tokens of a prompt, without what it shares
	Shared  int // tokens that all prompts of a model begin with, such as a system prompt
	Output  int // mean tokens of an answer
	// InTurn: the requests go through the models in order instead of drawing one.
	InTurn bool
}

// Load draws an open-loop load: requests come at rate a second for so long, whatever becomes of those before.
func (m Mix) Load(seed uint64, rate float64, length time.Duration) []Request {
	r := rand.New(rand.NewPCG(seed, 1))
	var total float64
	for _, d := range m.Demands {
		total += d.Share
	}
	shared := make([][]int32, len(m.Demands))
	for i := range shared {
		shared[i] = tokens(r, nil, m.Shared)
	}
	var out []Request
	for at := r.ExpFloat64() / rate; at < length.Seconds(); at += r.ExpFloat64() / rate {
		k := len(out) % len(m.Demands)
		if !m.InTurn {
			x := r.Float64() * total
			for k = 0; k < len(m.Demands)-1 && x >= m.Demands[k].Share; k++ {
				x -= m.Demands[k].Share
			}
		}
		d := m.Demands[k]
		out = append(out, Request{
			At: time.Duration(at * float64(time.Second)), Model: d.Model, SLA: d.SLA, Shared: m.Shared,
			Prompt: tokens(r, shared[k], logNormal(r, m.Prompt, 0.8)), Output: logNormal(r, m.Output, 0.5),
		})
	}
	return out
}

// logNormal draws a length of that mean, at least 1 and at most eight times the mean.
func logNormal(r *rand.Rand, mean int, sigma float64) int {
	x := float64(mean) * math.Exp(sigma*r.NormFloat64()-sigma*sigma/2)
	return int(min(max(x, 1), 8*float64(mean)))
}

// tokens returns head and n tokens after it, which are anything.
func tokens(r *rand.Rand, head []int32, n int) []int32 {
	out := append(make([]int32, 0, len(head)+n), head...)
	for range n {
		out = append(out, int32(r.IntN(1000)))
	}
	return out
}
