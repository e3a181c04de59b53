package api

import (
	"bytes"
	"math"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	prommodel "github.com/prometheus/common/model"

	"github.com/openinfer-go/openinfer/api/apitest"
	"github.com/openinfer-go/openinfer/engine"
)

// scraped is an exposition by metric name.
type scraped map[string]*dto.MetricFamily

func (s served) scrape() scraped {
	s.t.Helper()
	a := s.do("GET", "/metrics", "")
	parser := expfmt.NewTextParser(prommodel.UTF8Validation)
	all, err := parser.TextToMetricFamilies(bytes.NewReader(a.body))
	if a.status != 200 || err != nil {
		s.t.Fatalf("%d %v", a.status, err)
	}
	return all
}

// value of the metric with these labels, -1 if there is none; of a histogram its count.
func (m scraped) value(name string, labels ...string) float64 {
	f := m[name]
metrics:
	for _, x := range f.GetMetric() {
		have := map[string]string{}
		for _, l := range x.GetLabel() {
			have[l.GetName()] = l.GetValue()
		}
		for i := 0; i < len(labels); i += 2 {
			if have[labels[i]] != labels[i+1] {
				continue metrics
			}
		}
		switch f.GetType() {
		case dto.MetricType_COUNTER:
			return x.GetCounter().GetValue()
		case dto.MetricType_HISTOGRAM:
			return float64(x.GetHistogram().GetSampleCount())
		}
		return x.GetGauge().GetValue()
	}
	return -1
}

// What NVML says of a card is there, and what it does not say is not.
func TestMetricsOfACard(t *testing.T) {
	nan := math.NaN()
	card := &engine.CardStats{Name: "Some Card", CardSample: engine.CardSample{
		MemoryBytes: 24 << 30, UsedBytes: 6 << 30, Utilization: 0.75, PowerWatts: 320.5, LimitWatts: nan,
		ClockHz: 1695e6, MaxClockHz: 2100e6, MemoryClockHz: 9751e6, TemperatureCelsius: nan,
	}}
	gen := &apitest.Generator{Names: []string{"M"}, Card: card}
	m := serve(t, gen, Options{}).scrape()
	for name, want := range map[string]float64{
		"openinfer_card_memory_bytes": 24 << 30, "openinfer_card_memory_used_bytes": 6 << 30, "openinfer_card_utilization_ratio": 0.75,
		"openinfer_card_power_watts": 320.5, "openinfer_card_clock_hertz": 1695e6, "openinfer_card_clock_max_hertz": 2100e6,
		"openinfer_card_memory_clock_hertz": 9751e6, "openinfer_card_power_limit_watts": -1, "openinfer_card_temperature_celsius": -1,
	} {
		if got := m.value(name); got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	if m.value("openinfer_card_info", "card", "Some Card") != 1 {
		t.Errorf("info: %v", m["openinfer_card_info"])
	}
	gen.Card = nil
	if _, any := serve(t, gen, Options{}).scrape()["openinfer_card_info"]; any {
		t.Error("metrics of a card that is not there")
	}
}

func TestMetrics(t *testing.T) {
	gen := answers(func(engine.Request) apitest.Answer { return apitest.Answer{Text: "abc"} })
	s := serve(t, gen, Options{Version: "7"})
	m := s.scrape()
	for _, name := range []string{
		"vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc", "vllm:cache_config_info",
		"vllm:prompt_tokens_total", "vllm:generation_tokens_total", "vllm:time_to_first_token_seconds", "vllm:time_per_output_token_seconds",
		"vllm:inter_token_latency_seconds", "vllm:e2e_request_latency_seconds", "vllm:num_preemptions_total",
		"vllm:prefix_cache_queries_total", "vllm:prefix_cache_hits_total", "openinfer_kv_blocks", "openinfer_requests_refused_total",
	} {
		for _, model := range gen.Names {
			if v := m.value(name, "model_name", model); v < 0 {
				t.Errorf("%s has no model_name %s before the first request", name, model)
			}
		}
	}
	for _, reason := range []string{"stop", "length", "abort", "error"} {
		if m.value("vllm:request_success_total", "model_name", "M", "finished_reason", reason) != 0 {
			t.Errorf("no request_success_total for %s", reason)
		}
	}
	if m.value("vllm:cache_config_info", "model_name", "M", "block_size", "16", "num_gpu_blocks", "100", "kv_cache_size_tokens", "1600") != 1 ||
		m.value("openinfer_build_info", "version", "7") != 1 || m.value("openinfer_kv_pages", "state", "cached") != 2 ||
		m.value("openinfer_requests_waiting") != 0 || m.value("openinfer_kv_usage_ratio") < 0 || m.value("openinfer_kv_usage_ratio") > 1 {
		t.Errorf("info: %v", m["vllm:cache_config_info"])
	}

	s.ok(s.post("/v1/chat/completions", chatBody(`"n":2`)))
	s.ok(s.post("/v1/completions", `{"model":"M","prompt":"p","max_tokens":2}`))
	s.post("/v1/completions", `{"model":"M","prompt":"p","n":0}`)
	s.do("GET", "/v1/models/some/made/up/path", "")
	s.do("GET", "/made/up", "")
	s.post("/v1/models/unload", `{"model":"org/other"}`)
	s.post("/v1/models/load", `{"model":"org/other"}`)
	s.scrape()
	m = s.scrape() // the scrape before changed nothing
	for _, c := range []struct {
		name   string
		want   float64
		labels []string
	}{
		{"vllm:generation_tokens_total", 10, []string{"model_name", "M"}},
		{"vllm:prompt_tokens_total", 23, []string{"model_name", "M"}},
		{"vllm:request_success_total", 2, []string{"model_name", "M", "finished_reason", "stop"}},
		{"vllm:request_success_total", 1, []string{"model_name", "M", "finished_reason", "length"}},
		{"vllm:time_to_first_token_seconds", 3, []string{"model_name", "M"}},
		{"vllm:e2e_request_latency_seconds", 3, []string{"model_name", "M"}},
		{"vllm:time_per_output_token_seconds", 3, []string{"model_name", "M"}},
		{"vllm:request_prefill_time_seconds", 3, []string{"model_name", "M"}},
		{"vllm:request_prefill_kv_computed_tokens", 3, []string{"model_name", "M"}},
		{"vllm:inter_token_latency_seconds", 7, []string{"model_name", "M"}},
		{"vllm:num_requests_running", 0, []string{"model_name", "M"}},
		{"vllm:time_to_first_token_seconds", 0, []string{"model_name", "org/other"}},
		{"openinfer_http_replies_total", 1, []string{"path", "/v1/completions", "status", "400"}},
		{"openinfer_http_replies_total", 1, []string{"path", "/v1/models/{id}", "status", "404"}},
		{"openinfer_http_replies_total", 1, []string{"path", "/v1/models/load", "status", "200"}},
		{"openinfer_http_replies_total", 1, []string{"path", "/v1/models/unload", "status", "200"}},
		{"openinfer_http_replies_total", 1, []string{"path", "other", "status", "404"}},
		{"openinfer_http_replies_total", 2, []string{"path", "/metrics", "status", "200"}},
	} {
		if got := m.value(c.name, c.labels...); got != c.want {
			t.Errorf("%s%v is %v, want %v", c.name, c.labels, got, c.want)
		}
	}
}
