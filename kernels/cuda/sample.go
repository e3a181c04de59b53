package cuda

import (
	"errors"

	"github.com/openinfer-go/openinfer/kernels"
)

// Sample implements kernels.Device.
func (d *Device) Sample(out []kernels.Sampled, logits kernels.Tensor, vocab int, params []kernels.SampleParams) {
	d.ok(errors.New("cuda: Sample"))
}
