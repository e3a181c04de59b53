package ptx

import (
	"math"
	"math/bits"
)

// Rounding. Narrow results are made in two steps: an exact sum, product or quotient is first
// rounded to float64 "to odd" (inexact results get their last bit set), then to its format in the
// mode the instruction names. With at least two spare bits that equals one rounding.

type mode uint8

const (
	rn  mode = iota // nearest, ties to even
	rz              // towards zero
	rm              // towards minus infinity
	rp              // towards plus infinity
	rna             // nearest, ties away from zero
)

// A format is a binary interchange format: mantissa bits without the hidden one, exponent bits.
type format struct{ mant, exp uint }

var (
	fp16 = format{10, 5}
	bf16 = format{7, 8}
	fp32 = format{23, 8}
	tf32 = format{10, 8}
)

func (f format) nan() uint64 { return 1<<(f.mant+f.exp) - 1 } // canonical: all ones, sign clear

// narrow rounds x to f. An overflow gives infinity or the largest finite number as the mode says.
func (f format) narrow(x float64, m mode) uint64 {
	b := math.Float64bits(x)
	sign := b >> 63 << (f.mant + f.exp)
	if x != x {
		return f.nan()
	}
	inf := uint64(1<<f.exp-1) << f.mant
	e := int(b >> 52 & 0x7ff)
	man := b & (1<<52 - 1)
	if e == 0x7ff {
		return sign | inf
	}
	if e == 0 {
		if man == 0 {
			return sign
		}
		s := bits.LeadingZeros64(man) - 11
		man <<= s
		e = 1 - s
	}
	man |= 1 << 52
	bias := 1<<(f.exp-1) - 1
	te := e - 1023 + bias // exponent field in f
	shift := 52 - f.mant
	if te < 1 {
		shift += uint(1 - te)
		te = 0
	}
	var out, rest, half uint64
	if shift > 54 {
		out, rest, half = 0, 1, 2 // less than half of the smallest number
	} else {
		out, rest, half = man>>shift, man&(1<<shift-1), 1<<(shift-1)
	}
	up := false
	switch m {
	case rn:
		up = rest > half || rest == half && out&1 == 1
	case rna:
		up = rest >= half
	case rm:
		up = rest != 0 && sign != 0
	case rp:
		up = rest != 0 && sign == 0
	}
	if up {
		out++
	}
	// The hidden bit carries into the exponent field, so out + (te-1)<<mant encodes both.
	if te > 0 {
		out += uint64(te-1) << f.mant
	}
	if out >= inf {
		if m == rz || m == rm && sign == 0 || m == rp && sign != 0 {
			return sign | (inf - 1)
		}
		return sign | inf
	}
	return sign | out
}

// widen gives the value of bits b in f, exactly.
func (f format) widen(b uint64) float64 {
	man := b & (1<<f.mant - 1)
	e := b >> f.mant & (1<<f.exp - 1)
	neg := b>>(f.mant+f.exp)&1 == 1
	bias := 1<<(f.exp-1) - 1
	var x float64
	switch {
	case e == 1<<f.exp-1 && man != 0:
		return math.NaN()
	case e == 1<<f.exp-1:
		x = math.Inf(1)
	case e == 0:
		x = math.Ldexp(float64(man), 1-bias-int(f.mant))
	default:
		x = math.Float64frombits(uint64(int(e)-bias+1023)<<52 | man<<(52-f.mant))
	}
	if neg {
		return -x
	}
	return x
}

// halfTable holds every fp16 number as float32.
var halfTable = func() *[1 << 16]float32 {
	var t [1 << 16]float32
	for i := range t {
		t[i] = float32(fp16.widen(uint64(i)))
	}
	return &t
}()

// odd sets the last bit of s when the exact result differs from s by err: round to odd.
func odd(s, err float64) float64 {
	if err == 0 || err != err || math.IsInf(s, 0) {
		return s
	}
	b := math.Float64bits(s)
	if b&1 == 1 {
		return s
	}
	if (err > 0) == (s > 0) { // the exact magnitude is larger: s was cut
		return math.Float64frombits(b | 1)
	}
	return math.Float64frombits(b - 1)
}

// addOdd is a+b rounded to odd.
func addOdd(a, b float64) float64 {
	s := a + b
	t := s - a
	return odd(s, (a-(s-t))+(b-t))
}

// fmaOdd is a*b+c rounded to odd; a*b must be exact in float64.
func fmaOdd(a, b, c float64) float64 { return addOdd(float64(a*b), c) }

// divOdd is a/b rounded to odd.
func divOdd(a, b float64) float64 {
	q := a / b
	if q == 0 || q != q || math.IsInf(q, 0) || math.IsInf(b, 0) {
		return q
	}
	r := math.FMA(-q, b, a) // exact: sign says on which side of q the quotient lies
	if (b < 0) != (r < 0) && r != 0 {
		return odd(q, -1)
	}
	if r != 0 {
		return odd(q, 1)
	}
	return q
}

// sqrtOdd is the square root of a rounded to odd.
func sqrtOdd(a float64) float64 {
	s := math.Sqrt(a)
	if s == 0 || s != s || math.IsInf(s, 0) {
		return s
	}
	return odd(s, math.FMA(-s, s, a))
}

// intOdd is an integer of 64 bits as a float64 rounded to odd.
func intOdd(neg bool, mag uint64) float64 {
	var x float64
	if n := bits.Len64(mag); n > 53 {
		s := n - 53
		m := mag >> s
		if m<<s != mag {
			m |= 1
		}
		x = math.Ldexp(float64(m), s)
	} else {
		x = float64(mag)
	}
	if neg {
		return -x
	}
	return x
}

// step64 moves s, the float64 nearest to an exact result, to the neighbour mode m asks for; err is
// the sign of exact minus s.
func step64(s, err float64, m mode) float64 {
	if err == 0 || s != s {
		return s
	}
	down, up := math.Inf(-1), math.Inf(1)
	switch {
	case m == rm && err < 0, m == rz && err < 0 && s > 0:
		return math.Nextafter(s, down)
	case m == rp && err > 0, m == rz && err > 0 && s < 0:
		return math.Nextafter(s, up)
	}
	return s
}

func f32(v uint64) float32 { return math.Float32frombits(uint32(v)) }
func f64(v uint64) float64 { return math.Float64frombits(v) }

// b32 gives the bits of x with the one NaN that float32 arithmetic makes.
func b32(x float32) uint64 {
	if x != x {
		return 0x7fffffff
	}
	return uint64(math.Float32bits(x))
}
func b64(x float64) uint64 { return math.Float64bits(x) }

func flush(x float32) float32 {
	if b := math.Float32bits(x); b&0x7f800000 == 0 {
		return math.Float32frombits(b & 0x80000000)
	}
	return x
}

func saturate32(x float32) float32 {
	if !(x > 0) { // also NaN
		return 0
	}
	return min(x, 1)
}

// fma32 is a*b+c in float32 with one rounding.
func fma32(a, b, c float32) float32 {
	p := float64(a) * float64(b) // exact
	s := p + float64(c)
	// Rounding s again goes wrong only where s sits on a tie of float32 that the exact sum misses,
	// or where the result is subnormal.
	if math.Float64bits(s)&(1<<29-1) == 1<<28 || math.Abs(s) < 0x1p-125 {
		return float32(addOdd(p, float64(c)))
	}
	return float32(s)
}
