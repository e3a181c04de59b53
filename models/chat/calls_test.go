package chat

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
)

// histories are conversations with calls, rendered by the reference templates.
type histories struct {
	Tools         json.RawMessage
	Conversations map[string]json.RawMessage
	Rendered      map[string]map[string]*string
}

// forms are the ways in which clients send one conversation. Each changes the turns of a call, or the results.
var forms = map[string]func(m Object) Object{
	"as it is": func(m Object) Object { return m },
	"arguments as text": func(m Object) Object {
		return eachCall(m, func(call, f Object, arguments Object) Object {
			return call.with("function", f.with("arguments", arguments.JSON()))
		})
	},
	"no content": func(m Object) Object {
		if text, _ := m.Get("content"); text == "" && eachCall(m, nil) != nil {
			return m.with("content", nil)
		}
		return m
	},
	"results in parts": func(m Object) Object {
		role, _ := m.Get("role")
		text, _ := m.Get("content")
		if s, _ := text.(string); role == "tool" && s != "" {
			return m.with("content", []any{Object{{"type", "text"}, {"text", s[:1]}}, Object{{"type", "text"}, {"text", s[1:]}}})
		}
		return m
	},
	"arguments left out where there are none": func(m Object) Object {
		return eachCall(m, func(call, f Object, arguments Object) Object {
			if len(arguments) == 0 {
				return call.with("function", f.without("arguments"))
			}
			return call
		})
	},
	"empty text where there are no arguments": func(m Object) Object {
		return eachCall(m, func(call, f Object, arguments Object) Object {
			if len(arguments) == 0 {
				return call.with("function", f.with("arguments", ""))
			}
			return call
		})
	},
	"nulls, and lists of no calls": func(m Object) Object {
		if role, _ := m.Get("role"); role == "assistant" && eachCall(m, nil) == nil {
			return m.with("tool_calls", []any{}).with("refusal", nil)
		}
		return m.with("name", nil)
	},
}

// eachCall changes calls; without a change it says whether there are any: nil if not.
func eachCall(m Object, change func(call, f, arguments Object) Object) Object {
	v, ok := m.Get("tool_calls")
	if !ok {
		if change == nil {
			return nil
		}
		return m
	}
	if change == nil {
		return m
	}
	var out []any
	for _, c := range v.([]any) {
		call := c.(Object)
		f, _ := call.Get("function")
		a, _ := f.(Object).Get("arguments")
		out = append(out, change(call, f.(Object), a.(Object)))
	}
	return m.with("tool_calls", out)
}

func TestHistoriesWithCalls(t *testing.T) {
	var h histories
	readJSON(t, "testdata/histories.json", &h)
	tools, err := ParseJSON(h.Tools)
	if err != nil {
		t.Fatal(err)
	}
	compared := 0
	for _, g := range goldenTemplates(t) {
		rendered := h.Rendered[g.Name]
		if rendered == nil {
			continue
		}
		tmpl := mustCompile(t, g.Template, g.tokens())
		if !tmpl.WritesCalls() {
			t.Errorf("%s: writes no calls", g.Name)
		}
		for name, raw := range h.Conversations {
			want := rendered[name]
			if want == nil { // a template that writes one call a turn
				if name != "two calls" || !strings.HasPrefix(g.Name, "llama") {
					t.Fatalf("%s %s: the reference raises", g.Name, name)
				}
				continue // TestCallsAlone has it
			}
			v, err := ParseJSON(raw)
			if err != nil {
				t.Fatal(err)
			}
			for form, change := range forms {
				list := slices.Clone(v.([]any))
				var text strings.Builder
				text.WriteString("[")
				for i := range list {
					if i > 0 {
						text.WriteString(",")
					}
					text.WriteString(change(list[i].(Object)).JSON())
				}
				text.WriteString("]")
				messages, err := ParseMessages([]byte(text.String()))
				if err != nil {
					t.Errorf("%s %s, %s: %v", g.Name, name, form, err)
					continue
				}
				p, err := tmpl.Render(messages, Options{AddGenerationPrompt: true, Tools: tools, Now: goldenClock})
				if err != nil {
					t.Errorf("%s %s, %s: %v", g.Name, name, form, err)
					continue
				}
				compared++
				if _, got, ok := strings.Cut(p.Text, "Weather?"); !ok || "Weather?"+got != *want {
					t.Errorf("%s %s, %s:\ngot  %q\nwant %q", g.Name, name, form, "Weather?"+got, *want)
				}
			}
		}
	}
	if compared < 88*len(forms) {
		t.Errorf("%d prompts were compared", compared)
	}
}

// TestCallsAlone: a template that writes one call a turn gets them one by one, each before its result, whatever the order of these.
func TestCallsAlone(t *testing.T) {
	const source = `{% for m in messages %}{% if m.tool_calls %}{% if m.tool_calls|length > 1 %}{{ raise_exception('one') }}{% endif %}C{{ m.tool_calls[0].function.name }}:{{ m.content }};{% else %}{{ m.role[0] }}{{ m.content }};{% endif %}{% endfor %}`
	tmpl := mustCompile(t, source, Tokens{})
	for _, c := range []struct{ calls, results, want string }{
		{"a:1 b:2", "1:x 2:y", "uhi;Ca:S;tx;Cb:;ty;uok;"}, {"a:1 b:2", "2:y 1:x", "uhi;Ca:S;tx;Cb:;ty;uok;"}, {"a: b:", ":x :y", "uhi;Ca:S;tx;Cb:;ty;uok;"},
		{"a:1 b:2", "", "uhi;Ca:S;Cb:;uok;"}, {"a:1 b:2", "2:y", "uhi;Ca:S;Cb:;ty;uok;"}, {"a:1 b:1", "1:x 1:y", "uhi;Ca:S;tx;Cb:;ty;uok;"}, {"a:1 b:2", "3:z 1:x", "uhi;Ca:S;tx;Cb:;tz;uok;"},
	} {
		list := []any{Object{{"role", "user"}, {"content", "hi"}}}
		var calls []any
		for _, s := range strings.Fields(c.calls) {
			name, id, _ := strings.Cut(s, ":")
			call := Object{{"type", "function"}, {"function", Object{{"name", name}, {"arguments", Object{}}}}}
			if id != "" {
				call = append(call, Member{"id", id})
			}
			calls = append(calls, call)
		}
		list = append(list, Object{{"role", "assistant"}, {"content", "S"}, {"tool_calls", calls}})
		for _, s := range strings.Fields(c.results) {
			id, text, _ := strings.Cut(s, ":")
			r := Object{{"role", "tool"}, {"content", text}}
			if id != "" {
				r = append(r, Member{"tool_call_id", id})
			}
			list = append(list, r)
		}
		list = append(list, Object{{"role", "user"}, {"content", "ok"}})
		var b strings.Builder
		dump(&b, list)
		p, err := tmpl.Render(mustParse(t, b.String()), Options{AddGenerationPrompt: true})
		if err != nil || p.Text != c.want {
			t.Errorf("%s, %s: %q %v, want %q", c.calls, c.results, p.Text, err, c.want)
		}
	}
}

// TestIDsOfCalls: calls and results without ids are matched, and ids are short where a template wants nine letters.
func TestIDsOfCalls(t *testing.T) {
	plain := mustCompile(t, `{% for m in messages %}{{ m.role[0] }}{{ m.content }}{% for c in m.tool_calls or [] %}<{{ c.function.name }}{{ c.id }}>{% endfor %}{{ m.tool_call_id }};{% endfor %}`, Tokens{})
	nine := mustCompile(t, `{% for m in messages %}{{ m.role[0] }}{{ m.content }}{% for c in m.tool_calls or [] %}{% if c.id is not defined or c.id|length != 9 %}{{ raise_exception('id') }}{% endif %}<{{ c.function.name }}{{ c.id }}>{% endfor %}{{ m.tool_call_id }};{% endfor %}`, Tokens{})
	for _, c := range []struct{ calls, results, plain, nine string }{
		{"a b", "x y", "<acall00001><bcall00002>;txcall00001;tycall00002;", "<acall00001><bcall00002>;txcall00001;tycall00002;"},
		{"a b", "b:y a:x", "<acall00001><bcall00002>;tycall00002;txcall00001;", "<acall00001><bcall00002>;tycall00002;txcall00001;"},
		{"a a", "a:x a:y", "<acall00001><acall00002>;txcall00001;tycall00002;", "<acall00001><acall00002>;txcall00001;tycall00002;"},
		{"a#call_long b#call_other", "#call_other:y #call_long:x", "<acall_long><bcall_other>;tycall_other;txcall_long;", "<acall00001><bcall00002>;tycall00002;txcall00001;"},
	} {
		var calls, list []any
		for _, s := range strings.Fields(c.calls) {
			name, id, ok := strings.Cut(s, "#")
			call := Object{{"type", "function"}, {"function", Object{{"name", name}, {"arguments", Object{}}}}}
			if ok {
				call = append(call, Member{"id", id})
			}
			calls = append(calls, call)
		}
		list = append(list, Object{{"role", "user"}, {"content", "hi"}}, Object{{"role", "assistant"}, {"content", ""}, {"tool_calls", calls}})
		for _, s := range strings.Fields(c.results) {
			name, text, named := strings.Cut(s, ":")
			r := Object{{"role", "tool"}, {"content", text}}
			switch {
			case !named:
				r = r.with("content", name)
			case name[0] == '#':
				r = append(r, Member{"tool_call_id", name[1:]})
			default:
				r = append(r, Member{"name", name})
			}
			list = append(list, r)
		}
		var b strings.Builder
		dump(&b, list)
		for tmpl, want := range map[*Template]string{plain: c.plain, nine: c.nine} {
			if p, err := tmpl.Render(mustParse(t, b.String()), Options{}); err != nil || p.Text != "uhi;a"+want {
				t.Errorf("%s, %s: %q %v, want uhi;a%q", c.calls, c.results, p.Text, err, want)
			}
		}
	}
}

// TestArguments: what is no object is refused by its place where the template needs one, and is printed where it needs text.
func TestArguments(t *testing.T) {
	const user = `{"role":"user","content":"hi"}`
	objects := mustCompile(t, `{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}{% for k, v in c.function.arguments|items %}{{ k }}={{ v }};{% endfor %}{% endfor %}{% endfor %}`, Tokens{})
	text := mustCompile(t, `{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}{{ c.function.name + c.function.arguments }}{% endfor %}{% endfor %}`, Tokens{})
	either := mustCompile(t, `{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}{{ c.function.name }}{% if c.function.arguments is string %}{{ c.function.arguments }}{% else %}{{ c.function.arguments|tojson }}{% endif %}{% endfor %}{% endfor %}`, Tokens{})
	if objects.arguments != asObjects || text.arguments != asText || either.arguments != asEither {
		t.Fatal(objects.arguments, text.arguments, either.arguments)
	}
	for _, c := range []struct{ arguments, objects, text, either string }{
		{`{"b":1,"a":"x"}`, "b=1;a=x;", `f{"b": 1, "a": "x"}`, `f{"b": 1, "a": "x"}`},
		{`"{\"b\":1,\"b\":2.0,\"a\":\"\\ud83d\"}"`, "b=2.0;a=\ufffd;", `f{"b":1,"b":2.0,"a":"\ud83d"}`, `f{"b":1,"b":2.0,"a":"\ud83d"}`},
		{`""`, "", "f{}", "f{}"}, {`" \n"`, "", "f{}", "f{}"}, {`"null"`, "", "f{}", "f{}"}, {`null`, "", "f{}", "f{}"}, {`{}`, "", "f{}", "f{}"},
		{`"{\"a\": "`, "error", `f{"a": `, `f{"a": `}, {`"[1]"`, "error", "f[1]", "f[1]"}, {`"{} {}"`, "error", "f{} {}", "f{} {}"}, {`"{\"a\": 99999999999999999999}"`, "error", `f{"a": 99999999999999999999}`, `f{"a": 99999999999999999999}`},
	} {
		messages := mustParse(t, `[`+user+`,{"role":"assistant","content":"","tool_calls":[{"type":"function","function":{"name":"f","arguments":`+c.arguments+`}}]}]`)
		for what, want := range map[*Template]string{objects: c.objects, text: c.text, either: c.either} {
			p, err := what.Render(messages, Options{})
			var e *Error
			if want == "error" {
				if !errors.As(err, &e) || e.Field != "messages[1].tool_calls[0].function.arguments" {
					t.Errorf("%s: %q %v", c.arguments, p.Text, err)
				}
			} else if err != nil || p.Text != "hi"+want {
				t.Errorf("%s: %q %v, want hi%q", c.arguments, p.Text, err, want)
			}
		}
	}
	if mustCompile(t, `{% for m in messages %}{{ m.role }}{{ m.content }}{% endfor %}`, Tokens{}).WritesCalls() {
		t.Error("a template without calls writes them")
	}
}
