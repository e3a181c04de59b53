package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/openinfer-go/openinfer/engine"
	"github.com/openinfer-go/openinfer/models/quantize"
)

func perplexityCommand() *cobra.Command {
	var text, device, kvCacheDType string
	var threads int
	var exact bool
	var t textFlags
	cmd := &cobra.Command{
		Use:   "perplexity MODEL --text FILE",
		Short: "Measure how well a model predicts a text",
		Long: `Measure how well a model predicts a text: exp of the mean negative log probability of its tokens.

The text is cut into windows of --context tokens, each computed from an empty cache; each begins with what the
tokenizer puts before every text, such as the BOS token. Every token is predicted once, from the tokens before it in the
first window that has it. Values can be compared only when model, text, context and stride are the same.`,
		Example: `  openinfer perplexity SmolLM2-135M-Instruct.Q4_1.gguf --text wiki.txt --context 1024`,
		Args:    oneModel,
		RunE: func(cmd *cobra.Command, args []string) error {
			open, err := checkpointOf(args[0])
			if err != nil {
				return err
			}
			content, err := readText("text", text)
			if err != nil {
				return err
			}
			d, err := engine.OpenDevice(device, threads, exact)
			if err != nil {
				return err
			}
			defer d.Close()
			kv, err := engine.KVCacheType(kvCacheDType, d.Info().KVTypes...)
			if err != nil {
				return err
			}
			bar := newProgressBar(cmd.OutOrStdout(), "windows", false)
			start := time.Now()
			p, err := quantize.MeasureLoaded(cmd.Context(), open, d, kv, content, t.windows(), func(done, all int) { bar.set(int64(done), int64(all)) })
			bar.close()
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "perplexity %v, context %d (%v)\n", p, t.context, time.Since(start).Round(time.Millisecond))
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&text, "text", "", "`FILE` of plain text")
	f.StringVar(&device, "device", "auto", "auto (cpu), cpu or ref (plain Go: the slow specification)")
	f.IntVar(&threads, "threads", 0, "threads of the cpu device (default: one a core)")
	f.BoolVar(&exact, "exact", false, "float32 activations and KV cache instead of int8 and fp16")
	f.StringVar(&kvCacheDType, "kv-cache-dtype", "auto", "auto (fp16; float32 with --exact), float32, fp16, bf16, fp8-e4m3 or int8")
	t.add(cmd)
	if err := cmd.MarkFlagRequired("text"); err != nil {
		panic(err)
	}
	return cmd
}

// oneModel wants one argument.
func oneModel(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("%s takes one model, an embedded one, a checkpoint folder or a .gguf file; got %d words", cmd.CommandPath(), len(args))
	}
	return nil
}
