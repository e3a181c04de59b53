package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/openinfer-go/openinfer/engine"
	"github.com/openinfer-go/openinfer/internal/config"
)

// noArguments refuses words that are no flags.
func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("%s takes no arguments, only flags: what is %q for?", cmd.CommandPath(), args[0])
	}
	return nil
}

// modelFlags are flags with a value for all models or for one by name.
type modelFlags struct {
	models, maxModelLen, maxNumSeqs, kvCacheDType, reasoningParser, toolCallParser, quantize []string
	keepAlive, slaTTFT, slaTPOT, weight                                                      []string
}

// deviceFlags adds what says where and with how much a model runs.
func deviceFlags(cmd *cobra.Command, c *config.Serve, m *modelFlags) {
	f := cmd.Flags()
	f.StringVar(&c.Device, "device", "auto", "auto (a card if there is one), cpu, ref (plain Go: the slow specification), cuda (cuda:N for another card than the first), cuda:ptx (an interpreter of the cards' kernels: very slow, for tests and to learn from) or sim:CARD, which takes a card's time and memory and makes answers up: "+strings.Join(engine.SimulatedCards(), ", "))
	f.IntVar(&c.Threads, "threads", 0, "threads of the cpu device (default: one a core)")
	f.BoolVar(&c.Exact, "exact", false, "float32 activations and KV cache instead of int8 and fp16: slower, closest to the reference")
	f.BoolVar(&c.FP16Accumulation, "fp16-accumulation", false, "on a card, sum products in fp16, 32 inputs at a time: GeForce cards multiply twice as fast so, with a third more rounding error")
	f.StringSliceVar(&m.reasoningParser, "reasoning-parser", nil, strings.Join(engine.ReasoningParsers(), ", ")+", for all models or NAME=PARSER (default auto: by the chat template)")
	f.StringSliceVar(&m.toolCallParser, "tool-call-parser", nil, strings.Join(engine.ToolCallParsers(), ", ")+", for all models or NAME=PARSER (default auto: by the chat template)")
	memoryFlags(cmd, c, m)
}

// memoryFlags adds what decides how much memory models take.
func memoryFlags(cmd *cobra.Command, c *config.Serve, m *modelFlags) {
	f := cmd.Flags()
	f.Var(&c.KVMemory, "kv-memory", "KV cache shared by all models, for example 2GiB (default: what the models can use, at most a quarter of free memory and 4GiB)")
	f.StringSliceVar(&m.kvCacheDType, "kv-cache-dtype", nil, "auto (fp16; float32 with --exact), float32, fp16, bf16, fp8-e4m3 or int8, for all models or NAME=TYPE")
	f.StringSliceVar(&m.quantize, "quantize", nil, "quantise float weights while loading: int4-g128, int4-g64 or int4-g32, with -head8 behind it the embedding and output layer in 8 bits; none undoes it; for all models or NAME=HOW")
	f.StringSliceVar(&m.maxModelLen, "max-model-len", nil, "longest prompt and answer together in tokens, N for all models or NAME=N (default, and most: the checkpoint's)")
}

// limitFlags adds what a server may do at once.
func limitFlags(cmd *cobra.Command, c *config.Serve, m *modelFlags) {
	f := cmd.Flags()
	f.StringSliceVar(&m.maxNumSeqs, "max-num-seqs", nil, "sequences that run at once, N for each model or NAME=N (default 64, on a card 256)")
	f.Var(&c.WeightsMemory, "weights-memory", "weights of all models on the device together; models beyond it are parked and take turns (default: what is free)")
	f.StringSliceVar(&m.slaTTFT, "sla-ttft", nil, "time to the first token that requests get unless they name one, for example 2s, for all models or NAME=TIME; those that could not be met get 429 (default: best effort)")
	f.StringSliceVar(&m.slaTPOT, "sla-tpot", nil, "time for each token after the first, for example 50ms, for all models or NAME=TIME (default: best effort)")
	f.IntVar(&c.MaxBatchedTokens, "max-num-batched-tokens", 0, "tokens of one step (default 512, on a card 2048)")
}

// apply folds the per-model flags into c, whose models are known by then.
func (m *modelFlags) apply(c *config.Serve) error {
	setInt := func(to *int) func(string) error {
		return func(s string) (err error) { *to, err = config.Int(s); return err }
	}
	err := config.PerModel("max-model-len", m.maxModelLen, c.Models, setInt(&c.MaxModelLen),
		func(mo *config.Model, s string) error { return setInt(&mo.MaxModelLen)(s) })
	if err != nil {
		return err
	}
	err = config.PerModel("max-num-seqs", m.maxNumSeqs, c.Models, setInt(&c.MaxNumSeqs),
		func(mo *config.Model, s string) error { return setInt(&mo.MaxNumSeqs)(s) })
	if err != nil {
		return err
	}
	setName := func(to *string) func(string) error {
		return func(s string) error { *to = s; return nil }
	}
	setKeepAlive := func(to *string) func(string) error {
		return func(s string) (err error) {
			*to = s
			_, err = engine.ParseKeepAlive(s)
			return err
		}
	}
	err = config.PerModel("kv-cache-dtype", m.kvCacheDType, c.Models, setName(&c.KVCacheDType),
		func(mo *config.Model, s string) error { return setName(&mo.KVCacheDType)(s) })
	if err != nil {
		return err
	}
	err = config.PerModel("quantize", m.quantize, c.Models, setName(&c.Quantize),
		func(mo *config.Model, s string) error { return setName(&mo.Quantize)(s) })
	if err != nil {
		return err
	}
	err = config.PerModel("keep-alive", m.keepAlive, c.Models, setKeepAlive(&c.KeepAlive),
		func(mo *config.Model, s string) error { return setKeepAlive(&mo.KeepAlive)(s) })
	if err != nil {
		return err
	}
	err = config.PerModel("sla-ttft", m.slaTTFT, c.Models, c.SLATTFT.Set,
		func(mo *config.Model, s string) error { return mo.SLATTFT.Set(s) })
	if err != nil {
		return err
	}
	err = config.PerModel("sla-tpot", m.slaTPOT, c.Models, c.SLATPOT.Set,
		func(mo *config.Model, s string) error { return mo.SLATPOT.Set(s) })
	if err != nil {
		return err
	}
	err = config.PerModel("weight", m.weight, c.Models,
		func(string) error { return errors.New("is one model's share beside others': write NAME=NUMBER") },
		func(mo *config.Model, s string) (err error) {
			if mo.Weight, err = strconv.ParseFloat(s, 64); err != nil || !(mo.Weight > 0) {
				return fmt.Errorf("%q is not a number above 0", s)
			}
			return nil
		})
	if err != nil {
		return err
	}
	err = config.PerModel("tool-call-parser", m.toolCallParser, c.Models, setName(&c.ToolCallParser),
		func(mo *config.Model, s string) error { return setName(&mo.ToolCallParser)(s) })
	if err != nil {
		return err
	}
	return config.PerModel("reasoning-parser", m.reasoningParser, c.Models, setName(&c.ReasoningParser),
		func(mo *config.Model, s string) error { return setName(&mo.ReasoningParser)(s) })
}

func engineOptions(c config.Serve) (engine.Options, error) {
	if err := config.Check(c.Models); err != nil {
		return engine.Options{}, err
	}
	o := engine.Options{
		Device: c.Device, Threads: c.Threads, Exact: c.Exact, FP16Accumulation: c.FP16Accumulation, KVMemory: int64(c.KVMemory), KVCacheDType: c.KVCacheDType, Quantize: c.Quantize,
		WeightMemory: int64(c.WeightsMemory), SLA: engine.SLA{TTFT: time.Duration(c.SLATTFT), TPOT: time.Duration(c.SLATPOT)},
		PrefixCache: c.PrefixCaching, MaxNumSeqs: c.MaxNumSeqs, MaxBatchedTokens: c.MaxBatchedTokens, MaxWaiting: c.MaxWaiting,
	}
	var err error
	if o.KeepAlive, err = keepAlive(c.KeepAlive); err != nil {
		return o, fmt.Errorf("keep_alive: %w", err)
	}
	for _, m := range c.Models {
		stays, err := keepAlive(m.KeepAlive)
		if err != nil {
			return o, fmt.Errorf("model %s: keep_alive: %w", m.Name, err)
		}
		if m.MaxModelLen == 0 {
			m.MaxModelLen = c.MaxModelLen
		}
		if m.ReasoningParser == "" {
			m.ReasoningParser = c.ReasoningParser
		}
		if m.ToolCallParser == "" {
			m.ToolCallParser = c.ToolCallParser
		}
		o.Models = append(o.Models, engine.ModelSpec{
			Name: m.Name, Path: m.Path, MaxModelLen: m.MaxModelLen, MaxNumSeqs: m.MaxNumSeqs, KVCacheDType: m.KVCacheDType,
			ReasoningParser: m.ReasoningParser, ToolCallParser: m.ToolCallParser, Quantize: m.Quantize, KeepAlive: stays, Weight: m.Weight,
			SLA: engine.SLA{TTFT: time.Duration(m.SLATTFT), TPOT: time.Duration(m.SLATPOT)},
		})
	}
	return o, nil
}

// keepAlive is what such a setting means; nil when there is none.
func keepAlive(s string) (*time.Duration, error) {
	if s == "" {
		return nil, nil
	}
	d, err := engine.ParseKeepAlive(s)
	return &d, err
}

// locate finds models that a command line names, and names those that have no name.
func locate(models []config.Model) error {
	for i := range models {
		m := &models[i]
		found, err := engine.Locate(m.Path)
		switch {
		case err != nil && m.Name != "":
			return fmt.Errorf("model %s: %w", m.Name, err)
		case err != nil:
			return err
		case m.Name == "":
			m.Name = found.Name
		}
		if found.Path != "" || m.Name == found.Name {
			m.Path = found.Path
		}
	}
	return nil
}

// modelArgument reads MODEL or NAME=MODEL of the command line.
func modelArgument(arg string) (config.Model, error) {
	models := []config.Model{config.ParseModel(arg)}
	err := locate(models)
	return models[0], err
}
