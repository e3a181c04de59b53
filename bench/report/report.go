// Package report is what results of benchmarks share when they are shown: charts for the pages of internal/page.
//
// A Chart is a page.Block. A page that has one carries uPlot and what draws with it in the page itself: AddCharts puts
// them there. Without a script the chart's numbers stay, as a table; on a terminal they are a table or a line of blocks.
//
// Colours are the page's, light or dark as the reader has it, and told apart by those who see fewer of them; the strokes differ, too.
//
// When it is drawn a chart looks at its own pixels: its element's data-drawn is the number of series whose colour is
// there. test/pages reads it.
package report

import (
	_ "embed"
	"html/template"

	"github.com/openinfer-go/openinfer/internal/page"
	"github.com/openinfer-go/openinfer/internal/uplot"
)

var (
	//go:embed chart.js
	chartJS string
	//go:embed chart.css
	chartCSS string
)

// AddCharts puts what draws charts into p, once a page.
func AddCharts(p *page.Page) {
	p.Styles = append(p.Styles, template.CSS(uplot.Style()), template.CSS(chartCSS))
	p.Scripts = append(p.Scripts, template.JS(uplot.Script()), template.JS(chartJS))
}
