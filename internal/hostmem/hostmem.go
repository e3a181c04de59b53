// Package hostmem takes memory outside Go's heap: weights, scratch and cache pages, which the
// garbage collector must neither scan nor count, and which C may address.
//
// Invariant: memory starts at a multiple of 64 bytes (of an OS page, in fact), is zeroed, and goes
// back to the system when it is freed, not when it is forgotten.
package hostmem

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// Alloc returns n zeroed bytes. The memory is only taken from the system as it is written.
func Alloc(n int64) ([]byte, error) {
	if n < 0 || int64(int(n)) != n {
		return nil, fmt.Errorf("hostmem: allocate %d bytes", n)
	}
	if n == 0 {
		return []byte{}, nil
	}
	b, err := syscall.Mmap(-1, 0, int(n), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		return nil, fmt.Errorf("hostmem: allocate %d bytes: %w", n, err)
	}
	return b, nil
}

// Free gives back what Alloc returned: the whole of it, never a part. It panics on anything else.
func Free(b []byte) {
	if len(b) == 0 {
		return
	}
	if err := syscall.Munmap(b); err != nil {
		panic(fmt.Sprintf("hostmem: free %d bytes that are no allocation: %v", len(b), err))
	}
}

// Available estimates how many bytes this process may still take: what the system has to spare,
// or what its control group leaves when that is less. 0 when unknown.
func Available() int64 {
	free := meminfo()
	limit, ok := readInt("/sys/fs/cgroup/memory.max")
	if used, ok2 := readInt("/sys/fs/cgroup/memory.current"); ok && ok2 && limit-used < free {
		free = max(limit-used, 0)
	}
	return free
}

func meminfo() int64 {
	f, err := os.Open("/proc/meminfo")
	if err != nil {
		return 0
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if rest, ok := strings.CutPrefix(s.Text(), "MemAvailable:"); ok {
			kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			if err != nil {
				return 0
			}
			return kib * 1024
		}
	}
	return 0
}

func readInt(path string) (int64, bool) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	return n, err == nil
}
