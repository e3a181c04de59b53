package sched

import (
	"fmt"
	"time"
)

// Check says what Submit would of n sequences now, as far as that is known before the prompt is.
func (s *Scheduler) Check(now time.Time, model string, n, promptTokens int, sla SLA, key string) error {
	q := s.queue(model)
	switch {
	case q == nil:
		return fmt.Errorf("%w %q", ErrUnknownModel, model)
	case s.draining:
		return ErrDraining
	}
	err := s.room(q, n)
	if err != nil {
		q.stats.Refused += uint64(n)
	}
	return err
}
