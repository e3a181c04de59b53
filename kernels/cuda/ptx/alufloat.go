package ptx

import (
	"math"
	"math/big"
)

// Floating-point instructions. An arithmetic instruction is described once, by its exact value
// rounded to odd (round.go); the formats and modes follow from that. float32 at nearest, the bulk
// of any kernel, has its own loops.

func floatALU(m *modifiers) (aluOp, error) {
	op := m.in.op
	md, rounded := m.mode("rn rz rm rp")
	approx := m.take("approx", "full")
	ftz, sat := m.has("ftz"), m.has("sat")
	nan, xorsign, relu := m.has("NaN"), m.has("xorsign"), m.has("relu")
	m.has("abs") // of ".xorsign.abs"
	ts, err := m.types(1)
	if err != nil {
		return aluOp{}, err
	}
	t := ts[0]
	if !isFloat(t) || xorsign || (nan && op != "min" && op != "max") || (relu && op != "fma") || relu && (t == "f32" || t == "f64") {
		return aluOp{}, m.refuse()
	}
	switch op {
	case "min", "max", "abs", "neg", "copysign":
		if rounded || approx != "" || sat {
			return aluOp{}, m.refuse()
		}
		return floatSelect(m, t, nan, ftz)
	case "sin", "cos", "lg2", "ex2", "tanh", "rsqrt":
		if rounded || sat || approx != "approx" && !(op == "ex2" && approx == "approx") {
			return aluOp{}, m.refuse()
		}
		return special(m, t, ftz)
	case "div", "rcp", "sqrt":
		if approx != "" {
			if rounded || sat || t != "f32" && !(t == "f64" && op == "rcp" && ftz) {
				return aluOp{}, m.refuse()
			}
			return special(m, t, ftz)
		}
		if !rounded || sat || t != "f32" && t != "f64" {
			return aluOp{}, m.refuse()
		}
	case "add", "sub", "mul", "fma", "mad":
		if approx != "" || (op == "fma" || op == "mad") && !rounded {
			return aluOp{}, m.refuse()
		}
	default:
		return aluOp{}, m.refuse()
	}
	switch t {
	case "f32":
		return float32ALU(op, md, ftz, sat)
	case "f64":
		if ftz || sat {
			return aluOp{}, m.refuse()
		}
		return float64ALU(op, md)
	}
	if md != rn || t[0] == 'b' && (ftz || sat || op != "fma") {
		return aluOp{}, m.refuse()
	}
	return halfALU(m, op, t, ftz, sat, relu)
}

func arity(op, t string, c Class, f alu) aluOp {
	n := map[string]int{"fma": 3, "mad": 3, "rcp": 1, "sqrt": 1}[op]
	if n == 0 {
		n = 2
	}
	src := make([]string, n)
	for i := range src {
		src[i] = t
	}
	return aluOp{f, src, t, c}
}

// oddValue gives op's exact value rounded to odd, for operands of at most 24 bits.
func oddValue(op string) func(a, b, c float64) float64 {
	switch op {
	case "add":
		return func(a, b, _ float64) float64 { return addOdd(a, b) }
	case "sub":
		return func(a, b, _ float64) float64 { return addOdd(a, -b) }
	case "mul":
		return func(a, b, _ float64) float64 { return a * b }
	case "fma", "mad":
		return fmaOdd
	case "div":
		return func(a, b, _ float64) float64 { return divOdd(a, b) }
	case "rcp":
		return func(a, _, _ float64) float64 { return divOdd(1, a) }
	default: // sqrt
		return func(a, _, _ float64) float64 { return sqrtOdd(a) }
	}
}

func float32ALU(op string, md mode, ftz, sat bool) (aluOp, error) {
	class := FP32
	if op == "div" || op == "rcp" || op == "sqrt" {
		class = Special
	}
	if md == rn && !ftz && !sat {
		switch op {
		case "add":
			return arity(op, "f32", class, func(d, a, b, _ *vec) {
				for i := range d {
					d[i] = b32(f32(a[i]) + f32(b[i]))
				}
			}), nil
		case "sub":
			return arity(op, "f32", class, func(d, a, b, _ *vec) {
				for i := range d {
					d[i] = b32(f32(a[i]) - f32(b[i]))
				}
			}), nil
		case "mul":
			return arity(op, "f32", class, func(d, a, b, _ *vec) {
				for i := range d {
					d[i] = b32(f32(a[i]) * f32(b[i]))
				}
			}), nil
		case "fma", "mad":
			return arity(op, "f32", class, func(d, a, b, c *vec) {
				for i := range d {
					d[i] = b32(fma32(f32(a[i]), f32(b[i]), f32(c[i])))
				}
			}), nil
		}
	}
	in := f32
	if ftz {
		in = func(v uint64) float32 { return flush(f32(v)) }
	}
	exact := oddValue(op)
	subtracts := op == "add" || op == "sub" || op == "fma" || op == "mad"
	return arity(op, "f32", class, func(d, a, b, c *vec) {
		for i := range d {
			x := exact(float64(in(a[i])), float64(in(b[i])), float64(in(c[i])))
			if x == 0 && md == rm && subtracts {
				x = zeroDown(op, float64(in(a[i])), float64(in(b[i])), float64(in(c[i])))
			}
			r := f32(fp32.narrow(x, md))
			if ftz {
				r = flush(r)
			}
			if sat {
				r = saturate32(r)
			}
			d[i] = b32(r)
		}
	}), nil
}

// zeroDown is the sign of an exact zero sum when rounding towards minus infinity: minus, unless
// both terms are plus zero.
func zeroDown(op string, a, b, c float64) float64 {
	x, y := a, b
	switch op {
	case "sub":
		y = -b
	case "fma", "mad":
		x, y = a*b, c
	}
	if x == 0 && y == 0 && !math.Signbit(x) && !math.Signbit(y) {
		return 0
	}
	return math.Copysign(0, -1)
}

func float64ALU(op string, md mode) (aluOp, error) {
	near := map[string]func(a, b, c float64) float64{
		"add": func(a, b, _ float64) float64 { return a + b },
		"sub": func(a, b, _ float64) float64 { return a - b },
		"mul": func(a, b, _ float64) float64 { return a * b },
		"div": func(a, b, _ float64) float64 { return a / b },
		"fma": math.FMA, "mad": math.FMA,
		"rcp":  func(a, _, _ float64) float64 { return 1 / a },
		"sqrt": func(a, _, _ float64) float64 { return math.Sqrt(a) },
	}[op]
	f := near
	if md != rn {
		f = func(a, b, c float64) float64 { return directed64(op, near(a, b, c), a, b, c, md) }
	}
	return arity(op, "f64", FP64, func(d, a, b, c *vec) {
		for i := range d {
			d[i] = b64(f(f64(a[i]), f64(b[i]), f64(c[i])))
		}
	}), nil
}

// directed64 turns s, op's result to nearest, into the result in mode md by the sign of the exact
// error. It is slow, and rare.
func directed64(op string, s, a, b, c float64, md mode) float64 {
	for _, x := range []float64{a, b, c} {
		if x != x || math.IsInf(x, 0) {
			return s
		}
	}
	if s != s || math.IsInf(s, 0) && (op == "div" && b == 0 || op == "rcp" && a == 0) {
		return s
	}
	if s == 0 && md == rm && op != "mul" && op != "div" && op != "rcp" && op != "sqrt" && (op != "fma" && op != "mad" || float64(a*b) == 0 || c != 0) {
		if z := zeroDown(op, a, b, c); math.Signbit(z) && (a != 0 || b != 0 || c != 0 || math.Signbit(a) || math.Signbit(b)) {
			s = z
		}
	}
	big64 := func(x float64) *big.Float { return new(big.Float).SetPrec(4400).SetFloat64(x) }
	over := math.IsInf(s, 0)
	if over {
		s = math.Copysign(math.MaxFloat64, s)
	}
	// diff has the sign of exact - s.
	diff := new(big.Float).SetPrec(4400)
	switch op {
	case "add":
		diff.Sub(diff.Add(big64(a), big64(b)), big64(s))
	case "sub":
		diff.Sub(diff.Sub(big64(a), big64(b)), big64(s))
	case "mul":
		diff.Sub(diff.Mul(big64(a), big64(b)), big64(s))
	case "fma", "mad":
		diff.Sub(diff.Add(diff.Mul(big64(a), big64(b)), big64(c)), big64(s))
	case "div":
		diff.Sub(big64(a), new(big.Float).SetPrec(4400).Mul(big64(s), big64(b)))
		if b < 0 {
			diff.Neg(diff)
		}
	case "rcp":
		diff.Sub(big64(1), new(big.Float).SetPrec(4400).Mul(big64(s), big64(a)))
		if a < 0 {
			diff.Neg(diff)
		}
	case "sqrt":
		diff.Sub(big64(a), new(big.Float).SetPrec(4400).Mul(big64(s), big64(s)))
	}
	return step64(s, float64(diff.Sign()), md)
}

// halves applies f to each half of a packed pair, or to the one number.
func halves(t string, f func(a, b, c uint64) uint64) alu {
	if t == "f16" || t == "bf16" {
		return map3(f)
	}
	return map3(func(a, b, c uint64) uint64 {
		return f(a&0xffff, b&0xffff, c&0xffff) | f(a>>16, b>>16, c>>16)<<16
	})
}

func halfFormat(t string) format {
	if t[0] == 'b' {
		return bf16
	}
	return fp16
}

func halfALU(m *modifiers, op, t string, ftz, sat, relu bool) (aluOp, error) {
	if op == "mad" {
		return aluOp{}, m.refuse()
	}
	fm := halfFormat(t)
	exact := oddValue(op)
	in := fm.widen
	if fm == fp16 {
		in = func(b uint64) float64 { return float64(halfTable[b&0xffff]) }
		if ftz {
			in = func(b uint64) float64 { return float64(halfTable[flush16(b)]) }
		}
	}
	f := func(a, b, c uint64) uint64 {
		r := fm.narrow(exact(in(a), in(b), in(c)), rn)
		if ftz {
			r = flush16(r)
		}
		if sat || relu {
			x := fm.widen(r)
			switch {
			case sat && !(x > 0): // also NaN
				r = 0
			case sat && x > 1:
				r = 0x3c00
			case relu && x <= 0:
				r = 0
			}
		}
		return r
	}
	return arity(op, t, FP16, halves(t, f)), nil
}

func flush16(b uint64) uint64 {
	if b&0x7c00 == 0 {
		return b & 0x8000
	}
	return b & 0xffff
}

// floatSelect: min, max, abs, neg and copysign, which round nothing.
func floatSelect(m *modifiers, t string, nan, ftz bool) (aluOp, error) {
	op := m.in.op
	w := width(t)
	if ftz && (t == "f64" || t[0] == 'b') || nan && t == "f64" || op == "copysign" && t != "f32" && t != "f64" {
		return aluOp{}, m.refuse()
	}
	class := FP32
	value := func(b uint64) float64 { return float64(f32(b)) }
	canon := uint64(0x7fffffff)
	fl := func(b uint64) uint64 { return uint64(math.Float32bits(flush(f32(b)))) }
	elem := w
	switch t {
	case "f64":
		class, value, canon = FP64, f64, 0x7ff8000000000000
	case "f16", "f16x2", "bf16", "bf16x2":
		fm := halfFormat(t)
		class, value, canon, elem, fl = FP16, fm.widen, fm.nan(), 16, flush16
	}
	sign := uint64(1) << (elem - 1)
	var f func(a, b uint64) uint64
	n := 2
	switch op {
	case "copysign": // copysign d, a, b: the sign of a on b
		f = func(a, b uint64) uint64 { return a&sign | b&^sign }
	case "abs", "neg":
		n = 1
		f = func(a, _ uint64) uint64 {
			if x := value(a); x != x {
				if t == "f64" {
					return a ^ a&sign // the payload stays
				}
				return canon
			}
			if ftz {
				a = fl(a)
			}
			if op == "abs" {
				return a &^ sign
			}
			return a ^ sign
		}
		if t == "f64" && op == "neg" {
			f = func(a, _ uint64) uint64 { return a ^ sign }
		}
	default:
		isMin := op == "min"
		f = func(a, b uint64) uint64 {
			if ftz {
				a, b = fl(a), fl(b)
			}
			x, y := value(a), value(b)
			switch {
			case nan && (x != x || y != y), x != x && y != y:
				return canon
			case x != x:
				return b
			case y != y:
				return a
			case x == y: // +0 is larger than -0
				if (a&sign != 0) == isMin {
					return a
				}
				return b
			case (x < y) == isMin:
				return a
			}
			return b
		}
	}
	g := map2(f)
	if w == 32 && elem == 16 {
		g = map2(func(a, b uint64) uint64 { return f(a&0xffff, b&0xffff) | f(a>>16, b>>16)<<16 })
	}
	src := []string{t, t}
	return aluOp{g, src[:n], t, class}, nil
}

// special: the approximate functions. Cards promise an error bound (2 ulp for ex2, 2^-22.6
// absolute or relative for lg2, and so on); the rounded exact value lies within every one.
func special(m *modifiers, t string, ftz bool) (aluOp, error) {
	op := m.in.op
	f := map[string]func(a, b float64) float64{
		"sin": func(a, _ float64) float64 { return math.Sin(a) }, "cos": func(a, _ float64) float64 { return math.Cos(a) },
		"lg2": func(a, _ float64) float64 { return math.Log2(a) }, "ex2": func(a, _ float64) float64 { return math.Exp2(a) },
		"tanh": func(a, _ float64) float64 { return math.Tanh(a) }, "rsqrt": func(a, _ float64) float64 { return 1 / math.Sqrt(a) },
		"div": func(a, b float64) float64 { return a / b }, "rcp": func(a, _ float64) float64 { return 1 / a },
		"sqrt": func(a, _ float64) float64 { return math.Sqrt(a) },
	}[op]
	src := []string{t}
	if op == "div" {
		src = []string{t, t}
	}
	switch t {
	case "f32":
		if op == "tanh" && ftz {
			return aluOp{}, m.refuse()
		}
		return aluOp{func(d, a, b, _ *vec) {
			for i := range d {
				x, y := f32(a[i]), f32(b[i])
				if ftz {
					x, y = flush(x), flush(y)
				}
				r := float32(f(float64(x), float64(y)))
				if ftz {
					r = flush(r)
				}
				d[i] = b32(r)
			}
		}, src, t, Special}, nil
	case "f64":
		if op != "rcp" && op != "rsqrt" || op == "rcp" && !ftz {
			return aluOp{}, m.refuse()
		}
		// The card gives the upper 32 bits of a result of about 20 good bits, the lower are zero.
		return aluOp{map1(func(a uint64) uint64 {
			if a>>52&0x7ff == 0 && ftz {
				a &= 1 << 63
			}
			r := b64(f(f64(a), 0)) &^ 0xffffffff
			if r>>52&0x7ff == 0 && ftz {
				r &= 1 << 63
			}
			return r
		}), src, t, Special}, nil
	}
	if op != "tanh" && op != "ex2" || ftz && t[0] != 'b' && op != "ex2" || t[0] == 'b' && op == "ex2" && !ftz {
		return aluOp{}, m.refuse()
	}
	fm := halfFormat(t)
	return aluOp{halves(t, func(a, _, _ uint64) uint64 { return fm.narrow(f(fm.widen(a), 0), rn) }), src, t, Special}, nil
}

// setHalves: set.lt.f16x2.f16x2 and set.lt.u32.f16x2 compare each half; true is 1.0 or all ones.
func setHalves(m *modifiers) (aluOp, error) {
	test := m.take("eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan")
	ftz := m.has("ftz")
	ts, err := m.types(2)
	if err != nil {
		return aluOp{}, err
	}
	cmp := ordering(test, "f16", ftz)
	yes := map[string]uint64{"f16x2": 0x3c00, "u32": 0xffff, "s32": 0xffff}[ts[0]]
	if cmp == nil || yes == 0 {
		return aluOp{}, m.refuse()
	}
	one := func(a, b uint64) uint64 {
		if cmp(a&0xffff, b&0xffff) {
			return yes
		}
		return 0
	}
	return aluOp{map2(func(a, b uint64) uint64 { return one(a, b) | one(a>>16, b>>16)<<16 }), []string{"f16x2", "f16x2"}, ts[0], FP16}, nil
}
