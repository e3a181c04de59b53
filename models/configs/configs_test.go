package configs_test

import (
	"math"
	"testing"

	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/kernels/ref"
	"github.com/openinfer-go/openinfer/kernels/sim"
	"github.com/openinfer-go/openinfer/models"
	"github.com/openinfer-go/openinfer/models/checkpoint"
	"github.com/openinfer-go/openinfer/models/configs"
	"github.com/openinfer-go/openinfer/models/registry"
)

// TestSizes holds each model, loaded through its architecture, to what its public description says.
func TestSizes(t *testing.T) {
	sizes := map[string]struct {
		parameters   float64 // billions
		linear, head float64 // GB
		tokenBytes   int64   // of KV cache at one byte a value, layers with a window apart
		state        int64   // MiB
	}{
		"gemma-4-12b":  {11.91, 5.62, 1.01, 8 << 10, 0},
		"llama-3.2-1b": {1.24, 0.50, 0.26, 16 << 10, 0},
		"phi-4":        {14.66, 7.03, 0.51, 100 << 10, 0},
		"qwen3-1.7b":   {1.72, 0.73, 0.31, 56 << 10, 0},
		"qwen3.5-27b":  {26.90, 12.56, 1.27, 32 << 10, 144},
		"qwen3.5-9b":   {8.95, 3.57, 1.02, 16 << 10, 48},
		"qwen3.8-27b":  {26.90, 12.56, 1.27, 32 << 10, 144},
	}
	names := configs.Names()
	if len(names) != len(sizes) {
		t.Errorf("%d models: %q", len(names), names)
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			want, ok := sizes[name]
			if !ok {
				t.Fatal("no sizes are known")
			}
			m := load(t, name, sim.NewMeter(sim.Spec{}))
			s := m.Shape()
			near(t, "parameters", float64(s.Parameters)/1e9, want.parameters, 0.005) // given with two decimals
			near(t, "GB of weights", float64(s.WeightBytes)/1e9, want.linear+want.head, 0.02)
			var tokenBytes, state int64
			for _, g := range m.Groups() {
				switch g.Kind {
				case models.Full:
					tokenBytes += int64(g.Layers) * int64(g.Heads) * int64(g.KDim+g.VDim)
				case models.Recurrent:
					state += int64(g.Layers) * int64(g.Heads) * int64(g.KDim) * int64(g.VDim) * 4
				}
			}
			if tokenBytes != want.tokenBytes || state != want.state<<20 {
				t.Errorf("%d bytes of KV cache a token, %d of state; want %d and %d", tokenBytes, state, want.tokenBytes, want.state<<20)
			}
		})
	}
}

func near(t *testing.T, what string, got, want, within float64) {
	t.Helper()
	if math.Abs(got-want) > within*want {
		t.Errorf("%s: %.4g, want %.4g", what, got, want)
	}
}

func load(t *testing.T, name string, d kernels.Device) models.Model {
	t.Helper()
	c := open(t, name)
	m, err := registry.Load(c, d)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func open(t *testing.T, name string) *checkpoint.Checkpoint {
	t.Helper()
	raw, ok := configs.Open(name)
	if !ok {
		t.Fatalf("no %s", name)
	}
	c, err := checkpoint.OpenConfigBytes(name, raw)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestOtherDevicesCannotLoad: what only a config names has no values to compute with.
func TestOtherDevicesCannotLoad(t *testing.T) {
	if _, err := registry.Load(open(t, "llama-3.2-1b"), ref.Open()); err == nil {
		t.Error("ref loaded weights that are not there")
	}
	if _, ok := configs.Open("llama-3.2-2b"); ok {
		t.Error("found what is not there")
	}
}
