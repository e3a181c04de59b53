package sched

import (
	"encoding/csv"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"

	"pgregory.net/rapid"
)

// recorded returns the steps of testdata/steps.csv by model, which engine's TestRecordSteps wrote.
func recorded(t testing.TB) (models []string, steps map[string][]Observation) {
	t.Helper()
	f, err := os.Open("testdata/steps.csv")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	steps = map[string][]Observation{}
	for _, l := range lines[1:] {
		var n [5]int
		for i := range n {
			if n[i], err = strconv.Atoi(l[1+i]); err != nil {
				t.Fatal(err)
			}
		}
		s, err := strconv.ParseFloat(l[6], 64)
		if err != nil {
			t.Fatal(err)
		}
		if steps[l[0]] == nil {
			models = append(models, l[0])
		}
		steps[l[0]] = append(steps[l[0]], Observation{Work{n[0], n[1], n[2], int64(n[3]), int64(n[4])}, s})
	}
	return models, steps
}

// replay predicts each step and then shows it, and returns the relative errors from the given step on.
func replay(p *predictor, steps []Observation, from int) (errs []float64) {
	for i, o := range steps {
		if i >= from {
			errs = append(errs, math.Abs(p.Predict(o.Work)-o.Seconds)/o.Seconds)
		}
		p.Observe(o.Work, o.Seconds)
	}
	return errs
}

func median(x []float64) float64 {
	x = slices.Clone(x)
	slices.Sort(x)
	return x[len(x)/2]
}

// noise is how much the times of equal steps in a row differ: a step-time model cannot be better than that by much.
func noise(steps []Observation) float64 {
	var diffs []float64
	for i := 1; i < len(steps); i++ {
		if a, b := steps[i-1], steps[i]; a.Work.Rows == b.Work.Rows && a.Work.Tokens == b.Work.Tokens {
			diffs = append(diffs, math.Abs(a.Seconds-b.Seconds)/b.Seconds)
		}
	}
	return median(diffs)
}

// TestPredictorRecorded: on the recorded steps of real models, one after the other as they came, the median error is
// under a tenth after 200 steps.
func TestPredictorRecorded(t *testing.T) {
	models, steps := recorded(t)
	if len(models) < 2 {
		t.Fatalf("steps of %v", models)
	}
	for _, m := range models {
		p := newPredictor(nil)
		got, floor := median(replay(p, steps[m], 200)), noise(steps[m])
		t.Logf("%s: %d steps, median error %.1f %%; equal steps in a row differ by %.1f %%", m, len(steps[m]), 100*got, 100*floor)
		if len(steps[m]) < 300 || got >= 0.1 {
			t.Errorf("%s: %d steps, the median error is %.1f %%, and equal steps differ by %.1f %%", m, len(steps[m]), 100*got, 100*floor)
		}
		if med, mean := p.errors(); med <= 0 || mean < med/2 {
			t.Errorf("%s: it says that its errors are %g and %g", m, med, mean)
		}
	}
}

// mixed draws steps of a server: mostly decoding, some with chunks of prompts, over contexts that grow and end.
func mixed(r *rand.Rand, n int, cost func(Work) float64, noise float64) (out []Observation) {
	rows, context := 1, int64(500)
	for i := range n {
		if i%20 == 0 {
			rows = 1 + r.IntN(64)
			context = int64(100 + r.IntN(3000))
		}
		w := Work{Rows: rows, Tokens: rows, Samples: rows, Context: int64(rows) * (context + int64(i%20))}
		if r.IntN(4) == 0 {
			w.add(r.IntN(4000), 17+r.IntN(600), 1)
		}
		out = append(out, Observation{w, cost(w) * math.Exp(noise*r.NormFloat64())})
	}
	return out
}

// TestPredictorRoofline: it learns a card's step time, flat until it computes, within a tenth; so it does from a
// prior that is wrong by half, and after the card has become slower.
func TestPredictorRoofline(t *testing.T) {
	cost := roofline(0.012, 1.2e-4, 2e-8, 0.001)
	slower := func(w Work) float64 { return 1.7 * cost(w) }
	var wrong []Observation
	for n := 1; n <= 2048; n *= 2 {
		w := Work{Rows: 1, Tokens: n, Samples: 1}
		wrong = append(wrong, Observation{w, 1.5 * cost(w)})
	}
	for name, prior := range map[string][]Observation{"no prior": nil, "wrong prior": wrong} {
		p := newPredictor(prior)
		r := rand.New(rand.NewPCG(1, 2))
		for _, c := range []struct {
			name string
			cost func(Work) float64
		}{{"at first", cost}, {"slower", slower}, {"as before", cost}} {
			errs := replay(p, mixed(r, 600, c.cost, 0.03), 200)
			if got := median(errs); got > 0.1 {
				t.Errorf("%s, %s: median error %.1f %%", name, c.name, 100*got)
			} else {
				t.Logf("%s, %s: median error %.1f %%", name, c.name, 100*got)
			}
		}
	}
}

// TestPredictorMonotone: whatever it was shown, it says nothing below zero, and of more work no less.
func TestPredictorMonotone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		work := func() Work {
			return Work{r.IntN(300), r.IntN(3000), r.IntN(300), int64(r.IntN(1 << 20)), int64(r.IntN(1 << 24))}
		}
		p := newPredictor(nil)
		for range r.IntN(300) {
			p.Observe(work(), math.Exp(3*r.NormFloat64()-6)*float64(r.IntN(8)))
		}
		for range 20 {
			a := work()
			b := a
			b.Rows += r.IntN(100)
			b.Tokens += r.IntN(1000)
			b.Samples += r.IntN(100)
			b.Context += int64(r.IntN(1 << 20))
			b.PromptContext += int64(r.IntN(1 << 22))
			if x, y := p.Predict(a), p.Predict(b); !(x >= 0) || !(y >= x) || math.IsInf(y, 0) {
				t.Fatalf("%+v: %g s; %+v: %g s", a, x, b, y)
			}
		}
	})
}

// TestPredictorOutliers: steps that take ten times as long because the machine was taken away, one in ten, leave what
// is said of the others within a quarter.
func TestPredictorOutliers(t *testing.T) {
	cost := roofline(0.012, 1.2e-4, 2e-8, 0.001)
	r := rand.New(rand.NewPCG(3, 4))
	p := newPredictor(nil)
	var errs []float64
	for i, o := range mixed(r, 2000, cost, 0.02) {
		if i > 200 {
			errs = append(errs, math.Abs(p.Predict(o.Work)-o.Seconds)/o.Seconds)
		}
		if r.IntN(10) == 0 {
			o.Seconds *= 10
		}
		p.Observe(o.Work, o.Seconds)
	}
	slices.Sort(errs)
	if med, most := errs[len(errs)/2], errs[len(errs)*95/100]; med > 0.25 || most > 0.6 {
		t.Errorf("median error %.2f, 95 %% are under %.2f", med, most)
	}
}

// TestPredictorForgetsByKind: hours of decoding do not forget what a prompt costs.
func TestPredictorForgetsByKind(t *testing.T) {
	cost := roofline(0.012, 1.2e-4, 2e-8, 0.001)
	p := newPredictor(nil)
	r := rand.New(rand.NewPCG(5, 6))
	replay(p, mixed(r, 400, cost, 0.02), 0)
	for range 20000 {
		w := Work{4, 4, 4, int64(4 * (100 + r.IntN(2000))), 0}
		p.Observe(w, cost(w)*math.Exp(0.02*r.NormFloat64()))
	}
	for _, n := range []int{20, 300, 600} {
		w := Work{Rows: 4, Tokens: 4, Samples: 4, Context: 4000}
		w.add(1000, n, 1)
		if got, want := p.Predict(w), cost(w); math.Abs(got-want) > 0.15*want {
			t.Errorf("%d prompt tokens: %.4f s, want %.4f", n, got, want)
		}
	}
}

func BenchmarkPredictor(b *testing.B) {
	steps := mixed(rand.New(rand.NewPCG(1, 2)), 1000, roofline(0.012, 1.2e-4, 2e-8, 0.001), 0.03)
	p := newPredictor(nil)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		o := &steps[i%len(steps)]
		p.Predict(o.Work)
		p.Observe(o.Work, o.Seconds)
	}
}
