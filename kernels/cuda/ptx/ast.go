package ptx

// The parsed text: what Parse gives to Load and the compiler.

// A Source is one parsed PTX file.
type Source struct {
	Version, Target string
	vars            []*variable
	varByName       map[string]*variable
	funcs           map[string]*function
	entries         []string
	files           map[int]string
}

// Entries lists the kernels of the file in its order.
func (s *Source) Entries() []string { return append([]string(nil), s.entries...) }

type variable struct {
	name   string
	space  string // "global", "const", "shared", "local", "param"
	typ    string // element type: "b8", "f32", ...
	align  int
	size   int // bytes; 0 for an unsized extern array
	init   []byte
	relocs []reloc // addresses inside init
	extern bool
	line   int
}

type reloc struct {
	at, width int
	sym       string
	off       int64
	generic   bool
	line      int
}

type function struct {
	name         string
	entry        bool
	rets, params []*variable
	body         *scope // nil for a declaration
	reqntid      [3]int // 0: not stated
	maxntid      int    // threads a block; 0: not stated
	line         int
}

// A scope is the inside of one pair of braces.
type scope struct {
	regs   map[string]string    // full name or, for "%r<9>", the prefix with "<" appended -> type
	counts map[string]int       // prefix with "<" -> how many
	vars   map[string]*variable // .local, .shared, .param
	tables map[string][]string  // .branchtargets
	items  []item
}

type item struct {
	in    *instr
	label string
	sub   *scope
}

type instr struct {
	pred    string // "" when not predicated
	predNot bool
	name    string   // as written
	op      string   // the part before the first dot
	mods    []string // the parts after it
	args    []operand
	line    int
	file    int // of .loc; 0 when there is none
	srcLine int
}

type operandKind uint8

const (
	oName operandKind = iota // register, variable, label or function, perhaps + off
	oInt
	oF32
	oF64
	oMem  // [name+off] or [imm]
	oVec  // {a,b,...}
	oList // (a,b,...) of a call
	oSink // _
)

type operand struct {
	kind operandKind
	name string
	off  int64
	not  bool   // !%p
	neg  bool   // -%r
	bits uint64 // oInt (two's complement), oF32, oF64; oMem without a name: the address
	list []operand
	pair *operand // %r|%p
}

var typeBytes = map[string]int{
	"b8": 1, "u8": 1, "s8": 1, "b16": 2, "u16": 2, "s16": 2, "f16": 2, "bf16": 2,
	"b32": 4, "u32": 4, "s32": 4, "f32": 4, "f16x2": 4, "bf16x2": 4, "tf32": 4,
	"b64": 8, "u64": 8, "s64": 8, "f64": 8, "pred": 0,
}
