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
