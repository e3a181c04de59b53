package cuda

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/kernels/cuda/driver"
)

// layers issues what decode steps do again and again: launches of one shape, with arrays of this step.
func layers(d *Device, x, y, w kernels.Tensor, ids []int32) {
	rows := d.Upload(kernels.Ints{Host: ids})
	for range 4 {
		d.GatherRows(y.RowRange(0, len(ids)), x, rows)
		d.RMSNorm(y.RowRange(0, len(ids)), y.RowRange(0, len(ids)), w, 1e-6)
		d.GateMul(y.RowRange(0, len(ids)), x.RowRange(0, len(ids)), y.RowRange(0, len(ids)), kernels.SiLU)
		d.RMSNormAdd(x.RowRange(0, len(ids)), y.RowRange(0, len(ids)), w, 1e-6, 0.5)
	}
}

func withGraphs(t *testing.T, no bool) (d *Device, x, y, w kernels.Tensor) {
	t.Helper()
	d, err := Open(driver.NewInterpreter(5), Options{WorkspaceBytes: 1 << 20, StepBytes: 1 << 16, NoGraphs: no})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	rnd := rand.New(rand.NewPCG(2, 3))
	const T, D = 80, 36
	return d, tensor(t, d, T, normal(rnd, T*D)), tensor(t, d, T, normal(rnd, T*D)), tensor(t, d, 1, normal(rnd, D))
}

// TestGraphs: steps of a shape that was there before are one launch, and give the bits of the launches one by one, with
// other arrays, among steps of other shapes and after one that failed.
func TestGraphs(t *testing.T) {
	steps := [][]int32{{3, 1}, {0, 2}, {7, 7, 7}, {5, 4}, {1, 3}, {9, 8, 0}, {2, 2}, {1, 0, 3}}
	run := func(no bool) (*Device, []byte, error) {
		d, x, y, w := withGraphs(t, no)
		var failed error
		for i, ids := range steps {
			d.Begin()
			layers(d, x, y, w, ids)
			if i == 4 { // and a step whose first operator does not fit
				if err := d.End(); err != nil {
					t.Fatal(err)
				}
				d.Begin()
				d.RMSNorm(y, x, y, 1)
				layers(d, x, y, w, ids)
				failed = d.End()
				continue
			}
			if err := d.End(); err != nil {
				t.Fatal(err)
			}
		}
		return d, append(held(t, d, x.Buf), held(t, d, y.Buf)...), failed
	}
	d, got, gotErr := run(false)
	plain, want, wantErr := run(true)
	if !bytes.Equal(got, want) {
		t.Error("graphs give other bits")
	}
	if gotErr == nil || wantErr == nil || gotErr.Error() != wantErr.Error() || !strings.HasPrefix(gotErr.Error(), "rmsNorm:") {
		t.Errorf("errors: %v with graphs, %v without", gotErr, wantErr)
	}
	// Of five steps over two rows all but the first, of three over three rows two.
	if d.graphs.launched != 4+2 || len(d.graphs.kept) != 2 {
		t.Errorf("%d graphs launched, %d kept", d.graphs.launched, len(d.graphs.kept))
	}
	if plain.graphs != nil {
		t.Error("graphs although there should be none")
	}
}

// TestGraphsReportFaults: a launch that does what it must not fails the step in a graph, too.
func TestGraphsReportFaults(t *testing.T) {
	for _, no := range []bool{false, true} {
		d, x, y, w := withGraphs(t, no)
		for i := range 4 {
			if i == 3 {
				d.Free(x.Buf)
			}
			d.Begin()
			layers(d, x, y, w, []int32{1, 2})
			if err := d.End(); (err != nil) != (i == 3) {
				t.Fatalf("no graphs: %v, step %d: %v", no, i, err)
			}
		}
	}
}

// TestGraphsAreBounded keeps those that were launched last.
func TestGraphsAreBounded(t *testing.T) {
	d, x, y, w := withGraphs(t, false)
	step := func(n int) {
		d.Begin()
		layers(d, x, y, w, make([]int32, n))
		if err := d.End(); err != nil {
			t.Fatal(err)
		}
	}
	for n := 1; n <= maxGraphs+6; n++ {
		step(n)
		step(n)
		step(1)
	}
	if len(d.graphs.kept) != maxGraphs {
		t.Errorf("%d graphs kept, want %d", len(d.graphs.kept), maxGraphs)
	}
	before := d.graphs.launched
	step(1) // never idle for long
	step(2) // gone
	if d.graphs.launched != before+1 {
		t.Errorf("%d graphs launched, want one", d.graphs.launched-before)
	}
}
