package api

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// Each wrong value is a 400 that names its field, streamed or not, and the next request is served.
func TestWrongValues(t *testing.T) {
	both := []struct{ fields, param string }{
		{`"temperature":-0.1`, "temperature"}, {`"temperature":2.1`, "temperature"}, {`"temperature":"1"`, "temperature"},
		{`"temperature":true`, "temperature"}, {`"temperature":1e999`, "temperature"}, {`"temperature":[]`, "temperature"},
		{`"top_p":0`, "top_p"}, {`"top_p":1.01`, "top_p"}, {`"top_p":-1`, "top_p"}, {`"top_p":1e-60`, "top_p"},
		{`"top_k":-2`, "top_k"}, {`"top_k":1.5`, "top_k"}, {`"top_k":"5"`, "top_k"},
		{`"min_p":-0.1`, "min_p"}, {`"min_p":1.1`, "min_p"},
		{`"presence_penalty":2.5`, "presence_penalty"}, {`"presence_penalty":-2.5`, "presence_penalty"},
		{`"frequency_penalty":3`, "frequency_penalty"}, {`"frequency_penalty":{}`, "frequency_penalty"},
		{`"repetition_penalty":0`, "repetition_penalty"}, {`"repetition_penalty":-1`, "repetition_penalty"},
		{`"n":0`, "n"}, {`"n":129`, "n"}, {`"n":-1`, "n"}, {`"n":1.5`, "n"}, {`"n":"2"`, "n"}, {`"n":1e30`, "n"}, {`"n":false`, "n"},
		{`"max_tokens":-1`, "max_tokens"}, {`"max_tokens":1.5`, "max_tokens"}, {`"max_tokens":"5"`, "max_tokens"},
		{`"max_tokens":99999999999`, "max_tokens"}, {`"max_completion_tokens":-5`, "max_completion_tokens"},
		{`"max_tokens":0`, "max_tokens"}, {`"max_completion_tokens":0`, "max_completion_tokens"},
		{`"min_tokens":-1`, "min_tokens"}, {`"min_tokens":6,"max_tokens":5`, "min_tokens"}, {`"min_tokens":100000`, "min_tokens"},
		{`"seed":1.5`, "seed"}, {`"seed":"x"`, "seed"}, {`"seed":1e300`, "seed"}, {`"seed":9223372036854775808`, "seed"},
		{`"stop":""`, "stop"}, {`"stop":["a",""]`, "stop"}, {`"stop":5`, "stop"}, {`"stop":["a",5]`, "stop[1]"}, {`"stop":{}`, "stop"},
		{`"stop":[` + strings.Repeat(`"a",`, 32) + `"a"]`, "stop"},
		{`"logit_bias":{"305":1}`, "logit_bias"}, {`"logit_bias":{"-1":1}`, "logit_bias"}, {`"logit_bias":{"abc":1}`, "logit_bias"},
		{`"logit_bias":{"+5":1}`, "logit_bias"}, {`"logit_bias":{"05":1}`, "logit_bias"}, {`"logit_bias":{"":1}`, "logit_bias"},
		{`"logit_bias":{"99999999999999999999":1}`, "logit_bias"},
		{`"logit_bias":{"5":1e9}`, "logit_bias.5"}, {`"logit_bias":{"5":"x"}`, "logit_bias.5"}, {`"logit_bias":[]`, "logit_bias"},
		{`"stop_token_ids":[300]`, "stop_token_ids[0]"}, {`"stop_token_ids":5`, "stop_token_ids"}, {`"stop_token_ids":[1.5]`, "stop_token_ids[0]"},
		{`"stream_options":5`, "stream_options"}, {`"cache_salt":""`, "cache_salt"}, {`"cache_salt":7`, "cache_salt"},
		{`"prompt_logprobs":-1,"stream":false`, "prompt_logprobs"}, {`"ignore_eos":1`, "ignore_eos"},
		{`"guided_json":5`, "guided_json"}, {`"guided_json":"{"`, "guided_json"}, {`"guided_regex":"a("`, "guided_regex"}, {`"guided_choice":[]`, "guided_choice"},
		{`"guided_choice":["a",5]`, "guided_choice"}, {`"guided_grammar":"g"`, "guided_grammar"}, {`"structured_outputs":{"regex":"a("}`, "structured_outputs.regex"},
		{`"guided_regex":"a","guided_choice":["a"]`, "guided_choice"}, {`"structured_outputs":{"regex":"a","json":{}}`, "structured_outputs.regex"},
		{`"structured_outputs":{"structural_tag":"x"}`, "structured_outputs.structural_tag"}, {`"guided_whitespace_pattern":" "`, "guided_whitespace_pattern"},
		{`"response_format":{"type":"json_object"},"guided_json":{}`, "guided_json"}, {`"response_format":{}`, "response_format.type"},
		{`"response_format":{"type":"xml"}`, "response_format.type"}, {`"response_format":{"type":"json_schema"}`, "response_format.json_schema"},
		{`"response_format":{"type":"json_schema","json_schema":{}}`, "response_format.json_schema.schema"}, {`"response_format":"text"`, "response_format"},
		{`"response_format":{"type":"json_schema","json_schema":{"name":"n","schema":{"type":"strin"}}}`, "response_format.json_schema.schema"},
		{`"response_format":{"type":"json_schema","json_schema":{"name":"n","schema":{"type":"string","pattern":"^(open"}}}`, "response_format.json_schema.schema"},
		{`"response_format":{"type":"json_schema","json_schema":{"name":"n","schema":{"$ref":"#"}}}`, "response_format.json_schema.schema"},
		{`"response_format":{"type":"json_schema","json_schema":{"name":"n","schema":{"properties":{"a":{"unknown":{}}}}}}`, "response_format.json_schema.schema"},
		{`"regex":"a"`, "regex"},
		{`"best_of":2`, "best_of"}, {`"use_beam_search":true`, "use_beam_search"}, {`"suffix":"x"`, "suffix"},
		{`"logits_processors":["x"]`, "logits_processors"}, {`"bad_words":["x"]`, "bad_words"}, {`"allowed_token_ids":[1]`, "allowed_token_ids"},
		{`"truncate_prompt_tokens":5`, "truncate_prompt_tokens"}, {`"lora_path":"x"`, "lora_path"}, {`"lora_request":{"name":"x"}`, "lora_request"},
		{`"adapter_id":"x"`, "adapter_id"}, {`"adapters":["x"]`, "adapters"},
		{`"max_tokens":5000`, "max_tokens"},
	}
	chat := []struct{ fields, param string }{
		{`"tools":[{"type":"function","function":{"name":"f"}}]`, "tools"}, {`"functions":[{"name":"f"}]`, "functions"},
		{`"tool_choice":"required"`, "tool_choice"}, {`"tool_choice":{"type":"function"}`, "tool_choice.function"},
		{`"modalities":["text","audio"]`, "modalities"}, {`"audio":{"voice":"x"}`, "audio"}, {`"prediction":{"type":"content"}`, "prediction"},
		{`"web_search_options":{}`, "web_search_options"}, {`"chat_template":"x"`, "chat_template"}, {`"documents":[{}]`, "documents"},
		{`"echo":true`, "echo"}, {`"logprobs":1`, "logprobs"}, {`"logprobs":"true"`, "logprobs"},
		{`"top_logprobs":2`, "top_logprobs"}, {`"logprobs":true,"top_logprobs":21`, "top_logprobs"}, {`"logprobs":true,"top_logprobs":-1`, "top_logprobs"},
		{`"logprobs":false,"top_logprobs":1`, "top_logprobs"}, {`"chat_template_kwargs":[]`, "chat_template_kwargs"},
		{`"continue_final_message":true,"add_generation_prompt":true`, "continue_final_message"}, {`"reasoning_effort":5`, "reasoning_effort"},
	}
	completion := []struct{ fields, param string }{
		{`"logprobs":21`, "logprobs"}, {`"logprobs":-1`, "logprobs"}, {`"logprobs":true`, "logprobs"}, {`"echo":"yes"`, "echo"},
		{`"prompt_embeds":"x"`, "prompt_embeds"},
	}
	gen := says("x")
	s := serve(t, gen, Options{})
	try := func(path, prompt string, cases []struct{ fields, param string }) {
		for _, c := range cases {
			for _, stream := range []string{``, `,"stream":true`} {
				if stream != "" && strings.Contains(c.fields, `"stream"`) {
					continue
				}
				msg := s.refused(s.post(path, `{"model":"M",`+prompt+`,`+c.fields+stream+`}`), 400, c.param)
				if t.Failed() {
					t.Fatalf("%s %s: %s", path, c.fields, msg)
				}
			}
		}
	}
	try("/v1/chat/completions", hi, both)
	try("/v1/completions", `"prompt":"p"`, both)
	try("/v1/chat/completions", hi, chat)
	try("/v1/completions", `"prompt":"p"`, completion)
	try("/v1/chat/completions", hi, []struct{ fields, param string }{{`"stream_options":{},"stream":false`, "stream_options"},
		{`"prompt_logprobs":1,"stream":true`, "prompt_logprobs"}, {`"stream":"yes"`, "stream"}, {`"stream":1`, "stream"},
		{`"stream_options":{"include_usage":"yes"},"stream":true`, "stream_options.include_usage"}})
	try("/v1/completions", `"n":1`, []struct{ fields, param string }{
		{`"user":"u"`, "prompt"}, {`"prompt":null`, "prompt"}, {`"prompt":5`, "prompt"}, {`"prompt":[]`, "prompt"}, {`"prompt":{}`, "prompt"},
		{`"prompt":[1,"a"]`, "prompt[1]"}, {`"prompt":["a",1]`, "prompt[1]"}, {`"prompt":[[1],[]]`, "prompt[1]"}, {`"prompt":[[1],["a"]]`, "prompt[1][0]"},
		{`"prompt":[null]`, "prompt[0]"}, {`"prompt":[1,300]`, "prompt[1]"}, {`"prompt":[-1]`, "prompt[0]"}, {`"prompt":[1.5]`, "prompt[0]"},
		{`"prompt":[[1],[305]]`, "prompt[1][0]"}, {`"prompt":"","add_special_tokens":false`, "prompt"},
		{`"prompt":[` + strings.Repeat(`"a",`, maxPrompts) + `"a"]`, "prompt"},
	})
	if n := len(gen.Requests()); n != 0 {
		t.Errorf("%d of the refused requests reached the engine", n)
	}
	s.ok(s.post("/v1/chat/completions", chatBody("")))
}

// What asks for nothing is not refused.
func TestHarmlessValues(t *testing.T) {
	s := serve(t, says("x"), Options{})
	for _, f := range []string{
		`"tools":[]`, `"tools":null`, `"functions":null`, `"tool_choice":"none"`, `"tool_choice":"auto"`, `"response_format":{"type":"text"}`,
		`"response_format":null`, `"best_of":1`, `"best_of":1.0`, `"modalities":["text"]`, `"modalities": [ "text" ]`, `"store":true`, `"metadata":{"a":"b"}`,
		`"service_tier":"auto"`, `"parallel_tool_calls":true`, `"user":"u"`, `"safety_identifier":"x"`, `"prompt_cache_key":"k"`, `"priority":3`,
		`"bad_words":[]`, `"use_beam_search":false`, `"stop":null`, `"stop":[]`, `"stop":["a","b","c","d","e"]`, `"logit_bias":{}`, `"logit_bias":null`,
		`"max_tokens":16.0`, `"max_tokens":1e2`, `"top_k":0`, `"top_k":-1`, `"top_logprobs":0`, `"logprobs":false`, `"top_logprobs":null`,
		`"nobody_knows_this":[{}]`, `"Temperature":9`, `"TOOLS":[1]`, `"temperature":0`, `"temperature":2`, `"top_p":1`, `"n":1`, `"seed":-5`,
		`"seed":9223372036854775807`, `"max_completion_tokens":null`, `"prompt_logprobs":null`, `"include_reasoning":true`,
		`"stream":false`, `"stream_options":null`, `"echo":false`, `"max_tokens":4075`,
	} {
		if a := s.post("/v1/chat/completions", chatBody(f)); a.status != 200 {
			t.Errorf("%s: %d %s", f, a.status, a.body)
		}
	}
	for _, f := range []string{`"suffix":""`, `"suffix":null`, `"echo":false`, `"logprobs":null`, `"logprobs":0`, `"best_of":null`} {
		if a := s.post("/v1/completions", `{"model":"M","prompt":"p",`+f+`}`); a.status != 200 {
			t.Errorf("%s: %d %s", f, a.status, a.body)
		}
	}
}

func TestUnknownModel(t *testing.T) {
	s := serve(t, says("x"), Options{})
	for _, path := range []string{"/v1/chat/completions", "/v1/completions"} {
		for _, stream := range []string{"true", "false"} {
			for _, c := range []struct {
				model  string
				status int
			}{{`"model":"no-such-model",`, 404}, {`"model":"",`, 404}, {`"model":"M ",`, 404}, {`"model":"m",`, 404},
				{``, 400}, {`"model":null,`, 400}, {`"model":5,`, 400}} {
				body := `{` + c.model + hi + `,"prompt":"p","stream":` + stream + `}`
				a := s.post(path, body)
				s.refused(a, c.status, "model")
				if c.status == 404 && !strings.Contains(string(a.body), "model_not_found") {
					t.Errorf("%s: %s", c.model, a.body)
				}
			}
		}
	}
}

func TestContextLength(t *testing.T) {
	gen := says("x")
	gen.MaxLen = 100
	s := serve(t, gen, Options{})
	prompt := func(n int) string { return `"prompt":"` + strings.Repeat("a", n-1) + `"` } // and a begin of text
	for _, c := range []struct {
		tokens int
		fields string
		status int
		given  int // max_tokens that the engine is asked for
		says   []string
	}{
		{50, `"max_tokens":50`, 200, 50, nil},
		{51, `"max_tokens":50`, 400, 0, []string{"50", "51", "100"}},
		{90, ``, 200, 10, nil},
		{60, ``, 200, 16, nil},
		{99, ``, 200, 1, nil},
		{100, ``, 400, 0, []string{"100"}},
		{200, ``, 400, 0, []string{"200", "100"}},
		{200, `"max_tokens":50`, 400, 0, []string{"200", "100", "50"}},
		{100, `"max_tokens":0,"echo":true`, 200, 0, nil},
		{101, `"max_tokens":0,"echo":true`, 400, 0, []string{"101", "100"}},
	} {
		before := len(gen.Requests())
		body := `{"model":"M",` + prompt(c.tokens)
		if c.fields != "" {
			body += "," + c.fields
		}
		a := s.post("/v1/completions", body+`}`)
		if a.status != c.status {
			t.Errorf("%d tokens, %s: status %d: %s", c.tokens, c.fields, a.status, a.body)
			continue
		}
		for _, number := range c.says {
			if !strings.Contains(string(a.body), number) {
				t.Errorf("%d tokens, %s: no %s in %s", c.tokens, c.fields, number, a.body)
			}
		}
		if c.given > 0 {
			if got := gen.Requests()[before].MaxTokens; got != c.given {
				t.Errorf("%d tokens, %s: asked for %d", c.tokens, c.fields, got)
			}
		}
		if r := s.ok(s.post("/v1/completions", `{"model":"M","prompt":"a"}`)); a.status == 200 && c.fields == "" && r.at("usage", "prompt_tokens") != 2.0 {
			t.Errorf("%v", r.v)
		}
	}
	s.refused(s.post("/v1/chat/completions", `{"model":"M","messages":[{"role":"user","content":"`+strings.Repeat("a", 100)+`"}]}`), 400, "messages")
}

func TestBrokenBodies(t *testing.T) {
	s := serve(t, says("x"), Options{BodyLimit: 9 << 20})
	nest := func(open, close string, n int) string { return strings.Repeat(open, n) + strings.Repeat(close, n) }
	for _, c := range []struct{ name, body, says string }{
		{"empty", "", "empty"},
		{"space", "  ", "too early"},
		{"not JSON", "hello", "byte 0"},
		{"array", "[]", "object"},
		{"string", `"x"`, "object"},
		{"cut", `{"model":"M",`, "byte"},
		{"cut in a string", `{"model":"M`, "byte"},
		{"text after", chatBody("") + "x", "after"},
		{"object after", chatBody("") + chatBody(""), "after"},
		{"duplicate name", `{"model":"M","model":"M",` + hi + `}`, "duplicate"},
		{"duplicate name inside", `{"model":"M","messages":[{"role":"user","role":"user","content":"x"}]}`, "duplicate"},
		{"duplicate name, escaped", `{"model":"M","m\u006fdel":"M",` + hi + `}`, "duplicate"},
		{"lone high surrogate", `{"model":"M","messages":[{"role":"user","content":"\ud83d"}]}`, "/messages/0/content"},
		{"lone low surrogate", `{"model":"M","messages":[{"role":"user","content":"a\ude42b"}]}`, "/messages/0/content"},
		{"surrogates in the wrong order", `{"model":"M","prompt":"\ude42\ud83d"}`, "/prompt"},
		{"invalid UTF-8", "{\"model\":\"M\",\"prompt\":\"a\xffb\"}", "/prompt"},
		{"encoded surrogate", "{\"model\":\"M\",\"prompt\":\"\xed\xa0\xbd\"}", "/prompt"},
		{"half a character", "{\"model\":\"M\",\"prompt\":\"\xf0\x9f\x99\"}", "/prompt"},
		{"invalid UTF-8 in a name", "{\"model\":\"M\",\"a\xff\":1}", "byte"},
		{"invalid UTF-8 in an ignored field", "{\"model\":\"M\",\"zzz\":{\"a\":[\"\xff\"]}}", "/zzz"},
		{"NaN", `{"model":"M","temperature":NaN}`, "byte"},
		{"leading zero", `{"model":"M","n":01}`, "byte"},
		{"control character", "{\"model\":\"M\nN\"}", "byte"},
		{"deep arrays", `{"model":"M","messages":` + nest("[", "]", 10000) + `}`, "deep"},
		{"deep objects", `{"model":"M","metadata":` + nest(`{"a":`, "}", 10000) + `}`, "deep"},
		{"deep and open", strings.Repeat("[", 100000), "deep"},
		{"deep kwargs", `{"model":"M",` + hi + `,"chat_template_kwargs":` + nest("[", "]", 10000) + `}`, "deep"},
		{"8 MB of brackets", strings.Repeat("{", 8<<20), "deep"},
		{"UTF-16", "\xff\xfe{\x00}\x00", "byte"},
		{"byte order mark", "\xef\xbb\xbf{}", "byte"},
	} {
		for _, path := range []string{"/v1/chat/completions", "/v1/completions", "/tokenize", "/detokenize"} {
			for _, stream := range []bool{false, true} {
				body := c.body
				if stream {
					body = strings.Replace(body, `{"model":"M",`, `{"model":"M","stream":true,`, 1)
				}
				a := s.post(path, body)
				if a.status != 400 || !strings.Contains(string(a.body), c.says) || !strings.Contains(string(a.body), `"error"`) {
					t.Errorf("%s on %s: %d %s, want %q", c.name, path, a.status, shorten(string(a.body), 300), c.says)
				}
			}
		}
	}
	// a valid pair and every plane are text like any other
	for _, ok := range []string{`\ud83d\ude42`, "🙂", `\u0000`, "\u2028", `\/`, "\U0010ffff", `\ufffd`} {
		if a := s.post("/v1/completions", `{"model":"M","prompt":"`+ok+`"}`); a.status != 200 {
			t.Errorf("%q: %d %s", ok, a.status, a.body)
		}
	}
}

func TestBigBodies(t *testing.T) {
	gen := says("x")
	gen.MaxLen = 10 << 20
	s := serve(t, gen, Options{BodyLimit: 9 << 20})
	big := strings.Repeat("a", 8<<20)
	if a := s.post("/v1/completions", `{"model":"M","prompt":"`+big+`","max_tokens":1}`); a.status != 200 {
		t.Errorf("8 MB: %d %s", a.status, shorten(string(a.body), 200))
	}
	a := s.post("/v1/completions", `{"model":"M","prompt":"`+big+big+`"}`)
	if s.refused(a, 413, ""); !strings.Contains(string(a.body), fmt.Sprint(9<<20)) {
		t.Errorf("413 without the limit: %s", a.body)
	}
	// the length is not announced
	s2 := s.chunked("/v1/completions", `{"model":"M","prompt":"`+big+big+`"}`)
	s.refused(s2, 413, "")
	s.refused(s.post("/v1/completions", "{}", "Content-Encoding", "gzip"), 415, "")
	s.ok(s.post("/v1/completions", `{"model":"M","prompt":"a"}`))

	tight := serve(t, gen, Options{BodyMemory: 1 << 20})
	if a := tight.post("/v1/completions", `{"model":"M","prompt":"`+big+`"}`); a.status != 503 || a.header.Get("Retry-After") == "" {
		t.Errorf("body beyond the memory of all: %d %s", a.status, a.body)
	}
	tight.ok(tight.post("/v1/completions", `{"model":"M","prompt":"a"}`))
}

// A prompt far beyond the context is refused with both numbers, whether or not all of it was counted.
func TestPromptFarTooLong(t *testing.T) {
	gen := says("x")
	gen.MaxLen = 1000
	s := serve(t, gen, Options{})
	for _, n := range []int{1500, 100_000} {
		text := strings.Repeat("a", n)
		for path, body := range map[string]string{
			"/v1/completions":      `{"model":"M","prompt":"` + text + `"}`,
			"/v1/chat/completions": `{"model":"M","messages":[{"role":"user","content":"` + text + `"}]}`,
		} {
			a := s.post(path, body)
			field := "prompt"
			if strings.Contains(path, "chat") {
				field = "messages"
			}
			if s.refused(a, 400, field); !strings.Contains(string(a.body), "1000") || !strings.Contains(string(a.body), "context_length_exceeded") {
				t.Errorf("%s, %d bytes: %s", path, n, a.body)
			}
			if exact := strings.Contains(string(a.body), "more than"); exact != (n > 16<<10) {
				t.Errorf("%s, %d bytes: %s", path, n, a.body)
			}
		}
		if a := s.post("/tokenize", `{"model":"M","prompt":"`+text+`"}`); a.status != 200 {
			t.Errorf("/tokenize of %d bytes: %d %s", n, a.status, a.body)
		}
	}
}

// A client that sends its whole body before it looks for a reply finds one, though the body is too long.
func TestTooLongBodyIsAnsweredAfterItIsSent(t *testing.T) {
	// a real network: it is the operating system that breaks a connection closed with bytes unread
	s := httptest.NewServer(New(says("x"), Options{BodyLimit: 4 << 20}))
	defer s.Close()
	body := strings.Repeat("a", 16<<20) // more than the buffers of a connection hold
	for name, head := range map[string]string{
		"announced": fmt.Sprintf("Content-Length: %d\r\n\r\n", len(body)),
		"chunked":   fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n", len(body)),
	} {
		conn, err := net.Dial("tcp", strings.TrimPrefix(s.URL, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		tail := ""
		if name == "chunked" {
			tail = "\r\n0\r\n\r\n"
		}
		if _, err := io.WriteString(conn, "POST /v1/completions HTTP/1.1\r\nHost: x\r\n"+head+body+tail); err != nil {
			t.Errorf("%s: sending: %v", name, err)
		}
		got, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil || got.StatusCode != 413 {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}
