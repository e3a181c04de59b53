package rope

import (
	"reflect"
	"strings"
	"testing"

	"github.com/openinfer-go/openinfer/models/config"
)

func read(raw string) (Params, error) {
	r := config.New([]byte(raw))
	p := FromConfig(r, Model{HeadDim: 8, MaxPosition: 4096, Partial: true})
	return p, r.Err()
}

func TestConfigErrorsNameTheKey(t *testing.T) {
	for _, c := range []struct {
		raw   string
		names []string // all of which the error holds
	}{
		{`{"rope_theta": 0}`, []string{"rope_theta"}},
		{`{"rope_parameters": {"rope_theta": "big"}}`, []string{"rope_parameters.rope_theta"}},
		{`{"rope_scaling": {"rope_type": "ntk"}}`, []string{"rope_scaling.rope_type", `"ntk"`}},
		{`{"rope_scaling": {"type": "ntk"}}`, []string{"rope_scaling.type", `"ntk"`}},
		{`{"rope_scaling": {"type": 3}}`, []string{"rope_scaling.type", "3"}},
		{`{"rope_scaling": [1]}`, []string{"rope_scaling"}},
		{`{"rope_scaling": {"type": "linear"}}`, []string{"rope_scaling.factor", "missing"}},
		{`{"rope_scaling": {"type": "linear", "factor": null}}`, []string{"rope_scaling.factor", "missing"}},
		{`{"rope_scaling": {"type": "dynamic"}}`, []string{"rope_scaling.factor", "missing"}},
		{`{"rope_scaling": {"type": "linear", "factor": 2}, "rope_parameters": {"rope_type": "yarn"}}`, []string{"rope_parameters.factor"}},
		{`{"rope_scaling": {"type": "llama3", "factor": 2, "low_freq_factor": 1}}`, []string{"rope_scaling.high_freq_factor"}},
		{`{"rope_scaling": {"type": "llama3", "factor": 2, "low_freq_factor": 4, "high_freq_factor": 4}}`, []string{"rope_scaling.low_freq_factor"}},
		{`{"rope_scaling": {"type": "yarn"}}`, []string{"rope_scaling.factor", "missing"}},
		{`{"rope_scaling": {"type": "yarn", "factor": -4}}`, []string{"rope_scaling.factor", "-4"}},
		{`{"rope_scaling": {"type": "yarn", "factor": 4, "original_max_position_embeddings": 0}}`, []string{"rope_scaling.original_max_position_embeddings"}},
		{`{"rope_scaling": {"type": "yarn", "factor": 4, "beta_fast": 1, "beta_slow": 2}}`, []string{"rope_scaling.beta_fast", "beta_slow"}},
		{`{"rope_scaling": {"type": "yarn", "factor": 4, "beta_slow": -1}}`, []string{"beta_slow"}},
		{`{"rope_scaling": {"type": "yarn", "factor": 4, "attention_factor": 0}}`, []string{"rope_scaling.attention_factor"}},
		{`{"rope_scaling": {"type": "yarn", "factor": 4, "mscale": -90, "mscale_all_dim": 1}}`, []string{"rope_scaling.mscale"}},
		{`{"rope_scaling": {"type": "yarn", "factor": 4, "mscale": "1"}}`, []string{"rope_scaling.mscale"}},
		{`{"rope_scaling": {"type": "yarn", "factor": 4, "truncate": 1}}`, []string{"rope_scaling.truncate"}},
		{`{"rope_theta": 1, "rope_scaling": {"type": "yarn", "factor": 4}}`, []string{"rope_theta"}},
		{`{"rope_scaling": {"type": "longrope"}}`, []string{"rope_scaling.short_factor", "missing"}},
		{`{"rope_scaling": {"type": "longrope", "short_factor": [1, 1, 1], "long_factor": [1, 1, 1, 1]}}`, []string{"rope_scaling.short_factor", "3", "4"}},
		{`{"rope_scaling": {"type": "longrope", "short_factor": [1, 1, 1, 1], "long_factor": [1, 1, 0, 1]}}`, []string{"rope_scaling.long_factor", "number 2"}},
		{`{"rope_scaling": {"type": "longrope", "short_factor": [1, 1, 1, 1], "long_factor": ["1"]}}`, []string{"rope_scaling.long_factor"}},
		{`{"rope_scaling": {"type": "su", "short_factor": [1, 1, 1, 1], "long_factor": [1, 1, 1, 1], "long_mscale": 1.2}}`, []string{"rope_scaling.long_mscale"}},
		{`{"original_max_position_embeddings": 1, "rope_scaling": {"type": "su", "short_factor": [1, 1, 1, 1], "long_factor": [1, 1, 1, 1]}}`,
			[]string{"original_max_position_embeddings"}},
		{`{"partial_rotary_factor": 0}`, []string{"partial_rotary_factor"}},
		{`{"partial_rotary_factor": 0.4}`, []string{"partial_rotary_factor", "3 values"}},
		{`{"rope_parameters": {"partial_rotary_factor": 2}}`, []string{"rope_parameters.partial_rotary_factor", "2"}},
		{`{"rope_parameters": {"full_attention": {"rope_type": "linear"}}}`, []string{"rope_parameters.full_attention.factor"}},
	} {
		_, err := read(c.raw)
		if err == nil {
			t.Errorf("%s: accepted", c.raw)
			continue
		}
		for _, name := range c.names {
			if !strings.Contains(err.Error(), name) {
				t.Errorf("%s: error %q does not hold %q", c.raw, err, name)
			}
		}
	}
}

// TestPartsOfHeads: where an architecture rotates whole heads a factor is refused, but for the type that
// turns all of a head with some frequencies 0.
func TestPartsOfHeads(t *testing.T) {
	for raw, good := range map[string]bool{
		`{"partial_rotary_factor": 1.0}`: true, `{"partial_rotary_factor": 0.5}`: false,
		`{"rope_parameters": {"partial_rotary_factor": 0.5}}`:                              false,
		`{"rope_parameters": {"rope_type": "proportional", "partial_rotary_factor": 0.5}}`: true,
	} {
		r := config.New([]byte(raw))
		FromConfig(r, Model{HeadDim: 8, MaxPosition: 4096})
		if err := r.Err(); (err == nil) != good || !good && !strings.Contains(err.Error(), "partial_rotary_factor") {
			t.Errorf("%s: %v; want it accepted: %v", raw, err, good)
		}
	}
}

// TestLayoutsAgree: what stands in another place or under another name means the same.
func TestLayoutsAgree(t *testing.T) {
	for _, same := range [][]string{
		{
			`{"rope_theta": 5000}`, `{"rope_parameters": {"rope_theta": 5000}}`, `{"rope_theta": 5000, "rope_scaling": null, "rope_parameters": null}`,
			`{"rope_theta": 5000, "rope_scaling": {"type": null}}`, `{"rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 5000}}}`,
			// Within the context that a checkpoint states, this type changes nothing.
			`{"rope_theta": 5000, "rope_scaling": {"type": "dynamic", "factor": 4}}`,
		},
		{
			`{"rope_theta": 5000, "partial_rotary_factor": 0.5, "rope_scaling": {"type": "linear", "factor": 4}}`,
			`{"rope_parameters": {"rope_theta": 5000, "partial_rotary_factor": 0.5, "rope_type": "linear", "factor": 4}}`,
			`{"rope_parameters": {"rope_theta": 5000, "partial_rotary_factor": 0.5}, "rope_scaling": {"rope_type": "linear", "factor": 4}}`,
			`{"rope_theta": 1, "rope_parameters": {"type": "linear", "factor": 4, "rope_theta": 5000, "partial_rotary_factor": 0.5}}`,
		},
		{
			`{"rope_scaling": {"type": "yarn", "factor": 4, "original_max_position_embeddings": 1024}}`,
			`{"original_max_position_embeddings": 1024, "rope_scaling": {"type": "yarn", "factor": 4}}`,
			`{"original_max_position_embeddings": 1024, "rope_scaling": {"rope_type": "yarn", "factor": 4, "original_max_position_embeddings": 9}}`,
			`{"original_max_position_embeddings": 1024, "rope_scaling": {"rope_type": "yarn"}}`,
			`{"rope_scaling": {"type": "yarn", "factor": 4, "original_max_position_embeddings": 1024, "beta_fast": 32, "beta_slow": null, "mscale": 1}}`,
		},
		{
			`{"original_max_position_embeddings": 64, "rope_scaling": {"type": "longrope", "short_factor": [1, 1, 1, 1], "long_factor": [1, 2, 3, 4]}}`,
			`{"rope_scaling": {"type": "su", "short_factor": [1, 1, 1, 1], "long_factor": [1, 2, 3, 4], "original_max_position_embeddings": 64}}`,
			`{"rope_parameters": {"type": "yarn", "short_factor": [1, 1, 1, 1], "long_factor": [1, 2, 3, 4], "original_max_position_embeddings": 64}}`,
			`{"rope_parameters": {"rope_type": "longrope", "factor": 64, "short_factor": [1, 1, 1, 1], "long_factor": [1, 2, 3, 4], "original_max_position_embeddings": 64}}`,
		},
	} {
		want, err := read(same[0])
		if err != nil {
			t.Fatal(err)
		}
		for _, raw := range same[1:] {
			got, err := read(raw)
			if err != nil {
				t.Errorf("%s: %v", raw, err)
			} else if !reflect.DeepEqual(got.Embedding(), want.Embedding()) {
				t.Errorf("%s: %+v\n%s: %+v", raw, got, same[0], want)
			}
		}
	}
}
