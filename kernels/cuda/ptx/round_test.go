package ptx

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
)

// oracle rounds the exact x to f with math/big, subnormals included.
func oracle(f format, x *big.Float, m mode) uint64 {
	bm := map[mode]big.RoundingMode{rn: big.ToNearestEven, rz: big.ToZero, rm: big.ToNegativeInf, rp: big.ToPositiveInf, rna: big.ToNearestAway}[m]
	bias := 1<<(f.exp-1) - 1
	ulp := 1 - bias - int(f.mant) // exponent of the smallest subnormal
	if e := x.MantExp(nil) - 1 - int(f.mant); x.Sign() != 0 && e > ulp {
		ulp = e
	}
	scaled := new(big.Float).SetPrec(3000).SetMantExp(x, -ulp)
	// Round to an integer by adding and removing nothing: count units with big.Int.
	i, _ := scaled.Int(nil)
	fracPart := new(big.Float).SetPrec(3000).Sub(scaled, new(big.Float).SetPrec(3000).SetInt(i))
	s := fracPart.Sign()
	half := new(big.Float).Abs(fracPart).Cmp(big.NewFloat(0.5))
	away := false
	switch bm {
	case big.ToNearestEven:
		away = half > 0 || half == 0 && i.Bit(0) == 1
	case big.ToNearestAway:
		away = half >= 0
	case big.ToNegativeInf:
		away = s < 0
	case big.ToPositiveInf:
		away = s > 0
	}
	if away && s != 0 {
		i.Add(i, big.NewInt(int64(s)))
	}
	v, _ := new(big.Float).SetMantExp(new(big.Float).SetInt(i), ulp).Float64()
	maxv := math.Ldexp(float64(uint64(2)<<f.mant-1), bias-int(f.mant))
	if math.Abs(v) > maxv {
		neg := v < 0
		if m == rz || m == rm && !neg || m == rp && neg {
			v = math.Copysign(maxv, v)
		} else {
			v = math.Inf(int(math.Copysign(1, v)))
		}
	}
	// v is exact in f now: find its bits.
	sign := uint64(0)
	if math.Signbit(v) || v == 0 && x.Signbit() {
		sign = 1 << (f.mant + f.exp)
	}
	v = math.Abs(v)
	if v == 0 {
		return sign
	}
	if math.IsInf(v, 0) {
		return sign | (1<<f.exp-1)<<f.mant
	}
	frac, e := math.Frexp(v)
	e--
	if e < 1-bias {
		return sign | uint64(math.Ldexp(v, bias-1+int(f.mant)))
	}
	return sign | uint64(e+bias)<<f.mant | uint64(math.Ldexp(frac*2-1, int(f.mant)))
}

func TestNarrowRoundsOnceInEveryMode(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	ops := []string{"add", "fma", "div", "sqrt"}
	for n := 0; n < 40000; n++ {
		f := []format{fp16, bf16, fp32}[n%3]
		m := []mode{rn, rz, rm, rp}[r.IntN(4)]
		pick := func() float64 {
			for {
				b := r.Uint64() & (1<<(f.mant+f.exp+1) - 1)
				if r.IntN(2) == 0 { // exponents near each other: cancellation and ties
					b = b&^((1<<f.exp-1)<<f.mant) | uint64((1<<(f.exp-1))-2+r.IntN(4))<<f.mant
				}
				if x := f.widen(b); !math.IsInf(x, 0) && x == x && x != 0 {
					return x
				}
			}
		}
		a, b, c := pick(), pick(), pick()
		exact := new(big.Float).SetPrec(2500)
		A, B, C := big.NewFloat(a), big.NewFloat(b), big.NewFloat(c)
		var got float64
		switch op := ops[r.IntN(4)]; op {
		case "add":
			exact.Add(A, B)
			got = addOdd(a, b)
		case "fma":
			exact.Mul(A, B)
			exact.Add(exact, C)
			got = fmaOdd(a, b, c)
		case "div":
			exact.Quo(A, B)
			got = divOdd(a, b)
		case "sqrt":
			a = math.Abs(a)
			exact.Sqrt(new(big.Float).SetPrec(2500).SetFloat64(a))
			got = sqrtOdd(a)
		}
		if exact.Sign() == 0 {
			continue
		}
		if g, w := f.narrow(got, m), oracle(f, exact, m); g != w {
			t.Fatalf("case %d: %v %v %v format %v mode %d: got %#x want %#x", n, a, b, c, f, m, g, w)
		}
		if f == fp32 {
			if g, w := math.Float32bits(fma32(float32(a), float32(b), float32(c))),
				oracle(fp32, new(big.Float).SetPrec(2500).Add(new(big.Float).SetPrec(2500).Mul(A.SetFloat64(a), B), C), rn); uint64(g) != w && w&0x7fffffff != 0 {
				t.Fatalf("fma32(%v,%v,%v) = %#x, want %#x", a, b, c, g, w)
			}
		}
	}
}
