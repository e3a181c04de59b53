package matrix

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"
)

// format names the JSON of a Result. Fields keep their meaning under it.
const format = "openinfer-matrix/1"

// Result is a run.
type Result struct {
	Format        string    `json:"format"`
	Name          string    `json:"name,omitempty"` // beside other runs
	Server        Server    `json:"server"`
	LaunchCommand string    `json:"launch_command,omitempty"` // of the server
	Command       string    `json:"command,omitempty"`        // of this run
	Begin         time.Time `json:"begin"`
	End           time.Time `json:"end"` // of the last cell
	CellSeconds   float64   `json:"cell_seconds"`
	MaxTokens     int       `json:"max_tokens"`
	Seed          uint64    `json:"seed"`
	UniquePrompts bool      `json:"unique_prompts"` // of the requests at once
	Lengths       string    `json:"lengths"`        // how lengths of prompts were made
	Cells         []Cell    `json:"cells"`
}

// Server is what was measured.
type Server struct {
	URL         string `json:"url"`
	Endpoint    string `json:"endpoint"`
	Model       string `json:"model"`
	Engine      string `json:"engine,omitempty"`
	Version     string `json:"version,omitempty"`
	Hardware    string `json:"hardware,omitempty"`
	Simulated   string `json:"simulated,omitempty"` // the card that is only simulated
	MaxModelLen int    `json:"max_model_len,omitempty"`
	CacheTokens int    `json:"cache_tokens,omitempty"` // that the KV cache holds, by /metrics; 0: not said
	CacheDType  string `json:"cache_dtype,omitempty"`
}

// Phase is what a cell measures.
type Phase string

// The phases.
const (
	Prefill Phase = "prefill"
	Decode  Phase = "decode"
)

// CellStatus is what became of a cell.
type CellStatus string

// The statuses.
const (
	Pending      CellStatus = "pending" // not measured yet
	Measured     CellStatus = "measured"
	OverCapacity CellStatus = "over capacity"
	Failed       CellStatus = "failed"
)

// Cell is one measurement. Times are medians, in milliseconds.
type Cell struct {
	Phase    Phase      `json:"phase"`
	Context  int        `json:"context"`  // tokens of the prompt; 0 of decode: a short one
	Requests int        `json:"requests"` // at once
	Status   CellStatus `json:"status"`
	Why      string     `json:"why,omitempty"` // it is over capacity or failed
	At       time.Time  `json:"at,omitzero"`   // when it ended

	TokensPerSecond float64 `json:"tokens_per_second,omitempty"` // of the prompt, or of all answers together
	PerRequest      float64 `json:"per_request,omitempty"`       // over the average active
	TTFT            float64 `json:"ttft_ms,omitempty"`           // from when requests were sent
	ITL             float64 `json:"itl_ms,omitempty"`            // time between tokens
	AverageActive   float64 `json:"average_active,omitempty"`    // requests that were decoding
	Completed       int     `json:"completed,omitempty"`         // requests, with those cut
	Cut             int     `json:"cut,omitempty"`               // that the end of the cell cut off
	OutputTokens    int     `json:"output_tokens,omitempty"`     // within Seconds
	PromptTokens    int     `json:"prompt_tokens,omitempty"`     // by the server's count
	CachedTokens    int     `json:"cached_tokens,omitempty"`     // of the prompt, by the server
	Seconds         float64 `json:"seconds,omitempty"`           // measured for
}

// Find is a cell; nil if it is not there.
func (r *Result) Find(phase Phase, context, requests int) *Cell {
	for i := range r.Cells {
		if c := &r.Cells[i]; c.Phase == phase && c.Context == context && c.Requests == requests {
			return c
		}
	}
	return nil
}

// Count is how many cells have that status.
func (r *Result) Count(status CellStatus) int {
	n := 0
	for i := range r.Cells {
		if r.Cells[i].Status == status {
			n++
		}
	}
	return n
}

// resume takes over what an earlier run of the same measured. Cells that are not planned any more stay.
func (r *Result) resume(old *Result) error {
	for _, x := range []struct {
		what     string
		was, now any
	}{
		{"model", old.Server.Model, r.Server.Model}, {"simulated card", old.Server.Simulated, r.Server.Simulated},
		{"--cell-time in seconds", old.CellSeconds, r.CellSeconds}, {"--max-tokens", old.MaxTokens, r.MaxTokens},
		{"--seed", old.Seed, r.Seed}, {"--unique-prompts", old.UniquePrompts, r.UniquePrompts},
	} {
		if x.was != x.now {
			return fmt.Errorf("%s was %v and is %v", x.what, x.was, x.now)
		}
	}
	for _, c := range old.Cells {
		if c.Status != Measured && c.Status != OverCapacity {
			continue
		}
		if mine := r.Find(c.Phase, c.Context, c.Requests); mine != nil {
			*mine = c
		} else {
			r.Cells = append(r.Cells, c)
		}
	}
	if !old.Begin.IsZero() {
		r.Begin, r.End = old.Begin, old.End
	}
	return nil
}

// Write writes r to a file as JSON, whole or not at all.
func (r *Result) Write(path string) error {
	b, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(path+".part", append(b, '\n'), 0o666); err != nil {
		return err
	}
	return os.Rename(path+".part", path)
}

// Read reads what Write wrote.
func Read(path string) (*Result, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	r := new(Result)
	if err := json.Unmarshal(b, r); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if r.Format != format {
		return nil, fmt.Errorf("%s: format is %q, not %q", path, r.Format, format)
	}
	if len(r.Cells) == 0 {
		return nil, fmt.Errorf("%s: %w", path, errors.New("no cells"))
	}
	return r, nil
}
