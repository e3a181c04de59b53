package api

import (
	"encoding/json/jsontext"
	"net/http"
	"strconv"
	"strings"

	"github.com/openinfer-go/openinfer/engine"
)

// responseShape makes the objects of /v1/responses. One serves one reply.
type responseShape struct {
	id, token, model string
	created          int64
	echo             map[string]jsontext.Value // fields of the request that an answer repeats
	tools            map[string]responseTool
	sealed           bool // reasoning goes back and forth in encrypted_content

	sequence int
	output   []any // items that are whole
	open     item  // the one that is being sent
}

// item is a piece of output that is being made.
type item struct {
	kind  string // "": none
	id    string
	text  strings.Builder
	score []chatLogprob
	call  call
}

// repeated are fields of a request that its response has, too, and what they are when they were left out.
var repeated = []struct{ field, byDefault string }{
	{"instructions", "null"}, {"max_output_tokens", "null"}, {"metadata", "{}"}, {"parallel_tool_calls", "true"}, {"reasoning", `{"effort":null,"summary":null}`},
	{"temperature", "null"}, {"text", `{"format":{"type":"text"}}`}, {"tool_choice", `"auto"`}, {"tools", "[]"}, {"top_p", "null"},
	{"truncation", `"disabled"`}, {"user", "null"}, {"service_tier", `"default"`}, {"prompt_cache_key", "null"}, {"safety_identifier", "null"}, {"max_tool_calls", "null"},
}

// object is the response as it stands.
func (s *responseShape) object(status string, output []any, usage, incomplete, failure any) pairs {
	if output == nil {
		output = []any{}
	}
	out := pairs{{"id", s.id}, {"object", "response"}, {"created_at", s.created}, {"status", status}, {"background", false}, {"error", failure},
		{"incomplete_details", incomplete}, {"model", s.model}, {"output", output}, {"previous_response_id", nil}, {"store", false}, {"usage", usage}}
	for _, r := range repeated {
		v := jsontext.Value(r.byDefault)
		if given := s.echo[r.field]; given != nil {
			v = given
		}
		out = append(out, pair{r.field, v})
	}
	return out
}

// final is the response at its end.
func (s *responseShape) final(g *generation, output []any) (status string, response pairs) {
	u, c := g.usage(), &g.choices[0]
	reasoned := 0
	if u.CompletionDetails != nil {
		reasoned = u.CompletionDetails.Reasoning
	}
	usage := pairs{{"input_tokens", u.Prompt}, {"input_tokens_details", pairs{{"cached_tokens", u.Details.Cached}, {"cache_write_tokens", 0}}},
		{"output_tokens", u.Completion}, {"output_tokens_details", pairs{{"reasoning_tokens", reasoned}}}, {"total_tokens", u.Total}}
	if c.finish == engine.FinishLength {
		return "incomplete", s.object("incomplete", output, usage, pairs{{"reason", "max_output_tokens"}}, nil)
	}
	return "completed", s.object("completed", output, usage, nil, nil)
}

// failed is the event of a stream that failed.
func (s *responseShape) failed(_ *reply, e *apiError) any {
	code := "server_error"
	switch {
	case e.status == http.StatusTooManyRequests:
		code = "rate_limit_exceeded"
	case e.status < 500 && e.code != "":
		code = e.code
	case e.status < 500:
		code = "invalid_prompt"
	}
	return s.event("response.failed", pair{"response", s.object("failed", s.output, nil, nil, pairs{{"code", code}, {"message", e.message}})})
}

func (s *responseShape) event(name string, members ...pair) event {
	e := event{name, append(pairs{{"type", name}, {"sequence_number", s.sequence}}, members...)}
	s.sequence++
	return e
}

// itemID is an id for the next item.
func (s *responseShape) itemID(prefix string) string {
	return prefix + s.token + strconv.Itoa(len(s.output))
}

func (s *responseShape) reasoningItem(id, text string) pairs {
	out := pairs{{"type", "reasoning"}, {"id", id}, {"summary", []any{}}, {"content", []any{}}}
	if text != "" {
		out[3].value = []any{pairs{{"type", "reasoning_text"}, {"text", text}}}
	}
	if s.sealed {
		out = append(out, pair{"encrypted_content", seal(text)})
	}
	return out
}

func messageItem(id, status string, content ...any) pairs {
	if content == nil {
		content = []any{}
	}
	return pairs{{"type", "message"}, {"id", id}, {"status", status}, {"role", "assistant"}, {"content", content}}
}

// callItem is an item of a call, by the name and of the kind that the client gave the tool.
func (s *responseShape) callItem(id, status string, c call) pairs {
	tool, ok := s.tools[c.name]
	if !ok {
		tool.name = c.name
	}
	out := pairs{{"type", "function_call"}, {"id", id}, {"call_id", c.id}, {"name", tool.name}, {"arguments", c.arguments}}
	if status != "in_progress" {
		out[4].value = c.text()
	}
	if c.custom {
		out[0].value, out[4] = "custom_tool_call", pair{"input", c.arguments}
	}
	if tool.namespace != "" {
		out = append(out, pair{"namespace", tool.namespace})
	}
	return append(out, pair{"status", status})
}

// callPrefix is what the id of a call's item begins with.
func callPrefix(c call) string {
	if c.custom {
		return "ctc_"
	}
	return "fc_"
}

func outputText(text string, scores []chatLogprob) pairs {
	if scores == nil {
		scores = []chatLogprob{}
	}
	return pairs{{"type", "output_text"}, {"text", text}, {"annotations", []any{}}, {"logprobs", scores}}
}

// ending is the status of the last item of an answer.
func ending(c *choice) string {
	if c.finish == engine.FinishLength {
		return "incomplete"
	}
	return "completed"
}

func (s *responseShape) whole(g *generation) any {
	c := &g.choices[0]
	if r := c.reasoning.String(); r != "" {
		s.output = append(s.output, s.reasoningItem(s.itemID("rs_"), r))
	}
	if t := c.text.String(); t != "" {
		s.output = append(s.output, messageItem(s.itemID("msg_"), ending(c), outputText(t, s.scores(g, c.tokens))))
	}
	for _, call := range c.calls {
		s.output = append(s.output, s.callItem(s.itemID(callPrefix(call)), "completed", call))
	}
	_, out := s.final(g, s.output)
	return out
}

func (s *responseShape) scores(g *generation, tokens []engine.Token) []chatLogprob {
	if g.logprobs == nil {
		return nil
	}
	return g.spell.chat(tokens, *g.logprobs).Content
}

func (s *responseShape) chunks(g *generation, c *choice, grown []piece, tokens []engine.Token, end bool) []any {
	var out []any
	if !c.begun {
		begun := s.object("in_progress", nil, nil, nil, nil)
		out = append(out, s.event("response.created", pair{"response", begun}), s.event("response.in_progress", pair{"response", begun}))
	}
	out = s.grow(out, grown, s.scores(g, tokens))
	if end {
		out = s.close(out, ending(c))
		status, response := s.final(g, s.output)
		out = append(out, s.event("response."+status, pair{"response", response}))
	}
	return out
}

// grow adds the events of what an answer grew by.
func (s *responseShape) grow(out []any, pieces []piece, scores []chatLogprob) []any {
	for _, p := range pieces {
		switch p.kind {
		case reasoningPiece:
			out = s.begin(out, "reasoning", "rs_")
			s.open.text.WriteString(p.text)
			out = append(out, s.event("response.reasoning_text.delta", s.place(true, pair{"delta", p.text})...))
		case contentPiece:
			out = s.begin(out, "message", "msg_")
			s.open.text.WriteString(p.text)
			s.open.score = append(s.open.score, scores...)
			if scores == nil {
				scores = []chatLogprob{}
			}
			out = append(out, s.event("response.output_text.delta", s.place(true, pair{"delta", p.text}, pair{"logprobs", scores})...))
			scores = nil
		case callPiece:
			out = s.close(out, "completed")
			s.open.kind, s.open.id, s.open.call = "call", s.itemID(callPrefix(p.call)), p.call
			out = append(out, s.event("response.output_item.added", pair{"output_index", len(s.output)}, pair{"item", s.callItem(s.open.id, "in_progress", p.call)}))
		case argumentsPiece:
			s.open.text.WriteString(p.text)
			name := "response.function_call_arguments.delta"
			if s.open.call.custom {
				name = "response.custom_tool_call_input.delta"
			}
			out = append(out, s.event(name, s.place(false, pair{"delta", p.text})...))
		}
	}
	return out
}

// place says which item, and which part of it, an event is of.
func (s *responseShape) place(part bool, members ...pair) []pair {
	at := []pair{{"item_id", s.open.id}, {"output_index", len(s.output)}}
	if part {
		at = append(at, pair{"content_index", 0})
	}
	return append(at, members...)
}

// begin opens an item of a kind, unless one is open.
func (s *responseShape) begin(out []any, kind, prefix string) []any {
	if s.open.kind == kind {
		return out
	}
	out = s.close(out, "completed")
	s.open.kind, s.open.id = kind, s.itemID(prefix)
	item, part := messageItem(s.open.id, "in_progress"), outputText("", nil)
	if kind == "reasoning" {
		item, part = s.reasoningItem(s.open.id, ""), pairs{{"type", "reasoning_text"}, {"text", ""}}
	}
	return append(out, s.event("response.output_item.added", pair{"output_index", len(s.output)}, pair{"item", item}),
		s.event("response.content_part.added", s.place(true, pair{"part", part})...))
}

// close ends the item that is open.
func (s *responseShape) close(out []any, status string) []any {
	text := s.open.text.String()
	var whole, part pairs
	switch s.open.kind {
	case "":
		return out
	case "reasoning":
		whole, part = s.reasoningItem(s.open.id, text), pairs{{"type", "reasoning_text"}, {"text", text}}
		out = append(out, s.event("response.reasoning_text.done", s.place(true, pair{"text", text})...))
	case "call":
		c := s.open.call
		c.arguments = text
		whole := s.callItem(s.open.id, status, c)
		if c.custom {
			out = append(out, s.event("response.custom_tool_call_input.done", s.place(false, pair{"input", text})...))
		} else {
			out = append(out, s.event("response.function_call_arguments.done", s.place(false, pair{"name", whole[3].value}, pair{"arguments", c.text()})...))
		}
		return s.closed(out, whole)
	case "message":
		part = outputText(text, s.open.score)
		whole = messageItem(s.open.id, status, part)
		out = append(out, s.event("response.output_text.done", s.place(true, pair{"text", text}, pair{"logprobs", part[3].value})...))
	}
	out = append(out, s.event("response.content_part.done", s.place(true, pair{"part", part})...))
	return s.closed(out, whole)
}

// closed ends the item that is open, whole as it is.
func (s *responseShape) closed(out []any, whole pairs) []any {
	out = append(out, s.event("response.output_item.done", pair{"output_index", len(s.output)}, pair{"item", whole}))
	s.output = append(s.output, whole)
	s.open = item{}
	return out
}

func (s *responseShape) usage(*generation) any { return nil }
