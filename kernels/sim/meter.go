package sim

import (
	"github.com/openinfer-go/openinfer/kernels"
)

// Meter is a device that says what a step would take. Its memory is not bounded.
type Meter struct {
	spec    Spec
	info    kernels.Info
	memory  memory
	checked bool // arguments are checked, as by a device that computes
	err     error
	seconds float64
}

var _ kernels.Device = (*Meter)(nil)

// NewMeter returns a meter of what s describes.
func NewMeter(s Spec) *Meter {
	return &Meter{spec: s, info: kernels.Info{
		Name: "sim", Description: s.String(), Simulated: s.Description, Dedicated: true,
		MemoryBytes: s.UsableBytes(),
		KVTypes:     []kernels.DType{kernels.F16, kernels.F8E4M3, kernels.I8, kernels.BF16, kernels.F32},
	}}
}

// Spec is what m measures by.
func (m *Meter) Spec() Spec { return m.spec }

// Elapsed is the time charged since Begin, in seconds.
func (m *Meter) Elapsed() float64 { return m.seconds }

// Info implements kernels.Device.
func (m *Meter) Info() kernels.Info { return m.info }

// Close implements kernels.Device.
func (m *Meter) Close() error { return nil }

// Begin implements kernels.Device.
func (m *Meter) Begin() { m.err, m.seconds = nil, 0 }

// Upload implements kernels.Device. The arrays of a step are small and their copies overlap with it.
func (m *Meter) Upload(a kernels.Ints) kernels.Ints { return a }

// End implements kernels.Device.
func (m *Meter) End() error { return m.err }

// charge adds an operator that moves so many bytes of device memory.
func (m *Meter) charge(bytes int64) { m.roofline(bytes, 0, 1) }

// roofline adds an operator that moves bytes and computes at a rate.
func (m *Meter) roofline(bytes int64, flops, rate float64) {
	s := &m.spec
	m.seconds += max(float64(bytes)/(s.Bandwidth*s.BandwidthShare), flops/rate) + s.Launch
}

// copied adds bytes that come from host memory.
func (m *Meter) copied(bytes int64) { m.seconds += float64(bytes) / m.spec.HostBandwidth }

// productRate is the rate of products with a weight.
func (m *Meter) productRate(w *kernels.Weight) float64 {
	kind := Acc32
	if w.Bytes < 12*int64(w.N)*int64(w.K)/8 { // 4 or 8 bits with scales, not 16
		kind = m.spec.Coded
	}
	return m.spec.Rates[kind] * m.spec.ProductShare
}

// attentionRate is the rate of attention and of the delta rule.
func (m *Meter) attentionRate() float64 { return m.spec.Rates[Acc32] * m.spec.AttentionShare }

// ok keeps the step's first error and says whether the step is still good.
func (m *Meter) ok(err error) bool {
	if m.err == nil {
		m.err = err
	}
	return m.err == nil
}
