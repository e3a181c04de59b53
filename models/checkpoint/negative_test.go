package checkpoint

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/openinfer-go/openinfer/internal/testdata"
	"github.com/openinfer-go/openinfer/internal/testdata/negative"
)

// loadLlama asks for the tensors of a llama model as its architecture does.
func loadLlama(path string) error {
	c, err := Open(path)
	if err != nil {
		return err
	}
	defer c.Close()
	var cfg struct {
		Type         string `json:"model_type"`
		Vocab        int    `json:"vocab_size"`
		Hidden       int    `json:"hidden_size"`
		Intermediate int    `json:"intermediate_size"`
		Layers       int    `json:"num_hidden_layers"`
		Heads        int    `json:"num_attention_heads"`
		KVHeads      int    `json:"num_key_value_heads"`
		HeadSize     int    `json:"head_dim"`
	}
	if err := json.Unmarshal(c.ConfigJSON(), &cfg); err != nil {
		return err
	}
	if cfg.Type != "llama" {
		return fmt.Errorf("model_type %s", cfg.Type)
	}
	if _, err := c.Matrix("model.embed_tokens", cfg.Vocab, cfg.Hidden); err != nil {
		return err
	}
	if _, err := c.Vector("model.norm.weight", cfg.Hidden); err != nil {
		return err
	}
	q, kv := cfg.Heads*cfg.HeadSize, cfg.KVHeads*cfg.HeadSize
	for i := range cfg.Layers {
		p := fmt.Sprintf("model.layers.%d.", i)
		for _, name := range []string{"input_layernorm", "post_attention_layernorm"} {
			if _, err := c.Vector(p+name+".weight", cfg.Hidden); err != nil {
				return err
			}
		}
		for _, l := range []struct {
			name string
			n, k int
		}{
			{"self_attn.q_proj", q, cfg.Hidden}, {"self_attn.k_proj", kv, cfg.Hidden}, {"self_attn.v_proj", kv, cfg.Hidden},
			{"self_attn.o_proj", cfg.Hidden, q}, {"mlp.gate_proj", cfg.Intermediate, cfg.Hidden},
			{"mlp.up_proj", cfg.Intermediate, cfg.Hidden}, {"mlp.down_proj", cfg.Hidden, cfg.Intermediate},
		} {
			if _, err := c.Matrix(p+l.name, l.n, l.k); err != nil {
				return err
			}
		}
	}
	if err := c.Alias("lm_head.weight", "model.embed_tokens.weight"); err != nil {
		return err
	}
	return c.Finish()
}

func TestGoodCheckpointsLoad(t *testing.T) {
	for _, dir := range []string{"models/llama", "quant/llama_ct_g32_sym", "quant/llama_ct_g32_ignore", "quant/llama_ct_channel_sym",
		"quant/llama_ct_g128_asym", "quant/llama_ct_g32_actorder_gidx", "quant/llama_gptq_g128", "quant/llama_gptq_g32_desc_act", "quant/llama_gptq_v2_g32_asym",
		"quant/llama_awq_g128"} {
		if err := loadLlama(testdata.Shared(t, "golden", dir)); err != nil {
			t.Errorf("%s: %v", dir, err)
		}
	}
}

func TestBrokenCheckpointsAreRefusedByName(t *testing.T) {
	for _, c := range negative.Make(t) {
		done := make(chan error, 1)
		go func() { done <- loadLlama(c.Dir) }()
		var err error
		select {
		case err = <-done:
		case <-time.After(10 * time.Second): // a hang, on any machine
			t.Fatalf("%s (%s): no answer in 10 s", c.Name, c.Change)
		}
		if err == nil {
			t.Errorf("%s (%s): accepted", c.Name, c.Change)
			continue
		}
		named := false
		for _, name := range c.Names {
			// The folder's own name may hold such a word.
			named = named || strings.Contains(strings.ReplaceAll(err.Error(), c.Dir, ""), name)
		}
		if !named {
			t.Errorf("%s (%s): error %q names none of %q", c.Name, c.Change, err, c.Names)
		}
	}
}
