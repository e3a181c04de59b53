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

// barrier kinds
const (
	barSync uint8 = iota
	barArrive
	barPopc
	barAnd
	barOr
)

func (c *compiler) barrier(m *modifiers) error {
	in := c.in
	m.take("cta")
	if m.has("warp") {
		if !m.has("sync") {
			return m.refuse()
		}
		if _, err := m.types(0); err != nil {
			return err
		}
		if err := c.want(1); err != nil {
			return err
		}
		a, err := c.source(in.args[0], "b32")
		if err != nil {
			return err
		}
		return c.guarded(op{kind: kWarpBarrier, class: Sync, c: a})
	}
	what := m.take("sync", "arrive", "red")
	o := op{kind: kBarrier, class: Sync, d: -1, b: -1, p2: -1}
	aligned := m.has("aligned") || in.op == "bar"
	if aligned {
		o.imm = 1
	}
	args := in.args
	var err error
	switch what {
	case "sync", "arrive":
		if what == "arrive" {
			o.sub = barArrive
		}
		if _, err := m.types(0); err != nil {
			return err
		}
		if len(args) < 1 || len(args) > 2 || what == "arrive" && len(args) != 2 {
			return c.errorf("operands are not understood")
		}
	case "red":
		o.sub = map[string]uint8{"popc": barPopc, "and": barAnd, "or": barOr}[m.take("popc", "and", "or")]
		ts, err := m.types(1)
		if err != nil || o.sub == 0 || (ts[0] == "u32") != (o.sub == barPopc) || len(args) < 3 || len(args) > 4 {
			return m.refuse()
		}
		if o.sub == barPopc {
			o.d, err = c.dest(args[0], "u32")
		} else {
			o.d, err = c.pred(args[0])
		}
		if err != nil {
			return err
		}
		last := args[len(args)-1]
		if o.p2, err = c.pred(last); err != nil {
			return err
		}
		o.neg2 = last.not
		args = args[1 : len(args)-1]
	default:
		return m.refuse()
	}
	if o.a, err = c.source(args[0], "u32"); err != nil {
		return err
	}
	if len(args) == 2 {
		if o.b, err = c.source(args[1], "u32"); err != nil {
			return err
		}
	}
	return c.guarded(o)
}

func (c *compiler) fence(m *modifiers) error {
	m.take("sc", "acq_rel")
	scope := m.take("cta", "gl", "gpu", "sys")
	if _, err := m.types(0); err != nil || scope == "" || len(c.in.args) != 0 {
		return m.refuse()
	}
	o := op{kind: kFence, class: Sync}
	if scope == "cta" {
		o.sub = 1
	}
	return c.guarded(o)
}

const (
	shUp uint8 = iota
	shDown
	shBfly
	shIdx
)

const (
	voteAll uint8 = iota
	voteAny
	voteUni
	voteBallot
)

func (c *compiler) warpWide(m *modifiers) error {
	in := c.in
	if in.op == "activemask" {
		if ts, err := m.types(1); err != nil || ts[0] != "b32" {
			return m.refuse()
		}
		if err := c.want(1); err != nil {
			return err
		}
		d, err := c.dest(in.args[0], "b32")
		if err != nil {
			return err
		}
		return c.guarded(op{kind: kActive, class: WarpWide, d: d})
	}
	if !m.has("sync") {
		return m.refuse()
	}
	switch in.op {
	case "shfl":
		how := m.take("up", "down", "bfly", "idx")
		ts, err := m.types(1)
		if err != nil || how == "" || ts[0] != "b32" {
			return m.refuse()
		}
		if err := c.want(5); err != nil {
			return err
		}
		o := op{kind: kShuffle, class: WarpWide, p2: -1, sub: map[string]uint8{"up": shUp, "down": shDown, "bfly": shBfly, "idx": shIdx}[how]}
		dst := in.args[0]
		if dst.pair != nil {
			if o.p2, err = c.pred(*dst.pair); err != nil {
				return err
			}
			dst.pair = nil
		}
		if o.d, err = c.dest(dst, "b32"); err != nil {
			return err
		}
		var regs [4]int32
		for i := range regs {
			if regs[i], err = c.source(in.args[i+1], "b32"); err != nil {
				return err
			}
		}
		o.a, o.b, o.d2, o.c = regs[0], regs[1], regs[2], regs[3]
		return c.guarded(o)
	case "vote":
		how := m.take("all", "any", "uni", "ballot")
		ts, err := m.types(1)
		if err != nil || how == "" || (how == "ballot") != (ts[0] == "b32") || how != "ballot" && ts[0] != "pred" {
			return m.refuse()
		}
		if err := c.want(3); err != nil {
			return err
		}
		o := op{kind: kVote, class: WarpWide, sub: map[string]uint8{"all": voteAll, "any": voteAny, "uni": voteUni, "ballot": voteBallot}[how]}
		if how == "ballot" {
			o.d, err = c.dest(in.args[0], "b32")
		} else {
			o.d, err = c.pred(in.args[0])
		}
		if err != nil {
			return err
		}
		if o.p2, err = c.pred(in.args[1]); err != nil {
			return err
		}
		o.neg2 = in.args[1].not
		if o.c, err = c.source(in.args[2], "b32"); err != nil {
			return err
		}
		return c.guarded(o)
	case "match":
		how := m.take("any", "all")
		ts, err := m.types(1)
		if err != nil || how == "" || ts[0] != "b32" && ts[0] != "b64" {
			return m.refuse()
		}
		if err := c.want(3); err != nil {
			return err
		}
		o := op{kind: kMatch, class: WarpWide, p2: -1}
		dst := in.args[0]
		if dst.pair != nil {
			if o.p2, err = c.pred(*dst.pair); err != nil || how == "any" {
				return m.refuse()
			}
			dst.pair = nil
		}
		if how == "all" {
			o.sub = 1
		}
		if o.d, err = c.dest(dst, "b32"); err != nil {
			return err
		}
		if o.a, err = c.source(in.args[1], ts[0]); err != nil {
			return err
		}
		if o.c, err = c.source(in.args[2], "b32"); err != nil {
			return err
		}
		return c.guarded(o)
	}
	how := m.take("add", "min", "max", "and", "or", "xor")
	ts, err := m.types(1)
	if err != nil || width(ts[0]) != 32 || isFloat(ts[0]) {
		return m.refuse()
	}
	logic := how == "and" || how == "or" || how == "xor"
	f := atomicFunc(how, ts[0])
	if f == nil || logic != (ts[0] == "b32") {
		return m.refuse()
	}
	if err := c.want(3); err != nil {
		return err
	}
	o := op{kind: kRedux, class: WarpWide, mem: &memOp{atom: f}}
	if o.d, err = c.dest(in.args[0], ts[0]); err != nil {
		return err
	}
	if o.a, err = c.source(in.args[1], ts[0]); err != nil {
		return err
	}
	if o.c, err = c.source(in.args[2], "b32"); err != nil {
		return err
	}
	return c.guarded(o)
}

func (c *compiler) ldmatrix(m *modifiers) error {
	in := c.in
	ok := m.has("sync") && m.has("aligned") && m.has("m8n8")
	n := map[string]int{"x1": 1, "x2": 2, "x4": 4}[m.take("x1", "x2", "x4")]
	mo := &memOp{size: 16}
	o := op{kind: kLdMatrix, class: Shared, mem: mo}
	if m.has("trans") {
		o.sub = 2
	}
	if m.take("shared", "shared::cta") != "" {
		mo.space = spShared
	}
	ts, err := m.types(1)
	if err != nil || !ok || n == 0 || ts[0] != "b16" {
		return m.refuse()
	}
	if err := c.want(2); err != nil {
		return err
	}
	dst := in.args[0]
	if dst.kind != oVec || len(dst.list) != n {
		return c.errorf("%d registers belong in braces", n)
	}
	for _, e := range dst.list {
		r, err := c.dest(e, "b32")
		if err != nil {
			return err
		}
		mo.regs = append(mo.regs, r)
	}
	var addr32 bool
	if mo.space, o.a, o.imm, addr32, err = c.memoryAddress(in.args[1], mo.space); err != nil {
		return err
	}
	if addr32 {
		o.sub |= 1
	}
	return c.guarded(o)
}
