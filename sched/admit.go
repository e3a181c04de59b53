package sched

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/openinfer-go/openinfer/kvcache"
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
	// reserved is the most tokens that room is made for when a sequence is admitted: 26 KiB with their blocks and hashes.
	reserved = 4096
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
	first := seqs[0]
	a := ask{n: len(seqs), prompt: len(first.Prompt), maxTokens: first.MaxTokens, sla: q.slaOf(first.SLA), key: first.Key}
	table, regime := q.table(first.Identity, len(first.Prompt))
	predicted := a.sla != (SLA{}) && q.model.ready()
	if predicted && first.shares() {
		a.cached = q.Cache.Peek(table, first.Prompt)
	}
	err := s.capacity(q, a, now)
	if err != nil {
		s.turnAway(q, a, now)
		q.stats.Refused += uint64(len(seqs))
		return err
	}
	if predicted {
		q.offer(a, q.newWork(a.prompt, a.cached), true, s.at(now))
	}
	if len(q.waiting)+len(q.running) == 0 { // idle time earns no credit
		q.served = max(q.served, s.served)
		q.cost.last = time.Time{}
	}
	for i, seq := range seqs {
		s.age++
		seq.age, seq.queue, seq.state, seq.rest = s.age, q, waiting, &rest{}
		seq.came, seq.sla = s.at(now), q.slaOf(seq.SLA)
		seq.tokens = slices.Clone(seq.Prompt)
		seq.length, seq.prompt, seq.limit = len(seq.Prompt), int32(len(seq.Prompt)), int32(len(seq.Prompt)+seq.MaxTokens)
		seq.due = seq.nextDue()
		seq.marks = append(slices.Clone(seq.Marks), len(seq.Prompt)-1)
		slices.Sort(seq.marks)
		if seq.blocks, seq.regime = table, regime; i > 0 {
			s.newTable(seq)
		}
		join(seq, seqs[:i])
		q.hold(seq)
		q.target(seq)
		q.waiting = append(q.waiting, seq)
	}
	for _, seq := range seqs { // all families are known now
		q.enqueue(seq)
		work := 0.0
		if seq.place >= 0 {
			work = q.newWork(seq.length, a.cached)
		}
		s.promise(seq, work)
	}
	q.stats.Submitted += uint64(len(seqs))
	return nil
}

// slaOf is the SLA that a sequence has: its own, or else the model's.
func (q *queue) slaOf(own SLA) SLA {
	if own == (SLA{}) {
		return q.SLA
	}
	return own
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
				o.family = &family{members: []*Sequence{o}}
			}
			seq.family = o.family
			seq.family.members = append(seq.family.members, seq)
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

// wake lets the next member compute the prompt, or, once it is computed, all others go on.
func (f *family) wake() {
	for _, seq := range f.members {
		if seq.state == waiting && seq.place < 0 {
			seq.queue.enqueue(seq)
		}
	}
}

// admit moves waiting sequences to q.running, in their order, while their prompts can each have share tokens of
// budget, and appends them to s.prompts. used of budget is spoken for.
func (s *Scheduler) admit(q *queue, used, share, budget int) {
	if !q.admits() {
		return
	}
	long := 0
	urgent := never // when a step has to begin for the most urgent of s.prompts
	for _, seq := range s.prompts {
		if seq.todo() > q.MaxBatchTokens {
			long++
		}
		if seq.nextDue() != never {
			urgent = min(urgent, seq.latest)
		}
	}
	s.tried = s.tried[:0]
	for len(q.running) < q.MaxSeqs && len(s.tried) < maxRefusals {
		seq := s.next(q, long < maxLong)
		if seq == nil {
			break
		}
		seq.latest = q.latestStart(seq)
		if used >= budget && (seq.due == never || seq.latest >= urgent) { // the most urgent prompt is always let in
			break
		}
		q.dequeue(seq)
		if s.hold != nil && seq.age > s.hold.age || !s.fit(q, seq, share) {
			if seq.refusedAt > 0 && (q.blocked == nil || seq.age < q.blocked.age) {
				q.blocked = seq
			}
			s.tried = append(s.tried, seq)
			continue
		}
		q.admitted++
		q.chargeKey(seq)
		q.waiting = remove(q.waiting, seq)
		q.running = insert(q.running, seq)
		seq.state = running
		seq.reserve()
		s.newTail(seq)
		s.unblock(seq)
		s.overtake(seq)
		s.prompts = insert(s.prompts, seq)
		used += min(seq.todo(), share)
		if seq.due != never {
			urgent = min(urgent, seq.latest)
		}
		if seq.todo() > q.MaxBatchTokens {
			long++
		}
	}
	for _, seq := range s.tried {
		q.enqueue(seq)
	}
}

// reserve makes room for what seq samples, so that its steps allocate nothing: all of it, unless it asks for a lot.
func (q *Sequence) reserve() {
	n := min(q.MaxTokens-q.sampled(), reserved)
	q.tokens = slices.Grow(q.tokens, n)
	q.queue.Cache.Reserve(q.blocks, q.length+n)
}

// next is who should be admitted now: while memory is held, and once in fairTurn, the oldest.
func (s *Scheduler) next(q *queue, long bool) *Sequence {
	if s.hold != nil {
		return q.oldest(long)
	}
	if q.admitted%fairTurn == fairTurn-1 && len(s.tried) == 0 {
		if seq := q.oldest(long); seq != nil {
			return seq
		}
	}
	return q.head(long)
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
		ok = q.Cache.Extend(seq.blocks, min(share, seq.length), seq.length)
	}
	if ok && others {
		ok = q.Cache.Available() >= max(1, len(q.running)/8, s.growth(q, seq))
	}
	if !ok {
		q.Cache.Release(seq.blocks)
		seq.refusedAt = q.Cache.Available() + 1
		return false
	}
	hit := seq.blocks.Tokens()
	seq.computed, seq.planned = hit, hit
	if seq.shares() {
		q.stats.PrefixQueried += uint64(seq.length)
		q.stats.PrefixHit += uint64(hit)
	}
	if !seq.prefilled && seq.sampled() == 0 {
		seq.cached = int32(hit)
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
	if c.Extend(seq.blocks, min(hit+share, seq.length), seq.length) {
		return true
	}
	c.Release(seq.blocks)
	return false
}

// newTable gives seq, which has no blocks, a table for the regime of its tokens.
func (s *Scheduler) newTable(seq *Sequence) {
	seq.blocks, seq.regime = seq.queue.table(seq.Identity, seq.length)
}

// table returns an empty table for a sequence of so many tokens, and their regime.
func (q *queue) table(id kvcache.Identity, tokens int) (*kvcache.BlockTable, int32) {
	regime := q.regime(tokens)
	if len(q.Regimes) > 0 {
		id.Regime = strconv.Itoa(regime)
	}
	return q.Cache.NewTable(id), int32(regime)
}

// shift moves a running sequence to the regime of its tokens: it is computed again as if it had
// been preempted, but stays where it is.
func (s *Scheduler) shift(seq *Sequence) {
	if due := seq.nextDue(); due != never && seq.decoding() { // look did not see that it is a prompt
		seq.latest = due - seconds(seq.queue.least)
	}
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
