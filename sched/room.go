package sched

import (
	"cmp"
	"slices"
	"time"
)

// Room for weights: who leaves for a model that is asked for, and how long that takes. What is chosen here is
// carried out in residency.go.

// held is the bytes of weights on the device, and those of a change at their most: what leaves goes first.
func (s *Scheduler) held() int64 {
	var sum, out, in int64
	for _, q := range s.queues {
		if q.weights.state == Resident {
			sum += q.WeightBytes
		}
	}
	if c := s.change; c != nil { // its models may have been removed
		for _, q := range c.park {
			out += q.WeightBytes
		}
		if c.load != nil {
			in = c.load.WeightBytes
		}
	}
	return sum + max(out, in)
}

// missing is how many bytes have to leave before q can come.
func (s *Scheduler) missing(q *queue) int64 {
	if s.limits.WeightBytes == 0 {
		return 0
	}
	return s.held() + q.WeightBytes - s.limits.WeightBytes
}

// affords says whether q, which is asked for, can come now without taking room from a model that has work
// or that incoming waits for.
func (s *Scheduler) affords(q *queue, now time.Time) bool {
	if s.incoming == nil {
		_, ok := s.vacate(q, now)
		return ok
	}
	if s.missing(q) > 0 {
		return false
	}
	sum := q.WeightBytes + s.incoming.WeightBytes
	for _, o := range s.queues {
		if o.weights.state != Parked && !o.weights.leaving {
			sum += o.WeightBytes
		}
	}
	return s.limits.WeightBytes == 0 || sum <= s.limits.WeightBytes
}

// mayGo says whether q may make room for another model now: at once while it has no work, else after
// it has drained.
func (s *Scheduler) mayGo(q *queue, now time.Time) (atOnce, drained bool) {
	w := &q.weights
	if w.state != Resident || q.WeightBytes == 0 {
		return false, false
	}
	if w.leaving {
		return s.still(q), true
	}
	if s.vacant(q) {
		ok := !now.Before(s.freeAt(q))
		return ok, ok
	}
	owes := len(q.waiting) > 0 && q.waiting[0].age <= w.owed
	return false, !now.Before(w.stay) && !owes
}

// freeAt is when a model without work may make room for another one: once it has left nothing of its stay but a
// MinResident and, within that, has been without work for as long as a load may take. Callers who wait for an answer
// before they ask again leave it without work each time; if it went then, each of its turns would be one answer, beside
// seconds of a model whose callers take turns.
func (s *Scheduler) freeAt(q *queue) time.Time {
	w, least := &q.weights, s.minResident(q)
	at := w.used.Add(least / loadShare)
	if at.After(w.stay) {
		at = w.stay
	}
	if first := w.stay.Add(-least); first.After(at) {
		at = first
	}
	return at
}

// vacate returns what can be parked at once to make room for q, in s.out, and whether that is enough.
func (s *Scheduler) vacate(q *queue, now time.Time) ([]*queue, bool) {
	out := s.out[:0]
	for _, o := range s.queues {
		if atOnce, _ := s.mayGo(o, now); atOnce {
			out = append(out, o)
		}
	}
	s.out = out
	slices.SortStableFunc(out, leavingOrder)
	return leastOf(out, s.missing(q))
}

// drain lets models that have work leave when there is no other room for q, and no fewer than it takes. Who
// is leaving stays so: were the choice made anew each time, nobody might ever be done.
func (s *Scheduler) drain(q *queue, now time.Time) {
	if s.missing(q) <= 0 {
		return
	}
	if _, ok := s.vacate(q, now); ok {
		return
	}
	out := s.out[:0]
	for _, o := range s.queues {
		if _, ok := s.mayGo(o, now); ok {
			out = append(out, o)
		}
	}
	s.out = out
	slices.SortStableFunc(out, func(a, b *queue) int {
		if c := cmp.Compare(s.rank(a), s.rank(b)); c != 0 {
			return c
		}
		return leavingOrder(a, b)
	})
	out, ok := leastOf(out, s.missing(q))
	if !ok {
		return
	}
	for _, o := range out {
		if !s.vacant(o) && !o.weights.leaving {
			o.weights.leaving = true
			s.unhold(o)
		}
	}
}

// rank sorts those who have begun to leave before those without work, and these before the others.
func (s *Scheduler) rank(q *queue) int {
	switch {
	case q.weights.leaving:
		return 0
	case s.vacant(q):
		return 1
	}
	return 2
}

// leavingOrder sorts by last use and, of models that are in use, by when they were loaded.
func leavingOrder(a, b *queue) int {
	if c := a.weights.used.Compare(b.weights.used); c != 0 {
		return c
	}
	return a.weights.loaded.Compare(b.weights.loaded)
}

// leastOf returns the first of out that have so many bytes together, without those that the last ones make
// superfluous unless they are leaving, and whether there are so many.
func leastOf(out []*queue, need int64) ([]*queue, bool) {
	n := 0
	for ; need > 0 && n < len(out); n++ {
		need -= out[n].WeightBytes
	}
	if need > 0 {
		return nil, false
	}
	out = out[:n]
	for i := n - 1; i >= 0; i-- {
		if b := out[i].WeightBytes; need+b <= 0 && !out[i].weights.leaving {
			need += b
			out = slices.Delete(out, i, i+1)
		}
	}
	return out, true
}

// loadWait predicts how long from now on it takes until q can step: 0 when its weights are there and stay.
func (s *Scheduler) loadWait(q *queue, now time.Time) time.Duration {
	if q.admits() {
		return 0
	}
	wait := time.Duration(0)
	if c := s.change; c != nil && c.load != nil {
		wait = max(0, c.load.weights.loadTime-now.Sub(c.begun))
		if c.load == q {
			return wait
		}
	}
	for _, o := range s.queues {
		if o == q || !o.asks() || !o.called() || o != s.incoming && q.asks() && q.before(o) {
			continue
		}
		wait += o.weights.loadTime
		if l := s.limits.WeightBytes; l > 0 && o.WeightBytes+q.WeightBytes > l {
			wait = max(wait, s.roomIn(o, now)) + s.minResident(o) + seconds(o.answer())
		}
	}
	return max(wait, s.roomIn(q, now)) + q.weights.loadTime
}

// roomIn predicts how long it takes until what has to leave for q can: the time that they stay, and then the rest
// of their running sequences.
func (s *Scheduler) roomIn(q *queue, now time.Time) time.Duration {
	need := s.missing(q)
	out := s.out[:0]
	for _, o := range s.queues {
		if o != q && o.weights.state == Resident {
			out = append(out, o)
		}
	}
	s.out = out
	in := func(o *queue) time.Duration {
		if s.vacant(o) {
			return max(0, s.freeAt(o).Sub(now))
		}
		rest := o.restOf()
		if !o.weights.leaving { // others begin meanwhile
			rest = max(rest, o.answer())
		}
		return max(0, o.weights.stay.Sub(now)) + seconds(rest)
	}
	slices.SortStableFunc(out, func(a, b *queue) int { return cmp.Compare(in(a), in(b)) })
	wait := time.Duration(0)
	for i := 0; need > 0 && i < len(out); i++ {
		wait = in(out[i])
		need -= out[i].WeightBytes
	}
	return wait
}

// answer is how many seconds the usual answer takes.
func (q *queue) answer() float64 { return q.cost.output * max(q.cost.interval, q.cost.step) }
