package qwen3_5_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/openinfer-go/openinfer/internal/testdata"
	"github.com/openinfer-go/openinfer/models/checkpoint"
	"github.com/openinfer-go/openinfer/models/qwen3_5"
)

type keys = map[string]any

// change sets keys, or takes out those whose value is nil.
func change(of, changes keys) {
	for k, v := range changes {
		if of[k] = v; v == nil {
			delete(of, k)
		}
	}
}

// parse reads a config.json.
func parse(t *testing.T, elem ...string) keys {
	t.Helper()
	raw, err := os.ReadFile(testdata.Shared(t, elem...))
	if err != nil {
		t.Fatal(err)
	}
	var cfg keys
	if err := json.Unmarshal(raw, &cfg); err != nil {
		t.Fatal(err)
	}
	return cfg
}

// read reads a config as that of a checkpoint that has the tensors of a safetensors file.
func read(t *testing.T, cfg keys, tensors []byte) (qwen3_5.Config, error) {
	t.Helper()
	raw, err := json.Marshal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	c, err := checkpoint.OpenFiles("changed", map[string][]byte{"config.json": raw, "model.safetensors": tensors})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}()
	return qwen3_5.ReadConfig(c)
}

func noTensors() []byte { return append([]byte{2, 0, 0, 0, 0, 0, 0, 0}, "{}"...) }

// readChanged reads the config of a good checkpoint with changes inside text_config.
func readChanged(t *testing.T, changes keys) (qwen3_5.Config, error) {
	t.Helper()
	cfg := parse(t, "golden/models/qwen3_5/config.json")
	change(cfg["text_config"].(keys), changes)
	return read(t, cfg, noTensors())
}

func TestConfigErrorsNameTheKey(t *testing.T) {
	rope := func(changes keys) keys {
		p := keys{"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.25}
		change(p, changes)
		return keys{"rope_parameters": p, "partial_rotary_factor": nil}
	}
	for _, c := range []struct {
		changes keys
		names   []string // all of which the error holds
	}{
		{keys{"hidden_size": nil}, []string{"text_config.hidden_size", "missing"}},
		{keys{"hidden_size": "128"}, []string{"text_config.hidden_size"}},
		{keys{"num_attention_heads": 3}, []string{"num_attention_heads", "num_key_value_heads"}},
		{keys{"head_dim": 63}, []string{"head_dim", "63"}},
		{keys{"hidden_act": "gelu"}, []string{"hidden_act", "gelu"}},
		{keys{"linear_num_value_heads": nil}, []string{"linear_num_value_heads", "missing"}},
		{keys{"linear_num_value_heads": 3}, []string{"linear_num_value_heads", "linear_num_key_heads"}},
		{keys{"linear_num_key_heads": 0}, []string{"linear_num_key_heads", "0"}},
		{keys{"linear_key_head_dim": 1 << 20}, []string{"linear_key_head_dim"}},
		{keys{"linear_value_head_dim": 64.5}, []string{"linear_value_head_dim", "64.5"}},
		{keys{"linear_key_head_dim": 1, "linear_value_head_dim": 2}, []string{"linear_key_head_dim", "1 by 2", "linear_conv_kernel_dim"}},
		{keys{"linear_conv_kernel_dim": 1}, []string{"linear_conv_kernel_dim", "1"}},
		{keys{"linear_conv_kernel_dim": 1 << 20}, []string{"linear_conv_kernel_dim"}},
		{keys{"attn_output_gate": false}, []string{"attn_output_gate"}},
		{keys{"output_gate_type": "sigmoid"}, []string{"output_gate_type", "sigmoid"}},
		{keys{"num_experts": 256}, []string{"num_experts"}},
		{keys{"num_experts_per_tok": 8}, []string{"num_experts_per_tok"}},
		{keys{"moe_intermediate_size": 512}, []string{"moe_intermediate_size"}},
		{keys{"mtp_num_hidden_layers": -1}, []string{"mtp_num_hidden_layers", "-1"}},
		{keys{"mtp_use_dedicated_embeddings": true}, []string{"mtp_use_dedicated_embeddings"}},
		{keys{"layer_types": []string{"linear_attention", "full_attention"}}, []string{"layer_types", "num_hidden_layers"}},
		{keys{"layer_types": []string{"linear_attention", "mamba", "full_attention", "full_attention"}}, []string{"layer_types", "layer 1", "mamba"}},
		{keys{"layer_types": slices.Repeat([]string{"linear_attention"}, 4)}, []string{"layer_types", "full attention"}},
		{keys{"layer_types": nil, "full_attention_interval": 0}, []string{"full_attention_interval", "0"}},
		{keys{"layer_types": nil, "full_attention_interval": 5}, []string{"full attention"}},
		{rope(keys{"rope_theta": nil}), []string{"rope_theta", "missing"}},
		{rope(keys{"rope_theta": -1}), []string{"rope_theta", "-1"}},
		{rope(keys{"rope_type": "axial"}), []string{"rope_parameters.rope_type", "axial"}},
		{rope(keys{"partial_rotary_factor": 0.01}), []string{"partial_rotary_factor", "0.01"}},
		{rope(keys{"partial_rotary_factor": 2}), []string{"partial_rotary_factor", "2"}},
	} {
		_, err := readChanged(t, c.changes)
		if err == nil {
			t.Errorf("%v: accepted", c.changes)
			continue
		}
		for _, name := range c.names {
			if !strings.Contains(err.Error(), name) {
				t.Errorf("%v: error %q does not hold %q", c.changes, err, name)
			}
		}
	}
}

func TestConfigLayoutsAgree(t *testing.T) {
	want, err := readChanged(t, nil)
	if err != nil {
		t.Fatal(err)
	}
	flat := parse(t, "golden/models/qwen3_5/config.json")
	text := flat["text_config"].(keys)
	interval := keys{"layer_types": nil, "full_attention_interval": 4}
	for what, cfg := range map[string]keys{
		"text_config alone":     text,
		"intervals":             {"model_type": "qwen3_5", "text_config": merged(text, interval)},
		"intervals by default":  {"model_type": "qwen3_5", "text_config": merged(text, keys{"layer_types": nil, "full_attention_interval": nil})},
		"defaults":              {"model_type": "qwen3_5", "text_config": merged(text, keys{"linear_conv_kernel_dim": nil, "rms_norm_eps": nil, "output_gate_type": "swish"})},
		"tied stated outside":   {"model_type": "qwen3_5", "tie_word_embeddings": false, "text_config": merged(text, keys{"tie_word_embeddings": nil})},
		"part of a head inside": {"model_type": "qwen3_5", "text_config": merged(text, keys{"partial_rotary_factor": nil})},
		"part of a head by default": {"model_type": "qwen3_5", "text_config": merged(text, keys{
			"partial_rotary_factor": nil, "rope_parameters": keys{"rope_theta": 10000000, "rope_type": "default"}})},
	} {
		got, err := read(t, cfg, noTensors())
		if err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		if got.Decoder != want.Decoder || !slices.Equal(got.Linear, want.Linear) || got.ConvWidth != want.ConvWidth ||
			!slices.Equal(got.Rotary.ByRegime[0].InvFreq, want.Rotary.ByRegime[0].InvFreq) {
			t.Errorf("%s: got %+v, want %+v", what, got, want)
		}
	}
}

func merged(a, b keys) keys {
	all := keys{}
	change(all, a)
	change(all, b)
	return all
}

// TestTyingIsStatedTwice: where the two places differ, a head of its own decides.
func TestTyingIsStatedTwice(t *testing.T) {
	untied, err := os.ReadFile(testdata.Shared(t, "golden/models/qwen3_5/model.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		outside, inside any
		tensors         []byte
		tied            bool
	}{
		{nil, nil, noTensors(), false},
		{true, nil, noTensors(), true},
		{nil, true, noTensors(), true},
		{true, true, noTensors(), true},
		{false, true, noTensors(), true},
		{true, false, noTensors(), true},
		{false, true, untied, false},
		{true, false, untied, false},
	} {
		cfg := parse(t, "golden/models/qwen3_5/config.json")
		change(cfg, keys{"tie_word_embeddings": c.outside})
		change(cfg["text_config"].(keys), keys{"tie_word_embeddings": c.inside})
		got, err := read(t, cfg, c.tensors)
		if err != nil {
			t.Fatal(err)
		}
		if got.Tied != c.tied {
			t.Errorf("outside %v, inside %v, a head of its own %v: tied %v", c.outside, c.inside, len(c.tensors) > 100, got.Tied)
		}
	}
}

func TestPublishedConfigsAreRead(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(testdata.Shared(t, "configs"), "qwen3.[58]-*.json"))
	if err != nil || len(files) != 3 {
		t.Fatalf("configs %v, %v", files, err)
	}
	for _, file := range files {
		cfg, err := read(t, parse(t, "configs", filepath.Base(file)), noTensors())
		if err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		full := 0
		for _, linear := range cfg.Linear {
			if !linear {
				full++
			}
		}
		if full*4 != cfg.Layers || cfg.Rotary.Cols() != 64 || cfg.HeadDim != 256 || cfg.KeyDim != 128 || cfg.KeyHeads != 16 ||
			cfg.DraftLayers != 1 || cfg.Tied || cfg.Vocab != 248320 {
			t.Errorf("%s: got %+v", file, cfg)
		}
	}
}
