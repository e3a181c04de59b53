// Package cost says what a step of a model takes on a card: it issues the step at its real shapes (step.go), counts the launches
// of some of its blocks on the interpreter (meter.go), and turns counts into time by a formula (predict.go). Weights come from
// no file. The same steps run on a real card, to be timed there.
package cost

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/openinfer-go/openinfer/kernels/cuda"
	"github.com/openinfer-go/openinfer/kernels/cuda/driver"
	"github.com/openinfer-go/openinfer/kernels/cuda/ptx"
)

// Launch is what a launch costs by its counters.
type Launch struct {
	Entry       string
	Grid, Block [3]int
	SharedBytes int
	ran         [3]int       // blocks of each dimension that were counted
	Counters    ptx.Counters // of these
}

// meter is the interpreter as a driver that counts. A launch that differs from an earlier one in addresses only is not run
// again: what a kernel of ours does depends on its other arguments and, where it is given the step's contexts, on these. Of
// a new one a few blocks run, and then, by what these cost, as many as the budget allows; of a kernel whose blocks are not alike, all.
type meter struct {
	*driver.Interpreter
	Budget uint64 // lane instructions of a launch

	names    map[driver.Function]string
	known    map[string]*Launch
	launches []*Launch // of the step
	loading  bool      // weights stay what memory is: zeros
	contexts uint64    // address of the step's
	rows     []Row     // that they are of

	sample func(grid [3]int) [3]int
	last   *ptx.Result
}

func newMeter(budget uint64) *meter {
	m := &meter{Interpreter: driver.NewInterpreter(1), Budget: budget, names: map[driver.Function]string{}, known: map[string]*Launch{}}
	m.Bytes = 64 << 30
	m.Sample = func(grid [3]int) [3]int { return m.sample(grid) }
	m.Launched = func(_ string, _, _ [3]int, r *ptx.Result) { m.last = r }
	return m
}

// Function implements driver.Driver.
func (m *meter) Function(mod driver.Module, name string) (driver.Function, error) {
	f, err := m.Interpreter.Function(mod, name)
	m.names[f] = name
	return f, err
}

// CopyToDevice implements driver.Driver.
func (m *meter) CopyToDevice(dst uint64, src []byte, s driver.Stream) error {
	if m.loading {
		return nil
	}
	return m.Interpreter.CopyToDevice(dst, src, s)
}

// BeginCapture implements driver.Driver: launches are counted one by one.
func (m *meter) BeginCapture(driver.Stream) error {
	return errors.New("launches are counted one by one")
}

// mostBlocks are those that the interpreter can sample.
const mostBlocks = 64

// firstAddress is below every address on the interpreted card, and above every other argument.
const firstAddress = 1 << 40

// Launch implements driver.Driver.
func (m *meter) Launch(f driver.Function, grid, block [3]int, sharedBytes int, s driver.Stream, args []uint64) error {
	scalars := slices.Clone(args)
	var rows []Row
	for i, a := range scalars {
		if a >= firstAddress {
			scalars[i] = firstAddress
		}
		if a == m.contexts {
			rows = m.rows
		}
	}
	key := fmt.Sprint(m.names[f], grid, block, sharedBytes, scalars, rows)
	if l := m.known[key]; l != nil {
		m.launches = append(m.launches, l)
		return nil
	}
	l := &Launch{Entry: m.names[f], Grid: grid, Block: block, SharedBytes: sharedBytes, ran: grid}
	if uneven(l.Entry, rows) {
		m.sample = func([3]int) (all [3]int) { return all }
		if err := m.Interpreter.Launch(f, grid, block, sharedBytes, s, args); err != nil {
			return err
		}
		l.Counters = m.last.Counters
		l.Counters.Reach = []ptx.Reach{{ReadBytes: l.Counters.DRAMReadBytes, WriteBytes: l.Counters.DRAMWriteBytes}}
		m.known[key] = l
		m.launches = append(m.launches, l)
		return nil
	}
	run := func(blocks int) ([3]int, error) {
		m.sample = func(grid [3]int) [3]int { return spread(grid, blocks) }
		err := m.Interpreter.Launch(f, grid, block, sharedBytes, s, args)
		return spread(grid, blocks), err
	}
	ran, err := run(2)
	if err != nil {
		return err
	}
	each := m.last.Counters.LaneInstructions/uint64(m.last.Counters.Blocks) + 1
	n := min(m.Budget/each, mostBlocks)
	if cuda.SharesLaunch(l.Entry, args) { // a few of the first blocks are of another kind
		n = mostBlocks
	}
	if n > uint64(m.last.Counters.Blocks) {
		if ran, err = run(int(n)); err != nil {
			return err
		}
	}
	l.ran, l.Counters = ran, m.last.Counters
	m.known[key] = l
	m.launches = append(m.launches, l)
	return nil
}

// uneven reports whether blocks of a launch do different things, so that some of them do not speak for all: attention of single
// tokens cuts contexts into pieces, of which the last may be short or empty, and one block adds up all sums.
func uneven(entry string, rows []Row) bool {
	if !strings.HasPrefix(entry, "attention_") || len(rows) == 0 {
		return false
	}
	for _, r := range rows {
		if r.N > 1 {
			return false
		}
	}
	return true
}

// spread chooses how many coordinates of each dimension of a grid run when about so many blocks may: two of each first, for
// what blocks share shows only by two, and then evenly.
func spread(grid [3]int, blocks int) (n [3]int) {
	for d, g := range grid {
		n[d] = min(g, 2)
	}
	for {
		best, most := -1, 1.0
		for d := range n {
			more := n
			more[d] = min(grid[d], n[d]*2)
			if left := float64(grid[d]) / float64(n[d]); left > most && more[0]*more[1]*more[2] <= blocks {
				best, most = d, left
			}
		}
		if best < 0 {
			return n
		}
		n[best] = min(grid[best], n[best]*2)
	}
}

// scale is by how much what blocks do not share, along the dimensions where they do not, is more in a grid of size
// whole than in what ran.
func (l *Launch) scale(shared [3]bool, whole [3]int) float64 {
	f := 1.0
	for d := range whole {
		if !shared[d] {
			f *= float64(whole[d]) / float64(l.ran[d])
		}
	}
	return f
}

// blocks is the grid's size.
func (l *Launch) blocks() int { return l.Grid[0] * l.Grid[1] * l.Grid[2] }

// Each is a count by block.
func (l *Launch) Each(n uint64) float64 { return float64(n) / float64(l.Counters.Blocks) }
