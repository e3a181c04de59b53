package cuda

import (
	"fmt"
	"hash/maphash"
	"slices"

	"github.com/openinfer-go/openinfer/kernels/cuda/driver"
)

// A decode step is hundreds of short launches, which take the host longer to issue than the card to run. So the launches of
// a step are queued, and a queue that comes again, equal in every word, is captured as a graph and launched as one from then
// on. Steps of one shape give equal queues: what changes from step to step lies in the step's arrays, which reach the card
// before. Prompts of ever other lengths do not come again, and cost a hash.
//
// A graph is only a list of launches: results and errors are those of the launches one by one.

// queue holds launches that have not been given to the driver.
type queue struct {
	launches []queued
	words    []uint64 // all that says what is launched: function, grid, block, shared bytes, arguments of each
}

type queued struct {
	op, name    string
	fn          driver.Function
	grid, block [3]int
	sharedBytes int
	from, to    int // arguments in words
}

func (q *queue) reset() { q.launches, q.words = q.launches[:0], q.words[:0] }

func (q *queue) add(op, name string, fn driver.Function, grid, block [3]int, sharedBytes int, args []uint64) {
	q.words = append(q.words, uint64(fn), uint64(sharedBytes), uint64(len(args)))
	for i := range 3 {
		q.words = append(q.words, uint64(grid[i]), uint64(block[i]))
	}
	from := len(q.words)
	q.words = append(q.words, args...)
	q.launches = append(q.launches, queued{op, name, fn, grid, block, sharedBytes, from, len(q.words)})
}

// issue gives the launches to the driver.
func (q *queue) issue(drv driver.Driver, s driver.Stream) error {
	for _, l := range q.launches {
		if err := drv.Launch(l.fn, l.grid, l.block, l.sharedBytes, s, q.words[l.from:l.to]); err != nil {
			return fmt.Errorf("%s: %s<%v,%v>: %w", l.op, l.name, l.grid, l.block, err)
		}
	}
	return nil
}

const (
	minGraph  = 8    // launches; fewer are as soon issued
	maxGraphs = 64   // that are kept; each takes some megabytes of the card
	maxSeen   = 1024 // hashes of queues that were there once
)

// graphs are the queues that came again.
type graphs struct {
	seed     maphash.Seed
	seen     map[uint64]bool
	kept     map[uint64]*graph
	clock    uint64
	launched int // graphs
}

// GraphsLaunched is how many queues were launched as graphs so far. It is for tests, between steps.
func (d *Device) GraphsLaunched() int { return d.graphs.launched }

type graph struct {
	exec  driver.GraphExec // 0: the driver did not make one
	words []uint64
	used  uint64 // clock of the last launch
}

func newGraphs() *graphs {
	return &graphs{seed: maphash.MakeSeed(), seen: map[uint64]bool{}, kept: map[uint64]*graph{}}
}

// flush sends the step's arrays and the queue to the card. After an error in the step nothing of the queue runs.
func (d *Device) flush() {
	defer d.queue.reset()
	d.settle()
	if d.err != nil || len(d.queue.launches) == 0 {
		return
	}
	if err := d.send(); err != nil {
		d.ok(fmt.Errorf("cuda: %w", err))
		return
	}
	if g := d.recurring(); g != nil {
		d.graphs.launched++
		if err := d.drv.LaunchGraph(g.exec, d.stream); err != nil {
			d.ok(fmt.Errorf("cuda: a graph of %d launches from %s to %s: %w", len(d.queue.launches),
				d.queue.launches[0].op, d.queue.launches[len(d.queue.launches)-1].op, err))
		}
		return
	}
	d.ok(d.queue.issue(d.drv, d.stream))
}

// recurring returns the graph of a queue that was there before, nil when it is to be issued.
func (d *Device) recurring() *graph {
	gs := d.graphs
	if gs == nil || len(d.queue.launches) < minGraph {
		return nil
	}
	words := d.queue.words
	h := maphash.Bytes(gs.seed, bytesOf(words))
	g := gs.kept[h]
	switch {
	case g == nil && !gs.seen[h]:
		if len(gs.seen) >= maxSeen {
			clear(gs.seen)
		}
		gs.seen[h] = true
		return nil
	case g == nil:
		g = d.capture()
		d.keep(h, g)
	}
	gs.clock++
	g.used = gs.clock
	if g.exec == 0 || !slices.Equal(g.words, words) {
		return nil
	}
	return g
}

// capture makes a graph of the queue. Where the driver refuses, the launches themselves will say why.
func (d *Device) capture() *graph {
	g := &graph{words: slices.Clone(d.queue.words)}
	if d.drv.BeginCapture(d.stream) != nil {
		return g
	}
	issueErr := d.queue.issue(d.drv, d.stream)
	captured, err := d.drv.EndCapture(d.stream)
	if err != nil {
		return g
	}
	defer d.drv.CloseGraph(captured)
	if issueErr == nil {
		if exec, err := d.drv.Instantiate(captured); err == nil {
			g.exec = exec
		}
	}
	return g
}

// keep makes room for g by what was not launched for longest.
func (d *Device) keep(h uint64, g *graph) {
	gs := d.graphs
	delete(gs.seen, h)
	if len(gs.kept) >= maxGraphs {
		var oldest uint64
		for k, other := range gs.kept {
			if old := gs.kept[oldest]; old == nil || other.used < old.used {
				oldest = k
			}
		}
		if exec := gs.kept[oldest].exec; exec != 0 {
			d.drv.CloseGraphExec(exec)
		}
		delete(gs.kept, oldest)
	}
	gs.kept[h] = g
}
