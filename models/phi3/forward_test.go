package phi3_test

import (
	"testing"

	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/kernels/ref"
	"github.com/openinfer-go/openinfer/models/modeltest"
)

func TestEqualsReferenceOnRef(t *testing.T) {
	modeltest.Run(t, modeltest.Float32("ref", func(testing.TB) kernels.Device { return ref.Open() }), "phi3")
}
