package phi3_test

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/openinfer-go/openinfer/internal/testdata"
	"github.com/openinfer-go/openinfer/models/checkpoint"
	"github.com/openinfer-go/openinfer/models/phi3"
)

type keys = map[string]any

// readConfig reads a config with changes; a nil value removes a key.
func readConfig(t *testing.T, path string, changes keys) (phi3.Config, error) {
	t.Helper()
	raw, err := os.ReadFile(testdata.Shared(t, path))
	if err != nil {
		t.Fatal(err)
	}
	weights, err := os.ReadFile(testdata.Shared(t, "golden/models/phi3/model.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	var all keys
	if err := json.Unmarshal(raw, &all); err != nil {
		t.Fatal(err)
	}
	for k, v := range changes {
		if all[k] = v; v == nil {
			delete(all, k)
		}
	}
	if raw, err = json.Marshal(all); err != nil {
		t.Fatal(err)
	}
	c, err := checkpoint.OpenFiles("changed", map[string][]byte{"config.json": raw, "model.safetensors": weights})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}()
	return phi3.ReadConfig(c)
}

const mini = "golden/models/phi3_mini_longrope/config.json"

func TestPublishedConfig(t *testing.T) {
	c, err := readConfig(t, "configs/phi-4.json", nil)
	if err != nil {
		t.Fatal(err)
	}
	if c.HeadDim != 128 || c.KVHeads != 10 || c.Tied || c.Window != 0 || len(c.Rotary.ByRegime) != 1 || c.Rotary.Cols() != 128 {
		t.Errorf("%+v", c)
	}
}

func TestLongRoPEConfig(t *testing.T) {
	c, err := readConfig(t, mini, nil)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(c.Rotary.Regimes, []int{128}) || len(c.Rotary.ByRegime) != 2 || c.Rotary.Cols() != 48 || !c.Tied {
		t.Errorf("%+v", c)
	}
}

// TestWindow: one that reaches as far as the context is none.
func TestWindow(t *testing.T) {
	for window, want := range map[any]int{nil: 0, 1: 1, 48: 48, 1023: 1023, 1024: 0, 262144: 0} {
		c, err := readConfig(t, mini, keys{"sliding_window": window})
		if err != nil || c.Window != want {
			t.Errorf("sliding_window %v: window %d, %v; want %d", window, c.Window, err, want)
		}
	}
}

func TestConfigErrorsNameTheKey(t *testing.T) {
	for _, c := range []struct {
		changes keys
		names   []string // all of which the error holds
	}{
		{keys{"hidden_size": nil}, []string{"hidden_size", "missing"}},
		{keys{"num_key_value_heads": 3}, []string{"num_key_value_heads"}},
		{keys{"sliding_window": 0}, []string{"sliding_window", "0"}},
		{keys{"sliding_window": "wide"}, []string{"sliding_window"}},
		{keys{"attention_bias": true}, []string{"attention_bias"}},
		{keys{"lm_head_bias": true}, []string{"lm_head_bias"}},
		{keys{"partial_rotary_factor": 0.5}, []string{"rope_scaling.short_factor", "24", "16"}},
		{keys{"partial_rotary_factor": 0.01}, []string{"partial_rotary_factor"}},
		{keys{"original_max_position_embeddings": "128"}, []string{"original_max_position_embeddings"}},
		{keys{"rope_scaling": keys{"type": "longrope", "short_factor": []int{1}}}, []string{"rope_scaling.short_factor"}},
		{keys{"rope_scaling": keys{"type": "ntk"}}, []string{"rope_scaling.type", "ntk"}},
	} {
		_, err := readConfig(t, mini, c.changes)
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
