//go:build !cgo

package cpu

import "github.com/openinfer-go/openinfer/kernels"

// Open returns ErrNoCgo.
func Open(Options) (kernels.Device, error) { return nil, ErrNoCgo }

// ReadBandwidth returns ErrNoCgo.
func ReadBandwidth(int) (float64, error) { return 0, ErrNoCgo }
