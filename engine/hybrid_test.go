package engine

import (
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/openinfer-go/openinfer/kernels"
)

// hybridAnswer is what a model with a limit says: beyond it the whole sequence counts anew.
func hybridAnswer(seed uint64, prompt []int32, n, limit int) []int32 {
	tokens := slices.Clone(prompt)
	for range n {
		start := seed + 1
		if limit > 0 && len(tokens) > limit {
			start += 1 << 32
		}
		tokens = append(tokens, fakeNext(fakeFold(mix(start), tokens)))
	}
	return tokens[len(prompt):]
}

// Models with a recurrent state, with a regime that sequences cross, and with both, over pools from
// roomy to dry: every answer is what the model says on its own, also when conversations go on and
// find their beginning.
func TestHybridModelsAnswerAsAlone(t *testing.T) {
	off := false
	for name, change := range map[string]func(*Options){
		"roomy":           func(*Options) {},
		"no prefix cache": func(o *Options) { o.PrefixCache = &off },
		"chunks of 7":     func(o *Options) { o.MaxBatchedTokens = 7; o.MaxNumSeqs = 5 },
		"tiny pool":       func(o *Options) { tiny(o); o.KVMemory = 4 << 20 },
	} {
		t.Run(name, func(t *testing.T) {
			const limit = 100
			e := openFake(t, func(o *Options) {
				change(o)
				load := o.loadModel
				o.loadModel = func(d kernels.Device, m *model) error {
					err := load(d, m)
					f := m.impl.(*fakeModel)
					f.recurrent = m.index != 2
					if m.index > 0 {
						f.limit = limit
					}
					m.regimes = f.Shape().Regimes
					return err
				}
			}, nil)
			prompts := randomPrompts(rand.New(rand.NewPCG(8, 9)), 24, 60)
			var cached sync.Map
			var wg sync.WaitGroup
			for i, prompt := range prompts {
				prompt = prompt[:min(len(prompt), 200)]
				wg.Go(func() {
					m := i % 3
					for turn := range 3 {
						lim := 0
						if m > 0 {
							lim = limit
						}
						want := hybridAnswer(uint64(m+1), prompt, 40, lim)
						a := gather(t, e, Request{Model: fakeNames[m], Prompt: prompt, MaxTokens: 40, IgnoreEOS: true})[0]
						if !slices.Equal(a.tokens, want) {
							t.Errorf("stream %d, turn %d, prompt of %d:\n got %v\nwant %v", i, turn, len(prompt), a.tokens, want)
							return
						}
						if a.final.Usage.Cached > 0 {
							cached.Store(m, true)
						}
						prompt = append(append(slices.Clone(prompt), a.tokens...), int32('A'+turn), fakeEnd, 'x')
					}
				})
			}
			wg.Wait()
			idle(t, e)
			for m := range 3 {
				if _, ok := cached.Load(m); !ok && name == "roomy" {
					t.Errorf("model %d: no conversation found its beginning", m)
				}
			}
		})
	}
}

// What a checkpoint wants suppressed is never drawn, with or without end tokens banned as well.
func TestSuppressedTokens(t *testing.T) {
	prompt := []int32{5, 6}
	first := fakeAnswer(1, prompt, 1, true)[0]
	e := openFake(t, func(o *Options) {
		load := o.loadModel
		o.loadModel = func(d kernels.Device, m *model) error {
			err := load(d, m)
			m.never = []int32{first}
			return err
		}
	}, nil)
	for _, r := range []Request{
		{Model: "a", Prompt: prompt, MaxTokens: 8, IgnoreEOS: true},
		{Model: "a", Prompt: prompt, MaxTokens: 8, MinTokens: 4},
		{Model: "a", Prompt: prompt, MaxTokens: 8, Sampling: SamplingParams{Temperature: 2, TopP: 1, RepetitionPenalty: 1}},
	} {
		if a := gather(t, e, r)[0]; len(a.tokens) == 0 || slices.Contains(a.tokens, first) {
			t.Errorf("%+v: token %d is drawn or nothing is: %v", r, first, a.tokens)
		}
	}
}
