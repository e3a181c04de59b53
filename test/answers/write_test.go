package answers

import (
	"encoding/json/jsontext"
	"encoding/json/v2"
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
)

// part is a stretch of an answer: text, or one control token.
type part struct {
	text    string
	control bool
}

// want is what an answer is made of.
type want struct {
	content, reasoning string
	calls              []wantCall
	// loose: there is content before reasoning, so that the white space around that is content or layout.
	loose bool
}

type wantCall struct {
	name string
	args map[string]any
}

const toolsJSON = `[
{"type":"function","function":{"name":"find","parameters":{"type":"object","properties":{"text":{"type":"string"},"count":{"type":"integer"},"share":{"type":"number"},
 "deep":{"type":"boolean"},"where":{"type":"object"},"list":{"type":"array"},"maybe":{"type":["string","null"]},"kind":{"enum":["a","b c"]}}}}},
{"type":"function","function":{"name":"now"}}]`

// format is how a family writes calls.
type format struct {
	name   string
	marks  []string // control tokens of the family's vocabulary
	vocabs []string // tokenizers that stand for the family's; the first is its own, where that can be had
	calls  func(w *writer, calls []wantCall)
	// last: nothing but calls can follow a call, and content comes before one only where a control token parts them.
	last bool
	// never is what a string cannot hold in this format, nor a line break and the string.
	never *regexp.Regexp
}

var formats = []format{
	{name: "hermes", marks: []string{"<tool_call>", "</tool_call>"}, vocabs: []string{"qwen3", "smollm2", "deepseek_v3"}, calls: hermesCalls},
	{name: "qwen3_xml", marks: []string{"<tool_call>", "</tool_call>"}, vocabs: []string{"qwen3", "gptoss"}, calls: xmlCalls,
		never: regexp.MustCompile(`</parameter>[ \t\r\n]+<(parameter=|/function|/tool_call)|\n[ \t\r]*</parameter>`)},
	{name: "llama3_json", marks: []string{"<|python_tag|>"}, vocabs: []string{"llama3_2", "gpt35turbo"}, calls: llamaCalls, last: true},
	{name: "phi4_mini_json", marks: []string{"<|tool_call|>", "<|/tool_call|>"}, vocabs: []string{"gpt4o", "gpt35turbo"}, calls: phiCalls},
	{name: "gemma4", marks: []string{"<|tool_call>", "<tool_call|>", `<|"|>`}, vocabs: []string{"gemma3", "qwen3"}, calls: gemmaCalls, never: regexp.MustCompile(`<\|"\|>`)},
	{name: "mistral", marks: []string{"[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"}, vocabs: []string{"deepseek_v3", "llama3_2"}, calls: mistralCalls},
}

// scraps are what strings and content are made of: what looks like the end of something in one of the formats, and characters of many bytes.
var scraps = []string{"}", "{", "]", "[", `"`, `\`, `\"`, "'", "\n", "\t", "\r\n", "  ", " ", ",", ";", ":", "<", ">", "</tool_call>", "<tool_call>", "<function=now>", "</function>",
	"<parameter=x>", "</parameter>", "<|python_tag|>", "functools[", "<|tool_call|>", "<|/tool_call|>", "<|tool_call>", "<tool_call|>", "call:now{", "[TOOL_CALLS]", "[ARGS]",
	`{"name": "now", "arguments": {}}`, "a", "word", "Ulm", "naïve", "日本語", "👩‍🚀", "é", "\u00a0", "x < y", "&lt;", "0", "-1", "null", "true", "```json\n", "</s>", "$", "\u2028"}

// writer writes one answer.
type writer struct {
	*rand.Rand
	format *format
	tokens bool // control tokens are tokens; else their text is spelled out
	parts  []part
}

func (w *writer) put(text string) {
	if text != "" {
		w.parts = append(w.parts, part{text: text})
	}
}

// mark writes one of the format's control tokens.
func (w *writer) mark(text string) { w.parts = append(w.parts, part{text, w.tokens}) }

// one is one of those.
func one[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

// text is a string that the format can hold.
func (w *writer) text() string {
	for {
		var out strings.Builder
		for range w.IntN(7) {
			out.WriteString(one(w.Rand, scraps...))
		}
		s := out.String()
		if w.format.never == nil || !w.format.never.MatchString("\n"+s) {
			return s
		}
	}
}

// prose is content without anything that a format could take for a call, or white space at its ends.
func (w *writer) prose() string {
	words := []string{"Let", "me", "see:", "**bold**", "a < b", "x > y,", "naïve", "日本語", "👩‍🚀", `{"name": 3}`, "`<tool`", "[1]", "fun", "call", "\n\n", "- item", "1.5", "(so)", "</b>", "TOOL"}
	var out []string
	for range 1 + w.IntN(6) {
		out = append(out, one(w.Rand, words...))
	}
	return "Well " + strings.Join(out, " ") + " then."
}

func (w *writer) value(depth int) any {
	kinds := 5
	if depth < 3 {
		kinds = 7
	}
	switch w.IntN(kinds) {
	case 0, 1:
		return w.text()
	case 2:
		return one(w.Rand, 0.0, -1, 42, 1e15, -0.5, 3.25, 1e-7)
	case 3:
		return w.IntN(2) == 0
	case 4:
		return nil
	case 5:
		list := []any{}
		for range w.IntN(4) {
			list = append(list, w.value(depth+1))
		}
		return list
	default:
		return w.object(depth + 1)
	}
}

func (w *writer) object(depth int) map[string]any {
	m := map[string]any{}
	for range w.IntN(4) {
		m[one(w.Rand, "a", "b", "name", "arguments", "parameters", "key_1", "Z")] = w.value(depth)
	}
	return m
}

// call makes up a call: of a tool that there is, or of none.
func (w *writer) call() wantCall {
	switch w.IntN(6) {
	case 0:
		return wantCall{"now", map[string]any{}}
	case 1:
		return wantCall{"no_such.tool-1", map[string]any{"text": w.text()}}
	}
	args := map[string]any{}
	makers := map[string]func() any{
		"text": func() any { return w.text() }, "count": func() any { return float64(w.IntN(2000) - 1000) },
		"share": func() any { return one(w.Rand, 0.25, -3, 1e21, 1.5e-9) }, "deep": func() any { return w.IntN(2) == 0 },
		"where": func() any { return w.object(0) }, "list": func() any { return []any{w.value(1), w.value(1)} },
		"maybe": func() any { return one[any](w.Rand, nil, "word", "a\nb") }, "kind": func() any { return one(w.Rand, "a", "b c") },
	}
	for _, k := range slices.Sorted(maps.Keys(makers)) {
		if w.IntN(2) == 0 {
			args[k] = makers[k]()
		}
	}
	return wantCall{"find", args}
}

// keys are those of an object in some order.
func (w *writer) keys(of map[string]any) []string {
	all := slices.Sorted(maps.Keys(of))
	w.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}

// json writes a value in one of the ways in which models do.
func (w *writer) json(v any) string {
	opts := []json.Options{json.Deterministic(true)}
	switch w.IntN(4) {
	case 0:
		opts = append(opts, jsontext.WithIndent("  "))
	case 1, 2:
		opts = append(opts, jsontext.SpaceAfterColon(true), jsontext.SpaceAfterComma(true))
	}
	b, err := json.Marshal(v, opts...)
	if err != nil {
		panic(err)
	}
	if w.IntN(4) > 0 {
		return string(b)
	}
	var out strings.Builder // ASCII alone
	for _, c := range string(b) {
		switch {
		case c < 0x80:
			out.WriteRune(c)
		case c < 0x10000:
			fmt.Fprintf(&out, `\u%04x`, c)
		default:
			c -= 0x10000
			fmt.Fprintf(&out, `\u%04X\u%04X`, 0xd800+c>>10, 0xdc00+c&0x3ff)
		}
	}
	return out.String()
}

// named is a call as an object.
func (w *writer) named(c wantCall, arguments string) string {
	name, args := fmt.Sprintf("%q: %q", "name", c.name), fmt.Sprintf("%q: %s", arguments, w.json(c.args))
	if w.IntN(5) == 0 {
		name, args = args, name
	}
	return one(w.Rand, "{"+name+", "+args+"}", "{\n  "+name+",\n  "+args+"\n}")
}

func hermesCalls(w *writer, calls []wantCall) {
	for i, c := range calls {
		if i > 0 {
			w.put(one(w.Rand, "", "\n"))
		}
		w.mark("<tool_call>")
		w.put("\n" + w.named(c, "arguments") + "\n")
		w.mark("</tool_call>")
	}
}

func xmlCalls(w *writer, calls []wantCall) {
	for i, c := range calls {
		if i > 0 {
			w.put("\n")
		}
		w.mark("<tool_call>")
		w.put("\n<function=" + c.name + ">\n")
		for _, k := range w.keys(c.args) {
			v := c.args[k]
			s, ok := v.(string)
			if !ok {
				s = w.json(v)
			}
			w.put("<parameter=" + k + ">\n" + s + "\n</parameter>\n")
		}
		w.put("</function>\n")
		w.mark("</tool_call>")
	}
}

func llamaCalls(w *writer, calls []wantCall) {
	if len(w.parts) > 0 || w.IntN(2) == 0 {
		w.mark("<|python_tag|>")
	}
	for i, c := range calls {
		if i > 0 {
			w.put(one(w.Rand, "; ", ";\n", "\n"))
		}
		w.put(w.named(c, one(w.Rand, "parameters", "arguments")))
	}
}

func phiCalls(w *writer, calls []wantCall) {
	tags := w.IntN(2) == 0
	if tags {
		w.mark("<|tool_call|>")
		w.put("[")
	} else {
		w.put("functools[")
	}
	for i, c := range calls {
		if i > 0 {
			w.put(", ")
		}
		w.put(w.named(c, "arguments"))
	}
	w.put("]")
	if tags {
		w.mark("<|/tool_call|>")
	}
}

func gemmaCalls(w *writer, calls []wantCall) {
	for _, c := range calls {
		w.mark("<|tool_call>")
		w.put("call:" + c.name)
		w.gemma(c.args)
		w.mark("<tool_call|>")
	}
}

func (w *writer) gemma(v any) {
	switch v := v.(type) {
	case string:
		w.mark(`<|"|>`)
		w.put(v)
		w.mark(`<|"|>`)
	case map[string]any:
		w.put("{")
		comma := ""
		for _, k := range w.keys(v) {
			w.put(comma + k + ":")
			w.gemma(v[k])
			comma = ","
		}
		w.put("}")
	case []any:
		w.put("[")
		for i, e := range v {
			if i > 0 {
				w.put(",")
			}
			w.gemma(e)
		}
		w.put("]")
	default:
		w.put(w.json(v))
	}
}

func mistralCalls(w *writer, calls []wantCall) {
	if w.IntN(4) == 0 {
		w.mark("[TOOL_CALLS]")
		w.put("[")
		for i, c := range calls {
			if i > 0 {
				w.put(", ")
			}
			w.put(w.named(c, "arguments"))
		}
		w.put("]")
		return
	}
	for _, c := range calls {
		w.mark("[TOOL_CALLS]")
		w.put(c.name)
		if w.IntN(3) == 0 {
			w.mark("[CALL_ID]")
			w.put("a1B2c3D4e")
		}
		w.mark("[ARGS]")
		w.put(w.json(c.args))
	}
}

// answer writes reasoning, content and calls in some order.
func (w *writer) answer(think bool) want {
	var a want
	var thoughts []string
	wrote := false
	reason := func() {
		a.loose = a.loose || wrote
		thought := "I " + strings.TrimSpace(strings.NewReplacer("\r", "", "\u00a0", "", "\u2028", "").Replace(w.text())) + " so."
		w.mark("<think>")
		w.put("\n" + thought + "\n")
		w.mark("</think>")
		w.put("\n\n")
		thoughts = append(thoughts, thought)
	}
	content := func() {
		s := w.prose()
		w.put(s)
		a.content += s
		wrote = true
	}
	if think && w.IntN(2) == 0 {
		reason()
	}
	if w.IntN(2) == 0 {
		content()
	}
	if w.IntN(6) > 0 {
		if think && w.IntN(4) == 0 {
			reason()
		} else if wrote {
			w.put(one(w.Rand, "", "\n", "\n\n"))
		}
		for range 1 + w.IntN(3) {
			a.calls = append(a.calls, w.call())
		}
		w.format.calls(w, a.calls)
	}
	last := w.format.last && len(a.calls) > 0
	if think && !last && w.IntN(4) == 0 {
		w.put("\n")
		reason()
	}
	if !last && (w.IntN(3) == 0 || len(w.parts) == 0) {
		if len(a.calls) > 0 {
			w.put("\n")
		}
		content()
	}
	a.reasoning = strings.Join(thoughts, "\n")
	return a
}
