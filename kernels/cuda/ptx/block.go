package ptx

import (
	"math/bits"
	"slices"
	"strings"
)

// A block is a running thread block: warps that take turns on one goroutine.
type block struct {
	launch  *launch
	prog    *program
	worker  *worker
	linear  uint32
	at      [3]int
	tag     uint32 // of records: linear+1, 22 bits
	sampled uint64 // its bit, when a sample of the grid runs
	threads int
	alive   int // threads that have not ended

	warps       []*warp
	order       []int
	shared      region
	frameStride uint64
	bars        [16]barrier

	clock     uint32
	published uint32
	seen      map[uint32]uint32   // other blocks: how much of them happened before
	sync      map[uint64][]uint32 // strong accesses: clocks by warp

	rng       rng
	pastEpoch int64 // of the warps' fingerprints
	circledAt int64 // epoch of the launch in which every warp was seen to circle
	changed   bool  // something happened since the scheduler looked
	still     int   // rounds in a row in which nothing changed
	dead      bool  // a fault from which the block cannot go on
}

// rng is a small generator (splitmix64): the order of things nobody may rely on.
type rng uint64

func (r *rng) next() uint64 {
	*r += 0x9e3779b97f4a7c15
	z := uint64(*r)
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

func (r *rng) shuffle(v []int) {
	for i := len(v) - 1; i > 0; i-- {
		j := int(r.next() % uint64(i+1))
		v[i], v[j] = v[j], v[i]
	}
}

func (l *launch) newBlock(wk *worker, linear int) *block {
	g, bd := l.cfg.Grid, l.cfg.Block
	threads := bd[0] * bd[1] * bd[2]
	b := &block{
		launch: l, prog: l.prog, worker: wk, linear: uint32(linear), threads: threads, alive: threads,
		at:    [3]int{linear % g[0], linear / g[0] % g[1], linear / g[0] / g[1]},
		tag:   uint32(linear+1) & (1<<22 - 1),
		clock: 1, circledAt: -1, rng: rng(l.cfg.Seed ^ uint64(linear)*0x9e3779b97f4a7c15),
		frameStride: uint64(l.prog.frameBytes+15) &^ 15,
	}
	n := (threads + 31) / 32
	free := wk.free
	wk.free = nil
	if wk.shared != nil {
		b.shared, wk.shared = *wk.shared, nil
		clear(b.shared.init)
	} else {
		b.shared = region{name: "shared", private: true, data: newBytes(l.sharedBytes), init: make([]byte, l.sharedBytes), pages: newPages(l.sharedBytes)}
	}
	b.shared.tag = b.tag
	if l.sample != nil {
		b.sampled = 1 << slices.Index(l.sample, linear)
	}
	for i := range n {
		var w *warp
		again := false
		if len(free) > i {
			w = free[i]
			w.reset()
			again = true
		} else {
			w = &warp{regs: make([]vec, l.prog.nVecs+1), preds: make([]uint32, l.prog.nPreds+1)}
			w.local = region{name: "local", private: true, data: make([]byte, 32*b.frameStride), init: make([]byte, 32*b.frameStride)}
		}
		w.block, w.id, w.time = b, i, 1
		w.vc = make([]uint32, n)
		w.all = fullMask
		if left := threads - 32*i; left < 32 {
			w.all = 1<<left - 1
		}
		w.live = w.all
		w.splits = append(w.splits[:0], split{mask: w.all})
		w.fillFixed(again)
		b.warps = append(b.warps, w)
		b.order = append(b.order, i)
	}
	b.rng.shuffle(b.order)
	return b
}

func (w *warp) reset() {
	clear(w.local.init)
	*w = warp{regs: w.regs, preds: w.preds, local: w.local, splits: w.splits[:0]}
}

// fillFixed sets constants and special registers; in a warp used again only what differs by block.
func (w *warp) fillFixed(again bool) {
	b := w.block
	cfg := &b.launch.cfg
	for _, f := range b.prog.fixed {
		if again && !strings.HasPrefix(f.special, "%ctaid") && f.special != "%smid" {
			continue
		}
		v := &w.regs[f.at]
		for l := range v {
			t := w.id*32 + l
			x := f.value
			switch f.special {
			case "":
			case "%tid.x":
				x = uint64(t % cfg.Block[0])
			case "%tid.y":
				x = uint64(t / cfg.Block[0] % cfg.Block[1])
			case "%tid.z":
				x = uint64(t / cfg.Block[0] / cfg.Block[1])
			case "%ntid.x", "%ntid.y", "%ntid.z":
				x = uint64(cfg.Block[f.special[6]-'x'])
			case "%ctaid.x", "%ctaid.y", "%ctaid.z":
				x = uint64(b.at[f.special[7]-'x'])
			case "%nctaid.x", "%nctaid.y", "%nctaid.z":
				x = uint64(cfg.Grid[f.special[8]-'x'])
			case "%laneid":
				x = uint64(l)
			case "%warpid":
				x = uint64(w.id)
			case "%nwarpid":
				x = uint64(len(w.vc))
			case "%nsmid":
				x = 82
			case "%smid":
				x = uint64(b.linear) % 82
			case "%gridid":
				x = 1
			case "%lanemask_eq":
				x = 1 << l
			case "%lanemask_lt":
				x = 1<<l - 1
			case "%lanemask_le":
				x = 2<<l - 1
			case "%lanemask_gt":
				x = fullMask &^ (2<<l - 1)
			case "%lanemask_ge":
				x = fullMask &^ (1<<l - 1)
			case "%dynamic_smem_size":
				x = uint64(cfg.SharedBytes)
			case "%total_smem_size":
				x = uint64(b.launch.sharedBytes)
			}
			v[l] = x
		}
	}
}

// restless is how many rounds a block computes without a change before one asks whether it goes round in circles: a long
// sum in registers is no reason to.
const restless = 30

// run executes about budget instructions of the block's warps and reports whether it has ended.
func (b *block) run(budget int) (done bool, used int) {
	any := b.changed
	defer func() { b.changed = any }()
	for used < budget && b.alive > 0 && !b.dead && !b.launch.stop.Load() {
		before := used
		b.changed = false
		for _, i := range b.order {
			w := b.warps[i]
			if w.live == 0 {
				continue
			}
			turn := 500 + int(b.rng.next()%1000)
			if b.still > restless { // nothing changes: see soon whether anything does now
				turn = 40 + int(b.rng.next()%40)
			}
			used += turn - w.run(turn)
		}
		if b.still++; b.changed {
			b.still = 0
		}
		any = any || b.changed
		for _, w := range b.warps {
			if b.changed {
				w.forget()
			} else if b.still > restless && w.live != 0 && !w.circles {
				h := w.fingerprint()
				w.circles = w.past[h]
				if w.past == nil {
					w.past = map[uint64]bool{}
				}
				w.past[h] = true
			}
		}
		if used > before {
			if b.circling() {
				break // until something outside the block changes
			}
			continue
		}
		// Nobody moved. Threads that ended may be what a barrier waits for.
		if b.exitOpensBarrier() {
			continue
		}
		b.stuck()
		b.dead = true
	}
	return b.alive == 0 || b.dead || b.launch.stop.Load(), used
}

// A warp that is in a state it was in before, while nothing has changed in between, will be in it
// again and again.

func (w *warp) forget() { w.past, w.circles = nil, false }

func (w *warp) fingerprint() uint64 {
	h := uint64(14695981039346656037)
	mix := func(v uint64) { h = (h ^ v) * 0x9e3779b97f4a7c15; h ^= h >> 29 }
	for i := range w.regs {
		for _, v := range w.regs[i] {
			mix(v)
		}
	}
	for _, p := range w.preds {
		mix(uint64(p))
	}
	for i := range w.splits {
		s := &w.splits[i]
		mix(uint64(s.pc)<<32 | uint64(s.mask))
		mix(uint64(s.state))
	}
	return h
}

func (b *block) circling() bool {
	for _, w := range b.warps {
		if w.live != 0 && !w.circles {
			return false
		}
	}
	return true
}

func (b *block) exitOpensBarrier() bool {
	for id := range b.bars {
		bar := &b.bars[id]
		if bar.arrived == 0 || bar.want != 0 || bar.arrived < b.alive {
			continue
		}
		for _, w := range b.warps {
			if w.live != 0 {
				b.tryBarrier(id, w, bits.TrailingZeros32(w.live))
				return true
			}
		}
	}
	return false
}

// stuck says why the block cannot go on.
func (b *block) stuck() {
	divergent := false
	for _, w := range b.warps {
		for i := range w.splits {
			s := &w.splits[i]
			if s.state == collecting && b.prog.ops[s.pc].kind == kBarrier {
				divergent = true
				w.fault("barrier-divergence", s.pc, bits.TrailingZeros32(s.mask),
					"lanes %#x of the warp wait here, of %#x that must come together", s.mask, w.live)
			}
		}
	}
	if divergent {
		return
	}
	b.waits("no thread of the block can go on: this one waits here")
}

// waits reports a deadlock at every place where threads stand.
func (b *block) waits(why string) {
	for _, w := range b.warps {
		for i := range w.splits {
			s := &w.splits[i]
			w.fault("deadlock", s.pc, bits.TrailingZeros32(s.mask), "%s", why)
		}
	}
}
