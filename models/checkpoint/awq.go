package checkpoint

import (
	"encoding/json/v2"
	"fmt"
	"strings"

	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/kernels/quant"
)

// awq is the format of AWQ's exporters, version gemm. A module has
//
//	qweight  I32 [k, n/8]        codes of outputs 8i + 0, 2, 4, 6, 1, 3, 5, 7 a word, lowest bits first
//	qzeros   I32 [k/group, n/8]  zero points in the same order
//	scales   float [k/group, n]
//
// w = scale * (code - zero).
type awq struct {
	module moduleConfig
	rules  []moduleRule
	skip   []string // modules that are not quantised, by their names or the ends or middles of these
}

// parseAWQ reads quantization_config, or quant_config.json, where members have longer names.
func parseAWQ(raw []byte) (quantFormat, error) {
	var cfg struct {
		moduleMembers
		Width     *int     `json:"w_bit"`
		GroupSize *int     `json:"q_group_size"`
		Version   *string  `json:"version"`
		Format    *string  `json:"format"`
		Backend   *string  `json:"backend"`
		ZeroPoint *bool    `json:"zero_point"`
		Skip      []string `json:"modules_to_not_convert"`
	}
	if err := json.Unmarshal(raw, &cfg); err != nil {
		return nil, err
	}
	if cfg.Bits == nil {
		cfg.Bits = cfg.Width
	}
	if cfg.Group == nil {
		cfg.Group = cfg.GroupSize
	}
	for name, v := range map[string]*string{"version": cfg.Version, "format": cfg.Format} {
		if v != nil && !strings.EqualFold(*v, "gemm") {
			return nil, fmt.Errorf("%s: %q is not supported (gemm is)", name, *v)
		}
	}
	if cfg.Backend != nil && *cfg.Backend == "llm-awq" {
		return nil, fmt.Errorf("backend: the layout of %q is not supported (autoawq's is)", *cfg.Backend)
	}
	if cfg.ZeroPoint != nil && !*cfg.ZeroPoint {
		return nil, fmt.Errorf("zero_point: false is not supported: version gemm has zero points")
	}
	q := &awq{skip: cfg.Skip}
	var err error
	q.module, err = cfg.whole()
	return q, err
}

func (q *awq) has(c *Checkpoint, module string) bool { return c.tensors[module+".qweight"] != nil }

func (q *awq) missing(module string) string {
	return fmt.Sprintf("%s.qweight (or %s.weight)", module, module)
}

// skips says whether a module is listed. An entry stands for whole parts of a name: one for the router
// of experts, "mlp.gate", is none for mlp.gate_proj.
func (q *awq) skips(module string) (string, bool) {
	for _, s := range q.skip {
		if s != "" && strings.Contains("."+module+".", "."+strings.Trim(s, ".")+".") {
			return s, true
		}
	}
	return "", false
}

func (q *awq) weight(c *Checkpoint, module string, n, k int) (weight, error) {
	stored := c.tensors[module+".qweight"]
	if entry, ok := q.skips(module); ok {
		return weight{}, stored.errorf("quantization_config.modules_to_not_convert lists %s, but it is quantised", entry)
	}
	f, err := q.module.of(module, q.rules)
	if err == nil && f.bits != 4 {
		err = fmt.Errorf("bits: AWQ has %d-bit weights, only 4 are supported", f.bits)
	}
	if err != nil {
		return weight{}, stored.errorf("%w", err)
	}
	if n%8 != 0 || stored.kind.name != "I32" || !stored.is(k, n/8) {
		return weight{}, stored.errorf("should be I32 [%d %d], which holds %d x %d codes of 4 bits", k, n/8, n, k)
	}
	w, zeros, err := c.columnWeight(stored, module, f, n, k)
	if err != nil {
		return weight{}, err
	}
	if f.sym {
		var low, high uint8
		err := c.reading(func() error {
			low, high = extremes(zeros.data, 4)
			return nil
		}, zeros.file)
		if err == nil && (low != 8 || high != 8) {
			err = zeros.errorf("sym is true, but zero points from %d to %d are stored", low, high)
		}
		if err != nil {
			return weight{}, err
		}
	}
	groups, words := w.Groups(), n/8
	scales := w.fill
	w.fill = func(dst *kernels.Rows, at, row, n int) {
		scales(dst, at, row, n)
		quant.AWQColumns(dst.Codes[at*k:(at+n)*k], k, stored.data, words, row, n)
		for i := range n {
			for g := range groups {
				dst.Zero[(at+i)*groups+g] = quant.Code(zeros.data, g*words+(row+i)/8, quant.AWQPlace((row+i)%8), 4)
			}
		}
	}
	return w, nil
}
