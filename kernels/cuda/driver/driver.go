// Package driver is the small part of the CUDA driver API that kernels/cuda needs, behind an interface with several
// implementations: the machine's libcuda, and the PTX interpreter for machines without a card.
//
// It owns handles, sizes and error texts, and knows no kernel and no tensor. Names follow cuda.h, where each call is
// documented (CUDA Driver API, 11.8).
//
// Invariant: a call that the driver refuses returns an *Error with the call's name; nothing ends the process.
package driver

import (
	"errors"
	"fmt"
)

// ErrNoLibrary: the machine has no NVIDIA driver, or it is of no use to this program. There is no card then.
var ErrNoLibrary = errors.New("no NVIDIA driver")

// Handles of the driver's objects. Zero is none (for a Stream: the default stream).
type (
	Device    int32
	Context   uintptr
	Module    uintptr
	Function  uintptr
	Stream    uintptr
	Event     uintptr
	Graph     uintptr
	GraphExec uintptr
)

// Attribute of a device, numbered as CUdevice_attribute.
type Attribute int32

// Attributes of devices.
const (
	WarpSize                  Attribute = 10
	ClockRate                 Attribute = 13 // kHz
	Multiprocessors           Attribute = 16
	MemoryClockRate           Attribute = 36 // kHz
	MemoryBusWidth            Attribute = 37 // bits
	L2CacheBytes              Attribute = 38
	ComputeCapabilityMajor    Attribute = 75
	ComputeCapabilityMinor    Attribute = 76
	SharedBytesPerMP          Attribute = 81
	RegistersPerMP            Attribute = 82
	MaxSharedBytesPerBlockOpt Attribute = 97 // with SetFunctionAttribute
)

// FunctionAttribute is numbered as CUfunction_attribute.
type FunctionAttribute int32

// Attributes of functions.
const (
	MaxThreadsPerBlock    FunctionAttribute = 0
	StaticSharedBytes     FunctionAttribute = 1
	LocalBytes            FunctionAttribute = 3
	Registers             FunctionAttribute = 4
	MaxDynamicSharedBytes FunctionAttribute = 8
)

// Error is what a driver answers instead of a result.
type Error struct {
	Call string // cuMemAlloc
	Code int    // CUresult
	Text string // of the code, or of the linker for a module that does not load
}

func (e *Error) Error() string { return fmt.Sprintf("%s: %s (%d)", e.Call, e.Text, e.Code) }

// Results that callers tell apart, numbered as CUresult.
const (
	CodeOutOfMemory        = 2
	CodeNoDevice           = 100
	CodeCaptureUnsupported = 900 // not while a stream captures
)

// Driver is a CUDA driver. A stream does not wait for the default stream, nor that for it. After OpenContext the calling OS thread has the context; another thread takes it with
// SetContext. Copies and Fill are ordered on their stream and may run later than the call: host memory that is not
// from AllocHost has been read, or filled, when the call returns.
type Driver interface {
	Name() string // "purego", "cu", "ptx"

	// Version is 1000*major + 10*minor of the newest CUDA that the driver knows.
	Version() (int, error)
	DeviceCount() (int, error)
	DeviceName(Device) (string, error)
	DeviceBytes(Device) (int64, error)
	DeviceAttribute(Device, Attribute) (int, error)
	// DeviceBusID is where the device is on the PCI bus: NVML counts devices in another order.
	DeviceBusID(Device) (string, error)

	OpenContext(Device) (Context, error)
	SetContext(Context) error
	CloseContext(Context) error

	// MemInfo is of the context's device.
	MemInfo() (free, total int64, err error)
	Alloc(bytes int64) (uint64, error)
	Free(addr uint64) error
	// AllocHost takes pinned host memory, which kernels reach at addr.
	AllocHost(bytes int64) (host []byte, addr uint64, err error)
	FreeHost(host []byte) error

	CopyToDevice(dst uint64, src []byte, s Stream) error
	CopyToHost(dst []byte, src uint64, s Stream) error
	CopyOnDevice(dst, src uint64, bytes int64, s Stream) error
	Fill(dst uint64, value byte, bytes int64, s Stream) error

	LoadModule(ptx []byte) (Module, error)
	UnloadModule(Module) error
	Function(m Module, name string) (Function, error)
	FunctionAttribute(Function, FunctionAttribute) (int, error)
	SetFunctionAttribute(f Function, a FunctionAttribute, value int) error

	NewStream() (Stream, error)
	CloseStream(Stream) error
	SyncStream(Stream) error
	NewEvent() (Event, error)
	CloseEvent(Event) error
	RecordEvent(Event, Stream) error
	SyncEvent(Event) error
	WaitEvent(Stream, Event) error
	// ElapsedMS is the time between two events that have been reached, in milliseconds.
	ElapsedMS(from, to Event) (float64, error)

	// Launch runs a grid of blocks. An argument is the value of one parameter of at most 8 bytes in the low bytes of a
	// word; args is not kept.
	Launch(f Function, grid, block [3]int, sharedBytes int, s Stream, args []uint64) error

	// BeginCapture records the launches, copies and fills that follow on the stream instead of running them, until
	// EndCapture; other streams go on. Host memory that is copied has to be from AllocHost: it is read, or filled,
	// when the graph runs. A captured stream cannot be waited for.
	BeginCapture(Stream) error
	EndCapture(Stream) (Graph, error)
	CloseGraph(Graph) error
	Instantiate(Graph) (GraphExec, error)
	LaunchGraph(GraphExec, Stream) error
	CloseGraphExec(GraphExec) error
}
