package cpu

import "errors"

// ErrNoCgo is returned by Open in a program built without cgo. Build with CGO_ENABLED=1 and a C
// compiler, or use another device.
var ErrNoCgo = errors.New("cpu: this program was built without cgo (CGO_ENABLED=0)")

// Options choose how a device computes.
type Options struct {
	Threads int    // 0: as many as the process may use
	Exact   bool   // float32 activations instead of int8 in groups of 32
	Variant string // "portable" forces plain C; "": the fastest that the processor has
}
