package sched

import (
	"math"
	"time"
)

// estimate is what is known of how a queue's sequences go, in averages.
type estimate struct {
	step     float64   // seconds of device time of a step
	interval float64   // seconds from one step of the queue to the next, other models' included
	output   float64   // tokens that a sequence samples
	chunk    float64   // prompt tokens that a step with prompts may have
	last     time.Time // end of its last step; zero when the queue was empty since
	retry    time.Time // when the last one that was refused was told to come back
}

// minStep keeps models taking turns when the caller's clock stands still.
const minStep = 1e-6

// average moves an average an eighth of the way to x.
func average(avg *float64, x float64) {
	if *avg == 0 {
		*avg = x
	} else {
		*avg += (x - *avg) / 8
	}
}

// charge books a plan's device time, as predicted, to its queue.
func (s *Scheduler) charge(p *Plan) {
	q := p.queue
	p.work = p.Work()
	p.said = q.stepSeconds(p.work)
	p.charged = max(minStep, p.said)
	q.served += p.charged / q.Weight
}

// settle corrects what was charged when the step is done, and learns from it. A step that was planned while
// another one ran began when that one ended.
func (s *Scheduler) settle(p *Plan, err error, now time.Time) {
	begin := p.Start
	if s.lastStep.After(begin) {
		begin = s.lastStep
	}
	s.lastStep = now
	seconds := now.Sub(begin).Seconds()
	took := max(minStep, seconds)
	q := p.queue
	q.dirty = true
	q.served += (took - p.charged) / q.Weight
	q.stats.Steps++
	q.stats.DeviceTime += max(0, now.Sub(begin))
	q.stats.Predicted += time.Duration(p.said * float64(time.Second))
	if s.backlog > 4*took {
		s.pace.add(seconds, margin-s.taken(nil, SLA{}, 0))
	}
	if err == nil {
		q.model.Observe(p.work, seconds)
	}
	average(&q.cost.step, took)
	if !q.cost.last.IsZero() {
		average(&q.cost.interval, max(took, now.Sub(q.cost.last).Seconds()))
	}
	q.cost.last = now
}

// stepSeconds is what a step of this work is predicted to take.
func (q *queue) stepSeconds(w Work) float64 {
	switch {
	case w.Rows == 0:
		return 0
	case !q.model.ready():
		return q.cost.step
	}
	return q.model.Predict(w)
}

// typicalChunk is how many prompt tokens are taken to share a step before any did.
const typicalChunk = 128

func (q *queue) typicalChunk() int {
	if q.cost.chunk > 0 {
		return max(minChunk, int(q.cost.chunk))
	}
	return min(typicalChunk, q.MaxBatchTokens)
}

// promptSeconds is what n tokens of a prompt, from position start on, add to steps of work w.
func (q *queue) promptSeconds(w Work, n, start int) float64 {
	if n <= 0 {
		return 0
	}
	chunk := min(n, q.typicalChunk())
	steps := float64(n) / float64(chunk)
	if !q.model.ready() {
		return steps * q.cost.step
	}
	with := w
	with.Rows++
	with.Tokens += chunk
	return steps*(q.model.Predict(with)-q.stepSeconds(w)) + q.contextSeconds(start, n)
}

// contextSeconds is the part of it that grows with what the tokens attend to.
func (q *queue) contextSeconds(start, n int) float64 {
	return q.model.context(float64(n)*float64(start) + float64(n)*float64(n+1)/2)
}

func (e *estimate) finished(sampled int) { average(&e.output, float64(max(1, sampled))) }

// tokensLeft predicts how many tokens a sequence still samples: as many as usual, if that is known and it asks
// for more; of one that has sampled more than usual, a quarter of it.
func (e *estimate) tokensLeft(seq *Sequence) float64 {
	n := seq.sampled()
	left := float64(int(seq.limit) - seq.length)
	if usual := e.output - float64(n); e.output > 0 && usual < left {
		left = min(left, max(usual, e.output/4, 1))
	}
	return left
}

// place predicts when a place in the queue comes free for one more caller: the first when the running sequence that is
// nearest to its end is done, the next ones at the rate at which sequences end. Callers that were told so before come
// back first.
func (q *queue) place(now time.Time) time.Duration {
	first, each := q.ends()
	return q.cost.spread(now, first, each)
}

// ends predicts in how many seconds the first running sequence ends, and then how many it is from one to the next
// while the model is full.
func (q *queue) ends() (first, each float64) {
	e := &q.cost
	step := max(e.interval, e.step)
	prompts, tokens, longest := 0, 0, 0.0
	count := func(seq *Sequence) {
		if n := seq.length - seq.computed; n > 1 {
			prompts++
			tokens += n
		}
		longest = max(longest, e.tokensLeft(seq)*step)
	}
	fewest := -1.0 // tokens of the one that is nearest to its end
	for _, seq := range q.running {
		count(seq)
		if n := e.tokensLeft(seq); fewest < 0 || n < fewest {
			fewest = n
		}
	}
	soon := q.waiting[:min(len(q.waiting), q.MaxSeqs-len(q.running))] // what runs next
	for _, seq := range soon {
		count(seq)
		if n := e.tokensLeft(seq); fewest < 0 || n < fewest {
			fewest = n
		}
	}
	first = max(fewest, 0) * step
	if prompts > 0 {
		one := q.promptSeconds(q.decode, tokens/prompts, 0) * max(1, e.interval/max(e.step, minStep))
		each = one
		// A token comes with every chunk of the prompts beside it, until they are computed.
		first += min(fewest*q.promptSeconds(q.decode, q.typicalChunk(), 0), one*float64(prompts))
	}
	return first, each + longest/float64(q.MaxSeqs)
}

// retryAfter bounds what a caller is told.
func retryAfter(seconds float64) time.Duration {
	return time.Duration(min(max(seconds, 1), 120) * float64(time.Second))
}

// pace is how fast prompts are computed while some always wait, against what was predicted: prefixes are found in the
// cache, steps are not filled to the brim, and best-effort work has a part.
type pace struct{ done, foreseen float64 }

// paceSeconds is over how long it is averaged.
const paceSeconds = 8

func (p *pace) add(seconds, free float64) {
	if seconds > 0 {
		f := math.Exp(-seconds / paceSeconds)
		p.done *= f
		p.foreseen = (p.foreseen + seconds*max(free, 0.05)) * f
	}
}

// factor is what a predicted rate is to be multiplied with.
func (p *pace) factor() float64 { return min(max((p.done+0.5)/(p.foreseen+0.5), 0.25), 4) }

// restOf predicts how long it takes until all running sequences of q have ended, while nobody is admitted.
func (q *queue) restOf() float64 {
	step, rest := max(q.cost.interval, q.cost.step), 0.0
	for _, seq := range q.running {
		left := seq.length - seq.computed
		rest = max(rest, q.cost.tokensLeft(seq)*step+q.promptSeconds(q.decode, left, seq.computed))
	}
	return rest
}
