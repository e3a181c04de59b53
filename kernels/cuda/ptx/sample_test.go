package ptx

import "testing"

// TestSampleScalesToTheGrid runs a product of which every block reads rows of A that its row of blocks shares, and columns of B
// that its column shares, as a whole and as a sample.
func TestSampleScalesToTheGrid(t *testing.T) {
	const n = 512 // tiles of 64
	r := load(t, "cutlass.ptx")
	k, err := r.in.Kernel("gemm_bf16")
	if err != nil {
		t.Fatal(err)
	}
	run := func(sample [3]int) Counters {
		l := Launch{Grid: [3]int{n / 64, n / 64, 1}, Block: x(128), SharedBytes: 64 << 10, Sample: sample}
		for _, a := range []any{r.alloc(4 * n * n), r.alloc(make([]uint16, n*n)), r.alloc(make([]uint16, n*n)), r.alloc(make([]float32, n*n)),
			int32(n), int32(n), int32(n), float32(1), float32(1)} {
			l.Args = append(l.Args, raw(a))
		}
		res, err := k.Launch(l)
		if err != nil {
			t.Fatal(err)
		}
		return r.clean(res).Counters
	}
	sample := [3]int{2, 3, 1}
	all, some := run([3]int{}), run(sample)
	scale := func(shared [3]bool) float64 {
		f := 1.0
		for d, ran := range sample {
			if !shared[d] {
				f *= float64([3]int{n / 64, n / 64, 1}[d]) / float64(ran)
			}
		}
		return f
	}
	if got := float64(some.LaneInstructions) * scale([3]bool{}); got != float64(all.LaneInstructions) {
		t.Errorf("%v lane instructions by the sample, %d by all blocks", got, all.LaneInstructions)
	}
	var read, written float64
	for _, r := range some.Reach {
		read, written = read+scale(r.Shared)*float64(r.ReadBytes), written+scale(r.Shared)*float64(r.WriteBytes)
	}
	if read != float64(all.DRAMReadBytes) || written != float64(all.DRAMWriteBytes) {
		t.Errorf("%v bytes read and %v written by the sample, %d and %d by all blocks", read, written, all.DRAMReadBytes, all.DRAMWriteBytes)
	}
	if len(all.Reach) > 0 {
		t.Errorf("reach %v without a sample", all.Reach)
	}
}
