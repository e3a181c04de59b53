package engine_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/openinfer-go/openinfer/engine"
)

// BenchmarkOpen is the cold start of both embedded models, tokenizers and templates included.
func BenchmarkOpen(b *testing.B) {
	for b.Loop() {
		e, err := engine.Open(context.Background(), engine.Options{Models: demoModels()})
		if err != nil {
			b.Fatal(err)
		}
		if err := e.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkRefusal is how long a caller waits for a refusal while the processor is busy with steps of prompts of
// 512 tokens: on average, and of a hundred the slowest.
func BenchmarkRefusal(b *testing.B) {
	e, err := engine.Open(b.Context(), engine.Options{Models: demoModels(), MaxNumSeqs: 8, MaxWaiting: 1})
	if err != nil {
		b.Fatal(err)
	}
	defer e.Close()
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	r := engine.Request{Model: "demo-tales", Prompt: make([]int32, 512), MaxTokens: 500, IgnoreEOS: true}
	for i := range 9 { // eight run, one waits; who is done comes again
		go func() {
			for n := 0; ctx.Err() == nil; n++ {
				r := r
				r.Prompt = slices.Clone(r.Prompt)
				r.Prompt[0] = int32(i + 9*n%3000)
				if events, err := e.Generate(ctx, r); err == nil {
					for range events {
					}
				}
			}
		}()
	}
	var took []time.Duration
	for b.Loop() {
		asking, end := context.WithCancel(ctx)
		start := time.Now()
		_, err := e.Generate(asking, r)
		if errors.Is(err, engine.ErrOverCapacity) { // else it came between two of the others
			took = append(took, time.Since(start))
		}
		end()
		time.Sleep(100 * time.Microsecond)
	}
	if slices.Sort(took); len(took) > 0 {
		b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "us/p99")
	}
}
