package api

import (
	"net/http"
	"strings"
	"time"

	"github.com/openinfer-go/openinfer/engine"
)

// model is OpenAI's model object with vLLM's max_model_len.
type model struct {
	ID          string  `json:"id"`
	Object      string  `json:"object"`
	Created     int64   `json:"created"`
	OwnedBy     string  `json:"owned_by"`
	Root        string  `json:"root"`
	Parent      *string `json:"parent"`
	MaxModelLen int     `json:"max_model_len,omitzero"` // not there while the model loads
	State       string  `json:"state"`                  // where its weights are: resident, parked or loading
	Simulated   string  `json:"simulated,omitzero"`     // the card that answers are not computed on
}

func newModel(m engine.ModelInfo) model {
	return model{ID: m.Name, Object: "model", Created: m.Created.Unix(), OwnedBy: "openinfer", Root: m.Name, MaxModelLen: m.MaxModelLen, State: m.State, Simulated: m.Simulated}
}

func (h *Handler) models(w *reply, r *http.Request) error {
	if r.Header.Get(headerAnthropic) != "" {
		w.dialect = anthropic
		return w.json(http.StatusOK, newAnthropicModels(h.gen.Models()))
	}
	out := struct {
		Object string  `json:"object"`
		Data   []model `json:"data"`
	}{Object: "list"}
	for _, m := range h.gen.Models() {
		out.Data = append(out.Data, newModel(m))
	}
	return w.json(http.StatusOK, out)
}

func (h *Handler) oneModel(w *reply, r *http.Request) error {
	byAnthropic := r.Header.Get(headerAnthropic) != ""
	if byAnthropic {
		w.dialect = anthropic
	}
	m, err := h.model(strings.TrimPrefix(r.URL.Path, modelPath))
	if err != nil {
		return err
	}
	if byAnthropic {
		return w.json(http.StatusOK, newAnthropicModel(m))
	}
	return w.json(http.StatusOK, newModel(m))
}

// model finds a served model by its exact name.
func (h *Handler) model(name string) (engine.ModelInfo, error) {
	for _, m := range h.gen.Models() {
		if m.Name == name {
			return m, nil
		}
	}
	return engine.ModelInfo{}, &apiError{status: http.StatusNotFound, kind: "invalid_request_error", param: "model", code: "model_not_found",
		message: "the model `" + shorten(name, 100) + "` does not exist; GET /v1/models lists those that do"}
}

// readModel reads the field model. It may be left out where optional and only one model is served.
func (h *Handler) readModel(o *object, optional bool) (engine.ModelInfo, error) {
	name := o.string("model")
	if err := o.failure(); err != nil {
		return engine.ModelInfo{}, err
	}
	if !o.has("model") {
		all := h.gen.Models()
		if !optional || len(all) != 1 {
			return engine.ModelInfo{}, invalid("model", "is missing")
		}
		name = all[0].Name
	}
	return h.model(name)
}

// loadedModel reads the field model, which may be left out where one model is served, and waits for
// it if it is still loading.
func (h *Handler) loadedModel(w *reply, r *http.Request, o *object) (engine.ModelInfo, error) {
	m, err := h.readModel(o, true)
	if err != nil {
		return m, err
	}
	return h.await(w, r, m, false)
}

// await waits for a model that is still loading. Who may not wait is refused like anybody else; the stream of who
// waits begins after a while, and comments follow on a wall clock, so that a client's read time-out does not strike.
// What is wrong with a request whose stream has begun is told by an event.
func (h *Handler) await(w *reply, r *http.Request, m engine.ModelInfo, stream bool) (engine.ModelInfo, error) {
	if m.Ready {
		return m, nil
	}
	done := make(chan error, 1)
	go func() { done <- h.gen.Await(r.Context(), m.Name) }()
	var tick <-chan time.Time
	if stream && w.dialect.heartbeat != "" {
		ticker := time.NewTicker(h.KeepAlive)
		defer ticker.Stop()
		tick = ticker.C
	}
	for {
		select {
		case err := <-done:
			if err != nil {
				return m, err
			}
			return h.model(m.Name)
		case <-tick:
			if w.sse == nil {
				w.sse = newSSE(w, h.WriteTimeout)
			}
			w.sse.heartbeat()
			if err := w.sse.flush(); err != nil {
				return m, err // r's context ends with the connection, and Await with it
			}
		}
	}
}

func (h *Handler) version(w *reply, r *http.Request) error {
	return w.json(http.StatusOK, struct {
		Version string `json:"version"`
	}{h.Version})
}

// healthBody is what /health and /readyz say.
type healthBody struct {
	Status    string  `json:"status"`
	Reason    string  `json:"reason,omitzero"`
	Heartbeat float64 `json:"heartbeat_age_seconds"`
}

// health says whether the step loop lives. Only the loop itself can tell: this handler would
// answer long after it has stopped.
func (h *Handler) health(w *reply, r *http.Request) error {
	s := h.gen.Health()
	if !s.OK {
		return w.json(http.StatusServiceUnavailable, healthBody{"unhealthy", s.Reason, s.Heartbeat.Seconds()})
	}
	return w.json(http.StatusOK, healthBody{"ok", "", s.Heartbeat.Seconds()})
}

// ready says whether every model is loaded.
func (h *Handler) ready(w *reply, r *http.Request) error {
	s := h.gen.Health()
	if !s.OK || !s.Ready {
		return w.json(http.StatusServiceUnavailable, healthBody{"not ready", s.Reason, s.Heartbeat.Seconds()})
	}
	return w.json(http.StatusOK, healthBody{"ready", "", s.Heartbeat.Seconds()})
}

// moved is what the endpoints that move weights say when they are done.
type moved struct {
	Model   string  `json:"model"`
	State   string  `json:"state"`
	Seconds float64 `json:"seconds"`
}

// load answers POST /v1/models/load when the model's weights are on the device.
func (h *Handler) load(w *reply, r *http.Request) error {
	return h.moveWeights(w, r, func(o *object, m engine.ModelInfo) error {
		if err := o.failure(); err != nil {
			return err
		}
		return h.gen.LoadModel(r.Context(), m.Name)
	})
}

// unload answers POST /v1/models/unload when they have left it. Running answers end first, unless force is true.
func (h *Handler) unload(w *reply, r *http.Request) error {
	return h.moveWeights(w, r, func(o *object, m engine.ModelInfo) error {
		force := o.bool("force", false)
		if err := o.failure(); err != nil {
			return err
		}
		return h.gen.UnloadModel(r.Context(), m.Name, force)
	})
}

func (h *Handler) moveWeights(w *reply, r *http.Request, move func(*object, engine.ModelInfo) error) error {
	o, release, err := h.readRequest(w, r)
	if err != nil {
		return err
	}
	defer release()
	m, err := h.readModel(o, false)
	if err != nil {
		return err
	}
	w.model = m.Name
	start := time.Now()
	if err := move(o, m); err != nil {
		return err
	}
	took := time.Since(start)
	if m, err = h.model(m.Name); err != nil {
		return err
	}
	return w.json(http.StatusOK, moved{m.Name, m.State, took.Round(time.Millisecond).Seconds()})
}
