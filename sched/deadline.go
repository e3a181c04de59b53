package sched

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// Times are durations since the first that the scheduler was told; never is no deadline.
const never = time.Duration(math.MaxInt64)

func (s *Scheduler) at(now time.Time) time.Duration {
	if !s.started {
		s.epoch, s.started = now, true
	}
	return now.Sub(s.epoch)
}

func seconds(s float64) time.Duration {
	return time.Duration(min(max(s, 0), 1e6) * float64(time.Second))
}

// begins is when a step that is planned now will begin: when those in flight are predicted to end. What is due is
// compared with that.
func (s *Scheduler) begins(now time.Duration) time.Duration {
	return now + seconds(s.rest(now))
}

// nextDue is when the token after those in flight is due: the first by TTFT, the others a TPOT after the one before,
// which is predicted if it is in flight, or sooner when the mean has fallen behind: up to half a TPOT before it does,
// lest the last token decides.
func (q *Sequence) nextDue() time.Duration {
	n := q.sampled()
	switch {
	case q.late:
	case n == 0 && q.pending == 0:
		if q.sla.TTFT > 0 {
			return q.came + q.sla.TTFT
		}
	case q.sla.TPOT > 0:
		before := q.last
		if q.pending > 0 {
			before = q.soon
		}
		due := before + q.sla.TPOT
		if n > 0 {
			due = min(due, q.first+q.sla.TPOT*time.Duration(n+int(q.pending))-q.sla.TPOT*time.Duration(min(n, 4))/8)
		}
		return due
	}
	return never
}

// decoding says that all but its last token is computed, so that a step gives it another one.
func (q *Sequence) decoding() bool {
	return q.sampled()+int(q.pending) > 0 && q.length+int(q.pending)-q.planned <= 1
}

// survey is what a queue's sequences need, as last counted: what the choice between models, the length of
// chunks and admission ask for.
type survey struct {
	decode  Work    // a step of all rows that decode
	seconds float64 // that it takes
	least   float64 // and with the smallest chunk of a prompt, if there is one
	rowDue  time.Duration
	// latest is when the queue's next step has to begin for its most urgent sequence; never without an SLA.
	// promptLatest is that of those which wait for their first token.
	latest, promptLatest time.Duration
	plain                int     // running sequences that never had a deadline
	late                 int     // those that cannot meet it
	growth               float64 // tokens that the running sequences are expected to add
	perTok               float64 // seconds that a prompt token adds to steps
}

// count counts a running sequence whose next token is due then, if it decodes.
func (v *survey) count(seq *Sequence, due time.Duration) {
	switch {
	case due != never:
		v.rowDue = min(v.rowDue, due)
	case seq.late:
		v.late++
	default:
		v.plain++
	}
}

// look counts again what has changed since.
func (s *Scheduler) look(q *queue, now time.Duration) {
	if !q.dirty {
		return
	}
	q.dirty = false
	v := survey{rowDue: never, latest: never, promptLatest: never}
	s.unsure = s.unsure[:0]
	for _, seq := range q.running {
		v.growth += q.cost.tokensLeft(seq)
		decodes := seq.decoding()
		if decodes {
			v.decode.add(seq.length+int(seq.pending)-1, 1, 1)
		}
		if !decodes || seq.behind(now) {
			s.unsure = append(s.unsure, seq)
			continue
		}
		v.count(seq, seq.nextDue())
	}
	v.seconds = q.stepSeconds(v.decode)
	chunk := q.typicalChunk()
	v.perTok = q.promptSeconds(v.decode, chunk, 0) / float64(chunk)
	v.least = v.seconds
	if len(q.waiting) > 0 || v.decode.Rows < len(q.running) {
		v.least += q.promptSeconds(v.decode, minChunk, 0)
	}
	for _, seq := range s.unsure {
		if !seq.late && seq.hasSLA() && s.hopeless(q, seq, now, v.seconds) {
			s.giveUp(seq)
		}
		due := seq.nextDue()
		if due == never || seq.decoding() {
			v.count(seq, due)
			continue
		}
		left := seq.length - seq.planned
		seq.latest = due - seconds(v.least+(v.perTok*float64(left)+q.contextSeconds(seq.planned, left)))
		v.promptLatest = min(v.promptLatest, seq.latest)
	}
	v.latest = v.promptLatest
	if v.rowDue != never {
		v.latest = min(v.latest, v.rowDue-seconds(v.least))
	}
	q.survey = v
	for len(q.running) < q.MaxSeqs {
		seq := q.head(true)
		if seq == nil || seq.due == never {
			break
		}
		seq.latest = q.latestStart(seq)
		if s.hopeless(q, seq, now, v.seconds) {
			s.giveUp(seq)
			continue
		}
		if seq.refusedAt == 0 {
			q.survey.latest = min(q.survey.latest, seq.latest)
			q.promptLatest = min(q.promptLatest, seq.latest)
		}
		break
	}
	q.dirty = false // taking a sequence out of its place set it
}

// latestStart is when steps have to begin for the deadline of a sequence that waits.
func (q *queue) latestStart(seq *Sequence) time.Duration {
	if seq.due == never {
		return never
	}
	n := seq.length
	return seq.due - seconds(q.least+q.perTok*float64(n)+q.contextSeconds(0, n))
}

func (q *Sequence) hasSLA() bool { return q.sla != SLA{} }

// behind says that a sequence with a TPOT that can still be met has fewer tokens than by that.
func (q *Sequence) behind(now time.Duration) bool {
	return q.sla.TPOT != 0 && !q.late && now > q.first+q.sla.TPOT*time.Duration(q.sampled()+int(q.pending))
}

// hopeless says that the SLA cannot be met any more by steps from now on, when those in flight have ended: the first token's time has passed, or will have even if all
// goes twice as fast as predicted; or the mean per token will be too long although every step from now on, for as
// many tokens as usual, is the model's own.
func (s *Scheduler) hopeless(q *queue, seq *Sequence, now time.Duration, step float64) bool {
	n := seq.sampled()
	if n == 0 {
		if seq.sla.TTFT == 0 || seq.pending > 0 {
			return false
		}
		due := seq.came + seq.sla.TTFT
		left := seq.length - seq.planned
		return now > due || now+seconds(q.promptSeconds(Work{}, left, seq.planned)/2) > due
	}
	if !seq.behind(now) {
		return false
	}
	more := max(1, q.cost.tokensLeft(seq)) // with those in flight, which are there by now
	mean := (max(now, seq.last) - seq.first).Seconds() + max(0, more-float64(seq.pending))*step
	return mean > seq.sla.TPOT.Seconds()*(float64(n-1)+more)
}

// giveUp makes a sequence whose SLA cannot be met best effort, so that it delays none whose SLA can.
func (s *Scheduler) giveUp(seq *Sequence) {
	streaming := seq.streaming
	s.setStreaming(seq, false)
	s.release(seq)
	seq.queue.untarget(seq)
	queued := seq.state == waiting && seq.place >= 0
	if queued {
		seq.queue.dequeue(seq)
	}
	seq.late, seq.due = true, never
	if queued {
		seq.queue.enqueue(seq)
	}
	s.setStreaming(seq, streaming)
	seq.queue.stats.Late++
}

// A promise is the first token of an accepted sequence with a TTFT, and the seconds of prompt work before it.
type promise struct {
	due  time.Duration
	age  uint64
	work float64
}

func (s *Scheduler) findPromise(due time.Duration, age uint64) (int, bool) {
	return slices.BinarySearchFunc(s.promises, promise{due: due, age: age}, func(a, b promise) int {
		switch {
		case a.due != b.due && a.due < b.due || a.due == b.due && a.age < b.age:
			return -1
		case a.due == b.due && a.age == b.age:
			return 0
		}
		return 1
	})
}

// promise notes a sequence's first token and the work before it.
func (s *Scheduler) promise(seq *Sequence, work float64) {
	if seq.due == never {
		return
	}
	i, _ := s.findPromise(seq.due, seq.age)
	s.promises = slices.Insert(s.promises, i, promise{seq.due, seq.age, work})
	s.backlog += work
	seq.promised, seq.work = true, work
	seq.queue.owed++
}

// release forgets the promise, which was kept, or broken, or is nobody's any more.
func (s *Scheduler) release(seq *Sequence) {
	if !seq.promised {
		return
	}
	if i, ok := s.findPromise(seq.came+seq.sla.TTFT, seq.age); ok {
		s.backlog -= s.promises[i].work
		s.promises = slices.Delete(s.promises, i, i+1)
	}
	if len(s.promises) == 0 {
		s.backlog = 0
	}
	seq.promised = false
	seq.queue.owed--
}

// target is a TPOT and how many sequences want it.
type target struct {
	tpot time.Duration
	n    int
}

func (q *queue) findTarget(tpot time.Duration) (int, bool) {
	return slices.BinarySearchFunc(q.targets, tpot, func(t target, tpot time.Duration) int { return cmp.Compare(t.tpot, tpot) })
}

// target counts a sequence's TPOT, and untarget no more.
func (q *queue) target(seq *Sequence) {
	if seq.sla.TPOT == 0 {
		return
	}
	i, ok := q.findTarget(seq.sla.TPOT)
	if !ok {
		q.targets = slices.Insert(q.targets, i, target{tpot: seq.sla.TPOT})
	}
	q.targets[i].n++
	q.streams++
}

func (q *queue) untarget(seq *Sequence) {
	if seq.sla.TPOT == 0 || seq.late {
		return
	}
	i, _ := q.findTarget(seq.sla.TPOT)
	if q.targets[i].n--; q.targets[i].n == 0 {
		q.targets = slices.Delete(q.targets, i, i+1)
	}
	q.streams--
}

// progress notes what is left of the work before a first token.
func (s *Scheduler) progress(seq *Sequence) {
	if !seq.promised {
		return
	}
	if i, ok := s.findPromise(seq.came+seq.sla.TTFT, seq.age); ok {
		q, left := seq.queue, seq.length-seq.computed
		work := q.survey.perTok*float64(left) + q.contextSeconds(seq.computed, left)
		s.backlog += work - s.promises[i].work
		s.promises[i].work = work
	}
}

// met says whether a sequence that has ended well was within its SLA.
func (q *Sequence) met() bool {
	n := q.sampled()
	if n == 0 {
		return true
	}
	return (q.sla.TTFT == 0 || q.first-q.came <= q.sla.TTFT) &&
		(q.sla.TPOT == 0 || n == 1 || q.last-q.first <= q.sla.TPOT*time.Duration(n-1))
}
