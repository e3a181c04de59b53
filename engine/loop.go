package engine

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/openinfer-go/openinfer/sched"
)

// The step loop. A step is a flight: planned and built (launch), computed (execute), and taken into
// its sequences and committed (land). With two steps in flight a goroutine of its own computes them,
// and the loop lands one and plans the next while the other is computed. With one, the loop
// computes it where it stands: another goroutine would only cost the way there and back.

const idleWait = time.Second // the heartbeat of an idle loop

// flight is a step from its plan to its Commit.
type flight struct {
	step  step // its arrays
	plan  *sched.Plan
	model *model
	// dropped: the scheduler that planned it is gone.
	dropped    bool
	begin, end time.Time // of the computation
	err        error
}

// stepCount counts steps of all models.
type stepCount struct{ failed atomic.Int64 }

// loop plans, launches and lands steps until ctx ends. It and, with two steps in flight, compute's
// goroutine are the only ones that touch the device once models are loaded.
func (e *Engine) loop(ctx context.Context) {
	e.spare, e.landed = make([]*flight, e.inFlight), make(chan *flight, e.inFlight)
	for i := range e.spare {
		e.spare[i] = &flight{}
	}
	if e.inFlight == 1 {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
	} else {
		e.launched = make(chan *flight, e.inFlight)
		go e.compute(ctx)
	}
	defer e.abandon()
	timer := time.NewTimer(idleWait)
	defer timer.Stop()
	for ctx.Err() == nil {
		e.restart()
		for e.deliver(); e.launch(ctx); e.deliver() { // what is known goes out before a step is computed
		}
		e.deliver() // of what Plan ended
		wait := idleWait
		if again := e.move(); !again.IsZero() {
			wait = max(0, min(wait, time.Until(again)))
		}
		if len(e.flights) == 0 { // else only a step that ends is a sign of life
			e.beat()
		}
		timer.Reset(wait)
		select {
		case f := <-e.landed:
			e.beat()
			e.land(f)
		case <-e.wake:
		case <-timer.C:
		case <-ctx.Done():
		}
	}
}

// launch plans the next step, if one may be planned and there is anything to run, and starts it.
func (e *Engine) launch(ctx context.Context) bool {
	if len(e.spare) == 0 {
		return false
	}
	f := e.spare[len(e.spare)-1]
	now := time.Now()
	planned := false
	err := e.under(func() {
		if e.broken != nil {
			return
		}
		plan := e.sched.Plan(now)
		if plan == nil {
			return
		}
		*f = flight{step: f.step, plan: plan, model: e.byName[plan.Model]}
		var before *flight
		if n := len(e.flights); n > 0 {
			before = e.flights[n-1]
		}
		f.step.build(e.arena, f, before, now)
		planned = true
	})
	if err != nil || !planned {
		return false
	}
	e.spare = e.spare[:len(e.spare)-1]
	e.flights = append(e.flights, f)
	e.unverified = true
	if e.launched != nil {
		e.launched <- f
		return true
	}
	e.execute(f, nil)
	e.landed <- f
	return true
}

// compute executes what is launched, in order. What a step drew is copied for the next one before
// it lands, because its arrays may be built anew from then on.
func (e *Engine) compute(ctx context.Context) {
	runtime.LockOSThread() // ends with the goroutine, and the thread with it
	var drawn []int32
	for f := range e.launched {
		if ctx.Err() != nil {
			f.err = ErrClosed
		} else {
			e.execute(f, drawn)
		}
		drawn = f.step.drawn(drawn[:0], len(f.plan.Rows), f.err)
		e.landed <- f
	}
}

// execute runs one step on the device. Whatever goes wrong in here is this step's error. drawn are
// the tokens that the rows of the step before drew.
func (e *Engine) execute(f *flight, drawn []int32) {
	f.begin = time.Now()
	defer func() {
		f.end = time.Now()
		if p := recover(); p != nil {
			e.log.Error("a step panicked", "model", f.plan.Model, "panic", p, "stack", string(debug.Stack()))
			f.err = fmt.Errorf("%w: %v", ErrStep, p)
		}
	}()
	f.step.fill(drawn)
	if err := f.step.run(e.device, e.arena, f.model, drawn); err != nil {
		f.err = fmt.Errorf("%w: %w", ErrStep, err)
	}
}

// land takes a computed step into its sequences.
func (e *Engine) land(f *flight) {
	if len(e.flights) == 0 || e.flights[0] != f {
		panic("engine: steps land in the order they were launched")
	}
	copy(e.flights, e.flights[1:])
	e.flights = e.flights[:len(e.flights)-1]
	defer func() { e.spare = append(e.spare, f) }()
	if f.dropped {
		return
	}
	if f.err != nil {
		e.stepCount.failed.Add(1)
		e.log.Error("a step failed", "model", f.plan.Model, "rows", len(f.plan.Rows), "tokens", f.plan.Tokens, "error", f.err)
	}
	c := &f.model.count
	c.steps.Add(1)
	c.stepTime.Add(int64(f.end.Sub(f.begin)))
	if e.options.stepped != nil {
		e.options.stepped(f.plan, f.end.Sub(f.begin))
	}
	out := e.collect(f)
	_ = e.under(func() { // restart sees to it
		if e.broken == nil {
			e.sched.Commit(f.plan, out, f.err, f.end)
			f.step.propose()
		}
	})
}

// collect asks which rows still count and takes their tokens. A panic in here is the step's error.
func (e *Engine) collect(f *flight) (out sched.Output) {
	if f.err != nil {
		return out
	}
	defer func() {
		if p := recover(); p != nil {
			e.log.Error("a step's answer panicked", "model", f.plan.Model, "panic", p, "stack", string(debug.Stack()))
			f.err = fmt.Errorf("%w: %v", ErrStep, p)
		}
	}()
	st := &f.step
	st.void = resize(st.void, len(f.plan.Rows))
	e.mu.Lock()
	for i := range f.plan.Rows {
		st.void[i] = f.plan.Void(i)
	}
	e.mu.Unlock()
	return st.collect(f.plan, f.end)
}

// deliver sends what the last Commit or Cancel decided. Once after each busy time every page, block
// and queue is recounted; what is found wrong then has hurt nobody yet.
func (e *Engine) deliver() {
	err := e.under(func() {
		e.events = e.events[:0]
		if e.broken != nil {
			return
		}
		for _, ev := range e.sched.Events() {
			s := ev.Seq.User.(*sequence)
			if _, open := e.live[s]; !open {
				panic("engine: an event of a sequence that has ended")
			}
			if ev.Reason != sched.None {
				delete(e.live, s)
			}
			e.events = append(e.events, ev)
		}
		e.settleDrain()
		if e.unverified && len(e.flights) == 0 && e.sched.Idle() {
			e.unverified = false
			if err := e.sched.Verify(); err != nil {
				panic(err)
			}
			if len(e.live) > 0 {
				panic(fmt.Sprintf("engine: %d sequences are gone without a final event", len(e.live)))
			}
		}
	})
	for i, ev := range e.events {
		s := ev.Seq.User.(*sequence)
		switch {
		case ev.Reason == sched.None:
			if s.send {
				e.out = append(e.out, delivery{s, s.next})
			}
		case ev.Reason == sched.Cancelled:
			e.finish(s, FinishCancelled, nil)
		case ev.Reason == sched.Failed:
			e.finish(s, FinishError, ev.Err)
		default: // when the text does not know why
			e.finish(s, FinishLength, nil)
		}
		s.next, s.send = Event{}, false
		e.events[i] = sched.Event{}
	}
	_ = err // restart sees to it
	e.flush()
}

// delivery is an event on its way out.
type delivery struct {
	seq *sequence
	ev  Event
}

// finish is the one place that ends a sequence: by its own last token, or else for that reason. Cancelled ones were counted when
// they left the scheduler, so that the counters say so as soon as the gauges do.
func (e *Engine) finish(s *sequence, reason FinishReason, err error) {
	ev := s.next
	if ev.Finish == FinishNone {
		ev = s.end(reason, err)
	}
	if reason != FinishCancelled {
		s.request.model.count.finished[ev.Finish].Add(1)
	}
	e.out = append(e.out, delivery{s, ev})
}

// flush sends events.
func (e *Engine) flush() {
	for i, d := range e.out {
		q := d.seq.request
		if d.ev.Finish != FinishNone {
			if q.left--; q.left == 0 {
				q.detach()
			}
		}
		q.sink.push(d.ev)
		e.out[i] = delivery{}
	}
	e.out = e.out[:0]
}

// restart fails every sequence and starts with a fresh scheduler and an empty pool, if the
// scheduler is broken. What the device still computes is of nobody, and comes before what is
// planned from now on.
func (e *Engine) restart() {
	e.mu.Lock()
	broken := e.broken
	var lost []*sequence
	if broken != nil {
		if err := e.newScheduler(); err != nil {
			panic(err) // the same calls succeeded at start-up
		}
		lost = e.endAll()
		e.broken = nil
		e.lookAgain()
	}
	e.mu.Unlock()
	if broken == nil {
		return
	}
	for _, f := range e.flights {
		f.dropped = true
	}
	e.fail(lost, broken)
}

// abandon ends what is left when the loop ends.
func (e *Engine) abandon() {
	if e.launched != nil {
		close(e.launched)
		for range e.flights {
			<-e.landed
		}
	}
	e.mu.Lock()
	left := e.endAll()
	e.mu.Unlock()
	e.fail(left, ErrClosed)
	e.movers.Wait()
}

// endAll forgets every sequence. It is called with mu held.
func (e *Engine) endAll() []*sequence {
	all := make([]*sequence, 0, len(e.live))
	for s := range e.live {
		all = append(all, s)
	}
	clear(e.live)
	e.settleDrain()
	return all
}

func (e *Engine) fail(all []*sequence, err error) {
	for _, s := range all {
		e.finish(s, FinishError, err)
	}
	e.flush()
}

// beat is the loop's sign of life, which Health reads.
func (e *Engine) beat() { e.heartbeat.Store(time.Now().UnixNano()) }
