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
	"path/filepath"
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
// or what its control group leaves when that is less. 0 when unknown, as it is outside Linux.
func Available() int64 { return available("/proc/meminfo", "/sys/fs/cgroup") }

func available(meminfo, group string) int64 {
	free := field(meminfo, "MemAvailable:") << 10
	limit, ok := readInt(filepath.Join(group, "memory.max"))
	used, ok2 := readInt(filepath.Join(group, "memory.current"))
	if !ok || !ok2 {
		return free
	}
	// Cached files count as used, and are given up when memory is asked for.
	stat := filepath.Join(group, "memory.stat")
	used -= field(stat, "inactive_file") + field(stat, "active_file")
	return min(free, max(limit-used, 1))
}

// field returns the number behind a name at the start of a line; 0 when there is none.
func field(path, name string) int64 {
	f, err := os.Open(path)
	if err != nil {
		return 0
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if words := strings.Fields(s.Text()); len(words) > 1 && words[0] == name {
			n, _ := strconv.ParseInt(words[1], 10, 64)
			return n
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
