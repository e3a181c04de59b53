// Package kerneltest is the conformance suite that every computing device passes.
//
// It owns the cases and their expected values, which it computes itself in float64 from what it
// gave to the device; it knows nothing of how a device does it, and no other device. Inputs are
// non-uniform, sizes straddle tiles, and all memory that an operator has no business with (the
// gaps between rows, what lies behind a tensor, free blocks, free slots) holds NaNs whose bits
// must still be there afterwards and must not show in any result.
//
// Invariant: whatever may not change a row's result (other rows, chunks, block tables) is compared
// bit for bit; a tolerance is only for the distance from the exact value.
package kerneltest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/openinfer-go/openinfer/kernels"
)

// Tolerances say how far a device may be from the exact value.
type Tolerances struct {
	// Linear is relative to |x| |w|, the Euclidean norms of a row of x and a row of w. A device
	// that quantises activations to int8 has an error near 0.003 of it in the worst of thousands
	// of products.
	Linear float64
	// Elements is relative to 1 + the value (norms, rotary, gates, recurrent state).
	Elements float64
	// Embedding is relative to the largest value of an embedding row: a device may store scales
	// in fewer bytes.
	Embedding float64
	// Attention is relative to the largest value seen by the token.
	Attention float64
}

// Float32 are the tolerances of a device that computes in float32.
func Float32() Tolerances {
	return Tolerances{Linear: 2e-6, Elements: 2e-6, Embedding: 2e-6, Attention: 1e-5}
}

// Options are what a run may leave out.
type Options struct {
	// Light computes fewer stretches of rows again and draws fewer tokens: for a device that is an interpreter. Every
	// case is still there.
	Light bool
	// Every, above 1, runs one in so many of a part's cases, beginning with case From: a repetition in another order of
	// execution needs not be whole.
	Every, From int
}

// Run runs the suite. open is called once for each part, which closes the device.
func Run(t *testing.T, open func(testing.TB) kernels.Device, tol Tolerances, o Options) {
	for _, part := range []struct {
		name string
		run  func(*harness)
	}{
		{"memory", memory},
		{"load", load},
		{"linear", linear},
		{"linear exact", linearExact},
		{"linear not a number", linearNaN},
		{"embedding rows", embedRows},
		{"norm", rmsNorm},
		{"cos and sin", cosSin},
		{"norm and add", rmsNormAdd},
		{"norm gate", normGate},
		{"gate", gateMul},
		{"soft cap", softCap},
		{"followed by linear", followed},
		{"sequences", sequences},
		{"sequences with a convolution", convolved},
		{"gather", gatherRows},
		{"attention", attention},
		{"attention chunks", attentionChunks},
		{"attention window", attentionWindow},
		{"attention shared prefix", attentionSharedPrefix},
		{"attention without store", attentionWithoutStore},
		{"attention after drafts", attentionAfterDrafts},
		{"rotary and store", rotaryStore},
		{"cache codes", cacheCodes},
		{"recurrent", recurrent},
		{"recurrent runs", recurrentRuns},
		{"recurrent decode", recurrentDecode},
		{"recurrent not a number", recurrentNaN},
		{"recurrent chunked", recurrentChunked},
		{"errors", stepErrors},
		{"sample greedy", sampleGreedy},
		{"sample not a number", sampleNaN},
		{"sample changes", sampleChanges},
		{"sample cuts", sampleCuts},
		{"sample distribution", sampleDistribution},
		{"sample seeds", sampleSeeds},
		{"sample logprobs", sampleLogprobs},
	} {
		t.Run(part.name, func(t *testing.T) {
			d := open(t)
			h := &harness{T: t, d: d, mem: &deviceMemory{d: d}, light: o.Light, every: max(o.Every, 1), cases: -o.From, tol: tol,
				rnd: rand.New(rand.NewPCG(1, 2))}
			t.Cleanup(func() {
				if err := h.d.Close(); err != nil {
					t.Errorf("close: %v", err)
				}
			})
			part.run(h)
		})
	}
}

type harness struct {
	*testing.T
	d     kernels.Device
	mem   *deviceMemory
	light bool
	every int // of cases one runs
	cases int // so far
	tol   Tolerances
	rnd   *rand.Rand
}

// sub runs f as a sub-test on the same device.
func (h *harness) sub(name string, f func(*harness)) {
	h.cases++
	if (h.cases-1)%h.every != 0 {
		return
	}
	h.Run(name, func(t *testing.T) {
		sub := *h
		sub.T, sub.every = t, 1 // a case is whole
		f(&sub)
	})
}

// step runs f as one step and wants no error. What the host wrote to buffers before the step is on the device in it;
// f does not write.
func (h *harness) step(f func()) {
	h.Helper()
	if err := h.try(f); err != nil {
		h.Fatalf("step: %v", err)
	}
}

// try runs f as one step.
func (h *harness) try(f func()) error {
	h.Helper()
	if err := h.mem.copyIn(); err != nil {
		h.Fatal(err)
	}
	h.d.Begin()
	f()
	stepErr := h.d.End()
	if err := h.mem.copyOut(); err != nil {
		h.Fatal(err)
	}
	return stepErr
}

// ints uploads an array of the running step.
func (h *harness) ints(v ...int32) kernels.Ints { return h.d.Upload(kernels.Ints{Host: v}) }

// alloc takes device memory that the host sees, until the test ends.
func (h *harness) alloc(n int64) kernels.Buffer {
	h.Helper()
	b, err := h.d.Alloc(n)
	if err == nil {
		b, err = h.mem.see(b)
	}
	if err != nil {
		h.Fatal(err)
	}
	h.Cleanup(func() { h.mem.free(b) })
	return b
}

// poison is a NaN that no operator makes.
const poison = 0x7fc0dead

// matrix is a tensor with gaps between its rows and a guard behind them, all poisoned.
type matrix struct {
	kernels.Tensor
	whole kernels.Tensor // one row: the tensor with the guard
}

// tensor returns a matrix whose elements are poisoned, too.
func (h *harness) tensor(rows, cols int) matrix {
	h.Helper()
	const guard = 64
	stride := cols + 5
	n := rows*stride + guard
	buf := h.alloc(int64(n) * 4)
	m := matrix{
		Tensor: kernels.Tensor{Buf: buf.Slice(0, int64(rows*stride)*4), Rows: rows, Cols: cols, Stride: stride},
		whole:  kernels.Tensor{Buf: buf, Rows: 1, Cols: n, Stride: n},
	}
	for i := range m.whole.Float32() {
		m.whole.Float32()[i] = math.Float32frombits(poison)
	}
	return m
}

// input returns a tensor with the given rows.
func (h *harness) input(rows [][]float32) matrix {
	h.Helper()
	m := h.tensor(len(rows), len(rows[0]))
	for i, r := range rows {
		copy(m.Row(i), r)
	}
	return m
}

// intact wants the gaps and the guard as they were.
func (h *harness) intact(what string, m matrix) {
	h.Helper()
	for i, v := range m.whole.Float32() {
		if inside := i/m.Stride < m.Rows && i%m.Stride < m.Cols; !inside && math.Float32bits(v) != poison {
			h.Fatalf("%s: wrote %v outside of %v: row %d, column %d", what, v, m.Tensor, i/m.Stride, i%m.Stride)
		}
	}
}

// rows returns n rows of cols values, unlike each other in size, with a few outliers.
func (h *harness) rows(n, cols int) [][]float32 {
	m := make([][]float32, n)
	for i := range m {
		m[i] = make([]float32, cols)
		size := 0.25 + 2*h.rnd.Float64()
		for k := range m[i] {
			m[i][k] = float32(h.rnd.NormFloat64() * size)
			if h.rnd.IntN(50) == 0 {
				m[i][k] *= 6
			}
		}
	}
	return m
}

// close wants got within tol of want.
func (h *harness) close(what string, got float32, want, tol float64) {
	h.Helper()
	if diff := math.Abs(float64(got) - want); !(diff <= tol) {
		h.Fatalf("%s: got %v, want %v, differ by %.3g, allowed %.3g", what, got, want, diff, tol)
	}
}

// sameBits wants two rows equal in every bit.
func (h *harness) sameBits(what string, got, want []float32) {
	h.Helper()
	if len(got) != len(want) {
		h.Fatalf("%s: %d values, want %d", what, len(got), len(want))
	}
	for i := range got {
		if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
			h.Fatalf("%s: value %d: %v (%08x), want the bits of %v (%08x)", what, i, got[i], math.Float32bits(got[i]), want[i], math.Float32bits(want[i]))
		}
	}
}

// batches are the stretches [from, to) of n rows that are computed again on their own: every row
// alone, and stretches that start and end anywhere within tiles.
func (h *harness) batches(n int) (b [][2]int) {
	if h.light { // each size somewhere
		for i, size := range []int{1, 1, 2, 3, 5, 8, 16, 17, 33} {
			if from := []int{0, n - size, 3}[i%3]; from >= 0 && from+size <= n {
				b = append(b, [2]int{from, from + size})
			}
		}
		return b
	}
	for i := range n {
		b = append(b, [2]int{i, i + 1})
	}
	for _, size := range []int{2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 64} {
		for _, from := range []int{0, 1, 3, n - size} {
			if from >= 0 && from+size <= n {
				b = append(b, [2]int{from, from + size})
			}
		}
	}
	return b
}

// alone runs op over each of batches(x.Rows) of x and wants the bits that all (the result of one
// call over all rows) has there. before is what dst holds when op begins, nil if nothing.
func (h *harness) alone(what string, all matrix, before [][]float32, run func(dst kernels.Tensor, from, to int)) {
	h.Helper()
	dst := h.tensor(all.Rows, all.Cols)
	for _, b := range h.batches(all.Rows) {
		from, to := b[0], b[1]
		if before != nil {
			for i := from; i < to; i++ {
				copy(dst.Row(i-from), before[i])
			}
		}
		h.step(func() { run(dst.RowRange(0, to-from), from, to) })
		for i := from; i < to; i++ {
			h.sameBits(fmt.Sprintf("%s: row %d computed in rows %d to %d of %d", what, i, from, to, all.Rows), dst.Row(i-from), all.Row(i))
		}
	}
	h.intact(what, dst)
}

func memory(h *harness) {
	for _, n := range []int64{1, 63, 64, 4097, 1 << 20} {
		b, err := h.d.Alloc(n)
		if err == nil {
			b, err = h.mem.see(b)
		}
		if err != nil {
			h.Fatal(err)
		}
		if b.Len != n || int64(len(b.Host)) != n {
			h.Fatalf("alloc %d: %d bytes, %d on the host", n, b.Len, len(b.Host))
		}
		for i := range b.Host {
			if b.Host[i] != 0 {
				h.Fatalf("alloc %d: byte %d is %d", n, i, b.Host[i])
			}
			b.Host[i] = 0xff // memory that comes back must be zeroed again
		}
		if err := h.mem.copyIn(); err != nil {
			h.Fatal(err)
		}
		h.mem.free(b)
	}
	v, err := h.d.LoadVector([]float32{1, -2, 3.5})
	if err == nil {
		v.Buf, err = h.mem.see(v.Buf)
	}
	if err != nil {
		h.Fatal(err)
	}
	h.sameBits("vector", v.Row(0), []float32{1, -2, 3.5})
	h.mem.free(v.Buf)
}
