package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	benchserve "github.com/openinfer-go/openinfer/bench/serve"
)

func benchServeCommand() *cobra.Command {
	c := benchserve.Default()
	var temperature float64
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "The serving benchmark: throughput and latencies under a load, as vLLM's tool has them",
		Long: `The serving benchmark: throughput and latencies under a load, with the flags, the table and the JSON of vLLM's
"vllm bench serve". It asks any server that speaks the OpenAI API; the key is in OPENAI_API_KEY.

A finite --request-rate is an open loop: requests are sent when they are due, however slow the server is. With
--request-rate inf (the default) and --max-concurrency N, N are running at any time. Latencies count from when a request
was due. Lengths are in tokens by the server's own count; the first line says how they were calibrated.`,
		Example: `  openinfer bench serve --num-prompts 200 --request-rate 4 --goodput ttft:500,tpot:50
  openinfer bench serve --max-concurrency 16 --random-input-len 512 --random-output-len 64 --num-prompts 100
  openinfer bench serve --base-url http://127.0.0.1:8000 --backend openai-chat --dataset-name agents --num-prompts 20 --max-concurrency 4
  openinfer bench serve --dataset-name sharegpt --dataset-path ShareGPT.json --request-rate 2 --save-result`,
		Args: func(cmd *cobra.Command, args []string) error {
			// vLLM's --goodput and --header take several words.
			for i, arg := range args {
				switch {
				case cmd.Flags().Changed("goodput") && strings.Contains(arg, ":") && !strings.Contains(arg, "="):
					c.Goodput = append(c.Goodput, arg)
				case cmd.Flags().Changed("header") && strings.Contains(arg, "="):
					c.Header = append(c.Header, arg)
				default:
					return noArguments(cmd, args[i:])
				}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			c.Key = os.Getenv("OPENAI_API_KEY")
			if cmd.Flags().Changed("temperature") {
				c.Temperature = &temperature
			}
			for _, name := range []string{"max-concurrency", "sharegpt-output-len"} {
				if f := cmd.Flags().Lookup(name); f.Changed && f.Value.String() == "0" {
					return fmt.Errorf("--%s 0: at least 1", name)
				}
			}
			w := newLoadWatch()
			c.Watch = w.show
			return benchserve.Run(cmd.Context(), c, os.Stdout)
		},
	}
	f := cmd.Flags()
	f.StringVar(&c.Backend, "backend", c.Backend, strings.Join(benchserve.Backends, ", ")+": openai-chat is for chats, the others for plain completions")
	f.StringVar(&c.BaseURL, "base-url", "", "`ADDRESS` of the server, in the place of --host and --port")
	f.StringVar(&c.Host, "host", c.Host, "of the server")
	f.IntVar(&c.Port, "port", c.Port, "of the server")
	f.StringVar(&c.Endpoint, "endpoint", "", "`PATH` of requests (default /v1/completions; /v1/chat/completions with --backend openai-chat)")
	f.StringVar(&c.Model, "model", "", "model to ask for (default: the server's first)")
	f.StringSliceVar(&c.Header, "header", nil, "KEY=VALUE headers of all requests")
	f.StringVar(&c.ExtraBody, "extra-body", "", "`JSON` object with more fields of all requests")
	f.Float64Var(&temperature, "temperature", 0, "of sampling (default: the server's)")
	f.BoolVar(&c.IgnoreEOS, "ignore-eos", false, "answers go on to their full length; always so with random prompts")

	f.StringVar(&c.Dataset, "dataset-name", c.Dataset, strings.Join(benchserve.Datasets, ", ")+"; sharegpt and custom are read from --dataset-path, prefix has prompts that begin alike, agents are conversations")
	f.StringVar(&c.DatasetPath, "dataset-path", "", "`FILE`: for sharegpt a JSON array of conversations; for custom a prompt a line, as text or as {\"prompt\": ..., \"output_tokens\": ...}")
	f.IntVar(&c.NumPrompts, "num-prompts", c.NumPrompts, "requests; with agents, conversations")
	f.Uint64Var(&c.Seed, "seed", 0, "the same seed gives the same requests at the same times")
	f.IntVar(&c.Random.Input, "random-input-len", c.Random.Input, "tokens of a prompt")
	f.IntVar(&c.Random.Output, "random-output-len", c.Random.Output, "tokens of an answer")
	f.Float64Var(&c.Random.Range, "random-range-ratio", 0, "lengths are drawn from within that share of both, 0 to 1")
	f.IntVar(&c.Random.Prefix, "random-prefix-len", 0, "tokens that all prompts begin with, before --random-input-len")
	f.IntVar(&c.Prefixes.Count, "prefix-repetition-num-prefixes", c.Prefixes.Count, "prefix: different beginnings")
	f.IntVar(&c.Prefixes.Prefix, "prefix-repetition-prefix-len", c.Prefixes.Prefix, "prefix: tokens of a beginning")
	f.IntVar(&c.Prefixes.Suffix, "prefix-repetition-suffix-len", c.Prefixes.Suffix, "prefix: tokens of a prompt after it")
	f.IntVar(&c.Prefixes.Output, "prefix-repetition-output-len", c.Prefixes.Output, "prefix: tokens of an answer")
	f.Float64Var(&c.Prefixes.Zipf, "prefix-repetition-zipf", c.Prefixes.Zipf, "prefix: the k-th beginning is as frequent as k to the power of minus this; 0: all alike")
	f.IntVar(&c.Agents.Turns, "agents-turns", c.Agents.Turns, "agents: turns of a conversation")
	f.IntVar(&c.Agents.System, "agents-system-len", c.Agents.System, "agents: tokens of the instructions that all begin with")
	f.IntVar(&c.Agents.First, "agents-first-len", c.Agents.First, "agents: tokens of the first message")
	f.IntVar(&c.Agents.Turn, "agents-turn-len", c.Agents.Turn, "agents: tokens of each later message")
	f.IntVar(&c.Agents.Output, "agents-output-len", c.Agents.Output, "agents: tokens of an answer")
	f.DurationVar(&c.Agents.Think, "agents-think-time", c.Agents.Think, "agents: mean time from an answer to the next turn")
	f.Float64Var(&c.Agents.Range, "agents-range-ratio", 0, "agents: lengths are drawn from within that share, 0 to 1")
	f.IntVar(&c.CustomOutput, "custom-output-len", c.CustomOutput, "custom: tokens of an answer where the file has no number")
	f.IntVar(&c.ShareGPTOutput, "sharegpt-output-len", 0, "sharegpt: tokens of an answer (default: those of the file's)")

	f.Float64Var(&c.RequestRate, "request-rate", c.RequestRate, "requests a second; inf: all at once, or --max-concurrency at any time")
	f.Float64Var(&c.Burstiness, "burstiness", c.Burstiness, "1: a Poisson process; less comes in bursts, more is more even")
	f.IntVar(&c.MaxConcurrency, "max-concurrency", 0, "requests that run at once at most; more wait, and with a finite rate their wait counts (default: no bound)")
	f.IntVar(&c.NumWarmups, "num-warmups", 0, "requests before the measured ones")

	f.StringSliceVar(&c.Goodput, "goodput", nil, "count requests within these latencies: ttft:N, tpot:N, e2el:N in milliseconds")
	f.StringVar(&c.Metrics, "percentile-metrics", c.Metrics, "of ttft, tpot, itl, e2el, client_queue_time, separated by commas")
	f.StringVar(&c.Percentiles, "metric-percentiles", c.Percentiles, "separated by commas")
	f.BoolVar(&c.SaveResult, "save-result", false, "write the results as JSON")
	f.BoolVar(&c.SaveDetailed, "save-detailed", false, "with lists that have an element a request")
	f.StringVar(&c.ResultDir, "result-dir", "", "`FOLDER` of the JSON (default: the working directory)")
	f.StringVar(&c.ResultFilename, "result-filename", "", "name of the JSON (default: of backend, rate, model and time)")
	return cmd
}

// loadWatch shows how a load goes: a bar on a terminal, a line every ten seconds otherwise.
type loadWatch struct {
	bar  *progressBar
	last time.Duration
}

func newLoadWatch() *loadWatch { return &loadWatch{} }

func (w *loadWatch) show(s benchserve.Status) {
	if isTerminal(os.Stderr) {
		if w.bar == nil {
			w.bar = newProgressBar(os.Stdout, "requests", false)
		}
		w.bar.set(int64(s.Ended), int64(s.Requests))
		if s.Done {
			w.bar.close()
		}
		return
	}
	if s.Done || s.Elapsed-w.last < 10*time.Second {
		return
	}
	w.last = s.Elapsed
	fmt.Fprintf(os.Stderr, "%.0f s: %d of %d ended, %d running, %d refused, %d failed, %.0f tok/s\n",
		s.Elapsed.Seconds(), s.Ended, s.Requests, s.Running, s.Refused, s.Failed, s.TokensPerSecond)
}
