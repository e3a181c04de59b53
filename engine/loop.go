package engine

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"time"

	"github.com/openinfer-go/openinfer/sched"
)

const (
	idleWait     = time.Second            // the heartbeat of an idle loop
	publishEvery = 100 * time.Millisecond // age of Stats while busy
)

// inbox is how the callers' goroutines reach the step loop.
type inbox struct {
	wake chan struct{} // one token

	mu        sync.Mutex
	arrived   []*request
	cancelled []*request
	closed    bool
}

// put hands a request over; false means that the loop has ended.
func (b *inbox) put(q *request) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false
	}
	b.arrived = append(b.arrived, q)
	b.signal()
	return true
}

func (b *inbox) cancel(q *request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed {
		b.cancelled = append(b.cancelled, q)
		b.signal()
	}
}

func (b *inbox) signal() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// take moves what has come into the two slices.
func (b *inbox) take(arrived, cancelled []*request) ([]*request, []*request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	arrived, b.arrived = b.arrived, arrived[:0]
	cancelled, b.cancelled = b.cancelled, cancelled[:0]
	return arrived, cancelled
}

func (b *inbox) close() []*request {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	left := b.arrived
	b.arrived, b.cancelled = nil, nil
	return left
}

// loop runs the steps of the device. It is the only goroutine that touches the scheduler, so
// nothing there is locked, and the only one that touches the device once models are loaded.
func (e *Engine) loop(ctx context.Context) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer e.abandon()
	timer := time.NewTimer(idleWait)
	defer timer.Stop()
	for idle := false; ; {
		if idle {
			timer.Reset(idleWait)
			select {
			case <-ctx.Done():
			case <-e.inbox.wake:
			case <-timer.C:
			}
		}
		if ctx.Err() != nil {
			return
		}
		e.beat()
		idle = !e.turn()
	}
}

// turn takes in what has come and runs one step; false means that there was nothing to run. A
// panic in here, outside of execute, is a broken invariant of the scheduler: every sequence fails
// and the scheduler starts again with an empty pool.
func (e *Engine) turn() (ran bool) {
	defer func() {
		if p := recover(); p != nil {
			e.log.Error("the scheduler panicked; every sequence fails and the pool is rebuilt", "panic", p, "stack", string(debug.Stack()))
			e.rebuild(fmt.Errorf("%w: the scheduler failed: %v", ErrStep, p))
			ran = true
		}
	}()
	e.receive()
	plan := e.sched.Plan(time.Now())
	if plan == nil {
		e.rest()
		return false
	}
	e.unverified = true
	start := time.Now()
	out, err := e.execute(plan, start) // a panic below comes back as err
	now := time.Now()
	if err != nil {
		e.stepErrors++
		e.log.Error("a step failed", "model", plan.Model, "rows", len(plan.Rows), "tokens", plan.Tokens, "error", err)
	}
	if e.options.stepped != nil {
		e.options.stepped(plan, now.Sub(start))
	}
	m := e.byName[plan.Model]
	m.count.steps++
	m.count.stepTime += now.Sub(start)
	e.sched.Commit(plan, out, err, now)
	e.deliver(now)
	return true
}

// rest is what is done when there is nothing to run. Once after each busy time every page, block
// and queue is recounted; what is found wrong then has hurt nobody yet.
func (e *Engine) rest() {
	e.deliver(time.Now())
	e.publish(time.Now())
	if e.unverified && e.sched.Idle() {
		e.unverified = false
		if err := e.sched.Verify(); err != nil {
			panic(err)
		}
		if len(e.live) > 0 {
			panic(fmt.Sprintf("engine: %d sequences are gone without a final event", len(e.live)))
		}
	}
}

// receive takes new sequences in and ends cancelled ones, waiting or running.
func (e *Engine) receive() {
	e.arrived, e.cancelled = e.inbox.take(e.arrived, e.cancelled)
	for _, q := range e.arrived {
		for _, s := range q.seqs { // all of them first: whatever happens below, each gets an end
			e.live[s] = struct{}{}
		}
	}
	for _, q := range e.arrived {
		e.submit(q)
	}
	for _, q := range e.cancelled {
		for _, s := range q.seqs {
			if s.sched != nil && !s.over {
				e.sched.Cancel(s.sched)
			}
		}
	}
	clear(e.arrived)
	clear(e.cancelled)
}

func (e *Engine) submit(q *request) {
	seqs := make([]*sched.Sequence, len(q.seqs))
	for i, s := range q.seqs {
		s.sched = &sched.Sequence{
			Model: q.model.name(), Prompt: q.Prompt, MaxTokens: q.MaxTokens,
			PromptLogits: s.wantsPrompt(), Marks: q.model.snapshotMarks(q.Prompt), User: s,
		}
		s.sched.Identity.Salt = q.CacheSalt
		s.usage.Prompt = len(q.Prompt)
		seqs[i] = s.sched
	}
	var err error
	if q.cancelled.Load() {
		err = context.Canceled
	} else if err = e.sched.Submit(time.Now(), seqs...); err == nil {
		return
	}
	for _, s := range q.seqs {
		if errors.Is(err, context.Canceled) {
			e.finish(s, s.end(FinishCancelled, nil))
		} else {
			e.finish(s, s.end(FinishError, fmt.Errorf("%w: %w", ErrStep, err)))
		}
	}
	e.flush()
}

// execute runs one step on the device and takes the drawn tokens into their sequences. Whatever
// goes wrong in here is this step's error.
func (e *Engine) execute(plan *sched.Plan, now time.Time) (out sched.Output, err error) {
	defer func() {
		if p := recover(); p != nil {
			e.log.Error("a step panicked", "model", plan.Model, "panic", p, "stack", string(debug.Stack()))
			err = fmt.Errorf("%w: %v", ErrStep, p)
		}
	}()
	if err := e.step.run(e.device, e.arena, e.byName[plan.Model], plan, now); err != nil {
		return out, fmt.Errorf("%w: %w", ErrStep, err)
	}
	return e.step.collect(plan, time.Now()), nil
}

// deliver sends what the last Commit, Cancel or Submit decided.
func (e *Engine) deliver(now time.Time) {
	for _, ev := range e.sched.Events() {
		s := ev.Seq.User.(*sequence)
		switch {
		case s.over:
			// its own final event went out with an earlier one of these
		case ev.Reason == sched.None:
			if s.send {
				e.out = append(e.out, delivery{s, s.next})
			}
		case ev.Reason == sched.Cancelled:
			e.finish(s, s.end(FinishCancelled, nil))
		case ev.Reason == sched.Failed:
			e.finish(s, s.end(FinishError, ev.Err))
		case s.next.Finish == FinishNone: // the scheduler knows of an end that the text does not
			e.finish(s, s.end(FinishLength, nil))
		default:
			e.finish(s, s.next)
		}
		s.next, s.send = Event{}, false
	}
	e.flush()
	if now.Sub(e.published) > publishEvery {
		e.publish(now)
	}
}

// delivery is an event on its way out.
type delivery struct {
	seq *sequence
	ev  Event
}

// finish is the one place that ends a sequence.
func (e *Engine) finish(s *sequence, ev Event) {
	s.over = true
	delete(e.live, s)
	c := &s.request.model.count
	c.finished[ev.Finish]++
	e.out = append(e.out, delivery{s, ev})
}

// flush sends events. Counters go first, so that who sees a final event sees its sequence gone
// from the gauges, too.
func (e *Engine) flush() {
	if len(e.out) == 0 {
		return
	}
	now, ended := time.Now(), false
	for _, d := range e.out {
		if d.ev.Finish != FinishNone {
			q := d.seq.request
			e.admission.leave(q.model.index, 1, now.Sub(q.arrival))
			ended = true
			if q.left--; q.left == 0 {
				q.detach()
			}
		}
	}
	if ended {
		e.publish(now)
	}
	for i, d := range e.out {
		d.seq.request.sink.push(d.ev)
		e.out[i] = delivery{}
	}
	e.out = e.out[:0]
}

// rebuild fails every sequence and starts with a fresh scheduler and an empty pool.
func (e *Engine) rebuild(err error) {
	e.out = e.out[:0]
	if err := e.newScheduler(); err != nil {
		panic(err) // the same calls succeeded at start-up
	}
	for s := range e.live {
		e.finish(s, s.end(FinishError, err))
	}
	e.flush()
}

// abandon ends what is left when the loop ends.
func (e *Engine) abandon() {
	left := e.inbox.close()
	for _, q := range left {
		for _, s := range q.seqs {
			e.live[s] = struct{}{}
		}
	}
	for s := range e.live {
		e.finish(s, s.end(FinishError, ErrClosed))
	}
	e.flush()
}

// beat is the loop's sign of life, which Health reads.
func (e *Engine) beat() { e.heartbeat.Store(time.Now().UnixNano()) }
