package api

import (
	"math"
	"net/http"
	"time"

	"github.com/openinfer-go/openinfer/api/state"
	"github.com/openinfer-go/openinfer/engine"
)

// maxListed is how many sequences a snapshot lists.
const maxListed = 200

// snapshot answers GET /v1/state.
func (h *Handler) snapshot(w *reply, r *http.Request) error {
	w.Header().Set("Cache-Control", "no-store")
	return w.json(http.StatusOK, h.stateAt(time.Now()))
}

func (h *Handler) stateAt(now time.Time) *state.State {
	stats, health, occupied := h.gen.Stats(), h.gen.Health(), h.gen.Occupancy()
	s := &state.State{
		Version: h.Version, Time: now.UnixMilli(), Ready: health.OK && health.Ready, Reason: health.Reason,
		Heartbeat: inMS(health.Heartbeat), Card: newCard(stats.Card), StepErrors: stats.StepErrors,
		Pool:    state.Pool{PageBytes: stats.PageBytes, Live: stats.PagesLive, Cached: stats.PagesCached, Free: stats.PagesFree, Map: [][3]int{}},
		History: state.History{Seconds: slotSeconds, End: now.Unix() / slotSeconds * slotSeconds},
	}
	p := &occupied.Plan
	s.Memory = state.Memory{Device: p.Device, Bytes: p.FreeBytes, Weights: p.WeightBytes, Shared: p.WeightLimit > 0, KV: p.KVBytes, Scratch: p.ScratchBytes}
	counts := map[string]*engine.ModelStats{}
	for i := range stats.Models {
		counts[stats.Models[i].Name] = &stats.Models[i]
	}
	for _, info := range h.gen.Models() {
		m := state.Model{ID: info.Name, State: info.State, Weights: info.WeightBytes, MaxModelLen: info.MaxModelLen}
		if info.Simulated != "" {
			s.Simulated = info.Simulated
		}
		if c := counts[info.Name]; c != nil {
			m.Running, m.Waiting, m.Usage = c.Running, c.Waiting, c.LiveUsage
			m.Prompt, m.Cached, m.Generated = c.PromptTokens, c.CachedTokens, c.GeneratedTokens
			m.Finished = c.Finished[engine.FinishStop] + c.Finished[engine.FinishLength]
			m.Cancelled, m.Failed = c.Finished[engine.FinishCancelled], c.Finished[engine.FinishError]
			m.RefusedFull, m.RefusedSLA, m.Late, m.Preemptions = c.RefusedFull, c.RefusedSLA, c.Late, c.Preemptions
			m.Loads, m.Steps, m.StepSeconds = c.Loads, c.Steps, c.StepSeconds
		}
		s.History.Models = append(s.History.Models, h.metrics.models[info.Name].recent.fill(now, &m))
		s.Models = append(s.Models, m)
	}
	use := [...]int{engine.FreePage: state.Free, engine.LivePage: state.Live, engine.CachedPage: state.Cached}
	index := map[string]int{"": state.Nobody}
	for i, m := range s.Models {
		index[m.ID] = i
	}
	for _, run := range occupied.Pages {
		i, known := index[run.Model]
		if !known {
			i = state.Unknown
		}
		s.Pool.Map = append(s.Pool.Map, [3]int{i, use[run.Use], run.Pages})
	}
	s.Requests = []state.Request{}
	for _, q := range occupied.Sequences {
		switch _, known := index[q.Model]; {
		case !known:
		case len(s.Requests) == maxListed:
			s.Unlisted++
		default:
			s.Requests = append(s.Requests, h.newRequest(q))
		}
	}
	return s
}

// newRequest is a sequence as a snapshot lists it.
func (h *Handler) newRequest(q engine.SequenceInfo) state.Request {
	stage := state.Waiting
	switch {
	case q.Running && q.Sampled > 0:
		stage = state.Decode
	case q.Running:
		stage = state.Prefill
	}
	return state.Request{
		ID: h.running.owner(q.Request), Index: q.Index, Model: q.Model, State: stage, Priority: q.Priority,
		Prompt: q.Prompt, Computed: q.Computed, Sampled: q.Sampled, Max: q.MaxTokens,
		Age: inMS(q.Since), TTFT: inMS(q.FirstToken), TargetTTFT: inMS(q.SLA.TTFT), TargetTPOT: inMS(q.SLA.TPOT),
		Due: inMS(q.Due), Late: q.Late,
	}
}

// inMS is a time in milliseconds, to the microsecond.
func inMS(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func newCard(c *engine.CardStats) *state.Card {
	if c == nil {
		return nil
	}
	known := func(v float64) *float64 {
		if math.IsNaN(v) {
			return nil
		}
		return &v
	}
	return &state.Card{
		Name: c.Name, MemoryBytes: known(c.MemoryBytes), UsedBytes: known(c.UsedBytes), Utilization: known(c.Utilization),
		PowerWatts: known(c.PowerWatts), LimitWatts: known(c.LimitWatts), Temperature: known(c.TemperatureCelsius), ClockHz: known(c.ClockHz),
	}
}
