package virtual

import (
	"slices"
	"time"

	"github.com/openinfer-go/openinfer/engine"
)

// node is a rival: continuous batching, first come first served, no admission control, preemption of the youngest by
// recomputation; what vLLM does with its defaults. Steps of up to maxTokens hold every decoding sequence and
// then prompts in order of arrival. With several models their steps take turns.
type node struct {
	card    Card
	models  []string
	memory  int64 // for KV cache and recurrent state; of a node with one model at a time, for its weights, too
	weights int64 // for weights of resident models; 0: all are
	alone   bool  // one model is resident at a time
	// grouped: what waited for a model when it came to the card passes the head of the queue.
	grouped bool
	since   time.Duration // when a model came last

	maxSeqs, maxTokens int

	waiting  []*job // in order of arrival
	running  [][]*job
	resident []bool
	warm     []bool          // by model: what its prompts share is in the prefix cache
	used     []time.Duration // by model: when it last stepped
	turn     int
	held     int64 // of memory
	now      time.Duration

	left     time.Duration // of the step or switch that is on the card; 0: none
	stepping int           // the model of the step, -1 for a switch
	loading  int
	rows     []engine.VirtualRow
	jobs     []*job // of rows
	results  []tally
	switches int
	busy     time.Duration

	// Of a node of a fleet; nil otherwise.
	onToken func(j *job, final bool)
	onStep  func(from, to time.Duration)
}

// job is a request at a node.
type job struct {
	q           *Request
	model       int
	computed    int // tokens that are in the cache
	sampled     int
	first, last time.Duration
	bytes       int64
	user        any
}

func (j *job) tokens() int { return len(j.q.Prompt) + j.sampled }

func newNode(card Card, models []string, memory, weights int64, alone bool) *node {
	n := &node{
		card: card, models: models, memory: memory, weights: weights, alone: alone, maxSeqs: 256, maxTokens: 2048, loading: -1,
		running: make([][]*job, len(models)), resident: make([]bool, len(models)), warm: make([]bool, len(models)), used: make([]time.Duration, len(models)),
		results: make([]tally, len(models)),
	}
	sum := int64(0)
	for i, m := range models {
		n.results[i].Model = m
		if sum += card.Weights(m); (weights == 0 || sum <= weights) && (!alone || i == 0) {
			n.resident[i] = true
		} else {
			sum -= card.Weights(m)
		}
	}
	return n
}

// arrive queues a request.
func (n *node) arrive(q *Request, user any) {
	i := slices.Index(n.models, q.Model)
	n.results[i].Offered++
	n.waiting = append(n.waiting, &job{q: q, model: i, user: user})
}

// run goes on until that time, with the card to itself.
func (n *node) run(until time.Duration) {
	for {
		if n.left == 0 {
			n.start()
		}
		if n.left == 0 || n.now+n.left > until {
			break
		}
		from := n.now
		n.now += n.left
		n.busy += n.left
		n.left = 0
		if n.onStep != nil {
			n.onStep(from, n.now)
		}
		n.done()
	}
	if n.left > 0 {
		n.left -= until - n.now
		n.busy += until - n.now
		if n.onStep != nil {
			n.onStep(n.now, until)
		}
	}
	n.now = until
}

// start puts the next step or switch on the card, if there is one.
func (n *node) start() {
	n.admit()
	if n.loading >= 0 && n.makeRoom(n.loading) {
		n.stepping = -1
		n.left = n.card.Switch(n.models[n.loading])
		n.switches++
		return
	}
	for range n.models {
		n.turn = (n.turn + 1) % len(n.models)
		if n.fill(n.turn); len(n.rows) > 0 {
			n.stepping, n.used[n.turn] = n.turn, n.now
			n.left = max(n.card.Step(n.models[n.turn], n.rows), time.Microsecond)
			return
		}
	}
}

// admit moves requests from the head of the queue to running as long as they fit.
func (n *node) admit() {
	n.loading = -1
	for i := 0; i < len(n.waiting); {
		j := n.waiting[i]
		if !n.resident[j.model] { // nobody passes the head of the queue, or only who waited for this model
			if n.loading < 0 {
				n.loading = j.model
			}
			if !n.grouped {
				return
			}
			i++
			continue
		}
		if n.loading >= 0 && j.q.At > n.since {
			return
		}
		need := n.card.Sequence(j.q.Model, j.tokens()+1)
		if len(n.running[j.model]) >= n.maxSeqs || n.held+need > n.room() && n.held > 0 {
			return
		}
		n.hold(j, need)
		if n.warm[j.model] {
			j.computed = min(j.q.Shared/16*16, j.tokens()-1)
		}
		n.waiting = slices.Delete(n.waiting, i, i+1)
		n.running[j.model] = append(n.running[j.model], j)
	}
}

// makeRoom takes models without work off the card, longest unused first, until model i fits. It reports whether it does.
func (n *node) makeRoom(i int) bool {
	for {
		sum, victim, others := n.card.Weights(n.models[i]), -1, 0
		for k, in := range n.resident {
			if !in {
				continue
			}
			sum += n.card.Weights(n.models[k])
			others++
			if len(n.running[k]) == 0 && (victim < 0 || n.used[k] < n.used[victim]) {
				victim = k
			}
		}
		if (n.weights == 0 || sum <= n.weights) && (!n.alone || others == 0) {
			return true
		}
		if victim < 0 {
			return false
		}
		n.resident[victim] = false
		n.warm[victim] = !n.alone && n.warm[victim] // a process takes its cache along
	}
}

// fill makes the rows of model i's next step: what decodes, then prompts in order of arrival.
func (n *node) fill(i int) {
	for k := 0; k < len(n.running[i]); k++ {
		j := n.running[i][k]
		for k < len(n.running[i]) && n.running[i][k] == j && !n.grow(j) {
		}
	}
	n.rows, n.jobs = n.rows[:0], n.jobs[:0]
	budget := n.maxTokens
	for _, prompts := range []bool{false, true} {
		for _, j := range n.running[i] {
			todo := j.tokens() - j.computed
			if prompts != (todo > 1) || budget == 0 {
				continue
			}
			c := min(todo, budget)
			budget -= c
			n.rows = append(n.rows, engine.VirtualRow{Start: j.computed, Tokens: c, Sampled: c == todo})
			n.jobs = append(n.jobs, j)
		}
	}
}

// grow gives j memory for one token more than it has; where there is none the youngest sequence goes. False: one went.
func (n *node) grow(j *job) bool {
	need := n.card.Sequence(j.q.Model, j.tokens()+1)
	if need <= j.bytes || n.held+need-j.bytes <= n.room() {
		n.hold(j, max(need, j.bytes))
		return true
	}
	var young *job
	for _, js := range n.running {
		if len(js) > 0 {
			if y := js[len(js)-1]; young == nil || y.q.At > young.q.At {
				young = y
			}
		}
	}
	if young == j && n.held == j.bytes { // alone and too long for the memory: it runs all the same
		n.hold(j, need)
		return true
	}
	js := n.running[young.model]
	n.running[young.model] = js[:len(js)-1]
	n.hold(young, 0)
	young.computed = 0
	n.waiting = slices.Insert(n.waiting, 0, young)
	return false
}

// room is the memory for cache and state now.
func (n *node) room() int64 {
	room := n.memory
	for i, in := range n.resident {
		if n.alone && in {
			room -= n.card.Weights(n.models[i])
		}
	}
	return room
}

func (n *node) hold(j *job, bytes int64) {
	n.held += bytes - j.bytes
	j.bytes = bytes
}

// done ends what is on the card.
func (n *node) done() {
	if n.stepping < 0 {
		n.resident[n.loading], n.used[n.loading], n.since = true, n.now, n.now
		return
	}
	for k, j := range n.jobs {
		r := n.rows[k]
		j.computed += r.Tokens
		n.warm[j.model] = n.warm[j.model] || j.computed >= j.q.Shared
		if !r.Sampled {
			continue
		}
		if j.sampled++; j.sampled == 1 {
			j.first = n.now
		}
		j.last = n.now
		if n.onToken != nil {
			n.onToken(j, j.sampled >= j.q.Output)
		}
		if j.sampled >= j.q.Output {
			n.results[j.model].served(j.q, j.first, j.last, j.sampled)
			n.hold(j, 0)
			js := n.running[j.model]
			at := slices.Index(js, j)
			n.running[j.model] = slices.Delete(js, at, at+1)
		}
	}
}
