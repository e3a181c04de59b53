package fleet

import (
	"fmt"
	"time"
)

// Recorder counts what becomes of a load at one fleet. Each request of the load is Offered once and then has one end. It
// is used by one goroutine.
type Recorder struct {
	scenario Scenario
	holds    [][]bool // by node and model: the node may serve it
	fleet    Fleet
	ended    []bool // by request
	offered  []bool
	models   []tally
	busy     [][]float64 // by node and second
	curve    []Second
}

type tally struct {
	ttft, tpot, e2e []time.Duration
	rates           float64
	rated           int
}

// NewRecorder records n requests of the scenario at a fleet. nodes are the models that each may serve, as indices of
// Scenario.Demands.
func NewRecorder(name string, s Scenario, n int, nodes [][]int) *Recorder {
	r := &Recorder{scenario: s, offered: make([]bool, n), ended: make([]bool, n), models: make([]tally, len(s.Demands)), busy: make([][]float64, len(nodes))}
	r.fleet = Fleet{Name: name, Nodes: len(nodes), Seconds: s.Length.Seconds(), Models: make([]Model, len(s.Demands))}
	for k, d := range s.Demands {
		r.fleet.Models[k].Model = d.Model
	}
	for _, models := range nodes {
		holds := make([]bool, len(s.Demands))
		for _, k := range models {
			holds[k] = true
			r.fleet.Models[k].Cards++
		}
		r.holds = append(r.holds, holds)
	}
	return r
}

// Offered says that request i of the load was due.
func (r *Recorder) Offered(i int, q Request) {
	if r.offered[i] {
		panic(fmt.Sprintf("fleet: request %d offered twice", i))
	}
	r.offered[i] = true
	r.fleet.Models[q.Demand].Offered++
	r.second(q.Due).Offered++
}

// Refused says that nobody took it.
func (r *Recorder) Refused(i int, q Request, at time.Duration) {
	r.end(i)
	r.fleet.Models[q.Demand].Refused++
	r.second(at).Refused++
}

// Failed says that it ended with an error.
func (r *Recorder) Failed(i int, q Request, at time.Duration) {
	r.end(i)
	r.fleet.Models[q.Demand].Failed++
	r.flight(q.Due, at)
}

// Tokens says that tokens came to somebody.
func (r *Recorder) Tokens(at time.Duration, n int) { r.second(at).Tokens += float64(n) }

// Served says when the first and the last of its n tokens came.
func (r *Recorder) Served(i int, q Request, first, last time.Duration, n int) {
	r.end(i)
	m, t := &r.fleet.Models[q.Demand], &r.models[q.Demand]
	m.Served++
	m.Tokens += float64(n)
	ttft, tpot := first-q.Due, time.Duration(0)
	if n > 1 {
		if tpot = (last - first) / time.Duration(n-1); tpot > 0 {
			t.rates += 1 / tpot.Seconds()
			t.rated++
		}
	}
	t.ttft, t.tpot, t.e2e = append(t.ttft, ttft), append(t.tpot, tpot), append(t.e2e, last-q.Due)
	if r.scenario.Demands[q.Demand].SLA.Met(ttft, tpot) {
		m.Sellable++
		m.SellableTokens += float64(n)
	}
	r.flight(q.Due, last)
}

// Busy says that a node's card was busy from one time to another.
func (r *Recorder) Busy(node int, from, to time.Duration) { r.Used(node, from, to, 1) }

// Used says that a node's card was busy for a share of the time between.
func (r *Recorder) Used(node int, from, to time.Duration, share float64) {
	spread(from, to, func(second int, part float64) {
		for len(r.busy[node]) <= second {
			r.busy[node] = append(r.busy[node], 0)
		}
		r.busy[node][second] += share * part
	})
}

// Unmetered says that nobody knows how busy the cards were.
func (r *Recorder) Unmetered() { r.fleet.Unmetered = true }

// Redispatched counts a further try of the balancer, Switched that weights came to a card.
func (r *Recorder) Redispatched() { r.fleet.Redispatched++ }

// Switched counts n times that weights came to a card.
func (r *Recorder) Switched(n int) { r.fleet.Switches += float64(n) }

func (r *Recorder) end(i int) {
	if !r.offered[i] || r.ended[i] {
		panic(fmt.Sprintf("fleet: request %d: offered %t, ended %t", i, r.offered[i], r.ended[i]))
	}
	r.ended[i] = true
}

// flight counts a request that was there from one time to another.
func (r *Recorder) flight(from, to time.Duration) {
	spread(from, to, func(second int, part float64) { r.second(time.Duration(second) * time.Second).InFlight += part })
}

func (r *Recorder) second(at time.Duration) *Second {
	for i := int(at / time.Second); len(r.curve) <= i; {
		r.curve = append(r.curve, Second{})
	}
	return &r.curve[at/time.Second]
}

// spread calls f with each second from one time to another and the part of it that lies between.
func spread(from, to time.Duration, f func(second int, part float64)) {
	for from < to {
		next := min((from/time.Second+1)*time.Second, to)
		f(int(from/time.Second), (next - from).Seconds())
		from = next
	}
}

// Fleet is the result. A request that has no end is an error.
func (r *Recorder) Fleet() (Fleet, error) {
	f := r.fleet
	for i := range r.ended {
		if !r.ended[i] {
			return f, fmt.Errorf("fleet: %s: request %d has no end (offered: %t)", f.Name, i, r.offered[i])
		}
	}
	window := int(r.scenario.Length / time.Second) // whole seconds of the load
	for i := range r.curve {
		for node := range r.busy {
			r.curve[i].Utilisation += r.load(node, i) / float64(f.Nodes)
		}
		f.PeakInFlight = max(f.PeakInFlight, r.curve[i].InFlight)
		if i < window {
			f.PeakUtilisation = max(f.PeakUtilisation, r.curve[i].Utilisation)
			f.MeanUtilisation += r.curve[i].Utilisation / float64(window)
		}
	}
	f.Curve = r.curve
	for k := range f.Models {
		m, t := &f.Models[k], &r.models[k]
		m.TTFT50, m.TTFT95 = percentile(t.ttft, 0.5), percentile(t.ttft, 0.95)
		m.TPOT95, m.E2E95 = percentile(t.tpot, 0.95), percentile(t.e2e, 0.95)
		if t.rated > 0 {
			m.Rate = t.rates / float64(t.rated)
		}
		for node := range r.busy {
			for i := range window {
				if r.holds[node][k] {
					m.PeakUtilisation = max(m.PeakUtilisation, r.load(node, i))
					m.MeanUtilisation += r.load(node, i) / float64(window*m.Cards)
				}
			}
		}
		for _, of := range counts {
			*of(&f.All) += *of(&m.Counts)
		}
	}
	return f, nil
}

// load is the part of a second that a node's card was busy.
func (r *Recorder) load(node, second int) float64 {
	if second < len(r.busy[node]) {
		return min(r.busy[node][second], 1)
	}
	return 0
}
