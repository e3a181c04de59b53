package ptx

import (
	"math/bits"
	"slices"
)

// Registers. nvcc gives every value a register of its own: thousands, of which a warp needs a hundred at a time. Values
// that are never needed together share a place here, so that what a warp works on stays in the processor's near memory.
//
// A place may be shared because each lane follows the program on its own: an instruction writes only the lanes that execute
// it, so what counts is what one thread needs, whatever the others do.

// registers calls f with each register that o names.
func (o *op) registers(f func(r *int32, written bool)) {
	reads := func(rs ...*int32) {
		for _, r := range rs {
			f(r, false)
		}
	}
	list := func(rs []int32, written bool) {
		for i := range rs {
			if rs[i] >= 0 {
				f(&rs[i], written)
			}
		}
	}
	switch o.kind {
	case kALU:
		reads(&o.a, &o.b, &o.c)
		f(&o.d, true)
	case kSetp:
		reads(&o.a, &o.b)
	case kSet, kSelp, kCarry:
		reads(&o.a, &o.b)
		f(&o.d, true)
	case kPack:
		list(o.list, false)
		f(&o.d, true)
	case kUnpack:
		reads(&o.a)
		list(o.list, true)
	case kSwitch, kIsSpace:
		reads(&o.a)
	case kLoad, kLdMatrix:
		reads(&o.a)
		list(o.mem.regs, true)
	case kStore:
		reads(&o.a)
		list(o.mem.regs, false)
	case kAtomic:
		reads(&o.a, &o.b, &o.c)
		if !o.mem.noRet {
			f(&o.d, true)
		}
	case kAsync:
		reads(&o.a, &o.b)
		if o.mem.srcSize >= 0 {
			reads(&o.mem.srcSize)
		}
	case kBarrier:
		reads(&o.a)
		if o.b >= 0 {
			reads(&o.b)
		}
		if o.sub == barPopc {
			f(&o.d, true)
		}
	case kWarpBarrier:
		reads(&o.c)
	case kShuffle:
		reads(&o.a, &o.b, &o.d2, &o.c)
		f(&o.d, true)
	case kVote:
		reads(&o.c)
		if o.sub == voteBallot {
			f(&o.d, true)
		}
	case kMatch, kRedux:
		reads(&o.a, &o.c)
		f(&o.d, true)
	case kActive, kClock:
		f(&o.d, true)
	case kMMA:
		list(o.mma.a, false)
		list(o.mma.b, false)
		list(o.mma.c, false)
		list(o.mma.d, true)
	}
}

// next lists the instructions that may follow instruction i.
func next(ops []op, i int) (to []int32) {
	o := &ops[i]
	switch o.kind {
	case kBranch:
		to = append(to, o.target)
	case kSwitch:
		to = append(to, o.list...)
	case kExit, kTrap:
	default:
		return append(to, int32(i+1))
	}
	if o.pred >= 0 {
		to = append(to, int32(i+1))
	}
	return to
}

// A span is the instructions from the first at which a register holds something that is needed to the last.
type span struct{ reg, from, to int32 }

// shareRegisters gives registers that are never needed together one place. Constants and special registers keep theirs.
func (p *program) shareRegisters() {
	fixed := make([]bool, p.nVecs)
	for _, f := range p.fixed {
		fixed[f.at] = true
	}
	place := make([]int32, p.nVecs)
	n := int32(0)
	for r := range place {
		place[r] = -1
		if fixed[r] {
			place[r] = n
			n++
		}
	}
	var free []int32
	var busy []span
	for _, s := range p.spans() {
		if fixed[s.reg] {
			continue
		}
		busy = slices.DeleteFunc(busy, func(b span) bool {
			if b.to < s.from {
				free = append(free, place[b.reg])
			}
			return b.to < s.from
		})
		if k := len(free) - 1; k >= 0 { // the one freed last is the nearest
			place[s.reg], free = free[k], free[:k]
		} else {
			place[s.reg] = n
			n++
		}
		busy = append(busy, s)
	}
	for i := range p.ops {
		p.ops[i].registers(func(r *int32, _ bool) { *r = place[*r] })
	}
	for i := range p.fixed {
		p.fixed[i].at = place[p.fixed[i].at]
	}
	p.nVecs = int(n)
}

// spans gives each register's, in the order of their beginnings. Registers that one instruction reads and that it writes
// count as needed together: it may write one before it reads another.
func (p *program) spans() []span {
	ops := p.ops
	words := (p.nVecs + 63) / 64
	starts, block := basicBlocks(ops)
	type sets struct{ reads, writes, in []uint64 } // reads: before any write
	all := make([]sets, len(starts))
	at := make([]span, p.nVecs)
	for r := range at {
		at[r] = span{int32(r), int32(len(ops)), -1}
	}
	touch := func(r int, i int) {
		at[r].from, at[r].to = min(at[r].from, int32(i)), max(at[r].to, int32(i))
	}
	end := func(b int) int {
		if b+1 < len(starts) {
			return starts[b+1]
		}
		return len(ops)
	}
	for b := range all {
		s := &all[b]
		s.reads, s.writes, s.in = make([]uint64, words), make([]uint64, words), make([]uint64, words)
		for i := starts[b]; i < end(b); i++ {
			ops[i].registers(func(r *int32, written bool) {
				touch(int(*r), i)
				if word, bit := *r/64, uint64(1)<<(*r%64); !written && s.writes[word]&bit == 0 {
					s.reads[word] |= bit
				}
			})
			ops[i].registers(func(r *int32, written bool) {
				if written && ops[i].pred < 0 { // under a predicate the old value may stay
					s.writes[*r/64] |= 1 << (*r % 64)
				}
			})
		}
		copy(s.in, s.reads)
	}
	out := make([]uint64, words)
	for changed := true; changed; {
		changed = false
		for b := len(all) - 1; b >= 0; b-- {
			clear(out)
			for _, to := range next(ops, end(b)-1) {
				for k, v := range all[block[to]].in {
					out[k] |= v
				}
			}
			s := &all[b]
			for k, v := range out {
				if in := s.in[k] | v&^s.writes[k]; in != s.in[k] {
					s.in[k], changed = in, true
				}
			}
		}
	}
	for b := range all {
		for k, v := range all[b].in {
			for ; v != 0; v &= v - 1 {
				touch(64*k+bits.TrailingZeros64(v), starts[b])
			}
		}
		for _, to := range next(ops, end(b)-1) {
			for k, v := range all[block[to]].in {
				for ; v != 0; v &= v - 1 {
					touch(64*k+bits.TrailingZeros64(v), end(b)-1)
				}
			}
		}
	}
	at = slices.DeleteFunc(at, func(s span) bool { return s.to < 0 })
	slices.SortStableFunc(at, func(a, b span) int { return int(a.from - b.from) })
	return at
}
