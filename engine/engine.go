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
	admission *admission
	allReady  chan struct{} // closed when every model is loaded
	inbox     inbox
	heartbeat atomic.Int64 // nanoseconds since 1970; 0: no loop

	progressMu sync.Mutex // one call of Options.Progress at a time

	mu     sync.Mutex // guards what follows, none of which the loop waits for
	plan   MemoryPlan
	loaded bool // Load was called
	stop   context.CancelFunc
	done   chan struct{} // closed when the loop has ended
	closed bool
	stats  Stats

	// The rest is the loop's own, set by Load before it starts.
	device             kernels.Device
	arena              arena
	sched              *sched.Scheduler
	pool               *kvcache.Pool
	step               step
	live               map[*sequence]struct{}
	arrived, cancelled []*request
	out                []delivery
	published          time.Time
	stepErrors         int64
	unverified         bool // steps have run since everything was recounted
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
		byName: map[string]*model{}, admission: newAdmission(o.MaxWaitingTotal), allReady: make(chan struct{}),
		inbox: inbox{wake: make(chan struct{}, 1)}, live: map[*sequence]struct{}{},
	}
	for i, spec := range o.Models {
		m := &model{index: i, spec: spec}
		m.info = ModelInfo{Name: spec.Name, Path: spec.Path, Created: e.created}
		e.models = append(e.models, m)
		e.byName[spec.Name] = m
		e.admission.models = append(e.admission.models, admissionModel{maxSeqs: spec.MaxNumSeqs, maxWaiting: o.MaxWaiting})
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
		e.admission.close()
		e.unload()
		stop()
		e.mu.Lock()
		e.closed = true
		e.mu.Unlock()
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
	e.admission.close()
	e.mu.Lock()
	e.closed = true
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
	e.admission.close()
	select {
	case <-e.admission.drained:
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
	}
	return infos
}

// Model is Models for one name, or ErrUnknownModel.
func (e *Engine) Model(name string) (ModelInfo, error) {
	m, ok := e.byName[name]
	if !ok {
		return ModelInfo{}, fmt.Errorf("%w: %q", ErrUnknownModel, name)
	}
	return m.describe(), nil
}

// ready returns a model that can be used.
func (e *Engine) ready(name string) (*model, error) {
	m, ok := e.byName[name]
	switch {
	case !ok:
		return nil, fmt.Errorf("%w: %q", ErrUnknownModel, name)
	case !m.ready.Load():
		if e.admission.isClosed() {
			return nil, ErrClosed
		}
		return nil, fmt.Errorf("%w: %s", ErrNotReady, name)
	}
	return m, nil
}

// Admit is the cheap check before a request's text is touched: it returns what Generate would
// (ErrUnknownModel, ErrNotReady, ErrClosed, *OverCapacityError) for n more sequences now, and
// reserves nothing.
func (e *Engine) Admit(model string, n int) error {
	m, err := e.ready(model)
	if err != nil {
		return err
	}
	return e.admission.enter(m.index, max(n, 1), true)
}

// Await waits until a model that is still loading is ready. Who waits counts as a waiting sequence,
// so queues are bounded while models load, too. Its errors are those of Admit, ErrClosed when
// loading failed, and ctx's.
func (e *Engine) Await(ctx context.Context, model string) error {
	m, ok := e.byName[model]
	if !ok {
		return fmt.Errorf("%w: %q", ErrUnknownModel, model)
	}
	if m.ready.Load() {
		return nil
	}
	if err := e.admission.enter(m.index, 1, false); err != nil {
		return err
	}
	defer e.admission.withdraw(m.index, 1)
	select {
	case <-e.allReady:
		return nil
	case <-e.admission.closing:
		return ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Plan is the memory plan made at start-up; the zero plan before.
func (e *Engine) Plan() MemoryPlan {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.plan
}
