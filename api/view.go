package api

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"

	"github.com/openinfer-go/openinfer/engine"
)

// viewPath, with a model's name behind it, comes before every other path: the server as if it had only that model.
// Programs made for servers of one model take the first of /v1/models and of each metric's series for theirs.
const viewPath = "/models/"

// oneModel is a Generator that names one of its models alone.
type oneModel struct {
	Generator
	name string
}

func (g oneModel) Models() []engine.ModelInfo {
	for _, m := range g.Generator.Models() {
		if m.Name == g.name {
			return []engine.ModelInfo{m}
		}
	}
	return nil
}

// view is h with one model. Keys, the memory of bodies and what is counted are h's.
func (h *Handler) view(name string) *Handler {
	v := *h
	v.gen = oneModel{h.gen, name}
	v.metrics = h.metrics.only(name)
	v.views = nil
	v.routes = v.table()
	return &v
}

// viewed is the view that a path asks for, and the path there; nil if it asks for none. Of names that begin alike
// the longest that fits is meant.
func (h *Handler) viewed(path string) (v *Handler, rest string) {
	path, ok := strings.CutPrefix(path, viewPath)
	if !ok {
		return nil, ""
	}
	longest := -1
	for name, view := range h.views {
		if r, ok := strings.CutPrefix(path, name); ok && strings.HasPrefix(r, "/") && len(name) > longest {
			v, rest, longest = view, r, len(name)
		}
	}
	return v, rest
}

// only is m without the series of other models.
func (m *metrics) only(name string) *metrics {
	v := *m
	v.registry = prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		all, err := m.registry.Gather()
		kept := all[:0]
		for _, f := range all {
			series := f.Metric[:0]
			for _, x := range f.Metric {
				if !ofOther(x, name) {
					series = append(series, x)
				}
			}
			if f.Metric = series; len(series) > 0 {
				kept = append(kept, f)
			}
		}
		return kept, err
	})
	v.handler = promhttp.HandlerFor(v.registry, promhttp.HandlerOpts{})
	return &v
}

func ofOther(x *dto.Metric, model string) bool {
	for _, l := range x.Label {
		if l.GetName() == "model_name" {
			return l.GetValue() != model
		}
	}
	return false
}
