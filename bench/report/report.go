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
	"strings"

	"github.com/openinfer-go/openinfer/internal/page"
)

var (
	//go:embed uplot/uPlot.iife.min.js
	uplotJS string
	//go:embed uplot/uPlot.min.css
	uplotCSS string
	//go:embed uplot/LICENSE
	uplotLicense string
	//go:embed chart.js
	chartJS string
	//go:embed chart.css
	chartCSS string
)

// AddCharts puts what draws charts into p, once a page.
func AddCharts(p *page.Page) {
	license := "uPlot 1.6.32. " + uplotLicense
	// Its first line is an address, which a page that asks nobody for anything does not have.
	_, code, _ := strings.Cut(uplotJS, "*/")
	p.Styles = append(p.Styles, template.CSS("/* "+license+" */\n"+uplotCSS), template.CSS(chartCSS))
	p.Scripts = append(p.Scripts, template.JS("/* "+license+" */"+code), template.JS(chartJS))
}
