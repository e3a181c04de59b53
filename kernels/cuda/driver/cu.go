//go:build cu

package driver

// #include <cuda.h>
import "C"

import (
	"reflect"
	"unsafe"

	"gorgonia.org/cu"
)

// binding is the driver through gorgonia.org/cu, which is linked with libcuda: a program built like this ends at once where
// there is no card. What cu lacks is added here by cgo: cuDeviceGetPCIBusId, cuMemHostAlloc, cuMemHostGetDevicePointer,
// cuFuncSetAttribute, cuStreamBeginCapture, cuStreamEndCapture, cuGraphDestroy, cuGraphInstantiateWithFlags, cuGraphLaunch,
// cuGraphExecDestroy and cuGetErrorString.
type binding struct{}

var _ Driver = binding{}

// Open gives the driver that the program is linked with.
func Open() (Driver, error) { return binding{}, nil }

// cu's handles are structures of one pointer: these make numbers of them and back.

func number[T any](v T) uintptr { return *(*uintptr)(unsafe.Pointer(&v)) }

func handle[T any, H ~uintptr](h H) T { return *(*T)(unsafe.Pointer(&h)) }

var (
	_ [unsafe.Sizeof(uintptr(0)) - unsafe.Sizeof(cu.CUContext{})]byte
	_ [unsafe.Sizeof(uintptr(0)) - unsafe.Sizeof(cu.Module{})]byte
	_ [unsafe.Sizeof(uintptr(0)) - unsafe.Sizeof(cu.Function{})]byte
	_ [unsafe.Sizeof(uintptr(0)) - unsafe.Sizeof(cu.Stream{})]byte
	_ [unsafe.Sizeof(uintptr(0)) - unsafe.Sizeof(cu.Event{})]byte
)

// failed turns an error of cu, a number of a type of its own, into ours.
func failed(call string, err error) error {
	if err == nil {
		return nil
	}
	code := -1
	if v := reflect.ValueOf(err); v.CanInt() {
		code = int(v.Int())
	}
	return &Error{Call: call, Code: code, Text: resultText(code)}
}

// result turns what a call of ours returned into an error.
func result(call string, r C.CUresult) error {
	if r == 0 {
		return nil
	}
	return &Error{Call: call, Code: int(r), Text: resultText(int(r))}
}

func resultText(code int) string {
	var s *C.char
	if C.cuGetErrorString(C.CUresult(code), &s) != 0 || s == nil {
		return "unknown error"
	}
	return C.GoString(s)
}

// Name implements Driver.
func (binding) Name() string { return "cu" }

// Version implements Driver.
func (binding) Version() (int, error) {
	var v C.int
	err := result("cuDriverGetVersion", C.cuDriverGetVersion(&v)) // cu.Version keeps the reason of a failure to itself
	return int(v), err
}

// DeviceCount implements Driver.
func (binding) DeviceCount() (int, error) {
	n, err := cu.NumDevices()
	return n, failed("cuDeviceGetCount", err)
}

// device is the CUdevice of an ordinal.
func (binding) device(c Device) (cu.Device, error) {
	d, err := cu.GetDevice(int(c))
	return d, failed("cuDeviceGet", err)
}

// DeviceName implements Driver.
func (b binding) DeviceName(c Device) (string, error) {
	d, err := b.device(c)
	if err != nil {
		return "", err
	}
	s, err := d.Name()
	return s, failed("cuDeviceGetName", err)
}

// DeviceBytes implements Driver.
func (b binding) DeviceBytes(c Device) (int64, error) {
	d, err := b.device(c)
	if err != nil {
		return 0, err
	}
	n, err := d.TotalMem()
	return n, failed("cuDeviceTotalMem_v2", err)
}

// DeviceAttribute implements Driver.
func (b binding) DeviceAttribute(c Device, a Attribute) (int, error) {
	d, err := b.device(c)
	if err != nil {
		return 0, err
	}
	v, err := d.Attribute(cu.DeviceAttribute(a))
	return v, failed("cuDeviceGetAttribute", err)
}

// DeviceBusID implements Driver.
func (b binding) DeviceBusID(c Device) (string, error) {
	d, err := b.device(c)
	if err != nil {
		return "", err
	}
	var s [32]C.char
	err = result("cuDeviceGetPCIBusId", C.cuDeviceGetPCIBusId(&s[0], C.int(len(s)), C.CUdevice(d)))
	return C.GoString(&s[0]), err
}

// OpenContext implements Driver.
func (b binding) OpenContext(c Device) (Context, error) {
	d, err := b.device(c)
	if err != nil {
		return 0, err
	}
	ctx, err := d.MakeContext(0)
	return Context(number(ctx)), failed("cuCtxCreate_v2", err)
}

// SetContext implements Driver.
func (binding) SetContext(c Context) error {
	return failed("cuCtxSetCurrent", cu.SetCurrentContext(handle[cu.CUContext](c)))
}

// CloseContext implements Driver.
func (binding) CloseContext(c Context) error {
	ctx := handle[cu.CUContext](c)
	return failed("cuCtxDestroy_v2", ctx.Destroy())
}

// MemInfo implements Driver.
func (binding) MemInfo() (free, total int64, err error) {
	free, total, err = cu.MemInfo()
	return free, total, failed("cuMemGetInfo_v2", err)
}

// Alloc implements Driver.
func (binding) Alloc(bytes int64) (uint64, error) {
	p, err := cu.MemAlloc(bytes)
	return uint64(p), failed("cuMemAlloc_v2", err)
}

// Free implements Driver.
func (binding) Free(addr uint64) error {
	return failed("cuMemFree_v2", cu.MemFree(cu.DevicePtr(addr)))
}

// AllocHost implements Driver.
func (b binding) AllocHost(bytes int64) (host []byte, addr uint64, err error) {
	var p unsafe.Pointer
	flags := C.uint(C.CU_MEMHOSTALLOC_PORTABLE | C.CU_MEMHOSTALLOC_DEVICEMAP)
	if err := result("cuMemHostAlloc", C.cuMemHostAlloc(&p, C.size_t(bytes), flags)); err != nil {
		return nil, 0, err
	}
	var d C.CUdeviceptr
	if err := result("cuMemHostGetDevicePointer_v2", C.cuMemHostGetDevicePointer(&d, p, 0)); err != nil {
		_ = cu.MemFreeHost(p) // the error before says more
		return nil, 0, err
	}
	host = unsafe.Slice((*byte)(p), bytes)
	clear(host)
	return host, uint64(d), nil
}

// FreeHost implements Driver.
func (binding) FreeHost(host []byte) error {
	return failed("cuMemFreeHost", cu.MemFreeHost(unsafe.Pointer(unsafe.SliceData(host))))
}

// CopyToDevice implements Driver.
func (binding) CopyToDevice(dst uint64, src []byte, s Stream) error {
	return failed("cuMemcpyHtoDAsync_v2", cu.MemcpyHtoDAsync(cu.DevicePtr(dst), unsafe.Pointer(unsafe.SliceData(src)), int64(len(src)), handle[cu.Stream](s)))
}

// CopyToHost implements Driver.
func (binding) CopyToHost(dst []byte, src uint64, s Stream) error {
	return failed("cuMemcpyDtoHAsync_v2", cu.MemcpyDtoHAsync(unsafe.Pointer(unsafe.SliceData(dst)), cu.DevicePtr(src), int64(len(dst)), handle[cu.Stream](s)))
}

// CopyOnDevice implements Driver.
func (binding) CopyOnDevice(dst, src uint64, bytes int64, s Stream) error {
	return failed("cuMemcpyDtoDAsync_v2", cu.MemcpyDtoDAsync(cu.DevicePtr(dst), cu.DevicePtr(src), bytes, handle[cu.Stream](s)))
}

// Fill implements Driver.
func (binding) Fill(dst uint64, value byte, bytes int64, s Stream) error {
	return failed("cuMemsetD8Async", cu.MemsetD8Async(cu.DevicePtr(dst), value, bytes, handle[cu.Stream](s)))
}

// LoadModule implements Driver. The driver's compiler says what is wrong with the PTX.
func (binding) LoadModule(ptx []byte) (Module, error) {
	log := &cu.JITErrorLogBuffer{Buffer: make([]byte, 8<<10)}
	m, err := cu.LoadDataEx(string(ptx), log)
	err = failed("cuModuleLoadDataEx", err)
	if e, ok := err.(*Error); ok && upTo(log.Buffer) != "" {
		e.Text += ": " + upTo(log.Buffer)
	}
	return Module(number(m)), err
}

// UnloadModule implements Driver.
func (binding) UnloadModule(m Module) error {
	return failed("cuModuleUnload", handle[cu.Module](m).Unload())
}

// Function implements Driver.
func (binding) Function(m Module, name string) (Function, error) {
	f, err := handle[cu.Module](m).Function(name)
	return Function(number(f)), failed("cuModuleGetFunction", err)
}

// FunctionAttribute implements Driver.
func (binding) FunctionAttribute(f Function, a FunctionAttribute) (int, error) {
	v, err := handle[cu.Function](f).Attribute(cu.FunctionAttribute(a))
	return v, failed("cuFuncGetAttribute", err)
}

// SetFunctionAttribute implements Driver.
func (binding) SetFunctionAttribute(f Function, a FunctionAttribute, value int) error {
	return result("cuFuncSetAttribute", C.cuFuncSetAttribute(handle[C.CUfunction](f), C.CUfunction_attribute(a), C.int(value)))
}

// NewStream implements Driver.
func (binding) NewStream() (Stream, error) {
	s, err := cu.MakeStream(cu.NonBlocking)
	return Stream(number(s)), failed("cuStreamCreate", err)
}

// CloseStream implements Driver.
func (binding) CloseStream(s Stream) error {
	st := handle[cu.Stream](s)
	return failed("cuStreamDestroy_v2", st.Destroy())
}

// SyncStream implements Driver.
func (binding) SyncStream(s Stream) error {
	return failed("cuStreamSynchronize", handle[cu.Stream](s).Synchronize())
}

// NewEvent implements Driver.
func (binding) NewEvent() (Event, error) {
	e, err := cu.MakeEvent(0)
	return Event(number(e)), failed("cuEventCreate", err)
}

// CloseEvent implements Driver.
func (binding) CloseEvent(e Event) error {
	ev := handle[cu.Event](e)
	return failed("cuEventDestroy_v2", cu.DestroyEvent(&ev))
}

// RecordEvent implements Driver.
func (binding) RecordEvent(e Event, s Stream) error {
	return failed("cuEventRecord", handle[cu.Event](e).Record(handle[cu.Stream](s)))
}

// SyncEvent implements Driver.
func (binding) SyncEvent(e Event) error {
	return failed("cuEventSynchronize", handle[cu.Event](e).Synchronize())
}

// WaitEvent implements Driver.
func (binding) WaitEvent(s Stream, e Event) error {
	return failed("cuStreamWaitEvent", handle[cu.Stream](s).Wait(handle[cu.Event](e), 0))
}

// ElapsedMS implements Driver.
func (binding) ElapsedMS(from, to Event) (float64, error) {
	ms, err := handle[cu.Event](from).Elapsed(handle[cu.Event](to))
	return ms, failed("cuEventElapsedTime", err)
}

// Launch implements Driver.
func (binding) Launch(f Function, grid, block [3]int, sharedBytes int, s Stream, args []uint64) error {
	at := make([]unsafe.Pointer, len(args))
	for i := range args {
		at[i] = unsafe.Pointer(&args[i])
	}
	return failed("cuLaunchKernel", handle[cu.Function](f).Launch(grid[0], grid[1], grid[2], block[0], block[1], block[2], sharedBytes, handle[cu.Stream](s), at))
}

// BeginCapture implements Driver.
func (binding) BeginCapture(s Stream) error {
	return result("cuStreamBeginCapture_v2", C.cuStreamBeginCapture(handle[C.CUstream](s), C.CU_STREAM_CAPTURE_MODE_RELAXED))
}

// EndCapture implements Driver.
func (binding) EndCapture(s Stream) (Graph, error) {
	var g C.CUgraph
	err := result("cuStreamEndCapture", C.cuStreamEndCapture(handle[C.CUstream](s), &g))
	return Graph(number(g)), err
}

// CloseGraph implements Driver.
func (binding) CloseGraph(g Graph) error {
	return result("cuGraphDestroy", C.cuGraphDestroy(handle[C.CUgraph](g)))
}

// Instantiate implements Driver.
func (binding) Instantiate(g Graph) (GraphExec, error) {
	var e C.CUgraphExec
	err := result("cuGraphInstantiateWithFlags", C.cuGraphInstantiateWithFlags(&e, handle[C.CUgraph](g), 0))
	return GraphExec(number(e)), err
}

// LaunchGraph implements Driver.
func (binding) LaunchGraph(e GraphExec, s Stream) error {
	return result("cuGraphLaunch", C.cuGraphLaunch(handle[C.CUgraphExec](e), handle[C.CUstream](s)))
}

// CloseGraphExec implements Driver.
func (binding) CloseGraphExec(e GraphExec) error {
	return result("cuGraphExecDestroy", C.cuGraphExecDestroy(handle[C.CUgraphExec](e)))
}
