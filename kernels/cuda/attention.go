package cuda

import (
	"errors"

	"github.com/openinfer-go/openinfer/kernels"
)

// Attention implements kernels.Device.
func (d *Device) Attention(dst, q kernels.Tensor, kv kernels.KV, rows kernels.Ragged, p kernels.AttentionParams) {
	d.ok(errors.New("cuda: Attention"))
}
