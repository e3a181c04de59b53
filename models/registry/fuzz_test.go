package registry_test

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/openinfer-go/openinfer/internal/testdata"
	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/kernels/ref"
	"github.com/openinfer-go/openinfer/models/checkpoint"
	"github.com/openinfer-go/openinfer/models/modeltest"
	"github.com/openinfer-go/openinfer/models/registry"
)

// node is an object or list of a config and a key or index in it.
type node struct {
	object map[string]any
	list   []any
	key    string
	index  int
}

func (n node) set(v any) {
	if n.object != nil {
		n.object[n.key] = v
	} else {
		n.list[n.index] = v
	}
}

// nodes lists every place of a value, in a fixed order.
func nodes(v any) (all []node) {
	switch v := v.(type) {
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(v)) {
			all = append(all, node{object: v, key: k})
			all = append(all, nodes(v[k])...)
		}
	case []any:
		for i := range v {
			all = append(all, node{list: v, index: i})
			all = append(all, nodes(v[i])...)
		}
	}
	return all
}

// FuzzConfigOfArchitectures changes one or two values of a good config.json of each architecture, beside
// its tensors. Whatever loads must compute a step whose only error is one of the step.
func FuzzConfigOfArchitectures(f *testing.F) {
	var configs, tensors [][]byte
	for _, name := range []string{
		"models/llama", "models/qwen3_tied", "models/qwen3_5", "models/qwen3_5_mtp_vision", "models/phi3", "models/phi3_mini_longrope",
		"models/gemma4", "quant/qwen3_5_ct_g128_sym", "quant/phi3_ct_g128_sym",
	} {
		dir := testdata.Shared(f, "golden/"+name)
		for file, into := range map[string]*[][]byte{"config.json": &configs, "model.safetensors": &tensors} {
			b, err := os.ReadFile(filepath.Join(dir, file))
			if err != nil {
				f.Fatal(err)
			}
			*into = append(*into, b)
		}
	}
	for i := range configs {
		f.Add(uint8(i), uint16(3*i), `0`, uint16(7), `-1`)
		f.Add(uint8(i), uint16(5*i+1), `1e9`, uint16(11*i), `null`)
		f.Add(uint8(i), uint16(8*i+2), `[1,2,3]`, uint16(2), `"x"`)
		f.Add(uint8(i), uint16(13*i+4), `{"a":1}`, uint16(40), `0.5`)
		f.Add(uint8(i), uint16(i+20), `true`, uint16(i+30), `3`)
	}
	f.Fuzz(func(t *testing.T, which uint8, at uint16, value string, at2 uint16, value2 string) {
		i := int(which) % len(configs)
		var config map[string]any
		if err := json.Unmarshal(configs[i], &config); err != nil {
			t.Fatal(err)
		}
		places := nodes(config)
		for _, c := range []struct {
			at    uint16
			value string
		}{{at, value}, {at2, value2}} {
			var v any
			if json.Unmarshal([]byte(c.value), &v) == nil {
				places[int(c.at)%len(places)].set(v)
			}
		}
		raw, err := json.Marshal(config)
		if err != nil {
			return
		}
		c, err := checkpoint.OpenFiles("fuzz", map[string][]byte{"config.json": raw, "model.safetensors": tensors[i]})
		if err != nil {
			return
		}
		defer func() {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}()
		d := ref.Open()
		m, err := registry.Load(c, d)
		if err != nil {
			return
		}
		defer m.Unload(d)
		r := modeltest.NewRunner(t, d, m, kernels.F32, 64)
		s := &modeltest.Sequence{Tokens: []int32{1, 2, 3, 4, 5}}
		if n := len(r.Step(modeltest.Row{Sequence: s, N: 5})); n != 1 {
			t.Errorf("%s: %d rows of logits", raw, n)
		}
	})
}
