// Package gemma4 is the architecture of Gemma 4's dense text models without per-layer inputs (12B,
// 31B): sliding-window layers with a global one after every few, of another head size and number of
// key/value heads; norms before and after each sublayer; a factor that scales each layer's output.
//
// It owns what config.json or GGUF metadata mean, which tensors there are, and the order of
// operators in a forward pass; it computes nothing itself. Images and sound are not its affair, and
// what makes the other sizes (per-layer inputs, experts, caches shared by layers) is refused by name.
//
// Invariant: the residual stream is float32. Its entries grow beyond what fp16 holds.
package gemma4

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/models/checkpoint"
	"github.com/openinfer-go/openinfer/models/config"
	"github.com/openinfer-go/openinfer/models/rope"
)

// Kind is the kind of a layer.
type Kind uint8

// Kinds of layers.
const (
	Sliding Kind = iota
	Global
	kinds
)

// kindNames are what config.json calls them.
var kindNames = [kinds]string{"sliding_attention", "full_attention"}

// Geometry is the attention of one kind of layer.
type Geometry struct {
	KVHeads, HeadDim int
	Rotary           kernels.Rotary
	Window           int  // positions a token sees, counting itself; 0: all
	KeysAsValues     bool // there is no v_proj: keys as projected are the values, too
}

// Config is what a checkpoint says of its shape.
type Config struct {
	Vocab, Hidden, Intermediate, Layers int
	Heads                               int // query heads, in both kinds of layers
	MaxPosition                         int
	RMSEps                              float32
	LogitCap                            float32 // logits are c*tanh(logit/c); 0: as they are
	Kinds                               []Kind  // of each layer
	Geometry                            [kinds]Geometry
	Tied                                bool // the output layer is the embedding
	AttentionBias                       bool
}

// ReadConfig reads and checks the config of c. Of a GGUF file it takes rope_freqs.weight.
func ReadConfig(c *checkpoint.Checkpoint) (cfg Config, err error) {
	if c.Format() == checkpoint.GGUF {
		cfg, err = fromGGUF(c)
	} else {
		cfg, err = fromJSON(c)
	}
	if err != nil {
		return cfg, fmt.Errorf("%s: %w", c.Path(), err)
	}
	return cfg, nil
}

// fromJSON reads config.json of a text model, or text_config in that of a multimodal one.
func fromJSON(c *checkpoint.Checkpoint) (Config, error) {
	top := config.New(c.ConfigJSON())
	r := top
	if top.Has("text_config") {
		r = top.Object("text_config")
	}
	refuseOthers(r, strings.HasPrefix(r.TextOr("model_type", c.Architecture()), "gemma4_unified"))
	cfg := Config{
		Vocab:         r.Size("vocab_size"),
		Hidden:        r.Size("hidden_size"),
		Intermediate:  r.Size("intermediate_size"),
		Layers:        r.Size("num_hidden_layers"),
		Heads:         r.Size("num_attention_heads"),
		MaxPosition:   r.Size("max_position_embeddings"),
		RMSEps:        float32(r.PositiveOr("rms_norm_eps", 1e-6)),
		LogitCap:      float32(r.PositiveOr("final_logit_softcapping", 0)),
		Tied:          top.BoolOr("tie_word_embeddings", r.BoolOr("tie_word_embeddings", true)),
		AttentionBias: r.BoolOr("attention_bias", false),
	}
	cfg.Kinds = readKinds(r, cfg.Layers)
	sliding, global := &cfg.Geometry[Sliding], &cfg.Geometry[Global]
	sliding.HeadDim, sliding.KVHeads = r.SizeOr("head_dim", 256), r.Size("num_key_value_heads")
	*global = *sliding
	global.KeysAsValues = r.BoolOr("attention_k_eq_v", false)
	if r.Has("per_layer_config") {
		cfg.readLayers(r.Object("per_layer_config"))
	} else {
		global.HeadDim = r.SizeOr("global_head_dim", 512)
		if global.KeysAsValues { // only then does the reference library read it
			global.KVHeads = r.SizeOr("num_global_key_value_heads", global.KVHeads)
		}
	}
	if slices.Contains(cfg.Kinds, Sliding) {
		sliding.Window = r.Size("sliding_window")
	}
	if r.Err() != nil {
		return cfg, r.Err()
	}
	if err := cfg.check(); err != nil {
		return cfg, err
	}
	cfg.readRotary(r)
	return cfg, r.Err()
}

// refuseOthers refuses what this package does not build, unless its value turns it off.
func refuseOthers(r *config.Reader, unified bool) {
	for _, o := range []struct{ key, what string }{
		{"hidden_size_per_layer_input", "per-layer inputs"},
		{"num_kv_shared_layers", "layers that share a cache"},
		{"enable_moe_block", "mixtures of experts"},
		{"use_double_wide_mlp", "feed-forward layers of two widths"},
	} {
		if r.Has(o.key) && !r.Is(o.key, "0") && !r.Is(o.key, "false") {
			r.Fail(o.key, "%s are not supported", o.what)
		}
	}
	if !unified && !r.Has("hidden_size_per_layer_input") {
		r.Fail("hidden_size_per_layer_input", "is missing, which stands for 256 here: per-layer inputs are not supported")
	}
	r.Causal()
	if both := r.TextOr("use_bidirectional_attention", "vision"); both != "vision" { // of images, that is
		r.Fail("use_bidirectional_attention", "%q is not supported: text sees what comes before it", both)
	}
	if act := r.TextOr("hidden_activation", "gelu_pytorch_tanh"); act != "gelu_pytorch_tanh" {
		r.Fail("hidden_activation", "%q is not supported (gelu_pytorch_tanh is)", act)
	}
}

// readKinds reads layer_types, without which every sixth layer is global. The last one always is.
func readKinds(r *config.Reader, layers int) []Kind {
	names := r.TextsOr("layer_types")
	if r.Err() != nil {
		return nil
	}
	kinds := make([]Kind, layers)
	if names == nil {
		for i := range kinds {
			if (i+1)%6 == 0 {
				kinds[i] = Global
			}
		}
	} else if len(names) != layers {
		r.Fail("layer_types", "has %d entries for %d layers (num_hidden_layers)", len(names), layers)
		return nil
	}
	for i, name := range names {
		k := slices.Index(kindNames[:], name)
		if k < 0 {
			r.Fail("layer_types", "layer %d has %q (sliding_attention and full_attention are supported)", i, name)
			return nil
		}
		kinds[i] = Kind(k)
	}
	kinds[layers-1] = Global
	return kinds
}

// readLayers reads per_layer_config, by which newer files say what differs in a layer from the
// keys above it: {"5": {"head_dim": 512, "num_key_value_heads": 1}}.
func (c *Config) readLayers(r *config.Reader) {
	if r.Err() != nil {
		return
	}
	others := map[int]Geometry{}
	of := func(i int) Geometry {
		if g, ok := others[i]; ok {
			return g
		}
		return c.Geometry[c.Kinds[i]]
	}
	for _, name := range r.Keys() {
		i, err := strconv.Atoi(name)
		if err != nil || i < 0 || i >= c.Layers {
			r.Fail(name, "is none of %d layers", c.Layers)
			return
		}
		g, o := of(i), r.Object(name)
		for _, key := range o.Keys() {
			switch key {
			case "head_dim":
				g.HeadDim = o.Size(key)
			case "num_key_value_heads":
				g.KVHeads = o.Size(key)
			default:
				o.Fail(key, "cannot differ from layer to layer here (head_dim and num_key_value_heads can)")
			}
		}
		others[i] = g
	}
	var first [kinds]int
	geometry := c.Geometry
	for k := range kinds {
		if first[k] = slices.Index(c.Kinds, k); first[k] >= 0 {
			geometry[k] = of(first[k])
		}
	}
	for i, k := range c.Kinds {
		if g, want := of(i), geometry[k]; g.HeadDim != want.HeadDim || g.KVHeads != want.KVHeads {
			r.Fail(strconv.Itoa(i), "%d heads of %d, but layer %d, which is %s too, has %d of %d",
				g.KVHeads, g.HeadDim, first[k], kindNames[k], want.KVHeads, want.HeadDim)
			return
		}
	}
	c.Geometry = geometry
}

// defaultRotary are rope_parameters of a config.json that has none.
const defaultRotary = `{"sliding_attention": {"rope_type": "default", "rope_theta": 10000},
	"full_attention": {"rope_type": "proportional", "rope_theta": 1000000, "partial_rotary_factor": 0.25}}`

// readRotary reads rope_parameters, which has an object for each kind of layer.
func (c *Config) readRotary(r *config.Reader) {
	all := r.Object("rope_parameters")
	if !r.Has("rope_parameters") {
		all = config.New([]byte(defaultRotary))
	}
	for k := range kinds {
		if !slices.Contains(c.Kinds, k) {
			continue
		}
		if !all.Has(kindNames[k]) {
			all.Fail(kindNames[k], "is missing")
			return
		}
		s := all.Object(kindNames[k])
		p := rope.FromObject(s, rope.Model{HeadDim: c.Geometry[k].HeadDim, MaxPosition: c.MaxPosition})
		if p.Scaling == rope.LongRoPE {
			s.Fail("rope_type", "longrope is not supported in this architecture")
		}
		if r.Err() != nil {
			return
		}
		c.Geometry[k].Rotary = p.Embedding().ByRegime[0]
	}
}

// check is for what no single key can say.
func (c *Config) check() error {
	for k, g := range c.Geometry {
		if !slices.Contains(c.Kinds, Kind(k)) {
			continue
		}
		switch {
		case c.Heads%g.KVHeads != 0:
			return fmt.Errorf("%d attention heads (num_attention_heads) are no multiple of the %d key/value heads of %s layers "+
				"(num_key_value_heads, num_global_key_value_heads)", c.Heads, g.KVHeads, kindNames[k])
		case g.HeadDim%2 != 0:
			return fmt.Errorf("head_dim, global_head_dim: %d of %s layers is odd, and halves of it are rotated", g.HeadDim, kindNames[k])
		case c.Heads*g.HeadDim > config.Limit:
			return fmt.Errorf("num_attention_heads: %d heads of %d (head_dim, global_head_dim) are more than %d values", c.Heads, g.HeadDim, config.Limit)
		}
	}
	return nil
}
