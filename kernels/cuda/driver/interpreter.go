package driver

import (
	"encoding/binary"
	"fmt"
	"strings"
	"sync"

	"github.com/openinfer-go/openinfer/kernels/cuda/ptx"
)

// Interpreter is a Driver that executes PTX on the host: a card of sm_86 that checks what it runs. A launch that does
// what a kernel must not (see ptx.Fault) is an error.
type Interpreter struct {
	// Seed orders blocks, warps and divergent lanes.
	Seed uint64
	// Launched, when not nil, is called after each launch.
	Launched func(kernel string, grid, block [3]int, r *ptx.Result)

	mu      sync.Mutex
	mem     *ptx.Memory
	modules []*ptx.Instance
	kernels []*ptx.Kernel
	names   []string
	sizes   map[uint64]int64
	used    int64
	handles uintptr
}

// interpretedBytes is the memory of the interpreted card.
const interpretedBytes = 24 << 30

// NewInterpreter returns a driver with one card.
func NewInterpreter(seed uint64) *Interpreter {
	return &Interpreter{Seed: seed, mem: ptx.NewMemory(), sizes: map[uint64]int64{}}
}

func (d *Interpreter) refuse(call string, err error) error {
	if err == nil {
		return nil
	}
	return &Error{Call: call, Code: 1, Text: err.Error()}
}

// Name implements Driver.
func (d *Interpreter) Name() string { return "ptx" }

// Version implements Driver.
func (d *Interpreter) Version() (int, error) { return 11080, nil }

// DeviceCount implements Driver.
func (d *Interpreter) DeviceCount() (int, error) { return 1, nil }

// DeviceName implements Driver.
func (d *Interpreter) DeviceName(Device) (string, error) { return "PTX interpreter", nil }

// DeviceBytes implements Driver.
func (d *Interpreter) DeviceBytes(Device) (int64, error) { return interpretedBytes, nil }

// DeviceAttribute implements Driver: those of a GeForce RTX 3090.
func (d *Interpreter) DeviceAttribute(_ Device, a Attribute) (int, error) {
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
		return 99 << 10, nil
	}
	return 0, d.refuse("cuDeviceGetAttribute", fmt.Errorf("attribute %d", a))
}

func (d *Interpreter) handle() uintptr {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.handles++
	return d.handles
}

// OpenContext implements Driver.
func (d *Interpreter) OpenContext(Device) (Context, error) { return Context(d.handle()), nil }

// SetContext implements Driver.
func (d *Interpreter) SetContext(Context) error { return nil }

// CloseContext implements Driver.
func (d *Interpreter) CloseContext(Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mem, d.sizes, d.used = ptx.NewMemory(), map[uint64]int64{}, 0
	return nil
}

// MemInfo implements Driver.
func (d *Interpreter) MemInfo() (free, total int64, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return interpretedBytes - d.used, interpretedBytes, nil
}

// Alloc implements Driver.
func (d *Interpreter) Alloc(bytes int64) (uint64, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if bytes > interpretedBytes-d.used {
		return 0, &Error{Call: "cuMemAlloc", Code: CodeOutOfMemory, Text: "out of memory"}
	}
	addr, err := d.mem.Alloc(int(bytes))
	if err != nil {
		return 0, d.refuse("cuMemAlloc", err)
	}
	d.sizes[addr] = bytes
	d.used += bytes
	return addr, nil
}

// Free implements Driver.
func (d *Interpreter) Free(addr uint64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.used -= d.sizes[addr]
	delete(d.sizes, addr)
	return d.refuse("cuMemFree", d.mem.Free(addr))
}

// AllocHost implements Driver.
func (d *Interpreter) AllocHost(bytes int64) ([]byte, uint64, error) {
	return make([]byte, bytes), 0, nil
}

// FreeHost implements Driver.
func (d *Interpreter) FreeHost([]byte) error { return nil }

// CopyToDevice implements Driver.
func (d *Interpreter) CopyToDevice(dst uint64, src []byte, _ Stream) error {
	return d.refuse("cuMemcpyHtoDAsync", d.mem.Write(dst, src))
}

// CopyToHost implements Driver.
func (d *Interpreter) CopyToHost(dst []byte, src uint64, _ Stream) error {
	return d.refuse("cuMemcpyDtoHAsync", d.mem.Read(src, dst))
}

// CopyOnDevice implements Driver.
func (d *Interpreter) CopyOnDevice(dst, src uint64, bytes int64, _ Stream) error {
	b := make([]byte, bytes)
	if err := d.mem.Read(src, b); err != nil {
		return d.refuse("cuMemcpyDtoDAsync", err)
	}
	return d.refuse("cuMemcpyDtoDAsync", d.mem.Write(dst, b))
}

// Fill implements Driver.
func (d *Interpreter) Fill(dst uint64, value byte, bytes int64, _ Stream) error {
	b := make([]byte, bytes)
	for i := range b {
		b[i] = value
	}
	return d.refuse("cuMemsetD8Async", d.mem.Write(dst, b))
}

// parsed keeps the modules of this process: opening a device again costs no parsing.
var parsed sync.Map // text -> *ptx.Source

// LoadModule implements Driver.
func (d *Interpreter) LoadModule(text []byte) (Module, error) {
	src, ok := parsed.Load(string(text))
	if !ok {
		s, err := ptx.Parse(text)
		if err != nil {
			return 0, d.refuse("cuModuleLoadDataEx", err)
		}
		src, _ = parsed.LoadOrStore(string(text), s)
	}
	in, err := ptx.Load(d.mem, src.(*ptx.Source))
	if err != nil {
		return 0, d.refuse("cuModuleLoadDataEx", err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.modules = append(d.modules, in)
	return Module(len(d.modules)), nil
}

// UnloadModule implements Driver.
func (d *Interpreter) UnloadModule(Module) error { return nil }

// Function implements Driver.
func (d *Interpreter) Function(m Module, name string) (Function, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	k, err := d.modules[m-1].Kernel(name)
	if err != nil {
		return 0, d.refuse("cuModuleGetFunction", err)
	}
	d.kernels, d.names = append(d.kernels, k), append(d.names, name)
	return Function(len(d.kernels)), nil
}

// FunctionAttribute implements Driver.
func (d *Interpreter) FunctionAttribute(f Function, a FunctionAttribute) (int, error) {
	if a == StaticSharedBytes {
		return d.kernels[f-1].StaticShared(), nil
	}
	return 0, d.refuse("cuFuncGetAttribute", fmt.Errorf("attribute %d", a))
}

// SetFunctionAttribute implements Driver.
func (d *Interpreter) SetFunctionAttribute(Function, FunctionAttribute, int) error { return nil }

// NewStream implements Driver.
func (d *Interpreter) NewStream() (Stream, error) { return Stream(d.handle()), nil }

// CloseStream implements Driver.
func (d *Interpreter) CloseStream(Stream) error { return nil }

// SyncStream implements Driver.
func (d *Interpreter) SyncStream(Stream) error { return nil }

// NewEvent implements Driver.
func (d *Interpreter) NewEvent() (Event, error) { return Event(d.handle()), nil }

// CloseEvent implements Driver.
func (d *Interpreter) CloseEvent(Event) error { return nil }

// RecordEvent implements Driver.
func (d *Interpreter) RecordEvent(Event, Stream) error { return nil }

// SyncEvent implements Driver.
func (d *Interpreter) SyncEvent(Event) error { return nil }

// WaitEvent implements Driver.
func (d *Interpreter) WaitEvent(Stream, Event) error { return nil }

// ElapsedMS implements Driver.
func (d *Interpreter) ElapsedMS(from, to Event) (float64, error) { return 0, nil }

// Launch implements Driver.
func (d *Interpreter) Launch(f Function, grid, block [3]int, sharedBytes int, _ Stream, args []uint64) error {
	k := d.kernels[f-1]
	params := k.Params()
	if len(args) != len(params) {
		return d.refuse("cuLaunchKernel", fmt.Errorf("%s: %d arguments for %d parameters", d.names[f-1], len(args), len(params)))
	}
	words := make([][]byte, len(args))
	for i, p := range params {
		if p.Size > 8 {
			return d.refuse("cuLaunchKernel", fmt.Errorf("%s: parameter %d has %d bytes", d.names[f-1], i, p.Size))
		}
		words[i] = binary.LittleEndian.AppendUint64(nil, args[i])[:p.Size]
	}
	d.Seed++
	r, err := k.Launch(ptx.Launch{Grid: grid, Block: block, SharedBytes: sharedBytes, Args: words, Seed: d.Seed})
	if err != nil {
		return d.refuse("cuLaunchKernel", err)
	}
	if d.Launched != nil {
		d.Launched(d.names[f-1], grid, block, r)
	}
	if len(r.Faults) > 0 {
		var all []string
		for _, f := range r.Faults {
			all = append(all, f.String())
		}
		return d.refuse("cuLaunchKernel", fmt.Errorf("%s", strings.Join(all, "\n")))
	}
	return nil
}

// BeginCapture implements Driver.
func (d *Interpreter) BeginCapture(Stream) error {
	return d.refuse("cuStreamBeginCapture", fmt.Errorf("not supported"))
}

// EndCapture implements Driver.
func (d *Interpreter) EndCapture(Stream) (Graph, error) {
	return 0, d.refuse("cuStreamEndCapture", fmt.Errorf("not supported"))
}

// CloseGraph implements Driver.
func (d *Interpreter) CloseGraph(Graph) error { return nil }

// Instantiate implements Driver.
func (d *Interpreter) Instantiate(Graph) (GraphExec, error) {
	return 0, d.refuse("cuGraphInstantiate", fmt.Errorf("not supported"))
}

// LaunchGraph implements Driver.
func (d *Interpreter) LaunchGraph(GraphExec, Stream) error {
	return d.refuse("cuGraphLaunch", fmt.Errorf("not supported"))
}

// CloseGraphExec implements Driver.
func (d *Interpreter) CloseGraphExec(GraphExec) error { return nil }
