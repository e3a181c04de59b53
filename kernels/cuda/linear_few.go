package cuda

import (
	"strings"

	"github.com/openinfer-go/openinfer/kernels"
)

// few is a part of few outputs that is multiplied in the launch of the part before it.
type few struct {
	*part
	x           prepared
	blocks      int
	sharedBytes int
}

// fewOutputs are the most of a part whose own launch would take longer than its bytes: 1.2 MB at K = 5,120.
const fewOutputs = 128

// fewAfter is the second of ps where it has few outputs of 16 bits and the first, multiplied with this shape, has codes and warps enough.
func fewAfter(ps []part, s decodeShape) (f few, ok bool) {
	if len(ps) < 2 || ps[0].kind != kindW4 && ps[0].kind != kindW8 {
		return f, false
	}
	p := &ps[1]
	f = few{part: p, blocks: p.strips()}
	return f, (p.kind == kindF16 || p.kind == kindBF16) && p.host == nil && p.N <= fewOutputs && p.cut <= s.strips*ps[0].cut
}

// fewOf is what shares the launch of the first of ps, of shape s, which is over a prepared x: the workspace holds x for both.
func (d *Device) fewOf(op string, ps []part, s decodeShape, x kernels.Tensor) few {
	f, ok := fewAfter(ps, s)
	blocks := ceil(x.Rows, 8)
	before := int64(blocks) * ps[0].workspace()
	if !ok || before+int64(blocks)*f.workspace() > d.workspaceBytes {
		return few{}
	}
	f.sharedBytes = sumBytes(f.cut, blocks, 1)
	f.x = d.prepare(op, f.part, x, before)
	return f
}

// fewRowOf is the same of a launch that makes its row: that of the few lies where the others have their stages.
func fewRowOf(ps []part, s decodeShape) few {
	f, ok := fewAfter(ps, s)
	if !ok || f.rowBytes() > s.sharedBytes {
		return few{}
	}
	f.sharedBytes = max(f.rowBytes(), sumBytes(f.cut, 1, 1))
	return f
}

// parts is how many parts it is.
func (f few) parts() int {
	if f.part == nil {
		return 0
	}
	return 1
}

// args are arguments of linear_decode.
func (f few) args() []uint64 {
	if f.part == nil {
		return make([]uint64, 7)
	}
	return []uint64{arg(f.kind), arg(f.blocks), f.codes, f.bias, arg(f.N), arg(f.tiles), arg(f.cut)}
}

// fewBlocksArgument is where linear_decode's arguments say how many of the first blocks are of another part.
const fewBlocksArgument = 33

// SharesLaunch reports whether a launch of this kernel with these arguments is of two parts, so that its first blocks do not speak
// for the others: who counts a sample of blocks wants to know.
func SharesLaunch(kernel string, args []uint64) bool {
	return strings.HasPrefix(kernel, "linear_decode_") && args[fewBlocksArgument] > 0
}
