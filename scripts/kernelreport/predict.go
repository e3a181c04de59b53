package main

import (
	"strings"

	"github.com/openinfer-go/openinfer/kernels/sim"
)

// What is assumed of the card beyond its data sheet. The page prints these with their reasons.
const (
	multiprocessors = 82
	clock           = 1.695e9 // Hz: the boost clock of the data sheet, at which its rates are stated
	schedulers      = 4       // instructions a cycle of a multiprocessor
	warpsMost       = 48
	blocksMost      = 16
	sharedMost      = 100 << 10
	registersMost   = 65536
	blockShared     = 1 << 10 // that a block takes beside its own

	copyShare   = 0.91   // of the bandwidth, that a copy reaches
	cacheRate   = 2.0e12 // bytes a second between L2 and the multiprocessors
	cacheBytes  = 6 << 20
	latency     = 650e-9 // of a load from memory under way with others
	issueShare  = 0.80   // of the issue slots, that a kernel without other limits fills
	warpCycles  = 2.5    // between two instructions of one warp, at least, on average
	tensorShare = 0.90   // of the matrix rate, that a loop of mma alone reaches
	outstanding = 4      // loads that a warp without cp.async has under way: loops are unrolled
)

// Lanes of a multiprocessor by class of instruction (CUDA C++ Programming Guide 11.8, table of arithmetic throughput,
// compute capability 8.6). What is not here is limited by the issue slots alone.
var lanesOf = map[string]float64{
	"integer": 64, "logic": 64, "predicate": 64, "fp32": 128, "fp16": 64, "fp64": 2, "special": 16, "convert": 64, "warp": 32,
}

var card = func() sim.Spec {
	s, err := sim.Find("rtx3090")
	if err != nil {
		panic(err) // it is in the table
	}
	return s
}()

// estimate is what a launch is predicted to take.
type estimate struct {
	*launch
	entry    entry
	blocksMP int     // resident on a multiprocessor
	dram     float64 // bytes
	unique   float64 // bytes that the launch touches
	bounds   [boundCount]float64
	seconds  float64
	by       bound
}

// bound is what may limit a kernel.
type bound int

const (
	byMemory bound = iota
	byCache
	byFlight
	byMatrix
	byIssue
	byPipe
	byShared
	byWarp
	boundCount
)

func (b bound) String() string {
	return [...]string{"DRAM", "L2", "loads under way", "mma", "issue", "one pipe", "shared memory", "one warp"}[b]
}

// residents is how many blocks a multiprocessor holds.
func residents(l *launch, e entry) int {
	threads := l.block[0] * l.block[1] * l.block[2]
	warps := (threads + 31) / 32
	n := min(blocksMost, warpsMost/warps)
	if e.registers > 0 {
		n = min(n, registersMost/(((e.registers*32+255)/256*256)*warps))
	}
	n = min(n, sharedMost/(l.sharedBytes+l.counters.StaticSharedBytes+blockShared))
	return max(n, 1)
}

// predict applies the formula of the page.
func predict(l *launch, e entry) estimate {
	r := estimate{launch: l, entry: e, blocksMP: residents(l, e)}
	c := &l.counters
	resident := min(l.blocks(), multiprocessors*r.blocksMP)
	r.bytes(resident)

	// Blocks of a multiprocessor share its units; the one with the most of them ends last.
	perMP := float64((l.blocks() + multiprocessors - 1) / multiprocessors)
	cycles := func(perBlock float64) float64 { return perBlock * perMP / clock }
	r.bounds[byMemory] = r.dram / (card.Bandwidth * copyShare)
	sectors := c.GlobalLoads.Sectors + c.GlobalStores.Sectors + c.GlobalAtomics.Sectors
	r.bounds[byCache] = l.each(sectors) * 32 * float64(l.blocks()) / cacheRate
	r.bounds[byFlight] = r.dram * latency / r.flight(resident)
	r.bounds[byMatrix] = cycles(mmaCycles(c.MMAByKind)/float64(c.Blocks)) / tensorShare
	r.bounds[byIssue] = cycles(l.each(c.WarpInstructions)/schedulers) / issueShare
	for class, lanes := range lanesOf {
		r.bounds[byPipe] = max(r.bounds[byPipe], cycles(l.each(c.ByClass[class])*32/lanes)/issueShare)
	}
	r.bounds[byShared] = cycles(l.each(c.SharedWavefronts))
	warps := float64((l.block[0]*l.block[1]*l.block[2] + 31) / 32)
	waves := float64((l.blocks() + resident - 1) / resident)
	r.bounds[byWarp] = l.each(c.WarpInstructions) / warps * waves * warpCycles / clock
	for b, t := range r.bounds {
		if t > r.seconds {
			r.seconds, r.by = t, bound(b)
		}
	}
	r.seconds += card.Launch
	return r
}

// bytes fills in what the grid touches, and what of it comes from memory: blocks that run at once share through L2; what
// blocks share that run one after the other is read again, unless it fits half of L2.
func (r *estimate) bytes(resident int) {
	wave, left := [3]int{1, 1, 1}, resident
	for d, n := range r.grid {
		wave[d] = min(n, left)
		left = max(left/wave[d], 1)
	}
	for _, reach := range r.counters.Reach {
		b := float64(reach.ReadBytes + reach.WriteBytes)
		whole := b * r.scale(reach.Shared, r.grid)
		r.unique += whole
		for d, shared := range reach.Shared {
			if shared && whole > cacheBytes/2 {
				b *= float64((r.grid[d] + wave[d] - 1) / wave[d])
			}
		}
		r.dram += b * r.scale(reach.Shared, r.grid)
	}
}

// flight is how many bytes are asked for at a time: what stages of cp.async hold, or a few loads a warp.
func (r *estimate) flight(resident int) float64 {
	if r.sharedBytes > 8<<10 {
		return float64(resident) * float64(r.sharedBytes) * 3 / 4
	}
	c := &r.counters
	loads := c.GlobalLoads
	if loads.Requests == 0 {
		loads = c.GlobalStores
	}
	warps := float64(resident) * float64((r.block[0]*r.block[1]*r.block[2]+31)/32)
	return max(warps*outstanding*float64(loads.Sectors*32)/float64(max(loads.Requests, 1)), 1)
}

// mmaCycles is how long a multiprocessor multiplies: its rate is the card's, fp32 sums at half of that of fp16 sums.
func mmaCycles(kinds map[string]uint64) float64 {
	sum := 0.0
	for kind, n := range kinds {
		p := strings.Split(kind, ".") // shape, sums, factors
		k := map[string]float64{"m16n8k4": 4, "m16n8k8": 8, "m16n8k16": 16, "m16n8k32": 32, "m16n8k64": 64}[p[0]]
		rate := card.Rates[sim.Acc32]
		switch {
		case p[1] == "f16":
			rate = card.Rates[sim.Acc16]
		case p[1] == "s32":
			rate = card.Rates[sim.Int8]
		case p[2] == "tf32":
			rate /= 2
		}
		sum += float64(n) * 2 * 16 * 8 * k / (rate / multiprocessors / clock)
	}
	return sum
}

// predictAll predicts the launches of a step.
func predictAll(launches []*launch, entries map[string]entry) []estimate {
	out := make([]estimate, len(launches))
	for i, l := range launches {
		out[i] = predict(l, entries[l.entry])
	}
	return out
}

// total is the time of a step.
func total(es []estimate) (seconds float64) {
	for _, e := range es {
		seconds += e.seconds
	}
	return seconds
}
