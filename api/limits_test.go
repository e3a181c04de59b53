package api

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/openinfer-go/openinfer/api/apitest"
	"github.com/openinfer-go/openinfer/engine"
	"github.com/openinfer-go/openinfer/internal/config"
)

// keyed is a server with keys whose names are the keys.
func keyed(t *testing.T, gen Generator, o Options, keys ...config.Key) (served, *Handler) {
	t.Helper()
	h := New(gen, o)
	h.SetKeys(keys)
	s := serve(t, gen, Options{})
	s.Config = NewServer(h)
	return s, h
}

func key(name string, limit func(*config.Key)) config.Key {
	k := config.NewKey(name, name)
	limit(&k)
	return k
}

const aCompletion = `{"model":"M","prompt":"four","max_tokens":6}`

func TestRequestsPerMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := keyed(t, says("answer"), Options{}, key("few", func(k *config.Key) { k.RequestsPerMinute = 3 }), key("any", func(*config.Key) {}))
		for i := range 3 {
			a := s.post("/v1/completions", aCompletion, "Authorization", "Bearer few")
			if s.ok(a); a.header.Get("X-Ratelimit-Limit-Requests") != "3" || a.header.Get("X-Ratelimit-Remaining-Requests") != fmt.Sprint(2-i) || a.header.Get("X-Ratelimit-Limit-Tokens") != "" {
				t.Errorf("request %d: %v", i, a.header)
			}
		}
		a := s.post("/v1/completions", aCompletion, "X-Api-Key", "few")
		if m := s.refused(a, 429, ""); !strings.Contains(m, "3 requests per minute") || a.header.Get("Retry-After") != "20" ||
			a.header.Get("X-Ratelimit-Remaining-Requests") != "0" || a.header.Get("X-Ratelimit-Reset-Requests") != "1m0s" || !strings.Contains(string(a.body), `"rate_limit_exceeded"`) {
			t.Errorf("%s %v", m, a.header)
		}
		s.ok(s.do("GET", "/v1/models", "", "Authorization", "Bearer few"))
		s.ok(s.post("/v1/completions", aCompletion, "Authorization", "Bearer any"))
		time.Sleep(19 * time.Second)
		s.refused(s.post("/v1/completions", aCompletion, "Authorization", "Bearer few"), 429, "")
		time.Sleep(1100 * time.Millisecond) // a refused request took nothing
		s.ok(s.post("/v1/completions", aCompletion, "Authorization", "Bearer few"))
		metrics := string(s.do("GET", "/metrics", "").body)
		for _, want := range []string{`openinfer_key_limited_total{key="few",limit="requests"} 2`, `openinfer_key_replies_total{key="few",status="429"} 2`,
			`openinfer_key_tokens_total{key="few",kind="completion"} 24`, `openinfer_key_tokens_total{key="any",kind="prompt"} 5`} {
			if !strings.Contains(metrics, want) {
				t.Errorf("no %s", want)
			}
		}
	})
}

// What an answer takes beyond the limit is waited for, so nobody gets more over minutes.
func TestTokensPerMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := keyed(t, says(strings.Repeat("x", 200)), Options{}, key("few", func(k *config.Key) { k.TokensPerMinute = 60 }))
		long := `{"model":"M","prompt":"` + strings.Repeat("p", 20) + `","max_tokens":100,"ignore_eos":true}`
		for round := range 3 {
			a := s.post("/v1/completions", long, "Authorization", "Bearer few")
			s.ok(a) // 60 tokens were there, or 1; 121 are taken, BOS with them
			a = s.post("/v1/completions", long, "Authorization", "Bearer few")
			wait := map[bool]string{true: "62", false: "121"}[round == 0]
			if s.refused(a, 429, ""); a.header.Get("Retry-After") != wait || a.header.Get("X-Ratelimit-Remaining-Tokens") != "0" {
				t.Errorf("round %d: %v", round, a.header)
			}
			d, err := time.ParseDuration(wait + "s")
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(d)
		}
	})
}

// A key at its limit of requests at once is refused, and others are not; what ends or vanishes gives its place back.
func TestConcurrentRequests(t *testing.T) {
	step := make(chan struct{})
	gen := answers(func(r engine.Request) apitest.Answer {
		if r.MaxTokens == 6 {
			return apitest.Answer{Text: "answer"}
		}
		return apitest.Answer{Text: "answer", Step: step}
	})
	s, h := keyed(t, gen, Options{}, key("greedy", func(k *config.Key) { k.MaxConcurrent = 2 }), key("other", func(*config.Key) {}))
	slow := `{"model":"M","prompt":"p","max_tokens":5,"stream":true}`
	post := "POST /v1/completions HTTP/1.1\r\nHost: t\r\nAuthorization: Bearer greedy\r\nContent-Type: application/json\r\nContent-Length: " + fmt.Sprint(len(slow)) + "\r\n\r\n" + slow
	a, b := s.raw(post), s.raw(post)
	defer b.Close()
	running := func() int64 { return h.keys.all()[0].running.Load() }
	eventually(t, "two run", func() bool { return running() == 2 })
	var clients sync.WaitGroup
	for range 50 {
		clients.Go(func() {
			if a := s.post("/v1/completions", aCompletion, "Authorization", "Bearer greedy"); a.status != 429 || a.header.Get("Retry-After") == "" {
				t.Errorf("%d %s", a.status, a.body)
			}
			if a := s.post("/v1/completions", aCompletion, "Authorization", "Bearer other"); a.status != 200 {
				t.Errorf("another's: %d %s", a.status, a.body)
			}
		})
	}
	clients.Wait()
	a.Close()
	eventually(t, "who vanished gave a place back", func() bool { return running() == 1 })
	s.ok(s.post("/v1/completions", aCompletion, "Authorization", "Bearer greedy"))
	// keys that change keep what is running
	h.SetKeys([]config.Key{key("greedy", func(k *config.Key) { k.MaxConcurrent, k.Name = 1, "renamed" })})
	s.refused(s.post("/v1/completions", aCompletion, "Authorization", "Bearer greedy"), 429, "")
	s.refused(s.post("/v1/completions", aCompletion, "Authorization", "Bearer other"), 401, "")
	if m := string(s.do("GET", "/metrics", "").body); strings.Contains(m, `key="other"`) || !strings.Contains(m, `key="renamed"`) {
		t.Error("series of a key that is gone, or none of the one that came")
	}
	b.Close()
	eventually(t, "nothing runs", func() bool { return running() == 0 })
}

func TestModelsOfAKey(t *testing.T) {
	gen := says("x")
	s, _ := keyed(t, gen, Options{}, key("one", func(k *config.Key) { k.Models, k.Priority = []string{"org/other"}, 7 }), key("all", func(*config.Key) {}))
	for _, name := range []string{"one", "all"} {
		r := s.ok(s.do("GET", "/v1/models", "", "Authorization", "Bearer "+name))
		if list := r.at("data").([]any); (len(list) == 1) != (name == "one") || len(list) == 1 && r.at("data", 0, "id") != "org/other" {
			t.Errorf("%s sees %v", name, r.v)
		}
	}
	with := []string{"Authorization", "Bearer one"}
	s.refused(s.post("/v1/completions", aCompletion, with...), 404, "model")
	s.refused(s.do("GET", "/v1/models/M", "", with...), 404, "model")
	s.refused(s.post("/tokenize", `{"model":"M","prompt":"p"}`, with...), 404, "model")
	s.refused(s.post("/v1/models/unload", `{"model":"M"}`, with...), 404, "model")
	s.refused(s.post("/models/M/v1/completions", aCompletion, with...), 404, "model")
	s.ok(s.post("/v1/completions", `{"model":"org/other","prompt":"p"}`, with...))
	s.ok(s.post("/models/org/other/v1/completions", `{"model":"org/other","prompt":"p","priority":1}`, with...))
	if r := gen.Requests(); len(r) != 2 || r[0].Priority != 7 || r[1].Priority != 8 {
		t.Errorf("%+v", r)
	}
}

// Under load keys are replaced again and again, and no request of a key that stays is refused.
func TestKeysChangeUnderLoad(t *testing.T) {
	s, h := keyed(t, says("x"), Options{}, config.NewKey("a", "a"))
	stop := make(chan struct{})
	var changer, clients sync.WaitGroup
	changer.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				h.SetKeys([]config.Key{config.NewKey(fmt.Sprintf("n%d", i), fmt.Sprintf("n%d", i)), key("a", func(k *config.Key) { k.RequestsPerMinute = i % 2 * 1_000_000 })})
			}
		}
	})
	for range 8 {
		clients.Go(func() {
			for range 40 {
				if a := s.post("/v1/completions", aCompletion, "Authorization", "Bearer a"); a.status != 200 {
					t.Errorf("%d %s", a.status, a.body)
				}
				if a := s.post("/v1/completions", aCompletion, "Authorization", "Bearer wrong"); a.status != 401 {
					t.Errorf("a wrong key: %d %s", a.status, a.body)
				}
			}
		})
	}
	clients.Wait()
	close(stop)
	changer.Wait()
}

// Every known key is compared, whichever fits: the time says nothing.
func TestOnlyTheRightKeyFits(t *testing.T) {
	var keys []config.Key
	for i := range 100 {
		keys = append(keys, config.NewKey(fmt.Sprint(i), fmt.Sprintf("key-%d", i)))
	}
	ring := newKeyring(keys)
	for _, i := range []int{0, 50, 99} {
		r := mustRequest(t, fmt.Sprintf("Bearer key-%d", i))
		if a, err := ring.check(r); err != nil || a.Name != fmt.Sprint(i) {
			t.Errorf("key %d is %v, %v", i, a, err)
		}
	}
	for _, wrong := range []string{"Bearer key-", "Bearer key-100", "Bearer KEY-1", "Bearer key-1 key-2", "Bearer " + strings.Repeat("k", 60000)} {
		if a, err := ring.check(mustRequest(t, wrong)); err == nil {
			t.Errorf("%.30q is %s", wrong, a.Name)
		}
	}
}

// The log has a key's name and never the key; with LogText the beginnings of texts, on the request's one line.
func TestLogOfAKey(t *testing.T) {
	var log bytes.Buffer
	s, _ := keyed(t, says("fine\nlevel=ERROR answer"), Options{LogText: 12, Log: slog.New(slog.NewTextHandler(&log, nil))},
		func() config.Key { k := config.NewKey("ann", "sesame"); return k }())
	s.ok(s.post("/v1/completions", `{"model":"M","prompt":"one\ntime=now two three","max_tokens":40}`, "Authorization", "Bearer sesame"))
	s.post("/v1/completions%0Alevel=ERROR", "", "Authorization", "Bearer sesame", "X-Request-Id", "a\tb")
	s.post("/v1/completions", `{"model":"no\nlevel=ERROR"}`, "Authorization", "Bearer sesam")
	lines := strings.Split(strings.TrimSpace(log.String()), "\n")
	if len(lines) != 3 || strings.Contains(log.String(), "sesam") {
		t.Fatalf("%d lines:\n%s", len(lines), log.String())
	}
	for _, want := range []string{"key=ann", `prompt="<s>one\ntime=..."`, `answer="fine\nlevel=E`} {
		if !strings.Contains(lines[0], want) {
			t.Errorf("no %s in %s", want, lines[0])
		}
	}
	for _, hidden := range []string{"three", "answer\" "} {
		if strings.Contains(lines[0], hidden) {
			t.Errorf("%s in %s", hidden, lines[0])
		}
	}
}
