package gemma4_test

import (
	"encoding/binary"
	"testing"

	"github.com/openinfer-go/openinfer/internal/testdata"
	"github.com/openinfer-go/openinfer/kernels/ref"
	"github.com/openinfer-go/openinfer/models"
	"github.com/openinfer-go/openinfer/models/checkpoint"
	"github.com/openinfer-go/openinfer/models/gemma4"
	"github.com/openinfer-go/openinfer/models/modeltest"
)

type keys = modeltest.Keys

// readFiles reads a checkpoint of the reference data.
func readFiles(t *testing.T, name string) modeltest.Files {
	t.Helper()
	return modeltest.ReadFiles(t, testdata.Shared(t, "golden", "models", name))
}

// text is the config of the text model.
func text(f modeltest.Files) keys { return f.Config["text_config"].(keys) }

// bf16 is a tensor of one value.
func bf16(bits uint16) testdata.Tensor {
	return testdata.Tensor{DType: "BF16", Shape: []int{1}, Data: binary.LittleEndian.AppendUint16(nil, bits)}
}

// load loads the files on ref.
func load(t *testing.T, of map[string][]byte) models.Model {
	t.Helper()
	c, err := checkpoint.OpenFiles("changed", of)
	if err != nil {
		t.Fatal(err)
	}
	d := ref.Open()
	m, err := gemma4.Load(c, d)
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Unload(d) })
	return m
}
