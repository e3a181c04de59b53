package fleet

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/openinfer-go/openinfer/bench/load"
)

// Scenario is an open-loop load on a fleet. Each model's requests come in waves: Waves times in Length their rate rises in
// a straight line, stays, and falls, and between the waves Floor of the requests come evenly.
type Scenario struct {
	Name    string
	Nodes   int
	Length  time.Duration
	Demands []Demand

	Waves int // of each model in Length
	// Width is the part of the time between two waves' beginnings that a wave takes, a third of it each for rise, top and
	// fall. With 1 and a Floor of 1 there are no waves.
	Width, Floor float64
	// Spread says how the models' waves lie to each other: 0 all at once, 1 evenly one after the other.
	Spread float64

	// PromptTokens, SharedTokens and OutputTokens are means: of a prompt beyond what it shares, of what all prompts of a model
	// begin with (exact), and of an answer.
	PromptTokens, SharedTokens, OutputTokens int
	// PromptSigma and OutputSigma are those of the logarithms: lengths are log-normal. 0: all are the mean.
	PromptSigma, OutputSigma float64
}

// Demand is one model's part of a load.
type Demand struct {
	Model string `json:"model"`
	// Times is the rate at a wave's top over what one dedicated node can do of the model; it is 0 where Requests were given.
	Times    float64 `json:"times"`
	Requests float64 `json:"requests"` // expected in Length
	SLA      SLA     `json:"sla"`
}

// SLA are the latencies that are sold; 0: any. TPOT is the mean of an answer.
type SLA struct {
	TTFT time.Duration `json:"ttft_ns"`
	TPOT time.Duration `json:"tpot_ns"`
}

// Met says whether an answer is sellable.
func (s SLA) Met(ttft, tpot time.Duration) bool {
	return (s.TTFT == 0 || ttft <= s.TTFT) && (s.TPOT == 0 || tpot <= s.TPOT)
}

// Request is one request of a scenario.
type Request struct {
	Due    time.Duration // since the beginning
	Demand int           // index in Scenario.Demands
	// PromptTokens is the whole prompt's length, of which the first SharedTokens are the model's.
	PromptTokens, SharedTokens int
	OutputTokens               int
	Seed                       uint64 // of what the prompt says beyond what it shares
}

// Times returns the scenario with so many times the requests.
func (s Scenario) Times(x float64) Scenario {
	s.Demands = slices.Clone(s.Demands)
	for i := range s.Demands {
		s.Demands[i].Requests *= x
		s.Demands[i].Times *= x
	}
	return s
}

// Filled returns the scenario with the Requests that Times makes of what one dedicated node can do of each model, in
// requests a second.
func (s Scenario) Filled(capacity []float64) Scenario {
	s.Demands = slices.Clone(s.Demands)
	for i := range s.Demands {
		s.Demands[i].Requests = s.Demands[i].Times * capacity[i] * s.Length.Seconds() / s.top()
	}
	return s
}

// top is the rate at the top of a wave over the mean rate. A trapezium with a top of a third has two thirds of its box.
func (s Scenario) top() float64 { return s.Floor + (1-s.Floor)*1.5/s.Width }

// WithSLA returns the scenario with targets that are so many times as long.
func (s Scenario) WithSLA(x float64) Scenario {
	s.Demands = slices.Clone(s.Demands)
	for i := range s.Demands {
		d := &s.Demands[i]
		d.SLA.TTFT, d.SLA.TPOT = time.Duration(x*float64(d.SLA.TTFT)), time.Duration(x*float64(d.SLA.TPOT))
	}
	return s
}

// Requests is how many are expected.
func (s Scenario) Requests() float64 {
	sum := 0.0
	for _, d := range s.Demands {
		sum += d.Requests
	}
	return sum
}

// Check says what is wrong with s.
func (s Scenario) Check() error {
	switch {
	case s.Nodes < 1:
		return fmt.Errorf("nodes: %d, want 1 or more", s.Nodes)
	case s.Length <= 0:
		return fmt.Errorf("length: %v, want more than 0", s.Length)
	case len(s.Demands) == 0:
		return errors.New("models: none")
	case s.Waves < 1:
		return fmt.Errorf("waves: %d, want 1 or more", s.Waves)
	case !(s.Width > 0 && s.Width <= 1):
		return fmt.Errorf("width: %g is not in (0, 1]", s.Width)
	case !(s.Floor >= 0 && s.Floor <= 1):
		return fmt.Errorf("floor: %g is not in [0, 1]", s.Floor)
	case !(s.Spread >= 0 && s.Spread <= 1):
		return fmt.Errorf("spread: %g is not in [0, 1]", s.Spread)
	case s.PromptTokens < 1 || s.SharedTokens < 0 || s.OutputTokens < 1:
		return fmt.Errorf("tokens: prompt %d, shared %d, output %d: want 1, 0 and 1 or more", s.PromptTokens, s.SharedTokens, s.OutputTokens)
	case !(s.PromptSigma >= 0 && s.PromptSigma <= 3) || !(s.OutputSigma >= 0 && s.OutputSigma <= 3):
		return fmt.Errorf("sigma: prompt %g, output %g: not in [0, 3]", s.PromptSigma, s.OutputSigma)
	}
	for _, d := range s.Demands {
		if !(d.Requests >= 0) || math.IsInf(d.Requests, 0) {
			return fmt.Errorf("model %s: %g requests", d.Model, d.Requests)
		}
	}
	return nil
}

// Rate is how many requests a second are offered to model k at t.
func (s Scenario) Rate(k int, t time.Duration) float64 {
	period := s.Length / time.Duration(s.Waves)
	mean := s.Demands[k].Requests / s.Length.Seconds()
	part := time.Duration(s.Width * float64(period) / 3)
	w := load.Waves{
		Low: s.Floor * mean, High: s.top() * mean,
		Rise: part, Hold: part, Fall: part, Rest: period - 3*part,
	}
	begin := time.Duration((s.Spread*(float64(k)+0.5)/float64(len(s.Demands)) + (1-s.Spread)/2 - s.Width/2) * float64(period))
	return w.Rate(((t-begin)%period + period) % period)
}

// Draw draws the requests, in the order in which they are due. What one model is asked does not depend on the others.
func (s Scenario) Draw(seed uint64) []Request {
	var out []Request
	for k, d := range s.Demands {
		most := d.Requests / s.Length.Seconds() * s.top()
		if most == 0 {
			continue
		}
		own := seed*1000 + uint64(k)
		r := rand.New(rand.NewPCG(own, 3))
		for due := range load.Until(s.Length, load.Thinned(own, most, func(t time.Duration) float64 { return s.Rate(k, t) })) {
			out = append(out, Request{
				Due: due, Demand: k, SharedTokens: s.SharedTokens,
				PromptTokens: s.SharedTokens + length(r, s.PromptTokens, s.PromptSigma),
				OutputTokens: length(r, s.OutputTokens, s.OutputSigma), Seed: r.Uint64(),
			})
		}
	}
	slices.SortStableFunc(out, func(a, b Request) int { return cmp.Compare(a.Due, b.Due) })
	return out
}

// length draws from a log-normal distribution of that mean: at least 1 and at most eight times the mean.
func length(r *rand.Rand, mean int, sigma float64) int {
	x := float64(mean) * math.Exp(sigma*r.NormFloat64()-sigma*sigma/2)
	return int(min(max(math.Round(x), 1), 8*float64(mean)))
}
