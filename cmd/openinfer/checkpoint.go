package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/openinfer-go/openinfer/models/checkpoint"
	"github.com/openinfer-go/openinfer/models/demo"
	"github.com/openinfer-go/openinfer/models/quantize"
)

// checkpointOf finds the checkpoint of a model given as one word, to be opened as often as needed.
func checkpointOf(arg string) (quantize.Open, error) {
	m, err := modelArgument(arg)
	if err != nil {
		return nil, err
	}
	return func() (*checkpoint.Checkpoint, error) {
		if m.Path != "" {
			return checkpoint.Open(m.Path)
		}
		files, ok := demo.Open(m.Name)
		if !ok {
			return nil, fmt.Errorf("%s is a config.json without weights: only serve and run have use for it, with --device sim:CARD", m.Name)
		}
		return checkpoint.OpenFS(files, ".")
	}, nil
}

// textFlags say which text is read and how it is cut.
type textFlags struct {
	context, stride int
}

func (t *textFlags) add(cmd *cobra.Command) {
	cmd.Flags().IntVar(&t.context, "context", 512, "tokens of a window of the text")
	cmd.Flags().IntVar(&t.stride, "stride", 0, "tokens from one window to the next (default: the context); smaller gives every token more of the text before it")
}

func (t *textFlags) windows() quantize.Windows {
	return quantize.Windows{Context: t.context, Stride: t.stride}
}

// readText reads the file of a flag.
func readText(flag, path string) (string, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("--%s: %w", flag, err)
	}
	return string(b), nil
}
