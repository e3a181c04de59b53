package serve

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/openinfer-go/openinfer/bench/load/loadtest"
)

// run measures the stub in virtual time, and returns what was printed and saved.
func run(t *testing.T, s *loadtest.Stub, change func(*Config), ctx context.Context) (text string, saved map[string]any, err error) {
	t.Helper()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		transport, url, stop := loadtest.Serve(s)
		defer stop()
		c := Default()
		c.BaseURL, c.Transport, c.SaveResult, c.ResultDir, c.ResultFilename = url, transport, true, dir, "r.json"
		change(&c)
		if ctx == nil {
			ctx = t.Context()
		} else {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(t.Context(), 3500*time.Millisecond)
			defer cancel()
		}
		var out bytes.Buffer
		err = Run(ctx, c, &out)
		text = out.String()
	})
	if b, e := os.ReadFile(filepath.Join(dir, "r.json")); e == nil {
		if e := json.Unmarshal(b, &saved); e != nil {
			t.Fatal(e)
		}
	}
	return text, saved, err
}

// answers: the first token after 1 s, 2 s, ... in turn, the others 100 ms apart. The probes before them are answered at once.
func answers(first int) func(int, loadtest.Request) loadtest.Answer {
	return func(i int, q loadtest.Request) loadtest.Answer {
		if q.MaxTokens == 1 {
			return loadtest.Answer{}
		}
		first++
		return loadtest.Answer{First: time.Duration(first) * time.Second, Gap: func(int) time.Duration { return 100 * time.Millisecond }}
	}
}

// TestArithmeticIsVLLMs: four requests at once of 11 tokens after 1, 2, 3 and 4 seconds; figures by hand, percentiles as numpy's.
func TestArithmeticIsVLLMs(t *testing.T) {
	text, saved, err := run(t, &loadtest.Stub{Usage: 2, IDs: 400, Answer: answers(0)}, func(c *Config) {
		c.NumPrompts, c.Random.Input, c.Random.Output = 4, 20, 11
		c.Goodput, c.Percentiles = []string{"ttft:2000", "tpot:100"}, "25,99"
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"duration": 5.0, "completed": 4.0, "failed": 0.0, "total_input_tokens": 80.0, "total_output_tokens": 44.0,
		"request_throughput": 0.8, "request_goodput": 0.4, "output_throughput": 8.8, "total_token_throughput": 24.8,
		"mean_ttft_ms": 2500.0, "median_ttft_ms": 2500.0, "std_ttft_ms": math.Sqrt(1.25) * 1000, "p25_ttft_ms": 1750.0, "p99_ttft_ms": 3970.0,
		"mean_tpot_ms": 100.0, "p99_tpot_ms": 100.0, "median_itl_ms": 100.0, "std_itl_ms": 0.0, "mean_e2el_ms": 3500.0, "p99_e2el_ms": 4970.0,
		"max_concurrent_requests": 4.0, "max_output_tokens_per_s": 11.0, "request_rate": "inf", "max_concurrency": nil, "model_id": "stub", "num_prompts": 4.0,
	}
	for key, v := range want {
		got, ok := saved[key]
		if f, number := v.(float64); number && ok {
			g, _ := got.(float64)
			ok = math.Abs(f-g) < 1e-3
		} else {
			ok = ok && got == v
		}
		if !ok {
			t.Errorf("%s: %v, want %v", key, got, v)
		}
	}
	for _, line := range []string{
		"============ Serving Benchmark Result ============",
		"Successful requests:                     4         ",
		"Request goodput (req/s):                 0.40      ",
		"Output token throughput (tok/s):         8.80      ",
		"---------------Time to First Token----------------",
		"P99 TTFT (ms):                           3970.00   ",
		"-----Time per Output Token (excl. 1st token)------",
		"Mean ITL (ms):                           100.00    ",
		"Median E2EL (ms):                        3500.00   ",
	} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("no line %q in\n%s", line, text)
		}
	}
}

func TestRefusalsAndFailuresAreCountedByReason(t *testing.T) {
	s := &loadtest.Stub{Usage: 2, IDs: 400, Answer: func(i int, q loadtest.Request) loadtest.Answer {
		switch {
		case q.MaxTokens == 1 || i%3 == 0:
			return loadtest.Answer{First: time.Second}
		case i%3 == 1:
			return loadtest.Answer{Status: 429, Body: `{"error":{"message":"over capacity"}}`}
		}
		return loadtest.Answer{Cut: true}
	}}
	text, saved, err := run(t, s, func(c *Config) { c.NumPrompts, c.RequestRate, c.Random.Output = 30, 10, 5 }, nil)
	if err != nil || saved["completed"] != 10.0 || saved["failed"] != 20.0 || saved["refused"] != 10.0 || saved["mean_ttft_ms"] != 1000.0 {
		t.Errorf("%v: %v", err, saved)
	}
	if !strings.Contains(text, "10 times: status 429: over capacity\n") || !strings.Contains(text, "10 times: unexpected EOF\n") {
		t.Errorf("%s", text)
	}
}

// TestCtrlCKeepsWhatIsDone: answers take 1 s, 2 s, ...; at 3.5 s three are there.
func TestCtrlCKeepsWhatIsDone(t *testing.T) {
	text, saved, err := run(t, &loadtest.Stub{Usage: 2, IDs: 400, Answer: answers(0)}, func(c *Config) { c.NumPrompts, c.Random.Output = 10, 2 }, context.Background())
	if err == nil || saved["completed"] != 3.0 || saved["cancelled"] != 7.0 || saved["failed"] != 0.0 || !strings.Contains(text, "Cut off at the end:                      7 ") {
		t.Errorf("%v: %v\n%s", err, saved, text)
	}
}

func TestEveryDatasetRuns(t *testing.T) {
	dir := t.TempDir()
	custom, sharegpt := filepath.Join(dir, "c.jsonl"), filepath.Join(dir, "s.json")
	os.WriteFile(custom, []byte(`{"prompt":"a b c","output_tokens":3}`), 0o644)
	os.WriteFile(sharegpt, []byte(`[{"conversations":[{"value":"one two three four"},{"value":"five six seven eight"}]}]`), 0o644)
	for _, backend := range Backends {
		for _, name := range Datasets {
			for _, usage := range []int{0, 2} {
				if usage == 0 && name != "custom" && name != "sharegpt" {
					continue // lengths need the server's count
				}
				text, saved, err := run(t, &loadtest.Stub{Usage: usage, Models: []string{"first", "second"}}, func(c *Config) {
					c.Backend, c.Dataset, c.NumPrompts, c.MaxConcurrency, c.NumWarmups = backend, name, 6, 2, 1
					c.DatasetPath = map[string]string{"custom": custom, "sharegpt": sharegpt}[name]
					c.SaveDetailed = true
				}, nil)
				want := 6.0
				if name == "agents" {
					want = 30
				}
				if err != nil || saved["completed"] != want || saved["model_id"] != "first" || len(saved["ttfts"].([]any)) != int(want) {
					t.Errorf("%s, %s, usage %d: %v\n%v\n%s", backend, name, usage, err, saved, text)
				}
			}
		}
	}
}

func TestBodiesCarryWhatWasAsked(t *testing.T) {
	s := &loadtest.Stub{Usage: 2, IDs: 400}
	zero := 0.0
	if _, _, err := run(t, s, func(c *Config) {
		c.NumPrompts, c.Temperature, c.ExtraBody, c.Key, c.Header = 1, &zero, `{"top_p":0.5,"sla":{"ttft_ms":300}}`, "secret", []string{"X-A = b"}
	}, nil); err != nil {
		t.Fatal(err)
	}
	all := s.Seen()
	q := all[len(all)-1]
	for _, want := range []string{`"temperature":0,`, `"top_p":0.5`, `"sla":{"ttft_ms":300}`, `"ignore_eos":true`, `"stream":true`, `"max_tokens":128`, `"continuous_usage_stats":true`} {
		if !strings.Contains(q.Body, want) {
			t.Errorf("no %s in %s", want, q.Body)
		}
	}
	if q.Header.Get("Authorization") != "Bearer secret" || q.Header.Get("X-A") != "b" {
		t.Errorf("headers %v", q.Header)
	}
}

func TestBadFlagsAreNamed(t *testing.T) {
	for want, change := range map[string]func(*Config){
		"--dataset-name x":              func(c *Config) { c.Dataset = "x" },
		"--dataset-path is missing":     func(c *Config) { c.Dataset = "custom" },
		"--dataset-path y":              func(c *Config) { c.DatasetPath = "y" },
		"--num-prompts 0":               func(c *Config) { c.NumPrompts = 0 },
		"--request-rate NaN":            func(c *Config) { c.RequestRate = math.NaN() },
		"--burstiness -1":               func(c *Config) { c.Burstiness = -1 },
		"--goodput itl:3":               func(c *Config) { c.Goodput = []string{"itl:3"} },
		"--goodput ttft:x":              func(c *Config) { c.Goodput = []string{"ttft:x"} },
		"--percentile-metrics z":        func(c *Config) { c.Metrics = "ttft,z" },
		"--metric-percentiles 101":      func(c *Config) { c.Percentiles = "50,101" },
		"--extra-body [1]":              func(c *Config) { c.ExtraBody = "[1]" },
		"--extra-body: stream":          func(c *Config) { c.ExtraBody = `{"stream":false}` },
		"--header a":                    func(c *Config) { c.Header = []string{"a"} },
		"--backend tgi":                 func(c *Config) { c.Backend = "tgi" },
		"needs one that ends in /chat":  func(c *Config) { c.Backend, c.Endpoint = "openai-chat", "/v1/completions" },
		"endpoint \"/generate\"":        func(c *Config) { c.Endpoint = "/generate" },
		"\"ftp://x\" is not an address": func(c *Config) { c.BaseURL = "ftp://x" },
		"a range ratio of 2":            func(c *Config) { c.Random.Range = 2 },
		"--save-detailed":               func(c *Config) { c.SaveResult, c.SaveDetailed = false, true },
	} {
		c := Default()
		change(&c)
		if err := Run(t.Context(), c, new(bytes.Buffer)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// ExampleConfig shows that a run with the same seed is due at the same times, stretched to the rate.
func ExampleConfig() {
	c := Default()
	c.NumPrompts, c.RequestRate, c.Seed = 4, 2, 1
	times := c.times()
	fmt.Println(len(times), times[3], fmt.Sprint(times) == fmt.Sprint(c.times()))
	// Output: 4 2s true
}
