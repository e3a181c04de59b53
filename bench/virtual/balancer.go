package virtual

import (
	"math"
	"slices"
	"time"

	"github.com/openinfer-go/openinfer/engine"
)

// balancer stands before the nodes of a fleet and does what HAProxy can be told to do: a backend for each model, in it a
// server for each node that has the model, agent checks that set the servers' limits and weights, and another try elsewhere
// when a node refuses.
//
//	first   the first server in the backend's order that has a place (balance first): the model is resident there, and its
//	        connections are fewer than the limit (the check's maxconn: what the node held of the model then, and its room)
//	least   where none has: the fewest connections by weight (balance leastconn), the weight being what the node says is
//	        free for the model, in percent and at least 1. The model may have to come there, and the node may refuse.
//
// A model's requests are kept together because its weights are read for one as for many: with a few on each node, most of
// the fleet's time goes into weights. Each backend has another node first. With Spread there is only the second part.
//
// A server's connections are those of its own backend: what a node does for other models is in its limit and weight.
type balancer struct {
	nodes    []host
	backends []backend // by model
	every    time.Duration
	checked  time.Duration // the next agent check
	tries    int           // of a request, the first included
	spread   bool
}

// host is a node as its balancer sees it.
type host interface {
	// offer hands over request i of the load. False: the node refused it.
	offer(i int) (bool, error)
	run(until time.Duration)
	capacity(model int) engine.Capacity
}

type backend struct{ servers []server }

type server struct {
	node   int
	served int // requests of this backend there now
	places int // of which there may be so many
	weight int
}

// newBalancer balances over nodes; models[n] are those that node n has.
func newBalancer(nodes []host, models [][]int, backends int, every time.Duration, tries int, spread bool) *balancer {
	b := &balancer{nodes: nodes, backends: make([]backend, backends), every: every, tries: tries, spread: spread}
	for k := range b.backends {
		for i := range nodes { // down from the model's own: the waves of a load go up
			n := ((k-i)%len(nodes) + len(nodes)) % len(nodes)
			if slices.Contains(models[n], k) {
				b.backends[k].servers = append(b.backends[k].servers, server{node: n})
			}
		}
	}
	return b
}

// run moves the nodes to that time, with the agent checks that fall due.
func (b *balancer) run(until time.Duration) {
	for ; b.checked <= until; b.checked += b.every {
		b.move(b.checked)
		b.check()
	}
	b.move(until)
}

func (b *balancer) move(until time.Duration) {
	for _, n := range b.nodes {
		n.run(until)
	}
}

// check asks every node what is free.
func (b *balancer) check() {
	for k := range b.backends {
		for i := range b.backends[k].servers {
			s := &b.backends[k].servers[i]
			c := b.nodes[s.node].capacity(k)
			s.weight, s.places = max(1, int(math.Round(100*c.Free))), 0
			if c.Resident && !b.spread {
				s.places = c.Held + c.Room
			}
		}
	}
}

// pick chooses a server of the backend, not the one to avoid if there is another; -1: the backend has none.
func (k *backend) pick(avoid int) int {
	for i := range k.servers {
		if s := &k.servers[i]; s.served < s.places && i != avoid {
			return i
		}
	}
	best, key := avoid, math.MaxInt
	for i := range k.servers {
		s := &k.servers[i]
		x := 0 // an idle one comes first whatever its weight: so HAProxy counts
		if s.served > 0 {
			x = (s.served + 1) * weightScale / s.weight
		}
		if i != avoid && x < key {
			best, key = i, x
		}
	}
	return best
}

// weightScale makes whole numbers of connections over weights.
const weightScale = 4096

// offer hands request i, of the model, to a node. It returns the server, -1 if all that were tried refused, and how many
// tries it took.
func (b *balancer) offer(i, model int) (at, tries int, err error) {
	k := &b.backends[model]
	at = -1
	for tries < b.tries {
		if at = k.pick(at); at < 0 {
			return -1, tries, nil
		}
		tries++
		taken, err := b.nodes[k.servers[at].node].offer(i)
		if err != nil {
			return -1, tries, err
		}
		if taken {
			k.servers[at].served++
			return at, tries, nil
		}
	}
	return -1, tries, nil
}

// ended frees the place of a request at a server.
func (b *balancer) ended(model, at int) { b.backends[model].servers[at].served-- }
