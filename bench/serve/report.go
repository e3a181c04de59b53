package serve

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/openinfer-go/openinfer/bench/load"
)

// metric is one that percentiles are taken of, with vLLM's names of it.
type metric struct {
	key, name, title string
	of               func(*load.Summary) load.Distribution
}

var metrics = []metric{
	{"ttft", "TTFT", "Time to First Token", func(s *load.Summary) load.Distribution { return s.TTFT }},
	{"tpot", "TPOT", "Time per Output Token (excl. 1st token)", func(s *load.Summary) load.Distribution { return s.TPOT }},
	{"itl", "ITL", "Inter-token Latency", func(s *load.Summary) load.Distribution { return s.ITL }},
	{"e2el", "E2EL", "End-to-end Latency", func(s *load.Summary) load.Distribution { return s.E2EL }},
	{"client_queue_time", "Client Queue Time", "Client-side Queueing", func(s *load.Summary) load.Distribution { return s.Queue }},
}

// report is what a run came to.
type report struct {
	Config
	load.Summary
	plan   *plan
	model  load.ServedModel
	result *load.Result
	note   string // about lengths
	date   time.Time

	good                    int // requests within the goodput's latencies
	peakTokens, peakRunning int // in one second; at once
}

func newReport(c Config, p *plan, client *load.Client, m load.ServedModel, result *load.Result) *report {
	r := &report{Config: c, Summary: load.Summarize(result.Records), plan: p, model: m, result: result, date: result.Begin}
	r.BaseURL, r.Endpoint = client.URL, client.Endpoint
	sla := load.SLA{TTFT: p.sla["ttft"], TPOT: p.sla["tpot"], E2EL: p.sla["e2el"]}
	for _, q := range result.Records {
		if q.Meets(sla) {
			r.good++
		}
	}
	for _, point := range result.Series(time.Second) {
		r.peakTokens, r.peakRunning = max(r.peakTokens, point.Tokens), max(r.peakRunning, point.Most)
	}
	return r
}

// perSecond is n over the length of the run.
func (r *report) perSecond(n int) float64 {
	if r.result.Length <= 0 {
		return 0
	}
	return float64(n) / r.result.Length.Seconds()
}

// shown are the metrics to print: those asked for, and the wait for a place where there could be one.
func (r *report) shown() []metric {
	return slices.DeleteFunc(slices.Clone(metrics), func(m metric) bool {
		queues := m.key == "client_queue_time" && r.MaxConcurrency > 0 && !r.plan.closed
		return !slices.Contains(r.plan.metrics, m.key) && !queues
	})
}

func (r *report) print(w io.Writer) {
	const width = 50
	title := func(s string, fill string) {
		left := max(0, width-len(s)) / 2
		fmt.Fprintln(w, strings.Repeat(fill, left)+s+strings.Repeat(fill, max(0, width-len(s)-left)))
	}
	count := func(name string, n int) { fmt.Fprintf(w, "%-40s %-10d\n", name, n) }
	value := func(name string, v float64) { fmt.Fprintf(w, "%-40s %-10.2f\n", name, v) }
	title(" Serving Benchmark Result ", "=")
	count("Successful requests:", r.OK)
	count("Failed requests:", r.Refused+r.Failed)
	if r.Refused > 0 {
		count("  of them refused (429, 503):", r.Refused)
	}
	if r.Cancelled > 0 {
		count("Cut off at the end:", r.Cancelled)
	}
	if r.MaxConcurrency > 0 {
		count("Maximum request concurrency:", r.MaxConcurrency)
	}
	if !math.IsInf(r.RequestRate, 1) {
		value("Request rate configured (RPS):", r.RequestRate)
	}
	value("Benchmark duration (s):", r.result.Length.Seconds())
	count("Total input tokens:", r.PromptTokens)
	count("Total generated tokens:", r.Tokens)
	value("Request throughput (req/s):", r.perSecond(r.OK))
	if len(r.plan.sla) > 0 {
		value("Request goodput (req/s):", r.perSecond(r.good))
	}
	value("Output token throughput (tok/s):", r.perSecond(r.Tokens))
	value("Peak output token throughput (tok/s):", float64(r.peakTokens))
	value("Peak concurrent requests:", float64(r.peakRunning))
	value("Total token throughput (tok/s):", r.perSecond(r.PromptTokens+r.Tokens))
	for _, m := range r.shown() {
		d := m.of(&r.Summary)
		title(m.title, "-")
		value("Mean "+m.name+" (ms):", ms(d.Mean()))
		value("Median "+m.name+" (ms):", ms(d.Percentile(50)))
		for _, p := range r.plan.percentiles {
			value("P"+number(p)+" "+m.name+" (ms):", ms(d.Percentile(p)))
		}
	}
	fmt.Fprintln(w, strings.Repeat("=", width))
	for _, reason := range r.reasons() {
		fmt.Fprintf(w, "%d times: %s\n", r.Reasons[reason], reason)
	}
	if r.Resent > 0 {
		fmt.Fprintf(w, "%d requests met a connection that the server had closed, and were sent again on another\n", r.Resent)
	}
	fmt.Fprintf(w, "Load generator: %v\n", r.result.Generator)
	if doubt := r.result.Generator.Doubt; doubt != "" {
		fmt.Fprintf(w, "WARNING: %s\n", doubt)
	}
}

// reasons of refusals and failures, the commonest first, ten at most.
func (r *report) reasons() []string {
	all := slices.SortedFunc(maps.Keys(r.Reasons), func(a, b string) int {
		return cmp.Or(r.Reasons[b]-r.Reasons[a], strings.Compare(a, b))
	})
	return all[:min(len(all), 10)]
}

func (r *report) commonest() string {
	if all := r.reasons(); len(all) > 0 {
		return all[0]
	}
	return "the run ended first"
}

// json are vLLM's keys, and ours behind them.
func (r *report) json() map[string]any {
	out := map[string]any{
		"date": r.date.Format("20060102-150405"), "endpoint_type": r.Backend, "backend": r.Backend, "label": nil,
		"model_id": r.model.ID, "tokenizer_id": nil, "num_prompts": r.NumPrompts,
		"request_rate": finite(r.RequestRate), "burstiness": finite(r.Burstiness), "max_concurrency": orNull(r.MaxConcurrency),
		"duration": r.result.Length.Seconds(), "completed": r.OK, "failed": r.Refused + r.Failed,
		"total_input_tokens": r.PromptTokens, "total_output_tokens": r.Tokens,
		"request_throughput": r.perSecond(r.OK), "request_goodput": nil, "output_throughput": r.perSecond(r.Tokens),
		"total_token_throughput":  r.perSecond(r.PromptTokens + r.Tokens),
		"max_output_tokens_per_s": float64(r.peakTokens), "max_concurrent_requests": r.peakRunning,

		"refused": r.Refused, "cancelled": r.Cancelled, "resent": r.Resent, "cached_input_tokens": r.CachedTokens, "reasons": r.Reasons,
		"base_url": r.BaseURL, "endpoint": r.Endpoint, "dataset": r.note, "seed": r.Seed, "simulated": r.model.Simulated, "latencies_from": "due",
		"generator": map[string]any{
			"late_p50_ms": ms(r.result.Generator.Late.Percentile(50)), "late_p99_ms": ms(r.result.Generator.Late.Percentile(99)),
			"wake_p50_ms": ms(r.result.Generator.Wake.Percentile(50)), "wake_p99_ms": ms(r.result.Generator.Wake.Percentile(99)),
			"cpu_s": r.result.Generator.CPU.Seconds(), "doubt": r.result.Generator.Doubt,
		},
	}
	if len(r.plan.sla) > 0 {
		out["request_goodput"] = r.perSecond(r.good)
	}
	add := func(key string, d load.Distribution) {
		out["mean_"+key+"_ms"], out["median_"+key+"_ms"], out["std_"+key+"_ms"] = ms(d.Mean()), ms(d.Percentile(50)), ms(d.Std())
		for _, p := range r.plan.percentiles {
			out["p"+number(p)+"_"+key+"_ms"] = ms(d.Percentile(p))
		}
	}
	for _, m := range r.shown() {
		add(m.key, m.of(&r.Summary))
	}
	add("ttft_from_sent", r.SentTTFT)
	add("e2el_from_sent", r.SentE2EL)
	if r.SaveDetailed {
		r.details(out)
	}
	return out
}

// details are lists with an element a request.
func (r *report) details(out map[string]any) {
	n := len(r.result.Records)
	inputs, outputs, texts, errs, outcomes := make([]int, n), make([]int, n), make([]string, n), make([]string, n), make([]string, n)
	starts, dues, queues, ttfts, latencies, itls := make([]float64, n), make([]float64, n), make([]float64, n), make([]float64, n), make([]float64, n), make([][]float64, n)
	for i, q := range r.result.Records {
		inputs[i], outputs[i], texts[i], errs[i], outcomes[i] = q.PromptTokens, q.Tokens, q.Text, q.Reason, q.Outcome.String()
		starts[i], dues[i], queues[i], itls[i] = q.Sent.Seconds(), q.Due.Seconds(), q.Queue().Seconds(), []float64{}
		if len(q.Chunks) > 0 {
			ttfts[i], latencies[i] = q.TTFT().Seconds(), q.E2EL().Seconds()
		}
		for k := 1; k < len(q.Chunks); k++ {
			itls[i] = append(itls[i], (q.Chunks[k].At - q.Chunks[k-1].At).Seconds())
		}
	}
	maps.Copy(out, map[string]any{
		"input_lens": inputs, "output_lens": outputs, "generated_texts": texts, "errors": errs, "start_times": starts,
		"queue_times": queues, "ttfts": ttfts, "itls": itls, "latencies": latencies, "due_times": dues, "outcomes": outcomes,
	})
}

// save writes the JSON, whole or not at all, and returns where.
func (r *report) save() (string, error) {
	path := r.ResultFilename
	if path == "" {
		concurrency := ""
		if r.MaxConcurrency > 0 {
			concurrency = fmt.Sprintf("-concurrency%d", r.MaxConcurrency)
		}
		model := r.model.ID[strings.LastIndex(r.model.ID, "/")+1:]
		path = fmt.Sprintf("%s-%vqps%s-%s-%s.json", r.Backend, finite(r.RequestRate), concurrency, model, r.date.Format("20060102-150405"))
	}
	if r.ResultDir != "" {
		if err := os.MkdirAll(r.ResultDir, 0o755); err != nil {
			return "", fmt.Errorf("--result-dir: %w", err)
		}
		path = filepath.Join(r.ResultDir, path)
	}
	b, err := json.Marshal(r.json())
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(path+".part", append(b, '\n'), 0o644); err != nil {
		return "", fmt.Errorf("--result-filename: %w", err)
	}
	if err := os.Rename(path+".part", path); err != nil {
		return "", fmt.Errorf("--result-filename: %w", err)
	}
	return path, nil
}

// number is a percentile as vLLM writes it.
func number(p float64) string { return strconv.FormatFloat(p, 'f', -1, 64) }

// finite is v, or its name if JSON has no number for it.
func finite(v float64) any {
	if math.IsInf(v, 1) {
		return "inf"
	}
	return v
}

func orNull(n int) any {
	if n == 0 {
		return nil
	}
	return n
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
