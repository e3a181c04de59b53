package cuda

import (
	"errors"

	"github.com/openinfer-go/openinfer/kernels"
)

// CausalConv implements kernels.Device.
func (d *Device) CausalConv(dst, x, w kernels.Tensor, s kernels.State) {
	d.ok(errors.New("cuda: CausalConv"))
}
