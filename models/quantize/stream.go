package quantize

import (
	"errors"
	"fmt"

	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/kernels/quant"
)

// stream is a device that loads a weight when it is multiplied, and gives it back when the next one is: a
// model's forward pass over many tokens at once needs the memory of one weight. The device under it has its memory
// on the host.
type stream struct {
	kernels.Device
	// before, when not nil, is asked once for each part of a weight before it is first multiplied, with the
	// inputs that it will be multiplied with; what it returns is loaded instead. It may run steps of its own
	// on the device under this one.
	before func(m kernels.Matrix, x kernels.Tensor, shared *moments) (kernels.Matrix, error)

	err    error // the first of the step
	loaded *kernels.Weight
	of     *lazy
	probe  kernels.Tensor
	parts  []kernels.Matrix // all that were loaded
}

// lazy is a weight that is in its file.
type lazy struct {
	parts []kernels.Matrix
	asked bool
}

func newStream(d kernels.Device) (*stream, error) {
	probe, err := d.LoadVector(make([]float32, 16))
	if err != nil {
		return nil, err
	}
	if probe.Buf.Host == nil {
		d.Free(probe.Buf)
		return nil, fmt.Errorf("device %s: its memory cannot be read; quantise on the cpu device", d.Info().Name)
	}
	return &stream{Device: d, probe: probe}, nil
}

// release gives all memory back.
func (s *stream) release() {
	s.drop()
	s.Device.Free(s.probe.Buf)
}

func (s *stream) drop() {
	if s.loaded != nil {
		s.Device.Unload(s.loaded)
	}
	s.loaded, s.of = nil, nil
}

// Load implements kernels.Device.
func (s *stream) Load(parts ...kernels.Matrix) (*kernels.Weight, error) {
	if len(parts) == 0 {
		return nil, errors.New("load of no matrix")
	}
	w := &kernels.Weight{Name: parts[0].Name, K: parts[0].K, Impl: &lazy{parts: parts}}
	for _, m := range parts {
		if m.K != w.K {
			return nil, fmt.Errorf("%s has %d inputs, stacked %s has %d", m.Name, m.K, parts[0].Name, w.K)
		}
		w.N += m.N
	}
	s.parts = append(s.parts, parts...)
	return w, nil
}

// Unload implements kernels.Device.
func (s *stream) Unload(*kernels.Weight) {}

// Begin implements kernels.Device.
func (s *stream) Begin() {
	s.err = nil
	s.Device.Begin()
}

// End implements kernels.Device.
func (s *stream) End() error {
	err := s.Device.End()
	if s.err != nil {
		return s.err
	}
	return err
}

// flush waits until all that was issued is done, and says whether the step is still good.
func (s *stream) flush() bool {
	if s.err != nil {
		return false
	}
	if !waited(s.Device, s.probe) {
		s.err = s.Device.End()
		if s.err == nil {
			s.err = errors.New("the device lost a step")
		}
		return false
	}
	return true
}

// ready is the weight on the device, with x as the next inputs.
func (s *stream) ready(w *kernels.Weight, x kernels.Tensor) *kernels.Weight {
	l, ok := w.Impl.(*lazy)
	if !ok {
		panic("quantize: a weight of another device")
	}
	if s.of == l {
		return s.loaded
	}
	if !s.flush() {
		return nil
	}
	s.drop()
	parts := l.parts
	if s.before != nil && !l.asked {
		l.asked = true
		shared := &moments{s: s, x: x}
		defer shared.free()
		for i, m := range l.parts {
			var err error
			if l.parts[i], err = s.before(m, x, shared); err != nil {
				s.err = err
				return nil
			}
		}
		if !s.flush() {
			return nil
		}
	}
	if s.loaded, s.err = s.Device.Load(parts...); s.err != nil {
		return nil
	}
	s.of = l
	return s.loaded
}

// Linear implements kernels.Device.
func (s *stream) Linear(dst, x kernels.Tensor, w *kernels.Weight) {
	if w := s.ready(w, x); w != nil {
		s.Device.Linear(dst, x, w)
	}
}

// LinearAdd implements kernels.Device.
func (s *stream) LinearAdd(dst, x kernels.Tensor, w *kernels.Weight) {
	if w := s.ready(w, x); w != nil {
		s.Device.LinearAdd(dst, x, w)
	}
}

// EmbedRows implements kernels.Device. It reads the rows that are asked for from the file.
func (s *stream) EmbedRows(dst kernels.Tensor, table *kernels.Weight, ids kernels.Ints, scale float32) {
	l := table.Impl.(*lazy)
	if len(l.parts) != 1 || dst.Cols != table.K || dst.Rows != len(ids.Host) {
		s.err = fmt.Errorf("rows of %s to %v", table.Name, dst)
	}
	if !s.flush() {
		return
	}
	m := l.parts[0]
	var r kernels.Rows
	for t, id := range ids.Host {
		if id < 0 || int(id) >= m.N {
			s.err = fmt.Errorf("row %d of %s, which has %d", id, m.Name, m.N)
			return
		}
		if s.err = m.Read(&r, int(id), 1); s.err != nil {
			return
		}
		row := dst.Row(t)
		decode(row, m, &r, 0)
		for i := range row {
			row[i] *= scale
		}
	}
}

// decode writes the weights of row i of r to w, inputs in the checkpoint's own order.
func decode(w []float32, m kernels.Matrix, r *kernels.Rows, i int) {
	k := m.K
	if m.Bits == 0 {
		copy(w, r.Float[i*k:(i+1)*k])
		return
	}
	codes, groups := r.Codes[i*k:(i+1)*k], m.Groups()
	for g := range groups {
		scale := r.Scale[i*groups+g]
		for j, c := range codes[g*m.Group : (g+1)*m.Group] {
			at := g*m.Group + j
			if m.Perm != nil {
				at = int(m.Perm[at])
			}
			if m.HasMin {
				w[at] = float32(scale*float32(c)) + r.Min[i*groups+g]
			} else {
				w[at] = scale * float32(int(c)-int(r.Zero[i*groups+g]))
			}
		}
	}
}

// moments are the second moments X^T X of the inputs of a step, computed by the device when they are first
// asked for.
type moments struct {
	s    *stream
	x    kernels.Tensor
	buf  kernels.Buffer
	h    []float32
	gptq *quant.GPTQ
}

func (m *moments) free() {
	if m.h != nil {
		m.s.Device.Free(m.buf)
		m.h, m.gptq = nil, nil
	}
}

// factored is GPTQ over get.
func (m *moments) factored() (*quant.GPTQ, error) {
	if m.gptq != nil {
		return m.gptq, nil
	}
	h, err := m.get()
	if err == nil {
		m.gptq, err = quant.NewGPTQ(h, m.x.Cols, damping)
	}
	return m.gptq, err
}

// damping is what GPTQ's authors add to the diagonal of the inputs' moments.
const damping = 0.01

// get is X^T X, [K,K], of all the step's tokens, divided by their number.
func (m *moments) get() ([]float32, error) {
	if m.h != nil {
		return m.h, nil
	}
	d, k := m.s.Device, m.x.Cols
	const tokens = 512 // of one product
	var err error
	if m.buf, err = d.Alloc(int64(k) * int64(k) * 4); err != nil {
		return nil, err
	}
	turnedBuf, err := d.Alloc(int64(k) * tokens * 4)
	if err != nil {
		d.Free(m.buf)
		return nil, err
	}
	defer d.Free(turnedBuf)
	sum := kernels.Tensor{Buf: m.buf, Rows: k, Cols: k, Stride: k}
	m.h = sum.Float32()[:k*k]
	for from := 0; from < m.x.Rows; from += tokens {
		n := min(tokens, m.x.Rows-from)
		x := kernels.Tensor{Buf: turnedBuf, Rows: k, Cols: n, Stride: n}
		turned := x.Float32()[:k*n]
		for t := range n {
			for i, v := range m.x.Row(from + t) {
				turned[i*n+t] = v
			}
		}
		inputs := kernels.Matrix{Name: "inputs", N: k, K: n}
		shape := inputs
		inputs.Read = func(dst *kernels.Rows, row, rows int) error {
			dst.Reset(shape, rows)
			copy(dst.Float, turned[row*n:(row+rows)*n])
			return nil
		}
		w, err := d.Load(inputs)
		if err != nil {
			m.free()
			return nil, err
		}
		d.LinearAdd(sum, x, w)
		ok := m.s.flush()
		d.Unload(w)
		if !ok {
			m.free()
			return nil, m.s.err
		}
	}
	scale := 1 / float32(m.x.Rows)
	for i := range m.h {
		m.h[i] *= scale
	}
	return m.h, nil
}
