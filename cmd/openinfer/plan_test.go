package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/openinfer-go/openinfer/engine"
	"github.com/openinfer-go/openinfer/models/configs"
	"github.com/openinfer-go/openinfer/models/hub/hubtest"
)

// planJSON runs plan and reads what it says.
func planJSON(t *testing.T, args ...string) *engine.Forecast {
	t.Helper()
	out, _, err := execute(t, append([]string{"plan", "--json"}, args...)...)
	if err != nil {
		t.Fatal(err)
	}
	var f engine.Forecast
	if err := json.Unmarshal([]byte(out), &f); err != nil {
		t.Fatalf("%v in\n%s", err, out)
	}
	return &f
}

func TestPlan(t *testing.T) {
	dir := t.TempDir()
	raw, _ := configs.Open("phi-4")
	if err := os.WriteFile(filepath.Join(dir, "config.json"), raw, 0o600); err != nil {
		t.Fatal(err)
	}
	html := filepath.Join(dir, "plan.html")
	args := []string{"--models", "qwen3.5-27b," + dir + ",x=" + dir, "--card", "rtx3090", "--kv-cache-dtype", "fp8-e4m3,x=int8", "--max-model-len", "x=9000",
		"--contexts", "0,4K", "--concurrency", "1,3", "--answer-tokens", "1000", "--sla-tpot", "25ms", "--max-num-seqs", "7", "--html", html}
	f := planJSON(t, args...)
	if len(f.Cards) != 1 || !slices.Equal(f.Contexts, []int{0, 4096}) || !slices.Equal(f.Concurrency, []int{1, 3}) || f.AnswerTokens != 1000 {
		t.Errorf("%+v", f)
	}
	phi := filepath.Base(dir)
	if a, b, x := f.Model("qwen3.5-27b"), f.Model(phi), f.Model("x"); a == nil || b == nil || x == nil || a.KVCacheDType != "fp8-e4m3" || x.KVCacheDType != "int8" ||
		b.Architecture != "phi3" || b.TPOT != 0.025 || b.MaxNumSeqs != 7 || f.Cards[0].Memory.Models[2].MaxModelLen != 9000 {
		t.Errorf("%+v", f.Models)
	}
	out, _, err := execute(t, append([]string{"plan"}, args...)...)
	if err != nil || !strings.Contains(out, f.Cards[0].Memory.Models[1].Name) || !strings.Contains(out, "--models qwen3.5-27b,"+dir) || strings.Contains(out, "--html") {
		t.Errorf("%v\n%s", err, out)
	}
	if b, err := os.ReadFile(html); err != nil || !strings.HasPrefix(string(b), "<!DOCTYPE html>") || !strings.Contains(string(b), "Simulated NVIDIA RTX 3090") {
		t.Errorf("%v\n%.300s", err, b)
	}
	if f := planJSON(t, "--models", "phi-4", "--device", "sim:l4"); len(f.Cards) != 1 || f.Cards[0].Card != "l4" {
		t.Errorf("--device: %+v", f.Cards)
	}
	if f := planJSON(t, "--models", "llama-3.2-1b", "--contexts", "0", "--concurrency", "1"); len(f.Cards) != len(engine.SimulatedCards()) {
		t.Errorf("%d cards", len(f.Cards))
	}
}

// TestPlanOfAHubsModel: config.json alone is fetched, and counts as floats unless --quantize makes codes of them.
func TestPlanOfAHubsModel(t *testing.T) {
	t.Setenv("HF_HUB_CACHE", t.TempDir())
	t.Setenv("HF_TOKEN", "hf_env")
	t.Setenv("HF_HUB_OFFLINE", "")
	raw, _ := configs.Open("qwen3-1.7b")
	h := hubtest.New(t, "org/small", map[string][]byte{"config.json": raw, "model.safetensors": make([]byte, 100), "tokenizer.json": []byte("{}")})
	h.Token = "hf_env"
	t.Setenv("HF_ENDPOINT", h.URL())
	few := []string{"--contexts", "0", "--concurrency", "1", "--card", "l4"}
	f := planJSON(t, append(few, "--models", "org/small,named=org/small")...)
	if got := hubtest.Bodies(h.Asked()); !slices.Equal(got, []string{"config.json"}) {
		t.Errorf("fetched %q", got)
	}
	m := f.Models[0]
	if m.Name != "org/small" || f.Models[1].Name != "named" || m.WeightBytes < 2*m.Parameters-1<<20 || !strings.HasPrefix(m.Weights, "bf16") {
		t.Errorf("%+v", f.Models)
	}
	t.Setenv("HF_HUB_OFFLINE", "1")
	f = planJSON(t, append(few, "--models", "org/small", "--quantize", "int4-g64-head8")...)
	if q := f.Models[0]; !strings.HasPrefix(q.Weights, "int4 g64, head int8 g32") || q.WeightBytes > m.WeightBytes/3 {
		t.Errorf("%+v", q)
	}
	_, _, err := execute(t, "plan", "--models", "org/other")
	if err == nil || !strings.Contains(err.Error(), "--models") || !strings.Contains(err.Error(), "org/other") || !strings.Contains(err.Error(), "HF_HUB_OFFLINE") {
		t.Errorf("offline: %v", err)
	}
}

func TestPlanSaysWhatIsWrong(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"", "--models: names no model"},
		{"--models none", "none: no embedded model"},
		{"--models ./none", "./none: no such file"},
		{"--models phi-4,phi-4", `"phi-4" is used twice`},
		{"--models x=phi-4", "phi-4 is an embedded model: it has that name and no other"},
		{"--models phi-4 --card gtx1080", `no card "gtx1080": there are rtx3090`},
		{"--models phi-4 --device cpu", `device "cpu": plans are for simulated cards`},
		{"--models phi-4 --device sim:l4 --card a10", "name the card once"},
		{"--models phi-4 --concurrency 0", `--concurrency: "0" is not a whole number`},
		{"--models phi-4 --concurrency 1,x", `--concurrency: "x"`},
		{"--models phi-4 --contexts 8M", `--contexts: "8M"`},
		{"--models phi-4 --contexts -1", `--contexts: "-1"`},
		{"--models phi-4 --contexts 999999K", "context: 1023998976 is not in"},
		{"--models phi-4 --answer-tokens 0", `--answer-tokens "0"`},
		{"--models phi-4 --kv-cache-dtype fp7", `kv-cache-dtype "fp7"`},
		{"--models phi-4 --max-model-len phi=3", `--max-model-len phi=3: no served model is named "phi"`},
		{"--models phi-4 --threads 3", "unknown flag: --threads (openinfer plan --help"},
		{"--models phi-4 --card l4 --html /no/where/x.html", "--html: open /no/where/x.html"},
		{"phi-4", `plan takes no arguments, only flags: what is "phi-4" for?`},
	} {
		if out, _, err := execute(t, append([]string{"plan"}, strings.Fields(c.args)...)...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q\n%.200s", c.args, err, c.want, out)
		}
	}
}
