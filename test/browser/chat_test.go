package browser

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/openinfer-go/openinfer/api"
	"github.com/openinfer-go/openinfer/api/apitest"
	"github.com/openinfer-go/openinfer/engine"
)

// scripted is a generator of three models that answer by what the prompt ends with.
func scripted(f func(prompt string) apitest.Answer) *apitest.Generator {
	g := &apitest.Generator{Names: []string{"alpha", "beta", "org/gamma"}}
	g.Reasoning = engine.Reasoning{Parser: "qwen3", Open: "<think>", Close: "</think>", Marks: []int32{apitest.Think, apitest.EndThink}}
	g.Answer = func(r engine.Request) apitest.Answer {
		text, err := g.Detokenize(r.Model, r.Prompt)
		if err != nil {
			panic(err)
		}
		return f(text)
	}
	return g
}

// prompts are the prompts that a generator got, as text.
func prompts(t *testing.T, g *apitest.Generator) []string {
	t.Helper()
	var all []string
	for _, r := range g.Requests() {
		text, err := g.Detokenize(r.Model, r.Prompt)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, text)
	}
	return all
}

const report = "<think>I think *hard*.</think># A title\n\nSome **bold** and *slanted* text with `code`, see <https://example.org/a>.\n\n" +
	"- one\n- two\n  - inner\n\n1. first\n2. second\n\n| a | b |\n|---|--:|\n| x | 7 |\n\n> quoted\n\n```go\nfunc main() {\n\tfmt.Println(\"<b>\")\n}\n```\n"

// TestChat: an answer is shown as Markdown, its reasoning folded, and its numbers below.
func TestChat(t *testing.T) {
	g := scripted(func(string) apitest.Answer { return apitest.Answer{Text: report, Cached: 7} })
	p := open(t, serve(t, g, api.Options{}), desktop)
	p.choose("alpha")
	p.say("What is it?")
	p.done()
	for selector, want := range map[string]string{
		".question p": "What is it?", ".answer header strong": "alpha", ".heading": "A title", ".answer-body strong": "bold", ".answer-body em": "slanted",
		".answer-body a": "https://example.org/a", ".answer-body ul ul li": "inner", ".answer-body ol li:nth-child(2)": "second",
		".answer-body td.number": "7", ".answer-body blockquote": "quoted", ".code code": "func main() {\n\tfmt.Println(\"<b>\")\n}", ".code-head span": "go",
	} {
		if got := p.text(selector); strings.TrimSpace(got) != want {
			t.Errorf("%s shows %q, want %q", selector, got, want)
		}
	}
	if !eval[bool](p, `(() => { const d = document.querySelector(".reasoning"); return !d.hidden && !d.open && d.textContent.includes("I think hard.") && d.querySelector("em") !== null; })()`) {
		t.Error("the reasoning is not there, folded")
	}
	if a := eval[string](p, `(a => a.rel + " " + a.protocol)(document.querySelector(".answer-body a"))`); !strings.Contains(a, "noopener") || !strings.Contains(a, "https:") {
		t.Errorf("link %s", a)
	}
	meter := p.text(".meter")
	for _, want := range []string{"TTFT ", " tok/s", " tokens", "7 cached"} {
		if !strings.Contains(meter, want) {
			t.Errorf("numbers %q lack %q", meter, want)
		}
	}
	p.fits()
}

// TestSideBySide: the same prompt to several models, each with its own conversation.
func TestSideBySide(t *testing.T) {
	g := scripted(func(prompt string) apitest.Answer {
		return apitest.Answer{Text: fmt.Sprintf("answer %d", strings.Count(prompt, "assistant"))}
	})
	p := open(t, serve(t, g, api.Options{}), desktop)
	p.choose("alpha", "org/gamma")
	p.say("one")
	p.done()
	p.choose("alpha")
	p.say("two")
	p.done()
	p.choose("alpha", "org/gamma")
	p.say("three")
	p.done()
	places := eval[[]float64](p, `[...document.querySelectorAll(".turn:first-child .answer")].flatMap(a => { const r = a.getBoundingClientRect(); return [r.left, r.top]; })`)
	if len(places) != 4 || places[0] >= places[2] || places[1] != places[3] {
		t.Errorf("answers at %v are not side by side", places)
	}
	got := eval[[]string](p, `[...document.querySelectorAll(".turn:last-child .answer")].map(a => a.querySelector("strong").textContent + ": " + a.querySelector(".answer-body").textContent.trim())`)
	if fmt.Sprint(got) != "[alpha: answer 3 org/gamma: answer 2]" {
		t.Errorf("%q: a model is to see its own answers", got)
	}
}

// TestManyAtOnce: ten models answer at once, and the page goes on asking for the server's state meanwhile.
func TestManyAtOnce(t *testing.T) {
	step := make(chan struct{})
	g := scripted(func(string) apitest.Answer { return apitest.Answer{Text: "ok", Step: step} })
	g.Names = nil
	for i := range 10 {
		g.Names = append(g.Names, fmt.Sprint("model-", i))
	}
	p := open(t, serve(t, g, api.Options{}), desktop)
	p.choose(g.Names...)
	p.say("hello")
	for deadline := time.Now().Add(time.Minute); g.Live.Load() < 10; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d models answer at once", g.Live.Load())
		}
	}
	eval[any](p, `performance.clearResourceTimings()`)
	p.until("the server is still asked", `performance.getEntriesByType("resource").some(e => e.name.endsWith("/v1/state") && e.responseEnd > 0)`)
	p.fits()
	close(step)
	p.done()
	if got := eval[int](p, `[...document.querySelectorAll(".answer-body")].filter(e => e.textContent.trim() === "ok").length`); got != 10 {
		t.Errorf("%d answers", got)
	}
}

// TestWideTexts: what cannot be broken scrolls within itself or is broken, on a phone.
func TestWideTexts(t *testing.T) {
	long := strings.Repeat("x", 3000)
	text := long + "\n\n- " + long + "\n\n> " + long + "\n\n`" + long + "`\n\n```\n" + long + "\n```\n\n|" + strings.Repeat("column|", 40) + "\n|" + strings.Repeat("-|", 40) + "\n|" +
		strings.Repeat("cell|", 40) + "\n\n# " + long + "\n\n[" + long[:900] + "](https://example.org/" + long[:900] + ")\n"
	g := scripted(func(string) apitest.Answer { return apitest.Answer{Text: "<think>" + text + "</think>" + text} })
	g.Names = []string{"a-model-with-a-name-that-is-" + long[:200]}
	g.MaxLen = 64 << 10
	p := open(t, serve(t, g, api.Options{}), phone)
	p.choose(g.Names...)
	p.say(long[:2000])
	p.done()
	eval[any](p, `document.querySelectorAll("details").forEach(d => { d.open = true; })`)
	p.fits()
	eval[any](p, `location.hash = "#server"`)
	p.until("the server is shown", `document.querySelectorAll(".card").length === 1`)
	p.fits()
}

// TestStop: what was said so far stays, and the server computes no more.
func TestStop(t *testing.T) {
	g := scripted(func(string) apitest.Answer {
		return apitest.Answer{Text: strings.Repeat("word ", 2000), Delay: 5 * time.Millisecond}
	})
	p := open(t, serve(t, g, api.Options{}), desktop)
	p.choose("alpha", "beta")
	p.say("go on")
	p.until("text comes", `[...document.querySelectorAll(".answer-body")].filter(a => a.textContent.includes("word word")).length === 2`)
	p.run(chromedp.Click(chromedp.ID("stop")))
	p.done()
	if m := p.text(".meter"); !strings.Contains(m, "stopped") || !strings.Contains(m, "tokens") {
		t.Errorf("%q", m)
	}
	for deadline := time.Now().Add(5 * time.Second); g.Live.Load() > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the server goes on")
		}
	}
	if !eval[bool](p, `document.getElementById("stop").hidden && !document.getElementById("send").hidden`) {
		t.Error("the buttons are those of an answer that runs")
	}
}

// TestEditAndRetry: an edited prompt takes the place of what came after it; a retried answer that of the old one.
func TestEditAndRetry(t *testing.T) {
	n := 0
	g := scripted(func(string) apitest.Answer { n++; return apitest.Answer{Text: fmt.Sprint("answer ", n)} })
	p := open(t, serve(t, g, api.Options{}), desktop)
	p.choose("alpha")
	p.say("first")
	p.done()
	p.say("second")
	p.done()
	p.run(chromedp.Click(chromedp.CSS(".turn:last-child .answer footer button")))
	p.until("the retried answer is there", `document.querySelector(".turn:last-child .answer-body").textContent.includes("answer 3")`)
	p.done()
	p.run(chromedp.Click(chromedp.CSS(".turn:first-child .question button")))
	p.run(chromedp.SetValue(chromedp.CSS(".editing textarea"), "changed"), chromedp.Click(chromedp.CSS(".editing button[type=submit]")))
	p.until("the edited turn is answered", `document.querySelectorAll(".turn").length === 1 && document.querySelector(".answer-body").textContent.includes("answer 4")`)
	p.done()
	got := prompts(t, g)
	if len(got) != 4 || got[1] != got[2] || !strings.Contains(got[1], "first") || !strings.Contains(got[1], "answer 1") ||
		!strings.Contains(got[3], "changed") || strings.Contains(got[3], "first") {
		t.Errorf("prompts %q", got)
	}
}

// TestSettings reach the request; what the model cannot do is said.
func TestSettings(t *testing.T) {
	g := scripted(func(string) apitest.Answer { return apitest.Answer{Text: "a long answer that is cut"} })
	p := open(t, serve(t, g, api.Options{}), desktop)
	p.choose("alpha")
	p.run(chromedp.SendKeys(chromedp.ID("system"), "Be brief."), chromedp.SendKeys(chromedp.ID("temperature"), "0.3"), chromedp.SendKeys(chromedp.ID("max-tokens"), "6"))
	p.say("hello")
	p.done()
	r := g.Requests()[0]
	if r.Sampling.Temperature != 0.3 || r.MaxTokens != 6 || !strings.Contains(prompts(t, g)[0], "system\nBe brief.") {
		t.Errorf("%+v %q", r.Sampling, prompts(t, g))
	}
	if m := p.text(".meter"); !strings.Contains(m, "cut at max tokens") || !strings.Contains(m, "6 tokens") {
		t.Errorf("%q", m)
	}
}

// TestKey: it is asked for, kept for the tab, and asked for again when it is wrong.
func TestKey(t *testing.T) {
	g := scripted(func(string) apitest.Answer { return apitest.Answer{Text: "in"} })
	url := serve(t, g, api.Options{Keys: []string{"right"}})
	p := open(t, url, desktop)
	p.expect("401")
	p.until("a key is asked for", `document.getElementById("key-dialog").open`)
	p.run(chromedp.SendKeys(chromedp.ID("key"), "wrong"+kb.Enter))
	p.until("it is asked for again", `document.getElementById("key-dialog").open && document.getElementById("key-text").textContent.includes("not one of")`)
	eval[string](p, `document.getElementById("key").value = ""`)
	p.run(chromedp.SendKeys(chromedp.ID("key"), "right"+kb.Enter))
	p.choose("alpha")
	p.run(chromedp.Navigate(url))
	p.choose("alpha")
	p.say("hello")
	p.done()
	if got := p.text(".answer-body"); strings.TrimSpace(got) != "in" {
		t.Errorf("%q", got)
	}
	if s := eval[string](p, `JSON.stringify(localStorage) + document.cookie + location.href`); strings.Contains(s, "right") {
		t.Errorf("the key is in %s", s)
	}
}

// TestRefusal: errors are said in words, with when to try again, and retry works.
func TestRefusal(t *testing.T) {
	step := make(chan struct{})
	g := scripted(func(string) apitest.Answer { return apitest.Answer{Text: "ok", Step: step} })
	g.MaxRunning = 1
	p := open(t, serve(t, g, api.Options{}), desktop)
	p.expect("429")
	p.choose("alpha", "beta")
	p.say("hello")
	p.until("one is refused", `[...document.querySelectorAll(".answer .problem")].some(e => !e.hidden)`)
	if got := eval[string](p, `[...document.querySelectorAll(".answer .problem")].find(e => !e.hidden).textContent`); !strings.Contains(got, "no room") || !strings.Contains(got, "Try again in 2 s") {
		t.Errorf("%q", got)
	}
	close(step)
	p.until("the other is answered", `document.querySelectorAll(".answer.busy").length === 0`)
	p.run(chromedp.Click(chromedp.JSPath(`[...document.querySelectorAll(".answer")].find(a => !a.querySelector(".problem").hidden).querySelector("footer button")`)))
	p.until("both are answered", `[...document.querySelectorAll(".answer-body")].every(e => e.textContent.trim() === "ok")`)
}

// TestBrokenOff: what came before an answer broke off stays, and why it did is said.
func TestBrokenOff(t *testing.T) {
	g := scripted(func(prompt string) apitest.Answer {
		a := apitest.Answer{Text: "It began so well", FailAfter: 8, Err: engine.ErrUnloaded}
		if strings.Contains(prompt, "step") {
			a.Err = engine.ErrStep
		}
		return a
	})
	p := open(t, serve(t, g, api.Options{}), desktop)
	p.choose("alpha")
	for prompt, want := range map[string]string{"unload": "was unloaded", "step": "failed at this step"} {
		p.say(prompt)
		p.done()
		last := ".turn:last-child "
		if body, problem := p.text(last+".answer-body"), p.text(last+".problem"); strings.TrimSpace(body) != "It began" && strings.TrimSpace(body) != "It bega" || !strings.Contains(problem, want) {
			t.Errorf("%q, %q, want %q", body, problem, want)
		}
	}
}

// TestLoading: while models load the page says so, and what is asked waits for them.
func TestLoading(t *testing.T) {
	loading := make(chan struct{})
	g := scripted(func(string) apitest.Answer { return apitest.Answer{Text: "here"} })
	g.Loading = loading
	p := open(t, serve(t, g, api.Options{}), desktop)
	p.until("the page says so", `document.getElementById("health").textContent === "loading"`)
	p.choose("alpha")
	p.say("hello")
	p.until("it waits", `document.querySelector(".answer-state").textContent.includes("loading the model")`)
	close(loading)
	p.done()
	if got := p.text(".answer-body"); strings.TrimSpace(got) != "here" {
		t.Errorf("%q", got)
	}
	p.until("the page says that it is ready", `document.getElementById("health").textContent === "ready"`)
}

// TestToolCalls: calls are shown as they come, in pieces.
func TestToolCalls(t *testing.T) {
	g := scripted(func(string) apitest.Answer { return apitest.Answer{Text: "x"} })
	h := api.New(g, api.Options{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/chat/completions" {
			h.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		for _, delta := range []string{
			`{"role":"assistant","content":""}`, `{"content":"Let me look."}`,
			`{"tool_calls":[{"index":0,"id":"call_1","type":"function","function":{"name":"weather","arguments":""}}]}`,
			`{"tool_calls":[{"index":0,"function":{"arguments":"{\"city\": \"<img src=x onerror=alert(1)>\","}}]}`,
			`{"tool_calls":[{"index":0,"function":{"arguments":"\"days\": 2}"}}]}`,
			`{"tool_calls":[{"index":1,"id":"call_2","type":"function","function":{"name":"time","arguments":"{}"}}]}`,
		} {
			fmt.Fprintf(w, "data: {\"choices\":[{\"index\":0,\"delta\":%s,\"finish_reason\":null}]}\n\n", delta)
		}
		fmt.Fprint(w, "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"tool_calls\"}]}\n\ndata: [DONE]\n\n")
	}))
	defer s.Close()
	p := open(t, s.URL, desktop)
	p.choose("alpha")
	p.say("weather?")
	p.done()
	got := eval[[]string](p, `[...document.querySelectorAll(".call")].map(c => c.querySelector("summary").textContent + " " + c.querySelector("pre").textContent)`)
	if len(got) != 2 || !strings.HasPrefix(got[0], "Calls weather ") || !strings.HasPrefix(got[1], "Calls time ") {
		t.Fatalf("%q", got)
	}
	var args struct {
		City string
		Days int
	}
	if err := json.Unmarshal([]byte(strings.TrimPrefix(got[0], "Calls weather ")), &args); err != nil || args.Days != 2 || !strings.HasPrefix(args.City, "<img") {
		t.Errorf("%v %q", err, got[0])
	}
	if m := p.text(".meter"); !strings.Contains(m, "calls tools") {
		t.Errorf("%q", m)
	}
}
