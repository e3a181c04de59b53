package fleet

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/openinfer-go/openinfer/bench/load/loadtest"
)

// nodes are stubs by host name in virtual time: n1 has model a and refuses b, n2 has both, as has whatever is at pooled. Their
// cards are busy for half and a quarter of the time; pooled's one nobody meters.
type nodes struct {
	stubs map[string]*loadtest.Stub
	begin time.Time
}

func newNodes() *nodes {
	answer := func(_ int, q loadtest.Request) loadtest.Answer {
		if q.MaxTokens == 1 { // a probe
			return loadtest.Answer{}
		}
		return loadtest.Answer{First: 500 * time.Millisecond, Gap: func(int) time.Duration { return 50 * time.Millisecond }}
	}
	one := func(i int, q loadtest.Request) loadtest.Answer {
		if q.Model == "b" && q.MaxTokens > 1 {
			return loadtest.Answer{Status: 429, Body: `{"error":{"message":"over capacity"}}`}
		}
		return answer(i, q)
	}
	return &nodes{begin: time.Now(), stubs: map[string]*loadtest.Stub{
		"n1": {Usage: 2, IDs: 400, Models: []string{"a"}, Answer: one}, "n2": {Usage: 2, IDs: 400, Models: []string{"a", "b"}, Answer: answer},
		"pooled": {Usage: 2, IDs: 400, Models: []string{"a", "b"}, Answer: answer}, "slow": {Usage: 2, IDs: 400, Models: []string{"a", "b"}, Answer: func(i int, q loadtest.Request) loadtest.Answer {
			a := answer(i, q)
			a.First *= 6
			return a
		}},
	}}
}

func (n *nodes) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	seconds := time.Since(n.begin).Seconds()
	switch share := map[string]float64{"n1": 0.5, "n2": 0.25}[r.Host]; {
	case r.URL.Path != "/metrics" || share == 0:
		n.stubs[r.Host].ServeHTTP(w, r)
	default:
		fmt.Fprintf(w, "# TYPE openinfer_step_seconds_total counter\nopeninfer_step_seconds_total{model_name=\"a\"} %g\nopeninfer_step_seconds_total{model_name=\"b\"} %g\nopeninfer_step_seconds_total_of_another 7\n",
			seconds*share/2, 3+seconds*share/2)
	}
}

func small() Scenario {
	return Scenario{Name: "small", Nodes: 2, Length: 10 * time.Second, Waves: 1, Width: 1, Floor: 1, PromptTokens: 30, SharedTokens: 20, OutputTokens: 11, Demands: []Demand{
		{Model: "a", Requests: 50, SLA: SLA{TTFT: time.Second, TPOT: 60 * time.Millisecond}}, {Model: "b", Requests: 30, SLA: SLA{TTFT: 2 * time.Second}},
	}}
}

// compare runs c at nodes in virtual time; after is when it is cut off, 0: never.
func compare(t *testing.T, c Config, after time.Duration) (r *Result, n *nodes, err error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n = newNodes()
		transport, _, stop := loadtest.Serve(n)
		defer stop()
		c.Transport = transport
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		if after > 0 {
			time.AfterFunc(after, cancel)
		}
		r, err = Run(ctx, c)
	})
	return r, n, err
}

func addresses(t *testing.T, texts ...string) (all []Address) {
	t.Helper()
	for _, text := range texts {
		a, err := ParseAddress(text)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, a)
	}
	return all
}

// Over HTTP both fleets get the same requests, and what they make of them is counted as in virtual time.
func TestRun(t *testing.T) {
	s := small()
	fleets := addresses(t, "pooled=http://pooled/v1", "by model=a@http://n1,b@http://n1/", "both=http://n1,a@http://n2")
	if err := ParseNodes("by model=http://n1,http://n2/", fleets); err != nil {
		t.Fatal(err)
	}
	r, n, err := compare(t, Config{Scenario: s, Seeds: []uint64{1, 2}, Fleets: fleets, SendSLA: true}, 0)
	if err != nil {
		t.Fatal(err)
	}
	byModel := [2]float64{}
	requests := s.Draw(2)
	for _, q := range requests {
		byModel[q.Demand]++
	}
	pooled, dedicated, both := r.Last[0], r.Last[1], r.Last[2]
	all := float64(len(requests))
	if want := (Counts{Offered: all, Served: all, Sellable: all, Tokens: 11 * all, SellableTokens: 11 * all}); pooled.All != want {
		t.Errorf("pooled: %+v, want %+v", pooled.All, want)
	}
	if want := (Counts{Offered: all, Served: byModel[0], Refused: byModel[1], Sellable: byModel[0], Tokens: 11 * byModel[0], SellableTokens: 11 * byModel[0]}); dedicated.All != want {
		t.Errorf("dedicated: %+v, want %+v", dedicated.All, want)
	}
	if m := pooled.Models[0]; m.TTFT95 != 500 || m.TPOT95 != 50 || m.E2E95 != 1000 || math.Abs(m.Rate-20) > 1e-9 {
		t.Errorf("%+v", m)
	}
	if !pooled.Unmetered || dedicated.Unmetered || dedicated.Nodes != 2 || dedicated.Models[0].Cards != 2 || dedicated.Models[1].Cards != 1 {
		t.Errorf("metered: %t, %t; %d nodes; %d cards of a", !pooled.Unmetered, !dedicated.Unmetered, dedicated.Nodes, dedicated.Models[0].Cards)
	}
	for what, v := range map[string][2]float64{"the fleet": {dedicated.MeanUtilisation, 0.375}, "a's cards": {dedicated.Models[0].MeanUtilisation, 0.375}, "b's": {dedicated.Models[1].PeakUtilisation, 0.25}} {
		if math.Abs(v[0]-v[1]) > 0.01 {
			t.Errorf("%s: busy for %g of the time, want %g", what, v[0], v[1])
		}
	}
	if a := r.Against[0]; len(a.Factors) != 2 || a.Factors[1] != all/byModel[0] {
		t.Errorf("%+v, want %g", a, all/byModel[0])
	}
	if got := both.Models[1].Refused + both.Models[0].Served; got != all || len(n.stubs["n2"].Seen()) == 0 {
		t.Errorf("both: %+v; n2 has seen %d requests", both.All, len(n.stubs["n2"].Seen()))
	}
	prompts := map[string]map[string]int{}
	for _, host := range []string{"pooled", "n1"} {
		prompts[host] = map[string]int{}
		for _, q := range n.stubs[host].Seen() {
			if q.MaxTokens == 1 {
				continue
			}
			if want := map[string]string{"a": `"sla":{"tpot_ms":60,"ttft_ms":1000}`, "b": `"sla":{"ttft_ms":2000}`}[q.Model]; q.PromptTokens != 50 || q.MaxTokens != 11 || !strings.Contains(q.Body, want) {
				t.Fatalf("%d tokens, %d to come: %s", q.PromptTokens, q.MaxTokens, q.Body)
			}
			prompts[host][string(q.Prompt)]++
		}
	}
	if len(prompts["pooled"]) != len(s.Draw(1))+len(requests) || prompts["n1"] == nil {
		t.Errorf("%d different prompts of %d requests", len(prompts["pooled"]), len(s.Draw(1))+len(requests))
	}
	for p := range prompts["n1"] {
		if prompts["pooled"][p] == 0 {
			t.Fatalf("the other fleet was not asked %s", p)
		}
	}
	checkPage(t, r)
}

// checkPage: eight tables (and one more for a third fleet), four charts, every fleet in each, the same after JSON.
func checkPage(t *testing.T, r *Result) {
	t.Helper()
	var html, text bytes.Buffer
	if err := r.Page().Write(&html); err != nil {
		t.Fatal(err)
	}
	if err := r.Page().WriteText(&text); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(html.String(), `data-chart=`); n != 4 {
		t.Errorf("%d charts", n)
	}
	// A chart has its numbers in a table, too; the load is the last.
	if n := strings.Count(html.String(), "<table"); n != 6+len(r.Fleets)+4+1 {
		t.Errorf("%d tables", n)
	}
	for _, s := range []string{html.String(), text.String()} {
		last := 0
		for _, want := range []string{"Sellable factor", "Runs", "Results", "Over time", "Totals and per node", "Latency and throughput", "Balance of load", "How it was measured"} {
			at := strings.LastIndex(s, want)
			if at < last {
				t.Errorf("%q is not where it belongs", want)
			}
			last = at
		}
	}
	file := filepath.Join(t.TempDir(), "r.json")
	if err := r.Write(file); err != nil {
		t.Fatal(err)
	}
	again, err := Read(file)
	if err != nil {
		t.Fatal(err)
	}
	a, _ := json.Marshal(r)
	b, _ := json.Marshal(again)
	if !bytes.Equal(a, b) || !reflect.DeepEqual(r.Load, again.Load) {
		t.Errorf("%s\n%s", a, b)
	}
}

// What was done before Ctrl-C is kept: part of a first run, or the runs before.
func TestRunCutOff(t *testing.T) {
	c := Config{Scenario: small(), Seeds: []uint64{1, 2}, Fleets: addresses(t, "x=http://pooled", "y=http://slow")}
	r, _, err := compare(t, c, 6*time.Second)
	if err == nil || r == nil || len(r.Load.Seeds) != 1 || r.Load.Seconds > 6 || r.Load.Seconds < 5 {
		t.Fatalf("%v, %+v", err, r)
	}
	for i := range r.Fleets {
		a := r.Fleets[i].All
		if a.Served == 0 || a.Failed != 0 || a.Offered != a.Served || a.Offered > 50 {
			t.Errorf("%s: %+v", r.Fleets[i].Name, a)
		}
	}
	r, _, err = compare(t, c, 17*time.Second)
	if err == nil || r == nil || len(r.Load.Seeds) != 1 || r.Load.Seconds != 10 || r.Fleets[0].All.Served != r.Fleets[0].All.Offered {
		t.Fatalf("%v, %+v", err, r)
	}
	if r, _, err = compare(t, c, time.Millisecond); err == nil || r != nil {
		t.Errorf("%v, %+v", err, r)
	}
}

func TestRunRefuses(t *testing.T) {
	for want, c := range map[string]Config{
		"no server for model b":     {Fleets: addresses(t, "x=a@http://pooled")},
		"nobody asks for that":      {Fleets: addresses(t, "x=http://pooled,c@http://n1")},
		`fleet "x": twice`:          {Fleets: addresses(t, "x=http://pooled", "x=http://n1")},
		"0 fleets":                  {},
		"is not an address":         {Fleets: addresses(t, "x=ftp://pooled")},
		"/v1/completions: status 4": {Fleets: addresses(t, "x=http://pooled"), Endpoint: "/v1/completions", Extra: map[string]any{"prompt": 7}},
	} {
		c.Scenario, c.Seeds = small(), []uint64{1}
		if _, _, err := compare(t, c, 0); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	for _, text := range []string{"", "x", "=http://a", "http://a=b", "x=", "x=http://a,,http://b", "x=@http://a"} {
		if a, err := ParseAddress(text); err == nil {
			t.Errorf("%q is taken: %+v", text, a)
		}
	}
	fleets := addresses(t, "x=http://a@b")
	if fleets[0].Servers[0].Model != "" {
		t.Errorf("%+v", fleets[0])
	}
	if ParseNodes("y=http://n", fleets) == nil || ParseNodes("x=http://n", fleets) != nil || ParseNodes("x=http://n", fleets) == nil {
		t.Error("nodes of no fleet, or twice, are taken")
	}
}

// Whoever meters cards is understood; what is not there is not known.
func TestReadMetrics(t *testing.T) {
	for text, want := range map[string]reading{
		"":                      {source: -1},
		"vllm:num_requests 3":   {source: -1},
		"not } metrics {\n\x00": {source: -1},
		"openinfer_step_seconds_total{model_name=\"a\"} 1.5\nopeninfer_step_seconds_total{model_name=\"b\"} 2\nopeninfer_model_loads_total{model_name=\"a\"} 4\nopeninfer_card_utilization_ratio 1": {source: 0, value: 3.5, loads: 4},
		"DCGM_FI_DEV_GPU_UTIL{gpu=\"0\"} 80\nDCGM_FI_DEV_GPU_UTIL{gpu=\"1\"} 40": {source: 1, value: 0.6},
		"nvidia_smi_utilization_gpu_ratio{uuid=\"x\"} 0.25":                      {source: 2, value: 0.25},
	} {
		got := readMetrics([]byte(text))
		if math.Abs(got.value-want.value) > 1e-9 || got.source != want.source || got.loads != want.loads {
			t.Errorf("%q: %+v, want %+v", text, got, want)
		}
	}
}
