package cost

import (
	"strings"

	"github.com/openinfer-go/openinfer/kernels/sim"
)

// What is assumed of the card beyond its data sheet. The page prints these with their reasons.
const (
	Multiprocessors = 82
	Clock           = 1.695e9 // Hz: the boost clock of the data sheet, at which its rates are stated
	Schedulers      = 4       // instructions a cycle of a multiprocessor
	WarpsMost       = 48
	blocksMost      = 16
	sharedMost      = 100 << 10
	registersMost   = 65536
	blockShared     = 1 << 10 // that a block takes beside its own

	CopyShare    = 0.91   // of the bandwidth, that a copy reaches
	CacheRate    = 2.0e12 // bytes a second between L2 and the multiprocessors
	CacheBytes   = 6 << 20
	Latency      = 650e-9 // of a load from memory under way with others
	IssueShare   = 0.80   // of the issue slots, that a kernel without other limits fills
	WarpCycles   = 2.5    // between two instructions of one warp, at least, on average
	TensorShare  = 0.90   // of the matrix rate, that a loop of mma alone reaches
	CacheLatency = 300e-9 // of a load from L2 among others
	Outstanding  = 4      // loads that a warp without cp.async has under way: loops are unrolled
)

// Lanes of a multiprocessor by class of instruction (CUDA C++ Programming Guide 11.8, table of arithmetic throughput,
// compute capability 8.6). What is not here is limited by the issue slots alone.
var lanesOf = map[string]float64{
	"integer": 64, "logic": 64, "predicate": 64, "fp32": 128, "fp16": 64, "fp64": 2, "special": 16, "convert": 64, "warp": 32,
}

// Card is the one that is predicted.
var Card = func() sim.Spec {
	s, err := sim.Find("rtx3090")
	if err != nil {
		panic(err) // it is in the table
	}
	return s
}()

// Entry is what the assembler says of a kernel.
type Entry struct {
	File      string
	Registers int            // on sm_86
	Spilled   map[string]int // bytes by card, where not 0
}

// Estimate is what a launch is predicted to take.
type Estimate struct {
	*Launch
	entry    Entry
	BlocksMP int     // resident on a multiprocessor
	DRAM     float64 // bytes
	Unique   float64 // bytes that the launch touches
	bounds   [boundCount]float64
	Late     float64 // of Seconds, what a product waits for the row that it makes
	Seconds  float64
	By       bound
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
func residents(l *Launch, e Entry) int {
	threads := l.Block[0] * l.Block[1] * l.Block[2]
	warps := (threads + 31) / 32
	n := min(blocksMost, WarpsMost/warps)
	if e.Registers > 0 {
		n = min(n, registersMost/(((e.Registers*32+255)/256*256)*warps))
	}
	n = min(n, sharedMost/(l.SharedBytes+l.Counters.StaticSharedBytes+blockShared))
	return max(n, 1)
}

// predict applies the formula of the page.
func predict(l *Launch, e Entry) Estimate {
	r := Estimate{Launch: l, entry: e, BlocksMP: residents(l, e)}
	c := &l.Counters
	resident := min(l.blocks(), Multiprocessors*r.BlocksMP)
	r.bytes(resident)

	// Blocks of a multiprocessor share its units; the one with the most of them ends last.
	perMP := float64((l.blocks() + Multiprocessors - 1) / Multiprocessors)
	cycles := func(perBlock float64) float64 { return perBlock * perMP / Clock }
	r.bounds[byMemory] = r.DRAM / (Card.Bandwidth * CopyShare)
	sectors := c.GlobalLoads.Sectors + c.GlobalStores.Sectors + c.GlobalAtomics.Sectors
	r.bounds[byCache] = l.Each(sectors) * 32 * float64(l.blocks()) / CacheRate
	r.bounds[byFlight] = r.DRAM * Latency / r.flight(resident)
	r.bounds[byMatrix] = cycles(mmaCycles(c.MMAByKind)/float64(c.Blocks)) / TensorShare
	r.bounds[byIssue] = cycles(l.Each(c.WarpInstructions)/Schedulers) / IssueShare
	for class, lanes := range lanesOf {
		r.bounds[byPipe] = max(r.bounds[byPipe], cycles(l.Each(c.ByClass[class])*32/lanes)/IssueShare)
	}
	r.bounds[byShared] = cycles(l.Each(c.SharedWavefronts))
	warps := float64((l.Block[0]*l.Block[1]*l.Block[2] + 31) / 32)
	waves := float64((l.blocks() + resident - 1) / resident)
	r.bounds[byWarp] = l.Each(c.WarpInstructions) / warps * waves * WarpCycles / Clock
	for b, t := range r.bounds {
		if t > r.Seconds {
			r.Seconds, r.By = t, bound(b)
		}
	}
	r.Late = r.late(min(int(perMP), r.BlocksMP))
	r.Seconds += r.Late + Card.Launch
	return r
}

// late is how long blocks that begin together, n on a multiprocessor, still make the row of x when the weights that they asked for
// before have come. Making it is what is loaded without cp.async, all of it from L2, in three passes one after the other: for the
// norm, the largest magnitude, the values. Blocks that begin later do so beside others that have their weights on the way.
func (r *Estimate) late(n int) float64 {
	if !strings.HasPrefix(r.Entry, "linear_decode_") || !strings.Contains(r.Entry, "_row") {
		return 0
	}
	c, at := &r.Counters, float64(n)*Multiprocessors
	making := 3*CacheLatency + r.Each(c.GlobalLoads.Sectors-c.AsyncLoads.Sectors)*32*at/CacheRate
	coming := Latency + r.Each(c.AsyncMostBytes)*at/(Card.Bandwidth*CopyShare)
	return max(making-coming, 0)
}

// bytes fills in what the grid touches, and what of it comes from memory: blocks that run at once share through L2; what
// blocks share that run one after the other is read again, unless it fits half of L2.
func (r *Estimate) bytes(resident int) {
	wave, left := [3]int{1, 1, 1}, resident
	for d, n := range r.Grid {
		wave[d] = min(n, left)
		left = max(left/wave[d], 1)
	}
	for _, reach := range r.Counters.Reach {
		b := float64(reach.ReadBytes + reach.WriteBytes)
		whole := b * r.scale(reach.Shared, r.Grid)
		r.Unique += whole
		for d, shared := range reach.Shared {
			if shared && whole > CacheBytes/2 {
				b *= float64((r.Grid[d] + wave[d] - 1) / wave[d])
			}
		}
		r.DRAM += b * r.scale(reach.Shared, r.Grid)
	}
}

// flight is how many bytes are asked for at a time: what cp.async has under way at most, or a few loads a warp.
func (r *Estimate) flight(resident int) float64 {
	c := &r.Counters
	if c.AsyncMostBytes > 0 {
		return float64(resident) * r.Each(c.AsyncMostBytes)
	}
	loads := c.GlobalLoads
	if loads.Requests == 0 {
		loads = c.GlobalStores
	}
	warps := float64(resident) * float64((r.Block[0]*r.Block[1]*r.Block[2]+31)/32)
	return max(warps*Outstanding*float64(loads.Sectors*32)/float64(max(loads.Requests, 1)), 1)
}

// shapeK is the length of the sums of an mma.
var shapeK = map[string]float64{"m16n8k4": 4, "m16n8k8": 8, "m16n8k16": 16, "m16n8k32": 32, "m16n8k64": 64}

// Operations is how many multiplications and additions on tensor cores a launch makes.
func (l *Launch) Operations() (sum float64) {
	for kind, n := range l.Counters.MMAByKind {
		shape, _, _ := strings.Cut(kind, ".")
		sum += l.Each(n) * float64(l.blocks()) * 2 * 16 * 8 * shapeK[shape]
	}
	return sum
}

// mmaCycles is how long a multiprocessor multiplies: its rate is the card's, fp32 sums at half of that of fp16 sums.
func mmaCycles(kinds map[string]uint64) float64 {
	sum := 0.0
	for kind, n := range kinds {
		p := strings.Split(kind, ".") // shape, sums, factors
		k := shapeK[p[0]]
		rate := Card.Rates[sim.Acc32]
		switch {
		case p[1] == "f16":
			rate = Card.Rates[sim.Acc16]
		case p[1] == "s32":
			rate = Card.Rates[sim.Int8]
		case p[2] == "tf32":
			rate /= 2
		}
		sum += float64(n) * 2 * 16 * 8 * k / (rate / Multiprocessors / Clock)
	}
	return sum
}

// PredictAll predicts the launches of a step.
func PredictAll(launches []*Launch, entries map[string]Entry) []Estimate {
	out := make([]Estimate, len(launches))
	for i, l := range launches {
		out[i] = predict(l, entries[l.Entry])
	}
	return out
}

// Total is the time of a step.
func Total(es []Estimate) (seconds float64) {
	for _, e := range es {
		seconds += e.Seconds
	}
	return seconds
}
