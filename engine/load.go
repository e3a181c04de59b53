package engine

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"

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
	if e.options.wrap != nil {
		d = e.options.wrap(d)
	}
	e.device = d
	e.progress("device " + d.Info().Description)
	if err := e.loadModels(ctx); err != nil {
		return err
	}
	scratch := int64(0)
	ms := make([]planModel, len(e.models))
	for i, m := range e.models {
		scratch = max(scratch, m.scratchBytes(e.options.MaxBatchedTokens))
		dtype, err := kvType(m.spec.KVCacheDType, d.Info().KVTypes)
		if err != nil {
			return fmt.Errorf("model %s: %w", m.name(), err)
		}
		s := m.impl.Shape()
		ms[i] = planModel{
			name: m.name(), weightBytes: s.WeightBytes, groups: m.impl.Groups(), dtype: dtype,
			maxPosition: m.maxPosition, maxModelLen: m.spec.MaxModelLen, maxSeqs: m.spec.MaxNumSeqs,
		}
	}
	plan, err := planMemory(d.Info(), ms, e.options.MaxBatchedTokens, scratch, e.options.KVMemory)
	if err != nil {
		return err
	}
	a := &e.arena
	if a.buffer, err = d.Alloc(align(scratch, 4096) + plan.KVBytes); err != nil {
		return fmt.Errorf("memory: %s of scratch and %s of KV cache: %w", bytesText(scratch), bytesText(plan.KVBytes), err)
	}
	a.scratch = a.buffer.Slice(0, scratch)
	a.pages = a.buffer.Slice(align(scratch, 4096), plan.KVBytes)
	for i, m := range e.models {
		p := &plan.Models[i]
		m.cut = p.cut
		m.info.WeightBytes, m.info.KVCacheDType = p.WeightBytes, p.KVCacheDType
		m.info.BlockTokens, m.info.Blocks = p.BlockTokens, (plan.Pages-1)*p.BlocksPerPage
		m.info.MaxModelLen, m.info.CacheTokens = p.MaxModelLen, p.CacheTokens
	}
	e.mu.Lock()
	e.plan = plan
	e.mu.Unlock()
	if err := e.newScheduler(); err != nil {
		return err
	}
	return ctx.Err()
}

// progress tells what is going on, one message at a time.
func (e *Engine) progress(message string) {
	e.progressMu.Lock()
	defer e.progressMu.Unlock()
	e.options.Progress(message)
}

// loadModels loads the models side by side. The first that fails stops the others.
func (e *Engine) loadModels(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(4)
	for _, m := range e.models {
		g.Go(func() error {
			if err := ctx.Err(); err != nil {
				return err
			}
			e.progress("loading " + m.name())
			if err := e.options.loadModel(e.device, m); err != nil {
				return fmt.Errorf("model %s: %w", m.name(), err)
			}
			for _, w := range m.odd {
				e.log.Warn("the checkpoint contradicts itself", "model", m.name(), "what", w)
			}
			if m.chatErr != nil && !errors.Is(m.chatErr, chat.ErrNoTemplate) {
				e.log.Warn("the chat template cannot be used: chats are refused, completions are served", "model", m.name(), "error", m.chatErr)
			}
			e.progress("loaded " + m.name())
			return nil
		})
	}
	return g.Wait()
}

// newScheduler makes an empty pool and a scheduler over it: at start-up, and after a panic in the
// one before.
func (e *Engine) newScheduler() error {
	pool := kvcache.NewPool(e.plan.Pages)
	s := sched.New(pool, sched.Limits{})
	for _, m := range e.models {
		p := &e.plan.Models[m.index]
		c := m.cut.config(m.name(), p.Snapshots, p.SnapshotTokens)
		c.NoPrefixCache = e.options.PrefixCache != nil && !*e.options.PrefixCache
		cache, err := pool.NewCache(c)
		if err != nil {
			return fmt.Errorf("model %s: %w", m.name(), err)
		}
		err = s.AddModel(sched.Model{
			Name: m.name(), Cache: cache, MaxTokens: m.info.MaxModelLen, Regimes: m.regimes,
			MaxBatchTokens: e.options.MaxBatchedTokens, MaxSeqs: m.spec.MaxNumSeqs,
			// admission has bounded the queues already
			MaxWaiting: e.options.MaxWaitingTotal + m.spec.MaxNumSeqs,
		})
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
		if m.impl != nil {
			m.impl.Unload(e.device)
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
