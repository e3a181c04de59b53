package api

import (
	"strings"
	"testing"
	"time"

	"github.com/openinfer-go/openinfer/api/apitest"
	"github.com/openinfer-go/openinfer/engine"
)

// What a request says of how it is to be served reaches the engine; the body wins over the headers.
func TestServiceFields(t *testing.T) {
	gen := says("x")
	s := serve(t, gen, Options{})
	minute, forever, none := time.Minute, time.Duration(-1), time.Duration(0)
	for i, c := range []struct {
		fields  string
		headers []string
		sla     engine.SLA
		prio    int
		stays   *time.Duration
	}{
		{fields: `"sla":{}`},
		{`"sla":{"ttft_ms":1500,"tpot_ms":0.5},"priority":-3,"keep_alive":"1m"`, nil, engine.SLA{TTFT: 1500 * time.Millisecond, TPOT: 500 * time.Microsecond}, -3, &minute},
		{`"sla":{"tpot_ms":50},"priority":2.0,"keep_alive":60`, []string{"X-SLA-TTFT-Ms", "250", "X-SLA-TPOT-Ms", "7"}, engine.SLA{TTFT: 250 * time.Millisecond, TPOT: 50 * time.Millisecond}, 2, &minute},
		{`"keep_alive":-1`, []string{"X-SLA-TPOT-Ms", "7"}, engine.SLA{TPOT: 7 * time.Millisecond}, 0, &forever},
		{`"keep_alive":"-5m"`, nil, engine.SLA{}, 0, &forever},
		{`"keep_alive":0`, nil, engine.SLA{}, 0, &none},
		{`"keep_alive":"0"`, nil, engine.SLA{}, 0, &none},
	} {
		s.ok(s.post("/v1/chat/completions", chatBody(c.fields), c.headers...))
		s.ok(s.post("/v1/completions", `{"model":"M","prompt":"p",`+c.fields+`}`, c.headers...))
		for _, r := range gen.Requests()[2*i:] {
			same := r.KeepAlive == c.stays || r.KeepAlive != nil && c.stays != nil && *r.KeepAlive == *c.stays
			if r.SLA != c.sla || r.Priority != c.prio || !same {
				t.Errorf("%s %v: %+v, %d, %v", c.fields, c.headers, r.SLA, r.Priority, r.KeepAlive)
			}
		}
	}
	for fields, param := range map[string]string{
		`"sla":5`:                            "sla",
		`"sla":{"ttft_ms":"1"}`:              "sla.ttft_ms",
		`"sla":{"ttft_ms":0}`:                "sla.ttft_ms",
		`"sla":{"tpot_ms":-1}`:               "sla.tpot_ms",
		`"sla":{"tpot_ms":1e300}`:            "sla.tpot_ms",
		`"sla":{"ttft":1}`:                   "sla.ttft",
		`"priority":1.5`:                     "priority",
		`"priority":1001`:                    "priority",
		`"keep_alive":"soon"`:                "keep_alive",
		`"keep_alive":true`:                  "keep_alive",
		`"keep_alive":1e12`:                  "keep_alive",
		`"sla":{"ttft_ms":1,"ttft_ms":2}`:    "sla",
		`"keep_alive":"1m","keep_alive":"2"`: "keep_alive",
	} {
		s.refused(s.post("/v1/chat/completions", chatBody(fields)), 400, param)
	}
	for _, text := range []string{"x", "0", "-1", "NaN", "1e12"} {
		s.refused(s.post("/v1/chat/completions", chatBody(`"n":1`), "X-SLA-TTFT-Ms", text), 400, "X-SLA-TTFT-Ms")
	}
}

// Whose a request is: the key's, whatever user it names; without keys the user's. Neither is told as it is.
func TestWhoseRequestItIs(t *testing.T) {
	gen := says("x")
	open, locked := serve(t, gen, Options{}), serve(t, gen, Options{Keys: []string{"k1", "k2"}})
	open.ok(open.post("/v1/chat/completions", chatBody(`"user":"ann"`)))
	open.ok(open.post("/v1/chat/completions", chatBody(`"user":"bob"`)))
	for _, key := range []string{"k1", "k1", "k2"} {
		locked.ok(locked.post("/v1/chat/completions", chatBody(`"user":"u`+key+`"`), "Authorization", "Bearer "+key))
	}
	r := gen.Requests()
	seen := map[string]bool{"": true}
	for i, again := range []bool{false, false, false, true, false} {
		if seen[r[i].Key] != again || strings.Contains(r[i].Key, "ann") || strings.Contains(r[i].Key, "k1") {
			t.Errorf("request %d is %q's", i, r[i].Key)
		}
		seen[r[i].Key] = true
	}
}

// A refusal says when to come again and, for an SLA, what would have been.
func TestRefusalOfAnSLA(t *testing.T) {
	gen := answers(func(engine.Request) apitest.Answer {
		return apitest.Answer{FailAfter: 1, Text: "x", Err: &engine.OverCapacityError{Model: "M", RetryAfter: 1200 * time.Millisecond, Predicted: 2500 * time.Millisecond, Target: time.Second}}
	})
	s := serve(t, gen, Options{})
	a := s.post("/v1/chat/completions", chatBody(`"sla":{"ttft_ms":1000}`))
	if m := s.refused(a, 429, ""); !strings.Contains(m, "after 2.5s") || !strings.Contains(m, "within 1s") || a.header.Get("Retry-After") != "2" {
		t.Errorf("%q, Retry-After %q", m, a.header.Get("Retry-After"))
	}
}

// A balancer that asks for it gets 503 for a refusal, and is told that it was a 429; nothing else changes.
func TestRefusalAs503(t *testing.T) {
	gen := answers(func(engine.Request) apitest.Answer {
		return apitest.Answer{FailAfter: 1, Text: "x", Err: &engine.OverCapacityError{Model: "M", RetryAfter: time.Second, Waiting: 3}}
	})
	s := serve(t, gen, Options{})
	plain := s.post("/v1/chat/completions", chatBody(""))
	for header, status := range map[string]int{"503": 503, "429": 429, "x": 429, "": 429} {
		a := s.post("/v1/chat/completions", chatBody(""), headerRefuseAs, header)
		told := ""
		if status == 503 {
			told = "429"
		}
		if a.status != status || a.header.Get(headerRefusedStatus) != told || a.header.Get("Retry-After") != "1" || string(a.body) != string(plain.body) {
			t.Errorf("%s %q: %d, %s %q, Retry-After %q, %s", headerRefuseAs, header, a.status, headerRefusedStatus,
				a.header.Get(headerRefusedStatus), a.header.Get("Retry-After"), a.body)
		}
	}
	s.refused(s.post("/v1/chat/completions", chatBody(`"top_p":7`), headerRefuseAs, "503"), 400, "top_p")
}

// A refusal says which of an SLA could not be promised, and none gives a reason that its own numbers refute.
func TestRefusalsOfAnSLA(t *testing.T) {
	for _, c := range []struct {
		over engine.OverCapacityError
		want string
	}{
		{engine.OverCapacityError{Waiting: 7}, "has 7 requests waiting, as many as may"},
		{engine.OverCapacityError{Predicted: 1640 * time.Microsecond, Target: 1500 * time.Microsecond}, "after 1.6ms, wanted within 1.5ms"},
		{engine.OverCapacityError{Predicted: time.Second, Target: 1200 * time.Millisecond}, "after 1s, wanted within 1.2s, but cannot promise that"},
		{engine.OverCapacityError{Predicted: time.Second}, "cannot promise the time per token that is wanted"},
	} {
		c.over.Model, c.over.RetryAfter = "M", time.Second
		if got := c.over.Error(); !strings.Contains(got, c.want) {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

// The shortest target is one, not none.
func TestShortestTarget(t *testing.T) {
	gen := says("x")
	s := serve(t, gen, Options{})
	s.ok(s.post("/v1/chat/completions", chatBody(`"sla":{"ttft_ms":1e-7}`)))
	s.ok(s.post("/v1/chat/completions", chatBody(`"n":1`), headerTPOT, "1e-9"))
	r := gen.Requests()
	if r[0].SLA != (engine.SLA{TTFT: 1}) || r[1].SLA != (engine.SLA{TPOT: 1}) {
		t.Errorf("%v, %v", r[0].SLA, r[1].SLA)
	}
}

// Models are loaded and unloaded by name, by who has a key, and the list says where they are.
func TestLoadAndUnloadEndpoints(t *testing.T) {
	s := serve(t, says("x"), Options{Keys: []string{"k"}})
	key := []string{"Authorization", "Bearer k"}
	state := func() any { return s.ok(s.do("GET", "/v1/models/org/other", "", key...)).at("state") }
	if got := state(); got != "resident" {
		t.Errorf("at first: %v", got)
	}
	for _, step := range []struct{ path, body, state string }{
		{"unload", `{"model":"org/other"}`, "parked"},
		{"unload", `{"model":"org/other","force":true}`, "parked"},
		{"load", `{"model":"org/other"}`, "resident"},
	} {
		r := s.ok(s.post("/v1/models/"+step.path, step.body, key...))
		if _, ok := r.at("seconds").(float64); !ok || r.at("model") != "org/other" || r.at("state") != step.state || state() != step.state {
			t.Errorf("%s: %v, now %v", step.path, r.v, state())
		}
	}
	for _, path := range []string{"/v1/models/load", "/v1/models/unload"} {
		s.refused(s.post(path, `{"model":"org/other"}`), 401, "")
		s.refused(s.post(path, `{"model":"nobody"}`, key...), 404, "model")
		s.refused(s.post(path, `{}`, key...), 400, "model")
		s.refused(s.do("GET", path, "", key...), 405, "")
	}
	s.refused(s.post("/v1/models/unload", `{"model":"M","force":"yes"}`, key...), 400, "force")
}
