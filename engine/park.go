package engine

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/openinfer-go/openinfer/models"
	"github.com/openinfer-go/openinfer/models/checkpoint"
	"github.com/openinfer-go/openinfer/models/quantize"
	"github.com/openinfer-go/openinfer/models/registry"

	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/sched"
)

// Weights leave the device and come back while other models' steps go on. When, the scheduler decides;
// here it is carried out, one change at a time, in a goroutine of its own. A parked model holds no device
// memory but its cached blocks: its weights are read from the checkpoint again.

// move begins what the scheduler wants done with weights, and returns when to ask it again though
// nothing came: the zero time for never.
func (e *Engine) move() (again time.Time) {
	for _, f := range e.flights {
		if f.dropped { // of the scheduler before, whose weights it may read
			return
		}
	}
	_ = e.under(func() { // restart sees to it
		if e.broken != nil || e.moving || e.closed && len(e.live) == 0 {
			return
		}
		now := time.Now()
		sw := e.sched.Switch(now)
		again = e.sched.Wake(now)
		if sw == nil {
			return
		}
		e.moving = true
		for _, name := range sw.Park {
			e.byName[name].resident = false
		}
		e.movers.Go(func() { e.carryOut(e.sched, sw) })
	})
	return again
}

// carryOut parks and loads what a change says, and tells the scheduler that planned it.
func (e *Engine) carryOut(s *sched.Scheduler, sw *sched.Switch) {
	for _, name := range sw.Park {
		e.byName[name].impl.Unload(e.device)
		e.log.Info("model parked", "model", name)
	}
	var err error
	if sw.Load != "" {
		m, start := e.byName[sw.Load], time.Now()
		if err = e.bring(m); err != nil {
			err = fmt.Errorf("%w: model %s: %w", ErrLoad, m.name(), err)
			e.log.Error("a model could not be loaded", "model", m.name(), "error", err)
		} else {
			e.log.Info("model loaded", "model", m.name(), "took", time.Since(start).Round(time.Millisecond))
		}
	}
	_ = e.under(func() {
		e.moving = false
		if sw.Load != "" {
			m := e.byName[sw.Load]
			m.loadErr, m.loadTries = err, m.loadTries+1
			switch {
			case e.sched != s && err == nil: // one that takes the model for parked has come instead
				m.impl.Unload(e.device)
			case err == nil:
				m.resident = true
			}
		}
		e.lookAgain()
		if e.sched == s {
			s.Switched(sw, err, time.Now())
		}
	})
	e.signal()
}

// bring reads a parked model's weights again. They are the same as before, or it is an error.
func (e *Engine) bring(m *model) (err error) {
	defer func() {
		if p := recover(); p != nil {
			e.log.Error("loading panicked", "model", m.name(), "panic", p, "stack", string(debug.Stack()))
			err = fmt.Errorf("loading panicked: %v", p)
		}
	}()
	if err := m.stamp.check(); err != nil {
		return err
	}
	impl, err := e.options.loadWeights(e.device, m)
	if err != nil {
		return err
	}
	err = m.stamp.check()
	if was, now := m.impl.Shape(), impl.Shape(); err == nil && !reflect.DeepEqual(was, now) {
		err = fmt.Errorf("the checkpoint is another one than at start-up: %+v, was %+v", now, was)
	}
	if err != nil {
		impl.Unload(e.device)
		return err
	}
	m.impl = impl
	return nil
}

// loadWeights puts a checkpoint's weights on the device.
func loadWeights(d kernels.Device, m *model) (models.Model, error) {
	c, err := openCheckpoint(m.spec, d.Info().Simulated != "")
	if err != nil {
		return nil, err
	}
	impl, err := weightsOf(c, d, m.spec)
	if cerr := c.Close(); err == nil && cerr != nil {
		impl.Unload(d)
		return nil, cerr
	}
	return impl, err
}

func weightsOf(c *checkpoint.Checkpoint, d kernels.Device, spec ModelSpec) (models.Model, error) {
	if spec.Quantize != "" {
		how, err := quantize.ParseLoad(spec.Quantize)
		if err != nil {
			return nil, err
		}
		d = how.Device(d)
	}
	return registry.Load(c, d)
}

// stamp tells whether the files of a checkpoint are those that were there before; of an embedded one there are none.
type stamp map[string]os.FileInfo

// newStamp looks at what the weights are read from: a file, or the tensor and JSON files of a folder.
func newStamp(path string) (stamp, error) {
	if path == "" {
		return nil, nil
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return stamp{path: info}, nil
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	s := stamp{}
	for _, entry := range entries {
		name := filepath.Join(path, entry.Name())
		if !strings.HasSuffix(name, ".json") && !strings.HasSuffix(name, ".safetensors") {
			continue
		}
		if s[name], err = os.Stat(name); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// check is an error when a file is another one than it was.
func (s stamp) check() error {
	for name, was := range s {
		now, err := os.Stat(name)
		if err != nil {
			return err
		}
		if !os.SameFile(was, now) || now.Size() != was.Size() || !now.ModTime().Equal(was.ModTime()) {
			return fmt.Errorf("%s has changed since start-up (%d bytes of %s, was %d of %s): start the server anew to serve it", name,
				now.Size(), now.ModTime().Format(time.RFC3339), was.Size(), was.ModTime().Format(time.RFC3339))
		}
	}
	return nil
}

// LoadModel has a model's weights brought to the device and returns when they are there, or have been. Models that
// have work do not make room for it. An UnloadModel meanwhile takes it back. Its errors are ErrUnknownModel, ErrNotReady, ErrClosed, ErrLoad and ctx's.
func (e *Engine) LoadModel(ctx context.Context, name string) error {
	m, err := e.ready(name)
	if err != nil {
		return err
	}
	tries := 0
	return e.awaitMove(ctx, func() error {
		m.loading, m.unloading = true, false
		tries = m.loadTries
		return e.sched.Load(name, time.Now())
	}, func() (bool, error) {
		if m.loadTries > tries { // they may have left again by now
			return true, m.loadErr
		}
		return !m.loading || e.sched.Residency(name) == sched.Resident, nil
	})
}

// KeepAlive sets how long a model stays on the device without a request, as Request.KeepAlive does without one: until
// the next request. Its errors are ErrUnknownModel, ErrNotReady and ErrClosed.
func (e *Engine) KeepAlive(name string, d time.Duration) error {
	m, err := e.ready(name)
	if err != nil {
		return err
	}
	broken := e.under(func() {
		if e.closed {
			err = ErrClosed
			return
		}
		e.stays(m, d)
	})
	e.signal()
	return cmp.Or(broken, err)
}

// UnloadModel parks a model and returns when its weights have left the device: once its running sequences have
// ended, or with force at once, and they and the waiting ones end with ErrUnloaded. What asks for the model later, or still
// waits, brings it back. A LoadModel meanwhile takes it back. Its errors are ErrUnknownModel, ErrNotReady, ErrClosed
// and ctx's.
func (e *Engine) UnloadModel(ctx context.Context, name string, force bool) error {
	m, err := e.ready(name)
	if err != nil {
		return err
	}
	var why error
	if force {
		why = fmt.Errorf("%w: %s", ErrUnloaded, name)
	}
	parks := uint64(0)
	return e.awaitMove(ctx, func() error {
		parks = e.sched.Stats()[m.index].Parks
		m.loading, m.unloading = false, e.sched.Residency(name) != sched.Parked
		return e.sched.Park(name, why, time.Now())
	}, func() (bool, error) {
		return !m.unloading || e.sched.Stats()[m.index].Parks > parks, nil
	})
}

// lookAgain has every awaitMove look whether it is done. It is called with mu held.
func (e *Engine) lookAgain() {
	close(e.moved)
	e.moved = make(chan struct{})
}

// awaitMove asks for something, with mu held, and waits until it is done. A scheduler that takes the place of
// a broken one is asked, too.
func (e *Engine) awaitMove(ctx context.Context, ask func() error, done func() (bool, error)) error {
	var over bool
	var err error
	var moved chan struct{}
	var asked *sched.Scheduler
	look := func() {
		if err = e.brokenOrClosed(); err == nil && asked != e.sched {
			asked = e.sched
			err = ask()
			e.lookAgain() // it may have taken back what others wait for
		}
		if err == nil {
			over, err = done()
		}
		moved = e.moved
	}
	for {
		if broken := e.under(look); broken != nil {
			return broken
		}
		if over || err != nil {
			return err
		}
		e.signal()
		select {
		case <-moved:
		case <-e.closing:
			return ErrClosed
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (e *Engine) brokenOrClosed() error {
	if e.closed {
		return ErrClosed
	}
	return e.broken
}

// residency is where a model's weights are, and when they are parked unless somebody asks for the model.
func (e *Engine) residency(m *model) (state string, parkAt time.Time) {
	state = "loading"
	if !m.ready.Load() {
		return state, parkAt
	}
	_ = e.under(func() { // of a broken scheduler nobody knows
		switch e.sched.Residency(m.name()) {
		case sched.Resident:
			state, parkAt = "resident", e.sched.ParkAt(m.name(), time.Now())
		case sched.Parked, sched.Parking:
			state = "parked"
		}
	})
	return state, parkAt
}

// maxKeepAlive is in seconds: ten years.
const maxKeepAlive = 10 * 365 * 24 * 60 * 60

// ParseKeepAlive reads how long a model stays on the device without a request: seconds, or a duration such as 5m; 0 is not
// at all, and what is negative (-1) for ever.
func ParseKeepAlive(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if n, nerr := strconv.ParseFloat(s, 64); nerr == nil {
		if !(n <= maxKeepAlive) {
			return 0, fmt.Errorf("%.40s is not a number of seconds of at most %d", s, int64(maxKeepAlive))
		}
		d, err = time.Duration(max(n, -1)*float64(time.Second)), nil
	}
	switch {
	case err != nil:
		return 0, fmt.Errorf("%.40q: want seconds as a number, or a duration such as 5m; -1 is for ever", s)
	case d < 0:
		return -1, nil
	}
	return d, nil
}
