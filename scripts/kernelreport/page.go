package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/openinfer-go/openinfer/scripts/kernelreport/cost"
)

// page is docs/kernels.md.
type page struct {
	entries  map[string]cost.Entry
	sections []section
	matrix   *matrix
	budget   uint64
}

// section is one model's.
type section struct {
	model   string
	weights int64
	steps   []timed
}

type timed struct {
	title    string
	launches []cost.Estimate
}

func (p *page) write(w io.Writer) {
	say := func(format string, args ...any) { fmt.Fprintf(w, format+"\n", args...) }
	say("# Kernels on a card that is not here")
	say("")
	say("Predicted, not measured: no card ran anything on this page. `make kernel-report` wrote it from the committed PTX: the interpreter counts, ptxas assembles,")
	say("and the formula below turns counts into the time of an NVIDIA GeForce RTX 3090 (stock).")
	say("")
	p.conclusion(say)
	p.writeMatrix(say)
	p.formula(say)
	p.assembled(say)
	for _, s := range p.sections {
		p.model(say, s)
	}
}

func (p *page) conclusion(say func(string, ...any)) {
	m := p.matrix
	if m == nil {
		return
	}
	verdict := func(got, want float64) string {
		if got >= want {
			return "reached"
		}
		return "MISSED"
	}
	say("| asked for | predicted | |")
	say("|---|---|---|")
	say("| Qwen3.8-27B-INT4, one stream, 8-bit head: 55 tok/s | %.1f | %s |", m.single8, verdict(m.single8, 55))
	say("| the same with a 4-bit head: 58 tok/s | %.1f | %s |", m.single4, verdict(m.single4, 58))
	say("| filled cells of the speed-test matrix: 15, vLLM fills 8 | %d | %s |", m.filled(), verdict(float64(m.filled()), 15))
	if len(p.entries) > 0 {
		say("| bytes spilled by any kernel on sm_80, 86, 89, 90: 0 | %d | %s |", p.spilledBytes(), verdict(0, float64(p.spilledBytes())))
	} else {
		say("| bytes spilled by any kernel on sm_80, 86, 89, 90: 0 | not assembled: occupancy knows no registers | |")
	}
	say("")
}

func (p *page) writeMatrix(say func(string, ...any)) {
	m := p.matrix
	if m == nil {
		return
	}
	say("## The speed-test matrix: Qwen3.8-27B-INT4, fp8 cache, 8-bit head, no speculation")
	say("")
	say("Total tokens a second: ours predicted / vLLM 0.32.0 measured (../shared/fleet.md, on a card with an unlocked tensor rate, 420 W) / the memory's limit (weights, state")
	say("and cache at %.0f GB/s and nothing else). \"over\" is over capacity: requests x ((context + %d) x %d bytes of cache + %.0f MB of state) exceed the", cost.Card.Bandwidth/1e9, outputMost, m.token, float64(m.state)/1e6)
	say("%.2f GB that %.2f GiB of memory leave after %.0f MiB for driver and context, %.2f GB of weights and %d MiB of scratch.", float64(m.room)/1e9,
		float64(cost.Card.MemoryBytes)/(1<<30), 512.0, float64(m.weights)/1e9, scratchRoom>>20)
	say("")
	head := "| context |"
	for _, n := range requests {
		head += fmt.Sprintf(" %d |", n)
	}
	say("%s", head)
	say("|---|%s", strings.Repeat("---|", len(requests)))
	for i, line := range m.cells {
		text := fmt.Sprintf("| %s |", contextName(contexts[i]))
		for j, c := range line {
			theirs := "over"
			if j < len(vllm[i]) {
				theirs = fmt.Sprintf("%.1f", vllm[i][j])
			}
			if c.fits {
				text += fmt.Sprintf(" **%.1f** / %s / %.0f |", c.tokens, theirs, c.limit)
			} else {
				text += " over |"
			}
		}
		say("%s", text)
	}
	say("")
	say("Prompts, alone, in steps of %d tokens:", chunk)
	say("")
	say("| length | predicted tok/s | time to first token | vLLM, unlocked card |")
	say("|---|---|---|---|")
	for _, n := range slices.Sorted(maps.Keys(m.prefill)) {
		say("| %s | %.0f | %.2f s | %.0f |", contextName(n), m.prefill[n], float64(n)/m.prefill[n], vllmPrefill[n])
	}
	say("")
	say("A step of one stream has %d launches and moves %.2f GB. Where its time goes:", m.launches, m.stepBytes/1e9)
	say("")
	p.kernels(say, m.steps[1])
}

func (p *page) formula(say func(string, ...any)) {
	say("## The formula")
	say("")
	say("A launch takes the greatest of these, and %.1f us for its start and end (kernels/sim: what is between two dependent kernels of a graph, with filling and draining the card).", cost.Card.Launch*1e6)
	say("A step takes the sum of its launches; nothing overlaps.")
	say("")
	say("| bound | time |")
	say("|---|---|")
	say("| DRAM | bytes / (%.0f GB/s x %.2f) |", cost.Card.Bandwidth/1e9, cost.CopyShare)
	say("| L2 | 32-byte sectors of all warps' requests x 32 / %.1f TB/s |", cost.CacheRate/1e12)
	say("| loads under way | DRAM bytes x %.0f ns / bytes asked for at a time: the most that cp.async of the resident blocks has under way, or %d requests a warp |", cost.Latency*1e9, cost.Outstanding)
	say("| mma | operations / (rate of the data sheet x %.2f): %.0f TFLOP/s with fp32 sums, %.0f with fp16 sums |", cost.TensorShare, cost.Card.Rates[0]/1e12, cost.Card.Rates[1]/1e12)
	say("| issue | warp instructions / (%d a cycle x %.2f) |", cost.Schedulers, cost.IssueShare)
	say("| one pipe | warp instructions of a class x 32 / lanes of its unit a cycle / %.2f: integer, logic, predicate, fp16 pairs, conversions 64, fp32 128, special 16, shuffles 32 |", cost.IssueShare)
	say("| shared memory | wavefronts, one a cycle |")
	say("| one warp | its instructions, one each %.1f cycles, times the waves of blocks |", cost.WarpCycles)
	say("")
	say("The middle five are of a multiprocessor: %d at %.3f GHz; the one with the most blocks ends last, ceil(blocks / %d) of them.", cost.Multiprocessors, cost.Clock/1e9, cost.Multiprocessors)
	say("")
	say("Added to a product that makes its row of x itself (linear_decode_*_row): what it still does of that when the weights that it has asked for before have come. Making it is three")
	say("times %.0f ns, one after the other (norm, largest magnitude, values), and the bytes that the resident blocks load without cp.async, each time from L2; the weights come at the copy's rate", cost.CacheLatency*1e9)
	say("after %.0f ns. Blocks that begin later do it beside others whose weights are on their way.", cost.Latency*1e9)
	say("")
	say("Assumptions: an instruction of PTX is one of the machine (moves and address sums often vanish, 64-bit integers take two: it evens out within the share of the issue")
	say("slots); bytes that blocks running at once share come from DRAM once, what blocks of later waves share again unless it fits half of L2 (%d MiB); a copy reaches %.0f %% of", cost.CacheBytes>>20, cost.CopyShare*100)
	say("the peak; clocks are those of the data sheet, which a stock card exceeds when it is cool; the host is never late. Weights have their sizes and no values, so what depends")
	say("on values (sampling above all) is at its least.")
	say("")
	say("Counts are of a sample: two blocks of each dimension of a grid, spread evenly, and more as long as they are within %.0f M lane instructions; instructions scale with the", float64(p.budget)/1e6)
	say("grid, bytes with the dimensions along which no two blocks touched the same sector. `go test ./kernels/cuda/ptx -run SampleScales` shows both exact for a product that runs whole.")
	say("")
}

func (p *page) assembled(say func(string, ...any)) {
	if len(p.entries) == 0 {
		return
	}
	say("## What ptxas says")
	say("")
	say("CUDA 11.8, sm_86; spills also of sm_80, sm_89 and sm_90.")
	say("")
	say("| kernel | file | registers | spilled bytes |")
	say("|---|---|---|---|")
	for _, name := range slices.Sorted(maps.Keys(p.entries)) {
		e := p.entries[name]
		spilled := "0"
		if len(e.Spilled) > 0 {
			var list []string
			for _, arch := range slices.Sorted(maps.Keys(e.Spilled)) {
				list = append(list, fmt.Sprintf("%s: %d", arch, e.Spilled[arch]))
			}
			spilled = "**" + strings.Join(list, ", ") + "**"
		}
		say("| %s | %s | %d | %s |", name, strings.TrimSuffix(e.File, ".ptx"), e.Registers, spilled)
	}
	say("")
}

func (p *page) spilledBytes() (n int) {
	for _, e := range p.entries {
		for _, bytes := range e.Spilled {
			n += bytes
		}
	}
	return n
}

// spills is an error that names what spills.
func (p *page) spills() error {
	var names []string
	for name, e := range p.entries {
		if len(e.Spilled) > 0 {
			names = append(names, fmt.Sprintf("%s %v", name, e.Spilled))
		}
	}
	if names == nil {
		return nil
	}
	slices.Sort(names)
	return fmt.Errorf("registers spill to memory: %s", strings.Join(names, "; "))
}

func (p *page) model(say func(string, ...any), s section) {
	say("## %s", s.model)
	say("")
	say("%.2f GB of weights on the card.", float64(s.weights)/1e9)
	say("")
	for _, t := range s.steps {
		moved := 0.0
		for _, e := range t.launches {
			moved += e.DRAM
		}
		seconds := cost.Total(t.launches)
		say("### %s: %.2f ms, %d launches, %.2f GB, %.0f %% of the bandwidth", t.title, seconds*1e3, len(t.launches), moved/1e9, moved/seconds/cost.Card.Bandwidth*100)
		say("")
		p.kernels(say, t.launches)
	}
}

// kernels is a table of a step's launches, alike ones together, the longest first.
func (p *page) kernels(say func(string, ...any), es []cost.Estimate) {
	type group struct {
		cost.Estimate
		n int
	}
	var groups []*group
	byLaunch := map[*cost.Launch]*group{}
	for _, e := range es {
		g := byLaunch[e.Launch]
		if g == nil {
			g = &group{Estimate: e}
			byLaunch[e.Launch] = g
			groups = append(groups, g)
		}
		g.n++
	}
	slices.SortStableFunc(groups, func(a, b *group) int {
		return cmp.Compare(float64(b.n)*b.Seconds, float64(a.n)*a.Seconds)
	})
	say("| kernel | grid x block, shared | launches | us each | limited by | GB/s | DRAM / touched bytes | sector efficiency | conflicts | warps' instructions by block: mma, fp, integer and logic, memory, rest | warps of 48 |")
	say("|---|---|---|---|---|---|---|---|---|---|---|")
	rest, restSeconds := 0, 0.0
	for i, g := range groups {
		if i >= 12 && float64(g.n)*g.Seconds < cost.Total(es)/100 {
			rest, restSeconds = rest+g.n, restSeconds+float64(g.n)*g.Seconds
			continue
		}
		c := &g.Counters
		var t struct{ bytes, sectors uint64 }
		t.bytes = c.GlobalLoads.Bytes + c.GlobalStores.Bytes
		t.sectors = c.GlobalLoads.Sectors + c.GlobalStores.Sectors
		conflicts := "0"
		if c.BankConflicts > 0 {
			conflicts = fmt.Sprintf("%.1f %%", 100*float64(c.BankConflicts)/float64(c.SharedWavefronts))
		}
		of := func(classes ...string) (n uint64) {
			for _, class := range classes {
				n += c.ByClass[class]
			}
			return n
		}
		mma, fp, whole, memory := of("tensor"), of("fp16", "fp32", "fp64", "special", "convert"), of("integer", "logic", "predicate"), of("global", "shared", "local", "constant", "atomic")
		each := func(n uint64) string { return fmt.Sprintf("%.0f", g.Each(n)) }
		warps := (g.Block[0]*g.Block[1]*g.Block[2] + 31) / 32
		say("| %s | %dx%dx%d x %d, %d | %d | %.1f | %v | %.0f | %s / %s | %.1f %% | %s | %s, %s, %s, %s, %s | %d |", g.Launch.Entry, g.Grid[0], g.Grid[1], g.Grid[2],
			g.Block[0]*g.Block[1]*g.Block[2], g.SharedBytes+c.StaticSharedBytes, g.n, g.Seconds*1e6, g.By, g.DRAM/g.Seconds/1e9, size(g.DRAM), size(g.Unique),
			100*float64(t.bytes)/float64(max(32*t.sectors, 1)), conflicts, each(mma), each(fp), each(whole), each(memory), each(c.WarpInstructions-mma-fp-whole-memory), min(g.BlocksMP*warps, cost.WarpsMost))
	}
	if rest > 0 {
		say("| others | | %d | %.1f in all | | | | | | | |", rest, restSeconds*1e6)
	}
	say("")
}

func size(bytes float64) string {
	switch {
	case bytes >= 1e6:
		return fmt.Sprintf("%.2f MB", bytes/1e6)
	default:
		return fmt.Sprintf("%.1f kB", bytes/1e3)
	}
}
