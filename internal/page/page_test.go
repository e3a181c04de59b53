package page_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"html/template"
	"io"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/openinfer-go/openinfer/internal/page"
)

// full is a page with a block of every kind.
func full() *page.Page {
	return &page.Page{
		Title: "A <report>", Notice: "simulated", Lead: "What & why.", Footer: "made here",
		Sections: []page.Section{
			{Title: "First one", Lead: "lead", Blocks: []page.Block{
				page.Text("a < b"), page.Code("openinfer plan --models \"a\""),
				page.Facts{{Name: "memory", Value: "24 GiB", Note: "of the card"}},
			}},
			{Title: "Second", Blocks: []page.Block{page.Table{
				Caption: "Numbers", Columns: []string{"model", "tok/s"}, Note: "below",
				Rows: []page.Row{page.Cells("</td><script>x</script>", "12.5"), {{Text: "b"}, {Text: "over", Kind: page.Muted, Note: "small"}}},
			}}},
			{Title: "Third"},
		},
		Styles:  []template.CSS{"p { color: inherit }"},
		Scripts: []template.JS{"var shown = [1, 2]"},
	}
}

// elements parses a page and returns its elements' names, or fails: every element is closed, every attribute quoted.
func elements(t *testing.T, b []byte) (names []string) {
	t.Helper()
	d := xml.NewDecoder(bytes.NewReader(b))
	d.Entity = xml.HTMLEntity
	for {
		switch tok, err := d.Token(); e := tok.(type) {
		case xml.StartElement:
			names = append(names, e.Name.Local)
			for _, a := range e.Attr {
				if slices.Contains([]string{"src", "href", "action", "srcset"}, a.Name.Local) && !strings.HasPrefix(a.Value, "#") && !strings.HasPrefix(a.Value, "data:") {
					t.Errorf("<%s %s=%q> is a request", e.Name.Local, a.Name.Local, a.Value)
				}
			}
		default:
			if err == io.EOF {
				return names
			}
			if err != nil {
				t.Fatalf("%v in\n%s", err, b)
			}
		}
	}
}

func TestPageIsWholeAndAsksNobody(t *testing.T) {
	var b bytes.Buffer
	if err := full().Write(&b); err != nil {
		t.Fatal(err)
	}
	names := elements(t, b.Bytes())
	for _, want := range []string{"nav", "section", "table", "dl", "pre", "figure", "footer"} {
		if !slices.Contains(names, want) {
			t.Errorf("no <%s>", want)
		}
	}
	scripts := slices.DeleteFunc(names, func(n string) bool { return n != "script" })
	if len(scripts) != 1 {
		t.Errorf("%d scripts, want the page's own alone: a text became one", len(scripts))
	}
	for _, want := range []string{
		"A &lt;report&gt;", "default-src &#39;none&#39;", "prefers-color-scheme: dark", `name="viewport"`, `id="s1"`, `href="#s0"`,
		"&lt;/td&gt;&lt;script&gt;", `class="number">12.5`, `<th scope="col" class="number">`, `class="muted">over<small>small</small>`, "var shown", "color: inherit",
	} {
		if !strings.Contains(b.String(), want) && !strings.Contains(b.String(), strings.ReplaceAll(want, "&#39;", "'")) {
			t.Errorf("%q is missing in\n%s", want, b.String())
		}
	}
	if strings.Contains(b.String(), "http:") || strings.Contains(b.String(), "https:") || strings.Contains(b.String(), "@import") {
		t.Error("an address in the page")
	}
}

type failing struct{}

func (failing) HTML() (template.HTML, error) { return "", errors.New("no data") }

// TestFailingBlock: what a block says is the error, and nothing was written.
func TestFailingBlock(t *testing.T) {
	p := full()
	p.Sections[2].Blocks = []page.Block{failing{}}
	var b bytes.Buffer
	if err := p.Write(&b); err == nil || !strings.Contains(err.Error(), "no data") || b.Len() > 0 {
		t.Errorf("%v, %d bytes", err, b.Len())
	}
}

func TestText(t *testing.T) {
	var b bytes.Buffer
	if err := full().WriteText(&b); err != nil {
		t.Fatal(err)
	}
	const want = `A <report>
simulated
What & why.

First one
---------
lead
a < b
  openinfer plan --models "a"
  memory  24 GiB (of the card)

Second
------
Numbers
  model                          tok/s
  </td><script>x</script>         12.5
  b                        over (small)
below

Third
-----

made here
`
	if got := b.String(); strings.ReplaceAll(got, " ", "") != strings.ReplaceAll(want, " ", "") {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	lines := strings.Split(b.String(), "\n")
	i := slices.Index(lines, "Numbers")
	if utf8.RuneCountInString(lines[i+1]) != utf8.RuneCountInString(lines[i+2]) || len(lines[i+2]) != len(lines[i+3]) {
		t.Errorf("numbers are not set to the right:\n%s", strings.Join(lines[i:i+4], "\n"))
	}
}

func TestNumbers(t *testing.T) {
	for got, want := range map[string]string{
		page.Bytes(1 << 30): "1.00 GiB", page.Bytes(1536): "1.5 KiB", page.Bytes(5): "5 bytes", page.Bytes(3 << 19): "1.5 MiB",
		page.Tokens(8192): "8K", page.Tokens(1000): "1000", page.Tokens(0): "0", page.Tokens(57344): "56K",
		page.Rate(2163.4): "2163", page.Rate(48.23): "48.2", page.Rate(6.5): "6.50",
		page.Seconds(0.0207): "20.7 ms", page.Seconds(0.283): "283 ms", page.Seconds(3.8): "3.80 s", page.Seconds(57.31): "57.3 s", page.Seconds(0.002): "2.00 ms",
	} {
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
