package matrix

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/openinfer-go/openinfer/internal/page"
)

// Screen shows a run that goes on: on a terminal a table in its place, elsewhere a line for each cell.
type Screen struct {
	out   io.Writer
	live  bool
	lines int // of the table that stands there
}

// NewScreen returns a Screen; live says that out is a terminal.
func NewScreen(out io.Writer, live bool) *Screen { return &Screen{out: out, live: live} }

// Show is a Config's Watch.
func (s *Screen) Show(st Status) {
	if !s.live {
		if st.Ended {
			fmt.Fprintln(s.out, st.Result.Cells[st.Cell].line())
		}
		return
	}
	lines := table(st)
	var b strings.Builder
	b.WriteString("\x1b[?7l") // a line too long is cut, not broken: the table stays as high as it is
	if s.lines > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", s.lines)
	}
	for _, l := range lines {
		b.WriteString("\r" + l + "\x1b[K\n")
	}
	b.WriteString("\x1b[J\x1b[?7h")
	s.lines = len(lines)
	if st.Done {
		s.lines = 0
	}
	io.WriteString(s.out, b.String())
}

// line is a cell that has ended.
func (c *Cell) line() string {
	what := fmt.Sprintf("%s %s", c.Phase, page.Tokens(c.Context))
	if c.Phase == Decode {
		what += fmt.Sprintf(" x %d", c.Requests)
	}
	switch c.Status {
	case Measured:
		text := fmt.Sprintf("%s: %s tok/s, TTFT %s", what, page.Rate(c.TokensPerSecond), page.Seconds(c.TTFT/1e3))
		if c.Phase == Decode {
			text += fmt.Sprintf(", %s a token, %.1f active, %d tokens", page.Seconds(c.ITL/1e3), c.AverageActive, c.OutputTokens)
		}
		return text
	case Pending:
		return what + ": not measured"
	}
	return fmt.Sprintf("%s: %s (%s)", what, c.Status, c.Why)
}

// table is how a run stands, as lines.
func table(st Status) []string {
	r := st.Result
	lines := []string{r.Server.String()}
	prompts := "prompts  "
	contexts, concurrency := r.axes()
	for i := range r.Cells {
		if c := &r.Cells[i]; c.Phase == Prefill {
			prompts += fmt.Sprintf("%s: %s  ", page.Tokens(c.Context), short(c, st))
		}
	}
	lines = append(lines, prompts)
	if len(contexts) > 0 {
		head := fmt.Sprintf("%-9s", "at once")
		for _, n := range concurrency {
			head += fmt.Sprintf("%8d", n)
		}
		lines = append(lines, head)
	}
	for _, context := range contexts {
		row := fmt.Sprintf("%-9s", page.Tokens(context))
		for _, n := range concurrency {
			text := ""
			if c := r.Find(Decode, context, n); c != nil {
				text = short(c, st)
			}
			row += fmt.Sprintf("%8s", text)
		}
		lines = append(lines, row)
	}
	done := len(r.Cells) - r.Count(Pending)
	if st.Done {
		return append(lines, fmt.Sprintf("%d of %d cells; tok/s", done, len(r.Cells)))
	}
	now := ""
	if st.Cell < len(r.Cells) {
		c := &r.Cells[st.Cell]
		now = fmt.Sprintf("%s %s x %d: ", c.Phase, page.Tokens(c.Context), c.Requests)
	}
	return append(lines, fmt.Sprintf("%s%s, %.0f s; %d of %d cells, about %v left; Ctrl-C keeps what is done",
		now, st.Doing, st.Elapsed.Seconds(), done, len(r.Cells), st.Left.Round(time.Second)))
}

// short is a cell in seven characters.
func short(c *Cell, st Status) string {
	switch c.Status {
	case Measured:
		return page.Rate(c.TokensPerSecond)
	case OverCapacity:
		return "over"
	case Failed:
		return "failed"
	}
	if !st.Done && st.Cell < len(st.Result.Cells) && c == &st.Result.Cells[st.Cell] {
		if st.TokensPerSecond > 0 {
			return "~" + page.Rate(st.TokensPerSecond)
		}
		return "..."
	}
	return "."
}

// axes are the contexts and the concurrency of decode cells.
func (r *Result) axes() (contexts, concurrency []int) {
	for _, c := range r.Cells {
		if c.Phase == Decode {
			contexts, concurrency = append(contexts, c.Context), append(concurrency, c.Requests)
		}
	}
	slices.Sort(contexts)
	slices.Sort(concurrency)
	return slices.Compact(contexts), slices.Compact(concurrency)
}

// String is the server in a line.
func (s Server) String() string {
	text := fmt.Sprintf("%s at %s", s.Model, s.URL)
	if e := strings.TrimSpace(s.Engine + " " + s.Version); e != "" {
		text += " (" + e + ")"
	}
	if s.Simulated != "" {
		return text + ", simulated " + s.Simulated
	}
	if s.Hardware != "" {
		text += ", " + s.Hardware
	}
	return text
}
