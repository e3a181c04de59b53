package engine

import (
	"time"

	"github.com/openinfer-go/openinfer/sched"
)

// Capacity is what a node tells a balancer of one of its models.
type Capacity struct {
	Model string
	// Resident: the weights are on the device or on their way to it.
	Resident bool
	// Held are requests of it, waiting and running, and Room how many more would be accepted now, one by one.
	Held, Room int
	// Free is the part of the device that is free for more requests of the model, from 0 to 1: what is not promised of
	// its time, of the model's slots and of the pool, whichever is least.
	Free float64
}

// Capacities are those of the engine's models, in the order of Options.Models. It has no side effect and takes no step's
// time. A model that is not loaded yet has nothing free.
func (e *Engine) Capacities() []Capacity {
	out := make([]Capacity, len(e.models))
	now := time.Now()
	_ = e.under(func() { // of a broken scheduler nothing is free
		for i, m := range e.models {
			out[i].Model = m.name()
			if e.sched != nil && !e.closed && m.ready.Load() {
				out[i] = capacity(e.sched, m.name(), now)
			}
		}
	})
	return out
}

func capacity(s *sched.Scheduler, model string, now time.Time) Capacity {
	at := s.Residency(model)
	held, room, free, err := s.Room(model, now)
	if err != nil {
		panic(err) // the engine added it
	}
	return Capacity{model, at == sched.Resident || at == sched.Loading, held, room, free}
}
