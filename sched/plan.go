package sched

import (
	"cmp"
	"fmt"
	"math"
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

	epoch uint16
}

// Token returns the id at absolute position pos of the row. known is false when it is still being
// sampled by a step in flight; the device then feeds it.
func (r *Row) Token(pos int) (id int32, known bool) {
	if d := pos - (r.Start + r.N - r.Drafts); d >= 0 {
		return r.Draft[d], true
	}
	if pos < r.Seq.length {
		return r.Seq.token(pos), true
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
	runs    []kvcache.Run // of all rows
	work    Work
	said    float64 // seconds it was predicted to take
	charged float64 // and was booked with
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
	p, at := s.newPlan(), s.begins(s.at(now))
	s.byUrgency(at)
	for i, q := range s.order {
		*p = Plan{Model: q.Name, Start: now, Rows: p.Rows[:0], runs: p.runs[:0], queue: q}
		s.planQueue(p, q, at)
		if len(p.Rows) == 0 {
			continue
		}
		before := q.served
		s.charge(p)
		soon := at + seconds(p.said)
		for i := range p.Rows {
			p.Rows[i].Seq.soon = soon
		}
		for i := 0; q.recurrent && i < len(p.Rows); i++ { // last: snapshots take what memory is left
			r := &p.Rows[i]
			n := len(p.runs)
			if p.runs = q.Cache.Advance(p.runs, r.Seq.blocks, r.Start, r.Start+r.N, r.Seq.marks); len(p.runs) > n {
				r.Runs = p.runs[n:len(p.runs):len(p.runs)]
			}
		}
		if len(s.inFlight) == 0 {
			for _, idle := range s.order[:i] { // what cannot run earns no credit
				idle.served = max(idle.served, before)
			}
		}
		q.excused = q.excused || q.rowsOnly
		if q.hungry && !q.ahead && !q.rowsOnly {
			for _, o := range s.order {
				o.excused = false
			}
		}
		q.dirty = true
		s.inFlight = append(s.inFlight, p)
		return p
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

// byUrgency puts the models that have sequences into s.order, the one that should step next first. It is the one place
// that decides between models.
//
// First are those that are not ahead: the one whose step has to begin soonest. A next token counts only once it
// presses, that is when a step of another model might make it late; until then first tokens, which are due later, come
// before it, and best-effort work may. Without anything due it is who has had least device time, by weight.
//
// Ahead is who has had Limits.Lag more device time, by weight, than the hungry one with least. Hungry is who has
// best-effort work, which takes all time that it gets; the others get what their deadlines ask for, and what is late
// goes along with the streams of its model, if it has any: were it to claim a share, it would make others late. One that becomes
// hungry begins Limits.Lag behind the one with most at worst: what it did not want before is no credit. A model that
// is ahead still gets a step of its decoding rows, and nothing else, when a token presses and its streams take no
// more than its share: what had more than that were its prompts, or streams that ran early. It gets one, and no other
// before a hungry model has had a step: a token presses all the time when that step is longer than what a TPOT leaves.
func (s *Scheduler) byUrgency(now time.Duration) {
	s.order = s.order[:0]
	most, weights, lag := math.Inf(-1), 0.0, s.limits.Lag.Seconds()
	for _, q := range s.queues {
		if q.weights.state != Resident || len(q.waiting)+len(q.running) == 0 {
			q.hungry = false
			continue
		}
		s.look(q, now)
		most = max(most, q.served)
		weights += q.Weight
		s.order = append(s.order, q)
	}
	least := math.Inf(1)
	for _, q := range s.order {
		was := q.hungry
		if q.hungry = q.plain+q.waitingPlain > 0 || q.rowDue == never && q.late+q.waitingLate > 0; q.hungry {
			if !was {
				q.served = max(q.served, most-lag)
			}
			least = min(least, q.served)
		}
		s.served = max(s.served, min(most-lag, q.served))
	}
	for _, q := range s.order {
		q.ahead, q.rowsOnly, q.urgency = q.served > least+lag, false, q.promptLatest
	}
	next, need := s.nextPrompt()
	for _, q := range s.order {
		if s.presses(q, now, next, need) {
			q.urgency = q.latest
			if q.ahead && !q.excused && s.presses(q, now, next, min(need, next.leastOf())) && q.seconds/q.targets[0].tpot.Seconds() <= q.Weight/weights {
				q.ahead, q.rowsOnly = false, true
			}
		}
	}
	slices.SortStableFunc(s.order, func(a, b *queue) int {
		if ahead := b2i(a.ahead) - b2i(b.ahead); ahead != 0 {
			return ahead
		}
		if !a.ahead && a.urgency != b.urgency {
			return cmp.Compare(a.urgency, b.urgency)
		}
		return cmp.Compare(a.served, b.served)
	})
}

// nextPrompt is the model whose prompts should be computed next, if nothing presses, and the seconds of a step that is
// worth it: twice the one with the smallest chunk, but no more than streams leave between two of their tokens.
func (s *Scheduler) nextPrompt() (next *queue, need float64) {
	for _, q := range s.order {
		if q.ahead || q.least <= q.seconds {
			continue
		}
		if next == nil || q.promptLatest < next.promptLatest || q.promptLatest == next.promptLatest && q.served < next.served {
			next = q
		}
	}
	if next == nil {
		return nil, 0
	}
	tightest, rows := never, 0.0
	for _, q := range s.order {
		if q.rowDue != never {
			tightest = min(tightest, q.targets[0].tpot)
			if q != next {
				rows += q.seconds
			}
		}
	}
	need = 2 * next.least
	if tightest != never {
		need = min(need, margin*(margin*tightest.Seconds()-rows))
	}
	return next, max(need, next.least)
}

// leastOf is the time of the shortest step with some of a prompt; 0 of no model.
func (q *queue) leastOf() float64 {
	if q == nil {
		return 0
	}
	return q.least
}

// presses says that a token of q's decoding rows might be late if a step of next took so many seconds now, or, when
// that is q or nobody, if another model stepped, and those whose tokens are due before stepped after it.
func (s *Scheduler) presses(q *queue, now time.Duration, next *queue, need float64) bool {
	if q.rowDue == never {
		return false
	}
	before, other := q.seconds, 0.0
	for _, o := range s.order {
		if o == q || o == next {
			continue
		}
		if other = max(other, o.seconds); o.rowDue <= q.rowDue {
			before += o.seconds
		}
	}
	if next == nil || next == q {
		need = other
	}
	return margin*(q.rowDue-now).Seconds() < before+need
}

func (s *Scheduler) planQueue(p *Plan, q *queue, now time.Duration) {
	budget := q.MaxBatchTokens
	s.evicted = false
	s.prompts = s.prompts[:0]
	s.touch(q)
	// Decodes, oldest first. Preemption shortens q.running from its end. MaxSeqs is at most
	// MaxBatchTokens, so all have a row, and drafts take half of the rest.
	drafts := (budget - len(q.running)) / 2
	regimes := len(q.Regimes) > 0
	for i := 0; i < len(q.running); i++ {
		seq := q.running[i]
		if !regimes && seq.flows() {
			p.add(seq)
			continue
		}
		n := seq.todo()
		if n > 0 && seq.shifts() {
			s.shift(seq)
			n = seq.todo()
		}
		if n > 1 {
			s.prompts = append(s.prompts, seq)
		} else if n == 1 {
			drafts -= s.planDecode(p, seq, drafts)
		}
	}

	if len(s.prompts) == 0 && len(q.waiting) == 0 {
		return
	}
	prompt := s.promptTokens(q, p.Work(), budget-p.Tokens, now)
	if prompt <= 0 || q.rowsOnly && len(p.Rows) > 0 {
		return
	}
	average(&q.cost.chunk, float64(prompt))
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
	if seq.pending == 0 && seq.drafts != awaiting {
		drafts = max(0, min(int(seq.drafts), most, seq.left()-1))
		if r := seq.queue.Regimes; drafts > 0 && seq.Regime() < len(r) { // the row belongs to one regime
			drafts = min(drafts, r[seq.regime]-seq.length)
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
	if len(s.prompts) == 0 {
		return
	}
	s.shareOut(budget)
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

// grow gives a running sequence blocks for n more tokens. A dry pool preempts the youngest
// sequence of any model, until there is room or that is seq itself, so the oldest always advances.
func (s *Scheduler) grow(p *Plan, seq *Sequence, n int) bool {
	if seq.planned+n <= int(seq.quiet) {
		return true
	}
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
	seq.hush()
	return true
}

// flows says that its next row is what most are, a token that follows a sampled one: there are blocks for it, and it has no drafts.
func (q *Sequence) flows() bool {
	known := q.length + int(q.pending)
	return known-q.planned == 1 && q.planned >= int(q.prompt) && q.planned < int(q.quiet) && known < int(q.limit) && q.drafts == 0 && !q.drafting
}

// add adds the next row of a sequence that flows: what addRow would do, with nothing to ask.
func (p *Plan) add(seq *Sequence) {
	p.Rows = append(p.Rows, Row{})
	r := &p.Rows[len(p.Rows)-1] // in place: a copy of it would have to wait for the parts
	r.Seq, r.Start, r.N, r.Samples, r.epoch = seq, seq.planned, 1, 1, seq.epoch
	seq.planned++
	seq.pending++
	p.Tokens++
}

// addRow adds n tokens of seq, and drafts after them, to the plan.
func (s *Scheduler) addRow(p *Plan, seq *Sequence, n, drafts int) {
	p.Rows = append(p.Rows, Row{})
	r := &p.Rows[len(p.Rows)-1] // in place: a copy of it would have to wait for the parts
	r.Seq, r.Start, r.N, r.Drafts, r.epoch = seq, seq.planned, n+drafts, drafts, seq.epoch
	seq.planned += n
	if seq.planned == seq.length+int(seq.pending) && seq.MaxTokens > 0 {
		r.Samples = 1 + drafts
		if drafts > 0 {
			r.Draft = seq.draft[:drafts]
			seq.drafting = true
		} else {
			seq.pending++
			seq.drafts = 0
		}
	}
	if last := len(seq.Prompt) - 1; r.Start < last && seq.PromptLogits {
		r.LogitsTo = min(r.Start+n, last)
		r.LogitsFrom = min(max(r.Start, seq.wanted), r.LogitsTo)
	}
	p.Tokens += r.N
}
