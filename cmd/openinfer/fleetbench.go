package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/openinfer-go/openinfer/bench/fleet"
	"github.com/openinfer-go/openinfer/bench/virtual"
)

// fleetBench are the flags of bench fleet.
type fleetBench struct {
	fleets, nodes, demands                          []string
	virtual, equal, ignoreEOS, sendSLA, inTurn      bool
	read, preset, card, endpoint, extra, json, html string
	seeds, waves, queue, prompt, output             int
	seed                                            uint64
	load, sla, width, floor, shift, every           float64
	length                                          time.Duration
	options                                         virtual.FleetOptions
}

func (b *fleetBench) result(cmd *cobra.Command) (*fleet.Result, error) {
	switch {
	case b.read != "":
		if b.virtual || len(b.fleets) > 0 || b.json != "" {
			return nil, errors.New("--read: it measures nothing: not with --virtual, --fleet or --json")
		}
		r, err := fleet.Read(b.read)
		if err != nil {
			return nil, fmt.Errorf("--read: %w", err)
		}
		return r, nil
	case b.virtual == (len(b.fleets) > 0):
		return nil, errors.New("--fleet or --virtual: one of them says which fleets are compared")
	}
	s, notes, err := b.scenario(cmd)
	if err != nil {
		return nil, err
	}
	if b.virtual {
		return b.inVirtual(cmd, s, notes)
	}
	return b.over(cmd, s, notes)
}

// scenario is the load, and what is to be said of it.
func (b *fleetBench) scenario(cmd *cobra.Command) (s fleet.Scenario, notes []string, err error) {
	for _, p := range []struct {
		flag string
		n    int
	}{{"seeds", b.seeds}, {"tries", b.options.Tries}, {"vllm-queue", b.queue}, {"prompt-len", b.prompt}, {"output-len", b.output}} {
		if p.n < 1 {
			return s, nil, fmt.Errorf("--%s %d: at least 1", p.flag, p.n)
		}
	}
	for _, p := range []struct {
		flag string
		x    float64
	}{{"load", b.load}, {"sla", b.sla}, {"check-interval", b.every}} {
		if !(p.x > 0 && p.x <= 1000) {
			return s, nil, fmt.Errorf("--%s %g: more than 0 and at most 1000", p.flag, p.x)
		}
	}
	if s, err = fleet.Preset(b.preset); err != nil {
		return s, nil, fmt.Errorf("--%w", err)
	}
	s.Length, s.Waves, s.Floor, s.Spread, s.PromptTokens, s.OutputTokens = b.length, b.waves, b.floor, b.shift, b.prompt, b.output
	if len(b.demands) > 0 {
		if cmd.Flags().Changed("preset") || b.equal {
			return s, nil, errors.New("--demand: not with --preset or --equal, which say what is asked of each model")
		}
		s.Name, s.Demands = "as asked", nil
		for _, text := range b.demands {
			d, err := parseDemand(text, b.length)
			if err != nil {
				return s, nil, fmt.Errorf("--demand %s: %w", text, err)
			}
			for _, other := range s.Demands {
				if other.Model == d.Model {
					return s, nil, fmt.Errorf("--demand %s: the model is there twice", text)
				}
			}
			s.Demands = append(s.Demands, d)
		}
		s.Nodes = len(s.Demands)
		s.Width = 1 / float64(s.Nodes)
	}
	if cmd.Flags().Changed("width") {
		s.Width = b.width
	}
	if b.equal {
		for i := range s.Demands {
			s.Demands[i].Times = float64(s.Nodes)
		}
	}
	if err := s.Check(); err != nil {
		return s, nil, fmt.Errorf("--%w", err)
	}
	if len(b.demands) == 0 {
		b.setOptions()
		capacity, err := virtual.Capacities(s, b.options)
		if err != nil {
			return s, nil, err
		}
		s = s.Filled(capacity)
		for i, d := range s.Demands {
			notes = append(notes, fmt.Sprintf("- %s: waves up to %.1f requests/s, %.2f times the %.1f/s that one dedicated node (simulated %s) answers in time",
				d.Model, b.load*d.Times*capacity[i], b.load*d.Times, capacity[i], b.card))
		}
	}
	return s.Times(b.load).WithSLA(b.sla), notes, nil
}

// parseDemand reads MODEL=RATE[:TTFT[:TPOT]].
func parseDemand(text string, length time.Duration) (d fleet.Demand, err error) {
	i := strings.LastIndex(text, "=")
	if i <= 0 {
		return d, errors.New("want MODEL=RATE[:TTFT[:TPOT]]")
	}
	d.Model = text[:i]
	parts := strings.Split(text[i+1:], ":")
	rate, err := strconv.ParseFloat(parts[0], 64)
	if err != nil || !(rate > 0 && rate <= 1e6) {
		return d, fmt.Errorf("%q is no number of requests a second", parts[0])
	}
	d.Requests = rate * length.Seconds()
	targets := []*time.Duration{&d.SLA.TTFT, &d.SLA.TPOT}
	if len(parts) > 1+len(targets) {
		return d, errors.New("more than a rate, TTFT and TPOT")
	}
	for i, p := range parts[1:] {
		if *targets[i], err = time.ParseDuration(p); err != nil || *targets[i] <= 0 {
			return d, fmt.Errorf("%q is no time such as 2s or 100ms", p)
		}
	}
	return d, nil
}

func (b *fleetBench) setOptions() {
	b.options.Card, b.options.CheckEvery, b.options.VLLM = b.card, time.Duration(b.every*float64(time.Second)), virtual.DefaultVLLM
	b.options.VLLM.Queue = b.queue
}

func (b *fleetBench) list() (seeds []uint64) {
	for i := range b.seeds {
		seeds = append(seeds, b.seed+uint64(i))
	}
	return seeds
}

func (b *fleetBench) title(s fleet.Scenario) string {
	return fmt.Sprintf("%d models, %d nodes", len(s.Demands), s.Nodes)
}

// inVirtual compares fleets in virtual time.
func (b *fleetBench) inVirtual(cmd *cobra.Command, s fleet.Scenario, notes []string) (*fleet.Result, error) {
	b.setOptions()
	if isTerminal(os.Stderr) {
		b.options.Progress = func(done, all int) { fmt.Fprintf(os.Stderr, "\r%d of %d fleets", done, all) }
		defer fmt.Fprint(os.Stderr, "\r\033[K")
	}
	begin := time.Now().UTC()
	r, err := virtual.Fleets(s, b.options, []virtual.Kind{virtual.Pooled, virtual.Dedicated, virtual.DedicatedVLLM}, b.list())
	if err != nil {
		return nil, err
	}
	r.Title, r.Notes, r.Begin, r.End = b.title(s)+": "+b.card, notes, begin, time.Now().UTC()
	r.Command = commandLine(cmd, "json", "html")
	return &r, nil
}
