package sched

import (
	"fmt"
	"time"
)

// Whether a request can be accepted. Its queue must have places. If it has an SLA, its first token must be predicted
// in time, behind the accepted prompts that are due before it, in the share of the device that streams leave; it must
// not make an accepted first token late; and with it, the streams that were accepted must still get their tokens in
// time. What is predicted:
//
//	streams   a model's step, of all rows that it was promised, every tightest TPOT
//	others    models with best-effort work get their fair share of time
//	prompts   seconds of accepted prompt work by deadline (Scheduler.promises), through what is left
//	shares    what other models are entitled to and do not have yet (demand.go)
//	places    the model's slots, and the pool's blocks, come free as sequences end
//	weights   loadWait
//
// Without a model of step times nothing is predicted, and only the queues bound.

const (
	// fullShare is how much of the device's time may be promised, to streams and to the prompts before them, and ownShare
	// how much to a model that has less than it is entitled to: others may have more than they are, from before it
	// was asked for anything. With 0.95 and 1, twice the load that a card can serve made a tenth of what was accepted late
	// (scripts/fleet).
	fullShare, ownShare = 0.9, 0.95
	// keyShare is what part of its target the key that has most of what waits may fill, so that another key's
	// request finds time as well.
	keyShare = 7. / 8
	// inTime is what part of the time until a first token is due its prediction may fill: what comes between is
	// not known, and models do not share time quite by deadline. With 0.8, a tenth of a saturated card's first tokens
	// were late (TestGoodput).
	inTime = 0.7
)

// ask is a request that wants in.
type ask struct {
	n         int
	prompt    int
	cached    int // of the prompt, in the prefix cache
	maxTokens int
	sla       SLA
	key       string
}

// Check says what Submit would of n sequences with a prompt of so many tokens (0 when nobody has counted
// them: what is ahead of it decides then), without taking them. Who is refused is expected not to submit them. The
// zero SLA stands for the model's; key is Sequence.Key. The error is ErrUnknownModel, ErrTooMany, ErrOverCapacity or ErrDraining.
func (s *Scheduler) Check(now time.Time, model string, n, promptTokens int, sla SLA, key string) error {
	q := s.queue(model)
	if q == nil {
		return fmt.Errorf("%w %q", ErrUnknownModel, model)
	}
	if s.draining {
		return ErrDraining
	}
	a := ask{n: n, prompt: promptTokens, maxTokens: q.MaxTokens, sla: q.slaOf(sla), key: key}
	err := s.capacity(q, a, now)
	if err != nil { // it will not come to Submit
		s.turnAway(q, a, now)
	}
	return err
}

// turnAway notes what a refused request would have asked for: it counts for what its model is entitled to, and brings a
// parked one, for who comes again.
func (s *Scheduler) turnAway(q *queue, a ask, now time.Time) {
	if a.sla != (SLA{}) && q.model.ready() {
		work := q.demand.mean
		if a.prompt > 0 {
			work = q.newWork(a.prompt, a.cached)
		}
		q.offer(a, work, false, s.at(now))
	}
	q.weights.turned = q.weights.turned || q.weights.state == Parked || q.weights.state == Parking
}

// capacity says whether a request can be accepted.
func (s *Scheduler) capacity(q *queue, a ask, now time.Time) error {
	if err := s.room(q, a, now); err != nil {
		return err
	}
	if a.sla == (SLA{}) || !q.model.ready() {
		return nil
	}
	o := s.foresee(q, a, now)
	if o.ok {
		return nil
	}
	wait := o.late
	if o.crowded {
		first, _ := q.ends()
		wait = max(wait, min(first, o.fades))
	}
	return &OverCapacity{
		Model: q.Name, Waiting: len(q.waiting), RetryAfter: q.cost.spread(now, wait, o.each),
		Predicted: seconds(o.seconds), Target: a.sla.TTFT,
	}
}

// room says whether n more sequences may queue. What may run has a place of its own, so a burst
// to an idle model is counted as if it ran already. When the queue is full, a named key that holds less than its
// fair part of the places, divided by the keys that hold any, may still have some of an eighth more.
func (s *Scheduler) room(q *queue, a ask, now time.Time) error {
	most, over, n := q.MaxWaiting, false, a.n
	all := s.limits.MaxWaiting
	if all > 0 {
		most = min(most, all)
	}
	if n > q.MaxSeqs+most {
		return fmt.Errorf("%w: %d, of at most %d", ErrTooMany, n, q.MaxSeqs+most)
	}
	if held, keys := q.share(a.key); a.key != "" && held+n <= (q.MaxSeqs+most)/keys {
		most += extra(most)
		all += extra(all)
	}
	if all > 0 {
		over = q.beyond(n) > 0 && s.beyond(q, n) > all
	}
	if over || q.beyond(n) > most {
		return &OverCapacity{Model: q.Name, Waiting: len(q.waiting), RetryAfter: q.place(now)}
	}
	return nil
}

// extra is how many places beyond a full queue's there are for keys that hold little.
func extra(places int) int {
	if places == 0 {
		return 0
	}
	return max(1, places/8)
}

// share is how many sequences a key has at the model, and how many keys have any, it included.
func (q *queue) share(key string) (held, keys int) {
	if a := q.accounts[key]; a != nil {
		return a.held, len(q.accounts)
	}
	return 0, len(q.accounts) + 1
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

// outlook is what would become of a request.
type outlook struct {
	ok      bool
	seconds float64 // to its first token
	late    float64 // seconds after which it would be in time
	each    float64 // seconds after which the next one would be as well
	crowded bool    // streams and prompts fill the device
	fades   float64 // seconds after which the prompts of late do no more, if no other come
}

// foresee predicts what would become of a request with an SLA.
func (s *Scheduler) foresee(q *queue, a ask, at time.Time) outlook {
	now := s.at(at)
	begins := s.begins(now)
	for _, o := range s.queues {
		s.look(o, begins)
	}
	taken := s.taken(q, SLA{}, 0)
	with := s.taken(q, a.sla, a.n)
	free := max(margin-taken, 0.05) * min(1, s.pace.factor())
	work := q.newWork(a.prompt, a.cached)
	step := max(q.seconds, q.cost.step)

	due, ttft := never, a.sla.TTFT.Seconds()
	if ttft > 0 {
		due = now + a.sla.TTFT
	}
	i, _ := s.findPromise(due, 0)
	ahead := 0.0
	for _, p := range s.promises[:i] {
		ahead += p.work
	}
	held, keys := q.share(a.key)
	if keys > 1 { // it goes before what other keys have beyond what it has
		own := work * float64(held+1)
		ahead = min(ahead, own*float64(keys))
	}
	lead := step + s.rest(now)
	wait := max(q.slotWait(a.n), s.memoryWait(q, a), s.loadWait(q, at).Seconds())
	out := outlook{seconds: lead + max(wait, ahead/free) + work/free}

	target := inTime * ttft
	if a.key != "" && held > 1 && 2*held > len(q.waiting)+len(q.running) {
		target *= keyShare
	}
	if ttft > 0 {
		out.late = max(0, out.seconds-target)
	}
	// Those that are due later, and would be in time without it.
	sum := ahead
	perSecond, spent := inTime*free/float64(time.Second), lead*free
	for _, p := range s.promises[i:] {
		sum += p.work
		if room := perSecond*float64(p.due-now) - spent - sum; room < work && room >= 0 {
			out.late = max(out.late, (work-room)/free)
		}
	}
	if with > taken {
		all := with + s.promptShare(now)
		if kept := s.kept(q, now); q.use(now) < q.entitled {
			out.crowded, out.fades = all > ownShare, s.fades(ownShare-with, now)
		} else {
			out.crowded, out.fades = all+kept > fullShare, s.fades(fullShare-with-kept, now)
		}
	}
	out.ok = out.late == 0 && !out.crowded
	out.each = max(work/free, step)
	if !out.ok && (out.crowded || wait > 0) {
		_, each := q.ends()
		out.each = max(out.each, each)
	}
	return out
}

// taken is the share of the device's time that is promised to streams or belongs to other models' best-effort
// work, with n more sequences of an SLA at q.
func (s *Scheduler) taken(q *queue, sla SLA, n int) float64 {
	weights, plain, sum := 0.0, 0.0, 0.0
	for _, o := range s.queues {
		more := 0
		if o == q {
			more = n
		}
		if len(o.running)+len(o.waiting)+more == 0 {
			continue
		}
		weights += o.Weight
		if share := o.streamShare(sla, more); share > 0 {
			sum += share
		} else if o != q && o.plain+o.waitingPlain > 0 { // q's own gives way
			plain += o.Weight
		}
	}
	if weights > 0 {
		sum += plain / weights
	}
	return sum
}

// streamShare is the share of the device that q's streams take, with n more sequences of an SLA; its best-effort
// rows go along.
func (q *queue) streamShare(sla SLA, n int) float64 {
	rows, streams, tpot := len(q.running)+len(q.waiting)+n, q.streams, time.Duration(0)
	if streams > 0 {
		tpot = q.targets[0].tpot
	}
	if n > 0 && sla.TPOT > 0 {
		streams += n
		if tpot == 0 || sla.TPOT < tpot {
			tpot = sla.TPOT
		}
	}
	if streams == 0 {
		return 0
	}
	return q.rowsSeconds(min(rows, q.MaxSeqs)) / tpot.Seconds()
}

// rowsSeconds is what a step of so many decoding rows takes.
func (q *queue) rowsSeconds(rows int) float64 {
	w := q.decode
	if w.Rows == 0 {
		w.Context = int64(rows) * int64(q.MaxTokens/8)
	} else {
		w.Context = w.Context / int64(w.Rows) * int64(rows)
	}
	w.Rows, w.Tokens, w.Samples = rows, rows, rows
	return q.stepSeconds(w)
}

// rest is what is left of the step that runs now.
func (s *Scheduler) rest(now time.Duration) float64 {
	sum := 0.0
	for i, p := range s.inFlight {
		left := p.said
		if i == 0 {
			left -= (now - max(p.Start.Sub(s.epoch), s.lastStep.Sub(s.epoch))).Seconds()
		}
		sum += max(0, left)
	}
	return sum
}

// slotWait is when n more sequences have slots to run in: when as many running ones have ended as are too many.
func (q *queue) slotWait(n int) float64 {
	over := len(q.running) + len(q.waiting) + n - q.MaxSeqs
	if over <= 0 {
		return 0
	}
	step := max(q.cost.interval, q.cost.step, q.rowsSeconds(q.MaxSeqs))
	if len(q.running) == 0 {
		return step * q.cost.output * float64(1+(over-1)/q.MaxSeqs)
	}
	longest := 0.0
	for _, seq := range q.running {
		longest = max(longest, q.cost.tokensLeft(seq))
	}
	turns := float64((over - 1) / len(q.running)) // of everybody, before
	over -= int(turns) * len(q.running)
	var ends [32]int // by how much of longest is left
	for _, seq := range q.running {
		ends[int(31*q.cost.tokensLeft(seq)/max(longest, 1))]++
	}
	for i, n := range ends {
		if over -= n; over <= 0 {
			return step * (longest*float64(i+1)/32 + turns*max(longest, q.cost.output))
		}
	}
	return step * (1 + turns) * longest
}

// memoryWait is when the pool has blocks for the request: what was accepted and has not ended is expected to grow
// to the usual length, and gives its blocks back at the rate at which sequences end.
func (s *Scheduler) memoryWait(q *queue, a ask) float64 {
	have := float64(q.Cache.Available()) - s.growthBlocks(q)
	for _, o := range s.queues {
		if len(o.waiting) > 0 {
			per := float64(len(o.waiting)) * o.blocks(o.meanWaiting()+o.cost.usual(o.MaxTokens))
			have -= per / float64(o.Cache.Config().BlocksPerPage) * float64(q.Cache.Config().BlocksPerPage)
		}
	}
	need := q.blocks(float64(a.prompt) + q.cost.usual(a.maxTokens)*float64(a.n))
	if need <= have || s.runs() == 0 {
		return 0
	}
	live, rate := 0.0, 0.0
	for _, o := range s.queues {
		if n := len(o.running); n > 0 {
			e := &o.cost
			tokens := float64(o.decode.Context) + float64(n)
			perPage := float64(q.Cache.Config().BlocksPerPage) / float64(o.Cache.Config().BlocksPerPage)
			b := o.blocks(tokens) * perPage
			live += b
			if span := e.usual(o.MaxTokens) * max(e.interval, e.step); span > 0 {
				rate += b / span
			}
		}
	}
	if rate == 0 {
		return 0
	}
	return min(need-have, live) / rate
}

// newWork is the seconds of a prompt of so many tokens, of which some are cached.
func (q *queue) newWork(tokens, cached int) float64 {
	return q.promptSeconds(q.decode, tokens-cached, cached)
}

// usual is how many tokens a sequence samples, of at most so many.
func (e *estimate) usual(most int) float64 {
	if e.output > 0 {
		return min(e.output, float64(most))
	}
	return 0
}

// meanWaiting is about how many tokens a waiting sequence has: the oldest's.
func (q *queue) meanWaiting() float64 {
	sum, n := 0, 0
	for _, seq := range q.waiting[:min(8, len(q.waiting))] {
		sum += seq.length
		n++
	}
	return float64(sum) / float64(n)
}

// blocks is about how many blocks so many tokens take.
func (q *queue) blocks(tokens float64) float64 { return tokens * q.perToken }

// growthBlocks is how many blocks, in q's, the running sequences are expected to add. They do not all reach their
// length at a time, so it is half of the sum.
func (s *Scheduler) growthBlocks(q *queue) float64 {
	pages := 0.0
	for _, o := range s.queues {
		if len(o.running) > 0 && o.cost.output > 0 {
			pages += o.blocks(o.growth) / float64(o.Cache.Config().BlocksPerPage) / 2
		}
	}
	return pages * float64(q.Cache.Config().BlocksPerPage)
}

// growth is how many blocks should be left when seq is admitted, for what runs to grow; with what seq adds itself.
func (s *Scheduler) growth(q *queue, seq *Sequence) int {
	own := 0.0
	if q.cost.output > 0 {
		own = q.blocks(q.cost.tokensLeft(seq)) / 2
	}
	return int(s.growthBlocks(q) + own)
}

// spread tells a caller to come back after wait seconds, behind those that were told so before: one after every
// each seconds.
func (e *estimate) spread(now time.Time, wait, each float64) time.Duration {
	at := now.Add(seconds(wait))
	if at.Before(now.Add(time.Second)) {
		at = now.Add(time.Second)
	}
	if next := e.retry.Add(seconds(each)); e.retry.After(now) && next.After(at) {
		at = next
	}
	if most := now.Add(120 * time.Second); at.After(most) {
		at = most
	}
	e.retry = at
	return retryAfter(at.Sub(now).Seconds())
}
