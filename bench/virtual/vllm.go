package virtual

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/openinfer-go/openinfer/engine"
)

// VLLM describes a dedicated node that is held to what vLLM 0.32 was measured to do.
//
// It serves in order of arrival: up to MaxSeqs sequences decode together and up to MaxTokens tokens make a step, prompts
// in chunks behind what decodes; a sequence that finds no memory sends the youngest back to be computed again. It
// has no deadlines: the gateway before it refuses a request while Queue others wait.
//
// A step takes what the simulated card takes, times what vLLM's published time between tokens is over the simulated one
// (vllmPace); the two are a few percent apart, because the card's shares are fitted to the same table. Memory for the KV
// cache and states is MemoryShare of the card less the weights and overheadBytes.
type VLLM struct {
	MaxSeqs, MaxTokens int
	MemoryShare        float64
	Queue              int
}

// DefaultVLLM is the published server's memory share, vLLM's own limits, and a gateway that lets a quarter as many wait as
// may run.
var DefaultVLLM = VLLM{MaxSeqs: 256, MaxTokens: 2048, MemoryShare: 0.94, Queue: 64}

// overheadBytes is what vLLM takes beside weights and cache: the CUDA context, captured graphs and the largest step's activations.
// On the published card (24 GiB x 0.94 with 13.8 GB of weights, 2.5 GB of embedding that is on the card there, a cache of 65,536
// to 80,000 tokens of 32 KiB and eight states of 151 MB) about 4 GB remain. The embedding is not counted, in the rival's favour.
const overheadBytes = 4_000_000_000

// vllmPace is the published time between tokens of 1, 2, 4 and 8 streams (fleet of Qwen3.8-27B on an RTX 3090) over that of
// sim:rtx3090-unlocked; beyond, the last.
var vllmPace = []struct {
	rows int
	pace float64
}{{1, 0.998}, {2, 1.050}, {4, 1.042}, {8, 0.998}}

// pace is vllmPace of so many rows, in a straight line between its points.
func pace(rows int) float64 {
	for i := 1; i < len(vllmPace); i++ {
		if a, b := vllmPace[i-1], vllmPace[i]; rows <= b.rows {
			return a.pace + (b.pace-a.pace)*float64(max(rows, a.rows)-a.rows)/float64(b.rows-a.rows)
		}
	}
	return vllmPace[len(vllmPace)-1].pace
}

type vllmCard struct{ priced }

func (c vllmCard) Step(model string, rows []engine.VirtualRow) time.Duration {
	return time.Duration(pace(len(rows)) * float64(c.priced.Step(model, rows)))
}

// rival is a dedicated node that serves as VLLM describes.
type rival struct {
	of    *trial
	node  *node
	model int
	queue int
}

func newRival(r *trial, o FleetOptions, n, model int) (*rival, error) {
	name := r.scenario.Demands[model].Model
	opts := engine.Options{Log: slog.New(slog.DiscardHandler), Device: "sim:" + o.Card, KVCacheDType: o.KVCacheDType, Models: []engine.ModelSpec{{Name: name}}}
	v, err := engine.NewVirtual(opts, nil)
	if err != nil {
		return nil, err
	}
	memory := int64(o.VLLM.MemoryShare*float64(v.CardBytes())) - v.WeightBytes(name) - overheadBytes
	if memory <= 0 {
		return nil, fmt.Errorf("%s: a %s has no memory for its cache beside %d bytes of weights", name, o.Card, v.WeightBytes(name))
	}
	w := &rival{of: r, node: newNode(vllmCard{priced{v, 0}}, []string{name}, memory, 0, false), model: model, queue: o.VLLM.Queue}
	w.node.maxSeqs, w.node.maxTokens = o.VLLM.MaxSeqs, o.VLLM.MaxTokens
	w.node.onStep = func(from, to time.Duration) { r.recorder.Busy(n, from, to) }
	w.node.onToken = func(j *job, final bool) {
		r.recorder.Tokens(j.last, 1)
		if i := j.user.(int); final {
			r.recorder.Served(i, r.requests[i], j.first, j.last, j.sampled)
			r.ended(i)
		}
	}
	return w, nil
}

func (w *rival) offer(i int) (bool, error) {
	if len(w.node.waiting) >= w.queue {
		return false, nil
	}
	q, d := w.of.requests[i], w.of.scenario.Demands[w.model]
	w.node.arrive(&Request{At: q.Due, Model: d.Model, Prompt: w.of.prompt(q), Shared: q.SharedTokens, Output: q.OutputTokens, SLA: engine.SLA(d.SLA)}, i)
	return true, nil
}

func (w *rival) run(until time.Duration) { w.node.run(until) }

func (w *rival) capacity(int) engine.Capacity {
	running, waiting := len(w.node.running[0]), len(w.node.waiting)
	room := w.node.maxSeqs - running + w.queue - waiting
	return engine.Capacity{Resident: true, Held: running + waiting, Room: max(0, room), Free: 1 - float64(running)/float64(w.node.maxSeqs)}
}
