//go:build cgo

package cpu

// #include "cpu.h"
import "C"

import (
	"unsafe"

	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/kernels/check"
)

// A chunk of a row operator has about this many values: some microseconds of work.
const rowChunk = 4096

// chunkRows is how many rows of cols values a chunk takes, and whether it may be redone.
func (d *device) chunkRows(rows, cols int) (int, bool) {
	n := max(1, rowChunk/max(1, cols))
	return n, d.redoable(n, n*cols*4)
}

// redoable reports whether a chunk that writes these can be computed twice. Prepared blocks take up to
// one and an eighth as much beside the values, in as many pieces.
func (d *device) redoable(pieces, bytes int) bool {
	return 3*pieces < C.OI_OUT_SPANS-2 && 3*bytes+pieces*192 < C.OI_OUT_BYTES
}

func chunks(n, size int) int { return (n + size - 1) / size }

// prepared makes sure that x is there as blocks when the next command runs.
func (d *device) prepared(x kernels.Tensor, w *weight) (q *C.oi_qblock, f *C.oi_fblock, err error) {
	s := d.step
	needQ, needF := w.coded && !d.exact, w.float || d.exact
	blocks := (x.Cols + 31) / 32
	n := int64(x.Rows) * int64(blocks)
	if needQ {
		p, err := d.prepQ.grow(n * int64(unsafe.Sizeof(C.oi_qblock{})))
		if err != nil {
			return nil, nil, err
		}
		q = (*C.oi_qblock)(p)
	}
	if needF {
		p, err := d.prepF.grow(n * int64(unsafe.Sizeof(C.oi_fblock{})))
		if err != nil {
			return nil, nil, err
		}
		f = (*C.oi_fblock)(p)
	}
	if r := s.ready; w.perm == nil && r.is(x) && (!needQ || r.q) && (!needF || r.f) {
		return q, f, nil
	}
	if w.perm == nil && s.last.is(x) {
		for _, p := range s.last.prep {
			*p = C.oi_prep{q: q, f: f, blocks: C.int32_t(blocks)}
		}
		return q, f, nil
	}
	a := args[C.oi_norm](s)
	rows, redo := d.chunkRows(x.Rows, x.Cols)
	a.x, a.x_stride = floats(x), C.int64_t(x.Stride)
	a.T, a.D, a.chunk_rows = C.int32_t(x.Rows), C.int32_t(x.Cols), C.int32_t(rows)
	a.prep, a.perm = C.oi_prep{q: q, f: f, blocks: C.int32_t(blocks)}, w.perm
	d.push(d.variant.prep, unsafe.Pointer(a), chunks(x.Rows, rows), redo)
	return q, f, nil
}

// wrote notes that the last command wrote t and prepares it where prep say.
func (d *device) wrote(t kernels.Tensor, prep ...*C.oi_prep) {
	d.step.last = rowsOf(t)
	d.step.last.prep = prep
}

func rowsOf(t kernels.Tensor) rows {
	return rows{addr: unsafe.SliceData(t.Buf.Host), rows: t.Rows, cols: t.Cols, stride: t.Stride}
}

// overlap reports whether two tensors lie over each other. Rows of one between rows of the other count.
func overlap(a, b kernels.Tensor) bool {
	first := func(t kernels.Tensor) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(t.Buf.Host))) }
	end := func(t kernels.Tensor) uintptr { return first(t) + uintptr((t.Rows-1)*t.Stride+t.Cols)*4 }
	return first(a) < end(b) && first(b) < end(a)
}

// Linear implements kernels.Device.
func (d *device) Linear(dst, x kernels.Tensor, w *kernels.Weight) {
	d.linear("linear", dst, x, w, false)
}

// LinearAdd implements kernels.Device.
func (d *device) LinearAdd(dst, x kernels.Tensor, w *kernels.Weight) {
	d.linear("linearAdd", dst, x, w, true)
}

func (d *device) linear(op string, dst, x kernels.Tensor, kw *kernels.Weight, add bool) {
	w, ok := kw.Impl.(*weight)
	if !ok {
		d.fail(op, "%s is not loaded on this device", kw.Name)
		return
	}
	op += ": " + kw.Name
	if !d.dense(op, "x", x, x.Rows, kw.K) || !d.dense(op, "dst", dst, x.Rows, kw.N) || x.Rows == 0 {
		return
	}
	if overlap(dst, x) {
		d.fail(op, "dst %v shares memory with x %v", dst, x)
		return
	}
	if w.runs == nil {
		d.linearRun(op, dst, x, w, add)
	}
	for _, r := range w.runs {
		d.linearRun(op, dst, x, r, add)
	}
}

// linearRun multiplies with parts whose inputs are stored in one order.
func (d *device) linearRun(op string, dst, x kernels.Tensor, w *weight, add bool) {
	q, f, err := d.prepared(x, w)
	if err != nil {
		d.fail(op, "activations %v: %v", x, err)
		return
	}
	s := d.step
	a := args[C.oi_linear](s)
	a.dst, a.dst_stride = floats(dst), C.int64_t(dst.Stride)
	a.part, a.parts = w.parts, C.int32_t(w.n)
	a.q, a.f = q, f
	a.T, a.blocks, a.panels = C.int32_t(x.Rows), C.int32_t((x.Cols+31)/32), C.int32_t(w.panels)
	if add {
		a.add = 1
	}
	if d.exact {
		a.exact = 1
	}
	panels, tokens, nanos, redo := d.cut(w, x.Rows, x.Cols)
	a.chunk_panels, a.chunk_tokens = C.int32_t(panels), C.int32_t(tokens)
	tokenChunks := chunks(x.Rows, tokens)
	a.token_chunks = C.int32_t(tokenChunks)
	c := d.push(d.variant.linear, unsafe.Pointer(a), chunks(w.panels, panels)*tokenChunks, redo)
	c.patience_ns = C.int32_t(max(patience, 5*nanos))
	if tokenChunks == 1 {
		c.stream, c.stream_step = w.first, C.int64_t(int64(panels)*w.bytes/int64(w.panels))
	}
	if w.perm == nil {
		s.ready = rowsOf(x)
		s.ready.q, s.ready.f = q != nil, f != nil
	}
}

// cut chooses a chunk of a matrix product, panels and tokens, and says how many nanoseconds it takes
// about: one core of a Zen 3 reads 13 bytes of weights in one, or does 200 operations. Small products
// are cut into 16 chunks a thread, so that no thread waits long for another's last one.
func (d *device) cut(w *weight, T, K int) (panels, tokens int, nanos float64, redo bool) {
	tokens, longest := T, 10_000.0
	if T > 64 {
		// A tile of tokens' blocks stays in the L2 cache while the panels pass, and chunks are long
		// enough to write whole cache lines of results.
		tokens = max(16, min(64, 192<<10/(chunks(K, 32)*48)))
		tokens = (chunks(T, chunks(T, tokens)) + 3) &^ 3
		longest = 50_000
	}
	perPanel := max(float64(w.bytes)/float64(w.panels)/13, float64(16*K*tokens)/200)
	total := perPanel * float64(w.panels) * float64(chunks(T, tokens))
	target := min(max(total/float64(16*d.threads), 1500), longest)
	panels = max(1, min(int(target/perPanel), w.panels))
	return panels, tokens, perPanel * float64(panels), d.redoable(tokens, tokens*panels*32)
}

// RMSNorm implements kernels.Device.
func (d *device) RMSNorm(dst, x, w kernels.Tensor, eps float32) {
	if d.ok(check.RMSNorm(dst, x, w)) && x.Rows > 0 {
		d.norm(d.variant.norm, dst, x, w, eps)
	}
}

// RMSNormAdd implements kernels.Device.
func (d *device) RMSNormAdd(dst, x, w kernels.Tensor, eps, scale float32) {
	if d.ok(check.RMSNormAdd(dst, x, w)) && x.Rows > 0 {
		d.norm(d.variant.norm_add, dst, x, w, eps).scale = C.float(scale)
	}
}

// NormGate implements kernels.Device.
func (d *device) NormGate(dst, x, gate, w kernels.Tensor, eps float32) {
	if d.ok(check.NormGate(dst, x, gate, w)) && x.Rows > 0 {
		a := d.norm(d.variant.norm_gate, dst, x, w, eps)
		a.gate, a.gate_stride, a.head = floats(gate), C.int64_t(gate.Stride), C.int32_t(w.Cols)
	}
}

func (d *device) norm(fn C.oi_fn, dst, x, w kernels.Tensor, eps float32) *C.oi_norm {
	a := args[C.oi_norm](d.step)
	rows, redo := d.chunkRows(x.Rows, x.Cols)
	a.dst, a.dst_stride = floats(dst), C.int64_t(dst.Stride)
	a.x, a.x_stride = floats(x), C.int64_t(x.Stride)
	a.w, a.eps = floats(w), C.float(eps)
	a.T, a.D, a.chunk_rows = C.int32_t(x.Rows), C.int32_t(x.Cols), C.int32_t(rows)
	d.push(fn, unsafe.Pointer(a), chunks(x.Rows, rows), redo)
	d.wrote(dst, &a.prep)
	return a
}

// GateMul implements kernels.Device.
func (d *device) GateMul(dst, gate, x kernels.Tensor, f kernels.Activation) {
	if d.ok(check.GateMul(dst, gate, x, f)) && x.Rows > 0 {
		a := d.elements(d.variant.gate, dst, x)
		a.gate, a.gate_stride, a.f = floats(gate), C.int64_t(gate.Stride), C.int32_t(f)
		d.wrote(dst, &a.prep)
	}
}

// SoftCap implements kernels.Device.
func (d *device) SoftCap(x kernels.Tensor, c float32) {
	if d.ok(check.SoftCap(x, c)) && x.Rows > 0 {
		d.elements(d.variant.soft_cap, x, x).cap = C.float(c)
	}
}

// elements cuts an operator on single values by rows and columns.
func (d *device) elements(fn C.oi_fn, dst, x kernels.Tensor) *C.oi_gate {
	a := args[C.oi_gate](d.step)
	cols := min(dst.Cols, 2048) // a multiple of 32, or the whole row
	rows, redo := d.chunkRows(dst.Rows, cols)
	a.dst, a.dst_stride = floats(dst), C.int64_t(dst.Stride)
	a.x, a.x_stride = floats(x), C.int64_t(x.Stride)
	a.T, a.F = C.int32_t(dst.Rows), C.int32_t(dst.Cols)
	a.chunk_cols, a.col_chunks, a.chunk_rows = C.int32_t(cols), C.int32_t(chunks(dst.Cols, cols)), C.int32_t(rows)
	d.push(fn, unsafe.Pointer(a), chunks(dst.Rows, rows)*chunks(dst.Cols, cols), redo)
	return a
}

// EmbedRows implements kernels.Device.
func (d *device) EmbedRows(dst kernels.Tensor, table *kernels.Weight, ids kernels.Ints, scale float32) {
	const op = "embedRows"
	if !d.ok(check.EmbedRows(dst, table, ids)) || dst.Rows == 0 {
		return
	}
	w, ok := table.Impl.(*weight)
	if !ok {
		d.fail(op, "%s is not loaded on this device", table.Name)
		return
	}
	a := d.rowsArgs(dst)
	a.part, a.parts, a.ids, a.scale = w.parts, C.int32_t(w.n), d.step.ints(ids), C.float(scale)
	d.pushRows(d.variant.embed, a, dst)
}

// Drop implements kernels.Device. Values that die are in a core's cache, and cost nothing there.
func (d *device) Drop(t kernels.Tensor) { d.dense("drop", "t", t, t.Rows, t.Cols) }

// GatherRows implements kernels.Device.
func (d *device) GatherRows(dst, x kernels.Tensor, rows kernels.Ints) {
	const op = "gatherRows"
	if !d.dense(op, "x", x, x.Rows, x.Cols) || !d.dense(op, "dst", dst, dst.Rows, x.Cols) ||
		!d.inRange(op, "rows", rows.Host, dst.Rows, 0, x.Rows) || dst.Rows == 0 {
		return
	}
	a := d.rowsArgs(dst)
	a.x, a.x_stride, a.ids = floats(x), C.int64_t(x.Stride), d.step.ints(rows)
	d.pushRows(d.variant.gather, a, dst)
}

func (d *device) rowsArgs(dst kernels.Tensor) *C.oi_rows {
	a := args[C.oi_rows](d.step)
	a.dst, a.dst_stride = floats(dst), C.int64_t(dst.Stride)
	a.T, a.D = C.int32_t(dst.Rows), C.int32_t(dst.Cols)
	return a
}

func (d *device) pushRows(fn C.oi_fn, a *C.oi_rows, dst kernels.Tensor) {
	n, redo := d.chunkRows(dst.Rows, dst.Cols)
	a.chunk_rows = C.int32_t(n)
	d.push(fn, unsafe.Pointer(a), chunks(dst.Rows, n), redo)
}

// CosSin implements kernels.Device.
func (d *device) CosSin(dst kernels.Tensor, r kernels.Rotary, positions kernels.Ints) {
	const op = "cosSin"
	half := len(r.InvFreq)
	if !d.dense(op, "dst", dst, dst.Rows, 2*half) || !d.inRange(op, "positions", positions.Host, dst.Rows, 0, 1<<30) || dst.Rows == 0 || half == 0 {
		return
	}
	a := args[C.oi_cossin](d.step)
	a.dst, a.dst_stride = floats(dst), C.int64_t(dst.Stride)
	freq := unsafe.Slice((*float32)(d.step.alloc(int64(half)*4)), half)
	copy(freq, r.InvFreq)
	a.inv_freq, a.positions = (*C.float)(unsafe.Pointer(&freq[0])), d.step.ints(positions)
	a.T, a.half, a.scale = C.int32_t(dst.Rows), C.int32_t(half), C.float(r.Scale)
	n, redo := d.chunkRows(dst.Rows, 32*half) // a value costs as much as 16 sums
	a.chunk_rows = C.int32_t(n)
	d.push(d.variant.cossin, unsafe.Pointer(a), chunks(dst.Rows, n), redo)
}
