package sched

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// Residency says where a model's weights are.
type Residency uint8

// A model is stepped only while it is Resident.
const (
	Resident Residency = iota
	Parking            // on their way out: no sequence of it runs or is admitted
	Parked
	Loading // on their way in
)

func (r Residency) String() string {
	return [...]string{"resident", "parking", "parked", "loading"}[r]
}

// Switch is a change of which weights are on the device, for the caller to carry out: first it parks
// every model of Park, then it loads Load. None of them has a running sequence or a row in flight, nor
// gets one before Switched. Steps of other models may go on meanwhile.
type Switch struct {
	Park []string
	Load string // "" when there is nothing to load

	park  []*queue
	load  *queue
	begun time.Time
}

// weights is where one model's weights are, and what is to become of them. How models take turns, when
// they do not all fit, is told in doc.go.
type weights struct {
	state    Residency
	leaving  bool          // it admits nobody, so that it can make room for Scheduler.incoming
	unload   bool          // the same, because Park asked for it
	wanted   bool          // Load asked for it
	turned   bool          // a request was refused because it is not here: who comes again should find it
	loadTime time.Duration // of the last load, or as declared
	loaded   time.Time
	used     time.Time // when it last had a sequence, as far as arrange has seen
	// stay is until when it keeps its place while it has work; while it has none, see freeAt.
	stay time.Time
	// owed is the age of the first sequence to come after it had none, or of the oldest that waited when it was
	// loaded: that one is admitted before the model leaves.
	owed   uint64
	asked  uint64 // order in which parked models were asked for; 0: it is not
	passed int    // times that one asked for later was brought before it
}

const (
	// maxPassed is how often deadlines bring other models before the one that was asked for first.
	maxPassed = 4
	// leastResident and loadShare are MinResident when Limits do not say: a device that switches all the time
	// loads for at most a ninth of it.
	leastResident = 2 * time.Second
	loadShare     = 8
	// theNext is what a model without work owes.
	theNext = math.MaxUint64
)

// Switch returns the next change to carry out, or nil. There is one at a time.
func (s *Scheduler) Switch(now time.Time) *Switch {
	if s.change != nil {
		return nil
	}
	s.arrange(now)
	var out []*queue
	for _, q := range s.queues {
		if s.expired(q, now) {
			out = append(out, q)
		}
	}
	if len(out) > 0 {
		return s.begin(out, nil, now)
	}
	if s.incoming != nil {
		if out, ok := s.vacate(s.incoming, now); ok {
			return s.begin(slices.Clone(out), s.incoming, now)
		}
	}
	var in *queue
	for _, q := range s.queues {
		if q != s.incoming && q.asks() && (in == nil || q.before(in)) && s.affords(q, now) {
			in = q
		}
	}
	if in == nil {
		return nil
	}
	out, _ = s.vacate(in, now)
	return s.begin(slices.Clone(out), in, now)
}

// Switched says that a Switch was carried out. With an err, Park is parked and Load is not loaded: what
// waits for it fails with err, and later requests try again.
func (s *Scheduler) Switched(sw *Switch, err error, now time.Time) {
	if sw != s.change {
		panic("sched: another switch is under way")
	}
	s.change = nil
	stay := now
	for _, q := range sw.park {
		q.weights.state = Parked
		q.stats.Parks++
		if q.weights.stay.After(stay) {
			stay = q.weights.stay
		}
	}
	q := sw.load
	if q == nil {
		return
	}
	w := &q.weights
	turned, called := w.turned, w.turned || w.wanted
	w.wanted, w.turned, w.asked, w.passed = false, false, 0, 0
	took := max(0, now.Sub(sw.begun))
	q.stats.LoadSeconds += took.Seconds()
	if err != nil {
		w.state, w.unload = Parked, false
		for len(q.waiting) > 0 {
			s.Fail(q.waiting[len(q.waiting)-1], err)
		}
		return
	}
	w.state, w.loadTime, w.loaded, w.used, w.owed = Resident, took, now, now, theNext
	q.stats.Loads++
	w.stay = stay.Add(s.minResident(q))
	if called && q.KeepAlive >= 0 { // who called for it finds it, however short its idle time is
		w.used = now.Add(max(0, leastResident-q.KeepAlive))
	}
	if len(q.waiting) > 0 {
		w.owed = q.waiting[0].age
	} else if turned {
		w.stay = w.stay.Add(leastResident) // for who comes again
	}
	q.served = max(q.served, s.served) // time that it was not here earns no credit
}

// Park asks for a model's weights to leave the device: when its running sequences have ended, or at once
// with an err, which they and the waiting ones then fail with. A request that comes later, or
// still waits, brings it back. The error is ErrUnknownModel.
func (s *Scheduler) Park(name string, err error, now time.Time) error {
	q := s.queue(name)
	if q == nil {
		return fmt.Errorf("%w %q", ErrUnknownModel, name)
	}
	if err != nil {
		s.FailModel(name, err)
	}
	w := &q.weights
	w.wanted, w.turned = false, false
	if w.state == Resident || w.state == Loading {
		w.unload = true
		s.unhold(q)
	}
	s.arrange(now)
	return nil
}

// Load asks for a model's weights to come to the device although nothing waits for it. Models that have
// work do not make room for it. It takes back a Park, and begins the model's idle time anew. The
// error is ErrUnknownModel.
func (s *Scheduler) Load(name string, now time.Time) error {
	q := s.queue(name)
	if q == nil {
		return fmt.Errorf("%w %q", ErrUnknownModel, name)
	}
	w := &q.weights
	w.unload = false
	w.used = now
	w.wanted = w.state == Parked || w.state == Parking
	s.arrange(now)
	return nil
}

// KeepAlive sets after how long without a sequence a model is parked: negative never, 0 at once. The
// error is ErrUnknownModel.
func (s *Scheduler) KeepAlive(name string, d time.Duration) error {
	q := s.queue(name)
	if q == nil {
		return fmt.Errorf("%w %q", ErrUnknownModel, name)
	}
	q.Model.KeepAlive = d
	return nil
}

// Residency says where a model's weights are; Resident for a name it does not know.
func (s *Scheduler) Residency(name string) Residency {
	if q := s.queue(name); q != nil {
		return q.weights.state
	}
	return Resident
}

// ParkAt is when a model is parked if nobody asks for it until then; the zero time for never, and for one that is not on the device.
func (s *Scheduler) ParkAt(name string, now time.Time) time.Time {
	q := s.queue(name)
	switch {
	case q == nil || q.KeepAlive < 0 || q.weights.state != Resident:
		return time.Time{}
	case s.vacant(q) && q.weights.used.After(now.Add(-q.KeepAlive)):
		return q.weights.used.Add(q.KeepAlive)
	}
	return now.Add(q.KeepAlive)
}

// Wake is when Switch should be called again although nothing came: the zero time for never. Call
// it after Switch.
func (s *Scheduler) Wake(now time.Time) time.Time {
	var wake time.Time
	at := func(t time.Time) {
		if t.After(now) && (wake.IsZero() || t.Before(wake)) {
			wake = t
		}
	}
	asked := false
	for _, q := range s.queues {
		asked = asked || q.asks()
	}
	for _, q := range s.queues {
		w := &q.weights
		if w.state != Resident {
			continue
		}
		if q.KeepAlive >= 0 && s.vacant(q) {
			at(w.used.Add(q.KeepAlive))
		}
		if asked {
			at(w.stay)
			at(s.freeAt(q))
		}
	}
	return wake
}

// admits says whether waiting sequences of q may begin to run.
func (q *queue) admits() bool {
	return q.weights.state == Resident && !q.weights.leaving && !q.weights.unload
}

// asks says that q is parked and somebody wants it.
func (q *queue) asks() bool {
	return q.weights.state == Parked && (q.called() || q.weights.wanted)
}

// called says that requests want q: room is made for it.
func (q *queue) called() bool { return len(q.waiting) > 0 || q.weights.turned }

// still says that nothing of q runs, or is in flight.
func (s *Scheduler) still(q *queue) bool {
	return len(q.running) == 0 && !slices.ContainsFunc(s.inFlight, func(p *Plan) bool { return p.queue == q })
}

// vacant says that q has no work at all.
func (s *Scheduler) vacant(q *queue) bool { return len(q.waiting) == 0 && s.still(q) }

// expired says that q is to be parked although nobody needs its memory, and can be.
func (s *Scheduler) expired(q *queue, now time.Time) bool {
	w := &q.weights
	if w.state != Resident {
		return false
	}
	return w.unload && s.still(q) || q.KeepAlive >= 0 && s.vacant(q) && !now.Before(w.used.Add(q.KeepAlive))
}

func (s *Scheduler) minResident(q *queue) time.Duration {
	if d := s.limits.MinResident; d > 0 {
		return d
	}
	return max(leastResident, loadShare*q.weights.loadTime)
}

// begin hands a change out.
func (s *Scheduler) begin(out []*queue, in *queue, now time.Time) *Switch {
	sw := &Switch{park: out, load: in, begun: now}
	for _, q := range out {
		q.weights.state, q.weights.unload = Parking, false
		s.unhold(q)
		sw.Park = append(sw.Park, q.Name)
	}
	if in != nil {
		sw.Load = in.Name
		in.weights.state = Loading
		if s.incoming == in {
			s.bringNext(nil)
		}
	}
	for _, q := range out {
		q.weights.leaving = false
	}
	s.change = sw
	return sw
}

// bringNext changes which model room is being made for; those that were to leave for another one stay.
func (s *Scheduler) bringNext(q *queue) {
	s.incoming = q
	for _, o := range s.queues {
		o.weights.leaving = false
	}
}

// unhold forgets that memory refused a sequence of q, which admits nobody now: others need not wait
// for it. It keeps count of who has overtaken it.
func (s *Scheduler) unhold(q *queue) {
	q.blocked = nil
	if s.hold != nil && s.hold.queue == q {
		s.hold = nil
		s.holdOldest()
	}
}

// arrange notes who has work and who is asked for, chooses the model to bring next, and lets those that have to
// make room for it admit nobody. It changes no weights.
func (s *Scheduler) arrange(now time.Time) {
	first := s.asks
	for _, q := range s.queues {
		w := &q.weights
		switch {
		case w.state != Resident:
		case s.vacant(q):
			w.owed = theNext
			if w.used.IsZero() {
				w.used = now
			}
		default:
			w.used = now
			if w.owed == theNext && len(q.waiting) > 0 {
				w.owed = q.waiting[0].age
			}
		}
		switch {
		case !q.asks():
			w.asked, w.passed = 0, 0
		case w.asked == 0:
			s.asks = first + 1
			w.asked = s.asks
		}
	}
	if s.incoming != nil && !s.incoming.called() {
		s.bringNext(nil)
	}
	if s.change != nil {
		return
	}
	if s.incoming == nil {
		s.choose(now)
	}
	if s.incoming != nil {
		s.drain(s.incoming, now)
	}
}

// choose sets incoming: of the parked models that sequences wait for, one that was passed too often, else the
// one with the nearest deadline that can still be met, else the one asked for first.
func (s *Scheduler) choose(now time.Time) {
	var best *queue
	var bestAt time.Time
	for _, q := range s.queues {
		if !q.asks() || !q.called() {
			continue
		}
		at := s.deadline(q, now)
		if best == nil || s.sooner(q, at, best, bestAt) {
			best, bestAt = q, at
		}
	}
	if best != nil {
		for _, q := range s.queues {
			if q != best && q.asks() && q.before(best) {
				q.weights.passed++
			}
		}
		s.bringNext(best)
	}
}

// sooner says whether a is brought before b, given their deadlines, zero for none.
func (s *Scheduler) sooner(a *queue, at time.Time, b *queue, bt time.Time) bool {
	if over := a.weights.passed >= maxPassed; over != (b.weights.passed >= maxPassed) || over {
		return over && (b.weights.passed < maxPassed || a.before(b))
	}
	if !at.Equal(bt) {
		return !at.IsZero() && (bt.IsZero() || at.Before(bt))
	}
	return a.before(b)
}

// before says whether a was asked for before b, or at once with it by an older sequence.
func (a *queue) before(b *queue) bool {
	if a.weights.asked != b.weights.asked {
		return a.weights.asked < b.weights.asked
	}
	return len(a.waiting) > 0 && (len(b.waiting) == 0 || a.waiting[0].age < b.waiting[0].age)
}

// deadline is when the first token of a waiting sequence is due, the soonest that can still be met; zero for none.
func (s *Scheduler) deadline(q *queue, now time.Time) time.Time {
	var soonest time.Time
	for _, seq := range q.waiting {
		if seq.sla.TTFT == 0 || seq.late || seq.sampled() > 0 {
			continue
		}
		at := s.epoch.Add(seq.came + seq.sla.TTFT)
		if at.After(now.Add(q.weights.loadTime)) && (soonest.IsZero() || at.Before(soonest)) {
			soonest = at
		}
	}
	return soonest
}
