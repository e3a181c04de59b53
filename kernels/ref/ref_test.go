package ref_test

import (
	"testing"

	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/kernels/kerneltest"
	"github.com/openinfer-go/openinfer/kernels/ref"
)

func TestConformance(t *testing.T) {
	kerneltest.Run(t, func(testing.TB) kernels.Device { return ref.Open() },
		kerneltest.Tolerances{Linear: 3e-7, Elements: 3e-7, Embedding: 3e-7, Attention: 2e-6}, kerneltest.Options{})
}
