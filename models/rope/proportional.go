package rope

import (
	"math"

	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/models/config"
)

// FromLayerKind reads an object that rope_parameters has for one kind of layer (rope_theta,
// rope_type and its parameters), and returns the frequencies for heads of dim values. theta is the
// architecture's default, 0 when it has none.
func FromLayerKind(r *config.Reader, theta float64, dim int) kernels.Rotary {
	if theta == 0 || r.Has("rope_theta") {
		theta = r.Positive("rope_theta")
	}
	p := Params{Theta: theta}
	key := "rope_type"
	if !r.Has(key) && r.Has("type") {
		key = "type" // its first name
	}
	part := r.PositiveOr("partial_rotary_factor", 1)
	kind := r.TextOr(key, "default")
	if kind == "proportional" {
		if part > 1 {
			r.Fail("partial_rotary_factor", "%v is more than all of a head", part)
		}
		return Proportional(p.Theta, dim, part, r.PositiveOr("factor", 1))
	}
	if part != 1 {
		r.Fail("partial_rotary_factor", "%v is not supported with %s %q", part, key, kind)
	}
	switch kind {
	case "default":
	case "linear":
		p.Scaling, p.Factor = Linear, r.Positive("factor")
	default:
		r.Fail(key, "%q is not supported (default, linear and proportional are)", kind)
	}
	return p.Rotary(dim)
}

// Proportional rotates only part of a head's pairs, those of the highest frequencies, but pairs values
// over all of it: the frequencies are those of the whole head, and zero for the pairs that stand still.
func Proportional(theta float64, dim int, part, factor float64) kernels.Rotary {
	r := kernels.Rotary{InvFreq: make([]float32, dim/2), Scale: 1}
	turned := int(math.Floor(part * float64(dim) / 2))
	for i := range min(turned, len(r.InvFreq)) {
		r.InvFreq[i] = float32(math.Pow(theta, -2*float64(i)/float64(dim)) / factor)
	}
	return r
}
