package sim

import (
	"math"
	"slices"

	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/kernels/check"
)

// Sample implements kernels.Device. It reads each row of logits twice, as float32: once for the largest and once
// to draw. A token is Given or a hash; biases, penalties and cuts do not change it.
func (m *Meter) Sample(out []kernels.Sampled, logits kernels.Tensor, vocab int, params []kernels.SampleParams) {
	if m.err != nil || m.checked && !m.ok(check.Sample(out, logits, vocab, params)) {
		for i := range out {
			out[i] = kernels.Sampled{ID: -1, NaN: true}
		}
		return
	}
	m.charge(2 * int64(logits.Rows) * int64(logits.Cols) * 4)
	for i := range out {
		out[i] = draw(&params[i], vocab)
	}
}

// draw is a function of p and vocab.
func draw(p *kernels.SampleParams, vocab int) kernels.Sampled {
	id := p.Given
	if id < 0 {
		id = hashed(p, vocab)
	}
	if id < 0 || int(id) >= vocab {
		return kernels.Sampled{ID: -1, NaN: true}
	}
	out := kernels.Sampled{ID: id}
	if p.Logprobs >= 0 {
		out.Logprob, out.Rank = logprob(1), 1
		for i := range min(p.Logprobs, vocab) {
			out.Top = append(out.Top, kernels.TokenLogprob{ID: int32((int(id) + i) % vocab), Logprob: logprob(i + 1)})
		}
	}
	return out
}

// logprob gives the token of that rank half of what is left.
func logprob(rank int) float32 { return float32(float64(rank) * math.Log(0.5)) }

// hashed maps Seed and Index onto the ids that may be drawn: the first such id from the hash on. -1: there is none.
func hashed(p *kernels.SampleParams, vocab int) int32 {
	first := int(mix(mix(p.Seed)+p.Index*0x9e3779b97f4a7c15) % uint64(vocab))
	for i := range vocab {
		id := first + i
		if id >= vocab {
			id -= vocab
		}
		if p.Allowed != nil && (id/32 >= len(p.Allowed) || p.Allowed[id/32]>>(id%32)&1 == 0) {
			continue
		}
		if !slices.Contains(p.Banned, int32(id)) {
			return int32(id)
		}
	}
	return -1
}

// mix is the bijection of splitmix64.
func mix(z uint64) uint64 {
	z += 0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}
