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
	var b fleetBench
	cmd := &cobra.Command{
		Use:   "fleet",
		Short: "Fleets of nodes, such as pooled ones against dedicated ones, under the same load",
		Long: `Fleets of nodes under the same open-loop load: say pooled nodes (every model on every node) against dedicated ones (a
model a node). The first is compared with each of the others.

Over HTTP (--fleet, at least one), servers may be any that speak the OpenAI API; the key is in OPENAI_API_KEY. All fleets are loaded in
parallel. Of several addresses the one with the fewest requests running is asked. How busy cards are is read from the nodes'
/metrics: ours, or what NVIDIA's exporters say. Ctrl-C keeps what is done.

With --virtual pooled and dedicated nodes and their balancer run in this process, on simulated cards and in virtual time: the
scheduler, the cache and the memory plan are those that serve. Dedicated nodes run the same engine, and once more as vLLM was
measured to run. A seed gives the same requests.

How many requests the presets make depends on what one node of --card could do.`,
		Example: `  openinfer bench fleet --virtual --preset six --card a6000 --seeds 30 --json six.json --html six.html
  openinfer bench fleet --fleet pooled=http://balancer:8080 --nodes pooled=http://n1:8080,http://n2:8080 \
      --fleet dedicated=qwen3-1.7b@http://n3:8080,llama-3.2-1b@http://n4:8080 --demand qwen3-1.7b=12:2s:100ms,llama-3.2-1b=30:1s:50ms
  openinfer bench fleet --read six.json --html six.html`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := b.result(cmd)
			if r == nil {
				return err
			}
			if b.json != "" {
				if e := r.Write(b.json); e != nil {
					return errors.Join(err, fmt.Errorf("--json: %w", e))
				}
			}
			if b.html != "" {
				if e := writeFile(b.html, r.Page().Write); e != nil {
					return errors.Join(err, fmt.Errorf("--html: %w", e))
				}
			}
			return errors.Join(err, r.Page().WriteText(os.Stdout))
		},
	}
	f := cmd.Flags()
	f.StringArrayVar(&b.fleets, "fleet", nil, "`NAME=ADDRESS,...` of a balancer or nodes, each MODEL@ADDRESS if it has one model only; once for each fleet")
	f.StringArrayVar(&b.nodes, "nodes", nil, "`NAME=ADDRESS,...` of the nodes behind that fleet's balancer, for how busy they are")
	f.BoolVar(&b.virtual, "virtual", false, "on simulated cards, in virtual time")
	f.StringVar(&b.read, "read", "", "`FILE` that --json wrote: nothing is measured, it is shown")
	f.StringVar(&b.preset, "preset", "six", "six (models on six nodes) or four (on four)")
	f.StringSliceVar(&b.demands, "demand", nil, "`MODEL=RATE[:TTFT[:TPOT]]`: requests a second on average and the SLA of them, for each model, in the place of a preset's")
	f.StringVar(&b.card, "card", "a6000", "simulated card: of all nodes with --virtual, else the one that the preset's load is for")
	f.StringVar(&b.options.KVCacheDType, "kv-cache-dtype", "fp8-e4m3", "of all models, on that card")
	f.IntVar(&b.seeds, "seeds", 3, "runs, each with other requests")
	f.Uint64Var(&b.seed, "seed", 1, "of the first run")
	f.DurationVar(&b.length, "length", 2*time.Minute, "of the load")
	f.Float64Var(&b.load, "load", 1, "times the requests")
	f.BoolVar(&b.equal, "equal", false, "the top of each model's wave is as much as all nodes could do, if they did it as a dedicated one does")
	f.Float64Var(&b.sla, "sla", 1, "times the targets")
	f.IntVar(&b.waves, "waves", 1, "of each model")
	f.Float64Var(&b.width, "width", 0, "part of the time between two waves' beginnings that one takes (default: one over the models)")
	f.Float64Var(&b.floor, "floor", 0, "part of the requests that come evenly")
	f.Float64Var(&b.shift, "shift", 1, "of the models' waves: 0 all at once, 1 evenly one after the other")
	f.IntVar(&b.prompt, "prompt-len", 150, "mean tokens of a prompt behind the 100 that a model's requests share")
	f.IntVar(&b.output, "output-len", 200, "mean tokens of an answer")
	f.StringVar(&b.endpoint, "endpoint", "", "`PATH` of requests: /v1/completions (default) or /v1/chat/completions")
	f.BoolVar(&b.ignoreEOS, "ignore-eos", true, "answers go on to their full length")
	f.StringVar(&b.extra, "extra-body", "", "`JSON` object with more fields of all requests")
	f.BoolVar(&b.sendSLA, "send-sla", false, "requests tell their SLA in the field that OpenInfer has for it")
	f.BoolVar(&b.inTurn, "in-turn", false, "load the fleets one after the other instead of in parallel")
	f.Float64Var(&b.every, "check-interval", 0.5, "seconds between the balancer's checks of a node, in virtual time")
	f.IntVar(&b.options.Tries, "tries", 6, "nodes that the balancer offers a request, in virtual time")
	f.BoolVar(&b.options.Spread, "spread", false, "the balancer knows nothing of models: least connections only, in virtual time")
	f.IntVar(&b.queue, "vllm-queue", virtual.DefaultVLLM.Queue, "requests that wait at a dedicated vLLM before its gateway refuses more, in virtual time")
	f.StringVar(&b.json, "json", "", "`FILE` for the results")
	f.StringVar(&b.html, "html", "", "`FILE` for the report, one HTML page")
	return cmd
}

// over compares fleets over HTTP.
func (b *fleetBench) over(cmd *cobra.Command, s fleet.Scenario, notes []string) (*fleet.Result, error) {
	c := fleet.Config{Scenario: s, Seeds: b.list(), Endpoint: b.endpoint, Key: os.Getenv("OPENAI_API_KEY"), Extra: map[string]any{}, SendSLA: b.sendSLA, InTurn: b.inTurn}
	for _, text := range b.fleets {
		a, err := fleet.ParseAddress(text)
		if err != nil {
			return nil, fmt.Errorf("--fleet %w", err)
		}
		c.Fleets = append(c.Fleets, a)
	}
	for _, text := range b.nodes {
		if err := fleet.ParseNodes(text, c.Fleets); err != nil {
			return nil, fmt.Errorf("--nodes: %w", err)
		}
	}
	if b.ignoreEOS {
		c.Extra["ignore_eos"] = true
	}
	if b.extra != "" {
		if err := json.Unmarshal([]byte(b.extra), &c.Extra); err != nil {
			return nil, fmt.Errorf("--extra-body: not a JSON object: %w", err)
		}
	}
	if isTerminal(os.Stderr) {
		c.Watch = func(s fleet.Status) { fmt.Fprintf(os.Stderr, "\r%s\033[K", s) }
		defer fmt.Fprint(os.Stderr, "\r\033[K")
	}
	r, err := fleet.Run(cmd.Context(), c)
	if r != nil {
		r.Title = b.title(s)
		r.Notes = append(notes, r.Notes...)
		r.Command = commandLine(cmd, "json", "html")
	}
	return r, err
}
