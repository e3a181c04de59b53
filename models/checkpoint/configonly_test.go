package checkpoint_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/models/checkpoint"
)

// TestConfigOnlyQuantisation: what a config.json says of its modules is what they are made as.
func TestConfigOnlyQuantisation(t *testing.T) {
	type module struct {
		name     string
		n, k     int
		lookedUp bool
		want     string // bits/group, s: symmetric, o: in activation order
	}
	const ct = `{"quant_method": "compressed-tensors", "format": "pack-quantized", "ignore": ["lm_head", "re:.*gate$"], "config_groups": {
		"a": {"targets": ["Linear"], "weights": {"num_bits": 4, "type": "int", "symmetric": false, "strategy": "group", "group_size": 32}},
		"b": {"targets": ["re:.*down_proj"], "weights": {"num_bits": 8, "type": "int", "symmetric": true, "strategy": "channel"}}}}`
	for name, c := range map[string]struct {
		quant   string
		modules []module
	}{
		"nothing said": {`null`, []module{
			{"model.layers.0.q", 256, 512, false, "4/128s"}, {"narrow", 48, 512, false, "0/0"}, {"odd", 256, 100, false, "0/0"},
			{"lm_head", 1000, 512, false, "8/512s"}, {"model.embed_tokens", 1000, 512, true, "0/0"}, {"other.embed_tokens", 1000, 512, false, "8/512s"},
		}},
		"compressed-tensors": {ct, []module{
			{"x.q_proj", 256, 512, false, "4/32"}, {"x.down_proj", 256, 512, false, "8/512s"}, {"x.gate", 256, 512, false, "0/0"},
			{"lm_head", 1000, 512, false, "0/0"}, {"model.embed_tokens", 1000, 512, false, "0/0"},
		}},
		"gptq": {`{"quant_method": "gptq", "bits": 4, "group_size": 64, "sym": true, "desc_act": true,
			"dynamic": {"-:.*gate": {}, "+:.*up": {"bits": 8, "group_size": -1}}}`, []module{
			{"x.q", 256, 512, false, "4/64so"}, {"x.gate", 256, 512, false, "0/0"}, {"x.up", 256, 512, false, "8/512so"}, {"lm_head", 1000, 512, false, "0/0"},
		}},
		"awq": {`{"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": true, "modules_to_not_convert": ["vision"]}`, []module{
			{"x.q", 256, 512, false, "4/128"}, {"vision.q", 256, 512, false, "0/0"}, {"model.embed_tokens", 1000, 512, true, "0/0"},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			c1, err := checkpoint.OpenConfigBytes("made", []byte(fmt.Sprintf(`{"model_type": "llama", "quantization_config": %s}`, c.quant)))
			if err != nil {
				t.Fatal(err)
			}
			if c1.Format() != checkpoint.ConfigOnly || c1.Architecture() != "llama" || c1.Has("lm_head") {
				t.Errorf("format %s, architecture %s", c1.Format(), c1.Architecture())
			}
			for _, m := range c.modules {
				var opts []checkpoint.Option
				if m.lookedUp {
					opts = append(opts, checkpoint.LookedUp())
				}
				got, err := c1.Matrix(m.name, m.n, m.k, opts...)
				if err != nil {
					t.Fatal(err)
				}
				said := fmt.Sprintf("%d/%d", got.Bits, got.Group)
				if got.Symmetric {
					said += "s"
				}
				if got.Perm != nil {
					said += "o"
				}
				if said != m.want || got.N != m.n || got.K != m.k || got.LookedUp != m.lookedUp || got.Bits == 0 && got.Type != kernels.BF16 {
					t.Errorf("%s: %+v is %s, want %s", m.name, got, said, m.want)
				}
				if err := got.Read(new(kernels.Rows), 0, 1); !errors.Is(err, checkpoint.ErrNoWeights) || !strings.Contains(err.Error(), m.name) {
					t.Errorf("%s was read: %v", m.name, err)
				}
				if _, err := c1.Matrix(m.name, m.n, m.k); err == nil || !strings.Contains(err.Error(), "twice") {
					t.Errorf("%s twice: %v", m.name, err)
				}
			}
			if _, err := c1.Vector("huge", 1<<40, 1<<40); err == nil {
				t.Error("a vector larger than memory")
			}
			if v, err := c1.Vector("norm.weight", 2, 3); err != nil || len(v) != 6 || v[5] != 0 {
				t.Errorf("%v, %v", v, err)
			}
			if err := errors.Join(c1.Finish(), c1.Close()); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestConfigOnlyFromDisk(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "config.json")
	if err := os.WriteFile(file, []byte(`{"model_type": "qwen3", "eos_token_id": [3, 4]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := checkpoint.Open(dir); !errors.Is(err, checkpoint.ErrNoWeights) {
		t.Errorf("opened as one with weights: %v", err)
	}
	for _, path := range []string{dir, file} {
		c, err := checkpoint.OpenConfig(path)
		if err != nil || c.Architecture() != "qwen3" || len(c.EOS()) != 2 || c.TokenizerJSON() != nil {
			t.Errorf("%s: %+v, %v", path, c, err)
		}
	}
	if err := os.WriteFile(file, []byte(`{"model_type": "qwen3", "quantization_config": {"quant_method": "fp8"}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{dir, file, filepath.Join(dir, "no.json"), t.TempDir()} {
		if _, err := checkpoint.OpenConfig(path); err == nil {
			t.Errorf("%s was opened", path)
		} else {
			t.Log(err)
		}
	}
}

// TestKeepFloats: without a word of quantisation the weights are floats of the type that config.json states.
func TestKeepFloats(t *testing.T) {
	for config, want := range map[string]string{
		`{"model_type": "llama", "torch_dtype": "float16"}`:                             "fp16",
		`{"model_type": "llama", "dtype": "float32"}`:                                   "float32",
		`{"model_type": "x", "dtype": "float32", "text_config": {"dtype": "bfloat16"}}`: "bf16",
		`{"model_type": "llama"}`:                                                       "bf16",
		`{"model_type": "llama", "quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 64, "sym": true}}`: "4",
		`{"model_type": "llama", "dtype": "int4"}`: `dtype "int4"`,
		`{"model_type": "llama", "dtype": 4}`:      "dtype",
	} {
		c, err := checkpoint.OpenConfigBytes("made", []byte(config))
		if err != nil {
			t.Fatal(err)
		}
		if err := c.KeepFloats(); err != nil {
			if !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "made") {
				t.Errorf("%s: %v, want %q", config, err, want)
			}
			continue
		}
		m, err := c.Matrix("lm.q", 256, 512)
		got := m.Type.String()
		if m.Bits > 0 {
			got = fmt.Sprint(m.Bits)
		}
		if err != nil || got != want {
			t.Errorf("%s: %s, %v; want %s", config, got, err, want)
		}
	}
}
