package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/openinfer-go/openinfer/engine"
	"github.com/openinfer-go/openinfer/engine/planview"
	"github.com/openinfer-go/openinfer/internal/config"
	"github.com/openinfer-go/openinfer/models/hub"
)

func planCommand() *cobra.Command {
	var c config.Serve
	var m modelFlags
	var o engine.PlanOptions
	var contexts, concurrency []string
	var answer, html string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "Say before buying or downloading whether models fit a card, and how fast they will be",
		Long: `Say before buying or downloading whether models fit a card, and how fast they will be.

A MODEL is what serve takes on a simulated card: an embedded model or config, a checkpoint folder, a config.json or a .gguf
file. Of a model org/name of a hub that was not pulled config.json alone is fetched. It is counted as its files have it, in
16 bits if it names no quantisation; --quantize int4-g128 counts it in 4. A config.json on disk that names none counts as
INT4, as "serve --device sim:CARD" takes it. Flags are serve's and mean the same: what is printed is the server's own plan.

Every time is that of a simulated card.`,
		Example: `  openinfer plan --models qwen3.5-27b,llama-3.2-1b,phi-4
  openinfer plan --models qwen3.8-27b --card rtx3090 --kv-cache-dtype fp8-e4m3 --html plan.html
  openinfer plan --models Qwen/Qwen3-1.7B --quantize int4-g128 --card l4 --json`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if c.Models, err = config.ParseModels(m.models); err != nil {
				return err
			}
			floats, err := locateConfigs(cmd, c.Models)
			if err != nil {
				return fmt.Errorf("--models: %w", err)
			}
			if err := m.apply(&c); err != nil {
				return err
			}
			if o.Options, err = engineOptions(c); err != nil {
				return err
			}
			for i := range o.Models {
				o.Models[i].Floats = floats[i]
			}
			if o.Contexts, err = numbers("contexts", contexts, config.Tokens); err != nil {
				return err
			}
			if o.Concurrency, err = numbers("concurrency", concurrency, config.Int); err != nil {
				return err
			}
			if answer != "" {
				if o.AnswerTokens, err = config.Tokens(answer); err != nil || o.AnswerTokens == 0 {
					return fmt.Errorf("--answer-tokens %q: want a number of tokens of at least 1, for example 8K", answer)
				}
			}
			f, err := engine.Plan(cmd.Context(), o)
			if err != nil {
				return err
			}
			view := planview.New(f, commandLine(cmd, "json", "html"))
			if html != "" {
				if err := writeFile(html, view.Write); err != nil {
					return fmt.Errorf("--html: %w", err)
				}
			}
			if asJSON {
				e := json.NewEncoder(cmd.OutOrStdout())
				e.SetIndent("", " ")
				return e.Encode(f)
			}
			return view.WriteText(cmd.OutOrStdout())
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&m.models, "models", nil, "MODEL or NAME=MODEL, separated by commas")
	f.StringSliceVar(&o.Cards, "card", nil, "cards, separated by commas: "+strings.Join(engine.SimulatedCards(), ", ")+" (default: one row for each)")
	f.StringVar(&c.Device, "device", "", "sim:CARD, as serve takes it, instead of --card")
	memoryFlags(cmd, &c, &m)
	limitFlags(cmd, &c, &m)
	f.StringSliceVar(&contexts, "contexts", nil, "tokens before the answer, separated by commas (default 0,8K,16K,32K,56K)")
	f.StringSliceVar(&concurrency, "concurrency", nil, "numbers of requests at once, separated by commas (default 1,2,4,8,16,32,64,128)")
	f.StringVar(&answer, "answer-tokens", "", "tokens that a request may answer, which the cache has to hold beside its context (default 8K)")
	f.BoolVar(&asJSON, "json", false, "write JSON instead of text")
	f.StringVar(&html, "html", "", "write the plan as one HTML page into `FILE`, too")
	return cmd
}

// locateConfigs finds models, and fetches config.json of those that are only at a hub, which stand for floats.
func locateConfigs(cmd *cobra.Command, models []config.Model) (floats []bool, err error) {
	floats = make([]bool, len(models))
	for i := range models {
		m := &models[i]
		text := m.Path
		err := locate(models[i : i+1])
		if !errors.Is(err, hub.ErrNotCached) {
			if err != nil {
				return nil, err
			}
			continue
		}
		r, err := hub.ParseRef(text)
		if err != nil {
			return nil, err
		}
		show := newPullDisplay(cmd.ErrOrStderr())
		ho := hub.Options{Offline: hub.DefaultOffline(), Progress: show.event}
		if ho.Token, err = hub.DefaultToken(); err != nil {
			return nil, err
		}
		path, err := hub.PullConfig(cmd.Context(), r, ho)
		show.end()
		if err != nil {
			return nil, err
		}
		if m.Name == "" {
			m.Name = text
		}
		m.Path, floats[i] = path, true
	}
	return floats, nil
}

// numbers reads a flag with several; nil when it was not given.
func numbers(flag string, items []string, read func(string) (int, error)) ([]int, error) {
	var list []int
	for _, item := range items {
		n, err := read(item)
		if err != nil {
			return nil, fmt.Errorf("--%s: %w", flag, err)
		}
		list = append(list, n)
	}
	return list, nil
}

// commandLine is the command with the flags that were given, but for those left out.
func commandLine(cmd *cobra.Command, without ...string) string {
	line := cmd.CommandPath()
	cmd.Flags().Visit(func(f *pflag.Flag) {
		for _, n := range without {
			if f.Name == n {
				return
			}
		}
		values := []string{f.Value.String()}
		if list, ok := f.Value.(pflag.SliceValue); ok {
			if values = list.GetSlice(); f.Value.Type() == "stringSlice" { // the others are given once for each
				values = []string{strings.Join(values, ",")}
			}
		}
		for _, value := range values {
			if strings.ContainsAny(value, " \t\n'\"\\$*?&|;<>()`") {
				value = "'" + strings.ReplaceAll(value, "'", `'\''`) + "'"
			}
			switch line += " --" + f.Name; {
			case f.Value.Type() != "bool":
				line += " " + value
			case value != "true":
				line += "=" + value
			}
		}
	})
	return line
}

// writeFile makes a file of what write writes.
func writeFile(path string, write func(w io.Writer) error) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(write(file), file.Close())
}
