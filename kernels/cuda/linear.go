package cuda

import (
	"fmt"
	"slices"

	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/kernels/check"
)

// Linear implements kernels.Device.
func (d *Device) Linear(dst, x kernels.Tensor, w *kernels.Weight) { d.linear(linear, dst, x, w) }

// LinearAdd implements kernels.Device.
func (d *Device) LinearAdd(dst, x kernels.Tensor, w *kernels.Weight) {
	d.linear(linearAdd, dst, x, w)
}

func (d *Device) linear(k kind, dst, x kernels.Tensor, w *kernels.Weight) {
	if d.err == nil && d.ok(check.Linear(k.String(), dst, x, w)) && x.Rows > 0 {
		d.list(operator{kind: k, dst: dst, x: x, weight: w})
	}
}

const (
	decodeRows      = 16       // the most tokens of linear_decode
	halfSharedBytes = 49 << 10 // of each of two blocks on a multiprocessor; the card takes 1 KiB of 100 for each
	// leastBlocks is how many blocks a decode product should have, so that their loads together reach the memory's rate. A
	// constant, and not the card's, so that a shape has the same launch everywhere.
	leastBlocks = 64
)

// kindNames are those of kernels.
var kindNames = map[int]string{kindW4: "w4", kindW8: "w8", kindF16: "f16", kindBF16: "bf16"}

// launchLinear queues the launches of a product: for each part of the weight, and again for as many rows as the workspace holds x of.
// It returns how many of the operators after it these take in.
func (d *Device) launchLinear(o *operator, after []operator) (taken int) {
	plain := source{x: o.x}
	if o.takes(plain) {
		return d.launchFrom(o, plain, after)
	}
	op, dst, x, w, e := o.kind.String(), o.dst, o.x, o.weight, end{mode: o.add()}
	ps := w.Impl.(weight)
	rows := x.Rows // at a time
	for i := range ps {
		p := &ps[i]
		if p.host != nil {
			d.ok(fmt.Errorf("%s: %s was loaded to be looked up, not multiplied with", op, w.Name))
			return 0
		}
		if each := p.workspace(); p.kind != kindFloat32 {
			rows = min(rows, int(d.workspaceBytes/each)*8)
			if rows == 0 {
				d.ok(fmt.Errorf("%s: x of 8 rows for %s [%d,%d] takes %d bytes, the workspace has %d", op, w.Name, w.N, w.K, each, d.workspaceBytes))
				return 0
			}
		}
	}
	if rows < x.Rows && rows > 128 {
		rows -= rows % 128 // whole tiles
	}
	if rows == x.Rows && rows <= decodeRows {
		e, taken = d.endOf(o, plain, after)
	}
	for from := 0; from < x.Rows; from += rows {
		to := min(from+rows, x.Rows)
		some := x.RowRange(from, to)
		var have prepared
		for i := 0; i < len(ps); i++ {
			p := &ps[i]
			out := dst.RowRange(from, to).ColRange(p.first, p.first+p.N)
			if e.mode == endGate {
				out = e.after.dst
			}
			if p.kind == kindFloat32 {
				d.launch(op, "linear_rows", "linear_float32", [3]int{(p.N + 7) / 8, (some.Rows + 3) / 4, 1}, [3]int{256, 1, 1}, 0,
					argT(out), arg(out.Stride), argBool(e.mode == endAdd), p.codes, p.bias, argT(some), arg(some.Stride), p.orders, arg(some.Rows), arg(p.N), arg(p.K))
				continue
			}
			if !have.serves(p) {
				have = d.prepare(op, p, some, 0)
			}
			if some.Rows <= decodeRows {
				s := p.decodeShape((some.Rows+7)/8, e.strips())
				f := d.fewOf(op, ps[i:], s, some)
				d.decode(op, p, s, out, have, e, f)
				i += f.parts()
			} else {
				d.prefill(op, p, p.prefillShape(some.Rows), out, have, e.mode)
			}
		}
	}
	return taken
}

// workspace is what 8 rows of x take.
func (p *packing) workspace() int64 {
	n := p.tiles * p.xBytes()
	if p.offsets() {
		n += p.tiles * 128
	}
	return int64(n + 256) // the inverse, and each of three pieces begins at a multiple of 256
}

// prepared is x in the workspace as the products read it; order and tiles say for which weights.
type prepared struct {
	x, sums, inverse uint64
	order            uint64
	tiles            int
	bf16             bool
}

// serves reports whether x is there as p needs it.
func (x prepared) serves(p *part) bool {
	return x.x != 0 && x.order == p.orders && x.tiles == p.tiles && x.bf16 == (p.kind == kindBF16) && (x.sums != 0 || !p.offsets())
}

// prepare leaves x for p `at` bytes into the workspace.
func (d *Device) prepare(op string, p *part, x kernels.Tensor, at int64) prepared {
	blocks := (x.Rows + 7) / 8 // of 8 tokens
	have := prepared{x: d.workspace + uint64(at), order: p.orders, tiles: p.tiles, bf16: p.kind == kindBF16}
	have.inverse = have.x + uint64(blocks*p.tiles*p.xBytes())
	if p.offsets() {
		have.sums = have.inverse + uint64(roundUp(x.Rows*4, 256))
	}
	d.launch(op, "linear_prepare", "linear_prepare", [3]int{blocks * 8, 1, 1}, [3]int{min(roundUp(p.tiles*8, 32), 1024), 1, 1}, 0,
		argT(x), arg(x.Stride), p.orders, arg(x.Rows), arg(p.K), arg(p.tiles), have.x, have.sums, have.inverse, argBool(have.bf16), argBool(aligned(x) && p.orders == 0))
	return have
}

func (d *Device) decode(op string, p *part, s decodeShape, dst kernels.Tensor, x prepared, e end, f few) {
	d.launchDecode(op, fmt.Sprint(roundUp(dst.Rows, 8)), p, s, dst, e, f, x.x, x.sums, x.inverse, f.x.x, f.x.inverse)
}

// launchDecode queues the kernel of p's kind that takes x as last says.
func (d *Device) launchDecode(op, of string, p *part, s decodeShape, dst kernels.Tensor, e end, f few, last ...uint64) {
	d.launch(op, "linear_decode", fmt.Sprintf("linear_decode_%s_%s%s", kindNames[p.kind], of, d.suffix(p)),
		[3]int{f.blocks + ceil(p.strips(), s.strips), 1, 1}, [3]int{32 * s.strips * p.cut, 1, 1}, max(s.sharedBytes, f.sharedBytes),
		slices.Concat([]uint64{argT(dst), arg(dst.Stride), arg(e.mode), p.codes, p.scales, p.bias, arg(dst.Rows), arg(p.N), arg(p.tiles), arg(p.cut), arg(s.stages),
			arg(p.form), arg(p.record), arg(p.slots), uint64(p.magic()), arg(p.groups)}, e.args(p), f.args(), last)...)
}

func (d *Device) prefill(op string, p *part, s prefillShape, dst kernels.Tensor, x prepared, add int) {
	d.launch(op, "linear_prefill", fmt.Sprintf("linear_prefill_%s_%d%s", kindNames[p.kind], s.tokens, d.suffix(p)),
		[3]int{(dst.Rows + s.tokens - 1) / s.tokens, (p.strips() + s.strips - 1) / s.strips, 1}, [3]int{32 * s.strips, 1, 1}, s.sharedBytes, p.args(dst, x, add, s.stages)...)
}

// suffix is that of the kernels which accumulate as the device was asked to. In fp16 are 32 inputs of one scale: groups of which there can be
// two in as many are summed in float32 all the same.
func (d *Device) suffix(p *part) string {
	if d.half && (p.slots == 1 || p.slots == 2) {
		return "_half"
	}
	return ""
}

// args are the arguments of linear_prefill.
func (p *part) args(dst kernels.Tensor, x prepared, add, stages int) []uint64 {
	return []uint64{argT(dst), arg(dst.Stride), arg(add), p.codes, p.scales, p.bias, x.x, x.sums, x.inverse, arg(dst.Rows), arg(p.N), arg(p.tiles), arg(p.cut),
		arg(stages), arg(p.form), arg(p.record), arg(p.slots), uint64(p.magic()), arg(p.groups)}
}

// decodeWarps are those of a block of linear_decode, at most.
func (p *packing) decodeWarps() int {
	if p.kind == kindW4 {
		return 16
	}
	return 8
}

// sumBytes is the shared memory that the sums of a decode block take.
func sumBytes(parts, blocks, strips int) int { return parts * blocks * 8 * (strips*stripRows + 4) * 4 }

// decodeShape is the launch of a decode product.
type decodeShape struct {
	strips      int // of a block
	stages      int
	sharedBytes int
}

// decodeStrips is how many strips a block has at most: what its warps take, and fewer where there are few blocks, but at least
// `least`, which may be 2 where a block has warps for the parts of two.
func (p *packing) decodeStrips(least int) int {
	strips := p.decodeWarps() / p.cut
	for strips > least && ceil(p.strips(), strips) < leastBlocks {
		strips /= 2
	}
	return strips
}

// decodeShape chooses the block for `blocks` times 8 tokens: as many strips as share x and leave enough blocks.
func (p *packing) decodeShape(blocks, least int) decodeShape {
	s := decodeShape{strips: p.decodeStrips(least), stages: 4}
	stage := func() int {
		n := s.strips*p.cut*(p.tileBytes()+p.slotBytes()) + p.cut*blocks*p.xBytes()
		if p.offsets() {
			n += p.cut * blocks * 128
		}
		return n
	}
	for s.strips > least && s.stages*stage() > blockSharedBytes {
		s.strips /= 2
	}
	// Two blocks on a multiprocessor, where there are as many: a little more is on its way with three stages each than with four of one.
	most := blockSharedBytes
	if (p.strips()+s.strips-1)/s.strips > 2*leastBlocks && 3*stage() <= halfSharedBytes {
		most = halfSharedBytes
	}
	for s.stages*stage() > most {
		s.stages--
	}
	s.sharedBytes = max(s.stages*stage(), sumBytes(p.cut, blocks, s.strips))
	return s
}

// prefillShape is the launch of a prefill product.
type prefillShape struct {
	tokens, strips int // of a block
	stages         int
	sharedBytes    int
}

// prefillShape chooses the tile for T tokens: the least that holds them, and half as many strips when there would be few blocks.
func (p *packing) prefillShape(T int) prefillShape {
	s := prefillShape{tokens: 32, strips: 8}
	for s.tokens < T && s.tokens < p.prefillRows() {
		s.tokens *= 2
	}
	if (T+s.tokens-1)/s.tokens*(p.strips()+7)/8 < leastBlocks {
		s.strips = 4
	}
	stage := s.strips*(p.tileBytes()+p.slotBytes()) + s.tokens/8*p.xBytes()
	if p.offsets() {
		stage += s.tokens / 8 * 128
	}
	s.stages = min(4, blockSharedBytes/stage)
	s.sharedBytes = max(s.stages*stage, s.tokens*(s.strips*stripRows+4+1)*4)
	return s
}

// prefillRows are the most tokens of a block of linear_prefill.
func (p *packing) prefillRows() int {
	if p.kind == kindW4 || p.kind == kindW8 {
		return 128
	}
	return 64
}

// aligned reports whether t's rows can be read 16 bytes at a time.
func aligned(t kernels.Tensor) bool {
	return t.Buf.Addr%16 == 0 && t.Stride%4 == 0 && t.Cols%4 == 0
}

func argBool(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

// EmbedRows implements kernels.Device.
func (d *Device) EmbedRows(dst kernels.Tensor, table *kernels.Weight, ids kernels.Ints, scale float32) {
	const op = "embedRows"
	if d.err != nil || !d.ok(check.EmbedRows(dst, table, ids)) || dst.Rows == 0 {
		return
	}
	for _, p := range table.Impl.(weight) {
		args := []uint64{argT(dst), arg(dst.Stride), ids.Addr, arg(p.first), arg(p.N), p.codes}
		grid, block := [3]int{dst.Rows, 1, 1}, [3]int{256, 1, 1}
		if p.kind == kindFloat32 {
			d.launch(op, "linear_rows", "embed_float32", grid, block, 0, append(args, p.orders, arg(p.K), argF(scale))...)
			continue
		}
		d.launch(op, "linear_rows", "embed_tiles", grid, block, 0, append(args, p.scales, p.orders, arg(p.K), arg(p.tiles), argF(scale), arg(p.kind),
			arg(p.form), arg(p.record), arg(p.slots), uint64(p.magic()), arg(p.groups))...)
	}
}
