//go:build cgo

package cpu_test

import (
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
		kerneltest.Run(t, opener(cpu.Options{Exact: true, Threads: 2*runtime.NumCPU() + 1}), kerneltest.Float32())
	})
	t.Run("int8", func(t *testing.T) {
		kerneltest.Run(t, opener(cpu.Options{Threads: 2}), int8Tolerances())
	})
	t.Run("portable", func(t *testing.T) {
		if testing.Short() {
			t.Skip("half of this package's time")
		}
		kerneltest.Run(t, opener(cpu.Options{Variant: "portable", Threads: 2}), int8Tolerances())
	})
	if os.Getenv("OPENINFER_SOAK") == "" {
		return
	}
	t.Run("int8 one thread", func(t *testing.T) {
		kerneltest.Run(t, opener(cpu.Options{Threads: 1}), int8Tolerances())
	})
	t.Run("exact one thread", func(t *testing.T) {
		kerneltest.Run(t, opener(cpu.Options{Exact: true, Threads: 1}), kerneltest.Float32())
	})
	t.Run("portable exact", func(t *testing.T) {
		kerneltest.Run(t, opener(cpu.Options{Variant: "portable", Exact: true, Threads: 2}), kerneltest.Float32())
	})
}
