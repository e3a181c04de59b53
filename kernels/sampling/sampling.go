// Package sampling draws tokens from rows of logits in host memory: the one implementation of
// what kernels.SampleParams means, used by every device whose logits the host can read. A device
// brings its own scans of a row (Scans); all decisions are here.
//
// The order, and what each part does:
//
//  1. Logits change: repetition penalty, then frequency and presence, then Bias, then Banned and
//     Allowed (to -Inf).
//  2. Temperature 0 takes the largest, the lowest id among equals. Cuts do not matter then.
//  3. Otherwise MinP, TopK and TopP cut, in this order and each over what the one before left:
//     TopP's probabilities are those after the other two, divided by their sum. TopK keeps
//     exactly K; equals go by id.
//  4. One uniform number, a function of Seed and Index, picks from what is left.
//
// Invariant: a token is a function of its row, its parameters and the scans alone.
package sampling

import (
	"math"
	"slices"

	"github.com/openinfer-go/openinfer/kernels"
)

// Scans are the passes over a whole row.
type Scans struct {
	// Max returns the largest element, and whether any is NaN.
	Max func(x []float32) (largest float32, nan bool)
	// Find returns the index of the first element equal to v, or -1.
	Find func(x []float32, v float32) int
	// SumExp returns the sum of exp((x[i]-largest) * scale).
	SumExp func(x []float32, largest, scale float32) float64
	// CountGreater returns how many elements are greater than v.
	CountGreater func(x []float32, v float32) int
	// AtLeast appends the indices of the elements that are at least v.
	AtLeast func(ids []int32, x []float32, v float32) []int32
}

// Sampler draws from one row at a time. It holds scratch memory; the zero Sampler is no use.
type Sampler struct {
	scans    Scans
	adjusted []float32
	counts   []int32 // of an id in Output; all zero between rows
	ids      []int32
	sums     []float64
}

// New returns a Sampler that uses scans.
func New(scans Scans) *Sampler { return &Sampler{scans: scans} }

// Row draws one token from logits, one for each id that exists.
func (s *Sampler) Row(logits []float32, p *kernels.SampleParams) kernels.Sampled {
	failed := kernels.Sampled{ID: -1, NaN: true}
	largest, nan := s.scans.Max(logits)
	if nan || math.IsInf(float64(largest), 1) {
		return failed
	}
	id := p.Given
	switch {
	case id >= int32(len(logits)):
		return failed
	case id < 0:
		x := logits
		if Changes(p) {
			x = s.adjust(logits, p)
			if largest, nan = s.scans.Max(x); nan {
				return failed
			}
		}
		if math.IsInf(float64(largest), 0) {
			return failed
		}
		id = s.pick(x, largest, p)
	}
	out := kernels.Sampled{ID: id}
	if p.Logprobs >= 0 && !s.logprobs(&out, logits, p.Logprobs) {
		return failed
	}
	return out
}

// Changes says whether p changes logits.
func Changes(p *kernels.SampleParams) bool {
	return Penalised(p) || len(p.Bias) > 0 || len(p.Banned) > 0 || p.Allowed != nil
}

// Penalised says whether p needs Prompt and Output.
func Penalised(p *kernels.SampleParams) bool {
	return Repetition(p) != 1 || p.Presence != 0 || p.Frequency != 0
}

// Repetition is the penalty of that name; 1: none.
func Repetition(p *kernels.SampleParams) float32 {
	if p.Repetition == 0 {
		return 1
	}
	return p.Repetition
}

// adjust returns a changed copy of logits. Ids that do not exist are ignored.
func (s *Sampler) adjust(logits []float32, p *kernels.SampleParams) []float32 {
	s.adjusted = append(s.adjusted[:0], logits...)
	x := s.adjusted
	if Penalised(p) {
		s.penalise(x, p)
	}
	for _, b := range p.Bias {
		if uint(b.ID) < uint(len(x)) {
			x[b.ID] += b.Bias
		}
	}
	ninf := float32(math.Inf(-1))
	for _, id := range p.Banned {
		if uint(id) < uint(len(x)) {
			x[id] = ninf
		}
	}
	if p.Allowed != nil {
		for i := range x {
			if w := i / 32; w >= len(p.Allowed) || p.Allowed[w]>>(i%32)&1 == 0 {
				x[i] = ninf
			}
		}
	}
	return x
}

func (s *Sampler) penalise(x []float32, p *kernels.SampleParams) {
	if len(s.counts) < len(x) {
		s.counts = make([]int32, len(x))
	}
	// An id is visited once: its count is cleared, or marked, by its first visit.
	const inPrompt = math.MinInt32
	r := Repetition(p)
	repeat := func(id int32) {
		if x[id] > 0 {
			// a tiny penalty must not make an infinity of a number
			x[id] = min(x[id]/r, max(x[id], 1e30))
		} else {
			x[id] *= r
		}
	}
	exists := func(id int32) bool { return uint(id) < uint(len(x)) }
	for _, id := range p.Output {
		if exists(id) {
			s.counts[id]++
		}
	}
	for _, id := range p.Output {
		if exists(id) && s.counts[id] > 0 {
			repeat(id)
			x[id] -= p.Frequency*float32(s.counts[id]) + p.Presence
			s.counts[id] = inPrompt
		}
	}
	for _, id := range p.Prompt {
		if exists(id) && s.counts[id] == 0 {
			repeat(id)
			s.counts[id] = inPrompt
		}
	}
	for _, ids := range [][]int32{p.Output, p.Prompt} {
		for _, id := range ids {
			if exists(id) {
				s.counts[id] = 0
			}
		}
	}
}

func (s *Sampler) pick(x []float32, largest float32, p *kernels.SampleParams) int32 {
	if p.Temperature <= 0 {
		return int32(s.scans.Find(x, largest))
	}
	// A scale that overflows would turn 0 * Inf into NaN; at 1e30 only equals of the largest count.
	scale := min(1/p.Temperature, 1e30)
	u := Uniform(p.Seed, p.Index)
	if p.TopK <= 0 && !(p.TopP > 0 && p.TopP < 1) && p.MinP <= 0 {
		return s.pickAny(x, largest, scale, u)
	}
	ids, sum := s.candidates(x, largest, scale, p)
	if p.TopP > 0 && p.TopP < 1 {
		var kept float64
		for i, id := range ids {
			if kept += weight(x[id], largest, scale); kept >= float64(p.TopP)*sum {
				ids = ids[:i+1]
				break
			}
		}
		sum = kept
	}
	left := u * sum
	for _, id := range ids {
		if left -= weight(x[id], largest, scale); left < 0 {
			return id
		}
	}
	return ids[0] // rounding used up all: u was next to 1
}

// weight is an id's probability times a constant.
func weight(v, largest, scale float32) float64 {
	return math.Exp(float64(v-largest) * float64(scale))
}

// pickAny draws from the whole row: first a stretch of ids by its weight, then an id within it.
func (s *Sampler) pickAny(x []float32, largest, scale float32, u float64) int32 {
	const stretch = 1024
	s.sums = s.sums[:0]
	var sum float64
	for rest := x; len(rest) > 0; {
		n := min(stretch, len(rest))
		part := s.scans.SumExp(rest[:n], largest, scale)
		s.sums, sum, rest = append(s.sums, part), sum+part, rest[n:]
	}
	left, at := u*sum, 0
	for at < len(s.sums)-1 && left >= s.sums[at] {
		left -= s.sums[at]
		at++
	}
	last := int32(-1)
	from := at * stretch
	for i, v := range x[from:min(from+stretch, len(x))] {
		w := weight(v, largest, scale)
		if w > 0 {
			last = int32(from + i)
		}
		if left -= w; left < 0 {
			return last
		}
	}
	if last >= 0 {
		return last
	}
	return int32(s.scans.Find(x, largest)) // rounding led beyond the last stretch with weight
}

// candidates returns, the most likely first, the ids that MinP and TopK leave, and the sum of
// their weights; with TopP alone the sum of all weights and no more ids than hold its share.
func (s *Sampler) candidates(x []float32, largest, scale float32, p *kernels.SampleParams) (ids []int32, sum float64) {
	if p.MinP <= 0 && p.TopK <= 0 {
		sum = s.scans.SumExp(x, largest, scale)
		for span := float32(8); ; span *= 4 {
			from := largest - span/scale
			s.ids = s.atLeast(s.ids[:0], x, from)
			all := span > 200 // exp(-200) of the largest weighs nothing
			if all || s.total(x, largest, scale) >= float64(p.TopP)*sum {
				order(s.ids, x)
				return s.ids, sum
			}
		}
	}
	k := len(x)
	if p.TopK > 0 {
		k = min(k, p.TopK)
	}
	if p.MinP > 0 {
		floor := largest + float32(math.Log(float64(min(p.MinP, 1))))/scale
		s.ids = s.atLeast(s.ids[:0], x, floor)
		order(s.ids, x)
		s.ids = s.ids[:min(k, len(s.ids))]
	} else {
		s.ids = s.most(x, largest, k)
	}
	return s.ids, s.total(x, largest, scale)
}

// total returns the sum of the weights of s.ids.
func (s *Sampler) total(x []float32, largest, scale float32) (sum float64) {
	for _, id := range s.ids {
		sum += weight(x[id], largest, scale)
	}
	return sum
}

// most returns the n most likely ids in order.
func (s *Sampler) most(x []float32, largest float32, n int) []int32 {
	// Few ids are near the largest; sorting those is cheaper than sorting all. The span grows
	// until enough are found.
	for span := float32(8); ; span *= 4 {
		from := largest - span
		if span > 1e4 || n >= len(x) {
			from = float32(math.Inf(-1))
		}
		s.ids = s.atLeast(s.ids[:0], x, from)
		if len(s.ids) >= n || math.IsInf(float64(from), -1) {
			order(s.ids, x)
			return s.ids[:min(n, len(s.ids))]
		}
	}
}

// atLeast is the scan of that name, without ids at -Inf, which cannot be drawn.
func (s *Sampler) atLeast(ids []int32, x []float32, v float32) []int32 {
	return s.scans.AtLeast(ids, x, max(v, -math.MaxFloat32))
}

// order sorts ids by logit, the largest first; equals by id.
func order(ids []int32, x []float32) {
	slices.SortFunc(ids, func(a, b int32) int {
		switch {
		case x[a] > x[b]:
			return -1
		case x[a] < x[b]:
			return 1
		}
		return int(a - b)
	})
}

// logprobs fills in what is asked of the raw logits; false when they have no distribution.
func (s *Sampler) logprobs(out *kernels.Sampled, logits []float32, n int) bool {
	largest, _ := s.scans.Max(logits)
	if math.IsInf(float64(largest), 0) {
		return false
	}
	norm := float64(largest) + math.Log(s.scans.SumExp(logits, largest, 1))
	logprob := func(id int32) float32 { return float32(float64(logits[id]) - norm) }
	out.Logprob = logprob(out.ID)
	out.Rank = int32(s.scans.CountGreater(logits, logits[out.ID])) + 1
	if n == 0 {
		return true
	}
	top := s.most(logits, largest, min(n, len(logits)))
	out.Top = make([]kernels.TokenLogprob, len(top))
	for i, id := range top {
		out.Top[i] = kernels.TokenLogprob{ID: id, Logprob: logprob(id)}
	}
	return true
}

// Uniform returns a number in [0,1) that is a function of seed and index.
func Uniform(seed, index uint64) float64 {
	return float64(mix(mix(seed)+index*0x9e3779b97f4a7c15)>>11) * 0x1p-53
}

// mix is the bijection of splitmix64.
func mix(z uint64) uint64 {
	z += 0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}
