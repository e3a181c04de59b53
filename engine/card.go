package engine

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/openinfer-go/openinfer/internal/hostmem"
	"github.com/openinfer-go/openinfer/kernels/cuda"
	"github.com/openinfer-go/openinfer/kernels/cuda/driver"
	"github.com/openinfer-go/openinfer/kernels/sim"
)

// Cards: device cuda is the first of the machine's driver, cuda:N another one. cuda:ptx is no card but an interpreter of
// the same kernels, thousands of times slower, which checks every access: for tests, and to see what a kernel does.

const (
	cudaDevice = "cuda"
	cudaPrefix = "cuda:"
	ptxDevice  = "cuda:ptx"
)

// cardOrdinal reads cuda and cuda:N.
func cardOrdinal(name string) (n int, ok bool) {
	if name == cudaDevice {
		return 0, true
	}
	s, ok := strings.CutPrefix(name, cudaPrefix)
	n, err := strconv.Atoi(s)
	return n, ok && err == nil && n >= 0 && strconv.Itoa(n) == s
}

// isCard reports whether a name is of a card that computes, or of what stands in for one.
func isCard(name string) bool {
	_, ok := cardOrdinal(name)
	return ok || name == ptxDevice
}

// findCard is what auto does about cards: it names the first that can be used, or "". why says what is in the way when the
// machine has a driver.
func findCard(open func() (driver.Driver, error)) (name string, why error) {
	drv, err := open()
	if errors.Is(err, driver.ErrNoLibrary) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	_, unusable, err := cuda.Cards(drv)
	if err != nil {
		return "", err
	}
	for i, err := range unusable {
		if err == nil {
			return cudaPrefix + strconv.Itoa(i), nil
		}
	}
	if len(unusable) == 0 {
		return "", errors.New("the driver has no card")
	}
	return "", errors.Join(unusable...)
}

// openCard opens a card that computes. Its memory is one arena, of what is free now.
func openCard(o Options) (*cuda.Device, error) {
	if o.Device == ptxDevice {
		drv := driver.NewInterpreter(1)
		if free := hostmem.Available(); free > 0 { // its memory is the host's, with as much about who wrote what
			drv.Bytes = min(drv.Bytes, free/3)
		}
		return cuda.Open(drv, cuda.Options{Arena: true, HalfAccumulate: o.FP16Accumulation})
	}
	n, _ := cardOrdinal(o.Device)
	drv, err := o.openDriver()
	if err != nil {
		return nil, fmt.Errorf("engine: device %s: %w", o.Device, err)
	}
	d, err := cuda.Open(drv, cuda.Options{Card: n, Arena: true, HalfAccumulate: o.FP16Accumulation})
	if err != nil {
		return nil, fmt.Errorf("engine: device %s: %w", o.Device, err)
	}
	return d, nil
}

// cardSpec is the Spec of a card by what its driver says; false: that is not enough. The shares are those that sim
// takes cards to reach.
func cardSpec(c cuda.Card) (sim.Spec, bool) {
	if c.Bandwidth == 0 || c.Rate == 0 {
		return sim.Spec{}, false
	}
	return sim.Card(c.Name, c.MemoryBytes, c.Bandwidth, c.Rate), true
}

// CardStats are what NVML says of the engine's card now. A number that it does not say is NaN.
type CardStats struct {
	Name string
	CardSample
}

// CardSample are the numbers of CardStats.
type CardSample = driver.Sample

// monitor watches the card of a device.
type monitor struct {
	name string
	card *driver.Card
}

// newMonitor finds the card in NVML; nil: NVML is not there, or does not know it.
func newMonitor(c cuda.Card) (*monitor, error) {
	n, err := driver.OpenNVML()
	if err != nil {
		return nil, err
	}
	card, err := n.Card(c.BusID)
	if err != nil {
		return nil, err
	}
	return &monitor{c.Name, card}, nil
}

func (m *monitor) stats() *CardStats {
	s, _ := m.card.Sample() // what could not be had is NaN, and left out
	return &CardStats{m.name, s}
}

// inspectCards tells about drivers and cards: for doctor.
func inspectCards(line func(what, format string, args ...any), open func() (driver.Driver, error)) {
	if n, err := driver.OpenNVML(); err == nil {
		if v, err := n.DriverVersion(); err == nil {
			line("NVIDIA driver", "%s", v)
		}
		if names, err := n.Names(); err == nil {
			line("cards", "%s (NVML)", strings.Join(names, ", "))
		}
	} else if !errors.Is(err, driver.ErrNoLibrary) {
		line("NVML", "not usable: %v", err)
	}
	drv, err := open()
	if err != nil {
		line("device cuda", "not usable: %v", err)
		return
	}
	if v, err := drv.Version(); err == nil {
		line("CUDA", "%d.%d, through %s", v/1000, v%1000/10, drv.Name())
	}
	cards, unusable, err := cuda.Cards(drv)
	switch {
	case err != nil:
		line("device cuda", "not usable: %v", err)
		return
	case len(cards) == 0:
		line("device cuda", "not usable: the driver has no card")
	}
	for i, c := range cards {
		name := "device " + cudaPrefix + strconv.Itoa(i)
		if unusable[i] != nil {
			line(name, "not usable: %v", unusable[i])
			continue
		}
		line(name, "%v, %s", c, bytesText(c.MemoryBytes))
		m, err := newMonitor(c)
		if err != nil {
			line("", "no metrics of it: %v", err)
			continue
		}
		line("", "%s", m.stats())
	}
}

// String is a line for a person.
func (s *CardStats) String() string {
	var parts []string
	add := func(v float64, format string, args ...any) {
		if !math.IsNaN(v) {
			parts = append(parts, fmt.Sprintf(format, args...))
		}
	}
	add(s.UsedBytes, "%s of %s used", bytesText(int64(s.UsedBytes)), bytesText(int64(s.MemoryBytes)))
	add(s.Utilization, "%.0f %% busy", s.Utilization*100)
	add(s.PowerWatts, "%.0f W", s.PowerWatts)
	add(s.LimitWatts, "limit %.0f W", s.LimitWatts)
	add(s.ClockHz, "%.0f MHz", s.ClockHz/1e6)
	add(s.MaxClockHz, "at most %.0f MHz", s.MaxClockHz/1e6)
	add(s.MemoryClockHz, "memory %.0f MHz", s.MemoryClockHz/1e6)
	add(s.TemperatureCelsius, "%.0f degrees", s.TemperatureCelsius)
	return strings.Join(parts, ", ")
}
