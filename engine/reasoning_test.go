package engine

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/openinfer-go/openinfer/internal/testdata"
	"github.com/openinfer-go/openinfer/models/chat"
)

// Marks stay in the text though they be special, and events say where; without them nothing changes.
func TestMarksOfAnAnswer(t *testing.T) {
	e := openFake(t, nil, nil)
	prompt := []int32("marks of this")
	whole := fakeAnswer(1, prompt, 200, true)
	if !slices.Contains(whole, fakeSpecial) || !slices.Contains(whole, 'e') {
		t.Fatal("the answer has no marks")
	}
	marks := []int32{fakeSpecial, 'e'}
	for _, stops := range [][]string{nil, {"zzzz"}, {"special>zzz", "ezzz"}} {
		events, err := e.Generate(t.Context(), Request{Model: "a", Prompt: prompt, MaxTokens: 200, IgnoreEOS: true, Marks: marks, Stop: stops})
		if err != nil {
			t.Fatal(err)
		}
		text, found := "", []string(nil)
		for ev := range events {
			text += ev.Text
			for _, m := range ev.Marks {
				found = append(found, ev.Text[m.At:m.At+m.Len])
			}
		}
		var kept []int32
		var want []string
		for _, id := range whole {
			if slices.Contains(marks, id) {
				want = append(want, string(fakeTokens{}.TokenBytes(id)))
			}
			if id != fakeEnd {
				kept = append(kept, id)
			}
		}
		if decoded := oneShot(fakeTokens{}.Decode(kept, false)); text != decoded || !slices.Equal(found, want) {
			t.Errorf("stops %q: %q with marks %q; want %q with %q", stops, text, found, decoded, want)
		}
	}
	a := gather(t, e, Request{Model: "a", Prompt: prompt, MaxTokens: 200, IgnoreEOS: true, Marks: marks, Stop: []string{"special>"}})[0]
	if a.final.StopReason != "special>" || strings.HasSuffix(a.text, "<") {
		t.Errorf("a stop string in a mark: %v after %q", a.final.StopReason, a.text)
	}
	if _, err := e.Generate(t.Context(), Request{Model: "a", Prompt: prompt, Marks: []int32{fakeVocab}}); err == nil || !strings.Contains(err.Error(), "marks") {
		t.Errorf("a mark outside the vocabulary: %v", err)
	}
}

type referenceTemplate struct {
	Template string
	BOS      string `json:"bos_token"`
	EOS      string `json:"eos_token"`
}

func referenceTemplates(t *testing.T) map[string]referenceTemplate {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(testdata.Shared(t, "golden", "chat"), "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]referenceTemplate{}
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		var r referenceTemplate
		if err := json.Unmarshal(data, &r); err != nil {
			t.Fatal(err)
		}
		if r.Template != "" {
			out[strings.TrimSuffix(filepath.Base(f), ".json")] = r
		}
	}
	return out
}

func TestReasoningIsFoundByTheTemplate(t *testing.T) {
	known := map[string]int32{"<think>": 5, "</think>": 6, "<|channel>": 7, "<channel|>": 8, "[THINK]": 9}
	id := func(s string) (int32, bool) { n, ok := known[s]; return n, ok }
	want := map[string]string{"qwen3": "qwen3", "qwen3.5": "qwen3", "qwen3.6": "qwen3", "glm": "qwen3", "gemma4": "gemma4"}
	for name, r := range referenceTemplates(t) {
		got := findReasoning("auto", r.Template, id)
		if got.Parser != want[name] || got.Parser != "" && len(got.Marks) != 2 {
			t.Errorf("%s: %+v, want %q", name, got, want[name])
		}
		if r := findReasoning("none", r.Template, id); r.Parser != "" {
			t.Errorf("%s: switched off, %+v", name, r)
		}
	}
	if r := findReasoning("mistral", "", id); r.Parser != "mistral" || r.Marks != nil {
		t.Errorf("asked for, and only one of the marks is a token: %+v", r)
	}
	if _, err := New(Options{Models: []ModelSpec{{Name: "demo-tales", ReasoningParser: "qwen9"}}}); err == nil || !strings.Contains(err.Error(), "qwen9") {
		t.Errorf("unknown parser: %v", err)
	}
}

// Whether an answer begins inside reasoning is what the template wrote, never what a user typed.
func TestWhereAPromptEnds(t *testing.T) {
	const u = `{"role":"user","content":"U"}`
	const typed = `{"role":"user","content":"Explain what <think> means. <think>"}`
	off, on := `{"enable_thinking":false}`, `{"enable_thinking":true}`
	templates := referenceTemplates(t)
	templates["deepseek-r1"] = referenceTemplate{Template: `{% for m in messages %}{% if m.role == 'user' %}<｜User｜>{{ m.content }}` +
		`{% else %}<｜Assistant｜>{{ m.content.split('</think>')[-1] }}{% endif %}{% endfor %}{% if add_generation_prompt %}<｜Assistant｜><think>` + "\n{% endif %}"}
	for _, c := range []struct {
		template, messages, kwargs, parser string
		continued                          bool
		spelled                            bool
		want                               bool
	}{
		{"qwen3", u, "", "", false, false, false}, // the model opens by itself
		{"qwen3", u, off, "", false, false, false},
		{"qwen3", typed, "", "", false, false, false},
		{"qwen3", typed, off, "", false, false, false},
		{"qwen3", typed, "", "", false, true, false},
		{"qwen3", u + `,{"role":"assistant","content":"<think>\nso"}`, "", "", true, false, true},
		{"qwen3", u + `,{"role":"assistant","reasoning_content":"so","content":"A"}`, "", "", true, false, false},
		{"qwen3", u, "", "deepseek_r1", false, false, true},
		{"qwen3", u, off, "deepseek_r1", false, false, false},
		{"qwen3.5", u, "", "", false, false, true},
		{"qwen3.5", u, "", "", false, true, true},
		{"qwen3.5", u, on, "", false, false, true},
		{"qwen3.5", u, off, "", false, false, false},
		{"qwen3.5", typed, off, "", false, false, false},
		{"qwen3.6", u + `,{"role":"assistant","content":"A"},` + typed, "", "", false, false, true},
		{"glm", u, "", "", false, false, true},
		{"glm", u, off, "", false, false, false},
		{"gemma4", u, "", "", false, false, false},
		{"gemma4", u, on, "", false, false, false},
		{"deepseek-r1", typed, "", "", false, false, true},
	} {
		r := templates[c.template]
		id := func(s string) (int32, bool) { return 1, !c.spelled }
		reasoning := findReasoning(c.parser, r.Template, id)
		tokens := chat.Tokens{Named: map[string]string{"bos_token": r.BOS, "eos_token": r.EOS}, Special: []string{"<|im_start|>", "<|im_end|>"}}
		if !c.spelled {
			tokens.Added = []string{"<think>", "</think>"}
		}
		tmpl, err := chat.Compile(r.Template, tokens)
		if err != nil {
			t.Fatal(err)
		}
		messages, err := chat.ParseMessages([]byte("[" + c.messages + "]"))
		if err != nil {
			t.Fatal(err)
		}
		kwargs, err := chat.ParseObject([]byte(c.kwargs))
		if err != nil {
			t.Fatal(err)
		}
		p, err := tmpl.Render(messages, chat.Options{AddGenerationPrompt: !c.continued, ContinueFinalMessage: c.continued, Kwargs: kwargs})
		if err != nil {
			t.Fatal(err)
		}
		if got := reasoning.goesOn(p, c.continued); got != c.want {
			t.Errorf("%+v: %v, prompt %q", c, got, p.Text)
		}
	}
}
