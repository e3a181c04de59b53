package driver

import (
	"fmt"
	"sync"
	"unsafe"

	"github.com/openinfer-go/openinfer/kernels/cuda/ptx"
)

// Interpreter is a Driver that executes PTX on the host: a card of sm_86 that checks what it runs. A launch that does
// what a kernel must not (see ptx.Fault) is an error with the faults as its text. Fields are set before the first call.
type Interpreter struct {
	// Seed orders blocks, warps and divergent lanes.
	Seed uint64
	// Bytes is the card's memory; 0: 24 GiB. What is never touched costs the host nothing.
	Bytes int64
	// Late runs what is on a stream only when somebody waits for it, as a card may; else it runs at once, and a
	// launch gets its own error.
	Late bool
	// Sample, when not nil, is how many blocks of each dimension of a grid run (ptx.Launch.Sample): to count what is too
	// large to run.
	Sample func(grid [3]int) [3]int
	// Launched, when not nil, is called after each launch. It must not call the driver.
	Launched func(kernel string, grid, block [3]int, r *ptx.Result)

	mu       sync.Mutex // of everything: memory is not to change under a launch
	mem      *ptx.Memory
	contexts map[Context]bool
	modules  map[Module]*ptx.Instance
	funcs    map[Function]*interpreted
	streams  map[Stream]*interpretedStream
	events   map[Event]*interpretedEvent
	graphs   map[Graph][]node
	execs    map[GraphExec][]node
	device   map[uint64]int64 // bytes by address
	host     map[uint64][]byte
	used     int64
	handles  uintptr // the last one given
	launches uint64
}

// interpreted is a function of a module.
type interpreted struct {
	kernel *ptx.Kernel
	name   string
	module Module
	shared int // dynamic shared memory allowed
}

const (
	interpretedBytes = 24 << 30
	// Shared memory of a block: without being asked for, and at most.
	plainShared = 48 << 10
	mostShared  = 99 << 10
)

// NewInterpreter returns a driver with one card.
func NewInterpreter(seed uint64) *Interpreter {
	d := &Interpreter{Seed: seed, Bytes: interpretedBytes, mem: ptx.NewMemory(), contexts: map[Context]bool{}}
	d.forget()
	return d
}

// forget gives back what belongs to contexts.
func (d *Interpreter) forget() {
	d.mem.FreeAll()
	d.modules, d.funcs = map[Module]*ptx.Instance{}, map[Function]*interpreted{}
	d.streams, d.events = map[Stream]*interpretedStream{0: {}}, map[Event]*interpretedEvent{}
	d.graphs, d.execs = map[Graph][]node{}, map[GraphExec][]node{}
	d.device, d.host, d.used = map[uint64]int64{}, map[uint64][]byte{}, 0
}

// Codes of CUresult that the interpreter answers beside those that callers tell apart, and their texts in libcuda.
const (
	codeInvalidValue       = 1
	codeInvalidDevice      = 101
	codeInvalidContext     = 201
	codeInvalidPTX         = 218
	codeInvalidHandle      = 400
	codeNotFound           = 500
	codeNotReady           = 600
	codeIllegalAddress     = 700
	codeMisaligned         = 716
	codeLaunchFailed       = 719
	codeCaptureInvalidated = 901
)

var codeTexts = map[int]string{
	codeInvalidValue: "invalid argument", CodeOutOfMemory: "out of memory", codeInvalidDevice: "invalid device ordinal",
	codeInvalidContext: "invalid device context", codeInvalidPTX: "a PTX JIT compilation failed",
	codeInvalidHandle: "invalid resource handle", codeNotFound: "named symbol not found", codeNotReady: "device not ready",
	codeIllegalAddress: "an illegal memory access was encountered", codeMisaligned: "misaligned address",
	codeLaunchFailed: "unspecified launch failure", CodeCaptureUnsupported: "operation not permitted when stream is capturing",
	codeCaptureInvalidated: "operation failed due to a previous error during capture",
}

func refuse(call string, code int, format string, args ...any) error {
	return &Error{Call: call, Code: code, Text: codeTexts[code] + ": " + fmt.Sprintf(format, args...)}
}

// refused is refuse with an error as the reason, nil without one.
func refused(call string, code int, err error) error {
	if err == nil {
		return nil
	}
	return refuse(call, code, "%v", err)
}

// lock takes the driver for a call that needs a context.
func (d *Interpreter) lock(call string) (unlock func(), err error) {
	d.mu.Lock()
	if len(d.contexts) == 0 {
		d.mu.Unlock()
		return nil, refuse(call, codeInvalidContext, "none is open")
	}
	return d.mu.Unlock, nil
}

func (d *Interpreter) handle() uintptr {
	d.handles++
	return d.handles
}

// Name implements Driver.
func (d *Interpreter) Name() string { return "ptx" }

// Version implements Driver.
func (d *Interpreter) Version() (int, error) { return 11080, nil }

// DeviceCount implements Driver.
func (d *Interpreter) DeviceCount() (int, error) { return 1, nil }

// DeviceName implements Driver.
func (d *Interpreter) DeviceName(c Device) (string, error) {
	return "PTX interpreter", ordinal("cuDeviceGetName", c)
}

// DeviceBytes implements Driver.
func (d *Interpreter) DeviceBytes(c Device) (int64, error) {
	return d.Bytes, ordinal("cuDeviceTotalMem", c)
}

// DeviceBusID implements Driver.
func (d *Interpreter) DeviceBusID(c Device) (string, error) {
	return "none", ordinal("cuDeviceGetPCIBusId", c)
}

func ordinal(call string, c Device) error {
	if c != 0 {
		return refuse(call, codeInvalidDevice, "%d, and there is one device", c)
	}
	return nil
}

// DeviceAttribute implements Driver: those of a GeForce RTX 3090.
func (d *Interpreter) DeviceAttribute(c Device, a Attribute) (int, error) {
	if err := ordinal("cuDeviceGetAttribute", c); err != nil {
		return 0, err
	}
	switch a {
	case WarpSize:
		return 32, nil
	case ClockRate:
		return 1695000, nil
	case Multiprocessors:
		return 82, nil
	case MemoryClockRate:
		return 9751000, nil
	case MemoryBusWidth:
		return 384, nil
	case L2CacheBytes:
		return 6 << 20, nil
	case ComputeCapabilityMajor:
		return 8, nil
	case ComputeCapabilityMinor:
		return 6, nil
	case SharedBytesPerMP:
		return 100 << 10, nil
	case RegistersPerMP:
		return 65536, nil
	case MaxSharedBytesPerBlockOpt:
		return mostShared, nil
	}
	return 0, refuse("cuDeviceGetAttribute", codeInvalidValue, "attribute %d", a)
}

// OpenContext implements Driver.
func (d *Interpreter) OpenContext(c Device) (Context, error) {
	if err := ordinal("cuCtxCreate", c); err != nil {
		return 0, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	ctx := Context(d.handle())
	d.contexts[ctx] = true
	return ctx, nil
}

// SetContext implements Driver.
func (d *Interpreter) SetContext(c Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.contexts[c] {
		return refuse("cuCtxSetCurrent", codeInvalidContext, "%d", c)
	}
	return nil
}

// CloseContext implements Driver. What contexts own is shared by all of them, and goes with the last.
func (d *Interpreter) CloseContext(c Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.contexts[c] {
		return refuse("cuCtxDestroy", codeInvalidContext, "%d", c)
	}
	if delete(d.contexts, c); len(d.contexts) == 0 {
		d.forget()
	}
	return nil
}

// MemInfo implements Driver.
func (d *Interpreter) MemInfo() (free, total int64, err error) {
	unlock, err := d.lock("cuMemGetInfo")
	if err != nil {
		return 0, 0, err
	}
	defer unlock()
	return d.Bytes - d.used, d.Bytes, nil
}

// Alloc implements Driver.
func (d *Interpreter) Alloc(bytes int64) (uint64, error) {
	unlock, err := d.lock("cuMemAlloc")
	if err != nil {
		return 0, err
	}
	defer unlock()
	switch {
	case bytes <= 0:
		return 0, refuse("cuMemAlloc", codeInvalidValue, "%d bytes", bytes)
	case bytes > d.Bytes-d.used:
		return 0, refuse("cuMemAlloc", CodeOutOfMemory, "%d bytes of %d that are free", bytes, d.Bytes-d.used)
	}
	addr, err := d.mem.Alloc(int(bytes))
	if err != nil {
		return 0, refused("cuMemAlloc", CodeOutOfMemory, err)
	}
	d.device[addr] = bytes
	d.used += bytes
	return addr, nil
}

// Free implements Driver.
func (d *Interpreter) Free(addr uint64) error {
	unlock, err := d.lock("cuMemFree")
	if err != nil {
		return err
	}
	defer unlock()
	bytes, ok := d.device[addr]
	if !ok {
		return refuse("cuMemFree", codeInvalidValue, "%#x is not the start of an allocation", addr)
	}
	d.finishAll()
	delete(d.device, addr)
	d.used -= bytes
	return refused("cuMemFree", codeInvalidValue, d.mem.Free(addr))
}

// AllocHost implements Driver.
func (d *Interpreter) AllocHost(bytes int64) ([]byte, uint64, error) {
	unlock, err := d.lock("cuMemHostAlloc")
	if err != nil {
		return nil, 0, err
	}
	defer unlock()
	if bytes <= 0 {
		return nil, 0, refuse("cuMemHostAlloc", codeInvalidValue, "%d bytes", bytes)
	}
	host, addr, err := d.mem.AllocHost(int(bytes))
	if err != nil {
		return nil, 0, refused("cuMemHostAlloc", CodeOutOfMemory, err)
	}
	d.host[addr] = host
	return host, addr, nil
}

// FreeHost implements Driver.
func (d *Interpreter) FreeHost(host []byte) error {
	unlock, err := d.lock("cuMemFreeHost")
	if err != nil {
		return err
	}
	defer unlock()
	for addr, h := range d.host {
		if len(host) > 0 && &h[0] == &host[0] {
			d.finishAll()
			delete(d.host, addr)
			return refused("cuMemFreeHost", codeInvalidValue, d.mem.Free(addr))
		}
	}
	return refuse("cuMemFreeHost", codeInvalidValue, "%d bytes that are not the start of an allocation", len(host))
}

// pinned reports whether b lies in memory from AllocHost.
func (d *Interpreter) pinned(b []byte) bool {
	at := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	for _, h := range d.host {
		first := uintptr(unsafe.Pointer(unsafe.SliceData(h)))
		if at >= first && at+uintptr(len(b)) <= first+uintptr(len(h)) {
			return true
		}
	}
	return false
}

// parsed keeps the modules of this process: opening a device again costs no parsing.
var parsed sync.Map // text -> *ptx.Source

// LoadModule implements Driver.
func (d *Interpreter) LoadModule(text []byte) (Module, error) {
	unlock, err := d.lock("cuModuleLoadDataEx")
	if err != nil {
		return 0, err
	}
	defer unlock()
	src, ok := parsed.Load(string(text))
	if !ok {
		s, err := ptx.Parse(text)
		if err != nil {
			return 0, refused("cuModuleLoadDataEx", codeInvalidPTX, err)
		}
		src, _ = parsed.LoadOrStore(string(text), s)
	}
	in, err := ptx.Load(d.mem, src.(*ptx.Source))
	if err != nil {
		return 0, refused("cuModuleLoadDataEx", codeInvalidPTX, err)
	}
	m := Module(d.handle())
	d.modules[m] = in
	return m, nil
}

// UnloadModule implements Driver.
func (d *Interpreter) UnloadModule(m Module) error {
	unlock, err := d.lock("cuModuleUnload")
	if err != nil {
		return err
	}
	defer unlock()
	in := d.modules[m]
	if in == nil {
		return refuse("cuModuleUnload", codeInvalidHandle, "module %d", m)
	}
	d.finishAll()
	delete(d.modules, m)
	for f, k := range d.funcs {
		if k.module == m {
			delete(d.funcs, f)
		}
	}
	return refused("cuModuleUnload", codeInvalidValue, in.Unload())
}

// Function implements Driver.
func (d *Interpreter) Function(m Module, name string) (Function, error) {
	unlock, err := d.lock("cuModuleGetFunction")
	if err != nil {
		return 0, err
	}
	defer unlock()
	in := d.modules[m]
	if in == nil {
		return 0, refuse("cuModuleGetFunction", codeInvalidHandle, "module %d", m)
	}
	k, err := in.Kernel(name)
	if err != nil {
		return 0, refused("cuModuleGetFunction", codeNotFound, err)
	}
	f := Function(d.handle())
	d.funcs[f] = &interpreted{kernel: k, name: name, module: m, shared: plainShared - k.StaticShared()}
	return f, nil
}

// function finds f; it is called with mu held.
func (d *Interpreter) function(call string, f Function) (*interpreted, error) {
	if k := d.funcs[f]; k != nil {
		return k, nil
	}
	return nil, refuse(call, codeInvalidHandle, "function %d", f)
}

// FunctionAttribute implements Driver. Registers is not known: PTX has as many as it likes.
func (d *Interpreter) FunctionAttribute(f Function, a FunctionAttribute) (int, error) {
	unlock, err := d.lock("cuFuncGetAttribute")
	if err != nil {
		return 0, err
	}
	defer unlock()
	k, err := d.function("cuFuncGetAttribute", f)
	if err != nil {
		return 0, err
	}
	switch a {
	case MaxThreadsPerBlock:
		return k.kernel.MaxThreads(), nil
	case StaticSharedBytes:
		return k.kernel.StaticShared(), nil
	case LocalBytes:
		return k.kernel.LocalBytes(), nil
	case MaxDynamicSharedBytes:
		return k.shared, nil
	}
	return 0, refuse("cuFuncGetAttribute", codeInvalidValue, "attribute %d", a)
}

// SetFunctionAttribute implements Driver.
func (d *Interpreter) SetFunctionAttribute(f Function, a FunctionAttribute, value int) error {
	unlock, err := d.lock("cuFuncSetAttribute")
	if err != nil {
		return err
	}
	defer unlock()
	k, err := d.function("cuFuncSetAttribute", f)
	switch {
	case err != nil:
		return err
	case a != MaxDynamicSharedBytes:
		return refuse("cuFuncSetAttribute", codeInvalidValue, "attribute %d", a)
	case value < 0 || value+k.kernel.StaticShared() > mostShared:
		return refuse("cuFuncSetAttribute", codeInvalidValue, "%s: %d bytes of dynamic shared memory and %d static, of at most %d", k.name, value, k.kernel.StaticShared(), mostShared)
	}
	k.shared = value
	return nil
}
