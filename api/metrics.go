package api

import (
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/openinfer-go/openinfer/engine"
)

// metrics are what /metrics shows. Times are observed here; counters and gauges of the engine are
// read from its Stats when asked for, so that a scrape changes nothing.
type metrics struct {
	registry prometheus.Gatherer
	handler  http.Handler
	models   map[string]*modelMetrics
	replies  *prometheus.CounterVec
	keys     keyMetrics
}

// modelMetrics are one model's children of the histograms, looked up once.
type modelMetrics struct {
	ttft, tpot, itl, e2e, queue, prefill, computed prometheus.Observer
	recent                                         recent
}

// Buckets in seconds, but for countBuckets; like vLLM's where it has them, with finer ones below for small models.
var (
	firstTokenBuckets = []float64{.001, .005, .01, .02, .04, .06, .08, .1, .25, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560}
	tokenBuckets      = []float64{.001, .0025, .005, .01, .025, .05, .075, .1, .15, .2, .3, .4, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80}
	countBuckets      = []float64{1, 10, 100, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 2e5, 5e5, 1e6}
	requestBuckets    = []float64{.01, .05, .1, .3, .5, .8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680}
)

func newMetrics(gen Generator, version string) *metrics {
	m := &metrics{models: map[string]*modelMetrics{}}
	reg := prometheus.NewRegistry()
	histogram := func(name, help string, buckets []float64) *prometheus.HistogramVec {
		v := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, []string{"model_name"})
		reg.MustRegister(v)
		return v
	}
	ttft := histogram("vllm:time_to_first_token_seconds", "From the request to its first token.", firstTokenBuckets)
	tpot := histogram("vllm:time_per_output_token_seconds", "Time per output token after the first, one observation a sequence.", tokenBuckets)
	itl := histogram("vllm:inter_token_latency_seconds", "Gap between tokens.", tokenBuckets)
	e2e := histogram("vllm:e2e_request_latency_seconds", "From the request to its last token.", requestBuckets)
	queue := histogram("vllm:request_queue_time_seconds", "From admission to the first step.", requestBuckets)
	prefill := histogram("vllm:request_prefill_time_seconds", "From the first step to the first token.", requestBuckets)
	computed := histogram("vllm:request_prefill_kv_computed_tokens", "Prompt tokens computed, those in the prefix cache left out.", countBuckets)
	for _, info := range gen.Models() {
		n := info.Name
		m.models[n] = &modelMetrics{ttft: ttft.WithLabelValues(n), tpot: tpot.WithLabelValues(n), itl: itl.WithLabelValues(n),
			e2e: e2e.WithLabelValues(n), queue: queue.WithLabelValues(n), prefill: prefill.WithLabelValues(n), computed: computed.WithLabelValues(n)}
	}
	m.replies = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "openinfer_http_replies_total",
		Help: "Replies by path and status; 499 is a client that went away."}, []string{"path", "status"})
	build := prometheus.NewGauge(prometheus.GaugeOpts{Name: "openinfer_build_info", Help: "Always 1.",
		ConstLabels: prometheus.Labels{"version": version}})
	build.Set(1)
	m.keys = newKeyMetrics(reg)
	reg.MustRegister(m.replies, build, statsCollector{gen}, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.registry, m.handler = reg, promhttp.HandlerFor(reg, promhttp.HandlerOpts{})
	return m
}

func (h *Handler) scrape(w *reply, r *http.Request) error {
	w.deadline()
	h.metrics.handler.ServeHTTP(w, r)
	return nil
}

// reply counts a reply. Paths are those of routes: what clients make up must not become labels.
func (m *metrics) reply(rt route, path string, status int) {
	switch {
	case rt.serve == nil:
		path = "other"
	case rt.label != "":
		path = rt.label
	}
	m.replies.WithLabelValues(path, strconv.Itoa(status)).Inc()
}

// observe takes the times of an update.
func (m *metrics) observe(g *generation, c *choice, u update) {
	mm := m.models[g.model.Name]
	if mm == nil || g.promptOnly {
		return
	}
	now := time.Now()
	if k := len(u.Tokens); k > 0 {
		if c.firstToken.IsZero() {
			c.firstToken = now
			mm.ttft.Observe(now.Sub(g.arrival).Seconds())
			mm.recent.first(now, now.Sub(g.arrival), k)
			mm.queue.Observe(u.Usage.Queued.Seconds())
			mm.prefill.Observe((u.Usage.FirstToken - u.Usage.Queued).Seconds())
			mm.computed.Observe(float64(u.Usage.Prompt - u.Usage.Cached))
		} else {
			mm.recent.next(now, now.Sub(c.lastToken), k)
			gap := now.Sub(c.lastToken).Seconds() / float64(k)
			for range k {
				mm.itl.Observe(gap)
			}
		}
		c.lastToken = now
	}
	if u.Finish != engine.FinishStop && u.Finish != engine.FinishLength {
		return
	}
	mm.e2e.Observe(now.Sub(g.arrival).Seconds())
	if n := u.Usage.Completion; n > 1 && !c.firstToken.IsZero() {
		mm.tpot.Observe(now.Sub(c.firstToken).Seconds() / float64(n-1))
	}
}

// statsCollector shows the engine's own counters and gauges.
type statsCollector struct{ gen Generator }

func modelDesc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, append([]string{"model_name"}, labels...), nil)
}

func cardDesc(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("openinfer_card_"+name, help+" From NVML.", nil, nil)
}

var (
	descRunning = modelDesc("vllm:num_requests_running", "Sequences in the running batch.")
	descWaiting = modelDesc("vllm:num_requests_waiting", "Sequences that wait.")
	descUsage   = modelDesc("vllm:kv_cache_usage_perc", "Share of the KV cache that sequences hold now, 0 to 1; 0 at rest.")
	descConfig  = modelDesc("vllm:cache_config_info", "Always 1. block_size times num_gpu_blocks, and kv_cache_size_tokens, is the longest sequence that fits if it has the whole pool, which all models share.",
		"block_size", "num_gpu_blocks", "cache_dtype", "kv_cache_size_tokens")
	descPrompt        = modelDesc("vllm:prompt_tokens_total", "Prompt tokens.")
	descGenerated     = modelDesc("vllm:generation_tokens_total", "Tokens generated.")
	descForced        = modelDesc("openinfer_forced_tokens_total", "Tokens generated that a grammar left no choice about and that were computed in the row of another.")
	descCached        = modelDesc("vllm:prompt_tokens_cached_total", "Prompt tokens not computed, as the prefix cache had them.")
	descPreemptions   = modelDesc("vllm:num_preemptions_total", "Times a sequence lost its blocks and waited again.")
	descPrefixQueries = modelDesc("vllm:prefix_cache_queries_total", "Prompt tokens looked up in the prefix cache.")
	descPrefixHits    = modelDesc("vllm:prefix_cache_hits_total", "Prompt tokens found in the prefix cache.")
	descSuccess       = modelDesc("vllm:request_success_total", "Sequences by how they ended.", "finished_reason")

	descRefused     = modelDesc("openinfer_requests_refused_total", "Requests refused with 429: queue_full, or sla when theirs could not be promised.", "reason")
	descModelBlocks = modelDesc("openinfer_kv_blocks", "KV blocks: live (sequences hold them) or cached (kept for reuse).", "state")
	descStates      = modelDesc("openinfer_recurrent_states", "Recurrent states: live (of sequences) or cached (snapshots kept for reuse).", "state")
	descSteps       = modelDesc("openinfer_steps_total", "Steps of the model.")
	descStepSeconds = modelDesc("openinfer_step_seconds_total", "Time in steps of the model.")
	descResident    = modelDesc("openinfer_model_resident", "1 while the model's weights are on the device.")
	descLoads       = modelDesc("openinfer_model_loads_total", "Times the model's weights were brought to the device, beyond start-up.")
	descLoadSeconds = modelDesc("openinfer_model_load_seconds_total", "Time that took, with tries that failed.")
	descStepError   = modelDesc("openinfer_model_step_time_error", "How far predictions of steps' times are off: the median of the latest errors relative to the time taken.")
	descLate        = modelDesc("openinfer_sequences_late_total", "Sequences whose SLA could not be met any more before they ended.")
	descSellable    = modelDesc("openinfer_sellable_tokens_total", "Tokens of sequences that ended well within their SLA.")
	descReady       = modelDesc("openinfer_model_ready", "1 once the model is loaded.")
	descSimulated   = modelDesc("openinfer_simulated", "Always 1: the model's answers and times are those of a simulated card.", "card")
	descWeights     = modelDesc("openinfer_weight_bytes", "Size of the model's weights.")

	descCard            = prometheus.NewDesc("openinfer_card_info", "Always 1: the card that models run on.", []string{"card"}, nil)
	descCardMemory      = cardDesc("memory_bytes", "The card's memory.")
	descCardUsed        = cardDesc("memory_used_bytes", "What all processes have taken of it.")
	descCardUtilization = cardDesc("utilization_ratio", "Share of the last moments in which the card ran any kernel, 0 to 1.")
	descCardPower       = cardDesc("power_watts", "Power drawn.")
	descCardPowerLimit  = cardDesc("power_limit_watts", "Power that the card may draw.")
	descCardClock       = cardDesc("clock_hertz", "Clock of the multiprocessors.")
	descCardMaxClock    = cardDesc("clock_max_hertz", "The highest clock of the multiprocessors.")
	descCardMemoryClock = cardDesc("memory_clock_hertz", "Clock of the memory.")
	descCardTemperature = cardDesc("temperature_celsius", "Temperature of the card.")

	descPages     = prometheus.NewDesc("openinfer_kv_pages", "Pages of the shared pool by state.", []string{"state"}, nil)
	descPageBytes = prometheus.NewDesc("openinfer_kv_page_bytes", "Size of a page.", nil, nil)
	// Of the node, for balancers that read one number: the model-server protocol of the Gateway API Inference Extension.
	descNodeWaiting = prometheus.NewDesc("openinfer_requests_waiting", "Sequences that wait, of all models.", nil, nil)
	descNodeUsage   = prometheus.NewDesc("openinfer_kv_usage_ratio", "Share of the pool's pages that sequences hold now, 0 to 1.", nil, nil)
	descErrors      = prometheus.NewDesc("openinfer_step_errors_total", "Steps that failed.", nil, nil)
	descHeartbeat   = prometheus.NewDesc("openinfer_heartbeat_age_seconds", "Age of the step loop's last sign of life.", nil, nil)
)

// Describe sends nothing: which models there are is known when they are collected.
func (statsCollector) Describe(chan<- *prometheus.Desc) {}

func (c statsCollector) Collect(out chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	counter := func(d *prometheus.Desc, v int64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	s := c.gen.Stats()
	waiting := 0
	for _, m := range s.Models {
		n := m.Name
		waiting += m.Waiting
		gauge(descRunning, float64(m.Running), n)
		gauge(descWaiting, float64(m.Waiting), n)
		gauge(descUsage, m.LiveUsage, n)
		counter(descPrompt, m.PromptTokens, n)
		counter(descGenerated, m.GeneratedTokens, n)
		counter(descForced, m.ForcedTokens, n)
		counter(descPreemptions, m.Preemptions, n)
		counter(descPrefixQueries, m.PrefixQueries, n)
		counter(descPrefixHits, m.PrefixHits, n)
		for reason, label := range map[engine.FinishReason]string{engine.FinishStop: "stop", engine.FinishLength: "length",
			engine.FinishCancelled: "abort", engine.FinishError: "error"} {
			counter(descSuccess, m.Finished[reason], n, label)
		}
		counter(descCached, m.CachedTokens, n)
		counter(descRefused, m.RefusedFull, n, "queue_full")
		counter(descRefused, m.RefusedSLA, n, "sla")
		resident := 0.0
		if m.Resident {
			resident = 1
		}
		gauge(descResident, resident, n)
		counter(descLoads, m.Loads, n)
		out <- prometheus.MustNewConstMetric(descLoadSeconds, prometheus.CounterValue, m.LoadSeconds, n)
		gauge(descStepError, m.StepTimeError, n)
		counter(descLate, m.Late, n)
		counter(descSellable, m.SellableTokens, n)
		gauge(descModelBlocks, float64(m.LiveBlocks), n, "live")
		gauge(descModelBlocks, float64(m.CachedBlocks), n, "cached")
		gauge(descStates, float64(m.LiveStates), n, "live")
		gauge(descStates, float64(m.CachedStates), n, "cached")
		counter(descSteps, m.Steps, n)
		out <- prometheus.MustNewConstMetric(descStepSeconds, prometheus.CounterValue, m.StepSeconds, n)
	}
	for _, m := range c.gen.Models() {
		ready := 0.0
		if m.Ready {
			ready = 1
			// Not the number of blocks: some hold recurrent states, and of groups with a window there are many a token.
			size := max(1, m.BlockTokens)
			blocks := m.CacheTokens / size
			gauge(descConfig, 1, m.Name, strconv.Itoa(size), strconv.Itoa(blocks), m.KVCacheDType, strconv.Itoa(blocks*size))
			gauge(descWeights, float64(m.WeightBytes), m.Name)
		}
		gauge(descReady, ready, m.Name)
		if m.Simulated != "" {
			gauge(descSimulated, 1, m.Name, m.Simulated)
		}
	}
	if card := s.Card; card != nil {
		gauge(descCard, 1, card.Name)
		for _, v := range []struct {
			desc  *prometheus.Desc
			value float64
		}{
			{descCardMemory, card.MemoryBytes}, {descCardUsed, card.UsedBytes}, {descCardUtilization, card.Utilization},
			{descCardPower, card.PowerWatts}, {descCardPowerLimit, card.LimitWatts}, {descCardClock, card.ClockHz},
			{descCardMaxClock, card.MaxClockHz}, {descCardMemoryClock, card.MemoryClockHz}, {descCardTemperature, card.TemperatureCelsius},
		} {
			if !math.IsNaN(v.value) { // the card says it
				gauge(v.desc, v.value)
			}
		}
	}
	gauge(descPages, float64(s.PagesLive), "live")
	gauge(descPages, float64(s.PagesCached), "cached")
	gauge(descPages, float64(s.PagesFree), "free")
	gauge(descNodeWaiting, float64(waiting))
	usage := 0.0
	if all := s.PagesLive + s.PagesCached + s.PagesFree; all > 0 {
		usage = float64(s.PagesLive) / float64(all)
	}
	gauge(descNodeUsage, usage)
	gauge(descPageBytes, float64(s.PageBytes))
	counter(descErrors, s.StepErrors)
	gauge(descHeartbeat, s.Heartbeat.Seconds())
}
