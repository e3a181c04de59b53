package ptx

import "sync/atomic"

// Race detection. Two accesses to a byte race when one of them writes, they come from different
// threads, at least one is not a strong (atomic, volatile, relaxed) access, and nothing orders
// them. What orders is followed with clocks, as FastTrack does it: a block has a clock that ticks
// at every barrier, warp barrier and fence; a warp knows of every warp of its block up to which
// time it has synchronised with it, and of other blocks through fences and strong accesses.
//
// For each granule of memory the last write and up to two unordered reads are kept.

// A record says who accessed: block (22 bits), thread (10), time (28), flags (4); 0 is nobody.
type record uint64

const (
	recValid  record = 1
	recStrong record = 2
	recAsync  record = 4 // a cp.async that nobody has waited for
	maxTime          = 1<<28 - 1
)

func makeRecord(tag uint32, thread int, time uint32, flags record) record {
	return record(tag)<<42 | record(thread)<<32 | record(time&maxTime)<<4 | flags | recValid
}

func (r record) tag() uint32  { return uint32(r >> 42) }
func (r record) thread() int  { return int(r >> 32 & 1023) }
func (r record) time() uint32 { return uint32(r>>4) & maxTime }

type cell struct {
	write, read, read2       uint64
	writePC, readPC, readPC2 int32
}

// A shadowPage holds the cells of 4 KiB, each of 1<<shift bytes: as fine as the accesses need.
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
	return &shadowPage{shift, make([]cell, 1<<(pageShift-shift))}
}

func (r *region) page(i uint64, align uint64) *shadowPage {
	slot := &r.pages[i]
	for {
		p := slot.Load()
		switch {
		case p == nil:
			shift := uint(4)
			for align&(1<<shift-1) != 0 {
				shift--
			}
			slot.CompareAndSwap(nil, r.newPage(shift))
		case align&(1<<p.shift-1) != 0:
			fine := r.newPage(p.shift - 1)
			for j := range fine.cells {
				c := &p.cells[j/2]
				fine.cells[j] = cell{
					atomic.LoadUint64(&c.write), atomic.LoadUint64(&c.read), atomic.LoadUint64(&c.read2),
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
	rec   record
	pc    int32
	write bool
}

// ordered reports whether the access of rec happens before what lane of w does now.
func (w *warp) ordered(rec record, lane int) bool {
	b := w.block
	if rec.tag() != b.tag {
		return b.seen[rec.tag()] >= rec.time()
	}
	t := rec.thread()
	ow, ol := t>>5, t&31
	switch {
	case ow != w.id:
		return w.vc[ow] >= rec.time()
	case ol == lane:
		return rec&recAsync == 0
	}
	return rec.time() <= w.synced || w.pairs != nil && w.pairs[lane][ol] >= rec.time()
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
	atomic.StoreInt32(at, pc)
}

// track notes an access of lane to bytes [off, off+n) of r and gives the first conflict. same says
// that a write leaves the bytes as they are, which no reader can tell from not writing.
func (w *warp) track(r *region, off, n uint64, lane int, write, same bool, flags record, pc int32) (hit conflict) {
	rec := makeRecord(w.block.tag, w.id<<5|lane, w.time, flags)
	for n > 0 {
		p := r.page(off>>pageShift, off|n)
		in := off & (1<<pageShift - 1)
		k := min(n, 1<<pageShift-in)
		for i := in >> p.shift; i < (in+k)>>p.shift; i++ {
			c := &p.cells[i]
			last := r.get(&c.write)
			if last != 0 && last != rec && !(last&flags&recStrong != 0) && !w.ordered(last, lane) &&
				!(write && same && last&recAsync == 0) {
				hit = conflict{last, atomic.LoadInt32(&c.writePC), true}
			}
			read := r.get(&c.read)
			if !write {
				if read == rec {
					continue
				}
				if read != 0 && read.thread() != rec.thread() && !w.ordered(read, lane) {
					r.put(&c.read2, &c.readPC2, read, atomic.LoadInt32(&c.readPC))
				}
				r.put(&c.read, &c.readPC, rec, pc)
				continue
			}
			if read != 0 {
				if !(read&flags&recStrong != 0) && !same && !w.ordered(read, lane) {
					hit = conflict{read, atomic.LoadInt32(&c.readPC), false}
				}
				if read2 := r.get(&c.read2); read2 != 0 && !(read2&flags&recStrong != 0) && !same && !w.ordered(read2, lane) {
					hit = conflict{read2, atomic.LoadInt32(&c.readPC2), false}
				}
				r.put(&c.read, &c.readPC, 0, 0)
				r.put(&c.read2, &c.readPC2, 0, 0)
			}
			r.put(&c.write, &c.writePC, rec, pc)
		}
		off, n = off+k, n-k
	}
	return hit
}

// landed turns the in-flight mark of a cp.async into an ordinary write of now.
func (w *warp) landed(r *region, off, n uint64, lane int, pc int32) {
	rec := makeRecord(w.block.tag, w.id<<5|lane, w.time, 0)
	for n > 0 {
		p := r.page(off>>pageShift, off|n)
		in := off & (1<<pageShift - 1)
		k := min(n, 1<<pageShift-in)
		for i := in >> p.shift; i < (in+k)>>p.shift; i++ {
			c := &p.cells[i]
			r.put(&c.write, &c.writePC, rec, pc)
		}
		off, n = off+k, n-k
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
		w.synced = was
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
		w.synced = max(w.synced, w.vc[w.id])
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
