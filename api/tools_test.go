package api

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/openinfer-go/openinfer/api/apitest"
	"github.com/openinfer-go/openinfer/engine"
)

const weatherTool = `{"type":"function","function":{"name":"weather","description":"D","parameters":{"type":"object","properties":{"city":{"type":"string"},"days":{"type":"integer"}},"required":["city"]}}}`

// caller is a generator whose model calls tools in a format.
func caller(format, text string) *apitest.Generator {
	gen := thinks(text, false, false)
	gen.Tools = engine.ToolFormat{Parser: format, Marks: []int32{apitest.Think}}
	return gen
}

// callsOf joins the calls of a stream and checks the form of their deltas.
func (x streamed) callsOf(t *testing.T, index int) (calls []any) {
	t.Helper()
	var joined []map[string]any
	for _, c := range x.chunks {
		list, ok := c.at("choices", 0, "delta", "tool_calls").([]any)
		if !ok || c.at("choices", 0, "index") != float64(index) {
			continue
		}
		if d := c.at("choices", 0, "delta").(map[string]any); len(d) != 1 || len(list) != 1 {
			t.Errorf("a delta with more than one call: %v", d)
		}
		call := list[0].(map[string]any)
		f := call["function"].(map[string]any)
		at := int(call["index"].(float64))
		if at == len(joined) { // the beginning
			if call["id"] == "" || call["type"] != "function" || f["name"] == "" || f["arguments"] != "" {
				t.Errorf("a call begins with %v", call)
			}
			joined = append(joined, map[string]any{"id": call["id"], "type": "function", "function": map[string]any{"name": f["name"], "arguments": ""}})
			continue
		}
		if at != len(joined)-1 || len(call) != 2 || len(f) != 1 || f["arguments"] == "" {
			t.Errorf("a call goes on with %v", call)
			continue
		}
		all := joined[at]["function"].(map[string]any)
		all["arguments"] = all["arguments"].(string) + f["arguments"].(string)
	}
	for _, c := range joined {
		calls = append(calls, c)
	}
	return calls
}

// withoutIDs are calls whose ids, which differ between requests, are the same.
func withoutIDs(t *testing.T, calls any) string {
	t.Helper()
	list, _ := calls.([]any)
	seen := map[any]bool{}
	var out []string
	for _, c := range list {
		m := c.(map[string]any)
		id, _ := m["id"].(string)
		if !strings.HasPrefix(id, "call_") || seen[id] {
			t.Errorf("id %q", id)
		}
		seen[id] = true
		f := m["function"].(map[string]any)
		out = append(out, fmt.Sprint(f["name"], f["arguments"]))
		if json.Unmarshal([]byte(f["arguments"].(string)), &map[string]any{}) != nil {
			t.Errorf("arguments %q", f["arguments"])
		}
	}
	return strings.Join(out, "; ")
}

func TestToolCalls(t *testing.T) {
	two := map[string]string{
		"hermes":         "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"ÜB}</tool_call>\"}}\n</tool_call>\n<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>",
		"qwen3_xml":      "<tool_call>\n<function=weather>\n<parameter=city>\nÜB}</tool_call>\n</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=now>\n</function>\n</tool_call>",
		"llama3_json":    `{"name": "weather", "parameters": {"city": "ÜB}</tool_call>"}}; {"name": "now", "parameters": {}}`,
		"phi4_mini_json": `functools[{"name": "weather", "arguments": {"city": "ÜB}</tool_call>"}}, {"name": "now", "arguments": {}}]`,
		"gemma4":         `<|tool_call>call:weather{city:<|"|>ÜB}</tool_call><|"|>}<tool_call|><|tool_call>call:now{}<tool_call|>`,
		"mistral":        `[TOOL_CALLS]weather[ARGS]{"city": "ÜB}</tool_call>"}[TOOL_CALLS]now[ARGS]{}`,
	}
	const want = `weather{"city": "ÜB}</tool_call>"}; now{}`
	for format, text := range two {
		for _, c := range []struct{ before, reasoning, content string }{{"", "", ""}, {"Let me see. ", "", "Let me see."}, {"<think>\nhm {}\n</think>\n\n", "hm {}", ""}} {
			if format == "llama3_json" && c.content != "" {
				continue // whose calls are the whole answer
			}
			s := serve(t, caller(format, c.before+text), Options{})
			for _, fields := range []string{"", `,"logprobs":true,"return_token_ids":true`, `,"parallel_tool_calls":false`} {
				body := `"tools":[` + weatherTool + `,{"type":"function","function":{"name":"now"}}],"max_tokens":999` + fields
				one := want
				if strings.Contains(fields, "parallel") {
					one, _, _ = strings.Cut(want, ";")
				}
				r := s.ok(s.post("/v1/chat/completions", chatBody(body)))
				m := r.at("choices", 0, "message").(map[string]any)
				var content, thought any
				if c.content != "" {
					content = c.content
				}
				if c.reasoning != "" {
					thought = c.reasoning
				}
				if got := withoutIDs(t, m["tool_calls"]); got != one || m["content"] != content || m["reasoning_content"] != thought || r.at("choices", 0, "finish_reason") != "tool_calls" {
					t.Errorf("%s %q%s: calls %q in %v, %v", format, c.before, fields, got, m, r.at("choices", 0, "finish_reason"))
				}
				x := s.stream(s.post("/v1/chat/completions", chatBody(body+`,"stream":true`)))
				if got := withoutIDs(t, any(x.callsOf(t, 0))); got != one || x.text[0] != c.content || x.reasoning(t, 0) != c.reasoning || x.finish[0] != "tool_calls" {
					t.Errorf("%s %q%s, streamed: calls %q, content %q, reasoning %q, %s", format, c.before, fields, got, x.text[0], x.reasoning(t, 0), x.finish[0])
				}
				if ids := r.at("choices", 0, "token_ids"); ids != nil && !reflect.DeepEqual(any(x.ids[0]), ids) {
					t.Errorf("%s: streamed token ids differ", format)
				}
			}
		}
	}
}

// TestToolCallsCutOff: what there is by then, and the limit as the reason.
func TestToolCallsCutOff(t *testing.T) {
	s := serve(t, caller("hermes", `<tool_call>{"name": "weather", "arguments": {"city": "Ulm"}}</tool_call>`), Options{})
	for _, n := range []int{5, 20, 51} {
		body := fmt.Sprintf(`"tools":[%s],"max_tokens":%d`, weatherTool, n)
		r := s.ok(s.post("/v1/chat/completions", chatBody(body)))
		x := s.stream(s.post("/v1/chat/completions", chatBody(body+`,"stream":true`)))
		calls, _ := r.at("choices", 0, "message", "tool_calls").([]any)
		if r.at("choices", 0, "finish_reason") != "length" || x.finish[0] != "length" || len(calls) != len(x.callsOf(t, 0)) || len(calls) != n/50 {
			t.Errorf("after %d tokens: %v; streamed %v, %v", n, r.v, x.callsOf(t, 0), x.finish)
		}
		if c := r.at("choices", 0, "message", "content"); c != nil && c != "" || x.text[0] != "" {
			t.Errorf("after %d tokens: content %v, streamed %q", n, c, x.text[0])
		}
	}
}

// TestCallsInReasoning: a model that forgets to end its reasoning before it calls has called all the same; one that is cut off there,
// or that ends it, has not.
func TestCallsInReasoning(t *testing.T) {
	const call = `<tool_call>{"name": "now", "arguments": {}}</tool_call>`
	for _, c := range []struct{ text, fields, calls, content, finish string }{
		{"<think>hm " + call, "", "now{}", "", "tool_calls"},
		{"<think>hm " + call, `,"max_tokens":30`, "", "", "length"},
		{"<think>hm " + call + "</think>So.", "", "", "So.", "stop"},
		{"<think>hm " + call + "</think>" + call, "", "now{}", "", "tool_calls"},
	} {
		s := serve(t, caller("hermes", c.text), Options{})
		body := `"tools":[{"type":"function","function":{"name":"now"}}]` + c.fields
		r := s.ok(s.post("/v1/chat/completions", chatBody(body)))
		x := s.stream(s.post("/v1/chat/completions", chatBody(body+`,"stream":true`)))
		m := r.at("choices", 0, "message").(map[string]any)
		content, _ := m["content"].(string)
		if withoutIDs(t, m["tool_calls"]) != c.calls || content != c.content || r.at("choices", 0, "finish_reason") != c.finish || m["reasoning_content"] == nil {
			t.Errorf("%s: %v", c.text, r.v)
		}
		if withoutIDs(t, any(x.callsOf(t, 0))) != c.calls || x.text[0] != c.content || x.finish[0] != c.finish || x.reasoning(t, 0) != m["reasoning_content"] {
			t.Errorf("%s, streamed: %v, %q, %s", c.text, x.callsOf(t, 0), x.text[0], x.finish[0])
		}
	}
}

// TestNoTools: without tools, or when none may be called, an answer that looks like a call is text.
func TestNoTools(t *testing.T) {
	const text = `<tool_call>{"name": "weather", "arguments": {}}</tool_call>`
	gen := caller("hermes", text)
	s := serve(t, gen, Options{})
	for _, fields := range []string{`"n":1`, `"tools":[]`, `"tools":[` + weatherTool + `],"tool_choice":"none"`} {
		r := s.ok(s.post("/v1/chat/completions", chatBody(fields)))
		if r.at("choices", 0, "message", "content") != text || r.at("choices", 0, "finish_reason") != "stop" {
			t.Errorf("%s: %v", fields, r.v)
		}
	}
	for _, q := range gen.Requests() {
		if len(q.Marks) != 2 { // those of reasoning
			t.Errorf("marks %v", q.Marks)
		}
	}
}

// TestToolRequests: what is wrong with tools is named, and what asks for a call in a given form is held to it.
func TestToolRequests(t *testing.T) {
	gen := caller("hermes", "x")
	s := serve(t, gen, Options{})
	f := func(fields string) string { return `"tools":[{"type":"function","function":{` + fields + `}}]` }
	for _, c := range []struct{ fields, param string }{
		{`"tools":{}`, "tools"}, {`"tools":[5]`, "tools[0]"}, {`"tools":[{}]`, "tools[0].type"}, {`"tools":[{"type":"web_search"}]`, "tools[0].type"},
		{`"tools":[{"type":"function"}]`, "tools[0].function"}, {f(``), "tools[0].function.name"}, {f(`"name":""`), "tools[0].function.name"},
		{f(`"name":"a b"`), "tools[0].function.name"}, {f(`"name":5`), "tools[0].function.name"}, {f(`"name":"f","parameters":5`), "tools[0].function.parameters"}, {f(`"name":"f","parameters":{"properties":[]}`), "tools[0].function.parameters.properties"},
		{f(`"name":"f","strict":"x"`), "tools[0].function.strict"}, {`"tools":[` + weatherTool + `,` + weatherTool + `]`, "tools[1].function.name"},
		{`"tool_choice":"required"`, "tool_choice"}, {`"tools":[` + weatherTool + `],"tool_choice":"any"`, "tool_choice"},
		{`"tools":[` + weatherTool + `],"tool_choice":{"type":"function","function":{"name":"x"}}`, "tool_choice.function.name"},
		{`"tools":[` + weatherTool + `],"tool_choice":{"type":"custom"}`, "tool_choice.custom"}, {`"tools":[` + weatherTool + `],"tool_choice":{"type":"x"}`, "tool_choice.type"}, {`"parallel_tool_calls":5`, "parallel_tool_calls"},
		{f(`"name":"f","strict":true,"parameters":{"properties":{"a":{"type":"strin"}}}`), "tools[0].function.strict"},
		{f(`"name":"f","parameters":{"properties":{"a":{"type":"strin"}}}`) + `,"tool_choice":"required"`, "tool_choice"},
		{`"tools":[` + weatherTool + `],"tool_choice":"required","response_format":{"type":"json_object"}`, "response_format"},
		{`"functions":[{"name":"f"}]`, "functions"}, {`"function_call":{"name":"f"}`, "function_call"},
	} {
		if msg := s.refused(s.post("/v1/chat/completions", chatBody(c.fields)), 400, c.param); t.Failed() {
			t.Fatalf("%s: %s", c.fields, msg)
		}
	}
	if n := len(gen.Requests()); n != 0 {
		t.Errorf("%d refused requests reached the engine", n)
	}
	for _, c := range []struct {
		fields string
		held   bool
	}{
		{`"tools":[` + weatherTool + `]`, false}, {`"tools":[` + weatherTool + `],"tool_choice":"auto"`, false},
		{`"tools":[` + weatherTool + `],"tool_choice":"required"`, true},
		{`"tools":[` + weatherTool + `],"tool_choice":{"type":"function","function":{"name":"weather"}}`, true},
		{f(`"name":"f","strict":true`), true},
	} {
		s.ok(s.post("/v1/chat/completions", chatBody(c.fields)))
		all := gen.Requests()
		if held := all[len(all)-1].Grammar != nil; held != c.held {
			t.Errorf("%s: held to a grammar: %v", c.fields, held)
		}
	}
	if msg := s.refused(s.post("/v1/chat/completions", chatBody(f(`"name":"f","parameters":{"properties":{"a":{"type":"strin"}}}`)+`,"tool_choice":"required"`)), 400, "tool_choice"); !strings.Contains(msg, "tool f: ") {
		t.Errorf("the tool is not named: %s", msg)
	}
	plain := serve(t, says("x"), Options{})
	plain.refused(plain.post("/v1/chat/completions", chatBody(`"tools":[`+weatherTool+`]`)), 400, "tools")
}

func TestAllowedTools(t *testing.T) {
	const two = `{"tools":[` + weatherTool + `,{"type":"function","function":{"name":"now"}}],"tool_choice":{"type":"allowed_tools","allowed_tools":`
	for _, c := range []struct{ choice, tools, failure string }{
		{`{"mode":"auto","tools":[{"type":"function","function":{"name":"now"}}]}`, "now", ""},
		{`{"mode":"required","tools":[{"function":{"name":"now"}},{"function":{"name":"weather"}}]}`, "weather now", ""},
		{`{"mode":"auto","tools":[{"function":{"name":"nope"}}]}`, "", "tool_choice.allowed_tools.tools[0].function.name"},
		{`{"mode":"auto","tools":[{}]}`, "", "tool_choice.allowed_tools.tools[0].function"},
		{`{"mode":"auto","tools":[]}`, "", "tool_choice.allowed_tools.tools"},
		{`{"mode":"none","tools":[{"function":{"name":"now"}}]}`, "", "tool_choice.allowed_tools.mode"},
		{`null`, "", "tool_choice.allowed_tools"},
	} {
		o, err := parseObject([]byte(two + c.choice + "}}"))
		if err != nil {
			t.Fatal(err)
		}
		s := readTools(o)
		if c.failure != "" {
			if o.err == nil || asError(o.err).param != c.failure {
				t.Errorf("%s: %v, want an error of %s", c.choice, o.err, c.failure)
			}
			continue
		}
		var names, shown []string
		for _, tool := range s.tools {
			names = append(names, tool.Name)
		}
		var raw []struct{ Function struct{ Name string } }
		if err := json.Unmarshal(s.shown, &raw); err != nil || o.err != nil {
			t.Fatalf("%s: %v %v", c.choice, err, o.err)
		}
		for _, r := range raw {
			shown = append(shown, r.Function.Name)
		}
		if got := strings.Join(names, " "); got != c.tools || strings.Join(shown, " ") != got || s.required != strings.Contains(c.choice, "required") {
			t.Errorf("%s: %q are read, %q are shown, required %v", c.choice, names, shown, s.required)
		}
	}
}

func TestMessagesToolChoiceNameIsAString(t *testing.T) {
	s := serve(t, caller("hermes", "x"), Options{})
	if a := s.post("/v1/messages/count_tokens", `{"model":"M","messages":[{"role":"user","content":"hi"}],"tool_choice":{"type":"auto","name":{}}}`); a.status != 400 || !strings.Contains(string(a.body), "tool_choice.name") {
		t.Errorf("%d %s", a.status, a.body)
	}
}
