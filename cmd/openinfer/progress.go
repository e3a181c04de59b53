package main

import (
	"fmt"
	"io"
	"os"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
)

// progressBar is a bar on a terminal, with lines above it; on a pipe there are the lines alone.
type progressBar struct {
	out  io.Writer
	bars *mpb.Progress
	bar  *mpb.Bar
}

// newProgressBar shows how much of what is done on standard error, and lines on out. bytes says that amounts are bytes.
func newProgressBar(out io.Writer, what string, bytes bool) *progressBar {
	p := &progressBar{out: out}
	if !isTerminal(os.Stderr) {
		return p
	}
	amount := decor.CountersNoUnit("%d / %d ")
	if bytes {
		amount = decor.CountersKibiByte("% .1f / % .1f ")
	}
	p.bars = mpb.New(mpb.WithOutput(os.Stderr))
	p.bar = p.bars.AddBar(0,
		mpb.PrependDecorators(decor.Name(what+" ")),
		mpb.AppendDecorators(amount, decor.AverageETA(decor.ET_STYLE_GO)))
	return p
}

// set shows that done of all is done.
func (p *progressBar) set(done, all int64) {
	if p.bar != nil {
		p.bar.SetTotal(all, false)
		p.bar.SetCurrent(done)
	}
}

// printf writes a line, above the bar when there is one.
func (p *progressBar) printf(format string, args ...any) {
	if p.bars != nil && isTerminal(os.Stdout) {
		fmt.Fprintf(p.bars, format, args...)
		return
	}
	fmt.Fprintf(p.out, format, args...)
}

// close leaves the bar as it is.
func (p *progressBar) close() {
	if p.bar != nil {
		p.bar.Abort(false)
		p.bars.Wait()
	}
}
