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
		{keys{"hidden_size": 0}, []string{"hidden_size", "0"}},
		{keys{"hidden_size": -128}, []string{"hidden_size", "-128"}},
		{keys{"hidden_size": 12.5}, []string{"hidden_size", "12.5"}},
		{keys{"hidden_size": "128"}, []string{"hidden_size"}},
		{keys{"vocab_size": 1 << 40}, []string{"vocab_size"}},
		{keys{"num_hidden_layers": 1e18}, []string{"num_hidden_layers"}},
		{keys{"num_attention_heads": 3}, []string{"num_attention_heads", "num_key_value_heads"}},
		{keys{"num_key_value_heads": 3}, []string{"num_key_value_heads"}},
		{keys{"head_dim": 63}, []string{"head_dim", "63"}},
		{keys{"head_dim": 1 << 23}, []string{"head_dim"}},
		{keys{"head_dim": nil, "num_attention_heads": 3, "num_key_value_heads": 3}, []string{"num_attention_heads", "hidden_size"}},
		{keys{"hidden_act": "gelu"}, []string{"hidden_act", "gelu"}},
		{keys{"hidden_act": []int{1}}, []string{"hidden_act"}},
		{keys{"rms_norm_eps": 0}, []string{"rms_norm_eps"}},
		{keys{"rms_norm_eps": 1e-200}, []string{"rms_norm_eps"}},
		{keys{"tie_word_embeddings": "yes"}, []string{"tie_word_embeddings"}},
		{keys{"max_position_embeddings": nil}, []string{"max_position_embeddings"}},
		{keys{"num_experts": 8}, []string{"num_experts"}},
		{keys{"rope_parameters": nil, "rope_theta": -1}, []string{"rope_theta"}},
		{keys{"rope_parameters": nil, "rope_scaling": keys{"rope_type": "ntk", "factor": 4}}, []string{"rope_scaling.rope_type", "ntk"}},
		{keys{"rope_parameters": keys{"rope_type": "linear"}}, []string{"rope_parameters.factor", "missing"}},
		{keys{"rope_parameters": keys{"rope_type": "linear", "factor": 0}}, []string{"rope_parameters.factor"}},
		{keys{"rope_parameters": keys{"rope_type": "llama3", "factor": 8, "low_freq_factor": 4, "high_freq_factor": 1, "original_max_position_embeddings": 64}}, []string{"low_freq_factor"}},
		{keys{"rope_parameters": keys{"rope_theta": 1e4, "partial_rotary_factor": 1.5}}, []string{"partial_rotary_factor"}},
		{keys{"rope_parameters": "default"}, []string{"rope_parameters"}},
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

func TestConfigLayoutsAgree(t *testing.T) {
	type keys = map[string]any
	llama3 := keys{"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}
	inside := keys{"rope_theta": 5000.0}
	for k, v := range llama3 {
		inside[k] = v
	}
	for _, pair := range [][2]keys{
		{{"rope_parameters": nil, "rope_theta": 5000, "rope_scaling": llama3}, {"rope_theta": nil, "rope_scaling": nil, "rope_parameters": inside}},
		{{"rope_parameters": nil, "rope_theta": 5000, "rope_scaling": nil}, {"rope_theta": nil, "rope_scaling": nil, "rope_parameters": keys{"rope_type": "default", "rope_theta": 5000}}},
		{{"rope_parameters": nil, "rope_theta": nil, "rope_scaling": keys{"type": "linear", "factor": 2}}, {"rope_theta": 10000.0, "rope_scaling": nil, "rope_parameters": keys{"rope_type": "linear", "factor": 2.0}}},
	} {
		a, err := readConfig(t, pair[0])
		if err != nil {
			t.Fatal(err)
		}
		b, err := readConfig(t, pair[1])
		if err != nil {
			t.Fatal(err)
		}
		for i, f := range a.Rotary.ByRegime[0].InvFreq {
			if f != b.Rotary.ByRegime[0].InvFreq[i] {
				t.Errorf("frequency %d: %v of %v, %v of %v", i, f, pair[0], b.Rotary.ByRegime[0].InvFreq[i], pair[1])
			}
		}
	}
}
