package engine

import (
	"fmt"
	"math"
)

// limitWeights decides what weights may take together when not all models' fit, either what there is or asked,
// and leaves p.WeightBytes at that. need and useful are the least and the most KV cache that models can use,
// kvBytes what was asked for, 0: nothing.
func (p *MemoryPlan) limitWeights(ms []planModel, need int64, useful float64, kvBytes, asked int64) error {
	largest := ms[0]
	for _, m := range ms {
		if m.weightBytes > largest.weightBytes {
			largest = m
		}
	}
	if asked > 0 && largest.weightBytes > asked {
		return &shortError{fmt.Sprintf("the weights of model %s take %s, more than the %s that all weights may take",
			largest.name, roundedText(largest.weightBytes, math.Ceil), roundedText(asked, math.Floor)), 0}
	}
	limit := p.WeightBytes
	if asked > 0 {
		limit = min(limit, asked)
	}
	free := p.FreeBytes - p.ScratchBytes - p.ReserveBytes // for weights and cache
	if free-limit < max(need, kvBytes) {
		cache := kvBytes
		if cache == 0 {
			cache = max(need, int64(min(useful, float64(p.FreeBytes/defaultKVShare))))
		}
		limit = min(limit, free-cache)
		if limit < largest.weightBytes && kvBytes == 0 { // the cache has to do with less
			limit = min(largest.weightBytes, free-need)
		}
	}
	if limit < largest.weightBytes { // not even one at a time: what refuses this names them all
		return nil
	}
	if limit < p.WeightBytes {
		p.WeightBytes, p.WeightLimit = limit, limit
	}
	return nil
}

// place says which models are resident at first: in their order, as long as there is room.
func (p *MemoryPlan) place() {
	held := int64(0)
	for i := range p.Models {
		m := &p.Models[i]
		m.Parked = p.WeightLimit > 0 && held+m.WeightBytes > p.WeightLimit
		if !m.Parked {
			held += m.WeightBytes
		}
	}
}
