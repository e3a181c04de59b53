package api

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strconv"
	"time"

	"github.com/openinfer-go/openinfer/engine"
)

// service is what a request says of how it wants to be served.
type service struct {
	sla       engine.SLA
	priority  int
	keepAlive *time.Duration
	user      string
}

const (
	maxTargetMS = 24 * 60 * 60 * 1000 // of an SLA
	headerTTFT  = "X-SLA-TTFT-Ms"
	headerTPOT  = "X-SLA-TPOT-Ms"
)

// readService reads the fields, and the headers that stand in for those of sla that are not there.
func readService(o *object, h http.Header) service {
	s := service{user: o.string("user")}
	if p := o.integer("priority", -engine.MaxPriority, engine.MaxPriority); p != nil {
		s.priority = int(*p)
	}
	s.keepAlive = readKeepAlive(o)
	target := func(in *object, field, header string) time.Duration {
		var d time.Duration
		if text := h.Get(header); text != "" {
			ms, err := strconv.ParseFloat(text, 64)
			if err != nil || !(ms > 0 && ms <= maxTargetMS) {
				o.fail(header, "%s is not a number of milliseconds in (0, %d]", shorten(text, 40), maxTargetMS)
				return 0
			}
			d = milliseconds(ms)
		}
		if in != nil && in.has(field) {
			if ms := in.number(field, 0, maxTargetMS, true, 0); ms > 0 {
				return milliseconds(float64(ms))
			}
			return 0
		}
		return d
	}
	in := o.object("sla")
	if in != nil {
		for field := range in.fields {
			if field != "ttft_ms" && field != "tpot_ms" {
				in.fail(shorten(field, 40), "is unknown; there are ttft_ms and tpot_ms")
			}
		}
	}
	s.sla = engine.SLA{TTFT: target(in, "ttft_ms", headerTTFT), TPOT: target(in, "tpot_ms", headerTPOT)}
	if in != nil && o.err == nil {
		o.err = in.err
	}
	return s
}

// milliseconds is a target of more than 0 ms: 0 would be none.
func milliseconds(ms float64) time.Duration {
	return max(1, time.Duration(ms*float64(time.Millisecond)))
}

// readKeepAlive reads Ollama's keep_alive: seconds as a number, or a duration as a string; negative is for ever.
func readKeepAlive(o *object) *time.Duration {
	const field = "keep_alive"
	v := o.take(field, "a number or a string", '0', '"')
	if v == nil {
		return nil
	}
	d, err := engine.ParseKeepAlive(unquoted(v))
	if err != nil {
		o.fail(field, "%v", err)
		return nil
	}
	return &d
}

func unquoted(v []byte) string {
	if v[0] == '"' {
		return text(v)
	}
	return string(v)
}

// caller is whose request it is, for fairness between callers: the API key's, or the user it names where
// there are no keys.
func (s *service) caller(keySalt string) string {
	if keySalt != "" || s.user == "" {
		return keySalt
	}
	h := sha256.Sum256([]byte("user " + s.user))
	return hex.EncodeToString(h[:16])
}
