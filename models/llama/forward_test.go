package llama_test

import (
	"os"
	"testing"

	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/kernels/ref"
	"github.com/openinfer-go/openinfer/models/modeltest"
)

func TestEqualsReferenceOnRef(t *testing.T) {
	for _, architecture := range []string{"llama", "mistral", "qwen2"} {
		modeltest.Run(t, modeltest.Float32("ref", func(testing.TB) kernels.Device { return ref.Open() }), architecture)
	}
}

// The reference device takes minutes for all of SmolLM2's prompts.
func TestSmolLM2EqualsReferenceOnRef(t *testing.T) {
	dev := modeltest.Float32("ref", func(testing.TB) kernels.Device { return ref.Open() })
	if os.Getenv("OPENINFER_SOAK") != "" {
		modeltest.SmolLM2(t, dev, 0, 0)
		return
	}
	modeltest.SmolLM2(t, dev, 1, 4)
}
