package engine

import (
	"sort"

	"github.com/openinfer-go/openinfer/kernels/sim"
)

// model is the forecast of one model; shared is the plan with all models, nil when there is none.
func (p *planner) model(s sim.Spec, i int, shared *MemoryPlan) ModelForecast {
	facts := &p.out.Models[i]
	alone, err := p.memory(s, []int{i})
	f := ModelForecast{Name: facts.Name, Alone: alone, LoadSeconds: float64(facts.WeightBytes) / s.HostBandwidth}
	f.Refused, f.MissingBytes = refusal(err)
	w := newStopwatch(p.engine.models[i].impl, p.models[i].dtype, s)
	if alone != nil {
		f.LongestPrompt = p.longestPrompt(w, facts.TTFT, alone.Models[0].MaxModelLen)
	}
	for _, context := range p.out.Contexts {
		c := ContextForecast{Context: context}
		if context >= p.models[i].context() {
			c.TooLong = true
			f.Contexts = append(f.Contexts, c)
			continue
		}
		if alone != nil {
			c.RequestsAlone = p.requests(alone, 0, i, context)
		}
		if shared != nil {
			c.Requests = p.requests(shared, i, i, context)
		}
		p.speeds(w, &c, facts.TPOT, shared != nil)
		f.Contexts = append(f.Contexts, c)
	}
	return f
}

// speeds fills in what steps of the model take, for as many requests at once as the server has room for, or, where
// there is no such server, as the card has for the model alone.
func (p *planner) speeds(w *stopwatch, c *ContextForecast, tpot float64, shared bool) {
	requests := c.RequestsAlone
	if shared {
		requests = c.Requests
	}
	if c.Context > 0 && max(requests, c.RequestsAlone) > 0 {
		c.TTFT = p.prefill(w, c.Context)
		c.PrefillRate = float64(c.Context) / c.TTFT
	}
	for _, n := range p.out.Concurrency {
		d := DecodeCell{Requests: n, OverCapacity: n > requests}
		if !d.OverCapacity {
			d.TPOT = p.decode(w, c.Context, n)
			d.Rate = float64(n) / d.TPOT
		}
		c.Decode = append(c.Decode, d)
	}
	c.LargestBatch = sort.Search(requests, func(n int) bool { return p.decode(w, c.Context, n+1) > tpot })
}

// prefill is the time to the first token of a prompt, in seconds.
func (p *planner) prefill(w *stopwatch, tokens int) float64 {
	sum := 0.0
	for start := 0; start < tokens; start += p.out.BatchedTokens {
		sum += w.seconds([]stepRow{{start, min(p.out.BatchedTokens, tokens-start)}})
	}
	return sum
}

// decode is the time of a step of n requests, in seconds: in the middle of sustainSeconds of answers, or of a whole answer
// where that is over sooner.
func (p *planner) decode(w *stopwatch, context, n int) float64 {
	at := func(position int) float64 {
		rows := make([]stepRow, n)
		for i := range rows {
			rows[i] = stepRow{min(position, w.shape.MaxPosition-1), 1}
		}
		return w.seconds(rows)
	}
	first := at(context)
	return at(context + int(min(sustainSeconds/first, float64(p.out.AnswerTokens))/2))
}

// longestPrompt is the longest of at most that many tokens whose first token comes within target.
func (p *planner) longestPrompt(w *stopwatch, target float64, most int) int {
	most-- // for what is answered
	start := 0
	for ; start+p.out.BatchedTokens <= most; start += p.out.BatchedTokens {
		took := w.seconds([]stepRow{{start, p.out.BatchedTokens}})
		if took > target {
			break
		}
		target -= took
	}
	last := min(p.out.BatchedTokens, most-start)
	return start + sort.Search(max(last, 0), func(n int) bool { return w.seconds([]stepRow{{start, n + 1}}) > target })
}
