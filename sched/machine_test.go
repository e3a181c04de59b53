package sched

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/openinfer-go/openinfer/kvcache"
)

// machine runs a scheduler in virtual time: steps one after the other, each for as long as cost says, and
// weights beside them.
type machine struct {
	t      testing.TB
	s      *Scheduler
	now    time.Time
	cost   func(*Plan) time.Duration
	load   func(name string) (time.Duration, error)
	spoil  func(*Plan, *Output) error // what goes wrong in a step; nil: nothing
	event  func(Event)
	verify bool // after each step

	steps     []underway
	change    *Switch
	changed   time.Time
	changeErr error
	switches  int
	calls     []call // in order
	out       Output
}

type underway struct {
	plan *Plan
	end  time.Time
}

// call is something to do at an instant.
type call struct {
	at time.Time
	do func()
}

var start = time.Unix(1_000_000, 0)

func newMachine(t testing.TB, pool *kvcache.Pool, limits Limits) *machine {
	return &machine{
		t: t, s: New(pool, limits), now: start, verify: true,
		cost:  func(*Plan) time.Duration { return 10 * time.Millisecond },
		load:  func(string) (time.Duration, error) { return 100 * time.Millisecond, nil },
		event: func(Event) {},
	}
}

// model adds a model of 16-token blocks, 4 a page, that holds so many bytes.
func (m *machine) model(name string, bytes int64, change func(*Model)) {
	m.t.Helper()
	c, err := m.s.pool.NewCache(kvcache.Config{Model: name, BlocksPerPage: 4, Groups: []kvcache.Group{{BlockTokens: 16}}})
	if err != nil {
		m.t.Fatal(err)
	}
	d := Model{Name: name, Cache: c, MaxTokens: 4096, MaxBatchTokens: 256, MaxSeqs: 4, MaxWaiting: 10000,
		WeightBytes: bytes, LoadTime: 100 * time.Millisecond}
	if change != nil {
		change(&d)
	}
	if err := m.s.AddModel(d); err != nil {
		m.t.Fatal(err)
	}
}

// after calls do so long after the start.
func (m *machine) after(d time.Duration, do func()) {
	at := start.Add(d)
	i, _ := slices.BinarySearchFunc(m.calls, at, func(c call, at time.Time) int {
		if c.at.After(at) {
			return 1
		}
		return -1 // equal instants: those called first
	})
	m.calls = slices.Insert(m.calls, i, call{at, do})
}

// submit is a request of one sequence, with a prompt of its own.
func (m *machine) submit(model string, prompt, max int) *Sequence {
	m.t.Helper()
	m.out.Stop = nil
	seq := &Sequence{Model: model, Prompt: make([]int32, prompt), MaxTokens: max}
	for i := range seq.Prompt {
		seq.Prompt[i] = int32(m.s.age+7) * int32(i+1)
	}
	if err := m.s.Submit(m.now, seq); err != nil {
		m.t.Fatal(err)
	}
	return seq
}

// run goes on until so long after the start, or, when everything is done before, until then.
func (m *machine) run(until time.Duration) {
	m.t.Helper()
	end := start.Add(until)
	for {
		m.settle()
		next := end
		sooner := func(t time.Time) {
			if t.Before(next) {
				next = t
			}
		}
		if len(m.steps) > 0 {
			sooner(m.steps[0].end)
		}
		if m.change != nil {
			sooner(m.changed)
		}
		if len(m.calls) > 0 {
			sooner(m.calls[0].at)
		}
		if w := m.s.Wake(m.now); !w.IsZero() {
			if !w.After(m.now) {
				m.t.Fatalf("wake %s before now", m.now.Sub(w))
			}
			sooner(w)
		}
		if next.Equal(end) {
			m.now = end
			return
		}
		m.now = next
		switch {
		case m.change != nil && !m.now.Before(m.changed):
			c := m.change
			m.change = nil
			m.s.Switched(c, m.changeErr, m.now)
			m.deliver()
		case len(m.steps) > 0 && !m.now.Before(m.steps[0].end):
			m.commit()
		case len(m.calls) > 0 && !m.now.Before(m.calls[0].at):
			do := m.calls[0].do
			m.calls = slices.Delete(m.calls, 0, 1)
			do()
		}
	}
}

// settle starts what can start now.
func (m *machine) settle() {
	for {
		if m.change == nil {
			if m.change = m.s.Switch(m.now); m.change != nil {
				took := time.Duration(0)
				m.changeErr = nil
				if m.change.Load != "" {
					took, m.changeErr = m.load(m.change.Load)
					m.switches++
				}
				m.changed = m.now.Add(took)
			}
		}
		p := m.s.Plan(m.now)
		if m.verify {
			if err := m.s.Verify(); err != nil {
				m.t.Fatal(err)
			}
		}
		m.deliver()
		if p == nil {
			return
		}
		begin := m.now
		if n := len(m.steps); n > 0 {
			begin = m.steps[n-1].end
		}
		m.steps = append(m.steps, underway{p, begin.Add(m.cost(p))})
	}
}

var anyToken = []int32{endToken + 5}

func (m *machine) commit() {
	p := m.steps[0].plan
	m.steps = append(m.steps[:0], m.steps[1:]...)
	m.out.Tokens = m.out.Tokens[:0]
	for range p.Rows {
		m.out.Tokens = append(m.out.Tokens, nil)
	}
	for i := range p.Rows {
		if p.Rows[i].Samples > 0 {
			m.out.Tokens[i] = anyToken
		}
	}
	out := Output{Tokens: m.out.Tokens}
	var err error
	if m.spoil != nil {
		err = m.spoil(p, &out)
	}
	m.s.Commit(p, out, err, m.now)
	m.deliver()
}

func (m *machine) deliver() {
	for _, e := range m.s.Events() {
		m.event(e)
	}
}

// since is a time as seconds after the start.
func since(t time.Time) string { return fmt.Sprintf("%.3f", t.Sub(start).Seconds()) }
