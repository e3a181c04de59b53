// Package serve is the ordinary serving benchmark: one load at one server, and vLLM's table of what came of it, with the same
// names and the same arithmetic, in text and in JSON.
//
// It owns the choice of a dataset and of arrivals, the metrics and their printing. Requests and records are bench/load's.
//
// Where it differs from vLLM's tool: latencies are from the time a request was due, not from when it was sent (with
// --max-concurrency and a finite rate the wait for a place counts; it is shown apart, too); a chunk without a token is no
// token, so the end mark of a stream adds no gap; tokens are the server's own count.
package serve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"math"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/openinfer-go/openinfer/bench/load"
)

// Config says what is measured. Its fields are the flags of the same name.
type Config struct {
	Backend, BaseURL, Host string
	Port                   int
	Endpoint               string // "": that of Backend
	Model                  string // "": the server's first
	Key                    string // API key
	Header                 []string
	ExtraBody              string // a JSON object
	Temperature            *float64
	IgnoreEOS              bool

	Dataset, DatasetPath string
	NumPrompts           int
	Seed                 uint64
	Random               load.Random
	Prefixes             load.Prefixes
	Agents               load.Agents
	CustomOutput         int
	ShareGPTOutput       int

	RequestRate, Burstiness float64
	MaxConcurrency          int
	NumWarmups              int

	Goodput     []string // metric:milliseconds
	Metrics     string   // comma-separated
	Percentiles string

	SaveResult, SaveDetailed  bool
	ResultDir, ResultFilename string

	// Watch, if not nil, is called twice a second while the load runs.
	Watch func(Status)
	// Transport, if not nil, takes the place of the network.
	Transport http.RoundTripper
}

// The names that flags take.
var (
	Backends = []string{"openai", "vllm", "openai-chat"}
	Datasets = []string{"random", "sharegpt", "prefix", "agents", "custom"}
)

// Default is a Config with vLLM's defaults, but for our own server's address.
func Default() Config {
	return Config{
		Backend: "openai", Host: "127.0.0.1", Port: 8080, Dataset: "random", NumPrompts: 1000,
		Random:       load.Random{Input: 1024, Output: 128},
		Prefixes:     load.Prefixes{Count: 10, Prefix: 256, Suffix: 256, Output: 128, Zipf: 1},
		Agents:       load.Agents{System: 512, First: 128, Turn: 128, Output: 128, Turns: 5, Think: 2 * time.Second},
		CustomOutput: 256, RequestRate: math.Inf(1), Burstiness: 1, Metrics: "ttft,tpot,itl,e2el", Percentiles: "99",
	}
}

// Status is how a run stands.
type Status struct {
	Elapsed         time.Duration
	Requests        int // of the whole load; 0 if conversations make it uncertain
	Ended, Running  int
	Refused, Failed int
	Tokens          int64
	TokensPerSecond float64 // since the status before
	Done            bool    // the last status of a run
}

// Run measures and prints. When ctx is done it prints what there is until then and returns ctx's error.
func Run(ctx context.Context, c Config, out io.Writer) error {
	plan, err := c.check()
	if err != nil {
		return err
	}
	client, err := load.NewClient(plan.client)
	if err != nil {
		return fmt.Errorf("--base-url, --endpoint: %w", err)
	}
	defer client.Close()
	served, err := c.model(ctx, client)
	if err != nil {
		return err
	}
	client.Model = served.ID
	fmt.Fprintf(out, "Server %s%s, model %s\n", client.URL, client.Endpoint, served.ID)
	if served.Simulated != "" {
		fmt.Fprintf(out, "Simulated: the server makes its answers up in the time that a data sheet of %s allows\n", served.Simulated)
	}
	requests, note, err := c.requests(ctx, client)
	if err != nil {
		return err
	}
	fmt.Fprintln(out, note)
	if err := c.warmUp(ctx, client, requests, out); err != nil {
		return err
	}
	fmt.Fprintln(out, plan.traffic(c))
	result := c.run(ctx, client, plan, requests)
	r := newReport(c, plan, client, served, result)
	r.note = note
	r.print(out)
	if c.SaveResult {
		path, err := r.save()
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "Saved to %s\n", path)
	}
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case r.OK == 0:
		return fmt.Errorf("none of %d requests was answered: %s", len(result.Records), r.commonest())
	}
	return nil
}

// plan is what a Config comes to.
type plan struct {
	client      load.ClientOptions
	sla         map[string]time.Duration
	metrics     []string
	percentiles []float64
	closed      bool // MaxConcurrency is of a closed loop
}

func (p *plan) traffic(c Config) string {
	switch {
	case p.closed:
		return fmt.Sprintf("Traffic: closed loop, %d at once", c.MaxConcurrency)
	case math.IsInf(c.RequestRate, 1):
		return "Traffic: all requests at once"
	}
	kind := "Poisson process"
	if c.Burstiness != 1 {
		kind = fmt.Sprintf("gamma distribution, burstiness %v", c.Burstiness)
	}
	text := fmt.Sprintf("Traffic: open loop, %v requests/s (%s)", c.RequestRate, kind)
	if c.MaxConcurrency > 0 {
		text += fmt.Sprintf(", at most %d at once, the others wait and their time counts", c.MaxConcurrency)
	}
	return text
}

// check names the flag at fault.
func (c Config) check() (*plan, error) {
	p := &plan{client: load.ClientOptions{URL: c.BaseURL, Endpoint: c.Endpoint, Key: c.Key, Timeout: 6 * time.Hour, KeepText: c.SaveDetailed, Transport: c.Transport}}
	if p.client.URL == "" {
		p.client.URL = "http://" + net.JoinHostPort(c.Host, strconv.Itoa(c.Port))
	}
	if !slices.Contains(Backends, c.Backend) {
		return nil, fmt.Errorf("--backend %s: there are %s", c.Backend, strings.Join(Backends, ", "))
	}
	if p.client.Endpoint == "" {
		p.client.Endpoint = load.Completions
		if c.Backend == "openai-chat" {
			p.client.Endpoint = load.ChatCompletions
		}
	}
	if chat := strings.HasSuffix(p.client.Endpoint, "/chat/completions"); c.Backend == "openai-chat" && !chat {
		return nil, fmt.Errorf("--endpoint %s: --backend openai-chat needs one that ends in /chat/completions", c.Endpoint)
	}
	var err error
	if p.client.Header, err = headers(c.Header); err != nil {
		return nil, err
	}
	if p.client.Extra, err = c.extra(); err != nil {
		return nil, err
	}
	if err := c.checkDataset(); err != nil {
		return nil, err
	}
	switch {
	case c.NumPrompts < 1:
		return nil, fmt.Errorf("--num-prompts %d: at least 1", c.NumPrompts)
	case !(c.RequestRate > 0):
		return nil, fmt.Errorf("--request-rate %v: a number above 0, or inf", c.RequestRate)
	case !(c.Burstiness > 0):
		return nil, fmt.Errorf("--burstiness %v: a number above 0", c.Burstiness)
	case c.MaxConcurrency < 0:
		return nil, fmt.Errorf("--max-concurrency %d: at least 1", c.MaxConcurrency)
	case c.NumWarmups < 0:
		return nil, fmt.Errorf("--num-warmups %d: at least 0", c.NumWarmups)
	case c.SaveDetailed && !c.SaveResult:
		return nil, errors.New("--save-detailed: needs --save-result")
	}
	p.closed = math.IsInf(c.RequestRate, 1) && c.MaxConcurrency > 0
	if p.sla, err = goodput(c.Goodput); err != nil {
		return nil, err
	}
	for _, name := range strings.Split(c.Metrics, ",") {
		if name = strings.TrimSpace(name); !slices.ContainsFunc(metrics, func(m metric) bool { return m.key == name }) {
			var all []string
			for _, m := range metrics {
				all = append(all, m.key)
			}
			return nil, fmt.Errorf("--percentile-metrics %s: there are %s", name, strings.Join(all, ", "))
		}
		p.metrics = append(p.metrics, name)
	}
	for _, s := range strings.Split(c.Percentiles, ",") {
		v, err := strconv.ParseFloat(strings.TrimSpace(s), 64)
		if err != nil || !(v >= 0 && v <= 100) {
			return nil, fmt.Errorf("--metric-percentiles %s: not a number from 0 to 100", s)
		}
		p.percentiles = append(p.percentiles, v)
	}
	return p, nil
}

func headers(pairs []string) (http.Header, error) {
	h := http.Header{}
	for _, pair := range pairs {
		name, value, ok := strings.Cut(pair, "=")
		if name = strings.TrimSpace(name); !ok || name == "" {
			return nil, fmt.Errorf("--header %s: write KEY=VALUE", pair)
		}
		h.Set(name, strings.TrimSpace(value))
	}
	return h, nil
}

// goodput reads pairs like ttft:500, in milliseconds.
func goodput(pairs []string) (map[string]time.Duration, error) {
	sla := map[string]time.Duration{}
	for _, pair := range pairs {
		name, value, _ := strings.Cut(pair, ":")
		v, err := strconv.ParseFloat(value, 64)
		switch {
		case name != "ttft" && name != "tpot" && name != "e2el":
			return nil, fmt.Errorf("--goodput %s: write ttft:N, tpot:N or e2el:N, in milliseconds", pair)
		case err != nil || !(v > 0) || math.IsInf(v, 1):
			return nil, fmt.Errorf("--goodput %s: %q is not a number of milliseconds above 0", pair, value)
		}
		sla[name] = time.Duration(v * float64(time.Millisecond))
	}
	return sla, nil
}

// model asks the server for its models. A model that was named need not be listed: the server itself says so then.
func (c Config) model(ctx context.Context, client *load.Client) (load.ServedModel, error) {
	models, err := client.Models(ctx)
	if ctx.Err() != nil {
		return load.ServedModel{}, ctx.Err()
	}
	if c.Model != "" {
		for _, m := range models {
			if m.ID == c.Model {
				return m, nil
			}
		}
		return load.ServedModel{ID: c.Model}, nil
	}
	if err != nil {
		return load.ServedModel{}, fmt.Errorf("asking for the models (--model names one): %w", err)
	}
	return load.Pick(models, "")
}

func (c Config) warmUp(ctx context.Context, client *load.Client, requests iter.Seq[*load.Request], out io.Writer) error {
	if c.NumWarmups == 0 {
		return nil
	}
	result := load.Run(ctx, client, load.First(c.NumWarmups, alone(requests)), load.Options{Concurrency: max(1, c.MaxConcurrency)})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	s := load.Summarize(result.Records)
	if s.OK == 0 {
		return fmt.Errorf("--num-warmups %d: none was answered: %v", c.NumWarmups, slices.Sorted(maps.Keys(s.Reasons)))
	}
	fmt.Fprintf(out, "Warmed up with %d requests\n", s.OK)
	return nil
}

// alone are requests without the turns behind them.
func alone(requests iter.Seq[*load.Request]) iter.Seq[*load.Request] {
	return func(yield func(*load.Request) bool) {
		for q := range requests {
			first := *q
			first.Then = nil
			if !yield(&first) {
				return
			}
		}
	}
}

// run sends the load and keeps Watch up to date.
func (c Config) run(ctx context.Context, client *load.Client, p *plan, requests iter.Seq[*load.Request]) *load.Result {
	requests = load.First(c.NumPrompts, requests)
	o := load.Options{MaxConcurrency: c.MaxConcurrency, Live: new(load.Live)}
	if p.closed {
		o.Concurrency, o.MaxConcurrency = c.MaxConcurrency, 0
	} else {
		requests = load.At(requests, slices.Values(c.times()))
	}
	if c.Watch != nil {
		stop, stopped := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(stopped)
			c.watch(o.Live, stop)
		}()
		defer func() { close(stop); <-stopped }()
	}
	return load.Run(ctx, client, requests, o)
}

// times are when requests are due. As in vLLM's tool they are stretched so that the last is due when the rate says, and
// runs with different seeds last as long.
func (c Config) times() []time.Duration {
	times := slices.Collect(load.First(c.NumPrompts, load.Gamma(c.Seed, c.RequestRate, c.Burstiness)))
	if last := times[len(times)-1]; last > 0 && !math.IsInf(c.Burstiness, 1) {
		stretch := float64(c.NumPrompts) / c.RequestRate / last.Seconds()
		for i := range times {
			times[i] = time.Duration(math.Round(float64(times[i]) * stretch))
		}
	}
	return times
}

func (c Config) watch(l *load.Live, stop <-chan struct{}) {
	all := c.NumPrompts
	if c.Dataset == "agents" {
		all *= c.Agents.Turns
	}
	start, last, tokens := time.Now(), time.Now(), int64(0)
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for done := false; !done; {
		select {
		case <-tick.C:
		case <-stop:
			done = true
		}
		now, sum := time.Now(), l.Tokens.Load()
		s := Status{Elapsed: now.Sub(start), Requests: all, Running: int(l.Running.Load()), Refused: int(l.Refused.Load()), Failed: int(l.Failed.Load()), Tokens: sum, Done: done}
		s.Ended = int(l.OK.Load()) + s.Refused + s.Failed
		if d := now.Sub(last).Seconds(); d > 0 {
			s.TokensPerSecond = float64(sum-tokens) / d
		}
		last, tokens = now, sum
		c.Watch(s)
	}
}
