package e2e

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/openinfer-go/openinfer/api"
	"github.com/openinfer-go/openinfer/engine"
	"github.com/openinfer-go/openinfer/internal/testdata"
)

// families are the small checkpoints of every architecture, floating point and INT4, one model each.
func families(t testing.TB) []engine.ModelSpec {
	var specs []engine.ModelSpec
	for _, name := range []string{
		"models/llama", "models/qwen3_tied", "models/qwen3_5", "models/qwen3_5_mtp_vision", "models/phi3", "models/phi3_mini_longrope",
		"models/gemma4", "models/gemma4_multimodal",
		"quant/llama_gptq_g32_desc_act", "quant/qwen3_awq_g32_skip", "quant/qwen3_5_ct_g128_sym", "quant/phi3_mini_ct_g32_asym", "quant/gemma4_ct_g32_asym",
	} {
		dir := testdata.Shared(t, "golden/"+name)
		if _, err := os.Stat(dir); err != nil {
			t.Fatal(err)
		}
		specs = append(specs, engine.ModelSpec{Name: filepath.Base(name), Path: dir})
	}
	for _, name := range []string{"gemma3", "qwen2", "mistral_window"} {
		dir := t.TempDir() // these have no tokenizer of their own
		for _, file := range []string{
			"../../models/modeltest/testdata/" + name + "/config.json", "../../models/modeltest/testdata/" + name + "/model.safetensors",
			testdata.Shared(t, "golden/models/qwen3_tied") + "/tokenizer.json",
		} {
			b, err := os.ReadFile(file)
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, filepath.Base(file)), b, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		specs = append(specs, engine.ModelSpec{Name: name, Path: dir})
	}
	return specs
}

// mixed is n requests over all models, greedy and sampled, streamed and not, short and long: some
// cross the length at which a model changes its regime, leave a window behind, or share a beginning
// with others.
func mixed(specs []engine.ModelSpec, n, tokens int) []body {
	r := rand.New(rand.NewPCG(4, 5))
	prompt := func(n int) []int32 {
		ids := make([]int32, n)
		for i := range ids {
			ids[i] = int32(10 + r.IntN(80)) // the smallest vocabulary has 96
		}
		return ids
	}
	shared := prompt(70)
	var all []body
	for i := range n {
		var ids []int32
		switch i / len(specs) % 4 {
		case 0:
			ids = prompt(1 + r.IntN(20))
		case 1:
			ids = append(append(ids, shared...), prompt(1+r.IntN(10))...)
		case 2:
			ids = append(append(ids, shared...), prompt(128-len(shared)-r.IntN(tokens))...) // 128: where the small longrope model changes
		case 3:
			ids = prompt(130 + r.IntN(80))
		}
		b := body{"model": specs[i%len(specs)].Name, "prompt": ids, "max_tokens": tokens, "stream": i%2 == 0, "ignore_eos": true, "return_token_ids": true}
		switch i % 3 {
		case 0:
			b["temperature"] = 0
		case 1:
			b["temperature"], b["seed"] = 0.9, i
		case 2:
			b["temperature"], b["seed"], b["top_p"], b["repetition_penalty"] = 1.2, i, 0.95, 1.1
		}
		all = append(all, b)
	}
	return all
}

// TestFamiliesTogetherEqualFamiliesAlone: every architecture beside the others in one process, 40
// streams at a time; each answer is its solo answer. Small steps cut prompts, and a small pool preempts.
func TestFamiliesTogetherEqualFamiliesAlone(t *testing.T) {
	needsTime(t)
	specs := families(t)
	off := false
	roomy := serve(t, engine.Options{Models: specs, Exact: true, KVMemory: 256 << 20, PrefixCache: &off}, api.Options{})
	requests := mixed(specs, 40, many(8, 16, 40))
	solo := alone(t, roomy, requests, nil)
	together(t, roomy, requests, solo, nil)
	roomy.rest(t)

	tight := serve(t, engine.Options{Models: specs, Exact: true, KVMemory: 6 << 20, MaxBatchedTokens: 48}, api.Options{})
	together(t, tight, requests, solo, nil)
	together(t, tight, requests, solo, nil) // now with what the prefix cache kept
	m := tight.rest(t)
	preemptions, hits := 0.0, 0.0
	for _, s := range specs {
		preemptions += m.of(t, "vllm:num_preemptions_total", s.Name)
		hits += m.of(t, "vllm:prefix_cache_hits_total", s.Name)
	}
	if preemptions == 0 {
		t.Error("nothing was preempted: the pool is too large for this test")
	}
	if hits == 0 {
		t.Error("the prefix cache found nothing")
	}
	t.Logf("%d streams over %d models: %v preemptions, %v tokens found in the prefix cache", len(requests), len(specs), preemptions, hits)
}
