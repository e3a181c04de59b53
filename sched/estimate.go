package sched

import "time"

// estimate is what is known of how long a queue's work takes. Now that is averages; a model of
// step time by rows, prompt tokens and context takes their place when plans are made by deadlines.
type estimate struct {
	step     float64   // seconds of device time of a step
	interval float64   // seconds from one step of the queue to the next, other models' included
	output   float64   // tokens that a sequence samples
	last     time.Time // end of its last step; zero when the queue was empty since
	refused  int       // since a sequence ended
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

// charge books a plan's device time, as estimated, to its queue.
func (s *Scheduler) charge(p *Plan) {
	p.charged = max(minStep, p.queue.cost.step)
	p.queue.served += p.charged / p.queue.Weight
}

// settle corrects what was charged when the step is done. A step that was planned while another
// one ran began when that one ended.
func (s *Scheduler) settle(p *Plan, now time.Time) {
	begin := p.Start
	if s.lastStep.After(begin) {
		begin = s.lastStep
	}
	s.lastStep = now
	took := max(minStep, now.Sub(begin).Seconds())
	q := p.queue
	q.served += (took - p.charged) / q.Weight
	q.stats.Steps++
	q.stats.DeviceTime += max(0, now.Sub(begin))
	average(&q.cost.step, took)
	if !q.cost.last.IsZero() {
		average(&q.cost.interval, max(took, now.Sub(q.cost.last).Seconds()))
	}
	q.cost.last = now
}

func (e *estimate) finished(sampled int) {
	average(&e.output, float64(max(1, sampled)))
	e.refused = 0
}

// place predicts when a place in the queue comes free for one more caller: the first when the
// running sequence that is nearest to its end is done, the next ones at the rate at which
// sequences end. Callers refused since the last end are taken to come back first. It counts the refusal.
func (e *estimate) place(q *queue) time.Duration {
	ahead := e.refused
	e.refused++
	step := max(e.interval, e.step)
	first, longest := 0.0, 0.0
	for i, seq := range q.running {
		n := e.steps(q, seq)
		if i == 0 || n < first {
			first = n
		}
		longest = max(longest, n)
	}
	seconds := step * (first + float64(ahead)*longest/float64(q.MaxSeqs))
	return time.Duration(min(max(seconds, 1), 120) * float64(time.Second))
}

// steps predicts how many steps a running sequence still takes.
func (e *estimate) steps(q *queue, seq *Sequence) float64 {
	sampled := len(seq.Sampled())
	tokens := float64(seq.MaxTokens - sampled)
	if usual := e.output - float64(sampled); e.output > 0 && usual < tokens {
		tokens = max(1, usual)
	}
	prompt := max(0, len(seq.tokens)-seq.computed-1)
	return tokens + float64(prompt)*float64(1+len(q.running))/float64(q.ChunkTokens)
}
