package ptx

import (
	"math/bits"
	"sync/atomic"
)

// Race detection. Two accesses to a byte race when one of them writes, they come from different
// threads, at least one is not a strong (atomic, volatile, relaxed) access, and nothing orders
// them. What orders is followed with clocks, as FastTrack does it: a block has a clock that ticks
// at every barrier, warp barrier and fence; a warp knows of every warp of its block up to which
// time it has synchronised with it, and of other blocks through fences and strong accesses.
//
// Memory is noted in cells of 32 bytes, or of less where an access covers less. For each the last
// write and up to two unordered reads are kept. Neighbouring lanes mostly access neighbouring
// bytes, so a record may stand for several lanes of a warp: byte o of its cell is of lane
// thread + o>>step. That is exact, and one record does for eight lanes.

// A record says who accessed: block (22 bits), thread of the cell's first byte (10), time (25),
// step (3), flags (4); 0 is nobody.
type record uint64

const (
	recValid  record = 1
	recStrong record = 2
	recAsync  record = 4 // a cp.async that nobody has waited for
	maxTime          = 1<<25 - 1

	oneLane  = 7 // step of a record whose bytes are all of one lane
	cellMost = 5 // log2 of a cell's bytes at most
)

func makeRecord(tag uint32, thread int, time uint32, step uint, flags record) record {
	return record(tag)<<42 | record(thread)<<32 | record(time&maxTime)<<7 | record(step)<<4 | flags | recValid
}

func (r record) tag() uint32  { return uint32(r >> 42) }
func (r record) thread() int  { return int(r >> 32 & 1023) }
func (r record) warp() uint   { return uint(r >> 37 & 31) }
func (r record) time() uint32 { return uint32(r>>7) & maxTime }
func (r record) step() uint   { return uint(r>>4) & 7 }

// behind is the record of the part of r's cell that begins o bytes into it.
func (r record) behind(o int) record {
	if r == 0 {
		return 0
	}
	return r + record(o>>r.step())<<32
}

type cell struct {
	write, read, read2       uint64
	writePC, readPC, readPC2 int32
}

// A shadowPage holds the cells of 1 KiB, each of 1<<shift bytes: as fine as the accesses need.
type shadowPage struct {
	shift uint
	cells []cell
}

// newPage takes a page that an earlier launch left, or makes one.
func (r *region) newPage(shift uint) *shadowPage {
	if m := r.mem; m != nil {
		m.mu.Lock()
		list := m.pages[shift]
		if n := len(list); n > 0 {
			m.pages[shift] = list[:n-1]
			m.mu.Unlock()
			clear(list[n-1].cells)
			return list[n-1]
		}
		m.mu.Unlock()
	}
	return &shadowPage{shift, make([]cell, 1<<(shadowShift-shift))}
}

// page gives page i with cells fine enough for accesses at multiples of align.
func (r *region) page(i uint64, align uint64) *shadowPage {
	slot := &r.pages[i]
	for {
		p := slot.Load()
		switch {
		case p == nil:
			slot.CompareAndSwap(nil, r.newPage(uint(bits.TrailingZeros64(align|1<<cellMost))))
		case align&(1<<p.shift-1) != 0:
			fine := r.newPage(p.shift - 1)
			for j := range fine.cells {
				c := &p.cells[j/2]
				half := j & 1 << (p.shift - 1)
				part := func(at *uint64) uint64 { return uint64(record(atomic.LoadUint64(at)).behind(half)) }
				fine.cells[j] = cell{
					part(&c.write), part(&c.read), part(&c.read2),
					atomic.LoadInt32(&c.writePC), atomic.LoadInt32(&c.readPC), atomic.LoadInt32(&c.readPC2),
				}
			}
			slot.CompareAndSwap(p, fine)
		default:
			return p
		}
	}
}

// A conflict is an earlier access that races with this one.
type conflict struct {
	rec    record
	thread int
	pc     int32
	write  bool
}

// ordered is what unordered gives when there is nothing to report.
const ordered = -1

// unordered gives a thread of rec, a record of a cell of 1<<shift bytes, whose access does not
// happen before what lane and its neighbours of w do there now, byte o by lane + o>>step. Lanes
// of skip do not count.
func (w *warp) unordered(rec record, lane int, step, shift uint, skip uint32) int {
	b := w.block
	t, os := rec.thread(), rec.step()
	async := rec&recAsync != 0
	switch {
	case rec.tag() != b.tag:
		if b.seen[rec.tag()] >= rec.time() {
			return ordered
		}
	case async:
	case t>>5 != w.id:
		if w.vc[t>>5] >= rec.time() {
			return ordered
		}
	case rec.time() <= w.vc[w.id], t&31 == lane && (os == step || os >= shift && step >= shift):
		return ordered
	}
	foreign := rec.tag() != b.tag || t>>5 != w.id
	if foreign && skip == 0 {
		return t
	}
	unit := 1 << min(os, step, shift)
	for o := 0; o < 1<<shift; o += unit {
		mine, other := lane+o>>step, t&31+o>>os
		switch {
		case skip>>mine&1 == 1:
		case foreign, async, mine != other && (w.pairs == nil || w.pairs[mine][other] < rec.time()):
			return t&^31 + other
		}
	}
	return ordered
}

// Cells of shared memory belong to one block, those of global memory to all that run.

func (r *region) get(p *uint64) record {
	if r.private {
		if v := record(*p); v.tag() == r.tag {
			return v
		}
		return 0 // of a block that had this memory before
	}
	return record(atomic.LoadUint64(p))
}

func (r *region) put(p *uint64, at *int32, rec record, pc int32) {
	if r.private {
		*p, *at = uint64(rec), pc
		return
	}
	atomic.StoreUint64(p, uint64(rec))
	if atomic.LoadInt32(at) != pc {
		atomic.StoreInt32(at, pc)
	}
}

// piece is how much of the n bytes from off share cells of one size: up to the next boundary of
// the largest cells, then as many of these as there are on the page, then the rest.
func piece(off, n uint64) uint64 {
	const most = 1 << cellMost
	switch {
	case off%most != 0:
		return min(n, most-off%most)
	case n >= most:
		return min(n&^(most-1), 1<<shadowShift-off%(1<<shadowShift))
	}
	return n
}

// track notes an access to bytes [off, off+n) of r, byte off+o by lane + o>>step, and gives a
// conflict. A write that leaves the bytes as they are cannot be told from not writing by a reader
// or another such writer; w.sameLanes names the lanes of which that holds.
func (w *warp) track(r *region, off, n uint64, lane int, step uint, write bool, flags record, pc int32) (hit conflict) {
	for n > 0 {
		k := piece(off, n)
		p := r.pages[off>>shadowShift].Load()
		if p == nil || (off|k)&(1<<p.shift-1) != 0 {
			p = r.page(off>>shadowShift, off|k)
		}
		st := step
		if st >= p.shift {
			st = oneLane
		}
		in := off & (1<<shadowShift - 1)
		cells := p.cells[in>>p.shift : (in+k)>>p.shift]
		switch {
		case write:
			hit = w.trackWrite(hit, r, cells, lane, st, p.shift, step, flags, pc)
		default:
			hit = w.trackRead(hit, r, cells, lane, st, p.shift, step, flags, pc)
		}
		off, n = off+k, n-k
		lane += int(k >> step)
	}
	return hit
}

// before reports that rec is of this block and happens before all that w does now; false: it may still be ordered.
func (w *warp) before(rec record) bool {
	return rec.tag() == w.block.tag && rec&recAsync == 0 && w.vc[rec.warp()] >= rec.time()
}

// trackRead is track for cells of one page, of 1<<shift bytes each. st is step as a record has it.
func (w *warp) trackRead(hit conflict, r *region, cells []cell, lane int, st, shift, step uint, flags record, pc int32) conflict {
	base := makeRecord(w.block.tag, w.id<<5, w.time, st, flags)
	for i := range cells {
		l := lane + i<<shift>>step
		rec := base | record(l)<<32
		c := &cells[i]
		last := r.get(&c.write)
		if last != 0 && !w.before(last) && last != rec && last&flags&recStrong == 0 {
			if t := w.unordered(last, l, st, shift, 0); t != ordered {
				hit = conflict{last, t, atomic.LoadInt32(&c.writePC), true}
			}
		}
		read := r.get(&c.read)
		if read == rec {
			continue
		}
		if read != 0 && (read^rec)>>32 != 0 && !w.before(read) && w.beside(read, rec, l, st, shift) {
			// Two readers are enough as long as nothing orders them before a writer.
			if read2 := r.get(&c.read2); read2 == 0 || (read2^rec)>>32 == 0 || w.before(read2) || !w.beside(read2, rec, l, st, shift) {
				r.put(&c.read2, &c.readPC2, read, atomic.LoadInt32(&c.readPC))
			}
		}
		r.put(&c.read, &c.readPC, rec, pc)
	}
	return hit
}

// beside reports whether nothing orders read, which is not before what w does now, and rec, which is that.
func (w *warp) beside(read, rec record, lane int, st, shift uint) bool {
	if read.tag() == rec.tag() && read.warp() != rec.warp() {
		return true
	}
	return w.unordered(read, lane, st, shift, 0) != ordered
}

// trackWrite is track for cells of one page, of 1<<shift bytes each. st is step as a record has it.
func (w *warp) trackWrite(hit conflict, r *region, cells []cell, lane int, st, shift, step uint, flags record, pc int32) conflict {
	base := makeRecord(w.block.tag, w.id<<5, w.time, st, flags)
	for i := range cells {
		l := lane + i<<shift>>step
		rec := base | record(l)<<32
		c := &cells[i]
		last := r.get(&c.write)
		if last != 0 && !w.before(last) && last != rec && last&flags&recStrong == 0 {
			t := w.unordered(last, l, st, shift, 0)
			if t != ordered && last&recAsync == 0 {
				t = w.unordered(last, l, st, shift, w.sameLanes())
			}
			if t != ordered {
				hit = conflict{last, t, atomic.LoadInt32(&c.writePC), true}
			}
		}
		if read := r.get(&c.read); read != 0 {
			if !w.before(read) {
				hit = w.readBefore(hit, read, &c.readPC, l, st, shift, flags)
			}
			if read2 := r.get(&c.read2); read2 != 0 {
				if !w.before(read2) {
					hit = w.readBefore(hit, read2, &c.readPC2, l, st, shift, flags)
				}
				r.put(&c.read2, &c.readPC2, 0, 0)
			}
			r.put(&c.read, &c.readPC, 0, 0)
		}
		r.put(&c.write, &c.writePC, rec, pc)
	}
	return hit
}

// readBefore looks whether a write conflicts with an earlier read.
func (w *warp) readBefore(hit conflict, read record, at *int32, lane int, step, shift uint, flags record) conflict {
	if read&flags&recStrong != 0 || w.unordered(read, lane, step, shift, 0) == ordered {
		return hit
	}
	if t := w.unordered(read, lane, step, shift, w.sameLanes()); t != ordered {
		return conflict{read, t, atomic.LoadInt32(at), false}
	}
	return hit
}

// landed turns the in-flight mark of a cp.async into an ordinary write of now.
func (w *warp) landed(r *region, off, n uint64, lane int, step uint, pc int32) {
	base := makeRecord(w.block.tag, w.id<<5, w.time, 0, 0)
	for n > 0 {
		k := piece(off, n)
		p := r.page(off>>shadowShift, off|k)
		st := step
		if st >= p.shift {
			st = oneLane
		}
		in := off & (1<<shadowShift - 1)
		cells := p.cells[in>>p.shift : (in+k)>>p.shift]
		for i := range cells {
			l := lane + i<<p.shift>>step
			r.put(&cells[i].write, &cells[i].writePC, base|record(l)<<32|record(st)<<4, pc)
		}
		off, n = off+k, n-k
		lane += int(k >> step)
	}
}

// tick starts a new time for w: what it did before lies at or before the time returned.
func (w *warp) tick() uint32 {
	was := w.time
	w.block.clock++
	w.time = w.block.clock
	return was
}

// syncLanes orders the lanes of mask among each other, as bar.warp.sync does.
func (w *warp) syncLanes(mask uint32) {
	was := w.tick()
	if mask&w.live == w.live {
		w.vc[w.id] = was
		return
	}
	if w.pairs == nil {
		w.pairs = new([32][32]uint32)
	}
	for i := range 32 {
		for j := range 32 {
			if mask>>i&1 == 1 && mask>>j&1 == 1 {
				w.pairs[i][j] = was
			}
		}
	}
}

// Order between blocks: a fence publishes what the block has done, a strong write after it carries
// that to whoever reads the location by a strong access.

func (w *warp) fence() {
	b := w.block
	b.published = b.clock
	if w.fenced == nil {
		w.fenced = make([]uint32, len(w.vc))
	}
	copy(w.fenced, w.vc)
	w.fenced[w.id] = w.tick()
}

// strong notes a strong access to an address (generic): acquire when it reads, release when it
// writes. Inside the block clocks are kept by warp, between blocks by block.
func (w *warp) strong(addr uint64, reads, writes bool) {
	b := w.block
	if reads {
		for i, t := range b.sync[addr] {
			w.vc[i] = max(w.vc[i], t)
		}
	}
	if writes && w.fenced != nil {
		if b.sync == nil {
			b.sync = map[uint64][]uint32{}
		}
		at := b.sync[addr]
		if at == nil {
			at = make([]uint32, len(w.vc))
			b.sync[addr] = at
		}
		for i, t := range w.fenced {
			at[i] = max(at[i], t)
		}
	}
	if addr < firstGlobal {
		return
	}
	l := b.launch
	l.syncMu.Lock()
	defer l.syncMu.Unlock()
	at := l.sync[addr]
	if reads {
		for tag, t := range at {
			if tag != b.tag && b.seen[tag] < t {
				if b.seen == nil {
					b.seen = map[uint32]uint32{}
				}
				b.seen[tag] = t
			}
		}
	}
	if writes && (b.published > 0 || len(b.seen) > 0) {
		if at == nil {
			at = map[uint32]uint32{}
			l.sync[addr] = at
		}
		at[b.tag] = max(at[b.tag], b.published)
		for tag, t := range b.seen {
			at[tag] = max(at[tag], t)
		}
	}
}
