package api

import (
	"net/http"
	"strings"

	"github.com/openinfer-go/openinfer/engine"
)

// anthropic is the dialect of Anthropic's API.
var anthropic = &dialect{
	heartbeat:  "event: ping\ndata: {\"type\":\"ping\"}\n\n",
	errorBody:  func(w *reply, e *apiError) any { return newAnthropicError(w, e) },
	errorEvent: func(w *reply, e *apiError) any { return event{"error", newAnthropicError(w, e)} },
}

// anthropicError is Anthropic's error object.
type anthropicError struct {
	Type      string              `json:"type"`
	Error     anthropicErrorInner `json:"error"`
	RequestID string              `json:"request_id"`
}

type anthropicErrorInner struct {
	Type    string `json:"type"`
	Message string `json:"message"`
}

func newAnthropicError(w *reply, e *apiError) anthropicError {
	return anthropicError{"error", anthropicErrorInner{anthropicErrorType(e.status), e.message}, w.requestID}
}

// anthropicErrorType is what Anthropic calls errors of a status.
func anthropicErrorType(status int) string {
	switch status {
	case http.StatusUnauthorized:
		return "authentication_error"
	case http.StatusForbidden:
		return "permission_error"
	case http.StatusNotFound:
		return "not_found_error"
	case http.StatusRequestEntityTooLarge:
		return "request_too_large"
	case http.StatusTooManyRequests:
		return "rate_limit_error"
	case http.StatusServiceUnavailable:
		return "overloaded_error"
	}
	if status >= 500 {
		return "api_error"
	}
	return "invalid_request_error"
}

// anthropicMessages answers POST /v1/messages.
func (h *Handler) anthropicMessages(w *reply, r *http.Request) error {
	in, release, err := h.readRequest(w, r)
	if err != nil {
		return err
	}
	defer release()
	t, shown := translateMessages(in)
	if !in.has("max_tokens") {
		in.fail("max_tokens", "is missing")
	}
	if err := in.failure(); err != nil {
		return err
	}
	return t.blame(h.converse(w, r, t.object(), release, form{id: "msg_", shape: &messageShape{thinking: shown}, cut: true}))
}

// anthropicCount answers POST /v1/messages/count_tokens.
func (h *Handler) anthropicCount(w *reply, r *http.Request) error {
	return h.count(w, r, func(in *object) *translation { t, _ := translateMessages(in); return t }, func(n int) any {
		return struct {
			Tokens int `json:"input_tokens"`
		}{n}
	})
}

// anthropicModel is Anthropic's model object.
type anthropicModel struct {
	Type        string `json:"type"`
	ID          string `json:"id"`
	DisplayName string `json:"display_name"`
	CreatedAt   string `json:"created_at"`
	MaxInput    int    `json:"max_input_tokens,omitzero"`
}

func newAnthropicModel(m engine.ModelInfo) anthropicModel {
	return anthropicModel{"model", m.Name, m.Name, m.Created.UTC().Format(timeFormat), m.MaxModelLen}
}

// anthropicModels is what GET /v1/models says to Anthropic's clients: all models are on one page.
type anthropicModels struct {
	Data    []anthropicModel `json:"data"`
	FirstID *string          `json:"first_id"`
	LastID  *string          `json:"last_id"`
	HasMore bool             `json:"has_more"`
}

func newAnthropicModels(models []engine.ModelInfo) anthropicModels {
	out := anthropicModels{Data: []anthropicModel{}}
	for _, m := range models {
		out.Data = append(out.Data, newAnthropicModel(m))
	}
	if n := len(out.Data); n > 0 {
		out.FirstID, out.LastID = &out.Data[0].ID, &out.Data[n-1].ID
	}
	return out
}

// headerAnthropic is sent by Anthropic's clients with every request.
const headerAnthropic = "Anthropic-Version"

const timeFormat = "2006-01-02T15:04:05.000000Z"

// dialectOf is the dialect of a path that nothing is behind, so that its client can read the error.
func dialectOf(path string) *dialect {
	switch {
	case strings.HasPrefix(path, "/v1/messages"):
		return anthropic
	case strings.HasPrefix(path, "/api/"):
		return ollama
	}
	return openAI
}
