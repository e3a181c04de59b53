package main

import (
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"github.com/openinfer-go/openinfer/models/hub"
)

func pullCommand() *cobra.Command {
	var o hub.Options
	var revision string
	cmd := &cobra.Command{
		Use:   "pull NAME",
		Short: "Fetch a model from a Hugging Face-compatible hub into the usual cache",
		Long: `Fetch a model from a Hugging Face-compatible hub into the cache that its own tools use: HF_HUB_CACHE,
HF_HOME/hub or ~/.cache/huggingface/hub. The path is printed; serve, run and models then find it by NAME.

NAME is org/name, org/name@revision, and where a repository has several GGUF files org/name:Q4_K_M or
org/name/file.gguf. Of a repository with safetensors only config, tokenizer, chat template and the
weights themselves are fetched. What is there and right is not fetched again, what was fetched in part
is gone on with, and every file is held to the hash that the hub states.`,
		Example: `  openinfer pull Qwen/Qwen3-1.7B
  openinfer pull unsloth/phi-4-GGUF:Q4_K_M && openinfer serve --models unsloth/phi-4-GGUF:Q4_K_M`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fmt.Errorf("pull takes one model, such as org/name; got %d", len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := hub.ParseRef(args[0])
			switch {
			case err != nil:
				return err
			case r.Revision != "" && revision != "" && r.Revision != revision:
				return fmt.Errorf("--revision %s: %s names the revision %s", revision, args[0], r.Revision)
			case revision != "":
				r.Revision = revision
			}
			if o.Token == "" {
				if o.Token, err = hub.DefaultToken(); err != nil {
					return err
				}
			}
			o.Offline = hub.DefaultOffline()
			show := newPullDisplay(cmd.ErrOrStderr())
			o.Progress = show.event
			path, err := hub.Pull(cmd.Context(), r, o)
			show.end()
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), path)
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(&revision, "revision", "", "branch, tag or commit (default: main)")
	f.StringVar(&o.Endpoint, "endpoint", "", "the hub's address (default: HF_ENDPOINT, else "+hub.DefaultEndpoint+")")
	f.StringVar(&o.Token, "token", "", "access token (default: HF_TOKEN, else the file where the hub's own tools keep it)")
	f.IntVar(&o.Connections, "connections", 4, "files fetched at a time")
	return cmd
}

// pullDisplay shows a pull: bars on a terminal, elsewhere a line when a file's state changes.
type pullDisplay struct {
	out  io.Writer
	bars *mpb.Progress // nil when out is no terminal
	last map[string]hub.State
	bar  map[string]*pullBar
	note func(format string, args ...any)
}

func newPullDisplay(out io.Writer) *pullDisplay {
	d := &pullDisplay{out: out, last: map[string]hub.State{}, bar: map[string]*pullBar{}}
	d.note = func(format string, args ...any) { fmt.Fprintf(d.out, format+"\n", args...) }
	if f, ok := out.(*os.File); ok && isTerminal(f) {
		d.bars = mpb.New(mpb.WithOutput(f), mpb.WithWidth(64), mpb.WithRefreshRate(150*time.Millisecond))
		d.note = func(format string, args ...any) { fmt.Fprintf(d.bars, format+"\n", args...) }
	}
	return d
}

// event is hub.Options.Progress.
func (d *pullDisplay) event(e hub.Event) {
	before, seen := d.last[e.File]
	changed := !seen || before != e.State
	d.last[e.File] = e.State
	switch {
	case e.State == hub.Ready && d.bars != nil:
		d.show(e)
		d.bar[e.File].SetTotal(e.Size, true)
	case e.State == hub.Ready:
		d.note("%s: %s, %s", e.File, e.Note, sizeText(e.Size))
	case e.Note != "" && e.File == "":
		d.note("%s", e.Note)
	case e.Note != "":
		d.note("%s: %s", e.File, e.Note)
	case d.bars != nil:
		d.show(e)
	case changed && e.State == hub.Fetching && e.Done > 0:
		d.note("%s: fetching, %s of %s are here", e.File, sizeText(e.Done), sizeText(e.Size))
	case changed && e.State == hub.Fetching:
		d.note("%s: fetching, %s", e.File, sizeText(e.Size))
	}
}

// show moves a file's bar. Only Ready completes one: until then what has come is still checked, and may come again.
func (d *pullDisplay) show(e hub.Event) {
	b := d.bar[e.File]
	if b == nil {
		b = new(pullBar)
		b.Bar = d.bars.AddBar(0,
			mpb.PrependDecorators(decor.Name(e.File, decor.WCSyncSpaceR)),
			mpb.AppendDecorators(
				decor.CountersKibiByte("% .1f / % .1f", decor.WCSyncSpace),
				decor.OnComplete(decor.AverageETA(decor.ET_STYLE_GO, decor.WCSyncSpace), "done"),
				decor.Any(func(decor.Statistics) string {
					if hub.State(b.state.Load()) == hub.Checking {
						return " checking"
					}
					return ""
				})))
		d.bar[e.File] = b
	}
	b.state.Store(int32(e.State))
	b.SetTotal(max(e.Size, 0), false)
	b.SetCurrent(e.Done)
}

// pullBar is a file's bar, which is drawn by a goroutine of its own.
type pullBar struct {
	*mpb.Bar
	state atomic.Int32 // a hub.State
}

// end takes the bars of files that did not come away and lets the last state be drawn.
func (d *pullDisplay) end() {
	if d.bars == nil {
		return
	}
	for _, b := range d.bar {
		if !b.Completed() {
			b.Abort(false)
		}
	}
	d.bars.Wait()
}

func sizeText(n int64) string {
	switch {
	case n < 0:
		return "size unknown"
	case n < 1e6:
		return fmt.Sprintf("%.1f kB", float64(n)/1e3)
	case n < 1e9:
		return fmt.Sprintf("%.1f MB", float64(n)/1e6)
	}
	return fmt.Sprintf("%.2f GB", float64(n)/1e9)
}
