package fleet

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/openinfer-go/openinfer/bench/load"
)

// Config says which fleets are compared over HTTP, and under what load.
type Config struct {
	Scenario Scenario
	Seeds    []uint64  // one a run
	Fleets   []Address // the first is compared with each of the others
	Endpoint string    // of requests; "": load.Completions
	Key      string    // API key
	Extra    map[string]any
	// SendSLA tells servers what is asked of them, in a field that is OpenInfer's own. The SLA is judged here in any case.
	SendSLA bool
	// InTurn loads the fleets one after the other, where one machine cannot hold them all at once.
	InTurn bool
	// Watch, if not nil, is told once a second how the fleets stand.
	Watch func(Status)
	// Transport, if not nil, is how servers are reached.
	Transport http.RoundTripper
}

// Status is how a run stands.
type Status struct {
	Run    int // from 0
	At     time.Duration
	Fleets []string
	Live   []*load.Live // by fleet
}

// String is a line.
func (s Status) String() string {
	line := fmt.Sprintf("run %d, %.0f s", s.Run+1, s.At.Seconds())
	for i, l := range s.Live {
		line += fmt.Sprintf(" | %s: %d running, %d served, %d refused, %d failed, %d tokens", s.Fleets[i], l.Running.Load(), l.OK.Load(), l.Refused.Load(), l.Failed.Load(), l.Tokens.Load())
	}
	return line
}

// Run compares fleets. When ctx is done it returns what it has, with ctx's error; without a result if that is nothing.
func Run(ctx context.Context, c Config) (*Result, error) {
	if err := c.Scenario.Check(); err != nil {
		return nil, err
	}
	if len(c.Fleets) == 0 || len(c.Seeds) == 0 {
		return nil, fmt.Errorf("%d fleets and %d seeds: at least one of each", len(c.Fleets), len(c.Seeds))
	}
	var sites []*site
	for i, a := range c.Fleets {
		if slices.ContainsFunc(c.Fleets[:i], func(b Address) bool { return a.Name == b.Name }) {
			return nil, fmt.Errorf("fleet %q: twice", a.Name)
		}
		s, err := c.reach(ctx, a)
		if err != nil {
			return nil, fmt.Errorf("fleet %q: %w", a.Name, err)
		}
		defer s.close()
		sites = append(sites, s)
	}
	var runs [][]Fleet
	var notes []string
	begin, scenario, seeds := time.Now().UTC(), c.Scenario, c.Seeds[:0:0]
	for i, seed := range c.Seeds {
		run, length, more, err := c.run(ctx, sites, i, seed)
		if err != nil {
			return nil, err
		}
		if ctx.Err() != nil {
			if len(runs) > 0 || run == nil { // what is whole is kept; a part of a run would spoil the means
				break
			}
			scenario.Length = length
			more = append(more, fmt.Sprintf("- ended after %v of %v; what was running then is not counted", length.Round(time.Second), c.Scenario.Length))
		}
		runs, seeds, notes = append(runs, run), append(seeds, seed), append(notes, more...)
		if ctx.Err() != nil {
			break
		}
	}
	if len(runs) == 0 {
		return nil, ctx.Err()
	}
	r := NewResult(scenario, seeds, runs)
	r.Begin, r.End = begin, time.Now().UTC()
	var cards []string
	for _, s := range sites {
		if s.simulated != "" && !slices.Contains(cards, s.simulated) {
			cards = append(cards, s.simulated)
		}
		r.Notes = append(r.Notes, s.notes...)
	}
	r.Simulated = strings.Join(cards, ", ")
	if c.InTurn && len(sites) > 1 {
		r.Notes = append(r.Notes, "- the fleets were loaded one after the other, not in parallel")
	}
	r.Notes = append(r.Notes, notes...)
	return &r, ctx.Err()
}

// run is one load at all fleets. It is nil if it ended before each fleet had a second of it.
func (c *Config) run(ctx context.Context, sites []*site, index int, seed uint64) (fleets []Fleet, length time.Duration, notes []string, err error) {
	requests := c.Scenario.Draw(seed)
	status := Status{Run: index}
	for _, s := range sites {
		status.Fleets, status.Live = append(status.Fleets, s.Name), append(status.Live, new(load.Live))
	}
	results, meters := make([]*load.Result, len(sites)), make([]*meter, len(sites))
	begin, done := time.Now(), make(chan struct{})
	var watching sync.WaitGroup
	if c.Watch != nil {
		watching.Go(func() {
			tick := time.NewTicker(time.Second)
			defer tick.Stop()
			for {
				select {
				case <-tick.C:
					status.At = time.Since(begin)
					c.Watch(status)
				case <-done:
					return
				}
			}
		})
	}
	for i, s := range sites {
		meters[i] = startMeter(ctx, s.fetch, s.nodes)
	}
	one := func(i int) {
		results[i] = load.Run(ctx, sites[i], sites[i].load(requests), load.Options{Live: status.Live[i]})
		meters[i].end()
	}
	var running sync.WaitGroup
	for i := range sites {
		if c.InTurn {
			one(i)
		} else {
			running.Go(func() { one(i) })
		}
	}
	running.Wait()
	close(done)
	watching.Wait()

	cut := c.Scenario
	if ctx.Err() != nil {
		for _, r := range results {
			cut.Length = min(cut.Length, r.Length)
		}
		if cut.Length < time.Second {
			return nil, 0, nil, nil
		}
	}
	for i, s := range sites {
		f, note, err := s.record(cut, requests, results[i], meters[i])
		if err != nil {
			return nil, 0, nil, err
		}
		fleets, notes = append(fleets, f), append(notes, fmt.Sprintf("- %s, seed %d: %s", s.Name, seed, note))
	}
	return fleets, cut.Length, notes, nil
}

// record counts what became of a load.
func (s *site) record(scenario Scenario, requests []Request, result *load.Result, m *meter) (Fleet, string, error) {
	var ended []*load.Record
	for _, r := range result.Records {
		if r.Outcome != load.Cancelled {
			ended = append(ended, r)
		}
	}
	rec := NewRecorder(s.Name, scenario, len(ended), s.holds)
	reasons := map[string]int{}
	for i, r := range ended {
		q := requests[r.Index]
		rec.Offered(i, q)
		for _, c := range r.Chunks {
			rec.Tokens(c.At, int(c.Tokens))
		}
		switch r.Outcome {
		case load.OK:
			rec.Served(i, q, r.First(), r.Last(), r.Tokens)
		case load.Refused:
			rec.Refused(i, q, r.End)
		default:
			rec.Failed(i, q, r.End)
			reasons[r.Reason]++
		}
	}
	if !m.record(rec, result.Begin) {
		rec.Unmetered()
	}
	f, err := rec.Fleet()
	note := result.Generator.String()
	if result.Generator.Doubt != "" {
		note += "; " + result.Generator.Doubt
	}
	for _, reason := range slices.Sorted(maps.Keys(reasons)) {
		note += fmt.Sprintf("; %d failed: %s", reasons[reason], reason)
	}
	return f, note, err
}
