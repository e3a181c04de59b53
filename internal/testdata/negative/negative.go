// Package negative makes broken checkpoints out of good ones, each of which a loader must refuse
// with an error that names what is wrong.
//
// The cases are those of the reference data's negative/cases.json, which says what each is and
// which names its error may hold; Make fails when the two lists differ.
package negative

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/openinfer-go/openinfer/internal/testdata"
)

// Case is one broken checkpoint.
type Case struct {
	Name   string
	Change string   // what is wrong with it
	Dir    string   // the checkpoint
	Names  []string // the error must contain one of them
	// Config says that the tensor file is good and config.json is not.
	Config bool
}

// Make writes all cases below a temporary folder.
func Make(tb testing.TB) []Case {
	tb.Helper()
	raw, err := os.ReadFile(testdata.Shared(tb, "golden/negative/cases.json"))
	check(tb, err)
	var list struct {
		Float string `json:"good_float"`
		Int4  string `json:"good_int4"`
		Cases []struct {
			Case   string   `json:"case"`
			Change string   `json:"change"`
			Names  []string `json:"error_names_one_of"`
		} `json:"cases"`
	}
	check(tb, json.Unmarshal(raw, &list))
	out := tb.TempDir()
	made := map[string]bool{}
	for kind, good := range map[string]string{"float": list.Float, "int4": list.Int4} {
		dir := testdata.Shared(tb, "golden", good)
		file := readFile(tb, filepath.Join(dir, "model.safetensors"))
		side := sideFiles(tb, dir)
		for name, change := range fileCases(kind) {
			changed := change(file.clone())
			write(tb, filepath.Join(out, kind+"_"+name), side, map[string][]byte{"model.safetensors": changed})
			made[kind+"_"+name] = false
		}
		if kind == "float" {
			continue
		}
		for name, edit := range configCases {
			var config map[string]any
			check(tb, json.Unmarshal(side["config.json"], &config))
			at := config
			for _, key := range edit.path[:len(edit.path)-1] {
				at = at[key].(map[string]any)
			}
			at[edit.path[len(edit.path)-1]] = edit.value
			b, err := json.MarshalIndent(config, "", " ")
			check(tb, err)
			write(tb, filepath.Join(out, kind+"_"+name), side, map[string][]byte{"model.safetensors": file.bytes(), "config.json": b})
			made[kind+"_"+name] = true
		}
	}
	var cases []Case
	for _, c := range list.Cases {
		config, ok := made[c.Case]
		if !ok {
			tb.Fatalf("cases.json has %s, which is not made here", c.Case)
		}
		delete(made, c.Case)
		cases = append(cases, Case{c.Case, c.Change, filepath.Join(out, c.Case), c.Names, config})
	}
	if len(made) > 0 {
		tb.Fatalf("made here, but not in cases.json: %v", slices.Sorted(maps.Keys(made)))
	}
	return cases
}

func check(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// sideFiles are the JSON files of a checkpoint that a case keeps.
func sideFiles(tb testing.TB, dir string) map[string][]byte {
	entries, err := os.ReadDir(dir)
	check(tb, err)
	files := map[string][]byte{}
	for _, e := range entries {
		if n := e.Name(); strings.HasSuffix(n, ".json") && n != "golden.json" && n != "tokenizer.json" {
			files[n], err = os.ReadFile(filepath.Join(dir, n))
			check(tb, err)
		}
	}
	return files
}

func write(tb testing.TB, dir string, files ...map[string][]byte) {
	check(tb, os.MkdirAll(dir, 0o755))
	for _, set := range files {
		for name, b := range set {
			check(tb, os.WriteFile(filepath.Join(dir, name), b, 0o644))
		}
	}
}

// entry is one member of a safetensors header.
type entry struct {
	name    string
	DType   string `json:"dtype"`
	Shape   []int  `json:"shape"`
	Offsets [2]int `json:"data_offsets"`
}

// safetensors is a tensor file, its tensors in the order of their bytes.
type safetensors struct {
	tensors []entry
	body    []byte
}

func readFile(tb testing.TB, path string) safetensors {
	raw, err := os.ReadFile(path)
	check(tb, err)
	n := binary.LittleEndian.Uint64(raw)
	var header map[string]json.RawMessage
	check(tb, json.Unmarshal(raw[8:8+n], &header))
	delete(header, "__metadata__")
	s := safetensors{body: raw[8+n:]}
	for name, b := range header {
		e := entry{name: name}
		check(tb, json.Unmarshal(b, &e))
		s.tensors = append(s.tensors, e)
	}
	slices.SortFunc(s.tensors, func(a, b entry) int { return a.Offsets[0] - b.Offsets[0] })
	return s
}

func (s safetensors) clone() safetensors {
	c := safetensors{slices.Clone(s.tensors), bytes.Clone(s.body)}
	for i := range c.tensors {
		c.tensors[i].Shape = slices.Clone(c.tensors[i].Shape)
	}
	return c
}

func (s safetensors) index(name string) int {
	return slices.IndexFunc(s.tensors, func(e entry) bool { return e.name == name })
}

// header is the JSON object, with extra members at its end.
func (s safetensors) header(extra ...entry) []byte {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, e := range append(slices.Clone(s.tensors), extra...) {
		if i > 0 {
			b.WriteByte(',')
		}
		name, _ := json.Marshal(e.name)
		value, _ := json.Marshal(e)
		b.Write(name)
		b.WriteByte(':')
		b.Write(value)
	}
	b.WriteByte('}')
	for b.Len()%8 != 0 {
		b.WriteByte(' ')
	}
	return b.Bytes()
}

func file(length uint64, header, body []byte) []byte {
	return slices.Concat(binary.LittleEndian.AppendUint64(nil, length), header, body)
}

func (s safetensors) bytes() []byte {
	h := s.header()
	return file(uint64(len(h)), h, s.body)
}

// without is the file with a tensor less.
func (s safetensors) without(name string) safetensors {
	var out safetensors
	for _, e := range s.tensors {
		if e.name != name {
			out = out.with(e.name, e.DType, e.Shape, s.body[e.Offsets[0]:e.Offsets[1]])
		}
	}
	return out
}

// with is the file with a tensor more.
func (s safetensors) with(name, dtype string, shape []int, data []byte) safetensors {
	at := len(s.body)
	return safetensors{append(s.tensors, entry{name, dtype, shape, [2]int{at, at + len(data)}}), append(s.body, data...)}
}

// fileCases change the tensor file. kind is "float" or "int4".
func fileCases(kind string) map[string]func(safetensors) []byte {
	name := "model.layers.1.mlp.down_proj.weight"
	if kind == "int4" {
		name += "_packed"
	}
	// edit changes the tensor's entry alone.
	edit := func(change func(s safetensors, i int)) func(safetensors) []byte {
		return func(s safetensors) []byte {
			change(s, s.index(name))
			return s.bytes()
		}
	}
	data := func(s safetensors, name string) (entry, []byte) {
		e := s.tensors[s.index(name)]
		return e, bytes.Clone(s.body[e.Offsets[0]:e.Offsets[1]])
	}
	return map[string]func(safetensors) []byte{
		"renamed_tensor": func(s safetensors) []byte {
			e, b := data(s, name)
			return s.without(name).with(strings.Replace(name, "down_proj", "down_projj", 1), e.DType, e.Shape, b).bytes()
		},
		"missing_tensor": func(s safetensors) []byte { return s.without(name).bytes() },
		"extra_tensor": func(s safetensors) []byte {
			e, b := data(s, name)
			return s.with("model.layers.1.mlp.extra_proj.weight", e.DType, e.Shape, b).bytes()
		},
		"extra_layer": func(s safetensors) []byte {
			e, b := data(s, "model.layers.0.input_layernorm.weight")
			return s.with("model.layers.99.input_layernorm.weight", e.DType, e.Shape, b).bytes()
		},
		"wrong_shape":          edit(func(s safetensors, i int) { slices.Reverse(s.tensors[i].Shape) }),
		"shape_bytes_mismatch": edit(func(s safetensors, i int) { s.tensors[i].Shape[0]-- }),
		"truncated": func(s safetensors) []byte {
			b := s.bytes()
			return b[:len(b)-4096]
		},
		"truncated_in_header": func(s safetensors) []byte { return s.bytes()[:200] },
		"empty_file":          func(safetensors) []byte { return nil },
		"header_beyond_file":  func(s safetensors) []byte { return file(1<<40, s.header(), s.body) },
		"header_length_wraps": func(s safetensors) []byte { return file(1<<64-8, s.header(), s.body) },
		"overlapping_offsets": edit(func(s safetensors, i int) {
			e := &s.tensors[i]
			begin := s.tensors[i-1].Offsets[0]
			e.Offsets = [2]int{begin, begin + e.Offsets[1] - e.Offsets[0]}
		}),
		"offsets_reversed": edit(func(s safetensors, i int) { slices.Reverse(s.tensors[i].Offsets[:]) }),
		"wrong_dtype": edit(func(s safetensors, i int) {
			if kind == "float" {
				s.tensors[i].DType = "I16"
				return
			}
			s.tensors[i].DType = "F16"
			s.tensors[i].Shape[1] *= 2
		}),
		"unknown_dtype": edit(func(s safetensors, i int) { s.tensors[i].DType = "F13" }),
		"duplicate_key": func(s safetensors) []byte {
			h := s.header(s.tensors[s.index(name)])
			return file(uint64(len(h)), h, s.body)
		},
	}
}

// configCases change one value of config.json of an INT4 checkpoint.
var configCases = map[string]struct {
	path  []string
	value any
}{
	"num_bits_3":           {[]string{"quantization_config", "config_groups", "group_0", "weights", "num_bits"}, 3},
	"unknown_quant_method": {[]string{"quantization_config", "quant_method"}, "bitsandbytes"},
	"unknown_format":       {[]string{"quantization_config", "format"}, "marlin-24"},
	"activation_quantised": {[]string{"quantization_config", "config_groups", "group_0", "input_activations"},
		map[string]any{"num_bits": 8, "type": "int", "symmetric": true, "strategy": "token", "dynamic": true}},
	"unknown_architecture": {[]string{"model_type"}, "mamba9"},
	"hidden_size_zero":     {[]string{"hidden_size"}, 0},
	"heads_do_not_divide":  {[]string{"num_key_value_heads"}, 3},
	"huge_layers":          {[]string{"num_hidden_layers"}, 1000000000},
}
