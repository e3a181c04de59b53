package api

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// lines are the objects of a stream of JSON texts.
func lines(t *testing.T, a answer) []tree {
	t.Helper()
	if a.status != 200 || a.err != nil || a.header.Get("Content-Type") != "application/x-ndjson" {
		t.Fatalf("status %d (%v) %v: %s", a.status, a.err, a.header, a.body)
	}
	var all []tree
	for line := range strings.SplitSeq(strings.TrimSuffix(string(a.body), "\n"), "\n") {
		all = append(all, parse(t, line))
	}
	return all
}

func TestOllamaChat(t *testing.T) {
	gen := thinks("<think>hm</think>Grüße, Welt", false, false)
	s := serve(t, gen, Options{})
	const body = `{"model":"M:latest","messages":[{"role":"system","content":"S"},{"role":"user","content":"hi"}],
		"options":{"num_predict":100,"temperature":0,"top_k":3,"top_p":0.5,"min_p":0.1,"seed":4,"stop":["zz"],"repeat_penalty":1.2,
			"presence_penalty":0.5,"frequency_penalty":0.25,"num_ctx":2048,"num_gpu":99}`
	var content, thinking string
	all := lines(t, s.post("/api/chat", body+"}"))
	for i, o := range all {
		if o.at("model") != "M:latest" || o.at("message", "role") != "assistant" || o.at("done") != (i == len(all)-1) {
			t.Errorf("%d: %v", i, o.v)
		}
		if _, err := time.Parse(time.RFC3339Nano, o.at("created_at").(string)); err != nil {
			t.Error(err)
		}
		content += o.at("message", "content").(string)
		if x, ok := o.at("message", "thinking").(string); ok {
			thinking += x
		}
	}
	end := all[len(all)-1]
	r := gen.Requests()[0]
	if content != "Grüße, Welt" || thinking != "hm" || end.at("done_reason") != "stop" || end.at("prompt_eval_count") != float64(len(r.Prompt)) ||
		end.at("eval_count").(float64) < 10 || end.at("total_duration").(float64) <= 0 || end.at("eval_duration").(float64) < 0 {
		t.Errorf("%q %q %v", content, thinking, end.v)
	}
	sp := r.Sampling
	if r.MaxTokens != 100 || sp.Temperature != 0 || sp.TopK != 3 || sp.TopP != 0.5 || sp.MinP != 0.1 || *sp.Seed != 4 || sp.RepetitionPenalty != 1.2 ||
		sp.PresencePenalty != 0.5 || sp.FrequencyPenalty != 0.25 || fmt.Sprint(r.Stop) != "[zz]" {
		t.Errorf("%+v", r)
	}
	whole := s.ok(s.post("/api/chat", body+`,"stream":false}`))
	if whole.at("message", "content") != content || whole.at("message", "thinking") != thinking || whole.at("done") != true {
		t.Errorf("%v", whole.v)
	}
	scored := s.ok(s.post("/api/chat", body+`,"stream":false,"logprobs":true,"top_logprobs":2}`))
	if n := len(scored.at("logprobs").([]any)); float64(n) != scored.at("eval_count") || len(scored.at("logprobs", 0, "top_logprobs").([]any)) != 2 {
		t.Errorf("%v", scored.v)
	}
}

func TestOllamaGenerate(t *testing.T) {
	gen := says("Hello there.")
	s := serve(t, gen, Options{})
	text := ""
	all := lines(t, s.post("/api/generate", `{"model":"org/other","system":"S","prompt":"hi"}`))
	for _, o := range all {
		text += o.at("response").(string)
	}
	if text != "Hello there." || all[len(all)-1].at("done_reason") != "stop" || !strings.Contains(prompted(gen), "S") {
		t.Errorf("%q %v, prompt %q", text, all[len(all)-1].v, prompted(gen))
	}
	raw := s.ok(s.post("/api/generate", `{"model":"M","prompt":"as it is","raw":true,"stream":false,"options":{"num_predict":5}}`))
	if raw.at("response") != "Hello" || raw.at("done_reason") != "length" || raw.at("eval_count") != 5.0 || prompted(gen) != "as it is" {
		t.Errorf("%v, prompt %q", raw.v, prompted(gen))
	}
	long := s.ok(s.post("/api/generate", `{"model":"M","prompt":"as it is","raw":true,"stream":false,"options":{"num_predict":-1}}`))
	if long.at("response") != "Hello there." || gen.Requests()[2].MaxTokens < 4000 {
		t.Errorf("%v", long.v)
	}
	if cut := s.ok(s.post("/api/generate", `{"model":"M","prompt":"hi","stream":false,"options":{"num_predict":100000}}`)); cut.at("response") != "Hello there." {
		t.Errorf("%v", cut.v)
	}
}

func TestOllamaLoadsAndUnloads(t *testing.T) {
	gen := says("x")
	s := serve(t, gen, Options{})
	state := func() string { return gen.Models()[0].State }
	for _, c := range []struct{ path, body, reason, state string }{
		{"/api/generate", `{"model":"M","keep_alive":0}`, "unload", "parked"},
		{"/api/generate", `{"model":"M"}`, "load", "resident"},
		{"/api/chat", `{"model":"M","messages":[],"keep_alive":"0"}`, "unload", "parked"},
		{"/api/chat", `{"model":"M","messages":[],"keep_alive":"10m"}`, "load", "resident"},
		{"/api/chat", `{"model":"M:latest","keep_alive":-1}`, "load", "resident"},
	} {
		got := s.ok(s.post(c.path, c.body))
		if got.at("done_reason") != c.reason || got.at("done") != true || state() != c.state {
			t.Errorf("%s %s: %v, state %s", c.path, c.body, got.v, state())
		}
	}
	if kept := gen.Kept("M"); kept >= 0 {
		t.Errorf("kept for %v", kept)
	}
	s.ok(s.post("/api/chat", `{"model":"M","keep_alive":"10m"}`))
	if kept := gen.Kept("M"); kept != 10*time.Minute {
		t.Errorf("kept for %v", kept)
	}
	ps := s.ok(s.do("GET", "/api/ps", ""))
	expires := func(i int) time.Duration {
		at, err := time.Parse(time.RFC3339Nano, ps.at("models", i, "expires_at").(string))
		if err != nil {
			t.Error(err)
		}
		return time.Until(at)
	}
	if m := ps.at("models").([]any); len(m) != 2 || expires(0) > 10*time.Minute || expires(0) < time.Minute || expires(1) < 100*365*24*time.Hour {
		t.Errorf("%v", m)
	}
	s.ok(s.post("/api/generate", `{"model":"M","keep_alive":0}`))
	ps = s.ok(s.do("GET", "/api/ps", ""))
	if m := ps.at("models").([]any); len(m) != 1 || ps.at("models", 0, "name") != "org/other:latest" || ps.at("models", 0, "expires_at") == nil {
		t.Errorf("%v", m)
	}
	if len(gen.Requests()) != 0 {
		t.Error("something was generated")
	}
}

func TestOllamaLists(t *testing.T) {
	gen := thinks("x", false, false)
	s := serve(t, gen, Options{Version: "9.9"})
	tags := s.ok(s.do("GET", "/api/tags", ""))
	for i, name := range []string{"M:latest", "org/other:latest"} {
		if tags.at("models", i, "name") != name || tags.at("models", i, "model") != name || len(tags.at("models", i, "digest").(string)) != 64 ||
			tags.at("models", i, "details", "family") != "bytes" {
			t.Errorf("%v", tags.at("models", i))
		}
		for _, body := range []string{`{"model":"` + name + `"}`, `{"name":"` + name + `","verbose":true}`} {
			shown := s.ok(s.post("/api/show", body))
			if shown.at("model_info", "bytes.context_length") != 4096.0 || fmt.Sprint(shown.at("capabilities")) != "[completion thinking]" {
				t.Errorf("%v", shown.v)
			}
		}
	}
	if v := s.ok(s.do("GET", "/api/version", "")); v.at("openinfer") != "9.9" || v.at("version") == "" {
		t.Errorf("%v", v.v)
	}
}

func TestOllamaRefused(t *testing.T) {
	gen := says("ok")
	s := serve(t, gen, Options{})
	const chat, generate = "/api/chat", "/api/generate"
	for _, c := range []struct {
		path, body string
		status     int
		says       string
	}{
		{chat, `{"messages":[{"role":"user","content":"hi"}]}`, 400, "model: is missing"},
		{chat, `{"model":"nope","messages":[]}`, 404, "model 'nope' not found"},
		{chat, `{"model":"M","messages":{}}`, 400, "messages: want an array"},
		{chat, `{"model":"M","messages":[{"content":"hi"}]}`, 400, "messages[0].role: is missing"},
		{chat, `{"model":"M","messages":[{"role":"x","content":"hi"}]}`, 400, `messages[0]: "x" is not one of`},
		{chat, `{"model":"M","messages":[{"role":"user","content":"hi","images":["aa"]}]}`, 400, "messages[0].images: "},
		{chat, `{"model":"M","messages":[{"role":"user","content":"hi"}],"options":{"num_ctx":1000000}}`, 400, "options.num_ctx: 1000000 exceeds"},
		{chat, `{"model":"M","messages":[{"role":"user","content":"hi"}],"options":{"num_predict":-9}}`, 400, "options.num_predict: "},
		{chat, `{"model":"M","messages":[{"role":"user","content":"hi"}],"options":{"temperature":9}}`, 400, "options.temperature: "},
		{chat, `{"model":"M","messages":[{"role":"user","content":"hi"}],"options":{"repeat_penalty":"x"}}`, 400, "options.repeat_penalty: want"},
		{chat, `{"model":"M","messages":[{"role":"user","content":"hi"}],"options":{"mirostat":1}}`, 400, "options.mirostat: "},
		{chat, `{"model":"M","messages":[{"role":"user","content":"hi"}],"format":"xml"}`, 400, "format: "},
		{chat, `{"model":"M","messages":[{"role":"user","content":"hi"}],"think":"hard"}`, 400, "think: "},
		{chat, `{"model":"M","messages":[{"role":"user","content":"hi"}],"keep_alive":"soon"}`, 400, "keep_alive: "},
		{generate, `{"model":"M","prompt":"hi","suffix":"x"}`, 400, "suffix: "},
		{generate, `{"model":"M","prompt":"hi","images":["x"]}`, 400, "images: "},
		{generate, `{"model":"M","prompt":"hi","context":[1]}`, 400, "context: "},
		{generate, `{"model":"M","prompt":"hi","template":"x"}`, 400, "template: "},
		{generate, `{"model":"M","prompt":["hi"]}`, 400, "prompt: want a string"},
		{"/api/show", `{}`, 400, "model: is missing"},
		{"/api/pull", `{"model":"x"}`, 501, "models are not fetched"},
		{"/api/delete", `{"model":"x"}`, 501, "models are not deleted"},
		{"/api/embed", `{"model":"M","input":"x"}`, 501, "embeddings are not served"},
		{"/api/blobs/sha256:1", `x`, 501, "models are not made"},
		{"/api/nothing", `{}`, 404, "no such path"},
		{"/api/tags", `{}`, 405, "/api/tags answers to GET"},
	} {
		a := s.post(c.path, c.body)
		e := parse(t, string(a.body))
		if m, _ := e.at("error").(string); a.status != c.status || !strings.HasPrefix(m, c.says) {
			t.Errorf("%s %s: status %d, want %d; %s", c.path, c.body, a.status, c.status, a.body)
		}
	}
	if len(gen.Requests()) != 0 {
		t.Error("something was generated")
	}
}

func TestUnservedPathsSaySo(t *testing.T) {
	s := serve(t, says("x"), Options{})
	for _, path := range []string{"/v1/embeddings", "/v1/images/generations", "/v1/audio/speech", "/v1/moderations", "/v1/responses/resp_1", "/v1/files", "/v1/files/f", "/v1/batches"} {
		for _, method := range []string{"GET", "POST"} {
			a := s.do(method, path, "{}")
			if m := s.refused(a, 501, ""); !strings.Contains(m, " not ") || a.header.Get("X-Should-Retry") != "false" {
				t.Errorf("%s: %v", path, m)
			}
		}
	}
	for _, path := range []string{"/v1/embeddingsx", "/v1/images", "/v1/fileset"} {
		s.refused(s.post(path, "{}"), 404, "")
	}
}

// A model that is still loading holds a stream back; its failure can still be a status where nothing was sent.
func TestOllamaWaitsForALoadingModel(t *testing.T) {
	loading := make(chan struct{})
	gen := says("late")
	gen.Loading = loading
	s := serve(t, gen, Options{KeepAlive: time.Millisecond})
	done := make(chan answer)
	go func() { done <- s.post("/api/chat", `{"model":"M",`+hello+`}`) }()
	time.AfterFunc(20*time.Millisecond, func() { close(loading) })
	if all := lines(t, <-done); all[len(all)-1].at("done_reason") != "stop" {
		t.Errorf("%v", all)
	}
}

// What is wrong in a header is wrong, also where nothing is generated or a field stands in its place.
func TestWrongTargetsInHeaders(t *testing.T) {
	s := serve(t, says("x"), Options{})
	for _, body := range []string{`{"model":"M"}`, `{"model":"M",` + hello + `}`, `{"model":"M",` + hello + `,"sla":{"ttft_ms":9000}}`} {
		if a := s.post("/api/chat", body, headerTTFT, "soon"); a.status != 400 || !strings.Contains(string(a.body), headerTTFT) {
			t.Errorf("%s: %d %s", body, a.status, a.body)
		}
	}
}
