package api

import (
	"encoding/json/v2"
	"net/http"
	"time"
)

// sse writes server-sent events. Events gather in a buffer until flush, so that those which are
// ready together leave in one packet. A client that does not take its bytes within timeout gets an
// error instead of a goroutine that waits for it.
//
// Headers leave with the first event or comment. Until then a balancer may still ask another node, should this one die, and an
// error can be a status.
type sse struct {
	w       http.ResponseWriter
	rc      *http.ResponseController
	timeout time.Duration
	begun   bool // headers were sent
	buf     []byte
}

func newSSE(w http.ResponseWriter, timeout time.Duration) *sse {
	return &sse{w: w, rc: http.NewResponseController(w), timeout: timeout}
}

// event adds one event that carries v.
func (s *sse) event(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	s.buf = append(s.buf, "data: "...)
	s.buf = append(s.buf, b...)
	s.buf = append(s.buf, "\n\n"...)
	return nil
}

func (s *sse) done() { s.buf = append(s.buf, "data: [DONE]\n\n"...) }

// comment adds a line that clients skip.
func (s *sse) comment() { s.buf = append(s.buf, ": keep-alive\n\n"...) }

func (s *sse) flush() error {
	if err := s.rc.SetWriteDeadline(time.Now().Add(s.timeout)); err != nil {
		return err
	}
	if !s.begun {
		s.begun = true
		h := s.w.Header()
		h.Set("Content-Type", "text/event-stream; charset=utf-8")
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
