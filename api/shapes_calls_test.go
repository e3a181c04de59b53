package api

import (
	"encoding/json/v2"
	"fmt"
	"strings"
	"testing"
	"time"
)

// compact is JSON without white space between tokens.
func compact(t *testing.T, v any) string {
	t.Helper()
	r := raw(v).Clone()
	if err := r.Compact(); err != nil {
		t.Fatal(err)
	}
	return string(r)
}

func TestToolsAreTranslated(t *testing.T) {
	const schema = `{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}`
	const function = `{"type":"function","function":{"name":"weather","description":"D","parameters":` + schema + `}}`
	for _, c := range []struct {
		what, body string
		translate  func(*object) *translation
		want       map[string]string
	}{
		{"messages", `{"messages":[{"role":"user","content":"hi"},
			{"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"x"},{"type":"text","text":"Let me see."},{"type":"tool_use","id":"t1","name":"weather","input":{"city":"Ulm"}},{"type":"tool_use","id":"t2","name":"weather"}]},
			{"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":"rain","cache_control":{"type":"ephemeral"}},{"type":"tool_result","tool_use_id":"t2","is_error":true,"content":[{"type":"text","text":"no"},{"type":"text","text":"city"}]},{"type":"text","text":"and?"}]}],
			"tools":[{"name":"weather","description":"D","input_schema":` + schema + `,"cache_control":{"type":"ephemeral"}}],"tool_choice":{"type":"any","disable_parallel_tool_use":true}}`,
			func(o *object) *translation { t, _ := translateMessages(o); return t },
			map[string]string{
				"messages": `[{"role":"user","content":"hi"},{"role":"assistant","content":"Let me see.","reasoning_content":"hm","tool_calls":[` +
					`{"id":"t1","type":"function","function":{"name":"weather","arguments":{"city":"Ulm"}}},{"id":"t2","type":"function","function":{"name":"weather","arguments":{}}}]},` +
					`{"role":"tool","tool_call_id":"t1","content":"rain"},{"role":"tool","tool_call_id":"t2","content":"no\ncity"},{"role":"user","content":[{"type":"text","text":"and?"}]}]`,
				"tools": "[" + function + "]", "tool_choice": `"required"`, "parallel_tool_calls": "false", "continue_final_message": "",
			}},
		{"a named tool", `{"messages":[{"role":"user","content":"hi"}],"tools":[{"type":"custom","name":"weather","description":"D","input_schema":` + schema + `}],"tool_choice":{"type":"tool","name":"weather"}}`,
			func(o *object) *translation { t, _ := translateMessages(o); return t },
			map[string]string{"tools": "[" + function + "]", "tool_choice": `{"type":"function","function":{"name":"weather"}}`}},
		{"a call at the end is not gone on with", `{"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"f","input":{}}]}]}`,
			func(o *object) *translation { t, _ := translateMessages(o); return t }, map[string]string{"continue_final_message": ""}},
		{"responses", `{"input":[{"role":"user","content":"hi"},{"type":"reasoning","summary":[],"content":[{"type":"reasoning_text","text":"hm"}]},
			{"type":"function_call","call_id":"c1","name":"weather","arguments":"{\"city\":\"Ulm\"}"},{"type":"function_call","call_id":"c2","name":"find","namespace":"mcp__maps","arguments":"{}"},
			{"type":"custom_tool_call","call_id":"c3","name":"patch","input":"*** a \"b\""},
			{"type":"function_call_output","call_id":"c1","output":"rain"},{"type":"function_call_output","call_id":"c2","output":[{"type":"input_text","text":"here"}]},{"type":"custom_tool_call_output","call_id":"c3","output":"done"}],
			"tools":[{"type":"function","name":"weather","description":"D","parameters":` + schema + `,"strict":false},{"type":"function","name":"find","parameters":{}},{"type":"web_search","external_web_access":false},
				{"type":"namespace","name":"mcp__maps","description":"N","tools":[{"type":"function","name":"find","parameters":{}},{"type":"function","name":"route","parameters":{}}]},
				{"type":"custom","name":"patch","description":"P","format":{"type":"grammar","syntax":"regex","definition":"x+"}},{"type":"custom","name":"say"}],
			"tool_choice":"auto","parallel_tool_calls":true}`,
			func(o *object) *translation { t, _ := translateResponses(o); return t },
			map[string]string{
				"messages": `[{"role":"user","content":"hi"},{"role":"assistant","content":"","reasoning_content":"hm","tool_calls":[` +
					`{"id":"c1","type":"function","function":{"name":"weather","arguments":"{\"city\":\"Ulm\"}"}},{"id":"c2","type":"function","function":{"name":"mcp__maps__find","arguments":"{}"}},` +
					`{"id":"c3","type":"custom","custom":{"name":"patch","input":"*** a \"b\""}}]},` +
					`{"role":"tool","tool_call_id":"c1","content":"rain"},{"role":"tool","tool_call_id":"c2","content":"here"},{"role":"tool","tool_call_id":"c3","content":"done"}]`,
				"tools": `[{"type":"function","function":{"name":"weather","description":"D","parameters":` + schema + `,"strict":false}},{"type":"function","function":{"name":"find","parameters":{}}},` +
					`{"type":"function","function":{"name":"mcp__maps__find","parameters":{}}},{"type":"function","function":{"name":"route","parameters":{}}},` +
					`{"type":"custom","custom":{"name":"patch","description":"P","format":{"type":"grammar","grammar":{"syntax":"regex","definition":"x+"}}}},{"type":"custom","custom":{"name":"say"}}]`,
				"tool_choice": `"auto"`, "parallel_tool_calls": "true",
			}},
		{"allowed tools", `{"input":"hi","tools":[{"type":"function","name":"weather","description":"D","parameters":` + schema + `},{"type":"function","name":"other","parameters":{}}],"tool_choice":{"type":"allowed_tools","mode":"required","tools":[{"type":"function","name":"weather"}]}}`,
			func(o *object) *translation { t, _ := translateResponses(o); return t },
			map[string]string{"tools": "[" + function + `,{"type":"function","function":{"name":"other","parameters":{}}}]`,
				"tool_choice": `{"type":"allowed_tools","allowed_tools":{"mode":"required","tools":[{"type":"function","function":{"name":"weather"}}]}}`}},
		{"ollama", `{"messages":[{"role":"user","content":"hi"},{"role":"assistant","tool_calls":[{"function":{"name":"weather","arguments":{"city":"Ulm"}}}]},{"role":"tool","tool_name":"weather","content":"rain"}]}`,
			func(o *object) *translation { t := newTranslation(o); t.ollamaMessages(); return t },
			map[string]string{"messages": `[{"role":"user","content":"hi"},{"role":"assistant","tool_calls":[{"function":{"name":"weather","arguments":{"city":"Ulm"}}}]},{"role":"tool","content":"rain","name":"weather"}]`}},
	} {
		in, err := parseObject([]byte(c.body))
		if err != nil {
			t.Fatal(err)
		}
		tr := c.translate(in)
		if in.err != nil {
			t.Errorf("%s: %v", c.what, in.err)
			continue
		}
		o := tr.object()
		for field, want := range c.want {
			got := ""
			if v := o.fields[field]; v != nil {
				got = compact(t, v)
			}
			if got != want {
				t.Errorf("%s: %s\ngot  %s\nwant %s", c.what, field, got, want)
			}
		}
	}
}

// answerWithCalls is what a model wrote: two calls, the second without arguments.
var answerWithCalls = []piece{
	{kind: reasoningPiece, text: "hm"}, {kind: contentPiece, text: "Let me see."},
	{kind: callPiece, call: call{id: "c1", name: "weather"}}, {kind: argumentsPiece, text: `{"city":`}, {kind: argumentsPiece, text: `"Ulm"}`},
	{kind: callPiece, call: call{id: "c2", name: "now"}},
}

func eventsOf(t *testing.T, all []any) (names []string, data []tree) {
	t.Helper()
	for _, e := range all {
		b, err := json.Marshal(e.(event).data)
		if err != nil {
			t.Fatal(err)
		}
		names, data = append(names, e.(event).name), append(data, parse(t, string(b)))
	}
	return names, data
}

func TestMessagesCallTools(t *testing.T) {
	s := &messageShape{thinking: true}
	names, data := eventsOf(t, s.stop(s.grow(nil, answerWithCalls)))
	blocks, input := map[float64]tree{}, map[float64]string{}
	for i, e := range data {
		index := e.at("index").(float64)
		switch names[i] {
		case "content_block_start":
			blocks[index] = e
		case "content_block_delta":
			if s, ok := e.at("delta", "partial_json").(string); ok {
				input[index] += s
			}
		}
	}
	if len(blocks) != 4 || blocks[2].at("content_block", "id") != "c1" || blocks[2].at("content_block", "name") != "weather" || fmt.Sprint(blocks[2].at("content_block", "input")) != "map[]" ||
		input[2] != `{"city":"Ulm"}` || blocks[3].at("content_block", "name") != "now" || input[3] != "" || strings.Count(fmt.Sprint(names), "content_block_stop") != 4 {
		t.Errorf("%v %v %v", names, blocks, input)
	}
	c := &choice{}
	if reason, _ := s.stopped(&generation{}, c); reason != "tool_use" {
		t.Error(reason)
	}
	whole := compact(t, (&messageShape{}).blocks("hm", "Let me see.", []call{{id: "c1", name: "weather", arguments: `{"city":"Ulm"}`}, {id: "c2", name: "now"}}))
	if whole != `[{"type":"thinking","thinking":"hm","signature":"unsigned"},{"type":"text","text":"Let me see."},`+
		`{"type":"tool_use","id":"c1","name":"weather","input":{"city":"Ulm"}},{"type":"tool_use","id":"c2","name":"now","input":{}}]` {
		t.Error(whole)
	}
}

func TestOllamaCallsTools(t *testing.T) {
	s := &ollamaShape{model: "M", chat: true}
	now := time.Unix(1700000000, 0)
	var all []tree
	for _, o := range s.flush(s.grow(now, answerWithCalls, nil), now) {
		all = append(all, parse(t, compact(t, o)))
	}
	if len(all) != 4 || all[2].at("message", "tool_calls", 0, "function", "name") != "weather" || all[2].at("message", "tool_calls", 0, "function", "arguments", "city") != "Ulm" ||
		all[2].at("done") != false || all[3].at("message", "tool_calls", 0, "function", "index") != 1.0 || all[3].at("message", "tool_calls", 0, "id") != "c2" {
		t.Errorf("%v", all)
	}
	whole := compact(t, s.calling(now, "", "", []call{{id: "c1", name: "weather", arguments: `{"city":"Ulm"}`}, {id: "c2", name: "cut", arguments: `{"ci`}}, pair{"done", true}))
	if want := `"tool_calls":[{"id":"c1","function":{"index":0,"name":"weather","arguments":{"city":"Ulm"}}}]`; !strings.Contains(whole, want) {
		t.Error(whole)
	}
}

func TestResponsesCallTools(t *testing.T) {
	s := &responseShape{id: "resp_1", token: "t", tools: map[string]responseTool{"weather": {"mcp__a", "weather"}, "now": {"", "now"}, "patch": {"", "patch"}}}
	all := s.grow(nil, append(answerWithCalls, piece{kind: callPiece, call: call{id: "c3", name: "patch", custom: true}}, piece{kind: argumentsPiece, text: "a"}, piece{kind: argumentsPiece, text: "\nb"}), nil)
	names, data := eventsOf(t, s.close(all, "completed"))
	var items []string
	deltas := map[string]string{}
	for i, e := range data {
		switch names[i] {
		case "response.output_item.done":
			items = append(items, compact(t, e.at("item")))
			if e.at("output_index") != float64(len(items)-1) {
				t.Errorf("%v", e.v)
			}
		case "response.function_call_arguments.delta", "response.custom_tool_call_input.delta":
			deltas[e.at("item_id").(string)] += e.at("delta").(string)
		}
	}
	want := []string{`{"arguments":"{\"city\":\"Ulm\"}","call_id":"c1","id":"fc_t2","name":"weather","namespace":"mcp__a","status":"completed","type":"function_call"}`,
		`{"arguments":"{}","call_id":"c2","id":"fc_t3","name":"now","status":"completed","type":"function_call"}`,
		`{"call_id":"c3","id":"ctc_t4","input":"a\nb","name":"patch","status":"completed","type":"custom_tool_call"}`}
	if len(items) != 5 {
		t.Fatalf("%v", items)
	}
	for i, w := range want {
		if got := sorted(t, items[2+i]); got != w {
			t.Errorf("got  %s\nwant %s", got, w)
		}
	}
	if deltas["fc_t2"] != `{"city":"Ulm"}` || deltas["ctc_t4"] != "a\nb" {
		t.Errorf("%v", deltas)
	}
}

// sorted is a JSON object with its members in order.
func sorted(t *testing.T, text string) string {
	t.Helper()
	b, err := json.Marshal(parse(t, text).v, json.Deterministic(true))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// Errors about what was made of a request name what the client wrote.
func TestErrorsNameTheClientsFields(t *testing.T) {
	const schema = `{"type":"json_schema","name":"n","schema":{}}`
	for _, c := range []struct {
		body      string
		translate func(*object) *translation
		made, own string
	}{
		{`{"messages":[{"role":"user","content":"a"},{"role":"user","content":[{"type":"tool_result","tool_use_id":"1"},{"type":"text","text":"b"}]}],"system":"S","tools":[{"name":"f","input_schema":{}}],"output_config":{"format":` + schema + `}}`,
			func(o *object) *translation { t, _ := translateMessages(o); return t },
			"messages[0].content messages[1].role messages[2].content messages[3] tools[0].function.parameters.type tools[0].function.name response_format.json_schema.schema stop[1] max_tokens",
			"system messages[0] messages[1].content[0] messages[1] tools[0].input_schema.type tools[0].name output_config.format.schema stop_sequences[1] max_tokens"},
		{`{"input":[{"role":"user","content":"a"},{"type":"function_call","call_id":"1","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"1","output":"x"}],"instructions":"S","max_output_tokens":1,"text":{"format":` + schema + `}}`,
			func(o *object) *translation { t, _ := translateResponses(o); return t },
			"messages[0] messages[2].tool_calls[0].function.arguments messages[3] max_tokens response_format.json_schema.schema",
			"instructions input[1] input[2] max_output_tokens text.format.schema"},
	} {
		in, err := parseObject([]byte(c.body))
		if err != nil {
			t.Fatal(err)
		}
		tr := c.translate(in)
		tr.names["stop"] = "stop_sequences" // which the request need not have
		if tr.object(); in.err != nil {
			t.Fatal(in.err)
		}
		own := strings.Fields(c.own)
		for i, made := range strings.Fields(c.made) {
			e := asError(tr.blame(invalid(made, "is wrong")))
			if e.param != own[i] || e.message != own[i]+": is wrong" {
				t.Errorf("%s: %q, param %q; want %q", made, e.message, e.param, own[i])
			}
		}
	}
}
