package main

import (
	"errors"
	"fmt"

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
		Long: `Make an INT4 checkpoint (compressed-tensors pack-quantized, which vLLM and transformers read) of another one.

IN is an embedded model, a checkpoint folder or a .gguf file (of llama, qwen2 or qwen3), OUT a folder that is not there yet or empty. Weights of linear layers become
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
			if calibration == "" && cmd.Flags().Changed("calibration-tokens") {
				return errors.New("--calibration-tokens: does nothing without --calibration")
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
	for _, flag := range []string{"group", "asymmetric", "calibration"} {
		cmd.MarkFlagsMutuallyExclusive("bf16", flag)
	}
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
