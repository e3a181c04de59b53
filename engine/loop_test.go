package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"go.uber.org/goleak"

	"github.com/openinfer-go/openinfer/kernels"
)

// The clock of the regular expressions' time limit is the library's own and ends by itself.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/dlclark/regexp2/v2.runClock"))
}

// randomPrompts makes n prompts, some of which share a beginning.
func randomPrompts(r *rand.Rand, n, longest int) [][]int32 {
	prompts := make([][]int32, n)
	for i := range prompts {
		if i > 0 && r.IntN(2) == 0 {
			other := prompts[r.IntN(i)]
			prompts[i] = slices.Clone(other[:r.IntN(len(other)+1)])
		}
		for range 1 + r.IntN(longest) {
			prompts[i] = append(prompts[i], int32('a'+r.IntN(26)))
		}
	}
	return prompts
}

// Many concurrent streams over three models, in pools from roomy to one that preempts all the
// time, with and without prefix cache: every answer is what the model says on its own.
func TestConcurrentStreamsAnswerAsAlone(t *testing.T) {
	off := false
	for name, change := range map[string]func(*Options){
		"roomy":           nil,
		"no prefix cache": func(o *Options) { o.PrefixCache = &off },
		"chunks of 7":     func(o *Options) { o.MaxBatchedTokens = 7; o.MaxNumSeqs = 5 },
		"tiny pool":       func(o *Options) { tiny(o) },
		"tiny, no prefix": func(o *Options) { tiny(o); o.PrefixCache = &off },
	} {
		t.Run(name, func(t *testing.T) {
			e := openFake(t, change, nil)
			r := rand.New(rand.NewPCG(1, 2))
			longest := 150
			prompts := randomPrompts(r, 48, longest)
			var wg sync.WaitGroup
			for i, prompt := range prompts {
				if len(prompt) > 300 {
					prompt = prompt[:300]
				}
				n := 1 + r.IntN(100)
				ignore := r.IntN(2) == 0
				model := i % 3
				wg.Go(func() {
					req := Request{Model: fakeNames[model], Prompt: prompt, MaxTokens: n, IgnoreEOS: ignore}
					got := gather(t, e, req)[0]
					want := fakeAnswer(uint64(model+1), prompt, n, ignore)
					if !slices.Equal(got.tokens, want) {
						t.Errorf("stream %d, prompt of %d, %d tokens:\n got %v\nwant %v", i, len(prompt), n, got.tokens, want)
					}
					reason := FinishLength
					if want[len(want)-1] == fakeEnd && !ignore {
						reason = FinishStop
					}
					if got.final.Finish != reason {
						t.Errorf("stream %d: finish %v, want %v", i, got.final.Finish, reason)
					}
					if !utf8.ValidString(got.text) {
						t.Errorf("stream %d: %q is not UTF-8", i, got.text)
					}
				})
			}
			wg.Wait()
			idle(t, e)
			st := e.Stats()
			preempted := int64(0)
			for _, m := range st.Models {
				preempted += m.Preemptions
			}
			if strings.HasPrefix(name, "tiny") && preempted == 0 {
				t.Errorf("a tiny pool preempted nobody")
			}
		})
	}
}

// tiny leaves the pool a few times the longest sequence of the test.
func tiny(o *Options) {
	o.KVMemory = 1536 << 10
	for i := range o.Models {
		o.Models[i].MaxModelLen = 420
	}
}

// Two cache groups of one model, one with a sliding window that gives blocks back.
func TestSlidingWindowGroup(t *testing.T) {
	const window = 40
	e := openFake(t, func(o *Options) {
		o.MaxBatchedTokens = 30
		load := o.loadModel
		o.loadModel = func(d kernels.Device, m *model) error {
			err := load(d, m)
			m.impl.(*fakeModel).window = window
			return err
		}
	}, nil)
	prompts := randomPrompts(rand.New(rand.NewPCG(8, 9)), 12, 120)
	for range 2 {
		var wg sync.WaitGroup
		for i, prompt := range prompts {
			wg.Go(func() {
				tokens := slices.Clone(prompt)
				for range 90 {
					h := fakeHash(uint64(i%3+1), tokens)
					for p := max(0, len(tokens)-window); p < len(tokens); p++ {
						h = fold(h, tokens[p], p)
					}
					tokens = append(tokens, fakeNext(h))
				}
				a := gather(t, e, Request{Model: fakeNames[i%3], Prompt: prompt, MaxTokens: 90, IgnoreEOS: true})[0]
				if !slices.Equal(a.tokens, tokens[len(prompt):]) {
					t.Errorf("stream %d, prompt of %d:\n got %v\nwant %v", i, len(prompt), a.tokens, tokens[len(prompt):])
				}
			})
		}
		wg.Wait()
	}
	idle(t, e)
}

func TestPrefixCacheIsFoundAndTold(t *testing.T) {
	e := openFake(t, nil, nil)
	prompt := randomPrompts(rand.New(rand.NewPCG(3, 4)), 1, 1)[0]
	for len(prompt) < 100 {
		prompt = append(prompt, int32('a'+len(prompt)%7))
	}
	req := Request{Model: "a", Prompt: prompt, MaxTokens: 5}
	if a := gather(t, e, req)[0]; a.final.Usage.Cached != 0 {
		t.Errorf("cold: %d cached tokens", a.final.Usage.Cached)
	}
	if a := gather(t, e, req)[0]; a.final.Usage.Cached != 96 {
		t.Errorf("warm: %d cached tokens, want 96", a.final.Usage.Cached)
	}
	req.CacheSalt = "other"
	if a := gather(t, e, req)[0]; a.final.Usage.Cached != 0 {
		t.Errorf("other salt: %d cached tokens", a.final.Usage.Cached)
	}
	req.CacheSalt, req.Model = "", "b"
	if a := gather(t, e, req)[0]; a.final.Usage.Cached != 0 {
		t.Errorf("other model: %d cached tokens", a.final.Usage.Cached)
	}
	idle(t, e)
	if m := e.Stats().Models[0]; m.CachedBlocks == 0 || m.LiveUsage != 0 {
		t.Errorf("at rest: %d blocks cached, usage %v", m.CachedBlocks, m.LiveUsage)
	}
}

// The text of a sequence at every token limit and with every stop string is the one-shot decode,
// cut where it should be.
func TestTextIsTheOneShotDecode(t *testing.T) {
	e := openFake(t, nil, nil)
	prompt := []int32("text of this")
	whole := fakeAnswer(1, prompt, 200, true)
	decode := func(ids []int32) string { return oneShot(fakeTokens{}.Decode(ids, true)) }
	for n := 1; n <= 60; n++ {
		a := gather(t, e, Request{Model: "a", Prompt: prompt, MaxTokens: n, IgnoreEOS: true})[0]
		if want := decode(whole[:n]); a.text != want || a.final.Finish != FinishLength {
			t.Errorf("limit %d: %q, %v; want %q", n, a.text, a.final.Finish, want)
		}
	}
	text := decode(whole)
	for from := 0; from+3 < len(text); from += 5 {
		stop := text[from : from+3]
		if !utf8.ValidString(stop) {
			continue
		}
		for _, include := range []bool{false, true} {
			a := gather(t, e, Request{Model: "a", Prompt: prompt, MaxTokens: 200, IgnoreEOS: true, Stop: []string{"zzzzzz", stop}, IncludeStop: include})[0]
			want := text[:strings.Index(text, stop)]
			if include {
				want += stop
			}
			if a.text != want || a.final.Finish != FinishStop || a.final.StopReason != stop {
				t.Errorf("stop %q: %q, %v, %v; want %q", stop, a.text, a.final.Finish, a.final.StopReason, want)
			}
			if !slices.Equal(a.tokens, whole[:len(a.tokens)]) || len(a.tokens) == 200 {
				t.Errorf("stop %q did not end the sequence: %d tokens", stop, len(a.tokens))
			}
		}
	}
}

// oneShot decodes bytes to text; an unfinished character at the end is dropped.
func oneShot(s string) string {
	for cut := 1; cut < utf8.UTFMax && cut <= len(s); cut++ {
		if c := s[len(s)-cut]; utf8.RuneStart(c) {
			if c >= utf8.RuneSelf && !utf8.FullRuneInString(s[len(s)-cut:]) {
				s = s[:len(s)-cut]
			}
			break
		}
	}
	var b strings.Builder
	for _, r := range s {
		b.WriteRune(r)
	}
	return b.String()
}

func TestStopTokenAndMinTokens(t *testing.T) {
	e := openFake(t, nil, nil)
	prompt := []int32("some")
	whole := fakeAnswer(1, prompt, 100, true)
	id := whole[10]
	first := slices.Index(whole, id)
	a := gather(t, e, Request{Model: "a", Prompt: prompt, MaxTokens: 100, IgnoreEOS: true, StopTokenIDs: []int32{id}})[0]
	if len(a.tokens) != first+1 || a.final.StopReason != id || a.final.Finish != FinishStop {
		t.Errorf("stop token %d at %d: %d tokens, %v %v", id, first, len(a.tokens), a.final.Finish, a.final.StopReason)
	}
	if want := oneShot(fakeTokens{}.Decode(whole[:first], true)); a.text != want {
		t.Errorf("a stop token is in the text: %q, want %q", a.text, want)
	}
	for _, minTokens := range []int{1, 20, 80} {
		a = gather(t, e, Request{Model: "a", Prompt: prompt, MaxTokens: 100, MinTokens: minTokens, StopTokenIDs: []int32{id}, Stop: []string{"a", "e", " "}})[0]
		if len(a.tokens) < minTokens {
			t.Errorf("min_tokens %d: %d tokens", minTokens, len(a.tokens))
		}
	}
}

func TestSeedsAndN(t *testing.T) {
	e := openFake(t, nil, nil)
	seed := int64(7)
	req := Request{Model: "b", Prompt: []int32("seeded"), N: 4, MaxTokens: 40, IgnoreEOS: true,
		Sampling: SamplingParams{Temperature: 2, TopP: 1, Seed: &seed}}
	quiet := gather(t, e, req)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			other := req
			other.Sampling.Seed, other.Prompt = nil, []int32(fmt.Sprint("noise ", i))
			gather(t, e, other)
		})
	}
	busy := gather(t, e, req)
	wg.Wait()
	for i := range quiet {
		if !slices.Equal(quiet[i].tokens, busy[i].tokens) {
			t.Errorf("sequence %d of seed 7 differs beside others", i)
		}
		for j := range i {
			if slices.Equal(quiet[i].tokens, quiet[j].tokens) {
				t.Errorf("sequences %d and %d of one request are the same", i, j)
			}
		}
		for _, id := range quiet[i].tokens {
			if id < 0 || id >= fakeVocab {
				t.Errorf("id %d is outside the vocabulary", id)
			}
		}
	}
	req.Sampling.Seed = nil
	if a, b := gather(t, e, req), gather(t, e, req); slices.Equal(a[0].tokens, b[0].tokens) {
		t.Errorf("two requests without a seed gave the same answer")
	}
}

// The draw of token i is a function of the seed and of i, whatever else the sequence has been through.
func TestSamplingParamsOfAStep(t *testing.T) {
	seed := int64(9)
	m := &model{info: ModelInfo{EndTokens: []int32{fakeEnd}}}
	r := Request{N: 2, Prompt: []int32{1, 2}, MinTokens: 2, StopTokenIDs: []int32{5}, Sampling: SamplingParams{
		Temperature: 1, TopP: 1, RepetitionPenalty: 1, FrequencyPenalty: 1, Seed: &seed,
		LogitBias: map[int32]float32{9: 1, 3: -1},
	}}
	q, again := newRequest(r, m), newRequest(r, m)
	for n := range 4 {
		output := []int32{7, 8, 9, 10}[:n]
		p := q.seqs[1].sampling(output, n)
		if p.Index != uint64(n) || p.Seed != again.seqs[1].params.Seed || p.Seed == q.seqs[0].params.Seed {
			t.Errorf("token %d: index %d, seed %d", n, p.Index, p.Seed)
		}
		if !slices.Equal(p.Output, output) || !slices.Equal(p.Prompt, r.Prompt) {
			t.Errorf("token %d: penalties see %v and %v", n, p.Prompt, p.Output)
		}
		if banned := slices.Equal(p.Banned, []int32{5, fakeEnd}); banned != (n < 2) {
			t.Errorf("token %d: banned %v", n, p.Banned)
		}
		if len(p.Bias) != 2 || p.Bias[0].ID != 3 {
			t.Errorf("bias %v is not in order", p.Bias)
		}
	}
}

func TestLogprobs(t *testing.T) {
	e := openFake(t, nil, nil)
	top, none := 3, 0
	prompt := make([]int32, 200) // more rows of logits than a tile
	for i := range prompt {
		prompt[i] = int32('a' + i%26)
	}
	req := Request{Model: "a", Prompt: prompt, MaxTokens: 8, IgnoreEOS: true, Logprobs: &top, PromptLogprobs: &top, N: 2}
	gather(t, e, Request{Model: "a", Prompt: prompt, MaxTokens: 1}) // warm
	got := gather(t, e, req)
	a := got[0]
	if a.final.Usage.Cached != 0 {
		t.Errorf("prompt log probabilities came from the prefix cache: %d tokens", a.final.Usage.Cached)
	}
	if len(a.prompt) != len(prompt) || got[1].prompt != nil {
		t.Fatalf("%d prompt entries and %d, want %d and none", len(a.prompt), len(got[1].prompt), len(prompt))
	}
	for i, p := range a.prompt {
		if p.ID != prompt[i] || p.HasLogprob != (i > 0) {
			t.Errorf("prompt entry %d: %+v", i, p)
		}
		if i > 0 {
			if want := fakeNext(fakeHash(1, prompt[:i])); len(p.Top) < top || p.Top[0].ID != want {
				t.Errorf("prompt entry %d: most likely %+v, want %d", i, p.Top, want)
			}
			if (p.ID == p.Top[0].ID) != (p.Rank == 1) {
				t.Errorf("prompt entry %d: rank %d of %d, most likely %d", i, p.Rank, p.ID, p.Top[0].ID)
			}
		}
	}
	if want := fakeAnswer(1, prompt, 8, true); !slices.Equal(a.tokens, want) {
		t.Errorf("answer %v, want %v", a.tokens, want)
	}
	for i, tok := range a.all {
		if !tok.HasLogprob || tok.Logprob >= 0 || tok.Rank != 1 || len(tok.Top) != top || tok.Top[0].ID != tok.ID {
			t.Errorf("token %d: %+v", i, tok)
		}
	}
	for name, r := range map[string]Request{
		"one token of prompt": {Model: "a", Prompt: prompt[:1], MaxTokens: 1, PromptLogprobs: &top},
		"and three sequences": {Model: "a", Prompt: prompt[:1], MaxTokens: 3, PromptLogprobs: &none, N: 3},
	} {
		if p := gather(t, e, r)[0].prompt; len(p) != 1 || p[0].ID != prompt[0] || p[0].HasLogprob {
			t.Errorf("%s: prompt entries %+v, want one without a log probability", name, p)
		}
	}
	req.Logprobs, req.PromptLogprobs = &none, nil
	if tok := gather(t, e, req)[0].all[0]; !tok.HasLogprob || tok.Logprob >= 0 {
		t.Errorf("logprobs 0: %+v", tok)
	}
}

func TestRefusals(t *testing.T) {
	e := openFake(t, func(o *Options) { tiny(o) }, nil)
	ok := Request{Model: "a", Prompt: []int32{1}, MaxTokens: 1}
	for name, tc := range map[string]struct {
		change func(*Request)
		want   error
		text   string
	}{
		"unknown model": {func(r *Request) { r.Model = "a " }, ErrUnknownModel, `"a "`},
		"empty prompt":  {func(r *Request) { r.Prompt = nil }, ErrInvalid, "prompt"},
		"id too large":  {func(r *Request) { r.Prompt = []int32{fakeVocab} }, ErrInvalid, "300"},
		"negative id":   {func(r *Request) { r.Prompt = []int32{-1} }, ErrInvalid, "-1"},
		"padding id":    {func(r *Request) { r.Sampling.LogitBias = map[int32]float32{fakePadded - 1: 1} }, ErrInvalid, "logit_bias"},
		"large bias":    {func(r *Request) { r.Sampling.LogitBias = map[int32]float32{3: 1e9} }, ErrInvalid, "logit_bias[3]"},
		"empty stop":    {func(r *Request) { r.Stop = []string{"a", ""} }, ErrInvalid, "stop"},
		"long stops":    {func(r *Request) { r.Stop = []string{strings.Repeat("a", 40<<10), strings.Repeat("b", 40<<10)} }, ErrInvalid, "stop"},
		"all tokens stop": {func(r *Request) {
			for id := range int32(fakeVocab) {
				r.StopTokenIDs = append(r.StopTokenIDs, id)
			}
			r.MinTokens = 1
		}, ErrInvalid, "stop_token_ids"},
		"n":               {func(r *Request) { r.N = 129 }, ErrInvalid, "n:"},
		"negative n":      {func(r *Request) { r.N = -1 }, ErrInvalid, "n:"},
		"temperature":     {func(r *Request) { r.Sampling.Temperature = 2.5 }, ErrInvalid, "temperature"},
		"NaN":             {func(r *Request) { r.Sampling.MinP = float32(nan()) }, ErrInvalid, "min_p"},
		"min over max":    {func(r *Request) { r.MinTokens = 2 }, ErrInvalid, "min_tokens"},
		"too long":        {func(r *Request) { r.MaxTokens = 420 }, ErrContextLength, "420"},
		"overflow":        {func(r *Request) { r.MaxTokens = 1<<63 - 1 }, ErrContextLength, "420"},
		"prompt too long": {func(r *Request) { r.Prompt = make([]int32, 500); r.MaxTokens = 0 }, ErrContextLength, "500"},
	} {
		r := ok
		tc.change(&r)
		_, err := e.Generate(context.Background(), r)
		if !errors.Is(err, tc.want) || !strings.Contains(fmt.Sprint(err), tc.text) {
			t.Errorf("%s: %v, want %v with %q", name, err, tc.want, tc.text)
		}
	}
	idle(t, e)
	if a := gather(t, e, Request{Model: "a", Prompt: make([]int32, 419)}); a[0].final.Usage.Completion != 1 {
		t.Errorf("the last token of the context was not given")
	}
}

// One slot, two places in the queue, ten requests at once: one runs, two wait, seven are refused.
func TestQueueLimit(t *testing.T) {
	hold := make(chan struct{})
	release := sync.OnceFunc(func() { close(hold) })
	defer release()
	e := openFake(t, func(o *Options) { o.MaxNumSeqs, o.MaxWaiting = 1, 2 }, func() error { <-hold; return nil })
	start := time.Now()
	var mu sync.Mutex
	var wg sync.WaitGroup
	accepted, refused := 0, 0
	for range 10 {
		wg.Go(func() {
			events, err := e.Generate(context.Background(), Request{Model: "a", Prompt: []int32{1, 2}, MaxTokens: 2, IgnoreEOS: true})
			mu.Lock()
			if err == nil {
				accepted++
			} else if over := (*OverCapacityError)(nil); errors.As(err, &over) && over.RetryAfter > 0 {
				refused++
			} else {
				t.Errorf("refused with %v", err)
			}
			if accepted+refused == 10 {
				release()
			}
			mu.Unlock()
			if err == nil {
				n := 0
				for range events {
					n++
				}
				if n == 0 {
					t.Error("an accepted request got no event")
				}
			}
		})
	}
	wg.Wait()
	if accepted != 3 || refused != 7 {
		t.Errorf("%d accepted, %d refused (in %v), want 3 and 7", accepted, refused, time.Since(start))
	}
	idle(t, e)
	if got := e.Stats().Models[0].RefusedFull; got != 7 {
		t.Errorf("the counter says %d refused", got)
	}
}

// Cancelling at any moment, by any means, leaves nothing behind and changes no other answer.
func TestCancelAtEveryPhase(t *testing.T) {
	e := openFake(t, func(o *Options) { o.MaxBatchedTokens, o.MaxNumSeqs = 32, 3 }, nil)
	prompt := []int32(strings.Repeat("the whole of it ", 20))
	want := fakeAnswer(2, prompt, 60, true)
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			if i%5 == 0 {
				cancel() // before it is taken in
			}
			events, err := e.Generate(ctx, Request{Model: fakeNames[i%2], Prompt: append([]int32{int32(i)}, prompt...), MaxTokens: 400, IgnoreEOS: true, N: 1 + i%2})
			if err != nil {
				t.Error(err)
				return
			}
			if i%5 == 1 {
				cancel() // queued
			}
			tokens, finals := 0, 0
			for ev := range events {
				tokens += len(ev.Tokens)
				if ev.Finish != FinishNone {
					finals++
				}
				if i%5 == 2 && tokens > 0 {
					return // a reader that goes away
				}
				if i%5 > 2 && tokens > i {
					cancel()
				}
			}
			if finals != 1+i%2 {
				t.Errorf("request %d: %d final events", i, finals)
			}
		})
	}
	for range 3 {
		if a := gather(t, e, Request{Model: "b", Prompt: prompt, MaxTokens: 60, IgnoreEOS: true})[0]; !slices.Equal(a.tokens, want) {
			t.Errorf("cancelling others changed an answer")
		}
	}
	wg.Wait()
	idle(t, e)
}

// A caller that never ranges costs nothing once its context ends.
func TestNeverRanged(t *testing.T) {
	e := openFake(t, nil, nil)
	ctx, cancel := context.WithCancel(context.Background())
	if _, err := e.Generate(ctx, Request{Model: "a", Prompt: []int32{1}, IgnoreEOS: true}); err != nil {
		t.Fatal(err)
	}
	cancel()
	idle(t, e)
}

func nan() float64 {
	var zero float64
	return zero / zero
}
