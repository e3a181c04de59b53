package load

import (
	"time"
)

// Outcome is what became of a request.
type Outcome int

const (
	// Cancelled: the run ended first. What came until then is in the record. It is the zero value.
	Cancelled Outcome = iota
	OK                // a whole answer of at least one token
	Refused           // 429 or 503: the server had no room, or was not there for it
	Failed            // anything else: Reason says what
)

func (o Outcome) String() string { return [...]string{"cancelled", "ok", "refused", "failed"}[o] }

// Record is what became of one request. Times are since the beginning of the run.
type Record struct {
	Index int // of the request in the load; turns of a conversation share it
	Turn  int // of a conversation, from 0

	Model, Tag string
	Target     string // the address that it was sent to

	Due       time.Duration // when it should have been sent
	Ready     time.Duration // when there was a place for it; Due unless Options.MaxConcurrency held it back
	Sent      time.Duration // when it was given to the network; -1: never
	Wrote     time.Duration // when all of it was written, a connection having been made if need be; 0: never
	FirstByte time.Duration // when the answer's headers were there; 0: never
	Chunks    []Chunk       // what carried tokens
	End       time.Duration // when the answer had ended, by whatever it was

	Outcome    Outcome
	Reason     string        // why it was refused or failed
	Status     int           // HTTP's; 0: no answer
	RetryAfter time.Duration // of a refusal, if it said so
	Resent     int           // times that it met a connection which the server had closed, and went out on another

	// PromptTokens and Tokens are the server's count; Counted says whether it gave one. Without, Tokens are the chunks.
	PromptTokens, CachedTokens, Tokens int
	Counted                            bool
	Finish                             string // finish_reason
	Text                               string // if asked for, or needed for the next turn

	begin time.Time // of the run
}

// Chunk is a piece of an answer: when it was read, and how many tokens it brought.
type Chunk struct {
	At     time.Duration
	Tokens int32
}

func (r *Record) now() time.Duration { return time.Since(r.begin) }

// First is when the first token came; 0 if none did.
func (r *Record) First() time.Duration {
	if len(r.Chunks) == 0 {
		return 0
	}
	return r.Chunks[0].At
}

// Last is when the last token came; 0 if none did.
func (r *Record) Last() time.Duration {
	if len(r.Chunks) == 0 {
		return 0
	}
	return r.Chunks[len(r.Chunks)-1].At
}

// TTFT is the time to the first token from when the request was due.
func (r *Record) TTFT() time.Duration { return r.First() - r.Due }

// E2EL is the time to the last token from when the request was due.
func (r *Record) E2EL() time.Duration { return r.Last() - r.Due }

// TPOT is the mean time per token after the first; 0 if there are fewer than two.
func (r *Record) TPOT() time.Duration {
	if r.Tokens < 2 {
		return 0
	}
	return (r.Last() - r.First()) / time.Duration(r.Tokens-1)
}

// Queue is the time that the generator itself held the request back, for want of a place.
func (r *Record) Queue() time.Duration { return r.Ready - r.Due }

// Late is the time that it took to send it: the generator's own, and the network's where a connection had to be made.
func (r *Record) Late() time.Duration { return max(r.Sent, r.Wrote) - r.Ready }

// SLA are latencies that a request is to keep; 0: any.
type SLA struct{ TTFT, TPOT, E2EL time.Duration }

// Meets says whether r was answered within s.
func (r *Record) Meets(s SLA) bool {
	return r.Outcome == OK && (s.TTFT == 0 || r.TTFT() <= s.TTFT) && (s.TPOT == 0 || r.TPOT() <= s.TPOT) &&
		(s.E2EL == 0 || r.E2EL() <= s.E2EL)
}

// TokensIn are the tokens that came from from until to.
func (r *Record) TokensIn(from, to time.Duration) int {
	n := 0
	for _, c := range r.Chunks {
		if c.At >= from && c.At < to {
			n += int(c.Tokens)
		}
	}
	return n
}
