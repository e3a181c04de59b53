//go:build cgo

package cpu_test

import (
	"math/rand/v2"
	"os"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/kernels/cpu"
)

// shape is a llama-like model with random weights.
type shape struct {
	name                           string
	layers, hidden, ffn, heads, kv int
	dim, vocab, bits               int // bits of the output layer
	hasMin                         bool
}

var shapes = []shape{
	{"smollm2-135m-q4_1", 30, 576, 1536, 9, 3, 64, 49152, 8, true},
	{"1b-q4_0", 16, 2048, 8192, 32, 8, 64, 128256, 8, false},
}

// random is a matrix of random codes: Q4_1, Q4_0 or Q8_0.
func random(n, k, bits int, hasMin bool) kernels.Matrix {
	m := kernels.Matrix{Name: "w", N: n, K: k, Bits: bits, Group: 32, HasMin: hasMin, ScaleType: kernels.F16}
	m.Read = func(r *kernels.Rows, row, n int) error {
		r.Reset(m, n)
		rnd := rand.New(rand.NewPCG(uint64(row), 1))
		var x uint64
		for i := range r.Codes {
			if i%8 == 0 {
				x = rnd.Uint64()
			}
			r.Codes[i] = uint8(x>>(i%8*8)) >> (8 - bits)
		}
		for i := range r.Scale {
			r.Scale[i] = 1.0 / 128
			if bits == 8 {
				r.Scale[i] = 1.0 / 2048
			}
			if hasMin {
				r.Min[i] = -r.Scale[i] * 8
			} else {
				r.Zero[i] = uint8(1 << (bits - 1))
			}
		}
		return nil
	}
	return m
}

type fake struct {
	shape
	d                    kernels.Device
	qkv, o, gateUp, down []*kernels.Weight
	head                 *kernels.Weight
	norm                 kernels.Tensor
	layout               kernels.CacheLayout
	pages                kernels.Buffer
	bytes                int64
	invFreq              []float32
}

func newFake(tb testing.TB, d kernels.Device, s shape, tokens int) *fake {
	f := &fake{shape: s, d: d}
	load := func(parts ...kernels.Matrix) *kernels.Weight {
		w, err := d.Load(parts...)
		if err != nil {
			tb.Fatal(err)
		}
		f.bytes += w.Bytes
		return w
	}
	for range s.layers {
		f.qkv = append(f.qkv, load(random((s.heads+2*s.kv)*s.dim, s.hidden, 4, s.hasMin)))
		f.o = append(f.o, load(random(s.hidden, s.heads*s.dim, 4, s.hasMin)))
		f.gateUp = append(f.gateUp, load(random(2*s.ffn, s.hidden, 4, s.hasMin)))
		f.down = append(f.down, load(random(s.hidden, s.ffn, 4, s.hasMin)))
	}
	f.head = load(random(s.vocab, s.hidden, s.bits, false))
	ones := make([]float32, s.hidden)
	for i := range ones {
		ones[i] = 1
	}
	f.norm, _ = d.LoadVector(ones)
	f.layout = kernels.CacheLayout{DType: kernels.F16, Layers: s.layers, Heads: s.kv, KDim: s.dim, VDim: s.dim, BlockTokens: 16, BlocksPerPage: 1}
	f.layout.BlockBytes = 16 * f.layout.TokenBytes()
	f.layout.PageBytes = f.layout.BlockBytes
	var err error
	if f.pages, err = d.Alloc(int64(tokens/16) * f.layout.BlockBytes); err != nil {
		tb.Fatal(err)
	}
	f.invFreq = make([]float32, s.dim/2)
	return f
}

// step runs one step of S sequences of n tokens each, whose contexts are then context long, and samples
// from each sequence's last token.
func (f *fake) step(tb testing.TB, S, n, context int) {
	d, T, per := f.d, S*n, (context+15)/16
	var ids, positions, slots, tables, starts, contexts, last []int32
	starts = append(starts, 0)
	for s := range S {
		for i := range n {
			p := context - n + i
			ids = append(ids, int32(p*7%f.vocab))
			positions = append(positions, int32(p))
			slots = append(slots, int32(s*per*16+p))
		}
		for b := range per {
			tables = append(tables, int32(s*per+b))
		}
		starts, contexts, last = append(starts, int32((s+1)*n)), append(contexts, int32(context)), append(last, int32((s+1)*n-1))
	}
	up := func(v []int32) kernels.Ints { return d.Upload(kernels.Ints{Host: v}) }
	buf := f.scratch(tb, T)
	c := kernels.NewCarver(buf)
	x, h := c.Tensor(kernels.F32, T, f.hidden), c.Tensor(kernels.F32, T, f.hidden)
	qkv, q := c.Tensor(kernels.F32, T, (f.heads+2*f.kv)*f.dim), c.Tensor(kernels.F32, T, f.heads*f.dim)
	attn, gu, act := c.Tensor(kernels.F32, T, f.heads*f.dim), c.Tensor(kernels.F32, T, 2*f.ffn), c.Tensor(kernels.F32, T, f.ffn)
	cs, top, logits := c.Tensor(kernels.F32, T, f.dim), c.Tensor(kernels.F32, S, f.hidden), c.Tensor(kernels.F32, S, f.vocab)
	d.Begin()
	kv := kernels.KV{Pages: f.pages, Layout: &f.layout, Slots: up(slots), Tables: up(tables), Stride: per}
	rows := kernels.Ragged{Starts: up(starts), Contexts: up(contexts)}
	d.EmbedRows(x, f.head, up(ids), 1)
	d.CosSin(cs, kernels.Rotary{InvFreq: f.invFreq, Scale: 1}, up(positions))
	for l := range f.layers {
		kv.Layer = l
		d.RMSNorm(h, x, f.norm, 1e-5)
		d.Linear(qkv, h, f.qkv[l])
		d.RotaryStore(q, kv, qkv, kernels.RotaryParams{CosSin: cs})
		d.Attention(attn, q, kv, rows, kernels.AttentionParams{Scale: .125})
		d.LinearAdd(x, attn, f.o[l])
		d.RMSNorm(h, x, f.norm, 1e-5)
		d.Linear(gu, h, f.gateUp[l])
		d.GateMul(act, gu.ColRange(0, f.ffn), gu.ColRange(f.ffn, 2*f.ffn), kernels.SiLU)
		d.LinearAdd(x, act, f.down[l])
	}
	d.GatherRows(top, x, up(last))
	d.RMSNorm(top, top, f.norm, 1e-5)
	d.Linear(logits, top, f.head)
	out := make([]kernels.Sampled, S)
	params := make([]kernels.SampleParams, S)
	for i := range params {
		params[i] = kernels.SampleParams{Given: -1, Logprobs: -1}
	}
	d.Sample(out, logits, f.vocab, params)
	if err := d.End(); err != nil {
		tb.Fatal(err)
	}
	if out[0].NaN {
		tb.Fatal("not a number")
	}
}

var scratches = map[int64]kernels.Buffer{}

func (f *fake) scratch(tb testing.TB, T int) kernels.Buffer {
	n := int64(T)*int64(16*f.hidden+8*f.ffn+4*f.heads*f.dim)*4 + int64(f.vocab)*4*8 + 1<<16
	if b, ok := scratches[n]; ok {
		return b
	}
	b, err := f.d.Alloc(n)
	if err != nil {
		tb.Fatal(err)
	}
	scratches[n] = b
	return b
}

func cpuSeconds() float64 {
	var u syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return float64(u.Utime.Sec+u.Stime.Sec) + float64(u.Utime.Usec+u.Stime.Usec)/1e6
}

// BenchmarkSmallStep is a step of one small command: entry and end of the threads' work.
func BenchmarkSmallStep(b *testing.B) {
	d, err := cpu.Open(cpu.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer d.Close()
	x, err := d.LoadVector(make([]float32, 64))
	if err != nil {
		b.Fatal(err)
	}
	for range b.N {
		d.Begin()
		d.RMSNorm(x, x, x, 1)
		if err := d.End(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkStep reports tokens a second of whole steps on random weights, by wall clock and (tok/cpu-s)
// by processor time, which a busy machine disturbs less; and for decode the bytes of weights read a second
// beside what the machine reads.
func BenchmarkStep(b *testing.B) {
	threads, _ := strconv.Atoi(os.Getenv("OPENINFER_THREADS"))
	for _, s := range shapes {
		var f *fake
		for _, c := range []struct {
			name          string
			S, n, context int
		}{{"decode", 1, 1, 96}, {"decode-8", 8, 1, 96}, {"prefill-512", 1, 512, 512}, {"decode-at-2000", 1, 1, 2000}} {
			b.Run(s.name+"/"+c.name, func(b *testing.B) {
				if f == nil {
					d, err := cpu.Open(cpu.Options{Threads: threads})
					if err != nil {
						b.Fatal(err)
					}
					f = newFake(b, d, s, 4096)
				}
				f.step(b, c.S, c.n, c.context)
				b.ResetTimer()
				start, used := time.Now(), cpuSeconds()
				best := time.Hour
				for range b.N {
					t := time.Now()
					f.step(b, c.S, c.n, c.context)
					best = min(best, time.Since(t))
				}
				wall, used := time.Since(start).Seconds(), cpuSeconds()-used
				tokens := float64(b.N * c.S * c.n)
				b.ReportMetric(tokens/wall, "tok/s")
				b.ReportMetric(float64(c.S*c.n)/best.Seconds(), "best-tok/s")
				b.ReportMetric(tokens/used, "tok/cpu-s")
				if c.n == 1 {
					bw, err := cpu.ReadBandwidth(f.d.Info().Threads)
					if err != nil {
						b.Fatal(err)
					}
					b.ReportMetric(float64(b.N)*float64(f.bytes)/wall/1e9, "GB/s")
					b.ReportMetric(bw/1e9, "machine-GB/s")
				}
				b.ReportMetric(0, "ns/op")
			})
		}
		if f != nil {
			f.d.Close()
			clear(scratches)
		}
	}
}
