package sim

import (
	"sync"
	"time"

	"github.com/openinfer-go/openinfer/kernels"
)

// Device is a Meter with a card's memory whose steps take the time that they are charged.
type Device struct {
	Meter
	began time.Time
	over  time.Duration // that sleeps took too long and later ones make up for

	link sync.Mutex // between host and card: one transfer at a time
	late time.Duration
}

// Load implements kernels.Device. It takes the time that the weights need to come from host memory; steps go on meanwhile.
func (d *Device) Load(parts ...kernels.Matrix) (*kernels.Weight, error) {
	w, err := d.Meter.Load(parts...)
	if err != nil {
		return nil, err
	}
	d.link.Lock()
	defer d.link.Unlock()
	sleep(time.Duration(float64(w.Bytes)/d.spec.HostBandwidth*1e9), &d.late)
	return w, nil
}

// sleep returns when that time has passed. The system wakes a sleeper late: what that amounts to is taken off
// later sleeps, so that many take what they should together.
func sleep(left time.Duration, over *time.Duration) {
	switch {
	case left <= 0:
	case left <= *over:
		*over -= left
	default:
		start := time.Now()
		left -= *over
		time.Sleep(left)
		*over = max(time.Since(start)-left, 0)
	}
}

// Open returns the card of that name.
func Open(name string) (*Device, error) {
	s, err := Find(name)
	if err != nil {
		return nil, err
	}
	return NewDevice(s), nil
}

// NewDevice returns a device of what s describes.
func NewDevice(s Spec) *Device {
	d := &Device{Meter: *NewMeter(s)}
	d.checked = true
	d.memory.limit = s.UsableBytes()
	return d
}

// Begin implements kernels.Device.
func (d *Device) Begin() {
	d.Meter.Begin()
	d.began = time.Now()
}

// End implements kernels.Device. It returns when the charged time has passed since Begin. A card computes while the
// host still issues operators, so the host's time is not added.
func (d *Device) End() error {
	sleep(time.Duration(d.seconds*1e9)-time.Since(d.began), &d.over)
	return d.err
}
