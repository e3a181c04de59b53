package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"math"
	"strings"
	"unicode/utf8"

	"github.com/openinfer-go/openinfer/internal/page"
)

// Chart is lines over one x. It is a page.Block and page.Plain.
type Chart struct {
	Title string
	X     Axis
	// Series have at most two units between them: the first's axis is on the left, the other's on the right.
	Series []Series
	Note   string // below it
}

// Axis is what lies along x: as many Values or Labels as each series has.
type Axis struct {
	Name   string
	Values []float64 // increasing
	Labels []string  // in the place of Values: names, which stand as far apart as the next
}

// Series is a line.
type Series struct {
	Name   string
	Unit   string    // "tok/s"; "": a mere number
	Values []float64 // NaN: a gap
	Fill   bool      // down to zero
	// Colour and Dash pick one of the palette's and of the kinds of stroke, from 1. 0: by the series' place.
	Colour, Dash int
}

// check names what cannot be drawn.
func (c *Chart) check() error {
	n := len(c.X.Values)
	if c.X.Labels != nil {
		if n > 0 {
			return errors.New("x has values and labels")
		}
		n = len(c.X.Labels)
	}
	for i, v := range c.X.Values {
		if math.IsNaN(v) || math.IsInf(v, 0) || i > 0 && v <= c.X.Values[i-1] {
			return fmt.Errorf("x value %d is %v: not a number greater than the one before", i, v)
		}
	}
	if len(c.Series) == 0 {
		return errors.New("no series")
	}
	for _, s := range c.Series {
		if len(s.Values) != n {
			return fmt.Errorf("series %q has %d values for %d along x", s.Name, len(s.Values), n)
		}
		for i, v := range s.Values {
			if math.IsInf(v, 0) {
				return fmt.Errorf("series %q: value %d is %v", s.Name, i, v)
			}
		}
	}
	if units := c.units(); len(units) > 2 {
		return fmt.Errorf("units %q: at most two", units)
	}
	return nil
}

// units are those of the series, in the order in which they come.
func (c *Chart) units() []string {
	var units []string
	seen := map[string]bool{}
	for _, s := range c.Series {
		if !seen[s.Unit] {
			seen[s.Unit] = true
			units = append(units, s.Unit)
		}
	}
	return units
}

// numbers are values as JSON has them: a gap is null.
type numbers []float64

func (n numbers) MarshalJSON() ([]byte, error) {
	list := make([]*float64, len(n))
	for i := range n {
		if !math.IsNaN(n[i]) {
			list[i] = &n[i]
		}
	}
	return json.Marshal(list)
}

// drawing is a chart as chart.js reads it.
type drawing struct {
	X      string   `json:"x"`
	Values numbers  `json:"values"`
	Labels []string `json:"labels,omitempty"`
	Units  []string `json:"units"`
	Series []line   `json:"series"`
}

type line struct {
	Name   string  `json:"name"`
	Unit   int     `json:"unit"` // of Units
	Values numbers `json:"values"`
	Fill   bool    `json:"fill,omitempty"`
	Colour int     `json:"colour"` // from 0
	Dash   int     `json:"dash"`
}

var chartTemplate = template.Must(template.New("chart").Parse(`<figure class="chart">
{{with .Title}}<figcaption>{{.}}</figcaption>
{{end}}<div class="plot" role="img" aria-label="{{.Title}}" data-chart="{{.Data}}"></div>
<noscript><p class="note">A script draws this chart; its numbers are below.</p></noscript>
{{with .Note}}<p class="note">{{.}}</p>
{{end}}<details><summary>Numbers</summary>{{.Table}}</details>
</figure>`))

// HTML implements page.Block.
func (c Chart) HTML() (template.HTML, error) {
	if err := c.check(); err != nil {
		return "", fmt.Errorf("chart %q: %w", c.Title, err)
	}
	d := drawing{X: c.X.Name, Values: c.X.Values, Labels: c.X.Labels, Units: c.units()}
	if c.X.Labels != nil {
		d.Values = make(numbers, len(c.X.Labels))
		for i := range d.Values {
			d.Values[i] = float64(i)
		}
	}
	pick := func(asked, place int) int {
		if asked > 0 {
			return asked - 1
		}
		return place
	}
	for i, s := range c.Series {
		l := line{Name: s.Name, Values: s.Values, Fill: s.Fill, Colour: pick(s.Colour, i), Dash: pick(s.Dash, i)}
		if s.Unit != d.Units[0] {
			l.Unit = 1
		}
		d.Series = append(d.Series, l)
	}
	data, err := json.Marshal(d)
	if err != nil {
		return "", err
	}
	table, err := c.table().HTML()
	if err != nil {
		return "", err
	}
	var b strings.Builder
	err = chartTemplate.Execute(&b, map[string]any{"Title": c.Title, "Note": c.Note, "Data": string(data), "Table": table})
	return template.HTML(b.String()), err
}

// table is the chart's numbers: a row a value of x.
func (c *Chart) table() page.Table {
	t := page.Table{Columns: []string{c.X.Name}}
	for _, s := range c.Series {
		t.Columns = append(t.Columns, withUnit(s.Name, s.Unit))
	}
	for i := range max(len(c.X.Values), len(c.X.Labels)) {
		row := page.Row{{Text: c.x(i)}}
		for _, s := range c.Series {
			cell := page.Cell{Text: "–", Kind: page.Muted}
			if v := s.Values[i]; !math.IsNaN(v) {
				cell = page.Cell{Text: page.Rate(v)}
			}
			row = append(row, cell)
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// x is the i-th value along x.
func (c *Chart) x(i int) string {
	if c.X.Labels != nil {
		return c.X.Labels[i]
	}
	return fmt.Sprintf("%g", c.X.Values[i])
}

func withUnit(name, unit string) string {
	if unit == "" {
		return name
	}
	return name + ", " + unit
}

// tableMost is how many values along x a terminal shows as a table; more become a line of blocks a series.
const tableMost = 16

// Plain implements page.Plain.
func (c Chart) Plain() string {
	if err := c.check(); err != nil {
		return fmt.Sprintf("chart %q: %v\n", c.Title, err)
	}
	var b strings.Builder
	if n := max(len(c.X.Values), len(c.X.Labels)); n <= tableMost {
		t := c.table()
		t.Caption = c.Title
		b.WriteString(t.Plain())
	} else {
		fmt.Fprintf(&b, "%s (%s %s to %s)\n", c.Title, c.X.Name, c.x(0), c.x(n-1))
		width := 0
		for _, s := range c.Series {
			width = max(width, utf8.RuneCountInString(s.Name))
		}
		for _, s := range c.Series {
			blocks, most := sparkline(s.Values, sparkWidth)
			fmt.Fprintf(&b, "  %-*s  %s  at most %s %s\n", width, s.Name, blocks, page.Rate(most), s.Unit)
		}
	}
	if c.Note != "" {
		b.WriteString(c.Note + "\n")
	}
	return b.String()
}

const sparkWidth = 60

// sparkline is values as a line of at most width blocks, each the mean of those that fall into it, from 0 to the greatest
// value, which it returns too. A gap is a space.
func sparkline(values []float64, width int) (string, float64) {
	width = min(width, len(values))
	most := 0.0
	means := make([]float64, width)
	for i := range means {
		sum, n := 0.0, 0
		for _, v := range values[i*len(values)/width : (i+1)*len(values)/width] {
			if !math.IsNaN(v) {
				sum, n, most = sum+v, n+1, max(most, v)
			}
		}
		means[i] = sum / float64(n) // NaN of none
	}
	blocks := []rune("▁▂▃▄▅▆▇█")
	var b strings.Builder
	for _, v := range means {
		switch {
		case math.IsNaN(v):
			b.WriteByte(' ')
		case most == 0:
			b.WriteRune(blocks[0])
		default:
			b.WriteRune(blocks[min(max(int(v/most*float64(len(blocks))), 0), len(blocks)-1)])
		}
	}
	return b.String(), most
}
