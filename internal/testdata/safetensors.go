package testdata

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"testing"
)

// Tensor is a tensor of a reference file.
type Tensor struct {
	DType string
	Shape []int
	Data  []byte
}

// Float32 returns the values of an F32 tensor.
func (t Tensor) Float32() []float32 {
	if t.DType != "F32" {
		panic(fmt.Sprintf("testdata: Float32 of a tensor of %s", t.DType))
	}
	v := make([]float32, len(t.Data)/4)
	for i := range v {
		v[i] = math.Float32frombits(binary.LittleEndian.Uint32(t.Data[4*i:]))
	}
	return v
}

// Tensors reads a safetensors file of reference data. It trusts the file; models/checkpoint has the
// reader for what a user brings.
func Tensors(tb testing.TB, path string) map[string]Tensor {
	tb.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	n := binary.LittleEndian.Uint64(raw)
	var header map[string]struct {
		DType   string `json:"dtype"`
		Shape   []int  `json:"shape"`
		Offsets [2]int `json:"data_offsets"`
	}
	var meta map[string]json.RawMessage
	if err := json.Unmarshal(raw[8:8+n], &meta); err != nil {
		tb.Fatalf("%s: %v", path, err)
	}
	delete(meta, "__metadata__")
	rest, _ := json.Marshal(meta)
	if err := json.Unmarshal(rest, &header); err != nil {
		tb.Fatalf("%s: %v", path, err)
	}
	tensors := map[string]Tensor{}
	for name, h := range header {
		tensors[name] = Tensor{h.DType, h.Shape, raw[8+n:][h.Offsets[0]:h.Offsets[1]]}
	}
	return tensors
}
