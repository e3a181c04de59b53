// Command openinfer serves several language models at once from one device.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	err := root().ExecuteContext(ctx)
	if errors.Is(err, context.Canceled) {
		os.Exit(130) // as the shell has it for what Ctrl-C ended
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "openinfer:", err)
		os.Exit(1)
	}
}

func root() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "openinfer",
		Short: "Several language models at once from one device, over an OpenAI-compatible API",
		Example: `  openinfer serve                                  # the two embedded models on 127.0.0.1:8080
  openinfer serve --models demo-tales,smol=SmolLM2-135M-Instruct.Q4_1.gguf
  openinfer run demo-tales "Tell me a story about a fox and a king"
  openinfer doctor`,
		SilenceErrors:     true,
		SilenceUsage:      true,
		Version:           version(),
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
	}
	cmd.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		if unknown := new(pflag.NotExistError); errors.As(err, &unknown) {
			return fmt.Errorf("%w (%s --help lists those that there are)", err, c.CommandPath())
		}
		return err
	})
	cmd.AddCommand(serveCommand(), runCommand(), pullCommand(), modelsCommand(), planCommand(), benchCommand(), topCommand(), doctorCommand(), quantizeCommand(), perplexityCommand())
	return cmd
}

// version is the module's version, or the commit of a build from a checkout.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	v := info.Main.Version
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && len(s.Value) >= 12 && (v == "" || v == "(devel)") {
			v = s.Value[:12]
		}
	}
	if v == "" {
		v = "(devel)"
	}
	return v
}
