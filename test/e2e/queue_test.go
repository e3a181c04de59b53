package e2e

import (
	"context"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/openinfer-go/openinfer/api"
	"github.com/openinfer-go/openinfer/engine"
)

// TestB40QueueLimit: one runs and two wait. Of ten at once, and of a thousand, to a model that is there, that is
// parked or that is not loaded yet, three are accepted and the others refused, before their text is looked at; every
// caller gets a reply and the counters add up.
func TestB40QueueLimit(t *testing.T) {
	for _, at := range []string{"resident", "parked", "start-up"} {
		t.Run(at, func(t *testing.T) {
			for _, n := range []int{10, 1000} {
				t.Run(map[int]string{10: "ten", 1000: "a thousand"}[n], func(t *testing.T) {
					machines(t, func(t *testing.T, m machine) { m.flood(t, at, n) })
				})
			}
		})
	}
}

// flood asks a model n times at once.
func (m machine) flood(t *testing.T, at string, n int) {
	o := engine.Options{Models: m.first(2), MaxNumSeqs: 1, MaxWaiting: 2}
	var s *service
	switch at {
	case "start-up":
		s = m.open(t, o, api.Options{KeepAlive: time.Hour})
	case "parked":
		s = m.serve(t, m.oneAtATime(t, o), api.Options{KeepAlive: time.Hour})
		s.call(t, "/v1/models/unload", body{"model": m.long}, &struct{}{})
	default:
		s = m.serve(t, o, api.Options{KeepAlive: time.Hour})
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r := rand.New(rand.NewPCG(15, uint64(n)))
	tokens, patient := 30000, n == 10 // nobody's answer ends while others ask, and of ten nobody gives up
	if patient {
		tokens = 4000
	}
	var accepted, refused, slowest atomic.Int64
	var wait sync.WaitGroup
	begun := time.Now()
	for i := range n {
		b := says(m.long, fewTokens(r, 20), tokens, i%2 == 0)
		if i%3 == 1 {
			b = chat(m.long, "Hello", body{"max_tokens": tokens, "ignore_eos": true, "stream": i%2 == 0})
		}
		wait.Go(func() {
			resp, err := s.open(ctx, b)
			if err != nil {
				accepted.Add(1) // and gave up
				return
			}
			if resp.StatusCode == 200 {
				accepted.Add(1)
				_, err = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
				if (err == nil) != patient {
					t.Errorf("the end of an answer: %v", err)
				}
				return
			}
			defer resp.Body.Close()
			if m := errorMessage(t, resp, 429); !strings.Contains(m, "waiting, as many as may") {
				t.Errorf("%q", m)
			}
			if after := resp.Header.Get("Retry-After"); after == "" || after == "0" {
				t.Errorf("Retry-After %q", after)
			}
			slowest.Store(max(slowest.Load(), int64(time.Since(begun))))
			refused.Add(1)
		})
	}
	eventually(t, "all but three are refused", func() bool { return refused.Load() >= int64(n-3) })
	m.within(t, "a refusal", time.Duration(slowest.Load()), 0)
	t.Logf("%d of %d refused, the slowest after %v", refused.Load(), n, time.Duration(slowest.Load()).Round(time.Millisecond))

	// A text that is longer than the model's context is refused for that only if somebody looks at it.
	far := says(m.long, strings.Repeat("word ", 4*131072), 1, false)
	s.refused(t, "/v1/completions", far, 429)
	s.refused(t, "/v1/chat/completions", chat(m.long, strings.Repeat("word ", 4*131072), nil), 429)
	if at == "resident" { // the other model's queue is its own
		s.whole(t, says(m.other, []int32{301}, 3, false))
	}
	if at == "start-up" {
		if st := s.of(t, m.long); st.Waiting != 3 {
			t.Errorf("%d wait, want three", st.Waiting)
		}
		if err := s.engine.Load(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "one runs and two wait", func() bool {
		st := s.of(t, m.long)
		return st.Running == 1 && st.Waiting == 2
	})
	if !patient {
		cancel()
	}
	wait.Wait()
	got := s.verified(t)
	if accepted.Load() != 3 || refused.Load() != int64(n-3) {
		t.Errorf("%d accepted and %d refused of %d", accepted.Load(), refused.Load(), n)
	}
	if c := got.state(t, "openinfer_requests_refused_total", `model_name="`+m.long+`",reason="queue_full"`); c != float64(n-3+2) {
		t.Errorf("%v refusals are counted, of %d", c, n-3+2)
	}
	end := map[bool]string{true: "length", false: "abort"}[patient]
	if c := got.state(t, "vllm:request_success_total", `finished_reason="`+end+`",model_name="`+m.long+`"`); c != 3 {
		t.Errorf("%v are counted as ended by %s, of 3", c, end)
	}
	want := map[string]int{"429": n - 3 + 2, map[bool]string{true: "200", false: "499"}[patient]: 3}
	if at == "resident" {
		want["200"]++
	}
	eventually(t, fmt.Sprintf("%v replies are counted", want), func() bool { return maps.Equal(s.replies(t), want) })
	s.refused(t, "/v1/completions", far, 400)
	s.whole(t, says(m.long, fewTokens(r, 20), 5, true))
}

// errorMessage reads the reply of a refusal.
func errorMessage(t testing.TB, resp *http.Response, status int) string {
	t.Helper()
	raw, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != status || !strings.Contains(string(raw), `"error"`) {
		t.Errorf("status %d, want %d (%v): %.300s", resp.StatusCode, status, err, raw)
	}
	return string(raw)
}

// replies counts replies to requests for text by their status.
func (s *service) replies(t testing.TB) map[string]int {
	t.Helper()
	out := map[string]int{}
	for name, v := range s.metrics(t) {
		for _, path := range []string{"/v1/completions", "/v1/chat/completions"} {
			if status, ok := strings.CutPrefix(name, `openinfer_http_replies_total{path="`+path+`",status="`); ok {
				out[strings.TrimSuffix(status, `"}`)] += int(v)
			}
		}
	}
	return out
}
