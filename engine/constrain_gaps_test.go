package engine

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/openinfer-go/openinfer/engine/grammar"
)

// largeSchema has more than 5,000 lines; n makes it another.
func largeSchema(n int) string {
	var b strings.Builder
	b.WriteString("{\"type\":\"object\",\"additionalProperties\":false,\"properties\":{\n")
	for i := range 42 {
		if i > 0 {
			b.WriteString(",\n")
		}
		fmt.Fprintf(&b, "\"part%d_%d\":{\n\"type\":\"object\",\n\"required\":[\"field0\"],\n\"properties\":{\n", n, i)
		for j := range 20 {
			if j > 0 {
				b.WriteString(",\n")
			}
			fmt.Fprintf(&b, "\"field%d\":{\n\"type\":\"object\",\n\"properties\":{\n\"id\":{\"type\":\"integer\",\"minimum\":%d},\n\"text\":{\"type\":\"string\",\"maxLength\":%d}\n},\"required\":[\"id\"]}", j, i*j, 20+j)
		}
		b.WriteString("\n}}")
	}
	b.WriteString("}}")
	return b.String()
}

// BenchmarkCompilingBesideAStream: while schemas of 5,000 lines compile one after another, the gaps between the tokens of another
// stream, and without. The card is simulated in real time and leaves the processor to the compiling.
func BenchmarkCompilingBesideAStream(b *testing.B) {
	e := openSim(b, "rtx3090", nil, "qwen3.5-27b")
	defer e.Close()
	gaps := func() (gaps []time.Duration) {
		events, err := e.Generate(b.Context(), Request{Model: "qwen3.5-27b", Prompt: prompt(50, 3), MaxTokens: 120, IgnoreEOS: true})
		if err != nil {
			b.Fatal(err)
		}
		var last time.Time
		for ev := range events {
			now := time.Now()
			if !last.IsZero() {
				gaps = append(gaps, now.Sub(last))
			}
			last = now
			if ev.Finish != FinishNone && ev.Finish != FinishLength {
				b.Fatalf("finish %v: %v", ev.Finish, ev.Err)
			}
		}
		slices.Sort(gaps)
		return gaps
	}
	report := func(gaps []time.Duration, what string) {
		for _, q := range []struct {
			name string
			at   int
		}{{"p50", len(gaps) / 2}, {"p95", len(gaps) * 95 / 100}, {"most", len(gaps) - 1}} {
			b.ReportMetric(float64(gaps[q.at].Microseconds())/1000, "ms-"+q.name+"-"+what)
		}
	}
	for b.Loop() {
		report(gaps(), "without")
		ctx, cancel := context.WithCancel(b.Context())
		compiled := make(chan int)
		go func() {
			n := 0
			defer func() { compiled <- n }()
			for ctx.Err() == nil {
				expr, err := grammar.Schema([]byte(largeSchema(n)))
				if err == nil {
					_, err = e.CompileGrammar(ctx, "qwen3.5-27b", expr)
				}
				if err != nil {
					return
				}
				n++
			}
		}()
		report(gaps(), "with")
		cancel()
		b.ReportMetric(float64(<-compiled), "compiled")
	}
}
