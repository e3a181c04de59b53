//go:build cgo

package cpu

// #cgo CFLAGS: -std=c11 -O2 -Wall -Wno-psabi
// #cgo LDFLAGS: -lm -lpthread
// #include "cpu.h"
import "C"

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"unsafe"

	"github.com/klauspost/cpuid/v2"

	"github.com/openinfer-go/openinfer/internal/hostmem"
	"github.com/openinfer-go/openinfer/kernels"
)

// device implements kernels.Device.
type device struct {
	info    kernels.Info
	exact   bool
	threads int
	variant *C.oi_variant
	pool    *C.oi_pool

	mu      sync.Mutex // guards memory, which loading uses beside a step
	memory  memory
	packing sync.Mutex // one Load at a time, so that its scratch stays small

	step    *step   // being recorded
	used    []*step // ran in this step already; their arrays still count
	idle    []*step
	err     error
	prepQ   scratch
	prepF   scratch
	partial scratch
	delta   scratch
	sampler sampler

	lastAddr uint64 // given to an upload
}

// Open starts the threads. Close ends them.
func Open(o Options) (kernels.Device, error) {
	if o.Threads < 0 || o.Threads > 1024 {
		return nil, fmt.Errorf("cpu: threads %d: want 0 to 1024", o.Threads)
	}
	d := &device{exact: o.Exact, threads: o.Threads}
	if d.threads == 0 {
		d.threads = usableCores()
	}
	switch o.Variant {
	case "":
		d.variant = bestVariant()
	case "portable":
		d.variant = &C.oi_portable
	default:
		return nil, fmt.Errorf("cpu: no variant %q (there is \"portable\")", o.Variant)
	}
	if d.pool = C.oi_pool_new(C.int(d.threads)); d.pool == nil {
		return nil, fmt.Errorf("cpu: could not start %d threads", d.threads)
	}
	d.sampler = newSampler(d.variant)
	activations := "int8 per 32"
	types := []kernels.DType{kernels.F16, kernels.BF16, kernels.F32, kernels.F8E4M3, kernels.I8}
	if o.Exact {
		activations = "float32"
		types = []kernels.DType{kernels.F32, kernels.F16, kernels.BF16, kernels.F8E4M3, kernels.I8}
	}
	brand := strings.TrimSpace(cpuid.CPU.BrandName)
	if brand == "" {
		brand = runtime.GOARCH
	}
	d.info = kernels.Info{
		Name:        "cpu",
		Description: fmt.Sprintf("%s, %d threads, %s, activations %s", brand, d.threads, C.GoString(d.variant.name), activations),
		Threads:     d.threads,
		MemoryBytes: hostmem.Available(),
		KVTypes:     types,
	}
	d.Begin()
	return d, nil
}

func bestVariant() *C.oi_variant {
	if C.oi_avx2 != nil && cpuid.CPU.Supports(cpuid.AVX2, cpuid.FMA3, cpuid.F16C, cpuid.POPCNT, cpuid.BMI1) {
		return C.oi_avx2
	}
	// Every 64-bit ARM processor has what oi_neon needs.
	if C.oi_neon_dot != nil && cpuid.CPU.Supports(cpuid.ASIMDDP) {
		return C.oi_neon_dot
	}
	if C.oi_neon != nil {
		return C.oi_neon
	}
	return &C.oi_portable
}

// usableCores is what affinity and the cgroup's CPU quota leave of the machine: GOMAXPROCS's
// default follows both.
func usableCores() int {
	n := runtime.NumCPU()
	quota, err := os.ReadFile("/sys/fs/cgroup/cpu.max")
	if err != nil {
		return n
	}
	f := strings.Fields(string(quota))
	if len(f) != 2 || f[0] == "max" {
		return n
	}
	q, err1 := strconv.ParseFloat(f[0], 64)
	p, err2 := strconv.ParseFloat(f[1], 64)
	if err1 != nil || err2 != nil || p <= 0 {
		return n
	}
	return max(1, min(n, int(q/p)))
}

// Info implements kernels.Device.
func (d *device) Info() kernels.Info { return d.info }

// Alloc implements kernels.Device.
func (d *device) Alloc(bytes int64) (kernels.Buffer, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	p, err := d.memory.alloc(bytes)
	if err != nil {
		return kernels.Buffer{}, fmt.Errorf("cpu: alloc %d bytes: %w", bytes, err)
	}
	return kernels.Buffer{Host: p, Len: bytes}, nil
}

// Free implements kernels.Device.
func (d *device) Free(b kernels.Buffer) {
	if b.Host == nil {
		return
	}
	C.oi_quiesce(d.pool)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.memory.free(b.Host)
}

// LoadVector implements kernels.Device.
func (d *device) LoadVector(v []float32) (kernels.Tensor, error) {
	b, err := d.Alloc(int64(len(v)) * 4)
	if err != nil {
		return kernels.Tensor{}, err
	}
	t := kernels.Tensor{Buf: b, DType: kernels.F32, Rows: 1, Cols: len(v), Stride: len(v)}
	copy(t.Float32(), v)
	return t, nil
}

// Close implements kernels.Device.
func (d *device) Close() error {
	if d.pool == nil {
		return nil
	}
	C.oi_pool_free(d.pool)
	d.pool = nil
	for _, s := range append(append(d.idle, d.used...), d.step) {
		s.close()
	}
	d.prepQ.close()
	d.prepF.close()
	d.partial.close()
	d.delta.close()
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.memory.close()
}

// floats returns the address of a tensor's first element.
func floats(t kernels.Tensor) *C.float {
	return (*C.float)(unsafe.Pointer(unsafe.SliceData(t.Buf.Host)))
}
