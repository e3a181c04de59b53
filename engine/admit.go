package engine

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/openinfer-go/openinfer/sched"
)

// What reaches the scheduler from callers' goroutines. All of it happens under Engine.mu, which no
// step holds, so a caller is accepted, refused or let go at once whatever the device is doing.

// under runs f, which may use the scheduler, with mu held. A panic in f is a broken invariant of
// the scheduler: it is the error, and the loop then fails every sequence and starts anew.
func (e *Engine) under(f func()) (err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	defer func() {
		if p := recover(); p != nil {
			e.log.Error("the scheduler panicked; every sequence fails and the pool is rebuilt", "panic", p, "stack", string(debug.Stack()))
			err = fmt.Errorf("%w: the scheduler failed: %v", ErrStep, p)
			e.broken = err
			e.signal()
		}
	}()
	f()
	return nil
}

// signal makes the loop look.
func (e *Engine) signal() {
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// submit hands q to the scheduler. An error means that nothing was started.
func (e *Engine) submit(q *request) error {
	var err error
	cancelled := false
	broken := e.under(func() {
		switch {
		case e.closed:
			err = ErrClosed
		case q.cancelled.Load():
			cancelled = true
		default:
			seqs := make([]*sched.Sequence, len(q.seqs))
			for i, s := range q.seqs {
				seqs[i] = s.sched
			}
			if err = e.sched.Submit(q.arrival, seqs...); err == nil {
				for _, s := range q.seqs {
					e.live[s] = struct{}{}
				}
				e.keepAlive(q)
			}
		}
	})
	switch {
	case broken != nil:
		return broken
	case err != nil:
		e.signal() // who is turned away may bring a parked model
		return q.model.refused(err)
	case cancelled:
		q.model.count.finished[FinishCancelled].Add(int64(len(q.seqs)))
		q.sink.cancel()
		return nil
	}
	e.signal()
	return nil
}

// keepAlive notes how long q's model is to stay after it. It is called with mu held.
func (e *Engine) keepAlive(q *request) {
	d := q.model.spec.keepAlive()
	if q.KeepAlive != nil {
		d = *q.KeepAlive
	}
	e.stays(q.model, d)
}

// stays sets how long a model stays without a request. It is called with mu held.
func (e *Engine) stays(m *model, d time.Duration) {
	if d != m.keepAlive {
		m.keepAlive = d
		if err := e.sched.KeepAlive(m.name(), d); err != nil {
			panic(err)
		}
	}
}

// cancel ends what is left of q: what waits at once, what a step is computing with that step.
func (e *Engine) cancel(q *request) {
	if !q.sink.running() || q.cancelled.Swap(true) {
		return
	}
	_ = e.under(func() { // a broken scheduler is about to end all sequences
		for _, s := range q.seqs {
			if _, open := e.live[s]; open && !s.sched.Done() {
				e.sched.Cancel(s.sched)
				q.model.count.finished[FinishCancelled].Add(1)
			}
		}
	})
	e.signal()
}

// refused is an error of the scheduler in this package's words; one that asks to come back is counted.
func (m *model) refused(err error) error {
	var over *sched.OverCapacity
	switch {
	case err == nil:
		return nil
	case errors.As(err, &over):
		reason := &m.count.refusedFull
		if over.Predicted > 0 {
			reason = &m.count.refusedSLA
		}
		reason.Add(1)
		return &OverCapacityError{Model: m.name(), RetryAfter: over.RetryAfter, Waiting: over.Waiting, Predicted: over.Predicted, Target: over.Target}
	case errors.Is(err, sched.ErrTooLong):
		return fmt.Errorf("%w: %w", ErrContextLength, err)
	case errors.Is(err, sched.ErrTooMany):
		return &InvalidError{"n", err.Error()}
	case errors.Is(err, sched.ErrDraining):
		return ErrClosed
	case errors.Is(err, ErrClosed):
		return err
	}
	return fmt.Errorf("%w: %w", ErrStep, err)
}

// Admit is the cheap check before a request's text is touched: it returns what Generate would for
// a prompt whose length nobody knows yet (ErrUnknownModel, ErrNotReady, ErrClosed, *OverCapacityError, an InvalidError on
// n), and reserves nothing. Of r, Model, N, SLA, Key and Priority count.
func (e *Engine) Admit(r Request) error {
	m, err := e.ready(r.Model)
	if err != nil {
		return err
	}
	err = ErrClosed
	broken := e.under(func() {
		if !e.closed {
			err = e.sched.Check(time.Now(), r.Model, max(r.N, 1), 0, r.SLA, r.Key)
		}
	})
	if broken != nil {
		return broken
	}
	if err != nil {
		e.signal()
	}
	return m.refused(err)
}

// Await waits until a model that is still loading is ready. Who waits counts as a waiting sequence,
// so queues are bounded while models load, too. Its errors are those of Admit, ErrClosed when
// loading failed, and ctx's.
func (e *Engine) Await(ctx context.Context, model string) error {
	m, ok := e.byName[model]
	if !ok {
		return fmt.Errorf("%w: %q", ErrUnknownModel, model)
	}
	if m.ready.Load() {
		return nil
	}
	if err := e.enter(m); err != nil {
		return err
	}
	defer e.leave(m)
	select {
	case <-e.allReady:
		return nil
	case <-e.closing:
		return ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
}

// enter counts a caller of Await, or refuses it. As many may be there as the scheduler will take
// once the model is ready.
func (e *Engine) enter(m *model) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	waiting := 0
	for i, n := range e.awaiting {
		if i != m.index {
			waiting += max(0, n-e.models[i].spec.MaxNumSeqs)
		}
	}
	own := max(0, e.awaiting[m.index]+1-m.spec.MaxNumSeqs)
	switch {
	case e.closed:
		return ErrClosed
	case own > 0 && (own > e.options.MaxWaiting || waiting+own > e.options.MaxWaitingTotal):
		m.count.refusedFull.Add(1)
		return &OverCapacityError{Model: m.name(), RetryAfter: loadingRetry, Waiting: e.awaiting[m.index]}
	}
	e.awaiting[m.index]++
	return nil
}

// loadingRetry is what those are told that find too many waiting for a model to load, when nobody knows
// yet how long requests take.
const loadingRetry = 5 * time.Second

func (e *Engine) leave(m *model) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.awaiting[m.index]--
	e.settleDrain()
}

// close takes nothing new from now on.
func (e *Engine) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.closed {
		e.closed = true
		close(e.closing)
	}
	e.settleDrain()
}

func (e *Engine) isClosed() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.closed
}

// settleDrain tells Drain when nothing is left. It is called with mu held.
func (e *Engine) settleDrain() {
	waiting := 0
	for _, n := range e.awaiting {
		waiting += n
	}
	if e.closed && len(e.live) == 0 && waiting == 0 {
		select {
		case <-e.drained:
		default:
			close(e.drained)
		}
	}
}
