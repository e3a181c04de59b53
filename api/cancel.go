package api

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/openinfer-go/openinfer/engine"
)

// running are the requests that are being answered, so that who operates the server can end one.
type running struct {
	mu      sync.Mutex
	cancels map[string]runningRequest // by id
}

type runningRequest struct {
	model  string
	cancel context.CancelCauseFunc
}

// errCancelled is what the client of a request is told that was cancelled from outside. Its status is one that clients do
// not try again.
var errCancelled = &apiError{status: http.StatusGone, kind: "cancelled", code: "request_cancelled",
	message: "the request was cancelled by who operates the server"}

// enter gives a request's context a cancellation by its id, until leave.
func (r *running) enter(ctx context.Context, id, model string) (inner context.Context, leave func()) {
	inner, cancel := context.WithCancelCause(ctx)
	r.mu.Lock()
	r.cancels[id] = runningRequest{model, cancel}
	r.mu.Unlock()
	return inner, func() {
		r.mu.Lock()
		delete(r.cancels, id)
		r.mu.Unlock()
		cancel(nil)
	}
}

// cancel ends a request to one of the models and says whether there was one.
func (r *running) cancel(id string, models []engine.ModelInfo) bool {
	r.mu.Lock()
	q, found := r.cancels[id]
	r.mu.Unlock()
	if found = found && slices.ContainsFunc(models, func(m engine.ModelInfo) bool { return m.Name == q.model }); found {
		q.cancel(errCancelled)
	}
	return found
}

// owner is the id of the client's request that an engine's request belongs to: one with several prompts is several of those.
func (r *running) owner(id string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, known := r.cancels[id]; !known {
		if i := strings.LastIndexByte(id, '-'); i > 0 {
			if _, known := r.cancels[id[:i]]; known {
				return id[:i]
			}
		}
	}
	return id
}

// cancel answers POST /v1/requests/cancel. The client of the request gets its final event: an error with the code
// request_cancelled.
func (h *Handler) cancel(w *reply, r *http.Request) error {
	o, release, err := h.readRequest(w, r)
	if err != nil {
		return err
	}
	defer release()
	id := o.string("id")
	if err := o.failure(); err != nil {
		return err
	}
	if id == "" {
		return invalid("id", "is missing")
	}
	if !h.running.cancel(id, h.gen.Models()) {
		return &apiError{status: http.StatusNotFound, kind: "invalid_request_error", param: "id", code: "request_not_found",
			message: "id: no request " + shorten(id, 100) + " is being answered; GET /v1/state lists those that are"}
	}
	return w.json(http.StatusOK, struct {
		ID        string `json:"id"`
		Cancelled bool   `json:"cancelled"`
	}{id, true})
}
