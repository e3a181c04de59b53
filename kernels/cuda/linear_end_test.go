package cuda

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/openinfer-go/openinfer/kernels"
)

// loadAll loads matrices of N outputs each and K inputs as one weight.
func loadAll(t testing.TB, d *Device, rnd *rand.Rand, K int, N []int, schemes ...scheme) *kernels.Weight {
	t.Helper()
	var ms []kernels.Matrix
	for i, s := range schemes {
		m, _ := s.random(rnd, fmt.Sprintf("%+v", s), N[i], K)
		if i%2 == 0 {
			m.Bias = normal(rnd, N[i])
		}
		ms = append(ms, m)
	}
	w, err := d.Load(ms...)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// names are those of the kernels that were launched since the last time.
func names(all *[]launched) (out []string) {
	for _, l := range *all {
		out = append(out, strings.TrimRight(l.kernel, "0123456789_"))
	}
	*all = nil
	return out
}

// TestProductEndsWithGate: a product and a gate over its halves are one launch when the outputs are dropped, of any kind of weight
// and function, and give the bits of two; where not all is as it must be, there are two.
func TestProductEndsWithGate(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	d, all := counted(t)
	const K = 128
	w4 := scheme{bits: 4, group: 32, typ: kernels.F16}
	type gateUp struct {
		x, in, act kernels.Tensor
		w          *kernels.Weight
		F          int
		f          kernels.Activation
	}
	made := func(T, F int, schemes ...scheme) (g gateUp) {
		of := func(cols int) kernels.Tensor { return tensor(t, d, T, normal(rnd, T*cols)) }
		return gateUp{of(K), of(2 * F), of(F), loadAll(t, d, rnd, K, slices.Repeat([]int{2 * F / len(schemes)}, len(schemes)), schemes...), F, kernels.SiLU}
	}
	// run runs the step, and again with nothing dropped, and wants the same bits from both.
	run := func(name string, g gateUp, drop func(kernels.Tensor), want int) {
		t.Helper()
		var first []byte
		x := held(t, d, g.x.Buf)
		for _, drop := range []func(kernels.Tensor){func(kernels.Tensor) {}, drop} {
			if err := d.CopyIn(g.x.Buf, x); err != nil {
				t.Fatal(err)
			}
			*all = nil
			d.Begin()
			d.Linear(g.in, g.x, g.w)
			d.GateMul(g.act, g.in.ColRange(0, g.F), g.in.ColRange(g.F, 2*g.F), g.f)
			drop(g.in)
			if err := d.End(); err != nil {
				t.Fatal(err)
			}
			got := held(t, d, g.act.Buf)
			if first == nil {
				first = got
			} else if !bytes.Equal(got, first) {
				t.Errorf("%s: the bits are others", name)
			}
		}
		gates := 0
		for _, n := range names(all) {
			if strings.HasPrefix(n, "gate_mul") {
				gates++
			}
		}
		if gates != want {
			t.Errorf("%s: %d gates launched, want %d", name, gates, want)
		}
	}
	for _, s := range []scheme{w4, {bits: 8, group: 64, typ: kernels.BF16, min: true}, {typ: kernels.F16}, {typ: kernels.BF16}} {
		for i, T := range []int{1, 3, 16} {
			for j, F := range []int{16, 80, 592} {
				if F > 100 && i != j%2 { // many blocks, once
					continue
				}
				g := made(T, F, s)
				g.f = kernels.Activation((i + j) % 3)
				run(fmt.Sprintf("%+v, %d tokens, F %d, %v", s, T, F, g.f), g, d.Drop, 0)
			}
		}
	}
	run("two matrices of one scheme", made(3, 48, w4, w4), d.Drop, 0)
	run("two matrices of two schemes", made(3, 48, w4, scheme{bits: 8, group: 32, typ: kernels.F16}), d.Drop, 1)
	run("float32 weights", made(3, 48, scheme{typ: kernels.F32}), d.Drop, 1)
	run("half a strip", made(3, 40, w4), d.Drop, 1)
	run("too many tokens", made(17, 48, w4), d.Drop, 1)
	run("a column is kept", made(3, 48, w4), func(in kernels.Tensor) { d.Drop(in.ColRange(1, in.Cols)); d.Drop(in.ColRange(0, 1)) }, 1)
	run("a row is kept", made(3, 48, w4), func(in kernels.Tensor) { d.Drop(in.RowRange(0, 2)) }, 1)
	over := made(3, K, w4)
	over.act = over.x
	run("over what is multiplied", over, d.Drop, 1)
}

// TestProductEndsWithConvolution: the same of a convolution over the first outputs, in a step of runs of a token each: outputs, states and
// the outputs behind the channels have the bits of two launches.
func TestProductEndsWithConvolution(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 6))
	d, all := counted(t)
	const K, C, rest = 128, 200, 37
	w4, bf16 := scheme{bits: 4, group: 32, typ: kernels.F16}, scheme{typ: kernels.BF16}
	for _, c := range []struct {
		name            string
		columns         int
		starts, in, out []int32
		N               []int
		schemes         []scheme
		kept            bool
		launched        int // convolutions
	}{
		{"a token, in place", 3, []int32{0, 1}, []int32{1}, []int32{1}, []int{C, rest}, []scheme{w4, bf16}, false, 0},
		{"three, from zeros, to elsewhere and in place", 3, []int32{0, 1, 2, 3}, []int32{0, 2, 3}, []int32{1, 4, 3}, []int{C + rest}, []scheme{w4}, false, 0},
		{"9 sequences, 1 column", 1, []int32{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, []int32{1, 2, 3, 0, 5, 6, 7, 8, 9}, []int32{1, 2, 3, 4, 5, 6, 7, 8, 9}, []int{C, rest}, []scheme{w4, {typ: kernels.F32}}, false, 0},
		{"7 columns, channels of two schemes", 7, []int32{0, 1, 2}, []int32{1, 0}, []int32{3, 2}, []int{101, C + rest - 101}, []scheme{bf16, w4}, false, 0},
		{"channels with float32 weights", 3, []int32{0, 1}, []int32{1}, []int32{1}, []int{C - 1, rest + 1}, []scheme{w4, {typ: kernels.F32}}, false, 1},
		{"channels that are kept", 3, []int32{0, 1}, []int32{1}, []int32{1}, []int{C + rest}, []scheme{w4}, true, 1},
		{"two tokens of a sequence", 3, []int32{0, 2, 3}, []int32{1, 2}, []int32{1, 2}, []int{C + rest}, []scheme{w4}, false, 1},
		{"runs that continue each other", 3, []int32{0, 1, 2}, []int32{1, 2}, []int32{2, 3}, []int{C + rest}, []scheme{w4}, false, 1},
		{"runs that end in one state", 3, []int32{0, 1, 2}, []int32{1, 3}, []int32{2, 2}, []int{C + rest}, []scheme{w4}, false, 1},
		{"a run without tokens", 3, []int32{0, 1, 1}, []int32{1, 3}, []int32{2, 3}, []int{C + rest}, []scheme{w4}, false, 1},
	} {
		l := kernels.StateLayout{Layers: 2, Heads: 1, KDim: 16, VDim: 16, ConvChannels: C, ConvColumns: c.columns}
		l.PageBytes = 14*l.UnitBytes() + 64
		if l.StatePages() != 1 {
			t.Fatal(l.StatePages())
		}
		T := int(c.starts[len(c.starts)-1])
		w := loadAll(t, d, rnd, K, c.N, c.schemes...)
		x, filter := tensor(t, d, T, normal(rnd, T*K)), tensor(t, d, 1, normal(rnd, C*(c.columns+1)))
		in, mixed := tensor(t, d, T, normal(rnd, T*w.N)), tensor(t, d, T, normal(rnd, T*C))
		before := normal(rnd, 12*int(l.PageBytes)/4)
		var want [3][]byte
		for _, fused := range []bool{false, true} {
			pages := tensor(t, d, 1, before)
			up := func(v []int32) kernels.Ints { return d.Upload(kernels.Ints{Host: v}) }
			*all = nil
			d.Begin()
			s := kernels.State{Pages: pages.Buf, Layout: &l, Layer: 1, Runs: kernels.Runs{Starts: up(c.starts), In: up(c.in), Out: up(c.out)}}
			d.Linear(in, x, w)
			if !fused {
				d.settle()
			}
			d.CausalConv(mixed, in.ColRange(0, C), filter, s)
			if !c.kept {
				d.Drop(in.ColRange(0, C))
			}
			if err := d.End(); err != nil {
				t.Fatalf("%s: %v", c.name, err)
			}
			left := held(t, d, in.Buf)
			if !c.kept {
				for i := range T {
					clear(left[i*w.N*4:][:C*4])
				}
			}
			got := [3][]byte{held(t, d, mixed.Buf), held(t, d, pages.Buf), left}
			for i, what := range []string{"outputs", "states", "what is kept of the product"} {
				if fused && !bytes.Equal(got[i], want[i]) {
					t.Errorf("%s: %s: the bits are others", c.name, what)
				}
			}
			want = got
		}
		convolutions := 0
		for _, n := range names(all) {
			if n == "conv_states" {
				convolutions++
			}
		}
		if convolutions != c.launched {
			t.Errorf("%s: %d convolutions launched, want %d", c.name, convolutions, c.launched)
		}
	}
}

// TestFewOutputsShareALaunch: a part of few outputs of 16 bits is multiplied in the launch of the one before it, and both have the
// bits of weights of their own.
func TestFewOutputsShareALaunch(t *testing.T) {
	rnd := rand.New(rand.NewPCG(7, 8))
	d, all := counted(t)
	w4, w8 := scheme{bits: 4, group: 32, typ: kernels.F16}, scheme{bits: 8, group: 64, typ: kernels.F16, symmetric: true}
	bf16, f16 := scheme{typ: kernels.BF16}, scheme{typ: kernels.F16}
	for _, c := range []struct {
		many, few scheme
		N, n, K   int
		launches  int // of linear_decode
	}{
		{w4, bf16, 100, 5, 160, 1},
		{w4, f16, 40, 96, 160, 1},
		{w4, bf16, 20, 17, 4128, 1}, // K in 8 parts
		{w8, f16, 40, 33, 1088, 1},  // in 2
		{w4, bf16, 20, 129, 64, 2},
		{bf16, w4, 17, 20, 64, 2},
	} {
		ms := make([]kernels.Matrix, 2)
		ms[0], _ = c.many.random(rnd, "many", c.N, c.K)
		ms[1], _ = c.few.random(rnd, "few", c.n, c.K)
		ms[0].Bias, ms[1].Bias = normal(rnd, c.N), normal(rnd, c.n)
		var ws []*kernels.Weight
		for _, parts := range [][]kernels.Matrix{ms, ms[:1], ms[1:]} {
			w, err := d.Load(parts...)
			if err != nil {
				t.Fatal(err)
			}
			ws = append(ws, w)
		}
		for _, T := range []int{1, 3, 9} {
			x, y := tensor(t, d, T, normal(rnd, T*c.K)), normal(rnd, T*(c.N+c.n))
			got, want := tensor(t, d, T, y), tensor(t, d, T, y)
			d.Begin()
			d.LinearAdd(want.ColRange(0, c.N), x, ws[1])
			d.LinearAdd(want.ColRange(c.N, c.N+c.n), x, ws[2])
			d.settle()
			d.flush()
			*all = nil
			d.LinearAdd(got, x, ws[0])
			if err := d.End(); err != nil {
				t.Fatal(err)
			}
			launches := 0
			for _, n := range names(all) {
				if strings.HasPrefix(n, "linear_decode") {
					launches++
				}
			}
			if launches != c.launches {
				t.Errorf("%+v: %d tokens: %d launches, want %d", c, T, launches, c.launches)
			}
			if !bytes.Equal(held(t, d, got.Buf), held(t, d, want.Buf)) {
				t.Errorf("%+v: %d tokens: the bits are others than of two weights", c, T)
			}
		}
	}
}
