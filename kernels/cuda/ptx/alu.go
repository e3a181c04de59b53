package ptx

import (
	"slices"
	"strings"
)

// A vec is one register of the 32 lanes of a warp. A register narrower than 64 bits is kept with
// zeros above it.
type vec [32]uint64

// An alu computes d from a, b and c for all 32 lanes; the caller merges under the mask. It may be
// called with garbage in inactive lanes and with d equal to a source.
type alu func(d, a, b, c *vec)

// An aluOp is an instruction without side effects: registers in, one register out.
type aluOp struct {
	f     alu
	src   []string // types of the sources; a trailing "~" permits a wider register
	dst   string
	class Class
}

// modifiers is the list of an instruction's modifiers; what nobody took is refused.
type modifiers struct {
	in   *instr
	left []string
}

func newModifiers(in *instr) *modifiers {
	return &modifiers{in, append([]string(nil), in.mods...)}
}

// take removes and returns the first of the options that is present, or "".
func (m *modifiers) take(options ...string) string {
	for i, s := range m.left {
		if slices.Contains(options, s) {
			m.left = append(m.left[:i], m.left[i+1:]...)
			return s
		}
	}
	return ""
}

func (m *modifiers) has(option string) bool { return m.take(option) != "" }

func (m *modifiers) mode(options string) (mode, bool) {
	switch m.take(strings.Fields(options)...) {
	case "rn", "rni":
		return rn, true
	case "rz", "rzi":
		return rz, true
	case "rm", "rmi":
		return rm, true
	case "rp", "rpi":
		return rp, true
	case "rna":
		return rna, true
	}
	return rn, false
}

// types ends the list: exactly n types must be left.
func (m *modifiers) types(n int) ([]string, error) {
	for i, s := range m.left {
		if _, ok := typeBytes[s]; !ok || i >= n {
			return nil, errorf(m.in.line, "%s: modifier .%s is not supported", m.in.name, s)
		}
	}
	if len(m.left) != n {
		return nil, errorf(m.in.line, "%s: %d types where %d belong", m.in.name, len(m.left), n)
	}
	return m.left, nil
}

func (m *modifiers) refuse() error {
	return errorf(m.in.line, "%s is not supported", m.in.name)
}

func width(typ string) uint { return uint(typeBytes[typ]) * 8 }
func maskOf(w uint) uint64  { return ^uint64(0) >> (64 - w) }
func signed(typ string) bool {
	return typ[0] == 's'
}

// ext extends the low w bits of v to 64, by sign or by zeros.
func ext(v uint64, w uint, sign bool) uint64 {
	if sign {
		return uint64(int64(v<<(64-w)) >> (64 - w))
	}
	return v << (64 - w) >> (64 - w)
}

func map1(f func(a uint64) uint64) alu {
	return func(d, a, _, _ *vec) {
		for i := range d {
			d[i] = f(a[i])
		}
	}
}

func map2(f func(a, b uint64) uint64) alu {
	return func(d, a, b, _ *vec) {
		for i := range d {
			d[i] = f(a[i], b[i])
		}
	}
}

func map3(f func(a, b, c uint64) uint64) alu {
	return func(d, a, b, c *vec) {
		for i := range d {
			d[i] = f(a[i], b[i], c[i])
		}
	}
}

func isFloat(typ string) bool {
	return typ[0] == 'f' || typ == "bf16" || typ == "bf16x2" || typ == "tf32"
}

// compileALU finds the function of an instruction. ok is false when the opcode is none of these.
func compileALU(in *instr) (op aluOp, ok bool, err error) {
	op, ok, err = generalALU(in)
	if f := quick(in); f != nil && ok && err == nil {
		op.f = f
	}
	return op, ok, err
}

func generalALU(in *instr) (op aluOp, ok bool, err error) {
	m := newModifiers(in)
	last := ""
	if len(in.mods) > 0 {
		last = in.mods[len(in.mods)-1]
	}
	switch in.op {
	case "add", "sub", "mul", "mad", "min", "max", "abs", "neg", "div":
		if last != "" && isFloat(last) {
			op, err = floatALU(m)
		} else {
			op, err = intALU(m)
		}
	case "fma", "rcp", "sqrt", "rsqrt", "sin", "cos", "lg2", "ex2", "tanh", "copysign":
		op, err = floatALU(m)
	case "rem", "mul24", "mad24", "sad", "popc", "clz", "bfind", "brev", "bfe", "bfi", "dp4a", "dp2a",
		"and", "or", "xor", "not", "cnot", "lop3", "shf", "shl", "shr", "prmt", "bmsk", "szext":
		if last == "pred" {
			return op, false, nil
		}
		op, err = intALU(m)
	case "cvt":
		op, err = convert(m)
	case "set":
		if last != "f16x2" {
			return op, false, nil
		}
		op, err = setHalves(m)
	case "vabsdiff2", "vabsdiff4":
		op, err = absDiff(m)
	case "slct":
		op, err = slct(m)
	default:
		return op, false, nil
	}
	return op, true, err
}
