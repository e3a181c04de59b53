package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/kvcache"
	"github.com/openinfer-go/openinfer/sched"
)

// Engine serves the models of its Options. All methods may be called from any goroutine.
type Engine struct {
	options   Options
	log       *slog.Logger
	created   time.Time
	models    []*model // as in Options.Models
	byName    map[string]*model
	allReady  chan struct{} // closed when every model is loaded
	closing   chan struct{} // closed when nothing new is taken any more
	drained   chan struct{} // closed when nothing is left either
	wake      chan struct{} // one token: the loop has something to look at
	heartbeat atomic.Int64  // nanoseconds since 1970; 0: no loop
	stepCount stepCount
	grammars  *grammars

	progressMu sync.Mutex // one call of Options.Progress at a time

	// mu guards what follows: the scheduler, and what has to agree with it. It is held for
	// microseconds, never while the device runs, so whoever asks is answered at once.
	mu       sync.Mutex
	sched    *sched.Scheduler
	pool     *kvcache.Pool
	live     map[*sequence]struct{} // accepted, without a final event
	awaiting []int                  // callers of Await by model
	broken   error                  // a panic under mu: the loop is to start anew
	moving   bool                   // weights are on their way
	moved    chan struct{}          // closed, and made anew, when they have arrived
	plan     MemoryPlan
	loaded   bool // Load was called
	closed   bool // nothing new is taken
	stop     context.CancelFunc
	done     chan struct{} // closed when the loop has ended

	// Set by Load before the loop starts and constant then.
	device   kernels.Device
	monitor  *monitor // of a card; nil without
	arena    arena
	inFlight int // steps planned at a time: 2 to plan one while the one before runs

	movers sync.WaitGroup

	// The rest is the loop's own.
	spare      []*flight
	flights    []*flight // launched, oldest first
	launched   chan *flight
	landed     chan *flight
	events     []sched.Event
	out        []delivery
	unverified bool // steps have run since everything was recounted
}

// New checks o and returns an engine that has loaded nothing: Models, Health and Stats answer,
// everything else says ErrNotReady until Load is done.
func New(o Options) (*Engine, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	e := &Engine{
		options: o, log: o.Log, created: time.Now(),
		byName: map[string]*model{}, allReady: make(chan struct{}), closing: make(chan struct{}), drained: make(chan struct{}),
		wake: make(chan struct{}, 1), moved: make(chan struct{}), live: map[*sequence]struct{}{}, awaiting: make([]int, len(o.Models)), grammars: newGrammars(),
	}
	for i, spec := range o.Models {
		m := &model{index: i, spec: spec}
		m.info = ModelInfo{Name: spec.Name, Path: spec.Path, Created: e.created}
		e.models = append(e.models, m)
		e.byName[spec.Name] = m
	}
	return e, nil
}

// Open is New and Load.
func Open(ctx context.Context, o Options) (*Engine, error) {
	e, err := New(o)
	if err != nil {
		return nil, err
	}
	if err := e.Load(ctx); err != nil {
		return nil, err
	}
	return e, nil
}

// Load opens the device, loads every model and starts the step loop. It returns when every model
// is ready; its error names the model at fault, and the engine is then closed. Called once.
func (e *Engine) Load(ctx context.Context) error {
	e.mu.Lock()
	if e.loaded || e.closed {
		e.mu.Unlock()
		return errors.New("engine: Load called twice or after Close")
	}
	e.loaded = true
	run, stop := context.WithCancel(context.Background())
	loading, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(run, cancel)() // Close ends a Load in progress
	e.stop, e.done = stop, make(chan struct{})
	e.mu.Unlock()

	if err := e.load(loading); err != nil {
		e.close()
		e.unload()
		stop()
		close(e.done)
		return err
	}
	e.beat()
	for _, m := range e.models {
		m.ready.Store(true)
	}
	close(e.allReady)
	go func() {
		defer close(e.done)
		defer e.unload()
		e.loop(run)
	}()
	return nil
}

// Close ends every sequence with ErrClosed, stops the step loop and gives all memory back. A
// second Close does nothing.
func (e *Engine) Close() error {
	e.close()
	e.mu.Lock()
	stop, done := e.stop, e.done
	e.mu.Unlock()
	if stop != nil {
		stop()
		<-done
	}
	return nil
}

// Drain refuses new requests with ErrClosed and waits until the running and waiting ones are done
// or ctx ends. It returns ctx's error if sequences were left; Close then ends them.
func (e *Engine) Drain(ctx context.Context) error {
	e.close()
	select {
	case <-e.drained:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Models describes the served models in the order of Options.Models, also those still loading
// (Ready false; only Name, Path and Created set).
func (e *Engine) Models() []ModelInfo {
	infos := make([]ModelInfo, len(e.models))
	for i, m := range e.models {
		infos[i] = m.describe()
		infos[i].State, infos[i].ParkAt = e.residency(m)
	}
	return infos
}

// Model is Models for one name, or ErrUnknownModel.
func (e *Engine) Model(name string) (ModelInfo, error) {
	m, ok := e.byName[name]
	if !ok {
		return ModelInfo{}, fmt.Errorf("%w: %q", ErrUnknownModel, name)
	}
	info := m.describe()
	info.State, info.ParkAt = e.residency(m)
	return info, nil
}

// ready returns a model that can be used.
func (e *Engine) ready(name string) (*model, error) {
	m, ok := e.byName[name]
	switch {
	case !ok:
		return nil, fmt.Errorf("%w: %q", ErrUnknownModel, name)
	case m.ready.Load():
		return m, nil
	case e.isClosed():
		return nil, ErrClosed
	}
	return nil, fmt.Errorf("%w: %s", ErrNotReady, name)
}

// Plan is the memory plan made at start-up; the zero plan before.
func (e *Engine) Plan() MemoryPlan {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.plan
}
