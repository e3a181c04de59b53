package api

import (
	"net/http"
	"slices"
	"strings"
)

// cors are the origins whose pages may ask, "*" being all. Credentials of a browser (cookies) are never allowed: who
// asks sends a key in a header.
type cors []string

// exposed are the headers that a page may read.
const exposed = "X-Request-Id, Request-Id, Retry-After, X-Ratelimit-Limit-Requests, X-Ratelimit-Remaining-Requests, X-Ratelimit-Reset-Requests, " +
	"X-Ratelimit-Limit-Tokens, X-Ratelimit-Remaining-Tokens, X-Ratelimit-Reset-Tokens"

// answer sets the headers of a reply, and is true if the request was a preflight, which needs no more. Those of
// origins that are not allowed get no header, which a browser takes for a no.
func (c cors) answer(w http.ResponseWriter, r *http.Request) (done bool) {
	if len(c) == 0 {
		return false
	}
	h, origin := w.Header(), r.Header.Get("Origin")
	all := slices.Contains(c, "*")
	if !all {
		h.Add("Vary", "Origin") // a cache must not give one origin's reply to another
	}
	asked := r.Header.Get("Access-Control-Request-Method")
	preflight := r.Method == http.MethodOptions && origin != "" && asked != ""
	if preflight {
		h.Add("Vary", "Access-Control-Request-Method, Access-Control-Request-Headers")
	}
	switch {
	case origin == "":
		return false
	case all:
		h.Set("Access-Control-Allow-Origin", "*")
	case slices.Contains(c, origin):
		h.Set("Access-Control-Allow-Origin", origin)
	default:
		if preflight {
			w.WriteHeader(http.StatusNoContent)
		}
		return preflight
	}
	if !preflight {
		h.Set("Access-Control-Expose-Headers", exposed)
		return false
	}
	h.Set("Access-Control-Allow-Methods", "GET, POST")
	// clients send headers of their own (x-stainless-os and so on): those that are names are fine
	if names := r.Header.Get("Access-Control-Request-Headers"); names != "" && len(names) <= 4096 && !strings.ContainsFunc(names, notInNames) {
		h.Set("Access-Control-Allow-Headers", names)
	}
	h.Set("Access-Control-Max-Age", "600")
	w.WriteHeader(http.StatusNoContent)
	return true
}

func notInNames(r rune) bool {
	return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_, ", r))
}
