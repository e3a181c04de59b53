// Package rope computes the frequencies of rotary embeddings from what a checkpoint says of them,
// once, at load.
//
// It owns the scaling types that change frequencies by a rule of their own (none, linear, llama3).
// Types whose frequencies depend on the length of a sequence are refused by name.
package rope

import (
	"fmt"
	"math"
	"strings"

	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/models/checkpoint"
	"github.com/openinfer-go/openinfer/models/config"
)

// Params is what a checkpoint says.
type Params struct {
	Theta   float64
	Scaling Scaling
	Factor  float64 // Linear, Llama3: frequencies are divided by it
	// Llama3: wavelengths below Original/HighFactor keep their frequency, those above
	// Original/LowFactor have it divided, those between blend.
	LowFactor, HighFactor float64
	Original              int // the context length before scaling
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
)

// FromConfig reads the keys that config.json has in either layout: rope_theta and rope_scaling, or
// rope_parameters with both inside. theta is the architecture's default.
func FromConfig(r *config.Reader, theta float64) Params {
	p := Params{Theta: r.PositiveOr("rope_theta", theta)}
	key := "rope_scaling"
	if r.Has("rope_parameters") {
		key = "rope_parameters"
	}
	s := r.Object(key)
	p.Theta = s.PositiveOr("rope_theta", p.Theta)
	for _, o := range []*config.Reader{r, s} {
		if f := o.PositiveOr("partial_rotary_factor", 1); f != 1 && o.Has("partial_rotary_factor") {
			o.Fail("partial_rotary_factor", "%v is not supported: all of a head is rotated", f)
		}
	}
	kindKey := "rope_type"
	if !s.Has(kindKey) && s.Has("type") {
		kindKey = "type" // its first name
	}
	switch kind := s.TextOr(kindKey, "default"); kind {
	case "default":
	case "linear":
		p.Scaling, p.Factor = Linear, s.Positive("factor")
	case "llama3":
		p.Scaling, p.Factor = Llama3, s.Positive("factor")
		p.LowFactor, p.HighFactor = s.Positive("low_freq_factor"), s.Positive("high_freq_factor")
		p.Original = s.Size("original_max_position_embeddings")
		if p.LowFactor >= p.HighFactor {
			s.Fail("low_freq_factor", "%v is not below high_freq_factor %v", p.LowFactor, p.HighFactor)
		}
	default:
		s.Fail(kindKey, "%q is not supported (default, linear and llama3 are)", kind)
	}
	return p
}

// FromGGUF reads the metadata of an architecture and takes rope_freqs.weight, which carries any
// scaling that has no keys, when the file has it. dim is the size of a head.
func FromGGUF(c *checkpoint.Checkpoint, arch string, dim int) (p Params, err error) {
	m := c.GGUF()
	key := func(name string) string { return arch + ".rope." + name }
	if p.Theta, err = m.FloatOr(key("freq_base"), 10000); err != nil {
		return p, err
	}
	if !(p.Theta > 0) || p.Theta > math.MaxFloat32 {
		return p, fmt.Errorf("%s: %v is not a positive number", key("freq_base"), p.Theta)
	}
	turned, err := m.IntOr(key("dimension_count"), dim)
	if err != nil {
		return p, err
	}
	if turned != dim {
		return p, fmt.Errorf("%s: %d of a head of %d is not supported: all of a head is rotated", key("dimension_count"), turned, dim)
	}
	// Old files have the factor alone.
	old, err := m.FloatOr(key("scale_linear"), 1)
	if err != nil {
		return p, err
	}
	factor, err := m.FloatOr(key("scaling.factor"), old)
	if err != nil {
		return p, err
	}
	kind, err := m.StringOr(key("scaling.type"), "")
	if err != nil {
		return p, err
	}
	switch strings.ToLower(kind) {
	case "none":
	case "", "linear":
		if !(factor > 0) || factor > math.MaxFloat32 {
			return p, fmt.Errorf("%s: %v is not a positive number", key("scaling.factor"), factor)
		}
		if factor != 1 {
			p.Scaling, p.Factor = Linear, factor
		}
	default:
		return p, fmt.Errorf("%s: %q is not supported (none and linear are)", key("scaling.type"), kind)
	}
	const divisors = "rope_freqs.weight"
	if c.Has(divisors) {
		if p.Divisors, err = c.Vector(divisors, dim/2); err != nil {
			return p, err
		}
		for i, d := range p.Divisors {
			if !(d > 0) || math.IsInf(float64(d), 0) {
				return p, fmt.Errorf("%s: value %d is %v", divisors, i, d)
			}
		}
	}
	return p, nil
}

// Rotary returns the frequencies for heads of dim values.
func (p Params) Rotary(dim int) kernels.Rotary {
	r := kernels.Rotary{InvFreq: make([]float32, dim/2), Scale: 1}
	for i := range r.InvFreq {
		f := p.scaled(math.Pow(p.Theta, -2*float64(i)/float64(dim)))
		if p.Divisors != nil {
			f /= float64(p.Divisors[i])
		}
		r.InvFreq[i] = float32(f)
	}
	return r
}

func (p Params) scaled(f float64) float64 {
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
	}
	return f
}
