package checkpoint

import (
	"encoding/binary"
	"fmt"

	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/kernels/quant"
)

func (q *compressedTensors) has(c *Checkpoint, module string) bool {
	if c.tensors[module+".weight_packed"] != nil {
		return true
	}
	w := c.tensors[module+".weight"]
	return w != nil && w.kind.name == "I8"
}

func (q *compressedTensors) missing(module string) string {
	return fmt.Sprintf("%s.weight_packed (or %s.weight)", module, module)
}

// weight reads a module that has weight_packed or weight of type I8.
func (q *compressedTensors) weight(c *Checkpoint, module string, n, k int) (weight, error) {
	stored := c.tensors[module+".weight_packed"]
	if stored == nil {
		stored = c.tensors[module+".weight"]
	}
	g, err := q.group(module)
	if err != nil {
		return weight{}, stored.errorf("%w", err)
	}
	packed := g.format == packFormat
	if packed != (stored.name == module+".weight_packed") {
		return weight{}, stored.errorf("config_groups.%s has format %s, which has no tensor of this name and type", g.name, g.format)
	}
	group := g.group
	if group == 0 {
		group = k
	}
	if k%group != 0 {
		return weight{}, stored.errorf("%d inputs are not whole groups of config_groups.%s.weights.group_size %d", k, g.name, group)
	}
	w := weight{tensors: []*tensor{stored}, Matrix: kernels.Matrix{Name: stored.name, N: n, K: k, Bits: 8, Group: group, Symmetric: !g.asym}}
	var codes func(dst []uint8, row, n int)
	if packed {
		w.Bits = g.bits
		codes, err = c.packedCodes(&w, module, stored)
	} else if codes = signedCodes(stored, k); stored.kind.name != "I8" || !stored.is(n, k) {
		err = stored.errorf("should be I8 [%d %d]", n, k)
	}
	if err != nil {
		return weight{}, err
	}
	scales, err := c.ctScales(&w, module, g)
	if err != nil {
		return weight{}, err
	}
	zeros, err := c.ctZeros(&w, module, g)
	if err != nil {
		return weight{}, err
	}
	if err := c.ctOrder(&w, module, g); err != nil {
		return weight{}, err
	}
	groups := w.Groups()
	w.fill = func(dst *kernels.Rows, at, row, n int) {
		codes(dst.Codes[at*k:(at+n)*k], row, n)
		reorder(dst.Codes[at*k:(at+n)*k], w.Perm)
		scales(dst.Scale[at*groups:(at+n)*groups], row, n)
		zeros(dst.Zero[at*groups:(at+n)*groups], row, n)
	}
	return w, nil
}

// beside returns a tensor that another one of the module needs.
func (c *Checkpoint) beside(name string, of *tensor) (*tensor, error) {
	t := c.tensors[name]
	if t == nil {
		return nil, fmt.Errorf("%s: tensor %s is missing, which %s needs", c.path, name, of.name)
	}
	return t, nil
}

// packedCodes reads weight_packed, whose shape it checks against weight_shape.
func (c *Checkpoint) packedCodes(w *weight, module string, packed *tensor) (func([]uint8, int, int), error) {
	n, k, bits := w.N, w.K, w.Bits
	perWord := 32 / bits
	words := (k + perWord - 1) / perWord
	if packed.kind.name != "I32" || !packed.is(n, words) {
		return nil, packed.errorf("should be I32 [%d %d], which holds %d x %d codes of %d bits", n, words, n, k, bits)
	}
	shape, err := c.beside(module+".weight_shape", packed)
	if err != nil {
		return nil, err
	}
	if shape.kind.name != "I64" || !shape.is(2) {
		return nil, shape.errorf("should be I64 [2]")
	}
	var rows, cols uint64
	err = c.reading(func() error {
		rows, cols = binary.LittleEndian.Uint64(shape.data), binary.LittleEndian.Uint64(shape.data[8:])
		return nil
	}, shape.file)
	if err != nil {
		return nil, err
	}
	if rows != uint64(n) || cols != uint64(k) {
		return nil, shape.errorf("holds %d, %d, but %s should be %d x %d", rows, cols, packed.name, n, k)
	}
	w.tensors = append(w.tensors, shape)
	return func(dst []uint8, row, n int) {
		if k%perWord == 0 {
			quant.Packed(dst, bits, packed.data[row*words*4:(row+n)*words*4])
			return
		}
		for i := range n { // a row's last word has codes of no input
			quant.Packed(dst[i*k:(i+1)*k], bits, packed.data[(row+i)*words*4:(row+i+1)*words*4])
		}
	}, nil
}

// signedCodes reads a weight of type I8: its values + 128 are codes of 8 bits.
func signedCodes(t *tensor, k int) func([]uint8, int, int) {
	return func(dst []uint8, row, n int) { quant.Signed(dst, t.data[row*k:(row+n)*k]) }
}

// ctScales reads weight_scale.
func (c *Checkpoint) ctScales(w *weight, module string, g ctGroup) (func([]float32, int, int), error) {
	scale, err := c.beside(module+".weight_scale", w.tensors[0])
	if err != nil {
		return nil, err
	}
	if !scale.kind.float {
		return nil, scale.errorf("should be F32, F16 or BF16")
	}
	groups := w.Groups()
	if err := g.checkShape(scale, w.N, groups); err != nil {
		return nil, err
	}
	w.tensors, w.ScaleType = append(w.tensors, scale), scale.kind.dtype
	return func(dst []float32, row, n int) {
		if g.onlyOne {
			quant.Floats(dst[:min(1, len(dst))], scale.kind.dtype, scale.data)
			for i := range dst {
				dst[i] = dst[0]
			}
			return
		}
		size := groups * scale.kind.size
		quant.Floats(dst, scale.kind.dtype, scale.data[row*size:(row+n)*size])
	}, nil
}

// checkShape wants a tensor of one value for each group of each of n outputs.
func (g ctGroup) checkShape(t *tensor, n, groups int) error {
	switch {
	case g.onlyOne && !t.is(1) && !t.is():
		return t.errorf("should have the shape [1]")
	case !g.onlyOne && !t.is(n, groups) && (groups > 1 || !t.is(n)):
		return t.errorf("should have the shape [%d %d]", n, groups)
	}
	return nil
}

// ctZeros reads weight_zero_point. A symmetric weight has none, or one that says so.
func (c *Checkpoint) ctZeros(w *weight, module string, g ctGroup) (func([]uint8, int, int), error) {
	middle := uint8(1) << (w.Bits - 1)
	symmetric := func(dst []uint8, _, _ int) {
		for i := range dst {
			dst[i] = middle
		}
	}
	name := module + ".weight_zero_point"
	t := c.tensors[name]
	if t == nil {
		if g.asym {
			_, err := c.beside(name, w.tensors[0])
			return nil, err
		}
		return symmetric, nil
	}
	w.tensors = append(w.tensors, t)
	groups, perWord := w.Groups(), 32/w.Bits
	read := func(dst []uint8, row, n int) {
		for i := range dst {
			r, at := row+i/groups, i%groups
			dst[i] = quant.Code(t.data, r/perWord*groups+at, r%perWord, w.Bits)
		}
	}
	switch words := (w.N + perWord - 1) / perWord; {
	case t.kind.name == "I8":
		if err := g.checkShape(t, w.N, groups); err != nil {
			return nil, err
		}
		if err := c.within(t, -int(middle), int(middle)-1); err != nil {
			return nil, err
		}
		read = func(dst []uint8, row, n int) {
			for i := range dst {
				at := row*groups + i
				if g.onlyOne {
					at = 0
				}
				dst[i] = t.data[at] + middle
			}
		}
	case g.format != packFormat || g.onlyOne:
		return nil, t.errorf("should be I8")
	case t.kind.name != "I32" || !t.is(words, groups):
		return nil, t.errorf("should be I32 [%d %d], which holds a zero point for each of %d groups of %d outputs", words, groups, groups, w.N)
	}
	if g.asym {
		return read, nil
	}
	zeros := make([]uint8, groups)
	err := c.reading(func() error {
		for row := range w.N {
			read(zeros, row, 1)
			for i, z := range zeros {
				if z != middle {
					return t.errorf("config_groups.%s says symmetric, but output %d, group %d has zero point %d",
						g.name, row, i, int(z)-int(middle))
				}
			}
		}
		return nil
	}, t.file)
	return symmetric, err
}

// within wants the values of a tensor of type I8 in a range.
func (c *Checkpoint) within(t *tensor, low, high int) error {
	return c.reading(func() error {
		for i, b := range t.data {
			if v := int(int8(b)); v < low || v > high {
				return t.errorf("value %d is %d: want %d to %d", i, v, low, high)
			}
		}
		return nil
	}, t.file)
}

// ctOrder reads weight_g_idx.
func (c *Checkpoint) ctOrder(w *weight, module string, g ctGroup) error {
	name := module + ".weight_g_idx"
	t := c.tensors[name]
	if t == nil {
		if g.order {
			_, err := c.beside(name, w.tensors[0])
			return err
		}
		return nil
	}
	order, err := c.groupOrder(t, w.K, w.Group)
	if err != nil {
		return err
	}
	if order != nil && !g.order {
		return t.errorf("holds an activation order, but config_groups.%s.weights.actorder does not say so", g.name)
	}
	w.tensors, w.Perm = append(w.tensors, t), order
	return nil
}
