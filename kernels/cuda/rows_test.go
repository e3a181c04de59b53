package cuda

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/kernels/cuda/driver"
	"github.com/openinfer-go/openinfer/kernels/cuda/ptx"
	"github.com/openinfer-go/openinfer/kernels/ref"
)

// launched is what the interpreter counted of a launch.
type launched struct {
	kernel string
	ptx.Counters
}

// counted opens a device whose launches are appended to the list.
func counted(t testing.TB) (*Device, *[]launched) {
	t.Helper()
	drv := driver.NewInterpreter(7)
	all := &[]launched{}
	drv.Launched = func(kernel string, _, _ [3]int, r *ptx.Result) { *all = append(*all, launched{kernel, r.Counters}) }
	d, err := Open(drv, Options{WorkspaceBytes: 8 << 20, StepBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d, all
}

// tensor loads values as a dense tensor of rows.
func tensor(t testing.TB, d kernels.Device, rows int, values []float32) kernels.Tensor {
	t.Helper()
	v, err := d.LoadVector(values)
	if err != nil {
		t.Fatal(err)
	}
	v.Rows, v.Cols, v.Stride = rows, len(values)/rows, len(values)/rows
	return v
}

// held returns what a buffer holds.
func held(t testing.TB, d kernels.Device, b kernels.Buffer) []byte {
	t.Helper()
	if b.Host != nil {
		return slices.Clone(b.Host)
	}
	out := make([]byte, b.Len)
	if err := d.(*Device).CopyOut(out, b); err != nil {
		t.Fatal(err)
	}
	return out
}

func floatsOf(t testing.TB, d kernels.Device, x kernels.Tensor) []float32 {
	b := held(t, d, x.Buf)
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/4)
}

func normal(rnd *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(rnd.NormFloat64())
	}
	return x
}

// TestRowsMoveWhatTheyMust: at shapes of a model every sector that is asked for is wanted whole, and what is read and
// written is no more than the tensors.
func TestRowsMoveWhatTheyMust(t *testing.T) {
	const T, D, F, heads, head = 3, 2560, 1152, 6, 128
	d, all := counted(t)
	rnd := rand.New(rand.NewPCG(1, 1))
	x, y, w := tensor(t, d, T, normal(rnd, T*D)), tensor(t, d, T, normal(rnd, T*D)), tensor(t, d, 1, normal(rnd, D))
	both, small := tensor(t, d, T, normal(rnd, T*2*F)), tensor(t, d, 1, normal(rnd, head))
	narrow, gates := tensor(t, d, T, normal(rnd, T*heads*head)), tensor(t, d, T, normal(rnd, T*heads*head))
	for _, c := range []struct {
		name                 string
		run                  func()
		readBytes, wroteByte int
	}{
		{"rms_norm", func() { d.RMSNorm(y, x, w, 1e-6) }, 4 * (T*D + D), 4 * T * D},
		{"rms_norm_add", func() { d.RMSNormAdd(y, x, w, 1e-6, 1) }, 4 * (2*T*D + D), 4 * T * D},
		{"norm_gate", func() { d.NormGate(narrow, narrow, gates, small, 1e-6) }, 4 * (2*T*heads*head + head), 4 * T * heads * head},
		{"gate_mul_silu", func() { d.GateMul(both.ColRange(F, 2*F), both.ColRange(0, F), both.ColRange(F, 2*F), kernels.SiLU) }, 8 * T * F, 4 * T * F},
		{"soft_cap", func() { d.SoftCap(y, 30) }, 4 * T * D, 4 * T * D},
		{"gather_rows", func() { d.GatherRows(y.RowRange(0, 1), x, d.Upload(kernels.Ints{Host: []int32{2}})) }, 4*D + 32, 4 * D},
	} {
		*all = nil
		d.Begin()
		c.run()
		if err := d.End(); err != nil {
			t.Fatal(err)
		}
		if len(*all) != 1 || (*all)[0].kernel != c.name {
			t.Fatalf("%s: launched %v", c.name, *all)
		}
		n := (*all)[0]
		if int(n.DRAMReadBytes) > c.readBytes || int(n.DRAMWriteBytes) != c.wroteByte {
			t.Errorf("%s: read %d bytes, wrote %d; want %d and %d", c.name, n.DRAMReadBytes, n.DRAMWriteBytes, c.readBytes, c.wroteByte)
		}
		least := 0.99
		if c.name == "gather_rows" {
			least = 0.94 // each warp reads an index, too
		}
		if n.GlobalLoads.Efficiency < least || n.GlobalStores.Efficiency < 0.99 || n.BankConflicts > 0 {
			t.Errorf("%s: loads %+v, stores %+v, %d bank conflicts", c.name, n.GlobalLoads, n.GlobalStores, n.BankConflicts)
		}
	}
}

// TestNormOfLargeRows: the squares of these do not fit float32.
func TestNormOfLargeRows(t *testing.T) {
	d := open(t, 1)
	defer d.Close()
	const cols = 300
	rnd := rand.New(rand.NewPCG(1, 2))
	values := normal(rnd, cols)
	for i := range values {
		values[i] *= 1e30
	}
	ones := slices.Repeat([]float32{1}, cols)
	x, w, r := tensor(t, d, 1, values), tensor(t, d, 1, ones), ref.Open()
	rx, rw := tensor(t, r, 1, values), tensor(t, r, 1, ones)
	d.Begin()
	d.RMSNorm(x, x, w, 1e-6)
	if err := d.End(); err != nil {
		t.Fatal(err)
	}
	r.RMSNorm(rx, rx, rw, 1e-6)
	want := rx.Row(0)
	for i, got := range floatsOf(t, d, x) {
		if math.Abs(float64(got-want[i])) > 2e-6*(1+math.Abs(float64(want[i]))) {
			t.Fatalf("value %d: got %v, want %v", i, got, want[i])
		}
	}
}
