package engine

import (
	"slices"
	"strings"
	"time"

	"github.com/openinfer-go/openinfer/kvcache"
	"github.com/openinfer-go/openinfer/sched"
)

// Occupancy is what fills the device now, for a person who looks: memory, and the sequences there are.
type Occupancy struct {
	Plan MemoryPlan // the zero plan until Load has made it
	// Pages are those of the pool in order, but the first, which is padding.
	Pages []PageRun
	// Sequences are all that were accepted and have not ended: first those that run, the oldest first.
	Sequences []SequenceInfo
}

// PageRun is pages of the pool that follow each other and are alike.
type PageRun struct {
	Model string  // whose they are; "": free
	Use   PageUse // of each
	Pages int
}

// PageUse is what a page holds.
type PageUse = kvcache.PageUse

// Uses of pages. A page with one live block is a live page, so that there may be more of them than Stats.PagesLive, which
// is how many the live blocks fill.
const (
	FreePage   = kvcache.FreePage
	LivePage   = kvcache.LivePage   // of a sequence
	CachedPage = kvcache.CachedPage // kept for prefix reuse alone, reclaimable
)

// SequenceInfo is one sequence as it stands.
type SequenceInfo struct {
	sched.Progress
	Request   string // Request.ID
	Index     int    // which of the request's N
	Model     string
	Prompt    int // tokens
	MaxTokens int // it may sample
	Priority  int // as in Request
}

// Occupancy tells what fills the device now. It has no side effect, and holds the lock that steps are planned under for as
// long as it takes to look at each page and sequence once: some tens of microseconds.
func (e *Engine) Occupancy() Occupancy {
	var o Occupancy
	var runs []kvcache.PageRun
	_ = e.under(func() { // a broken scheduler has nothing
		o.Plan = e.plan
		if e.sched == nil || e.broken != nil {
			return
		}
		runs = e.pool.Map(nil)
		now := time.Now()
		o.Sequences = make([]SequenceInfo, 0, len(e.live))
		for s := range e.live {
			if s.sched.Done() { // its final event is on its way
				continue
			}
			q := s.request
			o.Sequences = append(o.Sequences, SequenceInfo{
				Progress: e.sched.Progress(s.sched, now), Request: q.ID, Index: s.index,
				Model: q.Model, Prompt: len(q.Prompt), MaxTokens: q.MaxTokens, Priority: q.Priority,
			})
		}
	})
	o.Pages = make([]PageRun, len(runs))
	for i, r := range runs {
		o.Pages[i] = PageRun{Use: r.Use, Pages: r.Pages}
		if r.Cache >= 0 { // the pool's caches are in the order of the models
			o.Pages[i].Model = e.models[r.Cache].name()
		}
	}
	slices.SortFunc(o.Sequences, func(a, b SequenceInfo) int {
		switch {
		case a.Running != b.Running && a.Running:
			return -1
		case a.Running != b.Running:
			return 1
		case a.Since != b.Since:
			return int(min(max(b.Since-a.Since, -1), 1))
		case a.Request != b.Request:
			return strings.Compare(a.Request, b.Request)
		}
		return a.Index - b.Index
	})
	return o
}
