package cuda

import (
	"fmt"

	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/kernels/check"
)

// Linear implements kernels.Device.
func (d *Device) Linear(dst, x kernels.Tensor, w *kernels.Weight) { d.linear("linear", dst, x, w, 0) }

// LinearAdd implements kernels.Device.
func (d *Device) LinearAdd(dst, x kernels.Tensor, w *kernels.Weight) {
	d.linear("linearAdd", dst, x, w, 1)
}

const (
	decodeRows = 16 // the most tokens of linear_decode
	// leastBlocks is how many blocks a decode product should have, so that their loads together reach the memory's rate. A
	// constant, and not the card's, so that a shape has the same launch everywhere.
	leastBlocks = 64
)

// kindNames are those of kernels.
var kindNames = map[int]string{kindW4: "w4", kindW8: "w8", kindF16: "f16", kindBF16: "bf16"}

// prepared says what x the workspace holds.
type prepared struct {
	valid      bool
	order      uint64
	tiles      int
	bf16, sums bool
}

// holds reports whether x is there as p needs it.
func (x prepared) holds(p *part) bool {
	return x.valid && x.order == p.orders && x.tiles == p.tiles && x.bf16 == (p.kind == kindBF16) && (x.sums || !p.offsets())
}

func (d *Device) linear(op string, dst, x kernels.Tensor, w *kernels.Weight, add int) {
	if d.err != nil || !d.ok(check.Linear(op, dst, x, w)) {
		return
	}
	ps := w.Impl.(weight)
	rows := x.Rows // at a time
	for i := range ps {
		p := &ps[i]
		if p.host != nil {
			d.ok(fmt.Errorf("%s: %s was loaded to be looked up, not multiplied with", op, w.Name))
			return
		}
		if each := p.workspace(); p.kind != kindFloat32 {
			rows = min(rows, int(d.workspaceBytes/each)*8)
			if rows == 0 {
				d.ok(fmt.Errorf("%s: x of 8 rows for %s [%d,%d] takes %d bytes, the workspace has %d", op, w.Name, w.N, w.K, each, d.workspaceBytes))
				return
			}
		}
	}
	if rows < x.Rows && rows > 128 {
		rows -= rows % 128 // whole tiles
	}
	for from := 0; from < x.Rows; from += rows {
		to := min(from+rows, x.Rows)
		var have prepared
		for i := range ps {
			p := &ps[i]
			have = d.product(op, p, dst.RowRange(from, to).ColRange(p.first, p.first+p.N), x.RowRange(from, to), add, have)
		}
	}
}

// workspace is what 8 rows of x take.
func (p *packing) workspace() int64 {
	n := p.tiles * p.xBytes()
	if p.offsets() {
		n += p.tiles * 128
	}
	return int64(n + 256) // the inverse, and each of three pieces begins at a multiple of 256
}

// product multiplies x, of which the workspace has what have says, by p, and says what it has now.
func (d *Device) product(op string, p *part, dst, x kernels.Tensor, add int, have prepared) prepared {
	T := x.Rows
	if p.kind == kindFloat32 {
		d.launch(op, "linear_rows", "linear_float32", [3]int{(p.N + 7) / 8, (T + 3) / 4, 1}, [3]int{256, 1, 1}, 0,
			argT(dst), arg(dst.Stride), arg(add), p.codes, p.bias, argT(x), arg(x.Stride), p.orders, arg(T), arg(p.N), arg(p.K))
		return have
	}
	blocks := (T + 7) / 8 // of 8 tokens
	xAt := d.workspace
	inverse := xAt + uint64(blocks*p.tiles*p.xBytes())
	sums := inverse + uint64(roundUp(T*4, 256))
	if !p.offsets() && !have.holds(p) {
		sums = 0
	}
	if !have.holds(p) {
		have = prepared{true, p.orders, p.tiles, p.kind == kindBF16, p.offsets()}
		d.launch(op, "linear_prepare", "linear_prepare", [3]int{blocks * 8, 1, 1}, [3]int{256, 1, 1}, 0,
			argT(x), arg(x.Stride), p.orders, arg(T), arg(p.K), arg(p.tiles), xAt, sums, inverse, argBool(have.bf16), argBool(aligned(x) && p.orders == 0))
	}
	args := []uint64{argT(dst), arg(dst.Stride), arg(add), p.codes, p.scales, p.bias, xAt, sums, inverse, arg(T), arg(p.N), arg(p.tiles), arg(p.cut)}
	scheme := []uint64{arg(p.form), arg(p.record), arg(p.slots), uint64(p.magic()), arg(p.groups)}
	suffix := ""
	if d.half && p.slots != 0 {
		suffix = "_half"
	}
	if T <= decodeRows {
		n := roundUp(T, 8)
		s := p.decodeShape(n / 8)
		d.launch(op, "linear_decode", fmt.Sprintf("linear_decode_%s_%d%s", kindNames[p.kind], n, suffix),
			[3]int{(p.strips() + s.strips - 1) / s.strips, 1, 1}, [3]int{32 * s.strips * p.cut, 1, 1}, s.sharedBytes, append(append(args, arg(s.stages)), scheme...)...)
		return have
	}
	s := p.prefillShape(T)
	d.launch(op, "linear_prefill", fmt.Sprintf("linear_prefill_%s_%d%s", kindNames[p.kind], s.tokens, suffix),
		[3]int{(T + s.tokens - 1) / s.tokens, (p.strips() + s.strips - 1) / s.strips, 1}, [3]int{32 * s.strips, 1, 1}, s.sharedBytes, append(append(args, arg(s.stages)), scheme...)...)
	return have
}

// decodeShape is the launch of a decode product.
type decodeShape struct {
	strips      int // of a block
	stages      int
	sharedBytes int
}

// decodeShape chooses the block for `blocks` times 8 tokens: as many strips as share x and leave enough blocks.
func (p *packing) decodeShape(blocks int) decodeShape {
	warps := 8
	if p.kind == kindW4 {
		warps = 16
	}
	s := decodeShape{strips: warps / p.cut, stages: 4}
	for s.strips > 1 && (p.strips()+s.strips-1)/s.strips < leastBlocks {
		s.strips /= 2
	}
	stage := func() int {
		n := s.strips*p.cut*(p.tileBytes()+p.slotBytes()) + p.cut*blocks*p.xBytes()
		if p.offsets() {
			n += p.cut * blocks * 128
		}
		return n
	}
	for s.strips > 1 && s.stages*stage() > blockSharedBytes {
		s.strips /= 2
	}
	for s.stages*stage() > blockSharedBytes {
		s.stages--
	}
	s.sharedBytes = max(s.stages*stage(), p.cut*blocks*8*(s.strips*stripRows+4)*4)
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
	s.sharedBytes = max(s.stages*stage, s.tokens*(s.strips*stripRows+4)*4)
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
