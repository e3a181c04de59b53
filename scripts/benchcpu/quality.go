//go:build linux && cgo

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// quality has llama.cpp write its log probabilities over text and compares both with float32: the
// benchmark in test/quality does the sums.
func quality(o options) (string, error) {
	dir, err := os.MkdirTemp("", "benchcpu")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	base := filepath.Join(dir, "rival.bin")
	perplexity := exec.Command(filepath.Join(o.llama, "llama-perplexity"), "-m", o.smol, "-f", o.text, "-c", "256", "-b", "256", "-ub", "256",
		"--chunks", "16", "-t", fmt.Sprint(o.threads), "--kl-divergence-base", base)
	if out, err := perplexity.CombinedOutput(); err != nil {
		return "", fmt.Errorf("llama-perplexity: %w\n%s", err, out)
	}
	bench := exec.Command("go", "test", "-run", "^$", "-bench", "Divergence", "-benchtime", "1x", "./test/quality")
	bench.Env = append(os.Environ(), "OPENINFER_QUALITY_MODEL="+o.smol, "OPENINFER_QUALITY_RIVAL="+base)
	out, err := bench.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("test/quality: %w\n%s", err, out)
	}
	for line := range strings.Lines(string(out)) {
		if strings.HasPrefix(line, "BenchmarkDivergence") {
			return qualityTable(o, strings.Fields(line)), nil
		}
	}
	return "", fmt.Errorf("test/quality printed no result:\n%s", out)
}

// qualityTable reads a benchmark's line: values, each before its unit.
func qualityTable(o options, fields []string) string {
	value := map[string]string{}
	for i := 2; i+1 < len(fields); i += 2 {
		value[fields[i+1]] = fields[i]
	}
	return fmt.Sprintf(`
## Quality

Mean KL divergence of the next-token distribution from that of the same weights with float32 activations and KV cache,
SmolLM2 Q4_1, %s tokens of English text (%s), each with at least 128 tokens before it.

| | mean KL, nats | most likely token is the same |
|---|---|---|
| OpenInfer, int8 activations, fp16 KV cache | %s | %s %% |
| llama.cpp | %s | %s %% |
`, value["tokens"], filepath.Base(o.text), value["nats/ours"], value["%same-top/ours"], value["nats/llama.cpp"], value["%same-top/llama.cpp"])
}
