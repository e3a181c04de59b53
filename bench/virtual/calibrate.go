package virtual

import (
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/openinfer-go/openinfer/bench/fleet"
	"github.com/openinfer-go/openinfer/engine"
)

// Capacities are how many requests a second a dedicated node of the card answers in time of each model of the scenario: what
// it sells of an even load that is twice what it could do at all.
func Capacities(s fleet.Scenario, o FleetOptions) ([]float64, error) {
	const length, batch = 30 * time.Second, 128
	out := make([]float64, len(s.Demands))
	var g errgroup.Group
	for k, d := range s.Demands {
		g.Go(func() error {
			v, err := engine.NewVirtual(engine.Options{Log: slog.New(slog.DiscardHandler), Device: "sim:" + o.Card, KVCacheDType: o.KVCacheDType, Models: []engine.ModelSpec{{Name: d.Model}}}, nil)
			if err != nil {
				return err
			}
			rows := make([]engine.VirtualRow, batch)
			for i := range rows {
				rows[i] = engine.VirtualRow{Start: s.SharedTokens + s.PromptTokens + s.OutputTokens/2, Tokens: 1, Sampled: true}
			}
			each := v.StepTime(d.Model, []engine.VirtualRow{{Start: s.SharedTokens, Tokens: s.PromptTokens, Sampled: true}}).Seconds() +
				v.StepTime(d.Model, rows).Seconds()*float64(s.OutputTokens)/batch
			one := s
			one.Nodes, one.Length, one.Waves, one.Width, one.Floor = 1, length, 1, 1, 1
			d.Requests = 2 * length.Seconds() / each
			one.Demands = []fleet.Demand{d}
			f, err := Fleet(one, o, Dedicated, one.Draw(0))
			out[k] = f.All.Sellable / length.Seconds()
			return err
		})
	}
	return out, g.Wait()
}
