package ptx

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// TestPlantedFaultsAreFoundWhereTheyAre runs every kernel of faults.cu and compares what is
// reported with the FAULT comments of its source.
func TestPlantedFaultsAreFoundWhereTheyAre(t *testing.T) {
	text, err := os.ReadFile("testdata/faults.cu")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][]string{}
	kernel, order := "", []string(nil)
	for i, line := range strings.Split(string(text), "\n") {
		if _, after, ok := strings.Cut(line, "__global__ void "); ok {
			kernel, _, _ = strings.Cut(after, "(")
			order = append(order, kernel)
		}
		if _, after, ok := strings.Cut(line, "// FAULT "); ok {
			for _, kind := range strings.Fields(after) {
				want[kernel] = append(want[kernel], fmt.Sprintf("%s faults.cu:%d", kind, i+1))
			}
		}
	}
	if len(order) < 20 {
		t.Fatalf("%d kernels found in faults.cu", len(order))
	}
	for _, kernel := range order {
		if strings.HasSuffix(kernel, "_fixed") != (want[kernel] == nil) {
			t.Errorf("%s: name and FAULT comments disagree", kernel)
		}
		t.Run(kernel, func(t *testing.T) {
			for seed := range uint64(3) {
				r := load(t, "faults.ptx")
				xs := make([]float32, 1024)
				for i := range xs {
					xs[i] = float32(i%17) + 1
				}
				var y uint64
				if kernel == "uninitialized" {
					y = r.alloc(4 * 640)
				} else {
					y = r.alloc(make([]float32, 640))
				}
				grid := x(1)
				switch {
				case kernel == "overrun":
					grid = x(11)
				case strings.HasPrefix(kernel, "block"):
					grid = x(2)
				}
				res := r.run(kernel, grid, x(64), 0, seed, y, r.alloc(xs), int32(640))
				hit := map[string]bool{}
				for _, f := range res.Faults {
					// A race has two ends; the mark stands at one of them.
					ends := []string{fmt.Sprintf("%s faults.cu:%d", f.Kind, f.SourceLine), fmt.Sprintf("%s faults.cu:%d", f.Kind, f.OtherSourceLine)}
					known := false
					for _, e := range ends {
						if slices.Contains(want[kernel], e) {
							hit[e], known = true, true
						}
					}
					if !known || !strings.HasSuffix(f.File, "faults.cu") {
						t.Errorf("seed %d: unexpected %v", seed, f)
					}
				}
				for _, e := range want[kernel] {
					if !hit[e] {
						t.Errorf("seed %d: %s is not reported", seed, e)
					}
				}
			}
		})
	}
}
