package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/openinfer-go/openinfer/api"
	"github.com/openinfer-go/openinfer/engine"
)

// promised is what a refusal for an SLA says.
var promised = regexp.MustCompile(`first token after ([0-9.a-zµ]+), wanted within ([0-9.a-zµ]+)`)

// overCapacity checks the refusal of a request whose first token was wanted within target, and returns what was predicted.
func overCapacity(t testing.TB, h heard, target time.Duration) time.Duration {
	t.Helper()
	m := promised.FindStringSubmatch(h.message)
	seconds, err := strconv.Atoi(h.retryAfter)
	if h.status != 429 || m == nil || err != nil || seconds < 1 || seconds > 120 {
		t.Errorf("status %d, Retry-After %q: %s", h.status, h.retryAfter, h.message)
		return 0
	}
	predicted, err := time.ParseDuration(m[1])
	wanted, werr := time.ParseDuration(m[2])
	if err != nil || werr != nil || wanted != target {
		t.Errorf("wanted within %v: %s (%v, %v)", target, h.message, err, werr)
	}
	return predicted
}

// TestSLAOverHTTP: more comes than a card can do. Who could not get the first token in time is told so at once, with
// what is predicted and when to come again; who is accepted gets it in time; and all are counted. The target stands
// in the body or in headers.
func TestSLAOverHTTP(t *testing.T) {
	onCard(t, func(t *testing.T, m machine) {
		s := m.serve(t, engine.Options{Models: m.first(2)}, api.Options{})
		n := many(60, 240, 2000)
		all := make([]heard, n)
		targets := make([]time.Duration, n)
		r := rand.New(rand.NewPCG(17, 1))
		var wait sync.WaitGroup
		tokens := 0
		for i := range all {
			targets[i] = time.Duration(100+r.IntN(1400)) * time.Millisecond
			ms := targets[i].Milliseconds()
			b := says([]string{m.long, m.other}[i%2], fewTokens(r, 500+r.IntN(3000)), 20, true)
			header := http.Header{}
			switch i % 4 {
			case 0:
				b["sla"] = body{"ttft_ms": ms}
			case 1:
				header["X-Sla-Ttft-Ms"] = []string{fmt.Sprint(ms)}
			case 2: // the body wins
				b["sla"] = body{"ttft_ms": ms}
				header["X-Sla-Ttft-Ms"] = []string{"1"}
			case 3:
				b["sla"] = body{"tpot_ms": 100}
				header["X-Sla-Ttft-Ms"], header["X-Sla-Tpot-Ms"] = []string{fmt.Sprintf("%d.0", ms)}, []string{"1"}
			}
			wait.Go(func() { all[i] = s.listen(t, b, header) })
			time.Sleep(time.Duration(r.IntN(60)) * time.Millisecond) // about twice what the card can do
		}
		wait.Wait()
		accepted, refused := 0, 0
		for i, h := range all {
			switch h.status {
			case 200:
				accepted++
				tokens += h.tokens
				if h.first > targets[i] || h.tokens != 20 || h.finals != 1 {
					t.Errorf("request %d was accepted for a first token within %v: %+v", i, targets[i], h)
				}
				if i%4 == 3 && h.took-h.first > 19*100*time.Millisecond {
					t.Errorf("request %d was accepted for 100 ms a token: %+v", i, h)
				}
			default:
				refused++
				if predicted := overCapacity(t, h, targets[i]); (predicted <= targets[i]) != strings.Contains(h.message, "beside what it promised others") {
					t.Errorf("request %d: %v of %v are predicted: %s", i, predicted, targets[i], h.message)
				}
				if h.took != 0 {
					t.Errorf("request %d was refused after %v", i, h.took)
				}
			}
		}
		t.Logf("%d accepted, %d refused", accepted, refused)
		if accepted < n/4 || refused < n/8 {
			t.Errorf("%d accepted, %d refused: the load is not what this test wants", accepted, refused)
		}
		got := s.verified(t)
		counted, sellable := 0.0, 0.0
		for _, model := range []string{m.long, m.other} {
			counted += got.state(t, "openinfer_requests_refused_total", `model_name="`+model+`",reason="sla"`)
			sellable += got.of(t, "openinfer_sellable_tokens_total", model)
			if late := got.of(t, "openinfer_sequences_late_total", model); late != 0 {
				t.Errorf("%s: %v late", model, late)
			}
		}
		if counted != float64(refused) || sellable != float64(tokens) {
			t.Errorf("%v refusals and %v sellable tokens are counted, of %d and %d", counted, sellable, refused, tokens)
		}
		if want := map[string]int{"200": accepted, "429": refused}; !maps.Equal(s.replies(t), want) {
			t.Errorf("%v replies, want %v", s.replies(t), want)
		}
		// On an idle card what is possible is accepted, and what is not is not.
		idle := says(m.long, fewTokens(r, 2000), 5, true)
		if h := s.listen(t, idle.with(body{"sla": body{"ttft_ms": 1000}}), nil); h.status != 200 || h.first > time.Second {
			t.Errorf("%+v", h)
		}
		h := s.listen(t, says(m.long, fewTokens(r, 20000), 5, true).with(body{"sla": body{"ttft_ms": 100}}), nil)
		if predicted := overCapacity(t, h, 100*time.Millisecond); predicted < time.Second || predicted > 3*time.Second { // it takes 1.4 s
			t.Errorf("20,000 tokens are predicted to take %v", predicted)
		}
		h = s.listen(t, says(m.long, []int32{301}, 5, true).with(body{"sla": body{"tpot_ms": 0.5}}), nil) // a step takes 1.35 ms
		if h.status != 429 || h.retryAfter == "" || !strings.Contains(h.message, "time per token") {
			t.Errorf("%+v", h)
		}
		if c := s.metrics(t).state(t, "openinfer_requests_refused_total", `model_name="`+m.long+`",reason="queue_full"`); c != 0 {
			t.Errorf("%v refusals for a full queue are counted", c)
		}
	})
}

// TestAnswersAtOnce: whatever step is running and however full the queue is, who is refused is told so at once.
func TestAnswersAtOnce(t *testing.T) {
	onCard(t, func(t *testing.T, m machine) {
		s := m.serve(t, engine.Options{Models: m.first(2), MaxBatchedTokens: 16384, MaxNumSeqs: 2, MaxWaiting: 1}, api.Options{})
		r := rand.New(rand.NewPCG(17, 2))
		var wait sync.WaitGroup
		wait.Go(func() { s.whole(t, says(m.long, fewTokens(r, 16000), 1, false)) }) // a step of most of a second
		eventually(t, "it runs", func() bool { return s.of(t, m.long).Running == 1 })
		time.Sleep(100 * time.Millisecond)
		begun, steps := time.Now(), s.of(t, m.long).Steps
		patient := body{"sla": body{"ttft_ms": 60000}}
		tight := body{"sla": body{"ttft_ms": 50}}
		for _, stream := range []bool{false, true} {
			overCapacity(t, s.listen(t, says(m.long, fewTokens(r, 100), 5, stream).with(tight), nil), 50*time.Millisecond)
		}
		far := s.limit(t, m.long) + 1
		for _, b := range []body{
			says(m.long, fewTokens(r, far), 1, false).with(patient), says(m.long, []int32{301}, far, true).with(patient), // never: not a matter of time
		} {
			if message, _ := s.refused(t, b.path(), b, 400); !strings.Contains(message, fmt.Sprint(far-1)) {
				t.Errorf("no %d in %q", far-1, message)
			}
		}
		s.refused(t, "/v1/completions", says("nobody", []int32{301}, 1, false), 404)
		for fields, param := range map[string]string{
			`"sla":{"ttft_ms":0}`: "sla.ttft_ms", `"sla":{"ttft_ms":"fast"}`: "sla.ttft_ms", `"sla":{"tpot_ms":-1}`: "sla.tpot_ms",
			`"sla":{"tpot":5}`: "sla.tpot", `"sla":7`: "sla", `"priority":5000`: "priority", `"keep_alive":"soon"`: "keep_alive",
		} {
			if _, at := s.refused(t, "/v1/completions", []byte(`{"model":"`+m.long+`","prompt":"x",`+fields+`}`), 400); at != param {
				t.Errorf("%s: blamed on %q", fields, at)
			}
		}
		for _, name := range []string{"X-SLA-TTFT-Ms", "X-SLA-TPOT-Ms"} {
			for _, v := range []string{"soon", "0", "-5", "NaN"} {
				h := s.listen(t, says(m.long, []int32{301}, 1, false), http.Header{http.CanonicalHeaderKey(name): {v}})
				if h.status != 400 || !strings.Contains(h.message, `"`+name+`"`) {
					t.Errorf("%s: %s: %+v", name, v, h)
				}
			}
		}
		for range 2 { // one more may run, and one may wait
			wait.Go(func() { s.whole(t, says(m.long, fewTokens(r, 10), 1, false)) })
		}
		eventually(t, "they wait", func() bool { return s.of(t, m.long).Waiting+s.of(t, m.long).Running == 3 })
		waited := time.Since(begun)
		full := time.Now()
		if h := s.listen(t, says(m.long, fewTokens(r, 10), 1, true), nil); h.status != 429 || h.retryAfter == "" || time.Since(full) != 0 {
			t.Errorf("%v: %+v", time.Since(full), h)
		}
		if s.of(t, m.long).Steps != steps || waited > 10*time.Millisecond {
			t.Errorf("%v passed and %d steps ended meanwhile", waited, s.of(t, m.long).Steps-steps)
		}
		wait.Wait()
		s.verified(t)
	})
}

// TestEveryRequestEndsOnce: some thousands of requests of all kinds to three models on a card with room for the
// weights of two and a small cache, a part of which go away at any time. Each has one end, whatever that is, and the
// counters know them all.
func TestEveryRequestEndsOnce(t *testing.T) {
	onCard(t, func(t *testing.T, m machine) {
		o := engine.Options{Models: m.models, MaxNumSeqs: 12, MaxWaiting: 24, KVMemory: 256 << 20}
		largest := m.oneAtATime(t, o).WeightMemory
		o.WeightMemory = largest * 19 / 10
		s := m.serve(t, o, api.Options{})
		if n := s.residents(t); n != 2 {
			t.Fatalf("%d of three models are resident: the test wants room for two", n)
		}
		n := many(400, 3000, 30000)
		r := rand.New(rand.NewPCG(17, 3))
		names := []string{m.long, m.other, m.spare}
		var mu sync.Mutex
		var wait sync.WaitGroup
		outcome := map[string]int{} // by what the client saw
		sequences := 0              // of complete answers
		shared := fewTokens(r, 300)
		for i := range n {
			choices := 1
			ids := fewTokens(r, 1+r.IntN(400))
			if i%3 == 0 {
				ids = append(shared[:r.IntN(300):300], ids...)
			}
			b := says(names[r.IntN(3)*r.IntN(2)], ids, 1+r.IntN(60), i%2 == 0)
			switch i % 10 {
			case 1:
				choices = 3
				b = b.with(body{"n": 3, "temperature": 1})
			case 3, 4, 5:
				b["sla"] = body{"ttft_ms": 50 + r.IntN(3000)}
			case 6:
				b["sla"] = body{"ttft_ms": 500, "tpot_ms": 20}
			case 7:
				b["priority"] = r.IntN(20) - 10
			case 8:
				b["user"] = fmt.Sprint(i % 7)
			case 9:
				if i%50 == 9 {
					b["max_tokens"] = 1 << 20
				}
			}
			ctx, cancel := context.WithCancel(t.Context())
			if r.IntN(4) == 0 {
				cancel = leaveAfter(ctx, cancel, time.Duration(r.ExpFloat64()*float64(300*time.Millisecond)))
			}
			wait.Go(func() {
				defer cancel()
				saw := s.outcome(t, ctx, b, choices)
				mu.Lock()
				defer mu.Unlock()
				if outcome[saw]++; saw == "200" {
					sequences += choices
				}
			})
			time.Sleep(time.Duration(r.ExpFloat64() * float64(12*time.Millisecond)))
		}
		wait.Wait()
		got := s.verified(t)
		sum := func(name string, labels ...string) (all float64) {
			for _, model := range names {
				if len(labels) == 0 {
					all += got.of(t, name, model)
				}
				for _, l := range labels {
					all += got.state(t, name, strings.ReplaceAll(l, "MODEL", model))
				}
			}
			return all
		}
		ended := func(reason string) float64 {
			return sum("vllm:request_success_total", `finished_reason="`+reason+`",model_name="MODEL"`)
		}
		t.Logf("%v; %v ended, %v aborted, %v preempted, %v tokens found in the prefix cache, %v loads, %v late", outcome, ended("length"), ended("abort"),
			sum("vllm:num_preemptions_total"), sum("vllm:prefix_cache_hits_total"), sum("openinfer_model_loads_total"), sum("openinfer_sequences_late_total"))
		replies := map[string]int{}
		eventually(t, "all replies are counted", func() bool {
			replies = s.replies(t)
			return replies["200"]+replies["400"]+replies["429"]+replies["499"] == n && len(replies) == 4
		})
		// Who left as the answer came may count as answered.
		if gone := outcome["gone"]; replies["400"] != outcome["400"] || replies["429"] < outcome["429"] || replies["200"] < outcome["200"] ||
			replies["499"] > gone || outcome["200"]+outcome["400"]+outcome["429"]+gone != n {
			t.Errorf("replies %v, clients saw %v of %d", replies, outcome, n)
		}
		refusals := sum("openinfer_requests_refused_total", `model_name="MODEL",reason="sla"`, `model_name="MODEL",reason="queue_full"`)
		if refusals != float64(replies["429"]) {
			t.Errorf("%v refusals, %d replies with 429", refusals, replies["429"])
		}
		if ended("error") != 0 || ended("stop") != 0 || ended("length") < float64(sequences) {
			t.Errorf("%v sequences ended, %v by themselves and %v with an error; clients had %d whole ones", ended("length"), ended("stop"), ended("error"), sequences)
		}
		for what, v := range map[string]float64{"preemptions": sum("vllm:num_preemptions_total"), "hits": sum("vllm:prefix_cache_hits_total"),
			"loads": sum("openinfer_model_loads_total"), "refusals": refusals, "aborted": ended("abort")} {
			if v == 0 {
				t.Errorf("no %s: the load is not what this test wants", what)
			}
		}
	})
}

// leaveAfter calls cancel after a while, unless the function it returns is called before.
func leaveAfter(ctx context.Context, cancel context.CancelFunc, d time.Duration) context.CancelFunc {
	timer := time.AfterFunc(d, cancel)
	return func() {
		timer.Stop()
		cancel()
	}
}

// outcome sends a request and says what became of it: its status, or gone. It may run in any goroutine.
func (s *service) outcome(t testing.TB, ctx context.Context, b body, choices int) string {
	resp, err := s.open(ctx, b)
	if err == nil {
		var raw []byte
		raw, err = io.ReadAll(resp.Body)
		resp.Body.Close()
		switch {
		case err != nil:
		case resp.StatusCode != 200:
			var e struct{ Error struct{ Message string } }
			if json.Unmarshal(raw, &e) != nil || e.Error.Message == "" || (resp.StatusCode == 429) != (resp.Header.Get("Retry-After") != "") {
				t.Errorf("status %d, Retry-After %q: %s", resp.StatusCode, resp.Header.Get("Retry-After"), raw)
			}
			return fmt.Sprint(resp.StatusCode)
		default:
			if finals := strings.Count(string(raw), `"finish_reason":"`); finals != choices {
				t.Errorf("%d final events of %d answers: %.500s", finals, choices, raw)
			}
			if stream := b["stream"] == true; stream && strings.Count(string(raw), "data: [DONE]") != 1 {
				t.Errorf("end markers: %.500s", raw)
			}
			return "200"
		}
	}
	if ctx.Err() == nil {
		t.Errorf("%v: %v", b["model"], err)
	}
	return "gone"
}
