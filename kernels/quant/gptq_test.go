package quant

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/openinfer-go/openinfer/kernels"
)

// calibration makes tokens [t,k] whose inputs depend on each other and have different sizes, and X^T X.
func calibration(t, k int, rnd *rand.Rand) (x []float32, h []float32) {
	const hidden = 12
	mix := make([]float64, hidden*k)
	for i := range mix {
		mix[i] = rnd.NormFloat64()
	}
	x = make([]float32, t*k)
	var z [hidden]float64
	for i := range t {
		for j := range z {
			z[j] = rnd.NormFloat64()
		}
		for j := range k {
			v := 0.3 * rnd.NormFloat64()
			for l, zl := range z {
				v += zl * mix[l*k+j]
			}
			x[i*k+j] = float32(v * math.Exp(float64(j%7)-3))
		}
	}
	h = make([]float32, k*k)
	for i := range k {
		for j := range k {
			var sum float64
			for r := range t {
				sum += float64(x[r*k+i]) * float64(x[r*k+j])
			}
			h[i*k+j] = float32(sum)
		}
	}
	return x, h
}

// outputError is sum (x w^T - x q^T)^2 over the tokens, and sum (x w^T)^2, of the rows that count.
func outputError(x, w []float32, r *kernels.Rows, s Scheme, k int, rows func(int) bool) (wrong, all float64) {
	groups := k / s.Group
	for n := range len(w) / k {
		if !rows(n) {
			continue
		}
		for t := range len(x) / k {
			var e, y float64
			for j := range k {
				g := n*groups + j/s.Group
				q := r.Scale[g] * float32(int(r.Codes[n*k+j])-int(r.Zero[g]))
				e += float64(x[t*k+j]) * (float64(w[n*k+j]) - float64(q))
				y += float64(x[t*k+j]) * float64(w[n*k+j])
			}
			wrong, all = wrong+e*e, all+y*y
		}
	}
	return wrong, all
}

func TestGPTQIsBetterThanNearestOnCorrelatedInputs(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	const k, n, tokens = 192, 19, 300 // three blocks and a part of a tile
	x, h := calibration(tokens, k, rnd)
	w := make([]float32, n*k)
	for i := range w {
		w[i] = float32(rnd.NormFloat64())
	}
	every := func(int) bool { return true }
	for _, s := range []Scheme{{Bits: 4, Group: 32, Symmetric: true}, {Bits: 4, Group: 64}, {Bits: 4, Group: 192, Symmetric: true}} {
		g, err := NewGPTQ(h, k, 0.01)
		if err != nil {
			t.Fatal(err)
		}
		var r, plain kernels.Rows
		r.Reset(s.Matrix("w", n, k), n)
		plain.Reset(s.Matrix("w", n, k), n)
		wrong, all, bad := g.Rows(&r, s, w)
		if bad >= 0 {
			t.Fatalf("weight %d is no number", bad)
		}
		for i := range n * k / s.Group {
			group := w[i*s.Group : (i+1)*s.Group]
			plain.Scale[i], plain.Zero[i] = s.Nearest(group)
			s.Codes(plain.Codes[i*s.Group:(i+1)*s.Group], group, plain.Scale[i], plain.Zero[i])
		}
		ours, power := outputError(x, w, &r, s, k, every)
		nearest, _ := outputError(x, w, &plain, s, k, every)
		t.Logf("%v: output error %.4f, rounded to nearest %.4f", s, math.Sqrt(ours/power), math.Sqrt(nearest/power))
		if !(ours < 0.25*nearest) {
			t.Errorf("%v: squared output error %v, rounded to nearest %v: want less than a quarter", s, ours, nearest)
		}
		// What it says of itself is so.
		if math.Abs(all-power) > 1e-3*power {
			t.Errorf("%v: power of outputs is said to be %v, is %v", s, all, power)
		}
		if math.Abs(wrong-ours) > 1e-2*ours {
			t.Errorf("%v: squared output error is said to be %v, is %v", s, wrong, ours)
		}
	}
}

// With inputs that do not depend on each other there is nothing to make up for.
func TestGPTQOfIndependentInputsRoundsToNearest(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	s := Scheme{Bits: 4, Group: 32, Symmetric: true}
	const k, n = 96, 5
	h := make([]float32, k*k)
	for i := range k {
		h[i*k+i] = float32(1 + i%5)
	}
	w := make([]float32, n*k)
	for i := range w {
		w[i] = float32(rnd.NormFloat64())
	}
	g, err := NewGPTQ(h, k, 0.01)
	if err != nil {
		t.Fatal(err)
	}
	var r kernels.Rows
	r.Reset(s.Matrix("w", n, k), n)
	g.Rows(&r, s, w)
	for i := range n * k / s.Group {
		want := make([]uint8, s.Group)
		s.Codes(want, w[i*s.Group:(i+1)*s.Group], r.Scale[i], r.Zero[i])
		if string(want) != string(r.Codes[i*s.Group:(i+1)*s.Group]) {
			t.Fatalf("group %d: codes %v, to nearest %v", i, r.Codes[i*s.Group:(i+1)*s.Group], want)
		}
	}
}

// U D U^T is h again, for sizes around the block's.
func TestFactor(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 6))
	for _, n := range []int{1, 3, 63, 64, 65, 131} {
		_, h := calibration(2*n+40, n, rnd)
		a := make([]float64, n*n)
		var mean float64
		for i := range n {
			mean += float64(h[i*n+i]) / float64(n)
		}
		for i := range a {
			if a[i] = float64(h[i]); i%(n+1) == 0 {
				a[i] += 0.01 * mean
			}
		}
		want := append([]float64(nil), a...)
		if !factor(a, n) {
			t.Fatalf("%d: not positive definite", n)
		}
		for i := range n {
			for j := i; j < n; j++ {
				var sum float64
				for l := j; l < n; l++ {
					u, v := a[i*n+l], a[j*n+l]
					if l == i {
						u = 1
					}
					if l == j {
						v = 1
					}
					sum += u * a[l*n+l] * v
				}
				if math.Abs(sum-want[i*n+j]) > 1e-9*mean {
					t.Fatalf("%d: element %d, %d is %v, want %v", n, i, j, sum, want[i*n+j])
				}
			}
		}
	}
}

func TestInputsWithoutFullRank(t *testing.T) {
	const k = 64
	h := make([]float32, k*k) // no token ever used an input
	if _, err := NewGPTQ(h, k, 0.01); err != nil {
		t.Errorf("no inputs: %v", err)
	}
	for i := range h { // all inputs are the same
		h[i] = 5
	}
	if _, err := NewGPTQ(h, k, 0.01); err != nil {
		t.Errorf("equal inputs: %v", err)
	}
	h[0] = float32(math.Inf(1))
	if _, err := NewGPTQ(h, k, 0.01); err == nil {
		t.Error("infinite inputs are taken")
	}
}

func BenchmarkGPTQ(b *testing.B) {
	rnd := rand.New(rand.NewPCG(7, 8))
	const k, n = 1024, 256
	h := make([]float32, k*k)
	for i := range k {
		for j := range k {
			h[i*k+j] = float32(math.Exp(-math.Abs(float64(i-j)) / 8))
		}
	}
	w := make([]float32, n*k)
	for i := range w {
		w[i] = float32(rnd.NormFloat64())
	}
	s := Scheme{Bits: 4, Group: 128, Symmetric: true}
	b.Run("factor", func(b *testing.B) {
		for b.Loop() {
			if _, err := NewGPTQ(h, k, 0.01); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(k)*k*k/6*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFMA/s")
	})
	b.Run("rows", func(b *testing.B) {
		g, err := NewGPTQ(h, k, 0.01)
		if err != nil {
			b.Fatal(err)
		}
		var r kernels.Rows
		r.Reset(s.Matrix("w", n, k), n)
		for b.Loop() {
			g.Rows(&r, s, w)
		}
		b.ReportMetric(float64(n)*k*k/2*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFMA/s")
	})
}
