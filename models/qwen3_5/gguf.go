package qwen3_5

import (
	"math"

	"github.com/openinfer-go/openinfer/models/checkpoint"
	"github.com/openinfer-go/openinfer/models/config"
	"github.com/openinfer-go/openinfer/models/rope"
)

// GGUF files of architecture "qwen35" hold the tensors as llama.cpp's converter changes them:
// 1 is added to the weights of all norms but the delta rule's; ssm_a is -exp(A_log); the convolution
// has lost its middle dimension; the layers of the draft head are numbered on after the model's; and
// where value heads share key heads they stand in another order (valueOrder).

// ggufNames are those of that architecture. Names of single tensors are in names.
var ggufNames = checkpoint.Names{
	Global: map[string]string{
		"model.embed_tokens": "token_embd",
		"model.norm":         "output_norm",
		"lm_head":            "output",
	},
	Layer: map[string]string{
		"input_layernorm":          "attn_norm",
		"post_attention_layernorm": "post_attention_norm",
		"self_attn.q_proj":         "attn_q",
		"self_attn.k_proj":         "attn_k",
		"self_attn.v_proj":         "attn_v",
		"self_attn.o_proj":         "attn_output",
		"self_attn.q_norm":         "attn_q_norm",
		"self_attn.k_norm":         "attn_k_norm",
		"linear_attn.in_proj_qkv":  "attn_qkv",
		"linear_attn.in_proj_z":    "attn_gate",
		"linear_attn.in_proj_b":    "ssm_beta",
		"linear_attn.in_proj_a":    "ssm_alpha",
		"linear_attn.conv1d":       "ssm_conv1d",
		"linear_attn.norm":         "ssm_norm",
		"linear_attn.out_proj":     "ssm_out",
		"mlp.gate_proj":            "ffn_gate",
		"mlp.up_proj":              "ffn_up",
		"mlp.down_proj":            "ffn_down",
		"nextn.eh_proj":            "nextn.eh_proj",
		"nextn.enorm":              "nextn.enorm",
		"nextn.hnorm":              "nextn.hnorm",
		"nextn.shared_head_norm":   "nextn.shared_head_norm",
	},
}

func fromGGUF(c *checkpoint.Checkpoint) (Config, error) {
	k := config.NewMetadata(c)
	cfg := Config{
		Decoder:    k.Decoder(),
		KeyHeads:   k.Size("ssm.group_count"),
		ValueHeads: k.Size("ssm.time_step_rank"),
		KeyDim:     k.Size("ssm.state_size"),
		ConvWidth:  k.Size("ssm.conv_kernel"),
	}
	cfg.Tied = !c.Has("lm_head")
	inner := k.Size("ssm.inner_size")
	if k.Err() == nil {
		if cfg.ValueDim = inner / cfg.ValueHeads; cfg.ValueDim*cfg.ValueHeads != inner {
			k.Fail("ssm.inner_size", "%d is no multiple of ssm.time_step_rank %d", inner, cfg.ValueHeads)
		}
	}
	// The file counts the draft head's layers among the model's.
	if cfg.DraftLayers = k.IntOr("nextn_predict_layers", 0); k.Err() == nil && (cfg.DraftLayers < 0 || cfg.DraftLayers >= cfg.Layers) {
		k.Fail("nextn_predict_layers", "%d of block_count %d", cfg.DraftLayers, cfg.Layers)
	}
	cfg.Layers -= cfg.DraftLayers
	interval := k.SizeOr("full_attention_interval", 4)
	if k.Err() != nil {
		return cfg, k.Err()
	}
	cfg.Linear = every(interval, cfg.Layers)
	if key := "attention.recurrent_layers"; k.Has(key) {
		list, err := c.GGUF().Bools(c.Architecture() + "." + key)
		if k.Keep(err); err == nil && len(list) != cfg.Layers && len(list) != cfg.Layers+cfg.DraftLayers {
			k.Fail(key, "%d entries for %d layers", len(list), cfg.Layers)
		}
		copy(cfg.Linear, list)
	}
	rotary := rope.FromGGUF(c, k, rope.Model{HeadDim: cfg.HeadDim, MaxPosition: cfg.MaxPosition})
	if k.Err() != nil {
		return cfg, k.Err()
	}
	cfg.Rotary = rotary.Embedding()
	return cfg, nil
}

// valueOrder returns where a GGUF file has what belongs to value heads, size values each: value i
// lies at valueOrder(i). The model's heads are grouped by the key head that they share (first all of
// key head 0), the file's go round (first the first of each key head). nil: as the model has them.
func (c *Config) valueOrder(size int) func(i int) int {
	each := c.ValueHeads / c.KeyHeads
	if each == 1 {
		return nil
	}
	return func(i int) int {
		h, at := i/size, i%size
		return (h%each*c.KeyHeads+h/each)*size + at
	}
}

// valuesLast is the order of rows of which only those behind the queries and keys belong to value heads.
func (c *Config) valuesLast() func(i int) int {
	order, before := c.valueOrder(c.ValueDim), 2*c.KeyHeads*c.KeyDim
	if order == nil {
		return nil
	}
	return func(i int) int {
		if i < before {
			return i
		}
		return before + order(i-before)
	}
}

// inputs is the order of the inputs of the projection behind the delta rule.
func (c *Config) inputs() []int32 {
	order := c.valueOrder(c.ValueDim)
	if order == nil {
		return nil
	}
	list := make([]int32, c.ValueHeads*c.ValueDim)
	for i := range list {
		list[order(i)] = int32(i)
	}
	return list
}

// reorder brings pieces of v, size values each, into the order: piece i is that at order(i).
func reorder(order func(int) int, size int) func(v []float32) {
	return func(v []float32) {
		if order == nil {
			return
		}
		stored := append([]float32(nil), v...)
		for i := range len(v) / size {
			copy(v[i*size:(i+1)*size], stored[order(i)*size:])
		}
	}
}

// addOne is for norms, whose weights are stored as what is added to 1.
func addOne(v []float32) {
	for i := range v {
		v[i]++
	}
}

// exp is for A_log.
func exp(v []float32) {
	for i, x := range v {
		v[i] = float32(math.Exp(float64(x)))
	}
}

// negate is for ssm_a.
func negate(v []float32) {
	for i := range v {
		v[i] = -v[i]
	}
}
