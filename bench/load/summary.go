package load

import (
	"math"
	"slices"
	"time"
)

// Distribution is a set of durations, sorted. All its figures are exact; of none they are 0.
type Distribution []time.Duration

// NewDistribution sorts d in place.
func NewDistribution(d []time.Duration) Distribution {
	slices.Sort(d)
	return d
}

// Percentile is the value below which p percent lie, interpolated between the two nearest, as numpy's and so vLLM's.
func (d Distribution) Percentile(p float64) time.Duration {
	if len(d) == 0 {
		return 0
	}
	at := min(max(p, 0), 100) / 100 * float64(len(d)-1)
	i := int(at)
	if i == len(d)-1 {
		return d[i]
	}
	return d[i] + time.Duration((at-float64(i))*float64(d[i+1]-d[i]))
}

// Max is the greatest.
func (d Distribution) Max() time.Duration { return d.Percentile(100) }

// Mean is the arithmetic mean.
func (d Distribution) Mean() time.Duration {
	if len(d) == 0 {
		return 0
	}
	sum := 0.0
	for _, v := range d {
		sum += float64(v)
	}
	return time.Duration(sum / float64(len(d)))
}

// Std is the standard deviation of the set itself, as numpy's.
func (d Distribution) Std() time.Duration {
	if len(d) == 0 {
		return 0
	}
	mean, sum := float64(d.Mean()), 0.0
	for _, v := range d {
		sum += (float64(v) - mean) * (float64(v) - mean)
	}
	return time.Duration(math.Sqrt(sum / float64(len(d))))
}

// Summary is what records come to. Distributions are of answered requests (OK) alone; the others are counted beside them.
type Summary struct {
	OK, Refused, Failed, Cancelled int
	Reasons                        map[string]int // of refusals and failures
	Resent                         int            // requests that met a closed connection and went out on another

	PromptTokens, CachedTokens, Tokens int // of answered requests
	CutTokens                          int // of others, which came before they ended

	TTFT Distribution // from when a request was due to its first token
	TPOT Distribution // per request: mean time per token after the first; of those with two or more
	ITL  Distribution // gaps between chunks, of all requests
	E2EL Distribution // from when a request was due to its last token

	SentTTFT, SentE2EL Distribution // the same from when it was sent
	Queue              Distribution // that the generator held it back itself
}

// Summarize adds records up.
func Summarize(records []*Record) Summary {
	s := Summary{Reasons: map[string]int{}}
	for _, r := range records {
		if r.Resent > 0 {
			s.Resent++
		}
		switch r.Outcome {
		case OK:
			s.OK++
		case Refused:
			s.Refused++
			s.Reasons[r.Reason]++
		case Failed:
			s.Failed++
			s.Reasons[r.Reason]++
		default:
			s.Cancelled++
		}
		if r.Outcome != OK {
			for _, c := range r.Chunks {
				s.CutTokens += int(c.Tokens)
			}
			continue
		}
		s.PromptTokens += r.PromptTokens
		s.CachedTokens += r.CachedTokens
		s.Tokens += r.Tokens
		s.TTFT = append(s.TTFT, r.TTFT())
		s.E2EL = append(s.E2EL, r.E2EL())
		s.SentTTFT = append(s.SentTTFT, r.First()-r.Sent)
		s.SentE2EL = append(s.SentE2EL, r.Last()-r.Sent)
		s.Queue = append(s.Queue, r.Queue())
		if r.Tokens > 1 {
			s.TPOT = append(s.TPOT, r.TPOT())
		}
		for i := 1; i < len(r.Chunks); i++ {
			s.ITL = append(s.ITL, r.Chunks[i].At-r.Chunks[i-1].At)
		}
	}
	for _, d := range []Distribution{s.TTFT, s.TPOT, s.ITL, s.E2EL, s.SentTTFT, s.SentE2EL, s.Queue} {
		slices.Sort(d)
	}
	return s
}

// Point is one step of a run's time.
type Point struct {
	At      time.Duration // where the step begins
	Tokens  int           // that came in it
	Running float64       // requests that had been sent and not ended, on average
	Most    int           // of them at once
	Begun   int           // requests due in it
	Ended   int           // answers that ended in it
	Refused int
	Failed  int
}

// Series cuts a run into steps of that length, from its beginning to its end.
func (r *Result) Series(step time.Duration) []Point {
	if step <= 0 {
		return nil
	}
	points := make([]Point, r.Length/step+1)
	at := func(t time.Duration) *Point { return &points[min(max(t, 0)/step, time.Duration(len(points)-1))] }
	type change struct {
		at time.Duration
		by int
	}
	var changes []change
	for i := range points {
		points[i].At = step * time.Duration(i)
		changes = append(changes, change{points[i].At, 0})
	}
	for _, q := range r.Records {
		at(q.Due).Begun++
		for _, c := range q.Chunks {
			at(c.At).Tokens += int(c.Tokens)
		}
		switch q.Outcome {
		case OK:
			at(q.End).Ended++
		case Refused:
			at(q.End).Refused++
		case Failed:
			at(q.End).Failed++
		}
		if q.Sent >= 0 {
			changes = append(changes, change{q.Sent, 1}, change{q.End, -1})
		}
	}
	// Ends before begins at the same time: spans are half open.
	slices.SortFunc(changes, func(a, b change) int {
		if a.at != b.at {
			return int(min(max(a.at-b.at, -1), 1))
		}
		return a.by - b.by
	})
	running, last := 0, time.Duration(0)
	for _, c := range changes {
		for last < c.at { // a step's border is a change of 0, so this is within one step
			p := at(last)
			p.Running += float64(running) * float64(c.at-last) / float64(step)
			last = c.at
		}
		running += c.by
		p := at(c.at)
		p.Most = max(p.Most, running)
	}
	return points
}
