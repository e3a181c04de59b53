package checkpoint

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/openinfer-go/openinfer/models/checkpoint/ggufwrite"
)

func itoa(i int) string { return strconv.Itoa(i) }

func osDirFS(dir string) fs.FS { return os.DirFS(dir) }

// readDir returns the files of a folder.
func readDir(t testing.TB, dir string) map[string][]byte {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	for _, e := range entries {
		if e.IsDir() {
			continue
		}
		if files[e.Name()], err = os.ReadFile(filepath.Join(dir, e.Name())); err != nil {
			t.Fatal(err)
		}
	}
	return files
}

// writeDir writes files to a temporary folder.
func writeDir(t testing.TB, files map[string][]byte) string {
	t.Helper()
	dir := t.TempDir()
	for name, b := range files {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// stored is a tensor of a safetensors file that a test makes.
type storedTensor struct {
	name, dtype string
	shape       []int
	data        []byte
}

// safetensorsFile is the bytes of a file with the tensors in order.
func safetensorsFile(tensors ...storedTensor) []byte {
	var header, body bytes.Buffer
	header.WriteString(`{"__metadata__":{"format":"pt"}`)
	for _, t := range tensors {
		if t.shape == nil {
			t.shape = []int{}
		}
		name, _ := json.Marshal(t.name)
		entry, _ := json.Marshal(map[string]any{"dtype": t.dtype, "shape": t.shape, "data_offsets": []int{body.Len(), body.Len() + len(t.data)}})
		header.WriteByte(',')
		header.Write(name)
		header.WriteByte(':')
		header.Write(entry)
		body.Write(t.data)
	}
	header.WriteByte('}')
	return withHeader(header.String(), body.Bytes())
}

func withHeader(header string, body []byte) []byte {
	return append(append(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header...), body...)
}

// quantJSON is a config.json with these members of quantization_config.
func quantJSON(format string, args ...any) []byte {
	return fmt.Appendf(nil, `{"model_type":"llama","quantization_config":{`+format+`}}`, args...)
}

func f32s(v ...float32) []byte {
	var b []byte
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	return b
}

func f32Tensor(name string, v ...float32) storedTensor {
	return storedTensor{name, "F32", []int{len(v)}, f32s(v...)}
}

// ggufFile is the bytes of a GGUF file that set fills.
func ggufFile(t testing.TB, set func(f *ggufwrite.File)) []byte {
	t.Helper()
	f := &ggufwrite.File{}
	f.Set("general.architecture", "llama")
	set(f)
	var b bytes.Buffer
	if _, err := f.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// ggufTensor is a tensor of the values x.
func ggufTensor(name string, kind ggufwrite.Type, shape []int, x []float32) ggufwrite.Tensor {
	b := make([]byte, kind.Bytes(len(x)))
	kind.Encode(b, x)
	return ggufwrite.Tensor{Name: name, Type: kind, Shape: shape, Write: writeBytes(b)}
}

// refused fails unless err is an error that has all of the words.
func refused(t *testing.T, err error, words ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("accepted; want an error that has %q", words)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("error %q does not have %q", err, w)
		}
	}
}

func writeBytes(b []byte) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := w.Write(b)
		return err
	}
}
