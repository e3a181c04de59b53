package e2e

import (
	"bufio"
	"context"
	"io"
	"maps"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/openinfer-go/openinfer/api"
	"github.com/openinfer-go/openinfer/engine"
)

// Clients that go away.

// hold begins an answer and reads it until the function is called, which says whether it was still going on.
func (s *service) hold(t testing.TB, b body) (leave func() bool) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	resp, err := s.open(ctx, b.with(body{"stream": true}))
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		ended <- err
	}()
	eventually(t, "it runs", func() bool { return s.of(t, b["model"].(string)).Running > 0 })
	return func() bool {
		cancel()
		return <-ended != nil
	}
}

// TestB36ClientGone: a client goes away while its request waits, in the middle of a long prompt, in the answer and
// while the model loads; streamed and not. The work stops within a step, what waited never runs, and every block
// comes back.
func TestB36ClientGone(t *testing.T) {
	drops := many(6, 50, 200)
	t.Run("queued", func(t *testing.T) {
		machines(t, func(t *testing.T, m machine) {
			r := rand.New(rand.NewPCG(11, 1))
			s := m.serve(t, engine.Options{Models: m.first(2), MaxNumSeqs: 1}, api.Options{})
			leave := s.hold(t, says(m.long, []int32{301}, 30000, true))
			waits := func(n int) func() bool { return func() bool { return s.of(t, m.long).Waiting == n } }
			for i := range drops {
				s.drop(t, says(m.long, fewTokens(r, 100), 800, i%2 == 0), 0, func() { eventually(t, "it waits", waits(1)) })
				eventually(t, "it is forgotten", waits(0))
			}
			if !leave() {
				t.Error("what they waited for had ended: they may have run")
			}
			if ran := s.verified(t).of(t, "vllm:prompt_tokens_total", m.long); ran != 1 { // the holder's is one token
				t.Errorf("%v prompt tokens ran, want the holder's", ran)
			}
			replies, want := map[string]int{}, map[string]int{"499": drops + 1}
			for begun := time.Now(); !maps.Equal(replies, want) && time.Since(begun) < 10*time.Second; time.Sleep(2 * time.Millisecond) {
				replies = s.replies(t)
			}
			if !maps.Equal(replies, want) {
				t.Errorf("%v replies are counted, want %v", replies, want)
			}
		})
	})

	t.Run("prefill", func(t *testing.T) {
		machines(t, func(t *testing.T, m machine) {
			const prompt, chunk = 20000, 256
			r := rand.New(rand.NewPCG(11, 2))
			s := m.serve(t, engine.Options{Models: m.first(2), MaxBatchedTokens: chunk}, api.Options{})
			steps := func() int64 { return s.of(t, m.long).Steps }
			for i := range drops {
				before, seen := steps(), int64(0)
				s.drop(t, says(m.long, fewTokens(r, prompt), 1, i%2 == 0), 0, func() {
					eventually(t, "it runs", func() bool { return steps() > before+int64(i%5) })
					seen = steps()
				})
				eventually(t, "it is gone", func() bool { return s.of(t, m.long).LiveBlocks == 0 })
				limit := int64(prompt / chunk / 2) // a machine that does something else is not to blame
				if m.virtual {
					limit = 2
				}
				if n := steps() - seen; n > limit {
					t.Errorf("drop %d: %d steps were made for nobody", i, n)
				}
			}
			if n := s.of(t, m.long).GeneratedTokens; n != 0 {
				t.Errorf("%d prompts were computed to their end", n)
			}
			s.verified(t)
			s.whole(t, says(m.long, fewTokens(r, 100), 5, false))
		})
	})

	t.Run("answer", func(t *testing.T) {
		machines(t, func(t *testing.T, m machine) {
			const tokens = 20000
			r := rand.New(rand.NewPCG(11, 3))
			s := m.serve(t, engine.Options{Models: m.first(2)}, api.Options{})
			made := func() int64 { return s.of(t, m.long).GeneratedTokens }
			aborted := func() int64 { return s.of(t, m.long).Finished[engine.FinishCancelled] }
			for i := range drops {
				n := int64(1 + i%2)
				before, stopped := made(), aborted()
				b := says(m.long, fewTokens(r, 20), tokens, i%4 < 2).with(body{"n": n, "temperature": 1, "seed": i})
				s.drop(t, b, 5, func() { eventually(t, "it answers", func() bool { return made() >= before+5*n }) })
				seen := made()
				s.rest(t)
				limit := n * tokens / 4
				if m.virtual {
					limit = 2 * n
				}
				if after := made() - seen; after > limit {
					t.Errorf("drop %d: %v tokens were made for nobody", i, after)
				}
				if got := aborted() - stopped; got != n {
					t.Errorf("drop %d: %v of %d sequences are counted as aborted", i, got, n)
				}
			}
			s.verified(t)
			s.whole(t, says(m.long, fewTokens(r, 100), 5, false))
		})
	})

	t.Run("start-up", func(t *testing.T) {
		machines(t, func(t *testing.T, m machine) {
			s := m.open(t, engine.Options{Models: m.first(2)}, api.Options{KeepAlive: 5 * time.Millisecond})
			waits := func(n int) func() bool { return func() bool { return s.of(t, m.other).Waiting == n } }
			for i := range drops {
				b := says(m.other, "x", 3, i%2 == 0)
				if i%2 == 0 { // a stream has its headers, and comments keep it alive
					ctx, cancel := context.WithCancel(t.Context())
					resp, err := s.open(ctx, b)
					if err != nil {
						t.Fatal(err)
					}
					if line, err := bufio.NewReader(resp.Body).ReadString('\n'); err != nil || line[0] != ':' {
						t.Errorf("while loading: %q, %v", line, err)
					}
					cancel()
					resp.Body.Close()
				} else {
					s.drop(t, b, 0, func() { eventually(t, "it waits", waits(1)) })
				}
				eventually(t, "it is forgotten", waits(0))
			}
			var wait sync.WaitGroup
			for i := range 4 { // and who stays is answered
				wait.Go(func() { s.whole(t, says(m.other, "x", 3, i%2 == 0)) })
			}
			eventually(t, "four wait", waits(4))
			if err := s.engine.Load(t.Context()); err != nil {
				t.Fatal(err)
			}
			wait.Wait()
			if n := s.verified(t).of(t, "vllm:generation_tokens_total", m.other); n != 4*3 {
				t.Errorf("%v tokens were made for four that stayed", n)
			}
		})
	})

	t.Run("parked", func(t *testing.T) {
		machines(t, func(t *testing.T, m machine) {
			r := rand.New(rand.NewPCG(11, 4))
			s := m.serve(t, m.oneAtATime(t, engine.Options{Models: m.first(2)}), api.Options{})
			loading := 0
			for i := range drops {
				for _, name := range []string{m.long, m.other} {
					s.call(t, "/v1/models/unload", body{"model": name}, &struct{}{})
				}
				model := []string{m.long, m.other}[i/2%2]
				s.drop(t, says(model, fewTokens(r, 10), 900, i%2 == 0), 0, func() {
					eventually(t, "it loads", func() bool { return s.stateOf(t, model) != "parked" })
					if s.stateOf(t, model) == "loading" {
						loading++
					}
				})
				s.rest(t)
			}
			if made := s.of(t, m.long).GeneratedTokens + s.of(t, m.other).GeneratedTokens; m.virtual && (loading != drops || made != 0) {
				t.Errorf("%d of %d were dropped while their model was loading, and %d tokens were made for them", loading, drops, made)
			}
			s.verified(t)
			for _, model := range []string{m.long, m.other} {
				s.whole(t, says(model, fewTokens(r, 10), 5, false))
			}
		})
	})
}

// TestB37CancelHurtsNobody: answers beside requests of the same and another model that are cancelled, wherever they
// are by then, are those they get alone; both models answer afterwards.
func TestB37CancelHurtsNobody(t *testing.T) {
	machines(t, func(t *testing.T, m machine) {
		r := rand.New(rand.NewPCG(12, 1))
		s := m.serve(t, engine.Options{Models: m.first(2), MaxNumSeqs: 8, MaxBatchedTokens: 128}, api.Options{})
		both := []string{m.long, m.other}
		b := func(model string) body { return says(model, "Tell me a story", 200, false) }
		want := map[string]answer{}
		for _, model := range both {
			want[model] = s.whole(t, b(model))
		}
		var wait sync.WaitGroup
		for i := range many(8, 50, 200) {
			model := both[i%2]
			doomed := says(model, fewTokens(r, 1+i*17%700), 300, true).with(body{"seed": i, "temperature": 1})
			gone := func() {}
			if i%3 == 0 { // in the queue or in its prompt, else in its answer
				doomed = says(model, fewTokens(r, 700), 300, i%2 == 0)
				steps := s.of(t, model).Steps
				gone = func() {
					eventually(t, "steps are made", func() bool { return s.of(t, model).Steps > steps+int64(i%4) })
				}
			}
			wait.Go(func() { s.dropped(t, doomed, i%3*(1+i%7), gone) })
			if i%3 == 1 {
				wait.Go(func() {
					if got := s.whole(t, b(model).with(body{"stream": i%2 == 0})); !got.same(want[model]) {
						t.Errorf("%s beside others that are cancelled: %v, alone %v", model, got, want[model])
					}
				})
			}
		}
		wait.Wait()
		if n := s.of(t, m.long).Finished[engine.FinishCancelled] + s.of(t, m.other).Finished[engine.FinishCancelled]; n == 0 {
			t.Error("nothing was cancelled")
		}
		s.verified(t)
		for _, model := range both {
			if got := s.whole(t, b(model)); !got.same(want[model]) {
				t.Errorf("%s afterwards: %v, want %v", model, got, want[model])
			}
		}
	})
}
