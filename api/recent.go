package api

import (
	"sync"
	"time"

	"github.com/openinfer-go/openinfer/api/state"
)

// The last minutes, by slots of time.
const (
	slotSeconds = 2
	slotCount   = 150
	rateSlots   = 5  // of state.Model.Rate
	minuteSlots = 30 // of its latencies
)

// slot is what came in slotSeconds.
type slot struct {
	tokens    int
	first     float64 // sum and worst of times to first tokens, seconds
	worst     float64
	firsts    int
	gaps      float64 // sum of times between tokens
	gapTokens int
}

// recent is what came of one model's answers in the last minutes. Its slots move on when it is asked or told, so that it
// needs no goroutine.
type recent struct {
	mu    sync.Mutex
	last  int64 // number of the newest slot, counted from 1970
	slots [slotCount]slot
}

// move makes the slot of now the newest. It is called with mu held.
func (r *recent) move(now time.Time) *slot {
	n := now.Unix() / slotSeconds
	if n-r.last > slotCount {
		r.last = n - slotCount
	}
	for ; r.last < n; r.last++ {
		r.slots[(r.last+1)%slotCount] = slot{}
	}
	return &r.slots[r.last%slotCount]
}

// first counts k tokens that came together, the first of their sequence after that time.
func (r *recent) first(now time.Time, after time.Duration, k int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.move(now)
	s.tokens += k
	s.firsts++
	s.first += after.Seconds()
	s.worst = max(s.worst, after.Seconds())
}

// next counts k tokens that came so long after those before them.
func (r *recent) next(now time.Time, after time.Duration, k int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.move(now)
	s.tokens += k
	s.gaps += after.Seconds()
	s.gapTokens += k
}

// fill writes the history, and the sums over its end, but for the slot of now, which is not over.
func (r *recent) fill(now time.Time, m *state.Model) state.ModelHistory {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.move(now)
	mean := func(sum float64, n int) *float64 {
		if n == 0 {
			return nil
		}
		ms := sum / float64(n) * 1000
		return &ms
	}
	var h state.ModelHistory
	var minute slot
	tokens := 0
	for i := slotCount - 1; i > 0; i-- {
		s := &r.slots[(r.last-int64(i)+slotCount)%slotCount]
		h.Rate = append(h.Rate, float64(s.tokens)/slotSeconds)
		h.TTFT = append(h.TTFT, mean(s.first, s.firsts))
		h.TPOT = append(h.TPOT, mean(s.gaps, s.gapTokens))
		if i <= rateSlots {
			tokens += s.tokens
		}
		if i <= minuteSlots {
			minute.first += s.first
			minute.firsts += s.firsts
			minute.worst = max(minute.worst, s.worst)
			minute.gaps += s.gaps
			minute.gapTokens += s.gapTokens
		}
	}
	m.Rate = float64(tokens) / (rateSlots * slotSeconds)
	m.TTFT, m.TPOT = mean(minute.first, minute.firsts), mean(minute.gaps, minute.gapTokens)
	if minute.firsts > 0 {
		m.WorstTTFT = mean(minute.worst, 1)
	}
	return h
}
