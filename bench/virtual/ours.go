package virtual

import (
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/openinfer-go/openinfer/engine"
)

// Setting is what a load is run on: a card and the models that share it.
type Setting struct {
	Card   string // as the sim device names it
	Models []engine.ModelSpec
	// KVCacheDType of all models.
	KVCacheDType string
}

func (s Setting) options() engine.Options {
	return engine.Options{Log: slog.New(slog.DiscardHandler), Device: "sim:" + s.Card, Models: slices.Clone(s.Models), KVCacheDType: s.KVCacheDType, MaxWaiting: 1 << 16, MaxWaitingTotal: 1 << 16}
}

func (s Setting) names() []string {
	var out []string
	for _, m := range s.Models {
		out = append(out, m.Name)
	}
	return out
}

// asked is a request of ours on its way.
type asked struct {
	q     *Request
	model int
	first time.Duration
	got   int
}

// Ours runs the load with the scheduler that serves.
func Ours(s Setting, load []Request, until time.Duration) (Result, error) {
	names := s.names()
	tallies := make([]tally, len(names))
	for i, n := range names {
		tallies[i].Model = n
	}
	var failed error
	v, err := engine.NewVirtual(s.options(), func(ev engine.VirtualEvent) {
		a := ev.User.(*asked)
		if a.got == 0 && ev.Tokens > 0 {
			a.first = ev.At
		}
		a.got += ev.Tokens
		if ev.Err != nil {
			failed = ev.Err
		}
		if ev.Final {
			tallies[a.model].served(a.q, a.first, ev.At, a.got)
		}
	})
	if err != nil {
		return Result{}, err
	}
	for i := range load {
		q := &load[i]
		v.Run(q.At)
		k := slices.Index(names, q.Model)
		tallies[k].Offered++
		err := v.Submit(engine.VirtualRequest{Model: q.Model, Prompt: q.Prompt, Tokens: q.Output, SLA: q.SLA, User: &asked{q: q, model: k}})
		var over *engine.OverCapacityError
		switch {
		case err == nil:
		case errors.As(err, &over):
			tallies[k].Refused++
		default:
			return Result{}, err
		}
	}
	for v.Now() < until && !v.Idle() && failed == nil {
		v.Run(min(until, v.Now()+time.Second))
	}
	r := Result{Way: "ours", Length: v.Now(), Switches: v.Switches()}
	for i := range tallies {
		tallies[i].DeviceTime = v.DeviceTime(names[i])
		r.Busy += tallies[i].DeviceTime
		r.Models = append(r.Models, tallies[i].result())
	}
	r.fairShares()
	return r, failed
}
