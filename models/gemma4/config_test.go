package gemma4_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/openinfer-go/openinfer/internal/testdata"
	"github.com/openinfer-go/openinfer/models"
	"github.com/openinfer-go/openinfer/models/checkpoint"
	"github.com/openinfer-go/openinfer/models/gemma4"
	"github.com/openinfer-go/openinfer/models/modeltest"
)

func TestConfigErrorsNameTheKey(t *testing.T) {
	for _, c := range []struct {
		changes keys
		names   []string
	}{
		{keys{"hidden_size": nil}, []string{"text_config.hidden_size", "missing"}},
		{keys{"vocab_size": 1 << 40}, []string{"vocab_size"}},
		{keys{"num_hidden_layers": 0}, []string{"num_hidden_layers"}},
		{keys{"num_hidden_layers": 5}, []string{"layer_types", "6", "5"}},
		{keys{"num_attention_heads": 3}, []string{"num_attention_heads", "num_key_value_heads", "sliding_attention"}},
		{keys{"num_global_key_value_heads": 3}, []string{"num_global_key_value_heads", "3"}},
		{keys{"num_key_value_heads": nil}, []string{"num_key_value_heads", "missing"}},
		{keys{"head_dim": 63}, []string{"head_dim", "63"}},
		{keys{"global_head_dim": 1 << 23}, []string{"global_head_dim"}},
		{keys{"global_head_dim": "128"}, []string{"global_head_dim"}},
		{keys{"sliding_window": nil}, []string{"sliding_window", "missing"}},
		{keys{"layer_types": []string{"sliding_attention", "chunked_attention", "a", "b", "c", "d"}}, []string{"layer_types", "layer 1", "chunked_attention"}},
		{keys{"hidden_activation": "silu"}, []string{"hidden_activation", "silu"}},
		{keys{"final_logit_softcapping": -30}, []string{"final_logit_softcapping", "-30"}},
		{keys{"rms_norm_eps": 0}, []string{"rms_norm_eps"}},
		{keys{"attention_k_eq_v": 1}, []string{"attention_k_eq_v"}},
		{keys{"is_causal": false}, []string{"is_causal"}},
		{keys{"use_bidirectional_attention": "all"}, []string{"use_bidirectional_attention", "all"}},
		{keys{"hidden_size_per_layer_input": 256}, []string{"hidden_size_per_layer_input", "per-layer inputs"}},
		{keys{"num_kv_shared_layers": 2}, []string{"num_kv_shared_layers"}},
		{keys{"enable_moe_block": true}, []string{"enable_moe_block"}},
		{keys{"use_double_wide_mlp": true}, []string{"use_double_wide_mlp"}},
		{keys{"model_type": "gemma4_text", "hidden_size_per_layer_input": nil}, []string{"hidden_size_per_layer_input", "missing"}},
		{keys{"per_layer_config": keys{"6": keys{"head_dim": 64}}}, []string{"per_layer_config.6"}},
		{keys{"per_layer_config": keys{"last": keys{"head_dim": 64}}}, []string{"per_layer_config.last"}},
		{keys{"per_layer_config": keys{"5": keys{"head_dim": 0}}}, []string{"per_layer_config.5.head_dim"}},
		{keys{"per_layer_config": keys{"5": keys{"intermediate_size": 64}}}, []string{"per_layer_config.5.intermediate_size"}},
		{keys{"per_layer_config": keys{"2": keys{"num_key_value_heads": 1}}}, []string{"per_layer_config.2", "1 heads of 64", "2 of 64"}},
		{keys{"rope_parameters": keys{"full_attention": keys{"rope_theta": 1e6}}}, []string{"rope_parameters.sliding_attention", "missing"}},
		{keys{"rope_parameters": keys{"sliding_attention": keys{}, "full_attention": keys{"rope_type": "made_up"}}}, []string{"rope_parameters.full_attention.rope_type", "made_up"}},
		{keys{"rope_parameters": keys{"sliding_attention": keys{}, "full_attention": keys{"rope_type": "proportional", "partial_rotary_factor": 1.5}}}, []string{"rope_parameters.full_attention.partial_rotary_factor"}},
		{keys{"rope_parameters": keys{"sliding_attention": keys{}, "full_attention": keys{"partial_rotary_factor": 0.25}}}, []string{"rope_parameters.full_attention.partial_rotary_factor", "0.25"}},
		{keys{"rope_parameters": keys{"sliding_attention": keys{"rope_theta": -1}, "full_attention": keys{}}}, []string{"rope_parameters.sliding_attention.rope_theta"}},
	} {
		f := readFiles(t, "gemma4")
		modeltest.Set(text(f), c.changes)
		f.Tensors = map[string]testdata.Tensor{"model.norm.weight": bf16(0)} // a config is refused without its tensors
		modeltest.Refused(t, describe(c.changes), f.Bytes(t), c.names...)
	}
}

func describe(changes keys) string {
	var names []string
	for k := range changes {
		names = append(names, k)
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

func TestBrokenCheckpointsNameTheTensor(t *testing.T) {
	const sliding, global = "model.language_model.layers.0.", "model.language_model.layers.5."
	for name, c := range map[string]struct {
		change func(modeltest.Files)
		names  []string
	}{
		"no layer_scalar": {func(f modeltest.Files) { delete(f.Tensors, global+"layer_scalar") }, []string{global + "layer_scalar", "missing"}},
		"a layer_scalar of two": {func(f modeltest.Files) {
			two := bf16(0)
			two.Shape, two.Data = []int{2}, make([]byte, 4)
			f.Tensors[sliding+"layer_scalar"] = two
		}, []string{sliding + "layer_scalar", "[2]", "[1]"}},
		"v_proj where keys serve": {func(f modeltest.Files) {
			f.Tensors[global+"self_attn.v_proj.weight"] = f.Tensors[global+"self_attn.k_proj.weight"]
		}, []string{global + "self_attn.v_proj.weight"}},
		"no v_proj where it should":  {func(f modeltest.Files) { text(f)["attention_k_eq_v"] = false }, []string{global}},
		"no v_proj in sliding":       {func(f modeltest.Files) { delete(f.Tensors, sliding+"self_attn.v_proj.weight") }, []string{sliding + "self_attn.v_proj.weight", "missing"}},
		"two heads in global layers": {func(f modeltest.Files) { text(f)["num_global_key_value_heads"] = 2 }, []string{global + "self_attn.k_proj.weight", "[256 128]"}},
		"global size everywhere":     {func(f modeltest.Files) { text(f)["head_dim"] = 128 }, []string{sliding + "self_attn.q_proj.weight", "[512 128]"}},
		"global layer as sliding":    {func(f modeltest.Files) { text(f)["layer_types"].([]any)[2] = "full_attention" }, []string{"layers.2.self_attn.q_proj.weight"}},
		"no post norm":               {func(f modeltest.Files) { delete(f.Tensors, sliding+"post_feedforward_layernorm.weight") }, []string{sliding + "post_feedforward_layernorm.weight", "missing"}},
		"a tensor of another size":   {func(f modeltest.Files) { f.Tensors["model.language_model.embed_tokens_per_layer.weight"] = bf16(0) }, []string{"embed_tokens_per_layer.weight"}},
		"untied":                     {func(f modeltest.Files) { f.Config["tie_word_embeddings"] = false }, []string{"lm_head.weight", "missing"}},
		"tied to other values": {func(f modeltest.Files) {
			e := f.Tensors["model.language_model.embed_tokens.weight"]
			e.Data = append([]byte{e.Data[0] ^ 1}, e.Data[1:]...)
			f.Tensors["lm_head.weight"] = e
		}, []string{"lm_head.weight"}},
	} {
		f := readFiles(t, "gemma4")
		c.change(f)
		modeltest.Refused(t, name, f.Bytes(t), c.names...)
	}
}

func TestBrokenGGUFNamesTheKeyOrTensor(t *testing.T) {
	for _, c := range []struct {
		changes keys
		names   []string
	}{
		{keys{"gemma4.block_count": nil}, []string{"gemma4.block_count"}},
		{keys{"gemma4.block_count": uint32(5)}, []string{"gemma4.attention.sliding_window_pattern", "6", "5"}},
		{keys{"gemma4.attention.sliding_window_pattern": nil}, []string{"gemma4.attention.sliding_window_pattern"}},
		{keys{"gemma4.attention.sliding_window_pattern": uint32(6)}, []string{"gemma4.attention.sliding_window_pattern"}},
		{keys{"gemma4.attention.head_count_kv": []int32{2, 2, 1, 2, 2, 1}}, []string{"gemma4.attention.head_count_kv", "layer 2"}},
		{keys{"gemma4.attention.head_count_kv": []int32{2, 1}}, []string{"gemma4.attention.head_count_kv"}},
		{keys{"gemma4.attention.head_count_kv": []int32{2, 2, 2, 2, 2, -1}}, []string{"gemma4.attention.head_count_kv", "-1"}},
		{keys{"gemma4.attention.key_length_swa": nil}, []string{"gemma4.attention.key_length_swa"}},
		{keys{"gemma4.attention.value_length": uint32(64)}, []string{"gemma4.attention.value_length", "64"}},
		{keys{"gemma4.rope.dimension_count_swa": uint32(32)}, []string{"gemma4.rope.dimension_count_swa", "32"}},
		{keys{"gemma4.rope.dimension_count": uint32(32)}, []string{"gemma4.rope.dimension_count", "32"}},
		{keys{"gemma4.rope.freq_base_swa": float32(0)}, []string{"gemma4.rope.freq_base_swa"}},
		{keys{"gemma4.attention.sliding_window": nil}, []string{"gemma4.attention.sliding_window"}},
		{keys{"gemma4.feed_forward_length": []uint32{128, 128, 128, 128, 256, 256}}, []string{"gemma4.feed_forward_length", "256"}},
		{keys{"gemma4.embedding_length_per_layer_input": uint32(256)}, []string{"gemma4.embedding_length_per_layer_input", "256"}},
		{keys{"gemma4.attention.shared_kv_layers": uint32(2)}, []string{"gemma4.attention.shared_kv_layers"}},
		{keys{"gemma4.expert_count": uint32(8)}, []string{"gemma4.expert_count"}},
		{keys{"gemma4.final_logit_softcapping": float32(-1)}, []string{"gemma4.final_logit_softcapping"}},
	} {
		modeltest.Refused(t, describe(c.changes), map[string][]byte{"m.gguf": ggufFile(t, c.changes, nil)}, c.names...)
	}
	for _, name := range []string{"rope_freqs.weight", "blk.0.layer_output_scale.weight", "blk.3.post_ffw_norm.weight", "blk.0.attn_v.weight", "output_norm.weight"} {
		file := ggufFile(t, nil, func(tensors map[string]testdata.Tensor) { delete(tensors, name) })
		modeltest.Refused(t, "without "+name, map[string][]byte{"m.gguf": file}, name, "missing")
	}
}

func TestGeometryOfThePublishedConfig(t *testing.T) {
	f := readFiles(t, "gemma4")
	f.Config = modeltest.ReadConfig(t, testdata.Shared(t, "configs", "gemma-4-12b.json"))
	c, err := checkpoint.OpenFiles("published", f.Bytes(t))
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := gemma4.ReadConfig(c)
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	sliding, global := cfg.Geometry[gemma4.Sliding], cfg.Geometry[gemma4.Global]
	if sliding.HeadDim != 256 || sliding.KVHeads != 8 || sliding.Window != 1024 || sliding.KeysAsValues ||
		global.HeadDim != 512 || global.KVHeads != 1 || global.Window != 0 || !global.KeysAsValues {
		t.Errorf("sliding %+v, global %+v", sliding, global)
	}
	if n := len(global.Rotary.InvFreq); n != 256 || global.Rotary.InvFreq[63] == 0 || global.Rotary.InvFreq[64] != 0 {
		t.Errorf("%d frequencies of global layers: %v", n, global.Rotary.InvFreq)
	}
	for i, k := range cfg.Kinds {
		if want := i%6 == 5; (k == gemma4.Global) != want {
			t.Errorf("layer %d is global: %v", i, !want)
		}
	}
	if cfg.LogitCap != 30 || !cfg.Tied || cfg.MaxPosition != 262144 || len(cfg.Kinds) != 48 {
		t.Errorf("%+v", cfg)
	}
}

func TestCacheGroups(t *testing.T) {
	f := readFiles(t, "gemma4")
	m := load(t, f.Bytes(t))
	want := []models.CacheGroup{
		{Kind: models.SlidingWindow, Layers: 5, Heads: 2, KDim: 64, VDim: 64, Window: 48},
		{Kind: models.Full, Layers: 1, Heads: 1, KDim: 128, VDim: 128},
	}
	if got := m.Groups(); !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}
