package engine

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/openinfer-go/openinfer/kvcache"
	"github.com/openinfer-go/openinfer/sched"
)

// Stats is a snapshot of the engine for metrics.
type Stats struct {
	Models []ModelStats // in the order of Options.Models
	// Pages of the pool are free or held by a model. Of those held, as many as its live blocks
	// fill (rounded up) count as live, the rest, which hold what prefixes left, as cached.
	PagesTotal, PagesLive, PagesCached, PagesFree int
	PageBytes                                     int64
	Steps, StepErrors                             int64
	Heartbeat                                     time.Duration // age of the step loop's last sign of life
	Card                                          *CardStats    // nil when the device is no card, or NVML knows nothing of it
}

// ModelStats are counters and gauges of one model; counters only grow.
type ModelStats struct {
	Name             string
	Running, Waiting int
	LiveBlocks       int     // in use by sequences
	CachedBlocks     int     // kept for prefix reuse, reclaimable
	Blocks           int     // if the model had the whole pool
	LiveStates       int     // recurrent states of sequences
	CachedStates     int     // snapshots of them, kept for prefix reuse, reclaimable
	LiveUsage        float64 // share of the pool that sequences hold: LiveBlocks / Blocks, and their states
	PromptTokens     int64
	CachedTokens     int64 // prompt tokens found in the prefix cache
	GeneratedTokens  int64
	ForcedTokens     int64 // of those, the ones that a grammar left no choice about and that came in another's row
	Preemptions      int64
	Finished         map[FinishReason]int64 // sequences
	RefusedFull      int64                  // requests, since the queue was full
	RefusedSLA       int64                  // and since their SLA could not be met
	Steps            int64
	StepSeconds      float64
	PrefixQueries    int64 // tokens looked up
	PrefixHits       int64 // tokens found

	Resident    bool // the weights are on the device
	Loads       int64
	LoadSeconds float64 // of Loads, and of those that failed
	// StepTimeError is how far the scheduler's predictions of steps' times were off lately: the median of the
	// errors relative to the time taken.
	StepTimeError float64
	// Late counts sequences whose SLA could not be met any more before they ended; SellableTokens what those sampled
	// that ended well within theirs.
	Late, SellableTokens int64
}

// Health is what the step loop says of itself.
type Health struct {
	OK        bool          // the loop runs and its heartbeat is younger than the limit
	Ready     bool          // and every model is loaded
	Heartbeat time.Duration // age
	Reason    string        // when not OK or not Ready
}

// counters are a model's own, beside what scheduler and pool count.
type counters struct {
	steps, promptTokens, cachedTokens, generatedTokens, forcedTokens atomic.Int64
	stepTime                                                         atomic.Int64 // nanoseconds
	refusedFull, refusedSLA                                          atomic.Int64 // requests
	finished                                                         [FinishError + 1]atomic.Int64
}

// Stats is a snapshot of counters and gauges. It has no side effect.
func (e *Engine) Stats() Stats {
	st := Stats{StepErrors: e.stepCount.failed.Load(), Heartbeat: e.age(), Models: make([]ModelStats, len(e.models))}
	var queues []sched.ModelStats
	var pool kvcache.Stats
	var watch *monitor
	_ = e.under(func() { // a broken scheduler counts nothing
		for i, m := range e.models {
			st.Models[i] = ModelStats{Name: m.spec.Name, Waiting: e.awaiting[i]}
		}
		if e.sched != nil {
			queues, pool = e.sched.Stats(), e.pool.Stats()
		}
		st.PageBytes, watch = e.plan.PageBytes, e.monitor
	})
	if watch != nil {
		st.Card = watch.stats()
	}
	st.PagesTotal, st.PagesFree = pool.Pages, pool.FreePages
	for i, m := range e.models {
		c, ms := &m.count, &st.Models[i]
		ms.PromptTokens, ms.CachedTokens, ms.GeneratedTokens = c.promptTokens.Load(), c.cachedTokens.Load(), c.generatedTokens.Load()
		ms.ForcedTokens = c.forcedTokens.Load()
		ms.Steps, ms.StepSeconds = c.steps.Load(), time.Duration(c.stepTime.Load()).Seconds()
		ms.RefusedFull, ms.RefusedSLA, ms.Finished = c.refusedFull.Load(), c.refusedSLA.Load(), map[FinishReason]int64{}
		for r := FinishStop; r <= FinishError; r++ {
			ms.Finished[r] = c.finished[r].Load()
		}
		st.Steps += ms.Steps
		if queues == nil {
			continue
		}
		q, b := &queues[i], &pool.Models[i]
		ms.Running, ms.Waiting = q.Running, ms.Waiting+q.Waiting
		ms.LiveBlocks, ms.CachedBlocks, ms.Blocks = b.Live, b.Cached, b.Capacity
		ms.LiveStates, ms.CachedStates = b.States, b.Snapshots
		ms.Resident, ms.Loads, ms.LoadSeconds = q.Residency == sched.Resident, int64(q.Loads), q.LoadSeconds
		ms.StepTimeError, ms.Late, ms.SellableTokens = q.StepError, int64(q.Late), int64(q.SellableTokens)
		ms.Preemptions, ms.PrefixQueries, ms.PrefixHits = int64(q.Preemptions), int64(q.PrefixQueried), int64(q.PrefixHit)
		if b.Capacity > 0 {
			states := b.States * m.cut.statePages() * m.cut.perPage()
			ms.LiveUsage = float64(b.Live+states) / float64(b.Capacity)
		}
		live := min(b.Pages, int(ceilDiv(int64(b.Live), int64(m.cut.perPage())))+b.States*m.cut.statePages())
		st.PagesLive += live
		st.PagesCached += b.Pages - live
	}
	return st
}

// age is how long ago the loop showed a sign of life; 0 when it has not started.
func (e *Engine) age() time.Duration {
	if at := e.heartbeat.Load(); at != 0 {
		return max(time.Since(time.Unix(0, at)), 0)
	}
	return 0
}

// Health says whether the step loop lives and every model is loaded.
func (e *Engine) Health() Health {
	h := Health{Heartbeat: e.age()}
	var loading string
	for _, m := range e.models {
		if !m.ready.Load() {
			loading = m.spec.Name
			break
		}
	}
	switch {
	case e.isClosed():
		h.OK, h.Reason = e.heartbeat.Load() != 0 && h.Heartbeat <= e.options.HeartbeatLimit, ErrClosed.Error()
	case loading != "":
		h.Reason = fmt.Sprintf("%v: %s", ErrNotReady, loading)
	case h.Heartbeat > e.options.HeartbeatLimit: // the step it waits for does not end
		h.Reason = fmt.Sprintf("the step loop has not moved for %v", h.Heartbeat.Round(time.Millisecond))
	default:
		h.OK, h.Ready = true, true
	}
	return h
}
