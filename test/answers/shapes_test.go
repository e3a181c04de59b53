package answers

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
)

// meaning is an answer whose arguments are compared by what they mean: shapes write them as objects or as text. How an answer ended has other names
// in each.
func (g got) meaning() got {
	m := got{content: g.content, reasoning: g.reasoning}
	for _, c := range g.calls {
		var args any
		if err := json.Unmarshal([]byte(c.args), &args); err != nil {
			args = err.Error()
		}
		b, _ := json.Marshal(args)
		m.calls = append(m.calls, gotCall{c.name, string(b)})
	}
	return m
}

// shapes compares the answers of the other APIs, streamed and not, with that of chat.
func (s *session) shapes(chat got) {
	s.t.Helper()
	for what, got := range map[string]got{
		"messages": s.messages(false), "messages, streamed": s.messages(true), "responses": s.responses(false), "responses, streamed": s.responses(true),
	} {
		if g, want := got.meaning(), chat.meaning(); !reflect.DeepEqual(g, want) {
			s.t.Errorf("%s:\n%s %q\nchat %q", s.what, what, g, want)
		}
	}
}

// tools are the tools in another shape.
func tools(each func(name string, parameters json.RawMessage) any) string {
	var list []struct {
		Function struct {
			Name       string          `json:"name"`
			Parameters json.RawMessage `json:"parameters"`
		} `json:"function"`
	}
	if err := json.Unmarshal([]byte(toolsJSON), &list); err != nil {
		panic(err)
	}
	var out []any
	for _, t := range list {
		if t.Function.Parameters == nil {
			t.Function.Parameters = json.RawMessage(`{"type":"object"}`)
		}
		out = append(out, each(t.Function.Name, t.Function.Parameters))
	}
	b, err := json.Marshal(out)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// events are the events of a stream.
func events[T any](s *session, text string) []T {
	s.t.Helper()
	var all []T
	for line := range strings.Lines(text) {
		if data, ok := strings.CutPrefix(line, "data: "); ok {
			var e T
			if err := json.Unmarshal([]byte(data), &e); err != nil {
				s.t.Fatalf("%s: %v in %s", s.what, err, data)
			}
			all = append(all, e)
		}
	}
	return all
}

type block struct {
	Type, Text, Thinking, Name string
	Input                      json.RawMessage
}

func (g *got) block(b block) {
	switch b.Type {
	case "text":
		g.content += b.Text
	case "thinking":
		g.reasoning += b.Thinking
	case "tool_use":
		g.calls = append(g.calls, gotCall{b.Name, string(b.Input)})
	}
}

// messages asks /v1/messages.
func (s *session) messages(stream bool) (g got) {
	s.t.Helper()
	text := s.post("/v1/messages", fmt.Sprintf(`{"model":"M","messages":[{"role":"user","content":"hi"}],"tools":%s,"max_tokens":4000,"thinking":{"type":"enabled","budget_tokens":2000},"stream":%t}`,
		tools(func(name string, p json.RawMessage) any { return map[string]any{"name": name, "input_schema": p} }), stream))
	if !stream {
		var m struct{ Content []block }
		if err := json.Unmarshal([]byte(text), &m); err != nil {
			s.t.Fatalf("%s: %v in %s", s.what, err, text)
		}
		for _, b := range m.Content {
			g.block(b)
		}
		return g
	}
	for _, e := range events[struct {
		Type  string
		Block block `json:"content_block"`
		Delta struct {
			Text, Thinking string
			JSON           string `json:"partial_json"`
		}
	}](s, text) {
		switch e.Type {
		case "content_block_start":
			if e.Block.Type == "tool_use" {
				e.Block.Input = nil
			}
			g.block(e.Block)
		case "content_block_delta":
			g.content += e.Delta.Text
			g.reasoning += e.Delta.Thinking
			if e.Delta.JSON != "" {
				g.calls[len(g.calls)-1].args += e.Delta.JSON
			}
		case "content_block_stop":
			if n := len(g.calls); n > 0 && g.calls[n-1].args == "" { // which clients take for an empty object
				g.calls[n-1].args = "{}"
			}
		}
	}
	return g
}

type item struct {
	Type, Name, Arguments string
	Content               []struct{ Text string }
}

func (g *got) item(i item) {
	text := ""
	for _, c := range i.Content {
		text += c.Text
	}
	switch i.Type {
	case "message":
		g.content += text
	case "reasoning":
		g.reasoning += text
	case "function_call":
		g.calls = append(g.calls, gotCall{i.Name, i.Arguments})
	}
}

// responses asks /v1/responses; what a stream's deltas add up to is what its items and its end have.
func (s *session) responses(stream bool) (g got) {
	s.t.Helper()
	text := s.post("/v1/responses", fmt.Sprintf(`{"model":"M","input":"hi","tools":%s,"max_output_tokens":4000,"stream":%t}`,
		tools(func(name string, p json.RawMessage) any {
			return map[string]any{"type": "function", "name": name, "parameters": p}
		}), stream))
	type response struct{ Output []item }
	if !stream {
		var r response
		if err := json.Unmarshal([]byte(text), &r); err != nil {
			s.t.Fatalf("%s: %v in %s", s.what, err, text)
		}
		for _, i := range r.Output {
			g.item(i)
		}
		return g
	}
	var deltas, items got
	for _, e := range events[struct {
		Type, Delta string
		Item        item
		Response    response
	}](s, text) {
		switch e.Type {
		case "response.output_item.added":
			if e.Item.Type == "function_call" {
				deltas.item(e.Item)
			}
		case "response.output_text.delta":
			deltas.content += e.Delta
		case "response.reasoning_text.delta":
			deltas.reasoning += e.Delta
		case "response.function_call_arguments.delta":
			deltas.calls[len(deltas.calls)-1].args += e.Delta
		case "response.output_item.done":
			items.item(e.Item)
		case "response.completed":
			for _, i := range e.Response.Output {
				g.item(i)
			}
		}
	}
	for i := range deltas.calls {
		if deltas.calls[i].args == "" {
			deltas.calls[i].args = "{}"
		}
	}
	if !reflect.DeepEqual(items, g) || !reflect.DeepEqual(deltas, g) {
		s.t.Errorf("%s:\ndeltas %q\nitems  %q\nend    %q", s.what, deltas, items, g)
	}
	return g
}
