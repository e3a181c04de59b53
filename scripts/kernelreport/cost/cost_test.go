package cost

import (
	"math"
	"testing"

	"github.com/openinfer-go/openinfer/kernels/cuda/ptx"
)

func TestSpreadStaysWithinGridAndBudget(t *testing.T) {
	for _, c := range []struct {
		grid   [3]int
		blocks int
		want   [3]int
	}{
		{[3]int{1, 1, 1}, 2, [3]int{1, 1, 1}},
		{[3]int{1000, 1, 1}, 2, [3]int{2, 1, 1}},
		{[3]int{1000, 1, 1}, 16, [3]int{16, 1, 1}},
		{[3]int{1000, 3, 1}, 64, [3]int{32, 2, 1}},
		{[3]int{2, 8, 32}, 8, [3]int{2, 2, 2}},
		{[3]int{3, 1, 1}, 64, [3]int{3, 1, 1}},
	} {
		if got := spread(c.grid, c.blocks); got != c.want {
			t.Errorf("%d blocks of %v: %v, want %v", c.blocks, c.grid, got, c.want)
		}
	}
}

// A launch of 820 blocks of 4 warps, each of which reads 1 MB that is its own and 4 MB that all read.
func streaming() *Launch {
	return &Launch{Entry: "k", Grid: [3]int{820, 1, 1}, Block: [3]int{128, 1, 1}, SharedBytes: 48 << 10, ran: [3]int{2, 1, 1},
		Counters: ptx.Counters{Blocks: 2, AsyncMostBytes: 2 * 36 << 10, WarpInstructions: 8000, ByClass: map[string]uint64{"integer": 4000}, MMAByKind: map[string]uint64{"m16n8k16.f32.f16": 100},
			Reach: []ptx.Reach{{ReadBytes: 2e6}, {Shared: [3]bool{true}, ReadBytes: 4e6}}}}
}

func TestPredictionFollowsTheFormula(t *testing.T) {
	e := predict(streaming(), Entry{Registers: 64})
	near := func(what string, got, want float64) {
		t.Helper()
		if math.Abs(got-want) > 1e-9*math.Abs(want) {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	if e.BlocksMP != 2 { // of 49 KiB shared memory each
		t.Errorf("%d blocks on a multiprocessor", e.BlocksMP)
	}
	near("touched", e.Unique, 820e6+4e6)
	near("DRAM", e.DRAM, 820e6+5*4e6) // 164 at a time: five waves read again what does not fit half of L2
	near("memory", e.bounds[byMemory], e.DRAM/(936e9*0.91))
	near("issue", e.bounds[byIssue], 10*1000/0.8/1.695e9) // 10 blocks a multiprocessor, 4,000 warp instructions each, 4 a cycle
	near("pipe", e.bounds[byPipe], 10*1000/0.8/1.695e9)   // 2,000 of them on units of 64 lanes
	near("mma", e.bounds[byMatrix], 820*50*4096/(71e12*0.9))
	if e.By != byMemory {
		t.Errorf("limited by %v", e.By)
	}
	near("time", e.Seconds, e.bounds[byMemory]+2e-6)

	// 1 MB that each block of two on a multiprocessor loads by itself, while 36 KiB are on their way.
	l := streaming()
	l.Entry = "linear_decode_w4_row"
	l.Counters.GlobalLoads.Sectors, l.Counters.AsyncLoads.Sectors = 2*(1e6+3e6)/32, 2*3e6/32
	rows := predict(l, Entry{Registers: 64})
	near("late", rows.Late, 164*1e6/2e12+3*300e-9-164*36*1024/(936e9*0.91)-650e-9)
	near("time with it", rows.Seconds, rows.bounds[rows.By]+rows.Late+2e-6)
}
