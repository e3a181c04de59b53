package e2e

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/openinfer-go/openinfer/api"
	"github.com/openinfer-go/openinfer/engine"
)

// crowd is 24 requests over three models, whose prompts share beginnings of several blocks.
func crowd(tokens int) []body {
	shared := strings.Repeat("A fox met a king in a far land. ", 5)
	var all []body
	for i := range 24 {
		model := []string{tales, bard, smol}[i%3]
		b := chat(model, fmt.Sprintf("%sTell me about thing number %d.", shared, i/6), body{"max_tokens": tokens, "stream": i/3%2 == 0})
		switch i % 4 {
		case 1:
			b["temperature"], b["seed"] = 0.9, i
		case 2:
			b["temperature"], b["seed"], b["top_p"], b["top_k"], b["frequency_penalty"], b["presence_penalty"] = 1.3, i, 0.9, 40, 0.5, 0.5
		case 3:
			b["repetition_penalty"], b["logit_bias"], b["ignore_eos"] = 1.2, body{"300": 2.5}, true
		}
		if i%5 == 0 {
			delete(b, "messages")
			b["prompt"] = []int32{5, 6, 7, int32(i), 400, 401, 402}
		}
		all = append(all, b)
	}
	return all
}

// together asks all at once and compares with the answers they get alone.
func together(t *testing.T, s *service, requests []body, alone []answer, more body) {
	t.Helper()
	var wait sync.WaitGroup
	for i, b := range requests {
		wait.Go(func() {
			r, err := s.ask(b.with(more))
			switch {
			case err != nil:
				t.Errorf("request %d to %v: %v", i, b["model"], err)
			case len(r.choices) != 1 || !r.choices[0].same(alone[i]):
				t.Errorf("request %d to %v: together %v, alone %v", i, b["model"], r.choices, alone[i])
			}
		})
	}
	wait.Wait()
}

func alone(t *testing.T, s *service, requests []body, more body) []answer {
	t.Helper()
	all := make([]answer, len(requests))
	for i, b := range requests {
		all[i] = s.one(t, b.with(more))
		if len(all[i].ids) == 0 {
			t.Errorf("request %d: %v", i, all[i])
		}
	}
	return all
}

// TestAnswersTogetherEqualAnswersAlone: 24 streams over three models in one process; with what the
// prefix cache has and without; whatever the batch, each answer is its solo answer.
func TestAnswersTogetherEqualAnswersAlone(t *testing.T) {
	needsTime(t)
	for _, c := range []struct {
		name   string
		shared *shared
		tokens int
	}{{"int8", &fast, many(4, 12, 64)}, {"exact", &exact, many(4, 6, 48)}} {
		t.Run(c.name, func(t *testing.T) {
			s := c.shared.get(t)
			requests := crowd(c.tokens)
			solo := alone(t, s, requests, body{"cache_salt": "crowd"})
			together(t, s, requests, solo, body{"cache_salt": "crowd"}) // warm
			together(t, s, requests, solo, body{"cache_salt": "cold"})  // cold, and sharing as they go
			s.rest(t)
		})
	}
}

// TestAnswersUnderPreemption: the pool holds a few of the sequences only.
func TestAnswersUnderPreemption(t *testing.T) {
	needsTime(t)
	big := fast.get(t)
	small := serve(t, engine.Options{Models: three(t), KVMemory: 7 << 20}, api.Options{})
	requests := crowd(many(4, 24, 64))
	for _, b := range requests {
		b["ignore_eos"] = true
	}
	solo := alone(t, big, requests, body{"cache_salt": "preempted"})
	together(t, small, requests, solo, nil)
	m := small.rest(t)
	preemptions := 0.0
	for _, model := range []string{tales, bard, smol} {
		preemptions += m.of(t, "vllm:num_preemptions_total", model)
	}
	if preemptions == 0 {
		t.Error("nothing was preempted: the pool is too large for this test")
	}
	t.Logf("%v preemptions", preemptions)
}

// TestTwoEngines: engines of one process know nothing of each other.
func TestTwoEngines(t *testing.T) {
	one := serve(t, engine.Options{Models: demos()}, api.Options{})
	two := serve(t, engine.Options{Models: demos()[:1], Exact: true, Threads: 1}, api.Options{})
	b := chat(tales, "Tell me a story", body{"max_tokens": 60})
	first, second := one.one(t, b), two.one(t, b)
	var wait sync.WaitGroup
	for range 8 {
		wait.Go(func() {
			for _, c := range []struct {
				s    *service
				want answer
			}{{one, first}, {two, second}} {
				if r, err := c.s.ask(b); err != nil || !r.choices[0].same(c.want) {
					t.Errorf("%v (%v), want %v", r.choices, err, c.want)
				}
			}
		})
	}
	wait.Wait()
	one.engine.Close()
	if got := two.one(t, b); !got.same(second) {
		t.Errorf("after the other engine's end: %v, want %v", got, second)
	}
}
