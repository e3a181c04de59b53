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
	"sync/atomic"
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

// TestPoolExhausted: what can never fit is refused at once; small requests pass a big one, which
// still runs; two models that fill the pool wait or are preempted, and all are answered.
func TestPoolExhausted(t *testing.T) {
	s := serve(t, engine.Options{Models: demos(), KVMemory: 1 << 20}, api.Options{})
	limits := map[string]int{}
	for _, info := range s.engine.Models() {
		limits[info.Name] = info.MaxModelLen
	}
	if limits[tales] >= 1024 {
		t.Fatalf("the pool is too large for this test: %v", limits)
	}
	r := rand.New(rand.NewPCG(13, 14))
	big := complete(tales, randomIDs(r, limits[tales]+1, 3000), body{"max_tokens": 1})
	s.refused(t, completePath, big, 400)
	s.one(t, complete(tales, "small", body{"max_tokens": 2}))
	s.refused(t, completePath, complete(tales, "x", body{"max_tokens": limits[tales]}), 400)

	var wait sync.WaitGroup
	all := func(requests ...body) {
		t.Helper()
		for _, b := range requests {
			wait.Go(func() {
				got, err := s.ask(b)
				if err != nil {
					t.Errorf("%v: %v", b["model"], err)
					return
				}
				for _, a := range got.choices {
					if len(a.ids) != b["max_tokens"] || a.finish != "length" {
						t.Errorf("%v: %d of %v tokens, %s", b["model"], len(a.ids), b["max_tokens"], a.finish)
					}
				}
			})
		}
		wait.Wait()
	}
	half := limits[tales] / 2
	requests := []body{complete(tales, randomIDs(r, half, 3000), body{"max_tokens": half - 10, "ignore_eos": true})}
	for range 10 {
		requests = append(requests, complete(tales, randomIDs(r, 20, 3000), body{"max_tokens": 10, "ignore_eos": true}))
	}
	all(requests...)
	s.rest(t)

	requests = nil
	for i := range many(8, 16, 400) {
		model := []string{tales, bard}[i%2]
		requests = append(requests, complete(model, randomIDs(r, 30, 2000), body{"max_tokens": limits[model] - 40, "ignore_eos": true, "n": 1 + i%3, "temperature": 1}))
	}
	all(requests...)
	m := s.rest(t)
	if n := m.of(t, "vllm:num_preemptions_total", tales) + m.of(t, "vllm:num_preemptions_total", bard); n == 0 {
		t.Error("nothing was preempted: the pool is too large for this test")
	}
}

// TestQueueLimit: one runs, two wait, the others are refused at once; every caller gets a reply
// and the counters add up.
func TestQueueLimit(t *testing.T) {
	models, held := demos(), tales
	if !testing.Short() { // the larger model's answers surely outlast the others' requests
		models, held = three(t), smol
	}
	s := serve(t, engine.Options{Models: models, MaxNumSeqs: 1, MaxWaiting: 2}, api.Options{})
	long := complete(held, "x", body{"stream": true, "ignore_eos": true, "max_tokens": 1000})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var holders []*http.Response
	for range 3 { // as long as all three are there, nobody else gets in
		resp, err := s.open(ctx, long)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		holders = append(holders, resp)
	}
	var refused, answered, slowest atomic.Int64
	flood := func(model string, n int) {
		var wait sync.WaitGroup
		for i := range n {
			wait.Go(func() {
				begin := time.Now()
				resp, err := s.post(complete(model, "hello", body{"max_tokens": 2, "stream": i%2 == 0}))
				if err != nil {
					t.Error(err)
					return
				}
				defer resp.Body.Close()
				raw, err := io.ReadAll(resp.Body)
				switch {
				case err != nil:
					t.Error(err)
				case resp.StatusCode == 200:
					answered.Add(1)
				case resp.StatusCode != 429 || resp.Header.Get("Retry-After") == "" || !strings.Contains(string(raw), `"error"`):
					t.Errorf("status %d: %s", resp.StatusCode, raw)
				default:
					refused.Add(1)
					slowest.Store(max(slowest.Load(), int64(time.Since(begin))))
				}
			})
		}
		wait.Wait()
	}
	flood(held, 7)
	t.Logf("%d of 7 refused beside 3 long ones, the slowest after %v", refused.Load(), time.Duration(slowest.Load()).Round(time.Millisecond))
	if held == smol && refused.Load() != 7 {
		t.Errorf("%d of 7 refused beside one that runs and two that wait", refused.Load())
	}
	first := refused.Load()
	s.one(t, complete(bard, "hello", body{"max_tokens": 2})) // the other model's queue is its own
	cancel()
	for _, h := range holders {
		h.Body.Close()
	}
	s.rest(t)
	flood(tales, many(100, 1000, 1000))
	m := s.rest(t)
	refusals := func(model string) float64 {
		return m.state(t, "openinfer_requests_refused_total", `model_name="`+model+`",reason="queue_full"`)
	}
	got := refusals(tales)
	if held != tales {
		got += refusals(held)
	}
	if got != float64(refused.Load()) || refused.Load() == first {
		t.Errorf("%v refusals counted, %d seen", got, refused.Load())
	}
	if answered.Load() == 0 {
		t.Error("nobody was answered")
	}
	if n := int64(m.state(t, "openinfer_http_replies_total", `path="/v1/completions",status="429"`)); n != refused.Load() {
		t.Errorf("%d replies with 429 counted, %d seen", n, refused.Load())
	}
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
		if hits := m.of(t, "vllm:prefix_cache_hits_total", model); hits != m.of(t, "openinfer_cached_prompt_tokens_total", model) {
			t.Errorf("%s: %v hits, %v tokens cached", model, hits, m.of(t, "openinfer_cached_prompt_tokens_total", model))
		}
	}
	if n := m.state(t, "openinfer_http_replies_total", `path="/v1/chat/completions",status="200"`); n != 30 {
		t.Errorf("%v replies counted", n)
	}
}
