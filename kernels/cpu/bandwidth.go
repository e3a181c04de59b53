//go:build cgo

package cpu

// #include "cpu.h"
import "C"

import (
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ReadBandwidth measures how many bytes a second this many threads read from memory together: what
// bounds the decoding of one sequence. It takes about a tenth of a second and 128 MB.
func ReadBandwidth(threads int) (float64, error) {
	const bytes, chunk = 128 << 20, 256 << 10
	mem, err := mapBytes(bytes)
	if err != nil {
		return 0, err
	}
	defer unix.Munmap(mem)
	for i := 0; i < len(mem); i += 4096 {
		mem[i] = 1
	}
	d := &device{threads: threads, pool: C.oi_pool_new(C.int(threads))}
	defer d.Close()
	best := 0.0
	for range 5 {
		d.Begin()
		d.push(C.oi_read, unsafe.Pointer(&mem[0]), bytes/chunk, false)
		start := time.Now()
		d.run()
		best = max(best, bytes/time.Since(start).Seconds())
	}
	return best, nil
}
