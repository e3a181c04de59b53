package cuda

import (
	"fmt"
	"testing"

	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/kernels/cuda/driver"
	"github.com/openinfer-go/openinfer/kernels/cuda/ptx"
)

// counting returns a device on the interpreter and what its launches counted, by kernel, last one first.
func counting(t testing.TB, o Options) (*Device, func(kernel string) *ptx.Counters) {
	t.Helper()
	drv := driver.NewInterpreter(1)
	all := map[string]*ptx.Counters{}
	drv.Launched = func(kernel string, grid, block [3]int, r *ptx.Result) { all[kernel] = &r.Counters }
	d, err := Open(drv, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d, func(kernel string) *ptx.Counters {
		c := all[kernel]
		if c == nil {
			t.Fatalf("%s was not launched", kernel)
		}
		return c
	}
}

// flat is a matrix of n outputs whose codes follow a rule; nothing of it is kept.
func flat(n, k, bits, group int, symmetric bool) kernels.Matrix {
	m := kernels.Matrix{Name: "flat", N: n, K: k, Bits: bits, Group: group, Symmetric: symmetric, ScaleType: kernels.F16}
	m.Read = func(dst *kernels.Rows, row, rows int) error {
		dst.Reset(m, rows)
		for i := range dst.Codes {
			dst.Codes[i] = uint8((i*7 + row + i>>5) % (1 << bits))
		}
		for i := range dst.Scale {
			dst.Scale[i] = float32(1+(i+row)%5) / 64
			dst.Zero[i] = 1 << (bits - 1)
			if !symmetric {
				dst.Zero[i] = uint8((i + row) % (1 << bits))
			}
		}
		return nil
	}
	return m
}

// activations returns a tensor [rows, cols] of values that are all different.
func activations(t testing.TB, d *Device, rows, cols int) kernels.Tensor {
	t.Helper()
	v := make([]float32, rows*cols)
	for i := range v {
		v[i] = float32(i%251-125) / 16
	}
	x, err := d.LoadVector(v)
	if err != nil {
		t.Fatal(err)
	}
	x.Rows, x.Cols, x.Stride = rows, cols, cols
	return x
}

func TestCount(t *testing.T) {
	for _, M := range []int{1, 8, 16} {
		d, count := counting(t, Options{WorkspaceBytes: 8 << 20, StepBytes: 1 << 10})
		N, K := 128, 5120
		m := flat(N, K, 4, 128, true)
		w, err := d.Load(m)
		if err != nil {
			t.Fatal(err)
		}
		full, _ := packingOf(m, 34816)
		w.Impl.(weight)[0].cut = full.cut
		x, dst := activations(t, d, M, K), activations(t, d, M, N)
		d.Begin()
		d.Linear(dst, x, w)
		if err := d.End(); err != nil {
			t.Fatal(err)
		}
		c := count(fmt.Sprintf("linear_decode_w4_%d", roundUp(M, 8)))
		fmt.Printf("M %d: %d %v mma %d read %d write %d conflicts %d wf %d gl %+v\n", M, c.WarpInstructions, c.ByClass, c.MMA, c.DRAMReadBytes, c.DRAMWriteBytes, c.BankConflicts, c.SharedWavefronts, c.GlobalLoads)
		fmt.Println("per tile", float64(c.WarpInstructions)/float64(N/16*K/64), "want read", N*K/2+N*K/128*2+roundUp(M, 8)*K*2)
		for _, l := range c.Lines {
			if l.BankConflicts > 0 || l.Global.Efficiency > 0 && l.Global.Efficiency < 1 {
				fmt.Printf("  %+v\n", l)
			}
		}
	}
}
