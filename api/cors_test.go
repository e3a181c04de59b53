package api

import (
	"net/http"
	"strings"
	"testing"
)

func mustRequest(t *testing.T, authorization string) *http.Request {
	t.Helper()
	r, err := http.NewRequest("POST", "http://t/", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", authorization)
	return r
}

func TestCORS(t *testing.T) {
	const page = "https://chat.example.org"
	for _, c := range []struct {
		allowed        []string
		origin, answer string
	}{
		{nil, page, ""}, {[]string{"*"}, page, "*"}, {[]string{"*"}, "", ""}, {[]string{page, "http://b"}, page, page},
		{[]string{page}, "https://evil.example.org", ""}, {[]string{page}, "https://chat.example.org.evil", ""}, {[]string{page}, "null", ""}, {[]string{page}, "", ""},
	} {
		s := serve(t, says("x"), Options{CORSOrigins: c.allowed, Keys: []string{"k"}})
		origin := []string{"Origin", c.origin}
		if c.origin == "" {
			origin = nil
		}
		a := s.post("/v1/completions", aCompletion, append(origin, "Authorization", "Bearer k")...)
		unauthorized := s.post("/v1/completions", aCompletion, origin...)
		for _, a := range []answer{a, unauthorized} { // a page can read why it was refused
			if got := a.header.Get("Access-Control-Allow-Origin"); got != c.answer || a.header.Get("Access-Control-Allow-Credentials") != "" {
				t.Errorf("%v, %s: allowed %q", c.allowed, c.origin, got)
			}
			if varies := a.header.Get("Vary") == "Origin"; varies != (len(c.allowed) > 0 && c.allowed[0] != "*") {
				t.Errorf("%v, %s: Vary %q", c.allowed, c.origin, a.header.Get("Vary"))
			}
		}
		if a.status != 200 || unauthorized.status != 401 {
			t.Errorf("%d, %d", a.status, unauthorized.status)
		}
		pre := s.do("OPTIONS", "/v1/completions", "", append(origin, "Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", "authorization,x-stainless-os")...)
		switch {
		case len(c.allowed) == 0 || c.origin == "":
			s.refused(pre, 405, "")
		case c.answer == "":
			if pre.status != 204 || pre.header.Get("Access-Control-Allow-Origin") != "" {
				t.Errorf("%v, %s: %d %v", c.allowed, c.origin, pre.status, pre.header)
			}
		default: // without a key: a browser sends none with it
			if pre.status != 204 || pre.header.Get("Access-Control-Allow-Origin") != c.answer || pre.header.Get("Access-Control-Allow-Headers") != "authorization,x-stainless-os" ||
				!strings.Contains(pre.header.Get("Access-Control-Allow-Methods"), "POST") {
				t.Errorf("%v, %s: %d %v", c.allowed, c.origin, pre.status, pre.header)
			}
		}
	}
}
