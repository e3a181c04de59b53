package cuda

import (
	"fmt"

	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/kernels/check"
)

// GatedDelta implements kernels.Device.
func (d *Device) GatedDelta(dst, qkv, a, b kernels.Tensor, p kernels.DeltaParams, s kernels.State) {
	const op = "gatedDelta"
	if d.err != nil || !d.ok(check.GatedDelta(dst, qkv, a, b, p, s)) || dst.Rows == 0 {
		return
	}
	l := s.Layout
	runs := len(s.Runs.Starts.Host) - 1
	if runs > maxRuns {
		d.ok(fmt.Errorf("%s: %d runs: at most %d are supported", op, runs, maxRuns))
		return
	}
	aligned := l.KDim == 128 && l.VDim%16 == 0 && l.PageBytes%16 == 0 && s.Pages.Addr%16 == 0
	var name string
	switch {
	case aligned:
		name = "delta_steps_128"
	case l.KDim <= 128:
		name = "delta_steps_odd"
	case l.KDim <= 256:
		name = "delta_steps_256"
	default:
		d.ok(fmt.Errorf("%s: keys of %d values: at most 256 are supported", op, l.KDim))
		return
	}
	args := []uint64{
		argT(dst), arg(dst.Stride), argT(qkv), arg(qkv.Stride), argT(a), arg(a.Stride), argT(b), arg(b.Stride),
		argT(p.Rate), argT(p.DtBias), argF(p.Eps), arg(p.KeyHeads),
		s.Pages.Addr, uint64(l.PageBytes), s.Runs.Starts.Addr, s.Runs.In.Addr, s.Runs.Out.Addr, d.chains(s),
		arg(l.UnitsPerPage()), arg(s.Layer * l.LayerUnits()), arg(l.StatePages()), arg(l.Heads), arg(l.KDim), arg(l.VDim),
	}
	if !p.Chunked || !aligned || longest(s.Runs.Starts.Host) < deltaChunk {
		d.launch(op, "delta", name, [3]int{(l.VDim + 31) / 32, l.Heads, runs}, [3]int{64, 1, 1}, 0, args...)
		return
	}

	// What the heads share of a chunk goes through the workspace, as many chunks at a time as it holds.
	slot := int64(p.KeyHeads*deltaLengths+l.Heads*deltaMix) * 4
	slots := int(d.workspaceBytes / slot)
	if slots == 0 {
		d.ok(fmt.Errorf("%s: a chunk of %d tokens takes %d bytes of workspace, there are %d", op, deltaChunk, slot, d.workspaceBytes))
		return
	}
	for first := 0; first < dst.Rows; first += slots * deltaChunk {
		end := first + slots*deltaChunk
		if n := min(slots, (dst.Rows-first)/deltaChunk); n > 0 {
			d.launch(op, "delta_chunk", "delta_mix", [3]int{n, p.KeyHeads, 1}, [3]int{256, 1, 1}, 0,
				argT(qkv), arg(qkv.Stride), argT(a), arg(a.Stride), argT(b), arg(b.Stride), argT(p.Rate), argT(p.DtBias), argF(p.Eps),
				arg(p.KeyHeads), s.Runs.Starts.Addr, arg(runs), arg(l.Heads), d.workspace, arg(first))
		}
		d.launch(op, "delta_chunk", "delta_chunks", [3]int{(l.VDim + 63) / 64, l.Heads, runs}, [3]int{128, 1, 1}, 0,
			append(args, d.workspace, arg(first), arg(end))...)
	}
}

// Sizes in delta_chunk.cu: tokens of a chunk, and words of what delta_mix leaves of one for a key head and for a head.
const (
	deltaChunk   = 16
	deltaLengths = 2 * deltaChunk
	deltaMix     = 576
)

// longest is the number of tokens of the longest run.
func longest(starts []int32) int {
	n := int32(0)
	for i, s := range starts[1:] {
		n = max(n, s-starts[i])
	}
	return int(n)
}

// maxRuns of a step: the third dimension of a grid.
const maxRuns = 1<<16 - 1

// chainList are the chains of a step's runs, found once for all layers of a cache group.
type chainList struct {
	starts, in, out uint64 // the runs
	addr            uint64
	// alone: each token is a run of its own, and each run a chain.
	alone bool
}

// chains returns where the card finds the chains of a step's runs, int32 [2][runs]: whether the run begins a chain, 0
// or 1, and the run that comes after it in its chain, or -1. A run that begins or ends with a state which an earlier
// one left is in that one's chain. Chains are independent of each other; a run without tokens is in none.
func (d *Device) chains(s kernels.State) uint64 { return d.chainsOf(s).addr }

func (d *Device) chainsOf(s kernels.State) chainList {
	for _, c := range d.chained {
		if c.starts == s.Runs.Starts.Addr && c.in == s.Runs.In.Addr && c.out == s.Runs.Out.Addr {
			return c
		}
	}
	list, starts := chainRuns(s), s.Runs.Starts.Host
	runs := len(starts) - 1
	c := chainList{s.Runs.Starts.Addr, s.Runs.In.Addr, s.Runs.Out.Addr, d.stage(bytesOf(list)), true}
	for r := range runs {
		c.alone = c.alone && starts[r+1] == int32(r+1) && list[r] == 1 // none continues a chain
	}
	d.chained = append(d.chained, c)
	return c
}

func chainRuns(s kernels.State) []int32 {
	starts, in, out, pages := s.Runs.Starts.Host, s.Runs.In.Host, s.Runs.Out.Host, s.Layout.StatePages()
	n := len(starts) - 1
	list := make([]int32, 2*n)
	first, next := list[:n], list[n:]
	left := make(map[int32]int, n) // the chain whose state is on the pages that begin with this one
	end := make([]int, n)          // of the chain that begins with this run, its last
	for r := range n {
		next[r] = -1
		if starts[r] == starts[r+1] {
			continue
		}
		chain, ok := left[in[r*pages]]
		if !ok {
			chain, ok = left[out[r*pages]]
		}
		if ok {
			next[end[chain]] = int32(r)
		} else {
			chain, first[r] = r, 1
		}
		end[chain], left[out[r*pages]] = r, chain
	}
	return list
}
