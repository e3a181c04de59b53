package ptx

// The register machine that the compiler makes and warps run.

// Class sorts instructions for the counters.
type Class uint8

const (
	Integer Class = iota
	Logic
	FP16
	FP32
	FP64
	Special
	Convert
	Move
	Predicate
	Global
	Shared
	Local
	Constant
	Atomic
	Control
	Sync
	WarpWide
	Tensor
	numClasses
)

var classNames = [numClasses]string{
	"integer", "logic", "fp16", "fp32", "fp64", "special", "convert", "move", "predicate", "global",
	"shared", "local", "constant", "atomic", "control", "sync", "warp", "tensor",
}

func (c Class) String() string { return classNames[c] }

type kind uint8

const (
	kALU    kind = iota
	kSetp        // d, d2 predicates = cmp(a, b) and its complement, combined with predicate p3
	kSet         // d = cmp(a, b) ? ones or 1.0 : 0
	kSelp        // d = p3 ? a : b
	kPred        // d = logic(p2, p3) on predicates
	kCarry       // add.cc and its family
	kPack        // d = {list}
	kUnpack      // {list} = a
	kBranch      // to target
	kSwitch      // brx.idx: to list[a]
	kExit        // the thread ends
	kTrap        // the launch ends with an error
	kLoad
	kStore
	kAtomic
	kAsync // cp.async
	kAsyncCommit
	kAsyncWait
	kBarrier
	kWarpBarrier
	kFence
	kShuffle
	kVote
	kMatch
	kRedux
	kActive
	kLdMatrix
	kMMA
	kClock
	kIsSpace
	kNop
)

// An op is one instruction. Registers are indices into a warp's vectors, predicates into its
// masks; -1 is none.
type op struct {
	kind    kind
	class   Class
	predNot bool // execute where the predicate is false
	neg2    bool // p2 and p3 are inverted
	neg3    bool
	sub     uint8 // what of its kind: see the kinds' execution
	pred    int32
	d, d2   int32
	a, b, c int32
	p2, p3  int32
	target  int32
	rpc     int32 // where lanes that part here meet again; -1: nowhere
	imm     int64
	f       alu
	cmp     func(a, b *vec) uint32
	list    []int32
	mem     *memOp
	mma     *mmaOp
	line    int32
	file    int32
	srcLine int32
}

type space uint8

const (
	spGeneric space = iota
	spGlobal
	spShared
	spLocal
	spConst
	spParam
)

var spaceNames = map[string]space{
	"global": spGlobal, "shared": spShared, "local": spLocal, "const": spConst, "param": spParam,
}

// A memOp is the part of an op that concerns memory.
type memOp struct {
	space   space
	size    uint64 // bytes of one element
	sign    bool
	dstBits uint // width of the destination registers
	uniform bool // a load of a kernel's parameter or a constant, at an address that the PTX names
	strong  bool // volatile, relaxed, acquire, release
	acquire bool
	release bool
	nc      bool
	regs    []int32 // one a vector element; -1: not wanted
	atom    func(old, b, c uint64) uint64
	noRet   bool  // red
	srcSize int32 // cp.async: register with the bytes to read, -1: all
}
