package sched

import (
	"math"
	"time"
)

// Each model is entitled to what it is asked for, up to the level at which all of that fills the device: it is max-min
// fair, by weight. What a model is asked for is what comes, accepted or not, over the last demandSeconds or so; what it has
// is what its accepted streams and prompts take. The difference is kept free of the others' requests, so that a model
// that asks for less than its share finds room, however much the others ask for.

const (
	demandSeconds = 10
	// settleSeconds is the shortest time that rates are taken over: one burst is no rate.
	settleSeconds = 4
	// lullRequests is about how many requests have to stay away before a model's rate is that of who still comes: demand
	// comes in waves, and what is kept for one that has passed is lost to those that come. At a slow model it takes
	// demandSeconds, at one with many a second one second.
	lullRequests = 8
	// seldom: a model that is asked for less than one stream over that of the time keeps no whole one free. Six models that
	// were asked for once would keep most of a card from the one that is in use.
	seldom = 4
)

// demand is what one model is asked for, in sums that fade.
type demand struct {
	offered, work, accepted float64 // sequences with a TPOT, seconds of prompt work, and of those that were accepted
	begun, last             time.Duration
	started                 bool
	recent                  float64       // as offered, but that it fades faster
	tpot, ttft              time.Duration // the last ones asked for
	mean                    float64       // seconds of prompt work of a request
}

// fade brings the sums to now.
func (d *demand) fade(now time.Duration) {
	if !d.started {
		d.started, d.begun, d.last = true, now, now
	}
	if dt := (now - d.last).Seconds(); dt > 0 {
		f := math.Exp(-dt / demandSeconds)
		d.recent *= math.Exp(-dt / d.memory())
		d.offered, d.work, d.accepted = d.offered*f, d.work*f, d.accepted*f
		d.last = now
	}
}

// memory is how many seconds recent goes back.
func (d *demand) memory() float64 {
	return min(max(1, lullRequests*demandSeconds/max(d.offered, 1)), demandSeconds)
}

// now is what part of the demand of the last demandSeconds still comes: all, unless less than half does. What comes at
// random varies by some of it, and a model that lost part of its share by every chance would be refused too much.
func (d *demand) now() float64 {
	if d.offered == 0 {
		return 1
	}
	return min(1, 2*d.recent/d.memory()/(d.offered/demandSeconds))
}

// per turns a sum into a rate a second.
func (d *demand) per(sum float64, now time.Duration) float64 {
	t := max(settleSeconds, (now - d.begun).Seconds())
	return sum / (demandSeconds * (1 - math.Exp(-t/demandSeconds)))
}

// offer counts a request with an SLA.
func (q *queue) offer(a ask, work float64, accepted bool, now time.Duration) {
	q.demand.fade(now)
	if a.sla.TPOT > 0 {
		q.demand.offered += float64(a.n)
		q.demand.recent += float64(a.n)
		q.demand.tpot = a.sla.TPOT
	}
	if a.sla.TTFT > 0 {
		q.demand.ttft = a.sla.TTFT
	}
	q.demand.work += work
	average(&q.demand.mean, work)
	if accepted {
		q.demand.accepted += work
	}
}

// use is the share of the device that q's accepted streams and prompts take.
func (q *queue) use(now time.Duration) float64 { return q.streamShare(SLA{}, 0) + q.promptShare(now) }

// promptShare is the share of the device that the prompts accepted of late take.
func (q *queue) promptShare(now time.Duration) float64 {
	q.demand.fade(now)
	return q.demand.per(q.demand.accepted, now)
}

// asked is the share that q would take if all that comes were accepted, and least what it takes to serve anybody with
// some profit: a tenth more than a single stream, since weights are read for one as for many.
func (q *queue) asked(now time.Duration) (asked, least float64) {
	d := &q.demand
	d.fade(now)
	still := d.now()
	asked = still * d.per(d.work, now)
	if d.offered > 0 && d.tpot > 0 {
		tpot := d.tpot.Seconds()
		rows := still * d.per(d.offered, now) * q.cost.output * tpot // that many answers at a time
		part := 1.0
		if q.cost.output > 0 { // while no answer has ended, the rows are not known
			part = min(1, seldom*rows)
		}
		asked += part * q.rowsSeconds(int(min(max(rows, 1), float64(q.MaxSeqs)))) / tpot
		least = 1.1 * q.rowsSeconds(1) / tpot
	}
	asked = max(asked, q.use(now))
	return asked, min(asked, least)
}

// promptShare is that of all models.
func (s *Scheduler) promptShare(now time.Duration) float64 {
	sum := 0.0
	for _, q := range s.queues {
		sum += q.promptShare(now)
	}
	return sum
}

// fades is after how many seconds promptShare is down to share, if nothing comes.
func (s *Scheduler) fades(share float64, now time.Duration) float64 {
	if share <= 0 {
		return math.Inf(1)
	}
	return max(0, demandSeconds*math.Log(s.promptShare(now)/share))
}

// kept is the share of the device that models other than q are entitled to and do not have. It sets what each is
// entitled to.
func (s *Scheduler) kept(q *queue, now time.Duration) float64 {
	left, weights := fullShare, 0.0
	for _, o := range s.queues {
		o.entitled, o.floor = o.asked(now)
		weights += o.Weight
	}
	// Who asks for less than the level has it all, and who cannot do with it has its least; the level of the others
	// moves by what is left.
	for again := true; again && weights > 0; {
		again = false
		level := max(0, left) / weights
		for _, o := range s.queues {
			o.level = level * o.Weight
			if o.filled || o.entitled > o.level && o.floor <= o.level {
				continue
			}
			if o.entitled > o.level {
				o.entitled = o.floor
			}
			o.filled, again = true, true
			left -= o.entitled
			weights -= o.Weight
		}
	}
	sum := 0.0
	for _, o := range s.queues {
		if !o.filled {
			o.entitled = min(o.entitled, o.level)
		}
		o.filled = false
		if o != q {
			sum += max(0, o.entitled-o.use(now))
		}
	}
	return sum
}
