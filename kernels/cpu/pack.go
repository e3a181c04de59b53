//go:build cgo

package cpu

// #include "cpu.h"
import "C"

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sync/errgroup"

	"github.com/openinfer-go/openinfer/kernels"
)

// weight is the device's side of a kernels.Weight: parts as C reads them, in mapped memory.
type weight struct {
	parts  *C.oi_part
	n      int
	panels int
	bytes  int64 // of all panels
	coded  bool  // has a part that wants int8 activations
	float  bool  // has a part of float weights
	memory []byte
	first  *C.char // the first panel
	perm   *C.int32_t
	runs   []*weight // of neighbouring parts with one order of inputs; nil: all have the same, perm
}

// plan is how one matrix will be packed.
type plan struct {
	kind    int
	stype   int
	ztype   int
	z0      float32
	mul     float32 // of scales as stored
	half    bool
	gblocks int
	header  int // bytes before a group's blocks
	blocks  int
	groups  int  // as stored
	decode  bool // codes become float weights
}

// errMisfit says that a matrix does not fit its plan, which was made from its first rows.
var errMisfit = errors.New("does not fit the plan")

const scaleMul = 1 << 14

// dtype is the C name of t.
func dtype(t kernels.DType) int {
	return [...]int{kernels.F32: C.OI_F32, kernels.F16: C.OI_F16, kernels.BF16: C.OI_BF16, kernels.F8E4M3: C.OI_F8E4M3, kernels.I8: C.OI_I8}[t]
}

// newPlan makes the smallest plan; narrow false makes the one that anything fits.
func (d *device) newPlan(m kernels.Matrix, narrow bool) (plan, error) {
	p := plan{blocks: (m.K + 31) / 32, mul: 1, gblocks: 1}
	if m.Bits == 0 {
		p.kind = C.OI_WF32 + dtype(m.Type)
		return p, nil
	}
	p.kind = C.OI_W4
	if m.Bits == 8 {
		p.kind = C.OI_W8
	}
	switch {
	case m.Group == m.K:
		p.gblocks = p.blocks
	case m.Group%32 == 0:
		p.gblocks = m.Group / 32
	case m.Group%16 == 0:
		p.half = true
	default:
		return plan{kind: C.OI_WF32, blocks: p.blocks, mul: 1, gblocks: 1, decode: true}, nil
	}
	p.stype = dtype(m.ScaleType)
	if p.stype == C.OI_F32 && !d.exact && narrow {
		p.stype, p.mul = C.OI_F16, scaleMul
	}
	size := 16
	if p.stype == C.OI_F32 {
		size = 32
	}
	p.header = size
	if m.HasMin {
		p.ztype = C.OI_ZMIN
		p.header += size
	} else {
		p.ztype = C.OI_ZGROUP
		if narrow {
			var r kernels.Rows
			r.Reset(m, 1)
			if err := m.Read(&r, 0, 1); err != nil {
				return p, err
			}
			if len(r.Zero) > 0 && same(r.Zero, r.Zero[0]) {
				p.ztype, p.z0 = C.OI_ZCONST, float32(r.Zero[0])
			}
		}
		if p.ztype == C.OI_ZGROUP {
			p.header += 8
		} else if m.Bits == 8 {
			p.z0 -= 128
		}
	}
	if p.half {
		p.header *= 2
	}
	return p, nil
}

func same(v []uint8, to uint8) bool {
	for _, x := range v {
		if x != to {
			return false
		}
	}
	return true
}

func (p plan) blockBytes() int {
	return [...]int{C.OI_W4: 128, C.OI_W8: 256, C.OI_WF32: 1024, C.OI_WF16: 512, C.OI_WBF16: 512}[p.kind]
}

func (p plan) panelBytes() int64 {
	groups := (p.blocks + p.gblocks - 1) / p.gblocks
	return int64(groups)*int64(p.header) + int64(p.blocks)*int64(p.blockBytes())
}

func loadable(m kernels.Matrix) error {
	switch {
	case m.N <= 0 || m.K <= 0 || m.N > 1<<28 || m.K > 1<<24:
		return fmt.Errorf("shape [%d,%d]", m.N, m.K)
	case m.Bits != 0 && m.Bits != 4 && m.Bits != 8:
		return fmt.Errorf("codes of %d bits: want 4 or 8", m.Bits)
	case m.Bits != 0 && (m.Group <= 0 || m.K%m.Group != 0):
		return fmt.Errorf("K %d is not a multiple of group %d", m.K, m.Group)
	case m.Bias != nil && len(m.Bias) != m.N:
		return fmt.Errorf("bias of %d values for %d outputs", len(m.Bias), m.N)
	case m.Read == nil:
		return errors.New("no reader")
	case m.Perm != nil && m.K > C.OI_SCRATCH_BYTES/4:
		return fmt.Errorf("an order of %d inputs: at most %d are supported", m.K, C.OI_SCRATCH_BYTES/4)
	}
	return m.CheckPerm()
}

// Load implements kernels.Device. It reads a megabyte of rows at a time and thread, and releases
// each part when it is packed.
func (d *device) Load(parts ...kernels.Matrix) (*kernels.Weight, error) {
	if len(parts) == 0 {
		return nil, errors.New("cpu: load of no matrix")
	}
	for _, m := range parts {
		if err := loadable(m); err != nil {
			return nil, fmt.Errorf("cpu: %s: %w", m.Name, err)
		}
		if m.K != parts[0].K {
			return nil, fmt.Errorf("cpu: %s has %d inputs, stacked %s has %d", m.Name, m.K, parts[0].Name, parts[0].K)
		}
	}
	d.packing.Lock()
	defer d.packing.Unlock()
	narrow := make([]bool, len(parts))
	for i := range narrow {
		narrow[i] = true
	}
	for {
		w, misfit, err := d.pack(parts, narrow)
		if err == nil {
			return w, nil
		}
		if !errors.Is(err, errMisfit) || !narrow[misfit] {
			return nil, fmt.Errorf("cpu: %s: %w", parts[misfit].Name, err)
		}
		narrow[misfit] = false
	}
}

// pack makes a weight of parts. On error it names the part.
func (d *device) pack(parts []kernels.Matrix, narrow []bool) (*kernels.Weight, int, error) {
	plans := make([]plan, len(parts))
	w := &weight{n: len(parts)}
	rows, head := 0, int64(unsafe.Sizeof(C.oi_part{}))*int64(len(parts))
	for i, m := range parts {
		p, err := d.newPlan(m, narrow[i])
		if err != nil {
			return nil, i, err
		}
		plans[i] = p
		panels := (m.N + 7) / 8
		w.panels += panels
		w.bytes += int64(panels) * p.panelBytes()
		w.coded = w.coded || p.kind < C.OI_WF32
		w.float = w.float || p.kind >= C.OI_WF32
		head += int64(len(m.Bias)+len(m.Perm)) * 4
		rows += m.N
	}
	head = (head + 63) &^ 63
	d.mu.Lock()
	mem, err := d.memory.alloc(head + w.bytes + 64)
	d.mu.Unlock()
	if err != nil {
		return nil, 0, fmt.Errorf("%d bytes for weights: %w", head+w.bytes, err)
	}
	drop := func(i int, err error) (*kernels.Weight, int, error) {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.memory.free(mem)
		return nil, i, err
	}
	w.memory = mem
	w.first = (*C.char)(unsafe.Pointer(&mem[head]))
	w.parts = (*C.oi_part)(unsafe.Pointer(&mem[0]))
	list := unsafe.Slice(w.parts, len(parts))
	bias := int64(unsafe.Sizeof(C.oi_part{})) * int64(len(parts))
	at, col := head, 0
	for i, m := range parts {
		p := plans[i]
		c := &list[i]
		panels := (m.N + 7) / 8
		*c = C.oi_part{
			data: (*C.uint8_t)(&mem[at]), panel_bytes: C.int64_t(p.panelBytes()), n: C.int32_t(m.N), col: C.int32_t(col),
			panels: C.int32_t(panels), kind: C.int32_t(p.kind), gblocks: C.int32_t(p.gblocks), stype: C.int32_t(p.stype),
			ztype: C.int32_t(p.ztype), z0: C.float(p.z0), post: C.float(1 / p.mul),
		}
		if p.half {
			c.half = 1
		}
		if m.Bias != nil {
			b := unsafe.Slice((*float32)(unsafe.Pointer(&mem[bias])), m.N)
			copy(b, m.Bias)
			c.bias = (*C.float)(unsafe.Pointer(&b[0]))
			bias += int64(m.N) * 4
		}
		if m.Perm != nil {
			order := unsafe.Slice((*int32)(unsafe.Pointer(&mem[bias])), m.K)
			copy(order, m.Perm)
			c.perm = (*C.int32_t)(unsafe.Pointer(&order[0]))
			bias += int64(m.K) * 4
		}
		w.take(list, i, parts)
		n := int64(panels) * p.panelBytes()
		if err := d.packMatrix(m, p, mem[at:at+n]); err != nil {
			return drop(i, err)
		}
		if m.Release != nil {
			m.Release()
		}
		at += n
		col += m.N
	}
	if len(w.runs) == 1 {
		w.perm, w.runs = w.runs[0].perm, nil
	}
	return &kernels.Weight{Name: parts[0].Name, N: rows, K: parts[0].K, Bytes: int64(len(mem)), Impl: w}, 0, nil
}

// take adds part i of list to the last run, or to a new one when its inputs are stored in another order.
func (w *weight) take(list []C.oi_part, i int, parts []kernels.Matrix) {
	c := &list[i]
	if i == 0 || !slices.Equal(parts[i].Perm, parts[i-1].Perm) {
		w.runs = append(w.runs, &weight{parts: c, first: (*C.char)(unsafe.Pointer(c.data)), perm: c.perm})
	}
	r := w.runs[len(w.runs)-1]
	r.n++
	r.panels += int(c.panels)
	r.bytes += int64(c.panels) * int64(c.panel_bytes)
	r.coded = r.coded || c.kind < C.OI_WF32
	r.float = r.float || c.kind >= C.OI_WF32
}

// packMatrix fills dst, in parallel.
func (d *device) packMatrix(m kernels.Matrix, p plan, dst []byte) error {
	const maxValues = 1 << 20
	step := max(8, maxValues/m.K/8*8)
	var next atomic.Int64
	var g errgroup.Group
	for range d.threads {
		g.Go(func() error {
			r := rowsPool.Get().(*kernels.Rows)
			defer rowsPool.Put(r)
			for {
				row := int(next.Add(int64(step))) - step
				if row >= m.N {
					return nil
				}
				n := min(step, m.N-row)
				r.Reset(m, n)
				if err := m.Read(r, row, n); err != nil {
					return err
				}
				if err := packRows(m, p, dst, row, n, r); err != nil {
					return err
				}
			}
		})
	}
	return g.Wait()
}

var rowsPool = sync.Pool{New: func() any { return new(kernels.Rows) }}

// packRows packs rows [row, row+n); row is a multiple of 8.
func packRows(m kernels.Matrix, p plan, dst []byte, row, n int, r *kernels.Rows) error {
	size := p.panelBytes()
	values := r.Float
	if p.decode {
		values = decode(m, n, r)
	}
	for i := 0; i < n; i += 8 {
		rows := min(8, n-i)
		panel := dst[int64((row+i)/8)*size:][:size]
		at := (*C.uint8_t)(&panel[0])
		if p.kind >= C.OI_WF32 {
			C.oi_pack_float(at, (*C.float)(&values[i*m.K]), C.int(rows), C.int(m.K), C.int(p.blocks*32), C.int(p.kind))
			continue
		}
		bits := 4
		if p.kind == C.OI_W8 {
			bits = 8
		}
		C.oi_pack(at, (*C.uint8_t)(&r.Codes[i*m.K]), C.int(rows), C.int(m.K), C.int(p.blocks*32), C.int(p.gblocks), C.int(p.header), C.int(bits))
		if !packHeaders(m, p, panel, i, rows, r) {
			return errMisfit
		}
	}
	return nil
}

// packHeaders writes a panel's scales and zero points or minima.
func packHeaders(m kernels.Matrix, p plan, panel []byte, i, rows int, r *kernels.Rows) bool {
	groups, halves := m.Groups(), 1
	scale, zero, low := r.Scale[i*groups:], r.Zero, r.Min
	if m.HasMin {
		low = low[i*groups:]
	} else {
		zero = zero[i*groups:]
	}
	if p.half && m.Group != 16 {
		scale, zero, low, groups = spread(scale, rows, m), spread(zero, rows, m), spread(low, rows, m), m.K/16
	}
	if p.half {
		halves = 2
	}
	size := 16
	if p.stype == C.OI_F32 {
		size = 32
	}
	step := C.int64_t(p.header + p.gblocks*p.blockBytes())
	for h := range min(halves, groups) {
		n, first, by := C.int(groups), C.int(h), C.int(halves)
		if C.oi_pack_scales((*C.uint8_t)(&panel[h*size]), (*C.float)(&scale[0]), C.int(rows), n, first, by, step, C.int(p.stype), C.float(p.mul)) == 0 {
			return false
		}
		at := halves * size
		switch p.ztype {
		case C.OI_ZMIN:
			if C.oi_pack_scales((*C.uint8_t)(&panel[at+h*size]), (*C.float)(&low[0]), C.int(rows), n, first, by, step, C.int(p.stype), C.float(p.mul)) == 0 {
				return false
			}
		case C.OI_ZGROUP:
			C.oi_pack_zeros((*C.uint8_t)(&panel[at+h*8]), (*C.uint8_t)(&zero[0]), C.int(rows), n, first, by, step)
		default:
			z := uint8(p.z0)
			if p.kind == C.OI_W8 {
				z = uint8(int(p.z0) + 128)
			}
			if !same(zero[:rows*groups], z) {
				return false
			}
		}
	}
	return true
}

// spread repeats the values of groups of 16n inputs for each 16.
func spread[T any](v []T, rows int, m kernels.Matrix) []T {
	if v == nil {
		return nil
	}
	out := make([]T, 0, rows*m.K/16)
	for r := range rows {
		for k := 0; k < m.K; k += 16 {
			out = append(out, v[r*m.Groups()+k/m.Group])
		}
	}
	return out
}

// decode computes the weights that codes stand for.
func decode(m kernels.Matrix, n int, r *kernels.Rows) []float32 {
	out := make([]float32, n*m.K)
	for i := range out {
		g := i/m.K*m.Groups() + i%m.K/m.Group
		if m.HasMin {
			out[i] = r.Scale[g]*float32(r.Codes[i]) + r.Min[g]
		} else {
			out[i] = r.Scale[g] * float32(int(r.Codes[i])-int(r.Zero[g]))
		}
	}
	return out
}

// Unload implements kernels.Device.
func (d *device) Unload(w *kernels.Weight) {
	p := w.Impl.(*weight)
	C.oi_quiesce(d.pool)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.memory.free(p.memory)
	w.Impl = nil
}
