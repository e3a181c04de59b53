package sched

import (
	"fmt"
	"time"
)

// Residency says where a model's weights are.
type Residency uint8

// A model is stepped only while it is Resident.
const (
	Resident Residency = iota
	Parking            // on their way out, or about to be: no sequence of it runs or is admitted
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
}

// Switch returns the next change to carry out, or nil. There is one at a time.
func (s *Scheduler) Switch(now time.Time) *Switch { return nil }

// Switched says that a Switch was carried out. With an err, Park is parked and Load is not loaded: what
// waits for it fails with err, and later requests try again.
func (s *Scheduler) Switched(sw *Switch, err error, now time.Time) {}

// Park asks for a model's weights to leave the device: when its running sequences have ended, or at once
// with an err, which they and the waiting ones then fail with. A request that comes later, or
// still waits, brings it back. Errors: ErrUnknownModel, and ErrPinned.
func (s *Scheduler) Park(name string, err error, now time.Time) error {
	return fmt.Errorf("sched: not parked: %s", name)
}

// Load asks for a model's weights to come to the device although nothing waits for it. Errors: ErrUnknownModel.
func (s *Scheduler) Load(name string, now time.Time) error { return nil }

// KeepAlive sets after how long without a sequence a model is parked: negative never, 0 at once.
func (s *Scheduler) KeepAlive(name string, d time.Duration) error { return nil }

// Residency says where a model's weights are; Resident for a name it does not know.
func (s *Scheduler) Residency(name string) Residency { return Resident }

// Wake is when Plan or Switch should be called again although nothing came: the zero time for never.
func (s *Scheduler) Wake(now time.Time) time.Time { return time.Time{} }
