package checkpoint

import (
	"fmt"
	"math"
)

// turnEnds are control tokens that end a turn in the families that have them. A GGUF file names
// one end token, two or three at most, and often not the one its chat template ends a turn with.
var turnEnds = map[string]bool{
	"<|eot_id|>": true, "<|eom_id|>": true, "<|end_of_text|>": true, // Llama 3
	"<|im_end|>": true, "<|endoftext|>": true, // Qwen, SmolLM
	"<end_of_turn>": true, "<turn|>": true, "<eos>": true, "<|tool_response>": true, // Gemma, whose calls end where their results would begin
	"<|end|>": true, "<|return|>": true, "<|call|>": true, // Phi, gpt-oss
	"</s>": true, "<|END_OF_TURN_TOKEN|>": true, "<｜end▁of▁sentence｜>": true,
}

const (
	typeControl     = 3
	typeUserDefined = 4
)

// Vocabulary is the tokenizer of a GGUF file; an error when it has none or is safetensors.
func (c *Checkpoint) Vocabulary() (*Vocabulary, error) {
	m := c.metadata
	if m == nil {
		return nil, fmt.Errorf("%s: tokenizer.json is missing (only GGUF files carry a vocabulary themselves)", c.path)
	}
	return m.vocabulary()
}

func (m *Metadata) vocabulary() (*Vocabulary, error) {
	v := &Vocabulary{}
	var err error
	if v.Model, err = m.String("tokenizer.ggml.model"); err != nil {
		return nil, err
	}
	if v.Pre, err = m.StringOr("tokenizer.ggml.pre", ""); err != nil {
		return nil, err
	}
	if v.Tokens, err = m.Strings("tokenizer.ggml.tokens"); err != nil {
		return nil, err
	}
	if v.Merges, err = or(m, "tokenizer.ggml.merges", nil, m.Strings); err != nil {
		return nil, err
	}
	if v.Scores, err = or(m, "tokenizer.ggml.scores", nil, m.Floats); err != nil {
		return nil, err
	}
	types, err := or(m, "tokenizer.ggml.token_type", nil, m.Ints)
	if err != nil {
		return nil, err
	}
	for key, n := range map[string]int{"tokenizer.ggml.scores": len(v.Scores), "tokenizer.ggml.token_type": len(types)} {
		if n != 0 && n != len(v.Tokens) {
			return nil, m.errorf(key, "has %d entries for %d tokens", n, len(v.Tokens))
		}
	}
	for _, t := range types {
		v.Types = append(v.Types, int32(t)) // any other number than 1 to 6 means nothing either way
	}
	for key, id := range map[string]*int32{
		"bos": &v.BOS, "eos": &v.EOS, "eot": &v.EOT, "eom": &v.EOM, "unknown": &v.Unknown, "padding": &v.Padding,
	} {
		key = "tokenizer.ggml." + key + "_token_id"
		n, err := m.IntOr(key, -1)
		if err != nil {
			return nil, err
		}
		if m.Has(key) && n == math.MaxUint32 { // how some converters write "none"
			n = -1
		}
		if n < -1 || n >= len(v.Tokens) {
			return nil, m.errorf(key, "%d is not one of %d tokens", n, len(v.Tokens))
		}
		*id = int32(n)
	}
	for key, flag := range map[string]**bool{
		"tokenizer.ggml.add_bos_token": &v.AddBOS, "tokenizer.ggml.add_eos_token": &v.AddEOS,
		"tokenizer.ggml.add_space_prefix": &v.AddSpacePrefix,
	} {
		if *flag, err = optional(m, key, m.Bool); err != nil {
			return nil, err
		}
	}
	return v, nil
}

// optional reads a key that may be absent.
func optional[T any](m *Metadata, key string, get func(string) (T, error)) (*T, error) {
	if !m.Has(key) {
		return nil, nil
	}
	v, err := get(key)
	return &v, err
}

// readGGUFTexts reads what the first file's metadata say beside the weights.
func (c *Checkpoint) readGGUFTexts() error {
	m, t := c.metadata, &c.texts
	var err error
	if c.config.architecture, err = m.String("general.architecture"); err != nil {
		return err
	}
	if t.maxLength, err = m.IntOr(c.config.architecture+".context_length", 0); err != nil {
		return err
	}
	if t.template, err = optional(m, "tokenizer.chat_template", m.String); err != nil {
		return err
	}
	g := &t.generation
	for key, value := range map[string]**float64{
		"temp": &g.Temperature, "top_p": &g.TopP, "min_p": &g.MinP, "penalty_repeat": &g.RepetitionPenalty,
	} {
		if *value, err = optional(m, "general.sampling."+key, m.Float); err != nil {
			return err
		}
	}
	if g.TopK, err = optional(m, "general.sampling.top_k", m.Int); err != nil {
		return err
	}
	const suppressed = "tokenizer.ggml.suppress_tokens"
	if m.Has(suppressed) {
		ids, err := m.Ints(suppressed)
		if err != nil {
			return err
		}
		for _, id := range ids {
			if id < 0 || id > math.MaxInt32 {
				return m.errorf(suppressed, "%d is no token id", id)
			}
			g.SuppressTokens = append(g.SuppressTokens, int32(id))
		}
	}
	if !m.Has("tokenizer.ggml.tokens") {
		return nil
	}
	v, err := c.Vocabulary()
	if err != nil {
		return err
	}
	t.special = SpecialTokens{AddBOS: v.AddBOS, AddEOS: v.AddEOS, Named: map[string]string{}}
	for name, id := range map[string]int32{"bos_token": v.BOS, "eos_token": v.EOS, "unk_token": v.Unknown, "pad_token": v.Padding} {
		if id >= 0 {
			t.special.Named[name] = v.Tokens[id]
		}
	}
	t.special.setCommon()
	for _, id := range []int32{v.EOS, v.EOT, v.EOM} {
		t.addEOS(id)
	}
	for id, kind := range v.Types {
		if (kind == typeControl || kind == typeUserDefined) && turnEnds[v.Tokens[id]] {
			t.addEOS(int32(id))
		}
	}
	return nil
}
