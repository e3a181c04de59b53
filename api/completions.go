package api

import (
	"encoding/json/jsontext"
	"errors"
	"fmt"
	"net/http"

	"github.com/openinfer-go/openinfer/engine"
)

// completions answers POST /v1/completions.
func (h *Handler) completions(w *reply, r *http.Request) error {
	o, release, err := h.readRequest(w, r)
	if err != nil {
		return err
	}
	defer release()
	return h.complete(w, r, o, release, form{id: "cmpl-", shape: completionShape{}, byDefault: completionTokens})
}

// complete answers a request of completions in an endpoint's form.
func (h *Handler) complete(w *reply, r *http.Request, o *object, release func(), f form) error {
	g, err := h.newGeneration(w, r, o, f)
	if err != nil {
		return err
	}
	refuse(o, refusals, completionRefusals)
	g.echo = o.bool("echo", false)
	least := int64(1)
	if g.echo {
		least = 0
	}
	g.params = readParams(o, g.model, least)
	g.service = readService(o, r.Header)
	g.promptOnly = g.maxField != "" && g.maxTokens == 0
	if n := o.integer("logprobs", 0, maxLogprobs); n != nil {
		count := int(*n)
		g.logprobs = &count
	}
	addSpecial := o.bool("add_special_tokens", true)
	inputs := readPrompts(o, g.model.Vocab)
	form := readStructured(o)
	if err := o.failure(); err != nil {
		return err
	}
	if err := h.gen.Admit(g.probe(w, g.n*len(inputs))); err != nil {
		var e *engine.InvalidError
		if errors.As(err, &e) && e.Field == "n" && len(inputs) > 1 {
			return invalid("prompt", "%d prompts with n of %d: %s", len(inputs), g.n, e.Message)
		}
		return err
	}
	prompts := make([]prompt, len(inputs))
	for i, in := range inputs {
		p := prompt{ids: in.ids}
		switch {
		case in.ids == nil:
			p.ids, err = h.gen.TokenizeAtMost(g.model.Name, in.text, addSpecial, g.countedTokens())
			if g.echo {
				p.text = in.text
			}
		case g.echo:
			p.text, err = h.gen.Detokenize(g.model.Name, in.ids)
		}
		if err != nil {
			return g.tooLong(err, "prompt")
		}
		prompts[i] = p
	}
	if err := g.setPrompts(prompts, f.byDefault, "prompt"); err != nil {
		return err
	}
	if err := g.compile(r.Context(), form); err != nil {
		return err
	}
	g.finishParams(w)
	release() // an answer may take long, and needs no body
	return g.serve(w, r)
}

// input is a prompt as it was sent: text, or ids when they are not nil.
type input struct {
	text string
	ids  []int32
}

// readPrompts reads a string, an array of strings, an array of token ids or an array of those.
func readPrompts(o *object, vocab int) []input {
	v := o.take("prompt", "a string or an array", '"', '[')
	if v == nil {
		if !o.has("prompt") {
			o.fail("prompt", "is missing")
		}
		return nil
	}
	if v.Kind() == '"' {
		return []input{{text: text(v)}}
	}
	var all []input
	var kind jsontext.Kind
	for i, e := range elements(v) {
		name := fmt.Sprintf("prompt[%d]", i)
		switch {
		case i == 0:
			kind = e.Kind()
		case e.Kind() != kind:
			o.fail(name, "want %s like the elements before, not %s", kindName(kind), kindName(e.Kind()))
			return nil
		case i == maxPrompts:
			o.fail("prompt", "more than %d prompts", maxPrompts)
			return nil
		}
		switch kind {
		case '0':
			return []input{{ids: o.tokenIDs("prompt", v, vocab)}}
		case '"':
			all = append(all, input{text: text(e)})
		case '[':
			ids := o.tokenIDs(name, e, vocab)
			if len(ids) == 0 {
				o.fail(name, "is empty")
				return nil
			}
			all = append(all, input{ids: ids})
		default:
			o.fail(name, "want a string, a token id or an array of token ids, not %s", kindName(kind))
			return nil
		}
	}
	if len(all) == 0 {
		o.fail("prompt", "is empty")
	}
	return all
}

// Objects of completions, whole and streamed.
type (
	completion struct {
		head
		Choices []completionChoice `json:"choices"`
		Usage   *usage             `json:"usage,omitzero"`
	}
	completionChoice struct {
		Index          int             `json:"index"`
		Text           string          `json:"text"`
		Logprobs       *legacyLogprobs `json:"logprobs"`
		FinishReason   *string         `json:"finish_reason"`
		StopReason     any             `json:"stop_reason"`
		TokenIDs       []int32         `json:"token_ids,omitzero"`
		PromptTokenIDs []int32         `json:"prompt_token_ids,omitzero"`
		PromptLogprobs []pairs         `json:"prompt_logprobs,omitzero"`
	}
)

// completionShape makes completion objects of a generation.
type completionShape struct{}

func (s completionShape) whole(g *generation) any {
	out := completion{head: g.head("text_completion"), Usage: g.usage()}
	for i := range g.choices {
		c := &g.choices[i]
		choice := s.choice(g, c, c.text.String(), c.tokens)
		choice.FinishReason, choice.StopReason = finishReason(c, true), c.stopReason
		if g.promptLogprobs != nil {
			choice.PromptLogprobs = g.spell.prompt(c.prompt.scores, *g.promptLogprobs)
		}
		out.Choices = append(out.Choices, choice)
	}
	return out
}

func (s completionShape) chunks(g *generation, c *choice, grown []piece, tokens []engine.Token, end bool) []any {
	choice := completionChoice{Index: c.index}
	text := ""
	for _, p := range grown {
		text += p.text
	}
	switch {
	case end:
		choice.FinishReason, choice.StopReason = finishReason(c, true), c.stopReason
	case text == "" && len(tokens) == 0 && !g.echo && !g.returnIDs:
		return nil // begun, with nothing to show
	default:
		choice = s.choice(g, c, text, tokens)
	}
	return []any{completion{head: g.head("text_completion"), Choices: []completionChoice{choice}, Usage: g.chunkUsage()}}
}

// choice holds a piece of a choice, with the echoed prompt if it is the first.
func (completionShape) choice(g *generation, c *choice, text string, tokens []engine.Token) completionChoice {
	out := completionChoice{Index: c.index, Text: text, TokenIDs: g.tokenIDs(tokens)}
	first := !c.begun
	if g.logprobs != nil {
		out.Logprobs = &legacyLogprobs{}
		if first && g.echo {
			c.cursor.next(c.prompt.text)
			g.spell.legacy(out.Logprobs, c.prompt.scores, *g.logprobs, &c.cursor)
		}
		c.cursor.next(text)
		g.spell.legacy(out.Logprobs, tokens, *g.logprobs, &c.cursor)
	}
	if first {
		out.PromptTokenIDs = g.promptIDs(c.prompt)
		if g.echo {
			out.Text = c.prompt.text + text
		}
	}
	return out
}

func (completionShape) usage(g *generation) any {
	return completion{head: g.head("text_completion"), Choices: []completionChoice{}, Usage: g.usage()}
}
