package browser

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/openinfer-go/openinfer/api"
	"github.com/openinfer-go/openinfer/api/apitest"
	"github.com/openinfer-go/openinfer/internal/testdata"
)

// axe runs axe-core in a page and returns its faults but for the minor ones, and how many rules passed.
func axe(t *testing.T, p *tab) (faults []string, passed int) {
	t.Helper()
	source, err := os.ReadFile(testdata.Cache(t, "axe", "node_modules", "axe-core", "axe.min.js"))
	if err != nil {
		t.Fatal(err)
	}
	eval[any](p, string(source)+"; null")
	r := eval[struct {
		Passed int      `json:"passed"`
		Faults []string `json:"faults"`
	}](p, `axe.run(document, { resultTypes: ["violations"] }).then(r => ({
		passed: r.passes.length,
		faults: r.violations.filter(v => ["moderate", "serious", "critical"].includes(v.impact)).flatMap(v => v.nodes.map(n => v.id + ": " + n.target.join(" ") + " " + n.failureSummary.split("\n").slice(1, 3).join(" "))),
	}))`)
	return r.Faults, r.Passed
}

// TestAccessible: light and dark, wide and narrow, chat and server, axe-core finds no fault that is more than minor.
func TestAccessible(t *testing.T) {
	g := scripted(func(prompt string) apitest.Answer {
		if strings.Contains(prompt, "wait") {
			return apitest.Answer{Text: report, Prefill: time.Hour}
		}
		return apitest.Answer{Text: report, Cached: 3}
	})
	url := serve(t, g, api.Options{})
	for name, l := range map[string]look{"light": desktop, "dark on a phone": {390, 844, true, true}} {
		p := open(t, url, l)
		p.choose("alpha", "beta")
		p.say("hello")
		p.done()
		eval[any](p, `document.querySelectorAll("details").forEach(d => { d.open = true; })`)
		check := func(view string) {
			faults, passed := axe(t, p)
			for _, f := range faults {
				t.Errorf("%s, %s: %s", name, view, f)
			}
			if passed < 15 {
				t.Errorf("%s, %s: only %d rules applied", name, view, passed)
			}
			p.fits()
		}
		check("chat")
		if l.phone {
			eval[any](p, `document.getElementById("settings").open = false`)
		}
		p.say("wait")
		p.run(chromedp.Click(chromedp.ID("to-server")))
		p.until("requests are listed", `document.querySelectorAll("#requests tbody tr").length >= 2`)
		check("server")
		eval[any](p, `document.getElementById("key-dialog").showModal()`)
		check("dialog")
	}
}

// TestAxeSees: a page with faults has them found.
func TestAxeSees(t *testing.T) {
	p := open(t, serve(t, scripted(nil), api.Options{}), desktop)
	eval[any](p, `(() => { const b = document.createElement("button"); document.querySelector("main").append(b); const i = document.createElement("input"); document.querySelector("main").append(i); })()`)
	faults, _ := axe(t, p)
	if all := strings.Join(faults, "\n"); !strings.Contains(all, "button-name") || !strings.Contains(all, "label") {
		t.Errorf("%s", all)
	}
}

// TestKeyboard: everything is reached and done without a pointer, and focus is always seen.
func TestKeyboard(t *testing.T) {
	g := scripted(func(prompt string) apitest.Answer {
		if strings.Contains(prompt, "slowly") {
			return apitest.Answer{Text: strings.Repeat("word ", 2000), Delay: 5 * time.Millisecond}
		}
		return apitest.Answer{Text: "done"}
	})
	p := open(t, serve(t, g, api.Options{}), desktop)
	p.choose("alpha")
	// Type, send with Enter, stop with Escape.
	p.run(chromedp.Focus(chromedp.ID("prompt")), chromedp.KeyEvent("tell me slowly"+kb.Enter))
	p.until("text comes", `document.querySelector(".answer-body")?.textContent.includes("word word")`)
	p.run(chromedp.KeyEvent(kb.Escape))
	p.done()
	if !eval[bool](p, `document.activeElement.id === "prompt"`) {
		t.Error("the prompt has lost the focus")
	}
	press := func(id string) { // by Tab, from wherever the focus is
		t.Helper()
		for range 60 {
			if eval[bool](p, `document.activeElement?.matches(`+quoted(id)+`) === true`) {
				return
			}
			p.run(chromedp.KeyEvent(kb.Tab))
			if eval[bool](p, `document.activeElement !== document.body && getComputedStyle(document.activeElement).outlineStyle === "none"`) {
				t.Fatalf("focus is not seen on %s", eval[string](p, `document.activeElement.outerHTML.slice(0, 200)`))
			}
		}
		t.Fatalf("Tab does not reach %s", id)
	}
	press(".answer footer button") // retry
	p.run(chromedp.KeyEvent(kb.Enter))
	p.until("it runs again", `document.querySelector(".answer.busy .answer-body")?.textContent.includes("word")`)
	press("#stop")
	p.run(chromedp.KeyEvent(" "))
	p.done()
	press(".question button") // edit
	p.run(chromedp.KeyEvent(kb.Enter))
	p.until("the editor has the focus", `document.activeElement.matches(".editing textarea")`)
	p.run(chromedp.KeyEvent(kb.End), chromedp.KeyEvent("!"), chromedp.KeyEvent(kb.Escape))
	p.until("the editor is gone", `!document.querySelector(".editing") && document.activeElement.matches(".question button")`)
	press(".choice:nth-child(2) input")
	p.run(chromedp.KeyEvent(" "))
	press("#to-server")
	p.run(chromedp.KeyEvent(kb.Enter))
	p.until("the server is shown", `document.querySelectorAll(".card").length === 3`)
	press(`button[aria-label="Park beta"]`)
	p.run(chromedp.KeyEvent(kb.Enter))
	p.until("beta is parked", `document.querySelector('.card[data-key="beta"] .pill').textContent === "parked"`)
	press(`button[aria-label="Load beta"]`)
	p.run(chromedp.KeyEvent(kb.Enter))
	p.until("beta is back", `document.querySelector('.card[data-key="beta"] .pill').textContent === "resident"`)
}
