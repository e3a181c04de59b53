package sim

import (
	"errors"
	"fmt"
	"sync"

	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/kernels/check"
)

// ErrOutOfMemory: the card has less than what was asked for. The error around it has the numbers; load
// fewer or smaller models, or take a larger card.
var ErrOutOfMemory = errors.New("out of device memory")

// memory counts what is taken of a card's.
type memory struct {
	mu    sync.Mutex
	limit int64 // 0: none
	used  int64
	next  uint64 // address; none is given twice
}

const firstAddress = 1 << 40

// take reserves bytes and gives them an address.
func (m *memory) take(what string, bytes int64) (uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if bytes < 0 {
		return 0, fmt.Errorf("sim: %s: %d bytes", what, bytes)
	}
	if m.limit > 0 && bytes > m.limit-m.used {
		return 0, fmt.Errorf("sim: %s: %w: %.3f GB asked for, %.3f of %.3f GB free", what, ErrOutOfMemory,
			float64(bytes)/1e9, float64(m.limit-m.used)/1e9, float64(m.limit)/1e9)
	}
	m.used += bytes
	addr := m.next + firstAddress
	m.next += uint64(bytes+255) &^ 255
	return addr, nil
}

func (m *memory) give(bytes int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.used -= bytes; m.used < 0 {
		panic(fmt.Sprintf("sim: %d bytes were given back that nobody had", -m.used))
	}
}

// Alloc implements kernels.Device.
func (m *Meter) Alloc(bytes int64) (kernels.Buffer, error) {
	addr, err := m.memory.take("alloc", bytes)
	if err != nil {
		return kernels.Buffer{}, err
	}
	return kernels.Buffer{Addr: addr, Len: bytes}, nil
}

// Free implements kernels.Device.
func (m *Meter) Free(b kernels.Buffer) { m.memory.give(b.Len) }

// packed is the Impl of a weight: it has no values.
type packed struct{}

// Load implements kernels.Device. Nothing is read. What is only looked up stays in host memory.
func (m *Meter) Load(parts ...kernels.Matrix) (*kernels.Weight, error) {
	if err := check.Matrices(parts); err != nil {
		return nil, err
	}
	w := &kernels.Weight{Name: parts[0].Name, K: parts[0].K, Impl: packed{}}
	for _, p := range parts {
		w.N += p.N
		if !p.LookedUp {
			w.Bytes += PackedBytes(p)
		}
	}
	_, err := m.memory.take("load "+w.Name, w.Bytes)
	if err != nil {
		return nil, err
	}
	return w, nil
}

// Unload implements kernels.Device.
func (m *Meter) Unload(w *kernels.Weight) {
	m.memory.give(w.Bytes)
	w.Impl = nil
}

// LoadVector implements kernels.Device.
func (m *Meter) LoadVector(v []float32) (kernels.Tensor, error) {
	b, err := m.Alloc(int64(len(v)) * 4)
	return kernels.Tensor{Buf: b, Rows: 1, Cols: len(v), Stride: len(v)}, err
}

// PackedBytes is what a matrix takes on a card: codes, a scale of 16 bits for each group, and where they
// are there a minimum of 16 bits or a zero point of a code's bits beside it; floats as they are stored.
func PackedBytes(m kernels.Matrix) int64 {
	n, k := int64(m.N), int64(m.K)
	bytes := int64(len(m.Bias)) * 2
	if m.Bits == 0 {
		return bytes + n*k*int64(m.Type.Bytes())
	}
	groups := n * int64(m.Groups())
	bytes += n*k*int64(m.Bits)/8 + groups*2
	switch {
	case m.HasMin:
		bytes += groups * 2
	case !m.Symmetric:
		bytes += groups * int64(m.Bits) / 8
	}
	if m.Perm != nil {
		bytes += k * 4
	}
	return bytes
}
