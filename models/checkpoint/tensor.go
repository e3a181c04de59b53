package checkpoint

import (
	"fmt"
	"math/bits"

	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/kernels/quant"
)

// storage is how the elements of a tensor are stored.
type storage struct {
	name   string
	size   int           // bytes of an element; of a block when blocks is set
	float  bool          // F32, F16 or BF16
	dtype  kernels.DType // when float
	blocks *quant.Blocks // GGUF's quantised types
}

// values is the number of elements that lie together in size bytes.
func (s storage) values() int {
	if s.blocks != nil {
		return s.blocks.Values
	}
	return 1
}

var (
	storageF32  = storage{name: "F32", size: 4, float: true, dtype: kernels.F32}
	storageF16  = storage{name: "F16", size: 2, float: true, dtype: kernels.F16}
	storageBF16 = storage{name: "BF16", size: 2, float: true, dtype: kernels.BF16}
)

func blockStorage(b *quant.Blocks) storage {
	return storage{name: b.Name, size: b.Bytes, blocks: b}
}

// tensor is one tensor of a file.
type tensor struct {
	name  string
	file  *file
	kind  storage
	shape []int // outermost first, also for GGUF, which writes it the other way round
	data  []byte
	used  bool
}

func (t *tensor) String() string {
	return fmt.Sprintf("tensor %s (%s %v)", t.name, t.kind.name, t.shape)
}

func (t *tensor) is(shape ...int) bool {
	if len(t.shape) != len(shape) {
		return false
	}
	for i, d := range shape {
		if t.shape[i] != d {
			return false
		}
	}
	return true
}

// errorf is an error that says which tensor of which file it is about.
func (t *tensor) errorf(format string, args ...any) error {
	return fmt.Errorf("%s: %v: %w", t.file.path, t, fmt.Errorf(format, args...))
}

// byteSize returns the bytes of a tensor, or false when the number does not fit or the innermost
// dimension does not consist of whole blocks.
func byteSize(kind storage, shape []int) (int, bool) {
	n := uint64(1)
	inner := 1
	for _, d := range shape {
		hi, lo := bits.Mul64(n, uint64(d))
		if d < 0 || hi != 0 {
			return 0, false
		}
		n, inner = lo, d
	}
	if inner%kind.values() != 0 {
		return 0, false
	}
	hi, lo := bits.Mul64(n/uint64(kind.values()), uint64(kind.size))
	if hi != 0 || lo > 1<<62 {
		return 0, false
	}
	return int(lo), true
}
