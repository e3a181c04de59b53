//go:build cgo

package registry_test

import (
	"testing"

	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/kernels/cpu"
	"github.com/openinfer-go/openinfer/models/modeltest"
	"github.com/openinfer-go/openinfer/models/registry"
)

// TestCacheTypes holds the first checkpoint of each architecture, its KV cache in types narrower than float32 and all else
// float32, to the stored logits, and to its own bits however tokens come. docs/kv-types.md quotes what it logs.
func TestCacheTypes(t *testing.T) {
	type limits struct{ mean, kl float64 } // of a logit's difference, and of the divergence in nats
	allowed := func(architecture string, kv kernels.DType) limits {
		// Half as much again as was measured. A random model's attention is sharper, and its logits larger, than a trained one's.
		// Codes of int8 err by a 254th of a head's largest value at most, of fp8-e4m3 by a 16th of their own value.
		switch architecture {
		case "qwen3_5": // a layer in four
			return map[kernels.DType]limits{kernels.F16: {1.3e-4, 8e-9}, kernels.I8: {0.0035, 6e-6}, kernels.F8E4M3: {0.015, 1.3e-4}}[kv]
		case "gemma4": // keys are values
			return map[kernels.DType]limits{kernels.F16: {0.005, 1.3e-5}, kernels.I8: {0.14, 0.009}, kernels.F8E4M3: {0.6, 0.15}}[kv]
		}
		return map[kernels.DType]limits{kernels.F16: {0.002, 2.2e-6}, kernels.I8: {0.05, 0.0014}, kernels.F8E4M3: {0.24, 0.038}}[kv]
	}
	for _, a := range registry.Architectures() {
		c := modeltest.Checkpoints(a.Name)[0]
		for _, kv := range []kernels.DType{kernels.F16, kernels.F8E4M3, kernels.I8} {
			t.Run(c.Name+"/"+kv.String(), func(t *testing.T) {
				most := allowed(a.Name, kv)
				c.Run(t, modeltest.Device{
					Name: c.Name + " " + kv.String(), KV: kv, MeanDiff: most.mean, KL: most.kl,
					Open: func(t testing.TB) kernels.Device {
						d, err := cpu.Open(cpu.Options{Exact: true, Threads: 2})
						if err != nil {
							t.Fatal(err)
						}
						return d
					},
				})
			})
		}
	}
}
