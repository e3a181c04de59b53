package quant

import (
	"fmt"
	"math"

	"github.com/openinfer-go/openinfer/kernels"
)

// Scheme is how weights are made into codes: integers of Bits bits, one bfloat16 scale for each Group
// inputs of a row, and a zero point that is the middle code when Symmetric. w = scale * (code - zero).
type Scheme struct {
	Bits      int // 4 or 8
	Group     int
	Symmetric bool
}

// Matrix is the form of w[n,k] in this scheme, without a reader.
func (s Scheme) Matrix(name string, n, k int) kernels.Matrix {
	return kernels.Matrix{Name: name, N: n, K: k, Bits: s.Bits, Group: s.Group, ScaleType: kernels.BF16}
}

func (s Scheme) String() string {
	sym := "symmetric"
	if !s.Symmetric {
		sym = "asymmetric"
	}
	return fmt.Sprintf("int%d, groups of %d, %s", s.Bits, s.Group, sym)
}

// A search tries these shares of a group's range, 1 being round-to-nearest, and then those beside the best.
// A group of 128 normal or heavy-tailed weights has its best above 0.6.
var clips = [...]float32{1, 0.88, 0.76}

const beside = 0.06

// tiny is the largest weight of a group that is stored as zeros: a scale for it, and its inverse, would
// leave float32's normal numbers.
const tiny = 1e-30

// Search chooses the scale and zero point of one group x of weights, by the least squared error
// sum h*(x-w)^2 among clipped ranges, each improved by least squares. h are the weights of the
// inputs, nil for all the same. The result is never worse than Nearest's. It is NaN when an x is not finite.
func (s Scheme) Search(x, h []float32) (scale float32, zero uint8) {
	low, high, ok := span(x)
	first, some := s.nearest(low, high, 1)
	if !ok || !some {
		return s.Nearest(x)
	}
	best, least, at := first, math.Inf(1), float32(1)
	var plain float64 // the error of first, less sum h*x^2
	try := func(p float32) {
		c, ok := s.nearest(low, high, p)
		if !ok {
			return
		}
		a, b := s.moments(x, h, c)
		if !(a > 0) {
			return
		}
		if p == 1 {
			plain = excess(a, b, c.scale)
		}
		c.scale = a / b
		e := -float64(a * c.scale) // the error is sum h*x^2 - a^2/b with the scale a/b
		if s.Bits == 8 {           // and too small a difference
			c.scale = roundBF16(c.scale)
			e = s.error(x, h, c)
		}
		if e < least {
			best, least, at = c, e, p
		}
	}
	if s.Bits == 8 { // the range is hardly worth cutting for 256 codes
		try(1)
		try(127.5 / 128) // the least code for the least weight
		try(127.5 / 127)
	} else {
		for _, p := range clips {
			try(p)
		}
		p := at
		try(p + beside)
		try(p - beside)
	}
	best.scale = roundBF16(best.scale)
	if a, b := s.moments(x, h, best); a > 0 {
		best.scale = roundBF16(a / b)
	}
	if !(best.scale > tiny) {
		return first.scale, first.zero
	}
	a, b := s.moments(x, h, best)
	// Sums in float32 tell which error is the smaller, unless they nearly agree.
	if excess(a, b, best.scale) > plain+1e-4*plain && s.error(x, h, best) > s.error(x, h, first) {
		best = first
	}
	return best.scale, best.zero
}

// excess is the error less sum h*x^2, from the moments of the scale's codes.
func excess(a, b, scale float32) float64 {
	s := float64(scale)
	return s * (s*float64(b) - 2*float64(a))
}

// fit is a scale and a zero point.
type fit struct {
	scale float32
	zero  uint8
}

// Nearest is the scale and zero point of plain rounding to nearest: the codes span the group's range. The
// scale is NaN when an x is not finite.
func (s Scheme) Nearest(x []float32) (scale float32, zero uint8) {
	low, high, ok := span(x)
	if !ok {
		return float32(math.NaN()), 0
	}
	f, ok := s.nearest(low, high, 1)
	if !ok {
		return 1, 1 << (s.Bits - 1)
	}
	return f.scale, f.zero
}

// span is the range of x and 0, not ok when an x is not finite.
func span(x []float32) (low, high float32, ok bool) {
	for _, v := range x {
		if v < low {
			low = v
		}
		if v > high {
			high = v
		}
	}
	return low, high, notFinite(x) < 0
}

// notFinite is the number of the first x that is no number or infinite, -1 when there is none.
func notFinite(x []float32) int {
	var sum float32
	for _, v := range x {
		sum += v - v
	}
	if sum == 0 {
		return -1
	}
	for i, v := range x {
		if v-v != 0 {
			return i
		}
	}
	return -1
}

// nearest lets the codes span the share p of the range. It is not ok for a range that is stored as zeros.
func (s Scheme) nearest(low, high, p float32) (f fit, ok bool) {
	codes := float32(int(1)<<s.Bits - 1)
	if s.Symmetric {
		f = fit{roundBF16(p * max(high, -low) / (codes / 2)), 1 << (s.Bits - 1)}
	} else {
		f.scale = roundBF16(p*high/codes - p*low/codes)
	}
	if !(max(high, -low) > tiny) || !(f.scale > tiny) || f.scale > math.MaxFloat32 {
		return f, false
	}
	if !s.Symmetric {
		f.zero = uint8(min(max(nearestInt(-p*low/f.scale), 0), codes))
	}
	return f, true
}

// moments are sum h*x*v and sum h*v*v, v = code - zero of the codes that x rounds to with f.
func (s Scheme) moments(x, h []float32, f fit) (a, b float32) {
	inv := 1 / f.scale
	low, high := s.limits(f.zero)
	if h != nil {
		h = h[:len(x)]
		for i, u := range x {
			v := u * inv
			if v < low {
				v = low
			}
			if v > high {
				v = high
			}
			v = nearestInt(v)
			w := h[i] * v
			a += u * w
			b += v * w
		}
		return a, b
	}
	var a1, b1 float32
	for len(x) >= 2 { // two sums each, as an addition waits for the last
		u, w := x[0], x[1]
		v, y := u*inv, w*inv
		if v < low {
			v = low
		}
		if v > high {
			v = high
		}
		if y < low {
			y = low
		}
		if y > high {
			y = high
		}
		v, y = nearestInt(v), nearestInt(y)
		a += u * v
		b += v * v
		a1 += w * y
		b1 += y * y
		x = x[2:]
	}
	return a + a1, b + b1
}

// error is sum h*(x-w)^2.
func (s Scheme) error(x, h []float32, f fit) float64 {
	inv := 1 / f.scale
	low, high := s.limits(f.zero)
	var sum float64
	for i, u := range x {
		v := nearestInt(min(max(u*inv, low), high))
		e := float64(u) - float64(f.scale*v)
		if h != nil {
			e *= e * float64(h[i])
		} else {
			e *= e
		}
		sum += e
	}
	return sum
}

// limits are the least and the greatest code - zero.
func (s Scheme) limits(zero uint8) (low, high float32) {
	return -float32(zero), float32(int(1)<<s.Bits-1) - float32(zero)
}

// Codes rounds x to codes.
func (s Scheme) Codes(codes []uint8, x []float32, scale float32, zero uint8) {
	inv := 1 / scale
	low, high := s.limits(zero)
	z := float32(zero)
	codes = codes[:len(x)]
	for i, u := range x {
		v := u * inv
		if v < low {
			v = low
		}
		if v > high {
			v = high
		}
		codes[i] = uint8(int32(nearestInt(v) + z))
	}
}

// Rows quantises rows of k weights each into dst, from its row at on, which has been Reset for the scheme's
// Matrix; a group has an even number of inputs. It returns the number of a weight that is not finite, -1 when all are.
func (s Scheme) Rows(dst *kernels.Rows, at int, w []float32, k int) (bad int) {
	groups := k / s.Group
	for i := range len(w) / s.Group {
		x := w[i*s.Group : (i+1)*s.Group]
		scale, zero := s.Search(x, nil)
		if scale != scale {
			return i*s.Group + notFinite(x)
		}
		dst.Scale[at*groups+i], dst.Zero[at*groups+i] = scale, zero
		s.Codes(dst.Codes[at*k+i*s.Group:at*k+(i+1)*s.Group], x, scale, zero)
	}
	return -1
}

// nearestInt rounds to a whole number, to even between two, for |x| < 2^22.
func nearestInt(x float32) float32 {
	const magic = 3 << 22
	return float32(x+magic) - magic
}

// roundBF16 rounds to the nearest bfloat16, to even between two.
func roundBF16(x float32) float32 { return BF16(ToBF16(x)) }

// ToBF16 rounds to the nearest bfloat16, to even between two, and keeps a NaN one.
func ToBF16(x float32) uint16 {
	b := math.Float32bits(x)
	if x != x {
		return uint16(b>>16) | 0x40
	}
	return uint16((b + 0x7fff + b>>16&1) >> 16)
}
