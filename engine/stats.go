package engine

import "time"

// Stats is a snapshot of the engine for metrics.
type Stats struct {
	Models []ModelStats // in the order of Options.Models
	// Pages of the pool: each is live (a running sequence uses a block of it), cached (only
	// blocks kept for prefix reuse) or free.
	PagesTotal, PagesLive, PagesCached, PagesFree int
	PageBytes                                     int64
	Steps                                         int64
	StepErrors                                    int64
	Heartbeat                                     time.Duration // age of the step loop's last sign of life
}

// ModelStats are counters and gauges of one model; counters only grow.
type ModelStats struct {
	Name             string
	Running, Waiting int
	LiveBlocks       int // in use by sequences
	CachedBlocks     int // kept for prefix reuse, reclaimable
	LiveUsage        float64
	PromptTokens     int64
	CachedTokens     int64 // prompt tokens found in the prefix cache
	GeneratedTokens  int64
	Preemptions      int64
	Finished         map[FinishReason]int64
	Refused          int64
	Steps            int64
	StepSeconds      float64
	PrefixQueries    int64 // tokens looked up
	PrefixHits       int64 // tokens found
}

// Health is what the step loop says of itself.
type Health struct {
	OK        bool          // the heartbeat is younger than the limit
	Ready     bool          // and every model is loaded
	Heartbeat time.Duration // age
	Reason    string        // when not OK or not Ready
}
