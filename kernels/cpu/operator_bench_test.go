//go:build cgo

package cpu_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/kernels/cpu"
)

// bench is a device and the products that operators are measured against.
type bench struct {
	*testing.B
	d      kernels.Device
	coded  *kernels.Weight // 4 bits by int8
	float  *kernels.Weight // bf16 by float32
	large  *kernels.Weight // the same, that no cache holds
	x, y   kernels.Tensor
	random *rand.Rand
}

const (
	productSize   = 1024 // inputs and outputs of a product
	productTokens = 128
	largeOutputs  = 32 << 10 // 64 MiB of bf16
)

func newBench(b *testing.B) *bench {
	threads, _ := strconv.Atoi(os.Getenv("OPENINFER_THREADS"))
	d, err := cpu.Open(cpu.Options{Threads: threads})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { d.Close() })
	m := &bench{B: b, d: d, random: rand.New(rand.NewPCG(1, 2))}
	if m.coded, err = d.Load(random(productSize, productSize, 4, false)); err != nil {
		b.Fatal(err)
	}
	m.float, m.large = m.floats(productSize), m.floats(largeOutputs)
	m.x, m.y = m.tensor(productTokens, productSize), m.tensor(productTokens, largeOutputs)
	return m
}

func (m *bench) floats(outputs int) *kernels.Weight {
	f := kernels.Matrix{Name: "float", N: outputs, K: productSize, Type: kernels.BF16}
	f.Read = func(r *kernels.Rows, row, n int) error {
		r.Reset(f, n)
		for i := range r.Float {
			r.Float[i] = float32(i%13-6) / 8
		}
		return nil
	}
	w, err := m.d.Load(f)
	if err != nil {
		m.Fatal(err)
	}
	return w
}

func (m *bench) product(w *kernels.Weight, tokens int) {
	m.d.Linear(m.y.RowRange(0, tokens).ColRange(0, w.N), m.x.RowRange(0, tokens), w)
}

// tensor is of random values.
func (m *bench) tensor(rows, cols int) kernels.Tensor {
	buf, err := m.d.Alloc(int64(rows*cols) * 4)
	if err != nil {
		m.Fatal(err)
	}
	m.Cleanup(func() { m.d.Free(buf) })
	t := kernels.Tensor{Buf: buf, Rows: rows, Cols: cols, Stride: cols}
	for i := range t.Float32() {
		t.Float32()[i] = float32(m.random.NormFloat64())
	}
	return t
}

func (m *bench) ints(v ...int32) kernels.Ints { return m.d.Upload(kernels.Ints{Host: v}) }

func (m *bench) step(f func()) time.Duration {
	m.d.Begin()
	f()
	start, used := time.Now(), processorTime(m)
	if err := m.d.End(); err != nil {
		m.Fatal(err)
	}
	if m.d.Info().Threads == 1 {
		return processorTime(m) - used
	}
	return time.Since(start)
}

// processorTime is this process's, which other processes disturb less than they do the clock's.
func processorTime(b testing.TB) time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t); err != nil {
		b.Fatal(err)
	}
	return time.Duration(t.Nano())
}

// measure runs op and products in turn and reports the best of each, by processor time with one thread:
// operations a second, and of what the float32 and the int8 product reach; bytes a second, and of what the
// product of one token reaches that reads its weights from memory.
func (m *bench) measure(name string, operations, bytes float64, op func()) {
	m.Run(name, func(b *testing.B) {
		const products = 2 * productTokens * productSize * productSize
		best, float, coded, large := time.Hour, time.Hour, time.Hour, time.Hour
		for range b.N {
			best = min(best, m.step(op))
			float = min(float, m.step(func() { m.product(m.float, productTokens) }))
			coded = min(coded, m.step(func() { m.product(m.coded, productTokens) }))
			large = min(large, m.step(func() { m.product(m.large, 1) }))
		}
		b.ReportMetric(0, "ns/op")
		b.ReportMetric(best.Seconds()*1e6, "us")
		if operations > 0 {
			rate := operations / best.Seconds()
			b.ReportMetric(rate/1e9, "Gop/s")
			b.ReportMetric(100*rate*float.Seconds()/products, "%float-product")
			b.ReportMetric(100*rate*coded.Seconds()/products, "%int8-product")
		}
		if bytes > 0 {
			b.ReportMetric(bytes/best.Seconds()/1e9, "GB/s")
			b.ReportMetric(100*bytes/best.Seconds()*large.Seconds()/float64(m.large.Bytes), "%product-GB/s")
		}
	})
}

// compare runs two forms of an operator in turn and reports the best of each, and the second by the first.
func (m *bench) compare(name string, op, other func()) {
	m.Run(name, func(b *testing.B) {
		best, than := time.Hour, time.Hour
		for range b.N {
			best, than = min(best, m.step(op)), min(than, m.step(other))
		}
		b.ReportMetric(0, "ns/op")
		b.ReportMetric(best.Seconds()*1e6, "us")
		b.ReportMetric(than.Seconds()*1e6, "us-other")
		b.ReportMetric(than.Seconds()/best.Seconds(), "times-as-fast")
	})
}

// BenchmarkLinear is what the others are measured against.
func BenchmarkLinear(b *testing.B) {
	m := newBench(b)
	const operations = 2 * productTokens * productSize * productSize
	m.measure("int8", operations, 0, func() { m.product(m.coded, productTokens) })
	m.measure("float32", operations, 0, func() { m.product(m.float, productTokens) })
	m.measure("float32/decode", 0, float64(m.large.Bytes), func() { m.product(m.large, 1) })
}

// BenchmarkRecurrent is the convolution and the delta rule of Qwen3.5-9B: of as many layers as do not fit a
// cache when states are read and written once, of one when a prompt is worked on.
func BenchmarkRecurrent(b *testing.B) {
	const G, H, D, width, pageBytes = 16, 32, 128, 4, 2 << 20
	m := newBench(b)
	l := kernels.StateLayout{Layers: 24, Heads: H, KDim: D, VDim: D, ConvChannels: (2*G + H) * D, ConvColumns: width - 1, PageBytes: pageBytes}
	const states, T = 8, 512
	pages, err := m.d.Alloc(int64(1+states*l.StatePages()) * pageBytes)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { m.d.Free(pages) })
	x, conv, out := m.tensor(T, l.ConvChannels), m.tensor(T, l.ConvChannels), m.tensor(T, H*D)
	w, alpha, beta := m.tensor(1, l.ConvChannels*width), m.tensor(T, H), m.tensor(T, H)
	p := kernels.DeltaParams{KeyHeads: G, Rate: m.tensor(1, H), DtBias: m.tensor(1, H), Eps: 1e-6}
	for i := range p.Rate.Float32() {
		p.Rate.Float32()[i] = 0.1 // forgets, so that values stay small
	}
	run := func(S, n, layers int, f func(kernels.State, int)) func() {
		return func() {
			var starts, on []int32
			for s := range S {
				starts = append(starts, int32(s*n))
				for i := range l.StatePages() {
					on = append(on, int32(1+s*l.StatePages()+i))
				}
			}
			r := kernels.Runs{Starts: m.ints(append(starts, int32(S*n))...), In: m.ints(on...), Out: m.ints(on...)}
			for layer := range layers {
				f(kernels.State{Pages: pages, Layout: &l, Layer: layer, Runs: r}, S*n)
			}
		}
	}
	delta := func(s kernels.State, T int) {
		m.d.GatedDelta(out.RowRange(0, T), conv.RowRange(0, T), alpha.RowRange(0, T), beta.RowRange(0, T), p, s)
	}
	convolve := func(s kernels.State, T int) { m.d.CausalConv(conv.RowRange(0, T), x.RowRange(0, T), w, s) }
	both := func(s kernels.State, T int) {
		convolve(s, T)
		delta(s, T)
	}
	state := 2 * float64(H*D*D*4) // read and written
	m.measure("delta/decode", 0, 24*state, run(1, 1, 24, delta))
	m.measure("delta/decode-8", 0, 8*8*state, run(8, 1, 8, delta))
	m.measure("delta/prefill-512", 7*T*H*D*D, 0, run(1, T, 1, delta)) // known, decay, update, output
	chunked := func(s kernels.State, T int) {
		p.Chunked = true
		delta(s, T)
		p.Chunked = false
	}
	for _, n := range []int{16, 17, 31, 32, 64, 512} {
		m.compare(fmt.Sprintf("delta/chunked-%d", n), run(1, n, 1, chunked), run(1, n, 1, delta))
	}
	m.compare("delta/chunked-8x64", run(8, 64, 1, chunked), run(8, 64, 1, delta))
	m.measure("convolution/prefill-512", 0, 2*4*T*float64(l.ConvChannels), run(1, T, 1, convolve))
	m.measure("both/decode", 0, 24*(state+float64(2*4*l.ConvChannels*(width-1))), run(1, 1, 24, both))
}

// attentionShape is a layer's attention at a context.
type attentionShape struct {
	name                     string
	H, G, D, window, context int
}

// BenchmarkAttention is attention of wide heads, of sliding windows, and of a llama beside them.
func BenchmarkAttention(b *testing.B) {
	m := newBench(b)
	for _, s := range []attentionShape{
		{"llama-32-8x128-at-2048", 32, 8, 128, 0, 2048},
		{"qwen3.5-16-4x256-at-2048", 16, 4, 256, 0, 2048},
		{"gemma-16-8x256-window-1024-at-8192", 16, 8, 256, 1024, 8192},
		{"gemma-16-1x512-at-2048", 16, 1, 512, 0, 2048},
	} {
		m.attention(s.name, s, kernels.F16, 1, 512)
	}
}

// BenchmarkCacheTypes is attention of one token over contexts that do not fit the processor's caches, by type of KV cache.
func BenchmarkCacheTypes(b *testing.B) {
	m := newBench(b)
	for _, s := range []attentionShape{
		{"llama-32-8x128-at-16384", 32, 8, 128, 0, 16384},
		{"qwen3.5-16-4x256-at-16384", 16, 4, 256, 0, 16384},
		{"phi-16-16x128-at-8192", 16, 16, 128, 0, 8192},
	} {
		for _, t := range []kernels.DType{kernels.F16, kernels.F8E4M3, kernels.I8} {
			m.attention(s.name+"/"+t.String(), s, t, 1)
		}
	}
}

// attention measures steps of each of some numbers of tokens, the last of the context.
func (m *bench) attention(name string, c attentionShape, t kernels.DType, tokens ...int) {
	l := kernels.CacheLayout{DType: t, Layers: 1, Heads: c.G, KDim: c.D, VDim: c.D, BlockTokens: 16, BlocksPerPage: 1}
	l.BlockBytes = 16 * l.TokenBytes()
	l.PageBytes = l.BlockBytes
	pages, err := m.d.Alloc(int64(c.context/16) * l.BlockBytes)
	if err != nil {
		m.Fatal(err)
	}
	defer m.d.Free(pages)
	var slots, table []int32
	for i := range c.context {
		slots = append(slots, int32(i))
	}
	for i := range c.context / 16 {
		table = append(table, int32(i))
	}
	const T = 512
	qkv, q, dst, angles := m.tensor(T, (c.H+2*c.G)*c.D), m.tensor(T, c.H*c.D), m.tensor(T, c.H*c.D), m.tensor(T, c.D)
	for from := 0; from < c.context; from += T {
		m.step(func() {
			kv := kernels.KV{Pages: pages, Layout: &l, Slots: m.ints(slots[from : from+T]...)}
			m.d.RotaryStore(q, kv, qkv, kernels.RotaryParams{CosSin: angles})
		})
	}
	for _, n := range tokens {
		var seen float64 // positions, of all tokens
		for t := range n {
			s := c.context - n + t + 1
			if c.window > 0 {
				s = min(s, c.window)
			}
			seen += float64(s)
		}
		step, bytes := name+"/decode", seen*float64(l.TokenBytes())
		if n > 1 {
			step, bytes = name+"/prefill-512", 0
		}
		m.measure(step, 4*seen*float64(c.H*c.D), bytes, func() {
			kv := kernels.KV{Pages: pages, Layout: &l, Tables: m.ints(table...), Stride: len(table)}
			rows := kernels.Ragged{Starts: m.ints(0, int32(n)), Contexts: m.ints(int32(c.context))}
			m.d.Attention(dst.RowRange(0, n), q.RowRange(0, n), kv, rows, kernels.AttentionParams{Scale: 1.0 / 16, Window: c.window})
		})
	}
}
