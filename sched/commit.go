package sched

import (
	"fmt"
	"math"
	"time"

	"github.com/openinfer-go/openinfer/kvcache"
)

// maxBarren is how many rows of a sequence in turn may yield no token before it fails.
const maxBarren = 8

// Output is what a step yields, by row.
type Output struct {
	// Tokens[i] are the tokens that row i yields: at most Row.Samples. Fewer than Samples means
	// that drafts were rejected; none that the last token has to be computed again.
	// May be nil when no row is sampled.
	Tokens [][]int32
	// Stop[i] = k > 0 ends row i's sequence after its k-th new token (a stop string was matched).
	// May be nil.
	Stop []int
	// Errs[i] fails row i's sequence alone (its logits are not numbers). May be nil.
	Errs []error
}

// Commit folds one step's result back: rows advance, full blocks can be found by others, tokens
// become events and sequences end. Plans are committed in the order they were made. An err fails
// the sequences of this step's rows and nothing else.
func (s *Scheduler) Commit(p *Plan, out Output, err error, now time.Time) {
	if p.dropped {
		return
	}
	if len(s.inFlight) == 0 || s.inFlight[0] != p {
		panic("sched: plans are committed in the order they were made")
	}
	copy(s.inFlight, s.inFlight[1:])
	s.inFlight = s.inFlight[:len(s.inFlight)-1]
	s.settle(p, err, now)
	if err == nil {
		err = out.check(p)
	}
	at := s.at(now)
	for i := range p.Rows {
		r := &p.Rows[i]
		switch {
		case r.epoch != r.Seq.epoch: // void
		case err != nil:
			s.finish(r.Seq, Event{Row: i, Reason: Failed, Err: err})
		case out.Errs != nil && out.Errs[i] != nil:
			s.finish(r.Seq, Event{Row: i, Reason: Failed, Err: out.Errs[i]})
		case r.Samples == 0:
			s.commitChunk(r, i)
		default:
			stop := 0
			if out.Stop != nil {
				stop = out.Stop[i]
			}
			s.commitSample(&p.queue.stats, r, i, out.Tokens[i], stop, at)
		}
	}
	s.seal(true)
	s.spare = append(s.spare, p)
}

// touch reads the lines of memory that a step of these sequences of q works on. Done for all of them at first, with
// little else between, the processor waits for many lines at once instead of for one after the other.
func (s *Scheduler) touch(q *queue) {
	sum := 0
	s.growing = s.growing[:0]
	for _, seq := range q.running {
		sum += seq.length + int(seq.last)
	}
	for _, seq := range q.running {
		sum += int(seq.tail[0])
		if seq.planned >= int(seq.quiet) {
			s.growing = append(s.growing, kvcache.Growing{Table: seq.blocks})
		}
	}
	s.touched = sum + q.Cache.Prepare(s.growing)
}

// seal tells the cache what was computed of the sequences in s.filled. It is called once for all rows of a step, and before one
// of them gives blocks back. ahead says that they go on: while there is plenty, each gets the blocks of its next token at once, as its
// table is at hand.
func (s *Scheduler) seal(ahead bool) {
	if len(s.filled) == 0 {
		return
	}
	sum := 0
	for _, seq := range s.filled {
		if t := seq.tokens; len(t) < cap(t) { // where the tail goes
			sum += int(t[:len(t)+1][len(t)])
		}
	}
	s.growing = s.growing[:0]
	for _, seq := range s.filled {
		if seq.spill(); seq.computed > len(seq.tokens) {
			seq.flush()
		}
		s.growing = append(s.growing, kvcache.Growing{Table: seq.blocks, Tokens: seq.tokens[:seq.computed]})
	}
	q := s.filled[0].queue
	s.touched = sum + q.Cache.Prepare(s.growing)
	ahead = ahead && !q.recurrent && q.Cache.Available() >= 2*s.runs()
	for _, seq := range s.filled {
		n := seq.computed
		q.Cache.Seal(seq.blocks, seq.tokens[:n])
		if ahead {
			q.Cache.Extend(seq.blocks, n+1, 0)
		}
		seq.hush()
	}
	s.filled = s.filled[:0]
}

// hush notes how many tokens seq may have before its blocks are to be looked at.
func (q *Sequence) hush() { q.quiet = int32(min(q.queue.Cache.Quiet(q.blocks), math.MaxInt32)) }

// check finds outputs that do not belong to the plan: a step that answers another question fails.
func (o *Output) check(p *Plan) error {
	n := len(p.Rows)
	if o.Stop != nil && len(o.Stop) != n || o.Errs != nil && len(o.Errs) != n || o.Tokens != nil && len(o.Tokens) != n {
		return fmt.Errorf("sched: %d tokens, %d stops, %d errors for %d rows", len(o.Tokens), len(o.Stop), len(o.Errs), n)
	}
	for i := range p.Rows {
		r := &p.Rows[i]
		switch {
		case r.Samples > 0 && o.Tokens == nil:
			return fmt.Errorf("sched: no tokens for row %d", i)
		case o.Tokens != nil && len(o.Tokens[i]) > r.Samples:
			return fmt.Errorf("sched: %d tokens for row %d of %d samples", len(o.Tokens[i]), i, r.Samples)
		}
	}
	return nil
}

// commitChunk commits a row that was not sampled.
func (s *Scheduler) commitChunk(r *Row, row int) {
	seq := r.Seq
	seq.queue.stats.PromptTokens += uint64(r.N)
	seq.wanted = max(seq.wanted, r.LogitsTo)
	s.computed(seq, r.Start+r.N)
	s.progress(seq)
	if seq.MaxTokens == 0 && seq.computed == seq.length {
		s.finish(seq, Event{Row: row, Reason: Length})
	}
}

// commitSample commits a row that yields tokens, now, of a model with these counters. stop is the number of its tokens after which a
// stop string ends the sequence, or 0.
func (s *Scheduler) commitSample(st *ModelStats, r *Row, row int, tokens []int32, stop int, now time.Duration) {
	seq := r.Seq
	known := r.Start + r.N - r.Drafts // positions before it held tokens of the sequence
	if r.N-r.Drafts > 1 {
		st.PromptTokens += uint64(r.N - r.Drafts)
	}
	if r.LogitsTo > 0 {
		seq.wanted = max(seq.wanted, r.LogitsTo)
	}
	if r.Drafts == 0 {
		seq.pending--
	} else {
		seq.drafting, seq.drafts = false, 0
	}
	if len(tokens) == 0 {
		s.computed(seq, known-1)
		s.truncate(seq, known-1)
		if n := seq.length; seq.barrenAt != n {
			seq.barren, seq.barrenAt = 0, n
		}
		if seq.barren++; seq.barren >= maxBarren {
			s.finish(seq, Event{Row: row, Reason: Failed, Err: fmt.Errorf("sched: %d steps yielded no token", seq.barren)})
		}
		return
	}
	index := seq.sampled()
	if index == 0 {
		seq.first = now
		s.release(seq)
		s.pace.done += seq.work
	}
	seq.last = now
	n, reason := 0, None
	for reason == None && n < len(tokens) {
		reason = seq.push(tokens[n], n+1 == stop)
		n++
	}
	st.SampledTokens += uint64(n)
	s.computed(seq, known+n-1) // all but the last token
	yield := tokens[:n:n]
	if reason != None {
		s.finish(seq, Event{Tokens: yield, Index: index, Row: row, Reason: reason})
		return
	}
	if r.Drafts > 0 {
		s.truncate(seq, seq.computed)
	}
	s.setStreaming(seq, true)
	s.events = append(s.events, Event{})
	ev := &s.events[len(s.events)-1] // in place: a copy of it would have to wait for the parts
	ev.Seq, ev.Tokens, ev.Index, ev.Row = seq, yield, index, row
}

// truncate makes seq go on from its first n tokens, or fewer when its state does not come back there.
// Rows in flight are void.
func (s *Scheduler) truncate(seq *Sequence, n int) {
	s.seal(false)
	seq.rewind(seq.queue.Cache.Truncate(seq.blocks, n))
}

// computed says that the first n tokens of seq are stored; seal tells the cache.
func (s *Scheduler) computed(seq *Sequence, n int) {
	seq.computed = n
	if n >= int(seq.quiet) {
		s.filled = append(s.filled, seq)
	}
	if !seq.prefilled && n >= len(seq.Prompt)-1 {
		seq.prefilled = true
		if f := seq.family; f != nil && !f.done {
			f.done = true
			f.wake()
		}
	}
}
