package api

import (
	"bufio"
	"bytes"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/openinfer-go/openinfer/api/apitest"
	"github.com/openinfer-go/openinfer/engine"
)

// firstSeries reads metrics as programs for servers of one model do: the first line that begins with the name counts.
func firstSeries(t *testing.T, s served, base, name string) (labels string, value float64) {
	t.Helper()
	line := regexp.MustCompile(`^([a-zA-Z_:][a-zA-Z0-9_:]*)(\{[^}]*\})?\s+([0-9.eE+-]+)$`)
	for lines := bufio.NewScanner(bytes.NewReader(s.do("GET", base+"/metrics", "").body)); lines.Scan(); {
		if m := line.FindStringSubmatch(lines.Text()); m != nil && strings.HasPrefix(m[1], name) {
			v, err := strconv.ParseFloat(m[3], 64)
			if err != nil {
				t.Fatal(err)
			}
			return m[2], v
		}
	}
	t.Fatalf("%s has no %s", base, name)
	return
}

// TestViewOfOneModel: below a model's path there is that model alone, whatever its name and its place among the others.
func TestViewOfOneModel(t *testing.T) {
	gen := answers(func(engine.Request) apitest.Answer { return apitest.Answer{Text: "abc"} })
	gen.Names = []string{"M", "org/other", "org"}
	s := serve(t, gen, Options{})
	s.ok(s.post("/v1/completions", `{"model":"org/other","prompt":"p","max_tokens":2}`))
	for i, name := range gen.Names {
		base := "/models/" + name
		r := s.ok(s.do("GET", base+"/v1/models", ""))
		if r.at("data", 0, "id") != name || r.at("data", 1) != nil {
			t.Errorf("%s: models: %v", name, r)
		}
		for _, metric := range []string{"vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc", "vllm:generation_tokens_total",
			"vllm:prompt_tokens_total", "vllm:request_success_total", "vllm:request_prefill_time_seconds_sum", "vllm:request_prefill_time_seconds_count",
			"vllm:request_prefill_kv_computed_tokens_sum", "vllm:cache_config_info"} {
			labels, _ := firstSeries(t, s, base, metric)
			if !strings.Contains(labels, `model_name="`+name+`"`) {
				t.Errorf("%s: the first %s is %s", name, metric, labels)
			}
		}
		labels, _ := firstSeries(t, s, base, "vllm:cache_config_info")
		if !strings.Contains(labels, `block_size="16"`) || !strings.Contains(labels, `num_gpu_blocks="100"`) || !strings.Contains(labels, `kv_cache_size_tokens="1600"`) {
			t.Errorf("%s: %s", name, labels)
		}
		s.ok(s.post(base+"/v1/completions", `{"model":"`+name+`","prompt":"p","max_tokens":2}`))
		s.ok(s.post(base+"/tokenize", `{"prompt":"p"}`)) // the only one need not be named
		s.ok(s.do("GET", base+"/v1/models/"+name, ""))
		s.ok(s.do("GET", base+"/version", ""))
		s.ok(s.do("GET", base+"/health", ""))
		other := gen.Names[(i+1)%len(gen.Names)]
		for path, body := range map[string]string{"/v1/completions": `{"model":"` + other + `","prompt":"p"}`, "/v1/models/load": `{"model":"` + other + `"}`,
			"/nowhere": `{}`, "/models/M/v1/models": `{}`} {
			if a := s.post(base+path, body); a.status != 404 {
				t.Errorf("%s%s: %d %s", base, path, a.status, a.body)
			}
		}
	}
	// One request at its own path and one at each view: the same counters.
	all := s.scrape()
	for name, want := range map[string]float64{"M": 1, "org/other": 2, "org": 1} {
		if got := all.value("vllm:time_to_first_token_seconds", "model_name", name); got != want {
			t.Errorf("%s: %v first tokens, want %v", name, got, want)
		}
	}
	for _, path := range []string{"/models/", "/models/none/v1/models", "/models/M", "/models/Mx/v1/models"} {
		if a := s.do("GET", path, ""); a.status != 404 {
			t.Errorf("%s: %d", path, a.status)
		}
	}
}

// TestViewNeedsKey: a view asks for the key that the server asks for.
func TestViewNeedsKey(t *testing.T) {
	gen := answers(func(engine.Request) apitest.Answer { return apitest.Answer{Text: "abc"} })
	s := serve(t, gen, Options{Keys: []string{"secret"}})
	if a := s.do("GET", "/models/M/v1/models", ""); a.status != 401 {
		t.Errorf("without: %d", a.status)
	}
	if a := s.do("GET", "/models/M/metrics", ""); a.status != 200 {
		t.Errorf("metrics: %d", a.status)
	}
}
