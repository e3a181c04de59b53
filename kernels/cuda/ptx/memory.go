package ptx

import (
	"fmt"
	"math/bits"
	"sync"
	"sync/atomic"
)

// Memory is a card's memory. Each allocation has address room of its own, 4 GiB or more, so that an
// access outside it cannot fall into another one. Allocate, copy and launch from one goroutine.
type Memory struct {
	slots   []*region // of 4 GiB each; nil where nothing is allocated
	mu      sync.Mutex
	touched []touched                   // by the last launch
	pages   [cellMost + 1][]*shadowPage // of earlier launches, by shift
}

// The generic address space: shared, local, constant and parameter memory are windows below global
// memory.
const (
	windowShared = 1 << 40
	windowLocal  = 2 << 40
	windowConst  = 3 << 40
	windowParam  = 4 << 40
	firstGlobal  = 16 << 40
	slotShift    = 32
	pageShift    = 10
)

// A region is a run of memory with what is known about it: which bytes were written, and who
// touched them last.
type region struct {
	name    string // "global", "shared", "local", "const", "param"
	base    uint64
	private bool    // of one block
	tag     uint32  // of that block
	mem     *Memory // that the pages belong to; nil when private
	data    []byte
	init    []byte // per byte: 1 when written; nil when all are
	pages   []atomic.Pointer[shadowPage]
}

// touched names a page of a region.
type touched struct {
	r *region
	i uint64
}

// marks say what a launch does with the sectors of a page of global memory, a bit a byte: read,
// written, and read through the non-coherent path.
type marks struct {
	read, written, nc [1 << pageShift / 32]uint32
}

// NewMemory gives an empty memory.
func NewMemory() *Memory { return &Memory{} }

// Alloc gives size bytes that nobody has written, at an address divisible by 256.
func (m *Memory) Alloc(size int) (uint64, error) {
	if size <= 0 || size > 1<<40 {
		return 0, fmt.Errorf("ptx: allocation of %d bytes", size)
	}
	need := (size-1)>>slotShift + 2 // one empty slot behind
	at := len(m.slots)
	for i, run := 0, 0; i < len(m.slots); i++ {
		if run++; m.slots[i] != nil {
			run = 0
		}
		if run == need+1 { // and one before
			at = i - need + 1
			break
		}
	}
	if at+need > 1<<14 {
		return 0, fmt.Errorf("ptx: more than %d allocations", 1<<13)
	}
	for len(m.slots) < at+need {
		m.slots = append(m.slots, nil)
	}
	r := &region{mem: m, name: "global", base: firstGlobal + uint64(at)<<slotShift, data: newBytes(size), init: make([]byte, size)}
	for i := range need - 1 {
		m.slots[at+i] = r
	}
	return r.base, nil
}

// Free returns an allocation, given the address that Alloc gave.
func (m *Memory) Free(addr uint64) error {
	r := m.find(addr)
	if r == nil || r.base != addr {
		return fmt.Errorf("ptx: free of %#x, which is not the start of an allocation", addr)
	}
	for i := range m.slots {
		if m.slots[i] == r {
			m.slots[i] = nil
		}
	}
	return nil
}

// find gives the allocation whose address room holds addr.
func (m *Memory) find(addr uint64) *region {
	if i := addr - firstGlobal; addr >= firstGlobal && i>>slotShift < uint64(len(m.slots)) {
		return m.slots[i>>slotShift]
	}
	return nil
}

func (m *Memory) span(what string, addr uint64, n int) (*region, uint64, error) {
	r := m.find(addr)
	if r == nil || addr-r.base > uint64(len(r.data)) || uint64(n) > uint64(len(r.data))-(addr-r.base) {
		return nil, 0, fmt.Errorf("ptx: %s of %d bytes at %#x: not inside an allocation", what, n, addr)
	}
	return r, addr - r.base, nil
}

// Write copies b to addr.
func (m *Memory) Write(addr uint64, b []byte) error {
	r, off, err := m.span("write", addr, len(b))
	if err != nil {
		return err
	}
	copy(r.data[off:], b)
	r.markWritten(off, uint64(len(b)))
	return nil
}

// Read copies len(b) bytes from addr into b. Bytes nobody wrote read as zeros.
func (m *Memory) Read(addr uint64, b []byte) error {
	r, off, err := m.span("read", addr, len(b))
	if err != nil {
		return err
	}
	copy(b, r.data[off:])
	return nil
}

// Written counts the bytes of [addr, addr+n) that were written.
func (m *Memory) Written(addr uint64, n int) (int, error) {
	r, off, err := m.span("query", addr, n)
	if err != nil {
		return 0, err
	}
	if r.init == nil {
		return n, nil
	}
	count := 0
	for _, b := range r.init[off : off+uint64(n)] {
		count += int(b)
	}
	return count, nil
}

func (r *region) markWritten(off, n uint64) {
	if r.init == nil {
		return
	}
	if n == uint64(len(r.data)) {
		r.init = nil
		return
	}
	s := r.init[off : off+n]
	for i := range s {
		s[i] = 1
	}
}

// begin forgets what the last launch touched.
func (m *Memory) begin() {
	for _, t := range m.touched {
		slot := &t.r.pages[t.i]
		p := slot.Load()
		if slot.Store(nil); len(m.pages[p.shift]) < maxKept {
			m.pages[p.shift] = append(m.pages[p.shift], p)
		}
	}
	m.touched = m.touched[:0]
	for _, r := range m.slots {
		if r != nil && r.pages == nil {
			r.pages = newPages(len(r.data))
		}
	}
}

// maxKept bounds the pages kept for the next launch, 2 to 41 KiB each.
const maxKept = 16 << 10

// mark sets the bits of bytes [off, off+n) in a map of a page's sectors.
func mark(bitmap *[1 << pageShift / 32]uint32, off, n uint64) {
	for n > 0 {
		sector, first := off/32, off%32
		k := min(n, 32-first)
		set := uint32(uint64(1)<<k-1) << first
		if p := &bitmap[sector]; atomic.LoadUint32(p)&set != set {
			atomic.OrUint32(p, set)
		}
		off, n = off+k, n-k
	}
}

// marked gives the first of n bytes from off that has its bit; n when none has.
func marked(bitmap *[1 << pageShift / 32]uint32, off, n uint64) uint64 {
	for i := uint64(0); i < n; {
		sector, first := (off+i)/32, (off+i)%32
		k := min(n-i, 32-first)
		if m := atomic.LoadUint32(&bitmap[sector]) >> first & uint32(uint64(1)<<k-1); m != 0 {
			return i + uint64(bits.TrailingZeros32(m))
		}
		i += k
	}
	return n
}

// newBytes makes zeroed memory whose start is aligned for the host's atomics.
func newBytes(n int) []byte { return make([]byte, n, max(64, n+7)) }

func newPages(n int) []atomic.Pointer[shadowPage] {
	return make([]atomic.Pointer[shadowPage], (n+1<<pageShift-1)>>pageShift)
}
