package ptx

import "math/bits"

// cp.async: the bytes move when somebody waits for them, the last moment at which a card may move
// them. Until then the place they go to is nobody's to touch.

// An asyncCopy is what lanes of one cp.async still have to copy, all from one region.
type asyncCopy struct {
	lanes uint32
	group int32 // of these lanes
	pc    int32
	size  uint64     // bytes written in shared memory
	take  uint64     // of which this many are read, the rest are zeros
	from  *region    // nil when nothing is read
	src   [32]uint64 // offsets, by lane
	dst   [32]uint64
}

func (w *warp) asyncCopy(o *op, act uint32, pc int32) {
	mo := o.mem
	to := request{base: &w.regs[o.a], imm: o.imm, narrow: o.sub&1 == 1, space: spShared, n: mo.size, align: mo.size, write: true}
	from := request{base: &w.regs[o.b], imm: int64(o.target), space: spGlobal, align: mo.size}
	w.beginAccess()
	sh, lanes, _ := w.locate(&to, pc, act)
	dst := w.acc.off
	w.touch(o, pc, sh, lanes, mo.size, true, recAsync)
	for lanes != 0 {
		// Lanes that read as many bytes, and belong to one group, go together.
		first := bits.TrailingZeros32(lanes) & 31
		take := func(lane int) uint64 {
			if mo.srcSize < 0 {
				return mo.size
			}
			return min(mo.size, w.regs[mo.srcSize][lane])
		}
		from.n = take(first)
		group := w.group[first]
		part := lanes
		for m := lanes; m != 0; m &= m - 1 {
			if lane := bits.TrailingZeros32(m) & 31; w.group[lane] != group || take(lane) != from.n {
				part &^= 1 << lane
			}
		}
		lanes &^= part
		for part != 0 {
			c := w.block.worker.newCopy()
			c.lanes, c.group, c.pc, c.size, c.take, c.dst, c.from = part, group, pc, mo.size, from.n, dst, nil
			if from.n > 0 {
				var taken uint32
				c.from, c.lanes, taken = w.locate(&from, pc, part)
				part &^= taken
				if c.lanes != 0 {
					w.touch(o, pc, c.from, c.lanes, from.n, false, 0)
				}
				c.src = w.acc.off
			} else {
				part = 0
			}
			w.pending = append(w.pending, c)
			w.flight += c.take * uint64(bits.OnesCount32(c.lanes))
			if w.flight > w.most {
				w.block.worker.flight += w.flight - w.most
				w.most = w.flight
			}
		}
	}
	w.endAccess(pc, mo.size)
}

// newCopy takes a copy that has landed, or makes one.
func (wk *worker) newCopy() *asyncCopy {
	if n := len(wk.copies); n > 0 {
		c := wk.copies[n-1]
		wk.copies = wk.copies[:n-1]
		return c
	}
	return new(asyncCopy)
}

func (w *warp) asyncCommit(act uint32) {
	for m := act; m != 0; m &= m - 1 {
		w.group[bits.TrailingZeros32(m)&31]++
	}
}

// asyncWait completes, for lanes act, all but the newest o.imm groups; -1: everything.
func (w *warp) asyncWait(o *op, act uint32) {
	keep := w.pending[:0]
	for _, c := range w.pending {
		due := c.lanes & act
		if o.imm >= 0 {
			for m := due; m != 0; m &= m - 1 {
				if lane := bits.TrailingZeros32(m) & 31; int64(c.group) >= int64(w.group[lane])-o.imm {
					due &^= 1 << lane
				}
			}
		}
		if due != 0 {
			w.land(c, due)
		}
		if c.lanes &^= due; c.lanes != 0 {
			keep = append(keep, c)
		} else {
			w.block.worker.copies = append(w.block.worker.copies, c)
		}
	}
	w.pending = keep
}

func (w *warp) land(c *asyncCopy, lanes uint32) {
	sh := &w.block.shared
	w.block.changed = true
	w.flight -= c.take * uint64(bits.OnesCount32(lanes))
	for m := lanes; m != 0; m &= m - 1 {
		lane := bits.TrailingZeros32(m) & 31
		data := sh.data[c.dst[lane] : c.dst[lane]+c.size]
		if c.take < c.size {
			clear(data[c.take:])
		}
		if c.take > 0 {
			copy(data, c.from.data[c.src[lane]:c.src[lane]+c.take])
		}
		sh.setInit(c.dst[lane], c.size)
	}
	runs(&c.dst, lanes, c.size, func(lane int, off, n uint64) {
		w.landed(sh, off, n, lane, uint(bits.TrailingZeros64(c.size)), c.pc)
	})
	if c.take == 0 {
		return
	}
	step := uint(oneLane)
	if c.take == c.size {
		step = uint(bits.TrailingZeros64(c.size))
	}
	runs(&c.src, lanes, c.take, func(lane int, off, n uint64) {
		if hit := w.track(c.from, off, n, lane, step, false, 0, c.pc); hit.rec != 0 {
			w.raceFault(c.pc, lane, "asynchronous read", c.from, off, hit)
		}
	})
}

// runs calls f for each run of lanes side by side: n bytes a lane.
func runs(off *[32]uint64, lanes uint32, n uint64, f func(lane int, off, n uint64)) {
	for m := lanes; m != 0; {
		lane := bits.TrailingZeros32(m) & 31
		at, count := off[lane], 1
		for n&(n-1) == 0 && lane+count < 32 && m>>(lane+count)&1 == 1 && off[lane+count] == at+uint64(count)*n {
			count++
		}
		m &^= uint32(uint64(1)<<count-1) << lane
		f(lane, at, n*uint64(count))
	}
}
