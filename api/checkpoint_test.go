package api

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/openinfer-go/openinfer/engine"
	"github.com/openinfer-go/openinfer/internal/testdata"
)

// serveTemplate serves the demo model with a reference chat template in the place of its own.
func serveTemplate(t *testing.T, template, parser string) served {
	t.Helper()
	var g struct{ Template string }
	data, err := os.ReadFile(testdata.Shared(t, "golden", "chat", template+".json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &g); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(testdata.Shared(t, "demo-models", "demo-tales"))); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "chat_template.jinja")
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(g.Template), 0o600); err != nil {
		t.Fatal(err)
	}
	e, err := engine.Open(t.Context(), engine.Options{Device: "ref", Models: []engine.ModelSpec{{Name: "M", Path: dir, ReasoningParser: parser}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	return serve(t, e, Options{})
}

// The template of a checkpoint decides what is reasoning: a block that it opens and the answer never
// closes is all of the answer.
func TestTemplateOpensReasoning(t *testing.T) {
	ask := func(s served, fields string) (reasoning, content string) {
		t.Helper()
		const greedy = `"temperature":0,"max_tokens":8`
		r := s.ok(s.post("/v1/chat/completions", chatBody(greedy+fields)))
		x := s.stream(s.post("/v1/chat/completions", chatBody(greedy+`,"stream":true`+fields)))
		reasoning, _ = r.at("choices", 0, "message", "reasoning_content").(string)
		content = r.at("choices", 0, "message", "content").(string)
		if got := x.reasoning(t, 0); got != reasoning || x.text[0] != content || x.finish[0] != r.at("choices", 0, "finish_reason") {
			t.Errorf("streamed %q and %q, whole %q and %q", got, x.text[0], reasoning, content)
		}
		return reasoning, content
	}
	s := serveTemplate(t, "qwen3.5", "")
	if r, c := ask(s, ""); r == "" || c != "" {
		t.Errorf("thinking: %q and %q", r, c)
	}
	if r, c := ask(s, `,"chat_template_kwargs":{"enable_thinking":false}`); r != "" || c == "" {
		t.Errorf("thinking off: %q and %q", r, c)
	}
	if r, c := ask(serveTemplate(t, "qwen3.5", "none"), ""); r != "" || c == "" {
		t.Errorf("no parser: %q and %q", r, c)
	}
	for fields, param := range map[string]string{
		`"chat_template_kwargs":{"enable_thinking":"no"}`: "chat_template_kwargs.enable_thinking",
		`"chat_template_kwargs":{"messages":[]}`:          "chat_template_kwargs.messages",
		`"chat_template_kwargs":[]`:                       "chat_template_kwargs",
		`"include_reasoning":"no"`:                        "include_reasoning",
	} {
		s.refused(s.post("/v1/chat/completions", chatBody(fields)), 400, param)
	}
}

// Shapes of conversations that strict templates refuse: a prompt that holds every text, never a 500.
func TestShapesOfAgents(t *testing.T) {
	const sys, sys2 = `{"role":"system","content":"rule one"}`, `{"role":"system","content":"rule two"}`
	const dev, user, bot = `{"role":"developer","content":"rule dev"}`, `{"role":"user","content":"ask"}`, `{"role":"assistant","content":"reply"}`
	const call = `{"role":"assistant","content":null,"tool_calls":[{"id":"abcdefghi","type":"function","function":{"name":"f","arguments":"{\"a\":\"b\"}"}}]}`
	const tool, parts = `{"role":"tool","tool_call_id":"abcdefghi","content":"result"}`, `{"role":"user","content":[{"type":"text","text":"part A "},{"type":"text","text":"part B"}]}`
	for _, template := range []string{"qwen3.5", "gemma3"} {
		s := serveTemplate(t, template, "")
		for _, shape := range [][]string{
			{user}, {bot}, {sys}, {sys, user}, {user, sys}, {sys, sys2, user}, {sys, user, bot, sys2, user}, {dev, user}, {user, dev},
			{user, user}, {user, bot, bot, user}, {bot, user}, {user, bot}, {tool}, {user, tool}, {user, call, tool}, {user, call, tool, sys, user},
			{parts}, {sys, parts, bot, parts}, {`{"role":"user","content":""}`}, {`{"role":"assistant","content":null,"reasoning_content":"why"}`, user},
		} {
			a := s.post("/tokenize", `{"model":"M","return_token_strs":true,"messages":[`+strings.Join(shape, ",")+`]}`)
			prompt := ""
			for _, token := range s.ok(a).at("token_strs").([]any) {
				prompt += token.(string)
			}
			for _, message := range shape {
				for _, text := range []string{"rule one", "rule two", "rule dev", "ask", "reply", "result", "part A part B"} {
					if strings.Contains(message, `"`+text+`"`) && !strings.Contains(prompt, text) {
						t.Errorf("%s: %s: %q is not in %q", template, shape, text, prompt)
					}
				}
				if message == parts && !strings.Contains(prompt, "part A part B") && !strings.Contains(prompt, "part Apart B") {
					t.Errorf("%s: %s: the parts are not in %q", template, shape, prompt)
				}
			}
		}
	}
}
