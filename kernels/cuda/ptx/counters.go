package ptx

import (
	"math/bits"
	"sort"
)

// opCount is what one worker counts of one instruction.
type opCount struct {
	warps, lanes             uint64
	requests, sectors, bytes uint64 // global memory
	sharedRequests           uint64
	wavefronts, conflicts    uint64
}

// Counters say what a launch did, summed over all blocks. A warp instruction is issued once for up
// to 32 lanes.
type Counters struct {
	WarpInstructions uint64            `json:"warp_instructions"`
	LaneInstructions uint64            `json:"lane_instructions"`
	ByClass          map[string]uint64 `json:"warp_instructions_by_class"`
	MMA              uint64            `json:"mma"`
	MMAByKind        map[string]uint64 `json:"mma_by_kind,omitempty"` // "m16n8k16.f32.f16": shape, sums, factors
	GlobalLoads      Traffic           `json:"global_loads"`
	AsyncLoads       Traffic           `json:"async_loads"`      // cp.async, of global_loads
	AsyncMostBytes   uint64            `json:"async_most_bytes"` // on their way at a time, of all warps
	GlobalStores     Traffic           `json:"global_stores"`
	GlobalAtomics    Traffic           `json:"global_atomics"`
	// A cache that never forgets would move these: every touched sector once each way.
	DRAMReadBytes     uint64  `json:"dram_read_bytes"`
	DRAMWriteBytes    uint64  `json:"dram_write_bytes"`
	UniqueReadBytes   uint64  `json:"unique_read_bytes"`
	UniqueWriteBytes  uint64  `json:"unique_write_bytes"`
	L2Reuse           float64 `json:"l2_reuse"` // sectors asked for by loads, for each sector of DRAM read
	SharedRequests    uint64  `json:"shared_requests"`
	SharedWavefronts  uint64  `json:"shared_wavefronts"`
	BankConflicts     uint64  `json:"bank_conflicts"` // wavefronts beyond those without conflict
	Blocks            int     `json:"blocks"`
	MaxLiveBlocks     int     `json:"max_live_blocks"` // at once, in this run
	StaticSharedBytes int     `json:"static_shared_bytes"`
	LocalBytes        int     `json:"local_bytes_per_thread"`
	Lines             []Line  `json:"lines"` // the instructions that access memory

	// Reach parts the DRAM bytes of a sample of the grid by which of its blocks share them.
	Reach []Reach `json:"reach,omitempty"`
}

// A Reach are the bytes, in whole sectors, that blocks which differ in certain coordinates have in common. What is
// not shared along a dimension grows with it; what is shared does not.
type Reach struct {
	Shared     [3]bool `json:"shared"` // along x, y, z
	ReadBytes  uint64  `json:"read_bytes"`
	WriteBytes uint64  `json:"write_bytes"`
}

// Traffic is what passes between the warps and the L2 cache.
type Traffic struct {
	Requests   uint64  `json:"requests"` // by warps
	Sectors    uint64  `json:"sectors"`  // of 32 bytes
	Bytes      uint64  `json:"bytes"`    // wanted, each once a request
	Efficiency float64 `json:"sector_efficiency"`
}

func (t *Traffic) add(n *opCount) {
	t.Requests += n.requests
	t.Sectors += n.sectors
	t.Bytes += n.bytes
	if t.Sectors > 0 {
		t.Efficiency = float64(t.Bytes) / float64(32*t.Sectors)
	}
}

// A Line counts one memory instruction.
type Line struct {
	Line          int     `json:"line"`
	File          string  `json:"file,omitempty"`
	SourceLine    int     `json:"source_line,omitempty"`
	Executed      uint64  `json:"executed"` // by warps
	Global        Traffic `json:"global"`
	Wavefronts    uint64  `json:"shared_wavefronts"`
	BankConflicts uint64  `json:"bank_conflicts"`
}

func (l *launch) count(ws []*worker) Counters {
	c := Counters{ByClass: map[string]uint64{}, MMAByKind: map[string]uint64{}, Blocks: len(l.order), MaxLiveBlocks: int(l.peak.Load()),
		StaticSharedBytes: l.prog.sharedBytes, LocalBytes: l.prog.frameBytes}
	for _, w := range ws {
		c.MMA += w.mma
		c.AsyncMostBytes += w.flight
	}
	for pc := range l.prog.ops {
		var n opCount
		for _, w := range ws {
			m := &w.counts[pc]
			n.warps += m.warps
			n.lanes += m.lanes
			n.requests += m.requests
			n.sectors += m.sectors
			n.bytes += m.bytes
			n.sharedRequests += m.sharedRequests
			n.wavefronts += m.wavefronts
			n.conflicts += m.conflicts
		}
		o := &l.prog.ops[pc]
		c.WarpInstructions += n.warps
		c.LaneInstructions += n.lanes
		if n.warps > 0 {
			c.ByClass[o.class.String()] += n.warps
		}
		if o.kind == kMMA && n.warps > 0 {
			c.MMAByKind[o.mma.name] += n.warps
		}
		c.SharedRequests += n.sharedRequests
		c.SharedWavefronts += n.wavefronts
		c.BankConflicts += n.conflicts
		switch o.kind {
		case kLoad:
			c.GlobalLoads.add(&n)
		case kAsync:
			c.GlobalLoads.add(&n)
			c.AsyncLoads.add(&n)
		case kStore:
			c.GlobalStores.add(&n)
		case kAtomic:
			c.GlobalAtomics.add(&n)
		}
		if n.requests+n.wavefronts > 0 {
			line := Line{Line: int(o.line), Executed: n.warps, Wavefronts: n.wavefronts, BankConflicts: n.conflicts}
			line.Global.add(&n)
			line.File, line.SourceLine = l.source(int32(pc))
			c.Lines = append(c.Lines, line)
		}
	}
	sort.SliceStable(c.Lines, func(i, j int) bool { return c.Lines[i].Line < c.Lines[j].Line })
	var reach [8]Reach
	for _, t := range l.mem.touched {
		k := t.r.marks[t.page].Load()
		if of := k.blocks.Load(); of != nil {
			for i, blocks := range of {
				r := &reach[l.shared(blocks)]
				if k.read[i] != 0 {
					r.ReadBytes += 32
				}
				if k.written[i] != 0 {
					r.WriteBytes += 32
				}
			}
		}
		for i := range k.read {
			if m := k.read[i]; m != 0 {
				c.DRAMReadBytes += 32
				c.UniqueReadBytes += uint64(bits.OnesCount32(m))
			}
			if m := k.written[i]; m != 0 {
				c.DRAMWriteBytes += 32
				c.UniqueWriteBytes += uint64(bits.OnesCount32(m))
			}
		}
	}
	for i, r := range reach {
		if r.ReadBytes+r.WriteBytes > 0 {
			r.Shared = [3]bool{i&1 != 0, i&2 != 0, i&4 != 0}
			c.Reach = append(c.Reach, r)
		}
	}
	if c.DRAMReadBytes > 0 {
		c.L2Reuse = float64(c.GlobalLoads.Sectors*32) / float64(c.DRAMReadBytes)
	}
	return c
}

// shared gives a bit for each dimension in which the blocks of a sample differ.
func (l *launch) shared(blocks uint64) (dims int) {
	n := l.cfg.Sample
	first := -1
	for m := blocks; m != 0; m &= m - 1 {
		i := bits.TrailingZeros64(m)
		if first < 0 {
			first = i
			continue
		}
		if i%n[0] != first%n[0] {
			dims |= 1
		}
		if i/n[0]%n[1] != first/n[0]%n[1] {
			dims |= 2
		}
		if i/n[0]/n[1] != first/n[0]/n[1] {
			dims |= 4
		}
	}
	return dims
}
