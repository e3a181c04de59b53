package engine

import (
	"io"
	"log/slog"
	"testing"
	"time"

	"github.com/openinfer-go/openinfer/engine/grammar"
	"github.com/openinfer-go/openinfer/internal/testdata"
)

// BenchmarkForcedText: an answer of an order's schema from a model on the CPU and on a simulated card in real time, with the text that
// has no choice in one row and, as a bias gives the model the choice, a token at a time.
func BenchmarkForcedText(b *testing.B) {
	for name, open := range map[string]func() (*Engine, string){
		"smollm2-135m-cpu": func() (*Engine, string) {
			path := testdata.Cache(b, "gguf", "SmolLM2-135M-Instruct.Q4_1.gguf")
			e, err := Open(b.Context(), Options{Device: "cpu", Models: []ModelSpec{{Name: "smol", Path: path, MaxModelLen: 512}}, Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
			if err != nil {
				b.Fatal(err)
			}
			return e, "smol"
		},
		"qwen3.5-27b-simulated": func() (*Engine, string) {
			return openSim(b, "rtx3090", nil, "qwen3.5-27b"), "qwen3.5-27b"
		},
	} {
		b.Run(name, func(b *testing.B) {
			e, model := open()
			defer e.Close()
			expr, err := grammar.Schema([]byte(orderSchema))
			if err != nil {
				b.Fatal(err)
			}
			g, err := e.CompileGrammar(b.Context(), model, expr)
			if err != nil {
				b.Fatal(err)
			}
			answer := func(seed int64, bias map[int32]float32) (tokens int, took time.Duration) {
				begin := time.Now()
				events, err := e.Generate(b.Context(), Request{Model: model, Prompt: prompt(20, 3), Grammar: g, MaxTokens: 200,
					Sampling: SamplingParams{Temperature: 0.7, TopP: 1, RepetitionPenalty: 1, Seed: &seed, LogitBias: bias}})
				if err != nil {
					b.Fatal(err)
				}
				for ev := range events {
					tokens = ev.Usage.Completion
				}
				return tokens, time.Since(begin)
			}
			answer(0, nil)
			var tokens, other int
			var with, without time.Duration
			seed := int64(0)
			for b.Loop() {
				seed++
				n, d := answer(seed, nil)
				tokens, with = tokens+n, with+d
				n, d = answer(seed, map[int32]float32{5: 0})
				other, without = other+n, without+d
			}
			b.ReportMetric(float64(tokens)/float64(seed), "tokens")
			b.ReportMetric(float64(other)/float64(seed), "tokens-one-at-a-time")
			b.ReportMetric(with.Seconds()*1000/float64(seed), "ms")
			b.ReportMetric(without.Seconds()*1000/float64(seed), "ms-one-at-a-time")
			b.ReportMetric(without.Seconds()/with.Seconds(), "x")
		})
	}
}
