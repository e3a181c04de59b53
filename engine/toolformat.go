package engine

import (
	"fmt"
	"slices"
	"strings"
)

// ToolFormat says how a model's answers call tools. The zero value: nobody knows. Who shows an answer reads them out of it; the
// engine says where the marks are.
type ToolFormat struct {
	Parser string // its name, one of ToolCallParsers; "" when the model calls none
	// Marks are the ids of the tokens that stand around calls and in them, as far as the vocabulary has such tokens: with
	// Request.Marks they stay in the text.
	Marks []int32
	// inSystem: the template takes the tools from the first system message, as JSON text.
	inSystem bool
}

// toolFormat is a format, the marks it may use, and what a chat template that writes it contains.
type toolFormat struct {
	name   string
	marks  []string
	spells func(template string) bool
}

func contains(all ...string) func(string) bool {
	return func(template string) bool {
		return !slices.ContainsFunc(all, func(s string) bool { return !strings.Contains(template, s) })
	}
}

// toolFormats are the known formats, named as vLLM's parsers; the first that a template spells is its own.
var toolFormats = []toolFormat{
	{"qwen3_xml", []string{"<tool_call>", "</tool_call>"}, contains("<tool_call>", "<function=", "<parameter=")},
	{"gemma4", []string{"<|tool_call>", "<tool_call|>", `<|"|>`}, contains("<|tool_call>", "call:")},
	{"mistral", []string{"[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"}, contains("[TOOL_CALLS]")},
	// GLM's calls stand between the same tags and are written otherwise.
	{"hermes", []string{"<tool_call>", "</tool_call>"}, func(t string) bool {
		return strings.Contains(t, "<tool_call>") && !strings.Contains(t, "<arg_key>")
	}},
	{"llama3_json", []string{"<|python_tag|>"}, contains(`"parameters": `, "tool_calls")},
	{"phi4_mini_json", []string{"<|tool_call|>", "<|/tool_call|>"}, contains("<|tool|>", "message['tools']")},
}

// ToolCallParsers returns the values of ModelSpec.ToolCallParser.
func ToolCallParsers() []string {
	names := []string{"auto", "none"}
	for _, f := range toolFormats {
		names = append(names, f.name)
	}
	return names
}

// checkToolCallParser reports a name that is none of ToolCallParsers; "" is auto.
func checkToolCallParser(name string) error {
	if known := ToolCallParsers(); name != "" && !slices.Contains(known, name) {
		return fmt.Errorf("tool call parser %q: want one of %q", name, known)
	}
	return nil
}

// findToolFormat picks the format by name, or by the source of the chat template, which has to do something with tools. id finds
// the id of a token.
func findToolFormat(name, template string, id func(string) (int32, bool)) ToolFormat {
	auto := name == "" || name == "auto"
	i := slices.IndexFunc(toolFormats, func(f toolFormat) bool {
		if auto {
			return strings.Contains(template, "tools") && f.spells(template)
		}
		return f.name == name
	})
	if i < 0 {
		return ToolFormat{}
	}
	f := ToolFormat{Parser: toolFormats[i].name, inSystem: strings.Contains(template, "message['tools']")}
	for _, text := range toolFormats[i].marks {
		if t, ok := id(text); ok {
			f.Marks = append(f.Marks, t)
		}
	}
	return f
}
