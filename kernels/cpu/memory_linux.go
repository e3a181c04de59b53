//go:build cgo

package cpu

import "golang.org/x/sys/unix"

// hugePages is advice: where it is not taken, memory works as well and somewhat slower.
func hugePages(b []byte) { _ = unix.Madvise(b, unix.MADV_HUGEPAGE) }
