package ptx

import (
	"math"
	"slices"
	"strings"
)

// The loops of the instructions in which kernels spend their time. Each gives, bit for bit, what
// the general form of its instruction gives (a test compares them), without a call for each lane.

var quickForms = map[string]alu{
	"fma.rn.f32": func(d, a, b, c *vec) {
		for i := range d {
			s := float64(f32(a[i]))*float64(f32(b[i])) + float64(f32(c[i])) // the product is exact
			if u := math.Float64bits(s); u&(1<<29-1) == 1<<28 || u<<1>>53 < 1023-125 && s != 0 {
				d[i] = b32(fma32(f32(a[i]), f32(b[i]), f32(c[i])))
				continue
			}
			d[i] = b32(float32(s))
		}
	},
	"add.ftz.f32": func(d, a, b, _ *vec) {
		for i := range d {
			d[i] = b32(flush(flush(f32(a[i])) + flush(f32(b[i]))))
		}
	},
	"sub.ftz.f32": func(d, a, b, _ *vec) {
		for i := range d {
			d[i] = b32(flush(flush(f32(a[i])) - flush(f32(b[i]))))
		}
	},
	"mul.ftz.f32": func(d, a, b, _ *vec) {
		for i := range d {
			d[i] = b32(flush(flush(f32(a[i])) * flush(f32(b[i]))))
		}
	},
	"max.f32": func(d, a, b, _ *vec) {
		for i := range d {
			d[i] = pick(a[i], b[i], f32(a[i]) > f32(b[i]), 0)
		}
	},
	"min.f32": func(d, a, b, _ *vec) {
		for i := range d {
			d[i] = pick(a[i], b[i], f32(a[i]) < f32(b[i]), 1<<31)
		}
	},
	"neg.f32": func(d, a, _, _ *vec) {
		for i := range d {
			d[i] = sign32(a[i], a[i]^1<<31)
		}
	},
	"abs.f32": func(d, a, _, _ *vec) {
		for i := range d {
			d[i] = sign32(a[i], a[i]&0x7fffffff)
		}
	},
	"ex2.approx.f32": func(d, a, _, _ *vec) {
		for i := range d {
			d[i] = b32(float32(exp2(float64(f32(a[i])))))
		}
	},
	"ex2.approx.ftz.f32": func(d, a, _, _ *vec) {
		for i := range d {
			d[i] = b32(flush(float32(exp2(float64(flush(f32(a[i])))))))
		}
	},

	"cvt.f32.f16": func(d, a, _, _ *vec) {
		for i := range d {
			d[i] = b32(halfTable[a[i]&0xffff])
		}
	},
	"cvt.rn.f16.f32": func(d, a, _, _ *vec) {
		for i := range d {
			d[i] = half(float64(f32(a[i])))
		}
	},
	"cvt.rn.f16x2.f32": func(d, a, b, _ *vec) {
		for i := range d {
			d[i] = half(float64(f32(a[i])))<<16 | half(float64(f32(b[i])))
		}
	},
	"cvt.rn.bf16.f32": func(d, a, _, _ *vec) {
		for i := range d {
			d[i] = brain(a[i])
		}
	},
	"cvt.rn.bf16x2.f32": func(d, a, b, _ *vec) {
		for i := range d {
			d[i] = brain(a[i])<<16 | brain(b[i])
		}
	},
	"cvt.rn.f32.s32": func(d, a, _, _ *vec) {
		for i := range d {
			d[i] = b32(float32(int32(a[i])))
		}
	},
	"cvt.rn.f32.u32": func(d, a, _, _ *vec) {
		for i := range d {
			d[i] = b32(float32(int64(uint32(a[i]))))
		}
	},
	"cvt.u32.u64": low32, "cvt.u64.u32": low32,
	"cvt.s64.s32": func(d, a, _, _ *vec) {
		for i := range d {
			d[i] = uint64(int64(int32(a[i])))
		}
	},
	"cvt.u16.u32": func(d, a, _, _ *vec) {
		for i := range d {
			d[i] = a[i] & 0xffff
		}
	},

	"fma.rn.f16x2": func(d, a, b, c *vec) {
		for i := range d {
			x, y, z := a[i], b[i], c[i]
			d[i] = halfFMA(x&0xffff, y&0xffff, z&0xffff) | halfFMA(x>>16&0xffff, y>>16&0xffff, z>>16&0xffff)<<16
		}
	},
	"mul.f16x2": halfPairs(func(x, y float64) float64 { return x * y }),
	"add.f16x2": halfPairs(func(x, y float64) float64 { return x + y }),
	"sub.f16x2": halfPairs(func(x, y float64) float64 { return x - y }),

	"prmt.b32": func(d, a, b, c *vec) {
		for i := range d {
			x, sel := b[i]<<32|a[i], c[i]
			if sel&0x8888 == 0 {
				d[i] = x>>(8*(sel&7))&255 | x>>(8*(sel>>4&7))&255<<8 | x>>(8*(sel>>8&7))&255<<16 | x>>(8*(sel>>12&7))&255<<24
				continue
			}
			d[i] = permuted(x, sel)
		}
	},
	"shr.s32": func(d, a, b, _ *vec) {
		for i := range d {
			d[i] = uint64(uint32(int32(a[i]) >> min(b[i], 31)))
		}
	},
	"min.s32": func(d, a, b, _ *vec) {
		for i := range d {
			d[i] = uint64(uint32(min(int32(a[i]), int32(b[i]))))
		}
	},
	"max.s32": func(d, a, b, _ *vec) {
		for i := range d {
			d[i] = uint64(uint32(max(int32(a[i]), int32(b[i]))))
		}
	},
	"mul.wide.s32": func(d, a, b, _ *vec) {
		for i := range d {
			d[i] = uint64(int64(int32(a[i])) * int64(int32(b[i])))
		}
	},
}

// quick gives the loop of an instruction; nil when it has none.
func quick(in *instr) alu {
	return quickForms[in.op+"."+strings.Join(in.mods, ".")]
}

func low32(d, a, _, _ *vec) {
	for i := range d {
		d[i] = a[i] & 0xffffffff
	}
}

// sign32 is y, or the canonical NaN where x is one.
func sign32(x, y uint64) uint64 {
	if x&0x7fffffff > 0x7f800000 {
		return 0x7fffffff
	}
	return y
}

// pick is the first of two float32 when first says so, else the second; the number where one is
// NaN, and of two zeros the one with sign.
func pick(a, b uint64, first bool, sign uint64) uint64 {
	x, y := f32(a), f32(b)
	switch {
	case first:
		return a
	case x != x && y != y:
		return 0x7fffffff
	case x != x:
		return b
	case y != y:
		return a
	case x == y && a>>31 == sign>>31:
		return a
	}
	return b
}

// half rounds to fp16, to nearest. x is exact, or no nearer to a tie than its last bit.
func half(x float64) uint64 {
	u := math.Float64bits(x)
	e := u << 1 >> 53
	if e-(1023-14) > 29 { // subnormal, zero, infinite, NaN
		if u<<1 == 0 {
			return u >> 48
		}
		return fp16.narrow(x, rn)
	}
	t := u<<1>>1 - 1008<<52
	return u>>63<<15 | (t+1<<41-1+t>>42&1)>>42
}

// brain rounds float32 bits to bf16.
func brain(u uint64) uint64 {
	if u&0x7fffffff > 0x7f800000 {
		return bf16.nan()
	}
	return (u + 0x7fff + u>>16&1) >> 16 & 0xffff
}

// halfPairs applies f, whose float64 result is exact for fp16, to pairs.
func halfPairs(f func(x, y float64) float64) alu {
	return func(d, a, b, _ *vec) {
		for i := range d {
			x, y := a[i], b[i]
			d[i] = half(f(float64(halfTable[x&0xffff]), float64(halfTable[y&0xffff]))) |
				half(f(float64(halfTable[x>>16&0xffff]), float64(halfTable[y>>16&0xffff])))<<16
		}
	}
}

// halfFMA is a*b+c in fp16. The float64 sum may be inexact: near a tie, or where it is subnormal in
// fp16, it is made with care.
func halfFMA(a, b, c uint64) uint64 {
	x, y, z := float64(halfTable[a]), float64(halfTable[b]), float64(halfTable[c])
	s := x*y + z
	if u := math.Float64bits(s); u&(1<<42-1) == 1<<41 || u<<1>>53 < 1023-14 && s != 0 {
		s = fmaOdd(x, y, z)
	}
	return half(s)
}

var exp2Table = func() (t [64]float64) {
	for i := range t {
		t[i] = math.Exp2(float64(i) / 64)
	}
	return t
}()

// exp2 is 2**x to better than 2**-40 of it: in 64ths from a table, the rest from its series.
func exp2(x float64) float64 {
	if !(x > -1000 && x < 1000) {
		return math.Exp2(x)
	}
	k := math.Floor(x*64 + 0.5)
	n := int64(k)
	r := (x - k/64) * math.Ln2
	p := 1 + r*(1+r*(0.5+r*(1.0/6+r*(1.0/24))))
	return math.Float64frombits(uint64(n>>6+1023)<<52) * (exp2Table[n&63] * p)
}

// quickCompare gives the comparison of all lanes for integers and float32; nil for the rest.
func quickCompare(test, t string, ftz bool) func(a, b *vec) uint32 {
	if ftz || t[0] == 'b' && test != "eq" && test != "ne" || ordering(test, t, false) == nil {
		return nil
	}
	var less, equal func(a, b *vec) uint32
	switch {
	case t == "f32":
		return compareFloats(test)
	case isFloat(t):
		return nil
	default:
		shift, flip := 64-width(t), uint64(0)
		if signed(t) {
			flip = 1 << 63
		}
		less = func(a, b *vec) (m uint32) {
			for i := range a {
				if a[i]<<shift^flip < b[i]<<shift^flip {
					m |= 1 << i
				}
			}
			return m
		}
		equal = func(a, b *vec) (m uint32) {
			for i := range a {
				if a[i] == b[i] {
					m |= 1 << i
				}
			}
			return m
		}
	}
	switch test {
	case "eq":
		return equal
	case "ne":
		return func(a, b *vec) uint32 { return ^equal(a, b) }
	case "lt", "lo":
		return less
	case "gt", "hi":
		return func(a, b *vec) uint32 { return less(b, a) }
	case "ge", "hs":
		return func(a, b *vec) uint32 { return ^less(a, b) }
	default: // le, ls
		return func(a, b *vec) uint32 { return ^less(b, a) }
	}
}

func compareFloats(test string) func(a, b *vec) uint32 {
	less := func(a, b *vec) (m uint32) {
		for i := range a {
			if f32(a[i]) < f32(b[i]) {
				m |= 1 << i
			}
		}
		return m
	}
	atMost := func(a, b *vec) (m uint32) {
		for i := range a {
			if f32(a[i]) <= f32(b[i]) {
				m |= 1 << i
			}
		}
		return m
	}
	f := map[string]func(a, b *vec) uint32{
		"lt": less, "le": atMost,
		"gt":  func(a, b *vec) uint32 { return less(b, a) },
		"ge":  func(a, b *vec) uint32 { return atMost(b, a) },
		"eq":  func(a, b *vec) uint32 { return atMost(a, b) & atMost(b, a) },
		"ne":  func(a, b *vec) uint32 { return less(a, b) | less(b, a) },
		"num": func(a, b *vec) uint32 { return atMost(a, b) | less(b, a) },
	}
	// An unordered test holds where the opposite ordered one does not.
	opposite := map[string]string{"ltu": "ge", "leu": "gt", "gtu": "le", "geu": "lt", "equ": "ne", "neu": "eq", "nan": "num"}
	if g := f[opposite[test]]; g != nil {
		return func(a, b *vec) uint32 { return ^g(a, b) }
	}
	if !slices.Contains([]string{"lt", "le", "gt", "ge", "eq", "ne", "num"}, test) {
		return nil
	}
	return f[test]
}
