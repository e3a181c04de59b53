package ptx

import "math/bits"

// A warp is 32 threads of a block that share instructions. Where its lanes part it becomes several
// splits; lanes that arrive at a meeting point wait for the rest.

const fullMask = 0xffffffff

type warp struct {
	block *block
	id    int
	regs  []vec
	preds []uint32
	carry uint32
	all   uint32 // lanes that exist
	live  uint32 // lanes that have not ended

	splits []split
	cur    int

	local region // frames of the lanes, one after the other

	pending []*asyncCopy // cp.async nobody has waited for
	group   [32]int32    // of each lane: groups committed
	flight  uint64       // bytes that pending reads
	most    uint64       // of flight so far

	// Clocks; see race.go.
	time   uint32
	synced uint32
	vc     []uint32
	pairs  *[32][32]uint32
	fenced []uint32

	past    map[uint64]bool // fingerprints since the last change
	circles bool

	acc access
	tmp vec
}

type splitState uint8

const (
	running    splitState = iota
	collecting            // at an instruction that needs lanes which are elsewhere
	atBarrier
)

type split struct {
	pc    int32
	mask  uint32
	node  *node
	state splitState
	bar   int
}

// A node is a meeting point: lanes of pending end the divergence at rpc together.
type node struct {
	rpc              int32
	pending, arrived uint32
	parent           *node
}

func (w *warp) merge(d *vec, act uint32) {
	for act != 0 {
		i := bits.TrailingZeros32(act)
		act &= act - 1
		d[i&31] = w.tmp[i&31]
	}
}

// run executes up to budget instructions. It returns what is left of the budget; a warp that gives
// some back waits or has ended.
func (w *warp) run(budget int) int {
	for budget > 0 {
		n := len(w.splits)
		i := -1
		for k := range n {
			j := w.cur + k
			if j >= n {
				j -= n
			}
			if w.splits[j].state == running {
				i = j
				break
			}
		}
		if i < 0 {
			return budget
		}
		w.cur = i
		turn := budget
		if n > 1 {
			turn = min(turn, 2000)
		}
		left := w.step(i, turn)
		budget -= turn - left
		if n > 1 && left == 0 {
			w.cur++ // others may hold what this one waits for
		}
	}
	return 0
}

// step executes split i until its budget is used or the splits of the warp change.
func (w *warp) step(i, budget int) int {
	s := &w.splits[i]
	pc, mask := s.pc, s.mask
	rpc := int32(-1)
	if s.node != nil {
		rpc = s.node.rpc
	}
	ops := w.block.prog.ops
	counts := w.block.worker.counts
	regs, preds := w.regs, w.preds
	for {
		if pc == rpc {
			s.pc = pc
			w.arrive(i)
			return budget
		}
		if budget <= 0 {
			s.pc = pc
			return 0
		}
		budget--
		o := &ops[pc]
		act := mask
		if o.pred >= 0 {
			p := preds[o.pred]
			if o.predNot {
				p = ^p
			}
			act &= p
		}
		cn := &counts[pc]
		cn.warps++
		cn.lanes += uint64(bits.OnesCount32(act))
		if act == 0 {
			pc++
			continue
		}
		switch o.kind {
		case kALU:
			if act == fullMask {
				o.f(&regs[o.d], &regs[o.a], &regs[o.b], &regs[o.c])
			} else {
				o.f(&w.tmp, &regs[o.a], &regs[o.b], &regs[o.c])
				w.merge(&regs[o.d], act)
			}
		case kSetp:
			r := o.cmp(&regs[o.a], &regs[o.b])
			q := ^r
			if o.p3 >= 0 {
				p := preds[o.p3]
				if o.neg3 {
					p = ^p
				}
				r, q = join(o.sub, r, p), join(o.sub, q, p)
			}
			if o.d >= 0 {
				preds[o.d] = preds[o.d]&^act | r&act
			}
			if o.d2 >= 0 {
				preds[o.d2] = preds[o.d2]&^act | q&act
			}
		case kSet:
			r := o.cmp(&regs[o.a], &regs[o.b])
			if o.p3 >= 0 {
				p := preds[o.p3]
				if o.neg3 {
					p = ^p
				}
				r = join(o.sub, r, p)
			}
			for l := range w.tmp {
				w.tmp[l] = uint64(o.imm) & -uint64(r>>l&1)
			}
			w.merge(&regs[o.d], act)
		case kSelp:
			p := preds[o.p3]
			if o.neg3 {
				p = ^p
			}
			a, b := &regs[o.a], &regs[o.b]
			for l := range w.tmp {
				m := -uint64(p >> l & 1)
				w.tmp[l] = a[l]&m | b[l]&^m
			}
			if act == fullMask {
				regs[o.d] = w.tmp
			} else {
				w.merge(&regs[o.d], act)
			}
		case kPred:
			w.predicate(o, act)
		case kBranch:
			if act == mask {
				pc = o.target
				continue
			}
			w.diverge(i, o.rpc, []arm{{o.target, act}, {pc + 1, mask &^ act}})
			return budget
		case kSwitch:
			w.branchTable(i, o, pc, act)
			return budget
		case kExit:
			s.pc = pc + 1
			w.exit(i, act)
			return budget
		case kLoad:
			w.load(o, act, pc)
		case kStore:
			w.store(o, act, pc)
		case kCarry:
			w.addCarry(o, act)
		case kPack:
			d := &w.tmp
			*d = vec{}
			for k, r := range o.list {
				v := &regs[r]
				sh := uint(k) * uint(o.imm)
				for l := range d {
					d[l] |= v[l] << sh
				}
			}
			w.merge(&regs[o.d], act)
		case kUnpack:
			v := regs[o.a]
			m := maskOf(uint(o.imm))
			for k, r := range o.list {
				sh := uint(k) * uint(o.imm)
				for l := range v {
					w.tmp[l] = v[l] >> sh & m
				}
				w.merge(&regs[r], act)
			}
		case kAtomic:
			w.atomic(o, act, pc)
		case kAsync:
			w.asyncCopy(o, act, pc)
		case kAsyncCommit:
			w.asyncCommit(act)
		case kAsyncWait:
			w.asyncWait(o, act)
		case kFence:
			w.fence()
		case kNop:
			if o.sub == 1 && len(w.splits) > 1 { // nanosleep: let the others go on
				s.pc = pc + 1
				return 0
			}
		case kClock:
			w.clock(o, act)
		case kIsSpace:
			var r uint32
			for l, a := range regs[o.a] {
				if spaceOf(a) == space(o.sub) {
					r |= 1 << l
				}
			}
			preds[o.d] = preds[o.d]&^act | r&act
		case kActive:
			for l := range w.tmp {
				w.tmp[l] = uint64(act)
			}
			w.merge(&regs[o.d], act)
		case kTrap:
			w.fault("trap", pc, bits.TrailingZeros32(act), "the kernel executed trap")
			w.block.launch.stop.Store(true)
			return budget
		default: // needs several lanes, or all
			if act != mask {
				// The lanes that do not take part wait behind the instruction.
				if need := w.needed(o, act); need&^act != 0 || o.kind == kBarrier {
					w.diverge(i, pc+1, []arm{{pc, act}, {pc + 1, mask &^ act}})
					return budget
				}
			}
			if need := w.needed(o, act); need&^act != 0 {
				s.pc, s.state = pc, collecting
				w.gather(pc)
				return budget
			}
			if o.kind == kBarrier {
				s.pc = pc
				w.atBar(o, pc, act, []int{i})
				return budget
			}
			w.collective(o, pc, act)
		}
		pc++
	}
}

func join(sub uint8, r, p uint32) uint32 {
	switch sub {
	case pAnd:
		return r & p
	case pOr:
		return r | p
	case pXor:
		return r ^ p
	}
	return r
}

func (w *warp) predicate(o *op, act uint32) {
	var a, b uint32
	if o.p2 >= 0 {
		a = w.preds[o.p2]
		if o.neg2 {
			a = ^a
		}
	}
	if o.p3 >= 0 {
		b = w.preds[o.p3]
		if o.neg3 {
			b = ^b
		}
	}
	var r uint32
	switch o.sub {
	case pNot:
		r = ^a
	case pMov, pAnd, pOr, pXor:
		r = join(o.sub, a, b)
	case 11: // constant true; 10 is false
		r = fullMask
	}
	if o.d >= 0 {
		w.preds[o.d] = w.preds[o.d]&^act | r&act
	}
}

func (w *warp) addCarry(o *op, act uint32) {
	wd := uint(o.imm)
	a, b := &w.regs[o.a], &w.regs[o.b]
	var out uint32
	for l := range w.tmp {
		x, y := a[l], b[l]
		var cin uint64
		if o.sub&carryIn != 0 {
			cin = uint64(w.carry >> l & 1)
		}
		var r, cout uint64
		if o.sub&carrySub != 0 {
			r, cout = bits.Sub64(x, y, cin)
			if wd == 32 {
				cout = r >> 63
			}
		} else {
			r, cout = bits.Add64(x, y, cin)
			if wd == 32 {
				cout = r >> 32 & 1
			}
		}
		w.tmp[l] = r & maskOf(wd)
		out |= uint32(cout) << l
	}
	w.merge(&w.regs[o.d], act)
	if o.sub&carryOut != 0 {
		w.carry = w.carry&^act | out&act
	}
}

// An arm is one way of a divergent branch.
type arm struct {
	pc   int32
	mask uint32
}

// diverge replaces split i by one split an arm, to meet at rpc.
func (w *warp) diverge(i int, rpc int32, arms []arm) {
	s := w.splits[i]
	nd := s.node
	if rpc >= 0 && (nd == nil || nd.rpc != rpc) {
		nd = &node{rpc: rpc, pending: s.mask, parent: s.node}
	}
	if w.block.rng.next()&1 == 1 { // who goes first is nobody's to rely on
		arms[0], arms[len(arms)-1] = arms[len(arms)-1], arms[0]
	}
	w.splits[i] = split{pc: arms[0].pc, mask: arms[0].mask, node: nd}
	for _, a := range arms[1:] {
		w.splits = append(w.splits, split{pc: a.pc, mask: a.mask, node: nd})
	}
}

func (w *warp) branchTable(i int, o *op, pc int32, act uint32) {
	s := &w.splits[i]
	var arms []arm
	add := func(to int32, lane uint32) {
		for k := range arms {
			if arms[k].pc == to {
				arms[k].mask |= lane
				return
			}
		}
		arms = append(arms, arm{to, lane})
	}
	for l := range 32 {
		bit := uint32(1) << l
		switch {
		case s.mask&bit == 0:
		case act&bit == 0:
			add(pc+1, bit)
		case w.regs[o.a][l] >= uint64(len(o.list)):
			w.fault("bounds", pc, l, "branch table of %d entries indexed with %d", len(o.list), w.regs[o.a][l])
			add(o.list[0], bit)
		default:
			add(o.list[w.regs[o.a][l]], bit)
		}
	}
	if len(arms) == 1 {
		s.pc = arms[0].pc
		return
	}
	w.diverge(i, o.rpc, arms)
}

func (w *warp) remove(i int) {
	last := len(w.splits) - 1
	w.splits[i] = w.splits[last]
	w.splits = w.splits[:last]
	if w.cur >= last {
		w.cur = 0
	}
}

// arrive: split i has reached its meeting point.
func (w *warp) arrive(i int) {
	s := w.splits[i]
	w.remove(i)
	s.node.arrived |= s.mask
	w.release(s.node)
}

func (w *warp) release(nd *node) {
	if nd.pending != 0 && nd.arrived == nd.pending {
		w.splits = append(w.splits, split{pc: nd.rpc, mask: nd.pending, node: nd.parent})
		w.cur = len(w.splits) - 1
		nd.pending, nd.arrived = 0, 0
	}
}

// exit ends lanes act of split i.
func (w *warp) exit(i int, act uint32) {
	w.live &^= act
	w.block.alive -= bits.OnesCount32(act)
	w.block.changed = true
	nd := w.splits[i].node
	if w.splits[i].mask &^= act; w.splits[i].mask == 0 {
		w.remove(i)
	}
	for ; nd != nil; nd = nd.parent {
		nd.pending &^= act
		w.release(nd)
	}
	for k := 0; k < len(w.splits); k++ {
		if w.splits[k].state == collecting && w.gather(w.splits[k].pc) {
			k = -1
		}
	}
}

// needed gives the lanes that must execute o together.
func (w *warp) needed(o *op, act uint32) uint32 {
	switch o.kind {
	case kBarrier:
		if o.imm == 1 {
			return w.live
		}
		return act
	case kLdMatrix, kMMA:
		return w.live
	}
	l := bits.TrailingZeros32(act)
	return uint32(w.regs[o.c][l&31]) & w.live
}

// gather lets the splits that wait at pc go on when together they are all that is needed.
func (w *warp) gather(pc int32) bool {
	o := &w.block.prog.ops[pc]
	var act uint32
	var who []int
	for i := range w.splits {
		if s := &w.splits[i]; s.state == collecting && s.pc == pc {
			act |= s.mask
			who = append(who, i)
		}
	}
	if act == 0 || w.needed(o, act)&^act != 0 {
		return false
	}
	for _, i := range who {
		w.splits[i].state = running
	}
	if o.kind == kBarrier {
		w.atBar(o, pc, act, who)
		return true
	}
	w.collective(o, pc, act)
	for _, i := range who {
		w.splits[i].pc++
	}
	w.unite()
	return true
}

// unite joins splits that stand at one place with one meeting point before them.
func (w *warp) unite() {
	for i := 0; i < len(w.splits); i++ {
		for j := i + 1; j < len(w.splits); j++ {
			a, b := &w.splits[i], &w.splits[j]
			if a.pc == b.pc && a.node == b.node && a.state == running && b.state == running {
				a.mask |= b.mask
				w.remove(j)
				j--
			}
		}
	}
}

func spaceOf(addr uint64) space {
	switch addr >> 40 {
	case 1:
		return spShared
	case 2:
		return spLocal
	case 3:
		return spConst
	case 4:
		return spParam
	}
	return spGlobal
}

func (w *warp) clock(o *op, act uint32) {
	// A clock that only goes forward: the instructions this worker has executed.
	w.block.worker.clock += 16
	t := w.block.worker.clock
	switch o.sub {
	case 1:
		t >>= 32
	case 2:
		t &= 0xffffffff
	}
	for l := range w.tmp {
		w.tmp[l] = t
	}
	w.merge(&w.regs[o.d], act)
}
