package engine

import (
	"fmt"
	"strings"

	"github.com/openinfer-go/openinfer/kernels"
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
	blockTokens    = 16       // also the grain of the prefix cache

	defaultKVCap     = 4 << 30
	defaultKVUnknown = 1 << 30
	defaultKVShare   = 4 // one in so many free bytes
)

// MemoryPlan is what start-up decided about memory; serve prints it.
type MemoryPlan struct {
	Device       string // Info.Description
	FreeBytes    int64  // free for us when the device was opened, before any weight was loaded
	WeightBytes  int64  // of all models
	ScratchBytes int64  // one buffer, for the largest step of any model
	KVBytes      int64  // Pages * PageBytes
	PageBytes    int64
	Pages        int   // page 0 is padding and holds nothing
	ReserveBytes int64 // left to everything else
	Models       []ModelPlan
}

// ModelPlan is one model's part of a MemoryPlan.
type ModelPlan struct {
	Name          string
	WeightBytes   int64
	KVCacheDType  string
	TokenBytes    int64 // of KV cache for one token of context
	BlockTokens   int
	BlockBytes    int64
	BlocksPerPage int
	// CacheTokens of context fit if this model has the whole pool.
	CacheTokens int
	MaxModelLen int

	layouts []kernels.CacheLayout // one a cache group
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

// planMemory decides page size, number of pages and each model's blocks. kvBytes 0 means: a share
// of what is free. It refuses with numbers when that is too little.
func planMemory(info kernels.Info, ms []planModel, scratchBytes, kvBytes int64) (MemoryPlan, error) {
	p := MemoryPlan{Device: info.Description, FreeBytes: info.MemoryBytes, ScratchBytes: scratchBytes}
	var useful float64 // all that sequences could use: more than a number of bytes can be, at times
	var need int64     // the least that serves every model
	blocks := make([]int64, len(ms))
	for i, m := range ms {
		p.WeightBytes += m.weightBytes
		for _, g := range m.groups {
			blocks[i] = max(blocks[i], align(groupLayout(g, m.dtype).TokenBytes()*blockTokens, 64))
		}
		context := m.context()
		perSeq := int64(len(m.groups)) * blocks[i]
		useful += float64(m.maxSeqs) * float64(ceilDiv(int64(context), blockTokens)*perSeq)
		need = max(need, ceilDiv(int64(min(context, minCacheTokens)), blockTokens)*perSeq)
	}
	if p.FreeBytes == 0 { // the system does not say: believe what was asked for
		p.FreeBytes = p.WeightBytes + scratchBytes + max(kvBytes, int64(min(useful, defaultKVUnknown)))*2
	}
	left := p.FreeBytes - p.WeightBytes - scratchBytes
	p.ReserveBytes = max(128<<20, p.FreeBytes/20)
	room := left - p.ReserveBytes
	if kvBytes == 0 {
		kvBytes = min(left/defaultKVShare, defaultKVCap)
		if useful < float64(kvBytes) {
			// in whole pages, with the padding page: a lone sequence gets its whole context
			p.PageBytes = pageSize(blocks, int64(useful))
			pages := int64(1)
			for i, m := range ms {
				n := int64(m.maxSeqs) * ceilDiv(int64(m.context()), blockTokens) * int64(len(m.groups))
				pages += ceilDiv(n, p.PageBytes/blocks[i])
			}
			kvBytes = min(kvBytes, pages*p.PageBytes)
		}
		kvBytes = max(kvBytes, min(need, room))
	} else {
		room = left // an explicit size may use the reserve
	}
	if kvBytes > room || kvBytes < need {
		return p, fmt.Errorf("memory: %s", tooLittle(p, ms, kvBytes, need, left))
	}

	if p.PageBytes == 0 {
		p.PageBytes = pageSize(blocks, kvBytes)
	}
	p.Pages = int(kvBytes / p.PageBytes)
	p.KVBytes = int64(p.Pages) * p.PageBytes
	p.ReserveBytes = left - p.KVBytes
	for i, m := range ms {
		mp := ModelPlan{
			Name: m.name, WeightBytes: m.weightBytes, KVCacheDType: m.dtype.String(),
			BlockTokens: blockTokens, BlockBytes: blocks[i], BlocksPerPage: int(p.PageBytes / blocks[i]),
		}
		for _, g := range m.groups {
			l := groupLayout(g, m.dtype)
			mp.TokenBytes += l.TokenBytes()
			l.BlockTokens, l.BlockBytes = blockTokens, blocks[i]
			l.BlocksPerPage, l.PageBytes = mp.BlocksPerPage, p.PageBytes
			mp.layouts = append(mp.layouts, l)
		}
		mp.CacheTokens = (p.Pages - 1) * mp.BlocksPerPage / len(m.groups) * blockTokens
		mp.MaxModelLen = min(m.context(), mp.CacheTokens)
		if m.maxModelLen > 0 && mp.MaxModelLen < m.context() {
			return p, fmt.Errorf("memory: model %s: max model length %d needs %s of KV cache, the pool has %s (%d tokens)",
				m.name, m.context(), bytesText(int64(m.context())*mp.TokenBytes), bytesText(p.KVBytes), mp.CacheTokens)
		}
		if mp.MaxModelLen < min(m.context(), minCacheTokens) {
			return p, fmt.Errorf("memory: %s", tooLittle(p, ms, kvBytes, need+p.PageBytes, left))
		}
		p.Models = append(p.Models, mp)
	}
	return p, nil
}

// context is the longest context that checkpoint and flag allow.
func (m planModel) context() int {
	if m.maxModelLen > 0 {
		return min(m.maxModelLen, m.maxPosition)
	}
	return m.maxPosition
}

func groupLayout(g models.CacheGroup, t kernels.DType) kernels.CacheLayout {
	return kernels.CacheLayout{DType: t, Layers: g.Layers, Heads: g.Heads, KDim: g.KDim, VDim: g.VDim}
}

// pageSize returns the smallest page that loses nearly as little as the best one to the worst
// served model, while the pool keeps minPages of them if any size allows that.
func pageSize(blocks []int64, kvBytes int64) int64 {
	largest := int64(0)
	for _, b := range blocks {
		largest = max(largest, b)
	}
	low := max(minPageBytes, align(largest, pageStep))
	if kvBytes < low { // a tiny pool of one page, with no room for roundness
		return align(largest, 4096)
	}
	high := max(low, min(maxPageBytes, kvBytes/minPages))
	loss := func(page int64) float64 {
		worst := 0.0
		for _, b := range blocks {
			worst = max(worst, float64(page%b)/float64(page))
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
			bytesText(kvBytes), bytesText(need), bytesText(left))
		return s.String()
	}
	fmt.Fprintf(&s, "the models need at least %s of KV cache and %s are left: serve fewer or smaller models", bytesText(need), bytesText(max(left, 0)))
	if p.ScratchBytes > p.FreeBytes/4 {
		s.WriteString(" or allow fewer batched tokens")
	}
	return s.String()
}

func align(n, to int64) int64  { return (n + to - 1) / to * to }
func ceilDiv(a, b int64) int64 { return (a + b - 1) / b }

// bytesText writes a number of bytes with a binary unit.
func bytesText(n int64) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.2f GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
	if n < 1<<10 {
		return fmt.Sprintf("%d bytes", n)
	}
	return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
}
