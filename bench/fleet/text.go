package fleet

import (
	"fmt"
	"io"
	"strings"
)

// WriteText writes r's tables as Markdown: the factor, the runs, results, totals, and by model latencies, requests and the
// balance of load. Curves are left to pages.
func (r Result) WriteText(w io.Writer) error {
	t := &table{w: w}
	first := r.Fleets[0]
	t.printf("## %s\n\n", r.Title)
	if r.Simulated != "" {
		t.printf("**Simulated** %s, in %s time. ", r.Simulated, r.clock())
	}
	t.printf("%d nodes, %.0f s, %d runs. Numbers are means of the runs.\n\n", r.Load.Nodes, r.Load.Seconds, len(r.Load.Seeds))
	for _, n := range r.Notes {
		t.printf("%s\n", n)
	}
	if len(r.Notes) > 0 {
		t.printf("\n")
	}
	t.row(first.Name+" sells, times", "mean", "least", "most", "runs")
	t.rule(5)
	for _, a := range r.Against {
		if len(a.Factors) == 0 {
			t.row("what "+a.Fleet+" does", "it sold nothing", "", "", "0")
			continue
		}
		t.row("what "+a.Fleet+" does", fmt.Sprintf("**%.2f**", a.Mean), fmt.Sprintf("%.2f", a.Min), fmt.Sprintf("%.2f", a.Max), fmt.Sprint(len(a.Factors)))
	}
	t.printf("\n")
	t.head("", r.Fleets)
	line := func(what string, value func(*Fleet) string) {
		cells := []string{what}
		for i := range r.Fleets {
			cells = append(cells, value(&r.Fleets[i]))
		}
		t.row(cells...)
	}
	line("sellable tok/s", func(f *Fleet) string { return number(f.All.SellableTokens / f.Seconds) })
	line("sellable tok/s a node", func(f *Fleet) string { return number(f.All.SellableTokens / f.Seconds / float64(f.Nodes)) })
	line("sellable tokens", func(f *Fleet) string { return number(f.All.SellableTokens) })
	line("all tokens", func(f *Fleet) string { return number(f.All.Tokens) })
	line("tok/s", func(f *Fleet) string { return number(f.All.Tokens / f.Seconds) })
	line("tok/s a node", func(f *Fleet) string { return number(f.All.Tokens / f.Seconds / float64(f.Nodes)) })
	line("peak fleet GPU", func(f *Fleet) string { return f.used(f.PeakUtilisation) })
	line("mean fleet GPU", func(f *Fleet) string { return f.used(f.MeanUtilisation) })
	line("requests", func(f *Fleet) string { return number(f.All.Offered) })
	line("served", func(f *Fleet) string { return number(f.All.Served) })
	line("over capacity", func(f *Fleet) string {
		return number(f.All.Refused) + " (" + percent(part(f.All.Refused, f.All.Offered)) + ")"
	})
	line("most in flight", func(f *Fleet) string { return number(f.PeakInFlight) })
	if r.Virtual {
		line("tried elsewhere", func(f *Fleet) string { return number(f.Redispatched) })
	}
	line("weights moved", func(f *Fleet) string { return number(f.Switches) })
	t.printf("\nLatencies of what was served; tok/s are of one answer.\n\n")
	t.row("fleet, model", "TTFT p50", "TTFT p95", "TPOT p95", "answer p95", "tok/s", "over capacity")
	t.rule(7)
	for _, f := range r.Fleets {
		for _, m := range f.Models {
			t.row(f.Name+" "+m.Model, millis(m.TTFT50), millis(m.TTFT95), fmt.Sprintf("%.1f ms", m.TPOT95), millis(m.E2E95), fmt.Sprintf("%.1f", m.Rate), percent(part(m.Refused, m.Offered)))
		}
	}
	t.printf("\n")
	t.row("fleet, model (cards)", "requests", "served", "in time", "over capacity", "tokens", "mean GPU", "peak GPU")
	t.rule(8)
	for _, f := range r.Fleets {
		for _, m := range f.Models {
			t.row(fmt.Sprintf("%s %s (%d)", f.Name, m.Model, m.Cards), number(m.Offered), number(m.Served), number(m.Sellable), percent(part(m.Refused, m.Offered)),
				number(m.Tokens), f.used(m.MeanUtilisation), f.used(m.PeakUtilisation))
		}
	}
	t.printf("\n")
	return t.err
}

// clock is the kind of time that the runs took.
func (r Result) clock() string {
	if r.Virtual {
		return "virtual"
	}
	return "real"
}

// used is a utilisation, if it is known.
func (f *Fleet) used(x float64) string {
	if f.Unmetered {
		return "–"
	}
	return percent(x)
}

// table writes rows and keeps the first error.
type table struct {
	w   io.Writer
	err error
}

func (t *table) printf(format string, args ...any) {
	if t.err == nil {
		_, t.err = fmt.Fprintf(t.w, format, args...)
	}
}

func (t *table) row(cells ...string) { t.printf("| %s |\n", strings.Join(cells, " | ")) }
func (t *table) rule(n int)          { t.printf("|%s\n", strings.Repeat("---|", n)) }

func (t *table) head(what string, fleets []Fleet) {
	cells := []string{what}
	for _, f := range fleets {
		cells = append(cells, f.Name)
	}
	t.row(cells...)
	t.rule(len(cells))
}

func number(x float64) string {
	switch {
	case x >= 1e6:
		return fmt.Sprintf("%.2fM", x/1e6)
	case x >= 1e5:
		return fmt.Sprintf("%.0fk", x/1e3)
	case x >= 1e4:
		return fmt.Sprintf("%.1fk", x/1e3)
	}
	return fmt.Sprintf("%.0f", x)
}

func percent(x float64) string { return fmt.Sprintf("%.1f %%", 100*x) }

func millis(ms float64) string {
	if ms >= 1000 {
		return fmt.Sprintf("%.1f s", ms/1000)
	}
	return fmt.Sprintf("%.0f ms", ms)
}

// part is a of b; 0 of nothing.
func part(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}
