package sched

import (
	"fmt"
	"sort"
	"time"
)

// Room is how many sequences a model has, waiting and running, how many more requests of it would be accepted now, one by
// one and such as came before, and what part of the device is free for them: the least of the time that may be promised, of the model's slots and of the pool's blocks.
// Balancers go by it. The error is ErrUnknownModel.
//
// Whether a first token will be in time depends on when requests come and is not looked at: Submit still may refuse.
func (s *Scheduler) Room(model string, now time.Time) (held, requests int, free float64, err error) {
	q := s.queue(model)
	if q == nil {
		return 0, 0, 0, fmt.Errorf("%w %q", ErrUnknownModel, model)
	}
	if s.draining {
		return 0, 0, 0, nil
	}
	at := s.at(now)
	begins := s.begins(at)
	for _, o := range s.queues {
		s.look(o, begins)
	}
	held = len(q.running) + len(q.waiting)
	slots := max(0, q.MaxSeqs-held)
	blocks := max(0, float64(q.Cache.Available())-s.growthBlocks(q))
	requests = slots
	if per := q.blocks(float64(q.decode.Context)/max(1, float64(q.decode.Rows)) + q.cost.usual(q.MaxTokens)); q.decode.Rows > 0 && per > 0 {
		requests = min(requests, int(blocks/per))
	}
	sla := SLA{TPOT: q.demand.tpot}
	if sla.TPOT == 0 {
		sla = q.SLA
	}
	if sla.TPOT > 0 && q.model.ready() {
		requests = sort.Search(requests, func(n int) bool { return s.crowded(q, sla, n+1, at) })
	}
	promised := (s.taken(q, SLA{}, 0) + s.promptShare(at)) / fullShare
	free = min(1-promised, float64(slots)/float64(q.MaxSeqs), blocks/float64(q.Cache.Capacity()))
	return held, requests, max(0, free), nil
}

// crowded says whether n more streams would take more of the device than may be promised to q.
func (s *Scheduler) crowded(q *queue, sla SLA, n int, now time.Duration) bool {
	all := s.taken(q, sla, n) + s.promptShare(now)
	if kept := s.kept(q, now); q.use(now) >= q.entitled {
		return all+kept > fullShare
	}
	return all > ownShare
}
