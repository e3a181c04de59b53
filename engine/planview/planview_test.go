package planview_test

import (
	"bytes"
	"encoding/xml"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/openinfer-go/openinfer/engine"
	"github.com/openinfer-go/openinfer/engine/planview"
	"github.com/openinfer-go/openinfer/internal/page"
)

func plan(t *testing.T, change func(*engine.PlanOptions), card string, models ...string) *engine.Forecast {
	t.Helper()
	o := engine.PlanOptions{}
	if card != "" {
		o.Cards = strings.Split(card, ",")
	}
	for _, m := range models {
		o.Models = append(o.Models, engine.ModelSpec{Name: m})
	}
	if change != nil {
		change(&o)
	}
	f, err := engine.Plan(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestViews: of one card, of several, of turns and of what does not fit: each page is whole, asks nobody, has as many cells
// in a row as columns, says that it is simulated, and says in HTML what it says in text.
func TestViews(t *testing.T) {
	for name, c := range map[string]struct {
		f    *engine.Forecast
		want []string
	}{
		"together": {plan(t, nil, "a6000", "qwen3.5-9b", "phi-4"), []string{"All 2 models fit together", "RTX A6000", "too long", "25 GB/s", "in the host's memory", "shared by all models"}},
		"one":      {plan(t, nil, "l4", "qwen3-1.7b"), []string{"It fits", "is the head", "over"}},
		"turns": {plan(t, nil, "rtx3090", "qwen3.5-27b", "phi-4", "gemma-4-12b"), []string{"take turns", "phi-4, gemma-4-12b are parked", "Taking turns",
			"best", "longest unused first", "302 ms"}},
		"too large": {plan(t, func(o *engine.PlanOptions) { o.Models[0].Floats = true }, "rtx3090", "qwen3.5-27b", "phi-4"),
			[]string{"would not start", "GiB more memory are needed", "GiB short", "does not fit"}},
		"cards": {plan(t, func(o *engine.PlanOptions) { o.Concurrency, o.Contexts = []int{2}, []int{0, 4096} }, "l4,rtx3090,h200", "qwen3.5-27b", "phi-4", "gemma-4-12b"),
			[]string{"h200", "together", "take turns: 1 of 3", "of 4K", "at 0, 2 requests"}},
	} {
		view := planview.New(c.f, "openinfer plan --models 'a<b'")
		var html, text bytes.Buffer
		if err := view.Write(&html); err != nil {
			t.Fatal(err)
		}
		if err := view.WriteText(&text); err != nil {
			t.Fatal(err)
		}
		words := readable(t, html.Bytes())
		for _, want := range append(c.want, "imulated", "no card was measured", "openinfer plan --models 'a<b'") {
			if !strings.Contains(words, want) || !strings.Contains(text.String(), want) {
				t.Errorf("%s: %q is missing in\n%s", name, want, text.String())
			}
		}
		for _, s := range view.Sections {
			for _, b := range s.Blocks {
				if table, ok := b.(page.Table); ok {
					for _, r := range table.Rows {
						if len(r) != len(table.Columns) {
							t.Errorf("%s: %s: %d cells of %d columns: %v", name, table.Caption, len(r), len(table.Columns), r)
						}
					}
				}
			}
		}
		if strings.Contains(html.String(), "http:") || strings.Contains(html.String(), "https:") || strings.Contains(html.String(), "NaN") || strings.Contains(html.String(), "Inf") {
			t.Errorf("%s: an address, or no number, in\n%s", name, html.String())
		}
	}
}

// readable parses a page, in which every element has to be closed, and returns its text. Nothing may be fetched.
func readable(t *testing.T, b []byte) string {
	t.Helper()
	var words strings.Builder
	d := xml.NewDecoder(bytes.NewReader(b))
	d.Entity = xml.HTMLEntity
	for {
		tok, err := d.Token()
		switch e := tok.(type) {
		case xml.StartElement:
			for _, a := range e.Attr {
				if slices.Contains([]string{"src", "href", "srcset", "action", "data"}, a.Name.Local) && !strings.HasPrefix(a.Value, "#") && !strings.HasPrefix(a.Value, "data:") {
					t.Errorf("<%s %s=%q> asks for something", e.Name.Local, a.Name.Local, a.Value)
				}
			}
		case xml.CharData:
			words.Write(e)
		}
		if err == io.EOF {
			return words.String()
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, b)
		}
	}
}
