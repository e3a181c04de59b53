//go:build cgo

package qwen3_5_test

import (
	"testing"

	"github.com/openinfer-go/openinfer/internal/testdata"
	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/kernels/cpu"
	"github.com/openinfer-go/openinfer/kernels/ref"
	"github.com/openinfer-go/openinfer/models/modeltest"
)

func openExact(t testing.TB) kernels.Device {
	d, err := cpu.Open(cpu.Options{Exact: true, Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestEqualsReferenceOnExactCPU(t *testing.T) {
	modeltest.Run(t, modeltest.Float32("cpu exact", openExact), "qwen3_5")
}

// chunked is a device that offers the chunked delta rule.
type chunked struct{ kernels.Device }

func (d chunked) Info() kernels.Info {
	info := d.Device.Info()
	info.ChunkedDelta = true
	return info
}

// TestEqualsReferenceInChunks: in float32, so that activations of int8 do not hide what the chunked delta rule
// does to logits and states.
func TestEqualsReferenceInChunks(t *testing.T) {
	for name, open := range map[string]func(testing.TB) kernels.Device{
		"ref": func(testing.TB) kernels.Device { return ref.Open() },
		"cpu": openExact,
	} {
		dev := modeltest.Float32(name, func(t testing.TB) kernels.Device { return chunked{open(t)} })
		for _, c := range modeltest.Checkpoints("qwen3_5") {
			t.Run(name+"/"+c.Name, func(t *testing.T) { c.Compare(t, dev, testdata.Shared(t, c.Path)) })
		}
	}
}
