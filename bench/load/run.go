package load

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
)

// Options say how a load is sent.
type Options struct {
	// Concurrency is how many requests run at once in a closed loop, where times at which they are due are not looked at;
	// 0: open loop. Whoever was refused or failed waits first: as long as Retry-After says, or a second, lest a server that
	// answers so at once gets nothing but such requests.
	Concurrency int
	// Ramp spreads the beginnings of a closed loop over so long; 0: all at once, with all connections to be made.
	Ramp time.Duration
	// MaxConcurrency bounds how many requests of an open loop run at once; more wait for a place, in the order in which
	// they were due. 0: no bound.
	MaxConcurrency int
	// Length is when no more requests are begun; 0: when they are all sent.
	Length time.Duration
	// Cut ends those that still run at Length. Their Outcome is Cancelled.
	Cut bool
	// Live, if not nil, is kept up to date.
	Live *Live
	// Ended, if not nil, is called with each record when it is done, by one goroutine at a time.
	Ended func(*Record)
}

// Live is how a run stands. It may be read at any time.
type Live struct {
	Begun, Running                 atomic.Int64 // requests; Running with those that wait for a place
	OK, Refused, Failed, Cancelled atomic.Int64 // that ended, by outcome
	Tokens                         atomic.Int64 // of answers
}

// Result is what became of a load.
type Result struct {
	Begin     time.Time
	Length    time.Duration // from Begin to the end of the last request
	Records   []*Record     // in the order of the load
	Generator Generator
}

// Run sends requests to t and returns when all have ended. When ctx is done it begins no more, cancels those that run and
// returns what it has.
func Run(ctx context.Context, t Target, requests iter.Seq[*Request], o Options) *Result {
	if o.Live == nil {
		o.Live = new(Live)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// Requests are made ahead of their time: a long prompt takes as long to make as many tokens to read.
	queue := make(chan *Request, 64)
	made := make(chan struct{})
	starting, stop := context.WithCancel(ctx)
	defer func() { <-made }()
	defer stop()
	go func() {
		defer close(made)
		defer close(queue)
		for q := range requests {
			select {
			case queue <- q:
			case <-starting.Done():
				return
			}
		}
	}()

	watch := startGauge()
	g := &running{Options: o, ctx: ctx, starting: starting, target: t, begin: time.Now()}
	if o.Length > 0 {
		timer := time.AfterFunc(o.Length, func() {
			stop()
			if o.Cut {
				cancel()
			}
		})
		defer timer.Stop()
	}
	if o.Concurrency > 0 {
		g.closedLoop(queue)
	} else {
		g.openLoop(queue)
	}
	g.running.Wait()
	slices.SortFunc(g.records, func(a, b *Record) int { return cmp.Or(a.Index-b.Index, a.Turn-b.Turn) })
	result := &Result{Begin: g.begin, Records: g.records}
	for _, r := range g.records {
		result.Length = max(result.Length, r.End)
	}
	result.Generator = watch.stop(result)
	return result
}

// running is a run that goes on.
type running struct {
	Options
	ctx      context.Context // of requests
	starting context.Context // done when no more begin
	target   Target
	begin    time.Time
	places   *semaphore.Weighted // nil: no bound
	running  sync.WaitGroup

	mu      sync.Mutex
	records []*Record
}

func (g *running) closedLoop(queue <-chan *Request) {
	var index atomic.Int64
	for i := range g.Concurrency {
		begin := g.begin.Add(g.Ramp * time.Duration(i) / time.Duration(g.Concurrency))
		g.running.Go(func() {
			sleepUntil(g.starting, begin)
			for g.starting.Err() == nil {
				q, ok := <-queue
				if !ok {
					return
				}
				last := g.converse(q, int(index.Add(1)-1), time.Since(g.begin))
				if last.Outcome != OK {
					sleepUntil(g.starting, time.Now().Add(cmp.Or(last.RetryAfter, time.Second)))
				}
			}
		})
	}
}

func (g *running) openLoop(queue <-chan *Request) {
	if g.MaxConcurrency > 0 {
		g.places = semaphore.NewWeighted(int64(g.MaxConcurrency))
	}
	index := 0
	for q := range queue {
		if !sleepUntil(g.starting, g.begin.Add(q.Due)) {
			return
		}
		i := index
		index++
		g.running.Go(func() { g.converse(q, i, q.Due) })
	}
}

// converse sends a request and the turns behind it, and returns the last one's record.
func (g *running) converse(q *Request, index int, due time.Duration) *Record {
	for turn := 0; ; turn++ {
		r := &Record{Index: index, Turn: turn, Tag: q.Tag, Due: due, Ready: due, Sent: -1, begin: g.begin}
		g.Live.Begun.Add(1)
		g.Live.Running.Add(1)
		if g.place(r) {
			g.target.Send(g.ctx, q, r, &g.Live.Tokens)
			if g.places != nil {
				g.places.Release(1)
			}
		} else {
			r.End, r.Reason = r.now(), "the run ended"
		}
		g.Live.Running.Add(-1)
		g.ended(r)
		if r.Outcome != OK || q.Then == nil {
			return r
		}
		q = q.next(r.Text)
		due = r.End + q.Think
		if !sleepUntil(g.starting, g.begin.Add(due)) {
			return r
		}
	}
}

// place waits for a place of those that MaxConcurrency leaves.
func (g *running) place(r *Record) bool {
	if g.places == nil || g.places.TryAcquire(1) {
		return true
	}
	if g.places.Acquire(g.ctx, 1) != nil {
		return false
	}
	r.Ready = r.now()
	return true
}

func (g *running) ended(r *Record) {
	switch r.Outcome {
	case OK:
		g.Live.OK.Add(1)
	case Refused:
		g.Live.Refused.Add(1)
	case Failed:
		g.Live.Failed.Add(1)
	default:
		g.Live.Cancelled.Add(1)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.records = append(g.records, r)
	if g.Ended != nil {
		g.Ended(r)
	}
}

// sleepUntil says whether at came before ctx was done.
func sleepUntil(ctx context.Context, at time.Time) bool {
	wait := time.Until(at)
	if wait <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
