package e2e

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/openinfer-go/openinfer/api"
	"github.com/openinfer-go/openinfer/engine"
)

// TestB34HybridPrefix: what a model with recurrent state answers to a prompt that it knows, whole or as a beginning,
// is what it answers to one that it does not know, token for token; cached_tokens is what was not computed.
func TestB34HybridPrefix(t *testing.T) {
	lengths := []int{600, 63, 64, 65, 1600, 1601}
	if testing.Short() {
		lengths = []int{600, 63, 64, 65}
	}
	show := func(t *testing.T, m machine, o engine.Options) {
		o.Models = m.models
		for _, chunk := range []int{64, 0} {
			o.MaxBatchedTokens = chunk
			s := m.serve(t, o, api.Options{})
			step := 512
			if m.virtual {
				step = 2048
			}
			if chunk > 0 {
				step = chunk
			}
			info, err := s.engine.Model(m.long)
			if err != nil {
				t.Fatal(err)
			}
			more := s.tokens(t, body{"model": m.long, "prompt": " Now answer in one word.", "add_special_tokens": false})
			r := rand.New(rand.NewPCG(18, uint64(chunk)))
			const tokens = 12
			for _, n := range lengths {
				prompt := fewTokens(r, n)
				ask := func(name string, ids []int32, salt string, stream bool) (answer, int) {
					t.Helper()
					before := s.of(t, m.long).Steps
					b := says(m.long, ids, tokens, stream).with(body{"cache_salt": salt})
					if stream {
						b["stream_options"] = body{"include_usage": true}
					}
					got := s.must(t, b)
					cached := got.usage.cached(t)
					// Alone, a request takes a step for each so many tokens of its prompt that have to be computed, the last of
					// which yields a token, and one for each other token.
					s.rest(t)
					if steps := int(s.of(t, m.long).Steps - before); steps != (len(ids)-cached+step-1)/step+tokens-1 {
						t.Errorf("%s of %d tokens: cached_tokens is %d, and %d steps of at most %d tokens were made", name, len(ids), cached, steps, step)
					}
					return got.choices[0], cached
				}
				with := slices.Concat(prompt, more)
				cold, none := ask("cold", prompt, "a", false)
				longCold, noneOfIt := ask("cold, with a sentence more", with, "b", true)
				if none != 0 || noneOfIt != 0 {
					t.Errorf("%d tokens: %d and %d cached of what was never there", n, none, noneOfIt)
				}
				for i, c := range []struct {
					ids  []int32
					want answer
				}{{prompt, cold}, {with, longCold}, {prompt, cold}, {with, longCold}} {
					warm, cached := ask("warm", c.ids, "a", i%2 == 0)
					if !warm.same(c.want) {
						t.Errorf("%d tokens, time %d: warm %v, cold %v", len(c.ids), i+2, warm, c.want)
					}
					// The last token is computed in any case, and what is found ends with a block.
					if block := info.BlockTokens; cached%block != 0 || cached >= len(c.ids) || cached == 0 && n > 2*block || n > 1000 && cached < n-4*block {
						t.Errorf("%d tokens in blocks of %d, time %d: %d are cached", len(c.ids), block, i+2, cached)
					}
				}
			}
			s.verified(t)
		}
	}
	hybrid := func(t *testing.T) machine {
		return machine{device: "cpu", long: "hybrid", models: []engine.ModelSpec{{Name: "hybrid", Path: stretched(t, "models/qwen3_5", 4096)}}}
	}
	t.Run("cpu", func(t *testing.T) { show(t, hybrid(t), engine.Options{}) })
	t.Run("cpu, exact", func(t *testing.T) { show(t, hybrid(t), engine.Options{Exact: true}) })
	t.Run("sim", func(t *testing.T) {
		onCard(t, func(t *testing.T, m machine) {
			m = m.with("sim:rtx3090", "qwen3.5-9b", "")
			m.models = m.models[:1]
			show(t, m, engine.Options{})
		})
	})
}

// TestB35PrefixCacheChangesNothing: two models at a time, of every family, share a pool that is too small for both.
// Over five rounds of requests with common beginnings, with preemptions, each answer is the one without a prefix cache.
func TestB35PrefixCacheChangesNothing(t *testing.T) {
	needsTime(t)
	specs := families(t)
	off := false
	roomy := serve(t, engine.Options{Models: specs, Exact: true, KVMemory: 256 << 20, PrefixCache: &off}, api.Options{})
	r := rand.New(rand.NewPCG(19, 1))
	for i := 0; i < len(specs); i += 2 {
		pair := specs[i : i+2]
		var requests []body
		longest := [2]int{}
		for k, spec := range pair {
			var some []body
			some, longest[k] = alike(r, spec.Name, 12, roomy.limit(t, spec.Name))
			requests = append(requests, some...)
		}
		solo := alone(t, roomy, requests, nil)
		// How small a pool has to be for preemptions and how large for hits differs between families: sizes are tried, and
		// answers must be right with all of them.
		both := false
		for kv := int64(64 << 10); !both; kv += kv / 2 {
			if kv > 32<<20 {
				t.Fatalf("%s beside %s: there is no pool with which each finds beginnings and one is preempted", pair[0].Name, pair[1].Name)
			}
			e, err := engine.Open(t.Context(), quiet(engine.Options{Models: pair, Exact: true, KVMemory: kv, MaxBatchedTokens: 48}))
			if err != nil {
				continue
			}
			if m := e.Models(); m[0].MaxModelLen < longest[0] || m[1].MaxModelLen < longest[1] {
				e.Close()
				continue
			}
			s := start(e, api.Options{})
			for range 5 {
				order := r.Perm(len(requests))
				mixed, want := make([]body, len(order)), make([]answer, len(order))
				for at, from := range order {
					mixed[at], want[at] = requests[from], solo[from]
				}
				together(t, s, mixed, want, nil)
			}
			got := s.verified(t)
			found, preempted := [2]float64{}, 0.0
			for k, spec := range pair {
				found[k] = got.of(t, "vllm:prefix_cache_hits_total", spec.Name)
				preempted += got.of(t, "vllm:num_preemptions_total", spec.Name)
			}
			both = found[0] > 0 && found[1] > 0 && preempted > 0
			t.Logf("%s and %s, %d KiB: %v tokens found, %v preemptions", pair[0].Name, pair[1].Name, kv>>10, found, preempted)
			s.close()
		}
	}
}

// alike are n requests to a model, whose prompts begin alike, and how many tokens the longest has.
func alike(r *rand.Rand, model string, n, context int) (all []body, longest int) {
	ids := func(n int) []int32 {
		out := make([]int32, n)
		for i := range out {
			out[i] = int32(10 + r.IntN(80)) // the smallest vocabulary has 96
		}
		return out
	}
	shared := ids(min(160, context/2))
	for k := range n {
		prompt := slices.Concat(shared[:len(shared)/(1+k%2)], ids(1+k%12))
		b := says(model, prompt, 4+40*(k/2%2), k%2 == 0)
		if k%3 == 2 {
			b["temperature"], b["seed"] = 0.9, k
		}
		all, longest = append(all, b), max(longest, len(prompt)+b["max_tokens"].(int))
	}
	return all, longest
}

// TestB35CachedTokens: two models share a pool that is too small for both; what answers say was cached is what the
// counters say, and less than the prompt.
func TestB35CachedTokens(t *testing.T) {
	machines(t, func(t *testing.T, m machine) {
		s := m.pool(t, 3000, engine.Options{})
		both := []string{m.long, m.other}
		r := rand.New(rand.NewPCG(19, 2))
		begin := fewTokens(r, 200)
		told := map[string]int{}
		asked := map[string]answer{}
		var mu sync.Mutex
		for round := range 5 {
			var wait sync.WaitGroup
			for i := range 10 {
				model := both[i%2]
				ids := slices.Concat(begin[:20*i], fewTokens(rand.New(rand.NewPCG(19, uint64(i))), 5+7*i))
				b := says(model, ids, 5+i, false)
				wait.Go(func() {
					got, err := s.ask(b)
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					defer mu.Unlock()
					cached, key := got.usage.cached(t), fmt.Sprint(model, i)
					if told[model] += cached; cached < 0 || cached >= len(ids) {
						t.Errorf("%d of %d tokens are cached", cached, len(ids))
					}
					if was, ok := asked[key]; ok && !got.choices[0].same(was) {
						t.Errorf("round %d, request %d to %s: %v, before %v", round, i, model, got.choices[0], was)
					}
					asked[key] = got.choices[0]
				})
			}
			wait.Wait()
		}
		got := s.verified(t)
		for _, model := range both {
			if n := got.of(t, "vllm:prompt_tokens_cached_total", model); n != float64(told[model]) || n == 0 {
				t.Errorf("%s: %v cached tokens are counted, answers say %d", model, n, told[model])
			}
		}
	})
}
