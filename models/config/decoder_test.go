package config

import (
	"encoding/json"
	"strings"
	"testing"
)

type keys = map[string]any

// marshal is a good config with changes; a nil value removes a key.
func marshal(t *testing.T, changes keys) []byte {
	t.Helper()
	all := keys{
		"vocab_size": 512, "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
		"max_position_embeddings": 1024, "rms_norm_eps": 1e-5, "tie_word_embeddings": true, "hidden_act": "silu",
	}
	for k, v := range changes {
		if all[k] = v; v == nil {
			delete(all, k)
		}
	}
	raw, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func decoder(t *testing.T, changes keys) (Decoder, error) {
	t.Helper()
	r := New(marshal(t, changes))
	d := r.Decoder(Defaults{RMSEps: 1e-6})
	return d, r.Err()
}

func TestDecoderErrorsNameTheKey(t *testing.T) {
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
		{keys{"num_attention_heads": 3}, []string{"num_attention_heads", "hidden_size"}},
		{keys{"num_attention_heads": 3, "head_dim": 32}, []string{"num_attention_heads", "num_key_value_heads"}},
		{keys{"num_key_value_heads": 3}, []string{"num_key_value_heads"}},
		{keys{"head_dim": 63}, []string{"head_dim", "63"}},
		{keys{"head_dim": 1 << 23}, []string{"head_dim"}},
		{keys{"hidden_act": "gelu"}, []string{"hidden_act", "gelu"}},
		{keys{"hidden_act": []int{1}}, []string{"hidden_act"}},
		{keys{"rms_norm_eps": 0}, []string{"rms_norm_eps"}},
		{keys{"rms_norm_eps": 1e-200}, []string{"rms_norm_eps"}},
		{keys{"tie_word_embeddings": "yes"}, []string{"tie_word_embeddings"}},
		{keys{"max_position_embeddings": nil}, []string{"max_position_embeddings"}},
		{keys{"num_experts": 8}, []string{"num_experts"}},
		{keys{"num_local_experts": 8}, []string{"num_local_experts"}},
		{keys{"is_causal": false}, []string{"is_causal"}},
		{keys{"per_layer_config": keys{"1": keys{"intermediate_size": 512}}}, []string{"per_layer_config"}},
	} {
		_, err := decoder(t, c.changes)
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

func TestDecoderDefaults(t *testing.T) {
	d, err := decoder(t, keys{"num_key_value_heads": nil, "rms_norm_eps": nil, "tie_word_embeddings": nil, "hidden_act": nil})
	want := Decoder{Vocab: 512, Hidden: 128, Intermediate: 256, Layers: 2, Heads: 4, KVHeads: 4, HeadDim: 32, MaxPosition: 1024, RMSEps: 1e-6}
	if err != nil || d != want {
		t.Errorf("%+v, %v; want %+v", d, err, want)
	}
	if d, err = decoder(t, keys{"head_dim": 64}); err != nil || d.HeadDim != 64 || d.KVHeads != 2 || !d.Tied || d.RMSEps != 1e-5 {
		t.Errorf("%+v, %v", d, err)
	}
}

// TestWindowsThatNoLayerHas: the same keys are a window or none, as the reference library reads them.
func TestWindowsThatNoLayerHas(t *testing.T) {
	null := json.RawMessage("null")
	for _, c := range []struct {
		keys
		windows bool
	}{
		{keys{"use_sliding_window": true, "sliding_window": 64, "max_window_layers": 1}, true},
		{keys{"use_sliding_window": true, "sliding_window": 64, "max_window_layers": 0}, true},
		{keys{"use_sliding_window": true, "max_position_embeddings": 8192, "max_window_layers": 0}, true}, // of 4096
		{keys{"use_sliding_window": true, "sliding_window": 64, "num_hidden_layers": 29}, true},
		{keys{"layer_types": []string{"full_attention", "sliding_attention"}}, true},
		{keys{"use_sliding_window": true, "sliding_window": 64}, false},
		{keys{"use_sliding_window": true, "sliding_window": 64, "max_window_layers": 2}, false},
		{keys{"use_sliding_window": true, "sliding_window": 1024, "max_window_layers": 0}, false},
		{keys{"use_sliding_window": true, "sliding_window": null, "max_window_layers": 0, "layer_types": null}, false},
		{keys{"use_sliding_window": false, "sliding_window": 64, "max_window_layers": 0}, false},
		{keys{"use_sliding_window": true, "sliding_window": 64, "max_window_layers": 0, "layer_types": []string{"full_attention", "full_attention"}}, false},
	} {
		err := func() error {
			r := New(marshal(t, c.keys))
			r.FullAttention(r.Decoder(Defaults{RMSEps: 1e-6}))
			return r.Err()
		}()
		if windows := err != nil; windows != c.windows {
			t.Errorf("%v: %v; want windows: %v", c.keys, err, c.windows)
		}
	}
}
