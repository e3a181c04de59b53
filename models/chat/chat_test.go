package chat

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/openinfer-go/openinfer/internal/testdata"
)

var goldenClock = time.Date(2026, 7, 4, 12, 30, 15, 0, time.UTC)

type goldenTemplate struct {
	Name          string
	BOS           *string `json:"bos_token"`
	EOS           *string `json:"eos_token"`
	Template      string
	Conversations []struct {
		Name                string
		Messages            json.RawMessage
		AddGenerationPrompt bool `json:"add_generation_prompt"`
		Tools               json.RawMessage
		Kwargs              json.RawMessage
		Expected            *string
		Raises              *struct{ Type, Message string }
	}
}

func (g *goldenTemplate) tokens() Tokens {
	named := map[string]string{}
	if g.BOS != nil {
		named["bos_token"] = *g.BOS
	}
	if g.EOS != nil {
		named["eos_token"] = *g.EOS
	}
	return Tokens{Named: named, Special: turnMarkers}
}

// turnMarkers are the control tokens of the families that the reference templates are of.
var turnMarkers = []string{
	"<|im_start|>", "<|im_end|>", "<|im_sep|>", "<|endoftext|>", "<|eot_id|>", "<|start_header_id|>", "<|end_header_id|>",
	"<|begin_of_text|>", "<start_of_turn>", "<end_of_turn>", "<|turn>", "<turn|>", "<bos>", "<eos>", "</s>", "<s>", "[INST]", "[/INST]",
	"[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "<|user|>", "<|assistant|>", "<|system|>", "<|observation|>", "<|end|>", "<|start|>",
	"<|message|>", "<|channel|>", "<｜User｜>", "<｜Assistant｜>", "<｜end▁of▁sentence｜>",
}

func goldenTemplates(t testing.TB) []*goldenTemplate {
	files, err := filepath.Glob(filepath.Join(testdata.Shared(t, "golden", "chat"), "*.json"))
	if err != nil || len(files) < 16 {
		t.Fatalf("reference templates: %d files, %v", len(files), err)
	}
	var out []*goldenTemplate
	for _, f := range files {
		if filepath.Base(f) == "golden.json" {
			continue
		}
		g := &goldenTemplate{}
		readJSON(t, f, g)
		g.Name = strings.TrimSuffix(filepath.Base(f), ".json")
		out = append(out, g)
	}
	return out
}

func readJSON(t testing.TB, path string, v any) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, v); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

func mustCompile(t testing.TB, source string, tokens Tokens) *Template {
	t.Helper()
	tmpl, err := Compile(source, tokens)
	if err != nil {
		t.Fatal(err)
	}
	return tmpl
}

func mustParse(t testing.TB, raw string) []Message {
	t.Helper()
	m, err := ParseMessages([]byte(raw))
	if err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
	return m
}

func joinedSegments(p Prompt) string {
	var b strings.Builder
	for _, s := range p.Segments {
		b.WriteString(s.Text)
	}
	return b.String()
}

// leftOut are the conversations of which the reference leaves out texts.
var leftOut = map[string]bool{
	"gemma3 system_only": true, "qwen3.6 user_system_user": true, "gpt-oss user_system_user": true, "gpt-oss two_systems": true,
	"phi-4 tool_round_json_string": true, "phi-4 two_tool_calls": true, "phi-4 tool_round_without_tools": true,
	"phi-4-first-release tool_round_json_string": true, "phi-4-first-release two_tool_calls": true, "phi-4-first-release tool_round_without_tools": true,
}

// missingTexts are the contents that are not in a prompt, in the order of the messages.
func missingTexts(messages []Message, prompt string) []string {
	var missing []string
	for _, m := range messages {
		text, _ := m.Content().(string)
		_, after, ok := strings.Cut(prompt, strings.TrimSpace(text))
		if !ok {
			missing = append(missing, text)
			continue
		}
		prompt = after
	}
	return missing
}

// otherCalls reports whether a template gets calls in another form than they were sent in.
func otherCalls(tmpl *Template, messages []Message) bool {
	return slices.ContainsFunc(messages, func(m Message) bool {
		other, err := tmpl.withCalls("", m)
		return err != nil || !reflect.DeepEqual(other, m)
	})
}

func TestReferenceTemplates(t *testing.T) {
	rendered, raised := 0, 0
	for _, g := range goldenTemplates(t) {
		tmpl := mustCompile(t, g.Template, g.tokens())
		for _, c := range g.Conversations {
			messages := mustParse(t, string(c.Messages))
			tools, err := ParseJSON(c.Tools)
			if err != nil {
				t.Fatal(err)
			}
			kwargs, err := ParseObject(c.Kwargs)
			if err != nil {
				t.Fatal(err)
			}
			o := Options{AddGenerationPrompt: c.AddGenerationPrompt, Tools: tools, Kwargs: kwargs, AsGiven: true, Now: goldenClock}
			p, err := tmpl.Render(messages, o)
			if c.Raises != nil {
				raised++
				var e *Error
				if !errors.As(err, &e) {
					t.Errorf("%s %s: reference raises %s, got %q %v", g.Name, c.Name, c.Raises.Message, p.Text, err)
				} else if c.Raises.Type == "TemplateError" && (!e.Raised || e.Message != c.Raises.Message) {
					t.Errorf("%s %s: got %q, want %q", g.Name, c.Name, e.Message, c.Raises.Message)
				}
				continue
			}
			rendered++
			if err != nil {
				t.Errorf("%s %s: %v", g.Name, c.Name, err)
			} else if p.Text != *c.Expected {
				t.Errorf("%s %s:\ngot  %q\nwant %q", g.Name, c.Name, p.Text, *c.Expected)
			} else if joinedSegments(p) != p.Text {
				t.Errorf("%s %s: segments join to %q", g.Name, c.Name, joinedSegments(p))
			}
			// What the reference renders is rendered the same in a server's mode, but for lists
			// of parts, which templates without a notion of them print as Python lists, for
			// calls in a form that the template does not read, and for what templates leave out.
			o.AsGiven = false
			p, err = tmpl.Render(messages, o)
			if left := missingTexts(messages, *c.Expected); leftOut[g.Name+" "+c.Name] {
				if still := missingTexts(messages, p.Text); err != nil || left == nil || still != nil {
					t.Errorf("%s %s, as a server: %q %v; lacks %q, the reference %q", g.Name, c.Name, p.Text, err, still, left)
				}
			} else if (err != nil || p.Text != *c.Expected && !otherCalls(tmpl, messages)) && c.Name != "content_parts" {
				t.Errorf("%s %s, as a server: %q %v", g.Name, c.Name, p.Text, err)
			}
		}
	}
	if rendered < 300 || raised < 30 {
		t.Errorf("%d rendered, %d raised", rendered, raised)
	}
}
