package engine_test

import (
	"slices"
	"sync"
	"testing"

	"github.com/openinfer-go/openinfer/engine"
	"github.com/openinfer-go/openinfer/internal/testdata"
)

// TestCacheTypes serves models of several shapes of cache with one byte a value, each type by all its names: an answer
// is the same beside others and from the prefix cache, and the plan counts scales.
func TestCacheTypes(t *testing.T) {
	o := engine.Options{Device: "cpu", Threads: 2, KVCacheDType: "int8", Models: []engine.ModelSpec{
		{Name: "demo-tales"}, {Name: "demo-bard", KVCacheDType: "fp8"},
		{Name: "gemma4", Path: testdata.Shared(t, "golden", "models", "gemma4"), KVCacheDType: "fp8_e4m3"},
		{Name: "qwen3_5", Path: testdata.Shared(t, "golden", "models", "qwen3_5"), KVCacheDType: "fp8-e4m3"},
		{Name: "phi3", Path: testdata.Shared(t, "golden", "models", "phi3")},
	}}
	e := open(t, o)
	for i, want := range []string{"int8", "fp8-e4m3", "fp8-e4m3", "fp8-e4m3", "int8"} {
		if got := e.Models()[i].KVCacheDType; got != want {
			t.Errorf("%s has a cache of %s, want %s", o.Models[i].Name, got, want)
		}
	}
	prompt := func(seed int32) []int32 {
		ids := make([]int32, 150)
		for i := range ids {
			ids[i] = 10 + (seed*31+int32(i*i))%200
		}
		return ids
	}
	ask := func(model string, seed int32) ([]int32, int) {
		tokens, _, last := answer(t, e, engine.Request{Model: model, Prompt: prompt(seed), MaxTokens: 24, IgnoreEOS: true})
		return tokens, last.Usage.Cached
	}
	var wg sync.WaitGroup
	for _, m := range o.Models {
		wg.Go(func() {
			alone, _ := ask(m.Name, 1)
			var beside sync.WaitGroup
			for seed := range int32(3) {
				beside.Go(func() {
					again, cached := ask(m.Name, seed)
					if seed == 1 && (!slices.Equal(again, alone) || cached == 0) {
						t.Errorf("%s: %v with %d tokens from the prefix cache, first %v", m.Name, again, cached, alone)
					}
				})
			}
			beside.Wait()
		})
	}
	wg.Wait()
}
