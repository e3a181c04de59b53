package browser

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/openinfer-go/openinfer/api"
	"github.com/openinfer-go/openinfer/engine"
	"github.com/openinfer-go/openinfer/internal/testdata"
)

// simulated is an engine on a simulated card.
func simulated(t *testing.T, card string, models ...string) *engine.Engine {
	t.Helper()
	o := engine.Options{Device: "sim:" + card, MaxNumSeqs: 16}
	for _, m := range models {
		o.Models = append(o.Models, engine.ModelSpec{Name: m})
	}
	e, err := engine.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

// ask has a model answer so many tokens, until the returned function is called.
func ask(t *testing.T, url, model, prompt string, tokens int, more string) (result func() string) {
	t.Helper()
	var b strings.Builder
	ctx, cancel := context.WithCancel(t.Context())
	var done sync.WaitGroup
	done.Go(func() {
		body := fmt.Sprintf(`{"model":%q,"prompt":%q,"max_tokens":%d,"ignore_eos":true,"stream":true%s}`, model, prompt, tokens, more)
		req, err := http.NewRequestWithContext(ctx, "POST", url+"/v1/completions", strings.NewReader(body))
		if err != nil {
			t.Error(err)
			return
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return // it was cancelled
		}
		defer resp.Body.Close()
		_, _ = fmt.Fprint(&b, resp.StatusCode, " ")
		buf := make([]byte, 4096)
		for {
			n, err := resp.Body.Read(buf)
			b.Write(buf[:n])
			if err != nil {
				return
			}
		}
	})
	t.Cleanup(func() { cancel(); done.Wait() })
	return func() string { done.Wait(); return b.String() }
}

// TestServerView: what the page shows is what /metrics says; a request is cancelled, a model parked and loaded by its buttons.
func TestServerView(t *testing.T) {
	e := simulated(t, "rtx3090", "llama-3.2-1b", "qwen3-1.7b")
	url := serve(t, e, api.Options{})
	p := open(t, url+"/#server", desktop)
	p.until("the server is shown", `document.querySelectorAll(".card").length === 2`)
	if got := p.text("#simulated"); !strings.Contains(got, "simulated") || !strings.Contains(got, "3090") {
		t.Errorf("%q", got)
	}

	// A long answer and a short one, which leaves its prompt in the prefix cache.
	result := ask(t, url, "qwen3-1.7b", strings.Repeat("long ago and far away ", 40), 5000, `,"sla":{"tpot_ms":900}`)
	ask(t, url, "llama-3.2-1b", strings.Repeat("many words of a prompt ", 200), 20, "")()
	p.until("the request is listed", `document.querySelectorAll("#requests tbody tr").length === 1`)
	p.until("it answers", `document.querySelector("#requests tbody tr")?.textContent.includes("answering")`)
	row := p.text("#requests tbody tr")
	for _, want := range []string{"qwen3-1.7b", "of at most 5,000", "900 ms per token", "due in"} {
		if !strings.Contains(row, want) {
			t.Errorf("the request is listed as %q, without %q", row, want)
		}
	}
	p.until("a rate is shown", `parseFloat(document.querySelector('.card[data-key="qwen3-1.7b"] .rate b').textContent) > 0`)
	p.until("the charts are drawn", `[...document.querySelectorAll(".plot")].every(e => e.querySelector("canvas") && e.getAttribute("aria-label").includes("qwen3-1.7b"))`)
	if got := p.text("#pool-legend"); !regexp.MustCompile(`qwen3-1.7b [1-9]\d* live`).MatchString(got) || strings.Contains(got, "llama-3.2-1b none") {
		t.Errorf("pages %q", got)
	}
	// Cancelled from the page: its client is told, as its last event.
	p.run(chromedp.Click(chromedp.CSS("#requests tbody button")))
	p.until("it is gone", `document.querySelectorAll("#requests tbody tr").length === 0`)
	if got := result(); !strings.HasPrefix(got, "200 ") || strings.Count(got, "request_cancelled") != 1 || strings.Contains(got, "[DONE]") || !strings.HasSuffix(got, "}\n\n") {
		t.Errorf("the client got %d bytes, at the end %q", len(got), got[max(0, len(got)-300):])
	}
	comparePool(t, p, url)

	// Parked and loaded by its buttons.
	p.run(chromedp.Click(chromedp.CSS(`button[aria-label="Park llama-3.2-1b"]`)))
	p.until("it is parked", `document.querySelector('.card[data-key="llama-3.2-1b"] .pill').textContent === "parked"`)
	if m := get(t, url+"/metrics"); !strings.Contains(m, `openinfer_model_resident{model_name="llama-3.2-1b"} 0`) {
		t.Error("the server does not say that the model is parked")
	}
	p.until("the memory says so", `document.getElementById("memory-legend").textContent.includes("1 model parked")`)
	p.run(chromedp.Click(chromedp.CSS(`button[aria-label="Load llama-3.2-1b"]`)))
	p.until("it is back", `document.querySelector('.card[data-key="llama-3.2-1b"] .pill').textContent === "resident"`)

	// Unloaded by force: the page asks first, and the request ends with an error.
	result = ask(t, url, "qwen3-1.7b", "again", 5000, "")
	unload := `button[aria-label="Unload now: qwen3-1.7b"]`
	p.until("it can be unloaded", `!document.querySelector('`+unload+`').hidden`)
	p.run(chromedp.Click(chromedp.CSS(unload)))
	p.until("the page asks", `document.getElementById("sure").open && document.getElementById("sure-text").textContent.includes("1 request will end")`)
	p.run(chromedp.Click(chromedp.ID("sure-yes")))
	if got := result(); !strings.Contains(got, "model_unloaded") {
		t.Errorf("the client got %q", got[max(0, len(got)-300):])
	}
	p.until("it is parked", `document.querySelector('.card[data-key="qwen3-1.7b"] .pill').textContent === "parked"`)
}

// comparePool compares the pages that are drawn, those of the legend and those of /metrics, at rest.
func comparePool(t *testing.T, p *tab, url string) {
	t.Helper()
	pages := map[string]int{}
	for _, m := range regexp.MustCompile(`openinfer_kv_pages\{state="(\w+)"\} (\d+)`).FindAllStringSubmatch(get(t, url+"/metrics"), -1) {
		n := 0
		fmt.Sscan(m[2], &n)
		pages[m[1]] = n
	}
	total := pages["live"] + pages["cached"] + pages["free"]
	if pages["live"] != 0 || pages["cached"] == 0 || pages["free"] == 0 {
		t.Fatalf("at rest %v", pages)
	}
	note := fmt.Sprintf("%d live, %s cached, %s free", pages["live"], thousands(pages["cached"]), thousands(pages["free"]))
	p.until("the page says "+note, fmt.Sprintf(`document.getElementById("pool-note").textContent.startsWith(%q)`, note))
	time.Sleep(100 * time.Millisecond)
	drawn := eval[[]int](p, `(() => {
		const c = document.getElementById("pool"), all = c.getContext("2d").getImageData(0, 0, c.width, c.height).data;
		const free = getComputedStyle(document.documentElement).getPropertyValue("--free").trim(), want = [1, 3, 5].map(i => parseInt(free.slice(i, i + 2), 16));
		let painted = 0, ofFree = 0;
		for (let i = 0; i < all.length; i += 4) {
			if (all[i + 3] === 0) continue;
			painted++;
			if (all[i + 3] === 255 && want.every((v, k) => all[i + k] === v)) ofFree++;
		}
		return [painted, ofFree];
	})()`)
	if drawn[0] == 0 || drawn[0]%total != 0 || drawn[1]*total != drawn[0]*pages["free"] {
		t.Errorf("%d pixels drawn, %d of them free; /metrics has %v", drawn[0], drawn[1], pages)
	}
	legend := p.text("#pool-legend")
	sum := 0
	for _, m := range regexp.MustCompile(`([\d,]+) live, ([\d,]+) cached`).FindAllStringSubmatch(legend, -1) {
		live, cached := 0, 0
		fmt.Sscan(strings.ReplaceAll(m[1], ",", ""), &live)
		fmt.Sscan(strings.ReplaceAll(m[2], ",", ""), &cached)
		if sum += cached; live != 0 {
			t.Errorf("live pages at rest: %s", legend)
		}
	}
	if sum != pages["cached"] {
		t.Errorf("%d cached pages in %q, %d in /metrics", sum, legend, pages["cached"])
	}
}

// thousands is a number as the page writes it.
func thousands(n int) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%d,%03d", n/1000, n%1000)
}

// TestServerGone: the page says so, and goes on when it is back.
func TestServerGone(t *testing.T) {
	p := open(t, serve(t, scripted(nil), api.Options{})+"/#server", desktop)
	p.until("it is ready", `document.getElementById("health").textContent === "ready"`)
	p.expect("Failed to load")
	eval[any](p, `(() => { window.asked = fetch; window.fetch = () => Promise.reject(new TypeError("gone")); })()`)
	p.until("it says so", `document.getElementById("health").textContent === "not reachable" && !document.getElementById("server-problem").hidden`)
	eval[any](p, `(() => { window.fetch = window.asked; })()`)
	p.until("it is back", `document.getElementById("health").textContent === "ready" && document.getElementById("server-problem").hidden`)
}

// TestScreenshots writes pictures for the documentation, when asked to: real models in a chat, and six on a simulated card
// under some load.
func TestScreenshots(t *testing.T) {
	if os.Getenv("OPENINFER_SCREENSHOTS") != "1" {
		t.Skip("it tests nothing: OPENINFER_SCREENSHOTS=1 has it write pictures")
	}
	picture := func(p *tab, name string) {
		p.fits()
		p.picture(filepath.Join(testdata.Repo(), "docs", "screenshots", name+".png"))
	}
	o := engine.Options{Models: []engine.ModelSpec{
		{Name: "demo-tales"}, {Name: "demo-bard"}, {Name: "smol", Path: testdata.Cache(t, "gguf", "SmolLM2-135M-Instruct.Q4_1.gguf")},
	}}
	real, err := engine.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { real.Close() })
	p := open(t, serve(t, real, api.Options{}), look{1280, 800, false, false})
	p.choose("demo-tales", "demo-bard", "smol")
	p.run(chromedp.SendKeys(chromedp.ID("temperature"), "0"), chromedp.SendKeys(chromedp.ID("max-tokens"), "90"))
	p.say("Write a short list of things that a fox could say to a king.")
	p.done()
	picture(p, "page-chat")

	models := []string{"gemma-4-12b", "llama-3.2-1b", "phi-4", "qwen3-1.7b", "qwen3.5-27b", "qwen3.5-9b"}
	e := simulated(t, "a6000", models...)
	url := serve(t, e, api.Options{})
	for i := range 110 {
		sla := ""
		if i%4 == 0 {
			sla = `,"sla":{"ttft_ms":4000,"tpot_ms":150}`
		}
		ask(t, url, models[(i+i/7)%6], strings.Repeat(fmt.Sprintf("a tale of %d kings ", i%9), 30+i*3), 150+37*(i%11), sla)
		time.Sleep(1100 * time.Millisecond)
	}
	for name, l := range map[string]look{"page-server": {1200, 1430, false, false}, "page-server-phone": {390, 844, true, true}} {
		p := open(t, url+"/#server", l)
		p.until("it is shown", `document.querySelectorAll(".card").length === 6`)
		time.Sleep(2500 * time.Millisecond)
		picture(p, name)
	}
}
