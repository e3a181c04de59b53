package fleet

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"
	"time"
)

// format names the JSON of a Result. Fields keep their meaning under it.
const format = "openinfer-fleet/1"

// Result is a comparison: the first fleet against each of the others, under the same loads.
type Result struct {
	Format    string    `json:"format"`
	Title     string    `json:"title"`
	Simulated string    `json:"simulated,omitempty"` // the card that is only simulated
	Virtual   bool      `json:"virtual,omitempty"`   // in virtual time; else over HTTP
	Begin     time.Time `json:"begin,omitzero"`      // of the first run
	End       time.Time `json:"end,omitzero"`        // of the last
	Command   string    `json:"command,omitempty"`   // of this benchmark
	Load      Load      `json:"load"`
	Notes     []string  `json:"notes,omitempty"`
	Fleets    []Fleet   `json:"fleets"` // means over the runs; the first is the one compared
	Last      []Fleet   `json:"last"`   // the last run
	Against   []Against `json:"against"`
}

// Against is how the first fleet compares with another.
type Against struct {
	Fleet string `json:"fleet"`
	// Factors are sellable tokens over the other's, one a run; no number if the other sold none.
	Factors []float64 `json:"factors"`
	Mean    float64   `json:"mean"`
	Min     float64   `json:"min"`
	Max     float64   `json:"max"`
}

// Load says what was offered.
type Load struct {
	Name         string   `json:"name"`
	Nodes        int      `json:"nodes"`
	Seconds      float64  `json:"seconds"`
	Seeds        []uint64 `json:"seeds"`
	Demands      []Demand `json:"demands"`
	Waves        int      `json:"waves"`
	Width        float64  `json:"width"`
	Floor        float64  `json:"floor"`
	Spread       float64  `json:"spread"`
	PromptTokens int      `json:"prompt_tokens"`
	SharedTokens int      `json:"shared_tokens"`
	OutputTokens int      `json:"output_tokens"`
}

// Describe is s as a Result has it.
func (s Scenario) Describe(seeds []uint64) Load {
	return Load{s.Name, s.Nodes, s.Length.Seconds(), seeds, s.Demands, s.Waves, s.Width, s.Floor, s.Spread, s.PromptTokens, s.SharedTokens, s.OutputTokens}
}

// Fleet is what one fleet made of a load; all numbers may be means of several runs.
type Fleet struct {
	Name    string   `json:"name"`
	Nodes   int      `json:"nodes"`
	Seconds float64  `json:"seconds"` // of the load
	All     Counts   `json:"all"`
	Models  []Model  `json:"models"`
	Curve   []Second `json:"curve"`
	// Utilisation is the part of the load's time that cards were busy, from 0 to 1: the mean over nodes, and of the
	// busiest second of the fleet's.
	MeanUtilisation float64 `json:"mean_utilisation"`
	PeakUtilisation float64 `json:"peak_utilisation"`
	PeakInFlight    float64 `json:"peak_in_flight"`      // of the busiest second
	Unmetered       bool    `json:"unmetered,omitempty"` // nobody knows the utilisation
	// Redispatched counts the times that the balancer tried another node; Switches those that weights came to a card.
	// Over HTTP only the balancer knows of the first.
	Redispatched float64 `json:"redispatched"`
	Switches     float64 `json:"switches"`
}

// Counts are requests and tokens. Offered = Served + Refused + Failed.
type Counts struct {
	Offered        float64 `json:"offered"`
	Served         float64 `json:"served"`
	Refused        float64 `json:"refused"`
	Failed         float64 `json:"failed"`
	Sellable       float64 `json:"sellable"` // requests that met their SLA
	Tokens         float64 `json:"tokens"`
	SellableTokens float64 `json:"sellable_tokens"`
}

// Model is one model's part.
type Model struct {
	Model string `json:"model"`
	Cards int    `json:"cards"` // that may serve it
	Counts
	// Of what was served, in milliseconds.
	TTFT50 float64 `json:"ttft_p50_ms"`
	TTFT95 float64 `json:"ttft_p95_ms"`
	TPOT95 float64 `json:"tpot_p95_ms"`
	E2E95  float64 `json:"e2e_p95_ms"`
	// Rate is the tokens a second of one answer, after its first: the mean over answers.
	Rate float64 `json:"rate"`
	// Utilisation of the cards that may serve it, whatever they serve, from 0 to 1: the mean, and the busiest second of one card.
	MeanUtilisation float64 `json:"mean_utilisation"`
	PeakUtilisation float64 `json:"peak_utilisation"`
}

// Second is one second of a curve.
type Second struct {
	InFlight    float64 `json:"in_flight"` // accepted and not ended: the mean over the second
	Tokens      float64 `json:"tokens"`
	Utilisation float64 `json:"utilisation"`
	Offered     float64 `json:"offered"`
	Refused     float64 `json:"refused"`
}

// NewResult compares the first fleet of each run with the others. All runs have the same fleets in the same order.
func NewResult(s Scenario, seeds []uint64, runs [][]Fleet) Result {
	r := Result{Format: format, Load: s.Describe(seeds), Last: runs[len(runs)-1]}
	for i := range runs[0] {
		var of []Fleet
		for _, run := range runs {
			of = append(of, run[i])
		}
		r.Fleets = append(r.Fleets, mean(of))
		if i == 0 {
			continue
		}
		a := Against{Fleet: runs[0][i].Name}
		for _, run := range runs {
			if sold := run[i].All.SellableTokens; sold > 0 {
				a.Factors = append(a.Factors, run[0].All.SellableTokens/sold)
			}
		}
		if n := len(a.Factors); n > 0 {
			for _, f := range a.Factors {
				a.Mean += f
			}
			a.Mean /= float64(n)
			a.Min, a.Max = slices.Min(a.Factors), slices.Max(a.Factors)
		}
		r.Against = append(r.Against, a)
	}
	return r
}

// mean is the mean of one fleet's runs.
func mean(runs []Fleet) Fleet {
	out := runs[0]
	out.Models, out.Curve = slices.Clone(out.Models), nil
	average := func(of func(*Fleet) *float64) {
		sum := 0.0
		for i := range runs {
			sum += *of(&runs[i])
		}
		*of(&out) = sum / float64(len(runs))
	}
	seconds := 0
	for i := range runs {
		seconds = max(seconds, len(runs[i].Curve))
	}
	out.Curve = make([]Second, seconds)
	for i := range out.Curve {
		c := &out.Curve[i]
		for _, f := range runs {
			if i < len(f.Curve) {
				x, n := f.Curve[i], float64(len(runs))
				c.InFlight += x.InFlight / n
				c.Tokens += x.Tokens / n
				c.Utilisation += x.Utilisation / n
				c.Offered += x.Offered / n
				c.Refused += x.Refused / n
			}
		}
	}
	average(func(f *Fleet) *float64 { return &f.MeanUtilisation })
	average(func(f *Fleet) *float64 { return &f.PeakUtilisation })
	average(func(f *Fleet) *float64 { return &f.PeakInFlight })
	average(func(f *Fleet) *float64 { return &f.Redispatched })
	average(func(f *Fleet) *float64 { return &f.Switches })
	for _, of := range counts {
		average(func(f *Fleet) *float64 { return of(&f.All) })
		for k := range out.Models {
			average(func(f *Fleet) *float64 { return of(&f.Models[k].Counts) })
		}
	}
	for k := range out.Models {
		for _, of := range latencies {
			average(func(f *Fleet) *float64 { return of(&f.Models[k]) })
		}
	}
	return out
}

var counts = []func(*Counts) *float64{
	func(c *Counts) *float64 { return &c.Offered },
	func(c *Counts) *float64 { return &c.Served },
	func(c *Counts) *float64 { return &c.Refused },
	func(c *Counts) *float64 { return &c.Failed },
	func(c *Counts) *float64 { return &c.Sellable },
	func(c *Counts) *float64 { return &c.Tokens },
	func(c *Counts) *float64 { return &c.SellableTokens },
}

var latencies = []func(*Model) *float64{
	func(m *Model) *float64 { return &m.TTFT50 },
	func(m *Model) *float64 { return &m.TTFT95 },
	func(m *Model) *float64 { return &m.TPOT95 },
	func(m *Model) *float64 { return &m.E2E95 },
	func(m *Model) *float64 { return &m.Rate },
	func(m *Model) *float64 { return &m.MeanUtilisation },
	func(m *Model) *float64 { return &m.PeakUtilisation },
}

// percentile sorts d; the result is in milliseconds.
func percentile(d []time.Duration, p float64) float64 {
	if len(d) == 0 {
		return 0
	}
	slices.Sort(d)
	i := max(0, int(math.Ceil(p*float64(len(d))))-1)
	return float64(d[i]) / float64(time.Millisecond)
}

// Write writes r to a file as JSON, whole or not at all.
func (r *Result) Write(path string) error {
	b, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(path+".part", append(b, '\n'), 0o666); err != nil {
		return err
	}
	return os.Rename(path+".part", path)
}

// Read reads what Write wrote.
func Read(path string) (*Result, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	r := new(Result)
	if err := json.Unmarshal(b, r); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if r.Format != format {
		return nil, fmt.Errorf("%s: format is %q, not %q", path, r.Format, format)
	}
	if len(r.Fleets) == 0 || len(r.Last) != len(r.Fleets) || len(r.Against) != len(r.Fleets)-1 {
		return nil, fmt.Errorf("%s: %d fleets, %d of the last run, %d compared", path, len(r.Fleets), len(r.Last), len(r.Against))
	}
	for i := range r.Fleets {
		if len(r.Fleets[i].Models) != len(r.Load.Demands) {
			return nil, fmt.Errorf("%s: fleet %q has %d models, the load %d", path, r.Fleets[i].Name, len(r.Fleets[i].Models), len(r.Load.Demands))
		}
	}
	return r, nil
}
