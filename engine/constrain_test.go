package engine

import (
	"encoding/json"
	"io"
	"log/slog"
	"testing"

	"github.com/openinfer-go/openinfer/engine/grammar"
)

const bookSchema = `{"type":"object","properties":{"title":{"type":"string","maxLength":20},"year":{"type":"integer","minimum":1900,"maximum":2099},
	"tags":{"type":"array","items":{"enum":["a","b"]},"maxItems":3}},"required":["title","year","tags"],"additionalProperties":false}`

// Answers within a grammar are that, on a device that computes and on one that does not, with one step and two in flight, penalties,
// several sequences and min_tokens that the grammar cannot fill.
func TestAnswersWithinAGrammar(t *testing.T) {
	expr, err := grammar.Schema([]byte(bookSchema))
	if err != nil {
		t.Fatal(err)
	}
	for name, open := range map[string]func() *Engine{
		"sim":                      func() *Engine { return openSim(t, "rtx3090", nil, "demo-tales") },
		"cpu":                      func() *Engine { return openGrammarCPU(t, false) },
		"cpu, two steps in flight": func() *Engine { return openGrammarCPU(t, true) },
	} {
		t.Run(name, func(t *testing.T) {
			e := open()
			defer e.Close()
			ids, err := e.Tokenize("demo-tales", "Once upon a time", true)
			if err != nil {
				t.Fatal(err)
			}
			g, err := e.CompileGrammar(t.Context(), "demo-tales", expr)
			if err != nil {
				t.Fatal(err)
			}
			if again, _ := e.CompileGrammar(t.Context(), "demo-tales", expr); again != g {
				t.Error("an equal expression was compiled again")
			}
			seed := int64(7)
			for _, r := range []Request{
				{Sampling: SamplingParams{Temperature: 1, Seed: &seed}, N: 4},
				{Sampling: SamplingParams{Temperature: 1, Seed: &seed, FrequencyPenalty: 0.5, RepetitionPenalty: 1.1}, N: 2, MinTokens: 150},
				{Logprobs: new(int)},
			} {
				r.Model, r.Prompt, r.Grammar, r.MaxTokens = "demo-tales", ids, g, 200
				events, err := e.Generate(t.Context(), r)
				if err != nil {
					t.Fatal(err)
				}
				texts := map[int]string{}
				for ev := range events {
					texts[ev.Index] += ev.Text
					if ev.Finish != FinishNone && ev.Finish != FinishStop {
						t.Errorf("finish %v: %v: %q", ev.Finish, ev.Err, texts[ev.Index])
					}
				}
				for _, text := range texts {
					var book struct {
						Title *string
						Year  int
						Tags  []string
					}
					if err := json.Unmarshal([]byte(text), &book); err != nil || book.Title == nil || book.Year < 1900 || book.Year > 2099 || len(book.Tags) > 3 {
						t.Errorf("%q: %v", text, err)
					}
				}
			}
		})
	}
}

func openGrammarCPU(t *testing.T, overlap bool) *Engine {
	t.Helper()
	e, err := Open(t.Context(), Options{Device: "cpu", Overlap: &overlap, Models: []ModelSpec{{Name: "demo-tales"}}, Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		t.Fatal(err)
	}
	return e
}
