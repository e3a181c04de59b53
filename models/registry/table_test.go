//go:build cgo

package registry_test

import (
	"os"
	"testing"

	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/kernels/cpu"
	"github.com/openinfer-go/openinfer/kernels/ref"
	"github.com/openinfer-go/openinfer/models/modeltest"
)

// TestTable prints the table of all stored results; `make golden` asks for it. The packages of the
// architectures hold the same devices to the same tolerances, and to much more.
func TestTable(t *testing.T) {
	if os.Getenv("OPENINFER_GOLDEN") == "" {
		t.Skip("OPENINFER_GOLDEN is not set")
	}
	open := func(o cpu.Options) func(testing.TB) kernels.Device {
		return func(t testing.TB) kernels.Device {
			d, err := cpu.Open(o)
			if err != nil {
				t.Fatal(err)
			}
			return d
		}
	}
	modeltest.Table(t,
		modeltest.Float32("ref", func(testing.TB) kernels.Device { return ref.Open() }),
		modeltest.Float32("cpu exact", open(cpu.Options{Exact: true, Threads: 2})),
		// Half as much again as the most that was measured: 0.094 and 0.0056 nats.
		modeltest.Device{Name: "cpu", Open: open(cpu.Options{Threads: 2}), KV: kernels.F16, MeanDiff: 0.14, KL: 0.0085},
	)
}
