package ptx

import (
	"math/bits"
	"slices"
)

// One function for each kind of instruction that is not plain arithmetic.

func (c *compiler) instr() error {
	in := c.in
	if slices.Contains(in.mods, "cc") {
		return c.carry(newModifiers(in))
	}
	if op, ok, err := compileALU(in); err != nil {
		return err
	} else if ok {
		return c.alu(op)
	}
	m := newModifiers(in)
	switch in.op {
	case "mov":
		return c.mov(m)
	case "cvta":
		return c.cvta(m)
	case "isspacep":
		return c.isspacep(m)
	case "setp", "set":
		return c.compare(m)
	case "testp":
		return c.testp(m)
	case "selp":
		return c.selp(m)
	case "and", "or", "xor", "not":
		return c.predLogic(m)
	case "addc", "subc", "madc":
		return c.carry(m)
	case "bra", "brx", "ret", "exit", "trap", "brkpt", "call":
		return c.control(m)
	case "ld", "ldu", "st":
		return c.loadStore(m)
	case "prefetch", "prefetchu", "nanosleep", "applypriority", "discard":
		return c.hint(m)
	case "atom", "red":
		return c.atomic(m)
	case "cp":
		return c.async(m)
	case "bar", "barrier":
		return c.barrier(m)
	case "membar", "fence":
		return c.fence(m)
	case "shfl", "vote", "match", "redux", "activemask":
		return c.warpWide(m)
	case "ldmatrix":
		return c.ldmatrix(m)
	case "mma":
		return c.tensor(m)
	}
	return c.errorf("unknown instruction")
}

func (c *compiler) want(n int) error {
	if len(c.in.args) != n {
		return c.errorf("%d operands where %d belong", len(c.in.args), n)
	}
	return nil
}

func (c *compiler) alu(a aluOp) error {
	in := c.in
	if err := c.want(len(a.src) + 1); err != nil {
		return err
	}
	var idx [5]int32
	for i, t := range a.src {
		if t == "imm" {
			continue
		}
		if t[0] == 'b' && in.args[i+1].kind == oF64 {
			return c.errorf("float64 constant for .%s", t)
		}
		r, err := c.source(in.args[i+1], t)
		if err != nil {
			return err
		}
		idx[i] = r
	}
	if in.op == "bfi" { // position and length share the third register
		pack := c.scratch()
		c.emit(op{kind: kALU, class: Logic, d: pack, a: idx[2], b: idx[3],
			f: map2(func(a, b uint64) uint64 { return a&255 | b&255<<8 })})
		idx[2] = pack
	}
	d, err := c.dest(in.args[0], a.dst)
	if err != nil {
		return err
	}
	if in.op == "cvt" && isFloat(a.dst) && c.widerThan(in.args[0], a.dst) {
		return c.errorf("register %s is wider than .%s", in.args[0].name, a.dst)
	}
	f := a.f
	if in.op == "cvt" && in.args[0].kind == oName {
		// Integer results are sign-extended to 64 bits: cut them to the register.
		if r, ok := c.lookup(in.args[0].name); ok && width(r.typ) < 64 {
			mask, g := maskOf(width(r.typ)), f
			f = func(d, a, b, c *vec) {
				g(d, a, b, c)
				for i := range d {
					d[i] &= mask
				}
			}
		}
	}
	return c.guarded(op{kind: kALU, class: a.class, d: d, a: idx[0], b: idx[1], c: idx[2], f: f})
}

func (c *compiler) widerThan(o operand, typ string) bool {
	r, ok := c.lookup(o.name)
	return ok && len(typ) > 0 && typ[len(typ)-1] != '~' && width(r.typ) > width(typ)
}

func move(d, a, _, _ *vec) { *d = *a }

func (c *compiler) mov(m *modifiers) error {
	ts, err := m.types(1)
	if err != nil {
		return err
	}
	if err := c.want(2); err != nil {
		return err
	}
	t, dst, src := ts[0], c.in.args[0], c.in.args[1]
	switch {
	case t == "pred":
		d, err := c.pred(dst)
		if err != nil {
			return err
		}
		if src.kind == oInt {
			return c.guarded(op{kind: kPred, class: Predicate, d: d, sub: uint8(src.bits&1) + 10, p2: -1, p3: -1})
		}
		p, err := c.pred(src)
		if err != nil || src.not {
			return c.errorf("source is not a predicate")
		}
		return c.guarded(op{kind: kPred, class: Predicate, d: d, sub: pMov, p2: p, p3: -1})
	case dst.kind == oVec || src.kind == oVec:
		return c.pack(t, dst, src)
	}
	a, err := c.source(src, t)
	if err != nil {
		return err
	}
	d, err := c.dest(dst, t)
	if err != nil {
		return err
	}
	return c.guarded(op{kind: kALU, class: Move, d: d, a: a, f: move})
}

// pack: mov.b64 %rd, {%r1, %r2} and back.
func (c *compiler) pack(t string, dst, src operand) error {
	vec, one, k := src, dst, kPack
	if dst.kind == oVec {
		vec, one, k = dst, src, kUnpack
	}
	n := len(vec.list)
	if n != 2 && n != 4 || width(t)%uint(n) != 0 || t[0] != 'b' || one.kind == oVec {
		return c.errorf("packing is not understood")
	}
	part := "b" + map[uint]string{8: "8", 16: "16", 32: "32"}[width(t)/uint(n)]
	if part == "b" || part == "b8" {
		return c.errorf("packing %d parts of %s is not supported", n, t)
	}
	o := op{kind: k, class: Move, imm: int64(width(part))}
	for _, e := range vec.list {
		var r int32
		var err error
		if k == kPack {
			r, err = c.source(e, part)
		} else {
			r, err = c.dest(e, part)
		}
		if err != nil {
			return err
		}
		o.list = append(o.list, r)
	}
	var err error
	if k == kPack {
		o.d, err = c.dest(one, t)
	} else {
		o.a, err = c.source(one, t)
	}
	if err != nil {
		return err
	}
	return c.guarded(o)
}

var windows = map[space]uint64{spShared: windowShared, spLocal: windowLocal, spConst: windowConst, spParam: windowParam}

func (c *compiler) cvta(m *modifiers) error {
	to := m.has("to")
	where := m.take("global", "shared", "local", "const", "param")
	ts, err := m.types(1)
	if err != nil || where == "" || ts[0] != "u64" {
		return m.refuse()
	}
	if err := c.want(2); err != nil {
		return err
	}
	a, err := c.source(c.in.args[1], "u64")
	if err != nil {
		return err
	}
	d, err := c.dest(c.in.args[0], "u64")
	if err != nil {
		return err
	}
	add := windows[spaceNames[where]]
	if to {
		add = -add
	}
	return c.guarded(op{kind: kALU, class: Integer, d: d, a: a, b: c.constant(add),
		f: func(d, a, b, _ *vec) {
			for i := range d {
				d[i] = a[i] + b[i]
			}
		}})
}

func (c *compiler) isspacep(m *modifiers) error {
	where := m.take("global", "shared", "local", "const", "param")
	if _, err := m.types(0); err != nil || where == "" {
		return m.refuse()
	}
	if err := c.want(2); err != nil {
		return err
	}
	d, err := c.pred(c.in.args[0])
	if err != nil {
		return err
	}
	a, err := c.source(c.in.args[1], "u64")
	if err != nil {
		return err
	}
	return c.guarded(op{kind: kIsSpace, class: Predicate, d: d, a: a, sub: uint8(spaceNames[where])})
}

func (c *compiler) selp(m *modifiers) error {
	ts, err := m.types(1)
	if err != nil || width(ts[0]) < 16 {
		return m.refuse()
	}
	if err := c.want(4); err != nil {
		return err
	}
	a, err := c.source(c.in.args[1], ts[0])
	if err != nil {
		return err
	}
	b, err := c.source(c.in.args[2], ts[0])
	if err != nil {
		return err
	}
	p, err := c.pred(c.in.args[3])
	if err != nil {
		return err
	}
	d, err := c.dest(c.in.args[0], ts[0])
	if err != nil {
		return err
	}
	return c.guarded(op{kind: kSelp, class: Move, d: d, a: a, b: b, p3: p, neg3: c.in.args[3].not})
}

// Logic on predicates.
const (
	pAnd uint8 = iota
	pOr
	pXor
	pMov
	pNot
)

func (c *compiler) predLogic(m *modifiers) error {
	ts, err := m.types(1)
	if err != nil || ts[0] != "pred" {
		return m.refuse()
	}
	n := 3
	sub := map[string]uint8{"and": pAnd, "or": pOr, "xor": pXor, "not": pNot}[c.in.op]
	if c.in.op == "not" {
		n = 2
	}
	if err := c.want(n); err != nil {
		return err
	}
	o := op{kind: kPred, class: Predicate, sub: sub, p3: -1}
	if o.d, err = c.pred(c.in.args[0]); err != nil {
		return err
	}
	if o.p2, err = c.pred(c.in.args[1]); err != nil {
		return err
	}
	o.neg2 = c.in.args[1].not
	if n == 3 {
		if o.p3, err = c.pred(c.in.args[2]); err != nil {
			return err
		}
		o.neg3 = c.in.args[2].not
	}
	return c.guarded(o)
}

// carry: add.cc, addc, sub.cc, subc, mad.lo.cc, madc.hi and so on. The carry is a mask of lanes.
func (c *compiler) carry(m *modifiers) error {
	in := c.in
	half := m.take("lo", "hi")
	sets := m.has("cc")
	ts, err := m.types(1)
	if err != nil {
		return err
	}
	t := ts[0]
	w, s := width(t), signed(t)
	if isFloat(t) || w < 32 || t[0] == 'b' {
		return m.refuse()
	}
	o := op{kind: kCarry, class: Integer, imm: int64(w)}
	n := 2
	switch in.op {
	case "add", "addc":
	case "sub", "subc":
		o.sub |= carrySub
	case "mad", "madc":
		if half == "" {
			return m.refuse()
		}
		n = 3
	default:
		return m.refuse()
	}
	if (half != "") != (n == 3) {
		return m.refuse()
	}
	if in.op == "addc" || in.op == "subc" || in.op == "madc" {
		o.sub |= carryIn
	}
	if sets {
		o.sub |= carryOut
	}
	if err := c.want(n + 1); err != nil {
		return err
	}
	regs := make([]int32, n)
	for i := range regs {
		if regs[i], err = c.source(in.args[i+1], t); err != nil {
			return err
		}
	}
	if n == 3 {
		product := c.scratch()
		f := func(a, b uint64) uint64 { return a * b & maskOf(w) }
		if half == "hi" {
			f = func(a, b uint64) uint64 { return ext(a, w, s) * ext(b, w, s) >> w & maskOf(w) }
			if w == 64 {
				f = func(a, b uint64) uint64 {
					hi, _ := bits.Mul64(a, b)
					if s {
						hi -= a>>63*b + b>>63*a
					}
					return hi
				}
			}
		}
		c.emit(op{kind: kALU, class: Integer, d: product, a: regs[0], b: regs[1], f: map2(f)})
		regs = []int32{product, regs[2]}
	}
	o.a, o.b = regs[0], regs[1]
	if o.d, err = c.dest(in.args[0], t); err != nil {
		return err
	}
	return c.guarded(o)
}

const (
	carryIn uint8 = 1 << iota
	carryOut
	carrySub
)

func (c *compiler) label(name string) (int32, error) {
	for si := c.si; si != nil; si = si.parent {
		if l, ok := si.labels[name]; ok {
			return l, nil
		}
	}
	return -1, c.errorf("unknown label %q", name)
}

func (c *compiler) control(m *modifiers) error {
	in := c.in
	uni := m.has("uni")
	idx := in.op == "brx" && m.has("idx")
	if _, err := m.types(0); err != nil {
		return err
	}
	switch in.op {
	case "bra":
		if err := c.want(1); err != nil {
			return err
		}
		l, err := c.label(in.args[0].name)
		if err != nil {
			return err
		}
		return c.guarded(op{kind: kBranch, class: Control, target: l})
	case "brx":
		if !idx {
			return m.refuse()
		}
		if err := c.want(2); err != nil {
			return err
		}
		a, err := c.source(in.args[0], "u32")
		if err != nil {
			return err
		}
		o := op{kind: kSwitch, class: Control, a: a}
		for si := c.si; si != nil && o.list == nil; si = si.parent {
			for _, name := range si.sc.tables[in.args[1].name] {
				l, err := c.label(name)
				if err != nil {
					return err
				}
				o.list = append(o.list, l)
			}
		}
		if o.list == nil {
			return c.errorf("unknown branch table %q", in.args[1].name)
		}
		return c.guarded(o)
	case "call":
		return c.call()
	}
	if err := c.want(0); err != nil || uni && in.op != "ret" {
		return m.refuse()
	}
	switch in.op {
	case "ret":
		if end := c.si.frame.end; end >= 0 {
			return c.guarded(op{kind: kBranch, class: Control, target: end})
		}
		return c.guarded(op{kind: kExit, class: Control})
	case "exit":
		return c.guarded(op{kind: kExit, class: Control})
	case "trap":
		return c.guarded(op{kind: kTrap, class: Control})
	}
	return m.refuse() // brkpt
}

// hint: instructions that only advise the hardware.
func (c *compiler) hint(m *modifiers) error {
	m.take("global", "local")
	m.take("L1", "L2", "L2::evict_last", "L2::evict_normal")
	if c.in.op == "nanosleep" {
		if ts, err := m.types(1); err != nil || ts[0] != "u32" {
			return m.refuse()
		}
		if _, err := c.source(c.in.args[0], "u32"); err != nil {
			return err
		}
		return c.guarded(op{kind: kNop, class: Control, sub: 1})
	}
	if _, err := m.types(0); err != nil || c.in.op != "prefetch" && c.in.op != "prefetchu" {
		return m.refuse()
	}
	if len(c.in.args) != 1 || c.in.args[0].kind != oMem {
		return c.errorf("an address belongs here")
	}
	return c.guarded(op{kind: kNop, class: Control})
}
