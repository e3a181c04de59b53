//go:build cgo

package cpu

// #include "cpu.h"
import "C"

import (
	"unsafe"

	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/kernels/check"
)

// itemList are the chunks of an attention command: the same for all layers of a group.
type itemList struct {
	starts     *C.int32_t
	contexts   *C.int32_t
	heads, per int
	window     int
	items      []C.oi_attn_item
	merges     []C.oi_attn_item
	slots      int
}

// checkedTables remembers block tables that were found to lie in the pages.
type checkedTables struct {
	tables, starts *C.int32_t
	layout         *kernels.CacheLayout
	window         int
}

const (
	partition    = kernels.AttentionPartition
	mergedTokens = 4 // a longer row group is cut by tokens only, not by partitions
)

// cache describes one layer's part of the pages to C, or fails the step.
func (d *device) cache(op string, kv kernels.KV) (C.oi_cache, bool) {
	l := kv.Layout
	if d.err != nil {
		return C.oi_cache{}, false
	}
	if l == nil || l.Heads <= 0 || l.KDim <= 0 || l.VDim <= 0 || l.BlockTokens <= 0 || l.BlockTokens%16 != 0 ||
		l.BlocksPerPage <= 0 || kv.Layer < 0 || kv.Layer >= l.Layers || l.BlockBytes < int64(l.BlockTokens)*l.TokenBytes() ||
		l.DType > kernels.I8 || l.KDim > 4096 || l.VDim > 4096 {
		d.fail(op, "layer %d of cache layout %+v", kv.Layer, l)
		return C.oi_cache{}, false
	}
	layer := int64(l.BlockTokens) * l.LayerBytes()
	return C.oi_cache{
		pages:      (*C.uint8_t)(unsafe.SliceData(kv.Pages.Host)),
		page_bytes: C.int64_t(l.PageBytes), block_bytes: C.int64_t(l.BlockBytes), layer_offset: C.int64_t(int64(kv.Layer) * layer),
		blocks_per_page: C.int32_t(l.BlocksPerPage), block_tokens: C.int32_t(l.BlockTokens), _type: C.int32_t(dtype(l.DType)),
		heads: C.int32_t(l.Heads), kdim: C.int32_t(l.KDim), vdim: C.int32_t(l.VDim),
	}, true
}

// holds reports whether block id lies in the arena of pages.
func holds(kv kernels.KV, id int32) bool {
	return id >= 0 && kv.Layout.BlockOffset(id)+kv.Layout.BlockBytes <= int64(len(kv.Pages.Host))
}

// RotaryStore implements kernels.Device.
func (d *device) RotaryStore(q kernels.Tensor, kv kernels.KV, qkv kernels.Tensor, p kernels.RotaryParams) {
	const op = "rotaryStore"
	if !d.ok(check.RotaryStore(q, kv, qkv, p)) {
		return
	}
	c, ok := d.cache(op, kv)
	if !ok || qkv.Rows == 0 {
		return
	}
	l, T := kv.Layout, qkv.Rows
	a := args[C.oi_rotary](d.step)
	a.cache = c
	a.q, a.q_stride = floats(q), C.int64_t(q.Stride)
	a.qkv, a.qkv_stride = floats(qkv), C.int64_t(qkv.Stride)
	a.cossin, a.cs_stride = floats(p.CosSin), C.int64_t(p.CosSin.Stride)
	if !p.QNorm.None() {
		a.qnorm = floats(p.QNorm)
	}
	if !p.KNorm.None() {
		a.knorm = floats(p.KNorm)
	}
	a.vnorm, a.keys_as_values = flag(p.VNorm), flag(p.KeysAsValues)
	a.slots = d.step.ints(kv.Slots)
	a.T, a.H, a.rot, a.eps = C.int32_t(T), C.int32_t(q.Cols/l.KDim), C.int32_t(p.CosSin.Cols), C.float(p.Eps)
	rows := max(1, rowChunk/qkv.Cols)
	a.chunk_rows = C.int32_t(rows)
	pieces := rows * (1 + 2*l.Heads)
	if l.ScaleBytes() > 0 {
		pieces += rows * 2 * l.Heads
	}
	d.push(d.variant.rotary, unsafe.Pointer(a), chunks(T, rows), d.redoable(pieces, rows*(q.Cols+l.Heads*(l.KDim+l.VDim))*4))
}

func flag(b bool) C.int32_t {
	if b {
		return 1
	}
	return 0
}

// Attention implements kernels.Device.
func (d *device) Attention(dst, q kernels.Tensor, kv kernels.KV, r kernels.Ragged, p kernels.AttentionParams) {
	const op = "attention"
	c, ok := d.cache(op, kv)
	if !ok {
		return
	}
	l, T := kv.Layout, q.Rows
	H := q.Cols / l.KDim
	if q.Cols%l.KDim != 0 || H%l.Heads != 0 || H == 0 {
		d.fail(op, "q %v: heads of %d values for %d key/value heads", q, l.KDim, l.Heads)
		return
	}
	if !d.dense(op, "q", q, T, q.Cols) || !d.dense(op, "dst", dst, T, H*l.VDim) || T == 0 {
		return
	}
	starts, contexts := d.step.ints(r.Starts), d.step.ints(r.Contexts)
	tables := d.step.ints(kv.Tables)
	key := checkedTables{tables, starts, l, p.Window}
	if r.Starts.Addr == 0 || kv.Tables.Addr == 0 || d.step.tables != key {
		if !d.checkRows(op, kv, r, T, p.Window) {
			return
		}
		d.step.tables = key
	}
	per := H / l.Heads
	if need := (per + 4) * (l.VDim + 2) * 4; need > C.OI_SCRATCH_BYTES {
		d.fail(op, "%d query heads of %d values for a key/value head need %d bytes: have %d", per, l.VDim, need, int(C.OI_SCRATCH_BYTES))
		return
	}
	list := d.items(r, starts, contexts, l.Heads, per, l.VDim, p.Window)
	a := args[C.oi_attn](d.step)
	a.cache = c
	a.dst, a.dst_stride = floats(dst), C.int64_t(dst.Stride)
	a.q, a.q_stride = floats(q), C.int64_t(q.Stride)
	a.tables, a.starts, a.contexts, a.table_stride = tables, starts, contexts, C.int32_t(kv.Stride)
	a.item, a.items = unsafe.SliceData(list.items), C.int32_t(len(list.items))
	a.H, a.window = C.int32_t(H), C.int32_t(max(0, p.Window))
	a.scale, a.soft_cap = C.float(p.Scale), C.float(p.SoftCap)
	if list.slots > 0 {
		mem, err := d.partial.grow(int64(list.slots) * int64(per) * int64(l.VDim+2) * 4)
		if err != nil {
			d.fail(op, "partial sums of %d rows: %v", list.slots, err)
			return
		}
		a.partial = (*C.float)(mem)
	}
	tokens := max(tileTokens(per, l.VDim), mergedTokens)
	redo := d.redoable(2*tokens, tokens*per*(l.VDim+2)*4)
	d.push(d.variant.attn, unsafe.Pointer(a), len(list.items), redo)
	aligned := per*l.VDim%32 == 0 // a chunk's columns are whole blocks
	if len(list.merges) == 0 {
		if aligned {
			d.wrote(dst, &a.prep)
		}
		return
	}
	m := args[C.oi_attn](d.step)
	*m = *a
	m.item, m.items = unsafe.SliceData(list.merges), C.int32_t(len(list.merges))
	d.push(d.variant.merge, unsafe.Pointer(m), len(list.merges), true)
	if aligned {
		// Rows that needed no merging are prepared by the first command, the others by the second.
		d.wrote(dst, &a.prep, &m.prep)
	}
}

// checkRows makes sure that no token's context reaches outside its block table or the pages.
func (d *device) checkRows(op string, kv kernels.KV, r kernels.Ragged, T, window int) bool {
	S, l := len(r.Contexts.Host), kv.Layout
	if len(r.Starts.Host) != S+1 || S == 0 || r.Starts.Host[0] != 0 || int(r.Starts.Host[S]) != T {
		d.fail(op, "starts %v of %d sequences for %d tokens", r.Starts.Host, S, T)
		return false
	}
	if kv.Stride < 0 || len(kv.Tables.Host) < S*kv.Stride {
		d.fail(op, "%d block table entries for %d sequences of %d", len(kv.Tables.Host), S, kv.Stride)
		return false
	}
	for s := range S {
		n, context := int(r.Starts.Host[s+1]-r.Starts.Host[s]), int(r.Contexts.Host[s])
		if n < 0 || n > context || context > kv.Stride*l.BlockTokens {
			d.fail(op, "sequence %d: %d tokens of a context of %d, block table for %d", s, n, context, kv.Stride*l.BlockTokens)
			return false
		}
		if n == 0 {
			continue
		}
		first := 0
		if window > 0 {
			first = max(0, context-n+1-window)
		}
		for i := first / l.BlockTokens; i*l.BlockTokens < context; i++ {
			if id := kv.Tables.Host[s*kv.Stride+i]; !holds(kv, id) {
				d.fail(op, "sequence %d: block table entry %d is %d, outside pages of %d bytes", s, i, id, len(kv.Pages.Host))
				return false
			}
		}
	}
	return true
}

// tileTokens is how many query tokens a chunk takes: their running sums must fit the scratch, and
// two tokens or more should share what is read of a long context.
func tileTokens(per, vdim int) int { return max(1, min(16, 64/per, 128<<10/(per*vdim*4))) }

// items cuts the step's attention into chunks. A row group whose context has several partitions is
// cut at them when it is short, so that one long sequence keeps all threads busy.
func (d *device) items(r kernels.Ragged, starts, contexts *C.int32_t, heads, per, vdim, window int) *itemList {
	s := d.step
	for i := range s.items {
		if l := &s.items[i]; l.starts == starts && l.contexts == contexts && l.heads == heads && l.per == per && l.window == window {
			return l
		}
	}
	list := itemList{starts: starts, contexts: contexts, heads: heads, per: per, window: window}
	tile := tileTokens(per, vdim)
	var items, merges []C.oi_attn_item
	for q := range r.Contexts.Host {
		from, to, context := int(r.Starts.Host[q]), int(r.Starts.Host[q+1]), int(r.Contexts.Host[q])
		n := to - from
		if n == 0 {
			continue
		}
		first := 0
		if window > 0 {
			first = max(0, context-n+1-window) / partition
		}
		parts := (context-1)/partition + 1 - first
		for g := range heads {
			if n > mergedTokens || parts == 1 {
				// Later tiles see more: the longest first.
				for tok := to - 1; tok >= from; tok -= tile {
					t0 := max(from, tok-tile+1)
					items = append(items, C.oi_attn_item{seq: C.int32_t(q), tok: C.int32_t(t0), n: C.int32_t(tok - t0 + 1), g: C.int32_t(g), part: -1})
				}
				continue
			}
			merges = append(merges, C.oi_attn_item{seq: C.int32_t(q), tok: C.int32_t(from), n: C.int32_t(n), g: C.int32_t(g),
				first: C.int32_t(parts), slot: C.int32_t(list.slots)})
			for i := range parts {
				items = append(items, C.oi_attn_item{seq: C.int32_t(q), tok: C.int32_t(from), n: C.int32_t(n), g: C.int32_t(g),
					part: C.int32_t(first + i), slot: C.int32_t(list.slots)})
				list.slots += n
			}
		}
	}
	list.items, list.merges = s.keepItems(items), s.keepItems(merges)
	s.items = append(s.items, list)
	return &s.items[len(s.items)-1]
}

func (s *step) keepItems(v []C.oi_attn_item) []C.oi_attn_item {
	if len(v) == 0 {
		return nil
	}
	out := unsafe.Slice((*C.oi_attn_item)(s.alloc(int64(len(v))*int64(unsafe.Sizeof(v[0])))), len(v))
	copy(out, v)
	return out
}
