package modeltest

import (
	"fmt"
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
	states  float64 // largest difference of a state
}

// Differences that are allowed on a device of float32: of a value of a state, and of the residual
// stream, which has no bound, as a share of its token's largest value.
const (
	stateTolerance  = 1e-4
	hiddenTolerance = 1e-4
)

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

// state compares values of a recurrent state.
func (m *measure) state(t *testing.T, what string, got, want []float32) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d values, want %d", what, len(got), len(want))
	}
	for i, v := range got {
		diff := math.Abs(float64(v) - float64(want[i]))
		if m.device.Logits > 0 && !(diff <= stateTolerance) || math.IsNaN(diff) {
			t.Fatalf("%s, value %d: got %v, want %v, differ by %.2g, allowed %g", what, i, v, want[i], diff, stateTolerance)
		}
		m.states = max(m.states, diff)
	}
}

// hidden compares the residual stream, [tokens, width].
func (m *measure) hidden(t *testing.T, what string, got, want []float32, width int) {
	t.Helper()
	if m.device.Logits == 0 {
		return
	}
	for from := 0; from < len(got); from += width {
		var largest float64
		for _, v := range want[from : from+width] {
			largest = max(largest, math.Abs(float64(v)))
		}
		allowed := hiddenTolerance * max(1, largest)
		for i, v := range got[from : from+width] {
			diff := math.Abs(float64(v) - float64(want[from+i]))
			if !(diff <= allowed) {
				t.Fatalf("%s, token %d, value %d: got %v, want %v, differ by %.2g, allowed %.2g", what, from/width, i, v, want[from+i], diff, allowed)
			}
		}
	}
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
	if p.steps != nil {
		m.logits(t, fmt.Sprintf("%s, greedy step %d", p.name, i), logits, p.steps[i])
	}
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

func (m *measure) meanDiff() float64   { return m.sum / float64(m.n) }
func (m *measure) divergence() float64 { return m.kl / float64(m.rows) }

func (m *measure) String() string {
	return fmt.Sprintf("%s: logits differ by %.2g at most, %.2g on average; divergence %.2g nats; greedy %d of %d equal",
		m.device.Name, m.largest, m.meanDiff(), m.divergence(), m.equal, m.steps)
}

// check holds a device without a tolerance to its limits.
func (m *measure) check(t *testing.T) {
	t.Helper()
	if m.device.Logits > 0 {
		return
	}
	if m.device.MeanDiff <= 0 || m.device.KL <= 0 {
		t.Fatalf("%s has no tolerance and no limits", m.device.Name)
	}
	if mean, kl := m.meanDiff(), m.divergence(); !(mean <= m.device.MeanDiff && kl <= m.device.KL) {
		t.Errorf("%v: a mean of %g and %g nats are allowed", m, m.device.MeanDiff, m.device.KL)
	}
}
