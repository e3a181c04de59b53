package engine_test

import (
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/openinfer-go/openinfer/engine"
	"github.com/openinfer-go/openinfer/internal/testdata"
)

// everyFamily is a small checkpoint of each architecture, and INT4 ones.
func everyFamily(t *testing.T) []engine.ModelSpec {
	var specs []engine.ModelSpec
	for _, name := range []string{
		"models/llama", "models/qwen3_tied", "models/qwen3_5", "models/phi3", "models/phi3_mini_longrope", "models/gemma4",
		"quant/llama_gptq_g32_desc_act", "quant/qwen3_awq_g32_skip", "quant/qwen3_5_ct_g128_sym", "quant/gemma4_ct_g32_asym",
	} {
		specs = append(specs, engine.ModelSpec{Name: filepath.Base(name), Path: testdata.Shared(t, "golden", name)})
	}
	dir := t.TempDir()
	small := filepath.Join(testdata.Repo(), "models", "modeltest", "testdata", "gemma3")
	for _, file := range []string{ // it has no tokenizer of its own
		filepath.Join(small, "config.json"), filepath.Join(small, "model.safetensors"),
		testdata.Shared(t, "golden", "models", "qwen3_tied", "tokenizer.json"),
	} {
		b, err := os.ReadFile(file)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, filepath.Base(file)), b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return append(specs, engine.ModelSpec{Name: "gemma3", Path: dir})
}

// A card rounds rows of activations to fp16 before a product, and ref does not. Logits of these random models have a
// standard deviation of 3; the reference library's own fp16 is off by up to 0.35 in them. Where ref has less than this
// between the logarithms of its first two tokens, the card may take the second, and what follows is not compared.
const closeMargin = 0.01

// comparison counts tokens of a card held against ref's.
type comparison struct {
	ref             *engine.Engine
	compared, close int
}

// check holds an answer against ref's, up to the first token that differs where ref is close.
func (c *comparison) check(t *testing.T, r engine.Request, got []int32) {
	t.Helper()
	top := 2
	r.Logprobs = &top
	want, margins := greedy(t, c.ref, r)
	if len(got) != len(want) {
		t.Errorf("%s: %d tokens, want %d", r.Model, len(got), len(want))
		return
	}
	for k := range want {
		c.compared++
		if got[k] == want[k] {
			continue
		}
		if margins[k] >= closeMargin {
			t.Errorf("%s, prompt of %d: token %d is %d, want %d, which is ahead by %.3f\n got %v\nwant %v",
				r.Model, len(r.Prompt), k, got[k], want[k], margins[k], got, want)
			return
		}
		t.Logf("%s, prompt of %d: token %d differs where ref's first two are %.3f apart", r.Model, len(r.Prompt), k, margins[k])
		c.close++
		return
	}
}

// done fails the test when more than one answer in ten left ref.
func (c *comparison) done(t *testing.T, answers int) {
	t.Helper()
	t.Logf("%d tokens compared; %d of %d answers left ref where it is close", c.compared, c.close, answers)
	if c.close*10 > answers {
		t.Errorf("%d of %d answers left ref where it is close: more than chance", c.close, answers)
	}
}

// together asks all at once.
func together(t *testing.T, e *engine.Engine, requests []engine.Request) [][]int32 {
	all := make([][]int32, len(requests))
	var wg sync.WaitGroup
	for i, r := range requests {
		wg.Go(func() { all[i], _, _ = answer(t, e, r) })
	}
	wg.Wait()
	return all
}

// randomIDs are of every model's vocabulary: the smallest has 96.
func randomIDs(r *rand.Rand, n int) []int32 {
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = int32(10 + r.IntN(80))
	}
	return ids
}

// Greedy tokens of the kernels for cards, run by the interpreter, are those of ref: several sequences a step, prompts cut
// into parts, steps planned while another runs, and beginnings found in the prefix cache. Asked again, they are the same.
func TestCardAnswersAsRef(t *testing.T) {
	if testing.Short() {
		t.Skip("interprets kernels")
	}
	specs := everyFamily(t)
	r := rand.New(rand.NewPCG(8, 6))
	shared := randomIDs(r, 40)
	ask := func(prompts ...[]int32) (all []engine.Request) {
		for _, p := range prompts {
			for _, spec := range specs {
				all = append(all, engine.Request{Model: spec.Name, Prompt: p, MaxTokens: 6, IgnoreEOS: true})
			}
		}
		return all
	}
	first := ask(randomIDs(r, 5), append(slices.Clone(shared), randomIDs(r, 3)...))
	second := ask(append(slices.Clone(shared), randomIDs(r, 9)...))

	off := false
	c := comparison{ref: open(t, engine.Options{Device: "ref", Models: specs, KVCacheDType: "fp16", PrefixCache: &off})}
	card := open(t, engine.Options{Device: "cuda:ptx", Models: specs, KVMemory: 16 << 20, MaxBatchedTokens: 24})
	answers := together(t, card, first)
	for i, got := range answers {
		c.check(t, first[i], got)
	}
	for i, got := range together(t, card, second) {
		c.check(t, second[i], got)
	}
	for i, got := range together(t, card, first) {
		if !slices.Equal(got, answers[i]) {
			t.Errorf("%s, asked again:\n got %v\nwant %v", first[i].Model, got, answers[i])
		}
	}
	c.done(t, len(first)+len(second))
	for _, m := range card.Stats().Models {
		if m.PrefixHits == 0 && !strings.HasPrefix(m.Name, "gemma") { // their windows have left the beginning behind
			t.Errorf("%s: the prefix cache found nothing", m.Name)
		}
	}
}

// The same in the least pool that serves these models at all: sequences of one take the blocks of another's.
func TestCardAnswersAsRefWhenPreempted(t *testing.T) {
	if testing.Short() {
		t.Skip("interprets kernels")
	}
	r := rand.New(rand.NewPCG(8, 7))
	var specs []engine.ModelSpec
	var requests []engine.Request
	for _, name := range []string{"llama", "gemma4", "qwen3_5"} {
		specs = append(specs, engine.ModelSpec{Name: name, Path: testdata.Shared(t, "golden", "models", name), MaxModelLen: 64})
	}
	for range 3 {
		for _, spec := range specs {
			requests = append(requests, engine.Request{Model: spec.Name, Prompt: randomIDs(r, 22), MaxTokens: 30, IgnoreEOS: true})
		}
	}
	c := comparison{ref: open(t, engine.Options{Device: "ref", Models: specs, KVCacheDType: "fp16"})}
	e := leastPool(t, engine.Options{Device: "cuda:ptx", Models: specs, MaxBatchedTokens: 24})
	for i, got := range together(t, e, requests) {
		c.check(t, requests[i], got)
	}
	c.done(t, len(requests))
	preemptions := int64(0)
	for _, m := range e.Stats().Models {
		t.Logf("%s: %d preemptions", m.Name, m.Preemptions)
		preemptions += m.Preemptions
	}
	if preemptions == 0 {
		t.Error("nobody was preempted")
	}
}

// leastPool opens an engine with about the smallest KV cache that it takes.
func leastPool(t *testing.T, o engine.Options) *engine.Engine {
	t.Helper()
	o.Log = slog.New(slog.NewTextHandler(io.Discard, nil))
	for o.KVMemory = 32 << 10; o.KVMemory < 64<<20; o.KVMemory += o.KVMemory / 4 {
		e, err := engine.Open(t.Context(), o)
		if err == nil {
			t.Cleanup(func() { e.Close() })
			return e
		}
		if !strings.Contains(err.Error(), "KV cache") {
			t.Fatal(err)
		}
	}
	t.Fatal("served with no pool")
	return nil
}

// greedy is answer with how far each token is ahead of the next best, in logarithms of probabilities.
func greedy(t *testing.T, e *engine.Engine, r engine.Request) (tokens []int32, margins []float32) {
	t.Helper()
	events, err := e.Generate(t.Context(), r)
	if err != nil {
		t.Fatalf("%s: %v", r.Model, err)
	}
	for ev := range events {
		for _, tok := range ev.Tokens {
			tokens, margins = append(tokens, tok.ID), append(margins, tok.Top[0].Logprob-tok.Top[1].Logprob)
		}
		if ev.Err != nil {
			t.Fatalf("%s: %v", r.Model, ev.Err)
		}
	}
	return tokens, margins
}
