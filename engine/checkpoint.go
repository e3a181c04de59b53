package engine

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/models/chat"
	"github.com/openinfer-go/openinfer/models/checkpoint"
	"github.com/openinfer-go/openinfer/models/configs"
	"github.com/openinfer-go/openinfer/models/demo"
	"github.com/openinfer-go/openinfer/models/registry"
	"github.com/openinfer-go/openinfer/models/tokenizer"
)

// loadCheckpoint reads m's checkpoint: weights onto the device, tokenizer, chat template, end
// tokens and sampling defaults. The file is not needed afterwards and is unmapped.
func loadCheckpoint(d kernels.Device, m *model) (err error) {
	simulated := d.Info().Simulated
	c, err := openCheckpoint(m.spec, simulated != "")
	if err != nil {
		return err
	}
	defer func() {
		if cerr := c.Close(); err == nil {
			err = cerr
		}
	}()
	texts, err := textsOf(c)
	if err != nil {
		return err
	}
	tok, err := registry.Tokenizer(texts)
	if err != nil {
		return err
	}
	m.tok = tok
	if m.stamp, err = newStamp(m.spec.Path); err != nil {
		return err
	}
	start := time.Now()
	if m.impl, err = weightsOf(c, d, m.spec); err != nil {
		return err
	}
	m.loadTime = time.Since(start)
	m.odd = c.Warnings()
	shape := m.takeShape()
	m.vocab = min(shape.Vocab, tok.Size())
	m.ends = endTokens(texts, tok, m.vocab)
	m.info.Architecture, m.info.Vocab, m.info.EndTokens = shape.Architecture, m.vocab, m.ends
	generation := c.Generation()
	m.info.Defaults, m.never = samplingDefaults(generation), generation.SuppressTokens
	m.chat, m.chatErr = loadChat(texts, tok)
	if simulated != "" {
		m.info.Simulated, m.simulated = simulated, newSimulation(m.name(), tok, m.vocab, m.ends)
	}
	if m.chat != nil {
		m.info.HasChat, m.marks = true, map[int32]bool{}
		for _, text := range m.chat.Marks() {
			if id, ok := tok.ID(text); ok {
				m.marks[id] = true
			}
		}
		m.info.Reasoning = findReasoning(m.spec.ReasoningParser, chatTemplate(texts), tok.ID)
		m.info.Tools = findToolFormat(m.spec.ToolCallParser, chatTemplate(texts), tok.ID)
	}
	return nil
}

// textsOf returns the checkpoint that a model's tokenizer and chat template are of: its own, or an embedded one's where a
// config.json is all there is.
func textsOf(c *checkpoint.Checkpoint) (*checkpoint.Checkpoint, error) {
	if c.Format() != checkpoint.ConfigOnly || c.TokenizerJSON() != nil {
		return c, nil
	}
	files, _ := demo.Open(demo.Names()[0])
	return checkpoint.OpenFS(files, ".") // in memory: there is nothing to close
}

// plainTemplate stands in for the chat template of a config.json that has none beside it.
const plainTemplate = `{%- for message in messages %}{{- message['role'] + ': ' + message['content'] + '\n' }}{%- endfor %}{%- if add_generation_prompt %}{{- 'assistant: ' }}{%- endif %}`

// chatTemplate is the checkpoint's own; "": there is none.
func chatTemplate(c *checkpoint.Checkpoint) string {
	source, ok := c.ChatTemplate()
	if !ok && c.Format() == checkpoint.ConfigOnly {
		return plainTemplate
	}
	return source
}

// loadChat compiles the checkpoint's chat template. A model whose template is missing or cannot be
// read serves completions all the same, and a chat is told why it is refused.
func loadChat(c *checkpoint.Checkpoint, tok *tokenizer.Tokenizer) (*chat.Template, error) {
	source := chatTemplate(c)
	if source == "" {
		return nil, chat.ErrNoTemplate
	}
	tokens := chat.Tokens{Named: c.SpecialTokens().Named}
	for _, t := range tok.AddedTokens() {
		if t.Special {
			tokens.Special = append(tokens.Special, t.Content)
		} else {
			tokens.Added = append(tokens.Added, t.Content)
		}
	}
	return chat.Compile(source, tokens)
}

// openCheckpoint opens a model's checkpoint. One that has no weights, only a config.json, is refused unless configOnly.
func openCheckpoint(spec ModelSpec, configOnly bool) (*checkpoint.Checkpoint, error) {
	c, err := openFiles(spec, configOnly)
	if err == nil && (spec.Floats || spec.Quantize != "") {
		if err = c.KeepFloats(); err != nil {
			return nil, errors.Join(err, c.Close())
		}
	}
	return c, err
}

func openFiles(spec ModelSpec, configOnly bool) (*checkpoint.Checkpoint, error) {
	bare := strings.HasSuffix(spec.Path, ".json")
	if spec.Path != "" && !bare {
		c, err := checkpoint.Open(spec.Path)
		if configOnly && errors.Is(err, checkpoint.ErrNoWeights) {
			return checkpoint.OpenConfig(spec.Path)
		}
		return c, err
	}
	if files, ok := demo.Open(spec.Name); ok && !bare {
		return checkpoint.OpenFS(files, ".")
	}
	raw, embedded := configs.Open(spec.Name)
	switch {
	case !bare && !embedded:
		return nil, fmt.Errorf("no embedded model of that name, there are %q", demo.Names())
	case !configOnly:
		return nil, fmt.Errorf("%w: it is a config.json alone, which only a simulated card can serve (--device sim:CARD)", checkpoint.ErrNoWeights)
	case bare:
		return checkpoint.OpenConfig(spec.Path)
	}
	return checkpoint.OpenConfigBytes(spec.Name, raw)
}

// endTokens is every id that ends an answer: what config, generation_config or the GGUF file name,
// and the tokenizer's own end-of-sequence token.
func endTokens(c *checkpoint.Checkpoint, tok *tokenizer.Tokenizer, vocab int) []int32 {
	ids := slices.Clone(c.EOS())
	if text := c.SpecialTokens().EOS; text != "" {
		if id, ok := tok.ID(text); ok {
			ids = append(ids, id)
		}
	}
	ids = append(ids, tok.EOS(), tok.EOT(), tok.EOM())
	ids = slices.DeleteFunc(ids, func(id int32) bool { return id < 0 || int(id) >= vocab })
	slices.Sort(ids)
	return slices.Compact(ids)
}

// samplingDefaults are the checkpoint's own where they are in range, else OpenAI's.
func samplingDefaults(g checkpoint.Generation) SamplingParams {
	p := SamplingParams{Temperature: 1, TopP: 1, RepetitionPenalty: 1}
	within := func(v *float64, low, high float64, into *float32) {
		if v != nil && *v >= low && *v <= high {
			*into = float32(*v)
		}
	}
	if g.DoSample != nil && !*g.DoSample && g.Temperature == nil {
		p.Temperature = 0
	}
	within(g.Temperature, 0, 2, &p.Temperature)
	within(g.TopP, 1e-6, 1, &p.TopP)
	within(g.MinP, 0, 1, &p.MinP)
	within(g.RepetitionPenalty, 1e-3, 1e3, &p.RepetitionPenalty)
	if g.TopK != nil && *g.TopK > 0 {
		p.TopK = *g.TopK
	}
	return p
}
