package browser

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/openinfer-go/openinfer/api"
)

// chromium is one browser for all tests; each has a tab with storage of its own.
var chromium context.Context

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "openinfer-chromium-")
	if err != nil {
		panic(err)
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.NoSandbox, chromedp.UserDataDir(dir), chromedp.WSURLReadTimeout(time.Minute),
		chromedp.Flag("host-resolver-rules", "MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"))
	allocator, stop := chromedp.NewExecAllocator(context.Background(), options...)
	var end context.CancelFunc
	chromium, end = chromedp.NewContext(allocator)
	if err := chromedp.Do(chromium); err != nil {
		fmt.Fprintln(os.Stderr, "chromium (scripts/deps.sh installs it):", err)
		os.Exit(1)
	}
	code := m.Run()
	end()
	stop()
	os.RemoveAll(dir)
	os.Exit(code)
}

// serve serves a generator on a free port and returns its address.
func serve(t *testing.T, gen api.Generator, o api.Options) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	o.Log = slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	s := api.NewServer(api.New(gen, o))
	go s.Serve(l)
	t.Cleanup(func() { s.Close() })
	return "http://" + l.Addr().String()
}

// look is how a page is opened.
type look struct {
	width, height int64
	dark, phone   bool
}

var (
	desktop = look{width: 1280, height: 860}
	phone   = look{width: 390, height: 844, phone: true}
)

// tab is an open page, with what it did wrong.
type tab struct {
	t   *testing.T
	ctx context.Context
	url string

	mu       sync.Mutex
	faults   []string
	expected []string // parts of what is no fault
}

// open opens an address in a tab of its own. What it does wrong fails the test at its end.
func open(t *testing.T, url string, l look) *tab {
	t.Helper()
	// A browser context of its own: storage and keys of other tests stay theirs.
	ctx, cancel := chromedp.NewContext(chromium, chromedp.WithNewBrowserContext())
	ctx, stop := context.WithTimeout(ctx, 5*time.Minute)
	p := &tab{t: t, ctx: ctx, url: url}
	origin := strings.SplitAfterN(url, "/", 4)
	base := strings.TrimSuffix(strings.Join(origin[:3], ""), "/")
	t.Cleanup(func() {
		stop()
		cancel()
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, f := range p.faults {
			t.Error(f)
		}
	})
	err := chromedp.Listen(ctx, func(ev any) {
		switch e := ev.(type) {
		case *runtime.EventConsoleAPICalled:
			if e.Type == runtime.ConsoleAPICalledTypeError || e.Type == runtime.ConsoleAPICalledTypeWarning {
				p.fault("console: %s", arguments(e))
			}
		case *log.EventEntryAdded: // a policy that was broken, a file that is missing
			if e.Entry.Level == log.EntryLevelError || e.Entry.Level == log.EntryLevelWarning {
				p.fault("log: %s %s", e.Entry.Text, e.Entry.URL)
			}
		case *runtime.EventExceptionThrown:
			p.fault("exception: %s %s:%d", e.ExceptionDetails.Text, e.ExceptionDetails.URL, e.ExceptionDetails.LineNumber)
		case *network.EventRequestWillBeSent:
			if u := e.Request.URL; !strings.HasPrefix(u, base+"/") && u != "about:blank" {
				p.fault("request: %s", u)
			}
		case *page.EventJavascriptDialogOpening:
			p.fault("a dialog was opened: %s", e.Message)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	scheme := "light"
	if l.dark {
		scheme = "dark"
	}
	_, err = chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
	})
	if err != nil {
		t.Fatal(err)
	}
	var as []chromedp.EmulateViewportOption
	if l.phone {
		as = append(as, chromedp.EmulateMobile, chromedp.EmulateTouch)
	}
	p.run(chromedp.EmulateViewport(l.width, l.height, as...), chromedp.Navigate(url))
	return p
}

func arguments(e *runtime.EventConsoleAPICalled) string {
	var b strings.Builder
	for _, a := range e.Args {
		fmt.Fprintf(&b, "%s %s ", a.Value, a.Description)
	}
	return b.String()
}

// expect says what is no fault: a part of a console line.
func (p *tab) expect(part string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.expected = append(p.expected, part)
}

// fault notes what the page did wrong.
func (p *tab) fault(format string, args ...any) {
	s := fmt.Sprintf(format, args...)
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range p.expected {
		if strings.Contains(s, e) {
			return
		}
	}
	p.faults = append(p.faults, s)
}

func (p *tab) run(actions ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	if err := chromedp.Do(p.ctx, actions...); err != nil {
		p.t.Fatalf("%v\n%s", err, p.text("body"))
	}
}

// eval evaluates an expression, which may be a promise.
func eval[T any](p *tab, expression string) T {
	p.t.Helper()
	v, err := chromedp.Run(p.ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		p.t.Fatalf("%s: %v", expression, err)
	}
	return v
}

// text is what an element shows, "" when there is none.
func (p *tab) text(selector string) string {
	s, _ := chromedp.Run(p.ctx, chromedp.Evaluate[string](fmt.Sprintf(`document.querySelector(%q)?.innerText ?? ""`, selector)))
	return s
}

// until waits for an expression to be true.
func (p *tab) until(what, expression string) {
	p.t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		if eval[bool](p, "Boolean("+expression+")") {
			return
		}
		if time.Now().After(deadline) {
			p.t.Fatalf("waited in vain until %s: %s\n%s", what, expression, p.text("body"))
		}
	}
}

// say types a prompt and sends it.
func (p *tab) say(text string) {
	p.t.Helper()
	p.run(chromedp.SetValue(chromedp.ID("prompt"), text), chromedp.Click(chromedp.ID("send")))
}

// done waits until nobody answers.
func (p *tab) done() {
	p.t.Helper()
	p.until("all answers are there", `document.querySelectorAll(".answer").length > 0 && !document.querySelector(".answer.busy")`)
}

// choose checks exactly these models.
func (p *tab) choose(models ...string) {
	p.t.Helper()
	p.until("models are listed", `document.querySelectorAll(".choice input").length > 0`)
	ok := eval[bool](p, fmt.Sprintf(`(() => {
		const want = new Set(%s);
		document.querySelectorAll(".choice").forEach(c => { if (c.querySelector("input").checked !== want.has(c.querySelector(".name").textContent)) c.querySelector("input").click(); });
		return document.querySelectorAll(".choice input:checked").length === want.size;
	})()`, list(models)))
	if !ok {
		p.t.Fatalf("no models %v in %s", models, p.text("#choices"))
	}
}

func list(words []string) string {
	var b strings.Builder
	for i, w := range words {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "%q", w)
	}
	return "[" + b.String() + "]"
}

// fits fails for what sticks out of the window sideways.
func (p *tab) fits() {
	p.t.Helper()
	for _, s := range p.wide() {
		p.t.Errorf("sideways: %s", s)
	}
}

// wide is what sticks out of the window sideways.
func (p *tab) wide() []string {
	p.t.Helper()
	return eval[[]string](p, `(() => {
		const w = innerWidth, all = [];
		if (document.documentElement.scrollWidth > w) all.push("document " + document.documentElement.scrollWidth + " of " + w);
		const scrolls = e => { for (; e && e !== document.body; e = e.parentElement) if (["auto", "scroll", "hidden"].includes(getComputedStyle(e).overflowX) && e.getBoundingClientRect().right <= w + 1) return true; return false; };
		document.querySelectorAll("body *").forEach(e => { const r = e.getBoundingClientRect(); if (r.width > 0 && r.right > w + 1 && !scrolls(e.parentElement)) all.push(e.tagName + "." + e.className + " to " + r.right); });
		for (const id of ["turns", "server-view"]) { const e = document.getElementById(id); if (e && e.clientWidth > 0 && e.scrollWidth > e.clientWidth + 1) all.push(id + " scrolls sideways"); }
		return all;
	})()`)
}

// paletted is a picture with its 256 most frequent colours, which makes it a third as large.
func paletted(all image.Image) image.Image {
	counts := map[color.RGBA]int{}
	r := all.Bounds()
	for y := r.Min.Y; y < r.Max.Y; y++ {
		for x := r.Min.X; x < r.Max.X; x++ {
			counts[color.RGBAModel.Convert(all.At(x, y)).(color.RGBA)]++
		}
	}
	colors := slices.SortedFunc(maps.Keys(counts), func(a, b color.RGBA) int {
		return cmp.Or(counts[b]-counts[a], int(a.R)-int(b.R), int(a.G)-int(b.G), int(a.B)-int(b.B))
	})
	var palette color.Palette
	for _, c := range colors[:min(len(colors), 256)] {
		palette = append(palette, c)
	}
	out := image.NewPaletted(r, palette)
	draw.Draw(out, r, all, r.Min, draw.Src)
	return out
}

// picture writes what the tab shows to a file.
func (p *tab) picture(file string) {
	p.t.Helper()
	b, err := chromedp.Run(p.ctx, chromedp.CaptureScreenshot())
	if err != nil {
		p.t.Fatal(err)
	}
	all, err := png.Decode(bytes.NewReader(b))
	if err != nil {
		p.t.Fatal(err)
	}
	var out bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out, paletted(all)); err != nil {
		p.t.Fatal(err)
	}
	if out.Len() > 200<<10 {
		p.t.Errorf("%s has %d bytes", file, out.Len())
	}
	if err := os.WriteFile(file, out.Bytes(), 0o666); err != nil {
		p.t.Fatal(err)
	}
}

// get asks a server directly.
func get(t *testing.T, url string) string {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestFaultsAreSeen: what fails every other test is found where it is.
func TestFaultsAreSeen(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprint(w, `<!DOCTYPE html><link rel="icon" href="data:,"><body><p style="width: 5000px">wide</p><script>
			fetch("http://evil.invalid/x").catch(() => {});
			console.error("said");
			setTimeout(() => { undefinedFunction(); });
			setTimeout(() => { alert("shown"); }, 50);
		</script>`)
	}))
	defer s.Close()
	p := open(t, s.URL, phone)
	wide := p.wide()
	var got string
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		p.mu.Lock()
		got = strings.Join(p.faults, "\n")
		p.mu.Unlock()
		if strings.Contains(got, "a dialog was opened: shown") {
			break
		}
	}
	for _, want := range []string{"request: http://evil.invalid/x", "console: ", "said", "exception: ", "ERR_NAME_NOT_RESOLVED", "a dialog was opened: shown"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not among\n%s", want, got)
		}
	}
	if len(wide) == 0 {
		t.Error("what sticks out is not seen")
	}
	p.mu.Lock()
	p.faults = nil
	p.mu.Unlock()
}
