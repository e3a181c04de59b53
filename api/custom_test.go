package api

import (
	"encoding/json/jsontext"
	"fmt"
	"strings"
	"testing"
)

// TestParametersAreOfAnObject: in every API, by its own name of the field.
func TestParametersAreOfAnObject(t *testing.T) {
	shapes := []struct{ path, param, tool string }{
		{"/v1/chat/completions", "tools[0].function.parameters", `{"type":"function","function":{"name":"f","parameters":%s}}`},
		{"/tokenize", "tools[0].function.parameters", `{"type":"function","function":{"name":"f","parameters":%s}}`},
		{"/v1/responses", "tools[1].parameters", `{"type":"web_search"},{"type":"function","name":"f","parameters":%s}`},
		{"/v1/responses", "tools[0].tools[0].parameters", `{"type":"namespace","name":"n","tools":[{"type":"function","name":"f","parameters":%s}]}`},
		{"/v1/messages", "tools[0].input_schema", `{"name":"f","input_schema":%s}`},
		{"/api/chat", "tools[0].function.parameters", `{"type":"function","function":{"name":"f","parameters":%s}}`},
	}
	gen := caller("hermes", "x")
	s := serve(t, gen, Options{})
	ask := func(path, tool, schema string) (int, string) {
		a := s.post(path, `{"model":"M","max_tokens":9,"messages":[{"role":"user","content":"hi"}],"input":"hi","tools":[`+fmt.Sprintf(tool, schema)+`]}`)
		return a.status, string(a.body)
	}
	for _, shape := range shapes {
		for _, schema := range []string{`{"type":"string"}`, `{"type":["array","null"]}`, `{"type":"array","items":{}}`, `{"enum":[1]}`, `{"const":"x"}`, `{"anyOf":[{"type":"string"},{"type":"null"}]}`,
			`{"$ref":"#/$defs/a","$defs":{"a":{"type":"integer"}}}`, `{"allOf":[{"items":{}}]}`, `true`, `false`, `[]`, `"object"`, `5`} {
			status, body := ask(shape.path, shape.tool, schema)
			if status != 400 || !strings.Contains(body, shape.param+": ") || strings.Contains(body, "function.parameters") != strings.Contains(shape.param, "function") {
				t.Errorf("%s %s: %d %s, want one of %s", shape.path, schema, status, body, shape.param)
			}
		}
		for _, schema := range []string{`{}`, `null`, `{"type":"object"}`, `{"type":["object","null"]}`, `{"properties":{}}`, `{"$ref":"#/$defs/a","$defs":{"a":{"type":"object"}}}`, `{"description":"none"}`} {
			if schema == "null" && shape.path == "/v1/messages" {
				continue // where it is not optional
			}
			if status, body := ask(shape.path, shape.tool, schema); status != 200 {
				t.Errorf("%s %s: %d %s", shape.path, schema, status, body)
			}
		}
	}
	// no parameters are no arguments, also where calls are constrained
	for _, parameters := range []string{``, `,"parameters":null`, `,"parameters":{}`} {
		s.ok(s.post("/v1/chat/completions", chatBody(`"tools":[{"type":"function","function":{"name":"f"`+parameters+`}}],"tool_choice":"required"`)))
		all := gen.Requests()
		if all[len(all)-1].Grammar == nil {
			t.Errorf("%q: not constrained", parameters)
		}
	}
}

// TestNullsOfTools: a template is not shown what says nothing.
func TestNullsOfTools(t *testing.T) {
	for given, want := range map[string]string{
		`{"type":"function","strict":null,"function":{"name":"f","description":null,"parameters":null,"strict":null}}`: `[{"type":"function","function":{"name":"f"}}]`,
		`{"function":{"parameters":{"type":"object","default":null},"name":"f"},"type":"function"}`:                    `[{"function":{"parameters":{"type":"object","default":null},"name":"f"},"type":"function"}]`,
	} {
		o, err := parseObject([]byte(`{"tools":[` + given + `]}`))
		if err != nil {
			t.Fatal(err)
		}
		if s := readTools(o); o.err != nil || string(s.shown) != want {
			t.Errorf("%s: %s %v, want %s", given, s.shown, o.err, want)
		}
	}
}

const (
	sayTool  = `{"type":"custom","custom":{"name":"say","description":"D"}}`
	codeTool = `{"type":"custom","custom":{"name":"code","format":{"type":"grammar","grammar":{"syntax":"regex","definition":"^[a-z]+$|[0-9]{3}"}}}}`
)

// TestCustomTools: their calls have text, the same in both modes and in either API.
func TestCustomTools(t *testing.T) {
	for _, c := range []struct{ arguments, input string }{
		{`{"input": "a\n\"b\" \\ \u00e9 \ud83d\ude00 ü"}`, "a\n\"b\" \\ é 😀 ü"}, {`{ "input" : "" }`, ""}, {`{}`, ""}, {`{"input":"\ud83dx"}`, "\ufffdx"},
		{`{"text": "x"}`, `{"text": "x"}`}, {`{"input": 5}`, `{"input": 5}`}, {`{"input": "x", "more": 1}`, "x"},
	} {
		s := serve(t, caller("hermes", `Yes. <tool_call>{"name": "say", "arguments": `+c.arguments+`}</tool_call><tool_call>{"name": "weather", "arguments": {"city": "Ulm"}}</tool_call>`), Options{})
		body := `"max_tokens":999,"tools":[` + sayTool + `,` + weatherTool + `]`
		r := s.ok(s.post("/v1/chat/completions", chatBody(body)))
		calls, _ := r.at("choices", 0, "message", "tool_calls").([]any)
		if len(calls) != 2 || r.at("choices", 0, "finish_reason") != "tool_calls" {
			t.Fatalf("%v", r.v)
		}
		custom := tree{calls[0]}
		if len(calls[0].(map[string]any)) != 3 || custom.at("type") != "custom" || custom.at("custom", "name") != "say" || custom.at("custom", "input") != c.input || !strings.HasPrefix(custom.at("id").(string), "call_") {
			t.Errorf("%s: %v", c.arguments, calls[0])
		}
		if f := (tree{calls[1]}); f.at("type") != "function" || f.at("function", "arguments") != `{"city": "Ulm"}` {
			t.Errorf("%v", f.v)
		}
		x := s.stream(s.post("/v1/chat/completions", chatBody(body+`,"stream":true`)))
		input, begun := "", 0
		for _, chunk := range x.chunks {
			list, _ := chunk.at("choices", 0, "delta", "tool_calls").([]any)
			for _, d := range list {
				if d := (tree{d}); d.at("index") == 0.0 {
					if d.at("function") != nil {
						t.Errorf("%v", d.v)
					}
					if begun++; begun == 1 && (d.at("type") != "custom" || d.at("custom", "name") != "say" || d.at("id") == nil) || begun > 1 && (d.at("type") != nil || d.at("custom", "name") != nil || d.at("id") != nil) {
						t.Errorf("delta %d: %v", begun, d.v)
					}
					input += d.at("custom", "input").(string)
				}
			}
		}
		if input != c.input || begun < 1 || x.finish[0] != "tool_calls" {
			t.Errorf("%s, streamed: %q in %d deltas, %v", c.arguments, input, begun, x.finish)
		}

		const flat = `{"model":"M","input":"hi","tools":[{"type":"web_search"},{"type":"custom","name":"say","format":{"type":"text"}}]`
		r = s.ok(s.post("/v1/responses", flat+`}`))
		if r.at("output", 1, "type") != "custom_tool_call" || r.at("output", 1, "input") != c.input || r.at("output", 1, "name") != "say" {
			t.Errorf("%s: %v", c.arguments, r.at("output", 1))
		}
		input, done := "", ""
		for _, e := range s.post("/v1/responses", flat+`,"stream":true}`).events {
			switch e := parse(t, e); e.at("type") {
			case "response.custom_tool_call_input.delta":
				input += e.at("delta").(string)
			case "response.custom_tool_call_input.done":
				done = e.at("input").(string)
			}
		}
		if input != c.input || done != c.input {
			t.Errorf("%s, streamed: %q, %q", c.arguments, input, done)
		}
	}
}

// TestCustomToolRequests: what is wrong with a custom tool is named; one with a grammar is held to it.
func TestCustomToolRequests(t *testing.T) {
	gen := caller("hermes", "x")
	s := serve(t, gen, Options{})
	custom := func(fields string) string { return `"tools":[{"type":"custom","custom":{` + fields + `}}]` }
	form := func(grammar string) string {
		return custom(`"name":"f","format":{"type":"grammar","grammar":` + grammar + `}`)
	}
	for _, c := range []struct{ fields, param string }{
		{`"tools":[{"type":"custom"}]`, "tools[0].custom"}, {custom(``), "tools[0].custom.name"}, {custom(`"name":"f","format":"text"`), "tools[0].custom.format"},
		{custom(`"name":"f","format":{}`), "tools[0].custom.format.type"}, {custom(`"name":"f","format":{"type":"x"}`), "tools[0].custom.format.type"},
		{custom(`"name":"f","format":{"type":"grammar"}`), "tools[0].custom.format.grammar"}, {form(`{}`), "tools[0].custom.format.grammar.definition"},
		{form(`{"syntax":"lark","definition":"start: \"x\""}`), "tools[0].custom.format.grammar.syntax"}, {form(`{"syntax":"x","definition":""}`), "tools[0].custom.format.grammar.syntax"},
		{form(`{"syntax":"regex","definition":"(a"}`), "tools[0].custom.format.grammar.definition"}, {form(`{"syntax":"regex","definition":5}`), "tools[0].custom.format.grammar.definition"},
		{`"tools":[` + sayTool + `],"tool_choice":{"type":"function","function":{"name":"say"}}`, "tool_choice.function.name"},
		{`"tools":[` + weatherTool + `],"tool_choice":{"type":"custom","custom":{"name":"weather"}}`, "tool_choice.custom.name"},
		{`"tools":[` + sayTool + `],"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[{"type":"function","function":{"name":"say"}}]}}`, "tool_choice.allowed_tools.tools[0].function.name"},
		{`"tools":[` + sayTool + `,` + strings.ReplaceAll(weatherTool, `"weather"`, `"say"`) + `]`, "tools[1].function.name"},
		{`"messages":[{"role":"user","content":"hi"},{"role":"assistant","tool_calls":[{"id":"1","type":"custom"}]}]`, "messages[1].tool_calls[0].custom"},
		{`"messages":[{"role":"user","content":"hi"},{"role":"assistant","tool_calls":[{"id":"1","type":"custom","custom":{"name":"f"}}]}]`, "messages[1].tool_calls[0].custom.input"},
	} {
		body := `{"model":"M",` + c.fields + `}`
		if !strings.Contains(c.fields, "messages") {
			body = chatBody(c.fields)
		}
		if msg := s.refused(s.post("/v1/chat/completions", body), 400, c.param); t.Failed() {
			t.Fatalf("%s: %s", c.fields, msg)
		}
	}
	a := s.post("/v1/responses", `{"model":"M","input":"hi","tools":[{"type":"web_search"},{"type":"custom","name":"f","format":{"type":"grammar","syntax":"lark","definition":"start: x"}}]}`)
	if a.status != 400 || !strings.Contains(string(a.body), "tools[1].format.syntax: lark") {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := s.post("/api/chat", `{"model":"M","messages":[{"role":"user","content":"hi"}],"tools":[`+sayTool+`]}`); a.status != 400 || !strings.Contains(string(a.body), "tools[0].type: custom") {
		t.Errorf("%d %s", a.status, a.body)
	}
	for _, c := range []struct {
		fields, yes, no string // answers that are allowed and that are not; "": anything is
	}{
		{`"tools":[` + sayTool + `]`, "", ""},
		{`"tools":[` + codeTool + `]`, `{"input": "123"}`, `{"input": "12"}`},
		{`"tools":[` + codeTool + `],"tool_choice":{"type":"custom","custom":{"name":"code"}}`, `{"input": "abc"}`, `{"input": "abc1"}`},
		{`"tools":[` + sayTool + `,` + codeTool + `],"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"required","tools":[{"type":"custom","custom":{"name":"code"}}]}}`, `{"input": "a"}`, `{"input": ""}`},
		{`"tools":[` + sayTool + `],"tool_choice":"required"`, `{"input": "a\n"}`, `{"text": ""}`},
	} {
		s.ok(s.post("/v1/chat/completions", chatBody(c.fields)))
		all := gen.Requests()
		g := all[len(all)-1].Grammar
		if g == nil != (c.yes == "") {
			t.Errorf("%s: held to a grammar: %v", c.fields, g != nil)
			continue
		}
		if g == nil {
			continue
		}
		name := "code"
		if !strings.Contains(c.fields, "code") {
			name = "say"
		}
		for arguments, want := range map[string]bool{c.yes: true, c.no: false} {
			state, ok := g.Start(), true
			for _, b := range []byte("<tool_call>\n{\"name\": \"" + name + "\", \"arguments\": " + arguments + "}\n</tool_call>") {
				if ok {
					state, ok = state.Advance(int32(b))
				}
			}
			if ok = ok && state.MayEnd(); ok != want {
				t.Errorf("%s: %s is allowed: %v", c.fields, arguments, ok)
			}
		}
	}
}

// TestCustomCallsInHistory: templates know no custom tools: they get functions.
func TestCustomCallsInHistory(t *testing.T) {
	o, err := parseObject([]byte(`{"tools":[` + sayTool + `],"messages":[{"content":"hi","role":"user"},{"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"custom","custom":{"name":"say","input":"a\n\"b\""}},
		{"id":"2","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"1","content":"ok"},{"role":"tool","tool_call_id":"2","content":"ok"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	p, _ := readChatPrompt(o)
	if o.err != nil {
		t.Fatal(o.err)
	}
	got := compact(t, jsontext.Value(p.Messages))
	want := `[{"content":"hi","role":"user"},{"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function","function":{"name":"say","arguments":"{\"input\":\"a\\n\\\"b\\\"\"}"}},` +
		`{"id":"2","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"1","content":"ok"},{"role":"tool","tool_call_id":"2","content":"ok"}]`
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if tools := compact(t, jsontext.Value(p.Tools)); !strings.HasPrefix(tools, `[{"type":"function","function":{"name":"say","description":"D","parameters":{"type":"object"`) {
		t.Error(tools)
	}
}

// TestCustomInputCuts: how arguments are cut does not show.
func TestCustomInputCuts(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{`{"input": "a\ud83d\ude00\ud83d\u0041\u12x\"b\\"}`, "a😀\ufffdA\ufffdx\"b\\"}, {` {} `, ""}, {`{"inputs": 1}`, `{"inputs": 1}`}, {`{"input": "a\ud83d`, "a"}, {`{"input"`, ""},
	} {
		for i := range c.text {
			for j := i; j < len(c.text); j++ {
				r := &customInput{}
				if got := r.push(c.text[:i]) + r.push(c.text[i:j]) + r.push(c.text[j:]); got != c.want {
					t.Fatalf("%q, cut at %d and %d: %q, want %q", c.text, i, j, got, c.want)
				}
			}
		}
	}
}
