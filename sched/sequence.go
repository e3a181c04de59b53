package sched

import (
	"math"
	"time"

	"github.com/openinfer-go/openinfer/kvcache"
)

// Sequence is one generation: prompt tokens and then sampled tokens. The submitter fills the
// exported fields and leaves them alone afterwards; the rest is the scheduler's. It is used once.
//
// What each step asks of a decoding sequence are its tail and the first two lines of 64 bytes (TestHotLines), as the allocator
// aligns them: with many models every line read in a step is one that has left the processor's caches.
type Sequence struct {
	tail   *tail // its tokens before the newest; nil unless it runs
	length int   // tokens: prompt and sampled

	// Positions before computed are stored and committed; before planned, stored once the plans
	// in flight have run. pending samples are in flight; with drafting, a row that may yield several.
	planned, computed int
	pending           int32

	quiet  int32 // kvcache.Cache.Quiet of blocks, or less
	limit  int32 // length at which it ends: that of the prompt and MaxTokens
	prompt int32 // length of the prompt
	newest int32 // token, if fill > 0

	epoch     uint16 // rows of another epoch are void
	drafts    uint16 // how many of draft are proposed, or awaiting
	state     state
	fill      uint8 // tokens that are not in tokens yet: newest, and before it those in tail
	late      bool  // its SLA cannot be met any more
	streaming bool  // counted in Scheduler.streaming
	prefilled bool  // the prompt was computed once
	drafting  bool
	promised  bool // it is in Scheduler.promises
	plain     bool // counted in Scheduler.plain

	// By the scheduler's own clock: when its first and its last token came and that in flight is expected.
	first, last, soon time.Duration
	sla               SLA

	EndTokens []int32 // nil when end tokens are ignored
	Prompt    []int32 // at least one token
	MinTokens int     // an end token before this many sampled tokens does not end it
	MaxTokens int     // to sample; 0 computes the prompt only

	tokens []int32 // prompt, then sampled, without newest and those in tail
	blocks *kvcache.BlockTable
	queue  *queue

	Model    string
	Identity kvcache.Identity // adapter and salt: who may share its blocks; Regime is the scheduler's
	Key      string           // whose it is: keys share a model fairly

	// Marks are positions in the prompt, ascending, that other prompts may share up to: the ends of the
	// system prompt and of turns. The end of the prompt is one anyway.
	Marks []int

	// Priority orders what waits, higher first; below 0 is background. It delays nobody for ever.
	Priority int
	SLA      SLA // zero: the model's

	User any // the submitter's own

	// SkipPrefix computes the whole prompt even if its blocks are cached. It still leaves its own.
	SkipPrefix bool
	// PromptLogits asks for the logits that score every prompt token; implies SkipPrefix.
	PromptLogits bool

	lane   uint8 // in the order of waiting
	cached int32

	// When a step has to begin for its SLA, when its next token is due by that (while it waits: what it is ordered by), and
	// when it came itself.
	latest, due, came time.Duration
	place             int32   // in the order of waiting; -1 when it is not in it
	regime            int32   // of blocks
	age               uint64  // order of arrival
	work              float64 // seconds that its prompt was predicted to take when it was accepted
	account           *account
	*rest
}

// rest is what is seldom asked for. With it a Sequence would be 512 bytes, and all hot lines would want a few places of the
// processor's caches.
type rest struct {
	draft  []int32
	marks  []int   // Marks and the end of the prompt
	wanted int     // prompt logits before this position were delivered
	family *family // of the request's sequences with the same prompt; nil when it is alone
	chunk  int     // scratch of planPrompts

	overtaken int // times a younger sequence was admitted although this one was refused
	refusedAt int // 1 + the blocks available when it was refused; 0: it was not

	barren, barrenAt int // rows that yielded nothing since there were so many tokens
}

// family is the sequences of a request that have the same prompt: one computes it, the others wait
// and then find its blocks.
type family struct {
	members []*Sequence
	first   *Sequence // the one that computes it; nil before anybody does
	done    bool
}

type state uint8

const (
	fresh state = iota
	waiting
	running
	ended
)

// SLA is the latency a request asks for; zero is best effort.
type SLA struct{ TTFT, TPOT time.Duration }

// Blocks returns the sequence's block table.
func (q *Sequence) Blocks() *kvcache.BlockTable { return q.blocks }

// Regime is the regime that its blocks are computed under, an index into Model.Regimes plus one.
func (q *Sequence) Regime() int { return int(q.regime) }

// CachedTokens is how many prompt tokens the prefix cache supplied when it was first admitted.
func (q *Sequence) CachedTokens() int { return int(q.cached) }

// Running says whether it has been admitted and not been preempted since.
func (q *Sequence) Running() bool { return q.state == running }

// Progress is how far a sequence is.
type Progress struct {
	Running           bool // it has been admitted and not been preempted since
	Late              bool // its SLA cannot be met any more
	Computed, Sampled int  // tokens whose cache is stored, and tokens that were drawn
	SLA               SLA  // that it has: its own or its model's
	// Since is the time since it came, FirstToken from then to its first token, 0 before that.
	Since, FirstToken time.Duration
	// Due is until its next token has to come for its SLA, negative when it should be there; 0 without one that can be met.
	Due time.Duration
}

// Progress says how far a sequence is that Submit has accepted.
func (s *Scheduler) Progress(seq *Sequence, now time.Time) Progress {
	at := s.at(now)
	p := Progress{
		Running: seq.state == running, Late: seq.late, Computed: seq.computed, Sampled: seq.sampled(),
		SLA: seq.sla, Since: at - seq.came,
	}
	if p.Sampled > 0 {
		p.FirstToken = seq.first - seq.came
	}
	if due := seq.nextDue(); due != never {
		p.Due = due - at
	}
	return p
}

// Done says whether its final event was made.
func (q *Sequence) Done() bool { return q.state == ended }

// SetDraft proposes tokens to follow the last known one. The next row checks as many as fit, or
// none; what it does not check is dropped. No effect while a sample is in flight.
func (q *Sequence) SetDraft(tokens []int32) {
	if q.state == running && q.pending == 0 && !q.drafting {
		q.draft = append(q.draft[:0], tokens[:min(len(tokens), awaiting-1)]...)
		q.drafts = uint16(len(q.draft))
	}
}

// awaiting, as a number of drafts, says that some are to come.
const awaiting = math.MaxUint16

// AwaitDraft lets the sequence's next row wait until no sample of it is in flight, so that SetDraft has an effect then: it is
// worth that for several tokens. No effect when none is in flight.
func (q *Sequence) AwaitDraft() {
	if q.state == running && q.pending > 0 && !q.drafting {
		q.drafts = awaiting
	}
}

// todo is how many tokens a row of it could compute now: 1 when decoding, more in a prompt, 0 when
// what comes next is not known before a check of drafts is committed, or has to wait for the token
// in flight that changes the regime or comes before drafts, or nothing comes.
func (q *Sequence) todo() int {
	if q.MaxTokens > 0 && q.left() <= 0 || q.pending > 0 && (q.drafts == awaiting || q.shifts()) {
		return 0
	}
	return q.length + int(q.pending) - q.planned
}

// shifts says that its next row belongs to another regime than its blocks.
func (q *Sequence) shifts() bool {
	return len(q.queue.Regimes) > 0 && q.queue.regime(q.length+int(q.pending)) != q.Regime()
}

// left is how many tokens may be sampled beyond those in flight.
func (q *Sequence) left() int { return int(q.limit) - q.length - int(q.pending) }

// rewind makes it continue from its first n tokens; rows in flight are void.
func (q *Sequence) rewind(n int) {
	q.computed, q.planned, q.pending = n, n, 0
	q.quiet, q.drafting, q.drafts = 0, false, 0
	q.epoch++
}

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

func (r Reason) String() string {
	return [...]string{"none", "stop", "stop string", "length", "cancelled", "failed"}[r]
}

// Event is what happened to a sequence. The last event of a sequence, and only that, has a Reason.
type Event struct {
	Seq    *Sequence
	Tokens []int32 // new ones, in order, an end token included: the first of Output.Tokens of the row
	Index  int     // of Tokens[0] among the sampled tokens
	Row    int     // of the plan committed last; -1 when the event comes from no row
	Reason Reason
	Err    error
}
