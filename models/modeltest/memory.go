package modeltest

import (
	"bytes"
	"encoding/binary"
	"math"

	"github.com/openinfer-go/openinfer/kernels"
)

// copier is a device whose memory the host does not see.
type copier interface {
	CopyIn(dst kernels.Buffer, src []byte) error
	CopyOut(dst []byte, src kernels.Buffer) error
}

func (r *Runner) alloc(n int64) kernels.Buffer {
	b, err := r.device.Alloc(n)
	if err != nil {
		r.tb.Fatal(err)
	}
	r.tb.Cleanup(func() { r.device.Free(b) })
	return b
}

// poison fills b with what is a NaN in every type.
func (r *Runner) poison(b kernels.Buffer) {
	if r.memory == nil {
		for i := range b.Host {
			b.Host[i] = 0xff
		}
		return
	}
	if err := r.memory.CopyIn(b, bytes.Repeat([]byte{0xff}, int(b.Len))); err != nil {
		r.tb.Fatal(err)
	}
}

// read returns copies of the rows of t.
func (r *Runner) read(t kernels.Tensor) [][]float32 {
	host := t.Buf.Host
	if r.memory != nil {
		host = make([]byte, t.Buf.Len)
		if err := r.memory.CopyOut(host, t.Buf); err != nil {
			r.tb.Fatal(err)
		}
	}
	rows := make([][]float32, t.Rows)
	for i := range rows {
		rows[i] = make([]float32, t.Cols)
		for c := range rows[i] {
			rows[i][c] = math.Float32frombits(binary.NativeEndian.Uint32(host[(i*t.Stride+c)*4:]))
		}
	}
	return rows
}
