package sched

import (
	"fmt"
	"slices"
	"strconv"
	"time"
)

const (
	// maxRefusals is how many sequences of a queue are tried in one plan before the rest, behind
	// them, waits for the next.
	maxRefusals = 8
	// maxLong is how many prompts longer than a step a model computes at a time. Shorter ones pass
	// those that wait for that, so they cost a stream of short prompts half of the budget at most.
	maxLong = 2
	// minPrompt is the shortest prompt for which it pays to wait for another one with the same tokens.
	minPrompt = 17
)

// Submit takes the sequences of one request, all or none. The error is ErrUnknownModel,
// ErrTooLong, ErrTooMany, ErrOverCapacity or ErrDraining, or tells of a field that is out of range;
// a refused sequence gets no event. Sequences with equal prompts wait for the first of them to
// compute it.
func (s *Scheduler) Submit(now time.Time, seqs ...*Sequence) error {
	if len(seqs) == 0 {
		return nil
	}
	q := s.queue(seqs[0].Model)
	if q == nil {
		return fmt.Errorf("%w %q", ErrUnknownModel, seqs[0].Model)
	}
	for _, seq := range seqs {
		if seq.Model != q.Name {
			return fmt.Errorf("sched: a request of two models, %q and %q", q.Name, seq.Model)
		}
		if err := q.accepts(seq, s.limits.InFlight); err != nil {
			return err
		}
	}
	if s.draining {
		return ErrDraining
	}
	if err := s.room(q, len(seqs)); err != nil {
		q.stats.Refused += uint64(len(seqs))
		return err
	}
	if len(q.waiting)+len(q.running) == 0 { // idle time earns no credit
		q.served = max(q.served, s.served)
		q.cost.last = time.Time{}
	}
	for i, seq := range seqs {
		s.age++
		seq.age, seq.arrival, seq.queue, seq.state = s.age, now, q, waiting
		seq.tokens = slices.Clone(seq.Prompt)
		seq.marks = append(slices.Clone(seq.Marks), len(seq.Prompt)-1)
		slices.Sort(seq.marks)
		s.newTable(seq)
		join(seq, seqs[:i])
		q.waiting = append(q.waiting, seq)
	}
	q.stats.Submitted += uint64(len(seqs))
	return nil
}

// Check says what Submit would of n sequences with a prompt of so many tokens (0 when nobody has counted
// them: what is ahead of it decides then), without taking them. The zero SLA stands for the model's; key is
// Sequence.Key. The error is ErrUnknownModel, ErrTooMany, ErrOverCapacity or ErrDraining.
func (s *Scheduler) Check(now time.Time, model string, n, promptTokens int, sla SLA, key string) error {
	q := s.queue(model)
	if q == nil {
		return fmt.Errorf("%w %q", ErrUnknownModel, model)
	}
	if s.draining {
		return ErrDraining
	}
	return s.room(q, n)
}

// accepts says whether the sequence could ever run.
func (q *queue) accepts(seq *Sequence, inFlight int) error {
	prompt, total := len(seq.Prompt), len(seq.Prompt)+seq.MaxTokens
	switch {
	case seq.state != fresh:
		return fmt.Errorf("sched: a sequence was submitted twice")
	case prompt == 0:
		return fmt.Errorf("prompt: no tokens")
	case !slices.IsSorted(seq.Marks):
		return fmt.Errorf("sched: marks %v do not ascend", seq.Marks)
	case seq.MaxTokens < 0:
		return fmt.Errorf("max_tokens: %d is negative", seq.MaxTokens)
	case total > q.MaxTokens || total < 0:
		return fmt.Errorf("%w: a prompt of %d tokens and max_tokens %d exceed the context length of %d",
			ErrTooLong, prompt, seq.MaxTokens, q.MaxTokens)
	}
	if span := q.MaxBatchTokens * inFlight; !q.Cache.Fits(total, span) {
		return fmt.Errorf("%w: a prompt of %d tokens and max_tokens %d exceed the %d tokens that the KV cache of this server can hold",
			ErrTooLong, prompt, seq.MaxTokens, q.Cache.MaxTokens(span, q.MaxTokens))
	}
	return nil
}

// room says whether n more sequences may queue. What may run has a place of its own, so a burst
// to an idle model is counted as if it ran already.
func (s *Scheduler) room(q *queue, n int) error {
	most, over := q.MaxWaiting, false
	if all := s.limits.MaxWaiting; all > 0 {
		most = min(most, all)
		over = q.beyond(n) > 0 && s.beyond(q, n) > all
	}
	if n > q.MaxSeqs+most {
		return fmt.Errorf("%w: %d, of at most %d", ErrTooMany, n, q.MaxSeqs+most)
	}
	if over || q.beyond(n) > most {
		return &OverCapacity{Model: q.Name, Waiting: len(q.waiting), RetryAfter: q.cost.place(q)}
	}
	return nil
}

// beyond is how many sequences would be accepted beyond what may run, with n more.
func (q *queue) beyond(n int) int {
	return max(0, len(q.waiting)+len(q.running)+n-q.MaxSeqs)
}

func (s *Scheduler) beyond(with *queue, n int) int {
	sum := 0
	for _, q := range s.queues {
		if q == with {
			sum += q.beyond(n)
		} else {
			sum += q.beyond(0)
		}
	}
	return sum
}

// join puts seq into the family of those before it that have the same prompt.
func join(seq *Sequence, before []*Sequence) {
	alone := func(q *Sequence) bool {
		return q.SkipPrefix || q.PromptLogits || len(q.Prompt) < minPrompt
	}
	if alone(seq) || seq.queue.Cache.Config().NoPrefixCache {
		return
	}
	var last *family // prompts of a request come in runs, so this saves comparing all of them
	for i := len(before) - 1; i >= 0; i-- {
		o := before[i]
		if alone(o) || o.family != nil && o.family == last {
			continue
		}
		if o.Identity == seq.Identity && (&o.Prompt[0] == &seq.Prompt[0] || slices.Equal(o.Prompt, seq.Prompt)) {
			if o.family == nil {
				o.family = &family{}
			}
			seq.family = o.family
			return
		}
		last = o.family
	}
}

// follows says whether seq waits for another one to compute its prompt. That one is older, so it
// is admitted first, and it computes or ends; then the next one takes its place or all go on.
func (q *Sequence) follows() bool {
	f := q.family
	if f == nil || f.done {
		return false
	}
	if f.first == nil || f.first.state == ended {
		f.first = q
	}
	return f.first != q
}

// admit moves waiting sequences to q.running, in order of arrival, while their prompts can each
// have share tokens of budget, and appends them to s.prompts. used of budget is spoken for.
func (s *Scheduler) admit(q *queue, used, share, budget int) {
	if !q.admits() {
		return
	}
	long := 0
	for _, seq := range s.prompts {
		if seq.todo() > q.MaxBatchTokens {
			long++
		}
	}
	refusals := 0
	for i := 0; i < len(q.waiting) && used < budget && len(q.running) < q.MaxSeqs && refusals < maxRefusals; {
		seq := q.waiting[i]
		if s.hold != nil && seq.age > s.hold.age {
			return
		}
		isLong := len(seq.tokens) > q.MaxBatchTokens
		if seq.follows() || isLong && long >= maxLong {
			i++
			continue
		}
		if !s.fit(q, seq, share) {
			if q.blocked == nil || seq.age < q.blocked.age {
				q.blocked = seq
			}
			refusals++
			i++
			continue
		}
		q.waiting = slices.Delete(q.waiting, i, i+1)
		q.running = insert(q.running, seq)
		seq.state = running
		s.unblock(seq)
		s.overtake(seq)
		s.prompts = insert(s.prompts, seq)
		used += min(seq.todo(), share)
		if seq.todo() > q.MaxBatchTokens {
			long++
		}
	}
}

// fit gives seq the blocks of all its tokens, as lookUp does. While others run it leaves them a few
// blocks to grow, or it would be preempted at once.
func (s *Scheduler) fit(q *queue, seq *Sequence, share int) bool {
	others := s.runs() > 0
	if others && q.Cache.Available() < seq.refusedAt { // no more than when it was refused
		return false
	}
	if seq.shifts() {
		s.newTable(seq)
	}
	ok := s.lookUp(seq, share)
	if !ok && !others { // what was found lies on too many pages for a state block beside it
		ok = q.Cache.Extend(seq.blocks, min(share, len(seq.tokens)), len(seq.tokens))
	}
	if ok && others {
		ok = q.Cache.Available() >= max(1, len(q.running)/8)
	}
	if !ok {
		q.Cache.Release(seq.blocks)
		seq.refusedAt = q.Cache.Available() + 1
		return false
	}
	hit := seq.blocks.Tokens()
	seq.computed, seq.planned = hit, hit
	if seq.shares() {
		q.stats.PrefixQueried += uint64(len(seq.tokens))
		q.stats.PrefixHit += uint64(hit)
	}
	if !seq.prefilled && len(seq.Sampled()) == 0 {
		seq.cached = hit
	}
	return true
}

// shares says whether blocks that others computed will do.
func (q *Sequence) shares() bool { return !q.SkipPrefix && !q.PromptLogits }

// lookUp gives seq, which has none, cached blocks for the beginning of its tokens and new ones for the rest
// (of a group with a window, for the next share tokens), or none at all when that is too much.
func (s *Scheduler) lookUp(seq *Sequence, share int) bool {
	c, hit := seq.queue.Cache, 0
	if seq.shares() {
		hit = c.Match(seq.blocks, seq.tokens)
	}
	if c.Extend(seq.blocks, min(hit+share, len(seq.tokens)), len(seq.tokens)) {
		return true
	}
	c.Release(seq.blocks)
	return false
}

// newTable gives seq, which has no blocks, a table for the regime of its tokens.
func (s *Scheduler) newTable(seq *Sequence) {
	q, id := seq.queue, seq.Identity
	seq.regime = q.regime(len(seq.tokens))
	if len(q.Regimes) > 0 {
		id.Regime = strconv.Itoa(seq.regime)
	}
	seq.blocks = q.Cache.NewTable(id)
}

// shift moves a running sequence to the regime of its tokens: it is computed again as if it had
// been preempted, but stays where it is.
func (s *Scheduler) shift(seq *Sequence) {
	seq.queue.Cache.Release(seq.blocks)
	s.newTable(seq)
	s.lookUp(seq, 1)
	seq.rewind(seq.blocks.Tokens())
}

// overtake counts that seq was admitted past older sequences that memory refused. One that was
// passed often enough is held for: nobody younger is admitted until it is.
func (s *Scheduler) overtake(seq *Sequence) {
	for _, q := range s.queues {
		b := q.blocked
		if b == nil || b.age > seq.age {
			continue
		}
		b.overtaken++
	}
	s.holdOldest()
}

// holdOldest holds memory for the oldest of those who were passed often enough.
func (s *Scheduler) holdOldest() {
	for _, q := range s.queues {
		if b := q.blocked; b != nil && b.overtaken >= s.limits.MaxOvertakes && (s.hold == nil || b.age < s.hold.age) {
			s.hold = b
		}
	}
}
