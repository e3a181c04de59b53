package cuda

import (
	"fmt"
	"runtime"
	"sync"

	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/kernels/cuda/driver"
)

// Options say how to open a card.
type Options struct {
	Card int // ordinal
	// WorkspaceBytes is what operators keep between their launches within a step; 0: 64 MiB.
	WorkspaceBytes int64
	// StepBytes is the room for a step's arrays, on the card and pinned in the host; 0: 16 MiB.
	StepBytes int64
	// NoGraphs issues every launch by itself, always.
	NoGraphs bool
	// HalfAccumulate sums the products of 32 inputs with 4- or 8-bit weights in fp16 instead of float32, which GeForce cards do
	// at twice the rate, at any number of tokens; longer sums are float32. TestHalfAccumulate says what it costs.
	HalfAccumulate bool
	// Arena takes what is free on the card at once, and all buffers are cut from it. Without, each is an allocation of its
	// own: the interpreter then sees who leaves his.
	Arena bool
}

// blockSharedBytes is the shared memory of a block that every card has which this package opens: that of sm_86.
const blockSharedBytes = 99 << 10

// Device is one card.
type Device struct {
	drv    driver.Driver
	info   kernels.Info
	card   Card
	ctx    driver.Context
	stream driver.Stream // of steps
	loads  driver.Stream // of everything else
	mps    int           // multiprocessors
	half   bool          // HalfAccumulate

	mu      sync.Mutex // guards what loading shares with a step
	modules map[string]driver.Module
	entries map[string]*entry

	workspace      uint64
	workspaceBytes int64
	arrays         arrays
	arena          *arena      // nil without Options.Arena
	chained        []chainList // of the step
	edits          edits

	listed []operator // of the step, not yet in the queue
	queue  queue
	graphs *graphs // nil: every launch goes out by itself
	err    error   // the first of the step
}

var _ kernels.Device = (*Device)(nil)

// Open opens a card of drv.
func Open(drv driver.Driver, o Options) (*Device, error) {
	if o.WorkspaceBytes == 0 {
		o.WorkspaceBytes = 64 << 20
	}
	if o.StepBytes == 0 {
		o.StepBytes = 16 << 20
	}
	n, err := drv.DeviceCount()
	if err != nil {
		return nil, fmt.Errorf("cuda: %w", err)
	}
	if o.Card < 0 || o.Card >= n {
		return nil, fmt.Errorf("cuda: no card %d: the driver has %d", o.Card, n)
	}
	d := &Device{drv: drv, half: o.HalfAccumulate, modules: map[string]driver.Module{}, entries: map[string]*entry{}}
	if !o.NoGraphs {
		d.graphs = newGraphs()
	}
	card := driver.Device(o.Card)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := d.open(card, o); err != nil {
		return nil, fmt.Errorf("cuda: card %d: %w", o.Card, err)
	}
	return d, nil
}

func (d *Device) open(card driver.Device, o Options) (err error) {
	d.card, err = describe(d.drv, card)
	if err != nil {
		return err
	}
	if err := d.card.usable(); err != nil {
		return err
	}
	d.mps = d.card.Multiprocessors
	if d.ctx, err = d.drv.OpenContext(card); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			d.drv.CloseContext(d.ctx)
		}
	}()
	if d.stream, err = d.drv.NewStream(); err != nil {
		return err
	}
	if d.loads, err = d.drv.NewStream(); err != nil {
		return err
	}
	if d.workspace, err = d.drv.Alloc(o.WorkspaceBytes); err != nil {
		return err
	}
	d.workspaceBytes = o.WorkspaceBytes
	if err := d.arrays.open(d.drv, o.StepBytes); err != nil {
		return err
	}
	free, _, err := d.drv.MemInfo()
	if err != nil {
		return err
	}
	if o.Arena {
		if err := d.takeArena(); err != nil {
			return err
		}
		free = d.arena.bytes
	}
	d.info = kernels.Info{
		Name:        "cuda",
		Description: d.card.String(),
		MemoryBytes: free,
		Dedicated:   true,
		KVTypes:     cacheTypes,
		// 16 tokens together take little more than half the cycles, and a third on cards whose tensor cores are
		// not held back (TestDeltaChunksCost).
		ChunkedDelta: true,
	}
	return nil
}

// Card describes the card.
func (d *Device) Card() Card { return d.card }

// Info implements kernels.Device.
func (d *Device) Info() kernels.Info { return d.info }

// Close implements kernels.Device. The context's memory goes with it.
func (d *Device) Close() error { return d.drv.CloseContext(d.ctx) }

// ok records the step's first error and says whether the step is still good.
func (d *Device) ok(err error) bool {
	if err != nil {
		d.settle() // what was called before may have an error, too
	}
	if d.err == nil {
		d.err = err
	}
	return d.err == nil
}
