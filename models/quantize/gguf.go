package quantize

import (
	"fmt"

	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/kernels/quant"
	"github.com/openinfer-go/openinfer/models/checkpoint"
)

func planGGUF(c *checkpoint.Checkpoint, s quant.Scheme, d kernels.Device) (*plan, error) {
	return nil, fmt.Errorf("%s: not yet", c.Path())
}
