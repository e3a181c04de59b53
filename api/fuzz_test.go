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
			for _, e := range events(w.Body.Bytes()) {
				if e != "[DONE]" && !json.Valid([]byte(e)) {
					t.Fatalf("event %q", e)
				}
			}
			if !strings.HasSuffix(w.Body.String(), "data: [DONE]\n\n") {
				t.Fatalf("unfinished stream %q", w.Body)
			}
		} else if !json.Valid(w.Body.Bytes()) {
			t.Fatalf("reply %q", w.Body)
		}
	})
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
