package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/kernels/sim"
	"github.com/openinfer-go/openinfer/models/checkpoint"
)

// A forecast is made by what serves: models are loaded onto a sim.Meter, which takes no time and has no end of
// memory; planMemory decides what a card has room for; the models' own forward passes, issued on the card's meter, say
// how long steps take; and the scheduler says who makes room for whom.

// PlanOptions say what Plan is asked.
type PlanOptions struct {
	// Options are the server's. Device is "sim:CARD" or, for all cards, "".
	Options
	Cards []string // instead of Device
	// Contexts are in tokens before the answer. Nil: 0, 8K, 16K, 32K and 56K.
	Contexts []int
	// Concurrency are numbers of requests at once. Nil: the powers of two up to 128.
	Concurrency []int
	// AnswerTokens are those that a request may answer. 0: 8192.
	AnswerTokens int
}

const (
	defaultAnswer  = 8192
	defaultTPOT    = 50 * time.Millisecond
	defaultTTFT    = 2 * time.Second
	sustainSeconds = 30 // that the published tables measure each cell for

	maxPlanTokens   = 1 << 24
	maxPlanRequests = 1 << 12
	maxPlanList     = 64
)

// Plan tells what a server with these options would do on simulated cards. A card that is too small is not an error:
// the forecast says so.
func Plan(ctx context.Context, o PlanOptions) (*Forecast, error) {
	specs, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	p, err := newPlanner(o)
	if err != nil {
		return nil, err
	}
	for i := range p.engine.models {
		if err := p.load(ctx, i); err != nil {
			return nil, err
		}
	}
	if err := p.facts(); err != nil {
		return nil, err
	}
	for _, s := range specs {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		c, err := p.card(s)
		if err != nil {
			return nil, err
		}
		p.out.Cards = append(p.out.Cards, c)
	}
	return p.out, nil
}

// withDefaults checks what is not a server's option and fills in what was left out.
func (o *PlanOptions) withDefaults() ([]sim.Spec, error) {
	names := o.Cards
	switch card, simulated := strings.CutPrefix(o.Device, simPrefix); {
	case simulated && len(names) > 0 && !slices.Equal(names, []string{card}):
		return nil, fmt.Errorf("engine: device %s and cards %s: name the card once", o.Device, strings.Join(names, ", "))
	case simulated:
		names = []string{card}
	case o.Device != "":
		return nil, fmt.Errorf("engine: device %q: plans are for simulated cards: sim:CARD with one of %s", o.Device, strings.Join(SimulatedCards(), ", "))
	case len(names) == 0:
		names = SimulatedCards()
	}
	var specs []sim.Spec
	for _, name := range names {
		s, err := sim.Find(name)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(specs, s) {
			specs = append(specs, s)
		}
	}
	o.Device = simPrefix + specs[0].Name
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.AnswerTokens == 0 {
		o.AnswerTokens = defaultAnswer
	}
	if o.AnswerTokens < 1 || o.AnswerTokens > maxPlanTokens {
		return nil, fmt.Errorf("engine: answer tokens: %d is not in [1, %d]", o.AnswerTokens, maxPlanTokens)
	}
	var err error
	if o.Contexts, err = planList("context", o.Contexts, []int{0, 8 << 10, 16 << 10, 32 << 10, 56 << 10}, 0, maxPlanTokens); err != nil {
		return nil, err
	}
	o.Concurrency, err = planList("concurrency", o.Concurrency, []int{1, 2, 4, 8, 16, 32, 64, 128}, 1, maxPlanRequests)
	return specs, err
}

// planList is a list of numbers in order, each once.
func planList(what string, list, otherwise []int, least, most int) ([]int, error) {
	if list == nil {
		return otherwise, nil
	}
	list = slices.Clone(list)
	slices.Sort(list)
	list = slices.Compact(list)
	for _, n := range list {
		if n < least || n > most {
			return nil, fmt.Errorf("engine: %s: %d is not in [%d, %d]", what, n, least, most)
		}
	}
	if n := len(list); n == 0 || n > maxPlanList {
		return nil, fmt.Errorf("engine: %s: %d numbers, want 1 to %d", what, n, maxPlanList)
	}
	return list, nil
}

// planner has the models on a meter.
type planner struct {
	options PlanOptions
	engine  *Engine
	meter   *sim.Meter
	models  []planModel
	out     *Forecast
}

func newPlanner(o PlanOptions) (*planner, error) {
	e, err := New(o.Options)
	if err != nil {
		return nil, err
	}
	meter := sim.NewMeter(sim.Spec{}) // only what cards have in common counts
	e.use(meter)
	return &planner{options: o, engine: e, meter: meter, out: &Forecast{
		Format: ForecastFormat, Simulated: true, AnswerTokens: o.AnswerTokens, Contexts: o.Contexts, Concurrency: o.Concurrency,
		BatchedTokens: e.options.MaxBatchedTokens, SustainSeconds: sustainSeconds,
		DefaultTPOT: defaultTPOT.Seconds(), DefaultTTFT: defaultTTFT.Seconds(),
	}}, nil
}

// weighed is a device that keeps what it is given.
type weighed struct {
	kernels.Device
	mu    sync.Mutex
	parts []kernels.Matrix
}

// Load implements kernels.Device.
func (w *weighed) Load(parts ...kernels.Matrix) (*kernels.Weight, error) {
	w.mu.Lock()
	w.parts = append(w.parts, parts...)
	w.mu.Unlock()
	return w.Device.Load(parts...)
}

// load puts a model on the meter and notes what its weights are.
func (p *planner) load(ctx context.Context, i int) (err error) {
	m := p.engine.models[i]
	if err := ctx.Err(); err != nil {
		return err
	}
	c, err := openCheckpoint(m.spec, true)
	if err != nil {
		return fmt.Errorf("model %s: %w", m.name(), err)
	}
	defer func() {
		if cerr := c.Close(); err == nil {
			err = cerr
		}
	}()
	w := &weighed{Device: p.meter}
	if m.impl, err = weightsOf(c, w, m.spec); err != nil {
		return fmt.Errorf("model %s: %w", m.name(), err)
	}
	shape := m.takeShape()
	m.info.Architecture = shape.Architecture
	p.out.Models = append(p.out.Models, ModelFacts{
		Name: m.name(), Source: string(c.Format()), Architecture: shape.Architecture, Parameters: shape.Parameters, Layers: shape.Layers,
		MaxPosition: shape.MaxPosition, MaxNumSeqs: m.spec.MaxNumSeqs,
		TPOT: targetOr(m.spec.SLA.TPOT, defaultTPOT), TTFT: targetOr(m.spec.SLA.TTFT, defaultTTFT),
	})
	m.spec.SLA = SLA{} // the scheduler is asked who makes room, not whether that is soon enough
	p.out.Models[i].weigh(w.parts, shape.Vocab, shape.WeightBytes)
	if p.out.Models[i].Source == string(checkpoint.ConfigOnly) && m.spec.Path == "" {
		p.out.Models[i].Source = "embedded config"
	}
	return nil
}

func targetOr(d, otherwise time.Duration) float64 {
	if d == 0 {
		d = otherwise
	}
	return d.Seconds()
}

// weigh tells head and embedding from the body. A table that is only looked up is the embedding and stays with the
// host; with as many rows as the vocabulary the head is what is multiplied with.
func (f *ModelFacts) weigh(parts []kernels.Matrix, vocab int, onCard int64) {
	body := map[string]int64{}
	head, embedding := "", ""
	for _, m := range parts {
		bytes := sim.PackedBytes(m)
		switch {
		case m.LookedUp:
			f.EmbeddingBytes += bytes
			f.EmbeddingHost, embedding = true, storedAs(m)
		case m.N == vocab:
			f.HeadBytes += bytes
			head = storedAs(m)
		default:
			body[storedAs(m)] += bytes
		}
	}
	f.WeightBytes, f.BodyBytes = onCard, onCard-f.HeadBytes
	most := ""
	for how, bytes := range body {
		if most == "" || bytes > body[most] || bytes == body[most] && how < most {
			most = how
		}
	}
	f.Weights = most
	if head != "" {
		f.Weights += ", head " + head
	}
	if embedding != "" {
		f.Weights += ", embedding " + embedding
	}
}

// storedAs says how a matrix lies on a card.
func storedAs(m kernels.Matrix) string {
	switch {
	case m.Bits == 0:
		return m.Type.String()
	case m.Group == m.K:
		return fmt.Sprintf("int%d a row", m.Bits)
	}
	return fmt.Sprintf("int%d g%d", m.Bits, m.Group)
}

// facts completes what is the same on every card.
func (p *planner) facts() (err error) {
	if p.models, _, err = p.engine.planModels(); err != nil {
		return err
	}
	for i, m := range p.models {
		c := cutCache(m.groups, m.dtype)
		f := &p.out.Models[i]
		f.KVCacheDType, f.TokenBytes, f.StateBytes = m.dtype.String(), c.tokenBytes(), c.stateBytes()
		f.ScratchBytes = p.engine.models[i].scratchBytes(p.engine.options.MaxBatchedTokens)
	}
	return nil
}

// memory is the server's plan for some of the models, by their places.
func (p *planner) memory(s sim.Spec, which []int) (*MemoryPlan, error) {
	ms, scratch := make([]planModel, len(which)), int64(0)
	for i, k := range which {
		ms[i], scratch = p.models[k], max(scratch, p.out.Models[k].ScratchBytes)
	}
	o := &p.engine.options
	plan, err := planMemory(sim.NewMeter(s).Info(), ms, p.engine.planTokens(), scratch, o.KVMemory, o.WeightMemory)
	if err != nil {
		return nil, err
	}
	return &plan, nil
}

// refusal is what a plan's error says, and how much more memory would do.
func refusal(err error) (text string, missing int64) {
	if err == nil {
		return "", 0
	}
	var short *shortError
	if errors.As(err, &short) {
		missing = short.missing
	}
	return err.Error(), missing
}

// card is the forecast for one card.
func (p *planner) card(s sim.Spec) (*CardForecast, error) {
	c := &CardForecast{
		Card: s.Name, Description: s.Description, Source: s.Source, MemoryBytes: s.MemoryBytes, UsableBytes: s.UsableBytes(),
		Bandwidth: s.Bandwidth, HostBandwidth: s.HostBandwidth, Rate: s.Rates[s.Coded],
	}
	all := make([]int, len(p.models))
	for i := range all {
		all[i] = i
	}
	shared, err := p.memory(s, all)
	c.Refused, c.MissingBytes = refusal(err)
	c.Memory, c.Together = shared, shared != nil && shared.WeightLimit == 0
	for i := range all {
		m := p.model(s, i, shared)
		if shared != nil && shared.Models[i].Parked {
			if m.Parks, err = p.makesRoom(s, shared, m.Name); err != nil {
				return nil, err
			}
		}
		c.Models = append(c.Models, m)
	}
	if shared != nil {
		resident := slices.DeleteFunc(slices.Clone(all), func(i int) bool { return shared.Models[i].Parked })
		r := p.set(resident, shared)
		c.Resident = &r
	}
	if !c.Together && len(all) > 1 && len(all) <= MaxSetModels {
		c.Sets, c.Best = p.sets(s)
	}
	return c, nil
}
