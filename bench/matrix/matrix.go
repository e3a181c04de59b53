// Package matrix is the speed test: how fast one model on one server reads prompts, by their length, and how fast it
// decodes, by the length of the context and the number of requests at once. Any server that speaks the OpenAI API will do.
//
// It owns the cells, their measuring and the reports; requests and records are bench/load's.
//
// A prefill cell sends prompts that no cache has seen, one after the other, and takes the time to the first token. A decode cell sends so many
// requests at once, whose prompts were sent before (the server's prompt cache is warm, if it has one), waits until all
// of them decode, and counts the tokens of so many seconds from then on; a request that ends is followed by another.
//
// A cell is over capacity when requests x (context + answer) tokens are more than the server says its KV cache holds. It is over
// capacity, too, when the server shows it: it refuses, or never decodes so many at once.
//
// Invariant: every planned cell is in the result, with one status; a cell that was cut short is pending, never half measured.
package matrix

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/openinfer-go/openinfer/bench/load"
)

// Config says what is measured.
type Config struct {
	BaseURL, Endpoint string // "": load.Completions
	Model             string // "": the server's first
	Key               string
	Extra             map[string]any // fields of every request

	Contexts       []int // tokens of the prompts of prefill cells
	DecodeContexts []int // of decode cells; 0 is a short prompt
	Concurrency    []int
	CellTime       time.Duration
	MaxTokens      int // of an answer
	Seed           uint64
	UniquePrompts  bool // every request at once has a prompt of its own

	// What a server does not say of itself, for the report.
	Name, Hardware, Engine, LaunchCommand, Command string

	// Resume is a result whose cells need not be measured again.
	Resume *Result
	// Saved, if not nil, is called after every cell.
	Saved func(*Result) error
	// Watch, if not nil, is called twice a second.
	Watch func(Status)
	// Transport, if not nil, takes the place of the network.
	Transport http.RoundTripper
}

// Default is the published table.
func Default() Config {
	return Config{
		BaseURL: "http://127.0.0.1:8080", Contexts: []int{8 << 10, 16 << 10, 32 << 10, 56 << 10},
		DecodeContexts: []int{0, 16 << 10, 32 << 10, 56 << 10}, Concurrency: []int{1, 2, 4, 8, 16, 32, 64, 128},
		CellTime: 30 * time.Second, MaxTokens: 8 << 10,
	}
}

// Check names the flag at fault.
func (c *Config) Check() error {
	list := func(flag string, list []int, least int) error {
		for i, n := range list {
			if n < least {
				return fmt.Errorf("--%s %d: at least %d", flag, n, least)
			}
			if slices.Contains(list[:i], n) {
				return fmt.Errorf("--%s: %d twice", flag, n)
			}
		}
		return nil
	}
	if err := errors.Join(list("contexts", c.Contexts, 1), list("decode-contexts", c.DecodeContexts, 0), list("concurrency", c.Concurrency, 1)); err != nil {
		return err
	}
	switch {
	case len(c.Contexts) == 0 && (len(c.DecodeContexts) == 0 || len(c.Concurrency) == 0):
		return errors.New("--contexts, --decode-contexts, --concurrency: no cell")
	case c.CellTime < 100*time.Millisecond:
		return fmt.Errorf("--cell-time %v: at least 100ms", c.CellTime)
	case c.MaxTokens < 2:
		return fmt.Errorf("--max-tokens %d: at least 2", c.MaxTokens)
	}
	return nil
}

// Status is how a run stands.
type Status struct {
	Result          *Result // so far; only to be read, and only within Watch
	Cell            int     // of Result.Cells that is worked at
	Doing           string  // "warming up", "waiting for 4 first tokens", "measuring"
	Elapsed         time.Duration
	TokensPerSecond float64       // of the cell so far; 0: not known
	Left            time.Duration // of the whole run, about
	Ended           bool          // Cell has just ended
	Done            bool          // the last status
}

// run is a run that goes on.
type run struct {
	Config
	client  *load.Client
	speller *load.Speller
	result  *Result
	cell    int
	doing   string
	since   time.Time // that it does so
	rate    float64   // of the cell so far

	warm map[int]int           // prompts of a context that were sent before
	cold map[int]time.Duration // the slowest of them
}

// Run measures. When ctx is done it returns what there is and ctx's error.
func Run(ctx context.Context, c Config) (*Result, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	extra := map[string]any{"ignore_eos": true, "temperature": 0}
	for name, value := range c.Extra {
		extra[name] = value
	}
	client, err := load.NewClient(load.ClientOptions{URL: c.BaseURL, Endpoint: c.Endpoint, Key: c.Key, Extra: extra, Transport: c.Transport})
	if err != nil {
		return nil, fmt.Errorf("--base-url, --endpoint: %w", err)
	}
	defer client.Close()
	server, err := describe(ctx, client, c.Model)
	if err != nil {
		return nil, err
	}
	server.Hardware, server.Engine = cmp.Or(c.Hardware, server.Hardware), cmp.Or(c.Engine, server.Engine)
	client.Model = server.Model
	r := &run{Config: c, client: client, warm: map[int]int{}, cold: map[int]time.Duration{}}
	r.result = &Result{
		Format: format, Name: c.Name, Server: server, LaunchCommand: c.LaunchCommand, Command: c.Command,
		Begin: time.Now().UTC(), CellSeconds: c.CellTime.Seconds(), MaxTokens: c.MaxTokens, Seed: c.Seed, UniquePrompts: c.UniquePrompts, Cells: c.cells(),
	}
	if c.Resume != nil {
		if err := r.result.resume(c.Resume); err != nil {
			return nil, fmt.Errorf("--resume: %w", err)
		}
	}
	r.do("calibrating")
	r.await(func() { r.speller, err = load.Calibrate(ctx, client) })
	if err != nil {
		return nil, err
	}
	r.result.Lengths = r.speller.String()
	for i := range r.result.Cells {
		cell := &r.result.Cells[i]
		if cell.Status != Pending {
			continue
		}
		r.cell, r.rate = i, 0
		measured := *cell
		if over := r.over(cell); over != "" {
			measured.Status, measured.Why = OverCapacity, over
		} else if cell.Phase == Prefill {
			r.prefill(ctx, &measured)
		} else {
			r.decode(ctx, &measured)
		}
		if ctx.Err() != nil {
			break
		}
		measured.At = time.Now().UTC()
		*cell = measured
		r.result.End = measured.At
		r.show(Status{Ended: true})
		if c.Saved != nil {
			if err := c.Saved(r.result); err != nil {
				return r.result, err
			}
		}
	}
	r.show(Status{Done: true})
	return r.result, ctx.Err()
}

// cells are the planned ones: prefill by context, then decode by context and concurrency.
func (c *Config) cells() []Cell {
	var cells []Cell
	for _, n := range c.Contexts {
		cells = append(cells, Cell{Phase: Prefill, Context: n, Requests: 1, Status: Pending})
	}
	for _, n := range c.DecodeContexts {
		for _, k := range slices.Sorted(slices.Values(c.Concurrency)) {
			cells = append(cells, Cell{Phase: Decode, Context: n, Requests: k, Status: Pending})
		}
	}
	return cells
}

// over says why a cell need not be tried; "" if it is to be.
func (r *run) over(cell *Cell) string {
	s := &r.result.Server
	answer := r.answer(cell)
	if s.MaxModelLen > 0 && answer < 1 {
		return fmt.Sprintf("%d tokens and an answer are more than the model's %d", cell.Context, s.MaxModelLen)
	}
	if need := cell.Requests * (cell.Context + answer); s.CacheTokens > 0 && need > s.CacheTokens {
		return fmt.Sprintf("%d x (%d + %d) = %d tokens, the KV cache holds %d", cell.Requests, cell.Context, answer, need, s.CacheTokens)
	}
	for _, other := range r.result.Cells {
		if other.Phase == cell.Phase && other.Context == cell.Context && other.Requests < cell.Requests && other.Status == OverCapacity {
			return fmt.Sprintf("as %d at once", other.Requests)
		}
	}
	return ""
}

// answer is the tokens that a cell's requests may answer: as many as the model leaves.
func (r *run) answer(cell *Cell) int {
	want := r.MaxTokens
	if cell.Phase == Prefill {
		want = 1
	}
	if s := r.result.Server; s.MaxModelLen > 0 {
		spare := 0
		if r.speller.IDs == nil { // prompts of words miss their length by some
			spare = 16 + cell.Context/50
		}
		want = min(want, s.MaxModelLen-max(cell.Context, shortPrompt)-spare)
	}
	return want
}

func (r *run) do(what string) { r.doing, r.since = what, time.Now() }

// await shows how the run stands until f has returned.
func (r *run) await(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	r.show(Status{})
	for {
		select {
		case <-done:
			return
		case <-tick.C:
			r.show(Status{})
		}
	}
}

func (r *run) show(s Status) {
	if r.Watch == nil {
		return
	}
	s.Result, s.Cell, s.Doing, s.Elapsed, s.TokensPerSecond, s.Left = r.result, r.cell, r.doing, time.Since(r.since), r.rate, r.left()
	r.Watch(s)
}

// left is about how long the cells that are pending will take.
func (r *run) left() time.Duration {
	perToken := 0.0 // seconds, of the latest prompt measured
	for _, c := range r.result.Cells {
		if c.Phase == Prefill && c.TokensPerSecond > 0 {
			perToken = 1 / c.TokensPerSecond
		}
	}
	var sum time.Duration
	prompts := map[int]int{}
	for _, c := range r.result.Cells {
		if c.Status != Pending || r.result.Server.CacheTokens > 0 && c.Requests*(c.Context+r.MaxTokens) > r.result.Server.CacheTokens && c.Phase == Decode {
			continue
		}
		prompt := time.Duration(perToken * float64(c.Context) * float64(time.Second))
		if c.Phase == Prefill {
			sum += max(prompt, r.CellTime)
			continue
		}
		need := 1
		if r.UniquePrompts {
			need = c.Requests
		}
		have := max(r.warm[c.Context], prompts[c.Context])
		sum += r.CellTime + prompt*time.Duration(max(0, need-have))
		prompts[c.Context] = max(have, need)
	}
	if r.cell < len(r.result.Cells) && r.result.Cells[r.cell].Status == Pending && r.doing == measuring {
		sum -= min(time.Since(r.since), r.CellTime)
	}
	return max(0, sum)
}

// reason shortens why a request did not go well.
func reason(q *load.Record) string {
	return strings.Join(strings.Fields(q.Outcome.String()+": "+q.Reason), " ")
}
