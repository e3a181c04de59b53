package main

import (
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/openinfer-go/openinfer/engine"
)

func modelsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "models [MODEL...]",
		Short: "List the embedded models, or say what a checkpoint folder or .gguf file holds",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				args = engine.EmbeddedModels()
			}
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 3, ' ', 0)
			fmt.Fprintln(w, "NAME\tARCHITECTURE\tFORMAT\tWEIGHTS\tTENSORS\tCHAT TEMPLATE")
			for _, arg := range args {
				m, err := modelArgument(arg)
				if err != nil {
					return err
				}
				d, err := engine.Describe(m.Name, m.Path)
				if err != nil {
					return err
				}
				arch, chat := d.Architecture, "no"
				if !d.Supported {
					arch += " (not supported)"
				}
				if d.HasChat {
					chat = "yes"
				}
				fmt.Fprintf(w, "%s\t%s\t%s\t%.1f MB\t%s\t%s\n", m.Name, arch, d.Format, float64(d.Bytes)/1e6, d.Types, chat)
			}
			return w.Flush()
		},
	}
}
