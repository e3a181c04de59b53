// Overlap measures what planning a step while the one before is computed gains: tokens a second of the same
// streams with it off and on, in turns, and the ratio of the medians with its spread over the rounds. It
// writes a Markdown table.
//
//	go run ./scripts/overlap -gguf SmolLM2-135M-Instruct.Q4_1.gguf > docs/bench-overlap.md
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/openinfer-go/openinfer/engine"
)

type subject struct {
	device string
	model  engine.ModelSpec
	tokens int // of each answer
}

func main() {
	gguf := flag.String("gguf", "", "a third model for the cpu device")
	rounds := flag.Int("rounds", 7, "measurements of each kind")
	flag.Parse()
	subjects := []subject{
		{"cpu", engine.ModelSpec{Name: "demo-tales"}, 200},
		{"cpu", engine.ModelSpec{Name: "demo-bard"}, 200},
	}
	if *gguf != "" {
		subjects = append(subjects, subject{"cpu", engine.ModelSpec{Name: "gguf", Path: *gguf}, 24})
	}
	for _, name := range []string{"llama-3.2-1b", "qwen3.5-9b"} {
		subjects = append(subjects, subject{"sim:rtx3090", engine.ModelSpec{Name: name}, 100})
	}
	fmt.Println("| device | model | streams | tok/s off | tok/s on | on / off | rounds from .. to |")
	fmt.Println("|---|---|---:|---:|---:|---:|---:|")
	for _, s := range subjects {
		if err := measure(s, *rounds); err != nil {
			log.Fatalf("%s on %s: %v", s.model.Name, s.device, err)
		}
	}
}

func measure(s subject, rounds int) error {
	var engines [2]*engine.Engine
	for i := range engines {
		on := i == 1
		e, err := engine.Open(context.Background(), engine.Options{
			Models: []engine.ModelSpec{s.model}, Device: s.device, Overlap: &on, KVMemory: 256 << 20, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
		})
		if err != nil {
			return err
		}
		defer e.Close()
		engines[i] = e
	}
	for _, streams := range []int{1, 8, 32} {
		var rates [2][]float64
		var ratios []float64
		for round := range rounds + 1 {
			var pair [2]float64
			for i := range engines {
				i = (i + round) % 2 // who is first changes
				rate, err := run(engines[i], s, streams)
				if err != nil {
					return err
				}
				pair[i] = rate
			}
			if round > 0 { // the first warms up
				rates[0], rates[1] = append(rates[0], pair[0]), append(rates[1], pair[1])
				ratios = append(ratios, pair[1]/pair[0])
			}
		}
		slices.Sort(ratios)
		fmt.Printf("| %s | %s | %d | %.0f | %.0f | %.3f | %.3f .. %.3f |\n", s.device, engines[0].Models()[0].Name, streams,
			median(rates[0]), median(rates[1]), median(ratios), ratios[0], ratios[len(ratios)-1])
	}
	return nil
}

// run returns tokens a second.
func run(e *engine.Engine, s subject, streams int) (float64, error) {
	start := time.Now()
	var mu sync.Mutex
	var wg sync.WaitGroup
	tokens := 0
	var failed error
	for i := range streams {
		wg.Go(func() {
			events, err := e.Generate(context.Background(), engine.Request{
				Model: s.model.Name, Prompt: []int32{int32(5 + i)}, MaxTokens: s.tokens, IgnoreEOS: true,
			})
			n := 0
			if err == nil {
				for ev := range events {
					n = ev.Usage.Completion
					if ev.Err != nil {
						err = ev.Err
					}
				}
			}
			mu.Lock()
			defer mu.Unlock()
			if tokens += n; err != nil {
				failed = err
			}
		})
	}
	wg.Wait()
	return float64(tokens) / time.Since(start).Seconds(), failed
}

func median(v []float64) float64 {
	v = slices.Clone(v)
	slices.Sort(v)
	return v[len(v)/2]
}
