package fleet

import (
	"fmt"
	"math"
	"strings"

	"github.com/openinfer-go/openinfer/bench/report"
	"github.com/openinfer-go/openinfer/internal/page"
)

// Page is the comparison as the published ones are laid out: the factor, the runs, the results, four curves over time,
// totals and what a node has of them, latencies by model and the balance of load. It is made for the terminal, too.
func (r *Result) Page() *page.Page {
	first := &r.Fleets[0]
	p := &page.Page{Title: "Fleets: " + r.Title, Footer: "Made by openinfer bench fleet."}
	if r.Simulated != "" {
		p.Notice = "Simulated " + r.Simulated + ", in " + r.clock() + " time: steps take what a data sheet says, no card was measured."
	}
	p.Lead = fmt.Sprintf("%s, under the same open-loop load of %.0f s.", strings.Join(r.names(), " against "), r.Load.Seconds)
	if runs := len(r.Load.Seeds); runs > 1 {
		p.Lead += fmt.Sprintf(" Numbers and curves are means of %d runs.", runs)
	}
	add := func(title, lead string, blocks ...page.Block) {
		p.Sections = append(p.Sections, page.Section{Title: title, Lead: lead, Blocks: blocks})
	}
	if len(r.Against) > 0 {
		add("Sellable factor", "Tokens of requests that were answered within their SLA: "+first.Name+"'s over the others', in the latest run.", r.factors())
		add("Runs", "The same over all runs.", r.runs())
	}
	add("Results", "", r.compare([]quantity{
		{"sellable tok/s", func(f *Fleet) float64 { return f.All.SellableTokens / f.Seconds }, number, ratio},
		{"sellable tokens", func(f *Fleet) float64 { return f.All.SellableTokens }, number, ratio},
		{"peak fleet GPU", func(f *Fleet) float64 { return f.known(f.PeakUtilisation) }, percent, points},
	}, ""))
	add("Over time", "Each point is a second. Requests count from when they are due to their end; GPU is the mean over the fleet's nodes.", r.curves()...)
	totals := []quantity{
		{"total tokens", func(f *Fleet) float64 { return f.All.Tokens }, number, ratio},
		{"aggregate tok/s", func(f *Fleet) float64 { return f.All.Tokens / f.Seconds }, number, ratio},
		{"requests", func(f *Fleet) float64 { return f.All.Offered }, number, ratio},
		{"served", func(f *Fleet) float64 { return f.All.Served }, number, ratio},
		{"served in time", func(f *Fleet) float64 { return f.All.Sellable }, number, ratio},
		{"over capacity", func(f *Fleet) float64 { return f.All.Refused }, number, nil},
		{"over capacity, of requests", func(f *Fleet) float64 { return part(f.All.Refused, f.All.Offered) }, percent, points},
		{"failed", func(f *Fleet) float64 { return f.All.Failed }, number, nil},
		{"mean fleet GPU", func(f *Fleet) float64 { return f.known(f.MeanUtilisation) }, percent, points},
		{"most in flight", func(f *Fleet) float64 { return f.PeakInFlight }, number, nil},
	}
	for _, q := range []quantity{
		{"tried elsewhere", func(f *Fleet) float64 { return f.Redispatched }, number, nil},
		{"weights moved", func(f *Fleet) float64 { return f.Switches }, number, nil},
	} {
		for i := range r.Fleets {
			if q.of(&r.Fleets[i]) > 0 {
				totals = append(totals, q)
				break
			}
		}
	}
	perNode := func(of func(c *Counts) float64) func(*Fleet) float64 {
		return func(f *Fleet) float64 { return of(&f.All) / float64(f.Nodes) }
	}
	add("Totals and per node", "A refusal is quick and nobody here comes back after one: \"served\" is what is to be compared.", r.compare(totals, ""), r.compare([]quantity{
		{"nodes", func(f *Fleet) float64 { return float64(f.Nodes) }, number, nil},
		{"sellable tok/s", func(f *Fleet) float64 { return f.All.SellableTokens / f.Seconds / float64(f.Nodes) }, number, ratio},
		{"sellable tokens", perNode(func(c *Counts) float64 { return c.SellableTokens }), number, ratio},
		{"total tokens", perNode(func(c *Counts) float64 { return c.Tokens }), number, ratio},
		{"aggregate tok/s", func(f *Fleet) float64 { return f.All.Tokens / f.Seconds / float64(f.Nodes) }, number, ratio},
		{"requests", perNode(func(c *Counts) float64 { return c.Offered }), number, ratio},
		{"served", perNode(func(c *Counts) float64 { return c.Served }), number, ratio},
	}, "Per node"))
	add("Latency and throughput by model", "Of what was served, from when it was due: first tokens and whole answers that 95 % had by then, and the tok/s of one answer after its first token.", r.latencies())
	var balance []page.Block
	for _, i := range r.order() {
		balance = append(balance, r.Fleets[i].balance())
	}
	add("Balance of load by model", "GPU is of the nodes that may serve the model, whatever they serve; the peak is one node's busiest second.", balance...)
	add("How it was measured", "", r.method()...)
	report.AddCharts(p)
	return p
}

func (r *Result) names() (names []string) {
	for i := range r.Fleets {
		names = append(names, r.Fleets[i].Name)
	}
	return names
}

// order is how fleets stand beside each other: the first behind those that it is compared with.
func (r *Result) order() (order []int) {
	for i := 1; i < len(r.Fleets); i++ {
		order = append(order, i)
	}
	return append(order, 0)
}

func times(x float64) string { return fmt.Sprintf("%.2fx", x) }

func (r *Result) factors() page.Table {
	t := page.Table{Columns: []string{r.Fleets[0].Name + " sells", "factor", "sellable tokens", "against"}}
	for i, a := range r.Against {
		cell := page.Cell{Text: "sold nothing", Kind: page.Muted}
		mine, other := r.Last[0].All.SellableTokens, r.Last[i+1].All.SellableTokens
		if other > 0 {
			cell = page.Cell{Text: times(mine / other), Kind: page.Best}
		}
		t.Rows = append(t.Rows, page.Row{{Text: "of " + a.Fleet + "'s"}, cell, {Text: number(mine)}, {Text: number(other)}})
	}
	return t
}

func (r *Result) runs() page.Table {
	t := page.Table{Columns: []string{"against", "average", "min", "max", "runs", "dates"}}
	dates := "–"
	if !r.Begin.IsZero() {
		if dates = r.Begin.Format("2006-01-02"); r.End.Format("2006-01-02") != dates {
			dates += " to " + r.End.Format("2006-01-02")
		}
	}
	for _, a := range r.Against {
		row := page.Cells(a.Fleet, "–", "–", "–", "0", dates)
		if len(a.Factors) > 0 {
			row = page.Cells(a.Fleet, times(a.Mean), times(a.Min), times(a.Max), fmt.Sprint(len(a.Factors)), dates)
			row[1].Kind = page.Best
		}
		if none := len(r.Load.Seeds) - len(a.Factors); none > 0 {
			row[4].Note = fmt.Sprintf("and %d in which it sold nothing", none)
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// quantity is a row of a table that compares fleets.
type quantity struct {
	name   string
	of     func(*Fleet) float64 // NaN: not known
	text   func(float64) string
	change func(was, is float64) string // nil: none is shown
}

func ratio(was, is float64) string {
	if was == 0 {
		return "–"
	}
	return times(is / was)
}

func points(was, is float64) string { return fmt.Sprintf("%+.0f points", 100*(is-was)) }

// compare has a column for each fleet, the first one last, and how it differs from each of the others.
func (r *Result) compare(rows []quantity, caption string) page.Table {
	t := page.Table{Caption: caption, Columns: []string{""}}
	for _, i := range r.order() {
		t.Columns = append(t.Columns, r.Fleets[i].Name)
	}
	for _, a := range r.Against {
		if t.Columns = append(t.Columns, "change"); len(r.Against) > 1 {
			t.Columns[len(t.Columns)-1] = "against " + a.Fleet
		}
	}
	unknown := page.Cell{Text: "–", Kind: page.Muted}
	for _, q := range rows {
		row := page.Row{{Text: q.name}}
		for _, i := range r.order() {
			cell := unknown
			if x := q.of(&r.Fleets[i]); !math.IsNaN(x) {
				cell = page.Cell{Text: q.text(x)}
			}
			row = append(row, cell)
		}
		for i := range r.Against {
			cell := unknown
			was, is := q.of(&r.Fleets[i+1]), q.of(&r.Fleets[0])
			if q.change != nil && !math.IsNaN(was) && !math.IsNaN(is) {
				cell = page.Cell{Text: q.change(was, is)}
			}
			row = append(row, cell)
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// known is x, or NaN where nobody metered the cards.
func (f *Fleet) known(x float64) float64 {
	if f.Unmetered {
		return math.NaN()
	}
	return x
}

// curves are the four charts.
func (r *Result) curves() []page.Block {
	seconds := 0
	for i := range r.Fleets {
		seconds = max(seconds, len(r.Fleets[i].Curve))
	}
	var at []float64
	for i := range seconds {
		at = append(at, float64(i))
	}
	series := func(name, unit string, dash int, of func(*Fleet, Second) float64) (all []report.Series) {
		for place, i := range r.order() {
			f := &r.Fleets[i]
			s := report.Series{Name: strings.TrimSpace(f.Name + name), Unit: unit, Colour: place + 1, Dash: dash}
			for n := range seconds {
				var second Second // after its last answer a fleet does nothing
				if n < len(f.Curve) {
					second = f.Curve[n]
				}
				s.Values = append(s.Values, of(f, second))
			}
			all = append(all, s)
		}
		return all
	}
	chart := func(title string, all ...[]report.Series) page.Block {
		c := report.Chart{Title: title, X: report.Axis{Name: "seconds", Values: at}}
		for _, s := range all {
			c.Series = append(c.Series, s...)
		}
		return c
	}
	concurrency := func(name string, dash int) []report.Series {
		return series(name, "requests", dash, func(_ *Fleet, s Second) float64 { return s.InFlight })
	}
	return []page.Block{
		chart("Active concurrency", concurrency("", 1)),
		chart("Throughput, with concurrency", series("", "tok/s", 1, func(_ *Fleet, s Second) float64 { return s.Tokens }), concurrency(", in flight", 2)),
		chart("Fleet GPU utilisation, with concurrency", series("", "%", 1, func(f *Fleet, s Second) float64 { return f.known(100 * s.Utilisation) }), concurrency(", in flight", 2)),
		chart("Refusals per second", series("", "refusals/s", 1, func(_ *Fleet, s Second) float64 { return s.Refused })),
	}
}

// latencies have a row for each model and a group of columns for each fleet.
func (r *Result) latencies() page.Table {
	t := page.Table{Columns: []string{"model"}}
	for _, i := range r.order() {
		name := r.Fleets[i].Name
		t.Columns = append(t.Columns, name+": TTFT p95", "answer p95", "tok/s", "over capacity")
	}
	for k, d := range r.Load.Demands {
		row := page.Row{{Text: d.Model}}
		for _, i := range r.order() {
			m := &r.Fleets[i].Models[k]
			if m.Served == 0 {
				row = append(row, page.Cells("–", "–", "–")...)
			} else {
				row = append(row, page.Cells(millis(m.TTFT95), millis(m.E2E95), fmt.Sprintf("%.1f", m.Rate))...)
			}
			row = append(row, page.Cell{Text: percent(part(m.Refused, m.Offered))})
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

func (f *Fleet) balance() page.Table {
	t := page.Table{Caption: f.Name, Columns: []string{"model", "nodes", "requests", "served", "in time", "over capacity", "failed", "tokens", "mean GPU", "peak GPU"}}
	for _, m := range f.Models {
		t.Rows = append(t.Rows, page.Cells(m.Model, fmt.Sprint(m.Cards), number(m.Offered), number(m.Served), number(m.Sellable), percent(part(m.Refused, m.Offered)),
			number(m.Failed), number(m.Tokens), f.used(m.MeanUtilisation), f.used(m.PeakUtilisation)))
	}
	return t
}

// method is the load, in words and numbers.
func (r *Result) method() []page.Block {
	l := r.Load
	waves := fmt.Sprintf("%d of each model; between their beginnings one takes %.0f %% of the time", l.Waves, 100*l.Width)
	switch {
	case l.Floor == 1:
		waves = "none"
	case l.Floor > 0:
		waves += fmt.Sprintf("; %.0f %% of requests come evenly", 100*l.Floor)
	}
	facts := page.Facts{
		{Name: "load", Value: fmt.Sprintf("%s, %d nodes, %.0f s", l.Name, l.Nodes, l.Seconds)}, {Name: "seeds", Value: strings.Trim(fmt.Sprint(l.Seeds), "[]")},
		{Name: "waves", Value: waves}, {Name: "prompt", Value: fmt.Sprintf("%d tokens that a model's requests share, %d more on average", l.SharedTokens, l.PromptTokens)},
		{Name: "answer", Value: fmt.Sprintf("%d tokens on average", l.OutputTokens)},
	}
	t := page.Table{Columns: []string{"model", "requests expected", "first token within", "then a token within"}}
	for _, d := range l.Demands {
		row := page.Cells(d.Model, number(d.Requests), "–", "–")
		if d.SLA.TTFT > 0 {
			row[2].Text = d.SLA.TTFT.String()
		}
		if d.SLA.TPOT > 0 {
			row[3].Text = d.SLA.TPOT.String()
		}
		t.Rows = append(t.Rows, row)
	}
	blocks := []page.Block{facts, t}
	for _, n := range r.Notes {
		blocks = append(blocks, page.Text(strings.TrimPrefix(n, "- ")))
	}
	if r.Command != "" {
		blocks = append(blocks, page.Code(r.Command))
	}
	return blocks
}
