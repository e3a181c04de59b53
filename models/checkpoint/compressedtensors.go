package checkpoint

import (
	"bytes"
	"encoding/binary"
	"encoding/json/v2"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/dlclark/regexp2/v2"

	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/kernels/quant"
)

// packQuantized is compressed-tensors' format of that name with symmetric integers. A module has
//
//	weight_packed  I32 [n, ceil(k/8)]  eight codes a word, lowest bits first, code = value + 8
//	               (8 bits: I32 [n, ceil(k/4)], value + 128)
//	weight_scale   float [n, k/group], [n, 1] or [n] with one scale a row, [1] with one in all
//	weight_shape   I64 [2] holding n, k
//
// config_groups say what bits and group size a module has, by targets: module names, "re:" and a
// pattern that is matched from the start of the name, or the class of the module.
type packQuantized struct {
	groups []ctGroup
	ignore []target
}

type ctGroup struct {
	name    string
	targets []target
	bits    int
	group   int  // inputs of a scale; 0: all of the row
	onlyOne bool // one scale in all
}

// ctConfig is quantization_config as compressed-tensors writes it.
type ctConfig struct {
	Format    string                   `json:"format"`
	Groups    map[string]ctGroupConfig `json:"config_groups"`
	Ignore    []string                 `json:"ignore"`
	KVCache   any                      `json:"kv_cache_scheme"`
	Sparsity  map[string]any           `json:"sparsity_config"`
	Transform map[string]any           `json:"transform_config"`
}

type ctGroupConfig struct {
	Format  *string    `json:"format"`
	Targets []string   `json:"targets"`
	Weights *ctWeights `json:"weights"`
	Inputs  any        `json:"input_activations"`
	Outputs any        `json:"output_activations"`
}

type ctWeights struct {
	Bits      int     `json:"num_bits"`
	Type      *string `json:"type"`
	Symmetric *bool   `json:"symmetric"`
	GroupSize *int    `json:"group_size"`
	Strategy  *string `json:"strategy"`
	Block     any     `json:"block_structure"`
	Dynamic   any     `json:"dynamic"`
	Order     any     `json:"actorder"`
}

const packFormat = "pack-quantized"

// parseCompressedTensors reads the config and refuses by name what it does not know how to read.
func parseCompressedTensors(raw []byte) (quantFormat, error) {
	var cfg ctConfig
	if err := json.Unmarshal(raw, &cfg); err != nil {
		return nil, err
	}
	q := &packQuantized{}
	// mixed-precision leaves the format to the groups.
	if cfg.Format != packFormat && cfg.Format != "mixed-precision" {
		return nil, fmt.Errorf("format: %q is not supported (%s is)", cfg.Format, packFormat)
	}
	if cfg.KVCache != nil {
		return nil, fmt.Errorf("kv_cache_scheme: a quantised KV cache in the checkpoint is not supported")
	}
	if f, ok := cfg.Sparsity["format"]; ok && f != "dense" {
		return nil, fmt.Errorf("sparsity_config: format %v is not supported", f)
	}
	if groups, ok := cfg.Transform["config_groups"]; ok && groups != nil {
		return nil, fmt.Errorf("transform_config: transforms of weights are not supported")
	}
	if len(cfg.Groups) == 0 {
		return nil, fmt.Errorf("config_groups: is missing or empty")
	}
	for _, name := range slices.Sorted(maps.Keys(cfg.Groups)) {
		g, err := cfg.Groups[name].parse(cfg.Format)
		if err != nil {
			return nil, fmt.Errorf("config_groups.%s.%w", name, err)
		}
		g.name = name
		q.groups = append(q.groups, g)
	}
	var err error
	if q.ignore, err = parseTargets(cfg.Ignore); err != nil {
		return nil, fmt.Errorf("ignore: %w", err)
	}
	return q, nil
}

func (c ctGroupConfig) parse(outer string) (ctGroup, error) {
	var g ctGroup
	format := outer
	if c.Format != nil {
		format = *c.Format
	}
	if format != packFormat {
		return g, fmt.Errorf("format: %q is not supported (%s is)", format, packFormat)
	}
	if c.Inputs != nil || c.Outputs != nil {
		name := "input_activations"
		if c.Inputs == nil {
			name = "output_activations"
		}
		return g, fmt.Errorf("%s: quantised activations are not supported, only weights (W4A16)", name)
	}
	w := c.Weights
	if w == nil {
		return g, fmt.Errorf("weights: is missing")
	}
	strategy := "channel"
	if w.GroupSize != nil && *w.GroupSize > 0 {
		strategy = "group"
	}
	if w.Strategy != nil {
		strategy = *w.Strategy
	}
	switch {
	case w.Bits != 4 && w.Bits != 8:
		return g, fmt.Errorf("weights.num_bits: %d-bit weights are not supported, only 4 and 8", w.Bits)
	case w.Type != nil && *w.Type != "int":
		return g, fmt.Errorf("weights.type: %q is not supported (int is)", *w.Type)
	case w.Symmetric != nil && !*w.Symmetric:
		return g, fmt.Errorf("weights.symmetric: asymmetric weights are not supported yet")
	case w.Dynamic != nil && w.Dynamic != false:
		return g, fmt.Errorf("weights.dynamic: %v is not supported", w.Dynamic)
	case w.Block != nil:
		return g, fmt.Errorf("weights.block_structure: %v is not supported", w.Block)
	// With "weight" (once "static") columns were quantised in another order but lie, and
	// share scales, in their own: nothing is left of it in the checkpoint.
	case w.Order != nil && w.Order != false && w.Order != "weight" && w.Order != "static":
		return g, fmt.Errorf("weights.actorder: %v is not supported yet", w.Order)
	}
	switch strategy {
	case "group":
		if w.GroupSize == nil || *w.GroupSize <= 0 {
			return g, fmt.Errorf("weights.group_size: is missing with strategy group")
		}
		g.group = *w.GroupSize
	case "channel":
	case "tensor":
		g.onlyOne = true
	default:
		return g, fmt.Errorf("weights.strategy: %q is not supported (group, channel and tensor are)", strategy)
	}
	g.bits = w.Bits
	var err error
	if g.targets, err = parseTargets(c.Targets); err != nil {
		return g, fmt.Errorf("targets: %w", err)
	}
	return g, nil
}

// target is an entry of targets or ignore.
type target struct {
	text    string
	pattern *regexp2.Regexp // of "re:"
}

// maxPattern bounds a pattern: the matcher's compiler recurses into it.
const maxPattern = 4096

// parseTargets compiles patterns. They are Python's: lookaround occurs, so a backtracking matcher
// with a time limit runs them.
func parseTargets(list []string) ([]target, error) {
	targets := make([]target, len(list))
	for i, s := range list {
		targets[i].text = s
		expr, ok := strings.CutPrefix(s, "re:")
		if !ok {
			continue
		}
		if len(expr) > maxPattern {
			return nil, fmt.Errorf("%.40q...: a pattern of %d bytes, at most %d are allowed", s, len(expr), maxPattern)
		}
		p, err := regexp2.Compile(`\A(?:`+expr+`)`, regexp2.None)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", s, err)
		}
		p.MatchTimeout = 100 * time.Millisecond
		targets[i].pattern = p
	}
	return targets, nil
}

// Ranks of a match, the better the higher.
const (
	noMatch = iota
	classMatch
	patternMatch
	nameMatch
)

// match says how well the best of targets fits a module.
func match(targets []target, module string) (int, error) {
	class := "Linear"
	if strings.HasSuffix(module, "embed_tokens") {
		class = "Embedding"
	}
	best := noMatch
	for _, t := range targets {
		rank := noMatch
		switch {
		case t.pattern != nil:
			ok, err := t.pattern.MatchString(module)
			if err != nil {
				return 0, fmt.Errorf("%q against %s: %w", t.text, module, err)
			}
			if ok {
				rank = patternMatch
			}
		case t.text == module:
			rank = nameMatch
		case t.text == class:
			rank = classMatch
		}
		best = max(best, rank)
	}
	return best, nil
}

// group finds the group of a module: the one whose target fits best.
func (q *packQuantized) group(module string) (ctGroup, error) {
	ignored, err := match(q.ignore, module)
	if err != nil {
		return ctGroup{}, fmt.Errorf("quantization_config.ignore: %w", err)
	}
	if ignored != noMatch {
		return ctGroup{}, fmt.Errorf("quantization_config.ignore lists %s, but it is quantised", module)
	}
	var found ctGroup
	best := noMatch
	for _, g := range q.groups {
		rank, err := match(g.targets, module)
		if err != nil {
			return ctGroup{}, fmt.Errorf("quantization_config.config_groups.%s.targets: %w", g.name, err)
		}
		if rank > best {
			best, found = rank, g
		}
	}
	if best == noMatch {
		return ctGroup{}, fmt.Errorf("no target of quantization_config.config_groups fits %s", module)
	}
	return found, nil
}

func (q *packQuantized) has(c *Checkpoint, module string) bool {
	return c.tensors[module+".weight_packed"] != nil
}

func (q *packQuantized) missing(module string) string {
	return fmt.Sprintf("%s.weight_packed (or %s.weight)", module, module)
}

func (q *packQuantized) weight(c *Checkpoint, module string, n, k int) (weight, error) {
	packed := c.tensors[module+".weight_packed"]
	g, err := q.group(module)
	if err != nil {
		return weight{}, packed.errorf("%w", err)
	}
	for suffix, why := range map[string]string{
		".weight_zero_point": "asymmetric weights are not supported yet, and the config says symmetric",
		".weight_g_idx":      "activation order is not supported yet",
	} {
		if t := c.tensors[module+suffix]; t != nil {
			return weight{}, t.errorf("%s", why)
		}
	}
	perWord := 32 / g.bits
	words := (k + perWord - 1) / perWord
	if packed.kind.name != "I32" || !packed.is(n, words) {
		return weight{}, packed.errorf("should be I32 [%d %d], which holds %d x %d codes of %d bits", n, words, n, k, g.bits)
	}
	group := g.group
	if group == 0 {
		group = k
	}
	if k%group != 0 {
		return weight{}, packed.errorf("%d inputs are not whole groups of config_groups.%s.weights.group_size %d", k, g.name, group)
	}
	groups := k / group
	scale, shape := c.tensors[module+".weight_scale"], c.tensors[module+".weight_shape"]
	switch {
	case scale == nil || shape == nil:
		missing := module + ".weight_scale"
		if scale != nil {
			missing = module + ".weight_shape"
		}
		return weight{}, fmt.Errorf("%s: tensor %s is missing, which %s needs", c.path, missing, packed.name)
	case !scale.kind.float:
		return weight{}, scale.errorf("should be F32, F16 or BF16")
	case g.onlyOne && !scale.is(1) && !scale.is():
		return weight{}, scale.errorf("should have the shape [1]")
	case !g.onlyOne && !scale.is(n, groups) && (groups > 1 || !scale.is(n)):
		return weight{}, scale.errorf("should have the shape [%d %d]", n, groups)
	case shape.kind.name != "I64" || !shape.is(2):
		return weight{}, shape.errorf("should be I64 [2]")
	}
	var rows, cols uint64
	err = c.reading(func() error {
		rows, cols = binary.LittleEndian.Uint64(shape.data), binary.LittleEndian.Uint64(shape.data[8:])
		return nil
	}, shape.file)
	if err != nil {
		return weight{}, err
	}
	if rows != uint64(n) || cols != uint64(k) {
		return weight{}, shape.errorf("holds %d, %d, but %s should be %d x %d", rows, cols, packed.name, n, k)
	}
	w := weight{
		tensors: []*tensor{packed, scale, shape},
		Matrix:  kernels.Matrix{Name: packed.name, N: n, K: k, Bits: g.bits, Group: group, ScaleType: scale.kind.dtype},
	}
	zero := bytes.Repeat([]byte{1 << (g.bits - 1)}, max(groups, 1))
	w.fill = func(dst *kernels.Rows, at, row, n int) {
		if k%perWord == 0 {
			quant.Packed(dst.Codes[at*k:(at+n)*k], g.bits, packed.data[row*words*4:(row+n)*words*4])
		} else {
			for i := range n { // a row's last word has codes of no input
				quant.Packed(dst.Codes[(at+i)*k:(at+i+1)*k], g.bits, packed.data[(row+i)*words*4:(row+i+1)*words*4])
			}
		}
		scales := dst.Scale[at*groups : (at+n)*groups]
		if g.onlyOne && len(scales) > 0 {
			quant.Floats(scales[:1], scale.kind.dtype, scale.data)
			for i := range scales {
				scales[i] = scales[0]
			}
		} else {
			size := groups * scale.kind.size
			quant.Floats(scales, scale.kind.dtype, scale.data[row*size:(row+n)*size])
		}
		for i := range n {
			copy(dst.Zero[(at+i)*groups:], zero)
		}
	}
	return w, nil
}
