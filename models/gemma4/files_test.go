package gemma4_test

import (
	"encoding/binary"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/openinfer-go/openinfer/internal/testdata"
	"github.com/openinfer-go/openinfer/kernels/ref"
	"github.com/openinfer-go/openinfer/models"
	"github.com/openinfer-go/openinfer/models/checkpoint"
	"github.com/openinfer-go/openinfer/models/gemma4"
)

type keys = map[string]any

// files are a checkpoint of the reference data that a test changes.
type files struct {
	config  keys
	tensors map[string]testdata.Tensor
}

func readFiles(t *testing.T, name string) files {
	t.Helper()
	dir := testdata.Shared(t, "golden", "models", name)
	return files{readConfig(t, filepath.Join(dir, "config.json")), testdata.Tensors(t, filepath.Join(dir, "model.safetensors"))}
}

func readConfig(t *testing.T, path string) (config keys) {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(raw, &config)
	}
	if err != nil {
		t.Fatal(err)
	}
	return config
}

// text is the config of the text model.
func (f files) text() keys { return f.config["text_config"].(keys) }

// set changes keys; a nil value removes one.
func set(of, changes keys) {
	for k, v := range changes {
		if of[k] = v; v == nil {
			delete(of, k)
		}
	}
}

// bytes returns the folder's files by name.
func (f files) bytes(t *testing.T) map[string][]byte {
	t.Helper()
	config, err := json.Marshal(f.config)
	if err != nil {
		t.Fatal(err)
	}
	header, body := keys{}, []byte{}
	for _, name := range slices.Sorted(maps.Keys(f.tensors)) {
		x := f.tensors[name]
		header[name] = keys{"dtype": x.DType, "shape": x.Shape, "data_offsets": []int{len(body), len(body) + len(x.Data)}}
		body = append(body, x.Data...)
	}
	h, err := json.Marshal(header)
	if err != nil {
		t.Fatal(err)
	}
	tensors := binary.LittleEndian.AppendUint64(nil, uint64(len(h)))
	return map[string][]byte{"config.json": config, "model.safetensors": slices.Concat(tensors, h, body)}
}

// write writes the folder and returns its path.
func (f files) write(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, b := range f.bytes(t) {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

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
