package api

import (
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// fuzzBody checks that any body is answered with 200 or a 4xx, and with valid JSON or a stream.
func fuzzBody(f *testing.F, path string, seeds ...string) {
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	gen := says("aé🙂")
	gen.MaxLen = 1 << 20
	h := New(gen, Options{})
	f.Fuzz(func(t *testing.T, body []byte) {
		w := httptest.NewRecorder()
		r := httptest.NewRequest("POST", path, strings.NewReader(string(body)))
		h.ServeHTTP(&deadlines{w}, r)
		if w.Code != 200 && (w.Code < 400 || w.Code > 499) {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
		if strings.HasPrefix(w.Header().Get("Content-Type"), "text/event-stream") {
			all := events(w.Body.Bytes())
			for _, e := range all {
				if e != "[DONE]" && !json.Valid([]byte(e)) {
					t.Fatalf("event %q", e)
				}
			}
			if !ended(all[len(all)-1]) {
				t.Fatalf("unfinished stream %q", w.Body)
			}
		} else if w.Header().Get("Content-Type") == "application/x-ndjson" {
			all := strings.Split(strings.TrimSuffix(w.Body.String(), "\n"), "\n")
			for i, e := range all {
				if !json.Valid([]byte(e)) || strings.Contains(e, `"done":true`) != (i == len(all)-1) {
					t.Fatalf("line %d of %d: %q", i, len(all), e)
				}
			}
		} else if !json.Valid(w.Body.Bytes()) {
			t.Fatalf("reply %q", w.Body)
		}
	})
}

// ended reports whether an event ends its stream.
func ended(event string) bool {
	for _, last := range []string{"[DONE]", `{"type":"message_stop"}`, `{"type":"response.completed"`, `{"type":"response.incomplete"`} {
		if strings.HasPrefix(event, last) {
			return true
		}
	}
	return false
}

// deadlines adds to a recorder what a connection has.
type deadlines struct{ *httptest.ResponseRecorder }

func (d *deadlines) SetWriteDeadline(time.Time) error { return nil }
func (d *deadlines) SetReadDeadline(time.Time) error  { return nil }

func FuzzChatBody(f *testing.F) {
	fuzzBody(f, "/v1/chat/completions",
		chatBody(""), chatBody(`"stream":true,"stream_options":{"include_usage":true},"n":2`),
		chatBody(`"logprobs":true,"top_logprobs":2,"stop":["a"],"logit_bias":{"5":1},"max_tokens":3`),
		chatBody(`"tools":[],"response_format":{"type":"text"},"chat_template_kwargs":{"a":[1,{"b":null}]},"reasoning_effort":"low"`),
		`{"model":"M","messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"\ud83d\ude42"}]},{"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","content":"x","tool_call_id":"1"}]}`,
		`{"model":"M","messages":[{"role":"user","content":"\ud83d"}]}`, "{\"model\":\"M\",\"a\":\"\xff\"}", strings.Repeat("[", 200))
}

func FuzzCompletionBody(f *testing.F) {
	fuzzBody(f, "/v1/completions",
		`{"model":"M","prompt":"p"}`, `{"model":"M","prompt":["a","b"],"n":2,"stream":true,"echo":true,"logprobs":2}`,
		`{"model":"M","prompt":[1,2.0,257],"max_tokens":0,"echo":true,"logprobs":1,"return_token_ids":true}`,
		`{"model":"M","prompt":[[1],[2,3]],"prompt_logprobs":2,"seed":1e3,"temperature":0.5,"top_p":1,"min_p":0.1,"top_k":-1}`,
		`{"model":"M","prompt":"p","suffix":"s"}`, `{"model":"M","prompt":"p"} x`, `{"model":"M","model":"M"}`)
}

func FuzzAnthropicBody(f *testing.F) {
	fuzzBody(f, "/v1/messages",
		`{"model":"M",`+hello+`}`, `{"model":"M",`+hello+`,"stream":true,"thinking":{"type":"enabled","budget_tokens":9},"stop_sequences":["a"],"metadata":{"user_id":"u"}}`,
		`{"model":"M","max_tokens":9,"system":[{"type":"text","text":"x-anthropic-billing-header: a\nS"}],"messages":[{"role":"user","content":[{"type":"text","text":"a"}]},{"role":"assistant","content":[{"type":"thinking","thinking":"h"},{"type":"tool_use","id":"1","name":"f","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"1","content":[{"type":"text","text":"r"}]}]}]}`,
		`{"model":"M",`+hello+`,"tools":[{"name":"f","input_schema":{"type":"object"}}],"tool_choice":{"type":"tool","name":"f"},"output_config":{"effort":"max","format":{"type":"json_schema","schema":{}}}}`)
}

func FuzzOllamaBody(f *testing.F) {
	fuzzBody(f, "/api/chat",
		`{"model":"M",`+hello+`}`, `{"model":"M:latest",`+hello+`,"stream":false,"think":"low","format":{"type":"object"},"options":{"num_predict":-1,"stop":["a"],"num_ctx":9,"seed":1}}`,
		`{"model":"M","messages":[],"keep_alive":0}`, `{"model":"M","messages":[{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":{}}}]},{"role":"tool","tool_name":"f","content":"x"}],"logprobs":true,"top_logprobs":2}`)
}

func FuzzResponsesBody(f *testing.F) {
	fuzzBody(f, "/v1/responses",
		`{"model":"M","input":"hi"}`, `{"model":"M","input":"hi","stream":true,"max_output_tokens":2,"include":["message.output_text.logprobs","reasoning.encrypted_content"],"reasoning":{"effort":"none"}}`,
		`{"model":"M","input":[{"role":"user","content":[{"type":"input_text","text":"a"}]},{"type":"reasoning","summary":[],"encrypted_content":"openinfer:aGk="},{"type":"function_call","call_id":"1","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"1","output":[{"type":"input_text","text":"r"}]}],"text":{"format":{"type":"json_schema","name":"n","schema":{}}}}`,
		`{"model":"M","input":"hi","tools":[{"type":"namespace","name":"n","tools":[{"type":"custom","name":"c","format":{"type":"grammar"}}]},{"type":"web_search"}],"tool_choice":{"type":"allowed_tools","mode":"auto","tools":[{"name":"c","namespace":"n"}]}}`)
}
