package ptx

import (
	"encoding/binary"
	"math/bits"
	"sync/atomic"
	"unsafe"
)

// Loads, stores, atomics and asynchronous copies. What the lanes of an instruction access is found
// at once (locate), then checked, noted for race detection and counted by runs of lanes side by
// side (touch): that the common access is one run is what makes it cheap.

// An access gathers what one instruction of a warp touches.
type access struct {
	off [32]uint64 // by lane: in the region of the last locate

	// For the counters.
	n       int
	newest  uint64     // greatest of sectors
	sectors [64]uint64 // of global memory: address / 32
	touched [64]uint32 // bytes of the sector
	shared  uint32     // lanes that took part in shared memory
	offs    [32]uint64 // there

	// Of a store under way: what it writes where, to see whether that changes anything.
	storing *memOp
	stored  *region
	storeTo uint32 // lanes of the run that is being noted
}

func (w *warp) beginAccess() {
	a := &w.acc
	a.n, a.shared, a.newest, a.storing = 0, 0, 0, nil
}

// noteGlobal counts [addr, addr+n) once for this instruction.
func (w *warp) noteGlobal(addr, n uint64) {
	for n > 0 {
		first := addr % 32
		k := min(n, 32-first)
		w.noteSector(addr/32, uint32(uint64(1)<<k-1)<<first)
		addr, n = addr+k, n-k
	}
}

// noteSector counts bytes of a sector once for this instruction.
func (w *warp) noteSector(sector uint64, set uint32) {
	a := &w.acc
	i := a.n - 1
	if sector > a.newest {
		i = -1
	}
	for i >= 0 && a.sectors[i] != sector {
		i--
	}
	if i < 0 {
		if a.n == len(a.sectors) {
			return
		}
		i = a.n
		a.n++
		a.sectors[i], a.touched[i] = sector, 0
		a.newest = max(a.newest, sector)
	}
	a.touched[i] |= set
}

// endAccess counts sectors, and shared memory's wavefronts: 32 banks of 4 bytes; lanes of 8 bytes
// go in two passes, of 16 in four; lanes that read the same word share it.
func (w *warp) endAccess(pc int32, size uint64) {
	a := &w.acc
	a.storing = nil
	cn := &w.block.worker.counts[pc]
	if a.n > 0 {
		cn.requests++
		cn.sectors += uint64(a.n)
		for _, t := range a.touched[:a.n] {
			cn.bytes += uint64(bits.OnesCount32(t))
		}
	}
	if a.shared == 0 {
		return
	}
	cn.sharedRequests++
	group := 32
	if size > 4 {
		group = int(128 / size)
	}
	for start := 0; start < 32; start += group {
		lanes := a.shared >> start & uint32(uint64(1)<<group-1)
		if lanes == 0 {
			continue
		}
		most := a.wavefronts(lanes<<start, size)
		cn.wavefronts += uint64(most)
		cn.conflicts += uint64(most - 1)
	}
}

// wavefronts is how many different words the lanes want of one bank at most.
func (a *access) wavefronts(lanes uint32, size uint64) int {
	var used uint32 // banks
	var word, count [32]uint32
	most := 1
	for m := lanes; m != 0; m &= m - 1 {
		off := uint32(a.offs[bits.TrailingZeros32(m)&31])
		for k := uint32(0); k < uint32(size); k += 4 {
			x := (off + k) / 4
			bank := x % 32
			switch {
			case used>>bank&1 == 0:
				used |= 1 << bank
				word[bank], count[bank] = x, 1
			case word[bank] != x:
				if a.wantedBefore(lanes, m, size, x) {
					continue
				}
				count[bank]++
				word[bank] = x
				most = max(most, int(count[bank]))
			}
		}
	}
	return most
}

// wantedBefore reports whether a lane below those of rest wants word x.
func (a *access) wantedBefore(lanes, rest uint32, size uint64, x uint32) bool {
	for m := lanes &^ rest; m != 0; m &= m - 1 {
		off := uint32(a.offs[bits.TrailingZeros32(m)&31])
		if off/4 <= x && x <= (off+max(uint32(size), 4)-4)/4 {
			return true
		}
	}
	return false
}

// A request is what lanes of an instruction ask of memory.
type request struct {
	base   *vec // addresses, with imm
	imm    int64
	narrow bool // addresses of 32 bits
	space  space
	n      uint64 // bytes a lane
	align  uint64
	write  bool
}

func (q *request) verb() string {
	if q.write {
		return "write"
	}
	return "read"
}

// locate finds the memory that the first of lanes rest accesses. Of the lanes that go to the same
// region (taken), the good ones have their offset there in w.acc.off; what is wrong with the others
// is reported.
func (w *warp) locate(q *request, pc int32, rest uint32) (r *region, good, taken uint32) {
	b := w.block
	narrow := ^uint64(0)
	if q.narrow {
		narrow = 1<<32 - 1
	}
	first := bits.TrailingZeros32(rest) & 31
	addr := (q.base[first] + uint64(q.imm)) & narrow
	sp, origin := q.space, uint64(0)
	if sp == spGeneric {
		if sp = spaceOf(addr); sp != spGlobal {
			origin = windows[sp]
		}
	}
	var size uint64
	switch sp {
	case spGlobal:
		if r = b.launch.mem.find(addr); r == nil {
			w.fault("bounds", pc, first, "%s of %d bytes at %#x: no memory is allocated there", q.verb(), q.n, addr)
			return nil, 0, 1 << first
		}
		origin, size = r.base, uint64(len(r.data))
	case spLocal:
		r, size = &w.local, uint64(b.prog.frameBytes)
	case spShared:
		r = &b.shared
		size = uint64(len(r.data))
	case spConst:
		r = b.launch.constants
		size = uint64(len(r.data))
	default:
		r = &b.launch.params
		size = uint64(len(r.data))
	}
	off := &w.acc.off
	bias := uint64(q.imm) - origin
	last := size - q.n // the greatest offset at which n bytes fit
	if size < q.n {
		last = 0
	}
	for m := rest; m != 0; m &= m - 1 {
		lane := bits.TrailingZeros32(m) & 31
		x := q.base[lane] + bias
		if q.narrow {
			x = (q.base[lane]+uint64(q.imm))&narrow - origin
		}
		if x <= last && x&(q.align-1) == 0 && size >= q.n {
			off[lane] = x
			good |= 1 << lane
			continue
		}
		if sp == spGlobal && b.launch.mem.find(x+origin) != r || q.space == spGeneric && spaceOf(x+origin) != sp {
			continue // another region's
		}
		taken |= 1 << lane
		if x > last || size < q.n {
			w.fault("bounds", pc, lane, "%s of %d bytes at byte %d of %d bytes of %s memory", q.verb(), q.n, int64(x), size, r.name)
		} else {
			w.fault("misaligned", pc, lane, "%s of %d bytes at %s address %#x", q.verb(), q.align, r.name, x+origin)
		}
	}
	taken |= good
	if q.write && (sp == spConst || sp == spParam) {
		w.fault("bounds", pc, first, "write to %s memory", r.name)
		return r, 0, taken
	}
	if sp == spLocal {
		for m := good; m != 0; m &= m - 1 {
			lane := bits.TrailingZeros32(m) & 31
			off[lane] += uint64(lane) * b.frameStride
		}
	}
	return r, good, taken
}

// touch checks and notes the access of lanes to n bytes each at w.acc.off of r.
func (w *warp) touch(o *op, pc int32, r *region, lanes uint32, n uint64, write bool, flags record) {
	off := &w.acc.off
	step := uint(bits.TrailingZeros64(n))
	if n&(n-1) != 0 {
		step = oneLane
	}
	if r == &w.block.shared {
		w.acc.shared |= lanes
		for m := lanes; m != 0; m &= m - 1 {
			lane := bits.TrailingZeros32(m) & 31
			w.acc.offs[lane] = off[lane]
		}
	}
	for m := lanes; m != 0; {
		lane := bits.TrailingZeros32(m) & 31
		at, count := off[lane], 1
		for lane+count < 32 && m>>(lane+count)&1 == 1 && off[lane+count] == at+uint64(count)*n {
			count++
		}
		run := uint32(uint64(1)<<count-1) << lane
		m &^= run
		w.acc.storeTo = run
		if count > 1 || step > 4 || !w.lane1(o, pc, r, at, n, lane, write, flags) {
			w.run1(o, pc, r, at, n*uint64(count), lane, step, write, flags)
		}
		if w.acc.storing != nil { // before the next run, which may write the same
			w.put(r, run)
		}
		if count > 1 || write {
			continue
		}
		// Lanes that read what this one reads: the first and the last of them stand for all.
		again := lane
		for again+1 < 32 && m>>(again+1)&1 == 1 && off[again+1] == at {
			again++
			m &^= 1 << again
		}
		if again > lane && r.pages != nil && !w.lane1(o, pc, r, at, n, again, write, flags) {
			w.run1(o, pc, r, at, n, again, step, write, flags)
		}
	}
}

// lane1 is run1 for one lane and at most 16 bytes, aligned to their number; not done when there may be more to it.
func (w *warp) lane1(o *op, pc int32, r *region, off, n uint64, lane int, write bool, flags record) (done bool) {
	if !write && r.init != nil && (r.whole == nil || r.whole[off>>pageShift] == 0) && !written(r.init[off:], n) {
		return false
	}
	if r.pages == nil {
		return true
	}
	p := r.pages[off>>shadowShift].Load()
	if p == nil || n&(1<<p.shift-1) != 0 {
		return false
	}
	if !r.private {
		k := r.marks[off>>pageShift].Load()
		if k == nil || w.block.sampled != 0 || o.kind == kLoad && o.mem.nc {
			return false
		}
		sector, set := off>>5&(1<<(pageShift-5)-1), uint32(1<<n-1)<<(off&31)
		m := &k.read[sector]
		if write {
			if m = &k.written[sector]; atomic.LoadUint32(&k.nc[sector])&set != 0 {
				return false
			}
		}
		if atomic.LoadUint32(m)&set != set {
			atomic.OrUint32(m, set)
		}
		w.noteSector((r.base+off)>>5, set)
	}
	in := off & (1<<shadowShift - 1)
	cells := p.cells[in>>p.shift : (in+n)>>p.shift]
	var hit conflict
	if write {
		hit = w.trackWrite(hit, r, cells, lane, oneLane, p.shift, oneLane, flags, pc)
	} else {
		hit = w.trackRead(hit, r, cells, lane, oneLane, p.shift, oneLane, flags, pc)
	}
	if hit.rec != 0 {
		w.raced(o, pc, r, off, lane, write, hit)
	}
	return true
}

// written reports whether n bytes, 1 to 16, of a region's init are.
func written(init []byte, n uint64) bool {
	const ones = 0x0101010101010101
	switch n {
	case 16:
		return binary.LittleEndian.Uint64(init) == ones && binary.LittleEndian.Uint64(init[8:]) == ones
	case 8:
		return binary.LittleEndian.Uint64(init) == ones
	case 4:
		return binary.LittleEndian.Uint32(init) == ones>>32
	case 2:
		return init[0]&init[1] == 1
	}
	return init[0] == 1
}

// run1 is touch for one run of lanes side by side: n bytes in all.
func (w *warp) run1(o *op, pc int32, r *region, off, n uint64, lane int, step uint, write bool, flags record) {
	if !write {
		if at, any := r.unwritten(off, n); any {
			w.fault("uninitialized", pc, lane+int(at-off)>>step, "read of %s memory at byte %d (address %#x), which nobody wrote", r.name, at, r.base+at)
		}
	}
	if r.pages == nil {
		return
	}
	if !r.private {
		w.noteGlobal(r.base+off, n)
		if w.mark(o, pc, r, off, n, lane, step, write) {
			return
		}
	}
	if hit := w.track(r, off, n, lane, step, write, flags, pc); hit.rec != 0 {
		w.raced(o, pc, r, off, lane, write, hit)
	}
}

func (w *warp) raced(o *op, pc int32, r *region, off uint64, lane int, write bool, hit conflict) {
	verb := "read"
	switch {
	case o.kind == kAtomic:
		verb = "atomic access"
	case write:
		verb = "write"
	}
	w.raceFault(pc, lane, verb, r, off, hit)
}

// mark notes which bytes of global memory the launch reads and writes. done: it was a read that the
// non-coherent path serves, which is checked against writes here.
func (w *warp) mark(o *op, pc int32, r *region, off, n uint64, lane int, step uint, write bool) (done bool) {
	nc := o.kind == kLoad && o.mem.nc
	for at := off; at < off+n; {
		m := r.marksAt(at)
		k := min(off+n-at, 1<<pageShift-at&(1<<pageShift-1))
		if w.block.sampled != 0 {
			m.touchedBy(w.block.sampled, at, k)
		}
		switch {
		case write:
			m.written.set(at, k)
			if i := m.nc.first(at, k); i < k {
				by := lane + int(at+i-off)>>step
				if w.sameLanes()>>(by&31)&1 == 0 {
					w.fault("race", pc, by, "write of byte %d of an allocation that this launch reads as non-coherent (read-only)", at+i)
				}
			}
		case nc:
			m.read.set(at, k)
			m.nc.set(at, k)
			if i := m.written.first(at, k); i < k {
				w.fault("race", pc, lane+int(at+i-off)>>step, "non-coherent read of byte %d of an allocation that this launch writes", at+i)
			}
		default:
			m.read.set(at, k)
		}
		at += k
	}
	return nc
}

func loadBytes(b []byte, size uint64) uint64 {
	switch size {
	case 1:
		return uint64(b[0])
	case 2:
		return uint64(binary.LittleEndian.Uint16(b))
	case 4:
		return uint64(binary.LittleEndian.Uint32(b))
	}
	return binary.LittleEndian.Uint64(b)
}

func storeBytes(b []byte, size, v uint64) {
	switch size {
	case 1:
		b[0] = byte(v)
	case 2:
		binary.LittleEndian.PutUint16(b, uint16(v))
	case 4:
		binary.LittleEndian.PutUint32(b, uint32(v))
	default:
		binary.LittleEndian.PutUint64(b, v)
	}
}

// Strong accesses and atomics of 4 and 8 bytes are atomic on the host too: blocks run in parallel.

func strongLoad(b []byte, size uint64) uint64 {
	switch size {
	case 4:
		return uint64(atomic.LoadUint32((*uint32)(unsafe.Pointer(&b[0]))))
	case 8:
		return atomic.LoadUint64((*uint64)(unsafe.Pointer(&b[0])))
	}
	return loadBytes(b, size)
}

func strongStore(b []byte, size, v uint64) {
	switch size {
	case 4:
		atomic.StoreUint32((*uint32)(unsafe.Pointer(&b[0])), uint32(v))
	case 8:
		atomic.StoreUint64((*uint64)(unsafe.Pointer(&b[0])), v)
	default:
		storeBytes(b, size, v)
	}
}

func (w *warp) load(o *op, act uint32, pc int32) {
	if w.loadUniform(o, act) {
		return
	}
	mo := o.mem
	n := mo.size * uint64(len(mo.regs))
	q := request{base: &w.regs[o.a], imm: o.imm, narrow: o.sub&1 == 1, space: mo.space, n: n, align: n}
	flags := record(0)
	if mo.strong {
		flags = recStrong
		addresses := w.regs[o.a] // one may be loaded into its own register
		q.base = &addresses
	}
	w.beginAccess()
	bad := act // lanes that fail read zeros
	for rest := act; rest != 0; {
		r, good, taken := w.locate(&q, pc, rest)
		rest &^= taken
		if good == 0 {
			continue
		}
		bad &^= good
		w.touch(o, pc, r, good, n, false, flags)
		for k, reg := range mo.regs {
			if reg >= 0 {
				mo.fetch(&w.regs[reg], r.data, &w.acc.off, uint64(k)*mo.size, good)
			}
		}
		if mo.strong && r.pages != nil {
			for m := good; m != 0; m &= m - 1 {
				lane := bits.TrailingZeros32(m) & 31
				w.strong(q.base[lane]+uint64(o.imm), true, false)
				if mo.acquire {
					w.fence()
				}
			}
		}
	}
	if bad != 0 {
		for _, reg := range mo.regs {
			for m := bad; m != 0 && reg >= 0; m &= m - 1 {
				w.regs[reg][bits.TrailingZeros32(m)&31] = 0
			}
		}
	}
	w.endAccess(pc, n)
}

// fetch loads a number for each of lanes, at bytes behind its offset.
func (mo *memOp) fetch(d *vec, data []byte, off *[32]uint64, at uint64, lanes uint32) {
	data = data[at:]
	switch {
	case mo.strong:
		for m := lanes; m != 0; m &= m - 1 {
			lane := bits.TrailingZeros32(m) & 31
			d[lane] = mo.extend(strongLoad(data[off[lane]:], mo.size))
		}
	case mo.size == 4 && !(mo.sign && mo.dstBits > 32):
		for m := lanes; m != 0; m &= m - 1 {
			lane := bits.TrailingZeros32(m) & 31
			d[lane] = uint64(binary.LittleEndian.Uint32(data[off[lane]:]))
		}
	default:
		for m := lanes; m != 0; m &= m - 1 {
			lane := bits.TrailingZeros32(m) & 31
			d[lane] = mo.extend(loadBytes(data[off[lane]:], mo.size))
		}
	}
}

// extend makes what a register holds of a number that was loaded.
func (mo *memOp) extend(v uint64) uint64 {
	if !mo.sign {
		return v
	}
	return ext(v, uint(mo.size*8), true) & maskOf(max(mo.dstBits, 8))
}

// loadUniform loads from the kernel's parameters or constants, where all lanes read the same.
func (w *warp) loadUniform(o *op, act uint32) (done bool) {
	mo := o.mem
	var r *region
	switch {
	case !mo.uniform:
		return false
	case mo.space == spParam:
		r = &w.block.launch.params
	default:
		r = w.block.launch.constants
	}
	at := w.regs[o.a][0]
	size := mo.size * uint64(len(mo.regs))
	if at%size != 0 || at+size > uint64(len(r.data)) {
		return false
	}
	for k, reg := range mo.regs {
		if reg < 0 {
			continue
		}
		v := mo.extend(loadBytes(r.data[at+uint64(k)*mo.size:], mo.size))
		d := &w.regs[reg]
		if act == fullMask {
			for i := range d {
				d[i] = v
			}
			continue
		}
		for m := act; m != 0; m &= m - 1 {
			d[bits.TrailingZeros32(m)&31] = v
		}
	}
	return true
}

func (w *warp) store(o *op, act uint32, pc int32) {
	mo := o.mem
	n := mo.size * uint64(len(mo.regs))
	q := request{base: &w.regs[o.a], imm: o.imm, narrow: o.sub&1 == 1, space: mo.space, n: n, align: n, write: true}
	flags := record(0)
	if mo.strong {
		flags = recStrong
		for m := act; m != 0; m &= m - 1 {
			if mo.release {
				w.fence()
			}
			w.strong(genericAddress(mo.space, laneAddress(o, q.base, bits.TrailingZeros32(m)&31)), false, true)
		}
	}
	w.beginAccess()
	for rest := act; rest != 0; {
		r, good, taken := w.locate(&q, pc, rest)
		rest &^= taken
		if good == 0 {
			continue
		}
		w.acc.storing, w.acc.stored = mo, r
		w.touch(o, pc, r, good, n, true, flags)
	}
	w.endAccess(pc, n)
}

// put stores what lanes of the store under way have.
func (w *warp) put(r *region, lanes uint32) {
	mo := w.acc.storing
	n := mo.size * uint64(len(mo.regs))
	changed := false
	for m := lanes; m != 0; m &= m - 1 {
		lane := bits.TrailingZeros32(m) & 31
		off := w.acc.off[lane]
		data := r.data[off : off+n]
		for k, reg := range mo.regs {
			v := w.regs[reg][lane]
			to := data[uint64(k)*mo.size:]
			changed = changed || loadBytes(to, mo.size) != v&maskOf(uint(mo.size*8))
			if mo.strong {
				strongStore(to, mo.size, v)
			} else {
				storeBytes(to, mo.size, v)
			}
		}
		changed = r.setInit(off, n) || changed
	}
	if changed && r != &w.local {
		w.block.changed = true
	}
}

// sameLanes gives the lanes of the store under way that leave memory as it is.
func (w *warp) sameLanes() (same uint32) {
	mo, r := w.acc.storing, w.acc.stored
	if mo == nil {
		return 0
	}
	n := mo.size * uint64(len(mo.regs))
	for m := w.acc.storeTo; m != 0; m &= m - 1 {
		lane := bits.TrailingZeros32(m) & 31
		off := w.acc.off[lane]
		_, any := r.unwritten(off, n)
		equal := !any
		for k, reg := range mo.regs {
			equal = equal && loadBytes(r.data[off+uint64(k)*mo.size:], mo.size) == w.regs[reg][lane]&maskOf(uint(mo.size*8))
		}
		if equal {
			same |= 1 << lane
		}
	}
	return same
}

func laneAddress(o *op, base *vec, lane int) uint64 {
	addr := base[lane] + uint64(o.imm)
	if o.sub&1 == 1 {
		addr &= 0xffffffff
	}
	return addr
}

func genericAddress(sp space, addr uint64) uint64 {
	return addr + windows[sp]
}

func (w *warp) atomic(o *op, act uint32, pc int32) {
	mo := o.mem
	q := request{base: &w.regs[o.a], imm: o.imm, narrow: o.sub&1 == 1, space: mo.space, n: mo.size, align: mo.size}
	w.beginAccess()
	for m := act; m != 0; m &= m - 1 {
		lane := bits.TrailingZeros32(m) & 31
		r, good, _ := w.locate(&q, pc, 1<<lane)
		if good == 0 {
			if !mo.noRet {
				w.regs[o.d][lane] = 0
			}
			continue
		}
		off := w.acc.off[lane]
		w.touch(o, pc, r, good, mo.size, false, recStrong)
		if mo.release {
			w.fence()
		}
		// Released before the update and acquired after it: who sees the update sees the release.
		addr := genericAddress(mo.space, laneAddress(o, q.base, lane))
		w.strong(addr, false, true)
		if r.pages != nil {
			if hit := w.track(r, off, mo.size, lane, oneLane, true, recStrong, pc); hit.rec != 0 {
				w.raceFault(pc, lane, "atomic access", r, off, hit)
			}
			if !r.private {
				w.mark(o, pc, r, off, mo.size, lane, oneLane, true)
			}
		}
		b, c := w.regs[o.b][lane], w.regs[o.c][lane]
		old, now := update(r.data[off:], mo.size, func(old uint64) uint64 { return mo.atom(old, b, c) })
		w.strong(addr, true, false)
		if mo.acquire {
			w.fence()
		}
		if old != now {
			w.block.changed = true
		}
		if !mo.noRet {
			w.regs[o.d][lane] = old
		}
	}
	w.endAccess(pc, mo.size)
}

// update replaces a number in memory at once, as seen by other blocks.
func update(b []byte, size uint64, f func(uint64) uint64) (old, now uint64) {
	switch size {
	case 4:
		p := (*uint32)(unsafe.Pointer(&b[0]))
		for {
			v := atomic.LoadUint32(p)
			n := uint32(f(uint64(v)))
			if n == v || atomic.CompareAndSwapUint32(p, v, n) {
				return uint64(v), uint64(n)
			}
		}
	case 8:
		p := (*uint64)(unsafe.Pointer(&b[0]))
		for {
			v := atomic.LoadUint64(p)
			n := f(v)
			if n == v || atomic.CompareAndSwapUint64(p, v, n) {
				return v, n
			}
		}
	}
	// Two bytes: by the aligned word around them.
	addr := uintptr(unsafe.Pointer(&b[0]))
	shift := uint(addr&2) * 8
	p := (*uint32)(unsafe.Pointer(unsafe.Add(unsafe.Pointer(&b[0]), -int(addr&2))))
	for {
		v := atomic.LoadUint32(p)
		half := uint64(v>>shift) & 0xffff
		n := f(half) & 0xffff
		if n == half || atomic.CompareAndSwapUint32(p, v, v&^(0xffff<<shift)|uint32(n)<<shift) {
			return half, n
		}
	}
}
