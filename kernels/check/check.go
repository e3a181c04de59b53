// Package check says whether the arguments of an operator fit each other, for every device in the
// same words. It reads shapes and the host copies of a step's arrays, never a tensor's elements.
//
// Invariant: when a function here returns nil, an operator that stays within the shapes it was
// given touches no byte outside the buffers it was given.
package check

import (
	"fmt"
	"unsafe"

	"github.com/openinfer-go/openinfer/kernels"
)

// Matrices says whether parts can be loaded as one weight.
func Matrices(parts []kernels.Matrix) error {
	if len(parts) == 0 {
		return fmt.Errorf("load: no matrices")
	}
	for _, m := range parts {
		switch {
		case m.N <= 0 || m.K <= 0:
			return fmt.Errorf("load: %s is [%d,%d]", m.Name, m.N, m.K)
		case m.K != parts[0].K:
			return fmt.Errorf("load: %s has %d inputs, %s beside it %d", m.Name, m.K, parts[0].Name, parts[0].K)
		case m.Bits != 0 && m.Bits != 4 && m.Bits != 8:
			return fmt.Errorf("load: %s has codes of %d bits", m.Name, m.Bits)
		case m.Bits != 0 && (m.Group <= 0 || m.K%m.Group != 0):
			return fmt.Errorf("load: %s: %d inputs are no whole groups of %d", m.Name, m.K, m.Group)
		case m.Bits == 0 && m.Type > kernels.BF16:
			return fmt.Errorf("load: %s is of unknown type %v", m.Name, m.Type)
		case m.Bias != nil && len(m.Bias) != m.N:
			return fmt.Errorf("load: %s has %d outputs and %d biases", m.Name, m.N, len(m.Bias))
		case m.Read == nil:
			return fmt.Errorf("load: %s cannot be read", m.Name)
		}
		if err := m.CheckPerm(); err != nil {
			return fmt.Errorf("load: %s: %w", m.Name, err)
		}
	}
	return nil
}

// EmbedRows checks the operator of that name.
func EmbedRows(dst kernels.Tensor, table *kernels.Weight, ids kernels.Ints) error {
	const op = "embedRows"
	if table == nil {
		return fmt.Errorf("%s: no table", op)
	}
	if err := tensors(op, dst); err != nil {
		return err
	}
	if dst.Cols != table.K || dst.Rows != len(ids.Host) {
		return fmt.Errorf("%s: dst %v for %d ids of %s [%d,%d]", op, dst, len(ids.Host), table.Name, table.N, table.K)
	}
	return within(op, "id", ids.Host, table.N)
}

// RMSNorm checks the operator of that name. dst may be x.
func RMSNorm(dst, x, w kernels.Tensor) error {
	const op = "rmsNorm"
	if err := tensors(op, dst, x, w); err != nil {
		return err
	}
	if dst.Rows != x.Rows || dst.Cols != x.Cols || w.Rows != 1 || w.Cols != x.Cols {
		return fmt.Errorf("%s: dst %v, x %v, w %v", op, dst, x, w)
	}
	if same := first(dst) == first(x) && dst.Stride == x.Stride; same {
		return apart(op, dst, w)
	}
	return apart(op, dst, x, w)
}

// Linear checks Linear and LinearAdd.
func Linear(op string, dst, x kernels.Tensor, w *kernels.Weight) error {
	if w == nil {
		return fmt.Errorf("%s: no weight", op)
	}
	if err := tensors(op, dst, x); err != nil {
		return err
	}
	if dst.Rows != x.Rows || x.Cols != w.K || dst.Cols != w.N {
		return fmt.Errorf("%s: dst %v = x %v times %s [%d,%d]", op, dst, x, w.Name, w.N, w.K)
	}
	return apart(op, dst, x)
}

// Drop checks the operator of that name.
func Drop(t kernels.Tensor) error { return tensors("drop", t) }

// CosSin checks the operator of that name.
func CosSin(dst kernels.Tensor, r kernels.Rotary, positions kernels.Ints) error {
	const op = "cosSin"
	if err := tensors(op, dst); err != nil {
		return err
	}
	if dst.Cols != 2*len(r.InvFreq) || dst.Rows != len(positions.Host) {
		return fmt.Errorf("%s: dst %v for %d positions and %d frequencies", op, dst, len(positions.Host), len(r.InvFreq))
	}
	for _, p := range positions.Host {
		if p < 0 {
			return fmt.Errorf("%s: position %d", op, p)
		}
	}
	return nil
}

// RMSNormAdd checks the operator of that name.
func RMSNormAdd(dst, x, w kernels.Tensor) error {
	const op = "rmsNormAdd"
	if err := tensors(op, dst, x, w); err != nil {
		return err
	}
	if dst.Rows != x.Rows || dst.Cols != x.Cols || w.Rows != 1 || w.Cols != x.Cols {
		return fmt.Errorf("%s: dst %v, x %v, w %v", op, dst, x, w)
	}
	return apart(op, dst, x, w)
}

// NormGate checks the operator of that name. dst may be x.
func NormGate(dst, x, gate, w kernels.Tensor) error {
	const op = "normGate"
	if err := tensors(op, dst, x, gate, w); err != nil {
		return err
	}
	if dst.Rows != x.Rows || dst.Cols != x.Cols || gate.Rows != x.Rows || gate.Cols != x.Cols || w.Rows != 1 || x.Cols%w.Cols != 0 {
		return fmt.Errorf("%s: dst %v, x %v, gate %v, w %v", op, dst, x, gate, w)
	}
	if same := first(dst) == first(x) && dst.Stride == x.Stride; same {
		return apart(op, dst, gate, w)
	}
	return apart(op, dst, x, gate, w)
}

// RotaryStore checks the operator of that name.
func RotaryStore(q kernels.Tensor, kv kernels.KV, qkv kernels.Tensor, p kernels.RotaryParams) error {
	const op = "rotaryStore"
	cosSin := p.CosSin
	if err := tensors(op, q, qkv, cosSin); err != nil {
		return err
	}
	if err := cache(op, kv); err != nil {
		return err
	}
	l := kv.Layout
	values := l.VDim
	if p.KeysAsValues {
		if l.KDim != l.VDim {
			return fmt.Errorf("%s: keys of %d are to be values of %d", op, l.KDim, l.VDim)
		}
		values = 0
	}
	if q.Rows != qkv.Rows || cosSin.Rows != qkv.Rows || q.Cols%l.KDim != 0 || qkv.Cols != q.Cols+l.Heads*(l.KDim+values) {
		return fmt.Errorf("%s: q %v, qkv %v, cosSin %v with %d key heads of %d and %d", op, q, qkv, cosSin, l.Heads, l.KDim, values)
	}
	if cosSin.Cols%2 != 0 || cosSin.Cols > l.KDim {
		return fmt.Errorf("%s: cosSin %v for heads of %d", op, cosSin, l.KDim)
	}
	for _, w := range []kernels.Tensor{p.QNorm, p.KNorm} {
		if w.None() {
			continue
		}
		if err := tensors(op, w); err != nil {
			return err
		}
		if w.Rows != 1 || w.Cols != l.KDim {
			return fmt.Errorf("%s: norm weight %v for heads of %d", op, w, l.KDim)
		}
	}
	if len(kv.Slots.Host) != qkv.Rows {
		return fmt.Errorf("%s: %d slots for qkv %v", op, len(kv.Slots.Host), qkv)
	}
	blocks := blockCount(kv)
	for _, s := range kv.Slots.Host {
		if s < -1 || int64(s) >= blocks*int64(l.BlockTokens) {
			return fmt.Errorf("%s: slot %d, the arena has %d blocks of %d", op, s, blocks, l.BlockTokens)
		}
	}
	return apart(op, q, qkv, cosSin)
}

// Attention checks the operator of that name.
func Attention(dst, q kernels.Tensor, kv kernels.KV, rows kernels.Ragged, p kernels.AttentionParams) error {
	const op = "attention"
	if err := tensors(op, dst, q); err != nil {
		return err
	}
	if err := cache(op, kv); err != nil {
		return err
	}
	l := kv.Layout
	heads := q.Cols / l.KDim
	if dst.Rows != q.Rows || heads*l.KDim != q.Cols || heads*l.VDim != dst.Cols || heads%l.Heads != 0 {
		return fmt.Errorf("%s: dst %v, q %v with %d key heads of %d and %d", op, dst, q, l.Heads, l.KDim, l.VDim)
	}
	if p.Window < 0 || p.SoftCap < 0 {
		return fmt.Errorf("%s: window %d, soft cap %v", op, p.Window, p.SoftCap)
	}
	starts, contexts := rows.Starts.Host, rows.Contexts.Host
	if len(starts) != len(contexts)+1 || starts[0] != 0 || int(starts[len(contexts)]) != q.Rows {
		return fmt.Errorf("%s: starts %v and %d contexts for q %v", op, starts, len(contexts), q)
	}
	blocks := blockCount(kv)
	for s, c := range contexts {
		n := starts[s+1] - starts[s]
		if n < 0 || c < n {
			return fmt.Errorf("%s: sequence %d has %d tokens of a context of %d", op, s, n, c)
		}
		if n == 0 {
			continue
		}
		// Blocks wholly before the first token's window may have been given back.
		low := 0
		if p.Window > 0 {
			low = max(int(c-n)+1-p.Window, 0) / l.BlockTokens
		}
		used := (int(c) + l.BlockTokens - 1) / l.BlockTokens
		if used > kv.Stride || (s+1)*kv.Stride > len(kv.Tables.Host) {
			return fmt.Errorf("%s: sequence %d needs %d blocks, tables hold %d entries, %d each", op, s, used, len(kv.Tables.Host), kv.Stride)
		}
		for i := low; i < used; i++ {
			if id := kv.Tables.Host[s*kv.Stride+i]; id < 0 || int64(id) >= blocks {
				return fmt.Errorf("%s: sequence %d: block %d is %d, the arena has %d", op, s, i, id, blocks)
			}
		}
	}
	return apart(op, dst, q)
}

// GateMul checks the operator of that name. dst may be x.
func GateMul(dst, gate, x kernels.Tensor, f kernels.Activation) error {
	const op = "gateMul"
	if err := tensors(op, dst, gate, x); err != nil {
		return err
	}
	if dst.Rows != x.Rows || dst.Cols != x.Cols || gate.Rows != x.Rows || gate.Cols != x.Cols {
		return fmt.Errorf("%s: dst %v, gate %v, x %v", op, dst, gate, x)
	}
	if f > kernels.Sigmoid {
		return fmt.Errorf("%s: %v", op, f)
	}
	if same := first(dst) == first(x) && dst.Stride == x.Stride; same {
		return apart(op, dst, gate)
	}
	return apart(op, dst, gate, x)
}

// SoftCap checks the operator of that name.
func SoftCap(x kernels.Tensor, c float32) error {
	const op = "softCap"
	if !(c > 0) {
		return fmt.Errorf("%s: cap %v", op, c)
	}
	return tensors(op, x)
}

// GatherRows checks the operator of that name.
func GatherRows(dst, x kernels.Tensor, rows kernels.Ints) error {
	const op = "gatherRows"
	if err := tensors(op, dst, x); err != nil {
		return err
	}
	if dst.Cols != x.Cols || dst.Rows != len(rows.Host) {
		return fmt.Errorf("%s: dst %v, x %v, %d rows", op, dst, x, len(rows.Host))
	}
	if err := within(op, "row", rows.Host, x.Rows); err != nil {
		return err
	}
	return apart(op, dst, x)
}

// Sample checks the operator of that name.
func Sample(out []kernels.Sampled, logits kernels.Tensor, vocab int, params []kernels.SampleParams) error {
	const op = "sample"
	if err := tensors(op, logits); err != nil {
		return err
	}
	if len(out) != logits.Rows || len(params) != logits.Rows || vocab <= 0 || vocab > logits.Cols {
		return fmt.Errorf("%s: %d results and %d parameters of logits %v, %d ids", op, len(out), len(params), logits, vocab)
	}
	return nil
}

// tensors wants float32 tensors that lie within their buffers.
func tensors(op string, ts ...kernels.Tensor) error {
	for _, t := range ts {
		if t.DType != kernels.F32 {
			return fmt.Errorf("%s: %v is not float32", op, t)
		}
		if t.Rows < 0 || t.Cols <= 0 || t.Stride < t.Cols {
			return fmt.Errorf("%s: %v with stride %d", op, t, t.Stride)
		}
		if t.Rows > 0 && bytes(t) > t.Buf.Len {
			return fmt.Errorf("%s: %v with stride %d in a buffer of %d bytes", op, t, t.Stride, t.Buf.Len)
		}
	}
	return nil
}

// bytes from t's first element to the end of its last.
func bytes(t kernels.Tensor) int64 {
	return (int64(t.Rows-1)*int64(t.Stride) + int64(t.Cols)) * int64(t.DType.Bytes())
}

func first(t kernels.Tensor) uint64 {
	if t.Buf.Host != nil {
		return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(t.Buf.Host))))
	}
	return t.Buf.Addr
}

// apart wants dst to share no byte with the others.
func apart(op string, dst kernels.Tensor, others ...kernels.Tensor) error {
	if dst.Rows == 0 {
		return nil
	}
	a := first(dst)
	for _, t := range others {
		if t.Rows == 0 {
			continue
		}
		if b := first(t); a < b+uint64(bytes(t)) && b < a+uint64(bytes(dst)) && !beside(dst, t, b-a) {
			return fmt.Errorf("%s: dst %v overlaps %v", op, dst, t)
		}
	}
	return nil
}

// beside reports whether dst and t are different columns of rows of the same length; t begins `after`
// bytes after dst, modulo 2^64.
func beside(dst, t kernels.Tensor, after uint64) bool {
	row := int64(dst.Stride) * 4
	column := (int64(after)%row + row) % row
	return dst.Stride == t.Stride && column >= int64(dst.Cols)*4 && column+int64(t.Cols)*4 <= row
}

func between(least, most int, values ...int) bool {
	for _, v := range values {
		if v < least || v > most {
			return false
		}
	}
	return true
}

func within(op, what string, ints []int32, n int) error {
	for i, v := range ints {
		if v < 0 || int(v) >= n {
			return fmt.Errorf("%s: %s %d (number %d of %d) is not below %d", op, what, v, i, len(ints), n)
		}
	}
	return nil
}

func cache(op string, kv kernels.KV) error {
	l := kv.Layout
	if l == nil {
		return fmt.Errorf("%s: no cache layout", op)
	}
	// Sizes beyond these are of no model, and products of them would not fit an integer.
	if !between(1, 1<<14, l.Layers, l.Heads, l.KDim, l.VDim, l.BlockTokens) || !between(1, 1<<30, l.BlocksPerPage) || l.BlockBytes > 1<<32 ||
		l.BlockBytes < int64(l.BlockTokens)*l.TokenBytes() || l.PageBytes < int64(l.BlocksPerPage)*l.BlockBytes {
		return fmt.Errorf("%s: cache layout %+v", op, *l)
	}
	if kv.Layer < 0 || kv.Layer >= l.Layers {
		return fmt.Errorf("%s: layer %d of a cache of %d", op, kv.Layer, l.Layers)
	}
	return nil
}

// blockCount says how many blocks lie wholly within the arena of pages.
func blockCount(kv kernels.KV) int64 {
	l := kv.Layout
	pages, rest := kv.Pages.Len/l.PageBytes, kv.Pages.Len%l.PageBytes
	return pages*int64(l.BlocksPerPage) + min(rest/l.BlockBytes, int64(l.BlocksPerPage))
}
