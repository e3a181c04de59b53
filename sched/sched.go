package sched

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/openinfer-go/openinfer/kvcache"
)

// Limits bound all models together.
type Limits struct {
	// MaxWaiting bounds the sequences beyond what may run, over all models; 0: no bound but each
	// model's.
	MaxWaiting int
	// MaxOvertakes is how often younger sequences are admitted past one that memory refuses, before
	// nobody younger is until it fits; 0 means 16.
	MaxOvertakes int
	// InFlight is how many plans may be uncommitted at a time: 1, or 2 to plan a step while the
	// one before runs. 0 means 1.
	InFlight int
	// MaxStep bounds the predicted time of a step with prompt tokens, down to the smallest chunk, while nothing
	// that asks for less is there: nobody knows what arrives meanwhile. 0 means 1 s.
	MaxStep time.Duration
	// StreamStep is the same while a sequence without a TPOT target is decoding; 0 means 250 ms.
	StreamStep time.Duration
	// Lag is how much more device time, by weight, a model may have had than the one with least among
	// those that have work, before deadlines count no more between them; 0 means 100 ms.
	Lag time.Duration
	// WeightBytes is the device memory for the weights of resident models; 0: all models fit and none is
	// parked but by Park and KeepAlive.
	WeightBytes int64
	// MinResident is how long a model that has work stays once it is loaded, whatever waits elsewhere:
	// what bounds the number of switches; 0 means eight times what the switch took, 2 s at least.
	MinResident time.Duration
}

// Model is what the scheduler knows of a model.
type Model struct {
	Name      string
	Cache     *kvcache.Cache
	MaxTokens int // context length: prompt and sampled tokens together
	// MaxBatchTokens bounds the tokens of a step.
	MaxBatchTokens int
	MaxSeqs        int     // running at a time; at most MaxBatchTokens, so that each can have a row
	MaxWaiting     int     // beyond MaxSeqs; more are refused
	Weight         float64 // share of the device's time; 0 means 1
	SLA            SLA     // of sequences that ask for none; zero: best effort
	// Prior is what the device says of steps' times before any was seen; nil: nothing.
	Prior []Observation
	// WeightBytes is what the weights take on the device, and LoadTime how long they take to come there.
	WeightBytes int64
	LoadTime    time.Duration
	KeepAlive   time.Duration // idle time after which the model is parked; 0 or less: never
	Parked      bool          // its weights are not on the device now
	// Regimes are context lengths, ascending: a sequence of more than Regimes[i] tokens is computed
	// under regime i+1, all of it.
	Regimes []int
}

// regime is the one that a sequence of n tokens is computed under.
func (m *Model) regime(n int) int {
	r := 0
	for r < len(m.Regimes) && n > m.Regimes[r] {
		r++
	}
	return r
}

// Scheduler decides which rows run next.
type Scheduler struct {
	pool   *kvcache.Pool
	limits Limits
	queues []*queue // in the order they were added

	age       uint64    // of the next sequence
	epoch     time.Time // what times are counted from
	started   bool
	promises  []promise // first tokens that are due, soonest first
	backlog   float64   // sum of their work
	pace      pace
	streaming int // running sequences that have yielded a token
	plain     int // of them, those without a TPOT target that can still be met
	hold      *Sequence
	draining  bool

	inFlight []*Plan // oldest first
	spare    []*Plan
	events   []Event
	returned []Event // by the last call of Events
	served   float64 // least service among the queues that had work at the last plan
	lastStep time.Time

	change   *Switch // handed out and not carried out
	incoming *queue  // parked, and room is being made for it
	asks     uint64  // queue.weights.asked of the one asked for last

	out     []*queue    // scratch of vacate and drain
	order   []*queue    // scratch of byUrgency
	prompts []*Sequence // scratch of planQueue, and urgent of shareOut
	urgent  []*Sequence
	tried   []*Sequence       // scratch of admit
	evicted bool              // the plan being made has preempted
	tails   []*tail           // free ones
	filled  []*Sequence       // have computed tokens that Seal has to hear of, in the step being committed
	growing []kvcache.Growing // scratch of touch and seal
	unsure  []*Sequence       // scratch of look
	touched int               // keeps touch from being left out
}

// queue is one model's sequences, each list in order of age.
type queue struct {
	Model
	waiting, running []*Sequence
	blocked          *Sequence // the oldest waiting one that memory refused

	accounts map[string]*account
	lanes    [2]heap[*lane] // what waits, in the order of admission
	given    float64        // account.used of the key that was served last
	admitted uint64
	targets  []target // of the sequences whose TPOT can still be met, tightest first
	streams  int      // how many those are
	owed     int      // first tokens in Scheduler.promises
	perToken float64  // blocks that a token takes

	survey
	recurrent    bool // some of the model's state is
	dirty        bool // survey has to be made again
	waitingPlain int  // of the sequences in lanes, those that never had a deadline
	waitingLate  int  // and those that cannot meet it

	hungry   bool // has best-effort work, as of the last plan
	ahead    bool // of the hungry ones by Limits.Lag
	rowsOnly bool // it is, but gets a step of rows that decode
	excused  bool // it had such a step, and no hungry one had any since
	urgency  time.Duration

	demand                 demand
	entitled, floor, level float64 // scratch of kept
	filled                 bool

	served float64 // seconds of device time by weight, with the plans in flight as estimated
	cost   estimate
	model  *predictor
	stats  ModelStats

	weights weights
}

// New returns a scheduler of no models over the pool.
func New(pool *kvcache.Pool, limits Limits) *Scheduler {
	limits.InFlight = max(1, limits.InFlight)
	if limits.MaxOvertakes <= 0 {
		limits.MaxOvertakes = 16
	}
	orElse := func(d *time.Duration, or time.Duration) {
		if *d <= 0 {
			*d = or
		}
	}
	orElse(&limits.MaxStep, time.Second)
	orElse(&limits.StreamStep, 250*time.Millisecond)
	orElse(&limits.Lag, 100*time.Millisecond)
	return &Scheduler{pool: pool, limits: limits}
}

// AddModel lets sequences of m be submitted.
func (s *Scheduler) AddModel(m Model) error {
	if m.Weight == 0 {
		m.Weight = 1
	}
	switch {
	case s.queue(m.Name) != nil:
		return fmt.Errorf("sched: model %s: added twice", m.Name)
	case m.MaxTokens > math.MaxInt32:
		return fmt.Errorf("sched: model %s: MaxTokens %d", m.Name, m.MaxTokens)
	case m.Cache == nil || m.Cache.Pool() != s.pool:
		return fmt.Errorf("sched: model %s: no cache over the scheduler's pool", m.Name)
	case m.MaxTokens < 1 || m.MaxBatchTokens < 1 || m.MaxSeqs < 1 || m.MaxWaiting < 0 || !(m.Weight > 0):
		return fmt.Errorf("sched: model %s: MaxTokens %d, MaxBatchTokens %d, MaxSeqs %d, MaxWaiting %d, Weight %g",
			m.Name, m.MaxTokens, m.MaxBatchTokens, m.MaxSeqs, m.MaxWaiting, m.Weight)
	}
	for i, n := range m.Regimes {
		if n < 1 || i > 0 && n <= m.Regimes[i-1] {
			return fmt.Errorf("sched: model %s: regimes from %v tokens on", m.Name, m.Regimes)
		}
	}
	held := m.WeightBytes
	if !m.Parked {
		held += s.held()
	}
	if m.WeightBytes < 0 || m.LoadTime < 0 || s.limits.WeightBytes > 0 && held > s.limits.WeightBytes {
		return fmt.Errorf("sched: model %s: WeightBytes %d (%d with what is resident) of %d, LoadTime %s",
			m.Name, m.WeightBytes, held, s.limits.WeightBytes, m.LoadTime)
	}
	if m.KeepAlive <= 0 {
		m.KeepAlive = -1
	}
	m.MaxSeqs = min(m.MaxSeqs, m.MaxBatchTokens)
	q := &queue{Model: m, served: s.served, dirty: true}
	q.model = newPredictor(m.Prior)
	for _, g := range m.Cache.Config().Groups {
		q.recurrent = q.recurrent || g.Kind == kvcache.Recurrent
		if g.Kind == kvcache.Full || g.Kind == kvcache.SlidingWindow && g.Window >= m.MaxTokens {
			q.perToken += 1 / float64(g.BlockTokens)
		}
	}
	q.stats.Model = m.Name
	q.weights.loadTime = m.LoadTime
	if m.Parked {
		q.weights.state = Parked
	}
	s.queues = append(s.queues, q)
	return nil
}

// RemoveModel fails the model's sequences with err and forgets it; its Cache can be closed then.
func (s *Scheduler) RemoveModel(name string, err error) {
	s.FailModel(name, err)
	s.queues = slices.DeleteFunc(s.queues, func(q *queue) bool { return q.Name == name })
}

func (s *Scheduler) queue(name string) *queue {
	for _, q := range s.queues {
		if q.Name == name {
			return q
		}
	}
	return nil
}

// Events returns what happened since the last call; call it after each Commit. The slice is
// valid until the next call.
func (s *Scheduler) Events() []Event {
	clear(s.returned)
	s.returned, s.events = s.events, s.returned[:0]
	return s.returned
}

// Cancel ends a sequence, waiting or running, at once. No-op when it has ended or was refused.
func (s *Scheduler) Cancel(seq *Sequence) {
	if seq.state == waiting || seq.state == running {
		s.finish(seq, Event{Row: -1, Reason: Cancelled})
	}
}

// Fail ends a sequence with an error. No-op when it has ended or was refused.
func (s *Scheduler) Fail(seq *Sequence, err error) {
	if seq.state == waiting || seq.state == running {
		s.finish(seq, Event{Row: -1, Reason: Failed, Err: err})
	}
}

// FailModel ends every sequence of a model with an error.
func (s *Scheduler) FailModel(name string, err error) {
	q := s.queue(name)
	if q == nil {
		return
	}
	for len(q.running) > 0 {
		s.Fail(q.running[len(q.running)-1], err)
	}
	for len(q.waiting) > 0 {
		s.Fail(q.waiting[len(q.waiting)-1], err)
	}
}

// Reset ends every sequence with an error, drops the plans in flight (their Commit does nothing)
// and empties the pool, cached blocks included: what is left to do after a panic in Plan or Commit.
func (s *Scheduler) Reset(err error) {
	s.pool.Reset() // first: it empties the tables, so that ending sequences touches no broken list
	for _, p := range s.inFlight {
		p.dropped = true
	}
	s.inFlight = s.inFlight[:0]
	for _, q := range s.queues {
		all := append(slices.Clone(q.running), q.waiting...)
		q.running, q.waiting, q.blocked = q.running[:0], q.waiting[:0], nil
		q.accounts, q.lanes, q.dirty = nil, [2]heap[*lane]{}, true
		q.targets, q.streams, q.owed, q.waitingPlain, q.waitingLate = q.targets[:0], 0, 0, 0, 0
		for _, seq := range all {
			if seq.state == ended { // its final event is made, but it was not unlisted
				continue
			}
			seq.state = ended
			seq.epoch++
			s.freeTail(seq)
			q.stats.Finished[Failed]++
			s.events = append(s.events, Event{Seq: seq, Index: seq.sampled(), Row: -1, Reason: Failed, Err: err})
		}
	}
	s.streaming, s.plain, s.hold, s.promises, s.filled = 0, 0, nil, s.promises[:0], s.filled[:0]
	s.backlog = 0
}

// Drain refuses new sequences from now on; those accepted run to their end.
func (s *Scheduler) Drain() { s.draining = true }

// Idle says that no sequence is waiting or running and no plan is in flight.
func (s *Scheduler) Idle() bool {
	for _, q := range s.queues {
		if len(q.waiting)+len(q.running) > 0 {
			return false
		}
	}
	return len(s.inFlight) == 0
}

// finish ends a sequence: the one place that does, but for Reset. ev lacks Seq and, when it has
// no tokens, Index.
func (s *Scheduler) finish(seq *Sequence, ev Event) {
	q := seq.queue
	s.seal(false)
	q.Cache.Release(seq.blocks) // first: should it panic, Reset still finds the sequence in its list
	if seq.state == running {
		q.running = remove(q.running, seq)
	} else {
		q.waiting = remove(q.waiting, seq)
		q.dequeue(seq)
		s.unblock(seq)
	}
	q.dirty = true
	s.setStreaming(seq, false)
	s.release(seq)
	q.untarget(seq)
	q.letGo(seq)
	seq.state = ended
	seq.epoch++
	s.freeTail(seq)
	q.stats.Finished[ev.Reason]++
	q.cost.finished(seq.sampled())
	if ev.Reason < Cancelled && seq.met() {
		q.stats.Sellable++
		q.stats.SellableTokens += uint64(seq.sampled())
	}
	if f := seq.family; f != nil && f.first == seq {
		f.wake()
	}
	if len(ev.Tokens) == 0 {
		ev.Index = seq.sampled()
	}
	ev.Seq = seq
	s.events = append(s.events, ev)
}

// preempt sends a running sequence back to wait, with its tokens and its age.
func (s *Scheduler) preempt(p *Plan, seq *Sequence) {
	q := seq.queue
	p.drop(seq)
	q.Cache.Release(seq.blocks)
	s.setStreaming(seq, false)
	seq.rewind(0)
	s.freeTail(seq)
	q.running = remove(q.running, seq)
	q.waiting = insert(q.waiting, seq)
	seq.state = waiting
	seq.due = seq.nextDue()
	q.enqueue(seq)
	s.evicted = true
	q.stats.Preemptions++
}

// youngest is the running sequence that arrived last, of any model.
func (s *Scheduler) youngest() *Sequence {
	var y *Sequence
	for _, q := range s.queues {
		if n := len(q.running); n > 0 && (y == nil || q.running[n-1].age > y.age) {
			y = q.running[n-1]
		}
	}
	return y
}

// runs counts the running sequences of all models.
func (s *Scheduler) runs() int {
	n := 0
	for _, q := range s.queues {
		n += len(q.running)
	}
	return n
}

func (s *Scheduler) setStreaming(seq *Sequence, on bool) {
	if seq.streaming == on {
		return
	}
	by := 1
	if !on {
		by = -1
	} else {
		seq.plain = seq.late || seq.sla.TPOT == 0
	}
	seq.streaming = on
	s.streaming += by
	if seq.plain {
		s.plain += by
	}
	seq.queue.dirty = true
}

// unblock forgets that memory refused seq, which has been admitted or has ended.
func (s *Scheduler) unblock(seq *Sequence) {
	seq.refusedAt, seq.overtaken = 0, 0
	if seq.queue.blocked == seq {
		seq.queue.blocked = nil
	}
	if s.hold == seq {
		s.hold = nil
		s.holdOldest()
	}
}

// find returns where a sequence of that age is in a list, or belongs.
func find(list []*Sequence, age uint64) int {
	i, _ := slices.BinarySearchFunc(list, age, func(q *Sequence, age uint64) int {
		switch {
		case q.age < age:
			return -1
		case q.age > age:
			return 1
		}
		return 0
	})
	return i
}

func insert(list []*Sequence, seq *Sequence) []*Sequence {
	return slices.Insert(list, find(list, seq.age), seq)
}

func remove(list []*Sequence, seq *Sequence) []*Sequence {
	i := find(list, seq.age)
	if i == len(list) || list[i] != seq {
		panic(fmt.Sprintf("sched: %s: sequence %d is not where it should be", seq.Model, seq.age))
	}
	return slices.Delete(list, i, i+1)
}

// Errors of Submit.
var (
	// ErrUnknownModel: there is no such model; 404.
	ErrUnknownModel = errors.New("unknown model")
	// ErrTooLong: the sequence can never run here; 400. The message has the numbers.
	ErrTooLong = errors.New("too long")
	// ErrTooMany: so many sequences of one request can never be accepted; 400.
	ErrTooMany = errors.New("too many sequences")
	// ErrOverCapacity: no room now; 429. The error is an *OverCapacity, which knows when to retry.
	ErrOverCapacity = errors.New("over capacity")
	// ErrDraining: nothing new is taken because the server is about to stop; 503.
	ErrDraining = errors.New("shutting down")
)

// OverCapacity is ErrOverCapacity with its numbers.
type OverCapacity struct {
	Model      string
	Waiting    int           // sequences of the model that are accepted and not running
	RetryAfter time.Duration // when a place is predicted to come free, a second at least
	// Predicted is when its first token would have come, 0 when the queue was full, and Target when it was wanted, 0 when
	// nobody said; both counted from the arrival. One that is predicted in time is refused as it, or what was accepted, would
	// be late all the same: a prediction has to be well in time, and streams need their tokens.
	Predicted, Target time.Duration
}

func (e *OverCapacity) Error() string {
	if e.Target > 0 && e.Predicted > e.Target {
		return fmt.Sprintf("model %s is over capacity: the first token would come after %.2g s, and %.2g s are asked for; retry in %.0f s",
			e.Model, e.Predicted.Seconds(), e.Target.Seconds(), e.RetryAfter.Seconds())
	}
	if e.Predicted > 0 {
		return fmt.Sprintf("model %s is over capacity: the SLA cannot be promised beside what was accepted; retry in %.0f s", e.Model, e.RetryAfter.Seconds())
	}
	return fmt.Sprintf("model %s is over capacity: %d waiting; retry in %.0f s", e.Model, e.Waiting, e.RetryAfter.Seconds())
}

// Is makes errors.Is(err, ErrOverCapacity) true.
func (e *OverCapacity) Is(target error) bool { return target == ErrOverCapacity }
