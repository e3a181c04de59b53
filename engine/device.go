package engine

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/kernels/cpu"
	"github.com/openinfer-go/openinfer/kernels/ref"
)

// Devices lists the devices that Options.Device may name.
func Devices() []string { return []string{"cpu", "ref"} }

// OpenDevice opens a device for work beside serving: name is "auto" or one of Devices, threads 0 is one a core, exact
// is float32 activations.
func OpenDevice(name string, threads int, exact bool) (kernels.Device, error) {
	return openDevice(Options{Device: name, Threads: threads, Exact: exact, Log: slog.Default()})
}

// openDevice opens the device that the options name; auto takes the fastest there is.
func openDevice(o Options) (kernels.Device, error) {
	switch o.Device {
	case "ref":
		return ref.Open(), nil
	case "cpu":
		return cpu.Open(cpu.Options{Threads: o.Threads, Exact: o.Exact})
	case "auto":
		d, err := cpu.Open(cpu.Options{Threads: o.Threads, Exact: o.Exact})
		if errors.Is(err, cpu.ErrNoCgo) {
			o.Log.Warn("the plain Go device is all there is, and it is slow", "reason", err)
			return ref.Open(), nil
		}
		return d, err
	}
	return nil, fmt.Errorf("engine: device %q: want auto or one of %q", o.Device, Devices())
}
