package qwen3_5_test

import (
	"encoding/binary"
	"encoding/json"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/openinfer-go/openinfer/internal/testdata"
	"github.com/openinfer-go/openinfer/kernels/ref"
	"github.com/openinfer-go/openinfer/models/checkpoint"
	"github.com/openinfer-go/openinfer/models/modeltest"
	"github.com/openinfer-go/openinfer/models/registry"
)

// write writes a checkpoint folder.
func write(t *testing.T, cfg []byte, tensors map[string]testdata.Tensor) string {
	t.Helper()
	header, body := keys{}, []byte(nil)
	for _, name := range slices.Sorted(maps.Keys(tensors)) {
		x := tensors[name]
		header[name] = keys{"dtype": x.DType, "shape": x.Shape, "data_offsets": []int{len(body), len(body) + len(x.Data)}}
		body = append(body, x.Data...)
	}
	raw, err := json.Marshal(header)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file := append(append(binary.LittleEndian.AppendUint64(nil, uint64(len(raw))), raw...), body...)
	for name, b := range map[string][]byte{"config.json": cfg, "model.safetensors": file} {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func f32(v ...float32) testdata.Tensor {
	x := testdata.Tensor{DType: "F32", Shape: []int{len(v)}}
	for _, f := range v {
		x.Data = binary.LittleEndian.AppendUint32(x.Data, math.Float32bits(f))
	}
	return x
}

// changedCheckpoint writes a good checkpoint with other tensors.
func changedCheckpoint(t *testing.T, folder string, edit func(map[string]testdata.Tensor)) string {
	t.Helper()
	dir := testdata.Shared(t, "golden", folder)
	cfg, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	tensors := testdata.Tensors(t, filepath.Join(dir, "model.safetensors"))
	edit(tensors)
	return write(t, cfg, tensors)
}

func TestBrokenCheckpointsAreRefusedByName(t *testing.T) {
	const (
		float, int4 = "models/qwen3_5_mtp_vision", "quant/qwen3_5_mtp_vision_ct_g32_asym"
		delta       = "model.language_model.layers.0.linear_attn."
		attention   = "model.language_model.layers.1.self_attn."
	)
	type tensors = map[string]testdata.Tensor
	drop := func(name string) func(tensors) { return func(x tensors) { delete(x, name) } }
	set := func(name string, to testdata.Tensor) func(tensors) { return func(x tensors) { x[name] = to } }
	shape := func(name string, to ...int) func(tensors) {
		return func(x tensors) {
			v := x[name]
			v.Shape = to
			x[name] = v
		}
	}
	for what, c := range map[string]struct {
		folder string
		edit   func(tensors)
		name   string
	}{
		"no convolution":                    {float, drop(delta + "conv1d.weight"), delta + "conv1d.weight"},
		"a convolution of two dimensions":   {float, shape(delta+"conv1d.weight", 512, 4), delta + "conv1d.weight"},
		"a convolution of other width":      {float, shape(delta+"conv1d.weight", 1024, 1, 2), delta + "conv1d.weight"},
		"no A_log":                          {float, drop(delta + "A_log"), delta + "A_log"},
		"A_log of other size":               {float, set(delta+"A_log", f32(0, 0, 0)), delta + "A_log"},
		"A_log of two dimensions":           {float, shape(delta+"A_log", 4, 1), delta + "A_log"},
		"A_log that is no number":           {float, set(delta+"A_log", f32(0, 0, float32(math.NaN()), 0)), delta + "A_log"},
		"A_log too large":                   {float, set(delta+"A_log", f32(0, 1000, 0, 0)), delta + "A_log"},
		"no dt_bias":                        {float, drop(delta + "dt_bias"), delta + "dt_bias"},
		"no gated norm":                     {float, drop(delta + "norm.weight"), delta + "norm.weight"},
		"queries without gates":             {float, shape(attention+"q_proj.weight", 256, 256), attention + "q_proj.weight"},
		"no norm of queries":                {float, drop(attention + "q_norm.weight"), attention + "q_norm.weight"},
		"in_proj_ba in one":                 {float, set(delta+"in_proj_ba.weight", f32(1)), delta + "in_proj_ba.weight"},
		"no in_proj_z":                      {float, drop(delta + "in_proj_z.weight"), delta + "in_proj_z.weight"},
		"no codes of in_proj_z":             {int4, drop(delta + "in_proj_z.weight_packed"), delta + "in_proj_z.weight"},
		"no scales of q_proj":               {int4, drop(attention + "q_proj.weight_scale"), attention + "q_proj.weight_scale"},
		"zero points of other shape":        {int4, shape(attention+"q_proj.weight_zero_point", 32, 8), attention + "q_proj.weight_zero_point"},
		"one tensor more":                   {float, set("model.language_model.layers.0.extra.weight", f32(1)), "layers.0.extra.weight"},
		"a layer more":                      {float, set("model.language_model.layers.2.input_layernorm.weight", f32(1)), "layers.2.input_layernorm.weight"},
		"an encoder of an unknown kind":     {float, set("model.lidar.patch.weight", f32(1)), "model.lidar.patch.weight"},
		"half a draft head":                 {float, drop("mtp.layers.0.mlp.up_proj.weight"), "mtp.layers.0.mlp.up_proj.weight"},
		"a draft head's part of its own":    {float, set("mtp.extra.weight", f32(1)), "mtp.extra.weight"},
		"a draft head's layer more":         {float, set("mtp.layers.1.input_layernorm.weight", f32(1)), "mtp.layers.1.input_layernorm.weight"},
		"a draft head of another shape":     {float, shape("mtp.fc.weight", 256, 128), "mtp.fc.weight"},
		"a draft head without its first":    {float, drop("mtp.fc.weight"), "mtp."},
		"an output layer that is not tied":  {float, set("lm_head.weight", f32(1)), "lm_head.weight"},
		"an image encoder in another place": {float, set("visual2.patch_embed.weight", f32(1)), "visual2.patch_embed.weight"},
	} {
		err := load(t, changedCheckpoint(t, c.folder, c.edit))
		if err == nil || !strings.Contains(err.Error(), c.name) {
			t.Errorf("%s: error %v does not hold %q", what, err, c.name)
		}
	}
}

// TestOtherNames: a checkpoint of the text part alone has shorter names; what is not the text part may be there or not.
func TestOtherNames(t *testing.T) {
	const folder = "models/qwen3_5_mtp_vision"
	exact := modeltest.Checkpoints("qwen3_5")[1]
	for what, edit := range map[string]func(string) string{
		"text part alone": func(name string) string {
			if strings.HasPrefix(name, "mtp.") || strings.HasPrefix(name, "model.visual.") {
				return ""
			}
			return strings.Replace(name, "model.language_model.", "model.", 1)
		},
		"no draft head": func(name string) string {
			if strings.HasPrefix(name, "mtp.") {
				return ""
			}
			return name
		},
	} {
		t.Run(what, func(t *testing.T) {
			dir := changedCheckpoint(t, folder, func(x map[string]testdata.Tensor) {
				for name, v := range maps.Clone(x) {
					delete(x, name)
					if to := edit(name); to != "" {
						x[to] = v
					}
				}
			})
			c, err := checkpoint.Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			d := ref.Open()
			m, err := registry.Load(c, d)
			if err != nil {
				t.Fatal(err)
			}
			if n := m.Shape().DraftLayers; n != 0 {
				t.Errorf("%d layers of a draft head", n)
			}
			m.Unload(d)
			if err := c.Close(); err != nil {
				t.Error(err)
			}
			exact.Compare(t, exactRef, dir)
		})
	}
}
