package checkpoint

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/kernels/quant"
)

const sourceConfig = `{"model_type":"llama","text_config":{"a":1,"quantization_config":{"x":2}},"z":[1.0,1e-6],
 "quantization_config":{"quant_method":"awq"},"b":"é"}`

// What is written is read again as the same codes, in one file and in several, whatever the pieces.
func TestWrittenCodesReadBack(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for _, s := range []quant.Scheme{{Bits: 4, Group: 32, Symmetric: true}, {Bits: 4, Group: 32}, {Bits: 8, Group: 64, Symmetric: true}} {
		for _, shard := range []int64{1 << 30, 3000} {
			dir := t.TempDir()
			shapes := map[string][2]int{"model.layers.0.self_attn.q_proj": {20, 64}, "model.layers.0.mlp.down_proj": {16, 192}}
			rows := map[string]*kernels.Rows{}
			tensors := []NewTensor{{"model.norm.weight", "F32", []int{5}}, {"odd", "U8", []int{3}}}
			for name, n := range shapes {
				m := s.Matrix(name, n[0], n[1])
				r := &kernels.Rows{}
				r.Reset(m, m.N)
				for i := range r.Codes {
					r.Codes[i] = uint8(rnd.IntN(1 << s.Bits))
				}
				for i := range r.Scale {
					r.Scale[i], r.Zero[i] = quant.BF16(quant.ToBF16(rnd.Float32()+0.01)), 1<<(s.Bits-1)
					if !s.Symmetric {
						r.Zero[i] = uint8(rnd.IntN(16))
					}
				}
				rows[name] = r
				tensors = append(tensors, CodedTensors(name, s, m.N, m.K)...)
			}
			w, err := NewWriter(dir, tensors, shard)
			if err != nil {
				t.Fatal(err)
			}
			if err := w.Open(); err != nil {
				t.Fatal(err)
			}
			for name, n := range shapes {
				m, all := s.Matrix(name, n[0], n[1]), rows[name]
				for _, piece := range [][2]int{{16, m.N}, {0, 8}, {8, 16}} {
					from, to := piece[0], min(piece[1], m.N)
					if from >= to {
						continue
					}
					part := &kernels.Rows{
						Codes: all.Codes[from*m.K : to*m.K], Scale: all.Scale[from*m.Groups() : to*m.Groups()], Zero: all.Zero[from*m.Groups() : to*m.Groups()],
					}
					if err := w.WriteCodes(name, s, m, part, from, to-from); err != nil {
						t.Fatal(err)
					}
				}
				var back kernels.Rows
				if err := w.ReadCodes(name, s, m, &back, 8, m.N-8); err != nil {
					t.Fatal(err)
				}
				if !slices.Equal(back.Codes, all.Codes[8*m.K:]) || !slices.Equal(back.Scale, all.Scale[8*m.Groups():]) || !slices.Equal(back.Zero, all.Zero[8*m.Groups():]) {
					t.Fatalf("%v, %s: rows from 8 on come back otherwise", s, name)
				}
			}
			if err := w.Finish(); err != nil {
				t.Fatal(err)
			}
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			cfg, err := CodedConfig([]byte(sourceConfig), s, true, []string{"lm_head"})
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "config.json"), cfg, 0o644); err != nil {
				t.Fatal(err)
			}
			c, err := Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			for name, n := range shapes {
				m, err := c.Matrix(name, n[0], n[1])
				if err != nil {
					t.Fatal(err)
				}
				var got kernels.Rows
				if err := m.Read(&got, 0, m.N); err != nil {
					t.Fatal(err)
				}
				want := rows[name]
				if m.Bits != s.Bits || m.Group != s.Group || m.ScaleType != kernels.BF16 || !slices.Equal(got.Codes, want.Codes) ||
					!slices.Equal(got.Scale, want.Scale) || !slices.Equal(got.Zero, want.Zero) {
					t.Fatalf("%v, %s: read back otherwise", s, name)
				}
			}
			items, err := c.Items()
			if err != nil {
				t.Fatal(err)
			}
			if len(items) != 4 {
				t.Errorf("%d items, want two weights and two tensors: %+v", len(items), items)
			}
			for _, it := range items {
				if n, ok := shapes[it.Module]; it.Module != "" && (!ok || !it.Coded || n != [2]int{it.N, it.K}) {
					t.Errorf("item %+v", it)
				}
			}
		}
	}
}

func TestCodedConfigKeepsTheRest(t *testing.T) {
	got, err := CodedConfig([]byte(sourceConfig), quant.Scheme{Bits: 4, Group: 128, Symmetric: true}, false, []string{"lm_head", "x"})
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Join(strings.Fields(string(got)), "")
	if want := `{"model_type":"llama","text_config":{"a":1},"z":[1.0,1e-6],"b":"é","quantization_config":`; !strings.HasPrefix(text, want) {
		t.Errorf("%s\nshould begin with %s", text, want)
	}
	var cfg map[string]any
	if err := json.Unmarshal(got, &cfg); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{"", "[]", "{", `{"a":1,"a":2}`, "null"} {
		if _, err := CodedConfig([]byte(bad), quant.Scheme{Bits: 4, Group: 128}, false, nil); err == nil {
			t.Errorf("config %q is taken", bad)
		}
	}
	if got, err := CodedConfig([]byte("{}"), quant.Scheme{Bits: 4, Group: 128}, false, nil); err != nil || !json.Valid(got) {
		t.Errorf("of an empty config: %s, %v", got, err)
	}
}

func TestWriterRefuses(t *testing.T) {
	if _, err := NewWriter("", []NewTensor{{"a", "F32", []int{1}}, {"a", "F32", []int{1}}}, 100); err == nil || !strings.Contains(err.Error(), "a is there twice") {
		t.Errorf("a tensor twice: %v", err)
	}
	if _, err := NewWriter("", []NewTensor{{"a", "Q4", []int{1}}}, 100); err == nil || !strings.Contains(err.Error(), "Q4") {
		t.Errorf("an unknown type: %v", err)
	}
	w, err := NewWriter(t.TempDir(), []NewTensor{{"a", "F32", []int{2}}}, 100)
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range []int64{-1, 1, math.MaxInt64 - 3} {
		if err := w.WriteAt("a", at, make([]byte, 8)); err == nil {
			t.Errorf("8 bytes at %d of 8 are written", at)
		}
	}
}

func TestUnfinishedFolderIsRefused(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"config.json", Unfinished} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(`{"model_type":"llama"}`), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Open(dir); err == nil || !strings.Contains(err.Error(), "not finished") {
		t.Errorf("a folder with %s: %v", Unfinished, err)
	}
}
