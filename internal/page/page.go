// Package page writes reports: as HTML, one file that holds all it shows and asks nobody for anything, and as text for
// a terminal.
//
// A Page has sections of blocks: tables, facts, text, code, and whatever else implements Block, such as a chart
// whose script and style sheet the page carries (Page.Scripts, Page.Styles). It follows the reader's choice of
// light or dark and reads on a phone: a wide table scrolls within itself, its first column staying.
//
// Invariant: every text is escaped, and the page's own policy forbids the browser any request, so what a script
// or a text smuggled in cannot make one.
package page

import (
	"bytes"
	_ "embed"
	"html/template"
	"io"
	"slices"
)

// Page is one report.
type Page struct {
	Title  string
	Notice string // shown before all else: what a reader must not miss, such as "simulated"
	Lead   string // what the report says, in a sentence or two
	// Sections are listed at the top when there are more than two.
	Sections []Section
	Footer   string // who made it, from what and when
	// Styles and Scripts stand in the page itself: the first after the page's own, the others behind all blocks.
	Styles  []template.CSS
	Scripts []template.JS
}

// Section is a part of a page with a heading of its own.
type Section struct {
	Title  string
	Lead   string
	Blocks []Block
}

// Block is something to show.
type Block interface {
	HTML() (template.HTML, error)
}

// Text is a paragraph.
type Text string

// Code is text as it is typed or printed, such as the command that made a report.
type Code string

// Facts are names with a value each, side by side.
type Facts []Fact

// Fact is a number or a few words that count, and what they are.
type Fact struct {
	Name, Value string
	Note        string // smaller, below
}

// Table is a table whose first column names its rows.
type Table struct {
	Caption string
	Columns []string
	Rows    []Row
	Note    string // below it
}

// Row is a row of a Table, with as many cells as the table has columns.
type Row []Cell

// Cell is a cell of a table. A number is set to the right.
type Cell struct {
	Text string
	Note string // smaller, below
	Kind Kind
}

// Kind is how a cell is set off.
type Kind uint8

// Kinds of cells.
const (
	Usual Kind = iota
	Best       // the one to look at
	Muted      // there is nothing to say, such as "over capacity"
	Bad        // what is wrong, such as a model that does not fit
)

// Cells are plain cells of these texts.
func Cells(texts ...string) Row {
	row := make(Row, len(texts))
	for i, t := range texts {
		row[i].Text = t
	}
	return row
}

var (
	//go:embed page.css
	css string
	//go:embed page.html
	source string
)

var templates = template.Must(template.New("page").Funcs(template.FuncMap{
	"class": class,
	"css":   func() template.CSS { return template.CSS(css) },
}).Parse(source))

// Write writes the page. Nothing is written when a block fails.
func (p *Page) Write(w io.Writer) error {
	var b bytes.Buffer
	if err := templates.ExecuteTemplate(&b, "page", p); err != nil {
		return err
	}
	_, err := w.Write(b.Bytes())
	return err
}

// HTML implements Block.
func (t Text) HTML() (template.HTML, error) { return render("text", t) }

// HTML implements Block.
func (c Code) HTML() (template.HTML, error) { return render("code", c) }

// HTML implements Block.
func (f Facts) HTML() (template.HTML, error) { return render("facts", f) }

// HTML implements Block.
func (t Table) HTML() (template.HTML, error) { return render("table", t) }

// Numeric says whether a column's title belongs to the right, above numbers. The first column has names, even if they are numbers.
func (t Table) Numeric(column int) bool {
	return column > 0 && slices.ContainsFunc(t.Rows, func(r Row) bool { return column < len(r) && isNumber(r[column].Text) })
}

func render(name string, data any) (template.HTML, error) {
	var b bytes.Buffer
	err := templates.ExecuteTemplate(&b, name, data)
	return template.HTML(b.String()), err
}

// class is the class of a cell: its kind, and whether it is a number.
func class(c Cell) string {
	s := [...]string{"", "best", "muted", "bad"}[c.Kind]
	if isNumber(c.Text) {
		if s != "" {
			s += " "
		}
		s += "number"
	}
	return s
}

// isNumber says whether a text begins with a digit, after a sign, or stands where a number would.
func isNumber(s string) bool {
	if len(s) > 1 && (s[0] == '+' || s[0] == '-') {
		s = s[1:]
	}
	return s == "-" || s == "–" || s != "" && s[0] >= '0' && s[0] <= '9'
}
