package sched

import (
	"errors"
	"slices"
	"time"

	"pgregory.net/rapid"
)

// worldWeights is what a timeline knows of where weights are, on its own.
type worldWeights struct {
	change *Switch
	begun  time.Time
	since  map[string]time.Time // models that were loaded
	byHand map[string]bool      // parked or with an idle time-out: they may leave at any time
}

func drawWeights(t *rapid.T, d *Model) {
	d.WeightBytes = int64(uniform(t, "bytes", 0, 10))
	d.Parked = rapid.Bool().Draw(t, "parked")
	d.LoadTime = rapid.SampledFrom([]time.Duration{0, 10 * time.Millisecond}).Draw(t, "load time")
	d.KeepAlive = rapid.SampledFrom([]time.Duration{0, 0, 100 * time.Millisecond}).Draw(t, "keep alive")
}

// leastStep is how long a step of one token takes.
const leastStep = 2 * time.Millisecond

func (w *world) drawModel(t *rapid.T) *queue {
	return w.s.queues[uniform(t, "model", 0, len(w.s.queues)-1)]
}

// mustMove checks that whoever waits is waiting for something.
func (w *world) mustMove(t *rapid.T) {
	if w.s.Idle() || w.weights.change != nil || w.begin(t) || !w.s.Wake(w.now).IsZero() {
		return
	}
	t.Fatalf("nothing to run, with sequences alive: %+v", w.s.Stats())
}

// begin takes the next change, if there is one.
func (w *world) begin(t *rapid.T) bool {
	if w.weights.change != nil {
		return false
	}
	before := map[string]bool{} // who has work
	for _, q := range w.s.queues {
		before[q.Name] = len(q.waiting)+len(q.running) > 0
	}
	sw := w.s.Switch(w.now)
	if sw == nil {
		return false
	}
	w.weights.change, w.weights.begun = sw, w.now
	if sw.Load == "" && len(sw.Park) == 0 {
		t.Fatal("a change of nothing")
	}
	for _, name := range sw.Park {
		q := w.s.queue(name)
		if len(q.running) > 0 || slices.ContainsFunc(w.flying, func(l *launch) bool { return l.plan.Model == name && !l.plan.dropped }) {
			t.Fatalf("%s is parked while it runs", name)
		}
		if at, ok := w.weights.since[name]; ok && before[name] && !w.weights.byHand[name] {
			if stayed := w.now.Sub(at); stayed < w.s.minResident(q) {
				t.Fatalf("%s had work and stayed for %s", name, stayed)
			}
		}
		delete(w.weights.since, name)
		delete(w.weights.byHand, name)
	}
	if sw.Load == "" {
		return true
	}
	sum := w.s.queue(sw.Load).WeightBytes
	for _, q := range w.s.queues {
		if q.Name != sw.Load && (w.s.Residency(q.Name) == Resident) {
			sum += q.WeightBytes
		}
	}
	if limit := w.s.limits.WeightBytes; limit > 0 && sum > limit {
		t.Fatalf("loading %s makes %d bytes of %d", sw.Load, sum, limit)
	}
	return true
}

// end says that the change was carried out.
func (w *world) end(t *rapid.T, err error) {
	sw := w.weights.change
	w.weights.change = nil
	w.now = w.now.Add(time.Duration(len(sw.Park)+len(sw.Load)) * time.Millisecond)
	lost := map[*truth]bool{}
	for _, tr := range w.alive {
		if tr.seq.Model == sw.Load && err != nil {
			lost[tr] = true
		}
	}
	w.s.Switched(sw, err, w.now)
	alive := len(w.alive)
	w.events(t)
	if len(w.alive) != alive-len(lost) {
		t.Fatalf("loading %s ended %d sequences, of %d", sw.Load, alive-len(w.alive), len(lost))
	}
	for tr := range lost {
		if tr.final == nil || !errors.Is(tr.final.Err, err) {
			t.Fatalf("%s failed to load: %+v", sw.Load, tr.final)
		}
	}
	if sw.Load != "" && err == nil {
		w.weights.since[sw.Load] = w.now
		if w.s.queue(sw.Load).KeepAlive >= 0 {
			w.weights.byHand[sw.Load] = true
		}
	}
}

// moves are the actions with weights.
func (w *world) moves() map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"switch": func(t *rapid.T) {
			if !w.begin(t) {
				t.Skip("no change")
			}
		},
		"switched": func(t *rapid.T) {
			if w.weights.change == nil {
				t.Skip("no change")
			}
			var err error
			if uniform(t, "load fails", 0, 7) == 1 {
				err = errStep
			}
			w.end(t, err)
		},
		"wait": func(t *rapid.T) {
			at := w.s.Wake(w.now)
			if at.IsZero() {
				t.Skip("for nothing")
			}
			if !at.After(w.now) {
				t.Fatalf("wake at %s, now %s", at, w.now)
			}
			w.now = at
		},
		"park": func(t *rapid.T) {
			q := w.drawModel(t)
			var err error
			if uniform(t, "fail", 0, 3) == 1 {
				err = errStep
			}
			w.weights.byHand[q.Name] = true
			if err := w.s.Park(q.Name, err, w.now); err != nil {
				t.Fatal(err)
			}
			w.events(t)
			if err != nil && len(q.waiting)+len(q.running) > 0 {
				t.Fatalf("%d sequences after %s was unloaded", len(q.waiting)+len(q.running), q.Name)
			}
		},
		"load": func(t *rapid.T) {
			if err := w.s.Load(w.drawModel(t).Name, w.now); err != nil {
				t.Fatal(err)
			}
		},
		"keep alive": func(t *rapid.T) {
			q := w.drawModel(t)
			w.weights.byHand[q.Name] = true
			d := rapid.SampledFrom([]time.Duration{-1, 0, 200 * time.Millisecond}).Draw(t, "for")
			if err := w.s.KeepAlive(q.Name, d); err != nil {
				t.Fatal(err)
			}
		},
		"siege": w.siege,
	}
}
