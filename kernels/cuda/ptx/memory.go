package ptx

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/bits"
	"runtime"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/openinfer-go/openinfer/internal/hostmem"
)

// Memory is a card's memory. Each allocation has address room of its own, 4 GiB or more, so that an
// access outside it cannot fall into another one. Allocate, copy and launch from one goroutine. What is never touched
// costs the host next to nothing: 41 bytes for each 4 KiB.
type Memory struct {
	slots []*region // of 4 GiB each; nil where nothing is allocated

	mu      sync.Mutex
	touched []touch                     // pages with state of the last launch
	pages   [cellMost + 1][]*shadowPage // of earlier launches, by shift
	marks   []*marks                    // of earlier launches, all zero
}

// touch is a page of a region.
type touch struct {
	r    *region
	page uint64
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
	pageShift    = 12
	shadowShift  = 10 // of what a shadowPage is about
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
	// whole has a byte for each page: 1 when all of it is written, whatever init says. Launches only read it. Only for
	// global memory.
	whole []byte
	pages []atomic.Pointer[shadowPage]
	marks []atomic.Pointer[marks] // only for global memory
	// unmap gives back data and init where they lie outside Go's heap, should the region be forgotten.
	unmap runtime.Cleanup
}

// marks say what a launch did with a page: per 32-byte sector one bit a byte.
type marks struct {
	read, written, nc sectorMap // nc: read through the non-coherent path
	// blocks has, by sector, the blocks of a sample that touched it; nil when all of a grid run.
	blocks atomic.Pointer[[1 << pageShift / 32]uint64]
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
	r, err := m.newRegion(size)
	if err != nil {
		return 0, err
	}
	r.base = firstGlobal + uint64(at)<<slotShift
	for i := range need - 1 {
		m.slots[at+i] = r
	}
	return r.base, nil
}

// mappedBytes is the size from which memory lies outside Go's heap: the system gives it out as it is touched.
const mappedBytes = 1 << 20

func (m *Memory) newRegion(size int) (*region, error) {
	pages := (size + 1<<pageShift - 1) >> pageShift
	r := &region{mem: m, name: "global", whole: make([]byte, pages), pages: newPages(size), marks: make([]atomic.Pointer[marks], pages)}
	if size < mappedBytes {
		r.data, r.init = newBytes(size), make([]byte, size)
		return r, nil
	}
	both, err := hostmem.Alloc(2 * int64(pages) << pageShift)
	if err != nil {
		return nil, fmt.Errorf("ptx: %w", err)
	}
	half := len(both) / 2
	r.data, r.init = both[:size:half], both[half:half+size]
	r.unmap = runtime.AddCleanup(r, hostmem.Free, both)
	return r, nil
}

// AllocHost gives zeroed host memory that kernels reach at addr, all of it written.
func (m *Memory) AllocHost(size int) (host []byte, addr uint64, err error) {
	if addr, err = m.Alloc(size); err != nil {
		return nil, 0, err
	}
	r := m.find(addr)
	r.markWritten(0, uint64(size))
	return r.data, addr, nil
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
	if len(r.data) >= mappedBytes {
		r.unmap.Stop()
		hostmem.Free(unsafe.Slice(unsafe.SliceData(r.data), 2*cap(r.data)))
	}
	r.data, r.init = nil, nil
	return nil
}

// FreeAll returns every allocation.
func (m *Memory) FreeAll() {
	for i := range m.slots {
		if r := m.slots[i]; r != nil {
			_ = m.Free(r.base) // it is one
		}
	}
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

// Copy copies n bytes of src, which then count as written; the two may not overlap.
func (m *Memory) Copy(dst, src uint64, n int) error {
	from, at, err := m.span("copy", src, n)
	if err != nil {
		return err
	}
	to, off, err := m.span("copy", dst, n)
	if err != nil {
		return err
	}
	copy(to.data[off:], from.data[at:at+uint64(n)])
	to.markWritten(off, uint64(n))
	return nil
}

// Fill writes n bytes of one value. Zeros over much memory give it back to the host.
func (m *Memory) Fill(addr uint64, value byte, n int) error {
	r, off, err := m.span("fill", addr, n)
	if err != nil {
		return err
	}
	b := r.data[off : off+uint64(n)]
	switch {
	case value == 0 && len(r.data) >= mappedBytes:
		hostmem.Zero(b)
	case value == 0:
		clear(b)
	default:
		for i := range b {
			b[i] = value
		}
	}
	r.markWritten(off, uint64(n))
	return nil
}

// Written counts the bytes of [addr, addr+n) that were written.
func (m *Memory) Written(addr uint64, n int) (int, error) {
	r, off, err := m.span("query", addr, n)
	if err != nil {
		return 0, err
	}
	count := 0
	for i := off; i < off+uint64(n); i++ {
		if r.init == nil || r.whole[i>>pageShift] == 1 || r.init[i] == 1 {
			count++
		}
	}
	return count, nil
}

// markWritten notes what the host wrote.
func (r *region) markWritten(off, n uint64) {
	if r.init == nil {
		return
	}
	if n == uint64(len(r.data)) {
		r.init = nil
		return
	}
	for end := off + n; off < end; {
		page := off >> pageShift
		next := min(end, (page+1)<<pageShift)
		if off == page<<pageShift && next-off == 1<<pageShift {
			r.whole[page] = 1
		} else {
			r.setInit(off, next-off)
		}
		off = next
	}
}

// unwritten gives the first of n bytes at off that nobody wrote; false: there is none.
func (r *region) unwritten(off, n uint64) (at uint64, any bool) {
	if r.init == nil {
		return 0, false
	}
	for end := off + n; off < end; {
		next := min(end, (off>>pageShift+1)<<pageShift)
		if r.whole == nil || r.whole[off>>pageShift] == 0 {
			if i := bytes.IndexByte(r.init[off:next], 0); i >= 0 {
				return off + uint64(i), true
			}
		}
		off = next
	}
	return 0, false
}

// setInit notes that n bytes at off, of one page, were written, and reports whether one of them was not before.
func (r *region) setInit(off, n uint64) (fresh bool) {
	if r.init == nil || r.whole != nil && r.whole[off>>pageShift] == 1 {
		return false
	}
	const ones = 0x0101010101010101
	s := r.init[off : off+n]
	for ; len(s) >= 8; s = s[8:] {
		fresh = fresh || binary.LittleEndian.Uint64(s) != ones
		binary.LittleEndian.PutUint64(s, ones)
	}
	for i := range s {
		fresh = fresh || s[i] == 0
		s[i] = 1
	}
	return fresh
}

// begin clears what the last launch left about who touched what.
func (m *Memory) begin() {
	for _, t := range m.touched {
		k := t.r.marks[t.page].Swap(nil)
		k.clear()
		if len(m.marks) < maxKept {
			m.marks = append(m.marks, k)
		}
		t.r.dropPages(t.page<<pageShift, 1<<pageShift)
	}
	m.touched = m.touched[:0]
}

func (k *marks) clear() {
	k.read, k.written, k.nc = sectorMap{}, sectorMap{}, sectorMap{}
	k.blocks.Store(nil)
}

// touchedBy notes that a block of a sample touched bytes [off, off+n) of the page.
func (k *marks) touchedBy(block, off, n uint64) {
	of := k.blocks.Load()
	if of == nil {
		k.blocks.CompareAndSwap(nil, new([1 << pageShift / 32]uint64))
		of = k.blocks.Load()
	}
	off &= 1<<pageShift - 1
	for i := off / 32; i <= (off+n-1)/32; i++ {
		if atomic.LoadUint64(&of[i])&block == 0 {
			atomic.OrUint64(&of[i], block)
		}
	}
}

// marksAt gives the marks of the page of offset off.
func (r *region) marksAt(off uint64) *marks {
	slot := &r.marks[off>>pageShift]
	if k := slot.Load(); k != nil {
		return k
	}
	m := r.mem
	m.mu.Lock()
	defer m.mu.Unlock()
	k := slot.Load()
	if k == nil {
		if n := len(m.marks); n > 0 {
			k, m.marks = m.marks[n-1], m.marks[:n-1]
		} else {
			k = new(marks)
		}
		m.touched = append(m.touched, touch{r, off >> pageShift})
		slot.Store(k)
	}
	return k
}

// maxKept bounds the pages kept for the next launch, 2 to 41 KiB each.
const maxKept = 16 << 10

// dropPages forgets who accessed the n bytes at off.
func (r *region) dropPages(off, n uint64) {
	pages := r.pages[off>>shadowShift : min((off+n)>>shadowShift, uint64(len(r.pages)))]
	for i := range pages {
		p := pages[i].Swap(nil)
		if p != nil && len(r.mem.pages[p.shift]) < maxKept {
			r.mem.pages[p.shift] = append(r.mem.pages[p.shift], p)
		}
	}
}

// A sectorMap has a bit for each byte of a page.
type sectorMap [1 << pageShift / 32]uint32

// set sets the bits of bytes [off, off+n), which lie in one page.
func (m *sectorMap) set(off, n uint64) {
	off &= 1<<pageShift - 1
	for n > 0 {
		sector, first := off/32, off%32
		k := min(n, 32-first)
		set := uint32(uint64(1)<<k-1) << first
		if p := &m[sector]; atomic.LoadUint32(p)&set != set {
			atomic.OrUint32(p, set)
		}
		off, n = off+k, n-k
	}
}

// first gives the first of n bytes from off, in one page, that has its bit; n when none has.
func (m *sectorMap) first(off, n uint64) uint64 {
	off &= 1<<pageShift - 1
	for i := uint64(0); i < n; {
		sector, first := (off+i)/32, (off+i)%32
		k := min(n-i, 32-first)
		if set := atomic.LoadUint32(&m[sector]) >> first & uint32(uint64(1)<<k-1); set != 0 {
			return i + uint64(bits.TrailingZeros32(set))
		}
		i += k
	}
	return n
}

// newBytes makes zeroed memory whose start is aligned for the host's atomics.
func newBytes(n int) []byte { return make([]byte, n, max(64, n+7)) }

func newPages(n int) []atomic.Pointer[shadowPage] {
	return make([]atomic.Pointer[shadowPage], (n+1<<shadowShift-1)>>shadowShift)
}
