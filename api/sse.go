package api

import (
	"encoding/json/v2"
	"net/http"
	"time"
)

// sse writes a stream in a reply's dialect: server-sent events, or JSON texts line by line. Events gather in a buffer until flush, so that those which are
// ready together leave in one packet. A client that does not take its bytes within timeout gets an
// error instead of a goroutine that waits for it.
//
// Headers leave with the first event or heartbeat. Until then a balancer may still ask another node, should this one die, and an
// error can be a status.
type sse struct {
	w       http.ResponseWriter
	dialect *dialect
	rc      *http.ResponseController
	timeout time.Duration
	begun   bool // headers were sent
	buf     []byte
}

func newSSE(w *reply, timeout time.Duration) *sse {
	return &sse{w: w, dialect: w.dialect, rc: http.NewResponseController(w), timeout: timeout}
}

// event adds one event that carries v, which may be an event with a name.
func (s *sse) event(v any) error {
	named, ok := v.(event)
	if ok {
		v = named.data
	}
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if s.dialect.lines {
		s.buf = append(append(s.buf, b...), '\n')
		return nil
	}
	if ok {
		s.buf = append(append(append(s.buf, "event: "...), named.name...), '\n')
	}
	s.buf = append(s.buf, "data: "...)
	s.buf = append(s.buf, b...)
	s.buf = append(s.buf, "\n\n"...)
	return nil
}

func (s *sse) done() { s.buf = append(s.buf, s.dialect.done...) }

// heartbeat adds what clients skip.
func (s *sse) heartbeat() { s.buf = append(s.buf, s.dialect.heartbeat...) }

func (s *sse) flush() error {
	if err := s.rc.SetWriteDeadline(time.Now().Add(s.timeout)); err != nil {
		return err
	}
	if !s.begun {
		s.begun = true
		h := s.w.Header()
		if s.dialect.lines {
			h.Set("Content-Type", "application/x-ndjson")
		} else {
			h.Set("Content-Type", "text/event-stream; charset=utf-8")
		}
		h.Set("Cache-Control", "no-cache")
		h.Set("X-Accel-Buffering", "no") // nginx would gather the stream
		s.w.WriteHeader(http.StatusOK)
	}
	if len(s.buf) > 0 {
		if _, err := s.w.Write(s.buf); err != nil {
			return err
		}
		s.buf = s.buf[:0]
	}
	return s.rc.Flush()
}
