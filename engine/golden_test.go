package engine_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/openinfer-go/openinfer/engine"
	"github.com/openinfer-go/openinfer/internal/testdata"
)

func open(t testing.TB, o engine.Options) *engine.Engine {
	t.Helper()
	o.Log = slog.New(slog.NewTextHandler(io.Discard, nil))
	e, err := engine.Open(context.Background(), o)
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

func demoModels() []engine.ModelSpec {
	return []engine.ModelSpec{{Name: "demo-tales"}, {Name: "demo-bard"}}
}

// skipPlainGo leaves arithmetic in plain Go out of the short run, which the race detector slows
// twentyfold; the full run has it.
func skipPlainGo(t *testing.T, o engine.Options) {
	t.Helper()
	if testing.Short() && o.Device == "ref" {
		t.Skip("plain Go arithmetic")
	}
}

// soak says that long tests may take their time.
func soak() bool { return os.Getenv("OPENINFER_SOAK") == "1" }

// answer collects one sequence.
func answer(t testing.TB, e *engine.Engine, r engine.Request) (tokens []int32, text string, last engine.Event) {
	t.Helper()
	events, err := e.Generate(context.Background(), r)
	if err != nil {
		t.Errorf("%s: %v", r.Model, err)
		return nil, "", last
	}
	finals := 0
	for ev := range events {
		for _, tok := range ev.Tokens {
			tokens = append(tokens, tok.ID)
		}
		text += ev.Text
		if last = ev; ev.Finish != engine.FinishNone {
			finals++
		}
	}
	if finals != 1 || last.Err != nil {
		t.Errorf("%s: %d final events, %v", r.Model, finals, last.Err)
	}
	return tokens, text, last
}

func readJSON(t testing.TB, path string, into any) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(b, into)
	}
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

type goldenPrompt struct {
	Name         string
	Messages     json.RawMessage
	Text         string
	Tokens       []int32
	Continuation []int32
	Content      string `json:"continuation_text"`
	Margins      []float32
}

// Prompts, ids and greedy tokens of both embedded models are the reference library's.
func TestDemoModelsAgreeWithTheReference(t *testing.T) {
	for name, o := range map[string]engine.Options{"ref": {Device: "ref"}, "cpu exact": {Device: "cpu", Exact: true}} {
		t.Run(name, func(t *testing.T) {
			skipPlainGo(t, o)
			o.Models = demoModels()
			e := open(t, o)
			for _, spec := range o.Models {
				var golden struct{ Prompts []goldenPrompt }
				readJSON(t, testdata.Shared(t, "demo-models", "golden", spec.Name, "golden.json"), &golden)
				if len(golden.Prompts) < 8 {
					t.Fatalf("%d prompts", len(golden.Prompts))
				}
				var wg sync.WaitGroup
				for _, p := range golden.Prompts {
					wg.Go(func() { checkGolden(t, e, spec.Name, p) })
				}
				wg.Wait()
			}
		})
	}
}

func checkGolden(t *testing.T, e *engine.Engine, model string, p goldenPrompt) {
	var ids []int32
	var err error
	if bytes.HasPrefix(p.Messages, []byte("[")) {
		var rendered engine.RenderedChat
		rendered, err = e.RenderChat(model, engine.ChatPrompt{Messages: p.Messages, AddGenerationPrompt: true})
		if ids = rendered.IDs; rendered.Text != p.Text {
			t.Errorf("%s %s: rendered %q, want %q", model, p.Name, rendered.Text, p.Text)
		}
	} else {
		ids, err = e.Tokenize(model, p.Text, true)
	}
	if err != nil {
		t.Errorf("%s %s: %v", model, p.Name, err)
		return
	}
	if !slices.Equal(ids, p.Tokens) {
		t.Errorf("%s %s: ids %v, want %v", model, p.Name, ids, p.Tokens)
		return
	}
	got, _, _ := answer(t, e, engine.Request{Model: model, Prompt: ids, MaxTokens: len(p.Continuation), IgnoreEOS: true})
	if !slices.Equal(got, p.Continuation) {
		t.Errorf("%s %s: greedy tokens\n got %v\nwant %v", model, p.Name, got, p.Continuation)
	}
}

// streams are the requests of many clients at once: chats of several lengths, greedy and sampled.
func streams(t testing.TB, e *engine.Engine, models []string) []engine.Request {
	t.Helper()
	contents := []string{
		"Tell me a story about a fox and a king", "HAMLET", "Hello", "Let Juliet speak.",
		"Write a verse about love and night. " + strings.Repeat("Make it a long one. ", 12),
		"What is the capital of France? Answer in one sentence.",
		strings.Repeat("Once upon a time there was a princess. ", 9), "Name three colours",
	}
	var out []engine.Request
	for i := range 24 {
		model := models[i%len(models)]
		content := contents[(i/len(models))%len(contents)]
		messages, _ := json.Marshal([]map[string]string{{"role": "user", "content": content}})
		prompt, err := e.RenderChat(model, engine.ChatPrompt{Messages: messages, AddGenerationPrompt: true})
		if err != nil {
			t.Fatalf("%s: %v", model, err)
		}
		seed := int64(i)
		r := engine.Request{Model: model, Prompt: prompt.IDs, MaxTokens: 24 + i}
		if i%3 == 0 {
			r.Sampling = engine.SamplingParams{Temperature: 0.9, TopP: 0.95, TopK: 40, RepetitionPenalty: 1.1, Seed: &seed}
		}
		out = append(out, r)
	}
	return out
}

// checkStreams runs requests alone, one after the other, and then all at once on e: a row's bits
// depend on nothing but the row, so every answer is the same.
func checkStreams(t *testing.T, alone, together *engine.Engine, requests []engine.Request) {
	t.Helper()
	want := make([][]int32, len(requests))
	for i, r := range requests {
		want[i], _, _ = answer(t, alone, r)
	}
	for range 2 { // the second time from the prefix cache
		var wg sync.WaitGroup
		for i, r := range requests {
			wg.Go(func() {
				if got, _, _ := answer(t, together, r); !slices.Equal(got, want[i]) {
					t.Errorf("stream %d of %s (prompt of %d):\n together %v\n alone    %v", i, r.Model, len(r.Prompt), got, want[i])
				}
			})
		}
		wg.Wait()
	}
	for _, m := range together.Stats().Models {
		if m.LiveBlocks != 0 || m.Running+m.Waiting != 0 {
			t.Errorf("left behind: %+v", m)
		}
	}
}

func TestStreamsTogetherAnswerAsAlone(t *testing.T) {
	off := false
	for name, o := range map[string]engine.Options{
		"cpu":       {Device: "cpu"},
		"cpu exact": {Device: "cpu", Exact: true},
		"ref":       {Device: "ref"},
	} {
		t.Run(name, func(t *testing.T) {
			skipPlainGo(t, o)
			o.Models = demoModels()
			plain := o
			plain.PrefixCache = &off
			alone := open(t, plain)
			o.KVMemory, o.MaxBatchedTokens = 1536<<10, 48 // two or three sequences' worth, small chunks
			for i := range o.Models {
				o.Models[i].MaxModelLen = 256
			}
			together := open(t, o)
			requests := streams(t, alone, []string{"demo-tales", "demo-bard"})
			if o.Device == "ref" { // plain Go: a few will do
				requests = requests[:8]
				for i := range requests {
					requests[i].MaxTokens = 12
				}
			}
			checkStreams(t, alone, together, requests)
			preempted := int64(0)
			for _, m := range together.Stats().Models {
				preempted += m.Preemptions
			}
			if preempted == 0 && len(requests) == 24 {
				t.Errorf("nobody was preempted")
			}
		})
	}
}

// The real SmolLM2 beside both demo models.
func TestThreeModelsTogether(t *testing.T) {
	if testing.Short() {
		t.Skip("a 135M model")
	}
	path := testdata.Cache(t, "gguf", "SmolLM2-135M-Instruct.Q4_1.gguf")
	off := false
	devices := map[string]engine.Options{"cpu": {Device: "cpu"}}
	if soak() {
		devices["cpu exact"] = engine.Options{Device: "cpu", Exact: true}
	}
	for name, o := range devices {
		t.Run(name, func(t *testing.T) {
			o.Models = append(demoModels(), engine.ModelSpec{Name: "smol", Path: path, MaxModelLen: 512})
			plain := o
			plain.PrefixCache = &off
			alone := open(t, plain)
			together := open(t, o)
			requests := streams(t, alone, []string{"demo-tales", "demo-bard", "smol"})
			for i := range requests {
				if r := &requests[i]; !soak() {
					r.MaxTokens = 3 + i%4
					r.Prompt = r.Prompt[:min(len(r.Prompt), 24+i)]
				}
			}
			checkStreams(t, alone, together, requests)
		})
	}
}

// Prompts, ids and greedy tokens of SmolLM2 are the reference's, up to the first step that it
// decides by less than rounding.
func TestSmolLM2AgreesWithTheReference(t *testing.T) {
	if testing.Short() {
		t.Skip("a 135M model")
	}
	path := testdata.Cache(t, "gguf", "SmolLM2-135M-Instruct.Q4_1.gguf")
	var golden struct {
		Cases []struct {
			Messages json.RawMessage
			Prompt   string
			IDs      []int32
			Greedy   []int32
			Margins  []float32
		}
	}
	readJSON(t, testdata.Shared(t, "golden", "smollm2", "golden.json"), &golden)
	e := open(t, engine.Options{Device: "cpu", Exact: true, Models: []engine.ModelSpec{{Name: "smol", Path: path}}})
	var wg sync.WaitGroup
	for i, c := range golden.Cases {
		if bytes.HasPrefix(c.Messages, []byte("[")) {
			p, err := e.RenderChat("smol", engine.ChatPrompt{Messages: c.Messages, AddGenerationPrompt: true})
			if err != nil || p.Text != c.Prompt || !slices.Equal(p.IDs, c.IDs) {
				t.Errorf("case %d: %q %v (%v), want %q %v", i, p.Text, p.IDs, err, c.Prompt, c.IDs)
			}
		} else if ids, err := e.Tokenize("smol", c.Prompt, false); err != nil || !slices.Equal(ids, c.IDs) {
			t.Errorf("case %d: %v (%v), want %v", i, ids, err, c.IDs)
		}
		wg.Go(func() {
			sure := len(c.Greedy)
			if !soak() {
				sure = min(sure, 4)
			}
			got, _, _ := answer(t, e, engine.Request{Model: "smol", Prompt: c.IDs, MaxTokens: sure, IgnoreEOS: true})
			for j, m := range c.Margins {
				if m < 0.01 {
					sure = min(sure, j)
				}
			}
			if len(got) < sure || !slices.Equal(got[:sure], c.Greedy[:sure]) {
				t.Errorf("case %d: greedy tokens up to %d\n got %v\nwant %v", i, sure, got, c.Greedy)
			}
		})
	}
	wg.Wait()
}
