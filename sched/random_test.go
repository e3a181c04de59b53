package sched

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/openinfer-go/openinfer/kvcache"
)

// world is a scheduler over a device, and what is known of every sequence it accepted.
type world struct {
	s       *Scheduler
	pool    *kvcache.Pool
	dev     *device
	now     time.Time
	truths  map[*Sequence]*truth
	alive   []*truth // in order of arrival
	flying  []*launch
	steps   int
	refused int
	weights worldWeights
	passed  map[string]passed // by model
}

func drawWorld(t *rapid.T) *world {
	pages := uniform(t, "pages", 3, 14)
	w := &world{pool: kvcache.NewPool(pages), dev: newDevice(pages), now: time.Unix(1000, 0), truths: map[*Sequence]*truth{}, passed: map[string]passed{}}
	w.weights.since, w.weights.byHand = map[string]time.Time{}, map[string]bool{}
	w.s = New(w.pool, Limits{
		MaxWaiting:   rapid.SampledFrom([]int{0, 0, 6}).Draw(t, "all waiting"),
		MaxOvertakes: rapid.SampledFrom([]int{0, 1, 3}).Draw(t, "overtakes"),
		InFlight:     uniform(t, "in flight", 0, 3),
		WeightBytes:  rapid.SampledFrom([]int64{0, 10, 10}).Draw(t, "weight bytes"),
		MinResident:  rapid.SampledFrom([]time.Duration{50 * time.Millisecond, 50 * time.Millisecond, 200 * time.Millisecond, 0}).Draw(t, "min resident"),
	})
	for i := range uniform(t, "models", 1, 3) {
		w.addModel(t, fmt.Sprint("m", i))
	}
	return w
}

func (w *world) addModel(t *rapid.T, name string) {
	cfg := kvcache.Config{
		Model:         name,
		BlocksPerPage: rapid.SampledFrom([]int{1, 1, 2, 3, 4}).Draw(t, "per page"),
		NoPrefixCache: uniform(t, "no prefix cache", 0, 7) == 0,
	}
	for range uniform(t, "groups", 1, 2) {
		g := kvcache.Group{BlockTokens: rapid.SampledFrom([]int{16, 16, 32, 48}).Draw(t, "block tokens")}
		if rapid.Bool().Draw(t, "sliding") {
			g.Kind, g.Window = kvcache.SlidingWindow, uniform(t, "window", 1, 50)
		}
		cfg.Groups = append(cfg.Groups, g)
	}
	if uniform(t, "recurrent", 0, 2) > 0 {
		cfg.Groups = append(cfg.Groups, kvcache.Group{Kind: kvcache.Recurrent, StatePages: uniform(t, "state pages", 1, 2)})
		cfg.Snapshots = rapid.SampledFrom([]int{4, 2, 1, 0}).Draw(t, "snapshots")
		cfg.SnapshotTokens = rapid.SampledFrom([]int{0, 0, 60}).Draw(t, "snapshot tokens")
	}
	c, err := w.pool.NewCache(cfg)
	if err != nil {
		t.Fatal(err)
	}
	w.dev.caches[name] = c
	batch := rapid.SampledFrom([]int{1, 8, 40, 100}).Draw(t, "batch tokens")
	d := Model{
		Name: name, Cache: c, MaxTokens: uniform(t, "context", 20, 400),
		MaxBatchTokens: batch,
		MaxSeqs:        rapid.SampledFrom([]int{1, 4, 12}).Draw(t, "running"),
		MaxWaiting:     uniform(t, "waiting", 0, 20),
		Weight:         rapid.SampledFrom([]float64{0, 1, 4}).Draw(t, "weight"),
		SLA:            drawSLA(t),
		Prior:          drawPrior(t),
		Regimes:        rapid.SampledFrom([][]int{nil, nil, {60}, {17, 130}}).Draw(t, "regimes"),
	}
	drawWeights(t, &d)
	if err := w.s.AddModel(d); err != nil {
		d.Parked = true
		if err := w.s.AddModel(d); err != nil {
			t.Fatal(err)
		}
	}
}

// uniform draws evenly from lo to hi, both included; rapid's own integers are mostly small ones,
// which never fill a pool. It shrinks to lo.
func uniform(t *rapid.T, name string, lo, hi int) int {
	x := rapid.Int32().Draw(t, name)
	if x == 0 || hi <= lo {
		return lo
	}
	return lo + int(mix(1, x)%uint64(hi-lo+1))
}

// drawPrompt draws from few texts, so that many prompts share a beginning.
func drawPrompt(t *rapid.T) []int32 {
	stem, fork := uniform(t, "stem", 0, 1), uniform(t, "fork", 0, 160)
	out := make([]int32, uniform(t, "prompt", 1, 160))
	for i := range out {
		out[i] = int32(100 + stem*1000 + i%9)
		if i >= fork {
			out[i] += int32(fork)
		}
	}
	return out
}

func (w *world) submit(t *rapid.T) {
	q := w.drawModel(t)
	prompt := drawPrompt(t)
	id := kvcache.Identity{Salt: rapid.SampledFrom([]string{"", "a"}).Draw(t, "salt")}
	var seqs []*Sequence
	var truths []*truth
	for range rapid.SampledFrom([]int{1, 1, 1, 3}).Draw(t, "n") {
		seq := &Sequence{
			Model: q.Name, Identity: id, Prompt: prompt,
			MaxTokens: uniform(t, "max tokens", 0, 120),
			MinTokens: rapid.SampledFrom([]int{0, 5}).Draw(t, "min tokens"),
		}
		if mark := uniform(t, "mark", 0, 160); mark < len(prompt) {
			seq.Marks = []int{mark / 2, mark}
		}
		switch uniform(t, "special", 0, 5) {
		case 0:
			seq.PromptLogits = true
		case 1:
			seq.SkipPrefix = true
		case 2:
		default:
			seq.EndTokens = []int32{endToken, 999}
		}
		seq.SLA, seq.Priority, seq.Key = drawSLA(t), uniform(t, "priority", -1, 1), rapid.SampledFrom([]string{"", "k", "l"}).Draw(t, "key")
		tr := newTruth(seq)
		tr.stopAt = rapid.SampledFrom([]int{0, 0, 0, 7}).Draw(t, "stop at")
		seqs, truths = append(seqs, seq), append(truths, tr)
	}
	accepted := len(q.waiting) + len(q.running)
	err := w.s.Submit(w.now, seqs...)
	var over *OverCapacity
	switch {
	case err == nil:
		for i, tr := range truths {
			w.truths[seqs[i]] = tr
			w.alive = append(w.alive, tr)
		}
		return
	case errors.As(err, &over) && errors.Is(err, ErrOverCapacity):
		if over.RetryAfter < time.Second || over.RetryAfter > 2*time.Minute {
			t.Fatalf("retry after %s", over.RetryAfter)
		}
		if over.Target == 0 && over.Predicted == 0 && w.s.limits.MaxWaiting == 0 && accepted+len(seqs) <= q.MaxSeqs+q.MaxWaiting {
			t.Fatalf("refused %d sequences although %d of %d+%d places are taken", len(seqs), accepted, q.MaxSeqs, q.MaxWaiting)
		}
	case errors.Is(err, ErrTooLong), errors.Is(err, ErrTooMany):
	default:
		t.Fatal(err)
	}
	w.refused++
	if got := len(q.waiting) + len(q.running); got != accepted {
		t.Fatalf("a refused request changed %d sequences to %d", accepted, got)
	}
}

func (w *world) plan(t *rapid.T) *Plan {
	oldest := w.oldest()
	decoding := map[*Sequence]uint16{} // and their epochs: who is preempted and let in again by the same plan begins anew
	for _, q := range w.s.queues {
		for _, seq := range q.running {
			if seq.todo() == 1 && !seq.shifts() {
				decoding[seq] = seq.epoch
			}
		}
	}
	fair := w.watch(t)
	p := w.s.Plan(w.now)
	fair()
	if oldest != nil && !oldest.Running() { // an even older one may have been admitted, and need the room
		if o := w.oldest(); oldest.Done() || o == nil || o.age > oldest.age {
			t.Fatalf("the oldest running sequence, %d of %s, was preempted", oldest.age, oldest.Model)
		}
	}
	if p == nil {
		if len(w.s.inFlight) == 0 {
			w.mustMove(t)
		}
		return nil
	}
	q, tokens := w.s.queue(p.Model), 0
	seen := map[*Sequence]bool{}
	for i := range p.Rows {
		r := &p.Rows[i]
		if w.s.Residency(p.Model) != Resident {
			t.Fatalf("a step of %s, which is %s", p.Model, w.s.Residency(p.Model))
		}
		if r.Seq.Model != p.Model || seen[r.Seq] || r.N < 1 || p.Void(i) || !r.Seq.Running() {
			t.Fatalf("row %d of %s: %+v", i, p.Model, *r)
		}
		seen[r.Seq] = true
		known := r.Seq.length + int(r.Seq.pending)
		if r.Samples == 1 {
			known-- // the one that it samples
		}
		if q.regime(known) != r.Seq.Regime() || q.regime(known+r.Drafts) != r.Seq.Regime() {
			t.Fatalf("a row of %d tokens and %d drafts is under regime %d of %v", known, r.Drafts, r.Seq.Regime(), q.Regimes)
		}
		tokens += r.N
		end := r.Start + r.N - r.Drafts
		if last := end == r.Seq.length+int(r.Seq.pending)-min(1, r.Samples-r.Drafts); r.Samples > 0 != (last && r.Seq.MaxTokens > 0) && r.Drafts == 0 {
			t.Fatalf("row %d ends at %d of %d+%d tokens, %d samples", i, end, r.Seq.length, r.Seq.pending, r.Samples)
		}
	}
	for seq, epoch := range decoding {
		if seq.Model == p.Model && seq.Running() && seq.epoch == epoch && !seen[seq] {
			t.Fatalf("sequence %d of %s decodes, but has no row", seq.age, p.Model)
		}
	}
	if tokens != p.Tokens || tokens > q.MaxBatchTokens || len(p.Rows) > q.MaxSeqs {
		t.Fatalf("%s: %d tokens (%d), %d rows; at most %d, %d", p.Model, tokens, p.Tokens, len(p.Rows), q.MaxBatchTokens, q.MaxSeqs)
	}
	w.flying = append(w.flying, newLaunch(p))
	return p
}

func (w *world) oldest() *Sequence {
	var o *Sequence
	for _, q := range w.s.queues {
		if len(q.running) > 0 && (o == nil || q.running[0].age < o.age) {
			o = q.running[0]
		}
	}
	return o
}

// run executes the launches up to and including the i-th.
func (w *world) run(t *rapid.T, i int) {
	for _, l := range w.flying[:i+1] {
		if l.ran {
			continue
		}
		if err := w.dev.run(l, w.truths); err != nil {
			t.Fatal(err)
		}
	}
}

func (w *world) commit(t *rapid.T, spoil func(l *launch)) {
	w.run(t, 0)
	l := w.flying[0]
	w.flying = w.flying[1:]
	w.now = w.now.Add(time.Duration(1+l.plan.Tokens) * leastStep / 2)
	if spoil != nil {
		spoil(l)
	}
	before := map[*Sequence]Row{}
	for i := range l.plan.Rows {
		if r := l.plan.Rows[i]; !l.plan.Void(i) && l.reason == nil && l.out.Errs[i] == nil {
			before[r.Seq] = r
			for p := r.LogitsFrom; p < r.LogitsTo; p++ {
				tr := w.truths[r.Seq]
				if tr.logits[p] {
					t.Fatalf("logits of position %d asked for twice", p)
				}
				tr.logits[p] = true
			}
		}
	}
	w.s.Commit(l.plan, l.out, l.reason, w.now)
	w.steps++
	w.events(t)
}

func (w *world) events(t *rapid.T) {
	for _, e := range w.s.Events() {
		seen.events++
		tr := w.truths[e.Seq]
		if err := tr.take(e); err != nil {
			t.Fatal(err)
		}
		if e.Reason == None {
			continue
		}
		if !e.Seq.Done() || (e.Reason == Failed) != (e.Err != nil) {
			t.Fatalf("final event %+v", e)
		}
		if e.Reason < Cancelled && e.Seq.PromptLogits {
			for p, ok := range tr.logits[:len(tr.logits)-1] {
				if !ok {
					t.Fatalf("logits of position %d were never asked for", p)
				}
			}
		}
		for i, o := range w.alive {
			if o == tr {
				w.alive = append(w.alive[:i:i], w.alive[i+1:]...)
				break
			}
		}
	}
}

func (w *world) drawAlive(t *rapid.T) *truth {
	if len(w.alive) == 0 {
		t.Skip("nobody")
	}
	return w.alive[uniform(t, "sequence", 0, len(w.alive)-1)]
}

var errStep = errors.New("step error")

func (w *world) actions() map[string]func(*rapid.T) {
	rarely := func(t *rapid.T, n int) {
		if uniform(t, "really", 0, n) != 1 {
			t.Skip()
		}
	}
	plan := func(t *rapid.T) {
		w.plan(t)
	}
	commit := func(t *rapid.T) {
		if len(w.flying) == 0 {
			t.Skip("nothing in flight")
		}
		w.commit(t, func(l *launch) {
			switch uniform(t, "spoil", 0, 100) {
			case 1:
				l.reason = errStep
			case 2:
				l.out.Errs[uniform(t, "row", 0, len(l.rows)-1)] = errStep
			case 3:
				l.out.Tokens[uniform(t, "row", 0, len(l.rows)-1)] = nil
			}
		})
	}
	all := map[string]func(*rapid.T){
		"submit": w.submit, "submit too": w.submit, "submit again": w.submit,
		"plan": plan, "plan too": plan, "plan again": plan,
		"commit": commit, "commit too": commit, "commit again": commit,
		"steps": func(t *rapid.T) {
			for range uniform(t, "steps", 1, 20) {
				w.step(t)
			}
		},
		"run": func(t *rapid.T) {
			if len(w.flying) == 0 {
				t.Skip("nothing in flight")
			}
			w.run(t, uniform(t, "launch", 0, len(w.flying)-1))
		},
		"draft": func(t *rapid.T) {
			tr := w.drawAlive(t)
			d := append([]int32(nil), tr.tokens[tr.seq.length:min(len(tr.tokens), tr.seq.length+uniform(t, "k", 0, 5))]...)
			if i := uniform(t, "wrong", 0, 5); i < len(d) {
				d[i] = 500
			}
			tr.seq.SetDraft(d)
		},
		"await draft": func(t *rapid.T) { w.drawAlive(t).seq.AwaitDraft() },
		"cancel": func(t *rapid.T) {
			rarely(t, 3)
			tr := w.drawAlive(t)
			w.s.Cancel(tr.seq)
			w.s.Cancel(tr.seq)
			w.events(t)
			if tr.final == nil || tr.final.Reason != Cancelled {
				t.Fatalf("cancelled: %+v", tr.final)
			}
		},
		"fail a model": func(t *rapid.T) {
			rarely(t, 100)
			w.s.FailModel(w.drawModel(t).Name, errStep)
			w.events(t)
		},
		"reset": func(t *rapid.T) {
			rarely(t, 200)
			w.s.Reset(errStep)
			w.events(t)
			if len(w.alive) > 0 || !w.s.Idle() {
				t.Fatalf("%d alive after a reset", len(w.alive))
			}
			w.run(t, len(w.flying)-1) // the device does not know
			for _, l := range w.flying {
				w.s.Commit(l.plan, l.out, nil, w.now)
			}
			w.flying = nil
			w.events(t)
		},
		"": func(t *rapid.T) {
			if err := w.s.Verify(); err != nil {
				t.Fatal(err)
			}
		},
	}
	maps.Copy(all, w.moves())
	return all
}

// step is a step, with weights that move beside it, or a wait until there can be one.
func (w *world) step(t *rapid.T) {
	w.plan(t)
	w.begin(t)
	if len(w.flying) > 0 {
		w.commit(t, nil)
		if w.weights.change != nil && w.steps%3 == 0 {
			w.end(t, nil)
		}
	} else if w.weights.change != nil {
		w.end(t, nil)
	} else if at := w.s.Wake(w.now); !w.s.Idle() && !at.IsZero() {
		w.now = at
	}
}

// drain runs until nobody is left, and checks that this takes no longer than it should.
func (w *world) drain(t *rapid.T) {
	w.s.Drain()
	bound := w.steps + w.bound()
	for !w.s.Idle() {
		w.step(t)
		if err := w.s.Verify(); err != nil {
			t.Fatal(err)
		}
		if w.steps > bound {
			t.Fatalf("%d sequences left after %d steps", len(w.alive), w.steps)
		}
	}
	if len(w.alive) > 0 {
		t.Fatalf("idle with %d sequences that got no final event", len(w.alive))
	}
	for _, m := range w.pool.Stats().Models {
		if m.Live+m.States != 0 {
			t.Fatalf("%d live blocks, %d states at rest", m.Live, m.States)
		}
	}
}

// seen is what all timelines together have come to.
var seen struct{ timelines, steps, events, finals, refused, preemptions, loads, parks, sieges uint64 }

func (w *world) count() {
	seen.timelines++
	seen.steps += uint64(w.steps)
	seen.refused += uint64(w.refused)
	for _, st := range w.s.Stats() {
		for _, n := range st.Finished {
			seen.finals += n
		}
		seen.preemptions += st.Preemptions
		seen.loads += st.Loads
		seen.parks += st.Parks
	}
}

// TestRandom draws timelines of models, requests, cancels, step errors, drafts, overlapping plans, resets, and weights that
// come and go and fail to, over small pools. After each action everything is recounted; every step finds in memory what
// it should; every sequence gets the tokens it would get alone and one final event; nobody waits for ever.
func TestRandom(t *testing.T) {
	begun := time.Now()
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		t.Repeat(w.actions())
		w.drain(t)
		w.count()
	})
	row(t, "random timelines", time.Since(begun), "%d timelines, %d steps, %d events, %d sequences ended, %d refused, %d preemptions, %d loads, %d parks, %d sieges",
		seen.timelines, seen.steps, seen.events, seen.finals, seen.refused, seen.preemptions, seen.loads, seen.parks, seen.sieges)
}

// row logs a row of the table that scripts/sched-soak.sh makes.
func row(t *testing.T, what string, took time.Duration, format string, args ...any) {
	t.Logf("row| %s | %s | %s |", what, took.Round(time.Second/10), fmt.Sprintf(format, args...))
}

// TestMain sets how many timelines are drawn; -rapid.checks still overrides it.
func TestMain(m *testing.M) {
	checks := "300"
	if os.Getenv("OPENINFER_SOAK") == "1" {
		checks = "100000"
	}
	if err := errors.Join(flag.Set("rapid.checks", checks), flag.Set("rapid.steps", "120"), flag.Set("rapid.nofailfile", "true")); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}
