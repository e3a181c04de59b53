package virtual

import (
	"slices"
	"time"

	"github.com/openinfer-go/openinfer/engine"
)

// Card prices what is done on it.
type Card interface {
	// Step is how long a step of the model takes when it has the card to itself.
	Step(model string, rows []engine.VirtualRow) time.Duration
	// Switch is how long the model's weights take to come from the host's memory, with all that a rival does then.
	Switch(model string) time.Duration
	// Weights is what the model's weights take, Sequence what the cache and state of one of so many tokens do.
	Weights(model string) int64
	Sequence(model string, tokens int) int64
}

// priced is a Card that asks a node of ours.
type priced struct {
	v       *engine.Virtual
	startUp time.Duration // of a process, before it reads weights
}

func (p priced) Step(model string, rows []engine.VirtualRow) time.Duration {
	return p.v.StepTime(model, rows)
}
func (p priced) Switch(model string) time.Duration       { return p.startUp + p.v.LoadTime(model) }
func (p priced) Weights(model string) int64              { return p.v.WeightBytes(model) }
func (p priced) Sequence(model string, tokens int) int64 { return p.v.SequenceBytes(model, tokens) }

// FirstCome is one process with all models on the card, as ours, that takes requests as they come: one queue, no
// admission, no deadlines. Where the models do not fit together, weights go and come as the head of the queue needs them.
func FirstCome(s Setting, load []Request, until time.Duration) (Result, error) {
	v, err := engine.NewVirtual(s.options(), nil)
	if err != nil {
		return Result{}, err
	}
	p := v.Plan()
	n := newNode(priced{v, 0}, s.names(), p.KVBytes, p.WeightLimit, false)
	share([]*node{n}, load, func(*Request) int { return 0 }, until)
	return result("first come, first served", s, []*node{n}), nil
}

// Split is one process for each model, each with the same part of the memory that weights leave; the processes
// share the card's time evenly while they have work.
func Split(s Setting, load []Request, until time.Duration) (Result, error) {
	v, err := engine.NewVirtual(s.options(), nil)
	if err != nil {
		return Result{}, err
	}
	names := s.names()
	var nodes []*node
	for _, m := range names {
		nodes = append(nodes, newNode(priced{v, 0}, []string{m}, v.Plan().KVBytes/int64(len(names)), 0, false))
	}
	share(nodes, load, func(q *Request) int { return slices.Index(names, q.Model) }, until)
	return result("split by hand", s, nodes), nil
}

// processStart is what a server's process takes before it reads weights: it makes a context on the card and allocates.
const processStart = time.Second

// Swap has one model on the card at a time. A request for another one waits until the running ones are done, as do all
// that come after it, and then processes are exchanged; the weights come from the host's memory, not from a disk.
func Swap(s Setting, load []Request, until time.Duration) (Result, error) {
	return swap("one model at a time, in order", false, s, load, until)
}

// SwapGrouped is Swap, but all that wait for a model when it comes to the card are served before the next one comes.
func SwapGrouped(s Setting, load []Request, until time.Duration) (Result, error) {
	return swap("one model at a time, by model", true, s, load, until)
}

func swap(way string, grouped bool, s Setting, load []Request, until time.Duration) (Result, error) {
	v, err := engine.NewVirtual(s.options(), nil)
	if err != nil {
		return Result{}, err
	}
	p := v.Plan()
	n := newNode(priced{v, processStart}, s.names(), p.FreeBytes-p.ScratchBytes-p.ReserveBytes, 0, true)
	n.grouped = grouped
	share([]*node{n}, load, func(*Request) int { return 0 }, until)
	return result(way, s, []*node{n}), nil
}

func result(way string, s Setting, nodes []*node) Result {
	r := Result{Way: way}
	for _, n := range nodes {
		r.Length = max(r.Length, n.now)
		r.Switches += n.switches
		r.Busy += n.busy
		for i := range n.results {
			r.Models = append(r.Models, n.results[i].result())
		}
	}
	r.fairShares()
	return r
}

// share runs a load at nodes that share a card: while several have something on it, each goes on at an equal part
// of its speed, as processes on one card do. Route names the node of a request. It ends when all
// is served or at that time.
func share(nodes []*node, load []Request, route func(*Request) int, until time.Duration) {
	now := time.Duration(0)
	next := 0
	for now < until {
		active, first := 0, -1
		for i, n := range nodes {
			if n.left > 0 {
				active++
				if first < 0 || n.left < nodes[first].left {
					first = i
				}
			}
		}
		if first < 0 && next == len(load) {
			return
		}
		arrival := next < len(load) && (first < 0 || load[next].At <= now+nodes[first].left*time.Duration(active))
		passed := time.Duration(0)
		if arrival {
			passed = load[next].At - now
		} else {
			passed = nodes[first].left * time.Duration(active)
		}
		now += passed
		for i, n := range nodes {
			n.now = now
			if n.left == 0 {
				continue
			}
			work := passed / time.Duration(active)
			if !arrival && i == first {
				work = n.left
			}
			work = min(work, n.left)
			n.busy += work
			if n.stepping >= 0 {
				n.results[n.stepping].DeviceTime += work
			}
			n.left -= work
			if n.left == 0 { // may be more than one
				n.done()
				n.start()
			}
		}
		if arrival {
			n := nodes[route(&load[next])]
			n.arrive(&load[next], nil)
			next++
			if n.left == 0 {
				n.start()
			}
		}
	}
}
