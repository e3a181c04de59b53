package sched

import (
	"time"

	"github.com/openinfer-go/openinfer/kvcache"
)

// Sequence is one generation: prompt tokens and then sampled tokens. The submitter fills the
// exported fields and leaves them alone afterwards; the rest is the scheduler's.
type Sequence struct {
	Model    string
	Identity kvcache.Identity // adapter, regime and salt: who may share its blocks
	Key      string           // whose it is; not used yet, for fairness between keys
	Prompt   []int32          // at least one token

	MaxTokens int     // to sample; 0 computes the prompt only
	MinTokens int     // an end token before this many sampled tokens does not end it
	EndTokens []int32 // nil when end tokens are ignored

	// PromptLogits asks for logits of every prompt position; implies SkipPrefix.
	PromptLogits bool
	// SkipPrefix computes the whole prompt even if its blocks are cached.
	SkipPrefix bool

	Priority int // not used yet
	SLA      SLA // not used yet

	User any // the submitter's own
}

// SLA is the latency a request asks for; zero is best effort.
type SLA struct{ TTFT, TPOT time.Duration }

// Tokens returns prompt and sampled tokens known so far; the slice is the scheduler's own.
func (q *Sequence) Tokens() []int32 { panic("todo") }

// Sampled returns the tokens sampled so far.
func (q *Sequence) Sampled() []int32 { panic("todo") }

// Blocks returns the sequence's block table.
func (q *Sequence) Blocks() *kvcache.BlockTable { panic("todo") }

// CachedTokens is how many prompt tokens the prefix cache supplied when it was first admitted.
func (q *Sequence) CachedTokens() int { panic("todo") }

// Arrival is when it was submitted.
func (q *Sequence) Arrival() time.Time { panic("todo") }

// Done says whether its final event was made.
func (q *Sequence) Done() bool { panic("todo") }

// SetDraft proposes tokens to follow the last known one; the next row checks as many as fit.
// A draft is dropped when it was not checked by the row after.
func (q *Sequence) SetDraft(tokens []int32) { panic("todo") }

// Reason is why a sequence ended.
type Reason uint8

// Reasons. None is that of an event that is not final.
const (
	None       Reason = iota
	Stop              // an end token
	StopString        // Output.Stop
	Length            // MaxTokens
	Cancelled
	Failed // Event.Err says why
)

// Event is what happened to a sequence. The last event of a sequence, and only that, has a Reason.
type Event struct {
	Seq    *Sequence
	Tokens []int32 // new ones, in order, an end token included; valid until the next call of Events
	Index  int     // of Tokens[0] among the sampled tokens
	Row    int     // of the committed plan; -1 when the event comes from no row
	Reason Reason
	Err    error
}
