package sched

import (
	"math"
	"slices"
)

// predictor is one model's step time, learned online: a sum of terms that grow with the work, each with a
// coefficient of zero or more, so that more work is never said to take less time. Tokens are cut at knots, for a
// step is flat while it waits for weights and grows with the tokens once it computes.
//
// The coefficients minimise the squared relative error over past steps. Every kind of step (by its tokens) keeps
// its own sums and forgets only when another one of its kind is seen, so an hour of decoding does not forget what
// a prompt costs. The constraint is met by coordinate descent from the last solution, one round a step.
type predictor struct {
	theta  [features]float64
	kinds  [kinds + 1]sums // the last is the prior's, which is not forgotten
	total  sums
	seen   int        // steps observed
	ofKind [kinds]int // of them
	most   int        // tokens of the largest step observed, or of the prior
	drift  float64    // logarithm of how much slower than the coefficients say the last steps were
	scale  float64    // its exponential

	errs   [256]float64 // relative errors of the last steps
	sorted [256]float64 // scratch
}

const (
	features = 9
	kinds    = 4

	forget     = 1.0 / 96 // of a kind of step, by each that is seen
	priorSum   = 8.0      // what all of the prior weighs, in steps
	enough     = 8        // steps after which predictions are used when there was no prior
	outlier    = 0.3      // relative error beyond which a step counts less
	driftSpeed = 1.0 / 3  // of the last step in drift
	maxDrift   = 2.0      // a machine that is e^2 times as slow as it was
)

// knots cut the tokens of a step; the last piece is open.
var knots = [...]float64{0, 8, 64, 256}

// sums are the normal equations of least squares: the weighted sums of x xT and x y.
type sums struct {
	xx [features][features]float64
	xy [features]float64
}

// terms are what a step's time is a sum of, scaled to be of about the same size in a large step.
func (w *Work) terms(x *[features]float64) {
	t := float64(w.Tokens)
	x[0] = 1
	x[1] = min(t, knots[1]) / 8
	x[2] = max(0, min(t, knots[2])-knots[1]) / 64
	x[3] = max(0, min(t, knots[3])-knots[2]) / 64
	x[4] = max(0, t-knots[3]) / 64
	x[5] = float64(w.Rows) / 16
	x[6] = float64(w.Samples) / 16
	x[7] = float64(w.Context) / 4096
	x[8] = float64(w.PromptContext) / 65536
}

// kind is which steps are forgotten together.
func (w *Work) kind() int {
	for k := kinds - 1; k > 0; k-- {
		if float64(w.Tokens) > knots[k] {
			return k
		}
	}
	return 0
}

// newPredictor knows what a device says of itself.
func newPredictor(obs []Observation) *predictor {
	p := &predictor{scale: 1}
	n := 0
	for i := range obs {
		if usable(obs[i].Seconds) {
			n++
		}
	}
	for i := range obs {
		if o := &obs[i]; usable(o.Seconds) {
			var x [features]float64
			o.Work.terms(&x)
			p.kinds[kinds].add(&x, o.Seconds, priorSum/float64(n)/(o.Seconds*o.Seconds))
			p.most = max(p.most, o.Work.Tokens)
		}
	}
	p.sum()
	for range 100 {
		p.solve()
	}
	return p
}

// ready says that predictions mean something.
func (p *predictor) ready() bool {
	return p.seen >= enough || p.most > 0 && p.seen == 0 || p.seen > 0 && p.hasPrior()
}

func (p *predictor) hasPrior() bool { return p.kinds[kinds].xx[0][0] > 0 }

// usable says whether a step's time says anything: a clock may stand still, or jump.
func usable(seconds float64) bool { return seconds > 1e-9 && seconds < 3600 }

// Predict is the seconds that a step of this work takes.
func (p *predictor) Predict(w Work) float64 {
	var x [features]float64
	w.terms(&x)
	return p.at(&x) * p.scale
}

func (p *predictor) at(x *[features]float64) float64 {
	sum := 0.0
	for i := range x {
		sum += p.theta[i] * x[i]
	}
	return sum
}

// Observe learns from a step. One that took many times what was predicted, because the machine was taken away,
// counts little.
func (p *predictor) Observe(w Work, seconds float64) {
	if !usable(seconds) {
		return
	}
	var x [features]float64
	w.terms(&x)
	said := p.at(&x)
	weight := 1 / (seconds * seconds)
	if p.ready() && said > 0 {
		now := said * p.scale
		p.errs[p.seen%len(p.errs)] = math.Abs(now-seconds) / seconds
		// A machine that others use is slower for a while, all of it.
		off := math.Log(seconds / now)
		p.drift += driftSpeed * min(max(off, -outlier), outlier)
		p.drift = min(max(p.drift, -maxDrift), maxDrift)
		p.drift *= 0.99
		p.scale = math.Exp(p.drift)
		y := seconds / p.scale // the coefficients are of a machine left alone
		if far := math.Abs(math.Log(y / said)); far > outlier && p.ofKind[w.kind()] >= enough {
			y = said * math.Exp(math.Copysign(min(far, 1), math.Log(y/said)))
			weight = outlier / far / (y * y)
		} else {
			weight = 1 / (y * said)
		}
		seconds = y
	} else {
		p.errs[p.seen%len(p.errs)] = 1
	}
	p.ofKind[w.kind()]++
	p.learn(&p.kinds[w.kind()], &x, seconds, weight)
	p.seen++
	p.most = max(p.most, w.Tokens)
	if p.seen < 32 || p.seen%64 == 0 { // else the total is kept up to date, but for rounding
		p.sum()
	}
	p.solve()
	for i := 0; p.seen < 32 && i < 20; i++ {
		p.solve()
	}
}

// learn lets a kind forget a little and adds a step to it, and to the total.
func (p *predictor) learn(k *sums, x *[features]float64, y, weight float64) {
	for i := range x {
		wx := weight * x[i]
		row, sum := &k.xx[i], &p.total.xx[i]
		for j := range x {
			d := wx*x[j] - forget*row[j]
			row[j] += d
			sum[j] += d
		}
		d := wx*y - forget*k.xy[i]
		k.xy[i] += d
		p.total.xy[i] += d
	}
}

func (s *sums) add(x *[features]float64, y, weight float64) {
	for i := range x {
		wx := weight * x[i]
		if wx == 0 {
			continue
		}
		for j := range x {
			s.xx[i][j] += wx * x[j]
		}
		s.xy[i] += wx * y
	}
}

// sum adds the kinds up.
func (p *predictor) sum() {
	p.total = p.kinds[0]
	t := &p.total
	for k := 1; k < len(p.kinds); k++ {
		o := &p.kinds[k]
		for i := range t.xx {
			for j := range t.xx[i] {
				t.xx[i][j] += o.xx[i][j]
			}
			t.xy[i] += o.xy[i]
		}
	}
	// A piece that no step reached goes on as the one before it.
	for i := 2; i <= 4; i++ {
		a, b := i-1, i
		sa, sb := 1.0, 1.0
		if a == 1 {
			sa = 8 // its unit is an eighth of the others'
		}
		tie := 1e-3 * (t.xx[a][a]*sa*sa + 1e-12)
		t.xx[a][a] += tie * sa * sa
		t.xx[b][b] += tie * sb * sb
		t.xx[a][b] -= tie * sa * sb
		t.xx[b][a] -= tie * sa * sb
	}
}

// solve is a round of coordinate descent.
func (p *predictor) solve() {
	for i := range p.theta {
		row := &p.total.xx[i]
		if row[i] <= 0 {
			continue
		}
		g := p.total.xy[i]
		for j := range row {
			g -= row[j] * p.theta[j]
		}
		p.theta[i] = max(0, p.theta[i]+g/row[i])
	}
}

// errors are the median and the mean relative error over the last steps.
func (p *predictor) errors() (median, mean float64) {
	n := min(p.seen, len(p.errs))
	if n == 0 {
		return 0, 0
	}
	copy(p.sorted[:n], p.errs[:n])
	slices.Sort(p.sorted[:n])
	for _, e := range p.sorted[:n] {
		mean += e
	}
	return p.sorted[n/2], mean / float64(n)
}

// context is the part of a prediction that comes from so much PromptContext.
func (p *predictor) context(n float64) float64 {
	w := Work{PromptContext: int64(n)}
	var x [features]float64
	w.terms(&x)
	return p.theta[8] * x[8] * p.scale
}
