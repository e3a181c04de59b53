package matrix

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/openinfer-go/openinfer/bench/load"
)

const (
	// shortPrompt is the prompt of context 0, in tokens.
	shortPrompt = 16
	// prefillMost is how many prompts a prefill cell sends at most, as its time allows.
	prefillMost = 5
	// look is how often a decode cell looks whether all decode.
	look = 20 * time.Millisecond

	measuring = "measuring"
)

// prompt is the i-th prompt of a context: the same for the same seed.
func (r *run) prompt(phase Phase, context, i, answer int) *load.Request {
	d := load.Random{Input: max(context, shortPrompt), Output: answer}
	seed := r.Seed<<32 ^ uint64(context)<<8 ^ uint64(i)<<1
	if phase == Decode {
		seed ^= 1
	}
	for q := range d.Requests(seed, r.speller) {
		return q
	}
	panic("matrix: a dataset without end has ended")
}

// send sends requests at once and waits for all.
func (r *run) send(ctx context.Context, requests ...*load.Request) (records []*load.Record) {
	r.await(func() {
		records = load.Run(ctx, r.client, slices.Values(requests), load.Options{}).Records
	})
	return records
}

// spoiled fills in the status of a cell one of whose requests did not go well, and says whether it is one.
func spoiled(cell *Cell, q *load.Record) bool {
	if q.Outcome != load.Refused && q.Outcome != load.Failed {
		return false
	}
	cell.Status, cell.Why = Failed, reason(q)
	text := strings.ToLower(q.Reason)
	if q.Outcome == load.Refused && q.Status == http.StatusTooManyRequests || q.Status == http.StatusBadRequest && strings.Contains(text, "context") {
		cell.Status = OverCapacity
	}
	return true
}

func (r *run) prefill(ctx context.Context, cell *Cell) {
	r.do(measuring)
	begin := time.Now()
	var rates, ttft []float64
	for i := 0; i < prefillMost && (i == 0 || time.Since(begin) < r.CellTime); i++ {
		records := r.send(ctx, r.prompt(Prefill, cell.Context, i, 1))
		if ctx.Err() != nil {
			return
		}
		q := records[0]
		if spoiled(cell, q) {
			return
		}
		took := q.TTFT().Seconds()
		tokens := cmp.Or(q.PromptTokens, cell.Context)
		rates = append(rates, float64(tokens-q.CachedTokens)/took)
		ttft = append(ttft, took*1e3)
		cell.PromptTokens, cell.CachedTokens = tokens, max(cell.CachedTokens, q.CachedTokens)
		cell.Completed++
		cell.OutputTokens += q.Tokens
		cell.Seconds += took
		r.rate = median(rates)
	}
	cell.Status, cell.TokensPerSecond, cell.TTFT, cell.AverageActive = Measured, median(rates), median(ttft), 1
}

// decode measures one cell. The prompts were sent before when it begins to count.
func (r *run) decode(ctx context.Context, cell *Cell) {
	n, answer := cell.Requests, r.answer(cell)
	different := 1
	if r.UniquePrompts {
		different = n
	}
	r.do("warming up")
	var once []*load.Request
	for i := range n {
		once = append(once, r.prompt(Decode, cell.Context, i%different, 1))
	}
	for r.warm[cell.Context] < different { // one after the other: at once each would be computed
		q := r.send(ctx, once[r.warm[cell.Context]])[0]
		if ctx.Err() != nil || spoiled(cell, q) {
			return
		}
		r.warm[cell.Context]++
		r.cold[cell.Context] = max(r.cold[cell.Context], q.TTFT())
	}
	for _, q := range r.send(ctx, once...) { // at once: each of a server's places may have a cache of its own
		if ctx.Err() != nil || spoiled(cell, q) {
			return
		}
	}
	prompts := make([]*load.Request, different)
	for i := range prompts {
		prompts[i] = r.prompt(Decode, cell.Context, i, answer)
	}

	w := &watched{target: r.client}
	cellCtx, end := context.WithCancel(ctx)
	defer end()
	ran := make(chan *load.Result, 1)
	go func() { ran <- load.Run(cellCtx, w, cycle(prompts), load.Options{Concurrency: n}) }()

	from, stuck := r.untilAllDecode(cellCtx, w, n, max(r.CellTime, 3*r.cold[cell.Context]+5*time.Second))
	if !from.IsZero() {
		r.measure(cellCtx, w, from)
	}
	end()
	result := <-ran
	if ctx.Err() != nil {
		return
	}
	if q := w.spoiled(); q != nil && spoiled(cell, q) {
		return
	}
	if stuck != "" {
		cell.Status, cell.Why = OverCapacity, stuck
		return
	}
	r.count(cell, result, from.Sub(result.Begin))
}

// untilAllDecode waits until n requests have had tokens and go on. It gives up with the reason when for so long no
// other has had its first, or with none when a request did not go well.
func (r *run) untilAllDecode(ctx context.Context, w *watched, n int, patience time.Duration) (from time.Time, stuck string) {
	r.do(fmt.Sprintf("waiting for %d first tokens", n))
	tick := time.NewTicker(look)
	defer tick.Stop()
	most, since, shown := 0, time.Now(), time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		decoding, _ := w.state()
		switch {
		case w.spoiled() != nil:
			return
		case decoding == n:
			return time.Now(), ""
		case decoding > most:
			most, since = decoding, time.Now()
		case time.Since(since) > patience:
			return time.Time{}, fmt.Sprintf("%d of %d requests ran at once", most, n)
		}
		if time.Since(shown) >= 500*time.Millisecond {
			shown = time.Now()
			r.show(Status{})
		}
	}
}

// measure waits for the cell's time.
func (r *run) measure(ctx context.Context, w *watched, from time.Time) {
	r.do(measuring)
	_, before := w.state()
	timer := time.NewTimer(time.Until(from.Add(r.CellTime)))
	defer timer.Stop()
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			return
		case <-tick.C:
			if w.spoiled() != nil {
				return
			}
			_, tokens := w.state()
			r.rate = float64(tokens-before) / time.Since(from).Seconds()
			r.show(Status{})
		}
	}
}

// count fills in what came within the cell's time from from.
func (r *run) count(cell *Cell, result *load.Result, from time.Duration) {
	to := from + r.CellTime
	var ttft, gaps []float64
	active := time.Duration(0)
	for _, q := range result.Records {
		if len(q.Chunks) == 0 || q.First() >= to {
			continue
		}
		ttft = append(ttft, ms(q.TTFT()))
		cell.OutputTokens += q.TokensIn(from, to)
		cell.PromptTokens = max(cell.PromptTokens, q.PromptTokens)
		cell.CachedTokens = max(cell.CachedTokens, q.CachedTokens)
		switch {
		case q.Outcome == load.OK && q.End < from:
			continue
		case q.Outcome == load.OK && q.End < to:
			cell.Completed++
		default:
			cell.Completed++
			cell.Cut++
		}
		active += min(q.End, to) - max(q.First(), from)
		for i := 1; i < len(q.Chunks); i++ {
			if a, b := q.Chunks[i-1], q.Chunks[i]; a.At >= from && b.At < to {
				gaps = append(gaps, ms(b.At-a.At)/float64(b.Tokens))
			}
		}
	}
	cell.Seconds = r.CellTime.Seconds()
	if cell.OutputTokens == 0 {
		cell.Status, cell.Why = Failed, "no token came within the cell's time"
		return
	}
	cell.Status = Measured
	cell.TokensPerSecond = float64(cell.OutputTokens) / cell.Seconds
	cell.AverageActive = active.Seconds() / cell.Seconds
	cell.PerRequest = cell.TokensPerSecond / cell.AverageActive
	cell.TTFT, cell.ITL = median(ttft), median(gaps)
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// median is the middle value, or the mean of the two; 0 of none.
func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(values))
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}

// cycle is a list without end.
func cycle(list []*load.Request) iter.Seq[*load.Request] {
	return func(yield func(*load.Request) bool) {
		for {
			for _, q := range list {
				if !yield(q) {
					return
				}
			}
		}
	}
}

// watched is a target whose requests can be looked at while they run.
type watched struct {
	target load.Target

	mu      sync.Mutex
	running map[*atomic.Int64]struct{} // the tokens of each
	ended   int64                      // tokens of those that have ended
	bad     *load.Record               // the first that did not go well
}

// Send implements load.Target.
func (w *watched) Send(ctx context.Context, q *load.Request, r *load.Record, counter *atomic.Int64) {
	tokens := new(atomic.Int64)
	w.mu.Lock()
	if w.running == nil {
		w.running = map[*atomic.Int64]struct{}{}
	}
	w.running[tokens] = struct{}{}
	w.mu.Unlock()
	w.target.Send(ctx, q, r, tokens)
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.running, tokens)
	w.ended += tokens.Load()
	counter.Add(tokens.Load())
	if w.bad == nil && (r.Outcome == load.Refused || r.Outcome == load.Failed) {
		w.bad = r
	}
}

// state is how many requests have tokens and go on, and all tokens so far.
func (w *watched) state() (decoding int, tokens int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	tokens = w.ended
	for t := range w.running {
		if n := t.Load(); n > 0 {
			decoding, tokens = decoding+1, tokens+n
		}
	}
	return decoding, tokens
}

// spoiled is the first request that did not go well; nil if there is none.
func (w *watched) spoiled() *load.Record {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.bad
}
