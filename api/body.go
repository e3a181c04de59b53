package api

import (
	"errors"
	"io"
	"net/http"
	"os"
	"sync/atomic"
	"time"
)

// bodies bounds what request bodies may take: one body in bytes and time, all together in bytes.
// Memory is charged as bytes arrive, so a client that announces much and sends little costs little.
type bodies struct {
	limit   int64
	timeout time.Duration
	total   int64
	held    atomic.Int64
}

// read returns the whole body and a function that gives its memory back. Reading to the end is
// also what makes net/http watch for the client's going away.
func (b *bodies) read(w http.ResponseWriter, r *http.Request) (body []byte, release func(), err error) {
	if e := r.Header.Get("Content-Encoding"); e != "" && e != "identity" {
		return nil, nil, &apiError{status: http.StatusUnsupportedMediaType, kind: "invalid_request_error",
			message: "Content-Encoding " + e + " is not supported: send the body as it is"}
	}
	rc := http.NewResponseController(w)
	if r.ContentLength > b.limit {
		w.Header().Set("Connection", "close")
		if r.Header.Get("Expect") == "" { // who asks first has sent nothing
			b.drain(rc, r.Body)
		}
		return nil, nil, &http.MaxBytesError{Limit: b.limit}
	}
	if err := rc.SetReadDeadline(time.Now().Add(b.timeout)); err == nil {
		// a deadline that stays would end the watch over the connection
		defer rc.SetReadDeadline(time.Time{})
	}
	in := http.MaxBytesReader(w, r.Body, b.limit)
	var charged int64
	release = func() { b.held.Add(-charged) }
	body = make([]byte, 0, min(max(r.ContentLength+1, 512), 64<<10))
	for {
		if len(body) == cap(body) {
			body = append(body, 0)[:len(body)]
		}
		if grown := int64(cap(body)) - charged; grown > 0 {
			charged += grown
			if b.held.Add(grown) > b.total {
				release()
				w.Header().Set("Connection", "close")
				return nil, nil, &apiError{status: http.StatusServiceUnavailable, kind: "service_unavailable_error",
					code: "bodies_too_large", retryAfter: time.Second,
					message: "the requests being read take too much memory together; try again"}
			}
		}
		n, err := in.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		switch {
		case err == io.EOF:
			return body, release, nil
		case err == nil:
			continue
		}
		release()
		var tooLong *http.MaxBytesError
		switch {
		case errors.As(err, &tooLong):
			b.drain(rc, r.Body)
			return nil, nil, err
		case errors.Is(err, os.ErrDeadlineExceeded):
			w.Header().Set("Connection", "close")
			return nil, nil, &apiError{status: http.StatusRequestTimeout, kind: "invalid_request_error", code: "body_timeout",
				message: "the body did not arrive within " + b.timeout.String()}
		}
		w.Header().Set("Connection", "close")
		return nil, nil, &apiError{status: http.StatusBadRequest, kind: "invalid_request_error",
			message: "the body could not be read to its end", cause: err}
	}
}

// drain reads on in a body that is refused for its length: most clients look for a reply only when
// they have sent all, and find a broken connection if it was closed on them before. Bodies of several
// times the limit, and slow ones, have to live with that.
func (b *bodies) drain(rc *http.ResponseController, body io.Reader) {
	if rc.SetReadDeadline(time.Now().Add(min(b.timeout, drainTime))) == nil {
		_, _ = io.CopyN(io.Discard, body, 4*b.limit) // whatever ends it, the reply is the same
	}
}

const drainTime = 5 * time.Second
