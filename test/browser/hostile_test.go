package browser

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/openinfer-go/openinfer/api"
	"github.com/openinfer-go/openinfer/api/apitest"
	"github.com/openinfer-go/openinfer/internal/testdata"
)

// hostile are texts that would do something if they became more than text. Each that ran would set window.hit.
var hostile = []string{
	`<script>window.hit=1</script>`,
	`<img src=x onerror="window.hit=1">`,
	`<svg/onload=window.hit=1>`,
	`</pre></code></p><iframe srcdoc="<script>parent.hit=1</script>"></iframe>`,
	`<a href="javascript:window.hit=1" onclick="window.hit=1">x</a>`,
	`<style>body{display:none}</style><link rel=stylesheet href=https://evil.invalid/x.css>`,
	`<form action=https://evil.invalid><button>x</button></form><base href=https://evil.invalid>`,
	`[click](javascript:window.hit=1)`,
	`[click](JaVaScRiPt:window.hit=1)`,
	"[click](java\tscript:window.hit=1)",
	`[click]( javascript:window.hit=1 )`,
	`[click](&#106;avascript:window.hit=1)`,
	`[click](data:text/html,<script>window.hit=1</script>)`,
	`[click](vbscript:window.hit=1) [x](file:///etc/passwd) [y](blob:https://evil.invalid/1) [z](//evil.invalid/x)`,
	`<javascript:window.hit=1> <data:text/html,x>`,
	`![pixel](https://evil.invalid/pixel.png) ![x](data:image/svg+xml,<svg/onload=window.hit=1>)`,
	`![a](x"onerror="window.hit=1) [b](https://example.org/" onmouseover="window.hit=1)`,
	"```\"><script>window.hit=1</script>\n<img src=x onerror=window.hit=1>\n```",
	"```js onload=window.hit=1\n</code></pre><script>window.hit=1</script>\n```",
	"| <img src=x onerror=window.hit=1> | b |\n|---|---|\n| `<script>window.hit=1</script>` | [x](javascript:window.hit=1) |",
	"- <img src=x onerror=window.hit=1>\n  > <script>window.hit=1</script>",
	"# <img src=x onerror=window.hit=1>",
	"**[a](javascript:window.hit=1)** *<b onclick=window.hit=1>x</b>*",
	"[**<img src=x onerror=window.hit=1>**](https://example.org/)",
	"[a]: javascript:window.hit=1\n\n[a]",
	"\u202e\u0000<scr\u0000ipt>window.hit=1</scr\u0000ipt>",
	"$(window.hit=1) {{constructor.constructor('window.hit=1')()}} ${window.hit=1}",
	"__proto__ [constructor](toString) ]]> <!-- --> <![CDATA[x]]> &lt;script&gt;",
}

// inert says what of a page became more than text.
const inert = `(() => {
	const bad = [];
	if (window.hit !== undefined) bad.push("a script ran");
	const allowed = new Set(("P DIV SPAN STRONG EM DEL CODE PRE BUTTON UL OL LI BLOCKQUOTE HR BR TABLE THEAD TBODY TR TH TD A SUMMARY DETAILS ARTICLE HEADER FOOTER FORM TEXTAREA").split(" "));
	for (const e of document.querySelectorAll("#turns *")) {
		if (!allowed.has(e.tagName)) bad.push("<" + e.tagName + ">");
		for (const a of e.attributes) {
			if (a.name.startsWith("on") || a.name === "src" || a.name === "srcdoc" || a.name === "action") bad.push(e.tagName + " " + a.name + "=" + a.value);
			if (a.name === "href" && !/^(https?:\/\/|mailto:)/.test(a.value)) bad.push("href " + a.value);
		}
		if (e.tagName === "A" && !e.rel.includes("noopener")) bad.push("a link without noopener");
	}
	return bad;
})()`

// TestHostileTexts: as a prompt, as an answer, as reasoning and as a model's name, a text is text and nothing else.
func TestHostileTexts(t *testing.T) {
	all := strings.Join(hostile, "\n\n")
	g := scripted(func(string) apitest.Answer { return apitest.Answer{Text: "<think>" + all + "</think>" + all} })
	g.MaxLen = 64 << 10
	g.Names = append(g.Names, `<img src=x onerror="window.hit=1">`)
	p := open(t, serve(t, g, api.Options{}), desktop)
	p.choose("alpha", g.Names[3])
	eval[string](p, fmt.Sprintf(`document.getElementById("system").value = %s`, quoted(all)))
	p.run(chromedp.SetValue(chromedp.ID("prompt"), strings.ReplaceAll(all, "\u0000", "")), chromedp.Click(chromedp.ID("send")))
	p.done()
	eval[any](p, `document.querySelectorAll("details").forEach(d => { d.open = true; })`)
	// Whatever can be pressed in an answer is: links, but without going there.
	eval[any](p, `document.addEventListener("click", e => { if (e.target.closest("a")) e.preventDefault(); }, true)`)
	eval[any](p, `document.querySelectorAll("#turns a, #turns span, #turns p").forEach(e => { e.click(); e.dispatchEvent(new MouseEvent("mouseover", { bubbles: true })); })`)
	time.Sleep(200 * time.Millisecond)
	for _, bad := range eval[[]string](p, inert) {
		t.Error(bad)
	}
	// What is not Markdown is shown as it is written.
	shown := eval[string](p, `document.querySelector(".answer-body").textContent`)
	for _, want := range []string{`<script>window.hit=1</script>`, `<svg/onload=window.hit=1>`, `<iframe srcdoc=`, `{{constructor.constructor('window.hit=1')()}}`, "&lt;script&gt;"} {
		if !strings.Contains(shown, want) {
			t.Errorf("%q is not shown", want)
		}
	}
	eval[any](p, `location.hash = "#server"`)
	p.until("the server is shown", `document.querySelectorAll(".card").length === 4`)
	if eval[bool](p, `window.hit !== undefined || document.querySelector("#server-view img") !== null`) {
		t.Error("a model's name became markup")
	}
}

// TestHostileIsSeen: what the test above looks for is found where it is.
func TestHostileIsSeen(t *testing.T) {
	p := open(t, serve(t, scripted(nil), api.Options{}), desktop)
	eval[any](p, `(() => {
		const add = (name, set) => { const e = document.createElement(name); set(e); document.getElementById("turns").append(e); };
		add("img", e => { e.alt = ""; });
		add("a", e => { e.setAttribute("href", "javascript:1"); });
		add("p", e => { e.setAttribute("data-x", "1"); });
		window.hit = 1;
	})()`)
	if bad := strings.Join(eval[[]string](p, inert), ", "); bad != "a script ran, <IMG>, href javascript:1, a link without noopener" {
		t.Errorf("%s", bad)
	}
	p.expect("Content Security Policy")
	p.expect("TrustedHTML")
	// And the policy is in force: nothing can be parsed as markup, no script and no style in the page.
	if got := eval[string](p, `(() => { try { document.body.innerHTML = "<p>x</p>"; return "parsed"; } catch (e) { return e.name; } })()`); got != "TypeError" {
		t.Errorf("innerHTML: %s", got)
	}
	if got := eval[string](p, `(async () => { try { await fetch("https://evil.invalid/"); return "asked"; } catch (e) { return e.name; } })()`); got != "TypeError" {
		t.Errorf("fetch: %s", got)
	}
}

// TestMarkdownTakesAnyText: no text makes the renderer run out of stack or never end, however it is made.
func TestMarkdownTakesAnyText(t *testing.T) {
	p := open(t, serve(t, scripted(nil), api.Options{}), desktop)
	pieces := []string{
		"*", "**", "_a", "`", "``a`", "[", "![", "[a](", "](", "> ", "- ", "1. ", "  - a\n", "#", "# ", "~", "~~", "```\n", "| a ", "|-", "|-|\n", "<", "<http://",
		"http://", "https://a.b/c.,", "\\", "&", "---\n", "- - ", "a *b **c `d [e](f ", "\n", " ", "\t", "> - 1. ", "*a ", "**a*", "~~a", "x\n|\n-|-\n", "* * ", "\r",
	}
	const kilobytes = 24
	failed := eval[[]string](p, fmt.Sprintf(`(async () => {
		const { Markdown } = await import("/ui/markdown.js");
		const failed = [];
		for (const piece of %s) {
			const text = piece.repeat(%d * 1024 / piece.length);
			const shapes = { alone: text, "and x": text + "x", "and a backtick": "x" + text + "\u0060", fenced: "\u0060\u0060\u0060" + text + "\u0060", heading: "# " + text + "x", link: "[" + text + "](" + text + ")" };
			for (const [name, shape] of Object.entries(shapes)) {
				try {
					new Markdown(document.createElement("div")).show(shape);
				} catch (e) {
					failed.push(JSON.stringify(piece) + ", " + name + ": " + e);
				}
			}
			await new Promise(r => setTimeout(r));
		}
		return failed;
	})()`, list(pieces), kilobytes))
	for _, s := range failed {
		t.Error(s)
	}
}

// TestMarkdownGrows: a text shown piece by piece looks as if it were shown at once.
func TestMarkdownGrows(t *testing.T) {
	p := open(t, serve(t, scripted(nil), api.Options{}), desktop)
	readme, err := os.ReadFile(filepath.Join(testdata.Repo(), "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{report, strings.Join(hostile, "\n\n"), string(readme[:min(len(readme), 12<<10)])} {
		if !eval[bool](p, fmt.Sprintf(`(async () => {
			const { Markdown } = await import("/ui/markdown.js");
			const a = document.createElement("div"), b = document.createElement("div"), text = %s;
			new Markdown(a).show(text);
			const m = new Markdown(b);
			for (let i = 0; i < text.length; i += 23) m.show(text.slice(0, i));
			m.show(text);
			return a.isEqualNode(b) && a.childElementCount > 3;
		})()`, quoted(text))) {
			t.Errorf("%.40q... grew into something else", text)
		}
	}
}

// quoted is a text as JavaScript writes it.
func quoted(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(b)
}
