// Package ggufwrite writes GGUF files: for tests and for benchmarks that need a model of a given shape. The
// product reads GGUF and never writes it.
//
// It owns the file's form and plain encoders of the block types: round to nearest, without
// the search for better scales that real quantisers do.
//
// Invariant: the bytes written depend on what the File holds alone, in the order it was added.
package ggufwrite

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"math"
)

// Align is the alignment of tensors, general.alignment's default.
const Align = 32

// File is what a GGUF file holds.
type File struct {
	pairs   []byte
	count   uint64
	tensors []Tensor
}

// Tensor is one tensor. Shape is outermost first, as elsewhere in this repository; the file has
// it the other way round.
type Tensor struct {
	Name  string
	Type  Type
	Shape []int
	// Write writes Type.Bytes(product of Shape) bytes.
	Write func(w io.Writer) error
}

// Set adds a key-value pair; v is a bool, string, sized integer or float, or a slice of one of these.
func (f *File) Set(key string, v any) {
	f.pairs = appendString(f.pairs, key)
	kind, raw := encode(v)
	f.pairs = binary.LittleEndian.AppendUint32(f.pairs, kind)
	f.pairs = append(f.pairs, raw...)
	f.count++
}

// Add adds a tensor.
func (f *File) Add(t Tensor) { f.tensors = append(f.tensors, t) }

func appendString(b []byte, s string) []byte {
	return append(binary.LittleEndian.AppendUint64(b, uint64(len(s))), s...)
}

// encode returns GGUF's number of a type and the bytes of a value.
func encode(v any) (kind uint32, raw []byte) {
	le := binary.LittleEndian
	switch v := v.(type) {
	case uint8:
		return 0, []byte{v}
	case int8:
		return 1, []byte{byte(v)}
	case uint16:
		return 2, le.AppendUint16(nil, v)
	case int16:
		return 3, le.AppendUint16(nil, uint16(v))
	case uint32:
		return 4, le.AppendUint32(nil, v)
	case int32:
		return 5, le.AppendUint32(nil, uint32(v))
	case float32:
		return 6, le.AppendUint32(nil, math.Float32bits(v))
	case bool:
		if v {
			return 7, []byte{1}
		}
		return 7, []byte{0}
	case string:
		return 8, appendString(nil, v)
	case uint64:
		return 10, le.AppendUint64(nil, v)
	case int64:
		return 11, le.AppendUint64(nil, uint64(v))
	case float64:
		return 12, le.AppendUint64(nil, math.Float64bits(v))
	case []string:
		return array(v)
	case []uint32:
		return array(v)
	case []int32:
		return array(v)
	case []float32:
		return array(v)
	case []bool:
		return array(v)
	case [][]string:
		return array(v)
	}
	panic(fmt.Sprintf("ggufwrite: value of type %T", v))
}

func array[T any](list []T) (kind uint32, raw []byte) {
	var zero T
	elem, _ := encode(zero)
	raw = binary.LittleEndian.AppendUint32(nil, elem)
	raw = binary.LittleEndian.AppendUint64(raw, uint64(len(list)))
	for _, v := range list {
		_, b := encode(v)
		raw = append(raw, b...)
	}
	return 9, raw
}

// WriteTo writes the file, of version 3.
func (f *File) WriteTo(out io.Writer) (int64, error) {
	w := &counter{w: bufio.NewWriterSize(out, 1<<20)}
	le := binary.LittleEndian
	head := append([]byte("GGUF"), 3, 0, 0, 0)
	head = le.AppendUint64(head, uint64(len(f.tensors)))
	head = le.AppendUint64(head, f.count)
	head = append(head, f.pairs...)
	offset := int64(0)
	for _, t := range f.tensors {
		head = appendString(head, t.Name)
		head = le.AppendUint32(head, uint32(len(t.Shape)))
		for i := len(t.Shape) - 1; i >= 0; i-- {
			head = le.AppendUint64(head, uint64(t.Shape[i]))
		}
		head = le.AppendUint32(head, uint32(t.Type))
		head = le.AppendUint64(head, uint64(offset))
		offset += aligned(t.bytes())
	}
	if _, err := w.Write(head); err != nil {
		return w.n, err
	}
	for _, t := range f.tensors {
		if err := w.pad(aligned(w.n) - w.n); err != nil {
			return w.n, err
		}
		start := w.n
		if err := t.Write(w); err != nil {
			return w.n, err
		}
		if w.n-start != t.bytes() {
			return w.n, fmt.Errorf("ggufwrite: %s: %d bytes written, %d needed", t.Name, w.n-start, t.bytes())
		}
	}
	if err := w.pad(aligned(w.n) - w.n); err != nil {
		return w.n, err
	}
	return w.n, w.w.Flush()
}

func (t Tensor) bytes() int64 {
	n := 1
	for _, d := range t.Shape {
		n *= d
	}
	return t.Type.Bytes(n)
}

func aligned(n int64) int64 { return (n + Align - 1) / Align * Align }

type counter struct {
	w *bufio.Writer
	n int64
}

func (c *counter) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	c.n += int64(n)
	return n, err
}

func (c *counter) pad(n int64) error {
	_, err := c.Write(make([]byte, n))
	return err
}
