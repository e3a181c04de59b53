package api

import (
	"encoding/json"
	"encoding/json/jsontext"
	"net/http"

	"github.com/openinfer-go/openinfer/engine"
)

// chat answers POST /v1/chat/completions.
func (h *Handler) chat(w *reply, r *http.Request) error {
	o, release, err := h.readRequest(w, r)
	if err != nil {
		return err
	}
	defer release()
	return h.converse(w, r, o, release, form{id: "chatcmpl-", shape: chatShape{}})
}

// converse answers a request of chat in an endpoint's form.
func (h *Handler) converse(w *reply, r *http.Request, o *object, release func(), f form) error {
	g, err := h.newGeneration(w, r, o, f)
	if err != nil {
		return err
	}
	refuse(o, refusals, chatRefusals)
	g.params = readParams(o, g.model, 1)
	g.service = readService(o, r.Header)
	if withLogprobs := o.bool("logprobs", false); withLogprobs {
		g.logprobs = new(int)
	}
	if n := o.integer("top_logprobs", 0, maxLogprobs); n != nil {
		switch {
		case g.logprobs != nil:
			*g.logprobs = int(*n)
		case *n > 0:
			o.fail("top_logprobs", "needs logprobs to be true")
		}
	}
	showReasoning := o.bool("include_reasoning", true)
	conversation, tools := readChatPrompt(o)
	form := readStructured(o)
	if err := o.failure(); err != nil {
		return err
	}
	if err := g.readCalls(tools); err != nil {
		return err
	}
	if err := h.gen.Admit(g.probe(w, g.n)); err != nil {
		return err
	}
	conversation.MaxTokens = g.countedTokens()
	rendered, err := h.gen.RenderChat(g.model.Name, conversation)
	if err != nil {
		return g.tooLong(err, "messages")
	}
	if err := g.setPrompts([]prompt{{ids: rendered.IDs}}, 0, "messages"); err != nil {
		return err
	}
	g.reasoning, g.inReasoning, g.continued = g.model.Reasoning, rendered.InReasoning, conversation.ContinueFinal
	g.hideReasoning = !showReasoning
	if err := g.constrain(r.Context(), form); err != nil {
		return err
	}
	g.finishParams(w)
	release() // an answer may take long, and needs no body
	return g.serve(w, r)
}

// readChatPrompt reads what a chat template gets, for chat and /tokenize.
func readChatPrompt(o *object) (engine.ChatPrompt, toolset) {
	tools := readTools(o)
	p := engine.ChatPrompt{
		Messages:      json.RawMessage(checkMessages(o)),
		ContinueFinal: o.bool("continue_final_message", false),
		Tools:         json.RawMessage(tools.shown),
	}
	p.AddGenerationPrompt = o.bool("add_generation_prompt", !p.ContinueFinal)
	if p.ContinueFinal && p.AddGenerationPrompt {
		o.fail("continue_final_message", "excludes add_generation_prompt")
	}
	kwargs := o.take("chat_template_kwargs", "an object", '{')
	if o.string("reasoning_effort") != "" {
		kwargs = withMember(kwargs, "reasoning_effort", o.fields["reasoning_effort"])
	}
	p.Kwargs = json.RawMessage(kwargs)
	return p, tools
}

// withMember adds a member to a JSON object, or nil, that has none of that name.
func withMember(raw jsontext.Value, name string, value jsontext.Value) jsontext.Value {
	if raw == nil {
		raw = jsontext.Value("{}")
	}
	o, err := readObject(raw, "chat_template_kwargs.")
	if err != nil || o.has(name) {
		return raw
	}
	out := append(jsontext.Value(`{"`+name+`":`), value...)
	if raw = raw.Clone(); raw.Compact() == nil && len(raw) > len("{}") {
		out = append(out, ',')
	}
	return append(out, raw[1:]...)
}

// Objects of chat answers.
type (
	chatCompletion struct {
		head
		Choices        []chatChoice `json:"choices"`
		Usage          *usage       `json:"usage"`
		PromptLogprobs []pairs      `json:"prompt_logprobs,omitzero"`
		PromptTokenIDs []int32      `json:"prompt_token_ids,omitzero"`
	}
	chatChoice struct {
		Index        int           `json:"index"`
		Message      chatMessage   `json:"message"`
		Logprobs     *chatLogprobs `json:"logprobs"`
		FinishReason *string       `json:"finish_reason"`
		StopReason   any           `json:"stop_reason"`
		TokenIDs     []int32       `json:"token_ids,omitzero"`
	}
	chatMessage struct {
		Role      string     `json:"role"`
		Content   *string    `json:"content"` // null beside calls, if there is none
		Reasoning *string    `json:"reasoning_content"`
		Refusal   *string    `json:"refusal"`
		ToolCalls []toolCall `json:"tool_calls,omitzero"`
	}
	chatChunk struct {
		head
		Choices        []chatDelta `json:"choices"`
		Usage          *usage      `json:"usage,omitzero"`
		PromptTokenIDs []int32     `json:"prompt_token_ids,omitzero"`
	}
	chatDelta struct {
		Index        int           `json:"index"`
		Delta        delta         `json:"delta"`
		Logprobs     *chatLogprobs `json:"logprobs"`
		FinishReason *string       `json:"finish_reason"`
		StopReason   any           `json:"stop_reason,omitzero"`
		TokenIDs     []int32       `json:"token_ids,omitzero"`
	}
	delta struct {
		Role      string          `json:"role,omitzero"`
		Content   *string         `json:"content,omitzero"`
		Reasoning *string         `json:"reasoning_content,omitzero"`
		ToolCalls []toolCallDelta `json:"tool_calls,omitzero"`
	}
	// toolCallDelta is the beginning of a call, with its id and name, or more of its arguments.
	toolCallDelta struct {
		Index int `json:"index"`
		toolCall
	}
	toolCall struct {
		ID       string         `json:"id,omitzero"`
		Type     string         `json:"type,omitzero"`
		Function *functionDelta `json:"function,omitzero"`
		Custom   *customDelta   `json:"custom,omitzero"`
	}
	functionDelta struct {
		Name      string `json:"name,omitzero"`
		Arguments string `json:"arguments"`
	}
	customDelta struct {
		Name  string `json:"name,omitzero"`
		Input string `json:"input"`
	}
)

// chatCall is a call, or with name "" more of its arguments, as chat writes it.
func chatCall(c call) toolCall {
	out := toolCall{ID: c.id}
	if c.custom {
		out.Custom = &customDelta{c.name, c.arguments}
	} else {
		out.Function = &functionDelta{c.name, c.arguments}
	}
	switch {
	case c.name == "":
	case c.custom:
		out.Type = "custom"
	default:
		out.Type = "function"
	}
	return out
}

// head is what whole answers and chunks begin with.
type head struct {
	ID          string `json:"id"`
	Object      string `json:"object"`
	Created     int64  `json:"created"`
	Model       string `json:"model"`
	Fingerprint string `json:"system_fingerprint"`
}

func (g *generation) head(object string) head {
	fingerprint := g.h.fingerprint
	if g.model.Simulated != "" {
		fingerprint += "_simulated"
	}
	return head{g.id, object, g.created, g.model.Name, fingerprint}
}

// chatShape makes chat objects of a generation.
type chatShape struct{}

func (chatShape) whole(g *generation) any {
	p := &g.prompts[0]
	out := chatCompletion{head: g.head("chat.completion"), Usage: g.usage(), PromptTokenIDs: g.promptIDs(p)}
	if g.promptLogprobs != nil {
		out.PromptLogprobs = g.spell.prompt(p.scores, *g.promptLogprobs)
	}
	for i := range g.choices {
		c := &g.choices[i]
		choice := chatChoice{
			Index: c.index, Message: chatMessage{Role: "assistant"},
			FinishReason: finishReason(c, true), StopReason: c.stopReason, TokenIDs: g.tokenIDs(c.tokens),
		}
		for _, call := range c.calls {
			choice.Message.ToolCalls = append(choice.Message.ToolCalls, chatCall(call))
		}
		if content := c.text.String(); content != "" || len(c.calls) == 0 {
			choice.Message.Content = &content
		}
		if r := c.reasoning.String(); r != "" {
			choice.Message.Reasoning = &r
		}
		if g.logprobs != nil {
			choice.Logprobs = g.spell.chat(c.tokens, *g.logprobs)
		}
		out.Choices = append(out.Choices, choice)
	}
	return out
}

// chunks holds reasoning, content and calls apart: a chunk has one of them. All tokens go with the first.
func (s chatShape) chunks(g *generation, c *choice, grown []piece, tokens []engine.Token, end bool) []any {
	var out []any
	if !c.begun && !end {
		first := s.chunk(g, chatDelta{Index: c.index, Delta: delta{Role: "assistant", Content: new(string)}})
		first.PromptTokenIDs = g.promptIDs(c.prompt)
		out = append(out, first)
	}
	if end {
		return append(out, s.chunk(g, chatDelta{Index: c.index, FinishReason: finishReason(c, true), StopReason: c.stopReason}))
	}
	if g.logprobs == nil && !g.returnIDs {
		tokens = nil
	}
	if len(grown) == 0 && len(tokens) > 0 {
		grown = []piece{{}}
		if c.answer.Reasoning() && !g.hideReasoning {
			grown[0].kind = reasoningPiece
		}
	}
	for _, p := range grown {
		d := chatDelta{Index: c.index, TokenIDs: g.tokenIDs(tokens)}
		switch p.kind {
		case reasoningPiece:
			d.Delta.Reasoning = &p.text
		case contentPiece:
			d.Delta.Content = &p.text
		case callPiece:
			c.sent++
			c.sending = p.call.custom
			d.Delta.ToolCalls = []toolCallDelta{{c.sent - 1, chatCall(p.call)}}
		case argumentsPiece:
			d.Delta.ToolCalls = []toolCallDelta{{c.sent - 1, chatCall(call{arguments: p.text, custom: c.sending})}}
		}
		if len(tokens) > 0 && g.logprobs != nil {
			d.Logprobs = g.spell.chat(tokens, *g.logprobs)
		}
		out, tokens = append(out, s.chunk(g, d)), nil
	}
	return out
}

func (chatShape) chunk(g *generation, d chatDelta) *chatChunk {
	return &chatChunk{head: g.head("chat.completion.chunk"), Choices: []chatDelta{d}, Usage: g.chunkUsage()}
}

func (chatShape) usage(g *generation) any {
	return chatChunk{head: g.head("chat.completion.chunk"), Choices: []chatDelta{}, Usage: g.usage()}
}
