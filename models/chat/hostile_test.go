package chat

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
)

// Templates that try to take the process with them end in an error, before or while rendering.
func TestHostileTemplates(t *testing.T) {
	ops := 200_000 // what real requests may use takes the worst of these a second each
	if os.Getenv("OPENINFER_SOAK") == "1" {
		ops = maxOps
	}
	rep := strings.Repeat
	chain := func(op string) string { return "{{ 1" + rep(op+"1", 50_000) + " }}" }
	for name, source := range map[string]string{
		"nested loops":            "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
		"long range":              "{% for a in range(10**9) %}{% endfor %}",
		"empty loops":             rep("{% for a in range(90000) %}", 50) + rep("{% endfor %}", 50),
		"text in loops":           "{% for a in range(99999) %}{% for b in range(90) %}" + rep("x", 10_000) + "{% endfor %}{% endfor %}",
		"string multiplied":       "{{ 'x' * 10**12 }}",
		"string doubled":          "{% set ns = namespace(s='x') %}{% for a in range(99) %}{% set ns.s = ns.s + ns.s %}{% endfor %}{{ ns.s }}",
		"list multiplied":         "{{ ([1] * 10**9) | length }}",
		"list doubled":            "{% set ns = namespace(s=[1]) %}{% for a in range(99) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
		"joined":                  "{{ range(99999) | join('x' * 100000) }}",
		"replaced":                "{{ ('x' * 1000000).replace('x', 'y' * 1000000) }}",
		"indented":                "{{ ('\\n' * 10000000) | indent('x' * 1000000) }}",
		"justified":               "{{ 'x'.ljust(10**12) }}",
		"macro calls itself":      "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
		"macros call each other":  "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}{{ a() }}{% endmacro %}{{ a() }}",
		"macro by default":        "{% macro m(x=m()) %}{% endmacro %}{{ m() }}",
		"caller calls itself":     "{% set ns = namespace() %}{% macro m() %}{% set ns.c = caller %}{{ caller() }}{% endmacro %}{% call m() %}{{ ns.c() }}{% endcall %}",
		"macro through namespace": "{% set ns = namespace() %}{% macro m() %}{{ ns.f() }}{% endmacro %}{% set ns.f = m %}{{ ns.f() }}",
		"recursive loop":          "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}",
		"nested list":             "{% set ns = namespace(l=[]) %}{% for a in range(99999) %}{% set ns.l = [ns.l] %}{% endfor %}{{ ns.l }}",
		"nested list compared":    "{% set ns = namespace(l=[], m=[]) %}{% for a in range(99999) %}{% set ns.l = [ns.l] %}{% set ns.m = [ns.m] %}{% endfor %}{{ ns.l == ns.m }}",
		"nested list changed":     "{% set ns = namespace(l=[]) %}{% for a in range(99999) %}{% set ns.l = [ns.l] %}{% endfor %}{% for a in [1,2] %}{{ loop.changed(ns.l) }}{% endfor %}",
		"nested list to json":     "{% set ns = namespace(l=[]) %}{% for a in range(99999) %}{% set ns.l = [ns.l] %}{% endfor %}{{ ns.l | tojson }}",
		"namespace in itself":     "{% set ns = namespace() %}{% set ns.n = ns %}{{ ns }}",
		"parentheses":             "{{ " + rep("(", 100_000) + "1" + rep(")", 100_000) + " }}",
		"brackets":                "{{ " + rep("[", 100_000) + rep("]", 100_000) + " }}",
		"braces":                  "{{ " + rep("{'a':", 50_000) + "1" + rep("}", 50_000) + " }}",
		"not":                     "{{ " + rep("not ", 100_000) + "1 }}",
		"minus":                   "{{ " + rep("-", 100_000) + "1 }}",
		"conditions":              "{{ " + rep("1 if 1 else ", 40_000) + "1 }}",
		"alternating":             "{{ 1" + rep("+1-1", 50_000) + " }}",
		"ands":                    chain(" and "),
		"comparisons":             chain(" < "),
		"filters":                 "{{ 1" + rep("|string", 50_000) + " }}",
		"attributes":              "{{ messages" + rep(".a", 50_000) + " }}",
		"calls":                   "{{ messages" + rep("()", 50_000) + " }}",
		"tests":                   "{{ 1" + rep(" is defined", 40_000) + " }}",
		"ifs":                     rep("{% if 1 %}", 40_000) + rep("{% endif %}", 40_000),
		"fors":                    rep("{% for a in [1] %}", 20_000) + rep("{% endfor %}", 20_000),
		"macros":                  rep("{% macro a() %}", 20_000) + rep("{% endmacro %}", 20_000),
		"large":                   rep("x", 1<<20),
		"reserved":                "{{ oi__add }}",
		"format width":            "{{ '%999999999d' % 1 }}",
		"unclosed":                rep("{{", 100_000),
	} {
		tmpl, err := Compile(source, Tokens{})
		if err == nil {
			var p Prompt
			left := ops
			p, err = tmpl.render([]Message{{Object{{"role", "user"}, {"content", "x"}}}}, Options{}, &left)
			var e *Error
			if err != nil && !errors.As(err, &e) {
				t.Errorf("%s: %T is not an *Error", name, err)
			}
			if err == nil {
				t.Errorf("%s: rendered %d bytes", name, len(p.Text))
			}
		}
		if err != nil && len(err.Error()) > 400 {
			t.Errorf("%s: an error of %d bytes: %.100s", name, len(err.Error()), err)
		}
	}
}

func TestLongButHonestConversations(t *testing.T) {
	var messages []Message
	for i := range 600 {
		role := []string{"user", "assistant"}[i%2]
		messages = append(messages, Message{Object{{"role", role}, {"content", fmt.Sprintf("turn %d %s", i, strings.Repeat("word ", 200))}}})
	}
	messages = append(messages, Message{Object{{"role", "user"}, {"content", "last"}}})
	for _, g := range goldenTemplates(t) {
		p, err := mustCompile(t, g.Template, g.tokens()).Render(messages, Options{AddGenerationPrompt: true})
		if err != nil || !strings.Contains(p.Text, "last") {
			t.Errorf("%s: %v", g.Name, err)
		}
	}
}

func TestTemplateIsSafeForConcurrentUse(t *testing.T) {
	tmpl := compiledGolden(t, "qwen3.6")
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 20 {
				text := fmt.Sprintf("%d-%d <|im_end|>", i, j)
				p, err := tmpl.Render([]Message{{Object{{"role", "user"}, {"content", text}}}}, Options{AddGenerationPrompt: true})
				if err != nil || !strings.Contains(p.Text, text) {
					t.Errorf("%q: %q %v", text, p.Text, err)
				}
			}
		})
	}
	wg.Wait()
}

func TestNoTemplate(t *testing.T) {
	if _, err := Compile("", Tokens{}); !errors.Is(err, ErrNoTemplate) {
		t.Errorf("got %v", err)
	}
}

func FuzzCompileRender(f *testing.F) {
	for _, g := range goldenTemplates(f) {
		f.Add(g.Template, "hi <|im_end|> there")
	}
	f.Add("{% macro m(x) %}{{ m(x) }}{% endmacro %}{{ m(1) }}", "x")
	f.Add("{% for a in range(10**9) %}{{ 'x' * 10**9 }}{% endfor %}", "x")
	f.Add("{% set a, b = 1, 2 %}{% with c = a %}{% filter upper %}{{ c|tojson }}{% endfilter %}{% endwith %}", "x")
	f.Fuzz(func(t *testing.T, source, content string) {
		tmpl, err := Compile(source, Tokens{Special: []string{"<|im_end|>", "x"}, Named: map[string]string{"bos_token": "<s>"}})
		if err != nil {
			return
		}
		p, err := tmpl.Render([]Message{{Object{{"role", "user"}, {"content", strings.ToValidUTF8(content, "")}}}}, Options{})
		var e *Error
		if err != nil && !errors.As(err, &e) {
			t.Fatalf("%T: %v", err, err)
		}
		if err == nil && joinedSegments(p) != p.Text {
			t.Fatalf("segments join to %q, not %q", joinedSegments(p), p.Text)
		}
	})
}

func FuzzParseMessages(f *testing.F) {
	f.Add([]byte(`[{"role":"user","content":[{"type":"text","text":"x"}]},{"role":"assistant","content":null,"tool_calls":[{"function":{"name":"f","arguments":"{}"}}]}]`))
	f.Add([]byte(`[{"role":"user","content":"\ud83d"}]`))
	tmpl := compiledGolden(f, "llama-3.2")
	f.Fuzz(func(t *testing.T, raw []byte) {
		messages, err := ParseMessages(raw)
		var e *Error
		if err != nil && !errors.As(err, &e) {
			t.Fatalf("%T: %v", err, err)
		}
		if err != nil {
			return
		}
		if _, err = tmpl.Render(messages, Options{}); err != nil && !errors.As(err, &e) {
			t.Fatalf("%T: %v", err, err)
		}
	})
}

func BenchmarkRender(b *testing.B) {
	if os.Getenv("OPENINFER_SHARED_OPTIONAL") == "1" {
		b.Skip("needs the reference templates")
	}
	tmpl := compiledGolden(b, "qwen3.6")
	messages := []Message{
		{Object{{"role", "system"}, {"content", "You are terse."}}},
		{Object{{"role", "user"}, {"content", strings.Repeat("What is <b>2+2</b>? ", 50)}}},
	}
	for b.Loop() {
		if _, err := tmpl.Render(messages, Options{AddGenerationPrompt: true}); err != nil {
			b.Fatal(err)
		}
	}
}
