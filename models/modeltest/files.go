package modeltest

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/openinfer-go/openinfer/internal/testdata"
	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/models/checkpoint"
	"github.com/openinfer-go/openinfer/models/checkpoint/ggufwrite"
	"github.com/openinfer-go/openinfer/models/registry"
)

// Keys are keys of a config.json or of a GGUF file's metadata.
type Keys = map[string]any

// Set changes keys; a nil value removes one.
func Set(of, changes Keys) {
	for k, v := range changes {
		if of[k] = v; v == nil {
			delete(of, k)
		}
	}
}

// Files are a small checkpoint in safetensors, for tests that change one.
type Files struct {
	Config  Keys
	Tensors map[string]testdata.Tensor
}

// ReadFiles reads the folder at path.
func ReadFiles(tb testing.TB, path string) Files {
	tb.Helper()
	return Files{ReadConfig(tb, filepath.Join(path, "config.json")), testdata.Tensors(tb, filepath.Join(path, "model.safetensors"))}
}

// ReadConfig reads a file of one JSON object.
func ReadConfig(tb testing.TB, path string) (config Keys) {
	tb.Helper()
	raw, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(raw, &config)
	}
	if err != nil {
		tb.Fatal(err)
	}
	return config
}

// Bytes are the folder's files by name.
func (f Files) Bytes(tb testing.TB) map[string][]byte {
	tb.Helper()
	config, err := json.Marshal(f.Config)
	if err != nil {
		tb.Fatal(err)
	}
	header, body := Keys{}, []byte{}
	for _, name := range slices.Sorted(maps.Keys(f.Tensors)) {
		x := f.Tensors[name]
		header[name] = Keys{"dtype": x.DType, "shape": x.Shape, "data_offsets": []int{len(body), len(body) + len(x.Data)}}
		body = append(body, x.Data...)
	}
	h, err := json.Marshal(header)
	if err != nil {
		tb.Fatal(err)
	}
	tensors := binary.LittleEndian.AppendUint64(nil, uint64(len(h)))
	return map[string][]byte{"config.json": config, "model.safetensors": slices.Concat(tensors, h, body)}
}

// Write writes the folder and returns its path.
func (f Files) Write(tb testing.TB) string {
	tb.Helper()
	dir := tb.TempDir()
	for name, b := range f.Bytes(tb) {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			tb.Fatal(err)
		}
	}
	return dir
}

// Widened is a BF16 tensor in float32.
func Widened(x testdata.Tensor) testdata.Tensor {
	if x.DType != "BF16" {
		panic(fmt.Sprintf("modeltest: Widened of a tensor of %s", x.DType))
	}
	y := testdata.Tensor{DType: "F32", Shape: x.Shape}
	for i := 0; i < len(x.Data); i += 2 {
		y.Data = append(y.Data, 0, 0, x.Data[i], x.Data[i+1])
	}
	return y
}

// GGUF is a file of float32 tensors.
func GGUF(tb testing.TB, pairs Keys, tensors map[string]testdata.Tensor) []byte {
	tb.Helper()
	var f ggufwrite.File
	for _, k := range slices.Sorted(maps.Keys(pairs)) {
		f.Set(k, pairs[k])
	}
	for _, name := range slices.Sorted(maps.Keys(tensors)) {
		x := tensors[name]
		f.Add(ggufwrite.Tensor{Name: name, Type: ggufwrite.F32, Shape: x.Shape, Write: func(w io.Writer) error {
			_, err := w.Write(x.Data)
			return err
		}})
	}
	var b bytes.Buffer
	if _, err := f.WriteTo(&b); err != nil {
		tb.Fatal(err)
	}
	return b.Bytes()
}

// untouched is a device that nothing may be asked of.
type untouched struct{ kernels.Device }

// Refused wants the checkpoint that the files are to be refused, before the device is asked for
// anything, by an error that holds the names. what says what is wrong with it.
func Refused(t *testing.T, what string, files map[string][]byte, names ...string) {
	t.Helper()
	c, err := checkpoint.OpenFiles("changed", files)
	if err == nil {
		_, err = registry.Load(c, untouched{})
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	if err == nil {
		t.Errorf("%s: accepted", what)
		return
	}
	for _, name := range names {
		if !strings.Contains(err.Error(), name) {
			t.Errorf("%s: error %q does not hold %q", what, err, name)
		}
	}
}
