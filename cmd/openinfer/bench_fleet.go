package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/openinfer-go/openinfer/bench/fleet"
	"github.com/openinfer-go/openinfer/bench/virtual"
)

func benchFleetCommand() *cobra.Command {
	var inVirtual, equal, spread bool
	var preset, card, kvCacheDType, file string
	var seeds, waves, queue, tries, promptLen, outputLen int
	var seed uint64
	var loadTimes, slaTimes, width, floor, shift, every float64
	var length time.Duration
	cmd := &cobra.Command{
		Use:   "fleet",
		Short: "Pooled nodes against dedicated ones, under the same load",
		Long: `Pooled nodes (every model on every node) against dedicated ones (a model a node), under the same open-loop load.

With --virtual both fleets and their balancer run in this process, on simulated cards and in virtual time: the
scheduler, the cache and the memory plan are those that serve. Dedicated nodes run the same engine, and once more as vLLM was
measured to run. A seed gives the same requests.`,
		Example: `  openinfer bench fleet --virtual --preset six --card a6000 --seeds 30 --json six.json
  openinfer bench fleet --virtual --preset six --times 6 --load 1 --seeds 3`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !inVirtual {
				return errors.New("--virtual: only fleets in virtual time can be compared by this build")
			}
			s, err := fleet.Preset(preset)
			if err != nil {
				return fmt.Errorf("--%w", err)
			}
			for _, p := range []struct {
				flag string
				n    int
			}{{"seeds", seeds}, {"tries", tries}, {"vllm-queue", queue}, {"prompt-len", promptLen}, {"output-len", outputLen}} {
				if p.n < 1 {
					return fmt.Errorf("--%s %d: at least 1", p.flag, p.n)
				}
			}
			for _, p := range []struct {
				flag string
				x    float64
			}{{"load", loadTimes}, {"sla", slaTimes}, {"check-interval", every}} {
				if !(p.x > 0 && p.x <= 1000) {
					return fmt.Errorf("--%s %g: more than 0 and at most 1000", p.flag, p.x)
				}
			}
			s.Length, s.Waves, s.Floor, s.Spread, s.PromptTokens, s.OutputTokens = length, waves, floor, shift, promptLen, outputLen
			if cmd.Flags().Changed("width") {
				s.Width = width
			}
			if equal {
				for i := range s.Demands {
					s.Demands[i].Times = float64(s.Nodes)
				}
			}
			if err := s.Check(); err != nil {
				return fmt.Errorf("--%w", err)
			}
			o := virtual.FleetOptions{
				Card: card, KVCacheDType: kvCacheDType, CheckEvery: time.Duration(every * float64(time.Second)), Tries: tries, Spread: spread, VLLM: virtual.DefaultVLLM,
			}
			o.VLLM.Queue = queue
			if isTerminal(os.Stderr) {
				o.Progress = func(done, all int) { fmt.Fprintf(os.Stderr, "\r%d of %d fleets", done, all) }
				defer fmt.Fprint(os.Stderr, "\r\033[K")
			}
			capacity, err := virtual.Capacities(s, o)
			if err != nil {
				return err
			}
			s = s.Filled(capacity).Times(loadTimes).WithSLA(slaTimes)
			var list []uint64
			for i := range seeds {
				list = append(list, seed+uint64(i))
			}
			r, err := virtual.Fleets(s, o, []virtual.Kind{virtual.Pooled, virtual.Dedicated, virtual.DedicatedVLLM}, list)
			if err != nil {
				return err
			}
			r.Title = fmt.Sprintf("%d models, %d nodes: %s", len(s.Demands), s.Nodes, card)
			for i, d := range s.Demands {
				r.Notes = append(r.Notes, fmt.Sprintf("- %s: waves up to %.1f requests/s, %.2f times the %.1f/s that one dedicated node answers in time", d.Model, d.Times*capacity[i], d.Times, capacity[i]))
			}
			if file != "" {
				b, err := json.MarshalIndent(r, "", " ")
				if err != nil {
					return err
				}
				if err := os.WriteFile(file, append(b, '\n'), 0o666); err != nil {
					return err
				}
			}
			return r.WriteText(os.Stdout)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&inVirtual, "virtual", false, "on simulated cards, in virtual time")
	f.StringVar(&preset, "preset", "six", "six (models on six nodes) or four (on four)")
	f.StringVar(&card, "card", "a6000", "simulated card of all nodes")
	f.StringVar(&kvCacheDType, "kv-cache-dtype", "fp8-e4m3", "of all models")
	f.IntVar(&seeds, "seeds", 3, "runs, each with other requests")
	f.Uint64Var(&seed, "seed", 1, "of the first run")
	f.DurationVar(&length, "length", 2*time.Minute, "of the load")
	f.Float64Var(&loadTimes, "load", 1, "times the preset's requests")
	f.BoolVar(&equal, "equal", false, "the top of each model's wave is as much as all nodes could do, if they did it as a dedicated one does")
	f.Float64Var(&slaTimes, "sla", 1, "times the preset's targets")
	f.IntVar(&waves, "waves", 1, "of each model")
	f.Float64Var(&width, "width", 0, "part of the time between two waves' beginnings that one takes (default: one over the models)")
	f.Float64Var(&floor, "floor", 0, "part of the requests that come evenly")
	f.Float64Var(&shift, "shift", 1, "of the models' waves: 0 all at once, 1 evenly one after the other")
	f.IntVar(&promptLen, "prompt-len", 150, "mean tokens of a prompt behind the 100 that a model's requests share")
	f.IntVar(&outputLen, "output-len", 200, "mean tokens of an answer")
	f.Float64Var(&every, "check-interval", 0.5, "seconds between the balancer's checks of a node")
	f.IntVar(&tries, "tries", 6, "nodes that the balancer offers a request")
	f.BoolVar(&spread, "spread", false, "the balancer knows nothing of models: least connections only")
	f.IntVar(&queue, "vllm-queue", virtual.DefaultVLLM.Queue, "requests that wait at a dedicated vLLM before its gateway refuses more")
	f.StringVar(&file, "json", "", "`FILE` for the results")
	return cmd
}
