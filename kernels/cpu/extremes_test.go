//go:build cgo

package cpu_test

import (
	"fmt"
	"testing"

	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/kernels/cpu"
)

// TestExtremes multiplies the codes and activations whose sums are the largest, where 16-bit lanes of
// a variant would overflow first. All is integers that float32 holds, so results are exact.
func TestExtremes(t *testing.T) {
	for _, variant := range []string{"", "portable"} {
		for _, bits := range []int{4, 8} {
			for _, group := range []int{16, 32, 64} {
				for _, zero := range []int{0, 1 << (bits - 1), 1<<bits - 1} {
					t.Run(fmt.Sprintf("%s %d bits by %d, zero %d", variant, bits, group, zero), func(t *testing.T) {
						extremes(t, variant, bits, group, zero)
					})
				}
			}
		}
	}
}

func extremes(t *testing.T, variant string, bits, group, zero int) {
	const N, K, T = 11, 128, 7
	d, err := cpu.Open(cpu.Options{Variant: variant, Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	// Rows differ in where the largest and the smallest code stand; so do tokens with 127 and -127.
	code := func(n, k int) int {
		if n > 1 && (k>>(n-2))&1 == 1 || n == 1 {
			return 0
		}
		return 1<<bits - 1
	}
	value := func(t, k int) int {
		if t > 1 && (k>>(t-2))&1 == 1 || t == 1 {
			return -127
		}
		return 127
	}
	m := kernels.Matrix{Name: "w", N: N, K: K, Bits: bits, Group: group, ScaleType: kernels.F16}
	m.Read = func(dst *kernels.Rows, row, n int) error {
		dst.Reset(m, n)
		for i := range dst.Codes {
			dst.Codes[i] = uint8(code(row+i/K, i%K))
		}
		for i := range dst.Scale {
			dst.Scale[i], dst.Zero[i] = 1, uint8(zero)
		}
		return nil
	}
	w, err := d.Load(m)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Unload(w)
	values := make([]float32, T*K)
	for i := range values {
		values[i] = float32(value(i/K, i%K))
	}
	x, err := d.LoadVector(values)
	if err != nil {
		t.Fatal(err)
	}
	x.Rows, x.Cols, x.Stride = T, K, K
	y, err := d.LoadVector(make([]float32, T*N))
	if err != nil {
		t.Fatal(err)
	}
	y.Rows, y.Cols, y.Stride = T, N, N
	d.Begin()
	d.Linear(y, x, w)
	if err := d.End(); err != nil {
		t.Fatal(err)
	}
	for i := range T {
		for n := range N {
			want := 0
			for k := range K {
				want += value(i, k) * (code(n, k) - zero)
			}
			if got := y.Row(i)[n]; got != float32(want) {
				t.Fatalf("token %d, row %d: %v, want %d", i, n, got, want)
			}
		}
	}
}
