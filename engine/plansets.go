package engine

import (
	"fmt"
	"math"
	"math/bits"
	"sort"

	"github.com/openinfer-go/openinfer/kernels/sim"
	"github.com/openinfer-go/openinfer/sched"
)

// MaxSetModels bounds the models of which Plan tells all sets that fit together: there are 2^n.
const MaxSetModels = 10

// holds says whether the plan's pool has room for n sequences of so many tokens of each of some models at once. Of
// each model one may be computing a prompt, whose window is longer for that.
func (p *planner) holds(plan *MemoryPlan, models []int, n int, tokens func(model int) int) bool {
	pages := int64(0)
	for _, k := range models {
		c, length := plan.Models[k].cut, tokens(k)
		if length == 0 || n == 0 {
			continue
		}
		blocks := c.blocksFor(length, p.engine.planTokens()) + int64(n-1)*c.blocksFor(length, 1)
		pages += ceilDiv(blocks, int64(c.perPage())) + int64(n)*int64(c.statePages())
	}
	return pages < int64(plan.Pages) // page 0 is padding
}

// length is what a request of that context takes of model i, its answer cut at the longest context; 0: it has no room
// for an answer. The plan may allow less than the model.
func (p *planner) length(i, longest, context int) int {
	longest = min(longest, p.models[i].context())
	if context >= longest {
		return 0
	}
	return min(context+p.out.AnswerTokens, longest)
}

// requests is how many requests of that context run at once when nobody asks other models. Model i of this planner is
// the plan's model place.
func (p *planner) requests(plan *MemoryPlan, place, i, context int) int {
	tokens := p.length(i, plan.Models[place].MaxModelLen, context)
	if tokens == 0 {
		return 0
	}
	return sort.Search(p.models[i].maxSeqs, func(n int) bool {
		return !p.holds(plan, []int{place}, n+1, func(int) int { return tokens })
	})
}

// set is what some models have room for together in a plan; which are their places in this planner. The plan is of
// these models, or of all.
func (p *planner) set(which []int, plan *MemoryPlan) SetForecast {
	f := SetForecast{KVBytes: plan.KVBytes, RequestsEach: make([]int, len(p.out.Contexts))}
	places := make([]int, len(which))
	model := map[int]int{} // by place in the plan
	for i, k := range which {
		places[i] = i
		if len(plan.Models) == len(p.models) {
			places[i] = k
		}
		model[places[i]] = k
		f.Models = append(f.Models, p.models[k].name)
		f.WeightBytes += p.models[k].weightBytes
	}
	longest := 0
	for _, at := range places {
		longest = max(longest, plan.Models[at].MaxModelLen)
	}
	f.TokensEach = sort.Search(longest, func(n int) bool {
		return !p.holds(plan, places, 1, func(at int) int { return min(n+1, plan.Models[at].MaxModelLen) })
	})
	for i, context := range p.out.Contexts {
		most := 0
		for _, at := range places {
			if p.length(model[at], plan.Models[at].MaxModelLen, context) > 0 {
				most = max(most, p.models[model[at]].maxSeqs)
			}
		}
		f.RequestsEach[i] = sort.Search(most, func(n int) bool {
			return !p.holds(plan, places, n+1, func(at int) int { return p.length(model[at], plan.Models[at].MaxModelLen, context) })
		})
	}
	return f
}

// sets are those that fit together and could not have one model more, and the best of all that fit.
func (p *planner) sets(s sim.Spec) (largest []SetForecast, best *SetForecast) {
	n := len(p.models)
	fits := make([]bool, 1<<n)
	fits[0] = true
	roomy := false
	for _, mask := range bySize(n) {
		if mask == 0 {
			continue
		}
		which := places(mask)
		possible := true // what does not fit does not fit with more, either
		for _, k := range which {
			possible = possible && fits[mask&^(1<<k)]
		}
		if !possible {
			continue
		}
		plan, err := p.memory(s, which)
		if err != nil || plan.WeightLimit > 0 {
			continue
		}
		fits[mask] = true
		f := p.set(which, plan)
		room := p.roomy(which, plan)
		switch {
		case best == nil || room && !roomy,
			room == roomy && room && len(f.Models) > len(best.Models),
			room == roomy && (!room || len(f.Models) == len(best.Models)) && f.TokensEach > best.TokensEach:
			best, roomy = &f, room
		}
	}
	for _, mask := range bySize(n) {
		more := !fits[mask] || mask == 0
		for k := range n {
			more = more || mask&(1<<k) == 0 && fits[mask|1<<k]
		}
		if !more {
			which := places(mask)
			plan, err := p.memory(s, which)
			if err != nil {
				panic(fmt.Sprintf("engine: a plan that was made is refused: %v", err))
			}
			largest = append(largest, p.set(which, plan))
		}
	}
	return largest, best
}

// roomy says that each model has room for a request of the shortest context above 0, or of its own longest, at once.
func (p *planner) roomy(which []int, plan *MemoryPlan) bool {
	shortest := 0
	for _, c := range p.out.Contexts {
		if c > 0 && shortest == 0 {
			shortest = c
		}
	}
	at := make([]int, len(which))
	for i := range which {
		at[i] = i
	}
	return p.holds(plan, at, 1, func(i int) int { return min(shortest+p.out.AnswerTokens, p.models[which[i]].context()) })
}

// bySize are the sets of n models as masks, the smaller before the larger.
func bySize(n int) []int {
	masks := make([]int, 1<<n)
	for i := range masks {
		masks[i] = i
	}
	sort.SliceStable(masks, func(i, j int) bool { return bits.OnesCount(uint(masks[i])) < bits.OnesCount(uint(masks[j])) })
	return masks
}

func places(mask int) []int {
	var list []int
	for k := 0; 1<<k <= mask; k++ {
		if mask&(1<<k) != 0 {
			list = append(list, k)
		}
	}
	return list
}

// makesRoom asks the scheduler itself which models it parks for one that is parked, all being idle since start-up.
func (p *planner) makesRoom(s sim.Spec, plan *MemoryPlan, name string) ([]string, error) {
	e := p.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	e.plan = *plan
	e.follow(plan)
	for i, m := range e.models {
		m.resident = !plan.Models[i].Parked
		m.loadTime = seconds(float64(plan.Models[i].WeightBytes) / s.HostBandwidth)
	}
	if err := e.newScheduler(); err != nil {
		return nil, err
	}
	now := epoch
	if err := e.sched.Submit(now, &sched.Sequence{Model: name, Prompt: []int32{0}, MaxTokens: 1}); err != nil {
		return nil, fmt.Errorf("model %s: %w", name, err)
	}
	for range math.MaxUint8 {
		switch sw := e.sched.Switch(now); {
		case sw == nil:
			if now = e.sched.Wake(now); now.IsZero() {
				return nil, fmt.Errorf("model %s: the scheduler makes no room for it", name)
			}
		case sw.Load == name:
			return sw.Park, nil
		default: // of others whose idle time is over
			e.sched.Switched(sw, nil, now)
		}
	}
	return nil, fmt.Errorf("model %s: the scheduler does not come to make room for it", name)
}
