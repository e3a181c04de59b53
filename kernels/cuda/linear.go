package cuda

import (
	"errors"

	"github.com/openinfer-go/openinfer/kernels"
)

// Load implements kernels.Device.
func (d *Device) Load(parts ...kernels.Matrix) (*kernels.Weight, error) {
	return nil, errors.New("cuda: Load")
}

// Unload implements kernels.Device.
func (d *Device) Unload(*kernels.Weight) {}

// Linear implements kernels.Device.
func (d *Device) Linear(dst, x kernels.Tensor, w *kernels.Weight) { d.ok(errors.New("cuda: Linear")) }

// LinearAdd implements kernels.Device.
func (d *Device) LinearAdd(dst, x kernels.Tensor, w *kernels.Weight) {
	d.ok(errors.New("cuda: LinearAdd"))
}

// EmbedRows implements kernels.Device.
func (d *Device) EmbedRows(dst kernels.Tensor, table *kernels.Weight, ids kernels.Ints, scale float32) {
	d.ok(errors.New("cuda: EmbedRows"))
}
