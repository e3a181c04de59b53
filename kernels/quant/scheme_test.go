package quant

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/openinfer-go/openinfer/kernels"
)

var schemes = []Scheme{
	{Bits: 4, Group: 32, Symmetric: true}, {Bits: 4, Group: 64, Symmetric: true}, {Bits: 4, Group: 128, Symmetric: true},
	{Bits: 4, Group: 32}, {Bits: 4, Group: 128}, {Bits: 8, Group: 128, Symmetric: true},
}

// groupsOf are groups of many shapes: normal, heavy-tailed, shifted, one outlier, one sign, tiny, constant, zero.
func groupsOf(n int, rnd *rand.Rand) map[string][]float32 {
	kinds := map[string]func(i int) float64{
		"normal":     func(int) float64 { return rnd.NormFloat64() },
		"heavy":      func(int) float64 { x := rnd.NormFloat64(); return x * x * x },
		"shifted":    func(int) float64 { return rnd.NormFloat64() + 2 },
		"outlier":    func(i int) float64 { return rnd.NormFloat64() + 30*float64(max(0, 1-i)) },
		"positive":   func(int) float64 { return 1 + rnd.Float64() },
		"negative":   func(int) float64 { return -0.001 * rnd.Float64() },
		"tiny":       func(int) float64 { return 1e-35 * rnd.NormFloat64() },
		"small":      func(int) float64 { return 1e-20 * rnd.NormFloat64() },
		"large":      func(int) float64 { return 1e30 * rnd.NormFloat64() },
		"constant":   func(int) float64 { return 0.37 },
		"zero":       func(int) float64 { return 0 },
		"two values": func(i int) float64 { return float64(i%2)*3 - 1 },
	}
	out := map[string][]float32{}
	for name, f := range kinds {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(f(i))
		}
		out[name] = x
	}
	return out
}

// decoded is sum h*(x-w)^2 with w as any reader computes it.
func decoded(s Scheme, x, h []float32, scale float32, zero uint8) float64 {
	codes := make([]uint8, len(x))
	s.Codes(codes, x, scale, zero)
	var sum float64
	for i, c := range codes {
		e := float64(x[i]) - float64(scale*float32(int(c)-int(zero)))
		if h != nil {
			e *= math.Sqrt(float64(h[i]))
		}
		sum += e * e
	}
	return sum
}

func TestSearchIsNeverWorseThanNearest(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	better := 0
	for _, s := range schemes {
		for range 20 {
			for name, x := range groupsOf(s.Group, rnd) {
				var h []float32
				if rnd.IntN(2) == 0 {
					h = make([]float32, len(x))
					for i := range h {
						h[i] = rnd.Float32() * rnd.Float32()
					}
				}
				scale, zero := s.Search(x, h)
				if scale != BF16(ToBF16(scale)) || !(scale > 0) || math.IsInf(float64(scale), 0) {
					t.Fatalf("%v, %s: scale %v is no positive bfloat16", s, name, scale)
				}
				if middle := uint8(1) << (s.Bits - 1); s.Symmetric && zero != middle || int(zero) >= 1<<s.Bits {
					t.Fatalf("%v, %s: zero point %d", s, name, zero)
				}
				plain, plainZero := s.Nearest(x)
				got, want := decoded(s, x, h, scale, zero), decoded(s, x, h, plain, plainZero)
				if got > want {
					t.Errorf("%v, %s: error %v, by rounding to nearest %v", s, name, got, want)
				}
				if got < 0.95*want {
					better++
				}
			}
		}
	}
	if better < 200 {
		t.Errorf("only %d groups are 5 %% better than rounded to nearest: is there a search?", better)
	}
}

// A group that the scheme can hold exactly is held exactly.
func TestSearchFindsTheScaleOfCodes(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	for _, s := range schemes {
		for _, scale := range []float32{1, 0.0078125, 3.375} {
			x := make([]float32, s.Group)
			for i := range x {
				x[i] = scale * float32(rnd.IntN(1<<s.Bits)-1<<(s.Bits-1))
			}
			x[0], x[1] = scale*float32(-int(1)<<(s.Bits-1)), scale*float32(int(1)<<(s.Bits-1)-1)
			got, zero := s.Search(x, nil)
			if e := decoded(s, x, nil, got, zero); e != 0 {
				t.Errorf("%v: scale %v instead of %v, error %v", s, got, scale, e)
			}
		}
	}
}

func TestNotANumberIsFound(t *testing.T) {
	for _, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		for _, s := range schemes {
			k := 2 * s.Group
			w := make([]float32, 3*k)
			at := 2*k + s.Group + 5
			w[at] = float32(bad)
			m := s.Matrix("w", 3, k)
			var r kernels.Rows
			r.Reset(m, 3)
			if got := s.Rows(&r, 0, w, k); got != at {
				t.Errorf("%v, %v: weight %d is said to be wrong, it is %d", s, bad, got, at)
			}
			h := make([]float32, k*k)
			for i := range k {
				h[i*k+i] = 1
			}
			g, err := NewGPTQ(h, k, 0.01)
			if err != nil {
				t.Fatal(err)
			}
			if _, _, got := g.Rows(&r, s, w); got != at {
				t.Errorf("GPTQ, %v, %v: weight %d is said to be wrong, it is %d", s, bad, got, at)
			}
		}
	}
}

func TestPackedCodesReadBack(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 6))
	for _, bits := range []int{4, 8} {
		for _, n := range []int{1, 2, 7, 8, 9, 31, 256} {
			codes, back := make([]uint8, n), make([]uint8, n)
			for i := range codes {
				codes[i] = uint8(rnd.IntN(1 << bits))
			}
			packed := make([]byte, (n*bits+31)/32*4)
			for i := range packed {
				packed[i] = 0xff
			}
			Pack(packed, bits, codes)
			Packed(back, bits, packed)
			if string(back) != string(codes) {
				t.Errorf("%d codes of %d bits: %v came back as %v", n, bits, codes, back)
			}
		}
		for _, n := range []int{1, 8, 13, 32} {
			const groups = 3
			codes := make([]uint8, n*groups)
			for i := range codes {
				codes[i] = uint8(rnd.IntN(1 << bits))
			}
			per := 32 / bits
			packed := make([]byte, (n+per-1)/per*groups*4)
			PackOutputs(packed, bits, codes, n, groups)
			for i, c := range codes {
				if got := Code(packed, i/groups/per*groups+i%groups, i/groups%per, bits); got != c {
					t.Fatalf("%d bits, output %d, group %d: %d came back as %d", bits, i/groups, i%groups, c, got)
				}
			}
		}
	}
}

func BenchmarkSearch(b *testing.B) {
	rnd := rand.New(rand.NewPCG(7, 8))
	for _, s := range schemes {
		b.Run(fmt.Sprint(s), func(b *testing.B) {
			const k, n = 2048, 16
			w := make([]float32, n*k)
			for i := range w {
				w[i] = float32(rnd.NormFloat64())
			}
			var r kernels.Rows
			r.Reset(s.Matrix("w", n, k), n)
			b.SetBytes(n * k * 2)
			for b.Loop() {
				s.Rows(&r, 0, w, k)
			}
		})
	}
}
