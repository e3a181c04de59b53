package cuda

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/kernels/cuda/driver"
	"github.com/openinfer-go/openinfer/kernels/cuda/ptx"
)

// counting returns a device on the interpreter and what its launches counted, by kernel, last one first.
func counting(t testing.TB, o Options) (*Device, func(kernel string) *ptx.Counters) {
	t.Helper()
	drv := driver.NewInterpreter(1)
	all := map[string]*ptx.Counters{}
	drv.Launched = func(kernel string, grid, block [3]int, r *ptx.Result) { all[kernel] = &r.Counters }
	d, err := Open(drv, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d, func(kernel string) *ptx.Counters {
		c := all[kernel]
		if c == nil {
			t.Fatalf("%s was not launched", kernel)
		}
		return c
	}
}

// flat is a matrix of n outputs whose codes follow a rule; nothing of it is kept.
func flat(n, k, bits, group int, symmetric bool) kernels.Matrix {
	m := kernels.Matrix{Name: "flat", N: n, K: k, Bits: bits, Group: group, Symmetric: symmetric, ScaleType: kernels.F16}
	m.Read = func(dst *kernels.Rows, row, rows int) error {
		dst.Reset(m, rows)
		for i := range dst.Codes {
			dst.Codes[i] = uint8((i*7 + row + i>>5) % (1 << bits))
		}
		for i := range dst.Scale {
			dst.Scale[i] = float32(1+(i+row)%5) / 64
			dst.Zero[i] = 1 << (bits - 1)
			if !symmetric {
				dst.Zero[i] = uint8((i + row) % (1 << bits))
			}
		}
		return nil
	}
	return m
}

// activations returns a tensor [rows, cols] of values that are all different.
func activations(t testing.TB, d *Device, rows, cols int) kernels.Tensor {
	t.Helper()
	v := make([]float32, rows*cols)
	for i := range v {
		v[i] = float32(i%251-125) / 16
	}
	x, err := d.LoadVector(v)
	if err != nil {
		t.Fatal(err)
	}
	x.Rows, x.Cols, x.Stride = rows, cols, cols
	return x
}

// card is the one that counts are held against: GeForce RTX 3090 at its data sheet's clock.
const (
	cardMPs       = 82
	cardClock     = 1.695e9
	cardBandwidth = 936e9
	bytesPerClock = cardBandwidth / cardMPs / cardClock // of a multiprocessor: 6.73
	// clocksPerMMA is how long a tensor core, of which a multiprocessor has four, takes for an m16n8k16 with float32 sums.
	clocksPerMMA = 32
)

// TestDecodeCounts: what a decode product costs at the shapes of the benchmark models, counted on one block (all are alike:
// TestBlocksAreAlike). The sums, for a tile of 16 outputs by 64 inputs of 4 bits with one fp16 scale an output, 544 bytes:
//
//	time at full bandwidth     544 / 6.73 = 81 clocks of a multiprocessor
//	instructions it may issue  4 schedulers * 81 = 323; ptxas makes 150 of a tile for sm_86 at M <= 8 and 190 at M <= 16,
//	                           and what is counted here, of PTX and with the block's beginning and end, is close to that
//	tensor cores               4 (8) mma * 32 / 4 = 32 (64) clocks of 81
//	shared memory              512 + 32 bytes of codes and scales and 1,024 (2,048) of x are read: 13 (21) clocks of 81
func TestDecodeCounts(t *testing.T) {
	for _, c := range []struct {
		what                 string
		N, K, bits, group, M int
	}{
		{"Qwen3.5-27B gate and up", 34816, 5120, 4, 128, 1},
		{"Qwen3.5-27B gate and up", 34816, 5120, 4, 128, 8},
		{"Qwen3.5-27B gate and up", 34816, 5120, 4, 128, 16},
		{"Qwen3.5-27B gate and up, groups of 32", 34816, 5120, 4, 32, 16},
		{"Qwen3.5-27B down", 5120, 17408, 4, 128, 8},
		{"Qwen3.5-9B down", 4096, 12288, 4, 128, 16},
		{"Phi-4 qkv", 7680, 5120, 4, 128, 16},
		{"Gemma 4 12B o", 3840, 4096, 4, 128, 1},
		{"Llama 3.2 1B o", 2048, 2048, 4, 128, 16},
		{"Qwen3 1.7B down", 2048, 6144, 4, 128, 1},
		{"Qwen3.5-27B head, 8 bits", 248320, 5120, 8, 128, 1},
	} {
		t.Run(fmt.Sprintf("%s, M %d", c.what, c.M), func(t *testing.T) {
			got, shape := countDecode(t, c.N, c.K, c.bits, c.group, c.M, 1)
			rows, padded := shape.strips*16, roundUp(c.M, 8)
			weights := rows * (c.K*c.bits/8 + c.K/c.group*2)
			x, dst := padded*c.K*2, c.M*rows*4
			if want := uint64(weights + x + roundUp(c.M*4, 32)); got.DRAMReadBytes != want || got.DRAMWriteBytes != uint64(dst) {
				t.Errorf("a block reads %d bytes and writes %d, want %d and %d", got.DRAMReadBytes, got.DRAMWriteBytes, want, dst)
			}
			all := float64(weights)/float64(rows)*float64(c.N) + float64(c.M*c.N*4)
			if moved, must := all+float64(x), all+float64(c.M*c.K*2); moved > 1.02*must {
				t.Errorf("%.0f bytes, must move %.0f: %.3f times as many", moved, must, moved/must)
			}
			if got.GlobalLoads.Efficiency < 0.99 || got.GlobalStores.Efficiency < 0.99 {
				t.Errorf("sector efficiency %.3f of loads, %.3f of stores", got.GlobalLoads.Efficiency, got.GlobalStores.Efficiency)
			}
			if got.BankConflicts != 0 {
				t.Errorf("%d bank conflicts", got.BankConflicts)
			}
			clocks := float64(weights) / bytesPerClock
			issue, tensor := float64(got.WarpInstructions)/4/clocks, float64(got.MMA)*clocksPerMMA/4/clocks
			t.Logf("of the time at full bandwidth: issue %.2f, tensor cores %.2f, shared memory %.2f; %.0f instructions a tile",
				issue, tensor, float64(got.SharedWavefronts)/clocks, float64(got.WarpInstructions)/float64(shape.strips*c.K/64))
			if issue > 0.85 || tensor > 0.85 {
				t.Errorf("of the time at full bandwidth, issue takes %.2f and tensor cores %.2f", issue, tensor)
			}
		})
	}
}

// TestBlocksAreAlike: counts of a decode product grow with its blocks exactly.
func TestBlocksAreAlike(t *testing.T) {
	one, _ := countDecode(t, 34816, 1024, 4, 128, 8, 1)
	three, shape := countDecode(t, 34816, 1024, 4, 128, 8, 3)
	x := uint64(8 * 1024 * 2)
	if three.WarpInstructions != 3*one.WarpInstructions || three.MMA != 3*one.MMA || three.SharedWavefronts != 3*one.SharedWavefronts ||
		three.DRAMReadBytes-x-32 != 3*(one.DRAMReadBytes-x-32) {
		t.Errorf("blocks of %d strips: one %+v, three %+v", shape.strips, one, three)
	}
}

// countDecode runs some blocks of the product of M tokens with a weight of N outputs and returns what they counted.
func countDecode(t *testing.T, N, K, bits, group, M, blocks int) (*ptx.Counters, decodeShape) {
	t.Helper()
	d, count := counting(t, Options{WorkspaceBytes: 8 << 20, StepBytes: 1 << 10})
	full, err := packingOf(flat(N, K, bits, group, true), N)
	if err != nil {
		t.Fatal(err)
	}
	shape := full.decodeShape((M + 7) / 8)
	rows := blocks * shape.strips * 16
	w, err := d.Load(flat(rows, K, bits, group, true))
	if err != nil {
		t.Fatal(err)
	}
	p := &w.Impl.(weight)[0]
	p.cut = full.cut
	x, dst := activations(t, d, M, K), activations(t, d, M, rows)
	d.Begin()
	d.decode("linear", p, shape, dst, d.prepare("linear", p, x), 0)
	if err := d.End(); err != nil {
		t.Fatal(err)
	}
	return count(fmt.Sprintf("linear_decode_w%d_%d", bits, roundUp(M, 8))), shape
}

// TestHalfAccumulate: sums of 32 products in fp16 keep the promise of a row's bits, and add an error of about that of rounding x to
// fp16. Shares of |x| |w| (Euclidean norms), the worst of 800 products each:
//
//	float32 sums      4 bits by 128  1.5e-5    4 bits by 32  1.7e-5    8 bits by 64 with minima  1.5e-5
//	fp16 sums                        2.3e-5                  1.9e-5                              1.9e-5
func TestHalfAccumulate(t *testing.T) {
	const N, K, T = 40, 2048, 20
	for _, s := range []scheme{{bits: 4, group: 128, typ: kernels.F16, symmetric: true}, {bits: 4, group: 32, typ: kernels.BF16}, {bits: 8, group: 64, min: true, typ: kernels.F32}} {
		rnd := rand.New(rand.NewPCG(3, 4))
		m, values := s.random(rnd, "w", N, K)
		var worst [2]float64
		for i, half := range []bool{false, true} {
			d, _ := counting(t, Options{WorkspaceBytes: 8 << 20, StepBytes: 1 << 10, HalfAccumulate: half})
			w, err := d.Load(m)
			if err != nil {
				t.Fatal(err)
			}
			x := make([]float32, T*K)
			for i := range x {
				x[i] = float32(rnd.NormFloat64())
			}
			run := func(from, to int) []float32 {
				in, err := d.LoadVector(x[from*K : to*K])
				if err != nil {
					t.Fatal(err)
				}
				in.Rows, in.Cols, in.Stride = to-from, K, K
				out := activations(t, d, to-from, N)
				d.Begin()
				d.Linear(out, in, w)
				if err := d.End(); err != nil {
					t.Fatal(err)
				}
				got := make([]float32, (to-from)*N)
				if err := d.CopyOut(bytesOf(got), out.Buf); err != nil {
					t.Fatal(err)
				}
				return got
			}
			all := run(0, T)
			for r := range T {
				var xx float64
				for _, v := range x[r*K : (r+1)*K] {
					xx += float64(v) * float64(v)
				}
				for n, row := range values {
					var want, ww float64
					for k, v := range row {
						want += v * float64(x[r*K+k])
						ww += v * v
					}
					worst[i] = max(worst[i], math.Abs(float64(all[r*N+n])-want)/math.Sqrt(xx*ww))
				}
			}
			for _, rows := range [][2]int{{3, 4}, {5, 14}} {
				if got := run(rows[0], rows[1]); !slices.Equal(got, all[rows[0]*N:rows[1]*N]) {
					t.Errorf("%+v, half %v: rows %v differ from those of %d", s, half, rows, T)
				}
			}
		}
		t.Logf("%+v: worst error %.2g of |x||w| with float32 sums, %.2g with fp16 sums", s, worst[0], worst[1])
		if worst[0] > 3e-5 || worst[1] > 5e-5 || worst[1] <= worst[0] {
			t.Errorf("%+v: worst error %.2g of |x||w| with float32 sums, %.2g with fp16 sums", s, worst[0], worst[1])
		}
	}
}
