package cuda

import (
	"fmt"
	"math"
	"math/bits"

	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/kernels/check"
)

// attentionSplit is the most tokens of a sequence whose context is cut into units that blocks take one by one: there are too
// few rows to keep a card busy otherwise. Longer chunks have a block go over the whole context, which needs no sums of others.
const attentionSplit = 16

// attentionSpan is how many partitions are added up on their own, as in attention_stages.cuh. Blocks take spans, which leave
// half as many sums to write and read as partitions do; a span's tensor core work is less than its bytes' time as long as most
// of a card's multiprocessors have one.
const attentionSpan = 2

// attentionTickets is how many tiles of key heads a launch can count the blocks of.
const attentionTickets = 1 << 18

// attentionShape is what attention.cu is launched with.
type attentionShape struct {
	entry  string
	rows   int // most rows of a block
	warps  int // that share 16 of them
	unit   int // bytes that a copy moves
	perRow int // bytes of shared memory a row
	block  int // and a block
	stage  int // and each of its 2 to 4 stages
}

// newAttentionShape finds the entry for a cache, or says what it has that none takes.
func newAttentionShape(kv kernels.KV) (s attentionShape, err error) {
	l := kv.Layout
	const op = "attention"
	if err := cacheFits(op, kv); err != nil {
		return s, err
	}
	if l.KDim > 512 || l.VDim > 512 {
		return s, fmt.Errorf("%s: heads of %d and %d values: 512 is the most", op, l.KDim, l.VDim)
	}
	size := l.DType.Bytes()
	if l.KDim*size%4 != 0 || l.VDim*size%4 != 0 {
		return s, fmt.Errorf("%s: heads of %d and %d values of %v: not a multiple of 4 bytes", op, l.KDim, l.VDim, l.DType)
	}
	s.unit = 4
	if l.KDim*size%16 == 0 && l.VDim*size%16 == 0 {
		s.unit = 16
	}
	width := 64
	for width < l.VDim {
		width *= 2
	}
	s.entry = fmt.Sprintf("attention_%s_%d", map[kernels.DType]string{kernels.F16: "f16", kernels.BF16: "bf16", kernels.F8E4M3: "f8", kernels.I8: "i8"}[l.DType], width)
	step := 16
	if size == 1 {
		step = 32
	}
	kPad := (l.KDim + step - 1) / step * step
	s.rows, s.warps = 64, 4
	if width > 128 {
		s.rows = 32
	}
	if width == 256 {
		s.warps = 8
	}
	keys := 16 * s.warps
	s.perRow = 2*(kPad+8)*2 + (kernels.AttentionPartition+8)*2 + 4*(17+2*s.warps+1)
	valueRow := width*size + 16
	s.stage = max(keys*(128+16), min(max(keys*128/(width*size), 16), keys)*valueRow)
	s.block = 4 * 16 * 32
	for s.rows > 16 && s.sharedBytes(s.rows, 2) > blockSharedBytes {
		s.rows -= 16
	}
	if n := s.sharedBytes(s.rows, 2); n > blockSharedBytes {
		return s, fmt.Errorf("%s: heads of %d and %d values of %v need %d bytes of shared memory, a block has %d", op, l.KDim, l.VDim, l.DType, n, blockSharedBytes)
	}
	return s, nil
}

func (s attentionShape) sharedBytes(rows, stages int) int {
	return rows*s.perRow + s.block + stages*s.stage
}

// stages is how many stages a block of that many rows has: what lets two blocks share a multiprocessor, where there are so
// many, or else what fits.
func (s attentionShape) stages(rows int, shared bool) int {
	limits := []int{blockSharedBytes/2 - 512, blockSharedBytes}
	if !shared {
		limits = limits[1:]
	}
	for _, limit := range limits {
		for n := 4; n >= 2; n-- {
			if s.sharedBytes(rows, n) <= limit {
				return n
			}
		}
	}
	panic("cuda: attention: a shape that does not fit")
}

// bucket is n to the next power of two.
func bucket(n int) int { return 1 << bits.Len(uint(n-1)) }

// coarse is n to the next number of four binary digits and zeros: a few grids for contexts that grow, of which few blocks
// find no work.
func coarse(n int) int {
	step := 1 << max(0, bits.Len(uint(n))-4)
	return (n + step - 1) / step * step
}

// attentionRows are the sequences of a step that a launch takes.
type attentionRows struct {
	tokens    int
	most      int      // tokens of a sequence
	stretches [][3]int // of each its tokens, and the positions from the first that it sees to its end
}

// units is how many units of so many partitions the sequence with the most of them has.
func (a attentionRows) units(each int) (most int) {
	for _, s := range a.stretches {
		most = max(most, units(s, each))
	}
	return most
}

// units of a stretch.
func units(s [3]int, each int) int {
	positions := each * kernels.AttentionPartition
	return (s[2]-1)/positions + 1 - s[1]/positions
}

// newAttentionRows sorts the sequences of a step: those whose context is split, and the others.
func newAttentionRows(r kernels.Ragged, window int) (short, long attentionRows) {
	for s, context := range r.Contexts.Host {
		n := int(r.Starts.Host[s+1] - r.Starts.Host[s])
		if n == 0 {
			continue
		}
		a := &short
		if n > attentionSplit {
			a = &long
		}
		first := 0
		if window > 0 {
			first = max(0, int(context)-n+1-window)
		}
		a.tokens, a.most = a.tokens+n, max(a.most, n)
		a.stretches = append(a.stretches, [3]int{n, first, int(context)})
	}
	return short, long
}

// items is at least how many pieces of work the tokens numbered [from, to) are: tiles of `rows` rows, of which a token has
// `per`, by units of so many partitions; 0: by the whole context.
func (a attentionRows) items(from, to, per, rows, each int) int {
	items, number := 0, 0
	for _, s := range a.stretches {
		n := max(0, min(number+s[0], to)-max(number, from))
		number += s[0]
		tiles := (n*per + rows - 1) / rows
		if each > 0 {
			tiles *= units(s, each)
		}
		items += tiles
	}
	return coarse(items)
}

// Attention implements kernels.Device. Sequences of up to attentionSplit tokens have their context split over blocks, others
// have a block for each tile of rows. Launches depend on heads, on the pieces of work (coarse), and on powers of two of the
// most tokens of a sequence and of the longest context of the first kind; on their tokens when there is no other.
func (d *Device) Attention(dst, q kernels.Tensor, kv kernels.KV, r kernels.Ragged, p kernels.AttentionParams) {
	if d.err != nil || !d.ok(check.Attention(dst, q, kv, r, p)) || q.Rows == 0 {
		return
	}
	shape, err := newAttentionShape(kv)
	if !d.ok(err) {
		return
	}
	const op = "attention"
	l, S := kv.Layout, len(r.Contexts.Host)
	H := q.Cols / l.KDim
	per := H / l.Heads
	scale, soft := p.Scale*math.Log2E, p.SoftCap*math.Log2E
	if p.SoftCap > 0 {
		scale = p.Scale / p.SoftCap
	}
	if l.DType == kernels.F8E4M3 {
		scale *= 256 // what codesToF16 leaves to it
	}
	launch := func(items, rows, from, to, atLeast, atMost, each, units int, partial, sums uint64) {
		stages := shape.stages(rows, items*l.Heads > d.mps)
		args := []uint64{argT(dst), arg(dst.Stride), argT(q), arg(q.Stride), partial, sums,
			r.Starts.Addr, r.Contexts.Addr, arg(S), kv.Tables.Addr, arg(kv.Stride)}
		args = append(args, cacheArgs(kv)...)
		args = append(args, arg(per), arg(from), arg(to), arg(atLeast), arg(atMost), arg(each), arg(units), d.tickets, arg(stages), arg(shape.unit), argF(scale), argF(soft), arg(p.Window))
		d.launch(op, "attention", shape.entry, [3]int{items, l.Heads, 1}, [3]int{rows * 2 * shape.warps, 1, 1}, shape.sharedBytes(rows, stages), args...)
	}
	short, long := newAttentionRows(r, p.Window)
	if long.tokens > 0 {
		launch(long.items(0, long.tokens, per, shape.rows, 0), shape.rows, 0, math.MaxInt32, attentionSplit+1, math.MaxInt32, 0, 0, 0, 0)
	}
	if short.tokens == 0 {
		return
	}
	rows := min(shape.rows, (bucket(short.most)*per+15)/16*16)
	each := attentionSpan
	if short.items(0, short.tokens, per, rows, each)*l.Heads < d.mps*3/4 {
		each = 1
	}
	units := bucket(short.units(each))
	token := int64(H) * int64(units) * int64((l.VDim+3)&^3*4+8)
	// Beside chunks the number of short rows comes and goes.
	bound := short.tokens
	if long.tokens > 0 {
		bound = bucket(bound)
	}
	tokens := int(min(int64(bound), (d.workspaceBytes-8)/token, attentionTickets/int64(H)))
	if tokens == 0 {
		d.ok(fmt.Errorf("%s: %d units of %d heads of %d values need %d bytes, the workspace has %d", op, units, H, l.VDim, token, d.workspaceBytes))
		return
	}
	sums := d.workspace + uint64(tokens*H*units*((l.VDim+3)&^3)*4+7)&^7
	for from := 0; from < short.tokens; from += tokens {
		to := min(bound, from+tokens)
		launch(short.items(from, to, per, rows, each), rows, from, to, 1, attentionSplit, each, units, d.workspace, sums)
	}
}
