package qwen3_5_test

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/openinfer-go/openinfer/internal/testdata"
	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/models/checkpoint"
	"github.com/openinfer-go/openinfer/models/checkpoint/ggufwrite"
	"github.com/openinfer-go/openinfer/models/modeltest"
	"github.com/openinfer-go/openinfer/models/qwen3_5"
	"github.com/openinfer-go/openinfer/models/registry"
)

// values are a tensor's, stored in F32 or BF16.
func values(t testdata.Tensor) []float32 {
	if t.DType == "F32" {
		return t.Float32()
	}
	v := make([]float32, len(t.Data)/2)
	for i := range v {
		v[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(t.Data[2*i:])) << 16)
	}
	return v
}

// converter writes the tensors of a checkpoint as llama.cpp's convert_hf_to_gguf.py does for
// Qwen3_5ForConditionalGeneration (Qwen3NextModel and _LinearAttentionVReorderBase there).
type converter struct {
	keyHeads, valueHeads, keyDim, valueDim int
	layers                                 int
	matrices                               ggufwrite.Type
	file                                   ggufwrite.File
}

// tile moves value heads of size rows, width values each, from [key head][value head of it] to
// [value head of it][key head].
func (c *converter) tile(v []float32, size, width int) []float32 {
	each := c.valueHeads / c.keyHeads
	var out []float32
	for r := range each {
		for k := range c.keyHeads {
			at := (k*each + r) * size * width
			out = append(out, v[at:at+size*width]...)
		}
	}
	return out
}

func (c *converter) add(name string, v []float32, shape ...int) {
	kind := ggufwrite.F32
	if len(shape) == 2 && shape[1]%32 == 0 {
		kind = c.matrices
	}
	c.file.Add(ggufwrite.Tensor{Name: name, Type: kind, Shape: shape, Write: func(w io.Writer) error {
		b := make([]byte, kind.Bytes(len(v)))
		kind.Encode(b, v)
		_, err := w.Write(b)
		return err
	}})
}

var plainNames = map[string]string{
	"embed_tokens.weight": "token_embd.weight", "norm.weight": "output_norm.weight", "lm_head.weight": "output.weight",
	"input_layernorm.weight": "attn_norm.weight", "post_attention_layernorm.weight": "post_attention_norm.weight",
	"mlp.gate_proj.weight": "ffn_gate.weight", "mlp.up_proj.weight": "ffn_up.weight", "mlp.down_proj.weight": "ffn_down.weight",
	"self_attn.q_proj.weight": "attn_q.weight", "self_attn.k_proj.weight": "attn_k.weight", "self_attn.v_proj.weight": "attn_v.weight",
	"self_attn.o_proj.weight": "attn_output.weight", "self_attn.q_norm.weight": "attn_q_norm.weight", "self_attn.k_norm.weight": "attn_k_norm.weight",
	"linear_attn.norm.weight": "ssm_norm.weight",
	"fc.weight":               "nextn.eh_proj.weight", "pre_fc_norm_embedding.weight": "nextn.enorm.weight", "pre_fc_norm_hidden.weight": "nextn.hnorm.weight",
}

func (c *converter) tensor(t *testing.T, name string, tensor testdata.Tensor) {
	v, shape := values(tensor), tensor.Shape
	rest, layer := strings.TrimPrefix(name, "model.language_model."), -1
	block := ""
	switch {
	case strings.HasPrefix(name, "model.visual."):
		return
	case strings.HasPrefix(name, "mtp."):
		rest, layer = strings.TrimPrefix(name, "mtp."), c.layers
		if _, err := fmt.Sscanf(rest, "layers.0."); err == nil {
			rest = strings.TrimPrefix(rest, "layers.0.")
		}
		if rest == "norm.weight" {
			rest = "shared"
		}
	default:
		if _, err := fmt.Sscanf(rest, "layers.%d.", &layer); err == nil {
			rest = strings.SplitN(rest, ".", 3)[2]
		}
	}
	if layer >= 0 {
		block = fmt.Sprintf("blk.%d.", layer)
	}
	if strings.HasSuffix(name, "norm.weight") && !strings.HasSuffix(name, "linear_attn.norm.weight") ||
		strings.Contains(name, "pre_fc_norm") {
		for i := range v {
			v[i]++
		}
	}
	K, V := c.keyDim, c.valueDim
	qk := 2 * c.keyHeads * K
	switch part := strings.TrimPrefix(rest, "linear_attn."); part {
	case "in_proj_qkv.weight":
		c.add(block+"attn_qkv.weight", append(slices.Clone(v[:qk*shape[1]]), c.tile(v[qk*shape[1]:], V, shape[1])...), shape...)
	case "in_proj_z.weight":
		c.add(block+"attn_gate.weight", c.tile(v, V, shape[1]), shape...)
	case "in_proj_a.weight":
		c.add(block+"ssm_alpha.weight", c.tile(v, 1, shape[1]), shape...)
	case "in_proj_b.weight":
		c.add(block+"ssm_beta.weight", c.tile(v, 1, shape[1]), shape...)
	case "A_log":
		for i := range v {
			v[i] = -float32(math.Exp(float64(v[i])))
		}
		c.add(block+"ssm_a", c.tile(v, 1, 1), shape...)
	case "dt_bias":
		c.add(block+"ssm_dt.bias", c.tile(v, 1, 1), shape...)
	case "conv1d.weight":
		w := shape[2]
		c.add(block+"ssm_conv1d.weight", append(slices.Clone(v[:qk*w]), c.tile(v[qk*w:], V, w)...), shape[0], w)
	case "out_proj.weight":
		var out []float32
		for row := range slices.Chunk(v, shape[1]) {
			out = append(out, c.tile(row, V, 1)...)
		}
		c.add(block+"ssm_out.weight", out, shape...)
	case "shared":
		c.add(block+"nextn.shared_head_norm.weight", v, shape...)
	default:
		to, ok := plainNames[rest]
		if !ok {
			t.Fatalf("no name for %s", name)
		}
		c.add(block+to, v, shape...)
	}
}

// convert writes a checkpoint of the reference data as a GGUF file, with changes of metadata (nil takes a key
// out) and without tensors of a name, and returns its path.
func convert(t *testing.T, folder string, matrices ggufwrite.Type, changes map[string]any, without ...string) string {
	t.Helper()
	dir := testdata.Shared(t, folder)
	raw, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	var cfg struct {
		Text struct {
			Vocab        uint32   `json:"vocab_size"`
			Hidden       uint32   `json:"hidden_size"`
			Intermediate uint32   `json:"intermediate_size"`
			Layers       uint32   `json:"num_hidden_layers"`
			Heads        uint32   `json:"num_attention_heads"`
			KVHeads      uint32   `json:"num_key_value_heads"`
			HeadDim      uint32   `json:"head_dim"`
			KeyHeads     uint32   `json:"linear_num_key_heads"`
			ValueHeads   uint32   `json:"linear_num_value_heads"`
			KeyDim       uint32   `json:"linear_key_head_dim"`
			ValueDim     uint32   `json:"linear_value_head_dim"`
			Conv         uint32   `json:"linear_conv_kernel_dim"`
			Position     uint32   `json:"max_position_embeddings"`
			Types        []string `json:"layer_types"`
			Rope         struct {
				Theta float32 `json:"rope_theta"`
				Part  float64 `json:"partial_rotary_factor"`
			} `json:"rope_parameters"`
		} `json:"text_config"`
	}
	if err := json.Unmarshal(raw, &cfg); err != nil {
		t.Fatal(err)
	}
	x := cfg.Text
	tensors := testdata.Tensors(t, filepath.Join(dir, "model.safetensors"))
	drafts := uint32(0)
	if _, ok := tensors["mtp.fc.weight"]; ok {
		drafts = 1
	}
	keys := map[string]any{
		"general.architecture": "qwen35", "qwen35.vocab_size": x.Vocab, "qwen35.embedding_length": x.Hidden,
		"qwen35.feed_forward_length": x.Intermediate, "qwen35.block_count": x.Layers + drafts, "qwen35.context_length": x.Position,
		"qwen35.attention.head_count": x.Heads, "qwen35.attention.head_count_kv": x.KVHeads,
		"qwen35.attention.key_length": x.HeadDim, "qwen35.attention.value_length": x.HeadDim,
		"qwen35.attention.layer_norm_rms_epsilon": float32(1e-6),
		"qwen35.rope.freq_base":                   x.Rope.Theta, "qwen35.rope.dimension_count": uint32(float64(x.HeadDim) * x.Rope.Part),
		"qwen35.rope.dimension_sections": []int32{3, 3, 2, 0},
		"qwen35.ssm.conv_kernel":         x.Conv, "qwen35.ssm.state_size": x.KeyDim, "qwen35.ssm.group_count": x.KeyHeads,
		"qwen35.ssm.time_step_rank": x.ValueHeads, "qwen35.ssm.inner_size": x.ValueHeads * x.ValueDim,
		"qwen35.full_attention_interval": uint32(len(x.Types)),
	}
	if drafts > 0 {
		keys["qwen35.nextn_predict_layers"] = drafts
	}
	for k, v := range changes {
		if keys[k] = v; v == nil {
			delete(keys, k)
		}
	}
	c := &converter{
		keyHeads: int(x.KeyHeads), valueHeads: int(x.ValueHeads), keyDim: int(x.KeyDim), valueDim: int(x.ValueDim),
		layers: int(x.Layers), matrices: matrices,
	}
	for k, v := range keys {
		c.file.Set(k, v)
	}
	for name, tensor := range tensors {
		if !slices.Contains(without, name) {
			c.tensor(t, name, tensor)
		}
	}
	path := filepath.Join(t.TempDir(), "m.gguf")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.file.WriteTo(f); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestConvertedToGGUFEqualsReference(t *testing.T) {
	// Codes of 8 bits make a mean difference of 0.065 here; an order or a norm misread makes one of 3.
	coded := modeltest.Device{Name: "ref", Open: exactRef.Open, MeanDiff: 0.1, KL: 0.005}
	list := modeltest.Checkpoints("qwen3_5")[:2]
	for _, c := range list {
		t.Run(c.Name, func(t *testing.T) { c.Compare(t, exactRef, convert(t, c.Path, ggufwrite.F32, nil)) })
	}
	t.Run("Q8_0", func(t *testing.T) { list[1].Compare(t, coded, convert(t, list[1].Path, ggufwrite.Q8_0, nil)) })
}

// untouched is a device that nothing may be asked of.
type untouched struct{ kernels.Device }

func load(t *testing.T, path string) error {
	t.Helper()
	c, err := checkpoint.Open(path)
	if err != nil {
		return err
	}
	defer func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}()
	_, err = registry.Load(c, untouched{})
	return err
}

func TestBrokenGGUFIsRefusedByName(t *testing.T) {
	const folder = "golden/models/qwen3_5_mtp_vision"
	for _, c := range []struct {
		changes map[string]any
		without string
		name    string
	}{
		{map[string]any{"general.architecture": "qwen3next"}, "", "qwen3next"},
		{map[string]any{"general.architecture": "qwen35moe"}, "", "qwen35moe"},
		{map[string]any{"qwen35.ssm.inner_size": uint32(255)}, "", "qwen35.ssm.inner_size"},
		{map[string]any{"qwen35.ssm.state_size": nil}, "", "qwen35.ssm.state_size"},
		{map[string]any{"qwen35.ssm.group_count": uint32(3)}, "", "3 key heads"},
		{map[string]any{"qwen35.ssm.conv_kernel": uint32(5)}, "", "ssm_conv1d.weight"},
		{map[string]any{"qwen35.nextn_predict_layers": uint32(3)}, "", "qwen35.nextn_predict_layers"},
		{map[string]any{"qwen35.nextn_predict_layers": nil}, "", "blk.2.attn_qkv.weight"},
		{map[string]any{"qwen35.full_attention_interval": uint32(3)}, "", "full attention"},
		{map[string]any{"qwen35.attention.recurrent_layers": []bool{false, true, false}}, "", "blk.0.attn_q.weight"},
		{map[string]any{"qwen35.attention.recurrent_layers": []bool{true}}, "", "qwen35.attention.recurrent_layers"},
		{nil, "model.language_model.layers.0.linear_attn.A_log", "blk.0.ssm_a"},
		{nil, "model.language_model.layers.0.linear_attn.conv1d.weight", "blk.0.ssm_conv1d.weight"},
		{nil, "mtp.norm.weight", "blk.2.nextn.shared_head_norm.weight"},
	} {
		err := load(t, convert(t, folder, ggufwrite.F32, c.changes, c.without))
		if err == nil || !strings.Contains(err.Error(), c.name) {
			t.Errorf("%v without %q: error %v does not hold %q", c.changes, c.without, err, c.name)
		}
	}
}

func TestGGUFConfig(t *testing.T) {
	c, err := checkpoint.Open(convert(t, "golden/models/qwen3_5_mtp_vision", ggufwrite.F32, map[string]any{
		"qwen35.attention.recurrent_layers": []bool{true, false, false},
	}))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}()
	cfg, err := qwen3_5.ReadConfig(c)
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Layers != 2 || !slices.Equal(cfg.Linear, []bool{true, false}) || cfg.DraftLayers != 1 || !cfg.Tied || cfg.Rotary.Cols() != 16 ||
		cfg.KeyHeads != 2 || cfg.ValueHeads != 4 || cfg.KeyDim != 64 || cfg.ValueDim != 64 || cfg.ConvWidth != 4 {
		t.Errorf("got %+v", cfg)
	}
}
