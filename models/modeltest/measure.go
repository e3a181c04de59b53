package modeltest

import (
	"math"
	"testing"
)

// measure gathers how far a device is from the reference over one checkpoint.
type measure struct {
	device  Device
	n       int // logits
	sum     float64
	largest float64
	rows    int
	kl      float64
	steps   int // greedy
	equal   int
}

// logits compares one row of logits, or adds it to what is measured.
func (m *measure) logits(t *testing.T, what string, got, want []float32) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d logits, want %d", what, len(got), len(want))
	}
	for i, v := range got {
		diff := math.Abs(float64(v) - float64(want[i]))
		if m.device.Logits > 0 && !(diff <= m.device.Logits) || math.IsNaN(diff) {
			t.Fatalf("%s, logit %d: got %v, want %v, differ by %.2g, allowed %g", what, i, v, want[i], diff, m.device.Logits)
		}
		m.n++
		m.sum += diff
		m.largest = max(m.largest, diff)
	}
	m.rows++
	m.kl += Divergence(want, got)
}

// Divergence is KL(p||q) in nats of the distributions of two rows of logits.
func Divergence(p, q []float32) float64 {
	lp, lq := logSumExp(p), logSumExp(q)
	var kl float64
	for i := range p {
		a, b := float64(p[i])-lp, float64(q[i])-lq
		kl += math.Exp(a) * (a - b)
	}
	return kl
}

func logSumExp(x []float32) float64 {
	largest := math.Inf(-1)
	for _, v := range x {
		largest = max(largest, float64(v))
	}
	var sum float64
	for _, v := range x {
		sum += math.Exp(float64(v) - largest)
	}
	return largest + math.Log(sum)
}

// greedy compares the choice of step i of p. A margin below twice the tolerance decides nothing.
func (m *measure) greedy(t *testing.T, p prompt, i int, logits []float32) {
	t.Helper()
	m.steps++
	got := Argmax(logits)
	if got == p.greedy[i] {
		m.equal++
		return
	}
	if m.device.Logits > 0 && p.margins[i] >= 2*m.device.Logits {
		t.Fatalf("%s: greedy step %d: got %d, want %d, margin %v", p.name, i, got, p.greedy[i], p.margins[i])
	}
}

// report logs what was measured and holds a device without a tolerance to its limits.
func (m *measure) report(t *testing.T) {
	t.Helper()
	mean, kl := m.sum/float64(m.n), m.kl/float64(m.rows)
	t.Logf("%s: logits differ by %.2g at most, %.2g on average; divergence %.2g nats; greedy %d of %d equal",
		m.device.Name, m.largest, mean, kl, m.equal, m.steps)
	if m.device.Logits > 0 {
		return
	}
	if m.device.MeanDiff <= 0 || m.device.KL <= 0 {
		t.Fatalf("%s has no tolerance and no limits", m.device.Name)
	}
	if mean > m.device.MeanDiff || kl > m.device.KL {
		t.Errorf("mean difference %.3g, allowed %.3g; divergence %.3g nats, allowed %.3g", mean, m.device.MeanDiff, kl, m.device.KL)
	}
}
