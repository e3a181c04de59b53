package virtual

import (
	"errors"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/openinfer-go/openinfer/bench/fleet"
	"github.com/openinfer-go/openinfer/engine"
)

// FleetOptions are what the fleets of a scenario are made of. All nodes have the same card.
type FleetOptions struct {
	Card         string // as the sim device names it
	KVCacheDType string
	// CheckEvery is how often the balancer asks nodes for their free capacity, Tries how many nodes it offers a request.
	CheckEvery time.Duration
	Tries      int
	// Spread has it send requests to all nodes alike, as balancers do that know nothing of models.
	Spread bool
	VLLM   VLLM
	// Progress is told what has ended; it may be nil and is called by one goroutine at a time.
	Progress func(done, all int)
}

// Kind is a way of serving models from nodes.
type Kind int

// Kinds of fleets.
const (
	Pooled        Kind = iota // every model on every node
	Dedicated                 // a node has one model; the same engine
	DedicatedVLLM             // a node has one model and serves it as VLLM describes
)

func (k Kind) String() string {
	return [...]string{"pooled", "dedicated", "dedicated, vLLM"}[k]
}

// Fleets runs the scenario with each seed at fleets of each kind and compares the first with the others.
func Fleets(s fleet.Scenario, o FleetOptions, kinds []Kind, seeds []uint64) (fleet.Result, error) {
	if err := s.Check(); err != nil {
		return fleet.Result{}, err
	}
	runs := make([][]fleet.Fleet, len(seeds))
	done := make(chan struct{})
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		n := 0
		for range done {
			if n++; o.Progress != nil {
				o.Progress(n, len(seeds)*len(kinds))
			}
		}
	}()
	var g errgroup.Group
	g.SetLimit(runtime.GOMAXPROCS(0))
	for i, seed := range seeds {
		runs[i] = make([]fleet.Fleet, len(kinds))
		requests := s.Draw(seed)
		for j, kind := range kinds {
			g.Go(func() error {
				f, err := Fleet(s, o, kind, requests)
				runs[i][j] = f
				done <- struct{}{}
				return err
			})
		}
	}
	err := g.Wait()
	close(done)
	<-finished
	if err != nil {
		return fleet.Result{}, err
	}
	r := fleet.NewResult(s, seeds, runs)
	r.Simulated, r.Virtual = o.Card, true
	return r, nil
}

// trial is one load at one fleet.
type trial struct {
	scenario fleet.Scenario
	requests []fleet.Request
	shared   [][]int32 // by model: what its prompts begin with
	balancer *balancer
	recorder *fleet.Recorder
	at       []int // by request: the server that has it
	left     int   // requests accepted and not ended
	err      error
}

// Fleet runs a scenario's requests at one fleet.
func Fleet(s fleet.Scenario, o FleetOptions, kind Kind, requests []fleet.Request) (fleet.Fleet, error) {
	models := make([][]int, s.Nodes) // by node
	for n := range models {
		if kind != Pooled {
			models[n] = []int{n % len(s.Demands)}
			continue
		}
		for i := range s.Demands { // another one first on each node, so that what a card cannot hold is held by another
			models[n] = append(models[n], (n+i)%len(s.Demands))
		}
	}
	if kind != Pooled && s.Nodes < len(s.Demands) {
		return fleet.Fleet{}, errors.New("nodes: dedicated ones are fewer than models")
	}
	r := &trial{scenario: s, requests: requests, at: make([]int, len(requests)), recorder: fleet.NewRecorder(kind.String(), s, len(requests), models)}
	rnd := rand.New(rand.NewPCG(1, 4))
	for range s.Demands {
		r.shared = append(r.shared, tokens(rnd, nil, s.SharedTokens))
	}
	nodes := make([]host, s.Nodes)
	for n := range nodes {
		var err error
		if kind == DedicatedVLLM {
			nodes[n], err = newRival(r, o, n, models[n][0])
		} else {
			nodes[n], err = newOwn(r, o, n, models[n])
		}
		if err != nil {
			return fleet.Fleet{}, err
		}
	}
	r.balancer = newBalancer(nodes, models, len(s.Demands), o.CheckEvery, o.Tries, o.Spread)
	for i, q := range requests {
		r.balancer.run(q.Due)
		r.recorder.Offered(i, q)
		at, tries, err := r.balancer.offer(i, q.Demand)
		if err != nil || r.err != nil {
			return fleet.Fleet{}, errors.Join(err, r.err)
		}
		for range tries - 1 {
			r.recorder.Redispatched()
		}
		if at < 0 {
			r.recorder.Refused(i, q, q.Due)
			continue
		}
		r.at[i] = at
		r.left++
	}
	for now := s.Length; r.left > 0 && r.err == nil; now += time.Second {
		if now > s.Length+time.Hour {
			return fleet.Fleet{}, errors.New("fleet: requests have not ended an hour after the load")
		}
		r.balancer.run(now)
	}
	for _, n := range nodes {
		if own, ok := n.(*own); ok {
			r.recorder.Switched(own.virtual.Switches())
		}
	}
	if r.err != nil {
		return fleet.Fleet{}, r.err
	}
	return r.recorder.Fleet()
}

// prompt makes the prompt of a request.
func (r *trial) prompt(q fleet.Request) []int32 {
	return tokens(rand.New(rand.NewPCG(q.Seed, 5)), r.shared[q.Demand], q.PromptTokens-q.SharedTokens)
}

// ended is told of each request's end.
func (r *trial) ended(i int) {
	r.balancer.ended(r.requests[i].Demand, r.at[i])
	r.left--
}

// flight is a request on its way through a node.
type flight struct {
	i           int
	first, last time.Duration
	got         int
}

// own is a node that serves as this project does.
type own struct {
	of      *trial
	virtual *engine.Virtual
}

// newOwn makes node n with those models; those that the card cannot hold beside the first of them begin parked.
func newOwn(r *trial, o FleetOptions, n int, models []int) (*own, error) {
	opts := engine.Options{Log: slog.New(slog.DiscardHandler), Device: "sim:" + o.Card, KVCacheDType: o.KVCacheDType}
	for _, k := range models {
		opts.Models = append(opts.Models, engine.ModelSpec{Name: r.scenario.Demands[k].Model})
	}
	v, err := engine.NewVirtual(opts, func(ev engine.VirtualEvent) {
		f := ev.User.(*flight)
		q := r.requests[f.i]
		if f.got == 0 && ev.Tokens > 0 {
			f.first = ev.At
		}
		f.got += ev.Tokens
		if ev.Tokens > 0 {
			f.last = ev.At
			r.recorder.Tokens(ev.At, ev.Tokens)
		}
		if !ev.Final {
			return
		}
		if ev.Err != nil {
			r.recorder.Failed(f.i, q, ev.At)
		} else {
			r.recorder.Served(f.i, q, f.first, f.last, f.got)
		}
		r.ended(f.i)
	})
	if err != nil {
		return nil, err
	}
	v.OnStep(func(_ string, from, to time.Duration) { r.recorder.Busy(n, from, to) })
	return &own{r, v}, nil
}

func (w *own) offer(i int) (bool, error) {
	q := w.of.requests[i]
	d := w.of.scenario.Demands[q.Demand]
	err := w.virtual.Submit(engine.VirtualRequest{
		Model: d.Model, Prompt: w.of.prompt(q), Turn: q.SharedTokens, Tokens: q.OutputTokens, SLA: engine.SLA(d.SLA), User: &flight{i: i},
	})
	var over *engine.OverCapacityError
	if errors.As(err, &over) {
		return false, nil
	}
	return err == nil, err
}

func (w *own) run(until time.Duration) { w.virtual.Run(until) }

func (w *own) capacity(k int) engine.Capacity {
	return w.virtual.Capacity(w.of.scenario.Demands[k].Model)
}
