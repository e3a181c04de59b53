package sched

import (
	"errors"
	"time"

	"github.com/openinfer-go/openinfer/kvcache"
)

// ErrUnknownModel: no such model; 404.
var ErrUnknownModel = errors.New("unknown model")

// ErrTooLong: the sequence can never run here; 400. The message has the numbers.
var ErrTooLong = errors.New("too long")

// ErrOverCapacity: no room now; 429. The error is an *OverCapacity, which knows when to retry.
var ErrOverCapacity = errors.New("over capacity")

// ErrDraining: the scheduler takes nothing new because it is about to stop; 503.
var ErrDraining = errors.New("shutting down")

// OverCapacity is ErrOverCapacity with its numbers.
type OverCapacity struct {
	Model      string
	Waiting    int
	RetryAfter time.Duration // when a place is predicted to come free
}

func (e *OverCapacity) Error() string { panic("todo") }

// Is makes errors.Is(err, ErrOverCapacity) true.
func (e *OverCapacity) Is(target error) bool { return target == ErrOverCapacity }

// Limits bound all models together.
type Limits struct {
	MaxWaiting int // sequences beyond what may run, over all models; 0: no bound beyond each model's
	// InFlight is how many plans may be uncommitted at a time: 1, or 2 to plan a step while the
	// one before runs. 0 means 1.
	InFlight int
}

// Model is what the scheduler knows of a model.
type Model struct {
	Name      string
	Cache     *kvcache.Cache
	MaxTokens int // context length: prompt and sampled tokens together
	// MaxBatchTokens bounds the tokens of a step.
	MaxBatchTokens int
	// ChunkTokens bounds a step's prompt tokens while any sequence of any model is decoding: the
	// gap between two tokens of a stream is about one such step per model. 0: MaxBatchTokens.
	ChunkTokens int
	MaxSeqs     int     // running at a time
	MaxWaiting  int     // beyond MaxSeqs; more are refused
	Weight      float64 // share of the device's time; 0 means 1
}

// Scheduler decides which rows run next.
type Scheduler struct{}

// New returns a scheduler of no models over the pool.
func New(pool *kvcache.Pool, limits Limits) *Scheduler { panic("todo") }

// AddModel lets sequences of m be submitted.
func (s *Scheduler) AddModel(m Model) error { panic("todo") }

// RemoveModel fails the model's sequences with err and forgets it; its Cache can be closed then.
func (s *Scheduler) RemoveModel(name string, err error) { panic("todo") }

// Submit takes the sequences of one request, all or none. The error is ErrUnknownModel,
// ErrTooLong, ErrOverCapacity or ErrDraining; a refused sequence gets no event.
func (s *Scheduler) Submit(now time.Time, seqs ...*Sequence) error { panic("todo") }

// Plan picks one model and the rows of its next step, or nil when nothing can run.
func (s *Scheduler) Plan(now time.Time) *Plan { panic("todo") }

// Commit folds one step's result back. Plans are committed in the order they were made.
func (s *Scheduler) Commit(p *Plan, out Output, err error, now time.Time) { panic("todo") }

// Events returns what happened since the last call; the slice is valid until the next call.
func (s *Scheduler) Events() []Event { panic("todo") }

// Cancel ends a sequence, waiting or running, at once. No-op when it has ended.
func (s *Scheduler) Cancel(seq *Sequence) { panic("todo") }

// Fail ends a sequence with an error.
func (s *Scheduler) Fail(seq *Sequence, err error) { panic("todo") }

// FailModel ends every sequence of a model with an error.
func (s *Scheduler) FailModel(name string, err error) { panic("todo") }

// Reset ends every sequence with an error, voids all plans in flight and empties the pool, cached
// blocks included: what is left to do after a panic in this package.
func (s *Scheduler) Reset(err error) { panic("todo") }

// Drain refuses new sequences from now on; those accepted run to their end.
func (s *Scheduler) Drain() { panic("todo") }

// Idle says that no sequence is waiting or running and no plan is in flight.
func (s *Scheduler) Idle() bool { panic("todo") }

// Verify recounts queues, budgets and the pool.
func (s *Scheduler) Verify() error { panic("todo") }

// Stats counts, in the order the models were added.
func (s *Scheduler) Stats() []ModelStats { panic("todo") }

// ModelStats counts one model's sequences and tokens; all but Waiting and Running only grow.
type ModelStats struct {
	Model              string
	Waiting, Running   int
	Submitted, Refused uint64
	Finished           [Failed + 1]uint64 // by Reason
	Preemptions        uint64
	Steps              uint64
	PromptTokens       uint64 // computed, prefix hits left out, recomputation included
	SampledTokens      uint64
	PrefixQueried      uint64 // prompt tokens looked up in the prefix cache
	PrefixHit          uint64 // and found
	DeviceTime         time.Duration
}
