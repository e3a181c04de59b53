package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/openinfer-go/openinfer/engine"
	"github.com/openinfer-go/openinfer/models/quantize"
	"github.com/openinfer-go/openinfer/models/registry"
)

func quantizeCommand() *cobra.Command {
	o := quantize.Options{}
	var asymmetric, float bool
	var group, threads int
	var calibration, eval string
	var t textFlags
	cmd := &cobra.Command{
		Use:   "quantize IN OUT",
		Short: "Make an INT4 checkpoint of another one",
		Long: `Make an INT4 checkpoint (compressed-tensors pack-quantized, which vLLM and transformers read) of any checkpoint.

IN is an embedded model, a checkpoint folder or a .gguf file, OUT a folder that is not there yet. Weights of linear layers become
4-bit codes; embeddings, the output layer, norms, convolutions, vision and prediction-head parts, gates of fewer than 64 outputs and
weights whose inputs are not whole groups stay as they are.

Each scale is found by a search for the least squared error. With --calibration the model is run over a text, and GPTQ
makes the error of the layers' outputs small instead, inputs in order of activation; it needs 16 bytes for each pair of inputs
of the widest layer.

Work that was interrupted is in OUT.partial and goes on when the same command is given again.`,
		Example: `  openinfer quantize Llama-3.2-1B-Instruct llama-int4
  openinfer quantize Qwen3-1.7B qwen3-int4 --calibration train.txt --eval test.txt`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 2 {
				return fmt.Errorf("%s takes the checkpoint to read and the folder to write, got %d words", cmd.CommandPath(), len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			open, err := checkpointOf(args[0])
			if err != nil {
				return err
			}
			o.Out, o.Scheme.Bits, o.Scheme.Group, o.Scheme.Symmetric, o.Context = args[1], 4, group, !asymmetric, t.context
			if float {
				o.Scheme.Bits = 0
			}
			if o.Device, err = engine.OpenDevice("auto", threads, true); err != nil {
				return err
			}
			defer o.Device.Close()
			q := quantizing{cmd: cmd, options: o, open: open}
			if calibration != "" {
				if q.options.Calibration, err = calibrationText(open, calibration); err != nil {
					return err
				}
			}
			if eval != "" {
				if q.text, err = readText("eval", eval); err != nil {
					return err
				}
				q.windows = t.windows()
			}
			return q.run()
		},
	}
	f := cmd.Flags()
	f.IntVar(&group, "group", 128, "weights of one scale: 32, 64 or 128")
	f.BoolVar(&asymmetric, "asymmetric", false, "a zero point for each group: a little closer, a little larger")
	f.BoolVar(&float, "bf16", false, "quantise nothing: write weights that are codes as bfloat16")
	f.StringVar(&calibration, "calibration", "", "`FILE` of plain text like what the model will be asked: quantise with GPTQ")
	f.IntVar(&o.CalibrationTokens, "calibration-tokens", 16384, "tokens of the calibration text that are used")
	f.StringVar(&eval, "eval", "", "`FILE` of plain text: print the perplexity before and after")
	f.IntVar(&threads, "threads", 0, "threads of the cpu device (default: one a core)")
	t.add(cmd)
	return cmd
}

func calibrationText(open quantize.Open, path string) (*quantize.Text, error) {
	content, err := readText("calibration", path)
	if err != nil {
		return nil, err
	}
	c, err := open()
	if err != nil {
		return nil, err
	}
	defer c.Close()
	tok, err := registry.Tokenizer(c)
	if err != nil {
		return nil, err
	}
	text := quantize.ReadText(tok, content)
	return &text, nil
}

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
		fmt.Fprintf(q.cmd.ErrOrStderr(), "interrupted: what is done is in %s.partial, and the same command goes on from there\n", q.options.Out)
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
		fmt.Fprintf(out, "perplexity after is %+.2f %%\n", 100*(after.Value/before.Value-1))
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
