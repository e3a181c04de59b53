package virtual

import (
	"reflect"
	"testing"
	"time"

	"github.com/openinfer-go/openinfer/engine"
)

// three models on a card that holds them together; their device time is what a load runs out of.
func three() (Setting, Mix) {
	s := Setting{Card: "l4", KVCacheDType: "fp8-e4m3"}
	m := Mix{Prompt: 300, Shared: 100, Output: 80}
	for _, name := range []string{"phi-4", "qwen3-1.7b", "llama-3.2-1b"} {
		s.Models = append(s.Models, engine.ModelSpec{Name: name})
		m.Demands = append(m.Demands, Demand{name, 1, engine.SLA{TTFT: 3 * time.Second, TPOT: 120 * time.Millisecond}})
	}
	return s, m
}

func run(t *testing.T, way func(Setting, []Request, time.Duration) (Result, error), s Setting, load []Request) Result {
	t.Helper()
	r, err := way(s, load, 5*time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	sum := r.Sum()
	if sum.Offered != len(load) || sum.Served+sum.Refused != sum.Offered {
		t.Fatalf("%s: %d requests, %d offered, %d served, %d refused", r.Way, len(load), sum.Offered, sum.Served, sum.Refused)
	}
	t.Logf("%s: %d offered, %d refused, %d in time, %d tokens sold; %.1f s busy of %.1f", r.Way, sum.Offered, sum.Refused,
		sum.Sellable, sum.SellableTokens, r.Busy.Seconds(), r.Length.Seconds())
	return r
}

// What a card cannot do is refused, and what was accepted is in time: more is sold than by who takes everything or
// splits the memory, and as much as at a load that the card can do.
func TestOverload(t *testing.T) {
	s, m := three()
	at := func(rate float64) []Request { return m.Load(1, rate, 20*time.Second) }
	full := run(t, Ours, s, at(12)).Sum()
	over := run(t, Ours, s, at(36))
	sum := over.Sum()
	if sum.SellableTokens < full.SellableTokens*95/100 {
		t.Errorf("%d tokens sold at three times the load, %d at one", sum.SellableTokens, full.SellableTokens)
	}
	if sum.Refused == 0 || sum.Sellable < sum.Served*9/10 {
		t.Errorf("%d refused; %d of %d accepted were in time", sum.Refused, sum.Sellable, sum.Served)
	}
	for _, m := range over.Models {
		if m.FairShare < 0.8 {
			t.Errorf("%s had %.0f %% of its fair share", m.Model, 100*m.FairShare)
		}
	}
	for _, way := range []func(Setting, []Request, time.Duration) (Result, error){FirstCome, Split} {
		if r := run(t, way, s, at(36)); r.Sum().SellableTokens >= sum.SellableTokens {
			t.Errorf("%s sold %d tokens, ours %d", r.Way, r.Sum().SellableTokens, sum.SellableTokens)
		}
	}
}

// With little to do every way serves everything in time, and steps alone decide how long it takes.
func TestLightLoad(t *testing.T) {
	s, m := three()
	load := m.Load(2, 0.3, 40*time.Second)
	for _, way := range []func(Setting, []Request, time.Duration) (Result, error){Ours, FirstCome, Split} {
		if sum := run(t, way, s, load).Sum(); sum.Sellable != len(load) {
			t.Errorf("%d of %d in time", sum.Sellable, len(load))
		}
	}
}

// Models asked for in turn on a card that does not hold them together.
func TestInTurn(t *testing.T) {
	s, m := three()
	m.InTurn = true
	for i, name := range []string{"qwen3.5-27b", "gemma-4-12b"} {
		s.Models[i+1].Name, m.Demands[i+1].Model = name, name
	}
	for i := range m.Demands {
		m.Demands[i].SLA.TTFT = 15 * time.Second
	}
	s.Card = "rtx3090"
	load := m.Load(3, 0.5, time.Minute)
	ours, swap, grouped := run(t, Ours, s, load), run(t, Swap, s, load), run(t, SwapGrouped, s, load)
	for _, r := range []Result{ours, swap, grouped} {
		if r.Switches < 2 {
			t.Errorf("%s: %d switches", r.Way, r.Switches)
		}
	}
	if ours.Sum().SellableTokens <= swap.Sum().SellableTokens {
		t.Errorf("ours sold %d tokens, swapping %d", ours.Sum().SellableTokens, swap.Sum().SellableTokens)
	}
}

// A run is a function of its load.
func TestRunsRepeat(t *testing.T) {
	s, m := three()
	load := m.Load(4, 6, 10*time.Second)
	if a, b := run(t, Ours, s, load), run(t, Ours, s, load); !reflect.DeepEqual(a, b) {
		t.Errorf("%+v\n%+v", a, b)
	}
	if reflect.DeepEqual(load, m.Load(5, 6, 10*time.Second)) {
		t.Error("two seeds, one load")
	}
}
