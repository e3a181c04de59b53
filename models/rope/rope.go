// Package rope computes the frequencies of rotary embeddings from what a checkpoint says of them,
// once, at load.
//
// It owns the scaling types (none, linear, dynamic, llama3, YaRN, LongRoPE, proportional) and where
// config.json and GGUF metadata state them. Frequencies that depend on how long a sequence is
// (LongRoPE) come by regime: all tokens of a sequence are under one, and the engine computes a
// sequence again that outgrows its own.
//
// Invariant: what a checkpoint states is either computed as the reference library computes it or
// refused by the name of its key.
package rope

import (
	"math"

	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/models"
)

// Params is what a checkpoint says.
type Params struct {
	Theta float64
	Dim   int // values of a head that frequencies are spread over; Dim/2 pairs
	// Turned is how many of the Dim/2 pairs are rotated at all, the fastest ones: all of them but for
	// the proportional type.
	Turned  int
	Scaling Scaling
	Factor  float64 // all types of scaling but LongRoPE: frequencies are divided by it, some or all
	// Original is the context length before scaling: of Llama3, YaRN and LongRoPE.
	Original int
	// Scale multiplies cosines and sines: of YaRN and LongRoPE, else 1.
	Scale float64
	// Llama3: wavelengths below Original/HighFactor keep their frequency, those above
	// Original/LowFactor have it divided, those between blend.
	LowFactor, HighFactor float64
	// YaRN: frequencies that turn BetaFast times or more in the original context stay, those that
	// turn BetaSlow times or less are divided, those between blend, pair by pair; Truncate widens
	// that range to whole pairs.
	BetaFast, BetaSlow float64
	Truncate           bool
	// LongRoPE: frequency i is divided by element i, of Short up to Original tokens, of Long beyond.
	Short, Long []float64
	// Divisors, when not nil, are a GGUF file's own: frequency i is divided by element i.
	Divisors []float32
}

// Scaling is a rule that changes the frequencies.
type Scaling uint8

// Scaling types.
const (
	None Scaling = iota
	Linear
	Llama3
	YaRN     // Peng et al. 2023, arXiv 2309.00071
	LongRoPE // Ding et al. 2024, arXiv 2402.13753, as the Phi-3 models use it
)

// Embedding is a model's rotary embedding: its frequencies by regime.
type Embedding struct {
	Regimes  []int            // models.Shape.Regimes
	ByRegime []kernels.Rotary // one more than Regimes, all for the same number of values
}

// Cols is the width of a row of cosines and sines.
func (e Embedding) Cols() int { return 2 * len(e.ByRegime[0].InvFreq) }

// CosSin writes the cosines and sines of every token of b, each sequence's under its own regime,
// to dst [T, Cols()].
func (e Embedding) CosSin(d kernels.Device, dst kernels.Tensor, b *models.Batch) {
	if len(e.Regimes) == 0 {
		d.CosSin(dst, e.ByRegime[0], b.Positions)
		return
	}
	// One call for each run of sequences under the same regime.
	starts := b.Ragged.Starts.Host
	for from, S := 0, len(starts)-1; from < S; {
		to := from + 1
		for to < S && b.Regimes[to] == b.Regimes[from] {
			to++
		}
		first, end := int(starts[from]), int(starts[to])
		d.CosSin(dst.RowRange(first, end), e.ByRegime[b.Regimes[from]], b.Positions.Range(first, end))
		from = to
	}
}

// Embedding returns the frequencies.
func (p Params) Embedding() Embedding {
	if p.Scaling != LongRoPE {
		return Embedding{ByRegime: []kernels.Rotary{p.rotary(nil)}}
	}
	return Embedding{Regimes: []int{p.Original}, ByRegime: []kernels.Rotary{p.rotary(p.Short), p.rotary(p.Long)}}
}

// rotary computes the frequencies of one regime, whose LongRoPE factors are factors.
func (p Params) rotary(factors []float64) kernels.Rotary {
	r := kernels.Rotary{InvFreq: make([]float32, p.Dim/2), Scale: float32(p.Scale)}
	for i := range p.Turned {
		f := p.scaled(i, math.Pow(p.Theta, -2*float64(i)/float64(p.Dim)))
		if factors != nil {
			f /= factors[i]
		}
		if p.Divisors != nil {
			f /= float64(p.Divisors[i])
		}
		r.InvFreq[i] = float32(f)
	}
	return r
}

// scaled is frequency i, f before scaling.
func (p Params) scaled(i int, f float64) float64 {
	switch p.Scaling {
	case Linear:
		return f / p.Factor
	case Llama3:
		// turns is how often a wave of this frequency fits into the original context.
		turns := float64(p.Original) * f / (2 * math.Pi)
		if turns > p.HighFactor {
			return f
		}
		if turns < p.LowFactor {
			return f / p.Factor
		}
		kept := (turns - p.LowFactor) / (p.HighFactor - p.LowFactor)
		return (1-kept)*f/p.Factor + kept*f
	case YaRN:
		low, high := p.ramp()
		divided := min(max((float64(i)-low)/(high-low), 0), 1)
		return (1-divided)*f + divided*f/p.Factor
	}
	return f
}

// ramp returns the pairs between which YaRN blends.
func (p Params) ramp() (low, high float64) {
	// pair is where frequencies turn so many times in the original context.
	pair := func(turns float64) float64 {
		return float64(p.Dim) * math.Log(float64(p.Original)/(turns*2*math.Pi)) / (2 * math.Log(p.Theta))
	}
	low, high = pair(p.BetaFast), pair(p.BetaSlow)
	if p.Truncate {
		low, high = math.Floor(low), math.Ceil(high)
	}
	low, high = max(low, 0), min(high, float64(p.Dim-1))
	if low == high {
		high += 0.001
	}
	return low, high
}

// yarnScale is the paper's factor of cosines and sines for a context stretched by factor, with the
// weight that later models give its logarithm.
func yarnScale(factor, weight float64) float64 {
	if factor <= 1 {
		return 1
	}
	return 0.1*weight*math.Log(factor) + 1
}
