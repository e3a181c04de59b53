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
				var got []string
				for _, f := range res.Faults {
					got = append(got, fmt.Sprintf("%s %s:%d", f.Kind, f.File, f.SourceLine))
				}
				slices.Sort(got)
				got = slices.Compact(got)
				exp := slices.Clone(want[kernel])
				slices.Sort(exp)
				if !slices.Equal(got, exp) {
					t.Errorf("seed %d: reported %q, want %q", seed, got, exp)
					for _, f := range res.Faults {
						t.Log(f)
					}
				}
			}
		})
	}
}
