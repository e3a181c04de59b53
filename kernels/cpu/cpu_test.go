//go:build cgo

package cpu_test

import (
	"math"
	"os"
	"runtime"
	"testing"

	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/kernels/cpu"
	"github.com/openinfer-go/openinfer/kernels/kerneltest"
)

func opener(o cpu.Options) func(testing.TB) kernels.Device {
	return func(t testing.TB) kernels.Device {
		d, err := cpu.Open(o)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
}

// int8Tolerances are those of activations rounded to int8 in groups of 32, and of float32 scales
// stored as fp16, which the rows of an embedding show.
func int8Tolerances() kerneltest.Tolerances {
	tol := kerneltest.Float32()
	tol.Linear = 0.006
	tol.Embedding = 2e-3
	return tol
}

func TestConformance(t *testing.T) {
	// More threads than cores: some are always late, and their chunks are computed twice.
	t.Run("exact", func(t *testing.T) {
		kerneltest.Run(t, opener(cpu.Options{Exact: true, Threads: 2*runtime.NumCPU() + 1}), kerneltest.Float32(), kerneltest.Options{})
	})
	t.Run("int8", func(t *testing.T) {
		kerneltest.Run(t, opener(cpu.Options{Threads: 2}), int8Tolerances(), kerneltest.Options{})
	})
	t.Run("portable", func(t *testing.T) {
		if testing.Short() {
			t.Skip("half of this package's time")
		}
		kerneltest.Run(t, opener(cpu.Options{Variant: "portable", Threads: 2}), int8Tolerances(), kerneltest.Options{})
	})
	if os.Getenv("OPENINFER_SOAK") == "" {
		return
	}
	t.Run("int8 one thread", func(t *testing.T) {
		kerneltest.Run(t, opener(cpu.Options{Threads: 1}), int8Tolerances(), kerneltest.Options{})
	})
	t.Run("exact one thread", func(t *testing.T) {
		kerneltest.Run(t, opener(cpu.Options{Exact: true, Threads: 1}), kerneltest.Float32(), kerneltest.Options{})
	})
	t.Run("portable exact", func(t *testing.T) {
		kerneltest.Run(t, opener(cpu.Options{Variant: "portable", Exact: true, Threads: 2}), kerneltest.Float32(), kerneltest.Options{})
	})
}

// TestRangesOfUploads: a range of an array is that of this array, however many others there are.
func TestRangesOfUploads(t *testing.T) {
	d, err := cpu.Open(cpu.Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}()
	const n = 9
	b, err := d.Alloc(n * n * 2 * 4)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Free(b)
	dst := kernels.Tensor{Buf: b, Rows: n * n, Cols: 2, Stride: 2}
	d.Begin()
	var uploads []kernels.Ints
	for i := range int32(n) {
		var host []int32
		for j := range int32(n) {
			host = append(host, n*i+j)
		}
		uploads = append(uploads, d.Upload(kernels.Ints{Host: host}))
	}
	for i, u := range uploads {
		for j := range n {
			d.CosSin(dst.RowRange(n*i+j, n*i+j+1), kernels.Rotary{InvFreq: []float32{0.01}, Scale: 1}, u.Range(j, j+1))
		}
	}
	if err := d.End(); err != nil {
		t.Fatal(err)
	}
	for i := range n * n {
		if got, want := dst.Row(i)[1], math.Sin(0.01*float64(i)); math.Abs(float64(got)-want) > 1e-6 {
			t.Errorf("sine of position %d: %v, want %v", i, got, want)
		}
	}
}
