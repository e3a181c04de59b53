package main

import (
	"fmt"
	"math"
)

const groupSize = 128

// kind says how a tensor is stored and what its values are like.
type kind uint8

const (
	coded  kind = iota // INT4: packed codes, scales and shape
	normal             // bf16, normally distributed, deviation scale
	ones               // bf16 around 1: norms that multiply by their weight
	zeros              // bf16 around 0: norms that multiply by 1 + weight
	decay              // A_log: logarithms of rates from 1 to 16
	one                // exactly 1
)

// tensor is one to write.
type tensor struct {
	name  string // of the module when coded, without .weight
	shape []int64
	kind  kind
	scale float64
}

// shape is what a config says.
type shape struct {
	text   map[string]any
	arch   string
	vocab  int
	hidden int
	layers int
	tied   bool
}

func readShape(whole map[string]any) (*shape, error) {
	c := &shape{text: whole}
	c.arch, _ = whole["model_type"].(string)
	if t, ok := whole["text_config"].(map[string]any); ok {
		c.text = t
	}
	c.tied, _ = c.text["tie_word_embeddings"].(bool)
	for key, into := range map[string]*int{"vocab_size": &c.vocab, "hidden_size": &c.hidden, "num_hidden_layers": &c.layers} {
		if *into = c.int(key, 0); *into < 1 {
			return nil, fmt.Errorf("%s is missing", key)
		}
	}
	return c, nil
}

// int returns a key of the text part, or def.
func (c *shape) int(key string, def int) int {
	if f, ok := c.text[key].(float64); ok {
		return int(f)
	}
	return def
}

// keep cuts the model to its first layers.
func (c *shape) keep(n int) {
	c.layers = min(n, c.layers)
	c.text["num_hidden_layers"] = c.layers
	if types, ok := c.text["layer_types"].([]any); ok {
		c.text["layer_types"] = types[:c.layers]
	}
}

// endToken makes the tokenizer's end the config's.
func (c *shape) endToken(whole map[string]any) {
	c.text["eos_token_id"] = c.vocab - 1
	whole["eos_token_id"] = c.vocab - 1
	delete(c.text, "bos_token_id")
}

// list gathers tensors.
type list struct {
	all    []tensor
	ignore []string
}

func (l *list) linear(name string, n, k int) {
	l.all = append(l.all, tensor{name, []int64{int64(n), int64(k)}, coded, 1 / math.Sqrt(float64(k))})
}

// plain is a linear module that stays in bf16.
func (l *list) plain(name string, n, k int, scale float64) {
	l.all = append(l.all, tensor{name + ".weight", []int64{int64(n), int64(k)}, normal, scale})
	l.ignore = append(l.ignore, name)
}

func (l *list) vector(name string, k kind, scale float64, dims ...int64) {
	l.all = append(l.all, tensor{name, dims, k, scale})
}

// tensors lists what a checkpoint of the shape holds, and which linear modules are not coded.
func (c *shape) tensors() ([]tensor, []string, error) {
	l := &list{}
	prefix, norm := "model.", ones
	var layer func(l *list, name string, i int) error
	switch c.arch {
	case "llama", "mistral", "qwen2":
		layer = c.llamaLayer
	case "qwen3":
		layer = c.qwen3Layer
	case "phi3":
		layer = c.phi3Layer
	case "qwen3_5":
		prefix, norm, layer = "model.language_model.", zeros, c.qwen35Layer
	case "gemma4_unified", "gemma4":
		prefix, layer = "model.language_model.", c.gemma4Layer
	default:
		return nil, nil, fmt.Errorf("model_type %q is none that is known here", c.arch)
	}
	l.all = append(l.all, tensor{prefix + "embed_tokens.weight", []int64{int64(c.vocab), int64(c.hidden)}, normal, 0.02})
	for i := range c.layers {
		if err := layer(l, fmt.Sprintf("%slayers.%d.", prefix, i), i); err != nil {
			return nil, nil, err
		}
	}
	l.vector(prefix+"norm.weight", norm, 0, int64(c.hidden))
	if !c.tied {
		l.plain("lm_head", c.vocab, c.hidden, 1/math.Sqrt(float64(c.hidden)))
	} else {
		l.ignore = append(l.ignore, "lm_head")
	}
	return l.all, l.ignore, nil
}

// heads are the widths of an attention layer.
func (c *shape) heads() (q, kv, dim int) {
	heads := c.int("num_attention_heads", 1)
	dim = c.int("head_dim", c.hidden/heads)
	return heads * dim, c.int("num_key_value_heads", heads) * dim, dim
}

func (c *shape) mlp(l *list, name string) {
	f := c.int("intermediate_size", 0)
	l.linear(name+"mlp.gate_proj", f, c.hidden)
	l.linear(name+"mlp.up_proj", f, c.hidden)
	l.linear(name+"mlp.down_proj", c.hidden, f)
}

func (c *shape) llamaLayer(l *list, name string, _ int) error {
	q, kv, _ := c.heads()
	l.vector(name+"input_layernorm.weight", ones, 0, int64(c.hidden))
	l.linear(name+"self_attn.q_proj", q, c.hidden)
	l.linear(name+"self_attn.k_proj", kv, c.hidden)
	l.linear(name+"self_attn.v_proj", kv, c.hidden)
	l.linear(name+"self_attn.o_proj", c.hidden, q)
	l.vector(name+"post_attention_layernorm.weight", ones, 0, int64(c.hidden))
	c.mlp(l, name)
	if c.arch == "qwen2" {
		l.vector(name+"self_attn.q_proj.bias", normal, 0.02, int64(q))
		l.vector(name+"self_attn.k_proj.bias", normal, 0.02, int64(kv))
		l.vector(name+"self_attn.v_proj.bias", normal, 0.02, int64(kv))
	}
	return nil
}

func (c *shape) qwen3Layer(l *list, name string, i int) error {
	_, _, dim := c.heads()
	l.vector(name+"self_attn.q_norm.weight", ones, 0, int64(dim))
	l.vector(name+"self_attn.k_norm.weight", ones, 0, int64(dim))
	return c.llamaLayer(l, name, i)
}

func (c *shape) phi3Layer(l *list, name string, _ int) error {
	q, kv, _ := c.heads()
	f := c.int("intermediate_size", 0)
	l.vector(name+"input_layernorm.weight", ones, 0, int64(c.hidden))
	l.linear(name+"self_attn.qkv_proj", q+2*kv, c.hidden)
	l.linear(name+"self_attn.o_proj", c.hidden, q)
	l.vector(name+"post_attention_layernorm.weight", ones, 0, int64(c.hidden))
	l.linear(name+"mlp.gate_up_proj", 2*f, c.hidden)
	l.linear(name+"mlp.down_proj", c.hidden, f)
	return nil
}

func (c *shape) layerType(i int) string {
	if types, ok := c.text["layer_types"].([]any); ok && i < len(types) {
		s, _ := types[i].(string)
		return s
	}
	return ""
}

func (c *shape) qwen35Layer(l *list, name string, i int) error {
	l.vector(name+"input_layernorm.weight", zeros, 0, int64(c.hidden))
	l.vector(name+"post_attention_layernorm.weight", zeros, 0, int64(c.hidden))
	c.mlp(l, name)
	if c.layerType(i) == "full_attention" {
		q, kv, dim := c.heads()
		l.linear(name+"self_attn.q_proj", 2*q, c.hidden) // queries and their gates
		l.linear(name+"self_attn.k_proj", kv, c.hidden)
		l.linear(name+"self_attn.v_proj", kv, c.hidden)
		l.linear(name+"self_attn.o_proj", c.hidden, q)
		l.vector(name+"self_attn.q_norm.weight", zeros, 0, int64(dim))
		l.vector(name+"self_attn.k_norm.weight", zeros, 0, int64(dim))
		return nil
	}
	heads := c.int("linear_num_value_heads", 0)
	keys := c.int("linear_num_key_heads", 0) * c.int("linear_key_head_dim", 0)
	values := heads * c.int("linear_value_head_dim", 0)
	if keys == 0 || values == 0 {
		return fmt.Errorf("linear_num_key_heads and its like are missing")
	}
	a := name + "linear_attn."
	l.linear(a+"in_proj_qkv", 2*keys+values, c.hidden)
	l.linear(a+"in_proj_z", values, c.hidden)
	l.plain(a+"in_proj_a", heads, c.hidden, 1/math.Sqrt(float64(c.hidden)))
	l.plain(a+"in_proj_b", heads, c.hidden, 1/math.Sqrt(float64(c.hidden)))
	l.linear(a+"out_proj", c.hidden, values)
	width := c.int("linear_conv_kernel_dim", 4)
	l.vector(a+"conv1d.weight", normal, 0.3, int64(2*keys+values), 1, int64(width))
	l.vector(a+"A_log", decay, 0, int64(heads))
	l.vector(a+"dt_bias", normal, 1, int64(heads))
	l.vector(a+"norm.weight", ones, 0, int64(c.int("linear_value_head_dim", 0)))
	return nil
}

func (c *shape) gemma4Layer(l *list, name string, i int) error {
	heads := c.int("num_attention_heads", 0)
	dim, kv := c.int("head_dim", 0), c.int("num_key_value_heads", 0)
	global := c.layerType(i) == "full_attention"
	if global {
		dim, kv = c.int("global_head_dim", dim), c.int("num_global_key_value_heads", kv)
	}
	same, _ := c.text["attention_k_eq_v"].(bool)
	for _, n := range []string{"input", "post_attention", "pre_feedforward", "post_feedforward"} {
		l.vector(name+n+"_layernorm.weight", ones, 0, int64(c.hidden))
	}
	l.linear(name+"self_attn.q_proj", heads*dim, c.hidden)
	l.linear(name+"self_attn.k_proj", kv*dim, c.hidden)
	if !global || !same {
		l.linear(name+"self_attn.v_proj", kv*dim, c.hidden)
	}
	l.linear(name+"self_attn.o_proj", c.hidden, heads*dim)
	l.vector(name+"self_attn.q_norm.weight", ones, 0, int64(dim))
	l.vector(name+"self_attn.k_norm.weight", ones, 0, int64(dim))
	l.vector(name+"layer_scalar", one, 0, 1)
	c.mlp(l, name)
	return nil
}
