package ptx

// Compiling barriers, fences and warp-wide instructions.

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
