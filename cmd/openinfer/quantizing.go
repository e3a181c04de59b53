package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/openinfer-go/openinfer/models/quantize"
)

// quantizing is one run of the command.
type quantizing struct {
	cmd     *cobra.Command
	options quantize.Options
	open    quantize.Open
	text    string // "": not measured
	windows quantize.Windows
}

func (q *quantizing) run() error {
	out := q.cmd.OutOrStdout()
	before, err := q.measure("before", q.open)
	if err != nil {
		return err
	}
	bar := newProgressBar(out, "quantize", true)
	q.options.Progress = func(p quantize.Progress) {
		if p.Coded {
			line := fmt.Sprintf("%-50s weights %6.3f %%", p.Name, 100*p.Weights)
			if p.Outputs > 0 {
				line += fmt.Sprintf("  outputs %6.3f %%", 100*p.Outputs)
			}
			if p.Resumed {
				line += "  (done before)"
			}
			bar.printf("%s\n", line)
		}
		bar.set(p.Done, p.Total)
	}
	r, err := quantize.Run(q.cmd.Context(), q.open, q.options)
	bar.close()
	if errors.Is(err, context.Canceled) {
		if _, err := os.Stat(q.options.Out + ".partial"); err == nil {
			fmt.Fprintf(q.cmd.ErrOrStderr(), "interrupted: what is done is in %s.partial, and the same command goes on from there\n", q.options.Out)
		}
	}
	if err != nil {
		return err
	}
	for _, n := range r.Notes {
		fmt.Fprintf(out, "note: %s\n", n)
	}
	if r.Anew > 0 && q.options.Scheme.Bits != 0 {
		fmt.Fprintf(out, "note: %d weights were codes already; they were dequantised and quantised anew, which adds to their error\n", r.Anew)
	}
	if len(r.Uncalibrated) > 0 {
		fmt.Fprintf(out, "note: the calibration did not reach %s: quantised by the scale search\n", strings.Join(r.Uncalibrated, ", "))
	}
	what := fmt.Sprintf("%v, error of weights %.3f %%", q.options.Scheme, 100*r.Weights)
	if q.options.Scheme.Bits == 0 {
		what = "bfloat16"
	}
	fmt.Fprintf(out, "%s: %d weights quantised, %d tensors copied, %.1f MB from %.1f MB; %s\n",
		q.options.Out, r.Coded, r.Copied, float64(r.Bytes)/1e6, float64(r.SourceBytes)/1e6, what)
	written, err := checkpointOf(q.options.Out)
	if err != nil {
		return err
	}
	after, err := q.measure("after", written)
	if err == nil && q.text != "" {
		fmt.Fprintf(out, "perplexity changed by %+.2f %%\n", 100*(after.Value/before.Value-1))
	}
	return err
}

// measure prints the perplexity, when there is a text. Weights are loaded one at a time.
func (q *quantizing) measure(when string, open quantize.Open) (p quantize.Perplexity, err error) {
	if q.text == "" {
		return p, nil
	}
	bar := newProgressBar(q.cmd.OutOrStdout(), "perplexity "+when, false)
	p, err = quantize.MeasureStreamed(q.cmd.Context(), open, q.options.Device, q.text, q.windows, func(done, all int) { bar.set(int64(done), int64(all)) })
	bar.close()
	if err == nil {
		fmt.Fprintf(q.cmd.OutOrStdout(), "perplexity %s: %v, context %d\n", when, p, q.windows.Context)
	}
	return p, err
}
