package api

import (
	"fmt"
	"strings"
	"testing"
)

func TestResponses(t *testing.T) {
	gen := thinks("<think>hm, ü</think>So: ñ", false, false)
	s := serve(t, gen, Options{})
	for _, body := range []string{
		`{"model":"M","instructions":"S","input":"hi","max_output_tokens":99,"metadata":{"a":"b"},"store":true,"top_p":0.5,"reasoning":{"effort":"medium","summary":"auto"},"include":["reasoning.encrypted_content"]}`,
		`{"model":"M","instructions":"S","input":[{"role":"user","content":"hi"}],"max_output_tokens":99,"metadata":{"a":"b"},"top_p":0.5,"reasoning":{"effort":"medium","summary":"auto"},"include":["reasoning.encrypted_content"]}`,
		`{"model":"M","input":[{"type":"message","role":"developer","content":[{"type":"input_text","text":"S"}]},{"type":"message","role":"user","content":[{"type":"input_text","text":"hi"}]}],"max_output_tokens":99,"metadata":{"a":"b"},"top_p":0.5,"include":["reasoning.encrypted_content"]}`,
	} {
		got := s.ok(s.post("/v1/responses", body))
		if got.at("object") != "response" || got.at("status") != "completed" || got.at("model") != "M" || got.at("store") != false || got.at("error") != nil ||
			got.at("metadata", "a") != "b" || got.at("top_p") != 0.5 || got.at("max_output_tokens") != 99.0 || got.at("incomplete_details") != nil ||
			!strings.HasPrefix(got.at("id").(string), "resp_") || got.at("usage", "output_tokens").(float64) < 5 ||
			got.at("usage", "output_tokens_details", "reasoning_tokens").(float64) < 5 || fmt.Sprint(got.at("tools")) != "[]" {
			t.Errorf("%s: %v", body, got.v)
		}
		if got.at("output", 0, "type") != "reasoning" || got.at("output", 0, "content", 0, "text") != "hm, ü" || got.at("output", 1, "type") != "message" ||
			got.at("output", 1, "content", 0, "text") != "So: ñ" || got.at("output", 1, "status") != "completed" {
			t.Errorf("%v", got.at("output"))
		}
		if code := got.at("output", 0, "encrypted_content").(string); !strings.HasPrefix(code, sealed) {
			t.Errorf("%s", code)
		}
	}
	gens := gen.Requests()
	for _, r := range gens[1:] {
		if fmt.Sprint(r.Prompt) == "" || r.MaxTokens != 99 {
			t.Errorf("%+v", r)
		}
	}
	if fmt.Sprint(gens[0].Prompt) != fmt.Sprint(gens[1].Prompt) {
		t.Error("a string and a message are not the same prompt")
	}
	cut := s.ok(s.post("/v1/responses", `{"model":"M","input":"hi","max_output_tokens":9}`))
	if cut.at("status") != "incomplete" || cut.at("incomplete_details", "reason") != "max_output_tokens" {
		t.Errorf("%v", cut.v)
	}
	count := s.ok(s.post("/v1/responses/input_tokens", `{"model":"M","instructions":"S","input":"hi"}`))
	if count.at("object") != "response.input_tokens" || count.at("input_tokens") != float64(len(gens[0].Prompt)) {
		t.Errorf("%v", count.v)
	}
}

func TestResponsesStream(t *testing.T) {
	s := serve(t, thinks("<think>hm, ü</think>So: ñ", false, false), Options{})
	names, data := named(t, s.post("/v1/responses", `{"model":"M","input":"hi","stream":true,"include":["message.output_text.logprobs"],"top_logprobs":2}`))
	text := map[string]string{}
	items := map[any]tree{}
	for i, e := range data {
		if e.at("sequence_number") != float64(i) {
			t.Errorf("%d: sequence number %v", i, e.at("sequence_number"))
		}
		switch names[i] {
		case "response.output_text.delta", "response.reasoning_text.delta":
			text[fmt.Sprint(e.at("output_index"), e.at("item_id"))] += e.at("delta").(string)
		case "response.output_item.added":
			items[e.at("item", "id")] = e
		case "response.output_item.done":
			id := e.at("item", "id")
			if items[id].at("output_index") != e.at("output_index") || text[fmt.Sprint(e.at("output_index"), id)] != e.at("item", "content", 0, "text") {
				t.Errorf("%v", e.v)
			}
		}
	}
	last := data[len(data)-1]
	if names[0] != "response.created" || names[1] != "response.in_progress" || names[len(names)-1] != "response.completed" ||
		last.at("response", "status") != "completed" || last.at("response", "output", 1, "content", 0, "text") != "So: ñ" ||
		last.at("response", "output", 0, "content", 0, "text") != "hm, ü" || data[0].at("response", "status") != "in_progress" {
		t.Errorf("%v\n%v", names, last.v)
	}
	if n := len(last.at("response", "output", 1, "content", 0, "logprobs").([]any)); n < 5 {
		t.Errorf("%d log probabilities", n)
	}
	for _, name := range []string{"response.content_part.added", "response.content_part.done", "response.output_item.added", "response.output_item.done"} {
		if n := strings.Count(" "+strings.Join(names, " ")+" ", " "+name+" "); n != 2 {
			t.Errorf("%d of %s", n, name)
		}
	}
	names, data = named(t, s.post("/v1/responses", `{"model":"M","input":"hi","stream":true,"max_output_tokens":12}`))
	if last := data[len(data)-1]; names[len(names)-1] != "response.incomplete" || last.at("response", "incomplete_details", "reason") != "max_output_tokens" {
		t.Errorf("%v", last.v)
	}
}

func TestResponsesOfAnAgent(t *testing.T) {
	gen := says("ok")
	s := serve(t, gen, Options{})
	s.ok(s.post("/v1/responses", `{"model":"M","instructions":"You are Codex.","store":false,"parallel_tool_calls":false,"prompt_cache_key":"k",
		"reasoning":{"effort":"high","summary":"auto"},"include":["reasoning.encrypted_content"],"text":{"format":{"type":"text"}},"input":[
		{"type":"message","role":"developer","content":[{"type":"input_text","text":"rules"}]},
		{"type":"message","role":"user","content":[{"type":"input_text","text":"go"}]},
		{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"`+seal("a plan")+`"},
		{"type":"reasoning","id":"rs_2","summary":[],"encrypted_content":"gAAAA-of-another"},
		{"type":"message","role":"assistant","id":"msg_1","phase":"commentary","content":[{"type":"output_text","text":"Going.","annotations":[]}]},
		{"type":"message","role":"user","content":"more"}]}`))
	p := prompted(gen)
	for _, want := range []string{"You are Codex.", "rules", "go", "Going.", "more"} {
		at := strings.Index(p, want)
		if at < 0 {
			t.Fatalf("no %q in %q", want, prompted(gen))
		}
		p = p[at:]
	}
}

func TestResponsesRefused(t *testing.T) {
	gen := says("ok")
	s := serve(t, gen, Options{})
	for _, c := range []struct{ body, param string }{
		{`{"input":"hi"}`, "model"},
		{`{"model":"M"}`, "input"},
		{`{"model":"M","input":[]}`, "input"},
		{`{"model":"M","input":1}`, "input"},
		{`{"model":"M","input":[{"type":"item_reference","id":"x"}]}`, "input[0].type"},
		{`{"model":"M","input":[{"role":"user","content":[{"type":"input_image","image_url":"x"}]}]}`, "input[0].content[0].type"},
		{`{"model":"M","input":[{"role":"tool","content":"x"}]}`, "input[0].role"},
		{`{"model":"M","input":[{"role":"user"}]}`, "input[0].content"},
		{`{"model":"M","input":[{"type":"function_call_output","output":"x"}]}`, "input[0].call_id"},
		{`{"model":"M","input":[{"type":"reasoning","content":[{"type":"?","text":1}]}]}`, "input[0].content[0].text"},
		{`{"model":"M","input":"hi","previous_response_id":"x"}`, "previous_response_id"},
		{`{"model":"M","input":"hi","conversation":"x"}`, "conversation"},
		{`{"model":"M","input":"hi","background":true}`, "background"},
		{`{"model":"M","input":"hi","prompt":{"id":"x"}}`, "prompt"},
		{`{"model":"M","input":"hi","max_output_tokens":0}`, "max_output_tokens"},
		{`{"model":"M","input":"hi","max_output_tokens":1000000}`, "max_output_tokens"},
		{`{"model":"M","input":"hi","text":{"format":{"type":"xml"}}}`, "text.format.type"},
		{`{"model":"M","input":"hi","truncation":"x"}`, "truncation"},
		{`{"model":"M","input":"hi","tools":[{"name":"x"}]}`, "tools[0].type"},
		{`{"model":"M","input":"hi","tool_choice":{"type":"web_search"}}`, "tool_choice.type"},
		{`{"model":"M","input":"hi","temperature":5}`, "temperature"},
	} {
		if m := s.refused(s.post("/v1/responses", c.body), 400, c.param); !strings.HasPrefix(m, c.param+": ") {
			t.Errorf("%s: %s", c.body, m)
		}
	}
	s.refused(s.post("/v1/responses", `{"model":"X","input":"hi"}`), 404, "model")
	if len(gen.Requests()) != 0 {
		t.Error("something was generated")
	}
}
