package cuda

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
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
			rows := shape.strips * 16
			weights := rows * (c.K*c.bits/8 + c.K/c.group*2)
			x, dst := c.M*c.K*4, c.M*rows*4
			read := weights + x
			if c.M > 1 { // prepared, and with the inverses
				x = roundUp(c.M, 8) * c.K * 2
				read = weights + x + roundUp(c.M*4, 32)
			}
			if want := uint64(read); got.DRAMReadBytes != want || got.DRAMWriteBytes != uint64(dst) {
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
	shape := full.decodeShape((M+7)/8, 1)
	if M == 1 {
		shape, _ = full.rowShape(1)
	}
	rows := blocks * shape.strips * 16
	w, err := d.Load(flat(rows, K, bits, group, true))
	if err != nil {
		t.Fatal(err)
	}
	p := &w.Impl.(weight)[0]
	p.cut = full.cut
	x, dst := activations(t, d, M, K), activations(t, d, M, rows)
	d.Begin()
	name := fmt.Sprintf("linear_decode_w%d_%d", bits, roundUp(M, 8))
	if M == 1 {
		name = fmt.Sprintf("linear_decode_w%d_row", bits)
		d.row("linear", p, shape, dst, source{x: x}, end{}, few{})
	} else {
		d.decode("linear", p, shape, dst, d.prepare("linear", p, x, 0), end{}, few{})
	}
	if err := d.End(); err != nil {
		t.Fatal(err)
	}
	return count(name), shape
}

// product computes rows [from, to) of x [rows, w.K] times w.
func product(t testing.TB, d *Device, w *kernels.Weight, x []float32, from, to int) []float32 {
	t.Helper()
	in, err := d.LoadVector(x[from*w.K : to*w.K])
	if err != nil {
		t.Fatal(err)
	}
	in.Rows, in.Cols, in.Stride = to-from, w.K, w.K
	out := activations(t, d, to-from, w.N)
	d.Begin()
	d.Linear(out, in, w)
	if err := d.End(); err != nil {
		t.Fatal(err)
	}
	got := make([]float32, (to-from)*w.N)
	if err := d.CopyOut(bytesOf(got), out.Buf); err != nil {
		t.Fatal(err)
	}
	return got
}

// worstError multiplies T random rows with w at once, wants the bits of a row alone and of some rows, and returns the worst error as
// a share of |x| |w| (Euclidean norms).
func worstError(t *testing.T, rnd *rand.Rand, d *Device, m kernels.Matrix, values [][]float64, T int) (worst float64) {
	t.Helper()
	w, err := d.Load(m)
	if err != nil {
		t.Fatal(err)
	}
	x := make([]float32, T*w.K)
	for i := range x {
		x[i] = float32(rnd.NormFloat64())
	}
	all := product(t, d, w, x, 0, T)
	for r := range T {
		var xx float64
		for _, v := range x[r*w.K : (r+1)*w.K] {
			xx += float64(v) * float64(v)
		}
		for n, row := range values {
			var want, ww float64
			for k, v := range row {
				want += v * float64(x[r*w.K+k])
				ww += v * v
			}
			worst = max(worst, math.Abs(float64(all[r*w.N+n])-want)/math.Sqrt(xx*ww))
		}
	}
	for _, rows := range [][2]int{{3, 4}, {5, 14}} {
		if got := product(t, d, w, x, rows[0], rows[1]); !slices.Equal(got, all[rows[0]*w.N:rows[1]*w.N]) {
			t.Errorf("%s: rows %v differ from those of %d", m.Name, rows, T)
		}
	}
	return worst
}

// TestHalfAccumulate: sums of 32 products in fp16 keep the promise of a row's bits, and add an error of about that of rounding x to
// fp16. Shares of |x| |w|, the worst of 800 products each:
//
//	float32 sums      4 bits by 128  1.8e-5    4 bits by 32  1.4e-5    8 bits by 64 with minima  1.5e-5
//	fp16 sums                        2.4e-5                  1.8e-5                              1.6e-5
func TestHalfAccumulate(t *testing.T) {
	for _, s := range []scheme{{bits: 4, group: 128, typ: kernels.F16, symmetric: true}, {bits: 4, group: 32, typ: kernels.BF16}, {bits: 8, group: 64, min: true, typ: kernels.F32}} {
		m, values := s.random(rand.New(rand.NewPCG(3, 4)), fmt.Sprintf("%+v", s), 40, 2048)
		var worst [2]float64
		for i, half := range []bool{false, true} {
			d, _ := counting(t, Options{WorkspaceBytes: 8 << 20, StepBytes: 1 << 10, HalfAccumulate: half})
			worst[i] = worstError(t, rand.New(rand.NewPCG(5, 6)), d, m, values, 20)
		}
		t.Logf("%+v: worst error %.2g of |x||w| with float32 sums, %.2g with fp16 sums", s, worst[0], worst[1])
		if worst[0] > 3e-5 || worst[1] > 5e-5 || worst[1] <= worst[0] {
			t.Errorf("%+v: worst error %.2g of |x||w| with float32 sums, %.2g with fp16 sums", s, worst[0], worst[1])
		}
	}
}

// TestManyParts: K cut in 8 parts of unequal length.
func TestManyParts(t *testing.T) {
	for _, s := range []scheme{{typ: kernels.BF16}, {typ: kernels.F16}, {bits: 4, group: 64, typ: kernels.F16}} {
		m, values := s.random(rand.New(rand.NewPCG(3, 4)), fmt.Sprintf("%+v", s), 20, 67*64)
		d, _ := counting(t, Options{WorkspaceBytes: 8 << 20, StepBytes: 1 << 10})
		if worst := worstError(t, rand.New(rand.NewPCG(5, 6)), d, m, values, 20); worst > 3e-5 {
			t.Errorf("%+v: worst error %.2g of |x||w|", s, worst)
		}
	}
}

// TestLoadOfLongRows: what reaches the card is what was packed, also where a few strips are more than the staging memory.
func TestLoadOfLongRows(t *testing.T) {
	const N = 70
	m := flat(N, maxInputs, 4, 16, false)
	m.ScaleType = kernels.F32
	m.Bias = make([]float32, N)
	m.Bias[N-1] = 3
	d, _ := counting(t, Options{WorkspaceBytes: 1 << 10, StepBytes: 1 << 10})
	w, err := d.Load(m)
	if err != nil {
		t.Fatal(err)
	}
	p := &w.Impl.(weight)[0]
	codes, scales := make([]byte, p.strips()*p.stripBytes()), make([]byte, p.strips()*p.scaleBytes())
	if err := p.pack(codes, scales, []kernels.Matrix{m}, 0, p.strips()); err != nil {
		t.Fatal(err)
	}
	if p.stripBytes()*chunkRows/stripRows+p.scaleBytes()*chunkRows/stripRows <= stagingBytes {
		t.Fatal("the case is too small")
	}
	for what, c := range map[string]struct {
		addr uint64
		want []byte
	}{"codes": {p.codes, codes}, "scales": {p.scales, scales}, "biases": {p.bias, bytesOf(m.Bias)}} {
		got := make([]byte, len(c.want))
		if err := d.CopyOut(got, kernels.Buffer{Addr: c.addr, Len: int64(len(got))}); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, c.want) {
			t.Errorf("%s on the card differ", what)
		}
	}
}

// TestPrefillCounts: one block of a prefill product with 128 tokens at K of 1,024. Its tensor cores are the limit: 128 outputs by 128
// tokens by 64 inputs are 4,096 clocks of a multiprocessor with float32 sums and 2,048 with fp16; all else must take less. Of a tile and warp, of which there are
// 8, ptxas makes 630 instructions for sm_86, 580 with fp16 sums: 0.31 and 0.57 of what can be issued in that time. PTX, which is counted
// here, has more, for it unpacks pairs of fp16 on its own.
func TestPrefillCounts(t *testing.T) {
	for _, half := range []bool{false, true} {
		const N, K, M, tiles = 128, 1024, 128, 1024 / 64
		d, count := counting(t, Options{WorkspaceBytes: 8 << 20, StepBytes: 1 << 10, HalfAccumulate: half})
		w, err := d.Load(flat(N, K, 4, 128, true))
		if err != nil {
			t.Fatal(err)
		}
		p := &w.Impl.(weight)[0]
		x, dst := activations(t, d, M, K), activations(t, d, M, N)
		full, err := packingOf(flat(34816, K, 4, 128, true), 34816)
		if err != nil {
			t.Fatal(err)
		}
		d.Begin()
		d.prefill("linear", p, full.prefillShape(M), dst, d.prepare("linear", p, x, 0), 0)
		if err := d.End(); err != nil {
			t.Fatal(err)
		}
		name, clocks := "linear_prefill_w4_128", 4096.0
		if half {
			name, clocks = name+"_half", 2048
		}
		got := count(name)
		if want := uint64(N*K/2 + N*K/128*2 + M*K*2 + M*4); got.DRAMReadBytes != want || got.DRAMWriteBytes != M*N*4 {
			t.Errorf("half %v: reads %d bytes and writes %d, want %d and %d", half, got.DRAMReadBytes, got.DRAMWriteBytes, want, M*N*4)
		}
		if got.MMA != N/16*M/8*K/16 {
			t.Errorf("half %v: %d mma, want %d", half, got.MMA, N/16*M/8*K/16)
		}
		if got.GlobalLoads.Efficiency < 0.99 || got.GlobalStores.Efficiency < 0.99 || got.BankConflicts != 0 {
			t.Errorf("half %v: sector efficiency %.3f of loads, %.3f of stores; %d bank conflicts", half, got.GlobalLoads.Efficiency, got.GlobalStores.Efficiency, got.BankConflicts)
		}
		clocks *= tiles
		issue, shared, l2 := float64(got.WarpInstructions)/4/clocks, float64(got.SharedWavefronts)/clocks, float64(got.GlobalLoads.Sectors*32)/clocks
		t.Logf("half %v: of the tensor cores' time: issue %.2f, shared memory %.2f; %.1f bytes a clock from L2", half, issue, shared, l2)
		if issue > 1 || shared > 0.5 || l2 > 12 {
			t.Errorf("half %v: of the tensor cores' time: issue %.2f, shared memory %.2f; %.1f bytes a clock from L2", half, issue, shared, l2)
		}
	}
}

// TestLookedUp: a table that is only looked up stays in the host's memory, and is not multiplied with.
func TestLookedUp(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 6))
	for _, s := range []scheme{{typ: kernels.BF16}, {typ: kernels.F32}, {bits: 4, group: 32, typ: kernels.F16, ord: true}} {
		const N, K = 37, 96
		d, _ := counting(t, Options{WorkspaceBytes: 1 << 20, StepBytes: 1 << 10})
		free := d.Info().MemoryBytes
		m, values := s.random(rnd, "table", N, K)
		m.LookedUp = true
		w, err := d.Load(m)
		if err != nil {
			t.Fatal(err)
		}
		if w.Bytes != 0 {
			t.Errorf("%+v: takes %d bytes of the card of %d", s, w.Bytes, free)
		}
		dst := activations(t, d, 3, K)
		d.Begin()
		d.EmbedRows(dst, w, d.Upload(kernels.Ints{Host: []int32{36, 0, 17}}), 1)
		if err := d.End(); err != nil {
			t.Fatal(err)
		}
		got := make([]float32, 3*K)
		if err := d.CopyOut(bytesOf(got), dst.Buf); err != nil {
			t.Fatal(err)
		}
		for i, id := range []int{36, 0, 17} {
			for k, v := range values[id] {
				at := k
				if m.Perm != nil {
					at = int(m.Perm[k])
				}
				if float64(got[i*K+at]) != float64(float32(v)) {
					t.Fatalf("%+v: id %d, value %d is %v, want %v", s, id, at, got[i*K+at], v)
				}
			}
		}
		d.Begin()
		d.Linear(activations(t, d, 1, N), activations(t, d, 1, K), w)
		if err := d.End(); err == nil || !strings.Contains(err.Error(), "table") {
			t.Errorf("%+v: multiplied with a table: %v", s, err)
		}
		d.Unload(w)
	}
}

// TestSmallWorkspace: a product whose x does not fit the workspace is made a few rows at a time, with the same bits, and one of
// which 8 rows do not fit is refused.
func TestSmallWorkspace(t *testing.T) {
	const N, K, T = 24, 512, 30
	m, _ := scheme{bits: 4, group: 32, typ: kernels.F16}.random(rand.New(rand.NewPCG(7, 8)), "w", N, K)
	var all []float32
	for _, bytes := range []int64{1 << 20, 20 << 10, 1 << 10} {
		d, _ := counting(t, Options{WorkspaceBytes: bytes, StepBytes: 1 << 10})
		w, err := d.Load(m)
		if err != nil {
			t.Fatal(err)
		}
		x, dst := activations(t, d, T, K), activations(t, d, T, N)
		d.Begin()
		d.Linear(dst, x, w)
		err = d.End()
		if bytes == 1<<10 {
			if err == nil || !strings.Contains(err.Error(), "1024") {
				t.Errorf("a workspace of %d bytes: %v", bytes, err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		got := make([]float32, T*N)
		if err := d.CopyOut(bytesOf(got), dst.Buf); err != nil {
			t.Fatal(err)
		}
		if all == nil {
			all = got
		} else if !slices.Equal(got, all) {
			t.Errorf("a workspace of %d bytes: other results", bytes)
		}
	}
}
