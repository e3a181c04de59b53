package checkpoint

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// ctLayer is a module as compressed-tensors stores it: signed values and zero points.
type ctLayer struct {
	n, k, bits, group int // group k with strategy tensor: one scale in all
	strategy          string
	q, zeros          []int // [n, k]; [n, k/group] or [1]
	scales            []float32
	groupOf           []int
}

func newCTLayer(r *rand.Rand, n, k, bits, group int, strategy string, shuffled bool) *ctLayer {
	l := &ctLayer{n: n, k: k, bits: bits, group: group, strategy: strategy}
	value := func() int { return r.IntN(1<<bits) - 1<<(bits-1) }
	for range n * k {
		l.q = append(l.q, value())
	}
	count := n * k / group
	if strategy == "tensor" {
		count = 1
	}
	for range count {
		l.zeros = append(l.zeros, value())
		l.scales = append(l.scales, float32(r.IntN(200)-100)/64)
	}
	for i := range k {
		l.groupOf = append(l.groupOf, i/group)
	}
	if shuffled {
		r.Shuffle(k, func(i, j int) { l.groupOf[i], l.groupOf[j] = l.groupOf[j], l.groupOf[i] })
	}
	return l
}

func (l *ctLayer) values(asym bool) (v []float32) {
	for i, q := range l.q {
		g := i/l.k*(l.k/l.group) + l.groupOf[i%l.k]
		if l.strategy == "tensor" {
			g = 0
		}
		zero := 0
		if asym {
			zero = l.zeros[g]
		}
		v = append(v, l.scales[g]*float32(q-zero))
	}
	return v
}

// shape is that of scales.
func (l *ctLayer) shape() []int {
	if l.strategy == "tensor" {
		return []int{1}
	}
	return []int{l.n, l.k / l.group}
}

// stored packs the module by the format's definition, one value at a time; zeros says how zero points are stored:
// "" not at all, "packed" or "I8".
func (l *ctLayer) stored(packed bool, zeros string, order bool) []storedTensor {
	per, half := 32/l.bits, 1<<(l.bits-1)
	scales := storedTensor{"a.weight_scale", "F32", l.shape(), f32s(l.scales...)}
	var list []storedTensor
	if packed {
		width := (l.k + per - 1) / per
		w := make([]uint32, l.n*width)
		for i, q := range l.q {
			w[i/l.k*width+i%l.k/per] |= uint32(q+half) << (l.bits * (i % l.k % per))
		}
		list = []storedTensor{{"a.weight_packed", "I32", []int{l.n, width}, words(w)}, scales,
			{"a.weight_shape", "I64", []int{2}, append(u64(uint64(l.n)), u64(uint64(l.k))...)}}
	} else {
		list = []storedTensor{{"a.weight", "I8", []int{l.n, l.k}, bytesOf(l.q)}, scales}
	}
	switch groups := l.k / l.group; zeros {
	case "packed":
		height := (l.n + per - 1) / per
		w := make([]uint32, height*groups)
		for i, z := range l.zeros {
			w[i/groups/per*groups+i%groups] |= uint32(z+half) << (l.bits * (i / groups % per))
		}
		list = append(list, storedTensor{"a.weight_zero_point", "I32", []int{height, groups}, words(w)})
	case "I8":
		list = append(list, storedTensor{"a.weight_zero_point", "I8", l.shape(), bytesOf(l.zeros)})
	}
	if order {
		var b []byte
		for _, g := range l.groupOf {
			b = binary.LittleEndian.AppendUint32(b, uint32(g))
		}
		list = append(list, storedTensor{"a.weight_g_idx", "I32", []int{l.k}, b})
	}
	return list
}

func bytesOf(v []int) (b []byte) {
	for _, x := range v {
		b = append(b, byte(x))
	}
	return b
}

// ctConfigJSON is a config.json for l.
func (l *ctLayer) config(format, more string) []byte {
	size := "null"
	if l.strategy == "group" {
		size = itoa(l.group)
	}
	return quantJSON(`"quant_method":"compressed-tensors","format":%q,"config_groups":{"group_0":{"targets":["Linear"],
		"weights":{"num_bits":%d,"type":"int","strategy":%q,"group_size":%s%s}}}`, format, l.bits, l.strategy, size, more)
}

const (
	asymmetric = `,"symmetric":false`
	symmetric  = `,"symmetric":true`
	ordered    = `,"actorder":"group"`
)

func TestZeroPointsOrderAndInt8(t *testing.T) {
	r := rand.New(rand.NewPCG(21, 22))
	shapes := []struct {
		n, k, bits, group int
		strategy          string
	}{{16, 64, 4, 32, "group"}, {5, 48, 4, 16, "group"}, {13, 40, 4, 40, "channel"}, {6, 64, 8, 32, "group"}, {7, 33, 8, 33, "channel"}, {9, 24, 8, 24, "tensor"}}
	for _, s := range shapes {
		for _, format := range []string{packFormat, "naive-quantized", "int-quantized"} {
			for _, zeros := range []string{"", "packed", "I8"} {
				packed := format == packFormat
				if zeros == "packed" && (!packed || s.strategy == "tensor") {
					continue
				}
				for _, order := range []bool{false, true} {
					if order && s.strategy != "group" {
						continue
					}
					t.Run(fmt.Sprint(s, format, zeros, order), func(t *testing.T) {
						l := newCTLayer(r, s.n, s.k, s.bits, s.group, s.strategy, order)
						more := symmetric
						if zeros != "" {
							more = asymmetric
						}
						if order {
							more += ordered
						}
						files := folderOf(l.stored(packed, zeros, order)...)
						files["config.json"] = l.config(format, more)
						c := openFiles(t, files)
						m, err := c.Matrix("a", s.n, s.k)
						if err != nil {
							t.Fatal(err)
						}
						if (m.Perm != nil) != order || m.CheckPerm() != nil {
							t.Errorf("order %v", m.Perm)
						}
						want := l.values(zeros != "")
						equal(t, "all", values(t, m, 0, s.n), want)
						equal(t, "rows 2 to 4", values(t, m, 2, 3), want[2*s.k:5*s.k])
						if err := c.Finish(); err != nil {
							t.Error(err)
						}
					})
				}
			}
		}
	}
}

// TestNothingButSymmetry reads symmetric weights that have zero points or an order which change nothing.
func TestNothingButSymmetry(t *testing.T) {
	r := rand.New(rand.NewPCG(23, 24))
	for _, zeros := range []string{"packed", "I8"} {
		l := newCTLayer(r, 5, 64, 4, 32, "group", false)
		clear(l.zeros)
		for _, unset := range []bool{false, true} {
			list := l.stored(true, zeros, true)
			if unset {
				for i := range list[4].data {
					list[4].data[i] = 0xff // -1: no order
				}
			}
			files := folderOf(list...)
			files["config.json"] = l.config(packFormat, symmetric)
			c := openFiles(t, files)
			m, err := c.Matrix("a", 5, 64)
			if err != nil {
				t.Fatal(err)
			}
			equal(t, zeros, values(t, m, 0, 5), l.values(false))
			if err := c.Finish(); err != nil || m.Perm != nil {
				t.Errorf("order %v, %v", m.Perm, err)
			}
		}
	}
}

func TestUnreadableZeroPointsAndOrders(t *testing.T) {
	r := rand.New(rand.NewPCG(25, 26))
	l := newCTLayer(r, 16, 64, 4, 32, "group", true)
	one := newCTLayer(r, 16, 64, 8, 64, "tensor", false)
	packed, bytes := l.stored(true, "packed", true), l.stored(true, "I8", true)
	naive := l.stored(false, "I8", true)
	both := asymmetric + ordered
	with := func(list []storedTensor, i int, dtype string, shape ...int) []storedTensor {
		size := map[string]int{"I32": 4, "I8": 1, "U8": 1, "I16": 2}[dtype]
		for _, d := range shape {
			size *= d
		}
		list = slices.Clone(list)
		list[i] = storedTensor{list[i].name, dtype, shape, make([]byte, size)}
		return list
	}
	for name, c := range map[string]struct {
		config  []byte
		tensors []storedTensor
		want    []string
	}{
		"zeros of too few outputs": {l.config(packFormat, both), with(packed, 3, "I32", 1, 2), []string{"a.weight_zero_point", "[2 2]"}},
		"zeros turned":             {l.config(packFormat, both), with(packed, 3, "I32", 2, 16), []string{"a.weight_zero_point", "[2 2]"}},
		"zeros as I16":             {l.config(packFormat, both), with(packed, 3, "I16", 16, 2), []string{"a.weight_zero_point", "I16"}},
		"zeros, bytes, one group":  {l.config(packFormat, both), with(bytes, 3, "I8", 16, 1), []string{"a.weight_zero_point", "[16 2]"}},
		"zero of 8":                {l.config(packFormat, both), func() []storedTensor { b := with(bytes, 3, "I8", 16, 2); b[3].data[5] = 8; return b }(), []string{"a.weight_zero_point", "value 5 is 8"}},
		"zeros packed beside int8": {l.config("naive-quantized", both), with(naive, 2, "I32", 2, 2), []string{"a.weight_zero_point", "I8"}},
		"packed zeros of a tensor": {one.config(packFormat, asymmetric), with(one.stored(true, "I8", false), 3, "I32", 1), []string{"a.weight_zero_point", "I8"}},
		"no zeros":                 {l.config(packFormat, both), slices.Delete(slices.Clone(packed), 3, 4), []string{"a.weight_zero_point", "missing"}},
		"symmetric with zeros":     {l.config(packFormat, symmetric+ordered), packed, []string{"a.weight_zero_point", "symmetric"}},
		"order of 63":              {l.config(packFormat, both), with(packed, 4, "I32", 63), []string{"a.weight_g_idx", "[64]"}},
		"order of one group":       {l.config(packFormat, both), with(packed, 4, "I32", 64), []string{"a.weight_g_idx", "group 0"}},
		"order not said":           {l.config(packFormat, asymmetric), packed, []string{"a.weight_g_idx", "actorder"}},
		"order of channels":        {newCTLayer(r, 1, 8, 4, 8, "channel", false).config(packFormat, ordered), packed, []string{"actorder", "channel"}},
		"int8 of another shape":    {l.config("naive-quantized", both), with(naive, 0, "I8", 8, 128), []string{"a.weight", "[16 64]"}},
		"int8 as packed":           {l.config(packFormat, both), naive, []string{"a.weight", "pack-quantized"}},
		"packed as int8":           {l.config("int-quantized", both), packed, []string{"a.weight_packed", "int-quantized"}},
		"unsigned":                 {l.config("naive-quantized", both), with(naive, 0, "U8", 16, 64), []string{"a.weight", "U8"}},
		"fp8":                      {[]byte(strings.Replace(string(l.config("float-quantized", both)), `"int"`, `"float"`, 1)), naive, []string{"float-quantized"}},
		"activations": {[]byte(strings.Replace(string(l.config("int-quantized", both)), `"targets"`, `"input_activations":{"num_bits":8,"dynamic":true},"targets"`, 1)), naive,
			[]string{"group_0", "input_activations"}},
	} {
		t.Run(name, func(t *testing.T) {
			files := folderOf(c.tensors...)
			files["config.json"] = c.config
			ckpt, err := OpenFiles("test", files)
			if err == nil {
				_, err = ckpt.Matrix("a", 16, 64)
			}
			refused(t, err, c.want...)
		})
	}
}
