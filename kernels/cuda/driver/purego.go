//go:build linux && (amd64 || arm64)

package driver

import (
	"fmt"
	"sync"
	"unsafe"
)

// cuda is libcuda, opened while the program runs. Functions that later versions of it changed have a suffix in the
// library; cuda.h hides that from C.
type cuda struct {
	lib *library

	init, errorString, version, deviceCount, deviceGet, deviceName, deviceBytes, deviceAttribute, deviceBusID,
	openContext, setContext, closeContext, memInfo, alloc, free, allocHost, hostAddress, freeHost, copyToDevice,
	copyToHost, copyOnDevice, fill, loadModule, unloadModule, function, functionAttribute, setFunctionAttribute,
	newStream, closeStream, syncStream, newEvent, closeEvent, recordEvent, syncEvent, elapsed, waitEvent, launch,
	beginCapture, endCapture, closeGraph, instantiate, launchGraph, closeGraphExec symbol
}

var _ Driver = (*cuda)(nil)

// Flags and options of cuda.h.
const (
	hostAllocPortable  = 1 // pinned for every context
	hostAllocDeviceMap = 2 // and reached by kernels
	streamNonBlocking  = 1 // does not wait for the default stream, nor that for it
	captureModeRelaxed = 2 // other threads, and other streams, go on as ever
	jitErrorLog        = 5
	jitErrorLogBytes   = 6
)

// OpenLibrary opens the driver in the shared library at path and initialises it. Its errors are ErrNoLibrary and those of
// cuInit. A function that the library lacks is an error of the calls that need it.
func OpenLibrary(path string) (Driver, error) {
	lib, err := openLibrary(path)
	if err != nil {
		return nil, err
	}
	d := &cuda{lib: lib}
	for _, s := range []struct {
		to   *symbol
		name string
	}{
		{&d.init, "cuInit"},
		{&d.errorString, "cuGetErrorString"},
		{&d.version, "cuDriverGetVersion"},
		{&d.deviceCount, "cuDeviceGetCount"},
		{&d.deviceGet, "cuDeviceGet"},
		{&d.deviceName, "cuDeviceGetName"},
		{&d.deviceBytes, "cuDeviceTotalMem_v2"},
		{&d.deviceAttribute, "cuDeviceGetAttribute"},
		{&d.deviceBusID, "cuDeviceGetPCIBusId"},
		{&d.openContext, "cuCtxCreate_v2"},
		{&d.setContext, "cuCtxSetCurrent"},
		{&d.closeContext, "cuCtxDestroy_v2"},
		{&d.memInfo, "cuMemGetInfo_v2"},
		{&d.alloc, "cuMemAlloc_v2"},
		{&d.free, "cuMemFree_v2"},
		{&d.allocHost, "cuMemHostAlloc"},
		{&d.hostAddress, "cuMemHostGetDevicePointer_v2"},
		{&d.freeHost, "cuMemFreeHost"},
		{&d.copyToDevice, "cuMemcpyHtoDAsync_v2"},
		{&d.copyToHost, "cuMemcpyDtoHAsync_v2"},
		{&d.copyOnDevice, "cuMemcpyDtoDAsync_v2"},
		{&d.fill, "cuMemsetD8Async"},
		{&d.loadModule, "cuModuleLoadDataEx"},
		{&d.unloadModule, "cuModuleUnload"},
		{&d.function, "cuModuleGetFunction"},
		{&d.functionAttribute, "cuFuncGetAttribute"},
		{&d.setFunctionAttribute, "cuFuncSetAttribute"},
		{&d.newStream, "cuStreamCreate"},
		{&d.closeStream, "cuStreamDestroy_v2"},
		{&d.syncStream, "cuStreamSynchronize"},
		{&d.newEvent, "cuEventCreate"},
		{&d.closeEvent, "cuEventDestroy_v2"},
		{&d.recordEvent, "cuEventRecord"},
		{&d.syncEvent, "cuEventSynchronize"},
		{&d.elapsed, "cuEventElapsedTime"},
		{&d.waitEvent, "cuStreamWaitEvent"},
		{&d.launch, "cuLaunchKernel"},
		{&d.beginCapture, "cuStreamBeginCapture_v2"},
		{&d.endCapture, "cuStreamEndCapture"},
		{&d.closeGraph, "cuGraphDestroy"},
		{&d.instantiate, "cuGraphInstantiateWithFlags"},
		{&d.launchGraph, "cuGraphLaunch"},
		{&d.closeGraphExec, "cuGraphExecDestroy"},
	} {
		*s.to = lib.find(s.name)
	}
	return d, d.call(&d.init, 0)
}

// call runs a function of the library and turns its CUresult into an error.
//
//go:uintptrescapes
func (d *cuda) call(s *symbol, args ...uintptr) error {
	if s.at == 0 {
		return d.lib.lacking(s)
	}
	if code := s.call(args...); code != 0 {
		return &Error{Call: s.name, Code: code, Text: d.errorText(code)}
	}
	return nil
}

func (d *cuda) errorText(code int) string {
	var p unsafe.Pointer
	if d.errorString.at != 0 && d.errorString.call(uintptr(code), uintptr(unsafe.Pointer(&p))) == 0 && p != nil {
		return text(p)
	}
	return "unknown error"
}

// Name implements Driver.
func (d *cuda) Name() string { return "purego" }

// Version implements Driver.
func (d *cuda) Version() (int, error) {
	var v int32
	err := d.call(&d.version, uintptr(unsafe.Pointer(&v)))
	return int(v), err
}

// DeviceCount implements Driver.
func (d *cuda) DeviceCount() (int, error) {
	var n int32
	err := d.call(&d.deviceCount, uintptr(unsafe.Pointer(&n)))
	return int(n), err
}

// device is the CUdevice of an ordinal.
func (d *cuda) device(c Device) (uintptr, error) {
	var dev int32
	err := d.call(&d.deviceGet, uintptr(unsafe.Pointer(&dev)), uintptr(c))
	return uintptr(dev), err
}

// DeviceName implements Driver.
func (d *cuda) DeviceName(c Device) (string, error) { return d.deviceText(&d.deviceName, c, 256) }

// DeviceBusID implements Driver.
func (d *cuda) DeviceBusID(c Device) (string, error) { return d.deviceText(&d.deviceBusID, c, 32) }

// deviceText is of a function (text, room, device).
func (d *cuda) deviceText(s *symbol, c Device, room int) (string, error) {
	dev, err := d.device(c)
	if err != nil {
		return "", err
	}
	b := make([]byte, room)
	err = d.call(s, uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), dev)
	return upTo(b), err
}

// DeviceBytes implements Driver.
func (d *cuda) DeviceBytes(c Device) (int64, error) {
	dev, err := d.device(c)
	if err != nil {
		return 0, err
	}
	var n uint64
	err = d.call(&d.deviceBytes, uintptr(unsafe.Pointer(&n)), dev)
	return int64(n), err
}

// DeviceAttribute implements Driver.
func (d *cuda) DeviceAttribute(c Device, a Attribute) (int, error) {
	dev, err := d.device(c)
	if err != nil {
		return 0, err
	}
	var v int32
	err = d.call(&d.deviceAttribute, uintptr(unsafe.Pointer(&v)), uintptr(a), dev)
	return int(v), err
}

// OpenContext implements Driver.
func (d *cuda) OpenContext(c Device) (Context, error) {
	dev, err := d.device(c)
	if err != nil {
		return 0, err
	}
	var ctx Context
	err = d.call(&d.openContext, uintptr(unsafe.Pointer(&ctx)), 0, dev)
	return ctx, err
}

// SetContext implements Driver.
func (d *cuda) SetContext(c Context) error { return d.call(&d.setContext, uintptr(c)) }

// CloseContext implements Driver.
func (d *cuda) CloseContext(c Context) error { return d.call(&d.closeContext, uintptr(c)) }

// MemInfo implements Driver.
func (d *cuda) MemInfo() (free, total int64, err error) {
	var n [2]uint64
	err = d.call(&d.memInfo, uintptr(unsafe.Pointer(&n[0])), uintptr(unsafe.Pointer(&n[1])))
	return int64(n[0]), int64(n[1]), err
}

// Alloc implements Driver.
func (d *cuda) Alloc(bytes int64) (uint64, error) {
	var addr uint64
	err := d.call(&d.alloc, uintptr(unsafe.Pointer(&addr)), uintptr(bytes))
	return addr, err
}

// Free implements Driver.
func (d *cuda) Free(addr uint64) error { return d.call(&d.free, uintptr(addr)) }

// AllocHost implements Driver.
func (d *cuda) AllocHost(bytes int64) (host []byte, addr uint64, err error) {
	var p unsafe.Pointer // outside Go's heap
	if err := d.call(&d.allocHost, uintptr(unsafe.Pointer(&p)), uintptr(bytes), hostAllocPortable|hostAllocDeviceMap); err != nil {
		return nil, 0, err
	}
	if err := d.call(&d.hostAddress, uintptr(unsafe.Pointer(&addr)), uintptr(p), 0); err != nil {
		_ = d.call(&d.freeHost, uintptr(p)) // the error before says more
		return nil, 0, err
	}
	host = unsafe.Slice((*byte)(p), bytes)
	clear(host)
	return host, addr, nil
}

// FreeHost implements Driver.
func (d *cuda) FreeHost(host []byte) error {
	return d.call(&d.freeHost, uintptr(unsafe.Pointer(unsafe.SliceData(host))))
}

// CopyToDevice implements Driver.
func (d *cuda) CopyToDevice(dst uint64, src []byte, s Stream) error {
	return d.call(&d.copyToDevice, uintptr(dst), uintptr(unsafe.Pointer(unsafe.SliceData(src))), uintptr(len(src)), uintptr(s))
}

// CopyToHost implements Driver.
func (d *cuda) CopyToHost(dst []byte, src uint64, s Stream) error {
	return d.call(&d.copyToHost, uintptr(unsafe.Pointer(unsafe.SliceData(dst))), uintptr(src), uintptr(len(dst)), uintptr(s))
}

// CopyOnDevice implements Driver.
func (d *cuda) CopyOnDevice(dst, src uint64, bytes int64, s Stream) error {
	return d.call(&d.copyOnDevice, uintptr(dst), uintptr(src), uintptr(bytes), uintptr(s))
}

// Fill implements Driver.
func (d *cuda) Fill(dst uint64, value byte, bytes int64, s Stream) error {
	return d.call(&d.fill, uintptr(dst), uintptr(value), uintptr(bytes), uintptr(s))
}

// LoadModule implements Driver. The driver's compiler says what is wrong with the PTX.
func (d *cuda) LoadModule(ptx []byte) (Module, error) {
	var m Module
	source, log := append(ptx[:len(ptx):len(ptx)], 0), make([]byte, 8<<10)
	options := []int32{jitErrorLog, jitErrorLogBytes}
	values := &struct { // as options: void *[2]
		log   unsafe.Pointer
		bytes uintptr
	}{unsafe.Pointer(&log[0]), uintptr(len(log))}
	err := d.call(&d.loadModule, uintptr(unsafe.Pointer(&m)), uintptr(unsafe.Pointer(&source[0])),
		uintptr(len(options)), uintptr(unsafe.Pointer(&options[0])), uintptr(unsafe.Pointer(values)))
	if e, ok := err.(*Error); ok && upTo(log) != "" {
		e.Text += ": " + upTo(log)
	}
	return m, err
}

// UnloadModule implements Driver.
func (d *cuda) UnloadModule(m Module) error { return d.call(&d.unloadModule, uintptr(m)) }

// Function implements Driver.
func (d *cuda) Function(m Module, name string) (Function, error) {
	var f Function
	zero := append([]byte(name), 0)
	err := d.call(&d.function, uintptr(unsafe.Pointer(&f)), uintptr(m), uintptr(unsafe.Pointer(&zero[0])))
	return f, err
}

// FunctionAttribute implements Driver.
func (d *cuda) FunctionAttribute(f Function, a FunctionAttribute) (int, error) {
	var v int32
	err := d.call(&d.functionAttribute, uintptr(unsafe.Pointer(&v)), uintptr(a), uintptr(f))
	return int(v), err
}

// SetFunctionAttribute implements Driver.
func (d *cuda) SetFunctionAttribute(f Function, a FunctionAttribute, value int) error {
	return d.call(&d.setFunctionAttribute, uintptr(f), uintptr(a), uintptr(value))
}

// NewStream implements Driver.
func (d *cuda) NewStream() (Stream, error) {
	var s Stream
	err := d.call(&d.newStream, uintptr(unsafe.Pointer(&s)), streamNonBlocking)
	return s, err
}

// CloseStream implements Driver.
func (d *cuda) CloseStream(s Stream) error { return d.call(&d.closeStream, uintptr(s)) }

// SyncStream implements Driver.
func (d *cuda) SyncStream(s Stream) error { return d.call(&d.syncStream, uintptr(s)) }

// NewEvent implements Driver.
func (d *cuda) NewEvent() (Event, error) {
	var e Event
	err := d.call(&d.newEvent, uintptr(unsafe.Pointer(&e)), 0)
	return e, err
}

// CloseEvent implements Driver.
func (d *cuda) CloseEvent(e Event) error { return d.call(&d.closeEvent, uintptr(e)) }

// RecordEvent implements Driver.
func (d *cuda) RecordEvent(e Event, s Stream) error {
	return d.call(&d.recordEvent, uintptr(e), uintptr(s))
}

// SyncEvent implements Driver.
func (d *cuda) SyncEvent(e Event) error { return d.call(&d.syncEvent, uintptr(e)) }

// WaitEvent implements Driver.
func (d *cuda) WaitEvent(s Stream, e Event) error {
	return d.call(&d.waitEvent, uintptr(s), uintptr(e), 0)
}

// ElapsedMS implements Driver.
func (d *cuda) ElapsedMS(from, to Event) (float64, error) {
	var ms float32
	err := d.call(&d.elapsed, uintptr(unsafe.Pointer(&ms)), uintptr(from), uintptr(to))
	return float64(ms), err
}

// maxParams is how many parameters a kernel of this program may have.
const maxParams = 64

// params are the values of a launch's parameters and what points to them.
type params struct {
	words [maxParams]uint64
	at    [maxParams]unsafe.Pointer
}

var spareParams = sync.Pool{New: func() any {
	p := new(params)
	for i := range p.at {
		p.at[i] = unsafe.Pointer(&p.words[i])
	}
	return p
}}

// Launch implements Driver.
func (d *cuda) Launch(f Function, grid, block [3]int, sharedBytes int, s Stream, args []uint64) error {
	if len(args) > maxParams {
		return &Error{Call: d.launch.name, Code: codeInvalidValue, Text: fmt.Sprintf("%d arguments, of at most %d", len(args), maxParams)}
	}
	p := spareParams.Get().(*params)
	defer spareParams.Put(p)
	copy(p.words[:], args)
	return d.call(&d.launch, uintptr(f),
		uintptr(uint32(grid[0])), uintptr(uint32(grid[1])), uintptr(uint32(grid[2])),
		uintptr(uint32(block[0])), uintptr(uint32(block[1])), uintptr(uint32(block[2])),
		uintptr(uint32(sharedBytes)), uintptr(s), uintptr(unsafe.Pointer(&p.at)), 0)
}

// BeginCapture implements Driver.
func (d *cuda) BeginCapture(s Stream) error {
	return d.call(&d.beginCapture, uintptr(s), captureModeRelaxed)
}

// EndCapture implements Driver.
func (d *cuda) EndCapture(s Stream) (Graph, error) {
	var g Graph
	err := d.call(&d.endCapture, uintptr(s), uintptr(unsafe.Pointer(&g)))
	return g, err
}

// CloseGraph implements Driver.
func (d *cuda) CloseGraph(g Graph) error { return d.call(&d.closeGraph, uintptr(g)) }

// Instantiate implements Driver.
func (d *cuda) Instantiate(g Graph) (GraphExec, error) {
	var e GraphExec
	err := d.call(&d.instantiate, uintptr(unsafe.Pointer(&e)), uintptr(g), 0)
	return e, err
}

// LaunchGraph implements Driver.
func (d *cuda) LaunchGraph(e GraphExec, s Stream) error {
	return d.call(&d.launchGraph, uintptr(e), uintptr(s))
}

// CloseGraphExec implements Driver.
func (d *cuda) CloseGraphExec(e GraphExec) error { return d.call(&d.closeGraphExec, uintptr(e)) }
