package matrix

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/openinfer-go/openinfer/bench/load/loadtest"
)

// server is a stub with more endpoints, and a bound on how many answers it gives at once (0: none): more wait.
type server struct {
	loadtest.Stub
	metrics string
	atOnce  int
	places  chan struct{}
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/metrics":
		io.WriteString(w, s.metrics)
		return
	case "/version":
		io.WriteString(w, `{"version":"1.2.3"}`)
		return
	case "/v1/completions":
		if s.places != nil {
			select {
			case s.places <- struct{}{}:
				defer func() { <-s.places }()
			case <-r.Context().Done():
				return
			}
		}
	}
	s.Stub.ServeHTTP(w, r)
}

// steady: a prompt takes 1 ms a token, unless its like was seen before, then 5 ms; tokens come every 20 ms.
func steady() func(int, loadtest.Request) loadtest.Answer {
	seen := map[string]bool{}
	return func(_ int, q loadtest.Request) loadtest.Answer {
		first := time.Duration(q.PromptTokens) * time.Millisecond
		if seen[string(q.Prompt)] {
			first = 5 * time.Millisecond
		}
		seen[string(q.Prompt)] = true
		return loadtest.Answer{First: first, Gap: func(int) time.Duration { return 20 * time.Millisecond }}
	}
}

const cacheOf2000 = `# TYPE vllm:cache_config_info gauge
vllm:cache_config_info{block_size="16",num_gpu_blocks="9",model_name="another"} 1
vllm:cache_config_info{block_size="16",num_gpu_blocks="125",cache_dtype="fp8",model_name="stub"} 1
# TYPE openinfer_simulated gauge
openinfer_simulated{card="a card",model_name="stub"} 1
`

func measure(t *testing.T, s *server, change func(*Config)) (r *Result, err error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		if s.atOnce > 0 {
			s.places = make(chan struct{}, s.atOnce) // of this bubble
		}
		transport, url, stop := loadtest.Serve(s)
		defer stop()
		c := Config{
			BaseURL: url, Transport: transport, Contexts: []int{100, 500}, DecodeContexts: []int{0, 400}, Concurrency: []int{4, 1, 2},
			CellTime: 2 * time.Second, MaxTokens: 200,
		}
		change(&c)
		r, err = Run(t.Context(), c)
	})
	return r, err
}

func near(t *testing.T, what string, got, want, by float64) {
	t.Helper()
	if math.Abs(got-want) > by {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// TestCells: every figure of a server whose times are known.
func TestCells(t *testing.T) {
	s := &server{Stub: loadtest.Stub{Usage: 2, IDs: 400, Answer: steady()}, metrics: cacheOf2000}
	var lines bytes.Buffer
	r, err := measure(t, s, func(c *Config) { c.Watch = NewScreen(&lines, nil, nil).Show })
	if err != nil {
		t.Fatal(err)
	}
	if r.Server.CacheTokens != 2000 || r.Server.CacheDType != "fp8" || r.Server.Simulated != "a card" || r.Server.Version != "1.2.3" || r.Server.MaxModelLen != 4096 {
		t.Errorf("%+v", r.Server)
	}
	if len(r.Cells) != 8 || r.Count(Measured) != 7 || r.Count(OverCapacity) != 1 {
		t.Fatalf("%+v", r.Cells)
	}
	for _, n := range []int{100, 500} {
		c := r.Find(Prefill, n, 1)
		near(t, "prefill tok/s", c.TokensPerSecond, 1000, 1)
		near(t, "prefill TTFT", c.TTFT, float64(n), 1)
		if c.PromptTokens != n || c.Completed != 4 && n == 500 || c.Completed != 5 && n == 100 {
			t.Errorf("%+v", c)
		}
	}
	for _, x := range [][2]int{{0, 1}, {0, 2}, {0, 4}, {400, 1}, {400, 2}} {
		c := r.Find(Decode, x[0], x[1])
		n := float64(x[1])
		near(t, "decode tok/s", c.TokensPerSecond, 50*n, n)
		near(t, "per request", c.PerRequest, 50, 1)
		near(t, "warm TTFT", c.TTFT, 5, 0.01)
		near(t, "time between tokens", c.ITL, 20, 0.01)
		near(t, "active", c.AverageActive, n, 0.01)
		if c.Completed != x[1] || c.Cut != x[1] || c.PromptTokens != max(x[0], shortPrompt) || c.Seconds != 2 {
			t.Errorf("%+v", c)
		}
	}
	c := r.Find(Decode, 400, 4)
	if want := "4 x (400 + 200) = 2400 tokens, the KV cache holds 2000"; c.Why != want {
		t.Errorf("%q, want %q", c.Why, want)
	}
	if got := strings.Split(strings.TrimSpace(lines.String()), "\n"); len(got) != 8 || !strings.HasPrefix(got[3], "decode 0 x 2: 100 tok/s, TTFT 5.00 ms, 20.0 ms a token, 2.0 active") {
		t.Errorf("%s", lines.String())
	}
}

// TestEndedAreFollowed: answers that are shorter than the cell are followed by others, and each counts.
func TestEndedAreFollowed(t *testing.T) {
	s := &server{Stub: loadtest.Stub{Usage: 2, IDs: 400, Answer: steady()}}
	r, err := measure(t, s, func(c *Config) {
		c.Contexts, c.DecodeContexts, c.Concurrency, c.MaxTokens = nil, []int{0}, []int{2}, 26
	})
	if err != nil {
		t.Fatal(err)
	}
	// An answer takes 5 ms and 25 gaps of 20 ms; the cell begins within the first.
	c := r.Find(Decode, 0, 2)
	near(t, "completed", float64(c.Completed), 8, 0)
	near(t, "cut", float64(c.Cut), 2, 0)
	near(t, "active", c.AverageActive, 2*500./505, 0.01)
	near(t, "tok/s", c.TokensPerSecond, 2*26/0.505, 2)
}

// TestMeasuredCapacity: a server that says nothing of its cache shows it.
func TestMeasuredCapacity(t *testing.T) {
	s := &server{Stub: loadtest.Stub{Usage: 2, IDs: 400, Answer: steady()}, atOnce: 2}
	r, err := measure(t, s, func(c *Config) {
		c.Contexts, c.DecodeContexts, c.Concurrency, c.MaxTokens = nil, []int{0}, []int{1, 2, 3, 4}, 3000
	})
	if err != nil {
		t.Fatal(err)
	}
	for n, want := range map[int]string{3: "2 of 3 requests ran at once", 4: "as 3 at once"} {
		if c := r.Find(Decode, 0, n); c.Status != OverCapacity || c.Why != want {
			t.Errorf("%d: %+v", n, c)
		}
	}
	if r.Count(Measured) != 2 {
		t.Errorf("%+v", r.Cells)
	}

	for body, want := range map[string]CellStatus{
		`{"error":{"message":"the request exceeds the available context size"}}`: OverCapacity,
		`{"error":{"message":"prompt: no"}}`:                                     Failed,
	} {
		s := &server{Stub: loadtest.Stub{Usage: 2, IDs: 400, Answer: func(_ int, q loadtest.Request) loadtest.Answer {
			if q.PromptTokens == 400 {
				return loadtest.Answer{Status: 400, Body: body}
			}
			return loadtest.Answer{}
		}}}
		r, err := measure(t, s, func(c *Config) { c.Contexts, c.DecodeContexts, c.Concurrency = nil, []int{400}, []int{1} })
		if err != nil {
			t.Fatal(err)
		}
		if c := r.Cells[0]; c.Status != want || !strings.Contains(c.Why, "status 400") {
			t.Errorf("%s: %+v", body, c)
		}
	}
}

// TestPrompts: the same for all at once, or one each; never those that prefill was measured with.
func TestPrompts(t *testing.T) {
	for unique, want := range map[bool]int{false: 1, true: 4} {
		s := &server{Stub: loadtest.Stub{Usage: 2, IDs: 400, Answer: steady()}}
		_, err := measure(t, s, func(c *Config) { c.Contexts, c.DecodeContexts, c.UniquePrompts = []int{400}, []int{400}, unique })
		if err != nil {
			t.Fatal(err)
		}
		prefill, decode := map[string]bool{}, map[string]bool{}
		for i, q := range slices.DeleteFunc(s.Seen(), func(q loadtest.Request) bool { return q.PromptTokens != 400 }) {
			switch {
			case i < prefillMost: // its cell comes first
				prefill[string(q.Prompt)] = true
			case q.MaxTokens == 200:
				decode[string(q.Prompt)] = true
			}
		}
		if len(decode) != want || len(prefill) != prefillMost {
			t.Errorf("unique %v: %d prompts, want %d; %d of prefill", unique, len(decode), want, len(prefill))
		}
		for p := range decode {
			if prefill[p] {
				t.Error("a prompt of prefill was in the cache")
			}
		}
	}
}

// TestInterruptedAndResumed: what was done is kept, and not measured again.
func TestInterruptedAndResumed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "run.json")
	s := &server{Stub: loadtest.Stub{Usage: 2, IDs: 400, Answer: steady()}, metrics: cacheOf2000}
	var first *Result
	synctest.Test(t, func(t *testing.T) {
		transport, url, stop := loadtest.Serve(s)
		defer stop()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var err error
		first, err = Run(ctx, Config{BaseURL: url, Transport: transport, DecodeContexts: []int{0}, Concurrency: []int{1, 2, 4}, CellTime: time.Second, MaxTokens: 200,
			Saved: func(r *Result) error { return r.Write(file) },
			Watch: func(st Status) {
				if st.Cell == 1 && st.TokensPerSecond > 0 {
					cancel()
				}
			}})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
	})
	if first.Count(Measured) != 1 || first.Count(Pending) != 2 {
		t.Fatalf("%+v", first.Cells)
	}
	saved, err := Read(file)
	if err != nil {
		t.Fatal(err)
	}
	if saved.Cells[0] != first.Cells[0] {
		t.Errorf("%+v was read, %+v was measured", saved.Cells[0], first.Cells[0])
	}
	again := func(c *Config) {
		c.Contexts, c.DecodeContexts, c.Concurrency, c.CellTime, c.Resume = nil, []int{0}, []int{1, 2, 4}, time.Second, saved
	}
	r, err := measure(t, s, again)
	if err != nil {
		t.Fatal(err)
	}
	if r.Count(Measured) != 3 || r.Cells[0] != saved.Cells[0] || !r.Begin.Equal(saved.Begin) {
		t.Errorf("%+v", r.Cells)
	}
	_, err = measure(t, s, func(c *Config) { again(c); c.MaxTokens = 100 })
	if err == nil || !strings.Contains(err.Error(), "--max-tokens was 200 and is 100") {
		t.Errorf("%v", err)
	}
}

func TestRefusesNamingTheFlag(t *testing.T) {
	for want, change := range map[string]func(*Config){
		"--contexts 0: at least 1":           func(c *Config) { c.Contexts = []int{0} },
		"--decode-contexts -1: at least 0":   func(c *Config) { c.DecodeContexts = []int{-1} },
		"--concurrency: 2 twice":             func(c *Config) { c.Concurrency = []int{2, 1, 2} },
		"--cell-time 1ms":                    func(c *Config) { c.CellTime = time.Millisecond },
		"--max-tokens 1":                     func(c *Config) { c.MaxTokens = 1 },
		"no cell":                            func(c *Config) { c.Contexts, c.Concurrency = nil, nil },
		`--model: model "x" is not served`:   func(c *Config) { c.Model = "x" },
		`"ftp://a" is not an address`:        func(c *Config) { c.BaseURL = "ftp://a" },
		"endpoint \"/v1/other\" is neither ": func(c *Config) { c.Endpoint = "/v1/other" },
	} {
		s := &server{Stub: loadtest.Stub{Usage: 2, IDs: 400, Answer: steady()}}
		if _, err := measure(t, s, change); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// TestCacheTokens: what a server says of its whole KV cache goes before what its blocks come to.
func TestCacheTokens(t *testing.T) {
	for labels, want := range map[string]int{
		`block_size="16",num_gpu_blocks="125"`:                               2000,
		`block_size="16",num_gpu_blocks="125",kv_cache_size_tokens="1504"`:   1504,
		`block_size="16",num_gpu_blocks="125",kv_cache_size_tokens="None"`:   2000,
		`block_size="16",num_gpu_blocks="None",kv_cache_size_tokens="10576"`: 10576,
		`block_size="16",num_gpu_blocks="None"`:                              0,
	} {
		s := Server{Model: "m"}
		if s.readMetrics([]byte("vllm:cache_config_info{" + labels + "} 1\n")); s.CacheTokens != want {
			t.Errorf("%s: %d tokens, want %d", labels, s.CacheTokens, want)
		}
	}
}

// TestLiveTable: what is seen after two statuses is the second alone, its end if the terminal is low; Ctrl-C interrupts.
func TestLiveTable(t *testing.T) {
	r := &Result{Server: Server{Model: "m", URL: "u", Simulated: "a card"}, Cells: []Cell{
		{Phase: Prefill, Context: 8192, Requests: 1, Status: Measured, TokensPerSecond: 2163},
		{Phase: Decode, Context: 0, Requests: 1, Status: Measured, TokensPerSecond: 48.2}, {Phase: Decode, Context: 0, Requests: 16, Status: OverCapacity},
		{Phase: Decode, Context: 16384, Requests: 1, Status: Pending}, {Phase: Decode, Context: 16384, Requests: 16, Status: Pending},
	}}
	interrupted := 0
	var f tea.Model = frame{interrupt: func() { interrupted++ }}
	update := func(messages ...tea.Msg) {
		for _, m := range messages {
			f, _ = f.Update(m)
		}
	}
	update(lines(table(Status{Result: r, Cell: 3, Doing: "warming up"})))
	update(lines(table(Status{Result: r, Cell: 3, Doing: measuring, Elapsed: 7 * time.Second, TokensPerSecond: 46.6, Left: 90 * time.Second})))
	const want = `m at u, simulated a card
prompts  8K: 2163  
at once         1      16
0            48.2    over
16K         ~46.6       .
decode 16K x 1: measuring, 7 s; 3 of 5 cells, about 1m30s left; Ctrl-C keeps what is done
`
	if got := f.View().Content; got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	for _, l := range f.(frame).lines {
		if len(l) > 100 {
			t.Errorf("%d characters: %s", len(l), l)
		}
	}
	update(tea.WindowSizeMsg{Width: 80, Height: 3}, tea.KeyPressMsg{Code: 'x', Text: "x"})
	if got := f.View().Content; !strings.HasSuffix(want, "\n"+got) || strings.Count(got, "\n") != 2 || interrupted != 0 {
		t.Errorf("in three lines, interrupted %d times: %s", interrupted, got)
	}
	update(tea.KeyPressMsg{Code: 'c', Mod: tea.ModCtrl})
	if interrupted != 1 {
		t.Error("Ctrl-C did not interrupt")
	}
}

// TestScreen: a terminal gets tables, and the latest stays when it is given back; elsewhere there are no escapes.
func TestScreen(t *testing.T) {
	r := &Result{Server: Server{Model: "m", URL: "u"}, Cells: []Cell{{Phase: Prefill, Context: 8192, Requests: 1, Status: Measured, TokensPerSecond: 2163, TTFT: 3808}}}
	show := func(s *Screen) {
		s.Show(Status{Result: r, Ended: true})
		s.Show(Status{Result: r, Done: true})
		s.Close()
	}
	var out, terminal bytes.Buffer
	show(NewScreen(&out, nil, nil))
	if got := out.String(); got != "prefill 8K: 2163 tok/s, TTFT 3.81 s\n" {
		t.Errorf("no terminal: %q", got)
	}
	show(newTerminal(frame{}, tea.WithInput(strings.NewReader("")), tea.WithOutput(&terminal), tea.WithWindowSize(80, 24)))
	if got := terminal.String(); !strings.Contains(got, "prompts  8K: 2163") || !strings.Contains(got, "1 of 1 cells; tok/s") {
		t.Errorf("terminal: %q", got)
	}
}

// TestPage: the figures of one run, and of two side by side, the better of which is marked.
func TestPage(t *testing.T) {
	run := func(name string, times float64) *Result {
		r := &Result{Name: name, Format: format, LaunchCommand: "serve " + name, Server: Server{Model: "m", Hardware: "CPU", Engine: "E", CacheTokens: 2000}, MaxTokens: 8192, CellSeconds: 10}
		for _, n := range []int{8192, 16384} {
			r.Cells = append(r.Cells, Cell{Phase: Prefill, Context: n, Requests: 1, Status: Measured, TokensPerSecond: 2000 * times, TTFT: 4000 / times})
		}
		for i, k := range []int{1, 2, 4} {
			c := Cell{Phase: Decode, Context: 0, Requests: k, Status: Measured, TokensPerSecond: 48 * times * float64(k), TTFT: 85, ITL: 20, PerRequest: 48, Completed: k, OutputTokens: 480, Seconds: 10, AverageActive: float64(k)}
			if i == 2 {
				c = Cell{Phase: Decode, Context: 0, Requests: k, Status: OverCapacity, Why: "too many"}
			}
			r.Cells = append(r.Cells, c)
		}
		return r
	}
	var one, two bytes.Buffer
	if err := Page(run("", 1)).Write(&one); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Speed test: m on CPU", "4 of 5 cells measured, 1 over capacity.", `class="number">96.0<small>85.0 ms</small>`, `class="muted">over capacity`, "serve ", "too many", "2000 tokens"} {
		if !strings.Contains(one.String(), want) {
			t.Errorf("%q is missing", want)
		}
	}
	if n := strings.Count(one.String(), `class="plot"`); n != 3 {
		t.Errorf("%d charts, want 3", n)
	}
	if err := Page(run("slow", 1), run("fast", 2)).Write(&two); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Side by side: slow, fast.", `class="number">96.0<small>85.0 ms</small></td><td class="best number">192`, "fast was started with"} {
		if !strings.Contains(two.String(), want) {
			t.Errorf("%q is missing", want)
		}
	}
	if strings.Contains(two.String(), fmt.Sprint(math.NaN())) {
		t.Error("a NaN in the page")
	}
}
