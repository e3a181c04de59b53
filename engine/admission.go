package engine

import (
	"fmt"
	"sync"
	"time"
)

// admission counts the sequences that were accepted and are not done, and refuses more than
// queues may hold. It answers at once and in the caller's goroutine: a refusal waits for no step.
//
// A model's first maxSeqs sequences count as running, whether or not the loop has seen them yet,
// the rest as waiting, so that of many requests in one instant exactly as many are accepted as
// slots and queue allow.
type admission struct {
	mu         sync.Mutex
	models     []admissionModel
	maxWaiting int // of all models
	closed     bool
	open       int           // all sequences
	closing    chan struct{} // closed with closed
	drained    chan struct{} // closed once closed is true and open is 0
}

type admissionModel struct {
	open, maxSeqs, maxWaiting int
	refused                   int64
	meanTime                  time.Duration // from acceptance to end, moving average
}

func newAdmission(maxWaiting int) *admission {
	return &admission{maxWaiting: maxWaiting, closing: make(chan struct{}), drained: make(chan struct{})}
}

// enter accepts n sequences of model m, or says why not. With dry it only answers.
func (a *admission) enter(m, n int, dry bool) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return ErrClosed
	}
	md := &a.models[m]
	if n > md.maxSeqs+md.maxWaiting || n > md.maxSeqs+a.maxWaiting {
		return &InvalidError{"n", fmt.Sprintf("%d exceeds the %d sequences that can run and wait at once",
			n, md.maxSeqs+min(md.maxWaiting, a.maxWaiting))}
	}
	waiting := max(0, md.open+n-md.maxSeqs)
	total := waiting
	for i := range a.models {
		if i != m {
			total += max(0, a.models[i].open-a.models[i].maxSeqs)
		}
	}
	var over *OverCapacityError
	switch {
	case waiting > 0 && waiting > md.maxWaiting:
		over = &OverCapacityError{Waiting: max(0, md.open-md.maxSeqs), Limit: md.maxWaiting}
	case waiting > 0 && total > a.maxWaiting:
		over = &OverCapacityError{Waiting: total - waiting + max(0, md.open-md.maxSeqs), Limit: a.maxWaiting}
	}
	if over != nil {
		md.refused++
		over.RetryAfter = md.retryAfter()
		return over
	}
	if !dry {
		md.open += n
		a.open += n
	}
	return nil
}

// retryAfter is about when the queue will have moved: the mean time of a sequence, shared by the
// slots that work at it.
func (m *admissionModel) retryAfter() time.Duration {
	slots := max(1, m.maxSeqs)
	d := m.meanTime * time.Duration(m.open/slots+1) / time.Duration(min(slots, m.open+1))
	return min(max(d.Round(time.Second), time.Second), time.Minute)
}

// leave ends n sequences, which took so long each.
func (a *admission) leave(m, n int, took time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	md := &a.models[m]
	md.meanTime += (took - md.meanTime) / 8
	a.forget(m, n)
}

// withdraw takes back what enter accepted and nothing came of.
func (a *admission) withdraw(m, n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.forget(m, n)
}

func (a *admission) forget(m, n int) {
	a.models[m].open -= n
	a.open -= n
	if a.closed && a.open == 0 {
		a.finish()
	}
}

func (a *admission) isClosed() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.closed
}

// close refuses everything from now on.
func (a *admission) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.closed {
		a.closed = true
		close(a.closing)
	}
	if a.open == 0 {
		a.finish()
	}
}

func (a *admission) finish() {
	select {
	case <-a.drained:
	default:
		close(a.drained)
	}
}

// counts returns how many of model m's sequences are open and how many requests were refused.
func (a *admission) counts(m int) (open int, refused int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.models[m].open, a.models[m].refused
}
