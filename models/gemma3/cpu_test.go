//go:build cgo

package gemma3_test

import (
	"testing"

	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/kernels/cpu"
	"github.com/openinfer-go/openinfer/models/modeltest"
)

func TestEqualsReferenceOnExactCPU(t *testing.T) {
	modeltest.Run(t, modeltest.Float32("cpu exact", func(t testing.TB) kernels.Device {
		d, err := cpu.Open(cpu.Options{Exact: true, Threads: 2})
		if err != nil {
			t.Fatal(err)
		}
		return d
	}), "gemma3")
}
