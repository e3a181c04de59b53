package api

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/openinfer-go/openinfer/internal/config"
)

// keyMetrics count by the names of API keys. There are as many labels as the key file has names: those of keys that
// are taken out go with them.
type keyMetrics struct {
	replies, tokens, limited *prometheus.CounterVec
}

func newKeyMetrics(reg *prometheus.Registry) keyMetrics {
	counter := func(name, help, label string) *prometheus.CounterVec {
		v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{"key", label})
		reg.MustRegister(v)
		return v
	}
	return keyMetrics{
		replies: counter("openinfer_key_replies_total", "Replies by the name of the API key and status; 499 is a client that went away.", "status"),
		tokens:  counter("openinfer_key_tokens_total", "Tokens by the name of the API key, of prompts and of answers.", "kind"),
		limited: counter("openinfer_key_limited_total", "Requests refused because the API key was at a limit.", "limit"),
	}
}

// keyReply counts a reply to a request that had a key.
func (m *metrics) keyReply(w *reply, status int) {
	if w.key == nil {
		return
	}
	m.keys.replies.WithLabelValues(w.key.Name, strconv.Itoa(status)).Inc()
	if w.id != "" {
		m.keys.tokens.WithLabelValues(w.key.Name, "prompt").Add(float64(w.promptTokens))
		m.keys.tokens.WithLabelValues(w.key.Name, "completion").Add(float64(w.completionTokens))
	}
}

func (m *metrics) keyLimited(name, limit string) { m.keys.limited.WithLabelValues(name, limit).Inc() }

// forgetKeys drops what was counted of names that are no keys now.
func (m *metrics) forgetKeys(was, now []config.Key) {
	kept := map[string]bool{}
	for _, k := range now {
		kept[k.Name] = true
	}
	for _, k := range was {
		if kept[k.Name] {
			continue
		}
		for _, v := range []*prometheus.CounterVec{m.keys.replies, m.keys.tokens, m.keys.limited} {
			v.DeletePartialMatch(prometheus.Labels{"key": k.Name})
		}
	}
}
