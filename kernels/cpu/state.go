//go:build cgo

package cpu

// #include "cpu.h"
import "C"

import (
	"unsafe"

	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/kernels/check"
)

// chainList are the chains of a step's runs: the same for all layers of a group.
type chainList struct {
	starts, in, out *C.int32_t
	first, next     *C.int32_t
	chains          int
	longest         int  // tokens of a run
	single          bool // every chain is one run
	// Whole chunks of C.OI_DELTA_CHUNK tokens of the runs: their first tokens, and of each run the chunks before it.
	chunkAt, chunkFirst *C.int32_t
	chunks              int
}

// state describes a layer's recurrent state and the step's runs to C.
func (d *device) state(s kernels.State) (C.oi_state, *chainList) {
	l := s.Layout
	list := d.chains(s)
	return C.oi_state{
		pages:      (*C.uint8_t)(unsafe.SliceData(s.Pages.Host)),
		page_bytes: C.int64_t(l.PageBytes), unit_bytes: C.int64_t(l.UnitBytes()),
		per_page: C.int32_t(l.UnitsPerPage()), first_unit: C.int32_t(s.Layer * l.LayerUnits()), state_pages: C.int32_t(l.StatePages()),
		heads: C.int32_t(l.Heads), kdim: C.int32_t(l.KDim), vdim: C.int32_t(l.VDim),
		columns: C.int32_t(l.ConvColumns), unit_channels: C.int32_t(l.UnitChannels()),
		starts: list.starts, in: list.in, out: list.out, chain: list.first, next: list.next,
	}, list
}

// chains finds which runs depend on each other: a run that begins or ends with a state that an earlier
// one left comes after it.
func (d *device) chains(s kernels.State) *chainList {
	step, pages := d.step, s.Layout.StatePages()
	list := chainList{starts: step.ints(s.Runs.Starts), in: step.ints(s.Runs.In), out: step.ints(s.Runs.Out), single: true}
	for i := range step.runs {
		if l := &step.runs[i]; l.starts == list.starts && l.in == list.in && l.out == list.out {
			return l
		}
	}
	n := len(s.Runs.Starts.Host) - 1
	T := int(s.Runs.Starts.Host[n])
	first, next := step.copyInts(make([]int32, n))[:0], step.copyInts(make([]int32, n))
	chunkFirst, chunkAt := step.copyInts(make([]int32, n+1)), step.copyInts(make([]int32, T/C.OI_DELTA_CHUNK))[:0]
	var ends []int32                // a chain's last run
	owner := make(map[int32]int, n) // the chain that left a state on the pages that begin with this one
	for r := range n {
		next[r] = -1
		start := s.Runs.Starts.Host[r]
		T := int(s.Runs.Starts.Host[r+1] - start)
		for at := 0; at+C.OI_DELTA_CHUNK <= T; at += C.OI_DELTA_CHUNK {
			chunkAt = append(chunkAt, start+int32(at))
		}
		chunkFirst[r+1] = int32(len(chunkAt))
		if T == 0 {
			continue
		}
		list.longest = max(list.longest, T)
		in, out := s.Runs.In.Host[r*pages], s.Runs.Out.Host[r*pages]
		c, ok := owner[in]
		if !ok {
			c, ok = owner[out]
		}
		if ok {
			next[ends[c]], ends[c], list.single = int32(r), int32(r), false
		} else {
			c = len(first)
			first, ends = append(first, int32(r)), append(ends, int32(r))
		}
		owner[out] = c
	}
	list.first, list.next, list.chains = (*C.int32_t)(unsafe.SliceData(first)), (*C.int32_t)(unsafe.SliceData(next)), len(first)
	list.chunkAt, list.chunkFirst = (*C.int32_t)(unsafe.SliceData(chunkAt)), (*C.int32_t)(unsafe.SliceData(chunkFirst))
	list.chunks = len(chunkAt)
	step.runs = append(step.runs, list)
	return &step.runs[len(step.runs)-1]
}

// CausalConv implements kernels.Device.
func (d *device) CausalConv(dst, x, w kernels.Tensor, s kernels.State) {
	const op = "causalConv"
	if !d.ok(check.CausalConv(dst, x, w, s)) || x.Rows == 0 {
		return
	}
	l := s.Layout
	if l.ConvColumns > C.OI_MAX_COLUMNS {
		d.fail(op, "%d columns before a token: at most %d are supported", l.ConvColumns, int(C.OI_MAX_COLUMNS))
		return
	}
	a := args[C.oi_conv](d.step)
	state, list := d.state(s)
	a.state = state
	a.dst, a.dst_stride = floats(dst), C.int64_t(dst.Stride)
	a.x, a.x_stride, a.w = floats(x), C.int64_t(x.Stride), floats(w)
	cols := min(x.Cols, min(max(256, chunks(x.Cols, 4*d.threads)+63), 1024)&^63)
	n := chunks(x.Cols, cols)
	a.C, a.chunk_cols, a.col_chunks = C.int32_t(x.Cols), C.int32_t(cols), C.int32_t(n)
	pieces := list.longest + 2 + cols/l.UnitChannels()
	redo := list.single && d.redoable(pieces, (list.longest+l.ConvColumns)*cols*4)
	c := d.push(d.variant.conv, unsafe.Pointer(a), list.chains*n, redo)
	c.patience_ns = C.int32_t(max(patience, 5*list.longest*cols)) // a value takes half a nanosecond or less
}

// GatedDelta implements kernels.Device.
func (d *device) GatedDelta(dst, qkv, a, b kernels.Tensor, p kernels.DeltaParams, s kernels.State) {
	const op = "gatedDelta"
	if !d.ok(check.GatedDelta(dst, qkv, a, b, p, s)) || dst.Rows == 0 {
		return
	}
	l, T, G := s.Layout, dst.Rows, p.KeyHeads
	const slab = 16
	hold := (C.OI_SCRATCH_BYTES - C.OI_OUT_SPANS*8) / ((l.KDim + C.OI_DELTA_CHUNK) * slab * 4) // slabs that a thread's scratch holds
	if hold == 0 {
		d.fail(op, "keys of %d values: %d bytes of scratch do not hold %d columns of a state", l.KDim, int(C.OI_SCRATCH_BYTES), slab)
		return
	}
	state, list := d.state(s)
	mixes := 0
	if p.Chunked {
		mixes = list.chunks
	}
	keys, gates := int64(G)*int64(T)*int64(2*l.KDim), int64(T)*int64(2*l.Heads)
	mem, err := d.delta.grow((keys + gates + int64(l.Heads)*int64(mixes)*C.OI_DELTA_MIX) * 4)
	if err != nil {
		d.fail(op, "keys and queries of %d tokens: %v", T, err)
		return
	}
	c := args[C.oi_delta](d.step)
	c.state = state
	c.dst, c.dst_stride = floats(dst), C.int64_t(dst.Stride)
	c.qkv, c.qkv_stride = floats(qkv), C.int64_t(qkv.Stride)
	c.a, c.a_stride, c.b, c.b_stride = floats(a), C.int64_t(a.Stride), floats(b), C.int64_t(b.Stride)
	c.rate, c.bias, c.eps = floats(p.Rate), floats(p.DtBias), C.float(p.Eps)
	c.keys, c.gates = (*C.float)(mem), (*C.float)(unsafe.Add(mem, keys*4))
	c.mix, c.chunk_at, c.chunk_first, c.chunks = (*C.float)(unsafe.Add(mem, (keys+gates)*4)), list.chunkAt, list.chunkFirst, C.int32_t(mixes)
	c.T, c.G = C.int32_t(T), C.int32_t(G)
	rows := max(1, rowChunk/(2*G*l.KDim))
	c.chunk_rows = C.int32_t(rows)
	d.push(d.variant.delta_prep, unsafe.Pointer(c), chunks(T, rows), d.redoable(rows*(G+1), rows*(G*l.KDim+l.Heads)*8))
	if mixes > 0 {
		d.push(d.variant.delta_mix, unsafe.Pointer(c), mixes*G, d.redoable(l.Heads/G, l.Heads/G*C.OI_DELTA_MIX*4))
	}

	// A chunk takes a whole head, whose state is read as a stream, unless that leaves threads idle.
	slabs := chunks(l.VDim, slab)
	per := max(1, min(slabs, hold, slabs*l.Heads*list.chains/(4*d.threads)))
	perHead := chunks(slabs, per)
	redo := list.single && perHead == 1 && d.redoable(1+list.longest, int(l.UnitBytes())+list.longest*l.VDim*4)
	c.slabs, c.chunk_slabs, c.head_chunks, c.redo = C.int32_t(slabs), C.int32_t(per), C.int32_t(perHead), flag(redo)
	cmd := d.push(d.variant.delta, unsafe.Pointer(c), list.chains*l.Heads*perHead, redo)
	cmd.patience_ns = C.int32_t(max(patience, list.longest*l.KDim*l.VDim)) // a token takes an eighth of a nanosecond a value
}
