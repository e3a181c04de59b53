package ptx

import (
	"syscall"
	"testing"
	"time"
)

// Millions of lane instructions a second of processor time, checks and counters included. Two
// processors do twice as much: blocks share nothing but memory.

func cpuSeconds() float64 {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return (time.Duration(u.Utime.Nano()) + time.Duration(u.Stime.Nano())).Seconds()
}

func benchmark(b *testing.B, file, kernel string, grid, block [3]int, shared int, args func(*rig) []any) {
	r := load(b, file)
	a := args(r)
	var lanes uint64
	start := cpuSeconds()
	for b.Loop() {
		res := r.run(kernel, grid, block, shared, 1, a...)
		lanes += res.Counters.LaneInstructions
		if len(res.Faults) > 0 {
			b.Fatal(res.Faults[0])
		}
	}
	b.ReportMetric(float64(lanes)/1e6/(cpuSeconds()-start), "Mlane/cpu-s")
}

func BenchmarkMemory(b *testing.B) {
	benchmark(b, "basic.ptx", "saxpy", x(2000), x(256), 0, func(r *rig) []any {
		n := 2000 * 256
		return []any{r.alloc(make([]float32, n)), r.alloc(make([]float32, n)), float32(2), int32(n)}
	})
}

func BenchmarkArithmetic(b *testing.B) {
	benchmark(b, "basic.ptx", "paths", x(400), x(256), 0, func(r *rig) []any {
		n := 400 * 256
		xs := make([]int32, n)
		for i := range xs {
			xs[i] = int32(i / 64 % 1000)
		}
		return []any{r.alloc(4 * n), r.alloc(xs), int32(n)}
	})
}

func BenchmarkTensor(b *testing.B) {
	benchmark(b, "cutlass.ptx", "gemm_f16", [3]int{4, 4, 1}, x(128), 64<<10, func(r *rig) []any {
		const n = 256
		return []any{r.alloc(4 * n * n), r.alloc(make([]uint16, n*n)), r.alloc(make([]uint16, n*n)), r.alloc(make([]float32, n*n)),
			int32(n), int32(n), int32(n), float32(1), float32(0)}
	})
}
