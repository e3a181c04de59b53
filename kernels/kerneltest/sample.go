package kerneltest

import (
	"fmt"
	"math"
	"slices"

	"github.com/openinfer-go/openinfer/kernels"
)

// greedy are the parameters that everything else is a change of.
func greedy() kernels.SampleParams {
	return kernels.SampleParams{TopP: 1, Repetition: 1, Given: -1, Logprobs: -1}
}

// sample draws once from each row; ids from vocab on are padding, which is larger than all.
func (h *harness) sample(logits [][]float32, params ...kernels.SampleParams) []kernels.Sampled {
	h.Helper()
	vocab := len(logits[0])
	m := h.tensor(len(logits), vocab+3)
	for i, r := range logits {
		copy(m.Row(i), r)
		m.Row(i)[vocab], m.Row(i)[vocab+1] = 1e30, float32(math.Inf(1)) // and a NaN
	}
	out := make([]kernels.Sampled, len(logits))
	h.step(func() { h.d.Sample(out, m.Tensor, vocab, params) })
	h.intact("sample", m)
	return out
}

// one draws from one row.
func (h *harness) one(logits []float32, change func(*kernels.SampleParams)) kernels.Sampled {
	h.Helper()
	p := greedy()
	if change != nil {
		change(&p)
	}
	return h.sample([][]float32{logits}, p)[0]
}

// wantID wants a good draw of id.
func (h *harness) wantID(what string, got kernels.Sampled, id int32) {
	h.Helper()
	if got.NaN || got.ID != id {
		h.Fatalf("%s: got %+v, want id %d", what, got, id)
	}
}

func sampleGreedy(h *harness) {
	for _, vocab := range []int{1, 2, 7, 8, 9, 31, 33, 1000, 49152} {
		row := h.rows(1, vocab)[0]
		best := 0
		for i, v := range row {
			if v > row[best] {
				best = i
			}
		}
		h.wantID(fmt.Sprint(vocab, " ids"), h.one(row, nil), int32(best))
		if vocab > 2 {
			at := []int{h.rnd.IntN(vocab), h.rnd.IntN(vocab), h.rnd.IntN(vocab)}
			for _, i := range at {
				row[i] = 50
			}
			h.wantID(fmt.Sprint("equals at ", at), h.one(row, nil), int32(slices.Min(at)))
		}
	}
	ninf := float32(math.Inf(-1))
	h.wantID("all but one at -Inf", h.one([]float32{ninf, ninf, -5, ninf}, nil), 2)
	h.wantID("negative", h.one([]float32{-3, -1, -2}, nil), 1)
	h.wantID("zeros of both signs", h.one([]float32{float32(math.Copysign(0, -1)), 0}, nil), 0)
	h.wantID("a given id", h.one([]float32{1, 2, 3}, func(p *kernels.SampleParams) { p.Given = 0 }), 0)
	h.wantID("the zero of TopP and Repetition", h.one([]float32{1, 3, 2}, func(p *kernels.SampleParams) { p.TopP, p.Repetition = 0, 0 }), 1)
}

func sampleNaN(h *harness) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	hot := func(p *kernels.SampleParams) { p.Temperature = 1 }
	for _, row := range [][]float32{{1, nan, 2}, {nan}, {1, inf, 2}, {-inf, -inf}, {nan, -inf, -inf, -inf, 4, 4, 4, 4, 4}, {4, 4, 4, 4, 4, 4, 4, 4, 4, nan}} {
		for _, change := range []func(*kernels.SampleParams){nil, hot, func(p *kernels.SampleParams) { p.Temperature, p.TopK = 1, 2 }} {
			if got := h.one(row, change); !got.NaN {
				h.Fatalf("%v: got %+v", row, got)
			}
		}
	}
	for _, change := range []func(*kernels.SampleParams){
		func(p *kernels.SampleParams) { p.Allowed = []uint32{} },
		func(p *kernels.SampleParams) { p.Allowed = []uint32{0, 1} },
		func(p *kernels.SampleParams) { p.Banned = []int32{0, 1, 2} },
		func(p *kernels.SampleParams) { p.Allowed, p.Banned = []uint32{2}, []int32{1} },
		func(p *kernels.SampleParams) { p.Given = 3 },
	} {
		if got := h.one([]float32{1, 2, 3}, change); !got.NaN {
			h.Fatalf("nothing can be drawn: got %+v", got)
		}
	}
	// A bad row is its own affair.
	out := h.sample([][]float32{{1, 3, 2}, {nan, 1, 1}, {5, 3, 2}}, greedy(), greedy(), greedy())
	h.wantID("row before a NaN", out[0], 1)
	h.wantID("row after a NaN", out[2], 0)
	if !out[1].NaN {
		h.Fatalf("row with a NaN: %+v", out[1])
	}
}

// sampleChanges checks each change of the logits by what becomes the largest.
func sampleChanges(h *harness) {
	for _, c := range []struct {
		name   string
		logits []float32
		change func(*kernels.SampleParams)
		want   int32
	}{
		{"bias up", []float32{1, 2, 3}, func(p *kernels.SampleParams) { p.Bias = []kernels.TokenBias{{ID: 0, Bias: 2.5}} }, 0},
		{"bias down", []float32{1, 2, 3}, func(p *kernels.SampleParams) { p.Bias = []kernels.TokenBias{{ID: 2, Bias: -100}} }, 1},
		{"bias twice", []float32{1, 2, 3}, func(p *kernels.SampleParams) {
			p.Bias = []kernels.TokenBias{{ID: 0, Bias: 1.25}, {ID: 0, Bias: 1.25}}
		}, 0},
		{"bias of ids that do not exist", []float32{1, 2, 3}, func(p *kernels.SampleParams) {
			p.Bias = []kernels.TokenBias{{ID: 3, Bias: 100}, {ID: 1 << 30, Bias: 100}, {ID: -1, Bias: 100}}
		}, 2},
		{"banned", []float32{1, 2, 3}, func(p *kernels.SampleParams) { p.Banned = []int32{2, 5, -1} }, 1},
		{"banned beats bias", []float32{1, 2, 3}, func(p *kernels.SampleParams) {
			p.Bias, p.Banned = []kernels.TokenBias{{ID: 0, Bias: 100}}, []int32{0}
		}, 2},
		{"allowed", []float32{1, 2, 3}, func(p *kernels.SampleParams) { p.Allowed = []uint32{0b011} }, 1},
		{"allowed in the second word", make([]float32, 40), func(p *kernels.SampleParams) { p.Allowed = []uint32{0, 1 << 5} }, 37},
		{"allowed with too few words", append(make([]float32, 32), 9), func(p *kernels.SampleParams) { p.Allowed = []uint32{1 << 31} }, 31},
		{"repetition divides", []float32{1, 2, 3}, func(p *kernels.SampleParams) { p.Repetition, p.Prompt = 2, []int32{2} }, 1},
		{"repetition multiplies", []float32{-1, -1.5, -3}, func(p *kernels.SampleParams) { p.Repetition, p.Output = 2, []int32{0} }, 1},
		{"repetition once an id", []float32{8, 3, 1}, func(p *kernels.SampleParams) {
			p.Repetition, p.Prompt, p.Output = 2, []int32{0, 0, 0, 0}, []int32{0, 0, 0}
		}, 0},
		{"repetition of ids that do not exist", []float32{1, 2, 3}, func(p *kernels.SampleParams) {
			p.Repetition, p.Prompt, p.Output = 2, []int32{3, -1, 1 << 30}, []int32{3, -1}
		}, 2},
		{"repetition below one", []float32{1, 2, 3}, func(p *kernels.SampleParams) { p.Repetition, p.Prompt = 0.25, []int32{0} }, 0},
		{"presence once", []float32{1, 2, 3}, func(p *kernels.SampleParams) { p.Presence, p.Output = 0.75, []int32{2, 2, 2} }, 2},
		{"presence enough", []float32{1, 2, 3}, func(p *kernels.SampleParams) { p.Presence, p.Output = 1.25, []int32{2} }, 1},
		{"presence not for the prompt", []float32{1, 2, 3}, func(p *kernels.SampleParams) { p.Presence, p.Prompt = 2, []int32{2} }, 2},
		{"frequency each time", []float32{1, 2, 3}, func(p *kernels.SampleParams) { p.Frequency, p.Output = 0.75, []int32{2, 0, 2} }, 1},
		{"frequency too little", []float32{1, 2, 3}, func(p *kernels.SampleParams) { p.Frequency, p.Output = 0.75, []int32{2} }, 2},
		{"presence negative", []float32{1, 2, 3}, func(p *kernels.SampleParams) { p.Presence, p.Output = -1.5, []int32{1} }, 1},
		{"repetition before presence", []float32{4, 2.25, 0}, func(p *kernels.SampleParams) {
			// 4/2 + 0.375 is above 2.25, (4 + 0.375)/2 below.
			p.Repetition, p.Presence, p.Output = 2, -0.375, []int32{0}
		}, 0},
	} {
		h.wantID(c.name, h.one(c.logits, c.change), c.want)
		// The same when drawn: a temperature near 0 leaves only the largest.
		h.wantID(c.name+", drawn", h.one(c.logits, func(p *kernels.SampleParams) {
			c.change(p)
			p.Temperature, p.TopK = 1e-3, 1
		}), c.want)
	}
	// One row's changes stay its own, in both directions.
	row := []float32{1, 2, 3}
	changed := greedy()
	changed.Repetition, changed.Frequency, changed.Prompt, changed.Output, changed.Banned = 3, 2, []int32{1}, []int32{2, 2}, []int32{1}
	out := h.sample([][]float32{row, row, row, row}, greedy(), changed, changed, greedy())
	for i, want := range []int32{2, 0, 0, 2} {
		h.wantID(fmt.Sprint("row ", i), out[i], want)
	}
}

// flat returns logits none of which is far from the others.
func (h *harness) flat(n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(h.rnd.NormFloat64()) - 4
	}
	return x
}

// draws is how many of n a device makes.
func (h *harness) draws(n int) int {
	if h.light {
		return n / 4
	}
	return n
}

// draw returns how often each id was drawn in n draws with consecutive indices.
func (h *harness) draw(logits []float32, p kernels.SampleParams, n int) []int {
	h.Helper()
	const rows = 500
	counts := make([]int, len(logits))
	for p.Index = 0; p.Index < uint64(n); {
		var all [][]float32
		var params []kernels.SampleParams
		for range rows {
			all, params = append(all, logits), append(params, p)
			p.Index++
		}
		for _, s := range h.sample(all, params...) {
			if s.NaN || int(s.ID) >= len(logits) || s.ID < 0 {
				h.Fatalf("drew %+v of %d ids", s, len(logits))
			}
			counts[s.ID]++
		}
	}
	return counts
}

// probabilities are those of the ids in keep, in float64.
func probabilities(logits []float32, temperature float64, keep []int) []float64 {
	p := make([]float64, len(logits))
	var sum float64
	for _, i := range keep {
		p[i] = math.Exp(float64(logits[i]) / temperature)
		sum += p[i]
	}
	for i := range p {
		p[i] /= sum
	}
	return p
}

// kept says which ids the cuts leave, from the definitions.
func kept(logits []float32, s kernels.SampleParams) []int {
	ids := make([]int, len(logits))
	for i := range ids {
		ids[i] = i
	}
	slices.SortStableFunc(ids, func(a, b int) int {
		if logits[a] == logits[b] {
			return a - b
		}
		if logits[a] > logits[b] {
			return -1
		}
		return 1
	})
	p := probabilities(logits, float64(s.Temperature), ids)
	if s.MinP > 0 {
		floor := float64(s.MinP) * p[ids[0]]
		for len(ids) > 0 && p[ids[len(ids)-1]] < floor {
			ids = ids[:len(ids)-1]
		}
	}
	if s.TopK > 0 {
		ids = ids[:min(s.TopK, len(ids))]
	}
	if s.TopP > 0 && s.TopP < 1 {
		p = probabilities(logits, float64(s.Temperature), ids)
		var sum float64
		for i, id := range ids {
			if sum += p[id]; sum >= float64(s.TopP) {
				return ids[:i+1]
			}
		}
	}
	return ids
}

// sampleCuts wants exactly the ids that are left to be drawn, each of them some time.
func sampleCuts(h *harness) {
	logits := []float32{0.5, 2, 1.25, -1, 1.9, 0.25, 1.25, -3, 0.1, 1.25, -0.5, 1.6}
	for _, c := range []struct {
		name        string
		temperature float32
		topK        int
		topP, minP  float32
	}{
		{"none", 1.5, 0, 1, 0},
		{"top k 1", 1, 1, 1, 0},
		{"top k 4", 1, 4, 1, 0},
		{"top k through equals", 1, 5, 1, 0},
		{"top k of more than there are", 2, 100, 1, 0},
		{"top p 0.05", 1, 0, 0.05, 0},
		{"top p 0.4", 1, 0, 0.4, 0},
		{"top p 0.9", 1, 0, 0.9, 0},
		{"top p 0.9 colder", 0.5, 0, 0.9, 0},
		{"min p 0.3", 1, 0, 1, 0.3},
		{"min p 0.3 hotter", 2, 0, 1, 0.3},
		{"min p 1", 1, 0, 1, 1},
		{"top k before top p", 1, 4, 0.7, 0},
		{"min p before top p", 1, 0, 0.7, 0.5},
		{"all", 1.3, 6, 0.8, 0.2},
	} {
		h.sub(c.name, func(h *harness) {
			p := greedy()
			p.Temperature, p.TopK, p.TopP, p.MinP, p.Seed = c.temperature, c.topK, c.topP, c.minP, 42
			want := kept(logits, p)
			slices.Sort(want)
			var got []int
			for id, n := range h.draw(logits, p, h.draws(4000)) {
				if n > 0 {
					got = append(got, id)
				}
			}
			if !slices.Equal(got, want) {
				h.Fatalf("drew %v, want %v", got, want)
			}
		})
	}
}

// sampleDistribution compares counts with probabilities by a chi-square test whose seed is fixed.
func sampleDistribution(h *harness) {
	ids := 3000
	if h.light {
		ids = 200
	}
	long := h.flat(ids)
	for i := range 25 {
		long[i*ids/26] = float32(i%5) + 2
	}
	short := []float32{0, 1, 0.5, -1, 0.25, 2, -2, 0.75}
	biased := greedy()
	biased.Bias, biased.Banned, biased.Temperature = []kernels.TokenBias{{ID: 0, Bias: 1.5}}, []int32{5}, 1
	biasedLogits := slices.Clone(short)
	biasedLogits[0] += 1.5
	biasedLogits[5] = float32(math.Inf(-1))
	for _, c := range []struct {
		name              string
		logits, effective []float32
		change            func(*kernels.SampleParams)
	}{
		{"plain", short, short, nil},
		{"hot", short, short, func(p *kernels.SampleParams) { p.Temperature = 2 }},
		{"cold", short, short, func(p *kernels.SampleParams) { p.Temperature = 0.4 }},
		{"changed", short, biasedLogits, func(p *kernels.SampleParams) { *p = biased }},
		{"top k", short, short, func(p *kernels.SampleParams) { p.TopK = 4 }},
		{"top p", short, short, func(p *kernels.SampleParams) { p.TopP = 0.8 }},
		{"min p", short, short, func(p *kernels.SampleParams) { p.MinP = 0.2 }},
		{"all cuts", short, short, func(p *kernels.SampleParams) { p.TopK, p.TopP, p.MinP, p.Temperature = 6, 0.9, 0.1, 1.2 }},
		{"many ids", long, long, nil},
		{"many ids, top p", long, long, func(p *kernels.SampleParams) { p.TopP = 0.95 }},
		{"many ids, top k", long, long, func(p *kernels.SampleParams) { p.TopK = 30 }},
	} {
		for seed := range uint64(3) {
			if seed > 0 && (h.light || len(c.logits) > 100) {
				continue
			}
			h.sub(fmt.Sprintf("%s, seed %d", c.name, seed), func(h *harness) {
				p := greedy()
				p.Temperature = 1
				if c.change != nil {
					c.change(&p)
				}
				p.Seed = seed
				n := h.draws(6000)
				if h.light && len(c.logits) > 100 {
					n = 500
				}
				want := probabilities(c.effective, float64(p.Temperature), kept(c.effective, p))
				got := h.draw(c.logits, p, n)
				// Ids that are expected too rarely to be compared one by one are counted as one.
				var chi, restWant float64
				restGot, cells := 0, -1
				for id, prob := range want {
					if prob == 0 {
						if got[id] != 0 {
							h.Fatalf("drew id %d, whose probability is 0, %d times", id, got[id])
						}
						continue
					}
					expected := prob * float64(n)
					if expected < 8 {
						restWant, restGot = restWant+expected, restGot+got[id]
						continue
					}
					chi += (float64(got[id]) - expected) * (float64(got[id]) - expected) / expected
					cells++
				}
				if restWant >= 8 {
					chi += (float64(restGot) - restWant) * (float64(restGot) - restWant) / restWant
					cells++
				}
				// Mean cells, variance 2*cells: four standard deviations and a little for the tail.
				if limit := float64(cells) + 4*math.Sqrt(2*float64(cells)) + 6; cells < 1 || chi > limit {
					h.Fatalf("chi-square %.1f with %d degrees of freedom, allowed %.1f", chi, cells, limit)
				}
			})
		}
	}
}

// sampleSeeds wants a draw to be a function of seed and index, whatever else is in the step.
func sampleSeeds(h *harness) {
	logits, other := h.flat(500), h.flat(500)
	p := greedy()
	p.Temperature = 1.5
	var alone, together []int32
	var rows [][]float32
	var params []kernels.SampleParams
	for i := range uint64(40) {
		p.Seed, p.Index = i/8, i%8
		alone = append(alone, h.sample([][]float32{logits}, p)[0].ID)
		hot := greedy()
		hot.Temperature, hot.Seed, hot.TopK = 1, i, 3
		rows, params = append(rows, other, logits), append(params, hot, p)
	}
	for i, s := range h.sample(rows, params...) {
		if i%2 == 1 {
			together = append(together, s.ID)
		}
	}
	if !slices.Equal(alone, together) {
		h.Fatalf("alone %v, together %v", alone, together)
	}
	for _, by := range []int{1, 8} { // neighbours in index and in seed differ
		same := 0
		for i := range alone[by:] {
			if alone[i] == alone[i+by] {
				same++
			}
		}
		if same > 8 {
			h.Fatalf("%d of %d draws equal the one %d before: %v", same, len(alone)-by, by, alone)
		}
	}
}

func sampleLogprobs(h *harness) {
	many := 20000
	if h.light {
		many = 3000
	}
	for _, vocab := range []int{5, 100, many} {
		h.sub(fmt.Sprint(vocab, " ids"), func(h *harness) {
			logits := h.rows(1, vocab)[0]
			logits[3] = float32(math.Inf(-1))
			logits[2] = logits[1]
			var sum float64
			for _, v := range logits {
				sum += math.Exp(float64(v))
			}
			logprob := func(id int32) float64 { return float64(logits[id]) - math.Log(sum) }
			order := kept(logits, kernels.SampleParams{Temperature: 1})
			check := func(what string, s kernels.Sampled, id int32, n int) {
				h.Helper()
				h.wantID(what, s, id)
				rank := int32(1)
				for _, v := range logits {
					if v > logits[id] {
						rank++
					}
				}
				if s.Rank != rank || len(s.Top) != min(n, vocab-1) {
					h.Fatalf("%s: rank %d and %d more, want %d and %d", what, s.Rank, len(s.Top), rank, min(n, vocab-1))
				}
				if want := logprob(id); math.IsInf(want, -1) != math.IsInf(float64(s.Logprob), -1) || !math.IsInf(want, -1) && math.Abs(want-float64(s.Logprob)) > 1e-5*(1+math.Abs(want)) {
					h.Fatalf("%s: logprob %v, want %v", what, s.Logprob, want)
				}
				for i, top := range s.Top {
					if int(top.ID) != order[i] {
						h.Fatalf("%s: number %d is %d, want %d", what, i, top.ID, order[i])
					}
					h.close(what+": logprob of the most likely", top.Logprob, logprob(top.ID), 1e-5*(1+math.Abs(logprob(top.ID))))
				}
			}
			for _, n := range []int{0, 1, 2, 20, 200} {
				ask := func(p *kernels.SampleParams) { p.Logprobs = n }
				check("greedy", h.one(logits, ask), int32(order[0]), n)
				for _, id := range []int32{0, 1, 2, 3, int32(vocab - 1), int32(order[1])} {
					check(fmt.Sprint("given ", id), h.one(logits, func(p *kernels.SampleParams) { ask(p); p.Given = id }), id, n)
				}
				// What is reported is of the raw logits, whatever changed them for the draw.
				check("changed", h.one(logits, func(p *kernels.SampleParams) {
					ask(p)
					p.Temperature, p.TopK = 0.1, 1
					p.Banned = []int32{int32(order[0])}
					p.Repetition, p.Output = 1.5, []int32{0}
					p.Bias = []kernels.TokenBias{{ID: int32(order[vocab-2]), Bias: 1000}}
				}), int32(order[vocab-2]), n)
			}
			if s := h.one(logits, nil); s.Logprob != 0 || s.Rank != 0 || s.Top != nil {
				h.Fatalf("logprobs that nobody asked for: %+v", s)
			}
		})
	}
}
