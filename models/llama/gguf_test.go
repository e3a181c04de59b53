package llama_test

import (
	"bytes"
	"io"
	"reflect"
	"strings"
	"testing"

	"github.com/openinfer-go/openinfer/models/checkpoint"
	"github.com/openinfer-go/openinfer/models/checkpoint/ggufwrite"
	"github.com/openinfer-go/openinfer/models/config"
	"github.com/openinfer-go/openinfer/models/llama"
	"github.com/openinfer-go/openinfer/models/rope"
)

func ggufConfig(t *testing.T, changes map[string]any) (llama.Config, error) {
	t.Helper()
	keys := map[string]any{
		"general.architecture": "llama", "llama.embedding_length": uint32(128), "llama.feed_forward_length": uint32(256), "llama.block_count": uint32(2),
		"llama.attention.head_count": uint32(4), "llama.attention.head_count_kv": uint32(2), "llama.context_length": uint32(1024),
		"llama.attention.layer_norm_rms_epsilon": float32(1e-5), "llama.rope.freq_base": float32(5000), "llama.vocab_size": uint32(512),
	}
	for k, v := range changes {
		if keys[k] = v; v == nil {
			delete(keys, k)
		}
	}
	var f ggufwrite.File
	for k, v := range keys {
		f.Set(k, v)
	}
	f.Add(ggufwrite.Tensor{Name: "output.weight", Type: ggufwrite.F32, Shape: []int{1}, Write: zeros})
	var b bytes.Buffer
	if _, err := f.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	c, err := checkpoint.OpenFiles("made", map[string][]byte{"m.gguf": b.Bytes()})
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

func TestGGUFConfig(t *testing.T) {
	cfg, err := ggufConfig(t, nil)
	if err != nil {
		t.Fatal(err)
	}
	if cfg.HeadDim != 32 || cfg.KVHeads != 2 || cfg.Vocab != 512 || cfg.Tied || cfg.Rotary.ByRegime[0].InvFreq[0] != 1 {
		t.Errorf("got %+v", cfg)
	}
	linear, err := ggufConfig(t, map[string]any{"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": float32(4)})
	if err != nil {
		t.Fatal(err)
	}
	for i, f := range linear.Rotary.ByRegime[0].InvFreq {
		if f != cfg.Rotary.ByRegime[0].InvFreq[i]/4 {
			t.Errorf("linear: frequency %d is %v, want a quarter of %v", i, f, cfg.Rotary.ByRegime[0].InvFreq[i])
		}
	}
	yarn, err := ggufConfig(t, map[string]any{
		"llama.rope.scaling.type": "yarn", "llama.rope.scaling.factor": float32(4), "llama.rope.scaling.original_context_length": uint32(256),
	})
	if err != nil {
		t.Fatal(err)
	}
	want := rope.FromConfig(config.New([]byte(`{"rope_theta": 5000, "rope_scaling": {"type": "yarn", "factor": 4, "original_max_position_embeddings": 256}}`)),
		rope.Model{HeadDim: 32, MaxPosition: 1024}).Embedding()
	if !reflect.DeepEqual(yarn.Rotary, want) {
		t.Errorf("yarn: %+v, of the same config.json %+v", yarn.Rotary, want)
	}
	for _, c := range []struct {
		key   string
		value any
		names []string
	}{
		{"llama.embedding_length", nil, []string{"llama.embedding_length"}},
		{"llama.embedding_length", uint32(0), []string{"llama.embedding_length"}},
		{"llama.block_count", uint32(1 << 30), []string{"llama.block_count"}},
		{"llama.attention.head_count", uint32(3), []string{"llama.attention.head_count"}},
		{"llama.attention.head_count", "four", []string{"llama.attention.head_count"}},
		{"llama.attention.head_count_kv", []uint32{2, 1}, []string{"llama.attention.head_count_kv"}},
		{"llama.attention.head_count_kv", uint32(3), []string{"key/value heads"}},
		{"llama.attention.value_length", uint32(16), []string{"value_length", "16"}},
		{"llama.attention.layer_norm_rms_epsilon", float32(0), []string{"layer_norm_rms_epsilon"}},
		{"llama.expert_count", uint32(8), []string{"llama.expert_count", "experts"}},
		{"llama.rope.dimension_count", uint32(16), []string{"llama.rope.dimension_count", "16"}},
		{"llama.rope.freq_base", float32(-1), []string{"llama.rope.freq_base"}},
		{"llama.rope.scaling.type", "ntk", []string{"llama.rope.scaling.type", "ntk"}},
		{"llama.rope.scaling.type", "longrope", []string{"rope_factors_short.weight"}},
		{"llama.rope.scaling.original_context_length", uint32(0), []string{"original_context_length"}},
		{"llama.rope.dimension_count", uint32(33), []string{"llama.rope.dimension_count", "33"}},
		{"llama.rope.scaling.factor", float32(0), []string{"llama.rope.scaling.factor"}},
		{"llama.vocab_size", nil, []string{"tokenizer.ggml.tokens"}},
	} {
		_, err := ggufConfig(t, map[string]any{c.key: c.value})
		if err == nil {
			t.Errorf("%s = %v: accepted", c.key, c.value)
			continue
		}
		for _, name := range c.names {
			if !strings.Contains(err.Error(), name) {
				t.Errorf("%s = %v: error %q does not hold %q", c.key, c.value, err, name)
			}
		}
	}
}

func zeros(w io.Writer) error {
	_, err := w.Write(make([]byte, 4))
	return err
}
