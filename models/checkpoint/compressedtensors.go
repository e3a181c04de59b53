package checkpoint

import (
	"encoding/json/v2"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/dlclark/regexp2/v2"
)

// compressedTensors are the formats of that library that quantise weights alone, to integers. A
// module has
//
//	weight_packed      I32 [n, ceil(k/8)]  pack-quantized: eight codes a word, lowest bits first,
//	                   code = value + 8 (8 bits: I32 [n, ceil(k/4)], value + 128)
//	weight_shape       I64 [2] holding n, k, beside weight_packed
//	weight             I8 [n, k]           naive-quantized and int-quantized: values
//	weight_scale       float [n, k/group], [n, 1] or [n] with one scale a row, [1] with one in all
//	weight_zero_point  asymmetric weights: I32 [ceil(n/8), k/group], packed as weights are, but along the
//	                   outputs; or I8 of the scales' shape: values
//	weight_g_idx       I32 [k], the group of each input: activation order
//
// config_groups say what bits and group size a module has, by targets: module names, "re:" and a
// pattern that is matched from the start of the name, or the class of the module.
// Reading weights is ctweight.go's.
type compressedTensors struct {
	groups []ctGroup
	ignore []target
}

type ctGroup struct {
	name    string
	targets []target
	format  string
	bits    int
	group   int  // inputs of a scale; 0: all of the row
	onlyOne bool // one scale in all
	asym    bool
	order   bool // groups by weight_g_idx
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

// ctFormats are those that are read. int-quantized differs from naive-quantized in name alone, as
// activations stay float in both.
var ctFormats = []string{packFormat, "naive-quantized", "int-quantized"}

func checkCTFormat(format string) error {
	if !slices.Contains(ctFormats, format) {
		return fmt.Errorf("format: %q is not supported (%s are)", format, strings.Join(ctFormats, ", "))
	}
	return nil
}

// parseCompressedTensors reads the config and refuses by name what it does not know how to read.
func parseCompressedTensors(raw []byte) (quantFormat, error) {
	var cfg ctConfig
	if err := json.Unmarshal(raw, &cfg); err != nil {
		return nil, err
	}
	q := &compressedTensors{}
	// mixed-precision leaves the format to the groups.
	if err := checkCTFormat(cfg.Format); err != nil && cfg.Format != "mixed-precision" {
		return nil, err
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
	g.format = outer
	if c.Format != nil {
		g.format = *c.Format
	}
	if err := checkCTFormat(g.format); err != nil {
		return g, err
	}
	if c.Inputs != nil || c.Outputs != nil {
		name := "input_activations"
		if c.Inputs == nil {
			name = "output_activations"
		}
		return g, fmt.Errorf("%s: quantised activations are not supported, only weights (W4A16, W8A16)", name)
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
	case w.Dynamic != nil && w.Dynamic != false:
		return g, fmt.Errorf("weights.dynamic: %v is not supported", w.Dynamic)
	case w.Block != nil:
		return g, fmt.Errorf("weights.block_structure: %v is not supported", w.Block)
	}
	switch w.Order {
	// With "weight" (or "static") columns were quantised in another order but lie, and
	// share scales, in their own: nothing is left of it in the checkpoint.
	case nil, false, "weight", "static":
	case true, "group", "dynamic":
		g.order = true
	default:
		return g, fmt.Errorf("weights.actorder: %v is not supported (group and weight are)", w.Order)
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
	if g.order && strategy != "group" {
		return g, fmt.Errorf("weights.actorder: %v needs strategy group, not %s", w.Order, strategy)
	}
	g.bits, g.asym = w.Bits, w.Symmetric != nil && !*w.Symmetric
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

var errNoTarget = errors.New("no target of quantization_config.config_groups fits")

// group finds the group of a module: the one whose target fits best.
func (q *compressedTensors) group(module string) (ctGroup, error) {
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
		return ctGroup{}, fmt.Errorf("%w %s", errNoTarget, module)
	}
	return found, nil
}
