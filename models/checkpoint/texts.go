package checkpoint

import (
	"encoding/json/jsontext"
	"encoding/json/v2"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
)

// Vocabulary is the tokenizer that a GGUF file carries. Ids are -1 when the file has none.
type Vocabulary struct {
	Model  string // tokenizer.ggml.model: "gpt2" (byte-level BPE), "llama" (SentencePiece), ...
	Pre    string // tokenizer.ggml.pre: which split before BPE
	Tokens []string
	Scores []float32 // as long as Tokens, or nil
	Types  []int32   // as long as Tokens, or nil: 1 normal, 2 unknown, 3 control, 4 user defined, 5 unused, 6 byte
	Merges []string

	BOS, EOS, EOT, EOM, Unknown, Padding int32

	AddBOS, AddEOS, AddSpacePrefix *bool // nil when the file does not say
}

// SpecialTokens are the texts of special tokens that tokenizer_config.json and
// special_tokens_map.json name ("" when they do not), or those of a GGUF file's ids.
type SpecialTokens struct {
	BOS, EOS, Unknown, Padding string
	AddBOS, AddEOS             *bool // nil when the checkpoint does not say
	// Named has every entry ("bos_token", "eos_token", "image_token", ...) for chat templates.
	Named map[string]string
}

// Generation are a checkpoint's own sampling defaults; a nil field is one it does not state.
type Generation struct {
	DoSample          *bool    `json:"do_sample"`
	Temperature       *float64 `json:"temperature"`
	TopP              *float64 `json:"top_p"`
	TopK              *int     `json:"top_k"`
	MinP              *float64 `json:"min_p"`
	RepetitionPenalty *float64 `json:"repetition_penalty"`
	MaxNewTokens      *int     `json:"max_new_tokens"`
	SuppressTokens    []int32  `json:"suppress_tokens"` // never drawn
}

// texts is what surrounds the weights, read when the checkpoint is opened.
type texts struct {
	tokenizerJSON []byte
	template      *string
	special       SpecialTokens
	eos           []int32
	generation    Generation
	maxLength     int
}

// TokenizerJSON is tokenizer.json as it is, nil when there is none.
func (c *Checkpoint) TokenizerJSON() []byte { return c.texts.tokenizerJSON }

// ChatTemplate is the source of the chat template: chat_template.jinja, else that of
// tokenizer_config.json (of a list, the one named default) or chat_template.json, else
// tokenizer.chat_template of a GGUF file.
func (c *Checkpoint) ChatTemplate() (string, bool) {
	if c.texts.template == nil {
		return "", false
	}
	return *c.texts.template, true
}

// SpecialTokens are the special tokens' texts.
func (c *Checkpoint) SpecialTokens() SpecialTokens { return c.texts.special }

// EOS are the ids that end an answer, each once, in order: the union of config.json, its
// text_config and generation_config.json; or of a GGUF file the eos, eot and eom ids and control
// tokens that are known to end a turn (a file names one or two, chats end with others). The id of
// SpecialTokens().EOS belongs to the set, too: the tokenizer knows it.
func (c *Checkpoint) EOS() []int32 { return slices.Clone(c.texts.eos) }

// Generation are the sampling defaults: generation_config.json, or general.sampling.* of GGUF.
func (c *Checkpoint) Generation() Generation { return c.texts.generation }

// ModelMaxLength is model_max_length of tokenizer_config.json or ARCH.context_length of a GGUF
// file, 0 when there is none or it means "no limit".
func (c *Checkpoint) ModelMaxLength() int { return c.texts.maxLength }

// tokenText reads a special token: a text, or an object with its content; anything else is no token.
type tokenText string

func (t *tokenText) UnmarshalJSON(b []byte) error {
	var s string
	var o struct {
		Content string `json:"content"`
	}
	switch {
	case b[0] == '"':
		if err := json.Unmarshal(b, &s); err != nil {
			return err
		}
	case b[0] == '{':
		if err := json.Unmarshal(b, &o); err != nil {
			return err
		}
		s = o.Content
	}
	*t = tokenText(s)
	return nil
}

// templateText reads a chat template: a text, or a list of named ones of which the default counts.
type templateText struct{ text *string }

func (t *templateText) UnmarshalJSON(b []byte) error {
	if b[0] != '[' {
		return json.Unmarshal(b, &t.text)
	}
	var list []struct {
		Name     string `json:"name"`
		Template string `json:"template"`
	}
	if err := json.Unmarshal(b, &list); err != nil {
		return err
	}
	for _, x := range list {
		if x.Name == "default" {
			t.text = &x.Template
		}
	}
	return nil
}

// readTexts reads what stands beside safetensors.
func (c *Checkpoint) readTexts(names []string) error {
	var err error
	t := &c.texts
	if t.tokenizerJSON, err = c.folder.text("tokenizer.json"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := c.readSpecialTokens(); err != nil {
		return err
	}
	if slices.Contains(names, "chat_template.jinja") {
		b, err := c.folder.text("chat_template.jinja")
		if err != nil {
			return err
		}
		s := string(b)
		t.template = &s
	} else if t.template == nil {
		var processor struct {
			Template templateText `json:"chat_template"`
		}
		if err := c.optionalJSON("chat_template.json", &processor); err != nil {
			return err
		}
		t.template = processor.Template.text
	}
	var generation struct {
		Generation
		EOS ids `json:"eos_token_id"`
	}
	if err := c.optionalJSON("generation_config.json", &generation); err != nil {
		return err
	}
	t.generation = generation.Generation
	for _, id := range slices.Concat(c.config.eos, generation.EOS) {
		t.addEOS(id)
	}
	return nil
}

func (t *texts) addEOS(id int32) {
	if id >= 0 && !slices.Contains(t.eos, id) {
		t.eos = append(t.eos, id)
	}
}

// readSpecialTokens reads tokenizer_config.json, and special_tokens_map.json for what it lacks.
func (c *Checkpoint) readSpecialTokens() error {
	t := &c.texts
	var cfg struct {
		Template templateText `json:"chat_template"`
		AddBOS   *bool        `json:"add_bos_token"`
		AddEOS   *bool        `json:"add_eos_token"`
		Length   *float64     `json:"model_max_length"`
	}
	if err := c.optionalJSON("tokenizer_config.json", &cfg); err != nil {
		return err
	}
	t.template = cfg.Template.text
	if cfg.Length != nil && *cfg.Length >= 1 && *cfg.Length < 1<<31 { // "no limit" is 1e30
		t.maxLength = int(*cfg.Length)
	}
	t.special = SpecialTokens{AddBOS: cfg.AddBOS, AddEOS: cfg.AddEOS, Named: map[string]string{}}
	for _, name := range []string{"tokenizer_config.json", "special_tokens_map.json"} {
		var all map[string]jsontext.Value
		if err := c.optionalJSON(name, &all); err != nil {
			return err
		}
		for key, raw := range all {
			var text tokenText
			if !strings.HasSuffix(key, "_token") || t.special.Named[key] != "" {
				continue
			}
			if err := json.Unmarshal(raw, &text); err != nil {
				return fmt.Errorf("%s: %s: %w", c.folder.path(name), key, err)
			}
			if text != "" {
				t.special.Named[key] = string(text)
			}
		}
	}
	t.special.setCommon()
	return nil
}

func (s *SpecialTokens) setCommon() {
	s.BOS, s.EOS, s.Unknown, s.Padding = s.Named["bos_token"], s.Named["eos_token"], s.Named["unk_token"], s.Named["pad_token"]
}
