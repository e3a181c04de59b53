package kernels

import "fmt"

// Matrix is a weight matrix w[N,K], N outputs by K inputs, in canonical form: what every
// checkpoint format is turned into and every device packs from. It is read a few rows at a
// time, straight from a mapped file, so that a matrix is never in memory twice.
//
// With Bits 4 or 8, w[n,k] = Scale * (Code - Zero), or Scale*Code + Min when HasMin, with one
// Scale and one Zero or Min for each Group inputs of a row. With Bits 0, w is floating point and
// stored as Type says. K is a multiple of Group.
type Matrix struct {
	Name   string // of the checkpoint's tensor, for errors
	N, K   int
	Bits   int  // 0, 4 or 8
	Group  int  // 16, 32, 64, 128, ... or K; 0 with Bits 0
	HasMin bool // Min instead of Zero
	// Symmetric says that every Zero is known to be the middle code, 8 or 128, and need not be kept.
	Symmetric bool
	Type      DType // Bits 0 only

	// Scales16 and the like let a device store scales in fewer bytes without loss.
	ScaleType DType // F16 or BF16 when every scale (and min) is exactly of that type, else F32

	// LookedUp says that the matrix is a table for EmbedRows and never multiplied with: a device with memory of its own
	// may leave it in the host's.
	LookedUp bool

	Bias []float32 // [N], or nil

	// Perm, when not nil, is the order that the inputs are stored in: stored input k is
	// multiplied with x[Perm[k]], so w[n,Perm[k]] above is made of code k and its group. Formats
	// that quantise in order of activation have groups of inputs that are not neighbours. It
	// holds each of 0 to K-1 once, and may not change.
	Perm []int32

	// Read fills dst with rows [row, row+n). It may be called from several goroutines at once,
	// each with its own dst.
	Read func(dst *Rows, row, n int) error

	// Release, when not nil, says that the file's bytes behind the matrix are not needed any
	// more for now, so that their OS pages may go.
	Release func()
}

// Groups returns the number of scales of a row.
func (m Matrix) Groups() int {
	if m.Bits == 0 {
		return 0
	}
	return m.K / m.Group
}

// CheckPerm says what is wrong with Perm.
func (m Matrix) CheckPerm() error {
	if m.Perm == nil {
		return nil
	}
	if len(m.Perm) != m.K {
		return fmt.Errorf("an order of %d inputs for %d", len(m.Perm), m.K)
	}
	seen := make([]bool, m.K)
	for k, p := range m.Perm {
		if p < 0 || int(p) >= m.K || seen[p] {
			return fmt.Errorf("order of inputs: entry %d is %d, out of range or there twice", k, p)
		}
		seen[p] = true
	}
	return nil
}

// Rows are some rows of a Matrix, their inputs in stored order. Slices are grown by Reset and reused.
type Rows struct {
	Codes []uint8   // [n,K], one code a byte; Bits 4: 0..15, Bits 8: 0..255
	Scale []float32 // [n,Groups]
	Zero  []uint8   // [n,Groups] when !HasMin
	Min   []float32 // [n,Groups] when HasMin
	Float []float32 // [n,K] when Bits 0: the stored values, exactly
}

// Reset sizes the slices of r for n rows of m; what they hold is unspecified.
func (r *Rows) Reset(m Matrix, n int) {
	if m.Bits == 0 {
		r.Float = grow(r.Float, n*m.K)
		return
	}
	r.Codes = grow(r.Codes, n*m.K)
	r.Scale = grow(r.Scale, n*m.Groups())
	if m.HasMin {
		r.Min = grow(r.Min, n*m.Groups())
	} else {
		r.Zero = grow(r.Zero, n*m.Groups())
	}
}

func grow[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}

// Weight is one or more matrices stacked along their outputs, packed by a device. It can be
// multiplied with (Linear) and its rows can be looked up (EmbedRows), so a tied embedding is
// in memory once.
type Weight struct {
	Name  string
	N, K  int
	Bytes int64 // of device memory; 0 when it was left in the host's
	Impl  any   // the device's own
}
