package ptx

import (
	"fmt"
	"math"
	"strings"
)

// The compiler: names become indices, calls are replaced by the body of what they call, labels by
// positions. It knows every instruction or refuses it.

const maxOps = 1 << 20

type program struct {
	name        string
	ops         []op
	nVecs       int
	nPreds      int
	fixed       []fixedVec // vectors with a constant or a special register in them
	params      []*variable
	paramBytes  int
	paramOffset []int
	frameBytes  int // local memory of one thread
	sharedBytes int // static shared memory
	dynAlign    int
	reqntid     [3]int
	maxntid     int
	usesAsync   bool
}

type fixedVec struct {
	at      int32
	value   uint64
	special string // "" for a constant
}

type frame struct { // one function body: the entry, or a call of a function
	parent *frame
	fn     *function
	params map[string]int // .param variable -> offset in the frame of local memory
	end    int32          // label of the instruction after the call; -1 in the entry
}

type scopeInst struct {
	sc     *scope
	parent *scopeInst
	frame  *frame
	regs   map[string]regRef
	labels map[string]int32
	local  map[string]int // .local and .param variables -> frame offset
	shared map[string]int
}

type regRef struct {
	index int32
	typ   string
}

type compiler struct {
	src      *Source
	inst     *Instance
	prog     *program
	labelPos []int32
	consts   map[uint64]int32
	specials map[string]int32
	sharedAt map[*variable]int // static shared memory belongs to the variable, however often its function is inlined
	in       *instr
	si       *scopeInst
}

func compile(inst *Instance, fn *function) (*program, error) {
	c := &compiler{
		src: inst.src, inst: inst, prog: &program{name: fn.name, params: fn.params, reqntid: fn.reqntid, maxntid: fn.maxntid, dynAlign: 16},
		consts: map[uint64]int32{}, specials: map[string]int32{}, sharedAt: map[*variable]int{},
	}
	for _, v := range fn.params {
		at := (c.prog.paramBytes + v.align - 1) &^ (v.align - 1)
		c.prog.paramOffset = append(c.prog.paramOffset, at)
		c.prog.paramBytes = at + v.size
	}
	fr := &frame{fn: fn, end: -1}
	if err := c.scope(fn.body, nil, fr); err != nil {
		return nil, err
	}
	c.emit(op{kind: kExit, class: Control})
	for _, v := range inst.src.vars {
		if v.space == "shared" && v.size == 0 {
			c.prog.dynAlign = max(c.prog.dynAlign, v.align)
		}
	}
	// Dynamic shared memory stands behind all static memory.
	base := (c.prog.sharedBytes + c.prog.dynAlign - 1) &^ (c.prog.dynAlign - 1)
	c.prog.sharedBytes = base
	for i := range c.prog.fixed {
		if f := &c.prog.fixed[i]; f.special == "dynamic shared" {
			f.special, f.value = "", f.value+uint64(base)
		}
	}
	for i := range c.prog.ops {
		o := &c.prog.ops[i]
		if o.kind == kBranch {
			o.target = c.labelPos[o.target]
		}
		if o.kind == kSwitch {
			for j := range o.list {
				o.list[j] = c.labelPos[o.list[j]]
			}
		}
	}
	findReconvergence(c.prog.ops)
	c.prog.shareRegisters()
	return c.prog, nil
}

func (c *compiler) allocShared(v *variable) int {
	if at, ok := c.sharedAt[v]; ok {
		return at
	}
	at := (c.prog.sharedBytes + v.align - 1) &^ (v.align - 1)
	c.prog.sharedBytes = at + v.size
	c.sharedAt[v] = at
	return at
}

func (c *compiler) allocFrame(v *variable) int {
	at := (c.prog.frameBytes + v.align - 1) &^ (v.align - 1)
	c.prog.frameBytes = at + v.size
	return at
}

func (c *compiler) newLabel() int32 {
	c.labelPos = append(c.labelPos, -1)
	return int32(len(c.labelPos) - 1)
}

func (c *compiler) scope(sc *scope, parent *scopeInst, fr *frame) error {
	si := &scopeInst{sc: sc, parent: parent, frame: fr, regs: map[string]regRef{}, labels: map[string]int32{}, local: map[string]int{}, shared: map[string]int{}}
	for name, v := range sc.vars {
		switch v.space {
		case "shared":
			si.shared[name] = c.allocShared(v)
		default:
			si.local[name] = c.allocFrame(v)
		}
	}
	for _, it := range sc.items {
		if it.label != "" {
			if _, dup := si.labels[it.label]; dup {
				return errorf(fr.fn.line, "label %s is defined twice in %s", it.label, fr.fn.name)
			}
			si.labels[it.label] = c.newLabel()
		}
	}
	for _, it := range sc.items {
		var err error
		switch {
		case it.label != "":
			c.labelPos[si.labels[it.label]] = int32(len(c.prog.ops))
		case it.sub != nil:
			err = c.scope(it.sub, si, fr)
		default:
			c.in, c.si = it.in, si
			err = c.instr()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *compiler) emit(o op) *op {
	if in := c.in; in != nil {
		o.line, o.file, o.srcLine = int32(in.line), int32(in.file), int32(in.srcLine)
	}
	if o.pred == 0 {
		o.pred = -1
	} else {
		o.pred--
	}
	o.rpc = -1
	c.prog.ops = append(c.prog.ops, o)
	return &c.prog.ops[len(c.prog.ops)-1]
}

// guarded emits o under the instruction's predicate.
func (c *compiler) guarded(o op) error {
	if c.in.pred != "" {
		p, err := c.pred(operand{kind: oName, name: c.in.pred})
		if err != nil {
			return err
		}
		o.pred, o.predNot = p+1, c.in.predNot
	}
	if len(c.prog.ops) >= maxOps {
		return c.errorf("more than %d instructions after inlining", maxOps)
	}
	c.emit(o)
	return nil
}

func (c *compiler) errorf(format string, args ...any) error {
	return errorf(c.in.line, "%s: %s", c.in.name, fmt.Sprintf(format, args...))
}

// lookup finds a register by name in this and the enclosing braces.
func (c *compiler) lookup(name string) (regRef, bool) {
	for si := c.si; si != nil; si = si.parent {
		if r, ok := si.regs[name]; ok {
			return r, true
		}
		typ, ok := si.sc.regs[name]
		if !ok {
			base := strings.TrimRight(name, "0123456789")
			if n := si.sc.counts[base+"<"]; n > 0 && base != name {
				if k, good := parseInt(name[len(base):]); good && k < uint64(n) || strings.HasPrefix(name[len(base):], "0") && len(name) == len(base)+1 {
					typ, ok = si.sc.regs[base+"<"], true
				}
			}
		}
		if !ok {
			continue
		}
		var r regRef
		if typ == "pred" {
			r = regRef{int32(c.prog.nPreds), typ}
			c.prog.nPreds++
		} else {
			r = regRef{int32(c.prog.nVecs), typ}
			c.prog.nVecs++
		}
		si.regs[name] = r
		return r, true
	}
	return regRef{}, false
}

func (c *compiler) pred(o operand) (int32, error) {
	if o.kind == oSink {
		return -1, nil
	}
	if o.kind == oInt { // an immediate predicate: setp and vote accept 0 and 1
		return -1, c.errorf("an immediate where a predicate belongs")
	}
	r, ok := c.lookup(o.name)
	if o.kind != oName || !ok || r.typ != "pred" || o.off != 0 || o.neg {
		return -1, c.errorf("%q is not a predicate", o.name)
	}
	return r.index, nil
}

// dest gives the register an instruction writes. typ as in aluOp.
func (c *compiler) dest(o operand, typ string) (int32, error) {
	if o.kind == oSink {
		return c.scratch(), nil
	}
	if o.kind != oName || o.off != 0 || o.not || o.pair != nil {
		return -1, c.errorf("a register belongs first")
	}
	return c.reg(o, typ)
}

// scratch is a register nobody reads.
func (c *compiler) scratch() int32 {
	c.prog.nVecs++
	return int32(c.prog.nVecs - 1)
}

func (c *compiler) reg(o operand, typ string) (int32, error) {
	r, ok := c.lookup(o.name)
	if !ok {
		return -1, c.errorf("unknown name %q", o.name)
	}
	wide := strings.HasSuffix(typ, "~")
	typ = strings.TrimSuffix(typ, "~")
	if r.typ == "pred" {
		return -1, c.errorf("predicate %s where a register belongs", o.name)
	}
	if got, want := width(r.typ), width(typ); got != want && !(wide && got > want) {
		return -1, c.errorf("register %s has %d bits where %d belong", o.name, got, want)
	}
	return r.index, nil
}

func (c *compiler) constant(v uint64) int32 {
	if i, ok := c.consts[v]; ok {
		return i
	}
	i := c.scratch()
	c.consts[v] = i
	c.prog.fixed = append(c.prog.fixed, fixedVec{at: i, value: v})
	return i
}

// source gives the register an operand is read from; constants, addresses and special registers
// have one each.
func (c *compiler) source(o operand, typ string) (int32, error) {
	base := strings.TrimSuffix(typ, "~")
	w := max(width(base), 8)
	switch o.kind {
	case oInt:
		if base == "f64" || base == "f32" {
			return -1, c.errorf("integer constant where a .%s belongs", base)
		}
		return c.constant(o.bits & maskOf(w)), nil
	case oF32:
		if w == 64 {
			return c.constant(math.Float64bits(float64(math.Float32frombits(uint32(o.bits))))), nil
		}
		if w != 32 {
			return -1, c.errorf("float32 constant for %d bits", w)
		}
		return c.constant(o.bits), nil
	case oF64:
		switch {
		case w == 64:
			return c.constant(o.bits), nil
		case base == "f32":
			return c.constant(uint64(math.Float32bits(float32(math.Float64frombits(o.bits))))), nil
		}
		return -1, c.errorf("float64 constant for %d bits", w)
	case oName:
	default:
		return -1, c.errorf("operand is not understood")
	}
	if o.not || o.neg || o.pair != nil {
		return -1, c.errorf("operand %s is not understood", o.name)
	}
	if _, ok := c.lookup(o.name); ok {
		if o.off != 0 {
			return -1, c.errorf("register %s with an offset", o.name)
		}
		return c.reg(o, typ)
	}
	if o.name == "WARP_SZ" {
		return c.constant(32), nil
	}
	if o.name[0] == '%' {
		return c.special(o.name, w)
	}
	_, i, err := c.address(o)
	if err != nil {
		return -1, err
	}
	return i, nil
}

var specialBits = map[string]uint{
	"%tid.x": 32, "%tid.y": 32, "%tid.z": 32, "%ntid.x": 32, "%ntid.y": 32, "%ntid.z": 32,
	"%ctaid.x": 32, "%ctaid.y": 32, "%ctaid.z": 32, "%nctaid.x": 32, "%nctaid.y": 32, "%nctaid.z": 32,
	"%laneid": 32, "%warpid": 32, "%nwarpid": 32, "%smid": 32, "%nsmid": 32, "%gridid": 64,
	"%lanemask_eq": 32, "%lanemask_le": 32, "%lanemask_lt": 32, "%lanemask_ge": 32, "%lanemask_gt": 32,
	"%dynamic_smem_size": 32, "%total_smem_size": 32,
	"%clock": 32, "%clock_hi": 32, "%clock64": 64, "%globaltimer": 64, "%globaltimer_lo": 32, "%globaltimer_hi": 32,
}

func (c *compiler) special(name string, w uint) (int32, error) {
	bits, ok := specialBits[name]
	if !ok {
		return -1, c.errorf("unknown register %q", name)
	}
	if w != bits && !(w == 16 && bits == 32) && !(w == 32 && bits == 64) {
		return -1, c.errorf("%s has %d bits where %d belong", name, bits, w)
	}
	if strings.HasPrefix(name, "%clock") || strings.HasPrefix(name, "%globaltimer") {
		d := c.scratch()
		sub := uint8(0)
		if strings.HasSuffix(name, "_hi") {
			sub = 1
		}
		if bits == 32 && sub == 0 {
			sub = 2
		}
		c.emit(op{kind: kClock, class: Move, d: d, sub: sub})
		return d, nil
	}
	if i, ok := c.specials[name]; ok {
		return i, nil
	}
	i := c.scratch()
	c.specials[name] = i
	c.prog.fixed = append(c.prog.fixed, fixedVec{at: i, special: name})
	return i, nil
}

// place finds a variable: its space, and its address inside that space.
func (c *compiler) place(name string) (space, uint64, bool) {
	for si := c.si; si != nil; si = si.parent {
		if at, ok := si.shared[name]; ok {
			return spShared, uint64(at), true
		}
		if at, ok := si.local[name]; ok {
			return spLocal, uint64(at), true
		}
	}
	fr := c.si.frame
	if fr.params != nil {
		if at, ok := fr.params[name]; ok {
			return spLocal, uint64(at), true
		}
	} else {
		for i, v := range c.prog.params {
			if v.name == name {
				return spParam, uint64(c.prog.paramOffset[i]), true
			}
		}
	}
	if v := c.src.varByName[name]; v != nil && v.space == "shared" && v.size > 0 {
		return spShared, uint64(c.allocShared(v)), true
	}
	if v, ok := c.inst.vars[name]; ok {
		return v.space, v.addr, true
	}
	return 0, 0, false
}

// address gives the register that holds the address of a variable.
func (c *compiler) address(o operand) (space, int32, error) {
	if sp, at, ok := c.place(o.name); ok {
		return sp, c.constant(at + uint64(o.off)), nil
	}
	if v := c.src.varByName[o.name]; v != nil && v.space == "shared" { // extern: dynamic
		key := fmt.Sprintf("dynamic shared %d", o.off)
		if i, ok := c.specials[key]; ok {
			return spShared, i, nil
		}
		i := c.scratch()
		c.specials[key] = i
		c.prog.fixed = append(c.prog.fixed, fixedVec{at: i, value: uint64(o.off), special: "dynamic shared"})
		return spShared, i, nil
	}
	if c.src.funcs[o.name] != nil {
		return 0, -1, c.errorf("the address of function %s: calls through pointers are not supported", o.name)
	}
	return 0, -1, c.errorf("unknown name %q", o.name)
}

// call replaces a call by the body of the function.
func (c *compiler) call() error {
	in := c.in
	args := in.args
	var rets, params []operand
	if len(args) > 0 && args[0].kind == oList {
		rets, args = args[0].list, args[1:]
	}
	if len(args) == 0 || args[0].kind != oName {
		return c.errorf("no function named")
	}
	name := args[0].name
	if _, isReg := c.lookup(name); isReg || len(args) > 2 {
		return c.errorf("calls through pointers are not supported")
	}
	if len(args) == 2 {
		if args[1].kind != oList {
			return c.errorf("arguments are not understood")
		}
		params = args[1].list
	}
	fn := c.src.funcs[name]
	if fn == nil {
		return c.errorf("unknown function %s", name)
	}
	if fn.body == nil || fn.entry {
		return c.errorf("function %s has no body here and is not supported", name)
	}
	if in.pred != "" {
		return c.errorf("a predicated call is not supported")
	}
	depth := 0
	for fr := c.si.frame; fr != nil; fr = fr.parent {
		if fr.fn == fn {
			return c.errorf("recursion of %s is not supported", name)
		}
		depth++
	}
	if len(rets) != len(fn.rets) || len(params) != len(fn.params) {
		return c.errorf("%s takes %d and gives %d values, not %d and %d", name, len(fn.params), len(fn.rets), len(params), len(rets))
	}
	fr := &frame{parent: c.si.frame, fn: fn, params: map[string]int{}, end: c.newLabel()}
	bind := func(vars []*variable, given []operand) error {
		for i, v := range vars {
			sp, at, ok := c.place(given[i].name)
			if given[i].kind != oName || !ok || sp != spLocal {
				return c.errorf("argument %d of %s is not a .param variable", i+1, name)
			}
			fr.params[v.name] = int(at) + int(given[i].off)
		}
		return nil
	}
	if err := bind(fn.rets, rets); err != nil {
		return err
	}
	if err := bind(fn.params, params); err != nil {
		return err
	}
	si := c.si
	if err := c.scope(fn.body, nil, fr); err != nil {
		return err
	}
	c.in, c.si = in, si
	c.labelPos[fr.end] = int32(len(c.prog.ops))
	return nil
}
