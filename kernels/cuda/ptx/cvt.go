package ptx

import "math"

// cvt: between integer widths, floating-point formats, and both.

func convert(m *modifiers) (aluOp, error) {
	md, rounded := m.mode("rn rz rm rp rna")
	imode, integer := m.mode("rni rzi rmi rpi")
	ftz, sat, relu := m.has("ftz"), m.has("sat"), m.has("relu")
	if len(m.left) == 2 && (m.left[0] == "f16x2" || m.left[0] == "bf16x2") && m.left[1] == "f32" {
		return convertPair(m, md, rounded, ftz || sat || integer, relu)
	}
	ts, err := m.types(2)
	if err != nil {
		return aluOp{}, err
	}
	dst, src := ts[0], ts[1]
	if width(dst) == 0 || width(src) == 0 || dst[0] == 'b' && dst != "bf16" || src[0] == 'b' && src != "bf16" {
		return aluOp{}, m.refuse()
	}
	op := aluOp{src: []string{src + "~"}, dst: dst + "~", class: Convert}
	dw, sw := width(dst), width(src)
	ds, ss := signed(dst), signed(src)
	switch {
	case relu && (dst != "f16" && dst != "bf16" || src != "f32"):
		return aluOp{}, m.refuse()
	case !isFloat(dst) && !isFloat(src):
		if rounded || integer || ftz {
			return aluOp{}, m.refuse()
		}
		op.f = map1(func(a uint64) uint64 {
			x := ext(a, sw, ss)
			if sat {
				x = clampInt(ss && int64(x) < 0, magnitude(x, ss), dw, ds)
			}
			return ext(x, dw, ds) // sign-extended: the destination may be wider than its type
		})
	case !isFloat(src):
		if !rounded || integer || ftz {
			return aluOp{}, m.refuse()
		}
		f, err := toFloat(m, dst, md, sat)
		if err != nil {
			return aluOp{}, err
		}
		op.f = map1(func(a uint64) uint64 {
			x := ext(a, sw, ss)
			neg := ss && int64(x) < 0
			mag := magnitude(x, ss)
			v := intOdd(neg, mag)
			if dst == "f64" {
				v = intTo64(neg, mag, md)
			}
			return f(v)
		})
	case !isFloat(dst):
		if rounded || !integer {
			return aluOp{}, m.refuse()
		}
		from := fromFloat(src, ftz)
		op.f = map1(func(a uint64) uint64 {
			x := roundInt(from(a), imode)
			if x != x {
				// NaN gives 0, but 0x80... to 64 bits and from float64.
				if dw == 64 || src == "f64" {
					return ext(1<<(dw-1), dw, ds)
				}
				return 0
			}
			neg := x < 0
			mag := uint64(math.MaxUint64)
			if math.Abs(x) < 0x1p64 {
				mag = uint64(math.Abs(x))
			}
			return ext(clampInt(neg, mag, dw, ds), dw, ds)
		})
	default:
		return convertFloat(m, op, dst, src, md, rounded, imode, integer, ftz, sat, relu)
	}
	return op, nil
}

func magnitude(x uint64, s bool) uint64 {
	if s && int64(x) < 0 {
		return -x
	}
	return x
}

// clampInt limits an integer to what a type of w bits holds.
func clampInt(neg bool, mag uint64, w uint, s bool) uint64 {
	switch {
	case !s && neg:
		return 0
	case !s:
		return min(mag, maskOf(w))
	case neg:
		return -min(mag, 1<<(w-1))
	}
	return min(mag, 1<<(w-1)-1)
}

// fromFloat gives the value of a source operand.
func fromFloat(src string, ftz bool) func(uint64) float64 {
	switch src {
	case "f64":
		return f64
	case "f32":
		if ftz {
			return func(a uint64) float64 { return float64(flush(f32(a))) }
		}
		return func(a uint64) float64 { return float64(f32(a)) }
	case "f16":
		return func(a uint64) float64 { return float64(halfTable[a&0xffff]) }
	}
	return func(a uint64) float64 { return bf16.widen(a & 0xffff) }
}

// toFloat rounds a value that was rounded to odd before (exact for f64).
func toFloat(m *modifiers, dst string, md mode, sat bool) (func(float64) uint64, error) {
	fm := map[string]format{"f32": fp32, "f16": fp16, "bf16": bf16}[dst]
	one := map[string]uint64{"f32": 0x3f800000, "f16": 0x3c00, "bf16": 0x3f80, "f64": 0x3ff0000000000000}[dst]
	if one == 0 || md == rna {
		return nil, m.refuse()
	}
	return func(x float64) uint64 {
		switch {
		case sat && !(x > 0):
			return 0
		case sat && x >= 1:
			return one
		case dst == "f64":
			return b64(x)
		}
		return fm.narrow(x, md)
	}, nil
}

func intTo64(neg bool, mag uint64, md mode) float64 {
	x := float64(mag)
	back := mag
	if x < 0x1p64 {
		back = uint64(x)
	}
	err := 0.0
	switch {
	case x >= 0x1p64:
		err = -1
	case back < mag:
		err = 1
	case back > mag:
		err = -1
	}
	if neg {
		x, err = -x, -err
	}
	return step64(x, err, md)
}

func roundInt(x float64, md mode) float64 {
	switch md {
	case rz:
		return math.Trunc(x)
	case rm:
		return math.Floor(x)
	case rp:
		return math.Ceil(x)
	}
	return math.RoundToEven(x)
}

func convertFloat(m *modifiers, op aluOp, dst, src string, md mode, rounded bool, imode mode, integer, ftz, sat, relu bool) (aluOp, error) {
	from := fromFloat(src, ftz)
	op.src[0], op.dst = src, dst
	if dst == "tf32" {
		if src != "f32" || md != rna || integer || ftz || sat || relu {
			return aluOp{}, m.refuse()
		}
		op.dst = "b32"
		op.f = map1(func(a uint64) uint64 { return tf32.narrow(from(a), rna) << 13 })
		return op, nil
	}
	if rounded && (width(dst) >= width(src) || md == rna) || !rounded && width(dst) < width(src) {
		return aluOp{}, m.refuse()
	}
	if integer && dst != src || dst == src && !integer && !sat && !ftz || ftz && dst != "f32" && src != "f32" {
		return aluOp{}, m.refuse()
	}
	if src == "bf16" && dst != "f32" || dst == "bf16" && src != "f32" || dst == "bf16" && (sat || md == rm || md == rp) {
		return aluOp{}, m.refuse()
	}
	f, err := toFloat(m, dst, md, sat)
	if err != nil {
		return aluOp{}, err
	}
	op.f = map1(func(a uint64) uint64 {
		x := from(a)
		if integer {
			x = roundInt(x, imode)
		}
		if relu && !(x > 0) && x == x {
			x = 0
		}
		r := f(x)
		if ftz && dst == "f32" {
			r = uint64(math.Float32bits(flush(f32(r))))
		}
		return r
	})
	return op, nil
}

// convertPair: cvt.rn.f16x2.f32 d, a, b puts a in the upper half and b in the lower.
func convertPair(m *modifiers, md mode, rounded, other, relu bool) (aluOp, error) {
	ts, err := m.types(2)
	if err != nil || other || !rounded || md != rn && md != rz {
		return aluOp{}, m.refuse()
	}
	fm := halfFormat(ts[0])
	one := func(a uint64) uint64 {
		x := f32(a)
		if relu && x <= 0 {
			x = 0
		}
		return fm.narrow(float64(x), md)
	}
	return aluOp{map2(func(a, b uint64) uint64 { return one(a)<<16 | one(b) }), []string{"f32", "f32"}, ts[0], Convert}, nil
}
