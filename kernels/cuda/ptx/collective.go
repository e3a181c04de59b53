package ptx

import "math/bits"

// Instructions that several lanes of a warp execute together.

func (w *warp) collective(o *op, pc int32, act uint32) {
	switch o.kind {
	case kWarpBarrier:
		w.syncLanes(act)
	case kShuffle:
		w.shuffle(o, act)
	case kVote:
		w.vote(o, act)
	case kMatch:
		w.match(o, act)
	case kRedux:
		v := &w.regs[o.a]
		first := bits.TrailingZeros32(act)
		sum := v[first&31]
		for m := act &^ (1 << first); m != 0; m &= m - 1 {
			sum = o.mem.atom(sum, v[bits.TrailingZeros32(m)&31], 0)
		}
		for l := range w.tmp {
			w.tmp[l] = sum & 0xffffffff
		}
		w.merge(&w.regs[o.d], act)
	case kLdMatrix:
		w.ldmatrix(o, act, pc)
	case kMMA:
		if act != fullMask {
			w.fault("barrier-divergence", pc, bits.TrailingZeros32(act), "mma.sync by lanes %#x of a warp", act)
			return
		}
		w.block.worker.mma++
		w.mma(o)
	}
}

// shuffle reads register a of the lane that b and the clamp and segment mask d2 name.
func (w *warp) shuffle(o *op, act uint32) {
	a, b, c := &w.regs[o.a], &w.regs[o.b], &w.regs[o.d2]
	var ok uint32
	for l := range 32 {
		bval, cval := int(b[l]&31), int(c[l]&31)
		seg := int(c[l] >> 8 & 31)
		maxLane := l&seg | cval&^seg
		minLane := l & seg
		j := l
		var p bool
		switch o.sub {
		case shUp:
			j = l - bval
			p = j >= maxLane
		case shDown:
			j = l + bval
			p = j <= maxLane
		case shBfly:
			j = l ^ bval
			p = j <= maxLane
		case shIdx:
			j = minLane | bval&^seg
			p = j <= maxLane
		}
		if !p {
			j = l
		} else {
			ok |= 1 << l
		}
		w.tmp[l] = a[j&31]
	}
	w.merge(&w.regs[o.d], act)
	if o.p2 >= 0 {
		w.preds[o.p2] = w.preds[o.p2]&^act | ok&act
	}
}

func (w *warp) vote(o *op, act uint32) {
	p := w.preds[o.p2]
	if o.neg2 {
		p = ^p
	}
	p &= act
	var r bool
	switch o.sub {
	case voteBallot:
		for l := range w.tmp {
			w.tmp[l] = uint64(p)
		}
		w.merge(&w.regs[o.d], act)
		return
	case voteAll:
		r = p == act
	case voteAny:
		r = p != 0
	case voteUni:
		r = p == 0 || p == act
	}
	w.preds[o.d] &^= act
	if r {
		w.preds[o.d] |= act
	}
}

func (w *warp) match(o *op, act uint32) {
	v := &w.regs[o.a]
	var same [32]uint32
	for l := range 32 {
		for k := range 32 {
			if act>>k&1 == 1 && v[k] == v[l] {
				same[l] |= 1 << k
			}
		}
	}
	all := same[bits.TrailingZeros32(act)&31] == act
	for l := range 32 {
		w.tmp[l] = uint64(same[l])
		if o.sub == 1 && !all {
			w.tmp[l] = 0
		}
	}
	w.merge(&w.regs[o.d], act)
	if o.p2 >= 0 {
		w.preds[o.p2] &^= act
		if all {
			w.preds[o.p2] |= act
		}
	}
}

// A barrier is one of the sixteen of a block.
type barrier struct {
	arrived int
	want    int // threads; 0: all that are alive
	vc      []uint32
	count   int // red: threads whose predicate holds
	total   int // red: threads that took part
	pc      int32
}

// atBar: the splits who of w, with lanes act, arrive at a barrier.
func (w *warp) atBar(o *op, pc int32, act uint32, who []int) {
	b := w.block
	first := bits.TrailingZeros32(act)
	id := w.regs[o.a][first]
	if id > 15 {
		w.fault("barrier-divergence", pc, first, "barrier %d: there are 16", id)
		b.dead = true
		return
	}
	bar := &b.bars[id]
	n := bits.OnesCount32(act)
	want := 0
	if o.b >= 0 {
		want = int(w.regs[o.b][first])
		if want == 0 || want%32 != 0 && o.imm == 1 || want > 1024 {
			w.fault("barrier-divergence", pc, first, "barrier %d for %d threads, which are no whole warps", id, want)
			b.dead = true
			return
		}
		if o.imm == 1 {
			n = 32 // an aligned barrier counts warps
		}
	}
	if bar.arrived > 0 && bar.want != want {
		w.fault("barrier-divergence", pc, first, "barrier %d for %d threads, but others arrived for %d", id, want, bar.want)
		b.dead = true
		return
	}
	bar.want, bar.pc = want, pc
	bar.arrived += n
	if bar.vc == nil {
		bar.vc = make([]uint32, len(w.vc))
	}
	for i, t := range w.vc {
		bar.vc[i] = max(bar.vc[i], t)
	}
	bar.vc[w.id] = max(bar.vc[w.id], w.tick())
	if o.sub >= barPopc {
		p := w.preds[o.p2]
		if o.neg2 {
			p = ^p
		}
		bar.count += bits.OnesCount32(p & act)
		bar.total += bits.OnesCount32(act)
	}
	for _, i := range who {
		s := &w.splits[i]
		s.pc = pc
		if o.sub == barArrive {
			s.pc++
			continue
		}
		s.state, s.bar = atBarrier, int(id)
	}
	b.changed = true
	b.tryBarrier(int(id), w, first)
}

// tryBarrier opens barrier id when all that it waits for have come.
func (b *block) tryBarrier(id int, w *warp, lane int) {
	bar := &b.bars[id]
	if bar.arrived == 0 {
		return
	}
	want := bar.want
	if want == 0 {
		want = b.alive
	}
	if bar.arrived < want {
		return
	}
	if bar.want == 0 && b.alive < b.threads {
		w.fault("barrier-divergence", bar.pc, lane, "%d of %d threads of the block ended before this barrier", b.threads-b.alive, b.threads)
	}
	b.clock++
	for _, v := range b.warps {
		hit := false
		for i := range v.splits {
			s := &v.splits[i]
			if s.state != atBarrier || s.bar != id {
				continue
			}
			hit = true
			o := &b.prog.ops[s.pc]
			switch o.sub {
			case barPopc:
				for l := range v.tmp {
					v.tmp[l] = uint64(bar.count)
				}
				v.merge(&v.regs[o.d], s.mask)
			case barAnd, barOr:
				if o.d >= 0 {
					v.preds[o.d] &^= s.mask
					if o.sub == barAnd && bar.count == bar.total || o.sub == barOr && bar.count > 0 {
						v.preds[o.d] |= s.mask
					}
				}
			}
			s.state = running
			s.pc++
		}
		if hit {
			for i, t := range bar.vc {
				v.vc[i] = max(v.vc[i], t)
			}
			v.tick()
			v.unite()
		}
	}
	*bar = barrier{}
	b.changed = true
}
