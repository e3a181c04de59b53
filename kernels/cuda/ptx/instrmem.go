package ptx

// Compiling loads, stores, atomics, copies, barriers and warp-wide instructions.

// memoryAddress reads "[reg+off]", "[name+off]" or "[number]" for an access in space sp.
func (c *compiler) memoryAddress(o operand, sp space) (space, int32, int64, bool, error) {
	if o.kind != oMem {
		return 0, 0, 0, false, c.errorf("an address belongs here")
	}
	if o.name == "" {
		return sp, c.constant(o.bits), 0, false, nil
	}
	if r, ok := c.lookup(o.name); ok {
		w := width(r.typ)
		if r.typ == "pred" || w < 32 || w == 32 && sp != spShared && sp != spLocal && sp != spConst && sp != spParam {
			return 0, 0, 0, false, c.errorf("register %s cannot hold this address", o.name)
		}
		if sp == spParam && c.si.frame.params != nil {
			sp = spLocal
		}
		return sp, r.index, o.off, w == 32, nil
	}
	have, i, err := c.address(o)
	if err != nil {
		return 0, 0, 0, false, err
	}
	switch {
	case sp == have:
	case sp == spParam && have == spLocal: // parameters of functions live in the frame
	case sp == spGeneric && have == spGlobal:
	default:
		return 0, 0, 0, false, c.errorf("%s is in another state space", o.name)
	}
	return have, i, 0, false, nil
}

// memoryModifiers takes what loads, stores and atomics share.
func (c *compiler) memoryModifiers(m *modifiers, o *memOp) (hint bool) {
	order := m.take("weak", "volatile", "relaxed", "acquire", "release", "acq_rel")
	o.strong = order != "" && order != "weak"
	o.acquire = order == "acquire" || order == "acq_rel"
	o.release = order == "release" || order == "acq_rel"
	m.take("cta", "gpu", "sys")
	o.space = spaceNames[m.take("global", "shared", "shared::cta", "local", "const", "param")]
	if c.in.op != "atom" && c.in.op != "red" {
		m.take("ca", "cg", "cs", "lu", "cv", "wb", "wt")
	}
	o.nc = m.has("nc")
	m.take("L1::evict_normal", "L1::evict_unchanged", "L1::evict_first", "L1::evict_last", "L1::no_allocate")
	hint = m.has("L2::cache_hint")
	m.take("L2::64B", "L2::128B", "L2::256B")
	return hint
}

var memClass = [...]Class{spGeneric: Global, spGlobal: Global, spShared: Shared, spLocal: Local, spConst: Constant, spParam: Constant}

func (c *compiler) loadStore(m *modifiers) error {
	in := c.in
	mo := &memOp{}
	hasShared := false
	for _, s := range in.mods {
		hasShared = hasShared || s == "shared::cta"
	}
	hint := c.memoryModifiers(m, mo)
	if hasShared {
		mo.space = spShared
	}
	if hint {
		if len(in.args) != 3 {
			return c.errorf("a cache policy belongs last")
		}
		if _, err := c.source(in.args[2], "b64"); err != nil {
			return err
		}
		in = &instr{name: in.name, op: in.op, args: in.args[:2], line: in.line}
	}
	n := map[string]int{"": 1, "v2": 2, "v4": 4}[m.take("v2", "v4")]
	ts, err := m.types(1)
	if err != nil {
		return err
	}
	t := ts[0]
	if len(in.args) != 2 || width(t) == 0 || t == "f16x2" || t == "bf16x2" || t == "tf32" ||
		mo.nc && (in.op != "ld" || mo.space != spGlobal) || in.op == "ldu" && mo.space != spGlobal && mo.space != spGeneric ||
		in.op == "ld" && mo.release || in.op == "st" && (mo.acquire || mo.space == spConst) {
		return m.refuse()
	}
	mo.size = uint64(typeBytes[t])
	mo.sign = signed(t)
	val, mem := in.args[0], in.args[1]
	o := op{kind: kLoad, mem: mo}
	if in.op == "st" {
		o.kind, val, mem = kStore, mem, val
	}
	if o.kind == kStore && mo.space == spParam && c.si.frame.params == nil && mem.kind == oMem {
		if sp, _, ok := c.place(mem.name); ok && sp == spParam {
			return c.errorf("a store to a kernel's parameter")
		}
	}
	var addr32 bool
	if mo.space, o.a, o.imm, addr32, err = c.memoryAddress(mem, mo.space); err != nil {
		return err
	}
	if addr32 {
		o.sub = 1
	}
	if _, isReg := c.lookup(mem.name); o.kind == kLoad && !isReg && mem.name != "" && (mo.space == spParam || mo.space == spConst) {
		mo.uniform = true
	}
	o.class = memClass[mo.space]
	list := []operand{val}
	if n > 1 {
		if val.kind != oVec || len(val.list) != n {
			return c.errorf("%d registers belong in braces", n)
		}
		list = val.list
	}
	typ := t
	if !isFloat(t) {
		typ += "~"
	}
	for _, e := range list {
		var r int32
		if o.kind == kStore {
			r, err = c.source(e, typ)
		} else if e.kind == oSink {
			r = -1
		} else {
			r, err = c.dest(e, typ)
			if ref, ok := c.lookup(e.name); ok {
				mo.dstBits = width(ref.typ)
			}
		}
		if err != nil {
			return err
		}
		mo.regs = append(mo.regs, r)
	}
	return c.guarded(o)
}

func (c *compiler) atomic(m *modifiers) error {
	in := c.in
	mo := &memOp{noRet: in.op == "red"}
	if c.memoryModifiers(m, mo) || mo.nc {
		return m.refuse()
	}
	mo.strong = true
	what := m.take("add", "min", "max", "and", "or", "xor", "exch", "cas", "inc", "dec")
	noftz := m.has("noftz")
	ts, err := m.types(1)
	if err != nil {
		return err
	}
	t := ts[0]
	mo.atom = atomicFunc(what, t)
	if mo.atom == nil || noftz != (what == "add" && (t == "f16" || t == "f16x2" || t == "bf16" || t == "bf16x2")) ||
		mo.noRet && (what == "exch" || what == "cas") || mo.space != spGeneric && mo.space != spGlobal && mo.space != spShared {
		return m.refuse()
	}
	mo.size = uint64(typeBytes[t])
	args := in.args
	o := op{kind: kAtomic, class: Atomic, mem: mo}
	if !mo.noRet {
		if len(args) == 0 {
			return m.refuse()
		}
		if o.d, err = c.dest(args[0], t); err != nil {
			return err
		}
		args = args[1:]
	}
	want := 2
	if what == "cas" {
		want = 3
	}
	if len(args) != want {
		return c.errorf("%d operands where %d belong", len(args), want)
	}
	var addr32 bool
	if mo.space, o.a, o.imm, addr32, err = c.memoryAddress(args[0], mo.space); err != nil {
		return err
	}
	if addr32 {
		o.sub = 1
	}
	if o.b, err = c.source(args[1], t); err != nil {
		return err
	}
	if what == "cas" {
		if o.c, err = c.source(args[2], t); err != nil {
			return err
		}
	}
	return c.guarded(o)
}

func atomicFunc(what, t string) func(old, b, c uint64) uint64 {
	w := width(t)
	if w < 16 {
		return nil
	}
	mask := maskOf(w)
	float := isFloat(t)
	switch what {
	case "exch":
		if t[0] == 'b' && !float && w >= 32 {
			return func(_, b, _ uint64) uint64 { return b }
		}
	case "cas":
		if t[0] == 'b' && !float {
			return func(old, b, c uint64) uint64 {
				if old == b {
					return c
				}
				return old
			}
		}
	case "and", "or", "xor":
		if t[0] != 'b' || float || w < 32 {
			return nil
		}
		switch what {
		case "and":
			return func(old, b, _ uint64) uint64 { return old & b }
		case "or":
			return func(old, b, _ uint64) uint64 { return old | b }
		}
		return func(old, b, _ uint64) uint64 { return old ^ b }
	case "inc":
		if t == "u32" {
			return func(old, b, _ uint64) uint64 {
				if old >= b {
					return 0
				}
				return old + 1
			}
		}
	case "dec":
		if t == "u32" {
			return func(old, b, _ uint64) uint64 {
				if old == 0 || old > b {
					return b
				}
				return old - 1
			}
		}
	case "min", "max":
		if float || t[0] == 'b' || w < 32 {
			return nil
		}
		flip := uint64(0)
		if signed(t) {
			flip = 1 << (w - 1)
		}
		if what == "min" {
			return func(old, b, _ uint64) uint64 { return min(old^flip, b^flip) ^ flip }
		}
		return func(old, b, _ uint64) uint64 { return max(old^flip, b^flip) ^ flip }
	case "add":
		switch t {
		case "u32", "s32", "u64":
			return func(old, b, _ uint64) uint64 { return (old + b) & mask }
		case "f32":
			return func(old, b, _ uint64) uint64 { return b32(f32(old) + f32(b)) }
		case "f64":
			return func(old, b, _ uint64) uint64 { return b64(f64(old) + f64(b)) }
		case "f16", "f16x2", "bf16", "bf16x2":
			fm := halfFormat(t)
			one := func(a, b uint64) uint64 { return fm.narrow(fm.widen(a&0xffff)+fm.widen(b&0xffff), rn) }
			if w == 16 {
				return func(old, b, _ uint64) uint64 { return one(old, b) }
			}
			return func(old, b, _ uint64) uint64 { return one(old, b) | one(old>>16, b>>16)<<16 }
		}
	}
	return nil
}

func (c *compiler) async(m *modifiers) error {
	in := c.in
	if !m.has("async") {
		return m.refuse()
	}
	switch m.take("commit_group", "wait_group", "wait_all") {
	case "commit_group":
		if _, err := m.types(0); err != nil || len(in.args) != 0 {
			return m.refuse()
		}
		return c.guarded(op{kind: kAsyncCommit, class: Sync})
	case "wait_all":
		if _, err := m.types(0); err != nil || len(in.args) != 0 {
			return m.refuse()
		}
		return c.guarded(op{kind: kAsyncWait, class: Sync, imm: -1})
	case "wait_group":
		if _, err := m.types(0); err != nil || len(in.args) != 1 || in.args[0].kind != oInt {
			return m.refuse()
		}
		return c.guarded(op{kind: kAsyncWait, class: Sync, imm: int64(in.args[0].bits)})
	}
	how := m.take("ca", "cg")
	shared, global := m.take("shared", "shared::cta"), m.has("global")
	hint := m.has("L2::cache_hint")
	m.take("L2::64B", "L2::128B", "L2::256B")
	if _, err := m.types(0); err != nil || how == "" || shared == "" || !global || hint {
		return m.refuse()
	}
	if len(in.args) != 3 && len(in.args) != 4 || in.args[2].kind != oInt {
		return c.errorf("operands are not understood")
	}
	n := in.args[2].bits
	if n != 16 && (how == "cg" || n != 4 && n != 8) {
		return c.errorf("copy of %d bytes", n)
	}
	mo := &memOp{space: spShared, size: n, srcSize: -1}
	o := op{kind: kAsync, class: Global, mem: mo}
	var err error
	var off2 int64
	var addr32 bool
	if _, o.a, o.imm, addr32, err = c.memoryAddress(in.args[0], spShared); err != nil {
		return err
	}
	if addr32 {
		o.sub = 1
	}
	if _, o.b, off2, _, err = c.memoryAddress(in.args[1], spGlobal); err != nil {
		return err
	}
	o.target = int32(off2)
	if int64(o.target) != off2 {
		return c.errorf("offset %d is too large", off2)
	}
	if len(in.args) == 4 {
		if r, ok := c.lookup(in.args[3].name); ok && r.typ == "pred" {
			return c.errorf("ignore-src is not supported")
		}
		if mo.srcSize, err = c.source(in.args[3], "u32"); err != nil {
			return err
		}
	}
	c.prog.usesAsync = true
	return c.guarded(o)
}
