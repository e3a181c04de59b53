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
		Short: "List the models that can be served by name, or say what a checkpoint folder or .gguf file holds",
		Long: `List the embedded models and those of the hub cache that can be served, or say what each MODEL holds:
an embedded model, a checkpoint folder, a .gguf file, or a model of the hub cache.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 3, ' ', 0)
			fmt.Fprintln(w, "NAME\tARCHITECTURE\tFORMAT\tWEIGHTS\tTENSORS\tCHAT TEMPLATE")
			row := func(name string, d engine.Description) {
				arch, chat := d.Architecture, "no"
				if !d.Supported {
					arch += " (not supported)"
				}
				if d.HasChat {
					chat = "yes"
				}
				fmt.Fprintf(w, "%s\t%s\t%s\t%.1f MB\t%s\t%s\n", name, arch, d.Format, float64(d.Bytes)/1e6, d.Types, chat)
			}
			for _, arg := range args {
				m, err := modelArgument(arg)
				if err != nil {
					return err
				}
				d, err := engine.Describe(engine.ModelSpec{Name: m.Name, Path: m.Path})
				if err != nil {
					return err
				}
				row(m.Name, d)
			}
			if len(args) > 0 {
				return w.Flush()
			}
			cached, err := engine.CachedModels()
			if err != nil {
				return err
			}
			var others []string
			for _, name := range append(engine.EmbeddedModels(), cached...) {
				d, err := engine.Describe(engine.ModelSpec{Name: name})
				if err != nil || !d.Supported {
					others = append(others, name)
					continue
				}
				row(name, d)
			}
			if err := w.Flush(); err != nil {
				return err
			}
			for _, name := range others {
				fmt.Fprintf(cmd.ErrOrStderr(), "%s is in the hub cache and cannot be served: `openinfer models %[1]s` says why\n", name)
			}
			return nil
		},
	}
}
