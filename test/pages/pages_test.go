package pages

import (
	"bytes"
	"fmt"
	"html/template"
	"image"
	"image/png"
	"math"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/openinfer-go/openinfer/bench/fleet"
	"github.com/openinfer-go/openinfer/bench/matrix"
	charts "github.com/openinfer-go/openinfer/bench/report"
	"github.com/openinfer-go/openinfer/bench/virtual"
	"github.com/openinfer-go/openinfer/engine"
	"github.com/openinfer-go/openinfer/engine/planview"
	"github.com/openinfer-go/openinfer/internal/page"
	"github.com/openinfer-go/openinfer/internal/testdata"
)

// look is how a page is opened.
type look struct {
	name          string
	width, height int
	flags         []string
}

// looks: both widths and both colour schemes.
var looks = []look{
	{"desktop", 1100, 1400, nil},
	{"phone-dark", 390, 844, []string{"--force-dark-mode"}},
}

// frames hold pages, since Chromium makes no window narrower than 500 and starting it takes seconds. A section says for each, when all have been
// drawn, how wide it is and what its charts say.
const frames = `<!DOCTYPE html><html><head><meta name="color-scheme" content="light dark">
<style>body { margin: 0 } iframe { border: 0; display: block; width: %dpx; height: %dpx }</style></head>
<body>%s<script>
const frames = [...document.querySelectorAll("iframe")];
const plots = f => [...f.contentDocument.querySelectorAll(".plot")];
const ready = f => f.contentDocument.readyState === "complete" && f.contentDocument.querySelector("main") && plots(f).every(p => p.dataset.drawn);
const look = left => {
	if (!frames.every(ready) && left > 0) return setTimeout(look, 100, left - 1);
	for (const f of frames.filter(f => f.contentDocument.querySelector("main"))) {
		const said = document.createElement("section");
		said.dataset.name = f.title;
		said.dataset.width = f.contentDocument.documentElement.scrollWidth;
		said.hidden = true;
		said.append(...plots(f).map(p => p.cloneNode()));
		document.body.append(said);
	}
};
setTimeout(look, 500, 20);
</script></body></html>`

var (
	drawn   = regexp.MustCompile(`<div class="plot"[^>]*>`)
	number  = regexp.MustCompile(`data-(series|drawn)="(\d+)"`)
	console = regexp.MustCompile(`(?m)^.*:CONSOLE.*$`)
	said    = regexp.MustCompile(`(?s)<section data-name="([^"]*)" data-width="(\d+)"[^>]*>(.*?)</section>`)
	asked   = regexp.MustCompile(`"url":"((?:https?|wss?|ftp)://[^"]*)"`)
)

// faults opens pages, all at once, and says what is wrong with them.
func faults(t *testing.T, pages map[string][]byte, l look, picture string) (faults []string) {
	t.Helper()
	dir := t.TempDir()
	var all strings.Builder
	for name, page := range pages {
		fmt.Fprintf(&all, `<iframe title="%s" srcdoc="%s"></iframe>`, name, template.HTMLEscapeString(string(page)))
	}
	file := filepath.Join(dir, "frames.html")
	if err := os.WriteFile(file, fmt.Appendf(nil, frames, l.width, l.height, all.String()), 0o666); err != nil {
		t.Fatal(err)
	}
	net := filepath.Join(dir, "net.json")
	if picture == "" {
		picture = filepath.Join(dir, "picture.png")
	}
	args := append([]string{
		"--headless", "--no-sandbox", "--disable-gpu", "--user-data-dir=" + dir, "--enable-logging=stderr", "--log-net-log=" + net,
		"--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-first-run", "--disable-default-apps", "--disable-extensions",
		"--host-resolver-rules=MAP * ~NOTFOUND", "--hide-scrollbars", "--virtual-time-budget=10000", "--run-all-compositor-stages-before-draw", "--dump-dom", "--screenshot=" + picture,
		fmt.Sprintf("--window-size=%d,%d", max(l.width, 500), l.height),
	}, l.flags...)
	cmd := exec.CommandContext(t.Context(), "chromium", append(args, "file://"+file)...)
	cmd.WaitDelay = 10 * time.Second
	var out, log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &log
	if err := cmd.Run(); err != nil {
		t.Fatalf("chromium (scripts/deps.sh installs it): %v\n%s", err, log.String())
	}
	for _, line := range console.FindAllString(log.String(), -1) {
		faults = append(faults, "console: "+line)
	}
	opened := said.FindAllStringSubmatch(out.String(), -1)
	if len(opened) != len(pages) {
		faults = append(faults, fmt.Sprintf("%d of %d pages opened", len(opened), len(pages)))
	}
	for _, m := range opened {
		if width, _ := strconv.Atoi(m[2]); width > l.width {
			faults = append(faults, fmt.Sprintf("%s: %d wide on a screen of %d", m[1], width, l.width))
		}
		plots := drawn.FindAllString(m[3], -1)
		if want := len(drawn.FindAll(pages[m[1]], -1)); len(plots) != want {
			faults = append(faults, fmt.Sprintf("%s: %d of %d charts there", m[1], len(plots), want))
		}
		for i, plot := range plots {
			n := map[string]string{}
			for _, m := range number.FindAllStringSubmatch(plot, -1) {
				n[m[1]] = m[2]
			}
			if n["series"] == "" || n["series"] == "0" || n["series"] != n["drawn"] {
				faults = append(faults, fmt.Sprintf("%s: chart %d: %q of %q series drawn", m[1], i, n["drawn"], n["series"]))
			}
		}
	}
	requests, err := os.ReadFile(net)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range asked.FindAllSubmatch(requests, -1) {
		if !own(string(m[1])) {
			faults = append(faults, "request: "+string(m[1]))
		}
	}
	return faults
}

// own says whether an address is one that Chromium asks by itself, whatever page it shows.
func own(address string) bool {
	u, err := url.Parse(address)
	if err != nil {
		return false
	}
	for _, host := range []string{".google.com", ".googleapis.com", ".gvt1.com"} {
		if strings.HasSuffix(u.Hostname(), host) {
			return true
		}
	}
	return false
}

// report is a page and how many charts it has.
type report struct {
	html   []byte
	charts int
}

// reports are the pages that commands make, and those in docs.
func reports(t *testing.T) map[string]report {
	t.Helper()
	all := map[string]report{}
	add := func(name string, p *page.Page, charts int) {
		var b bytes.Buffer
		if err := p.Write(&b); err != nil {
			t.Fatal(err)
		}
		all[name] = report{b.Bytes(), charts}
	}
	chart := charts.Chart{Title: "Curve", X: charts.Axis{Name: "s"}, Series: []charts.Series{
		{Name: "throughput", Unit: "tok/s", Fill: true}, {Name: "in flight"}, {Name: "a gap", Unit: "tok/s"},
	}}
	for i := range 120 {
		x := float64(i)
		chart.X.Values = append(chart.X.Values, x)
		for k, v := range []float64{5000 + 3000*math.Sin(x/9), 400 + 200*math.Cos(x/9), 1000 + 10*x} {
			if k == 2 && i > 30 && i < 60 {
				v = math.NaN()
			}
			chart.Series[k].Values = append(chart.Series[k].Values, v)
		}
	}
	curves := &page.Page{Title: "Curves", Sections: []page.Section{{Title: "a <b>", Blocks: []page.Block{chart}}}}
	charts.AddCharts(curves)
	add("curves", curves, 1)

	one := run("", 1)
	one.Server.Simulated = "NVIDIA RTX 3090"
	add("matrix", matrix.Page(one), 3)
	add("matrices", matrix.Page(run("ours", 1), run("theirs", 0.8)), 3)

	f, err := engine.Plan(t.Context(), engine.PlanOptions{Options: engine.Options{Models: []engine.ModelSpec{{Name: "qwen3-1.7b"}, {Name: "qwen3.8-27b"}}}, Cards: []string{"rtx3090", "l4"}})
	if err != nil {
		t.Fatal(err)
	}
	add("plan", planview.New(f, "openinfer plan --models qwen3-1.7b,qwen3.8-27b --card rtx3090,l4"), 0)

	s, err := fleet.Preset("four")
	if err != nil {
		t.Fatal(err)
	}
	s.Length = 30 * time.Second
	for i := range s.Demands {
		s.Demands[i].Times, s.Demands[i].Requests = 0, []float64{12, 40, 40, 90}[i]
	}
	both, err := virtual.Fleets(s, virtual.FleetOptions{Card: "rtx3090", CheckEvery: time.Second, Tries: 2}, []virtual.Kind{virtual.Pooled, virtual.Dedicated}, []uint64{1})
	if err != nil {
		t.Fatal(err)
	}
	both.Title = "four models, four nodes"
	add("fleet", both.Page(), 4)

	files, err := filepath.Glob(filepath.Join(testdata.Repo(), "docs", "*.html"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%v: no report in docs", err)
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all[strings.TrimSuffix(filepath.Base(file), ".html")] = report{b, len(drawn.FindAll(b, -1))}
	}
	return all
}

func run(name string, times float64) *matrix.Result {
	r := &matrix.Result{Name: name, Server: matrix.Server{Model: "m", Engine: "E"}, CellSeconds: 10, MaxTokens: 8192, LaunchCommand: "serve"}
	for _, n := range []int{8192, 16384, 32768} {
		r.Cells = append(r.Cells, matrix.Cell{Phase: matrix.Prefill, Context: n, Requests: 1, Status: matrix.Measured, TokensPerSecond: times * (2500 - float64(n)/50), TTFT: float64(n) / times / 2})
	}
	for i, n := range []int{0, 16384} {
		for _, k := range []int{1, 2, 4} {
			c := matrix.Cell{Phase: matrix.Decode, Context: n, Requests: k, Status: matrix.Measured, TokensPerSecond: times * float64(k) * float64(48-9*i), TTFT: float64(85*k+300*i) / times}
			if i == 1 && k == 4 {
				c = matrix.Cell{Phase: matrix.Decode, Context: n, Requests: k, Status: matrix.OverCapacity, Why: "too many"}
			}
			r.Cells = append(r.Cells, c)
		}
	}
	return r
}

// pictures are those that OPENINFER_SCREENSHOTS=1 takes: from and to which line of the page.
var pictures = map[string]struct{ from, to int }{
	"matrix-rtx3090-simulated-desktop": {1190, 2350}, "matrix-rtx3090-simulated-phone-dark": {0, 1400}, "matrix-cpu-desktop": {1350, 2500},
	"fleet-desktop": {0, 1330}, "fleet-phone-dark": {950, 2200}, "plan-desktop": {0, 1100},
}

// takePicture writes a part of what Chromium has made of a page.
func takePicture(t *testing.T, name string, page []byte, l look) {
	t.Helper()
	part := pictures[name]
	l.height = part.to + 200 // what is near the edge is not always drawn in time
	whole := filepath.Join(t.TempDir(), "whole.png")
	faults(t, map[string][]byte{name: page}, l, whole)
	b, err := os.ReadFile(whole)
	if err != nil {
		t.Fatal(err)
	}
	img, err := png.Decode(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(filepath.Join(testdata.Repo(), "docs", "screenshots", name+".png"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	cut := img.(interface {
		SubImage(image.Rectangle) image.Image
	}).SubImage(image.Rect(0, part.from, l.width, part.to))
	if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(f, cut); err != nil {
		t.Fatal(err)
	}
}

func TestReports(t *testing.T) {
	all := reports(t)
	pages := map[string][]byte{}
	for name, p := range all {
		if n := len(drawn.FindAll(p.html, -1)); n != p.charts || n == 0 && name != "plan" {
			t.Errorf("%s: %d charts, want %d", name, n, p.charts)
		}
		pages[name] = p.html
	}
	for _, l := range looks {
		t.Run(l.name, func(t *testing.T) {
			for _, f := range faults(t, pages, l, "") {
				t.Error(f)
			}
			if os.Getenv("OPENINFER_SCREENSHOTS") != "1" {
				return
			}
			for name, page := range pages {
				if _, ok := pictures[name+"-"+l.name]; ok {
					takePicture(t, name+"-"+l.name, page, l)
				}
			}
		})
	}
}

// TestFaultsAreSeen: what the other tests look for is found where it is.
func TestFaultsAreSeen(t *testing.T) {
	chart := charts.Chart{Title: "c", X: charts.Axis{Labels: []string{"1", "2"}}, Series: []charts.Series{{Name: "hidden", Values: []float64{1, 2}}}}
	p := &page.Page{Title: "bad", Sections: []page.Section{{Title: "s", Blocks: []page.Block{chart}}}}
	charts.AddCharts(p)
	p.Styles = append(p.Styles, template.CSS(`:root { --series-1: #12345600 }`))
	p.Sections[0].Blocks = append(p.Sections[0].Blocks, page.Text(strings.Repeat("wide", 1000)))
	p.Scripts = append(p.Scripts, `fetch("https://example.org/forbidden"); undefinedFunction()`)
	var b bytes.Buffer
	if err := p.Write(&b); err != nil {
		t.Fatal(err)
	}
	// Without its policy the page does ask.
	open := regexp.MustCompile(`<meta http-equiv[^>]*>`).ReplaceAll(b.Bytes(), nil)
	still := regexp.MustCompile(`(?s)<script>.*?</script>`).ReplaceAll(b.Bytes(), nil)
	for _, c := range []struct {
		pages map[string][]byte
		want  []string
	}{
		{map[string][]byte{"policy": b.Bytes(), "still": still, "blank": []byte("<p></p>")}, []string{
			"console: ", "Content Security Policy", "undefinedFunction is not defined", `policy: chart 0: "0" of "1" series drawn`,
			`still: chart 0: "" of "" series drawn`, " wide on a screen of 1100", "2 of 3 pages opened"}},
		{map[string][]byte{"open": open}, []string{"request: https://example.org/forbidden"}},
	} {
		all := strings.Join(faults(t, c.pages, looks[0], ""), "\n")
		for _, want := range c.want {
			if !strings.Contains(all, want) {
				t.Errorf("%q is not among\n%s", want, all)
			}
		}
	}
}
