package toolcall

import (
	"strings"
	"testing"
)

func init() { cases = append(cases, reported...) }

// reported are outputs of the kinds that users of other servers reported to be read wrongly.
var reported = []struct{ format, what, text, want string }{
	{"hermes", "a brace too many, and text", "<tool_call>\n{\"name\": \"now\", \"arguments\": {\"a\": 1}}}\n</tool_call> ok",
		"\n> now {\"a\": 1}\nok"},
	{"hermes", "a brace too few", "<tool_call>\n{\"name\": \"now\", \"arguments\": {\"a\": 1}\n</tool_call> ok",
		"\n> now {\"a\": 1}\nok"},
	{"hermes", "an escape that JSON has not", "<tool_call>\n{\"name\": \"now\", \"arguments\": {\"a\": \"\\d+\\.\"}}\n</tool_call>",
		"\n> now {\"a\": \"\\\\d+\\\\.\"}"},
	{"hermes", "a comma before the end", "<tool_call>\n{\"name\": \"now\", \"arguments\": {\"a\": 1,}}\n</tool_call>",
		"\n> now {\"a\": 1}"},
	{"hermes", "a list", "<tool_call>\n[{\"name\": \"now\", \"arguments\": {}}, {\"name\": \"now\", \"arguments\": {}}]\n</tool_call>",
		"\n> now {}\n> now {}"},
	{"hermes", "no closing tag between calls", "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>",
		"\n> now {}\n> now {}"},
	{"hermes", "calls in a row in one tag", "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>",
		"\n> now {}\n> now {}"},
	{"hermes", "a closing tag too many", "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}</tool_call></tool_call>",
		"\n> now {}"},
	{"hermes", "the form of requests", "<tool_call>\n{\"type\": \"function\", \"function\": {\"name\": \"now\", \"arguments\": {\"a\":1}}}\n</tool_call>",
		"\n> now {\"a\":1}"},
	{"hermes", "a fence is no call", "<tool_call>\n```json\n{\"name\": \"now\", \"arguments\": {}}\n```\n</tool_call>",
		"<tool_call>\n```json\n{\"name\": \"now\", \"arguments\": {}}\n```\n</tool_call>"},
	{"hermes", "single quotes are no call", "<tool_call>\n{'name': 'now', 'arguments': {'a': True}}\n</tool_call>",
		"<tool_call>\n{'name': 'now', 'arguments': {'a': True}}\n</tool_call>"},
	{"hermes", "Python's constants", "<tool_call>\n{\"name\": \"now\", \"arguments\": {\"a\": True, \"b\": None}}\n</tool_call>",
		"\n> now {\"a\": true, \"b\": null}"},
	{"hermes", "parameters in tags", "<tool_call>\n<function=now>\n<parameter=a>\nx\n</parameter>\n</function>\n</tool_call>",
		"\n> now {\"a\": \"x\"}"},
	{"qwen3_xml", "a forgotten end before another parameter", "<tool_call>\n<function=get_weather>\n<parameter=city>\nUlm\n<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>",
		"\n> get_weather {\"city\": \"Ulm\", \"days\": 3}"},
	{"qwen3_xml", "a forgotten end of the last parameter", "<tool_call>\n<function=get_weather>\n<parameter=city>\nUlm\n</function>\n</tool_call>",
		"\n> get_weather {\"city\": \"Ulm\"}"},
	{"qwen3_xml", "no end of parameter and function", "<tool_call>\n<function=get_weather>\n<parameter=city>\nUlm\n</tool_call>",
		"\n> get_weather {\"city\": \"Ulm\"}"},
	{"qwen3_xml", "no end at all", "<tool_call>\n<function=get_weather>\n<parameter=city>\nUlm",
		"\n> get_weather {\"city\": \"Ulm\"}"},
	{"qwen3_xml", "empty values", "<tool_call>\n<function=get_weather>\n<parameter=days>\n</parameter>\n<parameter=hot></parameter>\n<parameter=city></parameter>\n</function>\n</tool_call>",
		"\n> get_weather {\"hot\": null, \"city\": \"\"}"},
	{"qwen3_xml", "a stray tag", "<tool_call>\n<function=now>\n</function>\n</function_invocation>\n</tool_call>\nok",
		"\n> now {}\nok"},
	{"qwen3_xml", "the end of the function twice", "<tool_call>\n<function=now>\n</function>\n</function>\n</tool_call>\nok",
		"\n> now {}\nok"},
	{"qwen3_xml", "two functions in one tag", "<tool_call>\n<function=now>\n</function>\n<function=now>\n</function>\n</tool_call>\nok",
		"\n> now {}\n> now {}\nok"},
	{"qwen3_xml", "text about the format", "Write `<function=name>` there. <function=example>\n<parameter=x>",
		"Write `<function=name>` there. <function=example>\n<parameter=x>"},
	{"qwen3_xml", "JSON in place of parameters", "<tool_call>\n<function=get_weather>\n{\"city\": \"Ulm\"}\n</function>\n</tool_call>",
		"\n> get_weather {\"city\": \"Ulm\"}"},
	{"qwen3_xml", "lists and dicts of Python's", "<tool_call>\n<function=get_weather>\n<parameter=list>\n['a', \"b's\", True, None]\n</parameter>\n<parameter=at>\n{'x': 1.0, 'y': (1, 2)}\n</parameter>\n</function>\n</tool_call>",
		"\n> get_weather {\"list\": [\"a\", \"b's\", true, null], \"at\": {\"x\": 1.0, \"y\": [1, 2]}}"},
	{"qwen3_xml", "leading spaces and line breaks", "<tool_call>\n<function=get_weather>\n<parameter=city>\n    if x:\n        y\n\n</parameter>\n</function>\n</tool_call>",
		"\n> get_weather {\"city\": \"    if x:\\n        y\\n\"}"},
	{"qwen3_xml", "attributes are no call", "<function name=\"get_weather\"><parameter name=\"city\">Ulm</parameter></function>",
		"<function name=\"get_weather\"><parameter name=\"city\">Ulm</parameter></function>"},
	{"qwen3_xml", "numbers and words of other types", "<tool_call>\n<function=get_weather>\n<parameter=days>\n3.0\n</parameter><parameter=hot>\nYES\n</parameter></function>\n</tool_call>",
		"\n> get_weather {\"days\": 3.0, \"hot\": \"YES\"}"},
	{"llama3_json", "within text", "I call it: {\"name\": \"now\", \"parameters\": {\"a\": 1}} and so on",
		"I call it:\n> now {\"a\": 1}\nand so on"},
	{"llama3_json", "behind text, with a type", "Here:\n\n{\"type\": \"function\", \"name\": \"now\", \"parameters\": {\"a\": 1}}",
		"Here:\n> now {\"a\": 1}"},
	{"llama3_json", "the form of requests", "{\"type\": \"function\", \"function\": {\"name\": \"now\", \"parameters\": {\"a\": 1}}}",
		"\n> now {\"a\": 1}"},
	{"llama3_json", "a list", "[{\"name\": \"now\", \"parameters\": {}}, {\"name\": \"now\", \"parameters\": {}}]",
		"\n> now {}\n> now {}"},
	{"llama3_json", "several behind the tag", "<|python_tag|>{\"name\": \"now\", \"parameters\": {}}; {\"name\": \"now\", \"parameters\": {}}",
		"\n> now {}\n> now {}"},
	{"llama3_json", "the tag behind text", "Text. <|python_tag|>{\"name\": \"now\", \"parameters\": {}}",
		"Text.\n> now {}"},
	{"llama3_json", "white space around", "\n\n {\"name\": \"now\", \"parameters\": {}}\n",
		"\n> now {}"},
	{"llama3_json", "in a fence", "```json\n{\"name\": \"now\", \"parameters\": {}}\n```",
		"```json\n> now {}\n```"},
	{"llama3_json", "arguments as text", "{\"name\": \"now\", \"parameters\": \"{\\\"a\\\": 1}\"}",
		"\n> now {\"a\": 1}"},
	{"llama3_json", "an unknown tool as the whole answer", "{\"name\": \"other\", \"parameters\": {}}",
		"\n> other {}"},
	{"gemma4", "parentheses", "<|tool_call>call:now(command:<|\"|>ls -a<|\"|>)<tool_call|>",
		"\n> now {\"command\": \"ls -a\"}"},
	{"gemma4", "parentheses and equals signs", "<|tool_call>call:now(command=<|\"|>ls -a<|\"|>, n=3, o={a:1})<tool_call|><|tool_call>call:now{}<tool_call|>",
		"\n> now {\"command\": \"ls -a\", \"n\": 3, \"o\": {\"a\": 1}}\n> now {}"},
	{"gemma4", "ordinary and single quotes", "<|tool_call>call:now{a:'has } brace', b:\"c\"}<tool_call|>",
		"\n> now {\"a\": \"has } brace\", \"b\": \"c\"}"},
	{"gemma4", "a name with a hyphen", "<|tool_call>call:my-tool{}<tool_call|>",
		"\n> my-tool {}"},
	{"gemma4", "what ends the turn", "<|tool_call>call:now{a:<|\"|>x<|\"|>}<tool_call|><|tool_response>",
		"\n> now {\"a\": \"x\"}"},
	{"gemma4", "JSON in braces", "<|tool_call>call:now{\"a\":{\"b\":\"c\"}}<tool_call|>",
		"\n> now {\"a\": {\"b\": \"c\"}}"},
	{"gemma4", "no word before the name", "<|tool_call>now{a:1}<tool_call|>",
		"<|tool_call>now{a:1}<tool_call|>"},
	{"gemma4", "two calls in one tag", "<|tool_call>call:now{a:1}call:now{a:2}<tool_call|>",
		"\n> now {\"a\": 1}\n> now {\"a\": 2}"},
	{"gemma4", "colons in words", "<|tool_call>call:now{a:http://x.y/z,b:12:30}<tool_call|>",
		"\n> now {\"a\": \"http://x.y/z\", \"b\": \"12:30\"}"},
	{"mistral", "no comma in a list", "[TOOL_CALLS] [{\"name\": \"now\", \"arguments\": {}}\n{\"name\": \"now\", \"arguments\": {}}]",
		"\n> now {}\n> now {}"},
	{"mistral", "an object", "[TOOL_CALLS]{\"name\": \"now\", \"arguments\": {}}",
		"\n> now {}"},
	{"mistral", "a closing tag", "[TOOL_CALLS]now[ARGS]{}[/TOOL_CALLS]",
		"\n> now {}"},
	{"mistral", "no tag before a second call", "[TOOL_CALLS]now[ARGS]{\"a\":\"[TOOL_CALLS]\"}now[ARGS]{}",
		"\n> now {\"a\":\"[TOOL_CALLS]\"}\nnow[ARGS]{}"},
	{"mistral", "a bracket in a string and an id", "[TOOL_CALLS][{\"name\": \"now\", \"arguments\": {\"a\": \"]\"}, \"id\": \"abcdefghi\"}] ok",
		"\n> now {\"a\": \"]\"}\nok"},
	{"phi4_mini_json", "text behind a list", "functools[{\"name\": \"now\", \"arguments\": {}}]\n\nok",
		"\n> now {}\nok"},
	{"phi4_mini_json", "a space before the list", "functools [{\"name\": \"now\", \"arguments\": {}}]",
		"\n> now {}"},
	{"phi4_mini_json", "the form of requests", "<|tool_call|>[{\"type\":\"function\",\"function\":{\"name\": \"now\", \"arguments\": {}}}]<|/tool_call|>",
		"\n> now {}"},
	{"phi4_mini_json", "calls as code are none", "functools[now(a=1)]",
		"functools[now(a=1)]"},
	{"llama3_json", "an object in text that is no call", "Use {\"name\": \"Bob\", \"parameters\": {}} or {x}.",
		"Use {\"name\": \"Bob\", \"parameters\": {}} or {x}."},
	{"llama3_json", "an object in text with other members", "As JSON: {\"a\": {\"name\": \"now\", \"parameters\": {}}}.",
		"As JSON: {\"a\": {\"name\": \"now\", \"parameters\": {}}}."},
	{"hermes", "text that is no call keeps its spaces", "a \n<tool_call> b",
		"a \n<tool_call> b"},
	{"hermes", "an unfinished escape", "<tool_call>{\"name\": \"now\", \"arguments\": {\"a\": \"\\u12\", \"b\": \"\\ud83d\\ude00\\\"\"}}</tool_call>",
		"\n> now {\"a\": \"\\\\u12\", \"b\": \"\\ud83d\\ude00\\\"\"}"},
}

// TestHeld: where a grammar holds the answer, calls begin as it writes them and in no other way.
func TestHeld(t *testing.T) {
	for _, c := range []struct {
		format, text string
		called       bool
	}{
		{"qwen3_xml", "a <function=now></function>", false}, {"qwen3_xml", "a <tool_call><function=now></function></tool_call>", true},
		{"llama3_json", `a {"name": "now", "parameters": {}}`, false}, {"llama3_json", `a <|python_tag|>{"name": "now", "parameters": {}}`, false},
		{"llama3_json", `{"name": "now", "parameters": {}}`, true}, {"phi4_mini_json", `a functools [{"name": "now", "arguments": {}}]`, false},
		{"phi4_mini_json", `a <|tool_call|>[{"name": "now", "arguments": {}}]`, false}, {"phi4_mini_json", `functools[{"name": "now", "arguments": {}}]`, true},
		{"hermes", `a <tool_call>{"name": "now", "arguments": {}}</tool_call>`, true}, {"mistral", "[TOOL_CALLS]now[ARGS]{}", true}, {"gemma4", "<|tool_call>call:now{}<tool_call|>", true},
	} {
		p := New(c.format, tools).Held()
		got := answer(append(p.Push(c.text), p.Finish(false)...))
		if p.Called() != c.called || !c.called && got != strings.TrimSpace(c.text) {
			t.Errorf("%s: %q is read as %q", c.format, c.text, got)
		}
	}
}

// TestTextStreams: the text of a parameter is given out as it comes, but for what may be layout or a tag.
func TestTextStreams(t *testing.T) {
	p := New("qwen3_xml", tools)
	var got []string
	for _, s := range []string{"<tool_call>\n<function=get_weather>\n<parameter=code>\n", "one ", "two\n", "\"three\" <", "b> ", "four</para", "meter>", "\n</function>\n</tool_call>"} {
		got = append(got, answer(p.Push(s)))
	}
	want := []string{"\n> get_weather {\"code\": \"", `one`, ` two`, `\n\"three\"`, ` <b>`, ` four`, ``, `"}`}
	if strings.Join(got, "|") != strings.Join(want, "|") {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}
