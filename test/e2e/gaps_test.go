package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
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

// heard is what a client noticed of an answer.
type heard struct {
	status, tokens int
	first, gap     time.Duration // until the first token, and the longest until another one
	lastGap        time.Duration
	took           time.Duration
	last           time.Time
	retryAfter     string
	message        string // of a refusal
	finals         int    // events that end the answer
}

// listen sends a request and notes when its tokens come. It may run in any goroutine.
func (s *service) listen(t testing.TB, b body, header http.Header) (h heard) {
	raw, err := json.Marshal(b)
	if err != nil {
		t.Error(err)
		return h
	}
	req, err := http.NewRequestWithContext(t.Context(), "POST", s.url+b.path(), bytes.NewReader(raw))
	if err != nil {
		t.Error(err)
		return h
	}
	for name, v := range header {
		req.Header[name] = v
	}
	begun := time.Now()
	resp, err := s.client.Do(req)
	if err != nil {
		t.Error(err)
		return h
	}
	defer resp.Body.Close()
	h.status, h.retryAfter = resp.StatusCode, resp.Header.Get("Retry-After")
	if h.status != 200 || b["stream"] != true {
		raw, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Error(err)
		}
		h.message, h.took = string(raw), time.Since(begun)
		h.finals = strings.Count(h.message, `"finish_reason":"`)
		return h
	}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20) // an event may hold the ids of a prompt
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		h.finals += strings.Count(data, `"finish_reason":"`)
		var r reply
		if json.Unmarshal([]byte(data), &r) != nil || r.Choices == nil || len(*r.Choices) == 0 || len((*r.Choices)[0].TokenIDs) == 0 {
			continue
		}
		now := time.Now()
		if h.tokens == 0 {
			h.first = now.Sub(begun)
		} else {
			h.lastGap = now.Sub(h.last)
			h.gap = max(h.gap, h.lastGap)
		}
		h.tokens, h.last = h.tokens+len((*r.Choices)[0].TokenIDs), now
	}
	if err := lines.Err(); err != nil {
		t.Error(err)
	}
	h.took = time.Since(begun)
	return h
}

func tpot(target time.Duration) body {
	if target == 0 {
		return nil
	}
	return body{"sla": body{"tpot_ms": target.Seconds() * 1000}}
}

// TestB41LongPrompt: a prompt of 20,000 tokens, on the same model or another one, with and without a deadline, widens
// no stream's gap beyond its target or the time of a smallest chunk, whichever is larger; without a target the worst
// gap is about one chunk, a quarter of a second.
func TestB41LongPrompt(t *testing.T) {
	const prompt = 20000
	for _, target := range []time.Duration{0, 5 * time.Millisecond, 30 * time.Millisecond, 200 * time.Millisecond} {
		for _, same := range []bool{true, false} {
			name := map[bool]string{true: "same model", false: "another model"}[same] + ", " + target.String()
			t.Run(name, func(t *testing.T) {
				onCard(t, func(t *testing.T, m machine) {
					s := m.serve(t, engine.Options{Models: m.first(2)}, api.Options{})
					r := rand.New(rand.NewPCG(16, 1))
					streams, busy := m.long, m.long
					if !same {
						busy = m.other
					}
					// The time of a smallest chunk, 16 tokens, at the end of such a prompt.
					known := fewTokens(r, prompt)
					s.listen(t, says(busy, known, 1, true), nil)
					smallest := s.listen(t, says(busy, append(known, fewTokens(r, 16)...), 1, true), nil).first
					tokens := map[bool]int{true: 1500, false: 4500}[same]
					var wait sync.WaitGroup
					var all [4]heard
					for i := range all {
						wait.Go(func() {
							all[i] = s.listen(t, says(streams, fewTokens(rand.New(rand.NewPCG(16, uint64(2+i))), 10), tokens, true).with(tpot(target)), nil)
						})
						time.Sleep(7 * time.Millisecond)
					}
					time.Sleep(100 * time.Millisecond)
					long := says(busy, fewTokens(r, prompt), 1, true)
					if target > 30*time.Millisecond {
						long["sla"] = body{"ttft_ms": 60000}
					}
					l := s.listen(t, long, nil)
					if l.status != 200 || l.tokens != 1 {
						t.Errorf("the long prompt: %+v", l)
					}
					ended := time.Now()
					wait.Wait()
					if !same { // and then comes a step of the streams
						smallest += all[0].lastGap
					}
					limit := max(target, smallest)
					if target == 0 {
						limit = 250*time.Millisecond + smallest
					}
					for i, h := range all {
						if h.status != 200 || h.tokens != tokens || h.finals != 1 {
							t.Errorf("stream %d: %+v", i, h)
						}
						if h.gap > limit {
							t.Errorf("stream %d: a gap of %v, want %v at most", i, h.gap, limit)
						}
						if h.last.Before(ended) {
							t.Errorf("stream %d ended before the prompt was computed: nothing is shown", i)
						}
					}
					t.Logf("gaps up to %v, of %v at most; a smallest chunk takes %v, the prompt %v", all[0].gap, limit, smallest, l.first)
					if late := s.of(t, streams).Late; late != 0 {
						t.Errorf("%d streams were late", late)
					}
					s.verified(t)
				})
			})
		}
	}
	t.Run("cpu", func(t *testing.T) { // where steps are counted instead of time
		m := processor(t)
		s := m.serve(t, engine.Options{Models: m.first(2), MaxBatchedTokens: 256}, api.Options{})
		const prompt = 6000
		r := rand.New(rand.NewPCG(16, 9))
		for _, streams := range []string{m.long, m.other} {
			tokens := map[string]int{m.long: 30000, m.other: 1000}[streams]
			stop := make(chan struct{})
			var wait sync.WaitGroup
			wait.Go(func() { // one after the other, until the prompt is done
				for {
					select {
					case <-stop:
						return
					default:
						leave := s.hold(t, says(streams, []int32{301, 302}, tokens, true))
						select {
						case <-stop:
							leave()
							return
						case <-time.After(100 * time.Millisecond):
							leave()
						}
					}
				}
			})
			eventually(t, "the stream runs", func() bool { return s.of(t, streams).GeneratedTokens > 0 })
			before := s.engine.Stats()
			s.whole(t, says(m.long, fewTokens(r, prompt), 1, true))
			after := s.engine.Stats()
			close(stop)
			wait.Wait()
			made, steps := int64(0), after.Steps-before.Steps
			for i := range after.Models {
				made += after.Models[i].GeneratedTokens - before.Models[i].GeneratedTokens
			}
			if made < steps/4 || steps < prompt/256 {
				t.Errorf("%s: %d tokens in %d steps while a long prompt was computed", streams, made, steps)
			}
		}
		s.verified(t)
	})
}
