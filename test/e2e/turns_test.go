package e2e

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/openinfer-go/openinfer/api"
	"github.com/openinfer-go/openinfer/engine"
	"github.com/openinfer-go/openinfer/internal/testdata"
)

const third = "third"

// turns serves three models on a device with room for the weights of one.
func turns(t *testing.T, device string) *service {
	t.Helper()
	models := append(demos(), engine.ModelSpec{Name: third, Path: testdata.Shared(t, "golden", "models", "qwen3_tied")})
	e, err := engine.Open(t.Context(), quiet(engine.Options{Models: models, Device: device}))
	if err != nil {
		t.Fatal(err)
	}
	largest := int64(0)
	for _, m := range e.Plan().Models {
		largest = max(largest, m.WeightBytes)
	}
	e.Close()
	s := serve(t, engine.Options{Models: models, Device: device, WeightMemory: largest}, api.Options{KeepAlive: 20 * time.Millisecond})
	if n := s.residents(t); n != 1 {
		t.Fatalf("%d of three models are resident: the test wants room for one", n)
	}
	return s
}

func (s *service) residents(t testing.TB) (n int) {
	for _, m := range s.engine.Models() {
		if m.State == "resident" {
			n++
		}
	}
	return n
}

func (s *service) loads() (n int64) {
	for _, m := range s.engine.Stats().Models {
		n += m.Loads
	}
	return n
}

// TestModelsTakeTurns: room for one of three models. Nobody's answer is cut, nobody gets an error, nobody waits
// for ever, and the number of switches is bounded.
func TestModelsTakeTurns(t *testing.T) {
	needsTime(t)
	modelsTakeTurns(t, "cpu")
}

func modelsTakeTurns(t *testing.T, device string) {
	words := func(model string, tokens int) body {
		return complete(model, []int32{5, 6, 7}, body{"max_tokens": tokens, "ignore_eos": true})
	}
	whole := func(t *testing.T, s *service, b body) answer {
		t.Helper()
		r, err := s.ask(b)
		if err != nil || len(r.choices) != 1 || len(r.choices[0].ids) != b["max_tokens"] {
			t.Errorf("%v: %v, %v", b["model"], r.choices, err)
			return answer{}
		}
		return r.choices[0]
	}
	t.Run("a long answer is not cut", func(t *testing.T) {
		t.Parallel()
		s := turns(t, device)
		want := whole(t, s, words(tales, 900))
		var wait sync.WaitGroup
		wait.Go(func() {
			if got := whole(t, s, words(tales, 900).with(body{"stream": true})); !got.same(want) {
				t.Errorf("beside a request for another model: %v, alone %v", got, want)
			}
		})
		eventually(t, "it runs", func() bool { return s.engine.Stats().Models[0].Running == 1 })
		wait.Go(func() { whole(t, s, words(bard, 5)) })
		wait.Wait()
		if got := whole(t, s, words(tales, 900)); !got.same(want) { // the same weights as before
			t.Errorf("after it was parked: %v, before %v", got, want)
		}
		s.rest(t)
	})
	t.Run("two at once, cold", func(t *testing.T) {
		t.Parallel()
		s := turns(t, device)
		for _, m := range s.models(t) {
			var moved struct{ State string }
			s.call(t, "/v1/models/unload", body{"model": m}, &moved)
			if moved.State != "parked" {
				t.Errorf("%s is %s", m, moved.State)
			}
		}
		if n := s.residents(t); n != 0 {
			t.Errorf("%d residents", n)
		}
		var wait sync.WaitGroup
		for i, m := range []string{bard, third} {
			wait.Go(func() {
				resp, err := s.post(words(m, 5).with(body{"stream": i == 0}))
				if err != nil {
					t.Error(err)
					return
				}
				r, err := read(resp, i == 0)
				if err != nil || len(r.choices) != 1 || len(r.choices[0].ids) != 5 {
					t.Errorf("%s: %v, %v", m, r.choices, err)
				}
			})
		}
		wait.Wait()
		if n := s.loads(); n != 2 {
			t.Errorf("%d loads for two models that were asked for once", n)
		}
		s.rest(t)
	})
	t.Run("two in turns without pause", func(t *testing.T) {
		t.Parallel()
		s := turns(t, device)
		last := time.Duration(many(0, 5, 120)) * time.Second
		end := time.Now().Add(last)
		var wait sync.WaitGroup
		var answers [2]atomic.Int64
		for i, m := range []string{tales, bard} {
			for range 2 {
				wait.Go(func() {
					for time.Now().Before(end) {
						whole(t, s, words(m, 20))
						answers[i].Add(1)
					}
				})
			}
		}
		wait.Wait()
		// a model that works stays for two seconds
		if n, most := s.loads(), int64(last/(2*time.Second))+4; n > most || answers[0].Load() == 0 || answers[1].Load() == 0 {
			t.Errorf("%d loads of at most %d, %d and %d answers", n, most, answers[0].Load(), answers[1].Load())
		}
		s.rest(t)
	})
	t.Run("endpoints and metrics", func(t *testing.T) {
		t.Parallel()
		s := turns(t, device)
		for _, m := range []string{bard, third, tales} {
			var moved struct {
				Model, State string
				Seconds      float64
			}
			s.call(t, "/v1/models/load", body{"model": m}, &moved)
			if moved.State != "resident" || moved.Model != m || moved.Seconds <= 0 {
				t.Errorf("%+v", moved)
			}
			if n := s.residents(t); n != 1 {
				t.Errorf("%d residents", n)
			}
		}
		_, list := s.get(t, "/v1/models")
		if n := strings.Count(list, `"state":"parked"`); n != 2 {
			t.Errorf("%d parked in %s", n, list)
		}
		m := s.metrics(t)
		for model, resident := range map[string]float64{tales: 1, bard: 0, third: 0} {
			if m.of(t, "openinfer_model_resident", model) != resident || m.of(t, "openinfer_model_loads_total", model) != 1 || m.of(t, "openinfer_model_load_seconds_total", model) <= 0 {
				t.Errorf("%s: resident %v, loads %v in %v s", model, m.of(t, "openinfer_model_resident", model),
					m.of(t, "openinfer_model_loads_total", model), m.of(t, "openinfer_model_load_seconds_total", model))
			}
		}
		s.refused(t, "/v1/models/load", body{"model": "nobody"}, 404)
	})
}
