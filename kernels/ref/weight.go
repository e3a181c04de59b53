package ref

import (
	"fmt"
	"math"
	"sync"
	"unsafe"

	"github.com/openinfer-go/openinfer/internal/hostmem"
	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/kernels/check"
	"github.com/x448/float16"
)

// part is one matrix of a weight, in canonical form.
type part struct {
	kernels.Matrix
	first int // of its outputs within the weight
	mem   []byte

	codes []uint8
	scale []float32
	zero  []uint8
	min   []float32
	float []float32 // Type F32
	half  []uint16  // Type F16 and BF16, as stored
	bias  []float32 // nil: none
}

type weight []part

// Load implements kernels.Device.
func (d *Device) Load(parts ...kernels.Matrix) (*kernels.Weight, error) {
	if err := check.Matrices(parts); err != nil {
		return nil, err
	}
	w := &kernels.Weight{Name: parts[0].Name, K: parts[0].K}
	var ps weight
	for _, m := range parts {
		p, err := loadPart(m)
		if err != nil {
			for _, p := range ps {
				hostmem.Free(p.mem)
			}
			return nil, err
		}
		p.first = w.N
		ps, w.N, w.Bytes = append(ps, p), w.N+m.N, w.Bytes+int64(len(p.mem))
	}
	w.Impl = ps
	return w, nil
}

// Unload implements kernels.Device.
func (d *Device) Unload(w *kernels.Weight) {
	for _, p := range w.Impl.(weight) {
		hostmem.Free(p.mem)
	}
	w.Impl = nil
}

// LoadVector implements kernels.Device.
func (d *Device) LoadVector(v []float32) (kernels.Tensor, error) {
	b, err := d.Alloc(int64(len(v)) * 4)
	if err != nil {
		return kernels.Tensor{}, err
	}
	t := kernels.Tensor{Buf: b, Rows: 1, Cols: len(v), Stride: len(v)}
	copy(t.Float32(), v)
	return t, nil
}

func loadPart(m kernels.Matrix) (p part, err error) {
	p.Matrix = m
	elements, groups := m.N*m.K, m.N*m.Groups()
	var sizes [4]int // float32s, then 16-bit values, then bytes: every piece stays aligned
	switch {
	case m.Bits == 0 && m.Type == kernels.F32:
		sizes[0] = elements
	case m.Bits == 0:
		sizes[2] = elements
	case m.HasMin:
		sizes[0], sizes[1], sizes[3] = groups, groups, elements
	default:
		sizes[0], sizes[3] = groups, elements+groups
	}
	bias := len(m.Bias)
	if p.mem, err = hostmem.Alloc(int64(4*(sizes[0]+sizes[1]+bias) + 2*sizes[2] + sizes[3])); err != nil {
		return p, fmt.Errorf("load %s: %w", m.Name, err)
	}
	rest := p.mem
	floats := cut[float32](&rest, sizes[0])
	p.min = cut[float32](&rest, sizes[1])
	p.bias = cut[float32](&rest, bias)
	p.half = cut[uint16](&rest, sizes[2])
	copy(p.bias, m.Bias)
	if m.Bits == 0 {
		p.float = floats
	} else {
		p.scale, p.codes, p.zero = floats, rest[:elements], rest[elements:]
	}
	if err = p.read(); err != nil {
		hostmem.Free(p.mem)
		return p, err
	}
	p.Matrix.Read, p.Matrix.Bias = nil, nil
	if m.Release != nil {
		m.Release()
	}
	return p, nil
}

func cut[T float32 | uint16](b *[]byte, n int) []T {
	if n == 0 {
		return nil
	}
	size := n * int(unsafe.Sizeof(T(0)))
	s := unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(*b))), n)
	*b = (*b)[size:]
	return s
}

// read copies the matrix a few rows at a time.
func (p *part) read() error {
	const rows = 64
	var r kernels.Rows
	groups := p.Groups()
	for row := 0; row < p.N; row += rows {
		n := min(rows, p.N-row)
		r.Reset(p.Matrix, n)
		if err := p.Read(&r, row, n); err != nil {
			return fmt.Errorf("load %s: rows %d to %d: %w", p.Name, row, row+n, err)
		}
		switch {
		case p.float != nil:
			copy(p.float[row*p.K:], r.Float)
		case p.half != nil:
			for i, v := range r.Float {
				p.half[row*p.K+i] = toHalf(v, p.Type)
			}
		default:
			copy(p.codes[row*p.K:], r.Codes)
			copy(p.scale[row*groups:], r.Scale)
			if p.HasMin {
				copy(p.min[row*groups:], r.Min)
			} else {
				copy(p.zero[row*groups:], r.Zero)
			}
		}
	}
	return nil
}

// part returns the part that holds output n.
func (w weight) part(n int) *part {
	i := len(w) - 1
	for w[i].first > n {
		i--
	}
	return &w[i]
}

// row writes the K weights of output n of the whole weight to dst.
func (w weight) row(dst []float64, n int) {
	p := w.part(n)
	n -= p.first
	if p.Perm == nil {
		p.decode(dst, n)
		return
	}
	stored := make([]float64, p.K)
	p.decode(stored, n)
	for k, v := range stored {
		dst[p.Perm[k]] = v
	}
}

// decode writes the K weights of output n in stored order to dst. They are float32 values: a
// product is rounded before a minimum is added, as the formats' own readers do.
func (p *part) decode(dst []float64, n int) {
	switch {
	case p.float != nil:
		widen(dst, p.float[n*p.K:(n+1)*p.K])
		return
	case p.half != nil:
		for k, h := range p.half[n*p.K : (n+1)*p.K] {
			dst[k] = float64(fromHalf(h, p.Type))
		}
		return
	}
	groups := p.K / p.Group
	for g := range groups {
		scale := p.scale[n*groups+g]
		codes := p.codes[n*p.K+g*p.Group:][:p.Group]
		out := dst[g*p.Group:][:p.Group]
		if p.HasMin {
			least := p.min[n*groups+g]
			for k, c := range codes {
				product := float32(scale * float32(c))
				out[k] = float64(product + least)
			}
			continue
		}
		zero := int(p.zero[n*groups+g])
		for k, c := range codes {
			out[k] = float64(scale * float32(int(c)-zero))
		}
	}
}

// biasOf returns the bias of output n.
func (w weight) biasOf(n int) float32 {
	if p := w.part(n); p.bias != nil {
		return p.bias[n-p.first]
	}
	return 0
}

func fromHalf(v uint16, t kernels.DType) float32 {
	if t == kernels.BF16 {
		return math.Float32frombits(uint32(v) << 16)
	}
	return fp16()[v]
}

// fp16 has the value of every fp16: decoding one is most of the work on it otherwise.
var fp16 = sync.OnceValue(func() *[1 << 16]float32 {
	var t [1 << 16]float32
	for i := range t {
		t[i] = float16.Frombits(uint16(i)).Float32()
	}
	return &t
})

// toHalf rounds to the nearest, to even between two.
func toHalf(v float32, t kernels.DType) uint16 {
	if t != kernels.BF16 {
		return float16.Fromfloat32(v).Bits()
	}
	b := math.Float32bits(v)
	if v != v {
		return uint16(b>>16) | 0x40
	}
	return uint16((b + 0x7fff + b>>16&1) >> 16)
}
