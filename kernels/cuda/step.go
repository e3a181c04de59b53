package cuda

import (
	"fmt"
	"math"
	"math/bits"

	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/kernels/cuda/driver"
)

// arrays is the room for what the host gives a step: one buffer on the card and its image in pinned memory. What is
// staged lies at the same address in every step that stages about the same sizes, and reaches the card in one copy when the
// queue is flushed.
type arrays struct {
	host []byte
	addr uint64
	used int // bytes staged in this step
	sent int // of these, on the card
}

func (a *arrays) open(drv driver.Driver, bytes int64) (err error) {
	if a.host, _, err = drv.AllocHost(bytes); err != nil {
		return err
	}
	a.addr, err = drv.Alloc(bytes)
	return err
}

// Begin implements kernels.Device.
func (d *Device) Begin() {
	d.err = nil
	d.arrays.used, d.arrays.sent = 0, 0
	d.chained = d.chained[:0]
	d.listed = d.listed[:0]
	d.queue.reset()
	d.ok(d.drv.SetContext(d.ctx))
}

// Upload implements kernels.Device.
func (d *Device) Upload(a kernels.Ints) kernels.Ints {
	a.Addr = d.stage(bytesOf(a.Host))
	return a
}

// stage copies b to where this step's launches find it; 0 after an error.
func (d *Device) stage(b []byte) uint64 {
	a := &d.arrays
	if len(b) > len(a.host)-a.used {
		d.ok(fmt.Errorf("cuda: the step's arrays take more than %d bytes", len(a.host)))
		return 0
	}
	at := a.used
	copy(a.host[at:], b)
	// Powers of two: block tables that grow move what lies behind them now and then only.
	a.used = min(at+1<<bits.Len(uint(max(len(b), 256)-1)), len(a.host))
	return a.addr + uint64(at)
}

// send copies what was staged since the last time to the card.
func (d *Device) send() error {
	a := &d.arrays
	if a.sent == a.used {
		return nil
	}
	from := a.sent
	a.sent = a.used
	return d.drv.CopyToDevice(a.addr+uint64(from), a.host[from:a.used], d.stream)
}

// End implements kernels.Device.
func (d *Device) End() error {
	d.flush()
	if err := d.drv.SyncStream(d.stream); d.err == nil && err != nil {
		d.err = fmt.Errorf("cuda: %w", err)
	}
	return d.err
}

// Arguments of a launch: one word a parameter.
func arg[T ~int | ~int32](v T) uint64 { return uint64(uint32(int32(v))) }
func argF(v float32) uint64           { return uint64(math.Float32bits(v)) }
func argT(t kernels.Tensor) uint64    { return t.Buf.Addr }

// launch queues entry name of file's PTX over grid blocks of block threads, after what is listed. op names the operator in
// errors. After the step's first error, and without a block, it does nothing.
func (d *Device) launch(op, file, name string, grid, block [3]int, sharedBytes int, args ...uint64) {
	d.settle()
	if d.err != nil || grid[0] == 0 {
		return
	}
	e, err := d.entry(file, name)
	if err == nil {
		err = e.room(d.drv, sharedBytes)
	}
	if err != nil {
		d.ok(fmt.Errorf("%s: %s<%v,%v>: %w", op, name, grid, block, err))
		return
	}
	d.queue.add(op, name, e.fn, grid, block, sharedBytes, args)
}

// fetch runs what is queued, waits for it and fills dst with what it left at src.
func (d *Device) fetch(dst []byte, src uint64) bool {
	d.flush()
	if d.err != nil {
		return false
	}
	err := d.drv.CopyToHost(dst, src, d.stream)
	if err == nil {
		err = d.drv.SyncStream(d.stream)
	}
	if err != nil {
		err = fmt.Errorf("cuda: %w", err)
	}
	return d.ok(err)
}
