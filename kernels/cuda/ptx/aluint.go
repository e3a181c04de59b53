package ptx

import "math/bits"

// Integer and bit instructions.

func intALU(m *modifiers) (aluOp, error) {
	op := m.in.op
	part := m.take("lo", "hi", "wide")
	sat := m.has("sat")
	switch op {
	case "mul", "mad", "mul24", "mad24":
		if part == "" {
			return aluOp{}, m.refuse()
		}
	default:
		if part != "" && op != "dp2a" {
			return aluOp{}, m.refuse()
		}
	}
	if sat && op != "add" && op != "sub" {
		return aluOp{}, m.refuse()
	}
	switch op {
	case "shf":
		return funnel(m)
	case "prmt":
		return permute(m)
	case "dp4a", "dp2a":
		return dotProduct(m, part)
	case "bfind":
		return findBit(m)
	case "bmsk", "szext":
		return maskOps(m)
	}
	ts, err := m.types(1)
	if err != nil {
		return aluOp{}, err
	}
	t := ts[0]
	w, s := width(t), signed(t)
	mask := maskOf(max(w, 1))
	if isFloat(t) || w == 0 || w == 8 {
		return aluOp{}, m.refuse()
	}
	bitwise := t[0] == 'b'
	one := func(c Class, f func(a uint64) uint64) (aluOp, error) {
		return aluOp{map1(f), []string{t}, t, c}, nil
	}
	two := func(c Class, f alu) (aluOp, error) { return aluOp{f, []string{t, t}, t, c}, nil }
	switch op {
	case "and", "or", "xor", "not", "cnot", "shl", "brev", "lop3", "popc", "clz", "bfi":
		if !bitwise {
			return aluOp{}, m.refuse()
		}
	case "shr":
	default:
		if bitwise {
			return aluOp{}, m.refuse()
		}
	}
	switch op {
	case "add":
		if sat {
			if t != "s32" {
				return aluOp{}, m.refuse()
			}
			return two(Integer, map2(func(a, b uint64) uint64 { return clampS32(int64(int32(a)) + int64(int32(b))) }))
		}
		return two(Integer, func(d, a, b, _ *vec) {
			for i := range d {
				d[i] = (a[i] + b[i]) & mask
			}
		})
	case "sub":
		if sat {
			if t != "s32" {
				return aluOp{}, m.refuse()
			}
			return two(Integer, map2(func(a, b uint64) uint64 { return clampS32(int64(int32(a)) - int64(int32(b))) }))
		}
		return two(Integer, func(d, a, b, _ *vec) {
			for i := range d {
				d[i] = (a[i] - b[i]) & mask
			}
		})
	case "mul", "mad", "mul24", "mad24":
		return multiply(m, t, part)
	case "div", "rem":
		return two(Integer, map2(divide(op == "div", w, s)))
	case "min":
		if s {
			return two(Integer, map2(func(a, b uint64) uint64 { return uint64(min(int64(ext(a, w, true)), int64(ext(b, w, true)))) & mask }))
		}
		return two(Integer, map2(func(a, b uint64) uint64 { return min(a, b) }))
	case "max":
		if s {
			return two(Integer, map2(func(a, b uint64) uint64 { return uint64(max(int64(ext(a, w, true)), int64(ext(b, w, true)))) & mask }))
		}
		return two(Integer, map2(func(a, b uint64) uint64 { return max(a, b) }))
	case "abs", "neg":
		if !s {
			return aluOp{}, m.refuse()
		}
		always := op == "neg"
		return one(Integer, func(a uint64) uint64 {
			if always || a>>(w-1)&1 == 1 {
				a = -a
			}
			return a & mask
		})
	case "sad":
		return aluOp{map3(func(a, b, c uint64) uint64 {
			x, y := ext(a, w, s), ext(b, w, s)
			if s && int64(x) < int64(y) || !s && x < y {
				x, y = y, x
			}
			return (c + x - y) & mask
		}), []string{t, t, t}, t, Integer}, nil
	case "and":
		return two(Logic, func(d, a, b, _ *vec) {
			for i := range d {
				d[i] = a[i] & b[i]
			}
		})
	case "or":
		return two(Logic, func(d, a, b, _ *vec) {
			for i := range d {
				d[i] = a[i] | b[i]
			}
		})
	case "xor":
		return two(Logic, func(d, a, b, _ *vec) {
			for i := range d {
				d[i] = a[i] ^ b[i]
			}
		})
	case "not":
		return one(Logic, func(a uint64) uint64 { return ^a & mask })
	case "cnot":
		return one(Logic, func(a uint64) uint64 {
			if a == 0 {
				return 1
			}
			return 0
		})
	case "lop3":
		return lop3(m, t)
	case "shl":
		return aluOp{func(d, a, b, _ *vec) {
			for i := range d {
				d[i] = a[i] << b[i] & mask // Go's shifts by 64 and more give 0
			}
		}, []string{t, "u32"}, t, Logic}, nil
	case "shr":
		if s {
			return aluOp{map2(func(a, b uint64) uint64 {
				return uint64(int64(ext(a, w, true))>>min(b, 63)) & mask
			}), []string{t, "u32"}, t, Logic}, nil
		}
		return aluOp{func(d, a, b, _ *vec) {
			for i := range d {
				d[i] = a[i] >> b[i]
			}
		}, []string{t, "u32"}, t, Logic}, nil
	case "popc":
		return aluOp{map1(func(a uint64) uint64 { return uint64(bits.OnesCount64(a)) }), []string{t}, "u32", Logic}, wideOnly(m, w)
	case "clz":
		return aluOp{map1(func(a uint64) uint64 { return uint64(bits.LeadingZeros64(a)) - uint64(64-w) }), []string{t}, "u32", Logic}, wideOnly(m, w)
	case "brev":
		return aluOp{map1(func(a uint64) uint64 { return bits.Reverse64(a) >> (64 - w) }), []string{t}, t, Logic}, wideOnly(m, w)
	case "bfe":
		return aluOp{map3(func(a, b, c uint64) uint64 {
			pos, n := uint(b&255), uint(c&255)
			if n == 0 {
				return 0
			}
			fill := uint64(0)
			if s && a>>min(pos+n-1, w-1)&1 == 1 {
				fill = mask
			}
			n = min(n, 64)
			x := fill
			if pos < w {
				keep := min(n, w-pos)
				x = a>>pos&maskOf(keep) | fill&^maskOf(keep)
			}
			return x & mask
		}), []string{t, "u32", "u32"}, t, Logic}, wideOnly(m, w)
	case "bfi":
		// bfi d, a, b, pos, len has four sources: the compiler packs pos and len (see compileBfi).
		return aluOp{map3(func(a, b, c uint64) uint64 {
			pos, n := uint(c&255), uint(c>>8&255)
			if pos >= w || n == 0 {
				return b
			}
			field := maskOf(min(n, w-pos)) << pos
			return b&^field | a<<pos&field
		}), []string{t, t, "u32", "u32"}, t, Logic}, wideOnly(m, w)
	}
	return aluOp{}, m.refuse()
}

func wideOnly(m *modifiers, w uint) error {
	if w < 32 {
		return m.refuse()
	}
	return nil
}

func clampS32(x int64) uint64 { return uint64(uint32(max(-1<<31, min(1<<31-1, x)))) }

// divide gives quotient or remainder. Division by zero, which PTX leaves open, gives what cards
// give: all ones for a quotient, the dividend for a remainder.
func divide(quotient bool, w uint, s bool) func(a, b uint64) uint64 {
	mask := maskOf(w)
	return func(a, b uint64) uint64 {
		a, b = a&mask, b&mask // a lane that is not active may hold what was in the register's place before
		if b == 0 {
			if quotient {
				return mask
			}
			return a
		}
		if s {
			x, y := int64(ext(a, w, true)), int64(ext(b, w, true))
			if y == -1 { // the smallest number by -1 overflows, and traps on some machines
				if quotient {
					return uint64(-x) & mask
				}
				return 0
			}
			if quotient {
				return uint64(x/y) & mask
			}
			return uint64(x%y) & mask
		}
		if quotient {
			return a / b
		}
		return a % b
	}
}

func multiply(m *modifiers, t, part string) (aluOp, error) {
	w, s := width(t), signed(t)
	mask := maskOf(w)
	add := m.in.op == "mad" || m.in.op == "mad24"
	out := t
	var f func(a, b uint64) uint64
	switch {
	case m.in.op == "mul24" || m.in.op == "mad24":
		if w != 32 || part == "wide" {
			return aluOp{}, m.refuse()
		}
		shift := uint(0)
		if part == "hi" {
			shift = 16
		}
		f = func(a, b uint64) uint64 { return ext(a, 24, s) * ext(b, 24, s) >> shift & mask }
	case part == "lo":
		f = func(a, b uint64) uint64 { return a * b & mask }
	case part == "wide":
		if w > 32 {
			return aluOp{}, m.refuse()
		}
		out = map[string]string{"u16": "u32", "s16": "s32", "u32": "u64", "s32": "s64"}[t]
		mask = maskOf(2 * w)
		f = func(a, b uint64) uint64 { return ext(a, w, s) * ext(b, w, s) & mask }
	case w == 64:
		f = func(a, b uint64) uint64 {
			hi, _ := bits.Mul64(a, b)
			if s {
				if int64(a) < 0 {
					hi -= b
				}
				if int64(b) < 0 {
					hi -= a
				}
			}
			return hi
		}
	default:
		f = func(a, b uint64) uint64 { return ext(a, w, s) * ext(b, w, s) >> w & mask }
	}
	if !add {
		return aluOp{map2(f), []string{t, t}, out, Integer}, nil
	}
	if part == "lo" && m.in.op == "mad" {
		return aluOp{func(d, a, b, c *vec) {
			for i := range d {
				d[i] = (a[i]*b[i] + c[i]) & mask
			}
		}, []string{t, t, out}, out, Integer}, nil
	}
	return aluOp{map3(func(a, b, c uint64) uint64 { return (f(a, b) + c) & mask }), []string{t, t, out}, out, Integer}, nil
}

func lop3(m *modifiers, t string) (aluOp, error) {
	args := m.in.args
	if t != "b32" || len(args) != 5 || args[4].kind != oInt {
		return aluOp{}, m.refuse()
	}
	table := uint(args[4].bits) & 255
	var f alu
	switch table { // the two-input functions nvcc writes most
	case 0xC0:
		f = func(d, a, b, _ *vec) {
			for i := range d {
				d[i] = a[i] & b[i]
			}
		}
	case 0xEA: // (a & b) | c
		f = func(d, a, b, c *vec) {
			for i := range d {
				d[i] = a[i]&b[i] | c[i]
			}
		}
	case 0x96:
		f = func(d, a, b, c *vec) {
			for i := range d {
				d[i] = a[i] ^ b[i] ^ c[i]
			}
		}
	default:
		var m [8]uint64 // by the bits of a, b and c: ones where the table has one
		for i := range m {
			m[i] = -uint64(table>>i&1) & 0xffffffff
		}
		f = func(d, a, b, c *vec) {
			for i := range d {
				x, y, z := a[i], b[i], c[i]
				d[i] = z&(x&y&m[7]|x&^y&m[5]|y&^x&m[3]|m[1]&^x&^y) | (x&y&m[6]|x&^y&m[4]|y&^x&m[2]|m[0]&^x&^y)&^z
			}
		}
	}
	return aluOp{f, []string{t, t, t, "imm"}, t, Logic}, nil
}

func funnel(m *modifiers) (aluOp, error) {
	dir, how := m.take("l", "r"), m.take("clamp", "wrap")
	ts, err := m.types(1)
	if err != nil || ts[0] != "b32" || dir == "" || how == "" {
		return aluOp{}, m.refuse()
	}
	return aluOp{map3(func(a, b, c uint64) uint64 {
		n := c & 31
		if how == "clamp" {
			n = min(c, 32)
		}
		x := b<<32 | a
		if dir == "l" {
			return x << n >> 32 & 0xffffffff
		}
		return x >> n & 0xffffffff
	}), []string{"b32", "b32", "u32"}, "b32", Logic}, nil
}

func permute(m *modifiers) (aluOp, error) {
	kind := m.take("f4e", "b4e", "rc8", "ecl", "ecr", "rc16")
	ts, err := m.types(1)
	if err != nil || ts[0] != "b32" {
		return aluOp{}, m.refuse()
	}
	selectors := map[string][4]uint64{
		"f4e": {0x3210, 0x4321, 0x5432, 0x6543}, "b4e": {0x5670, 0x6701, 0x7012, 0x0123},
		"rc8": {0x0000, 0x1111, 0x2222, 0x3333}, "ecl": {0x3210, 0x3211, 0x3222, 0x3333},
		"ecr": {0x0000, 0x1110, 0x2210, 0x3210}, "rc16": {0x1010, 0x3232, 0x1010, 0x3232},
	}[kind]
	return aluOp{map3(func(a, b, c uint64) uint64 {
		if kind != "" {
			c = selectors[c&3]
		}
		return permuted(b<<32|a, c)
	}), []string{"b32", "b32", "b32"}, "b32", Logic}, nil
}

// permuted chooses four of the eight bytes of x.
func permuted(x, c uint64) (out uint64) {
	for i := range 4 {
		sel := c >> (4 * i) & 15
		v := x >> (8 * (sel & 7)) & 255
		if sel&8 != 0 { // the byte's sign, eight times
			v = -(v >> 7) & 255
		}
		out |= v << (8 * i)
	}
	return out
}

func dotProduct(m *modifiers, part string) (aluOp, error) {
	ts, err := m.types(2)
	if err != nil || (part != "") != (m.in.op == "dp2a") || part == "wide" {
		return aluOp{}, m.refuse()
	}
	for _, t := range ts {
		if t != "u32" && t != "s32" {
			return aluOp{}, m.refuse()
		}
	}
	sa, sb := signed(ts[0]), signed(ts[1])
	out := "u32"
	if sa || sb {
		out = "s32"
	}
	f := func(a, b, c uint64) uint64 {
		for i := range 4 {
			c += ext(a>>(8*i), 8, sa) * ext(b>>(8*i), 8, sb)
		}
		return c & 0xffffffff
	}
	if m.in.op == "dp2a" {
		shift := 0
		if part == "hi" {
			shift = 16
		}
		f = func(a, b, c uint64) uint64 {
			for i := range 2 {
				c += ext(a>>(16*i), 16, sa) * ext(b>>(shift+8*i), 8, sb)
			}
			return c & 0xffffffff
		}
	}
	return aluOp{map3(f), []string{ts[0], ts[1], out}, out, Integer}, nil
}

func findBit(m *modifiers) (aluOp, error) {
	amount := m.has("shiftamt")
	ts, err := m.types(1)
	if err != nil || ts[0][0] == 'b' || isFloat(ts[0]) || width(ts[0]) < 32 {
		return aluOp{}, m.refuse()
	}
	w, s := width(ts[0]), signed(ts[0])
	return aluOp{map1(func(a uint64) uint64 {
		if s && a>>(w-1)&1 == 1 {
			a = ^a & maskOf(w)
		}
		n := bits.Len64(a)
		if n == 0 {
			return 0xffffffff
		}
		if amount {
			return uint64(int(w) - n)
		}
		return uint64(n - 1)
	}), []string{ts[0]}, "u32", Logic}, nil
}

func maskOps(m *modifiers) (aluOp, error) {
	how := m.take("clamp", "wrap")
	ts, err := m.types(1)
	if err != nil || how == "" {
		return aluOp{}, m.refuse()
	}
	t := ts[0]
	if m.in.op == "bmsk" {
		if t != "b32" {
			return aluOp{}, m.refuse()
		}
		return aluOp{map2(func(a, b uint64) uint64 {
			if how == "wrap" {
				a, b = a&31, b&31
			}
			if a >= 32 {
				return 0
			}
			return (1<<min(b, 32) - 1) << a & 0xffffffff
		}), []string{"u32", "u32"}, t, Logic}, nil
	}
	if t != "u32" && t != "s32" {
		return aluOp{}, m.refuse()
	}
	s := signed(t)
	return aluOp{map2(func(a, b uint64) uint64 {
		if how == "wrap" {
			b &= 31
		}
		if b == 0 {
			return 0
		}
		return ext(a, uint(min(b, 32)), s) & 0xffffffff
	}), []string{t, "u32"}, t, Logic}, nil
}

func slct(m *modifiers) (aluOp, error) {
	ftz := m.has("ftz")
	ts, err := m.types(2)
	if err != nil || width(ts[0]) < 16 || ts[1] != "s32" && ts[1] != "f32" || ftz && ts[1] != "f32" {
		return aluOp{}, m.refuse()
	}
	if ts[1] == "s32" {
		return aluOp{map3(func(a, b, c uint64) uint64 {
			if int32(c) >= 0 {
				return a
			}
			return b
		}), []string{ts[0], ts[0], "s32"}, ts[0], Move}, nil
	}
	return aluOp{map3(func(a, b, c uint64) uint64 {
		x := f32(c)
		if ftz {
			x = flush(x)
		}
		if x >= 0 {
			return a
		}
		return b
	}), []string{ts[0], ts[0], "f32"}, ts[0], Move}, nil
}

// absDiff: vabsdiff4.u32.u32.u32 d, a, b, c: |a - b| in each byte, or half, of a word; with .add
// their sum and c.
func absDiff(m *modifiers) (aluOp, error) {
	add := m.has("add")
	ts, err := m.types(3)
	if err != nil {
		return aluOp{}, err
	}
	if ts[0] != "u32" || ts[1] != ts[2] || ts[1] != "u32" && ts[1] != "s32" {
		return aluOp{}, m.refuse()
	}
	w, s := uint(8), signed(ts[1])
	if m.in.op == "vabsdiff2" {
		w = 16
	}
	return aluOp{map3(func(a, b, c uint64) uint64 {
		var out uint64
		for sh := uint(0); sh < 32; sh += w {
			d := int64(ext(a>>sh, w, s)) - int64(ext(b>>sh, w, s))
			d = max(d, -d)
			if add {
				c += uint64(d)
			} else {
				out |= uint64(d) << sh
			}
		}
		if add {
			return c & 0xffffffff
		}
		return out
	}), []string{"u32", "u32", "u32"}, "u32", Integer}, nil
}
