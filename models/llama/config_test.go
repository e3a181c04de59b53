package llama_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/openinfer-go/openinfer/internal/testdata"
	"github.com/openinfer-go/openinfer/models/checkpoint"
	"github.com/openinfer-go/openinfer/models/llama"
)

// readConfig reads the config of a good checkpoint with changes; a nil value removes a key.
func readConfig(t *testing.T, changes map[string]any) (llama.Config, error) {
	t.Helper()
	dir := testdata.Shared(t, "golden/models/llama")
	files := map[string][]byte{}
	for _, name := range []string{"config.json", "model.safetensors"} {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		files[name] = b
	}
	var keys map[string]any
	if err := json.Unmarshal(files["config.json"], &keys); err != nil {
		t.Fatal(err)
	}
	for k, v := range changes {
		if keys[k] = v; v == nil {
			delete(keys, k)
		}
	}
	var err error
	if files["config.json"], err = json.Marshal(keys); err != nil {
		t.Fatal(err)
	}
	c, err := checkpoint.OpenFiles("changed", files)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}()
	return llama.ReadConfig(c)
}

func TestConfigErrorsNameTheKey(t *testing.T) {
	type keys = map[string]any
	for _, c := range []struct {
		changes keys
		names   []string // all of which the error holds
	}{
		{keys{"hidden_size": nil}, []string{"hidden_size", "missing"}},
		{keys{"head_dim": nil, "num_attention_heads": 3, "num_key_value_heads": 3}, []string{"num_attention_heads", "hidden_size"}},
		{keys{"rope_parameters": "default"}, []string{"rope_parameters"}},
		{keys{"rope_scaling": keys{"rope_type": "ntk"}}, []string{"rope_scaling.rope_type", "ntk"}},
		{keys{"attention_bias": 1}, []string{"attention_bias"}},
		{keys{"mlp_bias": 1}, []string{"mlp_bias"}},
		{keys{"model_type": "mistral", "sliding_window": 0}, []string{"sliding_window", "0"}},
		{keys{"model_type": "mistral", "sliding_window": "wide"}, []string{"sliding_window"}},
		{keys{"model_type": "qwen2", "use_sliding_window": true, "sliding_window": 512, "max_window_layers": 1}, []string{"use_sliding_window", "512"}},
		{keys{"model_type": "qwen2", "layer_types": []string{"full_attention", "sliding_attention"}}, []string{"layer_types", "sliding_attention"}},
	} {
		_, err := readConfig(t, c.changes)
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

func TestPublishedConfig(t *testing.T) {
	raw, err := os.ReadFile(testdata.Shared(t, "configs/llama-3.2-1b.json"))
	if err != nil {
		t.Fatal(err)
	}
	var keys map[string]any
	if err := json.Unmarshal(raw, &keys); err != nil {
		t.Fatal(err)
	}
	c, err := readConfig(t, keys)
	if err != nil {
		t.Fatal(err)
	}
	if c.HeadDim != 64 || c.Heads != 32 || c.KVHeads != 8 || c.Layers != 16 || !c.Tied || c.Rotary.Cols() != 64 || c.QKVBias || c.Window != 0 {
		t.Errorf("%+v", c)
	}
}

// TestVariants: what Mistral's and Qwen2's configs mean that Llama's do not.
func TestVariants(t *testing.T) {
	type keys = map[string]any
	type variant struct {
		window        int
		qkv, out, mlp bool
	}
	for _, c := range []struct {
		changes keys
		want    variant
	}{
		{keys{"sliding_window": 128}, variant{}},
		{keys{"attention_bias": true}, variant{qkv: true, out: true}},
		{keys{"mlp_bias": true}, variant{mlp: true}},
		{keys{"model_type": "mistral", "sliding_window": 128}, variant{window: 128}},
		{keys{"model_type": "mistral", "sliding_window": nil, "max_position_embeddings": 8192}, variant{window: 4096}},
		{keys{"model_type": "mistral", "sliding_window": json.RawMessage("null"), "max_position_embeddings": 8192}, variant{}},
		{keys{"model_type": "mistral", "sliding_window": 8192, "max_position_embeddings": 8192}, variant{}},
		{keys{"model_type": nil, "architectures": []string{"MistralForCausalLM"}, "sliding_window": 128}, variant{window: 128}},
		{keys{"model_type": "qwen2", "sliding_window": 128}, variant{qkv: true}},
		{keys{"model_type": "qwen2", "sliding_window": 128, "use_sliding_window": false, "attention_bias": false}, variant{qkv: true}},
		{keys{"model_type": nil, "architectures": []string{"Qwen2ForCausalLM"}}, variant{qkv: true}},
	} {
		cfg, err := readConfig(t, c.changes)
		if got := (variant{cfg.Window, cfg.QKVBias, cfg.OutBias, cfg.MLPBias}); err != nil || got != c.want {
			t.Errorf("%v: %+v, %v; want %+v", c.changes, got, err, c.want)
		}
	}
}
