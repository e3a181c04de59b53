package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/kernels/cuda"
	"github.com/openinfer-go/openinfer/kvcache"
	"github.com/openinfer-go/openinfer/models/chat"
	"github.com/openinfer-go/openinfer/sched"
)

// load opens the device, loads every model, takes the arena and makes the scheduler.
func (e *Engine) load(ctx context.Context) error {
	d, err := openDevice(e.options)
	if err != nil {
		return err
	}
	card, isCard := d.(*cuda.Device)
	if isCard && e.options.Device != ptxDevice {
		e.mu.Lock()
		if e.monitor, err = newMonitor(card.Card()); err != nil {
			e.log.Info("no metrics of the card", "reason", err)
		}
		e.mu.Unlock()
	}
	if isCard && e.options.Device == ptxDevice {
		e.log.Warn("the device is an interpreter of the cards' kernels: for tests, and very slow")
	}
	if e.options.wrap != nil {
		d = e.options.wrap(d)
	}
	e.use(d)
	e.progress("device " + d.Info().Description)
	if card := d.Info().Simulated; card != "" {
		e.log.Warn("nothing is computed: answers are made up, times and memory are those of a simulated card", "card", card)
	}
	if err := e.loadModels(ctx); err != nil {
		return err
	}
	ms, scratch, err := e.planModels()
	if err != nil {
		return err
	}
	plan, err := planMemory(d.Info(), ms, e.planTokens(), scratch, e.options.KVMemory, e.options.WeightMemory)
	if err != nil {
		return err
	}
	e.follow(&plan)
	for _, m := range e.models { // of any weights, on the device or not
		m.prior = e.prior(m)
	}
	if err := e.takeMemory(&plan); err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.plan = plan
	if err := e.newScheduler(); err != nil {
		return err
	}
	return ctx.Err()
}

// use makes d the engine's device.
func (e *Engine) use(d kernels.Device) {
	e.device, e.inFlight = d, 1
	if overlap := e.options.Overlap; overlap == nil && d.Info().Dedicated || overlap != nil && *overlap {
		e.inFlight = 2
	}
}

// planTokens is how many tokens steps that are planned at a time have at most.
func (e *Engine) planTokens() int { return e.options.MaxBatchedTokens * e.inFlight }

// planModels are the loaded models as planMemory takes them, and the scratch of the largest step of any.
func (e *Engine) planModels() (ms []planModel, scratch int64, err error) {
	ms = make([]planModel, len(e.models))
	for i, m := range e.models {
		scratch = max(scratch, m.scratchBytes(e.options.MaxBatchedTokens))
		dtype, err := KVCacheType(m.spec.KVCacheDType, e.device.Info().KVTypes...)
		if err != nil {
			return nil, 0, fmt.Errorf("model %s: %w", m.name(), err)
		}
		ms[i] = planModel{
			name: m.name(), weightBytes: m.impl.Shape().WeightBytes, groups: m.impl.Groups(), dtype: dtype,
			maxPosition: m.maxPosition, maxModelLen: m.spec.MaxModelLen, maxSeqs: m.spec.MaxNumSeqs,
		}
	}
	return ms, scratch, nil
}

// follow tells the models what the plan has for each.
func (e *Engine) follow(plan *MemoryPlan) {
	for i, m := range e.models {
		p := &plan.Models[i]
		m.cut = p.cut
		m.info.WeightBytes, m.info.KVCacheDType = p.WeightBytes, p.KVCacheDType
		m.info.BlockTokens = p.BlockTokens
		m.info.MaxModelLen, m.info.CacheTokens = p.MaxModelLen, p.CacheTokens
	}
}

// progress tells what is going on, one message at a time.
func (e *Engine) progress(message string) {
	e.progressMu.Lock()
	defer e.progressMu.Unlock()
	e.options.Progress(message)
}

// takeMemory parks what the plan has no room for, takes the arena, and brings back what had made room while the
// others were loaded.
func (e *Engine) takeMemory(plan *MemoryPlan) (err error) {
	for i, m := range e.models {
		if m.resident && plan.Models[i].Parked {
			m.impl.Unload(e.device)
			m.resident = false
		}
	}
	a, scratch := &e.arena, plan.ScratchBytes
	if a.buffer, err = e.device.Alloc(align(scratch, 4096) + plan.KVBytes); err != nil {
		return fmt.Errorf("memory: %s of scratch and %s of KV cache: %w", bytesText(scratch), bytesText(plan.KVBytes), err)
	}
	a.scratch = a.buffer.Slice(0, scratch)
	a.pages = a.buffer.Slice(align(scratch, 4096), plan.KVBytes)
	for i, m := range e.models {
		if m.resident || plan.Models[i].Parked {
			continue
		}
		e.progress("loading " + m.name())
		if err := e.bring(m); err != nil {
			return fmt.Errorf("model %s: %w", m.name(), err)
		}
		m.resident = true
	}
	return nil
}

// loadModels loads the models side by side, so that each is known and was checked. The first that
// fails stops the others. When they might not fit together they come one by one, and go again as long as there
// is no room for the largest to come beside them.
func (e *Engine) loadModels(ctx context.Context) error {
	room, sizes := e.weightRoom()
	sum := int64(0)
	for _, n := range sizes {
		sum += n
	}
	loading := newLoading(sizes, e.options.Loading)
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(4)
	tight := room > 0 && sum > room
	if tight {
		g.SetLimit(1)
	}
	held := int64(0)
	for i, m := range e.models {
		g.Go(func() error {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := e.loadOne(m, loading); err != nil {
				return err
			}
			m.resident = true
			if tight {
				largest := slices.Max(append(sizes[i+1:], 0))
				if held += m.impl.Shape().WeightBytes; held+largest > room {
					held -= m.impl.Shape().WeightBytes
					m.impl.Unload(e.device)
					m.resident = false
				}
			}
			return nil
		})
	}
	return g.Wait()
}

// weightRoom estimates what memory there is for weights, 0 when that is not known, and what the models' take.
func (e *Engine) weightRoom() (room int64, sizes []int64) {
	info := e.device.Info()
	if room = info.MemoryBytes; room > 0 {
		room -= max(minReserve, room/20)
	}
	if limit := e.options.WeightMemory; limit > 0 && (room == 0 || limit < room) {
		room = limit
	}
	sizes = make([]int64, len(e.models))
	for i, m := range e.models {
		if d, err := Describe(m.spec); err == nil { // else loading it says what is wrong
			sizes[i] = d.Bytes
		}
		if info.Simulated != "" && sizes[i] == 0 { // a config alone says it only once it is loaded
			sizes[i] = room
		}
	}
	return room, sizes
}

func (e *Engine) loadOne(m *model, l *loading) error {
	e.progress("loading " + m.name())
	if err := e.options.loadModel(&counted{Device: e.device, loading: l, model: m.index}, m); err != nil {
		return fmt.Errorf("model %s: %w", m.name(), err)
	}
	l.set(m.index, l.sizes[m.index])
	for _, w := range m.odd {
		e.log.Warn("the checkpoint contradicts itself", "model", m.name(), "what", w)
	}
	if m.chatErr != nil && !errors.Is(m.chatErr, chat.ErrNoTemplate) {
		e.log.Warn("the chat template cannot be used: chats are refused, completions are served", "model", m.name(), "error", m.chatErr)
	}
	e.progress("loaded " + m.name())
	return nil
}

// newScheduler makes an empty pool and a scheduler over it: at start-up, and after a panic in the
// one before. It is called with mu held.
func (e *Engine) newScheduler() error {
	pool := kvcache.NewPool(e.plan.Pages)
	s := sched.New(pool, sched.Limits{
		MaxWaiting: e.options.MaxWaitingTotal, InFlight: e.inFlight, WeightBytes: e.plan.WeightLimit,
		MinResident: e.options.minResident,
	})
	for _, m := range e.models {
		p := &e.plan.Models[m.index]
		c := m.cut.config(m.name(), p.Snapshots, p.SnapshotTokens)
		c.NoPrefixCache = e.options.PrefixCache != nil && !*e.options.PrefixCache
		c.Weight = m.recomputing(p.TokenBytes)
		cache, err := pool.NewCache(c)
		if err != nil {
			return fmt.Errorf("model %s: %w", m.name(), err)
		}
		err = s.AddModel(sched.Model{
			Name: m.name(), Cache: cache, MaxTokens: m.info.MaxModelLen, Regimes: m.regimes,
			MaxBatchTokens: e.options.MaxBatchedTokens, MaxSeqs: m.spec.MaxNumSeqs, MaxWaiting: e.options.MaxWaiting,
			Weight: m.spec.Weight, SLA: m.spec.SLA, Prior: m.prior,
			WeightBytes: p.WeightBytes, LoadTime: m.loadTime, Parked: !m.resident,
		})
		if err == nil {
			m.keepAlive = m.spec.keepAlive()
			err = s.KeepAlive(m.name(), m.keepAlive)
		}
		if err != nil {
			return fmt.Errorf("model %s: %w", m.name(), err)
		}
	}
	e.pool, e.sched = pool, s
	return nil
}

// unload gives all memory back.
func (e *Engine) unload() {
	if e.device == nil {
		return
	}
	for _, m := range e.models {
		if m.resident {
			m.impl.Unload(e.device)
			m.resident = false
		}
	}
	if e.arena.buffer.Len > 0 {
		e.device.Free(e.arena.buffer)
	}
	e.arena = arena{}
	if err := e.device.Close(); err != nil {
		e.log.Error("closing the device", "error", err)
	}
}
