package e2e

import (
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

// turns serves the machine's three models on a device with room for the weights of one.
func (m machine) turns(t *testing.T) *service {
	t.Helper()
	s := m.serve(t, m.oneAtATime(t, engine.Options{Models: m.models}), api.Options{KeepAlive: 20 * time.Millisecond})
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

// TestB38LoadingAnother: room for one of three models. Nobody's answer is cut, nobody gets an error, nobody waits for
// ever, and the number of switches is bounded.
func TestB38LoadingAnother(t *testing.T) {
	t.Run("a long answer is not cut", func(t *testing.T) {
		machines(t, func(t *testing.T, m machine) {
			s := m.turns(t)
			long := says(m.long, []int32{301, 302, 303}, 2500, true)
			alone := time.Now()
			want := s.whole(t, long)
			took := time.Since(alone)
			var wait sync.WaitGroup
			var ended, answered time.Duration
			begun := time.Now()
			wait.Go(func() {
				if got := s.whole(t, long); !got.same(want) {
					t.Errorf("beside a request for another model: %v, alone %v", got, want)
				}
				ended = time.Since(begun)
			})
			eventually(t, "it runs", func() bool { return s.of(t, m.long).Running == 1 })
			if m.virtual {
				time.Sleep(time.Second)
			}
			wait.Go(func() {
				s.whole(t, says(m.other, []int32{301}, 5, false))
				answered = time.Since(begun)
			})
			wait.Wait()
			if m.virtual && answered < ended {
				t.Errorf("the other answer was there after %v, the long one after %v: there is room for one of them", answered, ended)
			}
			m.within(t, "the long answer", ended, took+time.Millisecond)
			m.within(t, "the other model's, after it,", answered-ended, 500*time.Millisecond) // a load of 1 GB and five tokens
			if got := s.whole(t, long); !got.same(want) {                                     // the same weights as before
				t.Errorf("after it was parked: %v, before %v", got, want)
			}
			s.verified(t)
		})
	})
	t.Run("cold, one shortly after the other", func(t *testing.T) {
		machines(t, func(t *testing.T, m machine) {
			s := m.turns(t)
			for _, name := range s.models(t) {
				var moved struct{ State string }
				s.call(t, "/v1/models/unload", body{"model": name}, &moved)
				if moved.State != "parked" {
					t.Errorf("%s is %s", name, moved.State)
				}
			}
			if n := s.residents(t); n != 0 {
				t.Errorf("%d residents", n)
			}
			var wait sync.WaitGroup
			wait.Go(func() { s.whole(t, says(m.long, []int32{301}, 20, true)) })
			eventually(t, "it is asked for", func() bool { return s.of(t, m.long).Waiting+s.of(t, m.long).Running > 0 || s.loads() > 0 })
			if m.virtual {
				time.Sleep(100 * time.Millisecond)
			}
			wait.Go(func() { s.whole(t, says(m.other, []int32{301}, 20, false)) })
			wait.Wait()
			if n := s.loads(); n != 2 {
				t.Errorf("%d loads for two models that were asked for once", n)
			}
			s.verified(t)
		})
	})
	t.Run("two at the same instant", func(t *testing.T) {
		machines(t, func(t *testing.T, m machine) {
			s := m.turns(t)
			s.whole(t, says(m.long, []int32{301}, 5, false)) // and is idle
			patient := &service{engine: s.engine, url: s.url, client: &http.Client{Transport: s.client.Transport, Timeout: 25 * time.Second}}
			begun := time.Now()
			var wait sync.WaitGroup
			for i, name := range []string{m.other, m.spare} {
				wait.Go(func() { patient.whole(t, says(name, []int32{301}, 5, i == 0)) })
			}
			wait.Wait()
			m.within(t, "both", time.Since(begun), 5*time.Second)
			if n := s.loads(); n != 2 {
				t.Errorf("%d loads for two models that were asked for once", n)
			}
			s.verified(t)
		})
	})
	for name, clients := range map[string]int{"one client in turns": 0, "two clients each, without pause": 2} {
		t.Run(name, func(t *testing.T) {
			machines(t, func(t *testing.T, m machine) {
				if m.virtual {
					m.device = "sim:l4" // fewer steps a second
				}
				s := m.turns(t)
				last := time.Duration(many(1, 3, 120)) * time.Second
				if m.virtual {
					last = time.Duration(many(20, 120, 1200)) * time.Second
				}
				begun := time.Now()
				var wait sync.WaitGroup
				var answers [2]atomic.Int64
				both := []string{m.long, m.other}
				longest := time.Duration(0)
				ask := func(i int, r *rand.Rand) {
					sent := time.Now()
					s.whole(t, says(both[i], fewTokens(r, 5), 40, r.IntN(2) == 0))
					answers[i].Add(1)
					if clients == 0 {
						longest = max(longest, time.Since(sent))
					}
				}
				if clients == 0 {
					wait.Go(func() {
						r := rand.New(rand.NewPCG(13, 1))
						for i := 0; time.Since(begun) < last; i++ {
							ask(i%2, r)
						}
					})
				}
				for i := range both {
					for c := range clients {
						wait.Go(func() {
							for r := rand.New(rand.NewPCG(13, uint64(2*c+i))); time.Since(begun) < last; {
								ask(i, r)
							}
						})
					}
				}
				wait.Wait()
				// a model stays for two seconds
				n, most := s.loads(), int64(time.Since(begun)/(2*time.Second))+3
				if n > most || m.virtual && n < most/4 || answers[0].Load() == 0 || answers[1].Load() == 0 {
					t.Errorf("%d loads of at most %d, %d and %d answers", n, most, answers[0].Load(), answers[1].Load())
				}
				if few, many := min(answers[0].Load(), answers[1].Load()), max(answers[0].Load(), answers[1].Load()); m.virtual && few < many/4 {
					t.Errorf("%d answers of one model and %d of the other", answers[0].Load(), answers[1].Load())
				}
				m.within(t, "an answer to a lone client", longest, 5*time.Second)
				t.Logf("%d loads of at most %d in %v, %d and %d answers", n, most, last, answers[0].Load(), answers[1].Load())
				s.verified(t)
			})
		})
	}
}

// TestLoadEndpoints: models come and go by name, and list and metrics say where they are.
func TestLoadEndpoints(t *testing.T) {
	machines(t, func(t *testing.T, m machine) {
		s := m.turns(t)
		for _, name := range []string{m.spare, m.other, m.long} {
			var moved struct {
				Model, State string
				Seconds      float64
			}
			s.call(t, "/v1/models/load", body{"model": name}, &moved)
			if moved.State != "resident" || moved.Model != name || moved.Seconds <= 0 {
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
		got := s.metrics(t)
		for model, resident := range map[string]float64{m.long: 1, m.other: 0, m.spare: 0} {
			if got.of(t, "openinfer_model_resident", model) != resident || got.of(t, "openinfer_model_loads_total", model) != 1 || got.of(t, "openinfer_model_load_seconds_total", model) <= 0 {
				t.Errorf("%s: resident %v, loads %v in %v s", model, got.of(t, "openinfer_model_resident", model),
					got.of(t, "openinfer_model_loads_total", model), got.of(t, "openinfer_model_load_seconds_total", model))
			}
		}
		s.refused(t, "/v1/models/load", body{"model": "nobody"}, 404)
	})
}
