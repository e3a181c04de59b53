package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/openinfer-go/openinfer/api"
	"github.com/openinfer-go/openinfer/engine"
)

// open sends a request whose connection the test can drop.
func (s *service) open(ctx context.Context, b body) (*http.Response, error) {
	raw, err := json.Marshal(b)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, "POST", s.url+b.path(), strings.NewReader(string(raw)))
	if err != nil {
		return nil, err
	}
	return s.client.Do(req)
}

// drop sends a request and goes away after a number of events (of a stream) or when gone returns,
// which must be before the answer's end.
func (s *service) drop(t testing.TB, b body, events int, gone func()) {
	t.Helper()
	if s.dropped(t, b, events, gone) {
		t.Errorf("the answer of %v ended before it was dropped", b["model"])
	}
}

// dropped is drop where the answer may have ended: then it is true.
func (s *service) dropped(t testing.TB, b body, events int, gone func()) (ended bool) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if b["stream"] != true || events == 0 {
		left := make(chan struct{})
		go func() {
			defer close(left)
			resp, err := s.open(ctx, b)
			if err == nil {
				_, err = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
			if ended = err == nil; err != nil && !errors.Is(err, context.Canceled) {
				t.Errorf("%v: %v", b["model"], err)
			}
		}()
		gone()
		cancel()
		<-left
		return ended
	}
	resp, err := s.open(ctx, b)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		cancel() // before Close, which reads on for a while
		resp.Body.Close()
	}()
	for lines := bufio.NewScanner(resp.Body); events > 0 && lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "data: {") {
			events--
		}
	}
	return events > 0
}

func randomIDs(r *rand.Rand, n, vocab int) []int32 {
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = int32(300 + r.IntN(vocab-400))
	}
	return ids
}

// TestHealth: not ready while loading; ill while the loop does not move, with the list of models
// still there; ready after.
func TestHealth(t *testing.T) {
	needsTime(t)
	e, err := engine.New(quiet(engine.Options{Models: three(t), HeartbeatLimit: 20 * time.Millisecond}))
	if err != nil {
		t.Fatal(err)
	}
	s := start(e, api.Options{})
	defer s.close()
	status := func(path string) int { n, _ := s.get(t, path); return n }
	if n := status("/readyz"); n != 503 {
		t.Errorf("/readyz before loading: %d", n)
	}
	loaded := make(chan error, 1)
	go func() { loaded <- e.Load(t.Context()) }()
	for len(loaded) == 0 {
		if n := status("/readyz"); n == 200 && !e.Health().Ready {
			t.Error("ready while loading")
		}
		if n := len(s.models(t)); n != 3 {
			t.Errorf("%d models while loading", n)
		}
	}
	if err := <-loaded; err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(15, 16))
	answered := make(chan error, 1)
	go func() { // a step of 512 tokens of the larger model is far longer than the limit
		_, err := s.ask(complete(smol, randomIDs(r, 400, 49000), body{"max_tokens": 1}))
		answered <- err
	}()
	ill := false
	for len(answered) == 0 {
		if status("/health") == 503 && status("/readyz") == 503 {
			ill = true
			if n := status("/v1/models"); n != 200 {
				t.Errorf("models while the loop is busy: %d", n)
			}
		}
	}
	if err := <-answered; err != nil {
		t.Error(err)
	}
	if !ill {
		t.Error("a loop that did not move for longer than the limit was healthy all the time")
	}
}

// TestGaugesAtRest: after many prompts nothing is live and much is cached.
func TestGaugesAtRest(t *testing.T) {
	s := serve(t, engine.Options{Models: demos()}, api.Options{})
	for i := range 50 {
		s.one(t, complete([]string{tales, bard}[i%2], strings.Repeat(fmt.Sprintf("Prompt %d. ", i), 8), body{"max_tokens": 2}))
	}
	m := s.rest(t)
	for _, model := range []string{tales, bard} {
		if n := m.state(t, "openinfer_kv_blocks", `model_name="`+model+`",state="cached"`); n < 25 {
			t.Errorf("%s: %v blocks cached after 25 prompts", model, n)
		}
	}
	before := s.metrics(t)
	for range 20 {
		s.metrics(t)
	}
	if after := s.metrics(t); after.of(t, "openinfer_steps_total", tales) != before.of(t, "openinfer_steps_total", tales) {
		t.Error("scraping makes steps")
	}
}

// TestStartUpSizing: too little memory is refused with numbers, and no pool is negative.
func TestStartUpSizing(t *testing.T) {
	for _, kv := range []int64{1, 4096, 1 << 50} {
		e, err := engine.Open(t.Context(), quiet(engine.Options{Models: demos(), KVMemory: kv}))
		if err == nil {
			e.Close()
			t.Errorf("a KV cache of %d bytes was accepted: %v", kv, e.Plan())
			continue
		}
		if !strings.Contains(err.Error(), "KV cache") || !strings.ContainsAny(err.Error(), "0123456789") || strings.Contains(err.Error(), "-") && strings.Contains(err.Error(), " -") {
			t.Errorf("%d bytes: %v", kv, err)
		}
	}
	for _, kv := range []int64{0, 1 << 20, 64 << 20} {
		e, err := engine.Open(t.Context(), quiet(engine.Options{Models: demos(), KVMemory: kv}))
		if err != nil {
			t.Errorf("%d bytes: %v", kv, err)
			continue
		}
		if p := e.Plan(); p.KVBytes <= 0 || kv > 0 && p.KVBytes > kv || p.WeightBytes <= 0 || p.ReserveBytes < 0 {
			t.Errorf("%d bytes: %+v", kv, p)
		}
		e.Close()
	}
}

// TestCountersAddUp: what /metrics counts is what the answers said.
func TestCountersAddUp(t *testing.T) {
	s := serve(t, engine.Options{Models: demos()}, api.Options{})
	type sums struct{ prompt, completion, sequences, stop, length float64 }
	want := map[string]*sums{tales: {}, bard: {}}
	var mu sync.Mutex
	var wait sync.WaitGroup
	for i := range 30 {
		wait.Go(func() {
			model := []string{tales, bard}[i%2]
			b := chat(model, strings.Repeat("A fox and a king. ", 4), body{"max_tokens": 1 + i, "n": 1 + i%3, "temperature": 1, "seed": i, "stream": i%4 < 2, "ignore_eos": i%5 > 1})
			if i%4 < 2 {
				b["stream_options"] = body{"include_usage": true}
			}
			r, err := s.ask(b)
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			w := want[model]
			w.completion += float64(r.usage.Completion)
			for _, a := range r.choices {
				w.sequences++
				w.prompt += float64(r.usage.Prompt)
				if a.finish == "stop" {
					w.stop++
				} else {
					w.length++
				}
			}
		})
	}
	wait.Wait()
	m := s.rest(t)
	for model, w := range want {
		for name, want := range map[string]float64{
			"vllm:generation_tokens_total":           w.completion,
			"vllm:prompt_tokens_total":               w.prompt,
			"vllm:time_to_first_token_seconds_count": w.sequences,
			"vllm:e2e_request_latency_seconds_count": w.sequences,
		} {
			if got := m.of(t, name, model); got != want {
				t.Errorf("%s of %s: %v, the answers say %v", name, model, got, want)
			}
		}
		for reason, want := range map[string]float64{"stop": w.stop, "length": w.length, "abort": 0, "error": 0} {
			if got := m.state(t, "vllm:request_success_total", `finished_reason="`+reason+`",model_name="`+model+`"`); got != want {
				t.Errorf("%s of %s: %v, the answers say %v", reason, model, got, want)
			}
		}
		if hits := m.of(t, "vllm:prefix_cache_hits_total", model); hits != m.of(t, "vllm:prompt_tokens_cached_total", model) {
			t.Errorf("%s: %v hits, %v tokens cached", model, hits, m.of(t, "vllm:prompt_tokens_cached_total", model))
		}
	}
	if n := m.state(t, "openinfer_http_replies_total", `path="/v1/chat/completions",status="200"`); n != 30 {
		t.Errorf("%v replies counted", n)
	}
}
