package api

import (
	"net/http"
	"time"
)

// responses is the dialect of /v1/responses before a request could be read; what a stream's failure says of the
// request is put in by its shape.
var responses = &dialect{
	heartbeat:  openAI.heartbeat,
	errorBody:  openAI.errorBody,
	errorEvent: func(w *reply, e *apiError) any { return (&responseShape{id: "resp_" + w.requestToken}).failed(w, e) },
}

// responses answers POST /v1/responses.
func (h *Handler) responses(w *reply, r *http.Request) error {
	in, release, err := h.readRequest(w, r)
	if err != nil {
		return err
	}
	defer release()
	t, s := translateResponses(in)
	if err := in.failure(); err != nil {
		return err
	}
	s.id, s.token, s.created = "resp_"+w.requestToken, w.requestToken, time.Now().Unix()
	d := *responses
	d.errorEvent = s.failed
	w.dialect = &d
	return t.blame(h.converse(w, r, t.object(), release, form{id: "resp_", shape: s}))
}

// responsesCount answers POST /v1/responses/input_tokens.
func (h *Handler) responsesCount(w *reply, r *http.Request) error {
	return h.count(w, r, func(in *object) *translation { t, _ := translateResponses(in); return t }, func(n int) any {
		return struct {
			Object string `json:"object"`
			Tokens int    `json:"input_tokens"`
		}{"response.input_tokens", n}
	})
}
