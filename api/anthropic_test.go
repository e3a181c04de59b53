package api

import (
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/openinfer-go/openinfer/api/apitest"
	"github.com/openinfer-go/openinfer/engine"
)

// prompted is the prompt of the generator's last request.
func prompted(gen *apitest.Generator) string {
	all := gen.Requests()
	var b strings.Builder
	for _, id := range all[len(all)-1].Prompt {
		switch {
		case id < 256:
			b.WriteByte(byte(id))
		case id == apitest.ImStart:
			b.WriteString("<|")
		case id == apitest.ImEnd:
			b.WriteString("|>")
		}
	}
	return b.String()
}

// named are a stream's events as name and data, heartbeats left out.
func named(t *testing.T, a answer) (names []string, data []tree) {
	t.Helper()
	if a.status != 200 || a.err != nil {
		t.Fatalf("status %d (%v): %s", a.status, a.err, a.body)
	}
	for block := range strings.SplitSeq(strings.TrimSuffix(string(a.body), "\n\n"), "\n\n") {
		if strings.HasPrefix(block, ":") {
			continue
		}
		name, rest, ok := strings.Cut(strings.TrimPrefix(block, "event: "), "\ndata: ")
		if !ok || strings.Contains(rest, "\n") {
			t.Fatalf("not a named event: %q", block)
		}
		e := parse(t, rest)
		if e.at("type") != name {
			t.Errorf("event %s says it is %v", name, e.at("type"))
		}
		if name == "ping" {
			continue
		}
		names, data = append(names, name), append(data, e)
	}
	return names, data
}

// anthropicRefused checks for Anthropic's error object and returns its message.
func anthropicRefused(t *testing.T, a answer, status int, kind string) string {
	t.Helper()
	e := parse(t, string(a.body))
	message, _ := e.at("error", "message").(string)
	if a.status != status || e.at("type") != "error" || e.at("error", "type") != kind || message == "" || e.at("request_id") != a.header.Get("X-Request-Id") {
		t.Errorf("status %d, want %d and %s: %s", a.status, status, kind, a.body)
	}
	return message
}

const hello = `"max_tokens":50,"messages":[{"role":"user","content":"hi"}]`

func TestAnthropicMessages(t *testing.T) {
	gen := answers(func(r engine.Request) apitest.Answer { return apitest.Answer{Text: "Grüße, Welt", Cached: 3} })
	s := serve(t, gen, Options{})
	got := s.ok(s.post("/v1/messages?beta=true", `{"model":"M",`+hello+`}`, "Anthropic-Version", "2023-06-01", "Anthropic-Beta", "x"))
	n := float64(len(gen.Requests()[0].Prompt))
	want := map[string]any{
		"id": got.at("id"), "type": "message", "role": "assistant", "model": "M", "stop_reason": "end_turn", "stop_sequence": nil,
		"content": []any{map[string]any{"type": "text", "text": "Grüße, Welt"}},
		"usage": map[string]any{"input_tokens": n - 3, "cache_read_input_tokens": 3.0, "cache_creation_input_tokens": 0.0,
			"output_tokens": float64(len("Grüße, Welt") + 1)},
	}
	if !reflect.DeepEqual(got.v, want) || !strings.HasPrefix(got.at("id").(string), "msg_") {
		t.Errorf("got %v\nwant %v", got.v, want)
	}

	stop := s.ok(s.post("/v1/messages", `{"model":"M",`+hello+`,"stop_sequences":["W"]}`))
	if stop.at("stop_reason") != "stop_sequence" || stop.at("stop_sequence") != "W" || stop.at("content", 0, "text") != "Grüße, " {
		t.Errorf("%v", stop.v)
	}
	short := s.ok(s.post("/v1/messages", `{"model":"M","max_tokens":2,"messages":[{"role":"user","content":"hi"}]}`))
	if short.at("stop_reason") != "max_tokens" || short.at("content", 0, "text") != "Gr" {
		t.Errorf("%v", short.v)
	}
	long := s.ok(s.post("/v1/messages", `{"model":"M","max_tokens":32000,"messages":[{"role":"user","content":"hi"}]}`))
	if long.at("stop_reason") != "end_turn" {
		t.Errorf("%v", long.v)
	}
	count := s.ok(s.post("/v1/messages/count_tokens", `{"model":"M","messages":[{"role":"user","content":"hi"}]}`))
	if count.at("input_tokens") != n {
		t.Errorf("counted %v, the prompt had %v", count.at("input_tokens"), n)
	}
}

func TestMessagesWithoutRoom(t *testing.T) {
	gen := says(strings.Repeat("x", 500))
	gen.MaxLen = 128
	s := serve(t, gen, Options{})
	full := s.ok(s.post("/v1/messages", `{"model":"M","max_tokens":32000,"messages":[{"role":"user","content":"hi"}]}`))
	if full.at("stop_reason") != "model_context_window_exceeded" {
		t.Errorf("%v", full.v)
	}
	for _, size := range []int{128, 40000} { // the second is not even counted
		m := anthropicRefused(t, s.post("/v1/messages", fmt.Sprintf(`{"model":"M","max_tokens":10,"messages":[{"role":"user","content":%q}]}`,
			strings.Repeat("y", size))), 400, "invalid_request_error")
		if !strings.Contains(m, "prompt is too long: ") || !strings.Contains(m, " tokens > 127 maximum") {
			t.Errorf("%d: %s", size, m)
		}
	}
}

func TestMessagesStream(t *testing.T) {
	gen := thinks("<think>hm, ü</think>So: ñ", false, false)
	s := serve(t, gen, Options{})
	names, data := named(t, s.post("/v1/messages", `{"model":"M",`+hello+`,"stream":true,"thinking":{"type":"enabled","budget_tokens":1024}}`))
	text, blocks := map[string]string{}, []string{}
	for i, e := range data {
		switch names[i] {
		case "message_start":
			if i != 0 || e.at("message", "content") == nil || e.at("message", "stop_reason") != nil || e.at("message", "usage", "input_tokens") == nil {
				t.Errorf("%v", e.v)
			}
		case "content_block_start":
			blocks = append(blocks, fmt.Sprintf("%v %v", e.at("index"), e.at("content_block", "type")))
		case "content_block_delta":
			for _, f := range []string{"text", "thinking"} {
				if d, ok := e.at("delta", f).(string); ok {
					text[fmt.Sprintf("%v %v", e.at("index"), f)] += d
				}
			}
		case "message_delta":
			if e.at("delta", "stop_reason") != "end_turn" || e.at("usage", "output_tokens").(float64) < 10 {
				t.Errorf("%v", e.v)
			}
		}
	}
	if fmt.Sprint(blocks) != "[0 thinking 1 text]" || text["0 thinking"] != "hm, ü" || text["1 text"] != "So: ñ" {
		t.Errorf("blocks %v, text %v", blocks, text)
	}
	order := strings.Join(names, " ")
	if !strings.HasPrefix(order, "message_start content_block_start content_block_delta") || strings.Count(order, "message_stop") != 1 ||
		!strings.HasSuffix(order, "content_block_stop message_delta message_stop") || strings.Count(order, "content_block_stop") != 2 {
		t.Errorf("%s", order)
	}
	whole := s.ok(s.post("/v1/messages", `{"model":"M",`+hello+`,"thinking":{"type":"adaptive"}}`))
	if whole.at("content", 0, "thinking") != "hm, ü" || whole.at("content", 0, "signature") == "" || whole.at("content", 1, "text") != "So: ñ" {
		t.Errorf("%v", whole.v)
	}
	for _, more := range []string{"", `,"thinking":{"type":"disabled"}`, `,"thinking":{"type":"enabled","budget_tokens":1024,"display":"omitted"}`} {
		quiet := s.ok(s.post("/v1/messages", `{"model":"M",`+hello+more+`}`))
		if blocks := quiet.at("content").([]any); len(blocks) != 1 || quiet.at("content", 0, "text") != "So: ñ" {
			t.Errorf("%s: %v", more, quiet.v)
		}
	}
}

// recorder keeps what templates are given. Its own template writes the messages as they are.
type recorder struct {
	*apitest.Generator
	mu    sync.Mutex
	given []engine.ChatPrompt
}

func (r *recorder) RenderChat(model string, p engine.ChatPrompt) (engine.RenderedChat, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.given = append(r.given, p)
	return engine.RenderedChat{IDs: apitest.Bytes(string(p.Messages))}, nil
}

// last is what the last request gave the template.
func (r *recorder) last() engine.ChatPrompt {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.given[len(r.given)-1]
}

func TestThinkingReachesTheTemplate(t *testing.T) {
	gen := &recorder{Generator: says("x")}
	s := serve(t, gen, Options{})
	const on, off = `{"thinking":true,"enable_thinking":true}`, `{"thinking":false,"enable_thinking":false}`
	for _, c := range []struct{ path, more, kwargs string }{
		{"/v1/messages", `,"thinking":{"type":"enabled","budget_tokens":2000}`, on},
		{"/v1/messages", `,"thinking":{"type":"adaptive"}`, on},
		{"/v1/messages", `,"thinking":{"type":"disabled"}`, off},
		{"/v1/messages", ``, off},
		{"/v1/messages", `,"output_config":{"effort":"max"}`, `{"reasoning_effort":"high","thinking":false,"enable_thinking":false}`},
		{"/v1/messages", `,"chat_template_kwargs":{"enable_thinking":true}`, `{"thinking":false,"enable_thinking":true}`},
		{"/api/chat", `,"think":true`, on},
		{"/api/chat", `,"think":"low"`, `{"reasoning_effort":"low","thinking":true,"enable_thinking":true}`},
		{"/api/chat", `,"think":false`, off},
		{"/api/chat", ``, ``},
		{"/v1/responses", ``, ``},
		{"/v1/responses", `,"reasoning":{"effort":"none"}`, off},
		{"/v1/responses", `,"reasoning":{"effort":"xhigh","summary":"auto"}`, `{"reasoning_effort":"high"}`},
	} {
		s.ok(s.post(c.path, `{"model":"M","stream":false,"input":"hi",`+hello+c.more+`}`))
		if got := string(gen.last().Kwargs); got != c.kwargs {
			t.Errorf("%s%s: %s, want %s", c.path, c.more, got, c.kwargs)
		}
	}
}

// Claude Code sends all of this.
func TestMessagesOfAnAgent(t *testing.T) {
	gen := &recorder{Generator: says("ok")}
	s := serve(t, gen, Options{})
	agent := func(account, reminder string) string {
		return `{"model":"M","max_tokens":32000,"stream":true,"metadata":{"user_id":"u"},"temperature":1,
		"context_management":{"edits":[{"type":"clear_thinking_20251015","keep":"all"}]},"output_config":{"effort":"high"},
		"system":[{"type":"text","text":"x-anthropic-billing-header: cc_version=2; cch=` + account + `;"},
			{"type":"text","text":"You are an agent.","cache_control":{"type":"ephemeral"}},{"type":"text","text":"Be short."}],
		"messages":[
			{"role":"user","content":[{"type":"text","text":"<r>one</r>"},{"type":"text","text":"do it","cache_control":{"type":"ephemeral"}}]},
			{"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"s"},{"type":"redacted_thinking","data":"x"},{"type":"text","text":"Doing."}]},
			{"role":"user","content":"go on"},
			{"role":"system","content":"` + reminder + `"}]}`
	}
	rendered := func(reminder string) string {
		return `[{"role":"system","content":"You are an agent.\nBe short."},` +
			`{"role":"user","content":[{"type":"text","text":"<r>one</r>"},{"type":"text","text":"do it"}]},` +
			`{"role":"assistant","content":"Doing.","reasoning_content":"hm"},{"role":"user","content":"go on"},` +
			`{"role":"system","content":"` + reminder + `"}]`
	}
	for _, c := range []struct{ account, reminder string }{{"a", "left: 9"}, {"b", "left: 8"}} { // of which the first must not reach the prompt
		names, _ := named(t, s.post("/v1/messages?beta=true", agent(c.account, c.reminder)))
		if got := string(gen.last().Messages); got != rendered(c.reminder) || names[len(names)-1] != "message_stop" {
			t.Errorf("got  %s\nwant %s", got, rendered(c.reminder))
		}
	}
	// what the assistant has begun is gone on with
	s.ok(s.post("/v1/messages", `{"model":"M","max_tokens":5,"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"I say"}]}`))
	if p := gen.last(); !p.ContinueFinal || p.AddGenerationPrompt {
		t.Errorf("%+v", p)
	}
}

func TestMessagesRefused(t *testing.T) {
	gen := says("ok")
	s := serve(t, gen, Options{})
	for _, c := range []struct{ body, says string }{
		{`{"model":"M","messages":[{"role":"user","content":"hi"}]}`, "max_tokens: is missing"},
		{`{"model":"M","max_tokens":0,"messages":[{"role":"user","content":"hi"}]}`, "max_tokens: "},
		{`{"model":"M","max_tokens":5}`, "messages: is missing"},
		{`{"model":"M","max_tokens":5,"messages":[]}`, "messages: is empty"},
		{`{"model":"M","max_tokens":5,"messages":[{"role":"tool","content":"hi"}]}`, "messages[0].role: "},
		{`{"model":"M","max_tokens":5,"messages":[{"role":"user","content":[]}]}`, "messages[0].content: has no blocks"},
		{`{"model":"M","max_tokens":5,"messages":[{"role":"user","content":[{"type":"image","source":{}}]}]}`, `messages[0].content[0].type: "image" blocks`},
		{`{"model":"M","max_tokens":5,"messages":[{"role":"user","content":[{"type":"document","source":{}}]}]}`, `messages[0].content[0].type: "document"`},
		{`{"model":"M","max_tokens":5,"messages":[{"role":"user","content":[{"type":"text"}]}]}`, "messages[0].content[0].text: is missing"},
		{`{"model":"M","max_tokens":5,"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":[{"type":"image"}]}]}]}`,
			"messages[0].content[0].content[0].type: "},
		{`{"model":"M",` + hello + `,"system":[{"type":"image"}]}`, "system[0].type: "},
		{`{"model":"M",` + hello + `,"stop_sequences":"x"}`, "stop_sequences: "},
		{`{"model":"M",` + hello + `,"stop_sequences":[""]}`, "stop_sequences: "},
		{`{"model":"M",` + hello + `,"stop_sequences":[1]}`, "stop_sequences[0]: want a string"},
		{`{"model":"M",` + hello + `,"temperature":3}`, "temperature: "},
		{`{"model":"M",` + hello + `,"thinking":{"type":"maybe"}}`, "thinking.type: "},
		{`{"model":"M",` + hello + `,"thinking":true}`, "thinking: want an object"},
		{`{"model":"M",` + hello + `,"mcp_servers":[{"name":"x"}]}`, "mcp_servers: "},
		{`{"model":"M",` + hello + `,"tools":[{"type":"web_search_20250305","name":"web_search"}]}`, "tools[0].type: "},
		{`{"model":"M",` + hello + `,"tool_choice":{"type":"some"}}`, "tool_choice.type: "},
		{`{"model":"M",` + hello + `,"metadata":{"user_id":1}}`, "metadata.user_id: "},
		{`{"model":"M"`, "body: "},
		{``, "body: "},
	} {
		if m := anthropicRefused(t, s.post("/v1/messages", c.body), 400, "invalid_request_error"); !strings.HasPrefix(m, c.says) {
			t.Errorf("%s: %q does not begin with %q", c.body, m, c.says)
		}
	}
	anthropicRefused(t, s.post("/v1/messages", `{"model":"X",`+hello+`}`), 404, "not_found_error")
	anthropicRefused(t, s.do("GET", "/v1/messages", ""), 405, "invalid_request_error")
	anthropicRefused(t, s.do("GET", "/v1/messages/other", ""), 404, "not_found_error")
	anthropicRefused(t, s.post("/v1/messages/batches", "{}"), 501, "api_error")
	if n := len(gen.Requests()); n != 0 {
		t.Errorf("%d requests were generated for", n)
	}
}

func TestMessagesKeyAndLimits(t *testing.T) {
	gen := says(strings.Repeat("x", 40))
	gen.MaxRunning = 1
	step := make(chan struct{})
	gen.Answer = func(engine.Request) apitest.Answer { return apitest.Answer{Text: "xxxx", Step: step} }
	s := serve(t, gen, Options{Keys: []string{"k"}})
	anthropicRefused(t, s.post("/v1/messages", `{"model":"M",`+hello+`}`), 401, "authentication_error")
	anthropicRefused(t, s.post("/v1/messages", `{"model":"M",`+hello+`}`, "X-Api-Key", "no"), 401, "authentication_error")
	done := make(chan answer)
	go func() { done <- s.post("/v1/messages", `{"model":"M",`+hello+`}`, "X-Api-Key", "k") }()
	eventually(t, "the first runs", func() bool { return gen.Live.Load() == 1 })
	busy := s.post("/v1/messages", `{"model":"M",`+hello+`}`, "Authorization", "Bearer k")
	anthropicRefused(t, busy, 429, "rate_limit_error")
	if busy.header.Get("Retry-After") != "2" {
		t.Errorf("Retry-After %q", busy.header.Get("Retry-After"))
	}
	for path, want := range map[string]string{"/api/chat": `"error"`, "/v1/responses": `"rate_limit_error"`} {
		a := s.post(path, `{"model":"M","input":"hi",`+hello+`}`, "Authorization", "Bearer k")
		if a.status != 429 || a.header.Get("Retry-After") != "2" || !strings.Contains(string(a.body), want) {
			t.Errorf("%s: %d %v %s", path, a.status, a.header, a.body)
		}
	}
	close(step)
	if a := <-done; a.status != 200 {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// A stream that fails in the middle ends with one error in its API's own form, and nothing after it.
func TestShapesFailInMidStream(t *testing.T) {
	gen := answers(func(engine.Request) apitest.Answer {
		return apitest.Answer{Text: "Hello there.", FailAfter: 5, Err: fmt.Errorf("%w: boom", engine.ErrStep)}
	})
	s := serve(t, gen, Options{})
	names, data := named(t, s.post("/v1/messages", `{"model":"M","stream":true,`+hello+`}`))
	if last := data[len(data)-1]; names[len(names)-1] != "error" || last.at("error", "type") != "api_error" || strings.Contains(fmt.Sprint(names), "message_stop") {
		t.Errorf("%v %v", names, last)
	}
	names, data = named(t, s.post("/v1/responses", `{"model":"M","stream":true,"input":"hi"}`))
	if last := data[len(data)-1]; names[len(names)-1] != "response.failed" || last.at("response", "status") != "failed" ||
		last.at("response", "error", "code") != "server_error" || strings.Contains(fmt.Sprint(names), "completed") {
		t.Errorf("%v %v", names, last)
	}
	lines := strings.Split(strings.TrimSpace(string(s.post("/api/chat", `{"model":"M",`+hello+`}`).body)), "\n")
	if last := parse(t, lines[len(lines)-1]); last.at("error") == nil || strings.Contains(fmt.Sprint(lines), `"done":true`) {
		t.Errorf("%v", lines)
	}
}

func TestShapesBeatWhileSilent(t *testing.T) {
	gen := answers(func(engine.Request) apitest.Answer { return apitest.Answer{Text: "x", Prefill: 50 * time.Millisecond} })
	s := serve(t, gen, Options{KeepAlive: 5 * time.Millisecond})
	if b := string(s.post("/v1/messages", `{"model":"M","stream":true,`+hello+`}`).body); !strings.HasPrefix(b, "event: ping\ndata: {\"type\":\"ping\"}\n\n") {
		t.Errorf("%q", b)
	}
	if b := string(s.post("/v1/responses", `{"model":"M","stream":true,"input":"hi"}`).body); !strings.HasPrefix(b, ": keep-alive\n\n") || strings.Contains(b, "[DONE]") {
		t.Errorf("%q", b)
	}
	if b := string(s.post("/api/chat", `{"model":"M",`+hello+`}`).body); !strings.HasPrefix(b, `{"model"`) {
		t.Errorf("%q", b)
	}
}

func TestShapesCancelWhenTheClientLeaves(t *testing.T) {
	for path, body := range map[string]string{
		"/v1/messages": `{"model":"M","stream":true,` + hello + `}`, "/v1/responses": `{"model":"M","input":"hi"}`,
		"/api/chat": `{"model":"M",` + hello + `}`, "/api/generate": `{"model":"M","stream":false,"prompt":"hi"}`,
	} {
		gen := answers(func(engine.Request) apitest.Answer {
			return apitest.Answer{Text: strings.Repeat("x", 3000), Delay: time.Millisecond}
		})
		s := serve(t, gen, Options{})
		conn := s.raw(fmt.Sprintf("POST %s HTTP/1.1\r\nHost: t\r\nContent-Length: %d\r\n\r\n%s", path, len(body), body))
		eventually(t, path+" runs", func() bool { return gen.Live.Load() == 1 })
		conn.Close()
		eventually(t, path+" is cancelled", func() bool { return gen.Live.Load() == 0 })
	}
}

func TestModelsForAnthropicsClients(t *testing.T) {
	s := serve(t, says("x"), Options{})
	list := s.ok(s.do("GET", "/v1/models", "", "Anthropic-Version", "2023-06-01"))
	if list.at("data", 0, "type") != "model" || list.at("data", 1, "id") != "org/other" || list.at("has_more") != false || list.at("first_id") != "M" {
		t.Errorf("%v", list.v)
	}
	one := s.ok(s.do("GET", "/v1/models/M", "", "Anthropic-Version", "2023-06-01"))
	if created, err := time.Parse(time.RFC3339, one.at("created_at").(string)); err != nil || created.Unix() != 1700000000 {
		t.Errorf("%v", one.v)
	}
	anthropicRefused(t, s.do("GET", "/v1/models/X", "", "Anthropic-Version", "2023-06-01"), 404, "not_found_error")
}

// A stream that has begun to beat while its model was loading is told in its own form that it will not.
func TestShapesOfAModelThatFailsToLoad(t *testing.T) {
	for path, last := range map[string]string{"/v1/messages": `{"type":"error",`, "/v1/responses": `{"type":"response.failed",`} {
		loading := make(chan struct{})
		gen := says("x")
		gen.Loading, gen.LoadErr = loading, engine.ErrLoad
		s := serve(t, gen, Options{KeepAlive: time.Millisecond})
		time.AfterFunc(30*time.Millisecond, func() { close(loading) })
		a := s.post(path, `{"model":"M","stream":true,"input":"hi",`+hello+`}`)
		if n := len(a.events); a.status != 200 || n == 0 || !strings.HasPrefix(a.events[n-1], last) || strings.Count(string(a.body), last) != 1 {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
	loading := make(chan struct{})
	gen := says("x")
	gen.Loading, gen.LoadErr = loading, engine.ErrLoad
	close(loading)
	s := serve(t, gen, Options{})
	if a := s.post("/api/chat", `{"model":"M",`+hello+`}`); a.status != 503 || !strings.HasPrefix(string(a.body), `{"error":"`) || a.header.Get("Retry-After") == "" {
		t.Errorf("%d %v %s", a.status, a.header, a.body)
	}
}

// TestAnthropicRequestID: every reply of Anthropic's API has the request's id where its clients look for it, errors in their body as well.
func TestAnthropicRequestID(t *testing.T) {
	s := serve(t, says("x"), Options{Keys: []string{"k"}})
	const body = `{"model":"M","max_tokens":5,"messages":[{"role":"user","content":"hi"}]}`
	for _, c := range []struct {
		method, path, body, key string
		status                  int
	}{
		{"POST", "/v1/messages", body, "k", 200}, {"POST", "/v1/messages/count_tokens", body, "k", 200}, {"POST", "/v1/messages", body, "no", 401},
		{"POST", "/v1/messages", "{", "k", 400}, {"GET", "/v1/messages", "", "k", 405}, {"POST", "/v1/messages", strings.Replace(body, `"M"`, `"none"`, 1), "k", 404},
		{"POST", "/v1/messages/batches", "{}", "k", 501}, {"POST", "/v1/messages/other", "{}", "k", 404},
	} {
		a := s.do(c.method, c.path, c.body, "X-Api-Key", c.key, "X-Request-Id", "mine-1")
		if a.status != c.status || a.header.Get("Request-Id") != "mine-1" || a.header.Get("X-Request-Id") != "mine-1" {
			t.Errorf("%s %s: %d, %v", c.method, c.path, a.status, a.header)
		}
		if c.status >= 400 && !strings.Contains(string(a.body), `"request_id":"mine-1"`) {
			t.Errorf("%s %s: %s", c.method, c.path, a.body)
		}
	}
}
