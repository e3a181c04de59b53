package api

import (
	"encoding/json/jsontext"

	"github.com/openinfer-go/openinfer/engine"
)

// signature stands where Anthropic signs a block of thinking: clients send only signed ones back.
const signature = "unsigned"

// Objects of messages.
type (
	anthropicMessage struct {
		ID           string           `json:"id"`
		Type         string           `json:"type"`
		Role         string           `json:"role"`
		Model        string           `json:"model"`
		Content      []anthropicBlock `json:"content"`
		StopReason   *string          `json:"stop_reason"`
		StopSequence *string          `json:"stop_sequence"`
		Usage        anthropicUsage   `json:"usage"`
	}
	// anthropicBlock has the fields of its type.
	anthropicBlock struct {
		Type      string         `json:"type"`
		Text      *string        `json:"text,omitzero"`
		Thinking  *string        `json:"thinking,omitzero"`
		Signature *string        `json:"signature,omitzero"`
		ID        string         `json:"id,omitzero"`
		Name      string         `json:"name,omitzero"`
		Input     jsontext.Value `json:"input,omitzero"`
	}
	// anthropicUsage counts tokens; those of a prompt that were found in the prefix cache are counted apart.
	anthropicUsage struct {
		Input         int `json:"input_tokens"`
		CacheCreation int `json:"cache_creation_input_tokens"`
		CacheRead     int `json:"cache_read_input_tokens"`
		Output        int `json:"output_tokens"`
	}
)

func textBlock(s string) anthropicBlock { return anthropicBlock{Type: "text", Text: &s} }

func thinkingBlock(s, signed string) anthropicBlock {
	return anthropicBlock{Type: "thinking", Thinking: &s, Signature: &signed}
}

// messageShape makes messages of a generation. One serves one stream.
type messageShape struct {
	thinking bool   // shown
	open     string // the type of the block that is being sent; "": none
	index    int    // its
	called   bool   // a tool
}

func (s *messageShape) message(g *generation) anthropicMessage {
	return anthropicMessage{ID: g.id, Type: "message", Role: "assistant", Model: g.model.Name, Content: []anthropicBlock{}, Usage: newAnthropicUsage(g)}
}

func newAnthropicUsage(g *generation) anthropicUsage {
	u := g.usage()
	return anthropicUsage{Input: u.Prompt - u.Details.Cached, CacheRead: u.Details.Cached, Output: u.Completion}
}

// stopped is why an answer ended, and at which stop sequence.
func (s *messageShape) stopped(g *generation, c *choice) (reason string, sequence *string) {
	if stop, ok := c.stopReason.(string); ok {
		return "stop_sequence", &stop
	}
	switch {
	case c.finish == engine.FinishLength && c.usage.Completion < g.maxTokens:
		return "model_context_window_exceeded", nil
	case c.finish == engine.FinishLength:
		return "max_tokens", nil
	case s.called:
		return "tool_use", nil
	}
	return "end_turn", nil
}

func (s *messageShape) whole(g *generation) any {
	c := &g.choices[0]
	out := s.message(g)
	out.Content = s.blocks(c.reasoning.String(), c.text.String(), c.calls)
	reason, sequence := s.stopped(g, c)
	out.StopReason, out.StopSequence = &reason, sequence
	return out
}

// blocks are an answer's content.
func (s *messageShape) blocks(reasoning, text string, calls []call) []anthropicBlock {
	out := []anthropicBlock{}
	if reasoning != "" {
		out = append(out, thinkingBlock(reasoning, signature))
	}
	if text != "" {
		out = append(out, textBlock(text))
	}
	for _, c := range calls {
		input, ok := c.object()
		if !ok { // cut off: there is no input to show, and max_tokens says why
			input = jsontext.Value("{}")
		}
		out = append(out, anthropicBlock{Type: "tool_use", ID: c.id, Name: c.name, Input: input})
		s.called = true
	}
	return out
}

// Events of a stream, in the order of their names' appearance.
func anthropicEvent(name string, members ...pair) event {
	return event{name, append(pairs{{"type", name}}, members...)}
}

func (s *messageShape) chunks(g *generation, c *choice, grown []piece, _ []engine.Token, end bool) []any {
	var out []any
	if !c.begun {
		out = append(out, anthropicEvent("message_start", pair{"message", s.message(g)}))
	}
	out = s.grow(out, grown)
	if end {
		out = s.stop(out)
		reason, sequence := s.stopped(g, c)
		out = append(out,
			anthropicEvent("message_delta", pair{"delta", pairs{{"stop_reason", reason}, {"stop_sequence", sequence}}}, pair{"usage", newAnthropicUsage(g)}),
			anthropicEvent("message_stop"))
	}
	return out
}

// grow adds the events of what an answer grew by.
func (s *messageShape) grow(out []any, pieces []piece) []any {
	for _, p := range pieces {
		switch p.kind {
		case reasoningPiece:
			out = s.begin(out, "thinking", thinkingBlock("", ""))
			out = append(out, s.delta("thinking_delta", "thinking", p.text))
		case contentPiece:
			out = s.begin(out, "text", textBlock(""))
			out = append(out, s.delta("text_delta", "text", p.text))
		case callPiece:
			out = s.stop(out)
			out = s.begin(out, "tool_use", anthropicBlock{Type: "tool_use", ID: p.call.id, Name: p.call.name, Input: jsontext.Value("{}")})
			s.called = true
		case argumentsPiece:
			out = append(out, s.delta("input_json_delta", "partial_json", p.text))
		}
	}
	return out
}

// begin opens a block of a type, unless one is open.
func (s *messageShape) begin(out []any, kind string, block anthropicBlock) []any {
	if s.open == kind {
		return out
	}
	out = s.stop(out)
	s.open = kind
	return append(out, anthropicEvent("content_block_start", pair{"index", s.index}, pair{"content_block", block}))
}

func (s *messageShape) delta(kind, field, text string) event {
	return anthropicEvent("content_block_delta", pair{"index", s.index}, pair{"delta", pairs{{"type", kind}, {field, text}}})
}

// stop closes the block that is open.
func (s *messageShape) stop(out []any) []any {
	if s.open == "" {
		return out
	}
	if s.open == "thinking" {
		out = append(out, s.delta("signature_delta", "signature", signature))
	}
	out = append(out, anthropicEvent("content_block_stop", pair{"index", s.index}))
	s.open = ""
	s.index++
	return out
}

func (s *messageShape) usage(*generation) any { return nil }
