package cuda

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/openinfer-go/openinfer/kernels"
	"github.com/x448/float16"
)

// unpacked reads input k, as stored, of output n as the picture in linear.cuh says: its code, or the bits of its float.
func (p *packing) unpacked(codes []byte, n, k int) uint16 {
	k = p.place(k)
	strip := codes[n/16*p.stripBytes():]
	tile, step, q, e := k/64, k/16%4, k/4%4, k%4
	half, i, g, upper := step/2, step%2, n%8, n/8%2
	lane := g*4 + q
	switch p.kind {
	case kindW4:
		w := binary.LittleEndian.Uint32(strip[tile*512+half*256+lane*8+i*4:])
		bit := 4*upper + [...]int{0, 16, 8, 24}[e]
		return uint16(w >> bit & 15)
	case kindW8:
		return uint16(strip[tile*1024+half*512+lane*16+(2*i+upper)*4+e])
	}
	word := upper + e/2*2
	return binary.LittleEndian.Uint16(strip[tile*2048+step*512+lane*16+word*4+e%2*2:])
}

// weight returns input k, as stored, of output n, from codes and scales.
func (p *packing) weight(codes, scales []byte, n, k int) float64 {
	if p.kind == kindFloat32 {
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(codes[(n*p.K+k)*4:])))
	}
	wide := func(bits uint16, bf bool) float64 {
		if bf {
			return float64(math.Float32frombits(uint32(bits) << 16))
		}
		return float64(float16.Frombits(bits).Float32())
	}
	v := p.unpacked(codes, n, k)
	if p.record == 0 {
		return wide(v, p.kind == kindBF16)
	}
	slot := p.place(k) * p.slots / tileInputs
	group := int(uint64(2*slot+1) * uint64(p.magic()) >> 32)
	at := scales[n/16*p.scaleBytes()+(group*16+n%16)*p.record:]
	code := float64(v) - float64(p.middle())
	if p.form&formWide != 0 {
		w := float64(math.Float32frombits(binary.LittleEndian.Uint32(at))) * code
		if p.offsets() {
			w += float64(math.Float32frombits(binary.LittleEndian.Uint32(at[4:])))
		}
		return w
	}
	bf := p.form&formBFloat != 0
	scale := wide(binary.LittleEndian.Uint16(at), bf)
	switch {
	case p.form&formZeros != 0:
		return scale * (code + wide(binary.LittleEndian.Uint16(at[2:]), bf))
	case p.form&formMins != 0:
		return scale*float64(v) + wide(binary.LittleEndian.Uint16(at[2:]), bf)
	}
	return scale * code
}

// scheme is one way to store a matrix.
type scheme struct {
	bits, group         int
	min, symmetric, ord bool
	typ                 kernels.DType
}

// random returns a matrix of the scheme and its values, inputs as stored.
func (s scheme) random(rnd *rand.Rand, name string, n, k int) (kernels.Matrix, [][]float64) {
	m := kernels.Matrix{Name: name, N: n, K: k, Bits: s.bits, HasMin: s.min, Symmetric: s.symmetric}
	if s.bits == 0 {
		m.Type = s.typ
	} else {
		m.Group, m.ScaleType = s.group, s.typ
	}
	round := func(v float64) float32 {
		switch s.typ {
		case kernels.F16:
			return float16.Fromfloat32(float32(v)).Float32()
		case kernels.BF16:
			return math.Float32frombits(math.Float32bits(float32(v)) &^ 0xffff)
		}
		return float32(v)
	}
	if s.ord {
		for _, i := range rnd.Perm(k) {
			m.Perm = append(m.Perm, int32(i))
		}
	}
	var all kernels.Rows
	all.Reset(m, n)
	values := make([][]float64, n)
	for i := range values {
		values[i] = make([]float64, k)
		for j := range values[i] {
			if s.bits == 0 {
				all.Float[i*k+j] = round(rnd.NormFloat64())
				values[i][j] = float64(all.Float[i*k+j])
				continue
			}
			g := i*m.Groups() + j/s.group
			if j%s.group == 0 {
				all.Scale[g] = round(rnd.NormFloat64() / 8)
				if s.min {
					all.Min[g] = round(rnd.NormFloat64())
				} else {
					all.Zero[g] = uint8(rnd.IntN(1 << s.bits))
					if s.symmetric {
						all.Zero[g] = 1 << (s.bits - 1)
					}
				}
			}
			all.Codes[i*k+j] = uint8(rnd.IntN(1 << s.bits))
			if s.min {
				values[i][j] = float64(all.Scale[g])*float64(all.Codes[i*k+j]) + float64(all.Min[g])
			} else {
				values[i][j] = float64(all.Scale[g]) * float64(int(all.Codes[i*k+j])-int(all.Zero[g]))
			}
		}
	}
	groups := m.Groups()
	m.Read = func(dst *kernels.Rows, row, rows int) error {
		*dst = kernels.Rows{}
		if s.bits == 0 {
			dst.Float = all.Float[row*k : (row+rows)*k]
			return nil
		}
		dst.Codes, dst.Scale = all.Codes[row*k:(row+rows)*k], all.Scale[row*groups:(row+rows)*groups]
		if s.min {
			dst.Min = all.Min[row*groups : (row+rows)*groups]
		} else {
			dst.Zero = all.Zero[row*groups : (row+rows)*groups]
		}
		return nil
	}
	return m, values
}

// TestUnpackOfPack: what is packed is what the picture in linear.cuh says, whatever the scheme, the size and the seams
// between stacked matrices.
func TestUnpackOfPack(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	var schemes []scheme
	for _, typ := range []kernels.DType{kernels.F32, kernels.F16, kernels.BF16} {
		schemes = append(schemes, scheme{typ: typ}, scheme{typ: typ, ord: true})
		for _, bits := range []int{4, 8} {
			for _, group := range []int{8, 16, 24, 32, 48, 64, 100, 128, 192, 256} {
				schemes = append(schemes, scheme{bits: bits, group: group, typ: typ}, scheme{bits: bits, group: group, typ: typ, min: true},
					scheme{bits: bits, group: group, typ: typ, symmetric: true, ord: true})
			}
		}
	}
	for _, s := range schemes {
		k := 1 + rnd.IntN(300)
		if s.bits != 0 {
			k = s.group * (1 + rnd.IntN(5))
		}
		what := fmt.Sprintf("%+v, K %d", s, k)
		var ms []kernels.Matrix
		var values [][]float64
		for len(values) < 70 {
			m, v := s.random(rnd, "m", 1+rnd.IntN(80), k)
			ms, values = append(ms, m), append(values, v...)
		}
		p, err := packingOf(ms[0], len(values))
		if err != nil {
			t.Fatal(err)
		}
		codes, scales := make([]byte, p.strips()*p.stripBytes()), make([]byte, p.strips()*p.scaleBytes())
		if err := p.pack(codes, scales, ms, 0, p.strips()); err != nil {
			t.Fatal(err)
		}
		for n, row := range values {
			for i, want := range row {
				// Exact but for float32 minima, which are kept for the middle code instead of code 0 and are rounded there.
				tol := 0.0
				if s.min || s.typ == kernels.F32 {
					tol = 2e-6 * (1 + math.Abs(want))
				}
				if got := p.weight(codes, scales, n, i); math.Abs(got-want) > tol {
					t.Fatalf("%s: output %d, stored input %d is %v, want %v", what, n, i, got, want)
				}
				if p.order != nil {
					from := int32(i)
					if ms[0].Perm != nil {
						from = ms[0].Perm[i]
					}
					at := i
					if p.kind != kindFloat32 {
						at = p.place(i)
					}
					if p.order[at] != from {
						t.Fatalf("%s: stored input %d multiplies x[%d], want x[%d]", what, i, p.order[at], from)
					}
				}
			}
		}
	}
}

// TestGroupsOfLongRows: the kernels' division finds the group of every slot, up to the longest row.
func TestGroupsOfLongRows(t *testing.T) {
	for _, group := range []int{16, 48, 64, 80, 128, 4096, 1 << 16, maxInputs} {
		p, err := packingOf(kernels.Matrix{N: 1, K: maxInputs / group * group, Bits: 4, Group: group}, 1)
		if err != nil {
			t.Fatal(err)
		}
		for slot := range p.tiles * p.slots {
			want := slot * (tileInputs / p.slots) / p.padded
			if got := int(uint64(2*slot+1) * uint64(p.magic()) >> 32); got != want || got >= p.groups {
				t.Fatalf("groups of %d: slot %d is of group %d of %d, want %d", group, slot, got, p.groups, want)
			}
		}
	}
	if _, err := packingOf(kernels.Matrix{Name: "long", N: 1, K: maxInputs + 1}, 1); err == nil {
		t.Error("a row longer than the kernels divide is packed")
	}
}

// BenchmarkPack packs codes of a layer; bytes are those of packed codes.
func BenchmarkPack(b *testing.B) {
	for _, bits := range []int{4, 8} {
		b.Run(fmt.Sprintf("%d bits", bits), func(b *testing.B) {
			const n, k = 512, 5120
			m, _ := scheme{bits: bits, group: 128, typ: kernels.F16, symmetric: true}.random(rand.New(rand.NewPCG(1, 2)), "m", n, k)
			p, err := packingOf(m, n)
			if err != nil {
				b.Fatal(err)
			}
			codes, scales := make([]byte, p.strips()*p.stripBytes()), make([]byte, p.strips()*p.scaleBytes())
			b.SetBytes(int64(len(codes)))
			for b.Loop() {
				if err := p.pack(codes, scales, []kernels.Matrix{m}, 0, p.strips()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
