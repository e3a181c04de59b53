package engine

import (
	"fmt"
	"math"
	"strings"

	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/kvcache"
	"github.com/openinfer-go/openinfer/models"
)

// The memory plan: pure arithmetic over what was loaded and what is free. Weights are on the
// device already when it is made, so the budget is what is left of them, never a guess.

const (
	minPageBytes   = 256 << 10
	maxPageBytes   = 16 << 20
	pageStep       = 64 << 10 // page sizes are multiples of this
	minPages       = 256      // wanted, so that models share the pool finely
	minCacheTokens = 64       // tokens of context that the pool must hold for each model
	blockTokens    = 16       // the fewest in a block; also the grain of the prefix cache
	snapshotTokens = 4096     // of a long prompt between two snapshots of a recurrent state, at least
	snapshotShare  = 4        // one in so many pages may hold snapshots that nobody uses

	minReserve       = 128 << 20 // left to everything else
	defaultKVCap     = 4 << 30
	defaultKVUnknown = 1 << 30
	defaultKVShare   = 4 // one in so many free bytes
)

// MemoryPlan is what start-up decided about memory; serve prints it.
type MemoryPlan struct {
	Device      string `json:"device"`       // Info.Description
	FreeBytes   int64  `json:"free_bytes"`   // free for us when the device was opened, before any weight was loaded
	WeightBytes int64  `json:"weight_bytes"` // of all models, or WeightLimit
	// WeightLimit is what weights may take together when models take turns, being more than fit; 0: all fit.
	WeightLimit  int64       `json:"weight_limit_bytes"`
	ScratchBytes int64       `json:"scratch_bytes"` // one buffer, for the largest step of any model
	KVBytes      int64       `json:"kv_bytes"`      // Pages * PageBytes
	PageBytes    int64       `json:"page_bytes"`
	Pages        int         `json:"pages"`         // page 0 is padding and holds nothing
	ReserveBytes int64       `json:"reserve_bytes"` // left to everything else
	Models       []ModelPlan `json:"models"`
}

// ModelPlan is one model's part of a MemoryPlan.
type ModelPlan struct {
	Name          string `json:"name"`
	WeightBytes   int64  `json:"weight_bytes"`
	Parked        bool   `json:"parked"` // at first: there is no room beside those before it
	KVCacheDType  string `json:"kv_cache_dtype"`
	TokenBytes    int64  `json:"token_bytes"`  // of KV cache for one token of context, until a window leaves it behind
	StateBytes    int64  `json:"state_bytes"`  // of recurrent state for one sequence; 0 for most models
	BlockTokens   int    `json:"block_tokens"` // of the group with the largest tokens
	BlockBytes    int64  `json:"block_bytes"`
	BlocksPerPage int    `json:"blocks_per_page"`
	// Snapshots is how many recurrent states may be kept for prefix reuse alone.
	// A long prompt leaves one every SnapshotTokens.
	Snapshots      int `json:"snapshots"`
	SnapshotTokens int `json:"snapshot_tokens"`
	// CacheTokens is the longest sequence that fits if it has the whole pool.
	CacheTokens int `json:"cache_tokens"`
	MaxModelLen int `json:"max_model_len"`

	cut cut
}

// planModel is what the plan needs to know of a loaded model.
type planModel struct {
	name        string
	weightBytes int64
	groups      []models.CacheGroup
	dtype       kernels.DType
	maxPosition int // of the checkpoint
	maxModelLen int // asked for; 0: as much as there is
	maxSeqs     int
}

// planMemory decides page size, number of pages and each model's blocks, for steps of up to
// batchTokens. kvBytes 0 means: a share of what is free, and of
// a card's own memory all of it. It refuses with numbers when that is too
// little.
//
// weightBytes is what all weights may take together, 0 what is free; when that is less than they have,
// models take turns (MemoryPlan.WeightLimit).
func planMemory(info kernels.Info, ms []planModel, batchTokens int, scratchBytes, kvBytes, weightBytes int64) (MemoryPlan, error) {
	p := MemoryPlan{Device: info.Description, FreeBytes: info.MemoryBytes, ScratchBytes: scratchBytes}
	var useful float64 // all that sequences could use: more than a number of bytes can be, at times
	cuts := make([]cut, len(ms))
	for i, m := range ms {
		p.WeightBytes += m.weightBytes
		c := cutCache(m.groups, m.dtype)
		cuts[i] = c
		useful += float64(m.maxSeqs) * float64(c.blocksFor(m.context(), batchTokens)*c.blockBytes+c.stateBytes()*heldStates)
	}
	need := leastBytes(ms, cuts, smallestPage(cuts), batchTokens) // the least that serves every model
	if p.FreeBytes == 0 {                                         // the system does not say: believe what was asked for
		p.FreeBytes = p.WeightBytes + scratchBytes + max(kvBytes, int64(min(useful, defaultKVUnknown)))*2
	}
	p.ReserveBytes = max(minReserve, p.FreeBytes/20)
	if info.Dedicated {
		p.ReserveBytes = minReserve
	}
	if err := p.limitWeights(ms, need, useful, kvBytes, weightBytes); err != nil {
		return p, err
	}
	left := p.FreeBytes - p.WeightBytes - scratchBytes
	room := left - p.ReserveBytes
	if kvBytes == 0 {
		kvBytes = min(left/defaultKVShare, defaultKVCap)
		if info.Dedicated {
			kvBytes = max(room, 0)
		}
		if useful < float64(kvBytes) {
			// in whole pages, with the padding page: a lone sequence gets its whole context
			p.PageBytes = pageSize(cuts, int64(useful))
			pages := int64(1)
			for i, m := range ms {
				c := cuts[i].inPages(p.PageBytes)
				n := int64(m.maxSeqs) * c.blocksFor(m.context(), batchTokens)
				pages += ceilDiv(n, int64(c.perPage())) + int64(m.maxSeqs)*int64(c.statePages())*heldStates
			}
			kvBytes = min(kvBytes, pages*p.PageBytes)
		}
		kvBytes = max(kvBytes, min(need, room))
	} else {
		room = left // an explicit size may use the reserve
	}
	if kvBytes > room || kvBytes < need {
		largest := int64(0)
		for _, m := range ms {
			largest = max(largest, m.weightBytes)
		}
		return p, &shortError{tooLittle(p, ms, kvBytes, need, left), max(0, largest-p.WeightBytes+max(kvBytes, need)-room)}
	}

	if p.PageBytes == 0 {
		p.PageBytes = pageSize(cuts, kvBytes)
	}
	if leastBytes(ms, cuts, p.PageBytes, batchTokens) > kvBytes { // a tiny pool: none of it may be lost to rounding
		p.PageBytes = smallestPage(cuts)
	}
	p.Pages = int(kvBytes / p.PageBytes)
	p.KVBytes = int64(p.Pages) * p.PageBytes
	p.ReserveBytes = left - p.KVBytes
	for i, m := range ms {
		mp, err := p.planModel(m, cuts[i], batchTokens)
		if err != nil {
			return p, err
		}
		if m.maxModelLen > 0 && mp.MaxModelLen < m.context() {
			needs := mp.cut.pagesFor(m.context(), batchTokens) * p.PageBytes
			return p, &shortError{fmt.Sprintf("model %s: max model length %d needs %s of KV cache, the pool has %s (%d tokens)",
				m.name, m.context(), roundedText(needs, math.Ceil), bytesText(p.KVBytes), mp.CacheTokens), max(0, needs-p.KVBytes)}
		}
		p.Models = append(p.Models, mp)
	}
	p.place()
	return p, nil
}

// shortError is a plan's refusal for want of memory. missing is how much more of it would do, 0 when more would not
// help.
type shortError struct {
	text    string
	missing int64
}

func (e *shortError) Error() string { return "memory: " + e.text }

// heldStates is how many recurrent states a running sequence is best served with: its own and its
// latest snapshot.
const heldStates = 2

func (p *MemoryPlan) planModel(m planModel, c cut, batchTokens int) (ModelPlan, error) {
	c = c.inPages(p.PageBytes)
	mp := ModelPlan{
		Name: m.name, WeightBytes: m.weightBytes, KVCacheDType: m.dtype.String(),
		TokenBytes: c.tokenBytes(), StateBytes: c.stateBytes(), BlockTokens: blockTokens,
		BlockBytes: c.blockBytes, BlocksPerPage: c.perPage(), cut: c,
	}
	if n := c.statePages(); n > 0 {
		mp.Snapshots = p.Pages / snapshotShare / n
		// One long prompt takes half of them at most.
		mp.SnapshotTokens = max(snapshotTokens, 2*m.context()/max(1, mp.Snapshots))
	}
	if p.Pages < 2 {
		return mp, nil
	}
	cache, err := kvcache.NewPool(p.Pages).NewCache(c.config(m.name, mp.Snapshots, mp.SnapshotTokens))
	if err != nil {
		return mp, fmt.Errorf("memory: %w", err)
	}
	mp.CacheTokens = cache.MaxTokens(batchTokens, math.MaxInt32/2)
	mp.MaxModelLen = min(m.context(), mp.CacheTokens)
	return mp, nil
}

// context is the longest context that checkpoint and flag allow.
func (m planModel) context() int {
	if m.maxModelLen > 0 {
		return min(m.maxModelLen, m.maxPosition)
	}
	return m.maxPosition
}

// pageSize returns the smallest page that loses nearly as little as the best one to the worst
// served model, while the pool keeps minPages of them if any size allows that.
func pageSize(cuts []cut, kvBytes int64) int64 {
	low := max(minPageBytes, align(smallestPage(cuts), pageStep))
	high := max(low, min(maxPageBytes, kvBytes/minPages))
	loss := func(page int64) float64 {
		worst := 0.0
		for _, c := range cuts {
			worst = max(worst, float64(page%c.blockBytes)/float64(page))
			if c.state != nil {
				c = c.inPages(page)
				worst = max(worst, 1-float64(c.stateBytes())/float64(int64(c.statePages())*page))
			}
		}
		return worst + float64(kvBytes%page)/float64(kvBytes)
	}
	least := 1.0
	for page := low; page <= high; page += pageStep {
		least = min(least, loss(page))
	}
	for page := low; page <= high; page += pageStep {
		if loss(page) <= least+0.01 {
			return page
		}
	}
	return low
}

// smallestPage holds a block or a unit of state of every model, and hardly more.
func smallestPage(cuts []cut) int64 {
	largest := int64(0)
	for _, c := range cuts {
		largest = max(largest, c.blockBytes)
		if c.state != nil {
			largest = max(largest, c.state.UnitBytes())
		}
	}
	return align(largest, 4096)
}

// leastBytes is the smallest pool of pages of that size which holds minCacheTokens of context for each
// model, or all its context where that is less.
func leastBytes(ms []planModel, cuts []cut, pageBytes int64, batchTokens int) int64 {
	least := int64(0)
	for i, m := range ms {
		least = max(least, cuts[i].inPages(pageBytes).pagesFor(min(m.context(), minCacheTokens), batchTokens)*pageBytes)
	}
	return least
}

// tooLittle explains a refusal: what there is, what is needed, and what would fit.
func tooLittle(p MemoryPlan, ms []planModel, kvBytes, need, left int64) string {
	var s strings.Builder
	fmt.Fprintf(&s, "%s free, of which weights take %s", bytesText(p.FreeBytes), bytesText(p.WeightBytes))
	for i, m := range ms {
		sep := ", "
		if i == 0 {
			sep = " ("
		}
		fmt.Fprintf(&s, "%s%s %s", sep, m.name, bytesText(m.weightBytes))
	}
	fmt.Fprintf(&s, ") and scratch %s; ", bytesText(p.ScratchBytes))
	if left > need {
		fmt.Fprintf(&s, "%s of KV cache were asked for, the models need at least %s; up to %s would fit",
			bytesText(kvBytes), roundedText(need, math.Ceil), roundedText(left, math.Floor))
		return s.String()
	}
	fmt.Fprintf(&s, "the models need at least %s of KV cache and %s are left: serve fewer or smaller models", roundedText(need, math.Ceil), roundedText(max(left, 0), math.Floor))
	if p.ScratchBytes > p.FreeBytes/4 {
		s.WriteString(" or allow fewer batched tokens")
	}
	return s.String()
}

func align(n, to int64) int64  { return (n + to - 1) / to * to }
func ceilDiv(a, b int64) int64 { return (a + b - 1) / b }

// bytesText writes a number of bytes with a binary unit.
func bytesText(n int64) string { return roundedText(n, math.Round) }

// roundedText is bytesText whose last digit is rounded by round: up for what is needed, down for what fits.
func roundedText(n int64, round func(float64) float64) string {
	switch f := float64(n); {
	case n >= 1<<30:
		return fmt.Sprintf("%.2f GiB", round(f/(1<<30)*100)/100)
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", round(f/(1<<20)*10)/10)
	case n >= 1<<10:
		return fmt.Sprintf("%.1f KiB", round(f/(1<<10)*10)/10)
	}
	return fmt.Sprintf("%d bytes", n)
}
