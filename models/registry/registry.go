// Package registry lists the architectures that can be loaded, and finds the one of a checkpoint.
package registry

import (
	"fmt"
	"slices"
	"strings"

	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/models"
	"github.com/openinfer-go/openinfer/models/checkpoint"
	"github.com/openinfer-go/openinfer/models/gemma3"
	"github.com/openinfer-go/openinfer/models/gemma4"
	"github.com/openinfer-go/openinfer/models/llama"
	"github.com/openinfer-go/openinfer/models/phi3"
	"github.com/openinfer-go/openinfer/models/qwen3"
	"github.com/openinfer-go/openinfer/models/qwen3_5"
)

// Architectures are all that there are.
func Architectures() []models.Architecture {
	return append(slices.Clone(llama.Architectures), qwen3.Architecture, qwen3_5.Architecture, phi3.Architecture, gemma3.Architecture, gemma4.Architecture)
}

// Find returns the architecture of a checkpoint. One that is not in the list is an error that
// names it and the list.
func Find(c *checkpoint.Checkpoint) (models.Architecture, error) {
	key := "config.json: model_type"
	if c.Format() == checkpoint.GGUF {
		key = "metadata general.architecture"
	}
	var names []string
	for _, a := range Architectures() {
		known := a.HF
		if c.Format() == checkpoint.GGUF {
			known = a.GGUF
		}
		if slices.Contains(known, c.Architecture()) {
			return a, nil
		}
		names = append(names, a.Name)
	}
	return models.Architecture{}, fmt.Errorf("%s: %s %q is not supported (there are %s)", c.Path(), key, c.Architecture(), strings.Join(names, ", "))
}

// Load loads a checkpoint of any known architecture. The checkpoint may be closed afterwards.
func Load(c *checkpoint.Checkpoint, d kernels.Device) (models.Model, error) {
	a, err := Find(c)
	if err != nil {
		return nil, err
	}
	return a.Load(c, d)
}
