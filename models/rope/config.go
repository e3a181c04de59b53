package rope

import (
	"math"

	"github.com/openinfer-go/openinfer/models/config"
)

// Model is what the rest of a model's config says that bears on its rotary embedding.
type Model struct {
	Theta       float64 // when the checkpoint states none; 0: 10000
	HeadDim     int
	MaxPosition int
	Original    int // the context before scaling when the checkpoint states none; 0: MaxPosition
	// Partial is for an architecture whose heads may be rotated in part. In others the readers of a
	// partial_rotary_factor disagree: some heed it, some do not.
	Partial bool
	Part    float64 // partial_rotary_factor when the checkpoint states none; 0: 1
}

// FromConfig reads the keys that config.json has in either layout: rope_theta, rope_scaling and
// partial_rotary_factor, or rope_parameters with all inside. What is wrong is left in r.
func FromConfig(r *config.Reader, m Model) Params {
	parameters := r.Object("rope_parameters")
	// Models with several types of layers have an object for each, also when only one type is used.
	if parameters.Has("full_attention") {
		parameters = parameters.Object("full_attention")
	}
	p := FromObject(parameters, m, r)
	// rope_scaling goes before: it is what people add to a config by hand.
	if r.Has("rope_scaling") && !r.Is("rope_scaling", "{}") {
		p = FromObject(r.Object("rope_scaling"), m, r, parameters)
	}
	return p
}

// FromObject reads one object of rope_parameters, for models that have one for each type of layer. What
// s lacks of theta, the rotated part of a head and the original context may stand in others.
func FromObject(s *config.Reader, m Model, others ...*config.Reader) Params {
	holder := func(key string) *config.Reader {
		for _, o := range append([]*config.Reader{s}, others...) {
			if o.Has(key) {
				return o
			}
		}
		return s
	}
	p := Params{Scale: 1, Theta: holder("rope_theta").PositiveOr("rope_theta", orDefault(m.Theta, 10000))}
	in := holder("partial_rotary_factor")
	part := in.PositiveOr("partial_rotary_factor", orDefault(m.Part, 1))
	kindKey := "rope_type"
	if !s.Has(kindKey) && s.Has("type") {
		kindKey = "type" // its first name
	}
	kind := s.TextOr(kindKey, "default")
	if s.Err() != nil {
		return p
	}
	if part > 1 {
		in.Fail("partial_rotary_factor", "%v is more than all of a head", part)
		return p
	}
	if part != 1 && !m.Partial && kind != "proportional" {
		in.Fail("partial_rotary_factor", "%v is not supported in this architecture: all of a head is rotated", part)
		return p
	}
	p.Dim = int(float64(m.HeadDim) * part)
	if kind == "proportional" {
		p.Dim = m.HeadDim
		p.Turned = int(math.Floor(part * float64(m.HeadDim) / 2))
	} else {
		p.Turned = p.Dim / 2
	}
	if p.Dim < 2 || p.Dim%2 != 0 || p.Turned == 0 {
		in.Fail("partial_rotary_factor", "%v of a head of %d are %d values, not some number of pairs", part, m.HeadDim, int(float64(m.HeadDim)*part))
		return p
	}
	// The first configs of Phi-3 name LongRoPE otherwise.
	if kind == "su" || kind == "yarn" && s.Has("short_factor") {
		kind = "longrope"
	}
	original := func() {
		// Where the whole config has it, too, that one is meant.
		at := holder("original_max_position_embeddings")
		if len(others) > 0 && others[0].Has("original_max_position_embeddings") {
			at = others[0]
		}
		p.Original = at.SizeOr("original_max_position_embeddings", m.Original)
		if p.Original == 0 {
			p.Original = m.MaxPosition
		}
	}
	switch kind {
	case "default":
	case "dynamic":
		// It changes nothing up to max_position_embeddings, and longer a context does not get: every
		// further token would change the frequencies of all before it.
		s.Positive("factor")
	case "linear":
		p.Scaling, p.Factor = Linear, s.Positive("factor")
	case "proportional":
		p.Scaling, p.Factor = Linear, s.PositiveOr("factor", 1)
	case "llama3":
		p.Scaling, p.Factor = Llama3, s.Positive("factor")
		p.LowFactor, p.HighFactor = s.Positive("low_freq_factor"), s.Positive("high_freq_factor")
		original()
		if p.LowFactor >= p.HighFactor {
			s.Fail("low_freq_factor", "%v is not below high_freq_factor %v", p.LowFactor, p.HighFactor)
		}
	case "yarn":
		p.Scaling = YaRN
		original()
		p.yarn(s, m)
	case "longrope":
		p.Scaling = LongRoPE
		original()
		p.longRoPE(s, m)
	default:
		s.Fail(kindKey, "%q is not supported (default, linear, dynamic, llama3, yarn, longrope and proportional are)", kind)
	}
	return p
}

func (p *Params) yarn(s *config.Reader, m Model) {
	if !s.Has("factor") && p.Original < m.MaxPosition {
		p.Factor = float64(m.MaxPosition) / float64(p.Original)
	} else {
		p.Factor = s.Positive("factor")
	}
	p.BetaFast, p.BetaSlow = orDefault(s.NumberOr("beta_fast", 0), 32), orDefault(s.NumberOr("beta_slow", 0), 1)
	p.Truncate = s.BoolOr("truncate", true)
	// The two weights count together or not at all.
	above, below := s.NumberOr("mscale", 0), s.NumberOr("mscale_all_dim", 0)
	if above == 0 || below == 0 {
		above, below = 1, 0
	}
	p.Scale = s.PositiveOr("attention_factor", yarnScale(p.Factor, above)/yarnScale(p.Factor, below))
	switch {
	case s.Err() != nil:
	case p.BetaSlow < 0 || p.BetaFast < p.BetaSlow:
		s.Fail("beta_fast", "%v is below beta_slow %v", p.BetaFast, p.BetaSlow)
	case p.Theta <= 1:
		s.Fail("rope_theta", "%v: yarn needs more than 1", p.Theta)
	case !(p.Scale > 0) || math.IsInf(p.Scale, 0):
		s.Fail("mscale", "%v and mscale_all_dim %v scale cosines by %v", above, below, p.Scale)
	}
}

func (p *Params) longRoPE(s *config.Reader, m Model) {
	for _, key := range []string{"short_mscale", "long_mscale"} {
		if s.Has(key) {
			s.Fail(key, "is not supported: attention_factor is")
		}
	}
	p.Short, p.Long = s.Positives("short_factor", p.Dim/2), s.Positives("long_factor", p.Dim/2)
	for _, list := range [][]float64{p.Short, p.Long} {
		for i, v := range list {
			list[i] = float64(float32(v)) // what the reference library and GGUF files keep
		}
	}
	factor := s.PositiveOr("factor", float64(m.MaxPosition)/float64(max(p.Original, 1)))
	if s.Has("attention_factor") {
		p.Scale = s.Positive("attention_factor")
	} else if factor > 1 && s.Err() == nil {
		if p.Original == 1 {
			s.Fail("original_max_position_embeddings", "1 is no context to stretch")
		}
		p.Scale = math.Sqrt(1 + math.Log(factor)/math.Log(float64(p.Original)))
	}
}

func orDefault(v, def float64) float64 {
	if v == 0 {
		return def
	}
	return v
}
