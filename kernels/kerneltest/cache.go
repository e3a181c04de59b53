package kerneltest

import (
	"math"

	"github.com/openinfer-go/openinfer/kernels"
)

// cached is what a cache of type t holds of a head: kernels.CacheLayout has the rule.
func cached(x []float64, t kernels.DType) []float64 {
	out := make([]float64, len(x))
	scale, top := 1.0, float64(kernels.CacheTop(t))
	if top > 0 {
		scale = cacheScale(x, top)
	}
	for i, v := range x {
		switch {
		case top == 0:
			out[i] = float64(round(v, t))
		case scale != 0:
			out[i] = roundCode(float64(float32(v)/float32(scale)), t) * scale
		}
	}
	return out
}

// cacheScale is the least bfloat16 that is not below max|x| / top, a division in float32.
func cacheScale(x []float64, top float64) float64 {
	largest := 0.0
	for _, v := range x {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return math.NaN()
		}
		largest = max(largest, math.Abs(v))
	}
	s := float64(float32(largest) / float32(top))
	if s == 0 {
		return 0
	}
	_, exponent := math.Frexp(s)                 // s = [0.5, 1) * 2^exponent
	step := math.Ldexp(1, max(exponent, -125)-8) // of a bfloat16, which has 8 bits of mantissa and float32's exponents
	return math.Ceil(s/step) * step
}

// roundCode is the code nearest to v, the even one of two.
func roundCode(v float64, t kernels.DType) float64 {
	if t == kernels.I8 || v == 0 {
		return math.RoundToEven(v)
	}
	_, exponent := math.Frexp(v)
	step := math.Ldexp(1, max(exponent, -5)-4) // 4 bits of mantissa, 2^-6 the smallest normal number
	return math.RoundToEven(v/step) * step
}

// codes are heads of n values whose codes a cache can get wrong.
func (h *harness) codes(n int, t kernels.DType) [][]float32 {
	fill := func(f func(i int) float64) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(f(i))
		}
		return x
	}
	with := func(at int, v float64) []float32 {
		x := h.rows(1, n)[0]
		x[at] = float32(v)
		return x
	}
	sign := func(i int) float64 { return float64(1 - 2*(i%2)) }
	heads := [][]float32{
		fill(func(int) float64 { return 0 }),
		fill(func(int) float64 { return math.Copysign(0, -1) }),
		fill(func(i int) float64 { return sign(i) * float64(i) * 1e-42 }),
		fill(func(i int) float64 { return sign(i) * math.SmallestNonzeroFloat32 }),
		fill(func(i int) float64 { return sign(i) * 1e-30 / float64(i+1) }),
		fill(func(i int) float64 { return sign(i) * 3e38 / float64(1+i%9) }),
		with(n/3, 1e4), with(n-1, -1e9), with(0, 1e-30),
		with(n/2, math.NaN()), with(0, math.Inf(1)), with(n-1, math.Inf(-1)), with(n-1, math.NaN()),
	}
	// With the largest code there the scale is 1: all codes, and what is halfway between two.
	top := float64(kernels.CacheTop(t))
	for from := 0; from < 256; from += n - 1 {
		heads = append(heads, fill(func(i int) float64 {
			switch k := float64(from+i-1) / 2; {
			case i == 0:
				return top
			case t == kernels.I8:
				return sign(i) * min(k, top)
			default: // k steps from 0, 8 of them a power of two
				power := math.Ldexp(1, max(0, int(k/8)-1)-9)
				return sign(i) * min(top, power*(k-8*float64(max(0, int(k/8)-1))))
			}
		}))
	}
	return append(heads, h.rows(3, n)...)
}

// cacheCodes wants each value and each key of types with scales to be stored as they should be, in every bit
// of a value and by what a score shows of a key: of extremes, too, and beside positions that are not a number.
func cacheCodes(h *harness) {
	for _, t := range h.d.Info().KVTypes {
		if kernels.CacheTop(t) == 0 {
			continue
		}
		for _, dims := range [][2]int{{64, 64}, {24, 44}, {128, 96}, {256, 256}, {512, 512}} {
			g := geometry{
				heads: 2 * min(32, dims[0]), kvHeads: 2, kDim: dims[0], vDim: dims[1], typ: t, blockTokens: 16,
				params: kernels.AttentionParams{Scale: 0.5, Window: 1},
			}
			h.sub(g.String(), func(h *harness) {
				keys, values := g, g
				keys.params.Window = 2
				values.heads = 2 * g.kvHeads // all query heads of one see the same value
				storedValues(h, values)
				storedKeys(h, keys)
			})
		}
	}
}

// storedValues: a token that sees itself alone gets its value.
func storedValues(h *harness, g geometry) {
	heads := h.codes(g.vDim, g.typ)
	w := h.world(g, 2*len(heads))
	s := w.sequence(len(heads))
	at := func(p, head int) []float32 { return heads[(p+head*5)%len(heads)] }
	for p, row := range s.qkv {
		for i := range g.kvHeads {
			copy(row[(g.heads+g.kvHeads)*g.kDim+i*g.vDim:][:g.vDim], at(p, i))
		}
	}
	for p, out := range w.run(row{s, len(heads), true})[0] {
		for head := range g.heads {
			x := at(p, head/(g.heads/g.kvHeads))
			for i, want := range cached(doubles(x), g.typ) {
				if got := out[head*g.vDim+i]; float64(got) != want && !(math.IsNaN(want) && got != got) {
					h.Fatalf("position %d, head %d: value %d of %v was stored as %v, want %v", p, head, i, x, got, want)
				}
			}
		}
	}
}

// storedKeys: odd positions have the key in question, even ones a key of zeros. Query heads look at one value of
// a key each, and the ratio of the two weights shows it. Values tell the two apart.
func storedKeys(h *harness, g geometry) {
	heads := h.codes(g.kDim, g.typ)
	w := h.world(g, 4*len(heads))
	s := w.sequence(2*len(heads) + 1)
	per := g.heads / g.kvHeads
	at := func(p, head int) []float32 { return heads[(p/2+head*5)%len(heads)] }
	// Beyond this one weight is 0, or rounded to what fp16 has left.
	limit := 60.0
	if h.tol.Attention > 1e-4 {
		limit = 14
	}
	looks := func(p, head int) int { return (head%per*(g.kDim/per) + p) % g.kDim }
	loud := func(x []float32) float64 { // what takes a key's largest value to 8, unless products with codes would not be finite
		largest := 0.0
		for _, v := range x {
			if !math.IsInf(float64(v), 0) {
				largest = max(largest, math.Abs(float64(v)))
			}
		}
		return min(8/max(largest, 1e-45), 1e33)
	}
	for p, row := range s.qkv {
		clear(row)
		for head := range g.heads {
			row[head*g.kDim+looks(p, head)] = float32(loud(at(p, head/per)))
		}
		for i := range g.kvHeads {
			if p%2 == 1 {
				copy(row[(g.heads+i)*g.kDim:][:g.kDim], at(p, i))
			}
			row[(g.heads+g.kvHeads)*g.kDim+i*g.vDim+p%2] = 1
		}
	}
	out := w.run(row{s, len(s.qkv), true})[0]
	for p := 1; p < len(out); p++ {
		for head := range g.heads {
			odd := p - 1 + p%2
			x := at(odd, head/per)
			q := float64(float32(loud(at(p, head/per))))
			want := float64(g.params.Scale) * q * cached(doubles(x), g.typ)[looks(p, head)]
			weights := out[p][head*g.vDim:][:2]
			got := math.Log(float64(weights[1]) / float64(weights[0]))
			if math.Abs(want) > limit {
				continue // one weight is 0
			}
			if math.IsNaN(got) != math.IsNaN(want) || math.Abs(got-want) > 1e-5*(1+math.Abs(want))+h.tol.Attention {
				h.Fatalf("position %d, head %d: score of value %d of the key %v at %d: got %v, want %v", p, head, looks(p, head), x, odd, got, want)
			}
		}
	}
}

func doubles(x []float32) []float64 {
	y := make([]float64, len(x))
	for i, v := range x {
		y[i] = float64(v)
	}
	return y
}
