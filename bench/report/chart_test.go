package report

import (
	"bytes"
	"encoding/json"
	"html"
	"math"
	"regexp"
	"strings"
	"testing"

	"github.com/openinfer-go/openinfer/internal/page"
)

func example() Chart {
	return Chart{
		Title: "Decode <by> concurrency", Note: "warm", X: Axis{Name: "at once", Labels: []string{"1", "2", "4"}},
		Series: []Series{
			{Name: "0 \"tokens\"", Unit: "tok/s", Values: []float64{48.2, 89.4, 172.1}},
			{Name: "TTFT", Unit: "ms", Values: []float64{85, 133, math.NaN()}, Colour: 5, Dash: 2},
			{Name: "16K", Unit: "tok/s", Values: []float64{46.6, math.NaN(), math.NaN()}, Fill: true},
		},
	}
}

// TestChartData: what a browser reads out of the attribute is what was given.
func TestChartData(t *testing.T) {
	got, err := example().HTML()
	if err != nil {
		t.Fatal(err)
	}
	data := regexp.MustCompile(`data-chart="([^"]*)"`).FindStringSubmatch(string(got))
	if data == nil {
		t.Fatalf("no data in %s", got)
	}
	var d struct {
		Labels, Units []string
		Values        []float64
		Series        []struct {
			Name               string
			Unit, Colour, Dash int
			Values             []*float64
			Fill               bool
		}
	}
	if err := json.Unmarshal([]byte(html.UnescapeString(data[1])), &d); err != nil {
		t.Fatal(err)
	}
	if len(d.Series) != 3 || len(d.Units) != 2 || d.Units[1] != "ms" || d.Values[2] != 2 || d.Labels[2] != "4" {
		t.Fatalf("%+v", d)
	}
	if s := d.Series[1]; s.Unit != 1 || s.Values[2] != nil || *s.Values[1] != 133 || s.Colour != 4 || s.Dash != 1 {
		t.Errorf("%+v", s)
	}
	if s := d.Series[2]; s.Unit != 0 || s.Name != "16K" || !s.Fill || s.Colour != 2 {
		t.Errorf("%+v", s)
	}
	for _, want := range []string{"Decode &lt;by&gt; concurrency", "<noscript>", `class="number">89.4`, "warm"} {
		if !strings.Contains(string(got), want) {
			t.Errorf("%q is missing in %s", want, got)
		}
	}
}

func TestChartRefuses(t *testing.T) {
	for want, spoil := range map[string]func(*Chart){
		`series "TTFT" has 2 values for 3`: func(c *Chart) { c.Series[1].Values = c.Series[1].Values[:2] },
		"no series":                        func(c *Chart) { c.Series = nil },
		"at most two":                      func(c *Chart) { c.Series[2].Unit = "GB" },
		"x has values and labels":          func(c *Chart) { c.X.Values = []float64{1, 2, 3} },
		"x value 1 is 1":                   func(c *Chart) { c.X = Axis{Values: []float64{1, 1, 2}} },
		"value 0 is +Inf":                  func(c *Chart) { c.Series[0].Values[0] = math.Inf(1) },
	} {
		c := example()
		spoil(&c)
		if _, err := c.HTML(); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "Decode") {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func TestPlain(t *testing.T) {
	const few = `Decode <by> concurrency
  at once  0 "tokens", tok/s  TTFT, ms  16K, tok/s
  1                     48.2      85.0        46.6
  2                     89.4       133           –
  4                      172         –           –
warm
`
	if got := example().Plain(); got != few {
		t.Errorf("%s\nwant\n%s", got, few)
	}
	long := Chart{Title: "Curve", X: Axis{Name: "s"}, Series: []Series{{Name: "a", Unit: "tok/s"}}}
	for i := range 120 {
		v := float64(i)
		if i/20 == 2 {
			v = math.NaN()
		}
		long.X.Values = append(long.X.Values, float64(i))
		long.Series[0].Values = append(long.Series[0].Values, v)
	}
	got := long.Plain()
	const want = "Curve (s 0 to 119)\n  a  ▁▁▁▁▁▁▁▁▂▂▂▂▂▂▂▃▃▃▃▃          ▅▅▅▅▅▅▅▆"
	if !strings.HasPrefix(got, want) || !strings.HasSuffix(got, "█  at most 119 tok/s\n") {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}

// TestAddCharts: the page carries the licence and no address.
func TestAddCharts(t *testing.T) {
	p := &page.Page{Title: "t", Sections: []page.Section{{Title: "s", Blocks: []page.Block{example()}}}}
	AddCharts(p)
	var b bytes.Buffer
	if err := p.Write(&b); err != nil {
		t.Fatal(err)
	}
	s := b.String()
	for _, want := range []string{"Copyright (c) 2022 Leon Sorokin", "var uPlot=function", "new uPlot(", ".uplot", "--series-1"} {
		if !strings.Contains(s, want) {
			t.Errorf("%q is missing", want)
		}
	}
	if strings.Contains(s, "https:") || strings.Contains(s, "http:") || strings.Count(s, "</script>") != 2 {
		t.Error("an address, or a script that is cut")
	}
}
