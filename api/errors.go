package api

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/openinfer-go/openinfer/engine"
)

// statusClientGone stands in logs and metrics for a client that did not wait for its answer.
const statusClientGone = 499

// Balancers such as HAProxy before 3.2 know how to ask another node after a 503, and not after a 429. One that sends
// headerRefuseAs: 503 gets a 503 in the place of a 429, with the 429 in headerRefusedStatus, so that it can put it back when
// no node takes the request (deploy/haproxy).
const (
	headerRefuseAs      = "X-Refuse-As"
	headerRefusedStatus = "X-Refused-Status"
)

// apiError is an error as a client sees it.
type apiError struct {
	status     int
	message    string
	kind       string // OpenAI's error.type
	param      string // the field at fault, "" when there is none
	code       string
	retryAfter time.Duration
	allow      string // of a 405
	cause      error  // for the log only
}

func (e *apiError) Error() string { return e.message }

func (e *apiError) Unwrap() error { return e.cause }

// invalid is a 400 about one field.
func invalid(param, format string, args ...any) *apiError {
	return &apiError{status: http.StatusBadRequest, kind: "invalid_request_error", param: param,
		message: param + ": " + fmt.Sprintf(format, args...)}
}

// asError is the one table from errors to replies.
func asError(err error) *apiError {
	var (
		own     *apiError
		field   *engine.InvalidError
		over    *engine.OverCapacityError
		tooLong *http.MaxBytesError
	)
	e := apiError{message: err.Error(), cause: err}
	switch {
	case errors.As(err, &own):
		return own
	case errors.As(err, &field):
		e.status, e.kind, e.param, e.message = 400, "invalid_request_error", field.Field, field.Error()
	case errors.Is(err, engine.ErrInvalid):
		e.status, e.kind = 400, "invalid_request_error"
	case errors.Is(err, engine.ErrContextLength):
		e.status, e.kind, e.code = 400, "invalid_request_error", "context_length_exceeded"
	case errors.Is(err, engine.ErrUnknownModel):
		e.status, e.kind, e.param, e.code = 404, "invalid_request_error", "model", "model_not_found"
	case errors.As(err, &tooLong):
		e.status, e.kind, e.code = 413, "invalid_request_error", "body_too_large"
		e.message = fmt.Sprintf("the body exceeds the limit of %d bytes", tooLong.Limit)
	case errors.As(err, &over):
		e.status, e.kind, e.code, e.retryAfter = 429, "rate_limit_error", "over_capacity", max(over.RetryAfter, time.Second)
	case errors.Is(err, engine.ErrOverCapacity):
		e.status, e.kind, e.code, e.retryAfter = 429, "rate_limit_error", "over_capacity", time.Second
	case errors.Is(err, engine.ErrLoad):
		e.status, e.kind, e.code, e.retryAfter = 503, "service_unavailable_error", "model_load_failed", 10*time.Second
		e.message = "the model's weights could not be loaded again; the server's log says why"
	case errors.Is(err, engine.ErrUnloaded):
		e.status, e.kind, e.code, e.retryAfter = 503, "service_unavailable_error", "model_unloaded", time.Second
	case errors.Is(err, engine.ErrNotReady):
		e.status, e.kind, e.code, e.retryAfter = 503, "service_unavailable_error", "model_loading", 2*time.Second
	case errors.Is(err, engine.ErrClosed):
		e.status, e.kind, e.code, e.retryAfter = 503, "service_unavailable_error", "shutting_down", 5*time.Second
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		e.status, e.kind, e.code, e.message = statusClientGone, "cancelled", "cancelled", "the request was cancelled"
	case errors.Is(err, engine.ErrStep):
		e.status, e.kind, e.code, e.message = 500, "server_error", "step_failed", "the step that ran this request failed"
	default: // its text may speak of files and addresses: for the log
		e.status, e.kind, e.code, e.message = 500, "server_error", "internal_error", "internal error"
	}
	return &e
}

// errorBody is OpenAI's error object.
type errorBody struct {
	Error errorObject `json:"error"`
}

type errorObject struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    *string `json:"code"`
}

func (e *apiError) body() errorBody {
	o := errorObject{Message: e.message, Type: e.kind}
	if e.param != "" {
		o.Param = &e.param
	}
	if e.code != "" {
		o.Code = &e.code
	}
	return errorBody{o}
}

// headers sets what a reply of this error carries beside its body.
func (e *apiError) headers(h http.Header) {
	if e.retryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(int(math.Ceil(e.retryAfter.Seconds()))))
	}
	if e.allow != "" {
		h.Set("Allow", e.allow)
	}
	if e.status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", "Bearer")
	}
}
