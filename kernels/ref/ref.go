// Package ref is the specification of kernels.Device: each operator as the plain loop that its
// comment describes, over float32 tensors with float64 in between.
//
// It owns host memory and nothing else, keeps weights in canonical form, one byte a code, and
// decodes them as it goes. Other devices are compared with it; it is compared with the float64
// expectations of kernels/kerneltest and with stored results of the reference library.
//
// Invariant: every element of a result is computed by itself, in one order of summation, so that
// nothing else in the step can change it. Rows are shared out among goroutines for that reason,
// and for no other is there anything here but loops.
package ref

import (
	"runtime"
	"sync"

	"github.com/openinfer-go/openinfer/internal/hostmem"
	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/kernels/check"
	"github.com/openinfer-go/openinfer/kernels/sampling"
)

// Device is the reference device.
type Device struct {
	info    kernels.Info
	sampler *sampling.Sampler
	err     error // the first of the step
}

var _ kernels.Device = (*Device)(nil)

// Open returns a device on all of the machine's threads.
func Open() *Device {
	return &Device{
		info: kernels.Info{
			Name:        "ref",
			Description: "plain Go, float32 with float64 sums",
			Threads:     runtime.GOMAXPROCS(0),
			MemoryBytes: hostmem.Available(),
			KVTypes:     []kernels.DType{kernels.F32, kernels.F16, kernels.BF16, kernels.F8E4M3, kernels.I8},
		},
		sampler: sampling.New(sampling.Plain()),
	}
}

// Info implements kernels.Device.
func (d *Device) Info() kernels.Info { return d.info }

// Alloc implements kernels.Device.
func (d *Device) Alloc(bytes int64) (kernels.Buffer, error) {
	b, err := hostmem.Alloc(bytes)
	return kernels.Buffer{Host: b, Len: bytes}, err
}

// Free implements kernels.Device.
func (d *Device) Free(b kernels.Buffer) { hostmem.Free(b.Host) }

// Close implements kernels.Device. Memory is its takers' to free.
func (d *Device) Close() error { return nil }

// Begin implements kernels.Device.
func (d *Device) Begin() { d.err = nil }

// Upload implements kernels.Device.
func (d *Device) Upload(a kernels.Ints) kernels.Ints { return a }

// End implements kernels.Device.
func (d *Device) End() error { return d.err }

// ok records the step's first error and says whether the step is still good.
func (d *Device) ok(err error) bool {
	if d.err == nil {
		d.err = err
	}
	return d.err == nil
}

// each calls f for all i below n, on all threads, some i's at a time.
func (d *Device) each(n int, f func(from, to int)) {
	parts := min(d.info.Threads, n)
	if parts <= 1 {
		f(0, n)
		return
	}
	var wg sync.WaitGroup
	for p := range parts {
		wg.Go(func() { f(p*n/parts, (p+1)*n/parts) })
	}
	wg.Wait()
}

// Sample implements kernels.Device. After an error in the step every row counts as failed.
func (d *Device) Sample(out []kernels.Sampled, logits kernels.Tensor, vocab int, params []kernels.SampleParams) {
	if d.err != nil || !d.ok(check.Sample(out, logits, vocab, params)) {
		for i := range out {
			out[i] = kernels.Sampled{ID: -1, NaN: true}
		}
		return
	}
	for i := range out {
		out[i] = d.sampler.Row(logits.Row(i)[:vocab], &params[i])
	}
}
