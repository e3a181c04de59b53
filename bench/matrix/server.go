package matrix

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/openinfer-go/openinfer/bench/load"
)

// engines are the names of servers by who they say owns their models.
var engines = map[string]string{"openinfer": "OpenInfer", "vllm": "vLLM", "llamacpp": "llama.cpp", "library": "Ollama", "sglang": "SGLang"}

// describe asks a server what it is. Only its models must be known.
func describe(ctx context.Context, c *load.Client, name string) (Server, error) {
	s := Server{URL: c.URL, Endpoint: c.Endpoint, Model: name}
	models, err := c.Models(ctx)
	if ctx.Err() != nil {
		return s, ctx.Err()
	}
	if err != nil {
		return s, fmt.Errorf("asking for the models: %w", err)
	}
	m, err := load.Pick(models, name)
	if err != nil {
		return s, fmt.Errorf("--model: %w", err)
	}
	s.Model, s.MaxModelLen, s.Simulated = m.ID, m.MaxModelLen, m.Simulated

	var owners struct {
		Data []struct {
			ID    string `json:"id"`
			Owner string `json:"owned_by"`
		} `json:"data"`
	}
	if json.Unmarshal(ask(ctx, c, "/v1/models"), &owners) == nil {
		for _, o := range owners.Data {
			if o.ID == s.Model {
				s.Engine = engines[o.Owner]
			}
		}
	}
	for _, path := range []string{"/version", "/api/version", "/props"} { // vLLM and OpenInfer, Ollama, llama.cpp
		var v struct {
			Version string `json:"version"`
			Build   string `json:"build_info"`
		}
		if json.Unmarshal(ask(ctx, c, path), &v) == nil && v.Version+v.Build != "" {
			s.Version = v.Version + v.Build
			break
		}
	}
	s.readMetrics(ask(ctx, c, "/metrics"))
	return s, nil
}

// ask gets a path; nil if the server has none.
func ask(ctx context.Context, c *load.Client, path string) []byte {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.URL+path, nil)
	if err != nil {
		return nil
	}
	if c.Key != "" {
		req.Header.Set("Authorization", "Bearer "+c.Key)
	}
	resp, err := (&http.Client{Transport: c.Transport}).Do(req)
	if err != nil {
		return nil
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, 16<<20))
	if err != nil || resp.StatusCode != http.StatusOK {
		return nil
	}
	return b
}

// readMetrics takes the size of the KV cache and the hardware from what a server says in Prometheus' format.
func (s *Server) readMetrics(text []byte) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		return
	}
	if l := s.labels(families["vllm:cache_config_info"]); l != nil {
		size, err := strconv.Atoi(l["block_size"])
		blocks, err2 := strconv.Atoi(l["num_gpu_blocks"])
		if err == nil && err2 == nil && size > 0 && blocks > 0 {
			s.CacheTokens = size * blocks
		}
		// What a server says of the whole: with layers of several kinds a block of each is counted, which would be too much.
		if n, err := strconv.Atoi(l["kv_cache_size_tokens"]); err == nil && n > 0 {
			s.CacheTokens = n
		}
		s.CacheDType = l["cache_dtype"]
	}
	if l := s.labels(families["openinfer_card_info"]); l != nil {
		s.Hardware = l["card"]
	}
	if l := s.labels(families["openinfer_simulated"]); l != nil {
		s.Simulated = l["card"]
	}
}

// labels are those of the series of s's model, or of the one that names no model.
func (s *Server) labels(f *dto.MetricFamily) map[string]string {
	for _, m := range f.GetMetric() {
		labels := map[string]string{}
		for _, l := range m.GetLabel() {
			labels[l.GetName()] = l.GetValue()
		}
		if name, named := labels["model_name"]; !named || name == s.Model {
			return labels
		}
	}
	return nil
}
