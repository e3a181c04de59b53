//go:build cgo

package cpu

import (
	"errors"
	"unsafe"

	"golang.org/x/sys/unix"
)

// memory hands out zeroed pieces of mapped memory outside Go's heap. Large pieces have a
// mapping of their own; small ones share slabs, which go when their last piece does. A slab's
// memory is never handed out twice, so every piece is zero.
type memory struct {
	pieces map[*byte]*slab
	open   *slab
}

type slab struct {
	bytes  []byte
	used   int64
	pieces int
}

const (
	slabBytes = 32 << 20
	hugePage  = 2 << 20
)

var errSize = errors.New("not a size")

func (m *memory) alloc(n int64) ([]byte, error) {
	if n < 0 || n > 1<<46 {
		return nil, errSize
	}
	if m.pieces == nil {
		m.pieces = map[*byte]*slab{}
	}
	size := (n + 63) &^ 63
	if size == 0 {
		size = 64
	}
	s := m.open
	if size > slabBytes/4 {
		b, err := mapBytes(size)
		if err != nil {
			return nil, err
		}
		s = &slab{bytes: b}
	} else if s == nil || s.used+size > slabBytes {
		b, err := mapBytes(slabBytes)
		if err != nil {
			return nil, err
		}
		s = &slab{bytes: b}
		if old := m.open; old != nil && old.pieces == 0 {
			unix.Munmap(old.bytes)
		}
		m.open = s
	}
	p := s.bytes[s.used : s.used+n : s.used+size]
	s.used += size
	s.pieces++
	m.pieces[unsafe.SliceData(p)] = s
	return p, nil
}

// free takes back what alloc returned. Freeing anything else is a broken invariant.
func (m *memory) free(p []byte) {
	key := unsafe.SliceData(p)
	s := m.pieces[key]
	if s == nil {
		panic("cpu: free of memory that was not allocated or is freed already")
	}
	delete(m.pieces, key)
	if s.pieces--; s.pieces == 0 && s != m.open {
		unix.Munmap(s.bytes)
	}
}

func (m *memory) close() error {
	maps := map[*slab]bool{}
	for _, s := range m.pieces {
		maps[s] = true
	}
	if m.open != nil {
		maps[m.open] = true
	}
	var errs []error
	for s := range maps {
		errs = append(errs, unix.Munmap(s.bytes))
	}
	*m = memory{}
	return errors.Join(errs...)
}

// mapBytes maps zeroed memory, in huge OS pages where there are any.
func mapBytes(n int64) ([]byte, error) {
	b, err := unix.Mmap(-1, 0, int(n), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return nil, err
	}
	if n >= hugePage {
		hugePages(b)
	}
	return b, nil
}

// scratch is memory that grows. What it had before stays mapped until close, because commands
// already recorded, and threads that lag behind, may still use it.
type scratch struct {
	bytes   []byte
	outworn [][]byte
}

func (s *scratch) grow(n int64) (unsafe.Pointer, error) {
	if n > int64(len(s.bytes)) {
		b, err := mapBytes(max(n, 2*int64(len(s.bytes)), hugePage))
		if err != nil {
			return nil, err
		}
		if s.bytes != nil {
			s.outworn = append(s.outworn, s.bytes)
		}
		s.bytes = b
	}
	return unsafe.Pointer(unsafe.SliceData(s.bytes)), nil
}

func (s *scratch) close() {
	unmap(append(s.outworn, s.bytes)...)
	*s = scratch{}
}

func unmap(pieces ...[]byte) {
	for _, b := range pieces {
		if b != nil {
			unix.Munmap(b)
		}
	}
}
