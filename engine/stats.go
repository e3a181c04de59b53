package engine

import (
	"fmt"
	"time"
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
	Preemptions      int64
	Finished         map[FinishReason]int64 // sequences
	Refused          int64                  // requests
	Steps            int64
	StepSeconds      float64
	PrefixQueries    int64 // tokens looked up
	PrefixHits       int64 // tokens found
}

// Health is what the step loop says of itself.
type Health struct {
	OK        bool          // the loop runs and its heartbeat is younger than the limit
	Ready     bool          // and every model is loaded
	Heartbeat time.Duration // age
	Reason    string        // when not OK or not Ready
}

// counters are a model's, kept by the loop.
type counters struct {
	steps, promptTokens, cachedTokens, generatedTokens int64
	stepTime                                           time.Duration
	finished                                           [FinishError + 1]int64
}

// publish makes a snapshot for Stats. It is the loop's, and copies numbers only.
func (e *Engine) publish(now time.Time) {
	e.published = now
	queues, pool := e.sched.Stats(), e.pool.Stats()
	st := Stats{
		PagesTotal: pool.Pages, PagesFree: pool.FreePages,
		PageBytes: e.plan.PageBytes, StepErrors: e.stepErrors,
		Models: make([]ModelStats, len(e.models)),
	}
	for i, m := range e.models {
		c, q, b := &m.count, &queues[i], &pool.Models[i]
		ms := ModelStats{
			Name: m.spec.Name, Running: q.Running,
			LiveBlocks: b.Live, CachedBlocks: b.Cached, Blocks: b.Capacity,
			LiveStates: b.States, CachedStates: b.Snapshots,
			PromptTokens: c.promptTokens, CachedTokens: c.cachedTokens, GeneratedTokens: c.generatedTokens,
			Preemptions: int64(q.Preemptions), Steps: c.steps, StepSeconds: c.stepTime.Seconds(),
			PrefixQueries: int64(q.PrefixQueried), PrefixHits: int64(q.PrefixHit),
			Finished: map[FinishReason]int64{},
		}
		if b.Capacity > 0 {
			states := b.States * m.cut.statePages() * m.cut.perPage()
			ms.LiveUsage = float64(b.Live+states) / float64(b.Capacity)
		}
		for r := FinishStop; r <= FinishError; r++ {
			ms.Finished[r] = c.finished[r]
		}
		st.Steps += c.steps
		live := min(b.Pages, int(ceilDiv(int64(b.Live), int64(m.cut.perPage())))+b.States*m.cut.statePages())
		st.PagesLive += live
		st.PagesCached += b.Pages - live
		st.Models[i] = ms
	}
	e.mu.Lock()
	e.stats = st
	e.mu.Unlock()
}

// Stats is a snapshot of counters and gauges, at most a tenth of a second old unless a step is
// running. It has no side effect.
func (e *Engine) Stats() Stats {
	e.mu.Lock()
	st := e.stats
	e.mu.Unlock()
	st.Models = append(make([]ModelStats, 0, len(e.models)), st.Models...)
	for i := len(st.Models); i < len(e.models); i++ {
		st.Models = append(st.Models, ModelStats{Name: e.models[i].spec.Name})
	}
	for i := range st.Models {
		open, refused := e.admission.counts(i)
		st.Models[i].Waiting = max(0, open-st.Models[i].Running)
		st.Models[i].Refused = refused
	}
	st.Heartbeat = e.age()
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
	case e.admission.isClosed():
		h.OK, h.Reason = e.heartbeat.Load() != 0 && h.Heartbeat <= e.options.HeartbeatLimit, ErrClosed.Error()
	case loading != "":
		h.Reason = fmt.Sprintf("%v: %s", ErrNotReady, loading)
	case h.Heartbeat > e.options.HeartbeatLimit:
		h.Reason = fmt.Sprintf("the step loop has not moved for %v", h.Heartbeat.Round(time.Millisecond))
	default:
		h.OK, h.Ready = true, true
	}
	return h
}
