package cuda

import (
	"fmt"
	"runtime"
	"unsafe"

	"github.com/openinfer-go/openinfer/kernels"
)

// Loading runs beside the step loop, on a stream of its own: what it copies is not to end up in a captured step.

// enter gives the calling OS thread the card's context until the returned function is called.
func (d *Device) enter() (leave func(), err error) {
	runtime.LockOSThread()
	if err := d.drv.SetContext(d.ctx); err != nil {
		runtime.UnlockOSThread()
		return nil, fmt.Errorf("cuda: %w", err)
	}
	return runtime.UnlockOSThread, nil
}

// Alloc implements kernels.Device.
func (d *Device) Alloc(bytes int64) (kernels.Buffer, error) {
	leave, err := d.enter()
	if err != nil {
		return kernels.Buffer{}, err
	}
	defer leave()
	addr, err := d.takeBytes(bytes)
	if err != nil {
		return kernels.Buffer{}, fmt.Errorf("cuda: %d bytes: %w", bytes, err)
	}
	if err = d.drv.Fill(addr, 0, bytes, d.loads); err == nil {
		err = d.drv.SyncStream(d.loads)
	}
	if err != nil {
		d.giveBytes(addr)
		return kernels.Buffer{}, fmt.Errorf("cuda: %d bytes: %w", bytes, err)
	}
	return kernels.Buffer{Addr: addr, Len: bytes}, nil
}

// Free implements kernels.Device.
func (d *Device) Free(b kernels.Buffer) {
	if b.Addr == 0 {
		return
	}
	leave, err := d.enter()
	if err != nil {
		return // the context is gone, and its memory with it
	}
	defer leave()
	d.giveBytes(b.Addr)
}

// takeBytes takes memory of the arena, or where there is none of the driver. It is called with the context.
func (d *Device) takeBytes(bytes int64) (uint64, error) {
	if d.arena != nil {
		return d.arena.take(bytes)
	}
	return d.drv.Alloc(bytes)
}

func (d *Device) giveBytes(addr uint64) {
	if d.arena != nil {
		d.arena.give(addr)
		return
	}
	_ = d.drv.Free(addr) // it fails only when the context is lost, and the memory with it
}

// takeArena takes what is free on the card but for what the driver needs itself.
func (d *Device) takeArena() error {
	free, total, err := d.drv.MemInfo()
	if err != nil {
		return err
	}
	bytes := (free - driverBytes) &^ (2<<20 - 1) // in the driver's pages
	if bytes <= 0 {
		return fmt.Errorf("%d bytes are free of %d, and the driver needs %d itself", free, total, driverBytes)
	}
	base, err := d.drv.Alloc(bytes)
	if err != nil {
		return fmt.Errorf("%d bytes, of %d free and %d in all: %w", bytes, free, total, err)
	}
	d.arena = newArena(base, bytes)
	return nil
}

// driverBytes is left to the driver: code of modules that are loaded when they are first used, their threads' local
// memory, and graphs. A graph that finds no room is launched as its launches.
const driverBytes = 256 << 20

// CopyIn fills dst, which has the length of src.
func (d *Device) CopyIn(dst kernels.Buffer, src []byte) error {
	leave, err := d.enter()
	if err != nil {
		return err
	}
	defer leave()
	if err := d.drv.CopyToDevice(dst.Addr, src, d.loads); err != nil {
		return fmt.Errorf("cuda: %w", err)
	}
	return d.drv.SyncStream(d.loads)
}

// CopyOut fills dst with src, of the same length.
func (d *Device) CopyOut(dst []byte, src kernels.Buffer) error {
	leave, err := d.enter()
	if err != nil {
		return err
	}
	defer leave()
	if err := d.drv.CopyToHost(dst, src.Addr, d.loads); err != nil {
		return fmt.Errorf("cuda: %w", err)
	}
	return d.drv.SyncStream(d.loads)
}

// LoadVector implements kernels.Device.
func (d *Device) LoadVector(v []float32) (kernels.Tensor, error) {
	b, err := d.Alloc(int64(len(v)) * 4)
	if err != nil {
		return kernels.Tensor{}, err
	}
	if err := d.CopyIn(b, bytesOf(v)); err != nil {
		d.Free(b)
		return kernels.Tensor{}, err
	}
	return kernels.Tensor{Buf: b, DType: kernels.F32, Rows: 1, Cols: len(v), Stride: len(v)}, nil
}

// bytesOf is the memory of v.
func bytesOf[T any](v []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), len(v)*int(unsafe.Sizeof(*new(T))))
}
