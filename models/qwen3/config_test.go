package qwen3_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/openinfer-go/openinfer/internal/testdata"
	"github.com/openinfer-go/openinfer/models/checkpoint"
	"github.com/openinfer-go/openinfer/models/qwen3"
)

// readConfig reads the config of a good checkpoint with changes; a nil value removes a key.
func readConfig(t *testing.T, changes map[string]any) (qwen3.Config, error) {
	t.Helper()
	dir := testdata.Shared(t, "golden/models/qwen3_untied")
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
	return qwen3.ReadConfig(c)
}

func TestConfigErrorsNameTheKey(t *testing.T) {
	type keys = map[string]any
	for _, c := range []struct {
		changes keys
		names   []string // all of which the error holds
	}{
		{keys{"hidden_size": nil}, []string{"hidden_size", "missing"}},
		{keys{"head_dim": 63}, []string{"head_dim", "63"}},
		{keys{"rope_parameters": "default"}, []string{"rope_parameters"}},
		{keys{"attention_bias": 1}, []string{"attention_bias"}},
		{keys{"use_sliding_window": true, "sliding_window": 16, "max_window_layers": 0, "layer_types": nil}, []string{"use_sliding_window"}},
		{keys{"layer_types": []string{"full_attention", "sliding_attention"}}, []string{"layer_types", "sliding_attention"}},
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
	raw, err := os.ReadFile(testdata.Shared(t, "configs/qwen3-1.7b.json"))
	if err != nil {
		t.Fatal(err)
	}
	var keys map[string]any
	if err := json.Unmarshal(raw, &keys); err != nil {
		t.Fatal(err)
	}
	keys["layer_types"] = nil // of the changed config
	c, err := readConfig(t, keys)
	if err != nil {
		t.Fatal(err)
	}
	if c.HeadDim != 128 || c.Heads != 16 || c.KVHeads != 8 || c.Layers != 28 || !c.Tied || c.Rotary.Cols() != 128 {
		t.Errorf("%+v", c)
	}
}

// TestHeadDimDefault: without the key a head has 128 values, whatever the sizes beside it.
func TestHeadDimDefault(t *testing.T) {
	c, err := readConfig(t, map[string]any{"head_dim": nil})
	if err != nil || c.HeadDim != 128 {
		t.Errorf("head of %d, %v", c.HeadDim, err)
	}
}
