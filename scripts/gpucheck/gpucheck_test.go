package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/openinfer-go/openinfer/kernels/cuda/driver"
	"github.com/openinfer-go/openinfer/kernels/cuda/ptx"
	"github.com/openinfer-go/openinfer/scripts/kernelreport/cost"
)

const tinyLlama = `{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 256, "hidden_size": 128, "intermediate_size": 256,
"num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 64, "max_position_embeddings": 512, "rms_norm_eps": 1e-5,
"rope_theta": 10000.0, "tie_word_embeddings": true, "hidden_act": "silu", "eos_token_id": 1, "torch_dtype": "bfloat16"}`

const tinyQwen = `{"architectures": ["Qwen3_5ForConditionalGeneration"], "model_type": "qwen3_5", "tie_word_embeddings": false, "text_config": {
"model_type": "qwen3_5_text", "dtype": "bfloat16", "vocab_size": 256, "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2,
"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 64, "full_attention_interval": 2, "layer_types": ["linear_attention", "full_attention"],
"linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_num_key_heads": 1, "linear_num_value_heads": 2,
"attn_output_gate": true, "attention_bias": false, "hidden_act": "silu", "rms_norm_eps": 1e-6, "mamba_ssm_dtype": "float32",
"max_position_embeddings": 512, "eos_token_id": 1, "tie_word_embeddings": false,
"rope_parameters": {"partial_rotary_factor": 0.5, "rope_theta": 10000.0, "rope_type": "default"}}}`

func tinyPlan() plan {
	return plan{models: []model{{"tiny-llama", []byte(tinyLlama)}, {"tiny-qwen", []byte(tinyQwen)}},
		steps:    []stepShape{{"decode, 1 stream", cost.Decoding(1, 20)}, {"decode, 3 streams", cost.Decoding(3, 20)}, {"prefill, 33 tokens", []cost.Row{{N: 33}}}},
		headBits: 8, copyBytes: 16 * 1003, cold: 1, loops: 2, blocks: 2, list: 1, budget: 1}
}

// The rehearsal: every part of the check on the interpreter, with shapes that it has the time for.
func TestCheckHasAllRows(t *testing.T) {
	p := tinyPlan()
	asked := -1
	r, err := check(driver.NewInterpreter(1), 0, p, func(card int) error { asked = card; return nil })
	if err != nil {
		t.Fatal(err)
	}
	if asked != 0 || r.Conformance != "passed" {
		t.Errorf("conformance of card %d: %s", asked, r.Conformance)
	}
	out := filepath.Join(t.TempDir(), "r.json")
	var table bytes.Buffer
	if err := write(r, &table, out); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	var got report
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	positive := func(what string, v float64) {
		t.Helper()
		if !(v > 0) || math.IsInf(v, 0) {
			t.Errorf("%s: %v", what, v)
		}
	}
	for _, name := range []string{"copy", "read", "mma, sums in fp32", "mma, sums in fp16"} {
		positive(name, got.rate(name))
		if !strings.Contains(table.String(), "\n| "+name+" | the card |") {
			t.Errorf("the table has no %s", name)
		}
	}
	tokens := map[string]int{"decode, 1 stream": 1, "decode, 3 streams": 3, "prefill, 33 tokens": 33}
	if len(got.Steps) != len(p.models)*len(p.steps) {
		t.Errorf("%d steps", len(got.Steps))
	}
	for _, s := range got.Steps {
		positive(s.Model+" "+s.Step, s.Seconds)
		positive(s.Model+" "+s.Step+" predicted", s.Predicted)
		if s.Tokens != tokens[s.Step] {
			t.Errorf("%s: %d tokens", s.Step, s.Tokens)
		}
		if s.Graphs == 0 {
			t.Errorf("%s, %s: no graph was launched", s.Model, s.Step)
		}
		if !strings.Contains(table.String(), "| **"+s.Step+"** | "+s.Model+" |") {
			t.Errorf("the table has no %s, %s", s.Model, s.Step)
		}
	}
	// What each step must have launched, and the time of a step as the sum of its rows.
	want := map[string][]string{
		"tiny-llama": {"linear_", "attention_f8_64"},
		"tiny-qwen":  {"linear_", "attention_f8_64", "delta_"},
	}
	apart := map[string][]string{ // what a decode's products do in their own launch
		"tiny-llama": {"rms_norm", "gate_mul_silu"},
		"tiny-qwen":  {"rms_norm", "gate_mul_silu", "conv_"},
	}
	for _, s := range got.Steps {
		predicted := 0.0
		seen := ""
		for _, k := range got.Kernels {
			if k.Model != s.Model || k.Step != s.Step {
				continue
			}
			positive(k.Kernel, k.Seconds)
			positive(k.Kernel+" predicted", k.Predicted)
			predicted += float64(k.Launches) * k.Predicted
			seen += "\n" + k.Kernel
			if !strings.Contains(table.String(), "| "+k.Kernel+" | "+k.Model+", "+k.Step+", ") {
				t.Errorf("the table has no %s of %s, %s", k.Kernel, k.Model, k.Step)
			}
		}
		names := want[s.Model]
		switch {
		case s.Tokens == 1:
			names = append(slices.Clone(names), "linear_decode_w4_row") // which norms its row
		case s.Tokens <= 16:
			names = append(slices.Clone(names), "rms_norm")
		default:
			names = append(slices.Clone(names), apart[s.Model]...)
		}
		for _, name := range names {
			if !strings.Contains(seen, "\n"+name) {
				t.Errorf("%s, %s: no %s among%s", s.Model, s.Step, name, seen)
			}
		}
		if math.Abs(predicted-s.Predicted) > 1e-9 {
			t.Errorf("%s, %s: kernels are predicted %v s, the step %v s", s.Model, s.Step, predicted, s.Predicted)
		}
	}
	rows := strings.Count(table.String(), "\n|") - 2 // head and rule
	if want := 1 + len(got.Rates) + len(got.Steps) + len(got.Kernels); rows != want {
		t.Errorf("the table has %d rows, the JSON %d", rows, want)
	}
}

// What a rate is divided by is what its kernel does.
func TestRatesCountTheirWork(t *testing.T) {
	p := tinyPlan()
	drv := driver.NewInterpreter(1)
	counters := map[string]ptx.Counters{}
	drv.Launched = func(kernel string, _, _ [3]int, r *ptx.Result) { counters[kernel] = r.Counters }
	if _, err := measureRates(drv, 0, p); err != nil {
		t.Fatal(err)
	}
	threads := uint64(p.blocks * 256)
	for _, c := range []struct {
		kernel              string
		loaded, stored, mma uint64
	}{
		{"rate_copy", uint64(p.copyBytes), uint64(p.copyBytes), 0},
		{"rate_read", uint64(p.copyBytes), threads * 4, 0},
		{"rate_mma_f32", 0, threads * 4, threads / 32 * uint64(p.loops) * 8},
		{"rate_mma_f16", 0, threads * 4, threads / 32 * uint64(p.loops) * 8},
	} {
		got, mma := counters[c.kernel], uint64(0)
		for _, n := range got.MMAByKind {
			mma += n
		}
		if got.GlobalLoads.Bytes != c.loaded || got.GlobalStores.Bytes != c.stored || mma != c.mma {
			t.Errorf("%s: %d bytes loaded, %d stored, %d mma; want %+v", c.kernel, got.GlobalLoads.Bytes, got.GlobalStores.Bytes, mma, c)
		}
	}
}

func TestWhatFailsIsReportedWithTheRest(t *testing.T) {
	p := tinyPlan()
	p.models = []model{{"broken", []byte(`{"model_type": "llama"}`)}}
	r, err := check(driver.NewInterpreter(1), 0, p, func(int) error { return errors.New("exit status 1") })
	if err == nil || !strings.Contains(err.Error(), "conformance: exit status 1") || !strings.Contains(err.Error(), "broken: counting: ") {
		t.Fatalf("error: %v", err)
	}
	if r.Conformed || len(r.Rates) != 4 {
		t.Errorf("conformed %v, %d rates", r.Conformed, len(r.Rates))
	}
}

func TestNoSuchCard(t *testing.T) {
	if _, err := describe(driver.NewInterpreter(1), 1); err == nil || !strings.Contains(missing(err).Error(), "nothing was checked: no card 1: the driver has 1") {
		t.Errorf("%v", err)
	}
}

func TestRatesAreOfTheirSource(t *testing.T) {
	src, err := os.ReadFile("rates.cu")
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(src)
	if first, _, _ := bytes.Cut(ratesPTX, []byte("\n")); string(first) != "// source sha256 "+hex.EncodeToString(sum[:]) {
		t.Error("rates.ptx is compiled from another source: run `make cuda`")
	}
}
