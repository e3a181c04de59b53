package cuda

import (
	"fmt"
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

// deltaRun has some tokens; in 0 begins with zeros, other states are counted from 1.
type deltaRun struct{ tokens, in, out int }

// deltaCase is one call of GatedDelta.
type deltaCase struct {
	keyHeads, heads, kDim, vDim int
	chunked                     bool
	gap                         int // between rows
	runs                        []deltaRun
	rows                        func(row []float32, t int) // changes what a token reads
}

// both runs the case on d and on ref and returns outputs and arena of each.
func (c deltaCase) both(t testing.TB, d *Device) (got, want [2][]float32) {
	t.Helper()
	rnd := rand.New(rand.NewPCG(3, 4))
	l := kernels.StateLayout{Layers: 2, Heads: c.heads, KDim: c.kDim, VDim: c.vDim, ConvChannels: 8, ConvColumns: 3}
	l.PageBytes = 3*l.UnitBytes() + 32
	states := 0
	starts, in, out := []int32{0}, []int32{}, []int32{}
	for _, r := range c.runs {
		states = max(states, r.in, r.out)
	}
	pages := rnd.Perm(states*l.StatePages() + 2)
	at := slices.Index(pages, 0)
	pages[at], pages[len(pages)-1] = pages[len(pages)-1], 0
	table := func(list []int32, state int) []int32 {
		for i := range l.StatePages() {
			if state == 0 {
				list = append(list, -int32(i)<<20)
			} else {
				list = append(list, int32(pages[(state-1)*l.StatePages()+i]))
			}
		}
		return list
	}
	for _, r := range c.runs {
		starts = append(starts, starts[len(starts)-1]+int32(r.tokens))
		in, out = table(in, r.in), table(out, r.out)
	}
	T, width := int(starts[len(starts)-1]), 2*c.keyHeads*c.kDim+c.heads*(c.vDim+2)
	stride := width + c.gap
	random := func(n int) []float32 {
		v := make([]float32, n)
		for i := range v {
			v[i] = float32(rnd.NormFloat64())
		}
		return v
	}
	x, arena := random(T*stride), random(len(pages)*int(l.PageBytes/4))
	rate, bias := random(c.heads), random(c.heads)
	for i := range rate {
		rate[i] = float32(math.Exp(float64(rate[i])))
	}
	if c.rows != nil {
		for i := range T {
			c.rows(x[i*stride:][:width], i)
		}
	}
	results := [2][2][]float32{}
	for i, dev := range []kernels.Device{d, ref.Open()} {
		load := func(v []float32, rows, stride int) kernels.Tensor {
			b, err := dev.Alloc(int64(len(v)) * 4)
			if err != nil {
				t.Fatal(err)
			}
			bytes := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), len(v)*4)
			if b.Host != nil {
				copy(b.Host, bytes)
			} else if err := d.CopyIn(b, bytes); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { dev.Free(b) })
			return kernels.Tensor{Buf: b, Rows: rows, Cols: stride, Stride: stride}
		}
		rows, dst := load(x, T, stride), load(make([]float32, T*c.heads*c.vDim), T, c.heads*c.vDim)
		memory := load(arena, 1, len(arena))
		qkv := width - 2*c.heads
		p := kernels.DeltaParams{KeyHeads: c.keyHeads, Rate: load(rate, 1, c.heads), DtBias: load(bias, 1, c.heads), Eps: 1e-6, Chunked: c.chunked}
		dev.Begin()
		up := func(v []int32) kernels.Ints { return dev.Upload(kernels.Ints{Host: v}) }
		dev.GatedDelta(dst, rows.ColRange(0, qkv), rows.ColRange(qkv, qkv+c.heads), rows.ColRange(qkv+c.heads, width), p,
			kernels.State{Pages: memory.Buf, Layout: &l, Layer: 1, Runs: kernels.Runs{Starts: up(starts), In: up(in), Out: up(out)}})
		if err := dev.End(); err != nil {
			t.Fatal(err)
		}
		for j, m := range []kernels.Tensor{dst, memory} {
			if m.Buf.Host != nil {
				results[i][j] = slices.Clone(m.Float32())
				continue
			}
			v := make([]float32, m.Rows*m.Cols)
			if err := d.CopyOut(unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), len(v)*4), m.Buf); err != nil {
				t.Fatal(err)
			}
			results[i][j] = v
		}
	}
	return results[0], results[1]
}

// worst is the largest difference, relative to 1 + the largest magnitude.
func worst(got, want []float32) float64 {
	var diff, size float64
	for i, w := range want {
		size = max(size, math.Abs(float64(w)))
		if d := math.Abs(float64(got[i]) - float64(w)); !(d <= diff) {
			diff = d
		}
	}
	return diff / (1 + size)
}

func TestGatedDelta(t *testing.T) {
	// A snapshot that two runs begin with, strangers between, a run without tokens, one in place.
	runs := []deltaRun{{5, 0, 1}, {1, 6, 6}, {0, 2, 2}, {9, 1, 3}, {17, 0, 4}, {3, 3, 3}, {1, 5, 2}}
	for i, c := range []deltaCase{
		{2, 4, 128, 128, false, 3, runs, nil},
		{1, 1, 128, 48, false, 3, runs, nil},
		{1, 2, 129, 21, false, 3, runs, nil},
		{2, 2, 256, 16, false, 3, runs, nil},
		{1, 3, 7, 5, false, 3, runs, nil},
		{1, 2, 33, 100, false, 3, runs, nil},
	} {
		t.Run(fmt.Sprintf("%d,%d,%dx%d", c.keyHeads, c.heads, c.kDim, c.vDim), func(t *testing.T) {
			d := open(t, uint64(i))
			defer d.Close()
			got, want := c.both(t, d)
			for j, what := range []string{"outputs", "states"} {
				if e := worst(got[j], want[j]); !(e < 2e-7) {
					t.Errorf("%s differ by %.3g", what, e)
				}
			}
		})
	}
}

// TestDeltaChunks takes runs of whole chunks, of less than one and of both, in chains and not.
func TestDeltaChunks(t *testing.T) {
	runs := []deltaRun{{50, 0, 1}, {1, 6, 6}, {0, 2, 2}, {16, 1, 3}, {19, 0, 4}, {3, 3, 3}, {32, 5, 2}, {33, 3, 3}}
	for i, c := range []deltaCase{
		{1, 2, 128, 80, true, 3, runs, nil},
		{1, 1, 128, 16, true, 0, runs, nil},
	} {
		t.Run(fmt.Sprintf("%d,%d,%dx%d", c.keyHeads, c.heads, c.kDim, c.vDim), func(t *testing.T) {
			d := open(t, uint64(i))
			defer d.Close()
			got, want := c.both(t, d)
			for j, what := range []string{"outputs", "states"} {
				e := worst(got[j], want[j])
				if !(e < 2e-7) {
					t.Errorf("%s differ by %.3g", what, e)
				}
			}
			// A workspace of three chunks gives the same bits.
			d.workspaceBytes = 3 * int64(c.keyHeads*deltaLengths+c.heads*deltaMix) * 4
			again, _ := c.both(t, d)
			for j, what := range []string{"outputs", "states"} {
				if !slices.Equal(again[j], got[j]) {
					t.Errorf("%s depend on the workspace", what)
				}
			}
		})
	}
}

// TestDeltaChunksExtremes takes chunks through gates and keys that products of many tokens could get wrong.
func TestDeltaChunksExtremes(t *testing.T) {
	const K, V, a, b = 128, 16, 2*128 + 16, 2*128 + 16 + 1
	key := make([]float32, K)
	for i := range key {
		key[i] = float32(i%7) - 3.3
	}
	for i, c := range []struct {
		name string
		rows func(row []float32, t int)
	}{
		{"decays that vanish", func(row []float32, t int) { row[a] = 200 }},
		{"a decay that vanishes among small ones", func(row []float32, t int) {
			row[a] = -6
			if t%11 == 5 {
				row[a] = 1e6
			}
		}},
		{"no decay, beta 1, one key", func(row []float32, t int) {
			row[a], row[b] = -30, 30
			copy(row[K:], key)
		}},
		{"no decay, keys that are nearly one, turned round", func(row []float32, t int) {
			row[a] = -12
			for i, k := range key {
				row[K+i] = (k + 1e-3*row[K+i]) * float32(1-2*(t%2))
			}
		}},
		{"beta near 0 and 1", func(row []float32, t int) { row[b] = float32(40*(t%2) - 20) }},
		{"gates out of range", func(row []float32, t int) {
			row[a], row[b] = []float32{1e30, -1e30, 100, -100}[t%4], []float32{-1e30, 1e30, -100}[t%3]
		}},
		{"keys and queries without length, values of all sizes", func(row []float32, t int) {
			for i := range 2 * K {
				row[i] *= []float32{0, 1e-5, 1e15, 1}[t%4]
			}
			for i := range V {
				row[2*K+i] *= float32(math.Pow(10, float64(i-8)))
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := open(t, uint64(i))
			defer d.Close()
			got, want := deltaCase{1, 1, K, V, true, 0, []deltaRun{{37, 0, 1}}, c.rows}.both(t, d)
			for j, what := range []string{"outputs", "states"} {
				if e := worst(got[j], want[j]); !(e < 5e-7) {
					t.Errorf("%s differ by %.3g", what, e)
				}
			}
		})
	}
}

// TestDeltaChunksNotANumber wants what is not a number to stay in its column, or its head, and not to go back in time.
func TestDeltaChunksNotANumber(t *testing.T) {
	const K, V, T, bad = 128, 16, 40, 21
	nan := float32(math.NaN())
	run := func(at int, v float32) []float32 {
		d := open(t, 1)
		defer d.Close()
		got, _ := deltaCase{1, 1, K, V, true, 0, []deltaRun{{T, 0, 1}}, func(row []float32, t int) {
			if t == bad && at >= 0 {
				row[at] = v
			}
		}}.both(t, d)
		return got[0]
	}
	want := run(-1, 0)
	for _, c := range []struct {
		what          string
		at            int
		v             float32
		column, after bool // only one column, and what follows, are spoiled
	}{
		{"query", 3, nan, false, false},
		{"key", K + 3, nan, false, true},
		{"value", 2*K + 5, nan, true, true},
		{"infinite value", 2*K + 5, float32(math.Inf(1)), true, true},
		{"decay", 2*K + V, nan, false, true},
		{"beta", 2*K + V + 1, nan, false, true},
	} {
		for i, got := range run(c.at, c.v) {
			t2, column := i/V, i%V
			spoiled := t2 == bad || t2 > bad && c.after
			if c.column && column != 5 {
				spoiled = false
			}
			if spoiled != (got != got) || !spoiled && got != want[i] {
				t.Fatalf("%s: token %d, column %d is %v, %v without it", c.what, t2, column, got, want[i])
			}
		}
	}
}

// TestDeltaChunksCost counts what makes Info.ChunkedDelta true. A cycle of a quarter of a multiprocessor issues one
// instruction; on a GeForce card a product of 16x8x16 takes 32 of them when it is accumulated in float32, and 16 in fp16.
func TestDeltaChunksCost(t *testing.T) {
	const T, warps = 64, 8
	count := func(chunked bool) (n map[string]ptx.Counters) {
		d := open(t, 1)
		defer d.Close()
		n = map[string]ptx.Counters{}
		d.drv.(*driver.Interpreter).Launched = func(kernel string, grid, block [3]int, r *ptx.Result) { n[kernel] = r.Counters }
		deltaCase{1, 1, 128, 128, chunked, 6, []deltaRun{{T, 1, 2}}, nil}.both(t, d)
		for kernel, c := range n {
			if c.BankConflicts > 0 {
				t.Errorf("%s has %d bank conflicts", kernel, c.BankConflicts)
			}
		}
		return n
	}
	n := count(true)
	mix, chunks, steps := n["delta_mix"], n["delta_chunks"], count(false)["delta_steps_128"]
	if want := uint64(warps * T / deltaChunk * 3 * 52); chunks.MMA != want {
		t.Errorf("%d products, want %d", chunks.MMA, want)
	}
	tensor := chunks.MMA / 3 * (32 + 2*16)
	t.Logf("a token of a head: %d cycles of tensor cores and %d instructions beside them, %d instructions to prepare; token by token %d",
		tensor/T, chunks.WarpInstructions/T, mix.WarpInstructions/T, steps.WarpInstructions/T)
	if max(tensor, chunks.WarpInstructions)+mix.WarpInstructions > steps.WarpInstructions*2/3 {
		t.Errorf("chunks gain less than half")
	}
	const moved = 128*128*4 + T*(3*128+2)*4
	if chunks.DRAMReadBytes > moved*108/100 || chunks.DRAMWriteBytes > 128*128*4+T*128*4 {
		t.Errorf("chunks read %d bytes and write %d; state and inputs are %d", chunks.DRAMReadBytes, chunks.DRAMWriteBytes, moved)
	}
}

// TestDecodeMovesStateOnce counts what a step of decode rows moves at the geometry of Qwen3.5-27B.
func TestDecodeMovesStateOnce(t *testing.T) {
	d := open(t, 1)
	defer d.Close()
	var n ptx.Counters
	d.drv.(*driver.Interpreter).Launched = func(kernel string, grid, block [3]int, r *ptx.Result) { n = r.Counters }
	c := deltaCase{keyHeads: 16, heads: 48, kDim: 128, vDim: 128, runs: []deltaRun{{1, 1, 2}}}
	c.both(t, d)
	const state, inputs = 48 * 128 * 128 * 4, (2*16*128+48*128+4*48)*4 + 48*128*4
	t.Logf("%d bytes read, %d written for a state of %d; loads %.4f, stores %.4f of sectors used; %d warp instructions, %v",
		n.DRAMReadBytes, n.DRAMWriteBytes, state, n.GlobalLoads.Efficiency, n.GlobalStores.Efficiency, n.WarpInstructions, n.ByClass)
	if moved := n.DRAMReadBytes + n.DRAMWriteBytes; float64(moved) > 1.01*(2*state+inputs) {
		t.Errorf("%d bytes move, %d must", moved, 2*state+inputs)
	}
	// Beyond the state, a block of 512 sectors takes 34 of keys, queries and values and 9 of gates, page tables and runs.
	used := float64(n.GlobalLoads.Bytes+n.GlobalStores.Bytes) / 32 / float64(n.GlobalLoads.Sectors+n.GlobalStores.Sectors)
	if n.GlobalLoads.Sectors > state/32*109/100 || used < 0.99 || n.GlobalStores.Efficiency < 1 || n.BankConflicts > 0 {
		t.Errorf("loads take %d sectors for a state of %d, %.4f of all sectors are used, %.3f of stores'; %d bank conflicts",
			n.GlobalLoads.Sectors, state/32, used, n.GlobalStores.Efficiency, n.BankConflicts)
	}
	// 32 for the state of two warps, and 13: a card has to have the state under way before it waits for anything else.
	if blocks := uint64(4 * 48); n.GlobalLoads.Requests > 45*blocks {
		t.Errorf("%d requests for loads by a block", n.GlobalLoads.Requests/blocks)
	}
	vectors := 0
	for _, l := range n.Lines {
		if l.Global.Requests > 0 && l.Global.Bytes/l.Global.Requests == 512 {
			vectors++
			if l.Global.Efficiency < 1 {
				t.Errorf("%s:%d uses %.3f of its sectors", l.File, l.SourceLine, l.Global.Efficiency)
			}
		}
	}
	if vectors != 32 {
		t.Errorf("%d instructions move 512 bytes of the state each, want 16 loads and 16 stores", vectors)
	}
}
