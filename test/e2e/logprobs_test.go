package e2e

import (
	"cmp"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/openinfer-go/openinfer/api"
	"github.com/openinfer-go/openinfer/internal/testdata"
)

// reference is SmolLM2 as the reference library answers it.
type reference struct {
	Messages json.RawMessage
	Prompt   string
	IDs      []int32
	Greedy   []int32
	Margins  []float64
	Text     string
	logits   []float32 // of the prompt's last position, for the first few
}

func references(t testing.TB) []reference {
	t.Helper()
	dir := testdata.Shared(t, "golden/smollm2")
	raw, err := os.ReadFile(filepath.Join(dir, "golden.json"))
	if err != nil {
		t.Fatal(err)
	}
	var g struct{ Cases []reference }
	if err := json.Unmarshal(raw, &g); err != nil || len(g.Cases) == 0 {
		t.Fatalf("%d cases: %v", len(g.Cases), err)
	}
	tensors := testdata.Tensors(t, filepath.Join(dir, "last_logits.safetensors"))
	for i := range g.Cases {
		if l, ok := tensors[strconv.Itoa(i)]; ok {
			g.Cases[i].logits = l.Float32()
		}
	}
	return g.Cases
}

// logSoftmax is in float64.
func logSoftmax(logits []float32) []float64 {
	largest := math.Inf(-1)
	for _, v := range logits {
		largest = max(largest, float64(v))
	}
	sum := 0.0
	for _, v := range logits {
		sum += math.Exp(float64(v) - largest)
	}
	out := make([]float64, len(logits))
	for i, v := range logits {
		out[i] = float64(v) - largest - math.Log(sum)
	}
	return out
}

// TestReference: ids of prompts, greedy answers and log probabilities over HTTP are the
// reference's.
func TestReference(t *testing.T) {
	s := exact.get(t)
	cases := references(t)
	if !soak() {
		cases = cases[:many(1, 4, 0)]
	}
	for i, c := range cases {
		greedy := c.Greedy // up to where float32 itself decides by its order of summation
		for j, m := range c.Margins {
			if m < 0.01 {
				greedy = greedy[:j]
				break
			}
		}
		if !soak() && len(greedy) > 6 {
			greedy = greedy[:6]
		}
		b := body{"model": smol, "temperature": 0, "max_tokens": max(len(greedy), 1), "return_token_ids": true, "ignore_eos": true}
		var messages []body
		if json.Unmarshal(c.Messages, &messages) == nil && len(messages) > 0 {
			if ids := s.tokens(t, body{"model": smol, "messages": messages}); !slices.Equal(ids, c.IDs) {
				t.Errorf("case %d: ids %v, want %v", i, ids, c.IDs)
			}
			b["messages"] = messages
			b["logprobs"], b["top_logprobs"] = true, 5
		} else {
			if ids := s.tokens(t, body{"model": smol, "prompt": c.Prompt}); !slices.Equal(ids, c.IDs) {
				t.Errorf("case %d: ids %v, want %v", i, ids, c.IDs)
			}
			b["prompt"] = c.IDs
			b["logprobs"] = 5
		}
		a := s.one(t, b)
		if !slices.Equal(a.ids[:len(greedy)], greedy) || !slices.Equal(a.prompt, c.IDs) {
			t.Errorf("case %d: greedy %v, want %v; prompt %v, want %v", i, a.ids, greedy, a.prompt, c.IDs)
		}
		if c.logits == nil {
			continue
		}
		want := logSoftmax(c.logits)
		near := func(what string, got, want float64) {
			t.Helper()
			if math.Abs(got-want) > 1e-3 {
				t.Errorf("case %d: %s: log probability %v, want %v", i, what, got, want)
			}
		}
		// the five most likely ids, through prompt_logprobs keyed by id: teacher-forced
		first := c.Greedy[0]
		forced := s.one(t, complete(smol, append(slices.Clone(c.IDs), first), body{"max_tokens": 1, "prompt_logprobs": 5}))
		if len(forced.scores) != len(c.IDs)+1 || forced.scores[0] != nil {
			t.Fatalf("case %d: %d prompt_logprobs of %d tokens, the first is %v", i, len(forced.scores), len(c.IDs)+1, forced.scores[0])
		}
		order := make([]int, len(want))
		for id := range order {
			order[id] = id
		}
		slices.SortFunc(order, func(a, b int) int { return cmp.Compare(want[b], want[a]) })
		last := forced.scores[len(c.IDs)]
		for _, id := range order[:5] {
			got, ok := last[strconv.Itoa(id)]
			if !ok {
				t.Errorf("case %d: id %d is not among the five most likely: %v", i, id, last)
				continue
			}
			near("id "+strconv.Itoa(id), got.Logprob, want[id])
		}
		if b["messages"] != nil {
			e := a.logprobs.Content
			if len(e) != len(a.ids) || len(e[0].Top) != 5 {
				t.Fatalf("case %d: %d entries for %d tokens", i, len(e), len(a.ids))
			}
			near("the sampled token", e[0].Logprob, want[first])
			for k, id := range order[:5] {
				near("rank "+strconv.Itoa(k), e[0].Top[k].Logprob, want[id])
			}
		}
	}
}

// TestLogprobsAlign: lists, ids, offsets and echo speak of the same tokens, and a prompt's scores
// are what its tokens had when they were generated.
func TestLogprobsAlign(t *testing.T) {
	s := exact.get(t)
	for _, model := range []string{tales, bard, smol} {
		ids := s.tokens(t, body{"model": model, "prompt": "Once upon a time 🦊 there was é"})
		made := s.one(t, complete(model, ids, body{"max_tokens": 12, "logprobs": 3, "ignore_eos": true, "cache_salt": "align"}))
		lp := made.logprobs
		if n := len(made.ids); n != 12 || len(lp.Tokens) != n || len(lp.Logprobs) != n || len(lp.Top) != n || len(lp.TextOffset) != n {
			t.Fatalf("%s: lists of %d, %d, %d, %d, %d", model, len(made.ids), len(lp.Tokens), len(lp.Logprobs), len(lp.Top), len(lp.TextOffset))
		}
		whole := append(slices.Clone(ids), made.ids...)
		for _, salt := range []string{"align", "cold"} { // scores bypass the prefix cache
			echo := s.must(t, complete(model, whole, body{"max_tokens": 0, "echo": true, "logprobs": 3, "cache_salt": salt}))
			a := echo.choices[0]
			if echo.usage.cached(t) != 0 || echo.usage.Completion != 0 || echo.usage.Prompt != len(whole) {
				t.Errorf("%s: usage %+v", model, echo.usage)
			}
			e := a.logprobs
			if len(e.Logprobs) != len(whole) || e.Logprobs[0] != nil || e.Top[0] != nil || a.text != s.text(t, model, whole) || a.finish != "length" {
				t.Fatalf("%s: echo %v, %d scores of %d tokens", model, a, len(e.Logprobs), len(whole))
			}
			for i, want := range lp.Logprobs {
				if got := e.Logprobs[len(ids)+i]; got == nil || *got != *want || e.Tokens[len(ids)+i] != lp.Tokens[i] {
					t.Errorf("%s: token %d: echoed %q %v, generated %q %v", model, i, e.Tokens[len(ids)+i], got, lp.Tokens[i], *want)
				}
				if *want > 0 || len(lp.Top[i]) < 3 {
					t.Errorf("%s: token %d: log probability %v, %d most likely", model, i, *want, len(lp.Top[i]))
				}
			}
			for i, at := range e.TextOffset {
				if i > 0 && at < e.TextOffset[i-1] {
					t.Errorf("%s: offsets go back: %v", model, e.TextOffset)
				}
			}
		}
		// The same lists come in a stream, and bias, temperature and penalties change no score.
		streamed := s.must(t, complete(model, ids, body{"max_tokens": 12, "logprobs": 3, "ignore_eos": true, "stream": true}))
		if !streamed.choices[0].same(made) {
			t.Errorf("%s: streamed %v, want %v", model, streamed.choices[0], made)
		}
		var offsets []int
		var scores []float64
		for _, e := range streamed.events {
			var r reply
			if err := json.Unmarshal([]byte(e), &r); err != nil {
				t.Fatal(err)
			}
			for _, c := range *r.Choices {
				if c.Logprobs != nil {
					offsets = append(offsets, c.Logprobs.TextOffset...)
					for _, v := range c.Logprobs.Logprobs {
						scores = append(scores, *v)
					}
				}
			}
		}
		if !slices.Equal(offsets, lp.TextOffset) || len(scores) != 12 || scores[5] != *lp.Logprobs[5] {
			t.Errorf("%s: streamed offsets %v, want %v; scores %v", model, offsets, lp.TextOffset, scores)
		}
		bent := s.one(t, complete(model, ids, body{"max_tokens": 1, "logprobs": 3, "temperature": 2, "seed": 1,
			"logit_bias": body{strconv.Itoa(int(made.ids[0])): 100}, "presence_penalty": 1, "repetition_penalty": 1.5, "top_k": 1}))
		if bent.ids[0] != made.ids[0] || *bent.logprobs.Logprobs[0] != *lp.Logprobs[0] {
			t.Errorf("%s: with bias, temperature and penalties %v %v, without %v %v", model, bent.ids, *bent.logprobs.Logprobs[0], made.ids[0], *lp.Logprobs[0])
		}
	}
}

// TestCachedTokens: what a request had from the prefix cache is whole blocks, never the last token,
// and only from requests of its own salt or key.
func TestCachedTokens(t *testing.T) {
	shared := fast.get(t)
	keyed := start(shared.engine, api.Options{Keys: []string{"one", "two"}})
	defer keyed.server.Close()
	for _, model := range []string{tales, smol} {
		for _, n := range []int{15, 16, 17, 33, 48} {
			if model == smol && n%16 != 1 && !soak() {
				continue
			}
			ids := make([]int32, n)
			for i := range ids {
				ids[i] = int32(100 + n*50 + i)
			}
			cached := func(more body) int {
				r := shared.must(t, complete(model, ids, body{"max_tokens": 1}.with(more)))
				if r.usage.Prompt != n {
					t.Errorf("%d prompt tokens, want %d", r.usage.Prompt, n)
				}
				return r.usage.cached(t)
			}
			want := (n - 1) / 16 * 16
			for _, c := range []struct {
				what string
				more body
				want int
			}{
				{"cold", nil, 0}, {"warm", nil, want}, {"warm stream", body{"stream": true, "stream_options": body{"include_usage": true}}, want},
				{"another salt", body{"cache_salt": "a"}, 0}, {"that salt again", body{"cache_salt": "a"}, want}, {"a third salt", body{"cache_salt": "b"}, 0},
				{"prompt scores", body{"prompt_logprobs": 1}, 0},
			} {
				if got := cached(c.more); got != c.want {
					t.Errorf("%s, %d tokens, %s: %d cached, want %d", model, n, c.what, got, c.want)
				}
			}
			for _, c := range []struct {
				key, salt string
				want      int
			}{{"one", "", 0}, {"two", "", 0}, {"one", "", want}, {"one", "a", 0}, {"two", "a", 0}, {"two", "a", want}} {
				b := complete(model, ids, body{"max_tokens": 1})
				if c.salt != "" {
					b["cache_salt"] = c.salt
				}
				if got := keyed.withKey(t, c.key, b).usage.cached(t); got != c.want {
					t.Errorf("%s, %d tokens, key %s, salt %q: %d cached, want %d", model, n, c.key, c.salt, got, c.want)
				}
			}
		}
	}
}
