package engine

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/openinfer-go/openinfer/internal/testdata"
	"github.com/openinfer-go/openinfer/models/chat"
)

// TestToolFormats finds the format of real templates.
func TestToolFormats(t *testing.T) {
	dir := testdata.Shared(t, "golden", "chat")
	want := map[string]string{
		"qwen3": "hermes", "qwen3.5": "qwen3_xml", "qwen3.6": "qwen3_xml", "llama-3.1": "llama3_json", "llama-3.2": "llama3_json",
		"phi-4-mini": "phi4_mini_json", "gemma4": "gemma4", "ministral-3": "mistral",
		"smollm2": "", "gemma3": "", "phi-4": "", "phi-4-first-release": "", "glm": "", "deepseek-v3": "", "gpt-oss": "",
	}
	for name, format := range want {
		b, err := os.ReadFile(filepath.Join(dir, name+".json"))
		if err != nil {
			t.Fatal(err)
		}
		var r referenceTemplate
		if err := json.Unmarshal(b, &r); err != nil {
			t.Fatal(err)
		}
		id := func(text string) (int32, bool) { return 7, strings.HasPrefix(text, "<|") }
		got := findToolFormat("", r.Template, id)
		if got.Parser != format {
			t.Errorf("%s: %q, want %q", name, got.Parser, format)
		}
		if format == "gemma4" && len(got.Marks) != 2 {
			t.Errorf("%s: marks %v", name, got.Marks)
		}
		if findToolFormat("none", r.Template, id).Parser != "" || findToolFormat("hermes", r.Template, id).Parser != "hermes" {
			t.Errorf("%s: a format that is asked for is not taken", name)
		}
	}
	if err := checkToolCallParser("xml"); err == nil || !strings.Contains(err.Error(), "hermes") {
		t.Errorf("an unknown parser: %v", err)
	}
}

// TestToolsInTheSystemMessage: what Phi-4-mini's template reads.
func TestToolsInTheSystemMessage(t *testing.T) {
	const tools = `[{"type": "function", "function": {"name": "f", "parameters": {"b": 1, "a": 2}}}]`
	for _, messages := range []string{`[{"role":"user","content":"hi"}]`, `[{"role":"system","content":""},{"role":"user","content":"hi"}]`} {
		parsed, err := chat.ParseMessages([]byte(messages))
		if err != nil {
			t.Fatal(err)
		}
		out, err := systemTools(parsed, []byte(tools))
		if err != nil {
			t.Fatal(err)
		}
		got, _ := out[0].Fields.Get("tools")
		if len(out) != 2 || out[0].Role() != "system" || got != `[{"name": "f", "parameters": {"b": 1, "a": 2}}]` {
			t.Errorf("%s: %v", messages, out)
		}
	}
}

// TestCallsOfEarlierTurnsAreWritten: Phi-4-mini's template has no calls; what the model wrote stands in its turn.
func TestCallsOfEarlierTurnsAreWritten(t *testing.T) {
	b, err := os.ReadFile(filepath.Join(testdata.Shared(t, "golden", "chat"), "phi-4-mini.json"))
	if err != nil {
		t.Fatal(err)
	}
	var r referenceTemplate
	if err := json.Unmarshal(b, &r); err != nil {
		t.Fatal(err)
	}
	tmpl, err := chat.Compile(r.Template, chat.Tokens{})
	if err != nil {
		t.Fatal(err)
	}
	if tmpl.WritesCalls() {
		t.Fatal("the template writes calls")
	}
	for _, c := range []struct{ format, message, want string }{
		{"phi4_mini_json", `"content":null`, `functools[{"name": "f", "arguments": {"a": "x"}}, {"name": "g", "arguments": {}}]`},
		{"phi4_mini_json", `"content":"So."`, "So.\n" + `functools[{"name": "f", "arguments": {"a": "x"}}, {"name": "g", "arguments": {}}]`},
		{"phi4_mini_json", `"content":[{"type":"text","text":"So."}]`, "So.\n" + `functools[{"name": "f", "arguments": {"a": "x"}}, {"name": "g", "arguments": {}}]`},
		{"hermes", `"content":""`, "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": \"x\"}}\n</tool_call>\n<tool_call>\n{\"name\": \"g\", \"arguments\": {}}\n</tool_call>"},
		{"", `"content":""`, "{\"name\": \"f\", \"arguments\": {\"a\": \"x\"}}\n{\"name\": \"g\", \"arguments\": {}}"},
	} {
		messages, err := chat.ParseMessages([]byte(`[{"role":"user","content":"hi"},{"role":"assistant",` + c.message + `,"tool_calls":[{"id":"1","function":{"name":"f","arguments":{"a":"x"}}},
			{"id":"2","function":{"name":"g","arguments":""}}]},{"role":"tool","tool_call_id":"1","content":"r"},{"role":"user","content":"so?"}]`))
		if err != nil {
			t.Fatal(err)
		}
		p, err := tmpl.Render(writtenCalls(messages, c.format), chat.Options{AddGenerationPrompt: true})
		if want := "<|user|>hi<|end|><|assistant|>" + c.want + "<|end|><|tool|>r<|end|><|user|>so?<|end|><|assistant|>"; err != nil || p.Text != want {
			t.Errorf("%s, %s: %v\ngot  %q\nwant %q", c.format, c.message, err, p.Text, want)
		}
	}
}
