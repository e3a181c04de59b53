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

// While schemas of 5,000 lines compile one after another, the tokens of another stream come as they do without. The card is
// simulated in real time and leaves the processor to the compiling.
func TestCompilingDisturbsNoStream(t *testing.T) {
	e := openSim(t, "rtx3090", nil, "qwen3.5-27b")
	defer e.Close()
	gaps := func() []time.Duration {
		_, _, at, final := timed(t, e, Request{Model: "qwen3.5-27b", Prompt: prompt(50, 3), MaxTokens: 60, IgnoreEOS: true})
		if final.Finish != FinishLength {
			t.Fatalf("finish %v: %v", final.Finish, final.Err)
		}
		var gaps []time.Duration
		for i := 1; i < len(at); i++ {
			gaps = append(gaps, at[i]-at[i-1])
		}
		slices.Sort(gaps)
		return gaps
	}
	without := gaps()
	ctx, cancel := context.WithCancel(t.Context())
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
				if ctx.Err() == nil {
					t.Error(err)
				}
				return
			}
			n++
		}
	}()
	with := gaps()
	cancel()
	n := <-compiled
	p50, p95 := len(with)/2, len(with)*95/100
	t.Logf("gaps between tokens: p50 %v, p95 %v, most %v without; p50 %v, p95 %v, most %v while %d schemas of %d lines were compiled",
		without[p50], without[p95], without[len(without)-1], with[p50], with[p95], with[len(with)-1], n, strings.Count(largeSchema(0), "\n"))
	if n == 0 {
		t.Error("nothing was compiled meanwhile")
	}
	// Half of the gaps are out of reach of a busy machine's noise; a compile that held the steps up would be in all of them.
	if with[p50] > without[p50]*5/4+2*time.Millisecond {
		t.Errorf("the middle gap grew from %v to %v", without[p50], with[p50])
	}
}
