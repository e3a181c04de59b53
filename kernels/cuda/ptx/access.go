package ptx

import (
	"encoding/binary"
	"math/bits"
	"sync/atomic"
	"unsafe"
)

// Loads, stores, atomics and asynchronous copies: every lane's access is checked, noted for race
// detection and counted.

// An access gathers what one instruction of a warp touches, for the counters.
type access struct {
	n       int
	sectors [64]uint64 // of global memory: address / 32
	touched [64]uint32 // bytes of the sector
	shared  int
	offs    [32]uint64 // in shared memory, by lane that took part
}

func (w *warp) beginAccess() { w.acc.n, w.acc.shared = 0, 0 }

func (w *warp) noteGlobal(addr, n uint64) {
	a := &w.acc
	for n > 0 {
		sector, first := addr/32, addr%32
		k := min(n, 32-first)
		set := uint32(uint64(1)<<k-1) << first
		i := a.n - 1
		for i >= 0 && a.sectors[i] != sector {
			i--
		}
		if i < 0 && a.n < len(a.sectors) {
			i = a.n
			a.n++
			a.sectors[i], a.touched[i] = sector, 0
		}
		if i >= 0 {
			a.touched[i] |= set
		}
		addr, n = addr+k, n-k
	}
}

// endAccess counts sectors, and shared memory's wavefronts: 32 banks of 4 bytes; lanes of 8 bytes
// go in two passes, of 16 in four; lanes that read the same word share it.
func (w *warp) endAccess(pc int32, size uint64) {
	a := &w.acc
	cn := &w.block.worker.counts[pc]
	if a.n > 0 {
		cn.requests++
		cn.sectors += uint64(a.n)
		for i := range a.n {
			cn.bytes += uint64(bits.OnesCount32(a.touched[i]))
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
	for start := 0; start < a.shared; start += group {
		var words [32][]uint64
		var store [32][4]uint64
		most := 0
		for _, off := range a.offs[start:min(start+group, a.shared)] {
			for k := uint64(0); k < max(size, 4); k += 4 {
				word := (off + k) / 4
				bank := word % 32
				if words[bank] == nil {
					words[bank] = store[bank][:0]
				}
				dup := false
				for _, x := range words[bank] {
					dup = dup || x == word
				}
				if !dup {
					words[bank] = append(words[bank], word)
					most = max(most, len(words[bank]))
				}
			}
		}
		cn.wavefronts += uint64(most)
		cn.conflicts += uint64(most - 1)
	}
}

// check finds the memory of one lane's access of n bytes and reports what is wrong with it.
func (w *warp) check(o *op, pc int32, lane int, addr uint64, sp space, n, align uint64, write, same, quietInit bool) (*region, uint64, bool) {
	b := w.block
	verb := "read"
	if write {
		verb = "write"
	}
	if sp == spGeneric {
		if sp = spaceOf(addr); sp != spGlobal {
			addr &= 1<<40 - 1
		}
	}
	var r *region
	var off uint64
	switch sp {
	case spGlobal:
		if r = b.launch.mem.find(addr); r == nil {
			w.fault("bounds", pc, lane, "%s of %d bytes at %#x: no memory is allocated there", verb, n, addr)
			return nil, 0, false
		}
		off = addr - r.base
		if off >= uint64(len(r.data)) || n > uint64(len(r.data))-off {
			w.fault("bounds", pc, lane, "%s of %d bytes at byte %d of an allocation of %d", verb, n, off, len(r.data))
			return nil, 0, false
		}
	case spLocal:
		r = &w.local
		frame := uint64(b.prog.frameBytes)
		if addr >= frame || n > frame-addr {
			w.fault("bounds", pc, lane, "%s of %d bytes at byte %d of %d bytes of local memory", verb, n, addr, frame)
			return nil, 0, false
		}
		off = uint64(lane)*b.frameStride + addr
	default:
		switch sp {
		case spShared:
			r = &b.shared
		case spConst:
			r = b.launch.constants
		default:
			r = &b.launch.params
		}
		off = addr
		if off >= uint64(len(r.data)) || n > uint64(len(r.data))-off {
			w.fault("bounds", pc, lane, "%s of %d bytes at byte %d of %d bytes of %s memory", verb, n, int64(off), len(r.data), r.name)
			return nil, 0, false
		}
	}
	if write && (sp == spConst || sp == spParam) {
		w.fault("bounds", pc, lane, "write to %s memory", r.name)
		return nil, 0, false
	}
	if addr&(align-1) != 0 {
		w.fault("misaligned", pc, lane, "%s of %d bytes at %s address %#x", verb, align, r.name, addr)
		return nil, 0, false
	}
	if !write && !quietInit && r.init != nil {
		if at, any := r.unwritten(off, n); any {
			w.fault("uninitialized", pc, lane, "read of %s memory at byte %d (address %#x), which nobody wrote", r.name, at, addr+at-off)
		}
	}
	if sp == spGlobal {
		w.noteGlobal(addr, n)
		k := r.marksAt(off)
		if write {
			mark(&k.written, off, n)
			if !same {
				w.ncConflict(pc, lane, k, off, n)
			}
		} else {
			mark(&k.read, off, n)
			if o.mem.nc {
				mark(&k.nc, off, n)
				in := off & (1<<pageShift - 1)
				if atomic.LoadUint32(&k.written[in/32])>>(in%32)&1 == 1 {
					w.fault("race", pc, lane, "non-coherent read of byte %d of an allocation that this launch writes", off)
				}
				return r, off, true
			}
		}
	} else if sp == spShared && w.acc.shared < 32 {
		w.acc.offs[w.acc.shared] = off
		w.acc.shared++
	}
	if r.pages == nil {
		return r, off, true
	}
	flags := record(0)
	if o.mem.strong {
		flags = recStrong
	}
	if o.kind == kAsync && write {
		flags = recAsync
	}
	if hit := w.track(r, off, n, lane, write, same, flags, pc); hit.rec != 0 {
		w.raceFault(pc, lane, verb, r, off, hit)
	}
	return r, off, true
}

// ncConflict reports a write of n bytes at off, in the page of k, that were read as read-only.
func (w *warp) ncConflict(pc int32, lane int, k *marks, off, n uint64) {
	in := off & (1<<pageShift - 1)
	for i := in; i < in+n; i++ {
		if set := atomic.LoadUint32(&k.nc[i/32]); set == 0 {
			i |= 31
		} else if set>>(i%32)&1 == 1 {
			w.fault("race", pc, lane, "write of byte %d of an allocation that this launch reads as non-coherent (read-only)", off+i-in)
			return
		}
	}
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

func laneAddress(o *op, base *vec, lane int, imm int64) uint64 {
	addr := base[lane] + uint64(imm)
	if o.sub&1 == 1 {
		addr &= 0xffffffff
	}
	return addr
}

func (w *warp) load(o *op, act uint32, pc int32) {
	mo := o.mem
	n := mo.size * uint64(len(mo.regs))
	base := &w.regs[o.a]
	w.beginAccess()
	var out [4]vec
	w32 := uint(mo.size * 8)
	dstMask := maskOf(max(mo.dstBits, 8))
	for m := act; m != 0; m &= m - 1 {
		lane := bits.TrailingZeros32(m) & 31
		addr := laneAddress(o, base, lane, o.imm)
		r, off, ok := w.check(o, pc, lane, addr, mo.space, n, n, false, false, false)
		if !ok {
			continue // the lane reads zeros
		}
		data := r.data[off : off+n]
		for k := range mo.regs {
			var v uint64
			if mo.strong {
				v = strongLoad(data[uint64(k)*mo.size:], mo.size)
			} else {
				v = loadBytes(data[uint64(k)*mo.size:], mo.size)
			}
			if mo.sign {
				v = ext(v, w32, true) & dstMask
			}
			out[k][lane] = v
		}
		if mo.strong && r.pages != nil {
			w.strong(addr, true, false)
			if mo.acquire {
				w.fence()
			}
		}
	}
	for k, reg := range mo.regs {
		if reg < 0 {
			continue
		}
		d := &w.regs[reg]
		if act == fullMask {
			*d = out[k]
			continue
		}
		for m := act; m != 0; m &= m - 1 {
			lane := bits.TrailingZeros32(m) & 31
			d[lane] = out[k][lane]
		}
	}
	w.endAccess(pc, n)
}

func (w *warp) store(o *op, act uint32, pc int32) {
	mo := o.mem
	n := mo.size * uint64(len(mo.regs))
	base := &w.regs[o.a]
	w.beginAccess()
	for m := act; m != 0; m &= m - 1 {
		lane := bits.TrailingZeros32(m) & 31
		addr := laneAddress(o, base, lane, o.imm)
		if mo.release {
			w.fence()
		}
		if mo.strong {
			w.strong(genericAddress(mo.space, addr), false, true)
		}
		same := w.same(mo, lane, addr, n)
		r, off, ok := w.check(o, pc, lane, addr, mo.space, n, n, true, same, false)
		if !ok {
			continue
		}
		if !same {
			w.block.changed = true
		}
		data := r.data[off : off+n]
		for k, reg := range mo.regs {
			if mo.strong {
				strongStore(data[uint64(k)*mo.size:], mo.size, w.regs[reg][lane])
			} else {
				storeBytes(data[uint64(k)*mo.size:], mo.size, w.regs[reg][lane])
			}
		}
		r.setInit(off, n)
	}
	w.endAccess(pc, n)
}

func genericAddress(sp space, addr uint64) uint64 {
	return addr + windows[sp]
}

// same reports whether a store leaves memory as it is.
func (w *warp) same(mo *memOp, lane int, addr, n uint64) bool {
	sp := mo.space
	if sp == spGeneric {
		if sp = spaceOf(addr); sp != spGlobal {
			addr &= 1<<40 - 1
		}
	}
	var r *region
	switch sp {
	case spGlobal:
		if r = w.block.launch.mem.find(addr); r == nil {
			return false
		}
		addr -= r.base
	case spShared:
		r = &w.block.shared
	default:
		return false
	}
	if addr >= uint64(len(r.data)) || n > uint64(len(r.data))-addr || addr&(mo.size-1) != 0 {
		return false
	}
	for k, reg := range mo.regs {
		if loadBytes(r.data[addr+uint64(k)*mo.size:], mo.size) != w.regs[reg][lane]&maskOf(uint(mo.size*8)) {
			return false
		}
	}
	_, any := r.unwritten(addr, n)
	return !any
}

func (w *warp) atomic(o *op, act uint32, pc int32) {
	mo := o.mem
	base := &w.regs[o.a]
	w.beginAccess()
	for m := act; m != 0; m &= m - 1 {
		lane := bits.TrailingZeros32(m) & 31
		addr := laneAddress(o, base, lane, o.imm)
		r, off, ok := w.check(o, pc, lane, addr, mo.space, mo.size, mo.size, false, false, false)
		if !ok {
			if !mo.noRet {
				w.regs[o.d][lane] = 0
			}
			continue
		}
		if mo.release {
			w.fence()
		}
		// Released before the update and acquired after it: who sees the update sees the release.
		w.strong(genericAddress(mo.space, addr), false, true)
		if r.pages != nil {
			if hit := w.track(r, off, mo.size, lane, true, false, recStrong, pc); hit.rec != 0 {
				w.raceFault(pc, lane, "atomic write", r, off, hit)
			}
			if r.marks != nil {
				mark(&r.marksAt(off).written, off, mo.size)
			}
		}
		b, c := w.regs[o.b][lane], w.regs[o.c][lane]
		old, now := update(r.data[off:], mo.size, func(old uint64) uint64 { return mo.atom(old, b, c) })
		w.strong(genericAddress(mo.space, addr), true, false)
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

// asyncCopy notes a cp.async. The bytes move when somebody waits for them, the last moment at
// which a card may move them.
func (w *warp) asyncCopy(o *op, act uint32, pc int32) {
	mo := o.mem
	dst, src := &w.regs[o.a], &w.regs[o.b]
	w.beginAccess()
	for m := act; m != 0; m &= m - 1 {
		lane := bits.TrailingZeros32(m) & 31
		d := laneAddress(o, dst, lane, o.imm)
		s := src[lane] + uint64(int64(o.target))
		take := mo.size
		if mo.srcSize >= 0 {
			take = min(take, w.regs[mo.srcSize][lane])
		}
		if _, _, ok := w.check(o, pc, lane, d, spShared, mo.size, mo.size, true, false, false); !ok {
			continue
		}
		if s&(mo.size-1) != 0 {
			w.fault("misaligned", pc, lane, "read of %d bytes at global address %#x", mo.size, s)
			continue
		}
		if take > 0 {
			if _, _, ok := w.check(o, pc, lane, s, spGlobal, take, 1, false, false, false); !ok {
				take = 0
			}
		}
		w.pending = append(w.pending, asyncCopy{int32(lane), w.group[lane], pc, d, s, mo.size, take})
	}
	w.endAccess(pc, mo.size)
}

// asyncWait completes, for lanes act, all but the newest o.imm groups; -1: everything.
func (w *warp) asyncWait(o *op, act uint32) {
	keep := w.pending[:0]
	for _, p := range w.pending {
		if act>>p.lane&1 == 0 || o.imm >= 0 && int64(p.group) >= int64(w.group[p.lane])-o.imm {
			keep = append(keep, p)
			continue
		}
		sh := &w.block.shared
		data := sh.data[p.dst : p.dst+p.size]
		clear(data)
		if p.take > 0 {
			r := w.block.launch.mem.find(p.src)
			off := p.src - r.base
			copy(data, r.data[off:off+p.take])
			if hit := w.track(r, off, p.take, int(p.lane), false, false, 0, p.pc); hit.rec != 0 {
				w.raceFault(p.pc, int(p.lane), "asynchronous read", r, off, hit)
			}
		}
		sh.setInit(p.dst, p.size)
		w.landed(sh, p.dst, p.size, int(p.lane), p.pc)
		w.block.changed = true
	}
	w.pending = keep
}
