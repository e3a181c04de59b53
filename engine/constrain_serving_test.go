package engine

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/openinfer-go/openinfer/engine/grammar"
)

// Answers within a grammar, one that begins after reasoning among them, are those of an undisturbed run when a small pool makes
// sequences start over, with the prefix cache and without, with several sequences of a request and stop strings.
func TestAnswersWithinAGrammarAreThoseOfAnUndisturbedRun(t *testing.T) {
	open := func(change func(*Options)) *Engine {
		overlap, off := true, false
		o := Options{Device: "cpu", Overlap: &overlap, PrefixCache: &off, Models: []ModelSpec{{Name: "demo-tales", MaxModelLen: 512}},
			Log: slog.New(slog.NewTextHandler(io.Discard, nil))}
		change(&o)
		e, err := Open(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := e.Close(); err != nil {
				t.Error(err)
			}
		})
		return e
	}
	book, err := grammar.Schema([]byte(bookSchema))
	if err != nil {
		t.Fatal(err)
	}
	thought := grammar.Seq(grammar.Until("."), grammar.Literal("."), book) // reasoning is one sentence
	on := true
	alone := open(func(*Options) {})
	var requests []Request
	for i := range 8 {
		seed := int64(i)
		ids, err := alone.Tokenize("demo-tales", strings.Repeat("Once upon a time there was a little girl. ", 1+i%3), true)
		if err != nil {
			t.Fatal(err)
		}
		r := Request{Model: "demo-tales", Prompt: ids, MaxTokens: 200, N: 1 + i%3, Sampling: SamplingParams{Temperature: 1, Seed: &seed}}
		if i%4 == 1 {
			r.Stop = []string{"\"year\""}
		}
		requests = append(requests, r)
	}
	exprs := func(i int) grammar.Expr {
		if i%2 == 1 {
			return thought
		}
		return book
	}
	generate := func(e *Engine, i int) ([]string, error) {
		r := requests[i]
		var err error
		if r.Grammar, err = e.CompileGrammar(t.Context(), r.Model, exprs(i)); err != nil {
			return nil, err
		}
		events, err := e.Generate(t.Context(), r)
		if err != nil {
			return nil, err
		}
		texts, finals := make([]string, r.N), make([]int, r.N)
		for ev := range events {
			texts[ev.Index] += ev.Text
			if ev.Finish == FinishNone {
				continue
			}
			finals[ev.Index]++
			text := texts[ev.Index]
			texts[ev.Index] += fmt.Sprint(" | ", ev.Finish, ev.StopReason)
			state, ok := r.Grammar.Start().AdvanceBytes([]byte(text))
			switch {
			case !ok || ev.Err != nil:
				return nil, fmt.Errorf("outside the grammar: %q: %v", text, ev.Err)
			case ev.Finish == FinishStop && ev.StopReason == nil || len(r.Stop) == 0 && ev.Finish == FinishStop:
				if i%2 == 1 {
					_, text, _ = strings.Cut(text, ".")
				}
				if !state.MayEnd() || !json.Valid([]byte(text)) {
					return nil, fmt.Errorf("not complete: %q", text)
				}
			}
		}
		if slices.Contains(finals, 0) || slices.Max(finals) > 1 {
			return nil, fmt.Errorf("finals %v", finals)
		}
		return texts, nil
	}
	want := make([][]string, len(requests))
	ended, stopped := 0, 0
	for i := range requests {
		if want[i], err = generate(alone, i); err != nil {
			t.Fatal(err)
		}
		for _, text := range want[i] {
			if strings.Contains(text, "| stop <nil>") {
				ended++
			} else if strings.Contains(text, "| stop") {
				stopped++
			}
		}
	}
	t.Logf("%d complete, %d by a stop string, such as %q, %q", ended, stopped, want[0][0], want[1][0])
	if ended < 4 || stopped < 2 {
		t.Fatalf("%d complete, %d by a stop string: the test tries too little: %q", ended, stopped, want)
	}
	for name, change := range map[string]func(*Options){
		"prefix cache, small pool": func(o *Options) { o.PrefixCache, o.KVMemory, o.MaxBatchedTokens = &on, 1536<<10, 48 },
		"small pool":               func(o *Options) { o.KVMemory, o.MaxBatchedTokens = 1536<<10, 48 },
		"prefix cache":             func(o *Options) { o.PrefixCache = &on },
	} {
		t.Run(name, func(t *testing.T) {
			e := open(change)
			for range 2 {
				var all sync.WaitGroup
				for i := range requests {
					all.Go(func() {
						got, err := generate(e, i)
						if err != nil || !slices.Equal(got, want[i]) {
							t.Errorf("request %d: %v\n got  %q\n want %q", i, err, got, want[i])
						}
					})
				}
				all.Wait()
			}
			m := e.Stats().Models[0]
			if strings.Contains(name, "small") && m.Preemptions == 0 {
				t.Error("nobody was preempted")
			}
			if strings.Contains(name, "prefix") && m.PrefixHits == 0 {
				t.Error("nothing came from the prefix cache")
			}
		})
	}
}
