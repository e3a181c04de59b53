// Package state is what GET /v1/state says, as JSON: one snapshot of the server, for the page at / and for openinfer top.
//
// It owns names and units and computes nothing. Times are milliseconds, sizes are bytes, shares are 0 to 1. Counters only
// grow. Texts of requests and answers are in no field.
package state

// State is one snapshot.
type State struct {
	Version string `json:"version"`
	Time    int64  `json:"time_ms"` // since 1970, by the server's clock
	Ready   bool   `json:"ready"`
	Reason  string `json:"reason,omitzero"` // when it is not ready, or not healthy
	// Heartbeat is the age of the step loop's last sign of life.
	Heartbeat float64 `json:"heartbeat_age_ms"`
	Simulated string  `json:"simulated,omitzero"` // the card that answers are not computed on
	Memory    Memory  `json:"memory"`
	Pool      Pool    `json:"pool"`
	Card      *Card   `json:"card,omitzero"` // by NVML; null without
	Models    []Model `json:"models"`
	History   History `json:"history"`
	// Requests are the sequences that run, then those that wait, the oldest first; Unlisted is how many more there are.
	Requests   []Request `json:"requests"`
	Unlisted   int       `json:"unlisted_requests"`
	StepErrors int64     `json:"step_errors"`
}

// Memory is what the device's memory was divided into at start-up.
type Memory struct {
	Device  string `json:"device"`
	Bytes   int64  `json:"bytes"`        // that were free for the server
	Weights int64  `json:"weight_bytes"` // of all models, or what they share by turns
	Shared  bool   `json:"turns"`        // models take turns: their weights do not fit together
	KV      int64  `json:"kv_bytes"`
	Scratch int64  `json:"scratch_bytes"`
}

// Pool is the KV cache's pages, which all models share.
type Pool struct {
	PageBytes int64 `json:"page_bytes"`
	// As in /metrics: of the pages that are held, those that live blocks would fill are live, the others cached.
	Live   int `json:"live"`
	Cached int `json:"cached"`
	Free   int `json:"free"`
	// Map is every page in order, as runs of [model, use, pages]: the model's place in Models, or Nobody or Unknown; use as below.
	// A page with one live block is live here.
	Map [][3]int `json:"map"`
}

// Models in Pool.Map that have no place in Models.
const (
	Nobody  = -1 // the page is free
	Unknown = -2 // the page is that of a model that is not listed
)

// Uses in Pool.Map.
const (
	Free = iota
	Live
	Cached
)

// Card is what NVML says; what it does not say is null.
type Card struct {
	Name        string   `json:"name"`
	MemoryBytes *float64 `json:"memory_bytes"`
	UsedBytes   *float64 `json:"used_bytes"`
	Utilization *float64 `json:"utilization"`
	PowerWatts  *float64 `json:"power_watts"`
	LimitWatts  *float64 `json:"power_limit_watts"`
	Temperature *float64 `json:"temperature_celsius"`
	ClockHz     *float64 `json:"clock_hz"`
}

// Model is one model's counters, gauges and last minute.
type Model struct {
	ID          string  `json:"id"`
	State       string  `json:"state"` // of its weights: resident, parked or loading
	Weights     int64   `json:"weight_bytes"`
	MaxModelLen int     `json:"max_model_len"`
	Running     int     `json:"running"`
	Waiting     int     `json:"waiting"`
	Usage       float64 `json:"kv_usage"` // share of the pool that its sequences hold
	Prompt      int64   `json:"prompt_tokens"`
	Cached      int64   `json:"cached_tokens"` // of them
	Generated   int64   `json:"generated_tokens"`
	Finished    int64   `json:"finished"` // sequences that came to their own end
	Cancelled   int64   `json:"cancelled"`
	Failed      int64   `json:"failed"`
	RefusedFull int64   `json:"refused_queue_full"`
	RefusedSLA  int64   `json:"refused_sla"`
	Late        int64   `json:"late"`
	Preemptions int64   `json:"preemptions"`
	Loads       int64   `json:"loads"`
	Steps       int64   `json:"steps"`
	StepSeconds float64 `json:"step_seconds"` // that the device has spent on it
	// Of the last minute; null when there was none.
	TTFT      *float64 `json:"ttft_ms"`
	WorstTTFT *float64 `json:"ttft_worst_ms"`
	TPOT      *float64 `json:"tpot_ms"`
	// Rate is tokens per second over the last ten.
	Rate float64 `json:"tokens_per_second"`
}

// History is the last minutes by slots of so many seconds, the last of them ending at End (seconds since 1970).
type History struct {
	Seconds int            `json:"slot_seconds"`
	End     int64          `json:"end"`
	Models  []ModelHistory `json:"models"` // as State.Models
}

// ModelHistory has a number for each slot; null where there is nothing to average.
type ModelHistory struct {
	Rate []float64  `json:"tokens_per_second"`
	TTFT []*float64 `json:"ttft_ms"`
	TPOT []*float64 `json:"tpot_ms"`
}

// Request is one sequence of a request.
type Request struct {
	ID       string  `json:"id"`    // for POST /v1/requests/cancel, which ends all sequences of the request
	Index    int     `json:"index"` // of the request's sequences
	Model    string  `json:"model"`
	State    string  `json:"state"` // waiting, prefill or decode
	Priority int     `json:"priority"`
	Prompt   int     `json:"prompt_tokens"`
	Computed int     `json:"computed_tokens"` // of prompt and answer
	Sampled  int     `json:"completion_tokens"`
	Max      int     `json:"max_tokens"`
	Age      float64 `json:"age_ms"`
	TTFT     float64 `json:"ttft_ms,omitzero"` // once its first token is there
	// Targets; 0: none. Due is until its next token is due, negative when it is late already.
	TargetTTFT float64 `json:"target_ttft_ms,omitzero"`
	TargetTPOT float64 `json:"target_tpot_ms,omitzero"`
	Due        float64 `json:"due_ms,omitzero"`
	Late       bool    `json:"late"` // its targets cannot be met any more
}

// States of a Request.
const (
	Waiting = "waiting"
	Prefill = "prefill"
	Decode  = "decode"
)
