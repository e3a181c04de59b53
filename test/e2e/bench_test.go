package e2e

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	benchserve "github.com/openinfer-go/openinfer/bench/serve"
	"github.com/openinfer-go/openinfer/engine"
)

// TestBenchServeMeasuresOurServer: the serving benchmark against a whole server on a simulated card, in virtual time. The
// server's own counters say the same as the benchmark, lengths are as asked for, and a refusal is one.
func TestBenchServeMeasuresOurServer(t *testing.T) {
	for _, backend := range []string{"openai", "openai-chat"} {
		for _, dataset := range benchserve.Datasets {
			if dataset == "custom" || dataset == "sharegpt" {
				continue
			}
			t.Run(backend+" "+dataset, func(t *testing.T) {
				dir := t.TempDir()
				synctest.Test(t, func(t *testing.T) {
					s, stop := virtual(t, engine.Options{Device: "sim:rtx3090", Models: []engine.ModelSpec{{Name: "qwen3-1.7b"}}})
					defer stop()
					c := benchserve.Default()
					c.BaseURL, c.Transport, c.Backend, c.Dataset = s.url, s.client.Transport, backend, dataset
					c.NumPrompts, c.RequestRate, c.IgnoreEOS, c.SaveResult, c.SaveDetailed, c.ResultDir, c.ResultFilename = 12, 20, true, true, true, dir, "r.json"
					c.Random.Input, c.Random.Output, c.Random.Range = 300, 20, 0.5
					c.Prefixes.Output, c.Agents.Output, c.Agents.Turns = 20, 20, 2
					before := s.metrics(t)
					var out bytes.Buffer
					if err := benchserve.Run(t.Context(), c, &out); err != nil {
						t.Fatalf("%v\n%s", err, out.String())
					}
					if !strings.Contains(out.String(), "Simulated: ") {
						t.Errorf("nothing says that this is simulated:\n%s", out.String())
					}
					r := readBench(t, filepath.Join(dir, "r.json"))
					want := 12
					if dataset == "agents" {
						want = 24
					}
					after := s.metrics(t)
					// The probes that calibrate lengths are requests, too, of one token each.
					tokens := int(after.of(t, "vllm:generation_tokens_total", "qwen3-1.7b") - before.of(t, "vllm:generation_tokens_total", "qwen3-1.7b"))
					probes := tokens - r.Output
					if r.Completed != want || r.Failed != 0 || probes < 1 || probes > 4 || r.Output != sum(r.Outputs) {
						t.Errorf("%d answered, %d failed, %d tokens, the server counts %d", r.Completed, r.Failed, r.Output, tokens)
					}
					for i, n := range r.Inputs {
						if dataset == "random" && backend == "openai" && (n < 150 || n > 450) || n == 0 || r.Outputs[i] == 0 {
							t.Errorf("request %d: %d and %d tokens", i, n, r.Outputs[i])
						}
						if r.TTFTs[i] <= 0 || r.TTFTs[i] > 1 || r.Latencies[i] < r.TTFTs[i] {
							t.Errorf("request %d: first token after %v s, last after %v s", i, r.TTFTs[i], r.Latencies[i])
						}
					}
				})
			})
		}
	}
}

// TestBenchServeCountsRefusals: a rate that the card cannot keep, with a promise on the first token.
func TestBenchServeCountsRefusals(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s, stop := virtual(t, engine.Options{Device: "sim:rtx3090", Models: []engine.ModelSpec{{Name: "qwen3.5-9b", SLA: engine.SLA{TTFT: time.Second}}}})
		defer stop()
		c := benchserve.Default()
		c.BaseURL, c.Transport = s.url, s.client.Transport
		c.NumPrompts, c.RequestRate, c.SaveResult, c.ResultDir, c.ResultFilename = 60, 30, true, dir, "r.json"
		c.Random.Input, c.Random.Output = 2000, 8
		var out bytes.Buffer
		if err := benchserve.Run(t.Context(), c, &out); err != nil {
			t.Fatalf("%v\n%s", err, out.String())
		}
		r := readBench(t, filepath.Join(dir, "r.json"))
		if r.Refused == 0 || r.Refused != r.Failed || r.Completed == 0 || r.Completed+r.Failed != 60 || !strings.Contains(out.String(), "times: status 429: ") {
			t.Errorf("%+v\n%s", r, out.String())
		}
	})
}

// benchResult is what is read of the benchmark's JSON.
type benchResult struct {
	Completed, Failed, Refused int
	Output                     int       `json:"total_output_tokens"`
	Inputs                     []int     `json:"input_lens"`
	Outputs                    []int     `json:"output_lens"`
	TTFTs                      []float64 `json:"ttfts"`
	Latencies                  []float64 `json:"latencies"`
}

func readBench(t *testing.T, path string) (r benchResult) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(b, &r)
	}
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func sum(all []int) (n int) {
	for _, v := range all {
		n += v
	}
	return n
}
