package sched

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/openinfer-go/openinfer/kvcache"
)

// server runs a scheduler in virtual time over models whose steps take what a cost function says.
type server struct {
	t       testing.TB
	s       *Scheduler
	pool    *kvcache.Pool
	costs   map[string]func(Work) float64
	now     time.Time
	due     []*client // that have not come yet, soonest first
	clients map[*Sequence]*client
	busy    map[string]float64
	idle    float64
	step    func(p *Plan, took float64)
}

// client is a request and what became of it.
type client struct {
	seq         *Sequence
	at          time.Time
	first, last time.Time
	gap         time.Duration // the longest
	tokens      int
	over        *OverCapacity // the last refusal
	refusals    int
	retries     int // how often it comes back when it was told to
	ended       bool
}

func newServer(t testing.TB, pages int, lim Limits) *server {
	pool := kvcache.NewPool(pages)
	return &server{t: t, s: New(pool, lim), pool: pool, costs: map[string]func(Work) float64{}, now: time.Unix(0, 0),
		clients: map[*Sequence]*client{}, busy: map[string]float64{}}
}

// roofline is a card's step time: weights are read while it computes.
func roofline(weights, perToken, perContext, fixed float64) func(Work) float64 {
	return func(w Work) float64 {
		return fixed + max(weights, perToken*float64(w.Tokens)) + perContext*float64(w.Context) + perContext/32*float64(w.PromptContext)
	}
}

// model adds one; its prior is off by a factor.
func (v *server) model(m Model, cost func(Work) float64, off float64) {
	v.t.Helper()
	c, err := v.pool.NewCache(kvcache.Config{Model: m.Name, BlocksPerPage: 4, Groups: []kvcache.Group{{BlockTokens: 16}}})
	if err != nil {
		v.t.Fatal(err)
	}
	m.Cache = c
	if off > 0 {
		for n := 1; n <= 4096; n *= 2 {
			for _, w := range []Work{{1, n, 1, 0, int64(n * n / 2)}, {1, n, 1, 0, int64(n*n/2 + n*4000)}, {n, n, n, int64(n * 500), 0}} {
				if w.Rows < 512 {
					m.Prior = append(m.Prior, Observation{w, off * cost(w)})
				}
			}
		}
	}
	if err := v.s.AddModel(m); err != nil {
		v.t.Fatal(err)
	}
	v.costs[m.Name] = cost
}

func (v *server) add(after float64, seq *Sequence) *client {
	c := &client{seq: seq, at: time.Unix(0, 0).Add(time.Duration(after * 1e9))}
	v.due = append(v.due, c)
	return c
}

// run goes on until nobody is left, or for so many seconds.
func (v *server) run(until float64) {
	v.t.Helper()
	slices.SortStableFunc(v.due, func(a, b *client) int { return a.at.Compare(b.at) })
	end := time.Unix(0, 0).Add(time.Duration(until * 1e9))
	for v.now.Before(end) {
		for len(v.due) > 0 && !v.due[0].at.After(v.now) {
			c := v.due[0]
			v.due = v.due[1:]
			v.submit(c)
		}
		p := v.s.Plan(v.now)
		if p == nil {
			if len(v.due) == 0 {
				return
			}
			v.idle += v.due[0].at.Sub(v.now).Seconds()
			v.now = v.due[0].at
			continue
		}
		took := v.costs[p.Model](p.Work())
		if v.step != nil {
			v.step(p, took)
		}
		v.busy[p.Model] += took
		v.now = v.now.Add(time.Duration(took * 1e9))
		out := Output{Tokens: make([][]int32, len(p.Rows))}
		for i := range p.Rows {
			if p.Rows[i].Samples > 0 {
				out.Tokens[i] = []int32{7}
			}
		}
		v.s.Commit(p, out, nil, v.now)
		for _, e := range v.s.Events() {
			c := v.clients[e.Seq]
			if len(e.Tokens) > 0 {
				if c.tokens == 0 {
					c.first = v.now
				} else {
					c.gap = max(c.gap, v.now.Sub(c.last))
				}
				c.last = v.now
				c.tokens++
			}
			c.ended = c.ended || e.Reason != None
		}
	}
}

func (v *server) submit(c *client) {
	v.t.Helper()
	err := v.s.Submit(v.now, c.seq)
	c.over = nil
	switch {
	case err == nil:
		v.clients[c.seq], c.at = c, v.now
	case errors.As(err, &c.over):
		c.refusals++
		if c.retries > 0 {
			c.retries--
			c.at = v.now.Add(c.over.RetryAfter)
			i, _ := slices.BinarySearchFunc(v.due, c, func(a, b *client) int { return cmp.Or(a.at.Compare(b.at), -1) })
			v.due = slices.Insert(v.due, i, c)
		}
	default:
		v.t.Fatal(err)
	}
}

// met says whether a client got what its SLA promised.
func (c *client) met(sla SLA) bool {
	if !c.ended || c.tokens == 0 {
		return false
	}
	return (sla.TTFT == 0 || c.first.Sub(c.at) <= sla.TTFT) &&
		(sla.TPOT == 0 || c.tokens == 1 || c.last.Sub(c.first) <= sla.TPOT*time.Duration(c.tokens-1))
}

// chat is requests as they come to a chat service: exponential gaps, prompts and answers of many lengths.
func (v *server) chat(r *rand.Rand, model string, perSecond, seconds float64, sla SLA) (out []*client) {
	for at := r.ExpFloat64() / perSecond; at < seconds; at += r.ExpFloat64() / perSecond {
		prompt := make([]int32, int(20+min(4000, 400*r.ExpFloat64())))
		prompt[0] = r.Int32()
		out = append(out, v.add(at, &Sequence{Model: model, Prompt: prompt, SkipPrefix: true, MaxTokens: int(5 + min(500, 120*r.ExpFloat64())), SLA: sla}))
	}
	return out
}

// TestGoodput offers up to several times what a device can do: from its peak on, what is sold stays where it is, and
// what was accepted is served in time. It is a card with two models, one, and eight, and a CPU of which nothing is known
// beforehand.
func TestGoodput(t *testing.T) {
	card := roofline(0.012, 1.2e-4, 2e-8, 0.001)
	for _, c := range []struct {
		name    string
		models  int
		cost    func(Work) float64
		prior   float64 // how far it is off; 0: none
		sla     SLA
		loads   []float64
		seconds float64
	}{
		{"two models", 2, card, 0.8, SLA{2 * time.Second, 60 * time.Millisecond}, []float64{4, 8, 12, 16, 32}, 60},
		{"one model", 1, card, 1.3, SLA{time.Second, 30 * time.Millisecond}, []float64{8, 16, 32, 64}, 60},
		{"eight models", 8, roofline(0.004, 4e-5, 1e-8, 0.0005), 1, SLA{2 * time.Second, 80 * time.Millisecond}, []float64{16, 32, 64}, 40},
		{"cpu", 2, roofline(0.03, 2e-3, 5e-8, 0.001), 0, SLA{10 * time.Second, 400 * time.Millisecond}, []float64{0.25, 0.5, 1, 2}, 300},
	} {
		t.Run(c.name, func(t *testing.T) {
			peak := 0.0
			for _, load := range c.loads {
				v := newServer(t, 8000, Limits{})
				r := rand.New(rand.NewPCG(1, uint64(load)))
				var all []*client
				for i := range c.models {
					m := fmt.Sprint("m", i)
					v.model(Model{Name: m, MaxTokens: 8192, MaxBatchTokens: 2048, MaxSeqs: 128, MaxWaiting: 1000}, c.cost, c.prior)
					all = append(all, v.chat(r, m, load/float64(c.models), c.seconds, c.sla)...)
				}
				v.run(c.seconds * 2)
				sold, accepted, good := 0, 0, 0
				for _, cl := range all {
					if v.clients[cl.seq] == nil {
						continue
					}
					accepted++
					if cl.met(c.sla) {
						good++
						sold += cl.tokens
					}
				}
				goodput, late := float64(sold)/c.seconds, uint64(0)
				for _, st := range v.s.Stats() {
					late += st.Late
				}
				t.Logf("%4.4g requests/s: %4d of %4d accepted, %.1f %% of them in time, %4.0f tokens/s sold; %d late, pace %.2f",
					load, accepted, len(all), 100*float64(good)/float64(accepted), goodput, late, v.s.pace.factor())
				if float64(good) < 0.95*float64(accepted) {
					t.Errorf("%g requests/s: %d of %d accepted were served in time", load, good, accepted)
				}
				if peak = max(peak, goodput); goodput < 0.95*peak {
					t.Errorf("%g requests/s: %.0f tokens/s sold, of %.0f at the peak", load, goodput, peak)
				}
			}
		})
	}
}

// TestLongPrompt: a prompt of 20,000 tokens, on the same model or another one, with or without deadlines, widens no gap
// of a stream beyond its target or a smallest chunk.
func TestLongPrompt(t *testing.T) {
	for _, tpot := range []time.Duration{30 * time.Millisecond, 40 * time.Millisecond, 200 * time.Millisecond} {
		for _, other := range []string{"a", "b"} {
			for _, ttft := range []time.Duration{0, time.Minute} {
				t.Run(fmt.Sprint(tpot, other, ttft), func(t *testing.T) {
					v := newServer(t, 4000, Limits{})
					cost := roofline(0.012, 1.2e-4, 2e-8, 0.001)
					for _, m := range []string{"a", "b"} {
						v.model(Model{Name: m, MaxTokens: 30000, MaxBatchTokens: 2048, MaxSeqs: 64, MaxWaiting: 10}, cost, 1.2)
					}
					var streams []*client
					for i := range 5 {
						streams = append(streams, v.add(0.1*float64(i), &Sequence{Model: "a", Prompt: make([]int32, 10), MaxTokens: 300, SLA: SLA{TPOT: tpot}}))
					}
					long := v.add(1, &Sequence{Model: other, Prompt: make([]int32, 20000), MaxTokens: 1, SLA: SLA{TTFT: ttft}})
					v.run(100)
					if !long.ended {
						t.Fatal("the long prompt was not computed")
					}
					smallest := cost(Work{Tokens: minChunk + 5, Context: 5 * 400, PromptContext: 20000 * minChunk})
					if other != "a" {
						smallest += cost(Work{Tokens: 5, Context: 5 * 400})
					}
					most := max(tpot, time.Duration(smallest*1e9))
					for i, c := range streams {
						if c.gap > most {
							t.Errorf("stream %d: a gap of %s, of %s", i, c.gap, most)
						}
					}
					t.Logf("gap %v of %v; the prompt took %v", streams[4].gap, most, long.last.Sub(long.at))
				})
			}
		}
	}
}

// TestFairShare: a model that always has work gets four fifths of its share of the device's time at least, over any
// five seconds, whatever deadlines the others have.
func TestFairShare(t *testing.T) {
	v := newServer(t, 8000, Limits{})
	weights := map[string]float64{"decodes": 1, "prompts": 1, "heavy": 2, "chat": 1}
	r := rand.New(rand.NewPCG(3, 4))
	const seconds = 30
	for _, m := range []string{"decodes", "prompts", "heavy", "chat"} {
		v.model(Model{Name: m, Weight: weights[m], MaxTokens: 8192, MaxBatchTokens: 2048, MaxSeqs: 64, MaxWaiting: 1000}, roofline(0.01, 1e-4, 2e-8, 0.001), 1)
	}
	for range 200 { // always work at each
		v.add(0, &Sequence{Model: "decodes", Prompt: make([]int32, 3), MaxTokens: 8000})
		v.add(0, &Sequence{Model: "heavy", Prompt: make([]int32, 30), MaxTokens: 8000})
		v.add(0, &Sequence{Model: "prompts", Prompt: make([]int32, 3000), SkipPrefix: true, MaxTokens: 200})
	}
	v.chat(r, "chat", 40, seconds, SLA{TTFT: 5 * time.Second, TPOT: 60 * time.Millisecond})
	window, at := map[string]float64{}, 0.0
	v.step = func(p *Plan, took float64) {
		window[p.Model] += took
		if now := v.now.Sub(time.Unix(0, 0)).Seconds(); now-at >= 5 {
			total := 0.0
			for m := range weights {
				total += window[m]
			}
			t.Logf("%.0f s: %v", now, window)
			for m, w := range weights {
				if share := window[m] / total; m != "chat" && share < 0.8*w/5 {
					t.Errorf("%g s: %s had %.0f %% of the time, of %.0f", now, m, 100*share, 20*w)
				}
			}
			if window["chat"] == 0 {
				t.Errorf("%g s: chat had no time", now)
			}
			at = now
			clear(window)
		}
	}
	v.run(seconds)
}

// TestRetryAfter: callers refused in a burst who come back when they were told to are mostly accepted.
func TestRetryAfter(t *testing.T) {
	for _, c := range []struct {
		name string
		sla  SLA
		max  int
	}{
		{"prompts", SLA{TTFT: 2 * time.Second}, 1},
		{"streams", SLA{TTFT: 2 * time.Second, TPOT: 40 * time.Millisecond}, 200},
		{"queue", SLA{}, 50},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := newServer(t, 4000, Limits{})
			v.model(Model{Name: "a", MaxTokens: 8192, MaxBatchTokens: 2048, MaxSeqs: 64, MaxWaiting: 50}, roofline(0.012, 2e-4, 2e-8, 0.001), 1)
			r := rand.New(rand.NewPCG(5, 6))
			for i := range 50 { // what answers are like
				v.add(float64(i)/5, &Sequence{Model: "a", Prompt: make([]int32, 20), MaxTokens: c.max})
			}
			var all []*client
			for range 300 {
				prompt := make([]int32, 300+r.IntN(200))
				prompt[0] = r.Int32()
				cl := v.add(30, &Sequence{Model: "a", Prompt: prompt, SkipPrefix: true, MaxTokens: c.max, SLA: c.sla})
				cl.retries = 20
				all = append(all, cl)
			}
			v.run(400)
			refused, again, met, tries := 0, 0, 0, 0
			for _, cl := range all {
				if cl.refusals > 0 {
					refused++
					tries += cl.refusals
				}
				if cl.refusals > 1 {
					again++
				}
				if cl.met(c.sla) {
					met++
				}
			}
			t.Logf("%d refused, %d more than once (%.1f times each); %d served in time", refused, again, float64(tries)/float64(max(1, refused)), met)
			if refused < 50 || float64(again) > 0.3*float64(refused) {
				t.Errorf("of %d refused callers, %d were refused again", refused, again)
			}
			if float64(met) < 0.95*float64(len(all)) {
				t.Errorf("%d of %d were served in time in the end", met, len(all))
			}
		})
	}
}

// TestBestEffortEnds: best-effort requests end although requests with deadlines take all that they can get.
func TestBestEffortEnds(t *testing.T) {
	sla := SLA{TTFT: 2 * time.Second, TPOT: 60 * time.Millisecond}
	v := newServer(t, 4000, Limits{})
	v.model(Model{Name: "a", MaxTokens: 8192, MaxBatchTokens: 2048, MaxSeqs: 64, MaxWaiting: 1000}, roofline(0.012, 1.2e-4, 2e-8, 0.001), 1)
	r := rand.New(rand.NewPCG(7, 8))
	v.chat(r, "a", 40, 120, sla)
	var plain []*client
	for i := range 10 {
		plain = append(plain, v.add(5+float64(i), &Sequence{Model: "a", Prompt: make([]int32, 500+50*i), SkipPrefix: true, MaxTokens: 100, Priority: -i % 2}))
	}
	v.run(120)
	slowest := 0.0
	for i, c := range plain {
		if !c.ended {
			t.Errorf("request %d without an SLA did not end", i)
		}
		slowest = math.Max(slowest, c.last.Sub(c.at).Seconds())
	}
	t.Logf("the slowest took %.1f s", slowest)
}

// TestNobodyStarves: a request in the background ends within the bound of the package comment although requests of
// higher priority, of other keys and with deadlines, come in every step.
func TestNobodyStarves(t *testing.T) {
	v := newServer(t, 400, Limits{})
	for _, m := range []string{"a", "b"} {
		v.model(Model{Name: m, MaxTokens: 100, MaxBatchTokens: 50, MaxSeqs: 4, MaxWaiting: 60}, roofline(0, 0, 0, 0), 0)
	}
	s := v.s
	const older, longest, slots = 3, 60, 4
	var seqs []*Sequence
	for range 20 { // these run when the others come
		seqs = append(seqs, &Sequence{Model: "a", Prompt: make([]int32, 10), MaxTokens: 40, Priority: 5})
	}
	for range older + 1 {
		seqs = append(seqs, &Sequence{Model: "a", Prompt: make([]int32, 40), MaxTokens: longest - 40, Priority: -1, SkipPrefix: true})
	}
	now := time.Unix(0, 0)
	for _, seq := range seqs {
		if err := s.Submit(now, seq); err != nil {
			t.Fatal(err)
		}
	}
	last, steps, others := seqs[20+older], 0, 0
	for !last.Done() {
		for i := range 8 {
			sla := SLA{TTFT: time.Duration(i%4) * time.Hour} // which is always accepted
			if s.Submit(now, &Sequence{Model: []string{"a", "b"}[i%2], Prompt: make([]int32, 30), MaxTokens: longest - 30, Priority: 5, Key: fmt.Sprint(steps % 3), SLA: sla}) == nil {
				others++
			}
		}
		p := s.Plan(now)
		out := Output{Tokens: make([][]int32, len(p.Rows))}
		for j := range p.Rows {
			if p.Rows[j].Samples > 0 {
				out.Tokens[j] = []int32{1}
			}
		}
		now = now.Add(10 * time.Millisecond)
		s.Commit(p, out, nil, now)
		s.Events()
		if p.Model == "a" {
			steps++
		}
		const n = 20 + older
		if bound := (n + fairTurn*(n+1) + 16 + slots + 1) * longest; steps > bound {
			t.Fatalf("not done after %d steps of its model", steps)
		}
	}
	if others < 100 {
		t.Fatalf("only %d others came", others)
	}
	t.Logf("%d steps of its model, past %d others", steps, others)
}

// TestOddClocks: a clock that stands still, jumps ahead or goes back stops nobody.
func TestOddClocks(t *testing.T) {
	for name, tick := range map[string]func(i int) time.Duration{
		"still": func(int) time.Duration { return 0 },
		"ahead": func(i int) time.Duration { return time.Duration(i%7/6) * 1000 * time.Hour },
		"back":  func(i int) time.Duration { return []time.Duration{time.Second, -time.Second}[i%2] },
		"down":  func(int) time.Duration { return -time.Second },
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := newScheduler(t, Limits{InFlight: 2})
			now := time.Unix(0, 0)
			var all []*Sequence
			for i := range 60 {
				seq := &Sequence{Model: []string{"a", "b"}[i%2], Prompt: make([]int32, 1+i), MaxTokens: 20,
					SLA: SLA{TTFT: time.Duration(i%3) * time.Second, TPOT: time.Duration(i%2) * time.Millisecond}}
				if err := s.Submit(now, seq); err == nil {
					all = append(all, seq)
				}
				for range 5 {
					if p := s.Plan(now); p != nil {
						out := Output{Tokens: make([][]int32, len(p.Rows))}
						for j := range p.Rows {
							if p.Rows[j].Samples > 0 {
								out.Tokens[j] = []int32{1}
							}
						}
						now = now.Add(tick(i))
						s.Commit(p, out, nil, now)
					}
				}
			}
			for i := 0; !s.Idle(); i++ {
				if i > 5000 {
					t.Fatal("it goes on for ever")
				}
				p := s.Plan(now)
				out := Output{Tokens: make([][]int32, len(p.Rows))}
				for j := range p.Rows {
					if p.Rows[j].Samples > 0 {
						out.Tokens[j] = []int32{1}
					}
				}
				now = now.Add(tick(i))
				s.Commit(p, out, nil, now)
				if err := s.Verify(); err != nil {
					t.Fatal(err)
				}
			}
			if len(all) < 10 {
				t.Fatalf("only %d were accepted", len(all))
			}
			for _, seq := range all {
				if !seq.Done() {
					t.Fatal("not done")
				}
			}
		})
	}
}
