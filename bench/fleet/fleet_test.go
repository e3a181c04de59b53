package fleet

import (
	"math"
	"reflect"
	"testing"
	"time"
)

func six(t *testing.T) Scenario {
	t.Helper()
	s, err := Preset("six")
	if err != nil {
		t.Fatal(err)
	}
	return s.Filled([]float64{4, 14, 100, 12, 10, 50})
}

// The presets ask for what their pages say that dedicated nodes answered.
func TestPresetsServeThePublishedPart(t *testing.T) {
	s := six(t)
	for k, want := range []float64{233. / 637, 384. / 607, 1380. / 1920, 521. / 1700, 323. / 530, 1200. / 1664} {
		capacity := s.Rate(k, s.Length/12*time.Duration(2*k+1)) / s.Demands[k].Times // at the top of its wave
		offered, served := 0.0, 0.0
		for at := time.Duration(0); at < s.Length; at += 10 * time.Millisecond {
			rate := s.Rate(k, at)
			offered += rate / 100
			served += min(rate, capacity) / 100
		}
		if math.Abs(served/offered-want) > 0.01 || math.Abs(offered/s.Demands[k].Requests-1) > 0.01 {
			t.Errorf("%s: %.0f of %.0f requests are below capacity: %.3f, want %.3f; %.0f expected", s.Demands[k].Model, served, offered, served/offered, want, s.Demands[k].Requests)
		}
	}
	if _, err := Preset("five"); err == nil {
		t.Error("a preset that there is not")
	}
}

// Requests follow the rate and the seed, and nothing else.
func TestDraw(t *testing.T) {
	s := six(t)
	a := s.Draw(7)
	if !reflect.DeepEqual(a, s.Draw(7)) || reflect.DeepEqual(a, s.Draw(8)) {
		t.Fatal("a load is not a function of its seed")
	}
	if n := float64(len(a)); math.Abs(n-s.Requests()) > 5*math.Sqrt(s.Requests()) {
		t.Errorf("%g requests, %.0f expected", n, s.Requests())
	}
	output := 0.0
	for i, q := range a {
		if i > 0 && q.Due < a[i-1].Due {
			t.Fatalf("request %d is due before the one before it", i)
		}
		if s.Rate(q.Demand, q.Due) == 0 {
			t.Fatalf("a request of %s at %v, between its waves", s.Demands[q.Demand].Model, q.Due)
		}
		output += float64(q.OutputTokens)
	}
	if mean := output / float64(len(a)); math.Abs(mean/float64(s.OutputTokens)-1) > 0.05 {
		t.Errorf("answers have %.1f tokens on average, want %d", mean, s.OutputTokens)
	}
}

func TestScenarioCheck(t *testing.T) {
	for name, spoil := range map[string]func(*Scenario){
		"nodes": func(s *Scenario) { s.Nodes = 0 }, "length": func(s *Scenario) { s.Length = 0 }, "models": func(s *Scenario) { s.Demands = nil },
		"waves": func(s *Scenario) { s.Waves = 0 }, "width": func(s *Scenario) { s.Width = math.NaN() }, "floor": func(s *Scenario) { s.Floor = 2 },
		"spread": func(s *Scenario) { s.Spread = -1 }, "tokens": func(s *Scenario) { s.OutputTokens = 0 }, "sigma": func(s *Scenario) { s.OutputSigma = math.Inf(1) },
		"requests": func(s *Scenario) { s.Demands[2].Requests = math.Inf(1) },
	} {
		s := six(t)
		if err := s.Check(); err != nil {
			t.Fatal(err)
		}
		if spoil(&s); s.Check() == nil {
			t.Errorf("%s: nothing is said of it", name)
		}
	}
}

// Numbers of a run that can be worked out by hand.
func TestRecorder(t *testing.T) {
	s := Scenario{Length: 4 * time.Second, Demands: []Demand{{Model: "a", SLA: SLA{TTFT: time.Second, TPOT: 100 * time.Millisecond}}, {Model: "b"}}}
	r := NewRecorder("two", s, 4, [][]int{{0}, {0, 1}})
	a, b := Request{Due: 0}, Request{Due: time.Second, Demand: 1}
	for i, q := range []Request{a, a, b, b} {
		r.Offered(i, q)
	}
	r.Served(0, a, 500*time.Millisecond, 1500*time.Millisecond, 11)  // 100 ms a token: in time
	r.Served(1, a, 1100*time.Millisecond, 1200*time.Millisecond, 11) // its first token is late
	r.Refused(2, b, b.Due)
	if _, err := r.Fleet(); err == nil {
		t.Error("a request without an end is no error")
	}
	r.Failed(3, b, 3*time.Second)
	r.Busy(0, 500*time.Millisecond, 2500*time.Millisecond)
	f, err := r.Fleet()
	if err != nil {
		t.Fatal(err)
	}
	if want := (Counts{Offered: 4, Served: 2, Refused: 1, Failed: 1, Sellable: 1, Tokens: 22, SellableTokens: 11}); f.All != want {
		t.Errorf("%+v, want %+v", f.All, want)
	}
	// In flight: two answers in the first second, 0.5 and 0.2 of them and a failing one in the second, that one in the third.
	for i, want := range []float64{2, 1.7, 1} {
		if got := f.Curve[i].InFlight; math.Abs(got-want) > 1e-9 {
			t.Errorf("second %d: %g in flight, want %g", i, got, want)
		}
	}
	if f.MeanUtilisation != 0.25 || f.PeakUtilisation != 0.5 || f.Models[0].MeanUtilisation != 0.25 || f.Models[1].PeakUtilisation != 0 {
		t.Errorf("utilisation %g, peak %g; of a's cards %g, of b's at most %g", f.MeanUtilisation, f.PeakUtilisation, f.Models[0].MeanUtilisation, f.Models[1].PeakUtilisation)
	}
	if m := f.Models[0]; m.TTFT95 != 1100 || m.Cards != 2 || math.Abs(m.Rate-55) > 1e-9 {
		t.Errorf("TTFT %g ms, %d cards, %g tok/s", m.TTFT95, m.Cards, m.Rate)
	}
	defer func() {
		if recover() == nil {
			t.Error("a request with two ends is not noticed")
		}
	}()
	r.Refused(0, a, 0)
}

// Means and factors over runs.
func TestResult(t *testing.T) {
	run := func(sold ...float64) (out []Fleet) {
		for _, x := range sold {
			out = append(out, Fleet{All: Counts{SellableTokens: x}, Models: []Model{{Counts: Counts{Served: x}}}, Curve: make([]Second, int(x))})
		}
		return out
	}
	r := NewResult(Scenario{}, []uint64{1, 2, 3}, [][]Fleet{run(4, 2, 1), run(9, 3, 0), run(5, 5, 0)})
	if a := r.Against[0]; a.Mean != 2 || a.Min != 1 || a.Max != 3 || len(r.Against[1].Factors) != 1 {
		t.Errorf("%+v", r.Against)
	}
	if f := r.Fleets[0]; f.All.SellableTokens != 6 || f.Models[0].Served != 6 || len(f.Curve) != 9 {
		t.Errorf("%+v", f)
	}
}
