package kerneltest

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"

	"github.com/openinfer-go/openinfer/kernels"
	"github.com/x448/float16"
)

// encoding is how a matrix is stored.
type encoding struct {
	bits  int
	group int // 0: the whole row
	min   bool
	typ   kernels.DType // of the values when bits is 0, else of the scales
	bias  bool
	perm  int // 0: inputs are stored in their order; else in one that the number says
}

func (e encoding) String() string {
	s := fmt.Sprintf("%d bits by %d %v", e.bits, e.group, e.typ)
	if e.bits == 0 {
		s = e.typ.String()
	}
	if e.min {
		s += " min"
	}
	if e.bias {
		s += " bias"
	}
	if e.perm != 0 {
		s += fmt.Sprint(" order ", e.perm)
	}
	return s
}

// made is a matrix with what its values are.
type made struct {
	kernels.Matrix
	want [][]float64 // [N][K]
}

// round rounds v to a value of type t.
func round(v float64, t kernels.DType) float32 {
	switch t {
	case kernels.F16:
		return float16.Fromfloat32(float32(v)).Float32()
	case kernels.BF16:
		b := math.Float32bits(float32(v))
		return math.Float32frombits((b + 0x7fff + b>>16&1) &^ 0xffff)
	}
	return float32(v)
}

// matrix makes a random matrix of N outputs and K inputs.
func (h *harness) matrix(name string, N, K int, e encoding) made {
	group := e.group
	if group == 0 {
		group = K
	}
	m := made{Matrix: kernels.Matrix{Name: name, N: N, K: K, Bits: e.bits, HasMin: e.min}}
	if e.bits == 0 {
		m.Type = e.typ
	} else {
		m.Group, m.ScaleType = group, e.typ
	}
	if e.bias {
		m.Bias = h.rows(1, N)[0]
	}
	if e.perm != 0 {
		for _, k := range rand.New(rand.NewPCG(uint64(e.perm), uint64(K))).Perm(K) {
			m.Perm = append(m.Perm, int32(k))
		}
	}
	var all kernels.Rows
	all.Reset(m.Matrix, N)
	for n := range N {
		size := (0.2 + h.rnd.Float64()) / math.Sqrt(float64(K))
		row := make([]float64, K)
		for k := range row {
			if e.bits == 0 {
				v := round(h.rnd.NormFloat64()*size, e.typ)
				all.Float[n*K+k], row[k] = v, float64(v)
				continue
			}
			g := n*(K/group) + k/group
			if k%group == 0 {
				levels := float64(int(1) << e.bits)
				all.Scale[g] = round(size*(0.5+h.rnd.Float64())*6/levels, e.typ)
				if h.rnd.IntN(10) == 0 {
					all.Scale[g] *= -1 // some formats have negative scales
				}
				if e.min {
					all.Min[g] = round(-size*h.rnd.Float64()*4, e.typ)
				} else {
					all.Zero[g] = uint8(h.rnd.IntN(int(levels)))
				}
			}
			code := uint8(h.rnd.IntN(1 << e.bits))
			all.Codes[n*K+k] = code
			if e.min {
				row[k] = float64(all.Scale[g])*float64(code) + float64(all.Min[g])
			} else {
				row[k] = float64(all.Scale[g]) * (float64(code) - float64(all.Zero[g]))
			}
		}
		if m.Perm != nil {
			stored := slices.Clone(row)
			for k, v := range stored {
				row[m.Perm[k]] = v
			}
		}
		m.want = append(m.want, row)
	}
	m.Read = reader(m.Matrix, all)
	return m
}

// reader hands out rows of all, and spoils what dst held before.
func reader(m kernels.Matrix, all kernels.Rows) func(*kernels.Rows, int, int) error {
	return func(dst *kernels.Rows, row, n int) error {
		if row < 0 || n <= 0 || row+n > m.N {
			return fmt.Errorf("rows %d to %d of %d", row, row+n, m.N)
		}
		*dst = kernels.Rows{} // a device may not count on the slices it passed in
		dst.Reset(m, n)
		groups := m.Groups()
		if m.Bits == 0 {
			copy(dst.Float, all.Float[row*m.K:])
			return nil
		}
		copy(dst.Codes, all.Codes[row*m.K:])
		copy(dst.Scale, all.Scale[row*groups:])
		if m.HasMin {
			copy(dst.Min, all.Min[row*groups:])
		} else {
			copy(dst.Zero, all.Zero[row*groups:])
		}
		return nil
	}
}

// loaded is a weight with what its values are.
type loaded struct {
	*kernels.Weight
	want [][]float64
	bias []float64
}

func (h *harness) load(parts ...made) loaded {
	h.Helper()
	var l loaded
	ms := make([]kernels.Matrix, len(parts))
	for i, p := range parts {
		ms[i] = p.Matrix
		l.want = append(l.want, p.want...)
		for n := range p.N {
			if p.Bias == nil {
				l.bias = append(l.bias, 0)
			} else {
				l.bias = append(l.bias, float64(p.Bias[n]))
			}
		}
	}
	w, err := h.d.Load(ms...)
	if err != nil {
		h.Fatal(err)
	}
	h.Cleanup(func() { h.d.Unload(w) })
	l.Weight = w
	if w.N != len(l.want) || w.K != parts[0].K || w.Bytes <= 0 || w.Name != parts[0].Name {
		h.Fatalf("loaded %q [%d,%d], %d bytes; want %q [%d,%d]", w.Name, w.N, w.K, w.Bytes, parts[0].Name, len(l.want), parts[0].K)
	}
	return l
}

// check compares dst = before + x w^T + bias with float64.
func (l loaded) check(h *harness, what string, dst kernels.Tensor, x, before [][]float32) {
	h.Helper()
	for t := range x {
		var xx float64
		for _, v := range x[t] {
			xx += float64(v) * float64(v)
		}
		for n, w := range l.want {
			want, ww := l.bias[n], 0.0
			for k, v := range x[t] {
				want += float64(v) * w[k]
				ww += w[k] * w[k]
			}
			scale := math.Sqrt(xx*ww) + math.Abs(l.bias[n])
			if before != nil {
				want += float64(before[t][n])
				scale += math.Abs(float64(before[t][n]))
			}
			h.close(fmt.Sprintf("%s: row %d, output %d", what, t, n), dst.Row(t)[n], want, h.tol.Linear*scale)
		}
	}
}

// shapes of a weight: parts with their own N and encoding.
type linearCase struct {
	K     int
	parts []linearPart
}

type linearPart struct {
	N int
	encoding
}

func linearCases() (cases []linearCase) {
	one := func(K, N int, e encoding) { cases = append(cases, linearCase{K, []linearPart{{N, e}}}) }
	for i, t := range []kernels.DType{kernels.F32, kernels.F16, kernels.BF16} {
		one(64, 40, encoding{typ: t})
		one(33+i, 13, encoding{typ: t, bias: true})
		one(576, 9, encoding{typ: t})
	}
	for _, bits := range []int{4, 8} {
		for _, min := range []bool{false, true} {
			one(32, 1, encoding{bits: bits, group: 32, min: min, typ: kernels.F16})
			one(48, 13, encoding{bits: bits, group: 16, min: min, typ: kernels.F32})
			one(64, 7, encoding{bits: bits, group: 64, min: min, typ: kernels.BF16, bias: true})
			one(160, 40, encoding{bits: bits, group: 32, min: min, typ: kernels.F16, bias: true})
			one(256, 129, encoding{bits: bits, group: 128, min: min, typ: kernels.BF16})
			one(576, 24, encoding{bits: bits, group: 32, min: min, typ: kernels.F32})
			one(256, 8, encoding{bits: bits, group: 16, min: min, typ: kernels.F16})
			one(96, 17, encoding{bits: bits, min: min, typ: kernels.BF16})
			one(1536, 11, encoding{bits: bits, group: 32, min: min, typ: kernels.F16})
		}
	}
	// Whole rows as one group whose length is no multiple of 32.
	one(40, 5, encoding{bits: 4, typ: kernels.F32})
	one(100, 6, encoding{bits: 8, min: true, typ: kernels.F32})
	// Group sizes beyond the usual.
	one(768, 16, encoding{bits: 4, group: 256, typ: kernels.BF16})
	// Inputs stored in order of activation.
	one(96, 17, encoding{bits: 4, group: 32, typ: kernels.F16, perm: 1})
	one(256, 24, encoding{bits: 4, group: 128, min: true, typ: kernels.BF16, bias: true, perm: 2})
	one(80, 9, encoding{bits: 8, group: 16, typ: kernels.F32, perm: 3})
	one(33, 5, encoding{typ: kernels.F32, perm: 4})
	cases = append(cases,
		linearCase{160, []linearPart{
			{24, encoding{bits: 4, group: 32, typ: kernels.F16, perm: 1}},
			{9, encoding{bits: 4, group: 32, typ: kernels.F16, perm: 1}},
			{8, encoding{bits: 8, group: 32, typ: kernels.F16, perm: 2, bias: true}},
			{13, encoding{bits: 4, group: 32, min: true, typ: kernels.F32}},
			{5, encoding{typ: kernels.BF16, perm: 1}},
		}},
		linearCase{128, []linearPart{
			{24, encoding{bits: 4, group: 32, typ: kernels.F16}},
			{8, encoding{bits: 4, group: 32, typ: kernels.F16}},
			{8, encoding{bits: 8, group: 32, typ: kernels.F16}},
		}},
		linearCase{256, []linearPart{
			{13, encoding{bits: 4, group: 32, min: true, typ: kernels.F16, bias: true}},
			{7, encoding{bits: 8, group: 16, typ: kernels.F32}},
			{1, encoding{typ: kernels.BF16}},
			{30, encoding{bits: 4, group: 128, typ: kernels.BF16}},
		}},
		linearCase{64, []linearPart{{5, encoding{typ: kernels.F32}}, {3, encoding{typ: kernels.F16, bias: true}}, {70, encoding{typ: kernels.BF16}}}},
	)
	return cases
}

func (h *harness) build(c linearCase) loaded {
	h.Helper()
	var parts []made
	for i, p := range c.parts {
		parts = append(parts, h.matrix(fmt.Sprintf("w%d", i), p.N, c.K, p.encoding))
	}
	return h.load(parts...)
}

func (c linearCase) String() string {
	s := fmt.Sprintf("K %d", c.K)
	for _, p := range c.parts {
		s += fmt.Sprintf(", N %d %v", p.N, p.encoding)
	}
	return s
}

func linear(h *harness) {
	const T = 70
	for _, c := range linearCases() {
		h.sub(c.String(), func(h *harness) {
			w := h.build(c)
			values := h.rows(T, c.K)
			clear(values[5]) // a row of zeros
			x := h.input(values)

			all := h.tensor(T, w.N)
			h.step(func() { h.d.Linear(all.Tensor, x.Tensor, w.Weight) })
			w.check(h, "linear", all.Tensor, values, nil)
			h.intact("linear", all)
			h.intact("linear's x", x)
			h.alone("linear", all, nil, func(dst kernels.Tensor, from, to int) {
				h.d.Linear(dst, x.RowRange(from, to), w.Weight)
			})

			before := h.rows(T, w.N)
			added := h.input(before)
			h.step(func() { h.d.LinearAdd(added.Tensor, x.Tensor, w.Weight) })
			w.check(h, "linearAdd", added.Tensor, values, before)
			h.intact("linearAdd", added)
			h.alone("linearAdd", added, before, func(dst kernels.Tensor, from, to int) {
				h.d.LinearAdd(dst, x.RowRange(from, to), w.Weight)
			})
		})
	}
	h.sub("no rows", func(h *harness) {
		w := h.build(linearCases()[0])
		x, dst := h.tensor(1, w.K), h.tensor(1, w.N)
		h.step(func() { h.d.Linear(dst.RowRange(0, 0), x.RowRange(0, 0), w.Weight) })
		h.sameBits("dst", dst.whole.Row(0), h.tensor(1, w.N).whole.Row(0))
	})
}

// linearExact uses small integers, for which every device's arithmetic is exact. Each group of 32
// inputs holds 127 or -127, so that int8 activations have the scale 1.
func linearExact(h *harness) {
	for _, bits := range []int{4, 8} {
		for _, min := range []bool{false, true} {
			const N, K, T = 21, 256, 19
			m := h.matrix("exact", N, K, encoding{bits: bits, group: 32, min: min, typ: kernels.F16})
			var all kernels.Rows
			all.Reset(m.Matrix, N)
			if err := m.Read(&all, 0, N); err != nil {
				h.Fatal(err)
			}
			for i := range all.Scale {
				all.Scale[i] = float32(int(1) << h.rnd.IntN(3))
				if min {
					all.Min[i] = float32(h.rnd.IntN(41) - 20)
				}
			}
			m.Read = reader(m.Matrix, all)
			w := h.load(m)
			x := make([][]float32, T)
			for t := range x {
				x[t] = make([]float32, K)
				for k := range x[t] {
					x[t][k] = float32(h.rnd.IntN(255) - 127)
				}
				for k := 0; k < K; k += 32 {
					x[t][k+h.rnd.IntN(32)] = float32(254*h.rnd.IntN(2) - 127)
				}
			}
			dst := h.tensor(T, N)
			in := h.input(x)
			h.step(func() { h.d.Linear(dst.Tensor, in.Tensor, w.Weight) })
			for t := range x {
				for n := range N {
					var want int64
					for k, v := range x[t] {
						g := n*(K/32) + k/32
						code := int64(all.Codes[n*K+k])
						if min {
							want += int64(v) * (int64(all.Scale[g])*code + int64(all.Min[g]))
						} else {
							want += int64(v) * int64(all.Scale[g]) * (code - int64(all.Zero[g]))
						}
					}
					h.close(fmt.Sprintf("%d bits, min %v, row %d, output %d", bits, min, t, n), dst.Row(t)[n], float64(want), 0)
				}
			}
		}
	}
}

// linearNaN wants a row with a NaN or an infinity to stay visible in the result, and its
// neighbours as if it were not there.
func linearNaN(h *harness) {
	for _, e := range []encoding{{typ: kernels.F32}, {bits: 4, group: 32, typ: kernels.F16}, {bits: 8, group: 32, min: true, typ: kernels.F32}} {
		h.sub(e.String(), func(h *harness) {
			const T, K, N = 9, 96, 20
			w := h.load(h.matrix("w", N, K, e))
			values := h.rows(T, K)
			good := h.tensor(T, N)
			x := h.input(values)
			h.step(func() { h.d.Linear(good.Tensor, x.Tensor, w.Weight) })
			x.Row(3)[40] = float32(math.NaN())
			x.Row(6)[0] = float32(math.Inf(1))
			got := h.tensor(T, N)
			h.step(func() { h.d.Linear(got.Tensor, x.Tensor, w.Weight) })
			for t := range T {
				if t != 3 && t != 6 {
					h.sameBits(fmt.Sprintf("row %d beside a NaN", t), got.Row(t), good.Row(t))
					continue
				}
				for n, v := range got.Row(t) {
					if a := math.Abs(float64(v)); a <= math.MaxFloat32 {
						h.Fatalf("row %d has a NaN or Inf, output %d is %v", t, n, v)
					}
				}
			}
		})
	}
}

func embedRows(h *harness) {
	for _, c := range linearCases() {
		h.sub(c.String(), func(h *harness) {
			w := h.build(c)
			var ids []int32
			for n := range w.N {
				ids = append(ids, int32(n), int32(h.rnd.IntN(w.N)))
			}
			dst := h.tensor(len(ids), c.K)
			h.step(func() { h.d.EmbedRows(dst.Tensor, w.Weight, h.ints(ids...), 1) })
			for t, id := range ids {
				var largest float64
				for _, v := range w.want[id] {
					largest = max(largest, math.Abs(v))
				}
				for k, want := range w.want[id] {
					h.close(fmt.Sprintf("id %d, value %d", id, k), dst.Row(t)[k], want, h.tol.Embedding*largest)
				}
			}
			h.intact("embedRows", dst)
			plain := dst
			dst = h.tensor(len(ids), c.K)
			const scale = 61.9677
			h.step(func() { h.d.EmbedRows(dst.Tensor, w.Weight, h.ints(ids...), scale) })
			for t, id := range ids {
				for k, v := range plain.Row(t) {
					want := float64(v) * float64(float32(scale))
					h.close(fmt.Sprintf("scaled: id %d, value %d", id, k), dst.Row(t)[k], want, h.tol.Elements*math.Abs(want))
				}
			}
			h.intact("embedRows, scaled", dst)
		})
	}
}

func load(h *harness) {
	bad := errors.New("unreadable")
	m := h.matrix("broken", 200, 64, encoding{bits: 4, group: 32, typ: kernels.F16})
	read := m.Read
	m.Read = func(dst *kernels.Rows, row, n int) error {
		if row+n > 150 {
			return bad
		}
		return read(dst, row, n)
	}
	good := h.matrix("good", 8, 64, encoding{typ: kernels.F32})
	if _, err := h.d.Load(good.Matrix, m.Matrix); !errors.Is(err, bad) || !strings.Contains(err.Error(), "broken") {
		h.Fatalf("load of an unreadable matrix: %v", err)
	}
	other := h.matrix("narrow", 8, 32, encoding{typ: kernels.F32})
	if _, err := h.d.Load(good.Matrix, other.Matrix); err == nil || !strings.Contains(err.Error(), "narrow") {
		h.Fatalf("load of 64 and 32 inputs: %v", err)
	}
	odd := h.matrix("odd", 8, 64, encoding{bits: 4, group: 32, typ: kernels.F32})
	odd.Group = 48
	if _, err := h.d.Load(odd.Matrix); err == nil || !strings.Contains(err.Error(), "odd") {
		h.Fatalf("load of 64 inputs in groups of 48: %v", err)
	}
	if _, err := h.d.Load(); err == nil {
		h.Fatal("load of nothing: no error")
	}
	for what, change := range map[string]func([]int32) []int32{
		"too short":    func(p []int32) []int32 { return p[1:] },
		"twice":        func(p []int32) []int32 { p[3] = p[5]; return p },
		"beyond":       func(p []int32) []int32 { p[3] = 64; return p },
		"out of range": func(p []int32) []int32 { p[3] = -1; return p },
	} {
		bad := h.matrix("shuffled", 8, 64, encoding{bits: 4, group: 32, typ: kernels.F16, perm: 1})
		bad.Perm = change(slices.Clone(bad.Perm))
		if _, err := h.d.Load(good.Matrix, bad.Matrix); err == nil || !strings.Contains(err.Error(), "shuffled") {
			h.Fatalf("load with an order of inputs that is %s: %v", what, err)
		}
	}

	// Several models may be loaded at once, and each matrix is released when it has been read.
	var released, wg = make([]int, 8), sync.WaitGroup{}
	for i := range released {
		m := h.matrix(fmt.Sprint("w", i), 30+i, 64, encoding{bits: 4 + 4*(i%2), group: 32, typ: kernels.F16})
		m.Release = func() { released[i]++ }
		wg.Go(func() {
			w, err := h.d.Load(m.Matrix)
			if err != nil {
				h.Error(err)
				return
			}
			h.d.Unload(w)
		})
	}
	wg.Wait()
	for i, n := range released {
		if n != 1 {
			h.Errorf("matrix %d released %d times", i, n)
		}
	}
}
