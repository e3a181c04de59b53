package engine

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/kernels/cpu"
	"github.com/openinfer-go/openinfer/kernels/ref"
	"github.com/openinfer-go/openinfer/kernels/sim"
)

// Devices lists the devices of a processor. Options.Device may name one, or a card, simulated or not.
func Devices() []string { return []string{"cpu", "ref"} }

// SimulatedCards lists what may stand behind sim: in Options.Device.
func SimulatedCards() []string { return sim.Names() }

const simPrefix = "sim:"

// checkDevice says whether there is a device of that name, and whether it is a card.
func checkDevice(name string) (card bool, err error) {
	if of, ok := strings.CutPrefix(name, simPrefix); ok {
		if _, err := sim.Find(of); err != nil {
			return true, fmt.Errorf("engine: device %q: %w", name, err)
		}
		return true, nil
	}
	if isCard(name) {
		return true, nil
	}
	if name != "auto" && !slices.Contains(Devices(), name) {
		return false, fmt.Errorf("engine: device %q: want auto, one of %q, cuda, cuda:N for another card than the first, cuda:ptx (an interpreter), or sim:CARD with one of the cards %s", name, Devices(), strings.Join(SimulatedCards(), ", "))
	}
	return false, nil
}

// OpenDevice opens a device of the processor to compute with beside serving: name is "auto" or one of Devices, threads 0 is one a core,
// exact is float32 activations.
func OpenDevice(name string, threads int, exact bool) (kernels.Device, error) {
	card, err := checkDevice(name)
	if err != nil {
		return nil, err
	}
	if isCard(name) {
		return nil, fmt.Errorf("engine: device %q: only serve and run use cards: want auto or one of %q", name, Devices())
	}
	if card {
		return nil, fmt.Errorf("engine: device %q: a simulated card computes nothing", name)
	}
	return openDevice(Options{Device: name, Threads: threads, Exact: exact, Log: slog.Default()})
}

// openDevice opens the device that the options name; auto takes the fastest of the processor's.
func openDevice(o Options) (kernels.Device, error) {
	if card, ok := strings.CutPrefix(o.Device, simPrefix); ok {
		return sim.Open(card)
	}
	if isCard(o.Device) {
		return openCard(o)
	}
	if o.Device == "ref" {
		return ref.Open(), nil
	}
	d, err := cpu.Open(cpu.Options{Threads: o.Threads, Exact: o.Exact})
	if o.Device == "auto" && errors.Is(err, cpu.ErrNoCgo) {
		o.Log.Warn("the plain Go device is all there is, and it is slow", "reason", err)
		return ref.Open(), nil
	}
	return d, err
}
