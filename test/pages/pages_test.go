package pages

import (
	"bytes"
	"fmt"
	"html/template"
	"math"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/openinfer-go/openinfer/bench/matrix"
	"github.com/openinfer-go/openinfer/bench/report"
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

var (
	desktop = look{"desktop", 1100, 1500, nil}
	phone   = look{"phone-dark", 390, 844, []string{"--force-dark-mode"}}
)

var (
	drawn   = regexp.MustCompile(`<div class="plot"[^>]*>`)
	number  = regexp.MustCompile(`data-(series|drawn)="(\d+)"`)
	console = regexp.MustCompile(`(?m)^.*:CONSOLE.*$`)
	asked   = regexp.MustCompile(`"url":"((?:https?|wss?|ftp)://[^"]*)"`)
)

// faults opens a page and says what is wrong with it.
func faults(t *testing.T, file string, l look, picture string) (faults []string) {
	t.Helper()
	dir := t.TempDir()
	net := filepath.Join(dir, "net.json")
	if picture == "" {
		picture = filepath.Join(dir, "picture.png")
	}
	args := append([]string{
		"--headless", "--no-sandbox", "--disable-gpu", "--user-data-dir=" + dir, "--enable-logging=stderr", "--log-net-log=" + net,
		"--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-first-run", "--disable-default-apps", "--disable-extensions",
		"--host-resolver-rules=MAP * ~NOTFOUND", "--virtual-time-budget=2000", "--dump-dom", "--screenshot=" + picture,
		fmt.Sprintf("--window-size=%d,%d", l.width, l.height),
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
	if !strings.Contains(out.String(), "</html>") {
		faults = append(faults, "not opened")
	}
	for i, plot := range drawn.FindAllString(out.String(), -1) {
		n := map[string]string{}
		for _, m := range number.FindAllStringSubmatch(plot, -1) {
			n[m[1]] = m[2]
		}
		if n["series"] == "" || n["series"] == "0" || n["series"] != n["drawn"] {
			faults = append(faults, fmt.Sprintf("chart %d: %q of %q series drawn", i, n["drawn"], n["series"]))
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

// pages are the reports, each with as many charts.
func pages(t *testing.T) map[string]struct {
	page   *page.Page
	charts int
} {
	t.Helper()
	chart := report.Chart{Title: "Curve", X: report.Axis{Name: "s"}, Series: []report.Series{
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
	report.AddCharts(curves)

	ours, theirs := run("ours", 1), run("theirs", 0.8)
	one := run("", 1)
	one.Server.Simulated = "NVIDIA RTX 3090"
	f, err := engine.Plan(t.Context(), engine.PlanOptions{Options: engine.Options{Models: []engine.ModelSpec{{Name: "qwen3-1.7b"}}}, Cards: []string{"l4"}})
	if err != nil {
		t.Fatal(err)
	}
	return map[string]struct {
		page   *page.Page
		charts int
	}{
		"curves": {curves, 1}, "matrix": {matrix.Page(one), 3}, "matrices": {matrix.Page(ours, theirs), 3}, "plan": {planview.New(f, "openinfer plan"), 0},
	}
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

func TestReports(t *testing.T) {
	for name, p := range pages(t) {
		file := filepath.Join(t.TempDir(), name+".html")
		var b bytes.Buffer
		if err := p.page.Write(&b); err != nil {
			t.Fatal(err)
		}
		if n := len(drawn.FindAll(b.Bytes(), -1)); n != p.charts {
			t.Errorf("%s: %d charts, want %d", name, n, p.charts)
		}
		if err := os.WriteFile(file, b.Bytes(), 0o666); err != nil {
			t.Fatal(err)
		}
		l := desktop
		if name == "matrix" || name == "curves" {
			l = phone
		}
		for _, f := range faults(t, file, l, "") {
			t.Errorf("%s: %s", name, f)
		}
	}
}

// TestCommitted opens the reports in docs.
func TestCommitted(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(testdata.Repo(), "docs", "*.html"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%v: no report in docs", err)
	}
	for _, file := range files {
		looks := []look{desktop}
		pictures := os.Getenv("OPENINFER_SCREENSHOTS") == "1"
		if pictures {
			looks = append(looks, phone)
		}
		for _, l := range looks {
			picture := ""
			if pictures {
				picture = filepath.Join(testdata.Repo(), "docs", "screenshots", strings.TrimSuffix(filepath.Base(file), ".html")+"-"+l.name+".png")
			}
			for _, f := range faults(t, file, l, picture) {
				t.Errorf("%s, %s: %s", filepath.Base(file), l.name, f)
			}
		}
	}
}

// TestFaultsAreSeen: what the other tests look for is found where it is.
func TestFaultsAreSeen(t *testing.T) {
	chart := report.Chart{Title: "c", X: report.Axis{Labels: []string{"1", "2"}}, Series: []report.Series{{Name: "hidden", Values: []float64{1, 2}}}}
	p := &page.Page{Title: "bad", Sections: []page.Section{{Title: "s", Blocks: []page.Block{chart}}}}
	report.AddCharts(p)
	p.Styles = append(p.Styles, template.CSS(`:root { --series-1: #12345600 }`))
	p.Scripts = append(p.Scripts, `fetch("https://example.org/forbidden"); undefinedFunction()`)
	var b bytes.Buffer
	if err := p.Write(&b); err != nil {
		t.Fatal(err)
	}
	// Without its policy the page does ask.
	open := regexp.MustCompile(`<meta http-equiv[^>]*>`).ReplaceAll(b.Bytes(), nil)
	for name, c := range map[string]struct {
		html []byte
		want []string
	}{
		"policy": {b.Bytes(), []string{"console: ", "Content Security Policy", "undefinedFunction is not defined", `chart 0: "0" of "1" series drawn`}},
		"open":   {open, []string{"request: https://example.org/forbidden"}},
	} {
		file := filepath.Join(t.TempDir(), name+".html")
		if err := os.WriteFile(file, c.html, 0o666); err != nil {
			t.Fatal(err)
		}
		all := strings.Join(faults(t, file, desktop, ""), "\n")
		for _, want := range c.want {
			if !strings.Contains(all, want) {
				t.Errorf("%s: %q is not among\n%s", name, want, all)
			}
		}
	}
}
