package api

import (
	"fmt"
	"math"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/openinfer-go/openinfer/engine"
	"github.com/openinfer-go/openinfer/internal/config"
)

// account is a key and what was used of its limits. Every POST is a request; tokens are those of prompts, taken when
// they are counted, and of answers, taken as they come.
//
// A minute's worth is there at once and fills up evenly. Nobody knows how long an answer gets, so a request begins as
// long as any tokens are left, and what it takes beyond them the next ones wait for: over minutes nobody gets more.
type account struct {
	config.Key
	salt             string
	running          *atomic.Int64
	requests, tokens *rate.Limiter
}

// newAccount is k's, with what was, the same key's before, has used already.
func newAccount(k config.Key, was *account) *account {
	a := &account{Key: k, salt: cacheSalt(k.Hash)}
	if was == nil {
		was = &account{running: new(atomic.Int64)}
	}
	a.running = was.running
	a.requests = perMinute(k.RequestsPerMinute, was.requests, was.RequestsPerMinute)
	a.tokens = perMinute(k.TokensPerMinute, was.tokens, was.TokensPerMinute)
	return a
}

// perMinute is a limiter of n a minute: the one that was, if there was a limit.
func perMinute(n int, was *rate.Limiter, before int) *rate.Limiter {
	switch {
	case n == 0:
		return nil
	case was == nil:
		return rate.NewLimiter(rate.Limit(float64(n)/60), n)
	case n != before:
		was.SetLimit(rate.Limit(float64(n) / 60))
		was.SetBurst(n)
	}
	return was
}

// begin lets a request in and returns what to call at its end, or is a 429. A refused request takes nothing.
func (a *account) begin(h http.Header, m *metrics) (end func(), err error) {
	now := time.Now()
	refuse := func(limit, what string, wait time.Duration) error {
		m.keyLimited(a.Name, limit)
		a.headers(h, now)
		return &apiError{status: http.StatusTooManyRequests, kind: limit, code: "rate_limit_exceeded", retryAfter: max(wait, time.Second),
			message: "Rate limit reached for this API key: " + what + ". Try again in " + wait.Round(time.Millisecond).String() + "."}
	}
	if n := a.running.Add(1); a.MaxConcurrent > 0 && n > int64(a.MaxConcurrent) {
		a.running.Add(-1)
		return nil, refuse("requests", fmt.Sprintf("%d requests at once", a.MaxConcurrent), time.Second)
	}
	if a.TokensPerMinute > 0 {
		if left := a.tokens.TokensAt(now); left < 1 {
			a.running.Add(-1)
			return nil, refuse("tokens", fmt.Sprintf("%d tokens per minute", a.TokensPerMinute), until(1, left, a.TokensPerMinute))
		}
	}
	if a.RequestsPerMinute > 0 && !a.requests.AllowN(now, 1) {
		left := a.requests.TokensAt(now)
		a.running.Add(-1)
		return nil, refuse("requests", fmt.Sprintf("%d requests per minute", a.RequestsPerMinute), until(1, left, a.RequestsPerMinute))
	}
	a.headers(h, now)
	return func() { a.running.Add(-1) }, nil
}

// until is how long a bucket of n a minute takes from left to want.
func until(want, left float64, n int) time.Duration {
	return max(0, time.Duration(math.Ceil((want-left)*60/float64(n)*1e3))*time.Millisecond)
}

// headers are OpenAI's: what the limits are, what is left and when nothing is used any more.
func (a *account) headers(h http.Header, now time.Time) {
	set := func(what string, n int, l *rate.Limiter) {
		if n == 0 {
			return
		}
		left := l.TokensAt(now)
		h.Set("X-Ratelimit-Limit-"+what, strconv.Itoa(n))
		h.Set("X-Ratelimit-Remaining-"+what, strconv.Itoa(max(0, int(left))))
		h.Set("X-Ratelimit-Reset-"+what, until(float64(n), left, n).String())
	}
	set("Requests", a.RequestsPerMinute, a.requests)
	set("Tokens", a.TokensPerMinute, a.tokens)
}

// take charges tokens, beyond what there is if need be. No account has no limits.
func (a *account) take(tokens int) {
	if a == nil || a.TokensPerMinute == 0 {
		return
	}
	now := time.Now()
	// a limiter takes at most a burst in one go
	for burst := a.tokens.Burst(); tokens > 0 && burst > 0; tokens -= burst {
		a.tokens.ReserveN(now, min(tokens, burst))
	}
}

// priority is that of a request of this key.
func (a *account) priority(asked int) int {
	if a == nil {
		return asked
	}
	return min(max(asked+a.Priority, -engine.MaxPriority), engine.MaxPriority)
}
