package cuda

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/openinfer-go/openinfer/kernels"
)

// TestProductsMakeTheirRow: what a product makes its row from gives the bits of the launches one by one, at lengths of which a
// thread makes several pieces, and is one launch; where somebody may read what lies between, it is not.
func TestProductsMakeTheirRow(t *testing.T) {
	const N, heads, eps = 40, 32, 1e-6
	for _, c := range []struct {
		scheme
		K int
	}{
		{scheme{bits: 4, group: 128, typ: kernels.F16}, heads * 132},
		{scheme{bits: 4, group: 32, min: true, typ: kernels.F16}, heads * 16},
		{scheme{bits: 8, group: 64, typ: kernels.BF16, symmetric: true}, heads * 96},
		{scheme{typ: kernels.F16}, heads * 52},
		{scheme{typ: kernels.BF16}, heads * 100},
	} {
		K, T := c.K, 5
		rnd := rand.New(rand.NewPCG(8, 9))
		m, _ := c.random(rnd, "w", N, K)
		d, all := counted(t)
		w, err := d.Load(m)
		if err != nil {
			t.Fatal(err)
		}
		x, gate := tensor(t, d, T, normal(rnd, T*K)), tensor(t, d, T, normal(rnd, T*K))
		norm, head := tensor(t, d, 1, normal(rnd, K)), tensor(t, d, 1, normal(rnd, K/heads))
		y := tensor(t, d, T, make([]float32, T*K))
		for _, s := range []struct {
			name string
			make func(y, x, gate kernels.Tensor)
		}{
			{"rms_norm", func(y, x, _ kernels.Tensor) { d.RMSNorm(y, x, norm, eps) }},
			{"norm_gate", func(y, x, gate kernels.Tensor) { d.NormGate(y, x, gate, head, eps) }},
			{"gate_mul_silu", func(y, x, gate kernels.Tensor) { d.GateMul(y, gate, x, kernels.SiLU) }},
			{"gate_mul_gelu", func(y, x, gate kernels.Tensor) { d.GateMul(y, gate, x, kernels.GELUTanh) }},
			{"gate_mul_sigmoid", func(y, x, gate kernels.Tensor) { d.GateMul(y, gate, x, kernels.Sigmoid) }},
		} {
			run := func(from, to int, dropped bool) ([]float32, string) {
				*all = (*all)[:0]
				dst := tensor(t, d, to-from, make([]float32, (to-from)*N))
				in := y.RowRange(from, to)
				d.Begin()
				s.make(in, x.RowRange(from, to), gate.RowRange(from, to))
				d.Linear(dst, in, w)
				if dropped {
					d.Drop(y)
				}
				if err := d.End(); err != nil {
					t.Fatal(err)
				}
				var names []string
				for _, l := range *all {
					names = append(names, l.kernel)
				}
				return floatsOf(t, d, dst), strings.Join(names, ", ")
			}
			product := "linear_decode_" + kindNames[w.Impl.(weight)[0].kind]
			want, launches := run(0, T, true)
			if expected := s.name + ", linear_prepare, " + product + "_8"; launches != expected {
				t.Errorf("%+v: launches of %d rows: %s, want %s", c, T, launches, expected)
			}
			for row := range T {
				dropped := row != 2
				got, launches := run(row, row+1, dropped)
				expected := product + "_row"
				if !dropped {
					expected = s.name + ", " + expected
				}
				if launches != expected {
					t.Errorf("%+v: launches of a row, dropped %v: %s, want %s", c, dropped, launches, expected)
				}
				if !slices.Equal(got, want[row*N:][:N]) {
					t.Errorf("%+v: %s of row %d, dropped %v, and product: other bits than among %d rows", c, s.name, row, dropped, T)
				}
			}
		}
	}
}

// TestRowThatDoesNotFit: where the row of x leaves no room for two stages of weights, it is prepared by a launch of their own.
func TestRowThatDoesNotFit(t *testing.T) {
	for _, c := range []struct {
		scheme
		K    int
		fits bool
	}{
		{scheme{bits: 4, group: 128, typ: kernels.F16, symmetric: true}, 17408, true},
		{scheme{bits: 4, group: 128, typ: kernels.F16, symmetric: true}, 40960, true},
		{scheme{bits: 4, group: 128, typ: kernels.F16, symmetric: true}, 65536, false},
		{scheme{typ: kernels.BF16}, 17408, true},
		{scheme{typ: kernels.BF16}, 32768, false},
	} {
		m := flat(5120, c.K, c.bits, c.group, c.symmetric)
		m.Type = c.typ
		p, err := packingOf(m, m.N)
		if err != nil {
			t.Fatal(err)
		}
		s, fits := p.rowShape(1)
		what := fmt.Sprintf("%+v, K %d: %+v", c.scheme, c.K, s)
		if fits != c.fits {
			t.Errorf("%s: fits %v", what, fits)
		}
		if fits && (s.stages < 2 || s.strips < 1 || s.sharedBytes > blockSharedBytes-rowStaticBytes) {
			t.Errorf("%s", what)
		}
	}
}
