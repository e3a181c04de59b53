package gemma3_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/openinfer-go/openinfer/internal/testdata"
	"github.com/openinfer-go/openinfer/models"
	"github.com/openinfer-go/openinfer/models/checkpoint"
	"github.com/openinfer-go/openinfer/models/gemma3"
	"github.com/openinfer-go/openinfer/models/modeltest"
)

type keys = modeltest.Keys

// dir is a small model with the reference library's results.
const dir = "../modeltest/testdata/gemma3"

func tiny(t *testing.T) modeltest.Files { return modeltest.ReadFiles(t, dir) }

// The same model, written otherwise: its results are those of the original.
func TestOtherFormsOfACheckpoint(t *testing.T) {
	list := modeltest.Checkpoints("gemma3")
	if len(list) != 1 {
		t.Fatalf("%d checkpoints", len(list))
	}
	// beside is the model beside a vision tower, whose names begin with prefix.
	beside := func(f modeltest.Files, prefix, tower, head string) modeltest.Files {
		out := modeltest.Files{Config: keys{"model_type": "gemma3", "text_config": f.Config}, Tensors: map[string]testdata.Tensor{}}
		for name, x := range f.Tensors {
			out.Tensors[prefix+strings.TrimPrefix(name, "model.")] = x
		}
		norm := f.Tensors["model.norm.weight"]
		out.Tensors[tower+"encoder.layers.0.layer_norm1.weight"] = norm
		out.Tensors[head] = f.Tensors["model.embed_tokens.weight"]
		return out
	}
	for name, change := range map[string]func(modeltest.Files) modeltest.Files{
		"layer_types, rope_parameters": func(f modeltest.Files) modeltest.Files {
			modeltest.Set(f.Config, keys{
				"sliding_window_pattern": nil, "rope_scaling": nil, "rope_theta": nil, "rope_local_base_freq": nil,
				"layer_types": []string{"sliding_attention", "sliding_attention", "full_attention", "sliding_attention"},
				"rope_parameters": keys{
					"full_attention":    keys{"rope_type": "linear", "factor": 8, "rope_theta": 1e6},
					"sliding_attention": keys{"rope_type": "default", "rope_theta": 1e4},
				},
			})
			return f
		},
		"a key that nobody heeds": func(f modeltest.Files) modeltest.Files {
			f.Config["attn_logit_softcapping"] = 1.5
			return f
		},
		"beside a vision tower": func(f modeltest.Files) modeltest.Files {
			out := beside(f, "language_model.model.", "vision_tower.vision_model.", "language_model.lm_head.weight")
			out.Tensors["multi_modal_projector.mm_soft_emb_norm.weight"] = f.Tensors["model.norm.weight"]
			return out
		},
		"beside a vision tower, new names": func(f modeltest.Files) modeltest.Files {
			out := beside(f, "model.language_model.", "model.vision_tower.", "lm_head.weight")
			out.Config["tie_word_embeddings"] = false
			return out
		},
	} {
		t.Run(name, func(t *testing.T) { list[0].Compare(t, onRef, change(tiny(t)).Write(t)) })
	}
	t.Run("GGUF", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "m.gguf")
		if err := os.WriteFile(path, ggufFile(t, nil), 0o600); err != nil {
			t.Fatal(err)
		}
		list[0].Compare(t, onRef, path)
	})
}

// ggufParts are the names that llama.cpp's converter gives a layer's tensors.
var ggufParts = map[string]string{
	"input_layernorm": "attn_norm", "post_attention_layernorm": "post_attention_norm", "pre_feedforward_layernorm": "ffn_norm",
	"post_feedforward_layernorm": "post_ffw_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
	"self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
	"mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
}

// ggufFile is the model as llama.cpp's converter writes it in float32, with changes to keys.
func ggufFile(t *testing.T, changes keys) []byte {
	t.Helper()
	tensors := map[string]testdata.Tensor{}
	for name, x := range tiny(t).Tensors {
		module := strings.TrimSuffix(strings.TrimPrefix(name, "model."), ".weight")
		x = modeltest.Widened(x)
		if strings.HasSuffix(module, "norm") { // 1 is added to a norm's weight
			for i := 0; i < len(x.Data); i += 4 {
				v := math.Float32frombits(binary.LittleEndian.Uint32(x.Data[i:]))
				binary.LittleEndian.PutUint32(x.Data[i:], math.Float32bits(v+1))
			}
		}
		// No key of the file says query_pre_attn_scalar: its readers divide by the root of a head's size,
		// which is 32 where this config has 24.
		if strings.HasSuffix(module, "q_norm") {
			for i := 0; i < len(x.Data); i += 4 {
				v := math.Float32frombits(binary.LittleEndian.Uint32(x.Data[i:]))
				binary.LittleEndian.PutUint32(x.Data[i:], math.Float32bits(v*float32(math.Sqrt(32./24))))
			}
		}
		if rest, ok := strings.CutPrefix(module, "layers."); ok {
			layer, part, _ := strings.Cut(rest, ".")
			if ggufParts[part] == "" {
				t.Fatalf("no name for %s", part)
			}
			module = fmt.Sprintf("blk.%s.%s", layer, ggufParts[part])
		} else {
			module = map[string]string{"embed_tokens": "token_embd", "norm": "output_norm"}[module]
		}
		tensors[module+".weight"] = x
	}
	pairs := keys{
		"general.architecture": "gemma3", "gemma3.block_count": uint32(4), "gemma3.context_length": uint32(1024),
		"gemma3.embedding_length": uint32(64), "gemma3.feed_forward_length": uint32(64), "gemma3.attention.head_count": uint32(2),
		"gemma3.attention.head_count_kv": uint32(1), "gemma3.attention.key_length": uint32(32), "gemma3.attention.value_length": uint32(32),
		"gemma3.attention.layer_norm_rms_epsilon": float32(1e-6), "gemma3.attention.sliding_window": uint32(16),
		"gemma3.attention.sliding_window_pattern": []bool{true, true, false, true}, "gemma3.rope.freq_base": float32(1e6),
		"gemma3.rope.scaling.type": "linear", "gemma3.rope.scaling.factor": float32(8), "tokenizer.ggml.model": "llama", "tokenizer.ggml.tokens": make([]string, 128),
	}
	modeltest.Set(pairs, changes)
	return modeltest.GGUF(t, pairs, tensors)
}

// readGGUF reads the config of the model with changes to keys.
func readGGUF(t *testing.T, changes keys) gemma3.Config {
	t.Helper()
	c, err := checkpoint.OpenFiles("changed", map[string][]byte{"m.gguf": ggufFile(t, changes)})
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := gemma3.ReadConfig(c)
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func TestWhatNoKeyOfAGGUFFileSays(t *testing.T) {
	cfg := readGGUF(t, keys{"gemma3.block_count": uint32(62), "gemma3.attention.sliding_window_pattern": nil})
	if want := float32(1 / math.Sqrt(64./2)); cfg.Scale != want {
		t.Errorf("scale %v, want %v", cfg.Scale, want)
	}
	for i, global := range cfg.Global {
		if want := i%6 == 5; global != want {
			t.Errorf("layer %d is global: %v", i, global)
		}
	}
	if f := cfg.SlidingRotary.InvFreq[1]; f != float32(math.Pow(1e4, -2./32)) {
		t.Errorf("frequency of sliding layers %v", f)
	}
	cfg = readGGUF(t, keys{"gemma3.attention.sliding_window": nil, "gemma3.attention.sliding_window_pattern": nil})
	if want := float32(1 / math.Sqrt(32.)); cfg.Scale != want || slices.Contains(cfg.Global, false) {
		t.Errorf("scale %v, want %v; global %v", cfg.Scale, want, cfg.Global)
	}
}

// The published config of a multimodal model leaves out what has the library's defaults.
func TestDefaultsOfAConfig(t *testing.T) {
	f := tiny(t)
	f.Config = keys{"model_type": "gemma3", "text_config": keys{
		"model_type": "gemma3_text", "hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34, "sliding_window": 1024,
		"rope_scaling": keys{"factor": 8.0, "rope_type": "linear"},
	}}
	c, err := checkpoint.OpenFiles("published", f.Bytes(t))
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := gemma3.ReadConfig(c)
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Vocab != 262208 || cfg.Heads != 8 || cfg.KVHeads != 4 || cfg.HeadDim != 256 || cfg.Scale != 1./16 || cfg.MaxPosition != 131072 || !cfg.Tied ||
		cfg.Window != 1024 || !cfg.Global[5] || cfg.Global[33] {
		t.Errorf("%+v", cfg)
	}
	if g, s := cfg.GlobalRotary.InvFreq, cfg.SlidingRotary.InvFreq; g[0] != 1./8 || g[64] != float32(math.Pow(1e6, -0.5)/8) || s[0] != 1 || s[64] != 1e-2 {
		t.Errorf("frequencies %v, %v; %v, %v", g[0], g[64], s[0], s[64])
	}
}

func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		changes keys
		names   []string
	}{
		{keys{"num_attention_heads": 3, "num_key_value_heads": 2}, []string{"num_attention_heads", "num_key_value_heads"}},
		{keys{"head_dim": 31}, []string{"head_dim", "31"}},
		{keys{"layer_types": []string{"sliding_attention"}}, []string{"layer_types", "1", "4"}},
		{keys{"layer_types": []string{"sliding_attention", "a", "b", "c"}}, []string{"layer_types", "layer 1"}},
		{keys{"sliding_window_pattern": 0}, []string{"sliding_window_pattern"}},
		{keys{"sliding_window": 0}, []string{"sliding_window"}},
		{keys{"query_pre_attn_scalar": -1}, []string{"query_pre_attn_scalar"}},
		{keys{"hidden_activation": "gelu"}, []string{"hidden_activation"}},
		{keys{"use_bidirectional_attention": true}, []string{"use_bidirectional_attention"}},
		{keys{"is_causal": false}, []string{"is_causal"}},
		{keys{"rope_scaling": keys{"rope_type": "linear"}}, []string{"rope_scaling.factor"}},
		{keys{"rope_local_base_freq": 0}, []string{"rope_local_base_freq"}},
		{keys{"head_dim": 64}, []string{"layers.0.self_attn.q_proj.weight", "[128 64]"}},
		{keys{"tie_word_embeddings": false}, []string{"lm_head.weight", "missing"}},
		{keys{"model_type": "gemma2"}, []string{"gemma2", "not supported"}},
	} {
		f := tiny(t)
		modeltest.Set(f.Config, c.changes)
		modeltest.Refused(t, fmt.Sprint(c.changes), f.Bytes(t), c.names...)
	}
	f := tiny(t)
	f.Tensors["model.layers.0.self_attn.v_norm.weight"] = f.Tensors["model.norm.weight"]
	modeltest.Refused(t, "a tensor too many", f.Bytes(t), "model.layers.0.self_attn.v_norm.weight")
	for _, changes := range []keys{
		{"gemma3.attention.sliding_window_pattern": []bool{true}}, {"gemma3.attention.head_count_kv": []int32{1, 1, 1, 1}}, {"gemma3.rope.freq_base_swa": float32(-1)},
	} {
		for k := range changes {
			modeltest.Refused(t, fmt.Sprint(changes), map[string][]byte{"m.gguf": ggufFile(t, changes)}, k)
		}
	}
}

func TestCacheGroups(t *testing.T) {
	m := load(t)
	want := []models.CacheGroup{
		{Kind: models.SlidingWindow, Layers: 3, Heads: 1, KDim: 32, VDim: 32, Window: 16},
		{Kind: models.Full, Layers: 1, Heads: 1, KDim: 32, VDim: 32},
	}
	if got := m.Groups(); !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func load(t *testing.T) models.Model {
	t.Helper()
	c, err := checkpoint.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	d := onRef.Open(t)
	m, err := gemma3.Load(c, d)
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Unload(d) })
	return m
}
