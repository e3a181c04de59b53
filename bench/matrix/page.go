package matrix

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/openinfer-go/openinfer/bench/report"
	"github.com/openinfer-go/openinfer/internal/page"
)

// Page is one run, or several side by side.
func Page(runs ...*Result) *page.Page {
	v := view{runs: runs}
	for i, r := range runs {
		v.names = append(v.names, r.title(i))
	}
	p := &page.Page{Title: "Speed test: " + runs[0].Server.Model, Footer: "Made by openinfer bench matrix."}
	var simulated []string
	for i, r := range runs {
		if card := r.Server.Simulated; card != "" {
			text := "Simulated " + card + ": its times are those of a data sheet, no card was measured."
			if len(runs) > 1 {
				text = v.names[i] + ": simulated " + card + ", no card was measured."
			}
			simulated = append(simulated, text)
		}
	}
	p.Notice = strings.Join(simulated, " ")
	if len(runs) == 1 {
		r := runs[0]
		if h := r.Server.hardware(); h != "" {
			p.Title += " on " + h
		}
		p.Lead = fmt.Sprintf("%d of %d cells measured, %d over capacity", r.Count(Measured), len(r.Cells), r.Count(OverCapacity))
		if n := r.Count(Failed); n > 0 {
			p.Lead += fmt.Sprintf(", %d failed", n)
		}
		if n := r.Count(Pending); n > 0 {
			p.Lead += fmt.Sprintf(", %d not measured", n)
		}
		p.Lead += "."
	} else {
		p.Lead = "Side by side: " + strings.Join(v.names, ", ") + "."
	}
	add := func(title, lead string, blocks ...page.Block) {
		if len(blocks) > 0 {
			p.Sections = append(p.Sections, page.Section{Title: title, Lead: lead, Blocks: blocks})
		}
	}
	add("Run", "", v.facts()...)
	add("Prompts", "Prompts that no cache has seen, one after the other.", v.prompts()...)
	add("Decoding", "Tokens a second of all requests at once, and below it the time to the first token with the prompt in the server's cache.", v.decoding()...)
	add("All cells", "", v.all()...)
	add("How it was measured", "", v.method()...)
	report.AddCharts(p)
	return p
}

// view is what a page is made of.
type view struct {
	runs  []*Result
	names []string
}

// title names the i-th of several runs.
func (r *Result) title(i int) string {
	if r.Name != "" {
		return r.Name
	}
	if r.Server.Engine != "" {
		return r.Server.Engine
	}
	return fmt.Sprintf("run %d", i+1)
}

// hardware is what it ran on, simulated if it was.
func (s *Server) hardware() string {
	switch {
	case s.Simulated != "" && s.Hardware != "":
		return s.Hardware + ", simulated " + s.Simulated
	case s.Simulated != "":
		return "simulated " + s.Simulated
	}
	return s.Hardware
}

func orDash(s string) string {
	if s == "" {
		return "–"
	}
	return s
}

// facts are what the runs were made with: a column each if there are several.
func (v *view) facts() []page.Block {
	names := []string{"hardware", "engine", "model", "run", "a cell", "answer", "seed", "KV cache", "prompts at once"}
	of := func(r *Result) []string {
		s := r.Server
		cache := "not said"
		if s.CacheTokens > 0 {
			cache = strings.TrimSpace(fmt.Sprintf("%d tokens %s", s.CacheTokens, s.CacheDType))
		}
		prompts := "all the same"
		if r.UniquePrompts {
			prompts = "one each"
		}
		when := "not said"
		if !r.Begin.IsZero() {
			when = r.Begin.Format("2006-01-02 15:04") + " UTC"
		}
		if !r.End.IsZero() {
			when += " to " + r.End.Format("15:04")
		}
		return []string{orDash(s.hardware()), orDash(strings.TrimSpace(s.Engine + " " + s.Version)), s.Model, when,
			page.Seconds(r.CellSeconds), "up to " + page.Tokens(r.MaxTokens) + " tokens", fmt.Sprint(r.Seed), cache, prompts}
	}
	var blocks []page.Block
	if len(v.runs) == 1 {
		var facts page.Facts
		for i, value := range of(v.runs[0]) {
			facts = append(facts, page.Fact{Name: names[i], Value: value})
		}
		blocks = append(blocks, facts)
	} else {
		t := page.Table{Columns: append([]string{""}, v.names...)}
		for i, name := range names {
			row := page.Row{{Text: name}}
			for _, r := range v.runs {
				row = append(row, page.Cell{Text: of(r)[i]})
			}
			t.Rows = append(t.Rows, row)
		}
		blocks = append(blocks, t)
	}
	for i, r := range v.runs {
		if r.LaunchCommand != "" {
			name := "The server was started with"
			if len(v.runs) > 1 {
				name = v.names[i] + " was started with"
			}
			blocks = append(blocks, page.Text(name), page.Code(r.LaunchCommand))
		}
	}
	return blocks
}

// contexts are those of all runs' cells of a phase, and all numbers of requests at once.
func (v *view) axes(phase Phase) (contexts, requests []int) {
	for _, r := range v.runs {
		for _, c := range r.Cells {
			if c.Phase == phase {
				contexts, requests = append(contexts, c.Context), append(requests, c.Requests)
			}
		}
	}
	slices.Sort(contexts)
	slices.Sort(requests)
	return slices.Compact(contexts), slices.Compact(requests)
}

// value is what of says of a measured cell, NaN of others.
func value(c *Cell, of func(*Cell) float64) float64 {
	if c == nil || c.Status != Measured {
		return math.NaN()
	}
	return of(c)
}

func rate(c *Cell) float64 { return c.TokensPerSecond }

// cell is a cell of a table: tok/s and TTFT.
func cell(c *Cell) page.Cell {
	switch {
	case c == nil:
		return page.Cell{Text: "–", Kind: page.Muted}
	case c.Status == Measured:
		return page.Cell{Text: page.Rate(c.TokensPerSecond), Note: page.Seconds(c.TTFT / 1e3)}
	case c.Status == Failed:
		return page.Cell{Text: "failed", Kind: page.Bad}
	}
	return page.Cell{Text: string(c.Status), Kind: page.Muted}
}

func (v *view) prompts() []page.Block {
	contexts, _ := v.axes(Prefill)
	if len(contexts) == 0 {
		return nil
	}
	t := page.Table{Columns: []string{"context"}}
	chart := report.Chart{Title: "Prompts by length", X: report.Axis{Name: "tokens of the prompt"}}
	for _, n := range contexts {
		chart.X.Labels = append(chart.X.Labels, page.Tokens(n))
	}
	for i, r := range v.runs {
		of := ""
		if len(v.runs) > 1 {
			of = v.names[i] + ": "
		}
		t.Columns = append(t.Columns, of+"tok/s", of+"TTFT")
		speed := report.Series{Name: of + "speed", Unit: "tok/s", Colour: 2*i + 1, Dash: 1}
		ttft := report.Series{Name: of + "TTFT", Unit: "s", Colour: 2*i + 2, Dash: 2}
		for _, n := range contexts {
			c := r.Find(Prefill, n, 1)
			speed.Values = append(speed.Values, value(c, rate))
			ttft.Values = append(ttft.Values, value(c, func(c *Cell) float64 { return c.TTFT / 1e3 }))
		}
		chart.Series = append(chart.Series, speed, ttft)
	}
	for _, n := range contexts {
		row := page.Row{{Text: page.Tokens(n)}}
		first := len(row)
		for _, r := range v.runs {
			c := r.Find(Prefill, n, 1)
			speed, ttft := cell(c), page.Cell{Text: "–", Kind: page.Muted}
			if speed.Note = ""; c != nil && c.Status == Measured {
				ttft = page.Cell{Text: page.Seconds(c.TTFT / 1e3)}
			}
			row = append(row, speed, ttft)
		}
		v.best(row[first:], 2, func(i int) float64 { return value(v.runs[i].Find(Prefill, n, 1), rate) })
		t.Rows = append(t.Rows, row)
	}
	return []page.Block{t, chart}
}

// best marks the greatest of the runs' cells, which are step apart.
func (v *view) best(row page.Row, step int, of func(run int) float64) {
	most, at := math.Inf(-1), -1
	for i := range v.runs {
		if x := of(i); x > most { // never of NaN
			most, at = x, i
		}
	}
	if at >= 0 && len(v.runs) > 1 {
		row[at*step].Kind = page.Best
	}
}

func (v *view) decoding() []page.Block {
	contexts, requests := v.axes(Decode)
	if len(contexts) == 0 {
		return nil
	}
	var blocks []page.Block
	if len(v.runs) > 1 {
		t := page.Table{Caption: "Side by side, tok/s", Columns: append([]string{"context, requests"}, v.names...)}
		for _, n := range contexts {
			for _, k := range requests {
				row := page.Row{{Text: fmt.Sprintf("%s, %d", page.Tokens(n), k)}}
				for _, r := range v.runs {
					row = append(row, cell(r.Find(Decode, n, k)))
				}
				v.best(row[1:], 1, func(i int) float64 { return value(v.runs[i].Find(Decode, n, k), rate) })
				t.Rows = append(t.Rows, row)
			}
		}
		blocks = append(blocks, t)
	} else {
		t := page.Table{Columns: []string{"context"}}
		for _, k := range requests {
			t.Columns = append(t.Columns, fmt.Sprint(k))
		}
		for _, n := range contexts {
			row := page.Row{{Text: page.Tokens(n)}}
			for _, k := range requests {
				row = append(row, cell(v.runs[0].Find(Decode, n, k)))
			}
			t.Rows = append(t.Rows, row)
		}
		t.Note = "Columns are requests at once, rows are tokens of context before the answer."
		blocks = append(blocks, t)
	}
	for _, x := range []struct {
		title, unit string
		of          func(*Cell) float64
	}{
		{"All requests together", "tok/s", rate},
		{"Time to the first token, prompt in the cache", "ms", func(c *Cell) float64 { return c.TTFT }},
	} {
		if chart := v.chart(x.title, x.unit, contexts, requests, x.of); len(chart.Series) > 0 {
			blocks = append(blocks, chart)
		}
	}
	return blocks
}

// chart has a line a context and run, over the requests at once that any of them measured.
func (v *view) chart(title, unit string, contexts, requests []int, of func(*Cell) float64) report.Chart {
	requests = slices.DeleteFunc(slices.Clone(requests), func(k int) bool {
		for _, r := range v.runs {
			for _, n := range contexts {
				if c := r.Find(Decode, n, k); c != nil && c.Status == Measured {
					return false
				}
			}
		}
		return true
	})
	chart := report.Chart{Title: title, X: report.Axis{Name: "requests at once"}}
	for _, k := range requests {
		chart.X.Labels = append(chart.X.Labels, fmt.Sprint(k))
	}
	for i, r := range v.runs {
		for j, n := range contexts {
			s := report.Series{Name: page.Tokens(n), Unit: unit, Colour: i*len(contexts) + j + 1, Dash: i + 1}
			if len(v.runs) > 1 {
				s.Name = v.names[i] + ", " + s.Name
			}
			some := false
			for _, k := range requests {
				x := value(r.Find(Decode, n, k), of)
				s.Values = append(s.Values, x)
				some = some || !math.IsNaN(x)
			}
			if some {
				chart.Series = append(chart.Series, s)
			}
		}
	}
	return chart
}

// all is the long table of every run.
func (v *view) all() []page.Block {
	var blocks []page.Block
	for i, r := range v.runs {
		t := page.Table{Columns: []string{"phase", "context", "requests at once", "status", "total tok/s", "per request tok/s", "TTFT",
			"time between tokens", "average active", "completed", "output tokens", "measured for", "why"}}
		if len(v.runs) > 1 {
			t.Caption = v.names[i]
		}
		for j := range r.Cells {
			t.Rows = append(t.Rows, r.Cells[j].row())
		}
		if !slices.ContainsFunc(r.Cells, func(c Cell) bool { return c.Why != "" }) {
			t.Columns = t.Columns[:len(t.Columns)-1]
			for j := range t.Rows {
				t.Rows[j] = t.Rows[j][:len(t.Columns)]
			}
		}
		blocks = append(blocks, t)
	}
	return blocks
}

// row is a cell in the long table.
func (c *Cell) row() page.Row {
	row := page.Cells(string(c.Phase), page.Tokens(c.Context), fmt.Sprint(c.Requests), string(c.Status))
	number := func(x float64, text string) {
		if x == 0 { // not measured, or not said
			row = append(row, page.Cell{Text: "–", Kind: page.Muted})
			return
		}
		row = append(row, page.Cell{Text: text})
	}
	switch c.Status {
	case Measured:
	case Failed:
		row[3].Kind = page.Bad
	default:
		row[3].Kind = page.Muted
	}
	number(c.TokensPerSecond, page.Rate(c.TokensPerSecond))
	number(c.PerRequest, page.Rate(c.PerRequest))
	number(c.TTFT, page.Seconds(c.TTFT/1e3))
	number(c.ITL, page.Seconds(c.ITL/1e3))
	number(c.AverageActive, fmt.Sprintf("%.2f", c.AverageActive))
	number(float64(c.Completed), fmt.Sprint(c.Completed))
	number(float64(c.OutputTokens), fmt.Sprint(c.OutputTokens))
	number(c.Seconds, page.Seconds(c.Seconds))
	return append(row, page.Cell{Text: c.Why, Kind: page.Muted})
}

func (v *view) method() []page.Block {
	blocks := []page.Block{
		page.Text("Prefill: prompts that differ, one after the other, each with an answer of one token; tok/s are the prompt's tokens over the time to the first token. Medians over as many prompts as the cell's time allows, one to five."),
		page.Text("Decode: the prompts are sent before the cell, so a server with a prompt cache has them there. So many requests are sent at once; the cell's time begins when all of them decode, and only tokens within it count. A request that ends is followed by another. One that the end of the cell cuts off counts as completed. TTFT and time between tokens are medians."),
		page.Text("Over capacity: requests x (context + answer) tokens are more than the server says its KV cache holds; where it does not say, or had no room all the same: it refused, or never decoded so many at once."),
	}
	for i, r := range v.runs {
		of := ""
		if len(v.runs) > 1 {
			of = v.names[i] + ": "
		}
		if r.Lengths != "" {
			blocks = append(blocks, page.Text(of+r.Lengths+"."))
		}
		if r.Command != "" {
			blocks = append(blocks, page.Code(r.Command))
		}
	}
	return blocks
}
