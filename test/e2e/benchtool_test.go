package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/openinfer-go/openinfer/engine"
)

// tool is a benchmark made for vLLM, as llm-inference-bench is one: it takes the first of the models and the first series of
// each metric for its own, skips what the KV cache cannot hold, waits until all it sent runs and none waits, and counts
// tokens by the usage of every chunk.
type tool struct {
	*service
	base, model string
	context     int // max_model_len
	cache       int // tokens of the KV cache
}

func newTool(t *testing.T, s *service, base string) *tool {
	t.Helper()
	c := &tool{service: s, base: base}
	if status, _ := s.get(t, base+"/get_server_info"); status != http.StatusNotFound { // SGLang's
		t.Fatalf("/get_server_info: %d", status)
	}
	var version struct{ Version string }
	var models struct {
		Data []struct {
			ID          string
			MaxModelLen int `json:"max_model_len"`
		}
	}
	for path, to := range map[string]any{"/version": &version, "/v1/models": &models} {
		_, text := s.get(t, base+path)
		if err := json.Unmarshal([]byte(text), to); err != nil {
			t.Fatalf("%s: %v: %s", path, err, text)
		}
	}
	if version.Version == "" || len(models.Data) == 0 {
		t.Fatalf("%+v %+v", version, models)
	}
	c.model, c.context = models.Data[0].ID, models.Data[0].MaxModelLen
	labels, _ := c.first(t, "vllm:cache_config_info")
	number := func(label string) int {
		m := regexp.MustCompile(label + `="(\d+)"`).FindStringSubmatch(labels)
		if m == nil {
			t.Fatalf("no %s in %s", label, labels)
		}
		n, _ := strconv.Atoi(m[1])
		return n
	}
	c.cache = number("block_size") * number("num_gpu_blocks")
	if n := number("kv_cache_size_tokens"); n != c.cache {
		t.Errorf("%s: %d tokens in blocks, %d said", c.model, c.cache, n)
	}
	return c
}

// first is the first series whose name begins so.
func (c *tool) first(t *testing.T, name string) (labels string, value float64) {
	t.Helper()
	_, text := c.get(t, c.base+"/metrics")
	for lines := bufio.NewScanner(strings.NewReader(text)); lines.Scan(); {
		if line := lines.Text(); strings.HasPrefix(line, name) {
			at := strings.LastIndexByte(line, ' ')
			v, err := strconv.ParseFloat(line[at+1:], 64)
			if err != nil {
				t.Fatal(err)
			}
			return line[len(name):at], v
		}
	}
	t.Fatalf("%s%s: no %s", c.base, c.model, name)
	return
}

func (c *tool) value(t *testing.T, name string) float64 {
	t.Helper()
	_, v := c.first(t, name)
	return v
}

// ended is what came of a stream.
type ended struct {
	status, prompt, tokens int
	continuous             bool // every chunk had the usage so far, which never fell
}

// send sends one request whose prompt has about so many words, and says when its first token is there.
func (c *tool) send(t *testing.T, words, maxTokens int, first func()) (r ended) {
	resp, err := c.postTo(c.base+"/v1/chat/completions", body{
		"model": c.model, "messages": []any{body{"role": "user", "content": fmt.Sprint(words) + strings.Repeat(" so", words)}}, "stream": true, "max_tokens": maxTokens,
		"ignore_eos": true, "stream_options": body{"include_usage": true, "continuous_usage_stats": true},
	})
	if err != nil {
		t.Error(err)
		return r
	}
	defer resp.Body.Close()
	r.status, r.continuous = resp.StatusCode, true
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		text, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok || text == "[DONE]" {
			continue
		}
		var chunk struct {
			Usage *struct {
				Prompt     int `json:"prompt_tokens"`
				Completion int `json:"completion_tokens"`
			}
		}
		if err := json.Unmarshal([]byte(text), &chunk); err != nil {
			t.Error(err)
			return r
		}
		if chunk.Usage == nil || chunk.Usage.Completion < r.tokens {
			r.continuous = false
			continue
		}
		if r.tokens == 0 && chunk.Usage.Completion > 0 {
			first()
		}
		r.prompt, r.tokens = chunk.Usage.Prompt, chunk.Usage.Completion
	}
	return r
}

// TestBenchmarkTool: what a benchmark made for vLLM asks is there and fits together, for one model and, below its path,
// for each of several: the cache holds the longest sequence, requests that decode are seen to run, tokens and prefill time
// of the counters are those of the answers, and afterwards nothing runs.
func TestBenchmarkTool(t *testing.T) {
	for _, models := range [][]string{{"qwen3.8-27b"}, {"gemma-4-12b"}, {"qwen3.5-9b", "llama-3.2-1b", "phi-4"}} {
		t.Run(strings.Join(models, " "), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var specs []engine.ModelSpec
				for _, m := range models {
					specs = append(specs, engine.ModelSpec{Name: m})
				}
				s, stop := virtual(t, engine.Options{Device: "sim:rtx3090", Models: specs})
				defer stop()
				for _, name := range models {
					base := ""
					if len(models) > 1 {
						base = "/models/" + name
					}
					c := newTool(t, s, base)
					if c.model != name || c.context < 4096 || c.cache < c.context {
						t.Errorf("%s: %d tokens of context, %d of cache", c.model, c.context, c.cache)
					}
					counters := []string{"vllm:generation_tokens_total", "vllm:prompt_tokens_total", "vllm:request_prefill_time_seconds_count",
						"vllm:request_prefill_kv_computed_tokens_sum", "vllm:request_prefill_time_seconds_sum"}
					before := map[string]float64{}
					for _, n := range counters {
						before[n] = c.value(t, n)
					}
					const n = 3
					var decoding atomic.Int64
					answers := make(chan ended, n)
					for i := range n {
						go func() {
							answers <- c.send(t, 1000+100*i, 200, func() { decoding.Add(1) })
						}()
					}
					for i := 0; decoding.Load() < n && i < 1000; i++ {
						time.Sleep(10 * time.Millisecond)
					}
					if running, waiting := c.value(t, "vllm:num_requests_running"), c.value(t, "vllm:num_requests_waiting"); running != n || waiting != 0 {
						t.Errorf("%s: %v run and %v wait of %d", name, running, waiting, n)
					}
					if usage := c.value(t, "vllm:kv_cache_usage_perc"); usage <= 0 || usage >= 1 {
						t.Errorf("%s: usage %v", name, usage)
					}
					var tokens, prompt float64
					for range n {
						a := <-answers
						if a.status != http.StatusOK || !a.continuous || a.tokens != 200 || a.prompt < 1000 {
							t.Errorf("%s: %+v", name, a)
						}
						tokens, prompt = tokens+float64(a.tokens), prompt+float64(a.prompt)
					}
					got := map[string]float64{}
					for _, m := range counters {
						got[m] = c.value(t, m) - before[m]
					}
					want := fmt.Sprint(tokens, prompt, float64(n), prompt)
					if is := fmt.Sprint(got[counters[0]], got[counters[1]], got[counters[2]], got[counters[3]]); is != want || got[counters[4]] <= 0 || got[counters[4]] > 4*n {
						t.Errorf("%s: tokens, prompt, prefills, computed are %s, want %s, in %v s", name, is, want, got[counters[4]])
					}
					time.Sleep(time.Second)
					if running, waiting, usage := c.value(t, "vllm:num_requests_running"), c.value(t, "vllm:num_requests_waiting"), c.value(t, "vllm:kv_cache_usage_perc"); running+waiting+usage != 0 {
						t.Errorf("%s: at rest %v run, %v wait, usage %v", name, running, waiting, usage)
					}
				}
			})
		})
	}
}
