package api

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"iter"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/openinfer-go/openinfer/api/apitest"
	"github.com/openinfer-go/openinfer/engine"
)

func TestModels(t *testing.T) {
	s := serve(t, says("x"), Options{Version: "1.2.3"})
	r := s.ok(s.do("GET", "/v1/models", ""))
	if r.at("object") != "list" || r.at("data", 0, "id") != "M" || r.at("data", 1, "id") != "org/other" ||
		r.at("data", 0, "max_model_len") != 4096.0 || r.at("data", 0, "object") != "model" || r.at("data", 0, "created") != 1.7e9 {
		t.Errorf("%v", r.v)
	}
	for _, path := range []string{"/v1/models/org/other", "/v1/models/org%2Fother"} {
		if r := s.ok(s.do("GET", path, "")); r.at("id") != "org/other" {
			t.Errorf("%s: %v", path, r.v)
		}
	}
	for _, path := range []string{"/v1/models/", "/v1/models/none", "/v1/models/M/", "/v1/models/m"} {
		s.refused(s.do("GET", path, ""), 404, "model")
	}
	if r := s.ok(s.do("GET", "/version", "")); r.at("version") != "1.2.3" {
		t.Errorf("%v", r.v)
	}
}

func TestPathsAndMethods(t *testing.T) {
	s := serve(t, says("x"), Options{})
	for _, path := range []string{"/index.html", "/ui/", "/v1", "/v1/", "/v1/embedding", "/v1//models", "/v1/chat/completions/", "/nothing", "/v1/response"} {
		for _, method := range []string{"GET", "POST"} {
			s.refused(s.do(method, path, ""), 404, "")
		}
	}
	for _, c := range []struct{ method, path, allow string }{
		{"GET", "/v1/chat/completions", "POST"}, {"PUT", "/v1/completions", "POST"}, {"POST", "/v1/models", "GET"},
		{"DELETE", "/v1/models/M", "GET"}, {"POST", "/health", "GET"}, {"OPTIONS", "/tokenize", "POST"},
	} {
		a := s.do(c.method, c.path, "")
		if s.refused(a, 405, ""); a.header.Get("Allow") != c.allow {
			t.Errorf("%s %s: Allow %q", c.method, c.path, a.header.Get("Allow"))
		}
	}
	if a := s.do("HEAD", "/health", ""); a.status != 200 || len(a.body) != 0 {
		t.Errorf("HEAD: %d %q", a.status, a.body)
	}
}

func TestKeys(t *testing.T) {
	keys := []string{"first-key", "second"}
	gen := says("x")
	s := serve(t, gen, Options{Keys: keys})
	for _, h := range []string{"", "first-key", "Bearer", "Bearer ", "Bearer first-ke", "Bearer first-keyy", "Basic first-key", "Bearer # ours"} {
		for _, path := range []string{"/v1/models", "/v1/models/M"} {
			a := s.do("GET", path, "", "Authorization", h)
			if s.refused(a, 401, ""); a.header.Get("WWW-Authenticate") == "" || !strings.Contains(string(a.body), "invalid_api_key") {
				t.Errorf("%q: %s", h, a.body)
			}
		}
		for _, path := range []string{"/v1/chat/completions", "/v1/completions", "/tokenize", "/detokenize"} {
			s.refused(s.post(path, "not even JSON", "Authorization", h), 401, "")
		}
	}
	for _, path := range []string{"/health", "/healthz", "/readyz", "/metrics", "/version"} {
		if a := s.do("GET", path, ""); a.status != 200 {
			t.Errorf("%s: %d", path, a.status)
		}
	}
	ask := func(key, salt string) string {
		s.ok(s.post("/v1/completions", `{"model":"M","prompt":"p"`+salt+`}`, "Authorization", key))
		all := gen.Requests()
		return all[len(all)-1].CacheSalt
	}
	first, again, second := ask("Bearer first-key", ""), ask("bearer first-key", ""), ask("Bearer second", "")
	salted, other := ask("Bearer first-key", `,"cache_salt":"a"`), ask("Bearer second", `,"cache_salt":"a"`)
	if first == "" || first != again || first == second || salted == first || salted == other || strings.Contains(first+salted, "first-key") {
		t.Errorf("salts %q %q %q %q %q", first, again, second, salted, other)
	}
}

func TestHealth(t *testing.T) {
	for _, c := range []struct {
		health      engine.Health
		live, ready int
	}{
		{engine.Health{OK: true, Ready: true}, 200, 200},
		{engine.Health{OK: true, Reason: "loading M"}, 200, 503},
		{engine.Health{Ready: true, Heartbeat: time.Minute, Reason: "no step for 1m0s"}, 503, 503},
	} {
		gen := says("x")
		gen.HealthNow = func() engine.Health { return c.health }
		s := serve(t, gen, Options{})
		for path, want := range map[string]int{"/health": c.live, "/healthz": c.live, "/readyz": c.ready, "/v1/models": 200, "/metrics": 200} {
			a := s.do("GET", path, "")
			if a.status != want || want == 503 && !strings.Contains(string(a.body), c.health.Reason) {
				t.Errorf("%+v: %s: %d %s", c.health, path, a.status, shorten(string(a.body), 200))
			}
		}
	}
}

func TestRequestID(t *testing.T) {
	s := serve(t, says("x"), Options{})
	if got := s.post("/v1/completions", "{}", "X-Request-Id", "abc-123").header.Get("X-Request-Id"); got != "abc-123" {
		t.Errorf("%q", got)
	}
	seen := map[string]bool{}
	for _, sent := range []string{"", "with space", "ü", strings.Repeat("x", 129)} {
		got := s.do("GET", "/health", "", "X-Request-Id", sent).header.Get("X-Request-Id")
		if got == "" || got == sent || seen[got] {
			t.Errorf("%q becomes %q", sent, got)
		}
		seen[got] = true
	}
}

// panicky breaks in every call that a handler makes.
type panicky struct{ Generator }

func (panicky) Admit(engine.Request) error { panic("broken invariant") }

type midway struct{ Generator }

func (m midway) Generate(ctx context.Context, r engine.Request) (iter.Seq[engine.Event], error) {
	return func(yield func(engine.Event) bool) {
		yield(engine.Event{Text: "a", Tokens: []engine.Token{{ID: 97}}})
	}, nil
}

func TestPanicAndBrokenEngine(t *testing.T) {
	var log bytes.Buffer
	s := serve(t, panicky{says("x")}, Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
	a := s.post("/v1/chat/completions", chatBody(`"stream":true`))
	if s.refused(a, 500, ""); strings.Contains(string(a.body), "broken") {
		t.Errorf("%s", a.body)
	}
	s.ok(s.do("GET", "/v1/models", ""))
	if !strings.Contains(log.String(), "broken invariant") || !strings.Contains(log.String(), "server_test.go") {
		t.Errorf("no panic and stack in the log: %s", log.String())
	}
	// events that end without a final one: an error, never a half answer that looks whole
	s = serve(t, midway{says("x")}, Options{})
	s.refused(s.post("/v1/chat/completions", chatBody("")), 500, "")
	a = s.post("/v1/chat/completions", chatBody(`"stream":true`))
	if n := len(a.events); n == 0 || !parse(t, a.events[n-1]).has("error") {
		t.Errorf("%s", a.body)
	}
}

// One line for a request, with numbers and without its text.
func TestLog(t *testing.T) {
	var log bytes.Buffer
	s := serve(t, says("confidential answer"), Options{Log: slog.New(slog.NewTextHandler(&log, nil)), Keys: []string{"sesame"}})
	s.ok(s.post("/v1/completions", `{"model":"M","prompt":"hidden prompt","user":"jane","stop":["secretstop"]}`, "Authorization", "Bearer sesame", "X-Request-Id", "r1"))
	s.post("/v1/completions", `{"model":"M","prompt":"hidden prompt","n":0,"user":"jane"}`, "Authorization", "Bearer sesame")
	s.do("GET", "/health", "")
	lines := strings.Split(strings.TrimSpace(log.String()), "\n")
	if len(lines) != 2 {
		t.Fatalf("%d lines:\n%s", len(lines), log.String())
	}
	for _, want := range []string{"request_id=r1", "model=M", "id=cmpl-", "prompt_tokens=14", "completion_tokens=16", "outcome=length", "status=200", "ms="} {
		if !strings.Contains(lines[0], want) {
			t.Errorf("no %s in %s", want, lines[0])
		}
	}
	if !strings.Contains(lines[1], "status=400") || !strings.Contains(lines[1], "param=n") {
		t.Errorf("%s", lines[1])
	}
	for _, secret := range []string{"hidden", "confidential", "sesame", "jane", "secretstop"} {
		if strings.Contains(log.String(), secret) {
			t.Errorf("the log has %q", secret)
		}
	}
}

// Clients that are slow with their headers or their body are hung up on, and others are served
// meanwhile.
func TestSlowClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, says("x"), Options{BodyTimeout: 5 * time.Second})
		headers := s.raw("POST /v1/completions HTTP/1.1\r\nHost: x\r\n")
		body := s.raw("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{\"model\":")
		chunks := s.raw("POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{\"mod")
		start := time.Now()
		done := make(chan struct{})
		go func() { // a byte a second keeps nobody's connection
			defer close(done)
			for {
				if _, err := body.Write([]byte(" ")); err != nil {
					return
				}
				time.Sleep(time.Second)
			}
		}()
		s.ok(s.post("/v1/completions", `{"model":"M","prompt":"p"}`))
		for name, c := range map[string]net.Conn{"body": body, "chunks": chunks} {
			resp, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil || resp.StatusCode != http.StatusRequestTimeout {
				t.Errorf("%s: %v %v", name, resp, err)
			}
			c.Close()
		}
		if took := time.Since(start); took < 5*time.Second || took > 7*time.Second {
			t.Errorf("slow bodies were answered after %v", took)
		}
		n, err := headers.Read(make([]byte, 1000))
		if took := time.Since(start); err == nil && n > 0 && took < time.Second || took > 12*time.Second {
			t.Errorf("slow headers: %d bytes, %v after %v", n, err, took)
		}
		headers.Close()
		<-done
	})
}

// The read deadline of a body does not outlive it: an answer may take longer.
func TestLongAnswerAfterBodyTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, answers(func(engine.Request) apitest.Answer {
			return apitest.Answer{Text: "slow", Delay: time.Minute}
		}), Options{BodyTimeout: 5 * time.Second, WriteTimeout: 5 * time.Second})
		for _, stream := range []string{"true", "false"} {
			a := s.post("/v1/completions", `{"model":"M","prompt":"p","stream":`+stream+`}`)
			if a.status != 200 || a.err != nil || !bytes.Contains(a.body, []byte("stop")) {
				t.Errorf("stream %s: %d %v %s", stream, a.status, a.err, a.body)
			}
		}
	})
}

// A bad request in a kept-alive connection leaves the connection fit for the next.
func TestConnectionReuse(t *testing.T) {
	s := serve(t, says("x"), Options{})
	for i := range 50 {
		s.refused(s.post("/v1/completions", fmt.Sprintf(`{"model":"M","n":0,"i":%d}`, i)), 400, "n")
		s.ok(s.post("/v1/completions", `{"model":"M","prompt":"p"}`))
		s.stream(s.post("/v1/completions", `{"model":"M","prompt":"p","stream":true}`))
	}
}
