package sim

import "time"

// Device is a Meter with a card's memory whose steps take the time that they are charged.
type Device struct {
	Meter
	began time.Time
	over  time.Duration // that sleeps took too long and later ones make up for
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
	d := &Device{Meter: Meter{spec: s, checked: true}}
	d.memory.limit = s.UsableBytes()
	return d
}

// Begin implements kernels.Device.
func (d *Device) Begin() {
	d.Meter.Begin()
	d.began = time.Now()
}

// End implements kernels.Device. It returns when the charged time has passed since Begin. A card computes while the
// host still issues operators, so the host's time is not added. The system wakes a sleeper late: what
// that amounts to is taken off later sleeps, so that many steps take what they should together.
func (d *Device) End() error {
	start := time.Now()
	left := time.Duration(d.seconds*1e9) - start.Sub(d.began)
	switch {
	case left <= 0:
	case left <= d.over:
		d.over -= left
	default:
		left -= d.over
		time.Sleep(left)
		d.over = max(time.Since(start)-left, 0)
	}
	return d.err
}
