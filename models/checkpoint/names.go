package checkpoint

import "strings"

// Names translates Hugging Face names to those of a GGUF file. Global has whole module names
// ("model.norm": "output_norm"), Layer what follows "model.layers.N." ("self_attn.q_proj":
// "attn_q", which stands for blk.N.attn_q).
type Names struct {
	Global map[string]string
	Layer  map[string]string
}

// llamaNames are those of llama, qwen2, qwen3 and others of their build.
var llamaNames = Names{
	Global: map[string]string{
		"model.embed_tokens": "token_embd",
		"model.norm":         "output_norm",
		"lm_head":            "output",
	},
	Layer: map[string]string{
		"input_layernorm":          "attn_norm",
		"post_attention_layernorm": "ffn_norm",
		"self_attn.q_proj":         "attn_q",
		"self_attn.k_proj":         "attn_k",
		"self_attn.v_proj":         "attn_v",
		"self_attn.o_proj":         "attn_output",
		"self_attn.q_norm":         "attn_q_norm",
		"self_attn.k_norm":         "attn_k_norm",
		"mlp.gate_proj":            "ffn_gate",
		"mlp.up_proj":              "ffn_up",
		"mlp.down_proj":            "ffn_down",
	},
}

// SetNames replaces the table that translates module names for a GGUF file. The one at first is that
// of the llama family (llama, qwen2, qwen3). Call it before any tensor is asked for.
func (c *Checkpoint) SetNames(n Names) { c.names = n }

// stored is the name in the file of a module. A name that no table has stands for itself.
func (c *Checkpoint) stored(module string) string {
	if c.format != GGUF {
		return module
	}
	if to, ok := c.names.Global[module]; ok {
		return to
	}
	if rest, ok := strings.CutPrefix(module, "model.layers."); ok {
		layer, part, _ := strings.Cut(rest, ".")
		if to, ok := c.names.Layer[part]; ok {
			return "blk." + layer + "." + to
		}
	}
	return module
}

// storedTensor is the name in the file of a tensor ("model.norm.weight").
func (c *Checkpoint) storedTensor(name string) string {
	if i := strings.LastIndexByte(name, '.'); i >= 0 {
		return c.stored(name[:i]) + name[i:]
	}
	return name
}

// Has says whether the checkpoint has the tensor ("model.norm.weight") or the module ("lm_head",
// which has a weight in any form).
func (c *Checkpoint) Has(name string) bool {
	if c.tensors[c.storedTensor(name)] != nil {
		return true
	}
	module := c.stored(name)
	return c.tensors[module+".weight"] != nil || c.config.quant != nil && c.config.quant.has(c, module)
}
