package load

import (
	"iter"
	"math"
	"math/rand/v2"
	"time"
)

// Times at which requests are due, since the beginning of a run. All go on for ever (see First and Until), and a seed
// always gives the same ones.

// Fixed are times one over rate apart, from 0; rate is in requests a second. An infinite rate has all at 0.
func Fixed(rate float64) iter.Seq[time.Duration] {
	return func(yield func(time.Duration) bool) {
		for i := 0.0; yield(seconds(i / rate)); i++ {
		}
	}
}

// Poisson are the times of a Poisson process.
func Poisson(seed uint64, rate float64) iter.Seq[time.Duration] { return Gamma(seed, rate, 1) }

// Gamma are times whose gaps have a gamma distribution of shape burstiness and mean one over rate: 1 is a Poisson process,
// less comes in bursts, more is more even; infinity is Fixed.
func Gamma(seed uint64, rate, burstiness float64) iter.Seq[time.Duration] {
	if math.IsInf(rate, 1) || math.IsInf(burstiness, 1) {
		return Fixed(rate)
	}
	return func(yield func(time.Duration) bool) {
		r := rand.New(rand.NewPCG(seed, 1))
		for at := 0.0; ; {
			at += gamma(r, burstiness) / burstiness / rate
			if !yield(seconds(at)) {
				return
			}
		}
	}
}

// Thinned are the times of a Poisson process whose rate changes: rate(t) requests a second, never more than most (what is
// more counts as most). It ends where it can never yield again only if rate says so: use Until.
func Thinned(seed uint64, most float64, rate func(time.Duration) float64) iter.Seq[time.Duration] {
	return func(yield func(time.Duration) bool) {
		r := rand.New(rand.NewPCG(seed, 2))
		for at := 0.0; ; {
			at += r.ExpFloat64() / most
			if at > math.MaxInt64/float64(time.Second) {
				return
			}
			if r.Float64()*most < rate(seconds(at)) && !yield(seconds(at)) {
				return
			}
		}
	}
}

// Waves is a rate that rises, stays high, falls and stays low, again and again.
type Waves struct {
	Low, High              float64 // requests a second
	Rise, Hold, Fall, Rest time.Duration
}

// Rate is the rate at t.
func (w Waves) Rate(t time.Duration) float64 {
	period := w.Rise + w.Hold + w.Fall + w.Rest
	if period <= 0 {
		return w.High
	}
	t %= period
	switch {
	case t < w.Rise:
		return w.Low + (w.High-w.Low)*float64(t)/float64(w.Rise)
	case t < w.Rise+w.Hold:
		return w.High
	case t < w.Rise+w.Hold+w.Fall:
		return w.High - (w.High-w.Low)*float64(t-w.Rise-w.Hold)/float64(w.Fall)
	}
	return w.Low
}

// Until are the times before end.
func Until(end time.Duration, times iter.Seq[time.Duration]) iter.Seq[time.Duration] {
	return func(yield func(time.Duration) bool) {
		for t := range times {
			if t >= end || !yield(t) {
				return
			}
		}
	}
}

func seconds(s float64) time.Duration { return time.Duration(math.Round(s * float64(time.Second))) }

// gamma draws from a gamma distribution of that shape and scale 1 (Marsaglia and Tsang 2000; a shape below 1 by their
// power of a uniform number).
func gamma(r *rand.Rand, shape float64) float64 {
	if shape == 1 {
		return r.ExpFloat64()
	}
	if shape < 1 {
		return gamma(r, shape+1) * math.Pow(1-r.Float64(), 1/shape)
	}
	d := shape - 1.0/3
	c := 1 / math.Sqrt(9*d)
	for {
		x := r.NormFloat64()
		v := 1 + c*x
		if v <= 0 {
			continue
		}
		v *= v * v
		if math.Log(1-r.Float64()) < x*x/2+d-d*v+d*math.Log(v) {
			return d * v
		}
	}
}
