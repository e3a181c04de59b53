package main

import (
	_ "embed"
	"fmt"
	"slices"

	"github.com/openinfer-go/openinfer/kernels/cuda/driver"
)

// recorder is a driver that keeps the launches that go through it while it is on, to launch them again.
type recorder struct {
	driver.Driver
	on       bool
	launches []recorded
	names    map[driver.Function]string
	ctx      driver.Context
}

type recorded struct {
	name        string
	f           driver.Function
	grid, block [3]int
	sharedBytes int
	args        []uint64
}

func (r *recorder) OpenContext(d driver.Device) (driver.Context, error) {
	ctx, err := r.Driver.OpenContext(d)
	r.ctx = ctx
	return ctx, err
}

func (r *recorder) Function(m driver.Module, name string) (driver.Function, error) {
	f, err := r.Driver.Function(m, name)
	r.names[f] = name
	return f, err
}

func (r *recorder) Launch(f driver.Function, grid, block [3]int, sharedBytes int, s driver.Stream, args []uint64) error {
	if r.on {
		r.launches = append(r.launches, recorded{r.names[f], f, grid, block, sharedBytes, slices.Clone(args)})
	}
	return r.Driver.Launch(f, grid, block, sharedBytes, s, args)
}

// timer measures launches by events of the driver. Its context is the thread's.
type timer struct {
	drv      driver.Driver
	stream   driver.Stream
	from, to driver.Event
	list     int     // launches of a graph, at least
	ms       float64 // that are measured, at least
}

func newTimer(drv driver.Driver, list int, ms float64) (t *timer, err error) {
	t = &timer{drv: drv, list: list, ms: ms}
	if t.stream, err = drv.NewStream(); err != nil {
		return nil, err
	}
	if t.from, err = drv.NewEvent(); err != nil {
		return nil, err
	}
	t.to, err = drv.NewEvent()
	return t, err
}

// close is for a context that goes on; the objects of another go with it.
func (t *timer) close() {
	for _, e := range []driver.Event{t.from, t.to} {
		_ = t.drv.CloseEvent(e) // nothing waits for it
	}
	_ = t.drv.CloseStream(t.stream)
}

// repetitionsMost bounds what a clock that says 0 would make endless.
const repetitionsMost = 1000

// seconds is the time of one of these launches, on average. They run one after the other, time and again, as a graph: the
// host would be late with short ones.
func (t *timer) seconds(launches []recorded) (float64, error) {
	issue := func() error {
		for _, l := range launches {
			if err := t.drv.Launch(l.f, l.grid, l.block, l.sharedBytes, t.stream, l.args); err != nil {
				return fmt.Errorf("%s<%v,%v>: %w", l.name, l.grid, l.block, err)
			}
		}
		return nil
	}
	times := (t.list + len(launches) - 1) / len(launches)
	if err := t.drv.BeginCapture(t.stream); err != nil {
		return 0, err
	}
	var issueErr error
	for range times {
		if issueErr = issue(); issueErr != nil {
			break
		}
	}
	graph, err := t.drv.EndCapture(t.stream)
	if issueErr != nil {
		return 0, issueErr
	}
	if err != nil {
		return 0, err
	}
	defer t.drv.CloseGraph(graph)
	exec, err := t.drv.Instantiate(graph)
	if err != nil {
		return 0, err
	}
	defer t.drv.CloseGraphExec(exec)
	run := func(n int) (ms float64, err error) {
		if err := t.drv.RecordEvent(t.from, t.stream); err != nil {
			return 0, err
		}
		for range n {
			if err := t.drv.LaunchGraph(exec, t.stream); err != nil {
				return 0, err
			}
		}
		if err := t.drv.RecordEvent(t.to, t.stream); err != nil {
			return 0, err
		}
		if err := t.drv.SyncEvent(t.to); err != nil {
			return 0, err
		}
		return t.drv.ElapsedMS(t.from, t.to)
	}
	ms, err := run(1) // code is loaded, clocks rise
	if err != nil {
		return 0, err
	}
	n := repetitionsMost
	if ms > 0 {
		n = min(n, int(t.ms/ms)+1)
	}
	if ms, err = run(n); err != nil {
		return 0, err
	}
	return ms / 1e3 / float64(n*times*len(launches)), nil
}

//go:embed rates.ptx
var ratesPTX []byte

// rate is one of the card's own.
type rate struct {
	Name      string  `json:"name"`
	PerSecond float64 `json:"per_second"` // bytes or operations
	Unit      string  `json:"unit"`
}

const (
	rateCopy   = "copy"
	rateSingle = "mma, sums in fp32"
	rateHalf   = "mma, sums in fp16"
)

// measureRates runs rates.cu over buffers of so many bytes, and so many loops of mma.
func measureRates(drv driver.Driver, card driver.Device, p plan) (rates []rate, err error) {
	ctx, err := drv.OpenContext(card)
	if err != nil {
		return nil, err
	}
	defer drv.CloseContext(ctx)
	mps, err := drv.DeviceAttribute(card, driver.Multiprocessors)
	if err != nil {
		return nil, err
	}
	m, err := drv.LoadModule(ratesPTX)
	if err != nil {
		return nil, fmt.Errorf("rates.ptx: %w", err)
	}
	var buffers [2]uint64
	for i := range buffers {
		if buffers[i], err = drv.Alloc(p.copyBytes); err != nil {
			return nil, fmt.Errorf("%d bytes: %w", p.copyBytes, err)
		}
		if err = drv.Fill(buffers[i], byte(i), p.copyBytes, 0); err != nil {
			return nil, err
		}
	}
	if err := drv.SyncStream(0); err != nil {
		return nil, err
	}
	t, err := newTimer(drv, 1, p.ms)
	if err != nil {
		return nil, err
	}
	defer t.close()
	blocks := mps * 4
	if p.blocks > 0 {
		blocks = p.blocks
	}
	const threads, warps = 256, 256 / 32
	pieces := uint64(p.copyBytes / 16)
	operations := float64(blocks*warps*p.loops*8) * 2 * 16 * 8 * 16
	for _, r := range []struct {
		kernel, name, unit string
		args               []uint64
		work               float64
	}{
		{"rate_copy", rateCopy, "bytes", []uint64{buffers[0], buffers[1], pieces}, 2 * float64(p.copyBytes)},
		{"rate_read", "read", "bytes", []uint64{buffers[0], buffers[1], pieces}, float64(p.copyBytes)},
		{"rate_mma_f32", rateSingle, "operations", []uint64{buffers[0], uint64(p.loops)}, operations},
		{"rate_mma_f16", rateHalf, "operations", []uint64{buffers[0], uint64(p.loops)}, operations},
	} {
		f, err := drv.Function(m, r.kernel)
		if err != nil {
			return nil, fmt.Errorf("rates.ptx: %w", err)
		}
		s, err := t.seconds([]recorded{{r.kernel, f, [3]int{blocks, 1, 1}, [3]int{threads, 1, 1}, 0, r.args}})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", r.kernel, err)
		}
		rates = append(rates, rate{r.name, r.work / s, r.unit})
	}
	return rates, nil
}
