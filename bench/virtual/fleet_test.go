package virtual

import (
	"log/slog"
	"math"
	"reflect"
	"testing"
	"time"

	"github.com/openinfer-go/openinfer/bench/fleet"
	"github.com/openinfer-go/openinfer/engine"
)

// two small models on two nodes for ten seconds, of which one model at a time asks for what both nodes could do.
func two(t *testing.T) (fleet.Scenario, FleetOptions) {
	t.Helper()
	sla := fleet.SLA{TTFT: 2 * time.Second, TPOT: 100 * time.Millisecond}
	s := fleet.Scenario{
		Name: "two", Nodes: 2, Length: 10 * time.Second, Waves: 1, Width: 0.5, Spread: 1,
		PromptTokens: 200, SharedTokens: 50, OutputTokens: 60, PromptSigma: 0.8, OutputSigma: 0.5,
		Demands: []fleet.Demand{{Model: "phi-4", Requests: 160, SLA: sla}, {Model: "gemma-4-12b", Requests: 120, SLA: sla}},
	}
	return s, FleetOptions{Card: "a6000", KVCacheDType: "fp8-e4m3", CheckEvery: 500 * time.Millisecond, Tries: 2, VLLM: DefaultVLLM}
}

// Every request has one end, tokens come to somebody, and pooled nodes sell what dedicated ones must refuse.
func TestFleets(t *testing.T) {
	s, o := two(t)
	r, err := Fleets(s, o, []Kind{Pooled, Dedicated, DedicatedVLLM}, []uint64{3})
	if err != nil {
		t.Fatal(err)
	}
	n := float64(len(s.Draw(3)))
	for _, f := range r.Fleets {
		if f.All.Offered != n || f.All.Served+f.All.Refused+f.All.Failed != n || f.All.Failed != 0 {
			t.Errorf("%s: %+v of %g requests", f.Name, f.All, n)
		}
		tokens := 0.0
		for _, c := range f.Curve {
			tokens += c.Tokens
			if c.Utilisation > 1+1e-9 {
				t.Errorf("%s: utilisation %g", f.Name, c.Utilisation)
			}
		}
		if tokens != f.All.Tokens {
			t.Errorf("%s: %g tokens came, %g were served", f.Name, tokens, f.All.Tokens)
		}
		t.Logf("%s: %+v, in flight %.0f", f.Name, f.All, f.PeakInFlight)
	}
	for _, a := range r.Against {
		if a.Mean < 1.2 {
			t.Errorf("pooled nodes sell %.2f times what %s do", a.Mean, a.Fleet)
		}
	}
}

// A run is a function of its scenario and seed.
func TestFleetsRepeat(t *testing.T) {
	s, o := two(t)
	s.Length = 4 * time.Second
	run := func(seed uint64) fleet.Fleet {
		f, err := Fleet(s, o, Pooled, s.Draw(seed))
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	a := run(1)
	if !reflect.DeepEqual(a, run(1)) {
		t.Error("one seed, two results")
	}
	if reflect.DeepEqual(a, run(2)) {
		t.Error("two seeds, one result")
	}
}

// More models than a card holds: weights move, nobody fails.
func TestFleetParks(t *testing.T) {
	s, o := two(t)
	o.Card, s.Nodes = "rtx3090", 1
	s.Demands = []fleet.Demand{{Model: "qwen3.5-27b", Requests: 12}, {Model: "gemma-4-12b", Requests: 12}, {Model: "phi-4", Requests: 12}}
	for i := range s.Demands {
		s.Demands[i].SLA = fleet.SLA{TTFT: 15 * time.Second}
	}
	f, err := Fleet(s, o, Pooled, s.Draw(1))
	if err != nil {
		t.Fatal(err)
	}
	if f.Switches == 0 || f.All.Served == 0 || f.All.Failed > 0 {
		t.Errorf("%g switches, %+v", f.Switches, f.All)
	}
}

// fake is a node that says what it is told to.
type fake struct {
	places  map[int]engine.Capacity // by model; a model that it lacks is not here
	refuses bool
	got     []int
	t       *testing.T
}

func (f *fake) offer(i int) (bool, error) {
	f.got = append(f.got, i)
	return !f.refuses, nil
}
func (f *fake) run(time.Duration) {}
func (f *fake) capacity(model int) engine.Capacity {
	c, ok := f.places[model]
	if !ok {
		f.t.Errorf("asked for model %d, which it lacks", model)
	}
	return c
}

func TestBalancer(t *testing.T) {
	full, some := engine.Capacity{Resident: true, Free: 0.1}, engine.Capacity{Resident: true, Room: 2, Free: 0.5}
	away := engine.Capacity{Room: 9, Free: 1}
	at := func(c engine.Capacity) *fake { return &fake{places: map[int]engine.Capacity{0: c}, t: t} }
	lacks := &fake{places: map[int]engine.Capacity{1: some}, t: t}
	for name, c := range map[string]struct {
		nodes  []*fake
		spread bool
		want   []int // requests by node
		none   int   // that nobody took
	}{
		"one node has it":                    {[]*fake{at(some), lacks, at(away)}, false, []int{2, 0, 1}, 0},
		"nodes are filled one after another": {[]*fake{at(some), at(some), lacks}, false, []int{2, 1, 0}, 0},
		"by weight where none has a place":   {[]*fake{at(full), at(engine.Capacity{Free: 0.9}), lacks}, false, []int{1, 2, 0}, 0},
		"least connections":                  {[]*fake{at(some), at(some), lacks}, true, []int{2, 1, 0}, 0},
		"nobody has it":                      {[]*fake{lacks, lacks, lacks}, false, []int{0, 0, 0}, 3},
	} {
		var hosts []host
		var models [][]int
		for _, n := range c.nodes {
			n.got = nil
			hosts = append(hosts, n)
			var ks []int
			for k := range n.places {
				ks = append(ks, k)
			}
			models = append(models, ks)
		}
		b := newBalancer(hosts, models, 2, time.Second, 2, c.spread)
		b.run(0)
		none := 0
		for i := range 3 {
			server, _, err := b.offer(i, 0)
			if err != nil {
				t.Fatal(err)
			}
			if server < 0 {
				none++
			}
		}
		if none != c.none {
			t.Errorf("%s: nobody took %d, want %d", name, none, c.none)
		}
		for n, f := range c.nodes {
			if f != lacks && len(f.got) != c.want[n] || f == lacks && len(f.got) > 0 {
				t.Errorf("%s: node %d got %v, want %d", name, n, f.got, c.want[n])
			}
		}
	}

	// Who refuses is not asked twice in a row.
	no, yes := at(some), at(full)
	no.refuses = true
	b := newBalancer([]host{no, yes}, [][]int{{0}, {0}}, 1, time.Second, 2, false)
	b.run(0)
	if _, tries, _ := b.offer(0, 0); tries != 2 || len(no.got) != 1 || len(yes.got) != 1 {
		t.Errorf("%d tries, the first node got %v, the other %v", tries, no.got, yes.got)
	}
}

// A step of the rival takes what vLLM's published time between tokens says.
func TestVLLMPace(t *testing.T) {
	v, err := engine.NewVirtual(engine.Options{Log: slog.New(slog.DiscardHandler), Device: "sim:rtx3090-unlocked", KVCacheDType: "fp8-e4m3", Models: []engine.ModelSpec{{Name: "qwen3.8-27b"}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for streams, tokensPerSecond := range map[int]float64{1: 48.2, 2: 89.4, 4: 172.1, 8: 329.4} {
		rows := make([]engine.VirtualRow, streams)
		for i := range rows {
			rows[i] = engine.VirtualRow{Start: 700, Tokens: 1, Sampled: true}
		}
		step := vllmCard{priced{v, 0}}.Step("qwen3.8-27b", rows).Seconds()
		if got := float64(streams) / step; math.Abs(got/tokensPerSecond-1) > 0.01 {
			t.Errorf("%d streams: %.1f tok/s, published %.1f", streams, got, tokensPerSecond)
		}
	}
}
