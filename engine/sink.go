package engine

import (
	"context"
	"iter"
	"sync"
)

// sink carries a request's events from the step loop to whoever ranges over them. The loop only
// ever appends; at most MaxTokens+1 events come for a sequence, so the buffer is bounded by what
// was asked for, and a slow reader costs nobody a step.
type sink struct {
	wake chan struct{} // one token: something was pushed

	mu     sync.Mutex
	events []Event
	final  []bool // by sequence: its final event was pushed
	usage  []Usage
	open   int // sequences without a final event
}

func newSink(n int) *sink {
	return &sink{wake: make(chan struct{}, 1), final: make([]bool, n), usage: make([]Usage, n), open: n}
}

// push adds an event. What comes after a sequence's final event is dropped: it was cancelled
// from outside and the loop had not heard of it yet.
func (s *sink) push(ev Event) {
	s.mu.Lock()
	if s.final[ev.Index] {
		s.mu.Unlock()
		return
	}
	s.usage[ev.Index] = ev.Usage
	if ev.Finish != FinishNone {
		s.final[ev.Index] = true
		s.open--
	}
	s.events = append(s.events, ev)
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// cancel ends every open sequence now, without waiting for the loop.
func (s *sink) cancel() {
	s.mu.Lock()
	for i, over := range s.final {
		if !over {
			s.final[i] = true
			s.events = append(s.events, Event{Index: i, Finish: FinishCancelled, Usage: s.usage[i]})
		}
	}
	s.open = 0
	s.mu.Unlock()
}

// running reports whether a sequence has no final event yet.
func (s *sink) running() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open > 0
}

// take moves the events that have come into buf and reports whether more will.
func (s *sink) take(buf []Event) ([]Event, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	buf, s.events = s.events, buf[:0]
	return buf, s.open > 0
}

// all yields events until every sequence is done. stop is called when the range ends, for
// whatever reason, and before events are made up because ctx ended.
func (s *sink) all(ctx context.Context, stop func()) iter.Seq[Event] {
	return func(yield func(Event) bool) {
		defer stop()
		var buf []Event
		for more := true; more; {
			select {
			case <-s.wake:
			case <-ctx.Done():
				stop()
				s.cancel()
			}
			buf, more = s.take(buf)
			for i := range buf {
				if !yield(buf[i]) {
					return
				}
				buf[i] = Event{}
			}
		}
	}
}
