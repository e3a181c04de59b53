package rope

import (
	"fmt"
	"math"
	"strings"

	"github.com/openinfer-go/openinfer/models/checkpoint"
	"github.com/openinfer-go/openinfer/models/config"
)

// FromGGUF reads the metadata of an architecture and takes the tensors that carry what has no keys:
// rope_freqs.weight, which divides frequencies, and rope_factors_short.weight and
// rope_factors_long.weight, LongRoPE's. What is wrong is left in k.
func FromGGUF(c *checkpoint.Checkpoint, k *config.Metadata, m Model) Params {
	p := Params{
		Theta: k.PositiveOr("rope.freq_base", orDefault(m.Theta, 10000)),
		Dim:   k.SizeOr("rope.dimension_count", m.HeadDim),
		Scale: 1,
	}
	if k.Err() == nil && (p.Dim > m.HeadDim || p.Dim%2 != 0) {
		k.Fail("rope.dimension_count", "%d of a head of %d: not some number of pairs", p.Dim, m.HeadDim)
	}
	p.Turned = p.Dim / 2
	// Old files have the factor alone, and under its first name.
	factor := k.PositiveOr("rope.scaling.factor", k.PositiveOr("rope.scale_linear", 1))
	p.Original = k.SizeOr("rope.scaling.original_context_length", m.MaxPosition)
	kind := strings.ToLower(k.TextOr("rope.scaling.type", ""))
	const short, long = "rope_factors_short.weight", "rope_factors_long.weight"
	if c.Has(short) || c.Has(long) {
		kind = "longrope" // whose files do not name it
	}
	switch kind {
	case "none":
	case "", "linear":
		if factor != 1 {
			p.Scaling, p.Factor = Linear, factor
		}
	case "yarn":
		p.Scaling, p.Factor, p.Truncate = YaRN, factor, true
		p.BetaFast, p.BetaSlow = k.PositiveOr("rope.scaling.yarn_beta_fast", 32), k.PositiveOr("rope.scaling.yarn_beta_slow", 1)
		p.Scale = yarnScale(factor, 1) * k.PositiveOr("rope.scaling.attn_factor", 1)
		for _, name := range []string{"yarn_ext_factor", "yarn_attn_factor", "yarn_log_multiplier"} {
			if name = "rope.scaling." + name; k.Has(name) && k.Positive(name) != 1 {
				k.Fail(name, "is not supported")
			}
		}
		if k.Err() == nil && (p.BetaFast < p.BetaSlow || p.Theta <= 1) {
			k.Fail("rope.scaling.yarn_beta_fast", "%v and yarn_beta_slow %v at rope.freq_base %v leave no range to blend in", p.BetaFast, p.BetaSlow, p.Theta)
		}
	case "longrope":
		p.Scaling = LongRoPE
		p.Short, p.Long = divisors[float64](c, k, short, p.Dim/2), divisors[float64](c, k, long, p.Dim/2)
		p.Scale = k.PositiveOr("rope.scaling.attn_factor", 1)
	default:
		k.Fail("rope.scaling.type", "%q is not supported (none, linear, yarn and longrope are)", kind)
	}
	if name := "rope_freqs.weight"; c.Has(name) {
		p.Divisors = divisors[float32](c, k, name, p.Dim/2)
	}
	return p
}

// divisors takes a tensor of n positive values.
func divisors[T float32 | float64](c *checkpoint.Checkpoint, k *config.Metadata, name string, n int) []T {
	if k.Err() != nil {
		return nil
	}
	v, err := c.Vector(name, n)
	k.Keep(err)
	list := make([]T, len(v))
	for i, d := range v {
		if !(d > 0) || math.IsInf(float64(d), 0) {
			k.Keep(fmt.Errorf("%s: value %d is %v", name, i, d))
		}
		list[i] = T(d)
	}
	return list
}
