package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/openinfer-go/openinfer/bench/load"
	"github.com/openinfer-go/openinfer/bench/matrix"
	"github.com/openinfer-go/openinfer/internal/config"
)

func benchMatrixCommand() *cobra.Command {
	c := matrix.Default()
	var contexts, decodeContexts, concurrency, compare []string
	var maxTokens, extra, file, html, resume string
	cmd := &cobra.Command{
		Use:   "matrix",
		Short: "The speed test: prompts by length, decoding by context and requests at once",
		Long: `The speed test: how fast a server reads prompts by their length, and how fast it decodes by the length of the
context and the number of requests at once. It asks any server that speaks the OpenAI API; the key is in OPENAI_API_KEY.

Decode cells have a warm prompt cache: their prompts are sent before. A cell is over capacity when requests x (context +
--max-tokens) are more tokens than the server's KV cache holds, by its /metrics, or when the server shows it. Ctrl-C keeps
what is done, and --resume goes on from there.

--compare measures nothing: it puts runs that --json wrote side by side in one page.`,
		Example: `  openinfer bench matrix --json run.json --html run.html
  openinfer bench matrix --base-url http://127.0.0.1:8000 --contexts 512,2K --decode-contexts 0,2K --concurrency 1,2,4 --cell-time 10s
  openinfer bench matrix --resume run.json --html run.html
  openinfer bench matrix --compare ours.json,theirs.json --html both.html`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if len(compare) > 0 {
				return compareMatrices(cmd, compare, html)
			}
			for _, l := range []struct {
				flag  string
				items []string
				read  func(string) (int, error)
				to    *[]int
			}{
				{"contexts", contexts, config.Tokens, &c.Contexts}, {"decode-contexts", decodeContexts, config.Tokens, &c.DecodeContexts},
				{"concurrency", concurrency, config.Int, &c.Concurrency},
			} {
				if cmd.Flags().Changed(l.flag) {
					var err error
					if *l.to, err = numbers(l.flag, l.items, l.read); err != nil {
						return err
					}
				}
			}
			if maxTokens != "" {
				var err error
				if c.MaxTokens, err = config.Tokens(maxTokens); err != nil {
					return fmt.Errorf("--max-tokens: %w", err)
				}
			}
			if extra != "" {
				if err := json.Unmarshal([]byte(extra), &c.Extra); err != nil {
					return fmt.Errorf("--extra-body: not a JSON object: %w", err)
				}
			}
			if resume != "" {
				var err error
				if c.Resume, err = matrix.Read(resume); err != nil {
					return fmt.Errorf("--resume: %w", err)
				}
				if file == "" {
					file = resume
				}
			}
			c.Key = os.Getenv("OPENAI_API_KEY")
			c.Command = commandLine(cmd, "json", "html", "resume", "launch-command")
			ctx, interrupt := context.WithCancel(cmd.Context())
			defer interrupt()
			var keys io.Reader
			if isTerminal(os.Stdout) && isTerminal(os.Stdin) {
				keys = os.Stdin
			}
			screen := matrix.NewScreen(os.Stdout, keys, interrupt)
			c.Watch = screen.Show
			if file != "" {
				c.Saved = func(r *matrix.Result) error { return r.Write(file) }
			}
			r, err := matrix.Run(ctx, c)
			screen.Close()
			if r == nil {
				return err
			}
			if err := errors.Join(writeMatrix(html, r), matrix.Page(r).WriteText(os.Stdout)); err != nil {
				return err
			}
			if errors.Is(err, context.Canceled) && file != "" {
				fmt.Fprintf(os.Stderr, "openinfer: --resume %s goes on from here\n", file)
			}
			if err == nil && r.Count(matrix.Measured) == 0 {
				for _, cell := range r.Cells {
					return fmt.Errorf("no cell was measured; the first: %s (%s)", cell.Status, cell.Why)
				}
			}
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(&c.BaseURL, "base-url", c.BaseURL, "`ADDRESS` of the server")
	f.StringVar(&c.Endpoint, "endpoint", "", "`PATH` of requests: "+load.Completions+" (default) or "+load.ChatCompletions)
	f.StringVar(&c.Model, "model", "", "model to ask for (default: the server's first)")
	f.StringVar(&extra, "extra-body", "", "`JSON` object with more fields of all requests")
	f.StringSliceVar(&contexts, "contexts", nil, "tokens of the prompts whose reading is measured, separated by commas (default 8K,16K,32K,56K)")
	f.StringSliceVar(&decodeContexts, "decode-contexts", nil, "tokens before the answer, separated by commas; 0 is a short prompt (default 0,16K,32K,56K)")
	f.StringSliceVar(&concurrency, "concurrency", nil, "numbers of requests at once, separated by commas (default 1,2,4,8,16,32,64,128)")
	f.DurationVar(&c.CellTime, "cell-time", c.CellTime, "that each cell measures")
	f.StringVar(&maxTokens, "max-tokens", "", "tokens of an answer at most (default 8K)")
	f.Uint64Var(&c.Seed, "seed", 0, "the same seed gives the same prompts")
	f.BoolVar(&c.UniquePrompts, "unique-prompts", false, "requests at once have different prompts (default: the same)")
	f.StringVar(&c.Name, "name", "", "of the run, beside others (default: the engine's)")
	f.StringVar(&c.Hardware, "hardware", "", "`TEXT` for the report (default: what the server says)")
	f.StringVar(&c.Engine, "engine", "", "`TEXT` for the report (default: what the server says)")
	f.StringVar(&c.LaunchCommand, "launch-command", "", "`TEXT` for the report: what started the server")
	f.StringVar(&file, "json", "", "`FILE` for the results, written after every cell")
	f.StringVar(&html, "html", "", "`FILE` for the report, one HTML page")
	f.StringVar(&resume, "resume", "", "`FILE` that --json wrote: cells that it has are not measured again")
	f.StringSliceVar(&compare, "compare", nil, "`FILES` that --json wrote, separated by commas: one report of all")
	return cmd
}

// compareMatrices reports runs that were made before.
func compareMatrices(cmd *cobra.Command, files []string, html string) error {
	for _, name := range []string{"json", "resume", "base-url", "contexts", "decode-contexts", "concurrency"} {
		if cmd.Flags().Changed(name) {
			return fmt.Errorf("--%s: not with --compare, which measures nothing", name)
		}
	}
	var runs []*matrix.Result
	for _, file := range files {
		r, err := matrix.Read(strings.TrimSpace(file))
		if err != nil {
			return fmt.Errorf("--compare: %w", err)
		}
		runs = append(runs, r)
	}
	return errors.Join(writeMatrix(html, runs...), matrix.Page(runs...).WriteText(os.Stdout))
}

// writeMatrix writes the page, if one is wanted.
func writeMatrix(html string, runs ...*matrix.Result) error {
	if html == "" {
		return nil
	}
	if err := writeFile(html, matrix.Page(runs...).Write); err != nil {
		return fmt.Errorf("--html: %w", err)
	}
	return nil
}
