package sched

import (
	"cmp"
	"slices"
	"time"
)

const (
	// minChunk is the smallest number of prompt tokens that a step is bounded to, whatever is due: with less, a
	// prompt beside a stream that is always late would never be done.
	minChunk = 16
	// blindChunk bounds a step's prompt tokens beside others while nothing is known of what steps take.
	blindChunk = 128
	// margin is the part of the time until something is due that a step is planned to take: predictions err.
	margin = 0.9
)

// promptTokens is how many prompt tokens, at most room, a step of q may have beside its decoding rows w, so that it
// is predicted to end in time for whatever is due meanwhile. It is minChunk at least, if there is room.
func (s *Scheduler) promptTokens(q *queue, w Work, room int, now time.Duration) int {
	if room <= minChunk {
		return max(0, room)
	}
	alone := s.alone(q)
	if !q.model.ready() {
		if alone {
			return room
		}
		return min(room, blindChunk)
	}
	if !alone { // larger steps than were ever seen are tried by and by
		room = min(room, max(blindChunk, 2*q.model.most))
	}
	start, urgent := 0, q.head(true)
	for _, seq := range s.prompts {
		start += seq.planned
		if urgent == nil || seq.nextDue() < urgent.nextDue() {
			urgent = seq
		}
	}
	start /= max(1, len(s.prompts))
	n := q.tokensIn(w, start, room, s.stepLimit(q, now))
	if urgent != nil && urgent.nextDue() != never { // a step that ends it in time is better than a longer one
		if soon := q.tokensIn(w, start, n, (urgent.nextDue() - now).Seconds()); soon >= urgent.length-urgent.planned {
			n = soon
		}
	}
	return n
}

// tokensIn is how many prompt tokens from position start on, at most room, a step beside rows w may have to take no
// more than limit seconds; minChunk at least.
func (q *queue) tokensIn(w Work, start, room int, limit float64) int {
	fits := func(n int) bool {
		with := w
		with.add(start, max(2, n), 1)
		return q.model.Predict(with) <= limit
	}
	if room <= minChunk || fits(room) {
		return room
	}
	lo, hi := minChunk, room // lo is allowed, hi is not
	for hi-lo > 1 {
		if mid := (lo + hi) / 2; fits(mid) {
			lo = mid
		} else {
			hi = mid
		}
	}
	return lo
}

// alone says that nobody waits for q's step to end.
func (s *Scheduler) alone(q *queue) bool {
	if s.streaming > 0 {
		return false
	}
	for _, o := range s.order {
		if o != q && o.latest != never {
			return false
		}
	}
	return true
}

// stepLimit is how many seconds a step of q with prompt tokens may take: until the next token of its own rows is
// due, or the most urgent sequence of another model has to begin, behind those of the others that are due before.
func (s *Scheduler) stepLimit(q *queue, now time.Duration) float64 {
	limit := s.limits.MaxStep.Seconds()
	if s.plain > 0 {
		limit = min(limit, s.limits.StreamStep.Seconds())
	}
	if q.rowDue != never {
		limit = min(limit, margin*(q.rowDue-now).Seconds())
	}
	for _, o := range s.order {
		if o == q || o.latest == never {
			continue
		}
		until := (o.latest - now).Seconds()
		for _, p := range s.order {
			if p != q && p != o && p.latest < o.latest {
				until -= p.seconds
			}
		}
		limit = min(limit, margin*until)
	}
	return limit
}

// shareOut sets the chunks of s.prompts, which are in order of age, budget in all. The oldest gets something in any
// case. Those with a deadline that can be met come first, the most urgent in full, but for half of the budget, which
// the others can have an eighth each of; the others share what is left alike.
func (s *Scheduler) shareOut(budget int) {
	s.urgent = s.urgent[:0]
	share, reserve := max(1, budget/8), 0
	for _, q := range s.prompts {
		q.chunk = 0
		if q.nextDue() != never {
			s.urgent = append(s.urgent, q)
		} else {
			reserve += min(q.todo(), share)
		}
	}
	if len(s.urgent) == 0 {
		shareAlike(s.prompts, budget)
		return
	}
	first := s.prompts[0]
	if first.nextDue() != never {
		first.chunk = min(first.todo(), share)
		budget -= first.chunk
	}
	reserve = min(reserve, max(1, budget/2), budget)
	if len(s.urgent) == len(s.prompts) {
		reserve = 0
	}
	budget -= reserve
	slices.SortFunc(s.urgent, func(a, b *Sequence) int {
		return cmp.Or(cmp.Compare(a.latest, b.latest), cmp.Compare(a.age, b.age))
	})
	for _, q := range s.urgent {
		n := min(q.todo()-q.chunk, budget)
		q.chunk += n
		budget -= n
	}
	s.urgent = s.urgent[:0]
	for _, q := range s.prompts {
		if q.nextDue() == never {
			s.urgent = append(s.urgent, q)
		}
	}
	if len(s.urgent) > 0 {
		shareAlike(s.urgent, budget+reserve)
	}
}

// shareAlike sets each prompt's chunk: the same for all that need more than it, the whole rest for the
// others, and what does not divide evenly to the oldest.
func shareAlike(prompts []*Sequence, budget int) {
	for _, q := range prompts {
		q.chunk = 0
	}
	open, level := len(prompts), 0
	for again := true; again && open > 0; {
		again = false
		level = budget / open
		for _, q := range prompts {
			if n := q.todo(); q.chunk == 0 && n <= level {
				q.chunk = n
				budget -= n
				open--
				again = true
			}
		}
	}
	if open == 0 {
		return
	}
	rest := budget - level*open
	for _, q := range prompts {
		if q.chunk == 0 {
			q.chunk = level
			if rest > 0 {
				q.chunk++
				rest--
			}
		}
	}
}
