package engine

import (
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/kernels/sim"
	"github.com/openinfer-go/openinfer/models/configs"
)

func openSim(t testing.TB, card string, change func(*Options), names ...string) *Engine {
	t.Helper()
	o := Options{Device: "sim:" + card, Log: slog.New(slog.NewTextHandler(io.Discard, nil))}
	for _, name := range names {
		o.Models = append(o.Models, ModelSpec{Name: name})
	}
	if change != nil {
		change(&o)
	}
	e, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// timed generates and says when tokens came, counted from now.
func timed(t *testing.T, e *Engine, r Request) (ids []int32, text string, at []time.Duration, final Event) {
	t.Helper()
	start := time.Now()
	events, err := e.Generate(t.Context(), r)
	if err != nil {
		t.Error(err)
		return nil, "", nil, Event{}
	}
	for ev := range events {
		text += ev.Text
		for _, tok := range ev.Tokens {
			ids, at = append(ids, tok.ID), append(at, time.Since(start))
		}
		final = ev
	}
	return ids, text, at, final
}

func prompt(n, first int) []int32 {
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = int32(first+7*i) % 3000
	}
	return ids
}

// TestVirtualTimesAreTheCards: a lone request's tokens come when the card would have them, as told by the model's
// forward pass alone, within the nanosecond that each sleep is rounded to.
func TestVirtualTimesAreTheCards(t *testing.T) {
	for _, name := range []string{"qwen3.5-9b", "gemma-4-12b", "phi-4"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				off := false // snapshots for it cut the prompt into runs, each of which reads and writes the state
				e := openSim(t, "rtx3090", func(o *Options) { o.PrefixCache = &off }, name)
				defer e.Close()
				const n, tokens = 1500, 40
				ids, _, at, final := timed(t, e, Request{Model: name, Prompt: prompt(n, 5), MaxTokens: tokens, IgnoreEOS: true})
				if len(ids) != tokens || final.Finish != FinishLength {
					t.Fatalf("%d tokens, %+v", len(ids), final)
				}
				spec, _ := sim.Find("rtx3090")
				w := newStopwatch(e.models[0].impl, kernels.F16, spec)
				seconds := w.seconds([]stepRow{{0, n}})
				for i := range at {
					if i > 0 {
						seconds += w.seconds([]stepRow{{n + i - 1, 1}})
					}
					if diff := at[i].Seconds() - seconds; math.Abs(diff) > float64(i+2)*1e-9 {
						t.Fatalf("token %d came at %v, the card has it at %.9fs", i, at[i], seconds)
					}
				}
			})
		})
	}
}

// TestSimulatedAnswersFollowFromThePrompt: whatever else runs, whatever the prefix cache has and on whichever card.
func TestSimulatedAnswersFollowFromThePrompt(t *testing.T) {
	requests := make([]Request, 24)
	for i := range requests {
		seed := int64(i % 2)
		r := Request{Model: []string{"qwen3.5-27b", "llama-3.2-1b"}[i%2], Prompt: prompt(30+20*(i/4), i/4), MaxTokens: 2000}
		if i%4 >= 2 {
			r.Sampling = SamplingParams{Temperature: 1, Seed: &seed}
		}
		requests[i] = r
	}
	answers := func(card string, together bool) []string {
		out := make([]string, len(requests))
		synctest.Test(t, func(t *testing.T) {
			e := openSim(t, card, func(o *Options) { o.KVMemory = 800 << 20 }, "qwen3.5-27b", "llama-3.2-1b")
			defer e.Close()
			var wg sync.WaitGroup
			for i, r := range requests {
				ask := func() {
					ids, text, _, final := timed(t, e, r)
					out[i] = fmt.Sprintf("%v %q %v", ids, text, final.Finish)
				}
				if together {
					wg.Go(ask)
				} else {
					ask()
				}
			}
			wg.Wait()
		})
		return out
	}
	alone, together := answers("a6000", false), answers("rtx3090", true)
	for i, want := range alone {
		if together[i] != want {
			t.Errorf("request %d: %.200s\nalone %.200s", i, together[i], want)
		}
		if !strings.HasSuffix(want, " stop") {
			t.Errorf("request %d did not end by itself: %.100s", i, want)
		}
	}
	if n := len(slices.Compact(slices.Sorted(slices.Values(alone)))); n != len(alone) {
		t.Errorf("%d different answers to %d requests", n, len(alone))
	}
}

// TestSimulatedAnswersEnd: an answer's length follows from its seed, and min_tokens, max_tokens and ignore_eos count.
func TestSimulatedAnswersEnd(t *testing.T) {
	const n = 20000
	sum, least, most := 0.0, uint64(math.MaxUint64), uint64(0)
	for seed := range uint64(n) {
		l := answerLength(seed)
		sum, least, most = sum+float64(l), min(least, l), max(most, l)
	}
	if mean := sum / n; mean < 190 || mean > 205 || least < shortestAnswer || least > 25 || most != longestAnswer {
		t.Errorf("lengths from %d to %d, %v on average", least, most, mean)
	}
	synctest.Test(t, func(t *testing.T) {
		e := openSim(t, "l4", nil, "llama-3.2-1b")
		defer e.Close()
		r := Request{Model: "llama-3.2-1b", Prompt: prompt(10, 3)}
		own, text, _, final := timed(t, e, r)
		words := strings.Fields(text)
		if final.Finish != FinishStop || !e.models[0].isEnd(own[len(own)-1]) || len(words) < len(own)*3/4 {
			t.Errorf("%d tokens, %q, %+v", len(own), text, final)
		}
		for name, c := range map[string]struct {
			change func(*Request)
			want   int
		}{
			"max_tokens": {func(r *Request) { r.MaxTokens = 5 }, 5},
			"min_tokens": {func(r *Request) { r.MinTokens = len(own) + 50 }, len(own) + 51},
			"ignore_eos": {func(r *Request) { r.IgnoreEOS, r.MaxTokens = true, 1500 }, 1500},
		} {
			r := r
			c.change(&r)
			got, _, _, _ := timed(t, e, r)
			if len(got) != c.want || !slices.Equal(got[:min(len(got), len(own)-1)], own[:min(len(got), len(own)-1)]) {
				t.Errorf("%s: %d tokens, want %d that begin like the others", name, len(got), c.want)
			}
		}
	})
}

// TestSimulatedStopStrings: they end a simulated answer like any other.
func TestSimulatedStopStrings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := openSim(t, "l4", nil, "llama-3.2-1b")
		defer e.Close()
		r := Request{Model: "llama-3.2-1b", Prompt: prompt(10, 3)}
		_, whole, _, _ := timed(t, e, r)
		r.Stop = []string{strings.Fields(whole)[4]}
		_, text, _, final := timed(t, e, r)
		if before, _, _ := strings.Cut(whole, r.Stop[0]); text != before || final.Finish != FinishStop || final.StopReason != r.Stop[0] {
			t.Errorf("%q, %+v; want %q", text, final, before)
		}
	})
}

func TestSimulatedCardIsRefusedWhatDoesNotFit(t *testing.T) {
	for name, c := range map[string]struct {
		card   string
		models []string
		kv     int64
		weight int64
		want   []string
	}{
		"weights":  {"rtx3090", []string{"phi-4", "qwen3.5-27b"}, 0, 10 << 30, []string{"qwen3.5-27b", "12.93 GiB", "10.00 GiB"}},
		"KV cache": {"rtx3090", []string{"qwen3.5-27b"}, 20 << 30, 0, []string{"23.50 GiB free", "qwen3.5-27b 12.92 GiB", "20.00 GiB of KV cache were asked for", "would fit"}},
		"card":     {"rtx4000", []string{"phi-4"}, 0, 0, []string{"rtx4000", "rtx3090-unlocked", "h200"}},
	} {
		o := Options{Device: "sim:" + c.card, KVMemory: c.kv, WeightMemory: c.weight, Log: slog.New(slog.DiscardHandler)}
		for _, m := range c.models {
			o.Models = append(o.Models, ModelSpec{Name: m})
		}
		e, err := Open(t.Context(), o)
		if err == nil {
			e.Close()
		}
		for _, s := range c.want {
			if err == nil || !strings.Contains(err.Error(), s) {
				t.Errorf("%s: %v, want %q in it", name, err, s)
			}
		}
	}
	if _, err := OpenDevice("sim:rtx3090", 0, false); err == nil || !strings.Contains(err.Error(), "computes nothing") {
		t.Errorf("a device to compute with: %v", err)
	}
	// What has no weights is served by no other device.
	e, err := Open(t.Context(), Options{Device: "ref", Models: []ModelSpec{{Name: "phi-4"}}, Log: slog.New(slog.DiscardHandler)})
	if err == nil {
		e.Close()
	}
	if err == nil || !strings.Contains(err.Error(), "phi-4") || !strings.Contains(err.Error(), "--device sim:") {
		t.Errorf("ref: %v", err)
	}
}

// TestConfigsFromDisk: a folder with a config.json, with a tokenizer of its own or not, and a file that is one.
func TestConfigsFromDisk(t *testing.T) {
	raw, _ := configs.Open("qwen3-1.7b")
	dir := t.TempDir()
	file := filepath.Join(dir, "small.json")
	folder := filepath.Join(dir, "folder")
	own := filepath.Join(dir, "own")
	tokenizer, err := os.ReadFile("../models/demo/demo-bard/tokenizer.json")
	if err != nil {
		t.Fatal(err)
	}
	for path, b := range map[string][]byte{
		file: raw, filepath.Join(folder, "config.json"): raw, filepath.Join(own, "config.json"): raw, filepath.Join(own, "tokenizer.json"): tokenizer,
		filepath.Join(own, "tokenizer_config.json"): []byte(`{"eos_token": "<|eot_id|>"}`),
	} {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var specs []ModelSpec
	for _, path := range []string{file, folder, filepath.Join(own, "config.json"), own} {
		spec, err := Locate(path)
		if err != nil {
			t.Fatal(err)
		}
		if path == own {
			spec.Name = "with-tokenizer"
		}
		specs = append(specs, spec)
	}
	synctest.Test(t, func(t *testing.T) {
		e := openSim(t, "rtx4090", func(o *Options) { o.Models = specs })
		defer e.Close()
		for i, name := range []string{"small", "folder", "own", "with-tokenizer"} {
			info, err := e.Model(name)
			if err != nil || info.Simulated != "NVIDIA RTX 4090" || info.Architecture != "qwen3" || !info.HasChat {
				t.Errorf("%s: %+v, %v", name, info, err)
			}
			chat, err := e.RenderChat(name, ChatPrompt{Messages: []byte(`[{"role":"user","content":"Hello"}]`), AddGenerationPrompt: true})
			if err != nil {
				t.Fatal(err)
			}
			if plain := chat.Text == "user: Hello\nassistant: "; plain != (i == 3) {
				t.Errorf("%s: chat %q", name, chat.Text)
			}
			if ids, text, _, final := timed(t, e, Request{Model: name, Prompt: chat.IDs, MaxTokens: 900}); final.Finish != FinishStop || len(text) < len(ids) {
				t.Errorf("%s: %q, %+v", name, text, final)
			}
		}
	})
	if _, err := Open(t.Context(), Options{Device: "ref", Models: specs[:1], Log: slog.New(slog.DiscardHandler)}); err == nil || !strings.Contains(err.Error(), "small") {
		t.Errorf("ref: %v", err)
	}
}

// TestStepTimesCoverAndGrow: what the scheduler is told covers steps of all kinds, each time is positive, and more of
// anything never takes less.
func TestStepTimesCoverAndGrow(t *testing.T) {
	w, m := published(t, "rtx3090-unlocked")
	obs := stepTimes(m, kernels.F16, w.meter.Spec(), 2048)
	kinds := map[string]int{}
	for _, a := range obs {
		switch {
		case a.Work.PromptContext == 0:
			kinds["decoding"]++
		case a.Work.Context == 0:
			kinds["prompts"]++
		default:
			kinds["both"]++
		}
		if !(a.Seconds > 0.01 && a.Seconds < 3) {
			t.Errorf("%+v", a)
		}
		for _, b := range obs {
			x, y := a.Work, b.Work
			if x.Rows <= y.Rows && x.Tokens <= y.Tokens && x.Samples <= y.Samples && x.Context <= y.Context && x.PromptContext <= y.PromptContext && a.Seconds > b.Seconds*(1+1e-9) {
				t.Errorf("%+v takes %v s, and %+v takes %v s", x, a.Seconds, y, b.Seconds)
			}
		}
	}
	if kinds["decoding"] < 20 || kinds["prompts"] < 15 || kinds["both"] < 3 {
		t.Errorf("%v", kinds)
	}
}
