package page

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// Plain is a Block that can also be written on a terminal. All blocks of this package are.
type Plain interface {
	Plain() string // lines, the last with its end
}

// WriteText writes the page for a terminal, without what is not Plain.
func (p *Page) WriteText(w io.Writer) error {
	var b strings.Builder
	for _, s := range []string{p.Title, p.Notice, p.Lead} {
		if s != "" {
			fmt.Fprintln(&b, s)
		}
	}
	for _, s := range p.Sections {
		fmt.Fprintf(&b, "\n%s\n%s\n", s.Title, strings.Repeat("-", utf8.RuneCountInString(s.Title)))
		if s.Lead != "" {
			fmt.Fprintln(&b, s.Lead)
		}
		for _, block := range s.Blocks {
			if t, ok := block.(Plain); ok {
				b.WriteString(t.Plain())
			}
		}
	}
	if p.Footer != "" {
		fmt.Fprintf(&b, "\n%s\n", p.Footer)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// Plain implements Plain.
func (t Text) Plain() string { return string(t) + "\n" }

// Plain implements Plain.
func (c Code) Plain() string {
	return "  " + strings.ReplaceAll(strings.TrimRight(string(c), "\n"), "\n", "\n  ") + "\n"
}

// Plain implements Plain.
func (f Facts) Plain() string {
	width := 0
	for _, x := range f {
		width = max(width, utf8.RuneCountInString(x.Name))
	}
	var b strings.Builder
	for _, x := range f {
		line := fmt.Sprintf("  %-*s  %s", width, x.Name, x.Value)
		if x.Note != "" {
			line += " (" + x.Note + ")"
		}
		b.WriteString(line + "\n")
	}
	return b.String()
}

// Plain implements Plain: columns as wide as they have to be, numbers to the right.
func (t Table) Plain() string {
	widths := make([]int, len(t.Columns))
	right := make([]bool, len(t.Columns)) // of which all cells are numbers, or say nothing
	rows := [][]string{t.Columns}
	for i := range right {
		right[i] = i > 0
	}
	for _, r := range t.Rows {
		line := make([]string, len(r))
		for i, c := range r {
			if line[i] = c.Text; c.Note != "" {
				line[i] += " (" + c.Note + ")"
			}
			if i < len(right) && !isNumber(c.Text) && c.Kind != Muted {
				right[i] = false
			}
		}
		rows = append(rows, line)
	}
	for _, line := range rows {
		for i, s := range line {
			if i < len(widths) {
				widths[i] = max(widths[i], utf8.RuneCountInString(s))
			}
		}
	}
	var b strings.Builder
	if t.Caption != "" {
		b.WriteString(t.Caption + "\n")
	}
	for _, line := range rows {
		var cells strings.Builder
		for i, s := range line {
			fill := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(s))
			if right[i] {
				s = fill + s
			} else {
				s += fill
			}
			cells.WriteString("  " + s)
		}
		b.WriteString(strings.TrimRight(cells.String(), " ") + "\n")
	}
	if t.Note != "" {
		b.WriteString(t.Note + "\n")
	}
	return b.String()
}

// Bytes writes a number of bytes with a binary unit.
func Bytes(n int64) string {
	switch f := float64(n); {
	case n >= 1<<30:
		return fmt.Sprintf("%.2f GiB", f/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", f/(1<<20))
	case n >= 1<<10:
		return fmt.Sprintf("%.1f KiB", f/(1<<10))
	}
	return fmt.Sprintf("%d bytes", n)
}

// Tokens writes a number of tokens: whole thousands of 1024 as 8K.
func Tokens(n int) string {
	if n >= 1024 && n%1024 == 0 {
		return fmt.Sprintf("%dK", n/1024)
	}
	return fmt.Sprint(n)
}

// Rate writes a rate, or another number, with three digits or more.
func Rate(x float64) string {
	switch {
	case x < 10:
		return fmt.Sprintf("%.2f", x)
	case x < 100:
		return fmt.Sprintf("%.1f", x)
	}
	return fmt.Sprintf("%.0f", x)
}

// Seconds writes a time.
func Seconds(s float64) string {
	switch {
	case s < 0.01:
		return fmt.Sprintf("%.2f ms", s*1e3)
	case s < 0.1:
		return fmt.Sprintf("%.1f ms", s*1e3)
	case s < 1:
		return fmt.Sprintf("%.0f ms", s*1e3)
	case s < 10:
		return fmt.Sprintf("%.2f s", s)
	}
	return fmt.Sprintf("%.1f s", s)
}
