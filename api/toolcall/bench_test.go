package toolcall

import (
	"strings"
	"testing"
)

// BenchmarkLongArguments reads calls whose arguments are a file, at once and in small parts.
func BenchmarkLongArguments(b *testing.B) {
	file := strings.Repeat("a line of a file, in which nothing ends\n", 5000)
	texts := map[string]string{
		"hermes":         `<tool_call>{"name": "now", "arguments": {"a": ` + quote(file) + `}}</tool_call>`,
		"qwen3_xml":      "<tool_call><function=now><parameter=a>\n" + file + "\n</parameter></function></tool_call>",
		"llama3_json":    `{"name": "now", "parameters": {"a": ` + quote(file) + `}}`,
		"phi4_mini_json": `functools[{"name": "now", "arguments": {"a": ` + quote(file) + `}}]`,
		"gemma4":         `<|tool_call>call:now{a:<|"|>` + file + `<|"|>}<tool_call|>`,
		"mistral":        `[TOOL_CALLS]now[ARGS]{"a": ` + quote(file) + `}`,
	}
	for _, format := range Formats() {
		for _, part := range []int{1 << 20, 4} {
			name := format + "/at once"
			if part == 4 {
				name = format + "/4 bytes"
			}
			b.Run(name, func(b *testing.B) {
				text := texts[format]
				b.SetBytes(int64(len(text)))
				for b.Loop() {
					p := New(format, tools)
					for rest := text; rest != ""; {
						n := min(part, len(rest))
						p.Push(rest[:n])
						rest = rest[n:]
					}
					p.Finish(false)
					if !p.Called() {
						b.Fatal("no call")
					}
				}
			})
		}
	}
}
