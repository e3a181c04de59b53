package ptx

import (
	"math"
	"testing"
)

// TestCutlassKernelsGiveTheProduct runs kernels that CUTLASS's headers generate: multi-stage
// cp.async with zero fill at the edges, swizzled shared memory, ldmatrix and mma.
func TestCutlassKernelsGiveTheProduct(t *testing.T) {
	for _, size := range [][3]int{{128, 128, 176}, {100, 72, 176}} {
		cutlassProduct(t, size[0], size[1], size[2])
	}
}

func cutlassProduct(t *testing.T, m, n, k int) {
	const alpha, beta = 0.5, 2
	va := func(i, j int) float64 { return float64((i*7+j*3)%15 - 7) }
	vb := func(i, j int) float64 { return float64((i*5+j*11)%13 - 6) }
	for _, c := range []struct {
		kernel string
		bytes  int
		colB   bool
		enc    func(float64) uint64
	}{
		{"gemm_f16", 2, false, func(x float64) uint64 { return fp16.narrow(x, rn) }},
		{"gemm_bf16", 2, true, func(x float64) uint64 { return bf16.narrow(x, rn) }},
		{"gemm_tf32", 4, true, func(x float64) uint64 { return fp32.narrow(x, rn) }},
		{"gemm_f16_k8", 2, true, func(x float64) uint64 { return fp16.narrow(x, rn) }},
		{"gemm_s8", 1, true, func(x float64) uint64 { return uint64(int64(x)) }},
	} {
		for seed := range uint64(2) {
			r := load(t, "cutlass.ptx")
			a, b := make([]byte, m*k*c.bytes), make([]byte, k*n*c.bytes)
			bias := make([]float32, m*n)
			for i := range m {
				for j := range k {
					storeBytes(a[(i*k+j)*c.bytes:], uint64(c.bytes), c.enc(va(i, j)))
				}
			}
			for i := range k {
				for j := range n {
					at := i*n + j
					if c.colB {
						at = j*k + i
					}
					storeBytes(b[at*c.bytes:], uint64(c.bytes), c.enc(vb(i, j)))
				}
			}
			for i := range bias {
				bias[i] = float32(i % 5)
			}
			d := r.alloc(4 * m * n)
			res := r.run(c.kernel, [3]int{2, 2, 1}, x(128), 64<<10, seed, d, r.alloc(a), r.alloc(b), r.alloc(bias),
				int32(m), int32(n), int32(k), float32(alpha), float32(beta))
			// At an edge CUTLASS leaves rows of a tile unwritten and multiplies them all the same;
			// what comes of it is not stored.
			edge := m%64 != 0 || n%64 != 0
			for _, f := range res.Faults {
				if !edge || f.Kind != "uninitialized" {
					t.Errorf("%s: %v", c.kernel, f)
				}
			}
			worst := 0.0
			for i, got := range read[float32](r, d, m*n) {
				sum := 0.0
				for j := range k {
					sum += va(i/n, j) * vb(j, i%n)
				}
				worst = max(worst, math.Abs(float64(got)-(alpha*sum+beta*float64(bias[i]))))
			}
			if worst != 0 { // small integers: every sum is exact
				t.Errorf("%s seed %d: off by %v", c.kernel, seed, worst)
			}
			if res.Counters.MMA == 0 || res.Counters.BankConflicts*20 > res.Counters.SharedWavefronts {
				t.Errorf("%s: %d mma, %d bank conflicts in %d wavefronts", c.kernel, res.Counters.MMA, res.Counters.BankConflicts, res.Counters.SharedWavefronts)
			}
		}
	}
}
