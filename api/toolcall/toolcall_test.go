package toolcall

import (
	"encoding/json"
	"encoding/json/jsontext"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

var tools = []Tool{
	{"get_weather", jsontext.Value(`{"type":"object","properties":{"city":{"type":"string"},"days":{"type":"integer"},"hot":{"type":["boolean","null"]},
		"at":{"type":"object"},"list":{"anyOf":[{"type":"array"},{"type":"null"}]},"code":{"type":"string"},"unit":{"enum":["c","f"]}}}`)},
	{"now", nil},
}

// answer is what pieces add up to: content and calls, as text.
func answer(pieces []Piece) string {
	var out strings.Builder
	last := Kind(255)
	for _, p := range pieces {
		switch p.Kind {
		case Begin:
			fmt.Fprintf(&out, "\n> %s ", p.Name)
		case Content:
			if last != Content && out.Len() > 0 {
				out.WriteString("\n")
			}
			out.WriteString(p.Text)
		case Arguments:
			out.WriteString(p.Text)
		}
		last = p.Kind
	}
	return out.String()
}

// read parses an answer that comes in these parts.
func read(format string, cut bool, parts ...string) string {
	p := New(format, tools)
	var all []Piece
	for _, s := range parts {
		all = append(all, p.Push(s)...)
	}
	return answer(append(all, p.Finish(cut)...))
}

const hello = `Hello, {"name": "x"}.`

// cases are what models write, and what it means.
var cases = []struct{ format, what, text, want string }{
	{"hermes", "one", "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Ulm\"}}\n</tool_call>", "\n> get_weather {\"city\": \"Ulm\"}"},
	{"hermes", "content before, two calls, content behind", "Let me see.\n\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Ulm\"}}\n</tool_call>\n<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>\n That is all. ",
		"Let me see.\n> get_weather {\"city\": \"Ulm\"}\n> now {}\nThat is all. "},
	{"hermes", "braces, quotes and markers in strings", `<tool_call>{"name":"get_weather","arguments":{"city":"}{ \" </tool_call> <tool_call> \\","at":{"a":[1,{"b":"]"}]}}}</tool_call>`,
		"\n> get_weather " + `{"city":"}{ \" </tool_call> <tool_call> \\","at":{"a":[1,{"b":"]"}]}}`},
	{"hermes", "arguments first", `<tool_call>{"arguments": {"a": 1.0e2}, "name": "now"}</tool_call>`, "\n> now {\"a\": 1.0e2}"},
	{"hermes", "arguments as text", `<tool_call>{"name": "now", "arguments": "{\"a\": \"\\\"\"}"}</tool_call>`, "\n> now {\"a\": \"\\\"\"}"},
	{"hermes", "no arguments", `<tool_call>{"name": "now"}</tool_call>`, "\n> now {}"},
	{"hermes", "null arguments, other members", `<tool_call>{"id": 7, "name": "now", "arguments": null, "x": {"name": "y"}}</tool_call>`, "\n> now {}"},
	{"hermes", "unknown tool", `<tool_call>{"name": "other", "arguments": {}}</tool_call>`, "\n> other {}"},
	{"hermes", "no end", `<tool_call>{"name": "now", "arguments": {}}`, "\n> now {}"},
	{"hermes", "two objects in one", "<tool_call>{\"name\": \"now\", \"arguments\": {}}\n{\"name\": \"now\", \"arguments\": {\"a\":2}}</tool_call>", "\n> now {}\n> now {\"a\":2}"},
	{"hermes", "a line break in a string", "<tool_call>{\"name\": \"now\", \"arguments\": {\"a\": \"x\ny\"}}</tool_call>", "\n> now {\"a\": \"x\\ny\"}"},
	{"hermes", "not JSON", "<tool_call>now()</tool_call>", "<tool_call>now()</tool_call>"},
	{"hermes", "no name", `<tool_call>{"arguments": {}}</tool_call> ok`, `<tool_call>{"arguments": {}}</tool_call> ok`},
	{"hermes", "a name that is no text", `<tool_call>{"name": 3, "arguments": {}}</tool_call>`, `<tool_call>{"name": 3, "arguments": {}}</tool_call>`},
	{"hermes", "broken in the arguments", `<tool_call>{"name": "now", "arguments": {"a": [1}}</tool_call> so`, "\n> now {\"a\": [1}}\nso"},
	{"hermes", "a brace too many", `<tool_call>{"name": "now", "arguments": {"a": 1}}}</tool_call>`, "\n> now {\"a\": 1}"},
	{"hermes", "no call", hello + " a < b <tool", hello + " a < b <tool"},
	{"hermes", "white space", "  hi \n ", "  hi \n "},

	{"qwen3_xml", "types", "<tool_call>\n<function=get_weather>\n<parameter=city>\nUlm\n</parameter>\n<parameter=days>\n3\n</parameter>\n<parameter=hot>\nTrue\n</parameter>\n<parameter=at>\n{\"x\": [1]}\n</parameter>\n<parameter=list>\nnull\n</parameter>\n<parameter=unit>\nc\n</parameter>\n</function>\n</tool_call>",
		"\n> get_weather {\"city\": \"Ulm\", \"days\": 3, \"hot\": true, \"at\": {\"x\": [1]}, \"list\": null, \"unit\": \"c\"}"},
	{"qwen3_xml", "two calls in a row", "I look.\n\n<tool_call>\n<function=now>\n</function>\n</tool_call>\n<tool_call>\n<function=get_weather>\n<parameter=city>\n42\n</parameter>\n</function>\n</tool_call>", "I look.\n> now {}\n> get_weather {\"city\": \"42\"}"},
	{"qwen3_xml", "lines, quotes and markers in a value", "<tool_call>\n<function=get_weather>\n<parameter=code>\nif a < b {\n\t\"}\" </parameter> x </function> </tool_call>\n\n</parameter>\n</function>\n</tool_call>",
		"\n> get_weather {\"code\": \"if a < b {\\n\\t\\\"}\\\" </parameter> x </function> </tool_call>\\n\"}"},
	{"qwen3_xml", "without the outer tag", "<function=get_weather>\n<parameter=days>\nmany\n</parameter>\n</function>", "\n> get_weather {\"days\": \"many\"}"},
	{"qwen3_xml", "an unknown tool and parameter", "<tool_call><function=other><parameter=n>1</parameter></function></tool_call>", "\n> other {\"n\": \"1\"}"},
	{"qwen3_xml", "one parameter twice", "<tool_call><function=now><parameter=n>1</parameter><parameter=n>2</parameter></function></tool_call>", "\n> now {\"n\": \"1\"}"},
	{"qwen3_xml", "no end of the function", "<tool_call><function=now><parameter=n>1</parameter></tool_call>", "\n> now {\"n\": \"1\"}"},
	{"qwen3_xml", "tags within a string of a list", "<tool_call><function=get_weather><parameter=list>[\"a \\\" </parameter></function>\", 1]</parameter></function></tool_call>",
		"\n> get_weather {\"list\": [\"a \\\" </parameter></function>\", 1]}"},
	{"qwen3_xml", "a string without an end in a list", "<tool_call><function=get_weather><parameter=list>[\"a]</parameter><parameter=days>1</parameter></function></tool_call>",
		"\n> get_weather {\"list\": \"[\\\"a]\", \"days\": 1}"},
	{"qwen3_xml", "tags within a line", "<tool_call>\n<function=get_weather>\n<parameter=code>\na </parameter></function></tool_call> b\n</parameter>\n</function>\n</tool_call>",
		"\n> get_weather {\"code\": \"a </parameter></function></tool_call> b\"}"},
	{"qwen3_xml", "no line for the end", "<tool_call>\n<function=get_weather>\n<parameter=code>\na</parameter></function></tool_call>", "\n> get_weather {\"code\": \"a\"}"},
	{"qwen3_xml", "JSON", `<tool_call>{"name": "now", "arguments": {"a":1}}</tool_call>`, "\n> now {\"a\":1}"},
	{"qwen3_xml", "no function", "<tool_call>hm</tool_call>", "<tool_call>hm</tool_call>"},
	{"qwen3_xml", "no name", "<function=>x", "<function=>x"},

	{"llama3_json", "one", `{"name": "get_weather", "parameters": {"city": "Ulm"}}`, "\n> get_weather {\"city\": \"Ulm\"}"},
	{"llama3_json", "several", `{"name": "now", "parameters": {}}; {"name": "get_weather", "arguments": {"city": "}; {"}}`, "\n> now {}\n> get_weather {\"city\": \"}; {\"}"},
	{"llama3_json", "a separator at the end", `{"name": "now", "parameters": {}}; `, "\n> now {}"},
	{"llama3_json", "behind the tag", `<|python_tag|>{"name": "now", "parameters": {"a": {}}}`, "\n> now {\"a\": {}}"},
	{"llama3_json", "a built-in tool", `<|python_tag|>brave_search.call(query="a, \"b\"", n=3)`, "\n> brave_search {\"query\": \"a, \\\"b\\\"\", \"n\": 3}"},
	{"llama3_json", "code", "<|python_tag|>print(1)", "<|python_tag|>print(1)"},
	{"llama3_json", "other JSON", `{"name": "Bob", "age": 3}`, `{"name": "Bob", "age": 3}`},
	{"llama3_json", "no arguments", `{"name": "now"}`, "\n> now {}"},
	{"llama3_json", "text", " " + hello, " " + hello},
	{"llama3_json", "text behind", `{"name": "now", "parameters": {}} there`, "\n> now {}\nthere"},

	{"phi4_mini_json", "functools", `functools[{"name": "get_weather", "arguments": {"city": "]"}}, {"name": "now", "arguments": {}}]`, "\n> get_weather {\"city\": \"]\"}\n> now {}"},
	{"phi4_mini_json", "tags", `Yes. <|tool_call|>[{"name": "now", "arguments": {}}]<|/tool_call|>`, "Yes.\n> now {}"},
	{"phi4_mini_json", "tags without a list", `<|tool_call|>{"name": "now", "arguments": {}}<|/tool_call|>.`, "\n> now {}\n."},
	{"phi4_mini_json", "something else", "functools[x]", "functools[x]"},
	{"phi4_mini_json", "an empty list", "functools[]", "functools[]"},

	{"gemma4", "nested, and the end marker in a string", `<|tool_call>call:get_weather{city:<|"|>a } <tool_call|> "b"` + "\n" + `<|"|>,at:{<|"|>x y<|"|>:[1,-2.5e3,true,null,{}]},days:3}<tool_call|>`,
		"\n> get_weather {\"city\": \"a } <tool_call|> \\\"b\\\"\\n\", \"at\": {\"x y\": [1, -2.5e3, true, null, {}]}, \"days\": 3}"},
	{"gemma4", "two calls in a row", `<|tool_call>call:now{}<tool_call|><|tool_call>call:now{a:<|"|><|"|>}<tool_call|>`, "\n> now {}\n> now {\"a\": \"\"}"},
	{"gemma4", "words, commas and Python's names", "<|tool_call>call:now{a: hello there, b:None,c:False,}<tool_call|> ok", "\n> now {\"a\": \"hello there\", \"b\": null, \"c\": false}\nok"},
	{"gemma4", "ordinary quotes", `<|tool_call>call:now{"a":"x\"}",b:["y"]}<tool_call|>`, "\n> now {\"a\": \"x\\\"}\", \"b\": [\"y\"]}"},
	{"gemma4", "brackets left open", `<|tool_call>call:now{a:[1,{b:2<tool_call|>`, "\n> now {\"a\": [1, {\"b\": 2}]}"},
	{"gemma4", "no call", "<|tool_call>hm{}", "<|tool_call>hm{}"},

	{"mistral", "one", `[TOOL_CALLS]get_weather[ARGS]{"city": "Ulm"}`, "\n> get_weather {\"city\": \"Ulm\"}"},
	{"mistral", "two, with an id", `So. [TOOL_CALLS]now[CALL_ID]123456789[ARGS]{}[TOOL_CALLS]now{"a":[{}]}`, "So.\n> now {}\n> now {\"a\":[{}]}"},
	{"mistral", "a list", `[TOOL_CALLS][{"name": "now", "arguments": {"a": 1}}, {"name": "now", "arguments": {}}]`, "\n> now {\"a\": 1}\n> now {}"},
	{"mistral", "something else", "[TOOL_CALLS] and so on", "[TOOL_CALLS] and so on"},
}

func TestCalls(t *testing.T) {
	for _, c := range cases {
		want := c.want
		if got := read(c.format, false, c.text); got != want {
			t.Errorf("%s, %s:\n%q\ngot  %q\nwant %q", c.format, c.what, c.text, got, want)
			continue
		}
		for i := range c.text {
			if got := read(c.format, false, c.text[:i], c.text[i:]); got != want {
				t.Errorf("%s, %s, cut at %d:\ngot  %q\nwant %q", c.format, c.what, i, got, want)
				break
			}
		}
		if got := read(c.format, false, strings.Split(c.text, "")...); got != want {
			t.Errorf("%s, %s, byte by byte:\ngot  %q\nwant %q", c.format, c.what, got, want)
		}
	}
}

// TestArgumentsParse: what is not broken has arguments that are JSON objects.
func TestArgumentsParse(t *testing.T) {
	for _, c := range cases {
		if strings.Contains(c.what, "broken") {
			continue
		}
		p := New(c.format, tools)
		var args []string
		for _, piece := range append(p.Push(c.text), p.Finish(false)...) {
			switch piece.Kind {
			case Begin:
				args = append(args, "")
			case Arguments:
				args[len(args)-1] += piece.Text
			}
		}
		for _, a := range args {
			if json.Unmarshal([]byte(a), &map[string]any{}) != nil {
				t.Errorf("%s, %s: arguments %q", c.format, c.what, a)
			}
		}
	}
}

// TestCutOff: an answer may end anywhere. What it has by then is a beginning of the whole one, and no piece of markup is shown.
func TestCutOff(t *testing.T) {
	for _, c := range cases {
		if !strings.Contains(c.want, "\n> ") {
			continue
		}
		for i := range c.text {
			got := read(c.format, true, c.text[:i])
			if strings.Contains(c.what, "open") || strings.Contains(c.what, "space") {
				continue
			}
			got = strings.TrimRight(got, "<f[;\n ") // a single character may be content
			if !strings.HasPrefix(strings.ReplaceAll(c.want, "\n", " "), strings.ReplaceAll(got, "\n", " ")) {
				t.Errorf("%s, %s, cut off after %q:\ngot  %q\nof   %q", c.format, c.what, c.text[:i], got, c.want)
				break
			}
		}
	}
}

// TestRandomCuts: any text, cut any way, gives the same.
func TestRandomCuts(t *testing.T) {
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 1))
		format := Formats()[r.IntN(len(Formats()))]
		checkCuts(t, format, garbage(r), r, r.IntN(2) == 0)
	}
}

// garbage is made of pieces of answers.
func garbage(r *rand.Rand) string {
	var out strings.Builder
	for range 1 + r.IntN(4) {
		s := cases[r.IntN(len(cases))].text
		i := r.IntN(len(s))
		out.WriteString(s[i:min(len(s), i+1+r.IntN(len(s)))])
		if r.IntN(3) == 0 {
			out.WriteString(s)
		}
	}
	return out.String()
}

func checkCuts(t *testing.T, format, text string, r *rand.Rand, cut bool) {
	t.Helper()
	want := read(format, cut, text)
	var parts []string
	for rest := text; rest != ""; {
		n := 1 + r.IntN(min(len(rest), 1+r.IntN(8)))
		parts, rest = append(parts, rest[:n]), rest[n:]
	}
	if got := read(format, cut, parts...); got != want {
		t.Fatalf("%s: %q\nin parts %q\ngot  %q\nwant %q", format, text, parts, got, want)
	}
}

func FuzzParser(f *testing.F) {
	for i, c := range cases {
		f.Add(c.format, c.text, uint64(i), i%2 == 0)
	}
	f.Fuzz(func(t *testing.T, format, text string, seed uint64, cut bool) {
		if New(format, tools) == nil {
			return
		}
		checkCuts(t, format, text, rand.New(rand.NewPCG(seed, 2)), cut)
	})
}

func TestUnknownFormat(t *testing.T) {
	if New("none", nil) != nil {
		t.Error("a parser of no format")
	}
}
