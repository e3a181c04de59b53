package engine

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/openinfer-go/openinfer/kernels/sim"
	"github.com/openinfer-go/openinfer/sched"
)

// Virtual is a node with a simulated card and a clock of its own, which its caller moves. The memory plan, the scheduler
// and the cache are those that serve; in the place of the step loop is arithmetic, so that hours pass in seconds. It is
// used by one goroutine.
type Virtual struct {
	engine  *Engine
	spec    sim.Spec
	watches map[string]*stopwatch
	now     time.Duration // since the beginning

	step                *sched.Plan // on the card
	stepBegan, stepEnds time.Duration
	change              *sched.Switch // on the bus
	started             time.Duration
	ends                time.Duration
	switches            int
	used                map[string]time.Duration
	rows                []stepRow
	out                 sched.Output
	onEvent             func(VirtualEvent)
	onStep              func(model string, from, to time.Duration)
}

// VirtualRow is one sequence in a step: so many tokens after the Start ones that its cache has.
type VirtualRow struct {
	Start, Tokens int
	Sampled       bool
}

// VirtualRequest is a request that counts in tokens.
type VirtualRequest struct {
	Model    string
	Prompt   []int32
	Turn     int // tokens of Prompt after which other prompts are likely to go on otherwise, such as a system prompt's; 0: none
	Tokens   int // of the answer
	SLA      SLA
	Key      string
	Priority int
	User     any
}

// VirtualEvent is what a step, or a failure, brought a request.
type VirtualEvent struct {
	User   any
	At     time.Duration
	Tokens int  // new ones
	Final  bool // the last event
	Err    error
}

// epoch is when virtual clocks begin.
var epoch = time.Unix(0, 0)

// NewVirtual loads the models onto a simulated card: o.Device is "sim:" and its name. each is told what becomes of requests.
func NewVirtual(o Options, each func(VirtualEvent)) (*Virtual, error) {
	name, ok := strings.CutPrefix(o.Device, "sim:")
	if !ok {
		return nil, fmt.Errorf("engine: device %q: only a simulated one has a virtual clock", o.Device)
	}
	spec, err := sim.Find(name)
	if err != nil {
		return nil, err
	}
	e, err := New(o)
	if err != nil {
		return nil, err
	}
	if err := e.load(context.Background()); err != nil {
		return nil, err
	}
	v := &Virtual{engine: e, spec: spec, watches: map[string]*stopwatch{}, used: map[string]time.Duration{}, onEvent: each}
	for _, m := range e.models {
		kv, err := KVCacheType(m.spec.KVCacheDType, e.device.Info().KVTypes...)
		if err != nil {
			return nil, err
		}
		v.watches[m.name()] = newStopwatch(m.impl, kv, spec)
	}
	return v, nil
}

// Plan is the memory plan.
func (v *Virtual) Plan() MemoryPlan { return v.engine.plan }

// CardBytes is the card's memory.
func (v *Virtual) CardBytes() int64 { return v.spec.MemoryBytes }

// Now is the clock.
func (v *Virtual) Now() time.Duration { return v.now }

// Switches is how often weights came to the card.
func (v *Virtual) Switches() int { return v.switches }

// DeviceTime is how long steps of the model were on the card.
func (v *Virtual) DeviceTime(model string) time.Duration { return v.used[model] }

// StepTime is how long the card takes for a step of the model.
func (v *Virtual) StepTime(model string, rows []VirtualRow) time.Duration {
	v.rows = v.rows[:0]
	for _, r := range rows {
		v.rows = append(v.rows, stepRow{r.Start, r.Tokens})
	}
	return seconds(v.watches[model].seconds(v.rows))
}

// LoadTime is how long the model's weights take from the host's memory to the card.
func (v *Virtual) LoadTime(model string) time.Duration {
	return seconds(float64(v.WeightBytes(model)) / v.spec.HostBandwidth)
}

// WeightBytes is what the model's weights take on the card.
func (v *Virtual) WeightBytes(model string) int64 {
	return v.engine.byName[model].impl.Shape().WeightBytes
}

// SequenceBytes is what the cache and the state of a sequence of so many tokens take.
func (v *Virtual) SequenceBytes(model string, tokens int) int64 {
	c := v.engine.byName[model].cut
	return c.blocksFor(tokens, 1)*c.blockBytes + c.stateBytes()
}

// Submit offers a request at the present time. The error is the scheduler's refusal.
func (v *Virtual) Submit(r VirtualRequest) error {
	m, ok := v.engine.byName[r.Model]
	if !ok {
		return fmt.Errorf("%w: %q", ErrUnknownModel, r.Model)
	}
	marks := m.snapshotMarks(r.Prompt)
	if m.cut.state != nil && r.Turn > 0 {
		marks = []int{r.Turn}
	}
	err := v.engine.sched.Submit(epoch.Add(v.now), &sched.Sequence{
		Model: r.Model, Prompt: r.Prompt, MaxTokens: r.Tokens, Marks: marks,
		SLA: r.SLA, Key: r.Key, Priority: r.Priority, User: r.User,
	})
	return m.refused(err)
}

// Run moves the clock to that time.
func (v *Virtual) Run(until time.Duration) {
	for {
		v.begin()
		next := until
		if v.step != nil {
			next = min(next, v.stepEnds)
		} else if w := v.engine.sched.Wake(epoch.Add(v.now)); !w.IsZero() && w.Sub(epoch) > v.now {
			next = min(next, w.Sub(epoch))
		}
		if v.change != nil {
			next = min(next, v.ends)
		}
		if next >= until {
			v.now = until
			return
		}
		v.now = next
		if v.step != nil && v.stepEnds <= v.now {
			v.commit()
		}
		if v.change != nil && v.ends <= v.now {
			v.engine.sched.Switched(v.change, nil, epoch.Add(v.now))
			v.change = nil
			v.deliver()
		}
	}
}

// OnStep has each step told when it ends: f gets its model and when it was on the card.
func (v *Virtual) OnStep(f func(model string, from, to time.Duration)) { v.onStep = f }

// Capacity is what the node would tell a balancer of the model now.
func (v *Virtual) Capacity(model string) Capacity {
	return capacity(v.engine.sched, model, epoch.Add(v.now))
}

// Idle says that nothing waits or runs.
func (v *Virtual) Idle() bool { return v.engine.sched.Idle() }

// begin puts on the card and on the bus what may go there now.
func (v *Virtual) begin() {
	now := epoch.Add(v.now)
	if v.change == nil {
		if v.change = v.engine.sched.Switch(now); v.change != nil {
			v.started, v.ends = v.now, v.now
			if v.change.Load != "" {
				v.ends += v.LoadTime(v.change.Load)
				v.switches++
			}
		}
	}
	if v.step == nil {
		if v.step = v.engine.sched.Plan(now); v.step == nil {
			return
		}
		v.rows = v.rows[:0]
		for i := range v.step.Rows {
			v.rows = append(v.rows, stepRow{v.step.Rows[i].Start, v.step.Rows[i].N})
		}
		took := seconds(v.watches[v.step.Model].seconds(v.rows))
		v.stepBegan, v.stepEnds = v.now, v.now+took
		v.used[v.step.Model] += took
	}
}

// commit ends the step: every row that samples has drawn a token.
func (v *Virtual) commit() {
	n := len(v.step.Rows)
	v.out.Tokens = resize(v.out.Tokens, n)
	for i := range v.step.Rows {
		v.out.Tokens[i] = nil
		if v.step.Rows[i].Samples > 0 {
			v.out.Tokens[i] = drawn
		}
	}
	if v.onStep != nil {
		v.onStep(v.step.Model, v.stepBegan, v.stepEnds)
	}
	v.engine.sched.Commit(v.step, v.out, nil, epoch.Add(v.now))
	v.step = nil
	v.deliver()
}

// drawn is the token that every row draws: nothing looks at it.
var drawn = []int32{0}

func (v *Virtual) deliver() {
	for _, ev := range v.engine.sched.Events() {
		v.onEvent(VirtualEvent{User: ev.Seq.User, At: v.now, Tokens: len(ev.Tokens), Final: ev.Reason != sched.None, Err: ev.Err})
	}
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
