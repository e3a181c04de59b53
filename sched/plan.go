package sched

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/openinfer-go/openinfer/kvcache"
)

// Row is N tokens of one sequence in a step, from position Start on. A decode, a prompt chunk and
// a check of drafts are the same thing.
type Row struct {
	Seq   *Sequence
	Start int
	N     int
	// Samples of the row's last positions are sampled: 0 in a chunk that does not reach the end
	// of the sequence, else 1 + Drafts.
	Samples int
	// Drafts of the row's last tokens are Draft, proposals that are no part of the sequence yet.
	Drafts int
	Draft  []int32
	// Logits of positions LogitsFrom to LogitsTo-1 are wanted as well (Sequence.PromptLogits): those
	// of position p score the prompt's token p+1. Each position is asked for until a row with it is
	// committed, so once in all unless rows become void.
	LogitsFrom, LogitsTo int
	// Runs cut the row where its recurrent state changes blocks; nil for a model without any.
	Runs []kvcache.Run

	epoch uint32
}

// Token returns the id at absolute position pos of the row. known is false when it is still being
// sampled by a step in flight; the device then feeds it.
func (r *Row) Token(pos int) (id int32, known bool) {
	if d := pos - (r.Start + r.N - r.Drafts); d >= 0 {
		return r.Draft[d], true
	}
	if pos < len(r.Seq.tokens) {
		return r.Seq.tokens[pos], true
	}
	return 0, false
}

// Plan is one step of one model. It is valid until the call of Plan that follows its Commit.
type Plan struct {
	Model  string
	Start  time.Time
	Rows   []Row
	Tokens int // sum of the rows' N

	queue   *queue
	charged float64 // seconds
	dropped bool    // by Reset
}

// Void says that row i's sequence has ended, or was preempted, since the row was planned: Commit
// will ignore the row's output, so nobody else should look at it either. Ask before Commit.
func (p *Plan) Void(i int) bool { return p.dropped || p.Rows[i].epoch != p.Rows[i].Seq.epoch }

// drop takes back the row of a sequence that is preempted while the plan is made.
func (p *Plan) drop(seq *Sequence) {
	p.Rows = slices.DeleteFunc(p.Rows, func(r Row) bool {
		if r.Seq == seq {
			p.Tokens -= r.N
		}
		return r.Seq == seq
	})
}

// Plan picks one model and the rows of its next step, or nil when nothing can run, or when
// Limits.InFlight plans are not committed. It moves sequences and blocks; it launches nothing.
func (s *Scheduler) Plan(now time.Time) *Plan {
	if len(s.inFlight) >= s.limits.InFlight {
		return nil
	}
	s.arrange(now)
	p := s.newPlan()
	for _, q := range s.byUrgency(now) {
		*p = Plan{Model: q.Name, Start: now, Rows: p.Rows[:0], queue: q}
		s.planQueue(p, q)
		if len(p.Rows) > 0 {
			for i := range p.Rows { // last: snapshots take what memory is left
				r := &p.Rows[i]
				r.Runs = q.Cache.Advance(r.Seq.blocks, r.Start, r.Start+r.N, r.Seq.marks)
			}
			s.served = q.served
			s.charge(p)
			s.inFlight = append(s.inFlight, p)
			return p
		}
	}
	s.spare = append(s.spare, p)
	return nil
}

func (s *Scheduler) newPlan() *Plan {
	if n := len(s.spare); n > 0 {
		p := s.spare[n-1]
		s.spare = s.spare[:n-1]
		return p
	}
	return &Plan{}
}

// byUrgency returns the models that have sequences, the one that should step next first: now that
// is the one that has had the least device time for its weight. It is the one place that decides
// between models.
func (s *Scheduler) byUrgency(time.Time) []*queue {
	s.order = s.order[:0]
	for _, q := range s.queues {
		if q.weights.state == Resident && len(q.waiting)+len(q.running) > 0 {
			s.order = append(s.order, q)
		}
	}
	slices.SortStableFunc(s.order, func(a, b *queue) int { return cmp.Compare(a.served, b.served) })
	return s.order
}

// tokenBudget is how many tokens a step of q may have, and how many of them in prompts.
func (s *Scheduler) tokenBudget(q *queue) (all, prompt int) {
	if s.streaming > 0 {
		return q.MaxBatchTokens, q.ChunkTokens
	}
	return q.MaxBatchTokens, q.MaxBatchTokens
}

func (s *Scheduler) planQueue(p *Plan, q *queue) {
	budget, prompt := s.tokenBudget(q)
	s.evicted = false
	s.prompts = s.prompts[:0]
	for _, seq := range q.running {
		if seq.todo() > 0 && seq.shifts() {
			s.shift(seq)
		}
		if seq.todo() > 1 {
			s.prompts = append(s.prompts, seq)
		}
	}

	// Decodes, oldest first. Preemption shortens q.running from its end. MaxSeqs is at most
	// MaxBatchTokens, so all have a row, and drafts take half of the rest.
	drafts := (budget - len(q.running)) / 2
	for i := 0; i < len(q.running); i++ {
		if seq := q.running[i]; seq.todo() == 1 {
			drafts -= s.planDecode(p, seq, drafts)
		}
	}

	if prompt = min(prompt, budget-p.Tokens); prompt <= 0 {
		return
	}
	share := max(1, prompt/8)
	used := 0
	for _, seq := range s.prompts {
		used += min(seq.todo(), share)
	}
	if !s.evicted { // else what was just preempted would come back
		s.admit(q, used, share, prompt)
	}
	s.planPrompts(p, prompt)
}

// planDecode adds a row of one token and at most so many drafts, and returns how many of them.
func (s *Scheduler) planDecode(p *Plan, seq *Sequence, most int) int {
	drafts := 0
	if seq.pending == 0 {
		drafts = max(0, min(len(seq.draft), most, seq.left()-1))
		if r := seq.queue.Regimes; seq.regime < len(r) { // the row belongs to one regime
			drafts = min(drafts, r[seq.regime]-len(seq.tokens))
		}
	}
	// Nobody is preempted for a draft.
	if drafts > 0 && !seq.queue.Cache.Extend(seq.blocks, seq.planned+1+drafts, 0) {
		drafts = 0
	}
	if !s.grow(p, seq, 1) {
		return 0
	}
	s.addRow(p, seq, 1, drafts)
	return drafts
}

// planPrompts shares budget among s.prompts, which are in order of age.
func (s *Scheduler) planPrompts(p *Plan, budget int) {
	s.prompts = slices.DeleteFunc(s.prompts, func(q *Sequence) bool { return q.state != running })
	shareOut(s.prompts, budget)
	for _, seq := range s.prompts {
		n := seq.chunk
		if seq.state != running || n == 0 {
			continue
		}
		// Nobody is preempted for more than one token of a chunk.
		for n > 1 && !seq.queue.Cache.Extend(seq.blocks, seq.planned+n, 0) {
			n /= 2
		}
		if s.grow(p, seq, n) {
			s.addRow(p, seq, n, 0)
		}
	}
}

// shareOut sets each prompt's chunk: the same for all that need more than it, the whole rest for the
// others, and what does not divide evenly to the oldest.
func shareOut(prompts []*Sequence, budget int) {
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

// grow gives a running sequence blocks for n more tokens. A dry pool preempts the youngest
// sequence of any model, until there is room or that is seq itself, so the oldest always advances.
func (s *Scheduler) grow(p *Plan, seq *Sequence, n int) bool {
	for !seq.queue.Cache.Extend(seq.blocks, seq.planned+n, 0) {
		y := s.youngest()
		if y == seq && s.runs() == 1 {
			s.Fail(seq, fmt.Errorf("sched: %s: %d tokens do not fit a pool of their own", seq.Model, seq.planned+n))
			return false
		}
		s.preempt(p, y)
		if y == seq {
			return false
		}
	}
	return true
}

// addRow adds n tokens of seq, and drafts after them, to the plan.
func (s *Scheduler) addRow(p *Plan, seq *Sequence, n, drafts int) {
	r := Row{Seq: seq, Start: seq.planned, N: n + drafts, Drafts: drafts, epoch: seq.epoch}
	seq.planned += n
	if seq.planned == len(seq.tokens)+seq.pending && seq.MaxTokens > 0 {
		r.Samples = 1 + drafts
		if drafts > 0 {
			r.Draft = seq.draft[:drafts]
			seq.drafting = true
		} else {
			seq.pending++
			seq.draft = seq.draft[:0]
		}
	}
	if last := len(seq.Prompt) - 1; seq.PromptLogits && r.Start < last {
		r.LogitsTo = min(r.Start+n, last)
		r.LogitsFrom = min(max(r.Start, seq.wanted), r.LogitsTo)
	}
	p.Rows = append(p.Rows, r)
	p.Tokens += r.N
}
