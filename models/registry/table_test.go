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
	modeltest.Table(t, func(architecture string) []modeltest.Device {
		int8 := modeltest.Device{Name: "cpu", Open: open(cpu.Options{Threads: 2}), KV: kernels.F16}
		// Half as much again as the most that was measured of the architecture's INT4 checkpoints: a
		// random model carries an error on as its residual stream grows. bf16 alone, weights and activations,
		// makes a largest difference of 0.58 (llama), 0.53 (qwen3_5) and 2 (gemma4).
		switch architecture {
		case "gemma4":
			int8.MeanDiff, int8.KL = 0.2, 0.017 // 0.13 and 0.011 nats
		case "qwen3_5":
			int8.MeanDiff, int8.KL = 0.14, 0.0085 // 0.094 and 0.0056
		default:
			int8.MeanDiff, int8.KL = 0.08, 0.0032 // 0.053 and 0.0021
		}
		return []modeltest.Device{
			modeltest.Float32("ref", func(testing.TB) kernels.Device { return ref.Open() }),
			modeltest.Float32("cpu exact", open(cpu.Options{Exact: true, Threads: 2})),
			int8,
		}
	})
}
