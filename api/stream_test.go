package api

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/openinfer-go/openinfer/api/apitest"
	"github.com/openinfer-go/openinfer/engine"
)

// An error in the middle is the stream's last event; before the stream it is an ordinary reply.
func TestErrorDuringStream(t *testing.T) {
	for _, c := range []struct {
		err  error
		code string
	}{{fmt.Errorf("%w: secret path", engine.ErrStep), "step_failed"}, {errors.New("secret path"), "internal_error"}, {engine.ErrClosed, "shutting_down"}} {
		s := serve(t, answers(func(engine.Request) apitest.Answer {
			return apitest.Answer{Text: "abcdef", FailAfter: 3, Err: c.err}
		}), Options{})
		for _, n := range []string{"1", "2"} {
			a := s.post("/v1/chat/completions", chatBody(`"stream":true,"n":`+n))
			if a.status != 200 || a.err != nil {
				t.Fatalf("%d %v", a.status, a.err)
			}
			for i, e := range a.events {
				isError := parse(t, e).has("error")
				if last := i == len(a.events)-1; isError != last {
					t.Errorf("event %d of %d: %s", i, len(a.events), e)
				}
			}
			last := parse(t, a.events[len(a.events)-1])
			if len(a.events) < 4 || last.at("error", "code") != c.code || strings.Contains(string(a.body), "secret") {
				t.Errorf("%s", a.body)
			}
		}
		want := 500
		if errors.Is(c.err, engine.ErrClosed) {
			want = 503
		}
		if a := s.post("/v1/chat/completions", chatBody("")); a.status != want || strings.Contains(string(a.body), "secret") {
			t.Errorf("%d %s", a.status, a.body)
		}
	}
	// Nor is it a stream before its first token: the status is still to be said, and a balancer may ask another node.
	s := serve(t, answers(func(engine.Request) apitest.Answer {
		return apitest.Answer{Text: "x", FailAfter: -1, Err: engine.ErrClosed}
	}), Options{})
	if a := s.post("/v1/chat/completions", chatBody(`"stream":true`)); a.status != 503 || a.header.Get("Retry-After") == "" {
		t.Errorf("%d %v %s", a.status, a.header, a.body)
	}
	s = serve(t, says("x"), Options{})
	s.refused(s.post("/v1/chat/completions", chatBody(`"n":0,"stream":true`)), 400, "n")
}

// Headers come with the first comment, and comments by the clock, whatever the engine does.
func TestKeepAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, answers(func(engine.Request) apitest.Answer {
			return apitest.Answer{Text: "ab", Prefill: 11 * time.Second, Delay: 4500 * time.Millisecond}
		}), Options{KeepAlive: 2 * time.Second})
		start := time.Now()
		resp, err := s.Client().Post("http://test/v1/chat/completions", "", strings.NewReader(chatBody(`"stream":true`)))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if took := time.Since(start); took > 2*time.Second || resp.StatusCode != 200 {
			t.Errorf("headers after %v, status %d", took, resp.StatusCode)
		}
		if resp.Header.Get("X-Accel-Buffering") != "no" || resp.Header.Get("Cache-Control") != "no-cache" {
			t.Errorf("headers %v", resp.Header)
		}
		lines := bufio.NewReader(resp.Body)
		comments, last := 0, time.Now()
		for {
			line, err := lines.ReadString('\n')
			if err == io.EOF {
				break
			} else if err != nil {
				t.Fatal(err)
			}
			if gap := time.Since(last); gap > 2*time.Second {
				t.Errorf("silence of %v before %q", gap, line)
			}
			last = time.Now()
			switch {
			case strings.HasPrefix(line, ":"):
				comments++
			case line != "\n" && !strings.HasPrefix(line, "data: "):
				t.Errorf("line %q", line)
			}
		}
		// 15.5 s to the first token, then 4.5 s to each of two more
		if comments != 7+2+2 {
			t.Errorf("%d comments", comments)
		}
	})
}

// A request for a model that is still loading waits for it: a stream has its headers and comments
// meanwhile. It ends with the answer, with an error when loading fails, or with its client.
func TestLoading(t *testing.T) {
	for _, failure := range []error{nil, engine.ErrClosed} {
		gen := says("x")
		loading := make(chan struct{})
		gen.Loading, gen.LoadErr = loading, failure
		s := serve(t, gen, Options{KeepAlive: 5 * time.Millisecond})
		if a := s.do("GET", "/readyz", ""); a.status != 503 || !strings.Contains(string(a.body), "loading") {
			t.Errorf("%d %s", a.status, a.body)
		}
		if a := s.do("GET", "/health", ""); a.status != 200 {
			t.Errorf("%d %s", a.status, a.body)
		}
		resp, err := s.Client().Post("http://test/v1/chat/completions", "application/json", strings.NewReader(chatBody(`"stream":true`)))
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewReader(resp.Body)
		if line, err := lines.ReadString('\n'); resp.StatusCode != 200 || !strings.HasPrefix(line, ":") {
			t.Fatalf("status %d, first line %q, %v", resp.StatusCode, line, err)
		}
		whole := make(chan answer)
		go func() { whole <- s.post("/v1/chat/completions", chatBody("")) }()
		close(loading)
		rest, err := io.ReadAll(lines)
		resp.Body.Close()
		a := <-whole
		switch text := string(rest); {
		case err != nil:
			t.Error(err)
		case failure == nil && (!strings.Contains(text, `"content":"x"`) || !strings.HasSuffix(text, "data: [DONE]\n\n") || a.status != 200):
			t.Errorf("stream %q, whole %d %s", text, a.status, a.body)
		case failure != nil && (strings.Count(text, `data: {"error"`) != 1 || strings.Contains(text, "[DONE]") || a.status != 503):
			t.Errorf("loading failed: stream %q, whole %d %s", text, a.status, a.body)
		}
	}
}

// A client that goes away is noticed while its request waits, in prefill and in the middle of an
// answer, streamed or not, also when its body was large.
func TestClientGone(t *testing.T) {
	const times = 20
	for _, c := range []struct {
		name   string
		answer apitest.Answer
		queued bool
	}{
		{name: "prefill", answer: apitest.Answer{Text: "abcdef", Prefill: time.Hour}},
		{name: "answer", answer: apitest.Answer{Text: "abcdef" + strings.Repeat("x", 100), Delay: time.Second}},
		{name: "queue", answer: apitest.Answer{Text: "a"}, queued: true},
	} {
		for _, stream := range []string{"true", "false"} {
			synctest.Test(t, func(t *testing.T) {
				free := make(chan struct{})
				gen := answers(func(r engine.Request) apitest.Answer {
					if r.CacheSalt == "blocker" {
						return apitest.Answer{Text: "x", Step: free}
					}
					return c.answer
				})
				s := serve(t, gen, Options{})
				var blocker sync.WaitGroup
				if c.queued {
					gen.MaxRunning, gen.MaxWaiting = 1, 1000
					blocker.Go(func() { s.post("/v1/completions", `{"model":"M","prompt":"x","cache_salt":"blocker"}`) })
					synctest.Wait()
				}
				var gone sync.WaitGroup
				ctx, leave := context.WithCancel(t.Context())
				for range times {
					gone.Go(func() {
						body := fmt.Sprintf(`{"model":"M","prompt":"x","stream":%s,"max_tokens":100,"pad":%q}`, stream, strings.Repeat("p", 200_000))
						req, _ := http.NewRequestWithContext(ctx, "POST", "http://test/v1/completions", strings.NewReader(body))
						resp, err := s.Client().Do(req)
						if err == nil {
							_, err = io.Copy(io.Discard, resp.Body)
							resp.Body.Close()
						}
						if err == nil {
							t.Error("answered")
						}
					})
				}
				time.Sleep(5 * time.Second) // virtual
				synctest.Wait()
				leave()
				synctest.Wait() // no time passes: whatever was to happen has happened
				want := int64(0)
				if c.queued {
					want = 1
				}
				if live := gen.Live.Load(); live != want {
					t.Errorf("%s, stream %s: %d sequences live", c.name, stream, live)
				}
				if started := gen.Started.Load(); c.queued && started != 1 {
					t.Errorf("%d of the queued ran", started-1)
				}
				if stats := gen.Stats().Models[0]; stats.Waiting != 0 {
					t.Errorf("%d still wait", stats.Waiting)
				}
				close(free)
				gone.Wait()
				blocker.Wait()
			})
		}
	}
}

// A client that reads nothing is hung up on after the write time-out, and its work is cancelled.
func TestClientThatDoesNotRead(t *testing.T) {
	gen := answers(func(engine.Request) apitest.Answer { return apitest.Answer{Text: strings.Repeat("spam ", 200_000)} })
	gen.MaxLen = 10 << 20
	s := serve(t, gen, Options{WriteTimeout: 100 * time.Millisecond})
	s.Start() // sockets: the in-memory network buffers without bound
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	body := `{"model":"M","prompt":"x","stream":true,"max_tokens":1000000,"logprobs":5}`
	fmt.Fprintf(conn, "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	eventually(t, "the request runs", func() bool { return gen.Started.Load() == 1 })
	eventually(t, "the request is cancelled", func() bool { return gen.Live.Load() == 0 })
}

// Everybody gets a reply at once: as many as there is room for are served, the rest refused
// before their text is touched.
func TestQueueLimit(t *testing.T) {
	for _, callers := range []int{10, 1000} {
		free := make(chan struct{})
		gen := answers(func(engine.Request) apitest.Answer { return apitest.Answer{Text: "x", Step: free} })
		gen.MaxRunning, gen.MaxWaiting = 1, 2
		s := serve(t, gen, Options{})
		s.Client().Timeout = time.Minute
		replies := make(chan answer, callers)
		var wg sync.WaitGroup
		for range callers {
			wg.Go(func() { replies <- s.post("/v1/chat/completions", chatBody(`"stream":true`)) })
		}
		for i := range callers - 3 {
			a := <-replies
			if s.refused(a, 429, ""); a.header.Get("Retry-After") != "2" { // 1.5 s rounded up
				t.Fatalf("reply %d: Retry-After %q", i, a.header.Get("Retry-After"))
			}
		}
		before := gen.Tokenized.Load()
		s.refused(s.post("/v1/chat/completions", chatBody("")), 429, "")
		if gen.Tokenized.Load() != before {
			t.Error("a refused request was tokenized")
		}
		close(free)
		wg.Wait()
		close(replies)
		served := 0
		for a := range replies {
			s.stream(a)
			served++
		}
		if stats := gen.Stats().Models[0]; served != 3 || stats.RefusedFull != int64(callers-3+1) || stats.Running+stats.Waiting != 0 {
			t.Errorf("of %d callers %d served, %d refused", callers, served, stats.RefusedFull)
		}
	}
}

// What is ready leaves together, in order.
func TestManyTokensAtOnce(t *testing.T) {
	text := strings.Repeat("all work and no play ", 200)
	s := serve(t, says(text), Options{})
	got := s.stream(s.post("/v1/completions", `{"model":"M","prompt":"x","stream":true,"max_tokens":4094,"n":4}`))
	for i := range 4 {
		if got.text[i] != text[:min(len(text), 4094)] {
			t.Errorf("choice %d lost text: %d bytes of %d", i, len(got.text[i]), len(text))
		}
	}
}
