package engine

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/openinfer-go/openinfer/engine/grammar"
	"github.com/openinfer-go/openinfer/kernels"
)

const orderSchema = `{"type":"object","properties":{"customer_number":{"type":"integer","minimum":0,"maximum":99},"delivery_address":{"type":"object","properties":{
	"street_and_number":{"type":"string","maxLength":9},"kind":{"enum":["residence of the customer","resale"]}},"required":["street_and_number","kind"],"additionalProperties":false},
	"terms":{"const":"thirty days net, without discount"}},"required":["customer_number","delivery_address","terms"],"additionalProperties":false}`

// Text without a choice is computed several tokens at a time, and every answer is what it is a token at a time: which is how
// log probabilities have it. One step and two in flight, recurrent states, a regime that sequences cross, pools from roomy
// to dry, stop strings and limits within such text, penalties.
func TestForcedTextIsTheSameInOneRow(t *testing.T) {
	expr, err := grammar.Schema([]byte(orderSchema))
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*Options){
		"roomy":       func(*Options) {},
		"chunks of 7": func(o *Options) { o.MaxBatchedTokens = 7; o.MaxNumSeqs = 5 },
		"tiny pool":   func(o *Options) { tiny(o); o.KVMemory = 4 << 20 },
		"no room":     func(o *Options) { o.MaxBatchedTokens, o.MaxNumSeqs = 13, 13 },
	} {
		for _, overlap := range []bool{false, true} {
			t.Run(fmt.Sprint(name, overlap), func(t *testing.T) {
				e := openFake(t, func(o *Options) {
					change(o)
					o.Overlap = &overlap
					load := o.loadModel
					o.loadModel = func(d kernels.Device, m *model) error {
						err := load(d, m)
						f := m.impl.(*fakeModel)
						f.recurrent = m.index != 2
						if m.index > 0 {
							f.limit = 100
						}
						m.regimes = f.Shape().Regimes
						return err
					}
				}, nil)
				prompts := randomPrompts(rand.New(rand.NewPCG(3, 4)), 12, 60)
				var wg sync.WaitGroup
				for i, prompt := range prompts {
					wg.Go(func() {
						seed := int64(i)
						r := Request{Model: fakeNames[i%3], Prompt: prompt[:min(len(prompt), 90)], MaxTokens: 320, N: 1 + i%2,
							Sampling: SamplingParams{Temperature: 1, TopP: 1, RepetitionPenalty: 1, Seed: &seed}}
						switch i % 4 {
						case 1:
							r.Stop = []string{"_address\"", "nce of"}
						case 2:
							r.MaxTokens = 5 + 13*i
						case 3:
							r.Sampling.FrequencyPenalty, r.Sampling.RepetitionPenalty = 0.3, 1.2
						}
						var err error
						if r.Grammar, err = e.CompileGrammar(t.Context(), r.Model, expr); err != nil {
							t.Error(err)
							return
						}
						got := gather(t, e, r)
						r.Logprobs = new(int)
						for k, want := range gather(t, e, r) {
							if !slices.Equal(got[k].tokens, want.tokens) || got[k].text != want.text || got[k].final.Finish != want.final.Finish || got[k].final.StopReason != want.final.StopReason {
								t.Errorf("request %d, sequence %d: %v %v\n got %q\nwant %q (%v)", i, k, got[k].final.Finish, got[k].final.Err, got[k].text, want.text, want.final.Finish)
							}
							if i%4 == 0 && (want.final.Finish != FinishStop || !strings.HasSuffix(want.text, "}") || !json.Valid([]byte(want.text))) {
								t.Errorf("request %d: finish %v: %q", i, want.final.Finish, want.text)
							}
						}
					})
				}
				wg.Wait()
				idle(t, e)
				forced, generated, preempted := int64(0), int64(0), int64(0)
				for _, m := range e.Stats().Models {
					forced, generated, preempted = forced+m.ForcedTokens, generated+m.GeneratedTokens, preempted+m.Preemptions
				}
				t.Logf("%d of %d tokens came in another's row, %d preemptions", forced, generated, preempted)
				if 20*forced < generated {
					t.Error("hardly any token came in another's row")
				}
				if strings.HasPrefix(name, "tiny") && preempted == 0 {
					t.Error("nobody was preempted")
				}
			})
		}
	}
}
