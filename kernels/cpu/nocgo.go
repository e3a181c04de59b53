//go:build !cgo

package cpu

import (
	"errors"

	"github.com/openinfer-go/openinfer/kernels"
)

// ErrNoCgo is returned by Open in a program built without cgo. Build with CGO_ENABLED=1 and a C
// compiler, or use another device.
var ErrNoCgo = errors.New("cpu: this program was built without cgo (CGO_ENABLED=0)")

// Open returns ErrNoCgo.
func Open(Options) (kernels.Device, error) { return nil, ErrNoCgo }
