package quant

import (
	"errors"
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/openinfer-go/openinfer/kernels"
)

// GPTQ quantises the rows of matrices that are multiplied with the same inputs, so that the error of
// their products is small rather than that of their weights (Frantar et al., 2022).
//
// Inputs are taken in order of activation, the largest mean square first, and each input's rounding
// error is made up for by the inputs after it. With H = X^T X of the inputs X in that order and H = U D U^T, U
// upper triangular with ones on its diagonal, input j is rounded from
//
//	w[j] + sum over i < j of (w[i] - q[i]) * U[i,j]
//
// which is what GPTQ computes from the inverse of H (Chee et al., 2023), without one. Scales and zero
// points are those of Scheme.Search over the weights as they are, weighted by the inputs' mean squares, and groups
// are neighbours in the checkpoint's own order: nothing of the order is left in the result.
type GPTQ struct {
	k     int
	order []int32   // the input at each place
	u     []float32 // [k,k] in that order; what is not above the diagonal is not used
	h     []float32 // as it was given
	mean  []float32 // of each input's squares, in the checkpoint's order
}

// NewGPTQ factors h, the symmetric [k,k] sum of x x^T over the calibration tokens, in the checkpoint's
// order, which it keeps. damp is added to its diagonal, as a share of the mean of that; more when h asks for it. Needs
// 12 k^2 bytes beside h, and 4 k^2 when it is done.
func NewGPTQ(h []float32, k int, damp float64) (*GPTQ, error) {
	g := &GPTQ{k: k, order: make([]int32, k), mean: make([]float32, k), h: h}
	var sum float64
	for i := range k {
		g.order[i], g.mean[i] = int32(i), h[i*k+i]
		sum += float64(h[i*k+i])
	}
	if sum-sum != 0 {
		return nil, errors.New("calibration: the inputs hold values that are no numbers, or too large")
	}
	slices.SortStableFunc(g.order, func(a, b int32) int {
		switch x, y := g.mean[a], g.mean[b]; {
		case x > y:
			return -1
		case x < y:
			return 1
		}
		return 0
	})
	mean := sum / float64(k)
	if mean == 0 { // nothing is known of the inputs: all are the same
		for i := range g.mean {
			g.mean[i] = 1
		}
		mean, damp = 1, 1
	}
	a := make([]float64, k*k)
	for ; damp <= 10; damp *= 10 {
		each(k, 16, func(from, to int) {
			for i := from; i < to; i++ {
				row := h[int(g.order[i])*k:][:k]
				for j := i; j < k; j++ {
					a[i*k+j] = float64(row[g.order[j]])
				}
				a[i*k+i] += damp * mean
			}
		})
		if factor(a, k) {
			g.u = make([]float32, k*k)
			each(k, 16, func(from, to int) {
				for i := from * k; i < to*k; i++ {
					g.u[i] = float32(a[i])
				}
			})
			return g, nil
		}
	}
	return nil, errors.New("calibration: the inputs' second moments are not positive definite, whatever is added to them")
}

// factor replaces the upper triangle of a, [n,n], by U above the diagonal and D on it, a = U D U^T. It is
// false when a D is not positive.
func factor(a []float64, n int) bool {
	const width = 64
	panel := make([]float64, width*n) // columns of a, one a row
	scaled := make([]float64, width)
	for b1 := n; b1 > 0; b1 -= width {
		b0 := max(0, b1-width)
		column := func(j int) []float64 { return panel[(j-b0)*n:][:j+1] }
		for j := b0; j < b1; j++ {
			for i, c := 0, column(j); i <= j; i++ {
				c[i] = a[i*n+j]
			}
		}
		for j := b1 - 1; j >= b0; j-- {
			c := column(j)
			d := c[j]
			if !(d > 0) || math.IsInf(d, 1) {
				return false
			}
			for k := b0; k < j; k++ {
				f := c[k] / d
				for i, out := 0, column(k); i < len(out); i++ {
					out[i] -= f * c[i]
				}
			}
			for i := range c[:j] {
				c[i] /= d
			}
		}
		for j := b0; j < b1; j++ {
			for i, c := 0, column(j); i <= j; i++ {
				a[i*n+j] = c[i]
			}
			scaled[j-b0] = column(j)[j]
		}
		each(b0, 8, func(from, to int) {
			for i := from; i < to; i++ {
				row := a[i*n+i : i*n+b0]
				for j := b0; j < b1; j += 4 {
					var f [4]float64
					var c [4][]float64
					for t := range min(4, b1-j) {
						c[t] = panel[(j+t-b0)*n+i:][:len(row)]
						f[t] = c[t][0] * scaled[j+t-b0]
					}
					for t := min(4, b1-j); t < 4; t++ {
						c[t] = c[0] // times zero
					}
					c0, c1, c2, c3 := c[0], c[1][:len(row)], c[2][:len(row)], c[3][:len(row)]
					for x, v := range c0 {
						row[x] -= f[0]*v + f[1]*c1[x] + f[2]*c2[x] + f[3]*c3[x]
					}
				}
			}
		})
	}
	return true
}

// Rows quantises rows of k weights into dst, which has been Reset for s.Matrix of that many rows, on all cores. It
// returns the sum of squares of the products' errors over the calibration tokens, and of the products themselves,
// both of about 64 rows; and the number of a weight that is not finite, -1 when all are.
func (g *GPTQ) Rows(dst *kernels.Rows, s Scheme, w []float32) (wrong, all float64, bad int) {
	const tile = 16
	var mu sync.Mutex
	bad = -1
	n := len(w) / g.k
	sampled := max(1, n/64)
	each(n, tile, func(from, to int) {
		b := g.tile(dst, s, w, from, to)
		var e2, w2 float64
		x, diff := make([]float32, g.k), make([]float32, g.k)
		for r := from; r < to && b < 0; r++ {
			if r%sampled != 0 {
				continue
			}
			row := w[r*g.k : (r+1)*g.k]
			for j, v := range row {
				at := (r*g.k + j) / s.Group
				diff[j] = v - dst.Scale[at]*float32(int(dst.Codes[r*g.k+j])-int(dst.Zero[at]))
			}
			e2, w2 = e2+quadratic(g.h, diff, x), w2+quadratic(g.h, row, x)
		}
		mu.Lock()
		defer mu.Unlock()
		wrong, all = wrong+e2, all+w2
		if b >= 0 {
			bad = b
		}
	})
	return wrong, all, bad
}

// tile quantises rows [from, to).
func (g *GPTQ) tile(dst *kernels.Rows, s Scheme, w []float32, from, to int) (bad int) {
	k, groups, n := g.k, g.k/s.Group, to-from
	for i := from; i < to; i++ {
		for at := 0; at < k; at += s.Group {
			x := w[i*k+at : i*k+at+s.Group]
			scale, zero := s.Search(x, g.mean[at:at+s.Group])
			if scale != scale {
				return i*k + at + notFinite(x)
			}
			dst.Scale[i*groups+at/s.Group], dst.Zero[i*groups+at/s.Group] = scale, zero
		}
	}
	const width = 64
	add := make([]float32, n*k)      // what is added to each weight, in order
	diff := make([]float32, n*width) // w - q of the block
	for b0 := 0; b0 < k; b0 += width {
		b1 := min(b0+width, k)
		for r := range n {
			g.block(dst, s, w[(from+r)*k:(from+r+1)*k], from+r, add[r*k+b0:r*k+b1], diff[r*width:(r+1)*width], b0)
		}
		if b1 == k {
			break
		}
		for i := b0; i < b1; i += 4 { // width is a multiple of 4; of a shorter last block nothing is left
			u0, u1 := g.u[i*k+b1:(i+1)*k], g.u[(i+1)*k+b1:(i+2)*k]
			u2, u3 := g.u[(i+2)*k+b1:(i+3)*k], g.u[(i+3)*k+b1:(i+4)*k]
			u1, u2, u3 = u1[:len(u0)], u2[:len(u0)], u3[:len(u0)]
			for r := range n {
				d := diff[r*width+i-b0:][:4]
				d0, d1, d2, d3 := d[0], d[1], d[2], d[3]
				out := add[r*k+b1:][:len(u0)]
				for j, u := range u0 {
					out[j] += d0*u + d1*u1[j] + d2*u2[j] + d3*u3[j]
				}
			}
		}
	}
	return -1
}

// block rounds the weights of one row at places b0 to b0+len(add)-1.
func (g *GPTQ) block(dst *kernels.Rows, s Scheme, w []float32, row int, add, diff []float32, b0 int) {
	k, groups := g.k, g.k/s.Group
	for i := range add {
		at := int(g.order[b0+i])
		scale, zero := dst.Scale[row*groups+at/s.Group], dst.Zero[row*groups+at/s.Group]
		low, high := s.limits(zero)
		v := (w[at] + add[i]) / scale
		v = min(max(nearestInt(min(max(v, low), high)), low), high)
		dst.Codes[row*k+at] = uint8(v + float32(zero))
		d := w[at] - scale*v
		diff[i] = d
		u := g.u[(b0+i)*k+b0:][:len(add)]
		for j := i + 1; j < len(add); j++ {
			add[j] += d * u[j]
		}
	}
}

// quadratic is v^T h v; x is scratch of its length.
func quadratic(h, v, x []float32) float64 {
	clear(x)
	k := len(v)
	i := 0
	for ; i+4 <= k; i += 4 {
		h0, h1, h2, h3 := h[i*k:][:k], h[(i+1)*k:][:k], h[(i+2)*k:][:k], h[(i+3)*k:][:k]
		v0, v1, v2, v3 := v[i], v[i+1], v[i+2], v[i+3]
		x := x[:k]
		for j, u := range h0 {
			x[j] += v0*u + v1*h1[j] + v2*h2[j] + v3*h3[j]
		}
	}
	for ; i < k; i++ {
		for j, u := range h[i*k:][:k] {
			x[j] += v[i] * u
		}
	}
	var sum float64
	for j, u := range v {
		sum += float64(u) * float64(x[j])
	}
	return sum
}

// each calls f for parts of [0, n) of at most step, on all cores.
func each(n, step int, f func(from, to int)) {
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), (n+step-1)/step) {
		wg.Go(func() {
			for {
				from := int(next.Add(int64(step))) - step
				if from >= n {
					return
				}
				f(from, min(from+step, n))
			}
		})
	}
	wg.Wait()
}
