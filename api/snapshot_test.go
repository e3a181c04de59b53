package api

import (
	"encoding/json"
	"math"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/openinfer-go/openinfer/api/apitest"
	"github.com/openinfer-go/openinfer/api/state"
	"github.com/openinfer-go/openinfer/engine"
	"github.com/openinfer-go/openinfer/internal/config"
)

// snapshotOf asks a server for its state.
func snapshotOf(t *testing.T, s served, headers ...string) state.State {
	t.Helper()
	a := s.do("GET", "/v1/state", "", headers...)
	if a.status != 200 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	var st state.State
	if err := json.Unmarshal(a.body, &st); err != nil {
		t.Fatal(err)
	}
	return st
}

// TestState: what is running is listed, as a request that can be cancelled; no text of it is told.
func TestState(t *testing.T) {
	step := make(chan struct{})
	gen := answers(func(engine.Request) apitest.Answer { return apitest.Answer{Text: "secret answer", Step: step} })
	gen.Card = &engine.CardStats{Name: "X1", CardSample: engine.CardSample{PowerWatts: 200, Utilization: math.NaN()}}
	s := serve(t, gen, Options{Version: "7"})
	done := make(chan answer, 2)
	go func() {
		done <- s.post("/v1/chat/completions", `{"model":"M","stream":true,"messages":[{"role":"user","content":"my secret"}],"max_tokens":99,"priority":2,"sla":{"ttft_ms":5000}}`)
	}()
	go func() {
		done <- s.post("/v1/completions", `{"model":"org/other","prompt":["a","b"]}`)
	}()
	var st state.State
	for deadline := time.Now().Add(5 * time.Second); len(st.Requests) < 3; {
		if st = snapshotOf(t, s); time.Now().After(deadline) {
			t.Fatalf("%+v", st)
		}
	}
	raw := s.do("GET", "/v1/state", "")
	if strings.Contains(string(raw.body), "secret") || raw.header.Get("Cache-Control") != "no-store" {
		t.Errorf("%s", raw.body)
	}
	if st.Version != "7" || !st.Ready || st.Memory.Device != "scripted" || st.Pool.Free != 8 || len(st.Models) != 2 || len(st.History.Models) != 2 {
		t.Errorf("%+v", st)
	}
	if got := st.Pool.Map; len(got) != 2 || got[0] != [3]int{0, state.Cached, 2} || got[1] != [3]int{-1, state.Free, 8} {
		t.Errorf("map %v", got)
	}
	if c := st.Card; c == nil || *c.PowerWatts != 200 || c.Utilization != nil {
		t.Errorf("%+v", c)
	}
	ids := map[string]int{}
	for _, q := range st.Requests {
		ids[q.ID]++
		if q.Model == "M" && (q.Max != 99 || q.Priority != 2 || q.TargetTTFT != 5000 || q.Prompt == 0) {
			t.Errorf("%+v", q)
		}
	}
	if len(ids) != 2 {
		t.Fatalf("ids %v: the two prompts are one request", ids)
	}
	// Below one model's path there is that model alone.
	var view state.State
	if err := json.Unmarshal(s.do("GET", "/models/org/other/v1/state", "").body, &view); err != nil {
		t.Fatal(err)
	}
	if len(view.Models) != 1 || len(view.Requests) != 2 || len(view.History.Models) != 1 || view.Pool.Map[0] != [3]int{state.Unknown, state.Cached, 2} {
		t.Errorf("%+v", view)
	}
	if a := s.do("GET", "/models/org/other/ui/app.js", ""); a.status != 404 {
		t.Errorf("the page below a model's path: %d", a.status)
	}
	for id := range ids {
		if a := s.post("/v1/requests/cancel", `{"id":"`+id+`"}`); a.status != 200 {
			t.Errorf("%d %s", a.status, a.body)
		}
	}
	for range 2 {
		a := <-done
		if a.status == 200 && len(a.events) == 0 || !strings.Contains(string(a.body), `"code":"request_cancelled"`) || strings.Contains(string(a.body), "[DONE]") {
			t.Errorf("the client got %d %s", a.status, a.body)
		}
	}
	if st := snapshotOf(t, s); len(st.Requests) != 0 {
		t.Errorf("%+v", st.Requests)
	}
	if n := gen.Live.Load(); n != 0 {
		t.Errorf("%d sequences run on", n)
	}
	for body, want := range map[string]int{`{"id":"x"}`: 404, `{}`: 400, `{"id":7}`: 400, `[]`: 400} {
		if a := s.post("/v1/requests/cancel", body); a.status != want || !strings.Contains(string(a.body), "id") && body != "[]" {
			t.Errorf("%s: %d %s", body, a.status, a.body)
		}
	}
}

// TestCancelBeforeTheStream: the client of a stream that has not begun gets a status that nobody tries again.
func TestCancelBeforeTheStream(t *testing.T) {
	gen := answers(func(engine.Request) apitest.Answer { return apitest.Answer{Text: "x", Prefill: time.Hour} })
	for _, stream := range []string{"true", "false"} {
		s := serve(t, gen, Options{KeepAlive: time.Hour})
		done := make(chan answer, 1)
		go func() { done <- s.post("/v1/completions", `{"model":"M","prompt":"a","stream":`+stream+`}`) }()
		for {
			if st := snapshotOf(t, s); len(st.Requests) == 1 {
				s.post("/v1/requests/cancel", `{"id":"`+st.Requests[0].ID+`"}`)
				break
			}
		}
		if a := <-done; a.status != http.StatusGone || errorCode(t, a) != "request_cancelled" {
			t.Errorf("%d %s", a.status, a.body)
		}
	}
}

func errorCode(t *testing.T, a answer) string {
	t.Helper()
	var e struct {
		Error struct {
			Code string `json:"code"`
		} `json:"error"`
	}
	if err := json.Unmarshal(a.body, &e); err != nil {
		t.Errorf("%v: %s", err, a.body)
	}
	return e.Error.Code
}

// TestStateNeedsAKey: the page is open, what it asks for is not.
func TestStateNeedsAKey(t *testing.T) {
	s := serve(t, says("x"), Options{Keys: []string{"k"}})
	for _, path := range []string{"/", "/ui/chat.js", "/favicon.ico"} {
		if a := s.do("GET", path, ""); a.status != 200 {
			t.Errorf("%s: %d", path, a.status)
		}
	}
	if a := s.do("GET", "/v1/state", ""); a.status != 401 {
		t.Errorf("%d", a.status)
	}
	if a := s.post("/v1/requests/cancel", `{"id":"x"}`); a.status != 401 {
		t.Errorf("%d", a.status)
	}
	snapshotOf(t, s, "Authorization", "Bearer k")
}

// TestKeyOfOneModel: a key that may ask one model sees and ends nothing of another.
func TestKeyOfOneModel(t *testing.T) {
	step := make(chan struct{})
	gen := answers(func(engine.Request) apitest.Answer { return apitest.Answer{Text: "abc", Step: step} })
	h := New(gen, Options{})
	narrow, wide := config.NewKey("narrow", "n"), config.NewKey("wide", "w")
	narrow.Models = []string{"M"}
	h.SetKeys([]config.Key{narrow, wide})
	srv := httptest.NewTestServer(t, nil)
	srv.Config = NewServer(h)
	s := served{t, srv}
	done := make(chan answer, 1)
	go func() {
		done <- s.post("/v1/completions", `{"model":"org/other","prompt":"x"}`, "Authorization", "Bearer w")
	}()
	id := ""
	eventually(t, "the request runs", func() bool {
		st := snapshotOf(t, s, "Authorization", "Bearer w")
		if len(st.Requests) == 1 {
			id = st.Requests[0].ID
		}
		return id != ""
	})
	if st := snapshotOf(t, s, "Authorization", "Bearer n"); len(st.Requests) != 0 || len(st.Models) != 1 || len(st.History.Models) != 1 {
		t.Errorf("the key of one model sees %+v", st)
	}
	for path, body := range map[string]string{"/v1/requests/cancel": `{"id":"` + id + `"}`, "/v1/models/unload": `{"model":"org/other"}`, "/v1/completions": `{"model":"org/other","prompt":"x"}`} {
		if a := s.post(path, body, "Authorization", "Bearer n"); a.status != 404 {
			t.Errorf("%s with the key of one model: %d %s", path, a.status, a.body)
		}
	}
	for _, path := range []string{"/v1/models", "/api/tags", "/api/ps"} {
		if a := s.do("GET", path, "", "Authorization", "Bearer n"); a.status != 200 || strings.Contains(string(a.body), "other") {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
	if a := s.post("/v1/requests/cancel", `{"id":"`+id+`"}`, "Authorization", "Bearer w"); a.status != 200 {
		t.Errorf("cancelled: %d %s", a.status, a.body)
	}
	if a := <-done; a.status != http.StatusGone {
		t.Errorf("the request ended with %d %s", a.status, a.body)
	}
}

// TestPageFiles: each is served with the policy, answers HEAD, and is not sent again unchanged.
func TestPageFiles(t *testing.T) {
	s := serve(t, says("x"), Options{})
	for path, kind := range map[string]string{"/": "text/html; charset=utf-8", "/ui/chat.js": "text/javascript; charset=utf-8",
		"/ui/style.css": "text/css; charset=utf-8", "/ui/uplot.js": "text/javascript; charset=utf-8", "/favicon.ico": "image/svg+xml"} {
		a := s.do("GET", path, "")
		if a.status != 200 || a.header.Get("Content-Type") != kind || len(a.body) == 0 {
			t.Errorf("%s: %d %s, %d bytes", path, a.status, a.header.Get("Content-Type"), len(a.body))
		}
		policy := a.header.Get("Content-Security-Policy")
		if !strings.HasPrefix(policy, "default-src 'none'; script-src 'self'; style-src 'self'") || strings.Contains(policy, "unsafe") {
			t.Errorf("%s: policy %q", path, policy)
		}
		if b := s.do("HEAD", path, ""); b.status != 200 || len(b.body) != 0 {
			t.Errorf("HEAD %s: %d, %d bytes", path, b.status, len(b.body))
		}
		if b := s.do("GET", path, "", "If-None-Match", a.header.Get("ETag")); b.status != 304 || len(b.body) != 0 {
			t.Errorf("%s again: %d", path, b.status)
		}
	}
	if a := s.do("GET", "/ui/../server.go", ""); a.status == 200 {
		t.Error("a file beside the page's")
	}
}

// TestRecent: tokens and latencies fall into the slots of their time, and leave after the last.
func TestRecent(t *testing.T) {
	var r recent
	start := time.Unix(1_700_000_000, 0) // even: a slot begins
	at := func(s float64) time.Time { return start.Add(time.Duration(s * float64(time.Second))) }
	r.first(at(0.5), 200*time.Millisecond, 1)
	r.first(at(1), 400*time.Millisecond, 1)
	r.next(at(1.5), 100*time.Millisecond, 2)
	r.next(at(3), 10*time.Millisecond, 1)
	var m state.Model
	h := r.fill(at(4), &m)
	n := len(h.Rate)
	if n != slotCount-1 || h.Rate[n-2] != 2 || h.Rate[n-1] != 0.5 || h.Rate[n-3] != 0 {
		t.Errorf("%v", h.Rate[n-4:])
	}
	if math.Abs(*h.TTFT[n-2]-300) > 1e-9 || h.TTFT[n-1] != nil || *h.TPOT[n-2] != 50 || *h.TPOT[n-1] != 10 {
		t.Errorf("%v %v", h.TTFT[n-3:], h.TPOT[n-3:])
	}
	if m.Rate != 0.5 || math.Abs(*m.TTFT-300) > 1e-9 || *m.WorstTTFT != 400 || math.Abs(*m.TPOT-110./3) > 1e-9 {
		t.Errorf("%+v", m)
	}
	m = state.Model{}
	if r.fill(at(70), &m); m.TTFT != nil || m.TPOT != nil || m.Rate != 0 {
		t.Errorf("%+v after a minute", m)
	}
	for i, v := range r.fill(at(slotSeconds*slotCount+4), &m).Rate {
		if v != 0 {
			t.Errorf("slot %d has %v after all have passed", i, v)
		}
	}
	if h := r.fill(at(1e6), &m); h.Rate[0] != 0 {
		t.Error("old tokens in a new time")
	}
}

// TestCancelStorm: whenever a request is cancelled, however often, its client gets exactly one end.
func TestCancelStorm(t *testing.T) {
	gen := answers(func(engine.Request) apitest.Answer {
		return apitest.Answer{Text: strings.Repeat("word ", 60), Delay: 300 * time.Microsecond}
	})
	s := serve(t, gen, Options{})
	done := make(chan answer)
	const clients = 60
	for i := range clients {
		go func() {
			stream := strconv.FormatBool(i%3 > 0)
			done <- s.post("/v1/completions", `{"model":"M","prompt":["a","b"],"n":2,"stream":`+stream+`}`)
		}()
	}
	ended, cancelled := 0, 0
	for ended < clients {
		select {
		case a := <-done:
			ended++
			body := string(a.body)
			finals := strings.Count(body, `"error":`) + strings.Count(body, "data: [DONE]")
			if len(a.events) == 0 && a.status == 200 {
				finals += strings.Count(body, `"usage":{`)
			}
			if a.err != nil || finals != 1 || strings.Contains(body, `"error":`) != strings.Contains(body, "request_cancelled") {
				t.Errorf("%d ends, %v, status %d: %.300s", finals, a.err, a.status, body)
			}
			if strings.Contains(body, "request_cancelled") {
				cancelled++
			}
		default:
			for i, q := range snapshotOf(t, s).Requests {
				if i%2 == 0 || ended > clients/2 {
					s.post("/v1/requests/cancel", `{"id":"`+q.ID+`"}`)
				}
			}
		}
	}
	if cancelled == 0 || gen.Live.Load() != 0 {
		t.Errorf("%d of %d cancelled, %d sequences run on", cancelled, clients, gen.Live.Load())
	}
	if st := snapshotOf(t, s); len(st.Requests) != 0 {
		t.Errorf("%+v", st.Requests)
	}
}
