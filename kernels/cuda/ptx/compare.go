package ptx

import "slices"

// Comparisons: setp, set, testp.

// compare: setp and set, with the Boolean operator that joins the result with a predicate.
func (c *compiler) compare(m *modifiers) error {
	in := c.in
	test := m.take("eq", "ne", "lt", "le", "gt", "ge", "lo", "ls", "hi", "hs", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan")
	join := m.take("and", "or", "xor")
	ftz := m.has("ftz")
	n := 1
	if in.op == "set" {
		n = 2
	}
	ts, err := m.types(n)
	if err != nil {
		return err
	}
	t := ts[n-1]
	cmp := comparison(test, t, ftz)
	if cmp == nil {
		return m.refuse()
	}
	want := 3
	if join != "" {
		want = 4
	}
	if err := c.want(want); err != nil {
		return err
	}
	o := op{kind: kSetp, class: Predicate, cmp: cmp, d2: -1, p2: -1, p3: -1, sub: map[string]uint8{"": pMov, "and": pAnd, "or": pOr, "xor": pXor}[join]}
	if join != "" {
		if o.p3, err = c.pred(in.args[3]); err != nil {
			return err
		}
		o.neg3 = in.args[3].not
	}
	if o.a, err = c.source(in.args[1], t); err != nil {
		return err
	}
	if o.b, err = c.source(in.args[2], t); err != nil {
		return err
	}
	if in.op == "set" {
		if ts[0] != "u32" && ts[0] != "s32" && ts[0] != "f32" && !(t == "f16" && ts[0] == "f16") {
			return m.refuse()
		}
		o.kind, o.imm = kSet, map[string]int64{"f32": 0x3f800000, "u32": 0xffffffff, "s32": 0xffffffff, "f16": 0x3c00}[ts[0]]
		if o.d, err = c.dest(in.args[0], ts[0]); err != nil {
			return err
		}
		return c.guarded(o)
	}
	if t == "f16x2" || t == "bf16x2" {
		return m.refuse()
	}
	dst := in.args[0]
	pair := dst.pair
	dst.pair = nil
	if o.d, err = c.pred(dst); err != nil || dst.not {
		return c.errorf("a predicate belongs first")
	}
	if pair != nil {
		if o.d2, err = c.pred(*pair); err != nil {
			return err
		}
	}
	return c.guarded(o)
}

func lanes(f func(a, b uint64) bool) func(a, b *vec) uint32 {
	return func(a, b *vec) uint32 {
		var m uint32
		for i := range a {
			if f(a[i], b[i]) {
				m |= 1 << i
			}
		}
		return m
	}
}

func comparison(test, t string, ftz bool) func(a, b *vec) uint32 {
	if f := quickCompare(test, t, ftz); f != nil {
		return f
	}
	if f := ordering(test, t, ftz); f != nil {
		return lanes(f)
	}
	return nil
}

// ordering gives the comparison of two numbers of type t; nil when there is none.
func ordering(test, t string, ftz bool) func(a, b uint64) bool {
	w := width(t)
	if w < 16 {
		return nil
	}
	if !isFloat(t) {
		if ftz {
			return nil
		}
		s := signed(t)
		shift := 64 - w
		var f func(a, b uint64) bool
		switch test {
		case "eq":
			return func(a, b uint64) bool { return a == b }
		case "ne":
			return func(a, b uint64) bool { return a != b }
		case "lt", "lo":
			f = func(a, b uint64) bool { return a < b }
		case "le", "ls":
			f = func(a, b uint64) bool { return a <= b }
		case "gt", "hi":
			f = func(a, b uint64) bool { return a > b }
		case "ge", "hs":
			f = func(a, b uint64) bool { return a >= b }
		default:
			return nil
		}
		if t[0] == 'b' || s && slices.Contains([]string{"lo", "ls", "hi", "hs"}, test) {
			return nil
		}
		if !s {
			return f
		}
		// Shifted to the top with the sign flipped, signed numbers compare like unsigned ones.
		return func(a, b uint64) bool { return f(a<<shift^1<<63, b<<shift^1<<63) }
	}
	var value func(uint64) float64
	switch t {
	case "f16":
		value = func(a uint64) float64 { return float64(halfTable[a&0xffff]) }
		if ftz {
			value = func(a uint64) float64 { return float64(halfTable[flush16(a)]) }
		}
	case "bf16", "f32", "f64":
		if ftz && t != "f32" {
			return nil
		}
		value = fromFloat(t, ftz)
	default:
		return nil
	}
	unordered := len(test) == 3 && test[2] == 'u'
	if unordered {
		test = test[:2]
	}
	var f func(x, y float64) bool
	switch test {
	case "eq":
		f = func(x, y float64) bool { return x == y }
	case "ne":
		f = func(x, y float64) bool { return x < y || x > y }
	case "lt":
		f = func(x, y float64) bool { return x < y }
	case "le":
		f = func(x, y float64) bool { return x <= y }
	case "gt":
		f = func(x, y float64) bool { return x > y }
	case "ge":
		f = func(x, y float64) bool { return x >= y }
	case "num":
		f = func(x, y float64) bool { return x == x && y == y }
	case "nan":
		f = func(x, y float64) bool { return x != x || y != y }
	default:
		return nil
	}
	return func(a, b uint64) bool {
		x, y := value(a), value(b)
		return f(x, y) || unordered && (x != x || y != y)
	}
}

func (c *compiler) testp(m *modifiers) error {
	test := m.take("finite", "infinite", "number", "notanumber", "normal", "subnormal")
	ts, err := m.types(1)
	if err != nil || test == "" || ts[0] != "f32" && ts[0] != "f64" {
		return m.refuse()
	}
	if err := c.want(2); err != nil {
		return err
	}
	fm := fp32
	if ts[0] == "f64" {
		fm = format{52, 11}
	}
	f := func(a, _ uint64) bool {
		e, man := a>>fm.mant&(1<<fm.exp-1), a&(1<<fm.mant-1)
		top := uint64(1<<fm.exp - 1)
		switch test {
		case "finite":
			return e != top
		case "infinite":
			return e == top && man == 0
		case "number":
			return e != top || man == 0
		case "notanumber":
			return e == top && man != 0
		case "normal":
			return e != 0 && e != top
		}
		return e == 0 && man != 0
	}
	d, err := c.pred(c.in.args[0])
	if err != nil {
		return err
	}
	a, err := c.source(c.in.args[1], ts[0])
	if err != nil {
		return err
	}
	return c.guarded(op{kind: kSetp, class: Predicate, cmp: lanes(f), d: d, d2: -1, p2: -1, p3: -1, sub: pMov, a: a, b: a})
}
