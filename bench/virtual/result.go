package virtual

import (
	"math"
	"slices"
	"time"

	"github.com/openinfer-go/openinfer/engine"
)

// Result is what became of a load.
type Result struct {
	Way      string
	Length   time.Duration // from the first request to the last answer's end
	Models   []ModelResult // in the order of the mix
	Switches int           // times that weights came to the card
	Busy     time.Duration // the card's
}

// ModelResult is one model's part.
type ModelResult struct {
	Model                    string
	Offered, Refused, Served int
	Sellable                 int // requests whose first and later tokens came in time
	Tokens, SellableTokens   int
	TTFT95, TPOT95           time.Duration // of what was served
	DeviceTime               time.Duration
	// FairShare is DeviceTime over the model's fair share of all models' device time: that is as much as it would have
	// taken with nothing refused, or an even part of what others leave if that is less.
	FairShare float64
}

// Sum adds the models up; percentiles are the greatest.
func (r Result) Sum() ModelResult {
	s := ModelResult{Model: "all"}
	for _, m := range r.Models {
		s.Offered += m.Offered
		s.Refused += m.Refused
		s.Served += m.Served
		s.Sellable += m.Sellable
		s.Tokens += m.Tokens
		s.SellableTokens += m.SellableTokens
		s.DeviceTime += m.DeviceTime
		s.TTFT95, s.TPOT95 = max(s.TTFT95, m.TTFT95), max(s.TPOT95, m.TPOT95)
	}
	return s
}

// fairShares sets FairShare of each model.
func (r *Result) fairShares() {
	left := 0.0
	wants, done := make([]float64, len(r.Models)), make([]bool, len(r.Models))
	for i, m := range r.Models {
		left += m.DeviceTime.Seconds()
		wants[i] = m.DeviceTime.Seconds()
		if m.Served > 0 {
			wants[i] *= float64(m.Offered) / float64(m.Served)
		} else if m.Offered > 0 {
			wants[i] = math.Inf(1)
		}
	}
	open := len(r.Models)
	for again := true; again; {
		again = false
		for i := range r.Models {
			if !done[i] && wants[i] <= left/float64(open) {
				done[i], again = true, true
				left -= wants[i]
				open--
			}
		}
	}
	for i := range r.Models {
		m, fair := &r.Models[i], wants[i]
		if !done[i] {
			fair = left / float64(open)
		}
		m.FairShare = 1
		if fair > 0 {
			m.FairShare = m.DeviceTime.Seconds() / fair
		}
	}
}

// tally gathers one model's results.
type tally struct {
	ModelResult
	ttft, tpot []time.Duration
}

// served counts an answer: the request, when its first and last token came, and how many there were.
func (t *tally) served(q *Request, first, last time.Duration, n int) {
	t.Served++
	t.Tokens += n
	ttft, tpot := first-q.At, time.Duration(0)
	if n > 1 {
		tpot = (last - first) / time.Duration(n-1)
	}
	t.ttft, t.tpot = append(t.ttft, ttft), append(t.tpot, tpot)
	if met(q.SLA, ttft, tpot) {
		t.Sellable++
		t.SellableTokens += n
	}
}

func met(s engine.SLA, ttft, tpot time.Duration) bool {
	return (s.TTFT == 0 || ttft <= s.TTFT) && (s.TPOT == 0 || tpot <= s.TPOT)
}

func (t *tally) result() ModelResult {
	t.TTFT95, t.TPOT95 = percentile(t.ttft, 0.95), percentile(t.tpot, 0.95)
	return t.ModelResult
}

// percentile sorts d.
func percentile(d []time.Duration, p float64) time.Duration {
	if len(d) == 0 {
		return 0
	}
	slices.Sort(d)
	return d[min(len(d)-1, int(p*float64(len(d))))]
}
