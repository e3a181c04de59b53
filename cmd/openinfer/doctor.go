package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/openinfer-go/openinfer/engine"
)

func doctorCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "doctor",
		Short: "Say what this machine has and what would be used",
		Args:  noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			fmt.Fprint(cmd.OutOrStdout(), engine.Inspect())
			return nil
		},
	}
}
