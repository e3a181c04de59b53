package cuda

import (
	"os"
	"strconv"
	"testing"

	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/kernels/cuda/driver"
	"github.com/openinfer-go/openinfer/kernels/kerneltest"
)

// tolerances: activations of a product are fp16, whose half step is 2^-11 of a value; errors of a row's values add up like
// a random walk. An embedding row shows that scales are fp16. The rest is float32.
var tolerances = kerneltest.Tolerances{Linear: 5e-4, Elements: 2e-6, Embedding: 1e-3, Attention: 2e-3}

// TestConformance runs the suite on the interpreter, which reports races, overruns and what nobody wrote, in three orders
// of blocks, warps and lanes: the first run's parts have their plain names, the others "#01" and "#02". Parts run beside
// each other, for many a launch has one block, and works on one processor. With OPENINFER_SOAK=1 the suite is not light.
//
// OPENINFER_CARD=n runs it on card n of the machine's driver instead, once and in full, and fails where there is none.
func TestConformance(t *testing.T) {
	if card, ok := os.LookupEnv("OPENINFER_CARD"); ok {
		kerneltest.Run(t, onCard(t, card), tolerances, kerneltest.Options{})
		return
	}
	light := os.Getenv("OPENINFER_SOAK") == ""
	for _, seed := range []uint64{1, 1 << 32, 1 << 48} {
		open := func(t testing.TB) kernels.Device { return open(t, seed) }
		kerneltest.Run(t, open, tolerances, kerneltest.Options{Light: light, Parallel: true})
	}
}

// onCard opens the card with this ordinal.
func onCard(t *testing.T, ordinal string) func(testing.TB) kernels.Device {
	n, err := strconv.Atoi(ordinal)
	if err != nil {
		t.Fatalf("OPENINFER_CARD: %v", err)
	}
	drv, err := driver.Open()
	if err != nil {
		t.Fatalf("OPENINFER_CARD=%d: %v", n, err)
	}
	return func(t testing.TB) kernels.Device {
		d, err := Open(drv, Options{Card: n})
		if err != nil {
			t.Fatalf("OPENINFER_CARD=%d: %v", n, err)
		}
		return d
	}
}
