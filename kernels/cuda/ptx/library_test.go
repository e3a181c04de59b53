package ptx

import (
	"encoding/binary"
	"math"
	"testing"
)

func TestLibraryFunctionsAreAccurate(t *testing.T) {
	r := load(t, "library.ptx")
	xs := make([]float32, 64)
	for i := range xs {
		xs[i] = 0.05 + float32(i)*0.173
	}
	const n = 1234567
	y := r.alloc(4 * 16 * len(xs))
	r.clean(r.run("maths", x(1), x(64), 0, 0, y, r.alloc(xs), int32(n)))
	got := read[float32](r, y, 16*len(xs))
	for i, f := range xs {
		v := float64(f)
		far := float64(float32(f * 1e6))
		want := []float64{math.Exp(v), math.Log(v), math.Sin(v), math.Cos(v), math.Tanh(v), math.Pow(v, 1.5), math.Erf(v), 1 / math.Sqrt(v),
			math.Exp(v), v / 3, math.Mod(v, float64(float32(0.7))), math.Pow(v, 0.3), float64(n/(i+1) + n%(i+3)), float64(n * n / (i + 7)), math.Log1p(v), math.Sin(far)}
		for j, w := range want {
			if g := float64(got[16*i+j]); !(math.Abs(g-w) <= 1e-6*math.Abs(w)+3e-7) {
				t.Errorf("function %d of %v: %v, want %v", j, f, g, w)
			}
		}
	}
}

func TestParametersByValue(t *testing.T) {
	r := load(t, "library.ptx")
	p := make([]byte, 32)
	binary.LittleEndian.PutUint32(p, 7)
	for i := range 5 {
		binary.LittleEndian.PutUint32(p[4+4*i:], math.Float32bits(float32(i)*10))
	}
	negative := int64(-1000)
	binary.LittleEndian.PutUint64(p[24:], uint64(negative))
	y := r.alloc(4 * 8)
	r.clean(r.run("params", x(1), x(8), 0, 0, y, p, int8(-3), int16(300), 0.5, int32(2)))
	for i, g := range read[float32](r, y, 8) {
		if w := 7 + float32((2+i)%5)*10 - 1000 - 3 + 300 + 0.5; g != w {
			t.Errorf("y[%d] = %v, want %v", i, g, w)
		}
	}
}

func TestAtomics(t *testing.T) {
	r := load(t, "library.ptx")
	p := make([]int32, 16)
	p[7] = -1
	pp, q, rr, h, d := r.alloc(p), r.alloc([]float32{1}), r.alloc([]uint64{1}), r.alloc([]uint16{0, 0}), r.alloc([]float64{0})
	y := r.alloc(4 * 64)
	// Blocks all write y: give one block only.
	r.clean(r.run("atomics", x(1), x(64), 0, 4, pp, q, rr, h, d, y))
	got := read[int32](r, pp, 9)
	xor := int32(0)
	for i := range int32(64) {
		xor ^= i
	}
	for i, w := range []int32{2016, -5, 63, -1, xor, 64 % 10, 6, -16, 7} {
		if got[i] != w {
			t.Errorf("p[%d] = %d, want %d", i, got[i], w)
		}
	}
	if v := read[float32](r, q, 1)[0]; v != 33 {
		t.Errorf("float32 sum %v", v)
	}
	if v := read[uint64](r, rr, 1)[0]; v != 193 {
		t.Errorf("uint64 sum %v", v)
	}
	if v := read[uint16](r, h, 2); v[0] != uint16(fp16.narrow(64, rn)) || v[1] != uint16(fp16.narrow(128, rn)) {
		t.Errorf("half sums %#x", v)
	}
	if v := read[float64](r, d, 1)[0]; v != 16 {
		t.Errorf("float64 sum %v", v)
	}
	first := 0
	for _, v := range read[int32](r, y, 64) {
		if v == 116 {
			first++
		} else if v != 16 {
			t.Errorf("shared count %d", v)
		}
	}
	if first != 1 {
		t.Errorf("%d lanes won the exchange", first)
	}
}

func TestPackedHalves(t *testing.T) {
	r := load(t, "library.ptx")
	va := func(i int) float64 { return float64(i%9)*0.375 - 1.5 }
	vb := func(i int) float64 { return float64(i%5)*0.25 - 0.625 }
	a, b := make([]uint16, 64), make([]uint16, 64)
	for i := range a {
		a[i], b[i] = uint16(fp16.narrow(va(i), rn)), uint16(fp16.narrow(vb(i), rn))
	}
	y := r.alloc(4 * 8 * 32)
	r.clean(r.run("halfs", x(1), x(32), 0, 0, y, r.alloc(a), r.alloc(b)))
	got := read[uint16](r, y, 8*64)
	for i := range 64 {
		u, v := va(i), vb(i)
		lt := 0.0
		if u < v {
			lt = 1
		}
		last := v
		if i%2 == 0 {
			last = math.Trunc(u)
		}
		for j, w := range []float64{lt, max(u, v), u / v, min(max(u+v, 0), 1), math.Abs(u), max(u*v+u, 0), last, math.Exp2(u)} {
			g := fp16.widen(uint64(got[i/2*16+2*j+i%2]))
			if e := fp16.widen(fp16.narrow(w, rn)); math.Abs(g-e) > math.Abs(e)*0.001 {
				t.Errorf("result %d of (%v, %v): %v, want %v", j, u, v, g, e)
			}
		}
	}
}
