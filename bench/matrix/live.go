package matrix

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/openinfer-go/openinfer/internal/page"
)

// Screen shows a run that goes on: on a terminal a table in its place, elsewhere a line for each cell.
type Screen struct {
	out     io.Writer
	program *tea.Program // of a terminal; it has out
	ended   chan struct{}
}

// NewScreen returns a Screen of out. When in is not nil, out is a terminal and in what is typed there: it is read without
// echo, which would break the table, and Ctrl-C calls interrupt. Close gives the terminal back.
func NewScreen(out io.Writer, in io.Reader, interrupt func()) *Screen {
	if in == nil {
		return &Screen{out: out}
	}
	return newTerminal(frame{interrupt: interrupt}, tea.WithInput(in), tea.WithOutput(out))
}

func newTerminal(f frame, options ...tea.ProgramOption) *Screen {
	s := &Screen{program: tea.NewProgram(f, append(options, tea.WithoutSignalHandler())...), ended: make(chan struct{})}
	go func() {
		defer close(s.ended)
		s.program.Run() // without a table the run is as good: what it measured is printed at its end
	}()
	return s
}

// Show is a Config's Watch.
func (s *Screen) Show(st Status) {
	switch {
	case s.program != nil:
		s.program.Send(lines(table(st))) // made here: what a Status shows changes afterwards
	case st.Ended:
		fmt.Fprintln(s.out, st.Result.Cells[st.Cell].line())
	}
}

// Close leaves the latest table where it is. Nothing may be shown any more.
func (s *Screen) Close() {
	if s.program != nil {
		s.program.Quit()
		<-s.ended
	}
}

// lines is the message that has a new table.
type lines []string

// frame is what stands in a terminal.
type frame struct {
	lines     lines
	height    int // of the terminal; 0: not known yet
	interrupt func()
}

// Init implements tea.Model.
func (f frame) Init() tea.Cmd { return nil }

// Update implements tea.Model.
func (f frame) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case lines:
		f.lines = msg
	case tea.WindowSizeMsg:
		f.height = msg.Height
	case tea.KeyPressMsg:
		if msg.String() == "ctrl+c" {
			f.interrupt()
		}
	}
	return f, nil
}

// View implements tea.Model. Of a table higher than the terminal the end is seen: how the run stands. The last line is
// empty, as what a program prints after its end begins there.
func (f frame) View() tea.View {
	seen := f.lines
	if room := f.height - 1; room > 0 && len(seen) > room {
		seen = seen[len(seen)-room:]
	}
	return tea.NewView(strings.Join(seen, "\n") + "\n")
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
