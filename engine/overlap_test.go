package engine

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
)

// overlapping makes openFake's engines plan steps ahead.
var overlapping bool

// What holds of the loop holds when it plans a step while the one before is computed.
func TestStepsOverlapped(t *testing.T) {
	overlapping = true
	defer func() { overlapping = false }()
	for name, test := range map[string]func(*testing.T){
		"concurrent streams":  TestConcurrentStreamsAnswerAsAlone,
		"hybrid":              TestHybridModelsAnswerAsAlone,
		"sliding window":      TestSlidingWindowGroup,
		"prefix cache":        TestPrefixCacheIsFoundAndTold,
		"text":                TestTextIsTheOneShotDecode,
		"stop and min tokens": TestStopTokenAndMinTokens,
		"seeds":               TestSeedsAndN,
		"logprobs":            TestLogprobs,
		"refusals":            TestRefusals,
		"queue limit":         TestQueueLimit,
		"cancel":              TestCancelAtEveryPhase,
		"never ranged":        TestNeverRanged,
		"step failure":        TestStepFailureFailsItsRowsOnly,
		"scheduler panic":     TestSchedulerPanicFailsAllAndRebuilds,
		"health":              TestHealthWhenTheLoopIsBlocked,
		"close and drain":     TestCloseAndDrain,
		"NaN":                 TestNaNFailsItsSequenceOnly,
		"suppressed":          TestSuppressedTokens,
	} {
		t.Run(name, test)
	}
}

// What is drawn depends on the tokens before, also on the one that is still being drawn when the step
// is planned: by penalties, by the number of the draw and by min_tokens.
func TestOverlapDrawsTheSame(t *testing.T) {
	open := func(on bool) *Engine { return openFake(t, func(o *Options) { o.Overlap = &on }, nil) }
	engines := []*Engine{open(false), open(true)}
	r := rand.New(rand.NewPCG(4, 2))
	three := 3
	var wg sync.WaitGroup
	for i, prompt := range randomPrompts(r, 24, 40) {
		seed := int64(i)
		req := Request{Model: fakeNames[i%3], Prompt: prompt, MaxTokens: 60, N: 1 + i%2, MinTokens: i % 30, Stop: []string{"q", "ab"},
			Sampling: SamplingParams{Temperature: float32(i%3) / 2, TopP: 1, RepetitionPenalty: 1, Seed: &seed}}
		switch i % 4 {
		case 1:
			req.Sampling.FrequencyPenalty, req.IgnoreEOS = 2, true
		case 2:
			req.Sampling.RepetitionPenalty, req.Logprobs = 1.5, &three
		case 3:
			req.Sampling.PresencePenalty, req.PromptLogprobs = -1, &three
		}
		wg.Go(func() {
			alone, over := gather(t, engines[0], req), gather(t, engines[1], req)
			for n := range alone {
				a, b := alone[n], over[n]
				if !slices.Equal(a.tokens, b.tokens) || a.text != b.text || a.final.Finish != b.final.Finish || fmt.Sprint(a.all, a.prompt) != fmt.Sprint(b.all, b.prompt) {
					t.Errorf("request %d, sequence %d: %v %q, overlapped %v %q", i, n, a.tokens, a.text, b.tokens, b.text)
				}
			}
		})
	}
	wg.Wait()
	for _, e := range engines {
		idle(t, e)
	}
}
