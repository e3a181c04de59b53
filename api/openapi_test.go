package api

import (
	"bytes"
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"

	"github.com/openinfer-go/openinfer/api/apitest"
	"github.com/openinfer-go/openinfer/engine"
)

// described is the server's own description of itself.
func described(t *testing.T, s served) *openapi3.T {
	t.Helper()
	a := s.do("GET", "/openapi.json", "")
	if a.status != 200 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	doc, err := openapi3.NewLoader().LoadFromData(a.body)
	if err != nil {
		t.Fatal(err)
	}
	if err := doc.Validate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return doc
}

func TestOpenAPIHasEveryRoute(t *testing.T) {
	h := New(says("x"), Options{})
	doc := described(t, serve(t, says("x"), Options{}))
	for path, rt := range h.routes {
		if path == "/" || path == "/favicon.ico" || strings.HasPrefix(path, "/ui/") { // the page's, which are no API
			continue
		}
		item := doc.Paths.Value(path)
		if item == nil {
			t.Errorf("%s is not described", path)
			continue
		}
		for method := range item.Operations() {
			if method != rt.method {
				t.Errorf("%s: %s is described, the route takes %s", path, method, rt.method)
			}
		}
		if o := item.GetOperation(rt.method); o == nil {
			t.Errorf("%s %s is not described", rt.method, path)
		} else if open := o.Security != nil && len(*o.Security) == 0; open != rt.open {
			t.Errorf("%s: described as open: %v", path, open)
		}
	}
	for path := range doc.Paths.Map() {
		if _, ok := h.routes[path]; !ok && path != modelPath+"{id}" {
			t.Errorf("%s is described and no route", path)
		}
	}
}

// conversation is a request to which everything is described.
type conversation struct{ method, path, body string }

// TestOpenAPIIsTrue compares real requests, answers, events and errors with what is said of them.
func TestOpenAPIIsTrue(t *testing.T) {
	gen := thinks("<think>hm, ü</think>So: ñ", false, false)
	gen.Tools = engine.ToolFormat{Parser: "hermes"}
	s := serve(t, gen, Options{})
	doc := described(t, s)
	router, err := gorillamux.NewRouter(doc)
	if err != nil {
		t.Fatal(err)
	}
	const messages = `"messages":[{"role":"system","content":"S"},{"role":"user","content":[{"type":"text","text":"hi"}]},{"role":"assistant","content":"yes","reasoning_content":"hm"},{"role":"user","content":"so?"}]`
	const chat = `{"model":"M",` + messages
	good := []conversation{
		{"GET", "/v1/models", ""}, {"GET", "/v1/models/M", ""}, {"GET", "/version", ""}, {"GET", "/health", ""}, {"GET", "/healthz", ""}, {"GET", "/readyz", ""},
		{"GET", "/api/tags", ""}, {"GET", "/api/ps", ""}, {"GET", "/api/version", ""}, {"GET", "/openapi.json", ""}, {"GET", "/v1/state", ""},
		{"POST", "/v1/models/unload", `{"model":"M","force":true}`}, {"POST", "/v1/models/load", `{"model":"M"}`},
		{"POST", "/v1/chat/completions", chat + `}`},
		{"POST", "/v1/chat/completions", chat + `,"n":2,"logprobs":true,"top_logprobs":3,"prompt_logprobs":1,"return_token_ids":true,"stop":["x","y"],"logit_bias":{"5":1},"seed":4,"sla":{"ttft_ms":900000},"keep_alive":"5m","user":"u"}`},
		{"POST", "/v1/chat/completions", chat + `,"stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":true},"logprobs":true,"return_token_ids":true}`},
		{"POST", "/v1/chat/completions", chat + `,"tools":[` + weatherTool + `,{"type":"function","function":{"name":"now","strict":true}}],"tool_choice":"required","parallel_tool_calls":false}`},
		{"POST", "/v1/chat/completions", chat + `,"tools":[` + weatherTool + `],"tool_choice":{"type":"function","function":{"name":"weather"}},"stream":true}`},
		{"POST", "/v1/chat/completions", chat + `,"tools":[` + weatherTool + `],"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[{"type":"function","function":{"name":"weather"}}]}}}`},
		{"POST", "/v1/chat/completions", chat + `,"tools":[` + sayTool + `,` + codeTool + `],"tool_choice":{"type":"custom","custom":{"name":"say"}}}`},
		{"POST", "/v1/chat/completions", chat + `,"tools":[` + sayTool + `],"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[{"type":"custom","custom":{"name":"say"}}]}}}`},
		{"POST", "/v1/chat/completions", `{"model":"M","messages":[{"role":"user","content":"hi"},{"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"custom","custom":{"name":"say","input":"x"}}]},{"role":"tool","tool_call_id":"1","content":""}]}`},
		{"POST", "/v1/chat/completions", chat + `,"response_format":{"type":"json_schema","json_schema":{"name":"n","strict":true,"schema":{"type":"object"}}}}`},
		{"POST", "/v1/chat/completions", chat + `,"structured_outputs":{"json":"{\"type\":\"object\"}","whitespace_pattern":" ?"},"response_format":{"type":"text"}}`},
		{"POST", "/v1/completions", `{"model":"M","prompt":"hi","structured_outputs":{"choice":["a","b"]}}`},
		{"POST", "/api/chat", `{"model":"M","messages":[{"role":"user","content":"hi"}],"tools":[` + weatherTool + `]}`},
		{"POST", "/v1/completions", `{"model":"M","prompt":"hi"}`},
		{"POST", "/v1/completions", `{"model":"M","prompt":["hi","ho"],"echo":true,"logprobs":2,"max_tokens":4,"return_token_ids":true}`},
		{"POST", "/v1/completions", `{"model":"M","prompt":[1,2],"stream":true,"stream_options":{"include_usage":true}}`},
		{"POST", "/tokenize", `{"model":"M","prompt":"hi","return_token_strs":true}`}, {"POST", "/tokenize", chat + `}`},
		{"POST", "/detokenize", `{"model":"M","tokens":[65,66]}`},
		{"POST", "/v1/messages", `{"model":"M",` + hello + `,"system":[{"type":"text","text":"S"}],"thinking":{"type":"enabled","budget_tokens":1024},"metadata":{"user_id":"u"},"stop_sequences":["zz"]}`},
		{"POST", "/v1/messages", `{"model":"M",` + hello + `,"stream":true,"thinking":{"type":"adaptive"}}`},
		{"POST", "/v1/messages/count_tokens", `{"model":"M","messages":[{"role":"user","content":"hi"}]}`},
		{"POST", "/api/chat", `{"model":"M","messages":[{"role":"user","content":"hi"}],"think":true,"options":{"num_predict":40,"num_ctx":512,"stop":["zz"]},"keep_alive":60}`},
		{"POST", "/api/chat", `{"model":"M:latest","messages":[{"role":"user","content":"hi"}],"stream":false,"logprobs":true}`},
		{"POST", "/api/chat", `{"model":"M","messages":[]}`},
		{"POST", "/api/generate", `{"model":"M","prompt":"hi","system":"S"}`},
		{"POST", "/api/generate", `{"model":"M","prompt":"hi","raw":true,"stream":false}`},
		{"POST", "/api/generate", `{"model":"M","keep_alive":0}`}, {"POST", "/api/show", `{"model":"M"}`},
		{"POST", "/v1/responses", `{"model":"M","input":"hi","instructions":"S","metadata":{"a":"b"},"reasoning":{"effort":"low"},"include":["reasoning.encrypted_content"]}`},
		{"POST", "/v1/responses", `{"model":"M","input":[{"role":"user","content":"hi"},{"type":"reasoning","summary":[],"content":[{"type":"reasoning_text","text":"x"}]},{"role":"assistant","content":[{"type":"output_text","text":"yes"}]},{"role":"user","content":[{"type":"input_text","text":"so?"}]}],"max_output_tokens":3}`},
		{"POST", "/v1/responses", `{"model":"M","input":"hi","stream":true,"include":["message.output_text.logprobs"]}`},
		{"POST", "/v1/responses/input_tokens", `{"model":"M","input":"hi"}`},
	}
	seen := map[string]bool{}
	for _, c := range good {
		conforms(t, s, doc, router, c, true)
		seen[c.path] = true
	}
	for path, item := range doc.Paths.Map() {
		if !seen[path] && path != "/metrics" && path != "/v1/requests/cancel" && path != modelPath+"{id}" {
			t.Errorf("%s was not asked", path)
		}
		for method := range item.Operations() {
			if method != "POST" {
				continue
			}
			for _, body := range []string{``, `{`, `[]`, `{"model":5}`, `{"model":"nope","messages":[{"role":"user","content":"hi"}],"max_tokens":4,"input":"hi","prompt":"hi","tokens":[1]}`} {
				conforms(t, s, doc, router, conversation{method, path, body}, false)
			}
		}
	}
	gen.Answer = func(engine.Request) apitest.Answer {
		return apitest.Answer{Text: `<tool_call>{"name": "say", "arguments": {"input": "x"}}</tool_call><tool_call>{"name": "weather", "arguments": {"city": "Ulm"}}</tool_call>`}
	}
	for _, stream := range []string{"true", "false"} {
		conforms(t, s, doc, router, conversation{"POST", "/v1/chat/completions", chat + `,"max_tokens":999,"tools":[` + sayTool + `,` + weatherTool + `],"stream":` + stream + `}`}, true)
		conforms(t, s, doc, router, conversation{"POST", "/v1/responses", `{"model":"M","input":"hi","tools":[{"type":"custom","name":"say","format":{"type":"grammar","syntax":"regex","definition":"x"}},{"type":"function","name":"weather"}],
			"tool_choice":{"type":"allowed_tools","mode":"auto","tools":[{"type":"custom","name":"say"},{"type":"function","name":"weather"}]},"stream":` + stream + `}`}, true)
	}
	// errors in mid-stream are events that are described, too
	gen.Answer = func(engine.Request) apitest.Answer {
		return apitest.Answer{Text: "Hello there.", FailAfter: 4, Err: engine.ErrStep}
	}
	for _, c := range []conversation{{"POST", "/v1/messages", `{"model":"M",` + hello + `,"stream":true}`}, {"POST", "/v1/responses", `{"model":"M","input":"hi","stream":true}`},
		{"POST", "/api/chat", `{"model":"M","messages":[{"role":"user","content":"hi"}]}`}} {
		conforms(t, s, doc, router, c, true)
	}
}

// conforms asks and compares: good requests must be what the document allows, and get a 200.
func conforms(t *testing.T, s served, doc *openapi3.T, router routers.Router, c conversation, good bool) {
	t.Helper()
	req := httptest.NewRequest(c.method, "http://test"+c.path, strings.NewReader(c.body))
	if c.body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	rt, params, err := router.FindRoute(req)
	if err != nil {
		t.Errorf("%s %s: %v", c.method, c.path, err)
		return
	}
	in := &openapi3filter.RequestValidationInput{Request: req, PathParams: params, Route: rt,
		Options: &openapi3filter.Options{AuthenticationFunc: openapi3filter.NoopAuthenticationFunc, IncludeResponseStatus: true}}
	if err := openapi3filter.ValidateRequest(t.Context(), in); good && err != nil {
		t.Errorf("%s %s %s: the request is not what is described: %v", c.method, c.path, c.body, err)
	}
	a := s.do(c.method, c.path, c.body)
	if good != (a.status == 200) {
		t.Errorf("%s %s %s: %d %s", c.method, c.path, shorten(c.body, 100), a.status, shorten(string(a.body), 300))
	}
	media, _, _ := strings.Cut(a.header.Get("Content-Type"), ";")
	if media == "application/json" {
		out := &openapi3filter.ResponseValidationInput{RequestValidationInput: in, Status: a.status, Header: a.header, Options: in.Options}
		out.SetBodyBytes(a.body)
		if err := openapi3filter.ValidateResponse(t.Context(), out); err != nil {
			t.Errorf("%s %s %s: the answer is not what is described: %v\n%s", c.method, c.path, c.body, err, shorten(string(a.body), 2000))
		}
		return
	}
	content := rt.Operation.Responses.Value("200").Value.Content[media]
	if content == nil {
		t.Errorf("%s: %s is not described", c.path, media)
		return
	}
	all, schema := a.events, content.Schema.Value
	if media == "text/event-stream" {
		if len(schema.AnyOf) > 0 { // or the word that ends it
			schema = schema.AnyOf[0].Value
		}
		schema = schema.Properties["data"].Value.ContentSchema.Value
	} else {
		all = strings.Split(strings.TrimSpace(string(a.body)), "\n")
	}
	if len(all) < 2 {
		t.Errorf("%s: a stream of %d events", c.path, len(all))
	}
	for _, e := range all {
		if e == "[DONE]" {
			continue
		}
		var v any
		if err := json.NewDecoder(bytes.NewReader([]byte(e))).Decode(&v); err != nil {
			t.Fatal(err)
		}
		if err := schema.VisitJSON(v, openapi3.EnableJSONSchema2020(), openapi3.MultiErrors()); err != nil {
			t.Errorf("%s: an event is not what is described: %v\n%s", c.path, err, e)
		}
	}
}
