package sampling

import (
	"testing"

	"github.com/openinfer-go/openinfer/kernels"
)

// Numbers stay numbers at the ends of every parameter's range: a row of finite logits gives a token.
func TestEndsOfRanges(t *testing.T) {
	s := New(Plain())
	logits := []float32{20, -20, 0, 15, 1e-30}
	for _, repetition := range []float32{1e-45, 1e-38, 1e-30, 1, 100, 3e38} {
		for _, temperature := range []float32{0, 1e-45, 1e-38, 1, 2} {
			for _, topP := range []float32{1e-45, 0.5, 1} {
				p := kernels.SampleParams{
					Repetition: repetition, Temperature: temperature, TopP: topP, Presence: 2, Frequency: -2, Given: -1, Logprobs: 2,
					Prompt: []int32{0, 1, 2}, Output: []int32{2, 3}, Bias: []kernels.TokenBias{{ID: 4, Bias: -100}},
				}
				if out := s.Row(logits, &p); out.NaN || out.ID < 0 || int(out.ID) >= len(logits) {
					t.Errorf("repetition %v, temperature %v, top_p %v: %+v", repetition, temperature, topP, out)
				}
			}
		}
	}
}
