package checkpoint

import (
	"encoding/binary"
	"encoding/json/v2"
	"fmt"
	"math/bits"

	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/kernels/quant"
)

// gptq is the format of GPTQ's exporters. A module has
//
//	qweight  I32 [k/8, n]        eight codes of consecutive inputs a word, lowest bits first (8 bits: k/4)
//	qzeros   I32 [k/group, n/8]  zero points, packed along the outputs: less one in format 1 ("gptq"), as
//	                             they are in format 2 ("gptq_v2")
//	scales   float [k/group, n]
//	g_idx    I32 [k]             the group of each input; may be missing without activation order
//
// w = scale * (code - zero). Format 1 stores the zero point 0 as all ones, which wraps around here, as
// it does in most readers.
//
// In a symmetric checkpoint the zero point is the middle code whatever is stored: checkpoints exist that
// are labelled as one format and hold the other's zero points. Such a contradiction is a warning.
type gptq struct {
	method string // quant_method
	format string // "gptq" or "gptq_v2"
	module moduleConfig
	rules  []moduleRule
}

// parseGPTQ reads quantization_config, or quantize_config.json, which has the same members.
func parseGPTQ(raw []byte) (quantFormat, error) {
	var cfg struct {
		moduleMembers
		CheckpointFormat *string `json:"checkpoint_format"`
		Format           *string `json:"format"`
		WordType         *string `json:"pack_dtype"`
		Marlin           bool    `json:"is_marlin_format"`
	}
	if err := json.Unmarshal(raw, &cfg); err != nil {
		return nil, err
	}
	q := &gptq{method: "gptq", format: "gptq"}
	for _, f := range []*string{cfg.Format, cfg.CheckpointFormat} {
		if f != nil {
			q.format = *f
		}
	}
	switch {
	case q.format != "gptq" && q.format != "gptq_v2":
		return nil, fmt.Errorf("checkpoint_format: %q is not supported (gptq and gptq_v2 are)", q.format)
	case cfg.Marlin:
		return nil, fmt.Errorf("is_marlin_format: Marlin's layout is not supported")
	case cfg.WordType != nil && *cfg.WordType != "int32":
		return nil, fmt.Errorf("pack_dtype: %q is not supported (int32 is)", *cfg.WordType)
	}
	var err error
	if q.module, err = cfg.whole(); err != nil {
		return nil, err
	}
	q.rules, err = parseDynamic(raw)
	return q, err
}

func (q *gptq) has(c *Checkpoint, module string) bool { return c.tensors[module+".qweight"] != nil }

func (q *gptq) missing(module string) string {
	return fmt.Sprintf("%s.qweight (or %s.weight)", module, module)
}

func (q *gptq) weight(c *Checkpoint, module string, n, k int) (weight, error) {
	stored := c.tensors[module+".qweight"]
	f, err := q.module.of(module, q.rules)
	if err != nil {
		return weight{}, stored.errorf("%w", err)
	}
	per := 32 / f.bits
	if k%per != 0 || stored.kind.name != "I32" || !stored.is(k/per, n) {
		return weight{}, stored.errorf("should be I32 [%d %d], which holds %d x %d codes of %d bits", k/per, n, n, k, f.bits)
	}
	w, zeros, err := c.columnWeight(stored, module, f, n, k)
	if err != nil {
		return weight{}, err
	}
	subtract, err := q.checkZeros(c, zeros, f)
	if err != nil {
		return weight{}, err
	}
	if err := q.order(c, &w, module, f); err != nil {
		return weight{}, err
	}
	middle, mask := uint8(1)<<(f.bits-1), uint8(1<<f.bits-1)
	groups, words := w.Groups(), n/per
	scales := w.fill
	w.fill = func(dst *kernels.Rows, at, row, n int) {
		scales(dst, at, row, n)
		quant.Columns(dst.Codes[at*k:(at+n)*k], k, f.bits, stored.data, stored.shape[1], row, n)
		reorder(dst.Codes[at*k:(at+n)*k], w.Perm)
		for i := range n {
			for g := range groups {
				zero := middle
				if !f.sym {
					zero = (quant.Code(zeros.data, g*words+(row+i)/per, (row+i)%per, f.bits) + subtract) & mask
				}
				dst.Zero[(at+i)*groups+g] = zero
			}
		}
	}
	return w, nil
}

// columnWeight begins a weight that GPTQ or AWQ stores: its scales, which fill reads, and qzeros.
func (c *Checkpoint) columnWeight(stored *tensor, module string, f moduleConfig, n, k int) (w weight, zeros *tensor, err error) {
	group := f.group
	if group == 0 {
		group = k
	}
	if k%group != 0 {
		return w, nil, stored.errorf("%d inputs are not whole groups of group_size %d", k, group)
	}
	groups, per := k/group, 32/f.bits
	scale, err := c.beside(module+".scales", stored)
	if err != nil {
		return w, nil, err
	}
	if !scale.kind.float || !scale.is(groups, n) {
		return w, nil, scale.errorf("should be F32, F16 or BF16 [%d %d], for groups of %d", groups, n, group)
	}
	if zeros, err = c.beside(module+".qzeros", stored); err != nil {
		return w, nil, err
	}
	if n%per != 0 {
		return w, nil, zeros.errorf("%d outputs are not whole words of %d zero points", n, per)
	}
	if zeros.kind.name != "I32" || !zeros.is(groups, n/per) {
		return w, nil, zeros.errorf("should be I32 [%d %d], for groups of %d", groups, n/per, group)
	}
	w.tensors = []*tensor{stored, scale, zeros}
	w.Matrix = kernels.Matrix{Name: stored.name, N: n, K: k, Bits: f.bits, Group: group, Symmetric: f.sym, ScaleType: scale.kind.dtype}
	w.fill = func(dst *kernels.Rows, at, row, n int) {
		column := make([]float32, n)
		for g := range groups {
			from := (g*scale.shape[1] + row) * scale.kind.size
			quant.Floats(column, scale.kind.dtype, scale.data[from:from+n*scale.kind.size])
			for i, s := range column {
				dst.Scale[(at+i)*groups+g] = s
			}
		}
	}
	return w, zeros, nil
}

// checkZeros compares the zero points with what config.json says of them, and returns what is to be
// added to those of an asymmetric weight.
func (q *gptq) checkZeros(c *Checkpoint, zeros *tensor, f moduleConfig) (add uint8, err error) {
	middle := uint8(1) << (f.bits - 1)
	symmetric, other := middle, middle-1 // what a symmetric weight stores in this format, and in the other
	if q.format == "gptq" {
		symmetric, other, add = other, symmetric, 1
	}
	var low, high uint8
	err = c.reading(func() error {
		low, high = extremes(zeros.data, f.bits)
		return nil
	}, zeros.file)
	if err != nil {
		return 0, err
	}
	if f.sym && low != high {
		return 0, zeros.errorf("sym is true, but zero points from %d to %d are stored", low, high)
	}
	label := fmt.Sprintf("checkpoint_format %s", q.format)
	if q.method != "gptq" {
		label = fmt.Sprintf("quant_method %s", q.method)
	}
	switch {
	case f.sym && low != symmetric:
		c.warn(zeros, "zero points are stored as %d, %s and sym stand for %d: read as symmetric, zero point %d", low, label, symmetric, middle)
	case !f.sym && low == high && low == other:
		c.warn(zeros, "zero points are all stored as %d, %s makes that %d: perhaps the label is wrong", low, label, low+add)
	}
	return add, nil
}

// extremes are the lowest and the highest of packed codes.
func extremes(words []byte, width int) (low, high uint8) {
	low = 1<<width - 1
	last, first := uint32(0), true
	for i := 0; i+4 <= len(words); i += 4 {
		x := binary.LittleEndian.Uint32(words[i:])
		if x == last && !first {
			continue
		}
		last, first = x, false
		for range 32 / width {
			code := uint8(x) & (1<<width - 1)
			low, high = min(low, code), max(high, code)
			x = bits.RotateLeft32(x, -width)
		}
	}
	return low, high
}

// order reads g_idx. What it says holds whether desc_act is set or not: the codes were made with it.
func (q *gptq) order(c *Checkpoint, w *weight, module string, f moduleConfig) (err error) {
	t := c.tensors[module+".g_idx"]
	if t == nil {
		if f.order {
			_, err = c.beside(module+".g_idx", w.tensors[0])
		}
		return err
	}
	if w.Perm, err = c.groupOrder(t, w.K, w.Group); err != nil {
		return err
	}
	if w.Perm != nil && !f.order {
		c.warn(t, "holds an activation order although desc_act is false: it is followed")
	}
	w.tensors = append(w.tensors, t)
	return nil
}
