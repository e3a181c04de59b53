package quantize

import (
	"encoding/json/jsontext"
	"encoding/json/v2"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/kernels/quant"
	"github.com/openinfer-go/openinfer/models/checkpoint"
	"github.com/openinfer-go/openinfer/models/registry"
	"github.com/openinfer-go/openinfer/models/tokenizer"
)

// ggufClasses are the architectures whose GGUF files hold the tensors of Hugging Face's checkpoint, but for
// names and the order of rows, by general.architecture. Others change values (norms, decay rates, merged
// tensors), which is not undone here.
var ggufClasses = map[string]string{"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}

// planGGUF is the plan for a GGUF file. The architecture's own loader names the weights, with their rows in
// Hugging Face's order.
func planGGUF(c *checkpoint.Checkpoint, s quant.Scheme, d kernels.Device) (*plan, error) {
	class, ok := ggufClasses[c.Architecture()]
	if !ok {
		return nil, fmt.Errorf("%s: GGUF files of architecture %q cannot be written as a Hugging Face checkpoint (those of llama, qwen2 and qwen3 can): quantise its safetensors",
			c.Path(), c.Architecture())
	}
	st, err := newStream(d)
	if err != nil {
		return nil, err
	}
	defer st.release()
	model, err := registry.Load(c, st)
	if err != nil {
		return nil, err
	}
	defer model.Unload(st)
	p := &plan{scheme: s, files: map[string][]byte{}}
	bias := map[string]bool{}
	for _, m := range st.parts {
		module := c.Module(m.Name)
		if m.Bits == 0 && (isEmbedding(module) || isHead(module)) {
			p.leave(module)
			p.copy(c, m.Name, module+".weight", checkpoint.Item{
				Type: [...]string{kernels.F32: "F32", kernels.F16: "F16", kernels.BF16: "BF16"}[m.Type], Shape: []int{m.N, m.K},
				Bytes: int64(m.N) * int64(m.K) * int64(m.Type.Bytes()),
			})
		} else {
			p.weight(module, m, storedBytes(m))
		}
		if m.Bias != nil {
			bias[strings.TrimSuffix(m.Name, ".weight")+".bias"] = true
			p.floats(module+".bias", m.Bias)
		}
	}
	for _, it := range c.Vectors() {
		if bias[it.Tensor] || it.Tensor == ropeFreqs {
			continue
		}
		module := c.Module(it.Tensor)
		if module == strings.TrimSuffix(it.Tensor, ".weight") {
			return nil, fmt.Errorf("%s: tensor %s has no name in a Hugging Face checkpoint", c.Path(), it.Tensor)
		}
		p.copy(c, it.Tensor, module+".weight", it)
	}
	g := ggufTexts{c: c, p: p}
	if err := g.config(class, len(bias) > 0); err != nil {
		return nil, fmt.Errorf("%s: %w", c.Path(), err)
	}
	return p, g.texts()
}

const ropeFreqs = "rope_freqs.weight"

// storedBytes is about what a matrix takes in its file.
func storedBytes(m kernels.Matrix) int64 {
	n := int64(m.N) * int64(m.K)
	if m.Bits == 0 {
		return n * int64(m.Type.Bytes())
	}
	return n*int64(m.Bits)/8 + int64(m.N)*int64(m.Groups())*2
}

// floats adds a vector, as float32.
func (p *plan) floats(name string, v []float32) {
	p.jobs = append(p.jobs, &job{
		name: name, bytes: int64(len(v)) * 4, tensors: []checkpoint.NewTensor{{Name: name, Type: "F32", Shape: []int{len(v)}}},
		write: func(w *checkpoint.Writer) error { return w.WriteAt(name, 0, floatBytes(v)) },
	})
}

func floatBytes(v []float32) []byte {
	b := make([]byte, 0, 4*len(v))
	for _, x := range v {
		u := math.Float32bits(x)
		b = append(b, byte(u), byte(u>>8), byte(u>>16), byte(u>>24))
	}
	return b
}

// ggufTexts makes what stands beside the weights of a GGUF file's metadata.
type ggufTexts struct {
	c   *checkpoint.Checkpoint
	p   *plan
	err error
}

func (g *ggufTexts) int(key string, def int) int {
	if g.err != nil {
		return 0
	}
	var n int
	key = g.c.Architecture() + "." + key
	if n, g.err = g.c.GGUF().IntOr(key, def); g.err == nil && n <= 0 {
		g.err = fmt.Errorf("metadata %s: %d", key, n)
	}
	return n
}

func (g *ggufTexts) float(key string, def float64) float64 {
	if g.err != nil {
		return 0
	}
	var v float64
	v, g.err = g.c.GGUF().FloatOr(g.c.Architecture()+"."+key, def)
	return round32(v)
}

// round32 is the shortest decimal number of a float32, as which GGUF keeps what was written as a decimal.
func round32(v float64) float64 {
	var r float64
	if _, err := fmt.Sscan(fmt.Sprint(float32(v)), &r); err != nil {
		return v
	}
	return r
}

// config makes config.json.
func (g *ggufTexts) config(class string, bias bool) error {
	c := g.c
	hidden, heads := g.int("embedding_length", 0), g.int("attention.head_count", 0)
	head := g.int("attention.key_length", max(hidden/max(heads, 1), 1))
	theta := g.float("rope.freq_base", 10000)
	tied := !slices.ContainsFunc(g.p.jobs, func(j *job) bool { return j.name == "lm_head.weight" || j.name == "lm_head" })
	var vocab int
	for _, j := range g.p.jobs {
		if j.name == "model.embed_tokens.weight" || j.name == "model.embed_tokens" {
			vocab = j.tensors[0].Shape[0]
		}
	}
	scaling, err := g.scaling(theta, head)
	if err != nil {
		return err
	}
	cfg := map[string]any{
		"architectures": []string{class}, "model_type": c.Architecture(), "torch_dtype": "bfloat16", "hidden_act": "silu",
		"vocab_size": vocab, "hidden_size": hidden, "intermediate_size": g.int("feed_forward_length", 0),
		"num_hidden_layers": g.int("block_count", 0), "num_attention_heads": heads, "num_key_value_heads": g.int("attention.head_count_kv", heads),
		"head_dim": head, "max_position_embeddings": g.int("context_length", 0), "rms_norm_eps": g.float("attention.layer_norm_rms_epsilon", 1e-6),
		"rope_theta": theta, "rope_scaling": scaling, "tie_word_embeddings": tied,
	}
	if c.Architecture() != "qwen2" {
		cfg["attention_bias"] = bias
	}
	if g.err != nil {
		return g.err
	}
	if v, err := c.Vocabulary(); err == nil {
		for key, id := range map[string]int32{"bos_token_id": v.BOS, "pad_token_id": v.Padding} {
			if id >= 0 {
				cfg[key] = id
			}
		}
	}
	if eos := c.EOS(); len(eos) > 0 {
		cfg["eos_token_id"] = eos
	}
	g.p.config, err = json.Marshal(cfg, json.Deterministic(true))
	return err
}

// scaling is rope_scaling, nil for none.
func (g *ggufTexts) scaling(theta float64, head int) (any, error) {
	if factor := g.float("rope.scaling.factor", 1); factor != 1 {
		return map[string]any{"rope_type": "linear", "factor": factor}, nil
	}
	if !g.c.Has(ropeFreqs) {
		return nil, nil
	}
	divisors := make([]float32, head/2)
	err := g.c.Raw(ropeFreqs, func(b []byte) error {
		if len(b) != 4*len(divisors) {
			return fmt.Errorf("tensor %s: %d bytes for %d values of float32", ropeFreqs, len(b), len(divisors))
		}
		quant.Floats(divisors, kernels.F32, b)
		return nil
	})
	if err != nil {
		return nil, err
	}
	// The file has the divisors alone: the rule of Llama 3 is tried, with its published constants and any original context.
	factor := float64(slices.Max(divisors))
	if factor == 1 && slices.Min(divisors) == 1 {
		return nil, nil
	}
	const low, high = 1.0, 4.0
	for original := 32; original <= 1<<20; original *= 2 {
		fits := true
		for i, d := range divisors {
			turns := float64(original) * math.Pow(theta, -2*float64(i)/float64(head)) / (2 * math.Pi)
			want := factor
			if turns > high {
				want = 1
			} else if turns >= low {
				kept := (turns - low) / (high - low)
				want = 1 / ((1-kept)/factor + kept)
			}
			fits = fits && math.Abs(float64(d)-want) <= 1e-4*want
		}
		if fits {
			return map[string]any{
				"rope_type": "llama3", "factor": round32(factor), "low_freq_factor": low, "high_freq_factor": high,
				"original_max_position_embeddings": original,
			}, nil
		}
	}
	return nil, fmt.Errorf("tensor %s: no scaling that config.json can name divides frequencies so", ropeFreqs)
}

// texts makes the tokenizer's files and generation_config.json.
func (g *ggufTexts) texts() error {
	c, p := g.c, g.p
	add := func(name string, v any) error {
		b, err := json.Marshal(v, json.Deterministic(true), jsontext.WithIndent("  "))
		p.files[name] = append(b, '\n')
		return err
	}
	generation := map[string]any{}
	for key, v := range map[string]*float64{
		"temperature": c.Generation().Temperature, "top_p": c.Generation().TopP, "min_p": c.Generation().MinP, "repetition_penalty": c.Generation().RepetitionPenalty,
	} {
		if v != nil {
			generation[key] = round32(*v)
		}
	}
	if k := c.Generation().TopK; k != nil {
		generation["top_k"] = *k
	}
	if eos := c.EOS(); len(eos) > 0 {
		generation["eos_token_id"] = eos
	}
	if err := add("generation_config.json", generation); err != nil {
		return err
	}
	v, err := c.Vocabulary()
	if err != nil {
		p.notes = append(p.notes, fmt.Sprintf("no tokenizer is written, add the original model's tokenizer.json and tokenizer_config.json: %v", err))
		return nil
	}
	cfg := map[string]any{"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": false}
	for key, token := range c.SpecialTokens().Named {
		cfg[key] = token
	}
	if t, ok := c.ChatTemplate(); ok {
		cfg["chat_template"] = t
	}
	if n := c.ModelMaxLength(); n > 0 {
		cfg["model_max_length"] = n
	}
	for key, flag := range map[string]*bool{"add_bos_token": v.AddBOS, "add_eos_token": v.AddEOS} {
		if flag != nil {
			cfg[key] = *flag
		}
	}
	if err := add("tokenizer_config.json", cfg); err != nil {
		return err
	}
	b, err := registry.GGUFVocab(v).JSON()
	if err == nil {
		_, err = tokenizer.FromJSON(b)
	}
	if err != nil {
		p.notes = append(p.notes, fmt.Sprintf("tokenizer.json cannot be made from this file, add the original model's: %v", err))
		return nil
	}
	p.files["tokenizer.json"] = b
	return nil
}
