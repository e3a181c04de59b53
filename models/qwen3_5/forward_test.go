package qwen3_5_test

import (
	"testing"

	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/kernels/ref"
	"github.com/openinfer-go/openinfer/models/modeltest"
)

var exactRef = modeltest.Float32("ref", func(testing.TB) kernels.Device { return ref.Open() })

func TestEqualsReferenceOnRef(t *testing.T) { modeltest.Run(t, exactRef, "qwen3_5") }
