package kernels

import (
	"fmt"
	"unsafe"
)

// DType is the type of the elements of a Tensor or of a KV cache.
type DType uint8

// Element types. Codes of quantised weights are not tensors: see Matrix.
const (
	F32 DType = iota
	F16
	BF16
	F8E4M3 // the OCP format: 4 bits of exponent, 3 of mantissa, at most 448, NaN but no infinities
	I8     // whole numbers -127 to 127
)

// Bytes returns the size of one element.
func (t DType) Bytes() int {
	switch t {
	case F32:
		return 4
	case F8E4M3, I8:
		return 1
	}
	return 2
}

func (t DType) String() string {
	switch t {
	case F32:
		return "float32"
	case F16:
		return "fp16"
	case BF16:
		return "bf16"
	case F8E4M3:
		return "fp8-e4m3"
	case I8:
		return "int8"
	}
	return fmt.Sprintf("DType(%d)", uint8(t))
}

// Buffer is a piece of a device's memory. Host devices (ref, cpu) fill Host; a card fills Addr, and
// tests may set Host beside it to what they copy in and out.
// Memory of host devices lies outside Go's heap, starts at a multiple of 64 bytes and is
// addressed by C directly.
type Buffer struct {
	Host []byte
	Addr uint64
	Len  int64
}

// Slice returns bytes [off, off+n) of b. It panics when they reach beyond b.
func (b Buffer) Slice(off, n int64) Buffer {
	if off < 0 || n < 0 || off+n > b.Len {
		panic(fmt.Sprintf("kernels: slice [%d, %d) of a buffer of %d bytes", off, off+n, b.Len))
	}
	s := Buffer{Len: n}
	if b.Host != nil {
		s.Host = b.Host[off : off+n : off+n]
	}
	if b.Addr != 0 {
		s.Addr = b.Addr + uint64(off)
	}
	return s
}

// Tensor is a row-major matrix [Rows, Cols] in a Buffer, Stride elements from row to row. A
// vector has one row. The zero Tensor means "none" where an operator allows it.
type Tensor struct {
	Buf        Buffer
	DType      DType
	Rows, Cols int
	Stride     int
}

// None reports whether t is the zero Tensor.
func (t Tensor) None() bool { return t.Cols == 0 }

// RowRange returns rows [from, to) of t.
func (t Tensor) RowRange(from, to int) Tensor {
	if from < 0 || to < from || to > t.Rows {
		panic(fmt.Sprintf("kernels: rows [%d, %d) of %v", from, to, t))
	}
	size := int64(t.Stride * t.DType.Bytes())
	r := t
	r.Rows = to - from
	if t.Buf.Len > 0 {
		n := int64(r.Rows) * size
		r.Buf = t.Buf.Slice(int64(from)*size, min(n, t.Buf.Len-int64(from)*size))
	}
	return r
}

// ColRange returns columns [from, to) of t.
func (t Tensor) ColRange(from, to int) Tensor {
	if from < 0 || to < from || to > t.Cols {
		panic(fmt.Sprintf("kernels: columns [%d, %d) of %v", from, to, t))
	}
	r := t
	r.Cols = to - from
	size := int64(t.DType.Bytes())
	if t.Buf.Len > 0 {
		off := int64(from) * size
		r.Buf = t.Buf.Slice(off, t.Buf.Len-off)
	}
	return r
}

// Float32 returns the elements of a float32 tensor on a host device, from its first element to
// the end of its buffer.
func (t Tensor) Float32() []float32 {
	if t.DType != F32 {
		panic("kernels: Float32 of a tensor of " + t.DType.String())
	}
	if len(t.Buf.Host) == 0 {
		return nil
	}
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(t.Buf.Host))), len(t.Buf.Host)/4)
}

// Row returns row i of a float32 tensor on a host device.
func (t Tensor) Row(i int) []float32 {
	return t.Float32()[i*t.Stride : i*t.Stride+t.Cols]
}

func (t Tensor) String() string {
	return fmt.Sprintf("%v[%d,%d]", t.DType, t.Rows, t.Cols)
}

// Carver cuts one scratch buffer into tensors, each starting at a multiple of 64 bytes. Bytes
// counts what was cut, also with a zero Buffer, so that the same code that carves a step's
// scratch says how much it needs.
type Carver struct {
	Buf   Buffer
	Bytes int64
	dry   bool
}

// NewCarver cuts from buf; a zero buf only counts.
func NewCarver(buf Buffer) *Carver { return &Carver{Buf: buf, dry: buf.Len == 0} }

// Tensor cuts a dense tensor [rows, cols].
func (c *Carver) Tensor(t DType, rows, cols int) Tensor {
	n := int64(rows) * int64(cols) * int64(t.Bytes())
	off := c.Bytes
	c.Bytes += (n + 63) &^ 63
	if c.dry {
		return Tensor{DType: t, Rows: rows, Cols: cols, Stride: cols}
	}
	return Tensor{Buf: c.Buf.Slice(off, n), DType: t, Rows: rows, Cols: cols, Stride: cols}
}

// Ints is an array of a step (token ids, positions, block tables). Host always holds it, for
// checks and launch sizes; a card has a copy at Addr after Device.Upload.
type Ints struct {
	Host []int32
	Addr uint64
}

// Range returns entries [from, to) of a.
func (a Ints) Range(from, to int) Ints {
	r := Ints{Host: a.Host[from:to]}
	if a.Addr != 0 {
		r.Addr = a.Addr + uint64(from)*4
	}
	return r
}
