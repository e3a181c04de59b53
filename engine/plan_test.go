package engine

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/openinfer-go/openinfer/kernels/sim"
	"github.com/openinfer-go/openinfer/kvcache"
	"github.com/openinfer-go/openinfer/models/configs"
	"github.com/openinfer-go/openinfer/models/demo"
)

var fleet = []string{"qwen3.5-27b", "qwen3.5-9b", "llama-3.2-1b", "phi-4", "gemma-4-12b", "qwen3-1.7b"}

func forecast(t *testing.T, card string, change func(*PlanOptions), names ...string) *Forecast {
	t.Helper()
	o := PlanOptions{Cards: []string{card}}
	for _, name := range names {
		o.Models = append(o.Models, ModelSpec{Name: name})
	}
	if change != nil {
		change(&o)
	}
	f, err := Plan(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestForecastIsTheServersPlan: pages, tokens and who is parked are those of a server that was started with the same options.
func TestForecastIsTheServersPlan(t *testing.T) {
	raw, _ := configs.Open("qwen3-1.7b")
	config := filepath.Join(t.TempDir(), "config.json")
	if err := os.WriteFile(config, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		card   string
		models []string
		change func(*Options)
	}{
		"together":    {"a6000", fleet, nil},
		"turns":       {"rtx3090", fleet, nil},
		"other order": {"rtx3090", []string{"phi-4", "gemma-4-12b", "qwen3.5-27b", "qwen3.5-9b"}, nil},
		"one":         {"rtx3090", []string{"qwen3.8-27b"}, func(o *Options) { o.KVCacheDType = "fp8-e4m3" }},
		"flags":       {"l4", fleet[1:4], func(o *Options) { o.MaxNumSeqs, o.MaxBatchedTokens, o.KVMemory = 8, 512, 1<<30+12345 }},
		"per model": {"rtx5090", fleet[:3], func(o *Options) {
			o.Models[0].MaxModelLen, o.Models[1].KVCacheDType, o.Models[2].MaxNumSeqs = 9000, "int8", 3
		}},
		"limit":        {"h100", fleet, func(o *Options) { o.WeightMemory = 15 << 30 }},
		"floats":       {"a6000", []string{"qwen3-1.7b", "llama-3.2-1b"}, func(o *Options) { o.Models[0].Floats, o.Models[1].Quantize = true, "int4-g32-head8" }},
		"no overlap":   {"a10", fleet[4:], func(o *Options) { o.Overlap = new(bool) }},
		"from disk":    {"l4", []string{"x"}, func(o *Options) { o.Models[0].Path = config }},
		"with weights": {"l4", []string{"demo-tales", "demo-bard"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			change := func(o *Options) {
				if c.change != nil {
					c.change(o)
				}
			}
			f := forecast(t, c.card, func(o *PlanOptions) { change(&o.Options) }, c.models...)
			got := f.Cards[0]
			in := synctest.Test
			if name == "with weights" { // that load side by side wait for the link under a lock, and virtual time would not go on
				in = func(t *testing.T, f func(*testing.T)) { f(t) }
			}
			in(t, func(t *testing.T) {
				e := openSim(t, c.card, change, c.models...)
				defer e.Close()
				want := e.Plan()
				if diff := cmp.Diff(&want, got.Memory, cmpopts.IgnoreUnexported(ModelPlan{})); diff != "" {
					t.Errorf("server, forecast: %s", diff)
				}
				if got.Memory.String() != want.String() {
					t.Errorf("%s\nserver\n%s", got.Memory, want)
				}
				for i, m := range e.Models() {
					if parked := m.State == "parked"; parked != got.Memory.Models[i].Parked {
						t.Errorf("%s: %s, forecast %+v", m.Name, m.State, got.Memory.Models[i])
					}
				}
			})
			for i, m := range f.Models {
				if m.WeightBytes != got.Memory.Models[i].WeightBytes || m.BodyBytes+m.HeadBytes != m.WeightBytes || m.HeadBytes == 0 || m.BodyBytes <= 0 {
					t.Errorf("%+v is not the sum of its parts", m)
				}
			}
		})
	}
}

// TestForecastRequestsFill: as many requests fit the pool as the cache itself gives blocks to.
func TestForecastRequestsFill(t *testing.T) {
	for _, c := range []struct {
		model, kv string
	}{{"qwen3.8-27b", "fp8"}, {"llama-3.2-1b", "auto"}, {"gemma-4-12b", "int8"}, {"phi-4", "auto"}} {
		f := forecast(t, "rtx3090", func(o *PlanOptions) { o.KVCacheDType, o.MaxNumSeqs = c.kv, 1000 }, c.model)
		plan := f.Cards[0].Memory
		m := plan.Models[0]
		for _, x := range f.Cards[0].Models[0].Contexts {
			if x.TooLong {
				continue
			}
			pool := kvcache.NewPool(plan.Pages)
			config := m.cut.config(c.model, 0, m.SnapshotTokens)
			config.NoPrefixCache = true
			cache, err := pool.NewCache(config)
			if err != nil {
				t.Fatal(err)
			}
			length := min(x.Context+f.AnswerTokens, m.MaxModelLen)
			tokens := make([]int32, length)
			fits := func() bool {
				table := cache.NewTable(kvcache.Identity{})
				for n, from := 0, 0; n < length; from = n {
					n = min(n+2*f.BatchedTokens, length)
					if !cache.Extend(table, n, n) {
						return false
					}
					cache.Advance(nil, table, from, n, nil)
					cache.Seal(table, tokens[:n])
				}
				return true
			}
			got := 0
			for fits() {
				got++
			}
			// Where a window begins decides whether a sequence holds a block more.
			if x.Requests > got || x.Requests < got-got/20 || !strings.HasPrefix(c.model, "gemma") && x.Requests != got {
				t.Errorf("%s, context %d: %d requests, the cache holds %d", c.model, x.Context, x.Requests, got)
			}
			if x.RequestsAlone != x.Requests {
				t.Errorf("%s alone: %d and %d requests", c.model, x.RequestsAlone, x.Requests)
			}
		}
	}
}

// TestForecastTimesAreTheServers: a lone prompt's first token and the gaps of requests at once, of the scheduler with its
// own chunks and overlaps.
func TestForecastTimesAreTheServers(t *testing.T) {
	const context, answer, streams = 6000, 200, 4
	f := forecast(t, "rtx4090", func(o *PlanOptions) {
		o.Contexts, o.Concurrency, o.AnswerTokens = []int{context}, []int{streams}, answer
	}, "qwen3.5-9b")
	x := f.Cards[0].Models[0].Contexts[0]
	var at [streams][]time.Duration
	synctest.Test(t, func(t *testing.T) {
		v, err := NewVirtual(Options{Device: "sim:rtx4090", Models: []ModelSpec{{Name: "qwen3.5-9b"}}, Log: slog.New(slog.DiscardHandler)},
			func(ev VirtualEvent) {
				if ev.Err != nil {
					t.Error(ev.Err)
				}
				if ev.Tokens > 0 {
					i := ev.User.(int)
					at[i] = append(at[i], ev.At)
				}
			})
		if err != nil {
			t.Fatal(err)
		}
		for i := range streams {
			if err := v.Submit(VirtualRequest{Model: "qwen3.5-9b", Prompt: prompt(context, 100*i), Tokens: 10 * answer, User: i}); err != nil {
				t.Fatal(err)
			}
			v.Run(v.Now() + 5*time.Second)
		}
		v.Run(v.Now() + 60*time.Second)
	})
	near := func(what string, got, want float64) {
		if math.Abs(got/want-1) > 0.02 {
			t.Errorf("%s: %v s, the server's %v s", what, got, want)
		}
	}
	if len(at[streams-1]) < answer || x.PrefillRate != context/x.TTFT {
		t.Fatalf("%d tokens, %+v", len(at[streams-1]), x)
	}
	near("TTFT", x.TTFT, at[0][0].Seconds())
	// In the middle of the last answer the others are some hundreds of tokens ahead, which costs little.
	last := at[streams-1]
	near("TPOT", x.Decode[0].TPOT, (last[answer/2+10]-last[answer/2-10]).Seconds()/20)
}

// TestForecastOfThePublishedCard: the cells that the published table fills, and those that the memory allows beyond
// (docs/plan.md), with rates within 10 % of the published ones.
func TestForecastOfThePublishedCard(t *testing.T) {
	f := forecast(t, "rtx3090-unlocked", func(o *PlanOptions) { o.KVCacheDType = "fp8-e4m3" }, "qwen3.8-27b")
	published := map[[2]int]float64{
		{0, 1}: 48.2, {0, 2}: 89.4, {0, 4}: 172.1, {0, 8}: 329.4, {16 << 10, 1}: 46.6, {16 << 10, 2}: 86.2, {32 << 10, 1}: 45.3, {56 << 10, 1}: 43.5,
		{0, 16}: 0, {16 << 10, 4}: 0, {16 << 10, 8}: 0, {32 << 10, 2}: 0, {32 << 10, 4}: 0, {56 << 10, 2}: 0, {56 << 10, 4}: 0,
	}
	ttft := map[int]float64{8 << 10: 3.808, 16 << 10: 7.978, 32 << 10: 17.286, 56 << 10: 33.908}
	m := f.Cards[0].Models[0]
	for _, x := range m.Contexts {
		if want := ttft[x.Context]; want > 0 && math.Abs(x.TTFT/want-1) > 0.10 {
			t.Errorf("TTFT of %d: %.3f s, published %.3f", x.Context, x.TTFT, want)
		}
		for i, d := range x.Decode {
			want, filled := published[[2]int{x.Context, d.Requests}]
			if filled && (d.OverCapacity || want > 0 && math.Abs(d.Rate/want-1) > 0.10) {
				t.Errorf("context %d, %d requests: %+v, published %.1f", x.Context, d.Requests, d, want)
			}
			if d.OverCapacity != (d.Requests > x.Requests) || !d.OverCapacity && math.Abs(d.Rate*d.TPOT-float64(d.Requests)) > 1e-6 {
				t.Errorf("context %d: %+v of %d requests", x.Context, d, x.Requests)
			}
			if i > 0 && !d.OverCapacity && d.TPOT < x.Decode[i-1].TPOT {
				t.Errorf("context %d: %+v is sooner than %+v", x.Context, d, x.Decode[i-1])
			}
			delete(published, [2]int{x.Context, d.Requests})
		}
	}
	if len(published) > 0 {
		t.Errorf("not in the forecast: %v", published)
	}
}

// TestForecastTargets: one request more, or one token, misses the target.
func TestForecastTargets(t *testing.T) {
	f := forecast(t, "h100", func(o *PlanOptions) {
		o.SLA, o.Concurrency = SLA{TTFT: 300 * time.Millisecond, TPOT: 12 * time.Millisecond}, []int{1}
	}, "phi-4", "qwen3.5-9b")
	for i, m := range f.Cards[0].Models {
		spec, _ := sim.Find("h100")
		p, err := newPlanner(PlanOptions{Options: Options{Device: "sim:h100", Models: []ModelSpec{{Name: m.Name}}}, AnswerTokens: f.AnswerTokens})
		if err != nil {
			t.Fatal(err)
		}
		if err := p.load(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		if err := p.facts(); err != nil {
			t.Fatal(err)
		}
		w := newStopwatch(p.engine.models[0].impl, p.models[0].dtype, spec)
		n := m.LongestPrompt
		if f.Models[i].TPOT != 0.012 || n < 1000 || p.prefill(w, n) > 0.3 || p.prefill(w, n+1) <= 0.3 && n+1 < f.Models[i].MaxPosition {
			t.Errorf("%s: the longest prompt has %d tokens: %v s, %v s with one more", m.Name, n, p.prefill(w, n), p.prefill(w, n+1))
		}
		for _, x := range m.Contexts {
			if x.TooLong {
				continue
			}
			n := x.LargestBatch
			if n > 0 && p.decode(w, x.Context, n) > 0.012 || n < x.Requests && p.decode(w, x.Context, n+1) <= 0.012 {
				t.Errorf("%s, context %d: %d at once of %d", m.Name, x.Context, n, x.Requests)
			}
		}
	}
}

// TestForecastSets: what is listed fits together and one model more does not, as plans of just those models say.
func TestForecastSets(t *testing.T) {
	names := []string{"qwen3.5-27b", "phi-4", "gemma-4-12b", "qwen3.5-9b"}
	quick := func(o *PlanOptions) { o.Contexts, o.Concurrency = []int{8 << 10}, []int{1} }
	c := forecast(t, "rtx3090", quick, names...).Cards[0]
	together := func(set []string) *CardForecast {
		return forecast(t, "rtx3090", quick, set...).Cards[0]
	}
	if c.Together || len(c.Sets) < 2 || c.Best == nil {
		t.Fatalf("%+v", c)
	}
	best, roomy := 0, 0
	for _, mask := range bySize(len(names)) {
		var set []string
		for _, k := range places(mask) {
			set = append(set, names[k])
		}
		if len(set) == 0 {
			continue
		}
		alone := together(set)
		fits, maximal := alone.Together, alone.Together
		for _, name := range names {
			if maximal && !slices.Contains(set, name) {
				more := slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n != name && !slices.Contains(set, n) })
				maximal = !together(more).Together
			}
		}
		i := slices.IndexFunc(c.Sets, func(s SetForecast) bool { return slices.Equal(s.Models, set) })
		if maximal != (i >= 0) {
			t.Errorf("%v: maximal %v, listed at %d", set, maximal, i)
		}
		if i >= 0 && (c.Sets[i].TokensEach != alone.Resident.TokensEach || c.Sets[i].KVBytes != alone.Memory.KVBytes) {
			t.Errorf("%+v; alone %+v", c.Sets[i], alone.Resident)
		}
		if fits && alone.Resident.TokensEach >= 16<<10 {
			if len(set) > best {
				best, roomy = len(set), 0
			}
			if len(set) == best {
				roomy = max(roomy, alone.Resident.TokensEach)
			}
		}
	}
	if len(c.Best.Models) != best || c.Best.TokensEach != roomy {
		t.Errorf("best %+v, want %d models with %d tokens each", c.Best, best, roomy)
	}
}

// TestForecastParks: a server whose models are idle parks what the forecast says.
func TestForecastParks(t *testing.T) {
	f := forecast(t, "rtx3090", nil, fleet...)
	c := f.Cards[0]
	for i, m := range c.Models {
		if !c.Memory.Models[i].Parked {
			if len(m.Parks) > 0 {
				t.Errorf("%s is there and parks %v", m.Name, m.Parks)
			}
			continue
		}
		synctest.Test(t, func(t *testing.T) {
			e := openSim(t, "rtx3090", nil, fleet...)
			defer e.Close()
			_, _, at, final := timed(t, e, Request{Model: m.Name, Prompt: prompt(10, 3), MaxTokens: 3, IgnoreEOS: true})
			if final.Finish != FinishLength || at[0] < seconds(m.LoadSeconds) {
				t.Errorf("%s: %+v, the first token after %v, loading takes %v s", m.Name, final, at, m.LoadSeconds)
			}
			var parked []string
			for k, info := range e.Models() {
				if info.State == "parked" && !c.Memory.Models[k].Parked {
					parked = append(parked, info.Name)
				}
			}
			want := slices.Sorted(slices.Values(m.Parks))
			slices.Sort(parked)
			if !slices.Equal(parked, want) {
				t.Errorf("for %s the server parked %v, the forecast %v", m.Name, parked, want)
			}
		})
	}
}

// TestForecastOfTooMuch: a card that is too small is no error; the forecast says by how much, and with that much more the model fits.
func TestForecastOfTooMuch(t *testing.T) {
	f := forecast(t, "rtx3090", func(o *PlanOptions) {
		o.Models = []ModelSpec{{Name: "qwen3.5-27b", Floats: true}, {Name: "phi-4"}}
	})
	c := f.Cards[0]
	if c.Memory != nil || c.Together || !strings.Contains(c.Refused, "qwen3.5-27b") || c.MissingBytes < 20<<30 {
		t.Fatalf("%+v", c)
	}
	big, phi := c.Models[0], c.Models[1]
	if big.Alone != nil || big.MissingBytes > c.MissingBytes || big.Contexts[1].TTFT != 0 || !big.Contexts[0].Decode[0].OverCapacity {
		t.Errorf("%+v", big)
	}
	if phi.Alone == nil || phi.Contexts[0].Requests != 0 || phi.Contexts[0].RequestsAlone == 0 || phi.Contexts[0].Decode[0].OverCapacity {
		t.Errorf("%+v", phi)
	}
	if len(c.Sets) != 1 || !slices.Equal(c.Best.Models, []string{"phi-4"}) {
		t.Errorf("%+v, best %+v", c.Sets, c.Best)
	}
	for more, fits := range map[int64]bool{big.MissingBytes: true, big.MissingBytes - 1: false} {
		s, _ := sim.Find("rtx3090")
		s.MemoryBytes += more
		p, err := newPlanner(PlanOptions{Options: Options{Device: "sim:rtx3090", Models: []ModelSpec{{Name: "qwen3.5-27b", Floats: true}}}})
		if err != nil {
			t.Fatal(err)
		}
		if err := p.load(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		if err := p.facts(); err != nil {
			t.Fatal(err)
		}
		if _, err := p.memory(s, []int{0}); (err == nil) != fits {
			t.Errorf("with %d bytes more: %v", more, err)
		}
	}
	long := forecast(t, "rtx3090", func(o *PlanOptions) { o.Models[0].MaxModelLen = 250_000 }, "qwen3.5-27b").Cards[0]
	if long.Memory != nil || !strings.Contains(long.Refused, "max model length 250000") || long.MissingBytes < 1<<30 {
		t.Errorf("%+v", long)
	}
}

func TestForecastRefuses(t *testing.T) {
	phi := []ModelSpec{{Name: "phi-4"}}
	for want, o := range map[string]PlanOptions{
		"no models":                        {},
		`no card "rtx9999"`:                {Options: Options{Models: phi}, Cards: []string{"a6000", "rtx9999"}},
		`device "cpu": plans are for`:      {Options: Options{Models: phi, Device: "cpu"}},
		"device sim:l4 and cards l40s":     {Options: Options{Models: phi, Device: "sim:l4"}, Cards: []string{"l40s"}},
		"phi-5: no embedded model":         {Options: Options{Models: []ModelSpec{{Name: "phi-5"}}}},
		"model phi-4 is named twice":       {Options: Options{Models: append(phi, phi...)}},
		"context: -1 is not in":            {Options: Options{Models: phi}, Contexts: []int{8, -1}},
		"context: 20000000 is not in":      {Options: Options{Models: phi}, Contexts: []int{20_000_000}},
		"context: 0 numbers":               {Options: Options{Models: phi}, Contexts: []int{}},
		"concurrency: 0 is not in":         {Options: Options{Models: phi}, Concurrency: []int{0}},
		"answer tokens: -1 is not in":      {Options: Options{Models: phi}, AnswerTokens: -1},
		`kv-cache-dtype "fp7"`:             {Options: Options{Models: phi, KVCacheDType: "fp7"}},
		`quantize: "int3" is not known`:    {Options: Options{Models: phi, Quantize: "int3"}},
		"max number of sequences: -1":      {Options: Options{Models: phi, MaxNumSeqs: -1}},
		"weight memory: -5 is negative":    {Options: Options{Models: phi, WeightMemory: -5}},
		"max batched tokens: 99999 is mor": {Options: Options{Models: phi, MaxBatchedTokens: 99999}},
	} {
		if f, err := Plan(t.Context(), o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, %v; want %q", f, err, want)
		}
	}
}

// TestForecastOddInputs: numbers come sorted and once, a context that a model does not have is too long, and two names of one model
// are two models.
func TestForecastOddInputs(t *testing.T) {
	f := forecast(t, "a6000", func(o *PlanOptions) {
		o.Models = []ModelSpec{{Name: "a", Path: ""}, {Name: "phi-4"}}
		raw, _ := configs.Open("phi-4")
		path := filepath.Join(t.TempDir(), "x.json")
		if err := os.WriteFile(path, raw, 0o600); err != nil {
			t.Fatal(err)
		}
		o.Models[0].Path = path
		o.Contexts, o.Concurrency, o.AnswerTokens = []int{16383, 0, 16384, 0, 1 << 24}, []int{4096, 1, 1}, 1<<24
		o.Cards = []string{"a6000", "a6000"}
	})
	if !slices.Equal(f.Contexts, []int{0, 16383, 16384, 1 << 24}) || !slices.Equal(f.Concurrency, []int{1, 4096}) || len(f.Cards) != 1 {
		t.Fatalf("%v, %v, %d cards", f.Contexts, f.Concurrency, len(f.Cards))
	}
	a, b := f.Models[0], f.Models[1]
	a.Name, a.Source = b.Name, b.Source
	if a != b || f.Model("a") == nil || f.Model("none") != nil {
		t.Errorf("%+v\n%+v", a, b)
	}
	for _, x := range f.Cards[0].Models[0].Contexts {
		switch {
		case x.TooLong != (x.Context >= 16384), x.TooLong && (x.Decode != nil || x.TTFT != 0):
			t.Errorf("%+v", x)
		case !x.TooLong && (x.Requests < 1 || x.Decode[0].OverCapacity || !x.Decode[1].OverCapacity):
			t.Errorf("%+v", x)
		}
	}
	if r := f.Cards[0].Resident; len(r.RequestsEach) != 4 || r.RequestsEach[3] != 0 || r.RequestsEach[0] < 1 || r.TokensEach != 16384 {
		t.Errorf("%+v", r)
	}
}

// TestForecastJSON: the form says what it is, has no number that JSON cannot hold, and comes back the same.
func TestForecastJSON(t *testing.T) {
	for _, card := range []string{"rtx3090", "h200"} {
		f := forecast(t, card, nil, fleet[:4]...)
		b, err := json.Marshal(f)
		if err != nil {
			t.Fatal(err)
		}
		var back Forecast
		d := json.NewDecoder(strings.NewReader(string(b)))
		d.DisallowUnknownFields()
		if err := d.Decode(&back); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(f, &back, cmpopts.IgnoreUnexported(ModelPlan{})); diff != "" {
			t.Error(diff)
		}
		var plain struct {
			Format    string
			Simulated bool
			Cards     []struct {
				Memory struct {
					Pages  int
					Models []struct {
						CacheTokens int `json:"cache_tokens"`
					}
				}
			}
		}
		if err := json.Unmarshal(b, &plain); err != nil || plain.Format != "openinfer-plan/1" || !plain.Simulated ||
			plain.Cards[0].Memory.Pages != f.Cards[0].Memory.Pages || plain.Cards[0].Memory.Models[3].CacheTokens != f.Cards[0].Memory.Models[3].CacheTokens {
			t.Errorf("%+v, %v", plain, err)
		}
	}
}

// TestForecastOfAConfigAlone: what config.json says of quantised weights is what the files have.
func TestForecastOfAConfigAlone(t *testing.T) {
	for _, name := range demo.Names() {
		files, _ := demo.Open(name)
		dir := t.TempDir()
		if err := os.CopyFS(dir, files); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(dir, "model.safetensors"), filepath.Join(t.TempDir(), "away")); err != nil {
			t.Fatal(err)
		}
		f := forecast(t, "l4", func(o *PlanOptions) {
			o.Models = []ModelSpec{{Name: "config", Path: dir, Floats: true}, {Name: name}}
		})
		a, b := f.Models[0], f.Models[1]
		if a.Source != "config" || b.Source != "safetensors" {
			t.Errorf("%s, %s", a.Source, b.Source)
		}
		a.Name, a.Source = b.Name, b.Source
		if fmt.Sprint(a) != fmt.Sprint(b) {
			t.Errorf("config.json: %+v\nfiles: %+v", a, b)
		}
	}
}
