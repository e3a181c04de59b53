package e2e

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/openinfer-go/openinfer/api"
	"github.com/openinfer-go/openinfer/engine"
)

// pool serves the first two models with a pool that holds about so many tokens of the first one.
func (m machine) pool(t *testing.T, tokens int, o engine.Options) *service {
	t.Helper()
	o.Models, o.Device = m.first(2), m.device
	e, err := engine.Open(t.Context(), quiet(o))
	if err != nil {
		t.Fatal(err)
	}
	info, err := e.Model(m.long)
	if err != nil {
		t.Fatal(err)
	}
	o.KVMemory = e.Plan().KVBytes / int64(info.CacheTokens) * int64(tokens)
	e.Close()
	return m.serve(t, o, api.Options{})
}

// limit is how many tokens a model's sequence may have.
func (s *service) limit(t testing.TB, model string) int {
	t.Helper()
	info, err := s.engine.Model(model)
	if err != nil {
		t.Fatal(err)
	}
	return info.MaxModelLen
}

func preemptions(t testing.TB, s *service, m machine) int64 {
	t.Helper()
	return s.of(t, m.long).Preemptions + s.of(t, m.other).Preemptions
}

// TestB39PoolExhausted: what can never fit is refused at once; small requests pass a big one, which runs as well;
// two models that fill the pool wait or are preempted, and all are answered.
func TestB39PoolExhausted(t *testing.T) {
	t.Run("larger than the pool", func(t *testing.T) {
		machines(t, func(t *testing.T, m machine) {
			r := rand.New(rand.NewPCG(14, 1))
			s := m.pool(t, 1000, engine.Options{})
			for _, model := range []string{m.long, m.other} {
				limit := s.limit(t, model)
				if limit >= 2000 {
					t.Fatalf("%s: the pool is too large for this test: %d", model, limit)
				}
				leave := s.hold(t, says(model, []int32{301}, limit-1, true))
				begun := time.Now()
				for _, b := range []body{
					says(model, fewTokens(r, limit+1), 1, false), says(model, fewTokens(r, limit+1), 1, true), says(model, fewTokens(r, 10*limit), 10, false),
					says(model, []int32{301}, limit, false), says(model, fewTokens(r, limit-5), 6, true), chat(model, strings.Repeat("word ", 4*limit), nil),
				} {
					if message, _ := s.refused(t, b.path(), b, 400); !strings.Contains(message, fmt.Sprint(limit)) {
						t.Errorf("%s: no %d in %q", model, limit, message)
					}
				}
				m.within(t, "six refusals while a step runs", time.Since(begun), 0)
				s.whole(t, says(model, fewTokens(r, 5), 3, false)) // beside the one that runs
				leave()
				s.whole(t, says(model, fewTokens(r, limit-5), 5, false)) // and what just fits
			}
			s.verified(t)
		})
	})

	t.Run("big before small", func(t *testing.T) {
		machines(t, func(t *testing.T, m machine) {
			r := rand.New(rand.NewPCG(14, 2))
			s := m.pool(t, 4000, engine.Options{})
			limit := s.limit(t, m.long)
			leave := s.hold(t, says(m.long, fewTokens(r, limit/2), limit/3, true))
			var big, small sync.WaitGroup
			var bigDone atomic.Bool
			big.Go(func() {
				s.whole(t, says(m.long, fewTokens(r, limit*3/4), 20, false))
				bigDone.Store(true)
			})
			eventually(t, "it is refused memory", func() bool { return s.of(t, m.long).Waiting == 1 })
			begun := time.Now()
			for i := range 10 {
				b := says([]string{m.long, m.other}[i%2], fewTokens(r, 20), 5, i%2 == 0)
				small.Go(func() { s.whole(t, b) })
			}
			small.Wait()
			m.within(t, "ten small requests behind a big one", time.Since(begun), 250*time.Millisecond)
			if bigDone.Load() {
				t.Error("the small ones came after the big one")
			}
			if st := s.of(t, m.long); st.Running != 1 || st.Waiting != 1 {
				t.Errorf("%d run and %d wait, want the one that holds the memory and the big one", st.Running, st.Waiting)
			}
			// However many small ones come, the big one gets its turn.
			var rounds atomic.Int64
			for c := range 4 {
				small.Go(func() {
					for r := rand.New(rand.NewPCG(14, uint64(c))); !bigDone.Load() && rounds.Add(1) < 4000; {
						s.whole(t, says(m.long, fewTokens(r, 100), 20, false))
					}
				})
			}
			big.Wait()
			small.Wait()
			if !bigDone.Load() || rounds.Load() >= 4000 {
				t.Errorf("the big one was passed by %d small ones", rounds.Load())
			}
			leave()
			s.verified(t)
		})
	})

	t.Run("full for ten minutes", func(t *testing.T) {
		machines(t, func(t *testing.T, m machine) {
			last := time.Duration(many(1, 2, 600)) * time.Second
			if m.virtual { // larger models make fewer steps in that time; one has a recurrent state
				m = m.with("sim:l4", "phi-4", "qwen3.5-9b")
				last = time.Duration(many(1, 10, 60)) * time.Minute
			}
			s := m.pool(t, 2000, engine.Options{})
			both := []string{m.long, m.other}
			begun := time.Now()
			var wait sync.WaitGroup
			var answers [2]atomic.Int64
			for i, model := range both {
				limit := min(s.limit(t, model), 1500)
				for c := range 4 {
					wait.Go(func() {
						for r := rand.New(rand.NewPCG(14, uint64(10+2*c+i))); time.Since(begun) < last; {
							prompt := 1 + r.IntN(limit/4)
							s.whole(t, says(model, fewTokens(r, prompt), limit-prompt-r.IntN(limit/4), r.IntN(2) == 0))
							answers[i].Add(1)
						}
					})
				}
			}
			full, samples := 0, 0
			var made [2]int64
			for time.Since(begun) < last {
				time.Sleep(last / 20)
				if st := s.engine.Stats(); st.PagesFree <= st.PagesTotal/10 {
					full++
				}
				samples++
				if samples%5 != 0 { // the pool may be another model's for an answer
					continue
				}
				for i, model := range both {
					now := s.of(t, model).GeneratedTokens
					if now == made[i] && m.virtual {
						t.Errorf("%s made nothing for %v", model, last/4)
					}
					made[i] = now
				}
			}
			wait.Wait()
			if full < samples/2 {
				t.Errorf("the pool was full at %d of %d looks: it is too large for this test", full, samples)
			}
			if n := preemptions(t, s, m); n == 0 || answers[0].Load() == 0 || answers[1].Load() == 0 {
				t.Errorf("%d preemptions, %d and %d answers", n, answers[0].Load(), answers[1].Load())
			}
			t.Logf("%d preemptions, %d and %d answers in %v, full at %d of %d looks", preemptions(t, s, m), answers[0].Load(), answers[1].Load(), last, full, samples)
			s.verified(t)
		})
	})

	t.Run("two a second", func(t *testing.T) {
		machines(t, func(t *testing.T, m machine) {
			const in, out = 2048, 128
			n, every := many(3, 6, 500), time.Duration(0)
			if m.virtual {
				n, every, m.device = many(50, 500, 2000), 500*time.Millisecond, "sim:l4"
			}
			s := m.pool(t, 5000, engine.Options{MaxWaiting: n})
			models := []string{m.long}
			if s.limit(t, m.other) >= in+out {
				models = append(models, m.other)
			}
			var wait sync.WaitGroup
			var slowest atomic.Int64
			r := rand.New(rand.NewPCG(14, 3))
			for i := range n {
				b := says(models[i%len(models)], fewTokens(r, in), out, i%3 == 0)
				wait.Go(func() {
					sent := time.Now()
					s.whole(t, b)
					slowest.Store(max(slowest.Load(), int64(time.Since(sent))))
				})
				time.Sleep(every)
			}
			wait.Wait()
			m.within(t, "an answer", time.Duration(slowest.Load()), 5*time.Second)
			t.Logf("the slowest of %d took %v; %d preemptions", n, time.Duration(slowest.Load()).Round(time.Millisecond), preemptions(t, s, m))
			s.verified(t)
		})
	})
}
