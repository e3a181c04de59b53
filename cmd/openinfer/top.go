package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/openinfer-go/openinfer/api/top"
)

func topCommand() *cobra.Command {
	url, key, once := "http://127.0.0.1:8080", "", false
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Watch a server: memory, models, requests, rates",
		Long: `Watch a server in the terminal, as its page at / does in a browser: memory, models, requests, rates; and load, park and
cancel by keys. Without a terminal, or with --once, one snapshot is printed as plain text.

The API key is --api-key or, without that, what OPENAI_API_KEY has.`,
		Example: `  openinfer top
  openinfer top --url http://10.0.0.7:8080 --once`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if key == "" {
				key = os.Getenv("OPENAI_API_KEY")
			}
			c, err := top.NewClient(url, key)
			if err != nil {
				return err
			}
			if once || !isTerminal(os.Stdout) || !isTerminal(os.Stdin) {
				return top.Once(cmd.Context(), c, cmd.OutOrStdout())
			}
			return top.Watch(cmd.Context(), c, os.Stdin, os.Stdout)
		},
	}
	f := cmd.Flags()
	f.StringVar(&url, "url", url, "`ADDRESS` of the server")
	f.StringVar(&key, "api-key", "", "`KEY` of the server, if it asks for one")
	f.BoolVar(&once, "once", false, "print one snapshot and end")
	return cmd
}
