package calls

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/openinfer-go/openinfer/api"
	"github.com/openinfer-go/openinfer/api/apitest"
	"github.com/openinfer-go/openinfer/engine"
	"github.com/openinfer-go/openinfer/internal/testdata"
	"github.com/openinfer-go/openinfer/models/chat"
)

// object is a JSON object of a request.
type object = map[string]any

// message is one of a conversation as the references have them.
type message struct {
	Role      string `json:"role"`
	Content   string `json:"content"`
	Reasoning string `json:"reasoning_content"`
	Name      string `json:"name"`
	CallID    string `json:"tool_call_id"`
	Calls     []struct {
		ID       string `json:"id"`
		Function struct {
			Name      string          `json:"name"`
			Arguments json.RawMessage `json:"arguments"`
		} `json:"function"`
	} `json:"tool_calls"`
}

// argumentsText is the text of arguments as models write it.
func argumentsText(raw json.RawMessage) string {
	o, err := chat.ParseObject(raw)
	if err != nil {
		panic(err)
	}
	return o.JSON()
}

// shapes are one conversation in the form of each API.
var shapes = map[string]func([]message) object{
	"/v1/chat/completions": func(all []message) object {
		var out []object
		for _, m := range all {
			o := object{"role": m.Role, "content": m.Content}
			if m.Role == "tool" {
				o["tool_call_id"], o["content"] = m.CallID, []object{{"type": "text", "text": m.Content}}
			}
			if m.Reasoning != "" {
				o["reasoning_content"] = m.Reasoning
			}
			var calls []object
			for _, c := range m.Calls {
				calls = append(calls, object{"id": c.ID, "type": "function", "function": object{"name": c.Function.Name, "arguments": argumentsText(c.Function.Arguments)}})
			}
			if calls != nil {
				o["tool_calls"] = calls
				if m.Content == "" {
					o["content"] = nil
				}
			}
			out = append(out, o)
		}
		return object{"messages": out}
	},
	"/v1/responses": func(all []message) object {
		var out []object
		for _, m := range all {
			if m.Reasoning != "" {
				out = append(out, object{"type": "reasoning", "summary": []any{}, "content": []object{{"type": "reasoning_text", "text": m.Reasoning}}})
			}
			switch {
			case m.Role == "tool":
				out = append(out, object{"type": "function_call_output", "call_id": m.CallID, "output": m.Content})
			case m.Content != "":
				out = append(out, object{"role": m.Role, "content": m.Content})
			}
			for _, c := range m.Calls {
				out = append(out, object{"type": "function_call", "call_id": c.ID, "name": c.Function.Name, "arguments": argumentsText(c.Function.Arguments)})
			}
		}
		return object{"input": out}
	},
	"/v1/messages": func(all []message) object {
		var out []object
		var results []object
		flush := func() {
			if results != nil {
				out = append(out, object{"role": "user", "content": results})
				results = nil
			}
		}
		for _, m := range all {
			if m.Role == "tool" {
				results = append(results, object{"type": "tool_result", "tool_use_id": m.CallID, "content": []object{{"type": "text", "text": m.Content}}})
				continue
			}
			flush()
			var blocks []object
			if m.Reasoning != "" {
				blocks = append(blocks, object{"type": "thinking", "thinking": m.Reasoning, "signature": "s"})
			}
			if m.Content != "" {
				blocks = append(blocks, object{"type": "text", "text": m.Content})
			}
			for _, c := range m.Calls {
				blocks = append(blocks, object{"type": "tool_use", "id": c.ID, "name": c.Function.Name, "input": c.Function.Arguments})
			}
			out = append(out, object{"role": m.Role, "content": blocks})
		}
		flush()
		return object{"messages": out, "max_tokens": 5}
	},
	"/api/chat": func(all []message) object {
		var out []object
		for _, m := range all {
			o := object{"role": m.Role, "content": m.Content}
			if m.Role == "tool" {
				o["tool_name"] = m.Name
			}
			if m.Reasoning != "" {
				o["thinking"] = m.Reasoning
			}
			var calls []object
			for _, c := range m.Calls {
				calls = append(calls, object{"function": object{"name": c.Function.Name, "arguments": c.Function.Arguments}})
			}
			if calls != nil {
				o["tool_calls"] = calls
			}
			out = append(out, o)
		}
		return object{"messages": out, "stream": false}
	},
}

// tools are the references' in the form of each API.
func toolsOf(path string, tools []object) []object {
	var out []object
	for _, t := range tools {
		f := t["function"].(object)
		switch path {
		case "/v1/responses":
			flat := object{"type": "function"}
			for k, v := range f {
				flat[k] = v
			}
			out = append(out, flat)
		case "/v1/messages":
			flat := object{"name": f["name"], "description": f["description"], "input_schema": f["parameters"]}
			if flat["input_schema"] == nil {
				flat["input_schema"] = object{}
			}
			out = append(out, flat)
		default:
			out = append(out, t)
		}
	}
	return out
}

// renderer answers nothing; it renders conversations by a real template.
type renderer struct {
	*apitest.Generator
	template *chat.Template
	text     string
}

func (r *renderer) RenderChat(_ string, p engine.ChatPrompt) (engine.RenderedChat, error) {
	messages, err := chat.ParseMessages(p.Messages)
	if err != nil {
		return engine.RenderedChat{}, err
	}
	tools, err := chat.ParseJSON(p.Tools)
	if err != nil {
		return engine.RenderedChat{}, err
	}
	kwargs, err := chat.ParseObject(p.Kwargs)
	if err != nil {
		return engine.RenderedChat{}, err
	}
	out, err := r.template.Render(messages, chat.Options{AddGenerationPrompt: true, Tools: tools, Kwargs: kwargs, Now: time.Date(2026, 7, 4, 12, 30, 15, 0, time.UTC)})
	r.text = out.Text
	return engine.RenderedChat{Text: out.Text, IDs: []int32{'x'}}, err
}

// TestHistoriesOfEveryAPI: a conversation with calls makes the reference's prompt, whichever API it comes by.
func TestHistoriesOfEveryAPI(t *testing.T) {
	var h struct {
		Tools         []object
		Conversations map[string][]message
		Rendered      map[string]map[string]*string
	}
	read := func(path string, v any) {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(b, v); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
	}
	read(filepath.Join(testdata.Repo(), "models", "chat", "testdata", "histories.json"), &h)
	compared := 0
	for family, rendered := range h.Rendered {
		var g struct {
			Template string
			BOS      string `json:"bos_token"`
			EOS      string `json:"eos_token"`
		}
		read(filepath.Join(testdata.Shared(t, "golden", "chat"), family+".json"), &g)
		template, err := chat.Compile(g.Template, chat.Tokens{Named: map[string]string{"bos_token": g.BOS, "eos_token": g.EOS}})
		if err != nil {
			t.Fatal(err)
		}
		r := &renderer{Generator: &apitest.Generator{Names: []string{"M"}, Answer: func(engine.Request) apitest.Answer { return apitest.Answer{Text: "ok"} },
			Tools: engine.ToolFormat{Parser: "hermes"}}, template: template}
		handler := api.New(r, api.Options{})
		for name, conversation := range h.Conversations {
			if rendered[name] == nil {
				continue
			}
			last := conversation[len(conversation)-1].Content
			for path, shape := range shapes {
				body := shape(conversation)
				body["model"], body["tools"] = "M", toolsOf(path, h.Tools)
				b, err := json.Marshal(body)
				if err != nil {
					t.Fatal(err)
				}
				r.text = ""
				w := httptest.NewRecorder()
				handler.ServeHTTP(w, httptest.NewRequest(http.MethodPost, path, strings.NewReader(string(b))))
				if w.Code != http.StatusOK {
					reply, _ := io.ReadAll(w.Body)
					t.Errorf("%s %s, %s: %d %s", family, name, path, w.Code, reply)
					continue
				}
				// Behind the last text stands what depends on whether the API asks for reasoning.
				_, got, _ := strings.Cut(r.text, "Weather?")
				_, want, _ := strings.Cut(*rendered[name], "Weather?")
				end := strings.LastIndex(want, last)
				if last == "" || end < 0 { // or is written otherwise
					end = max(0, len(want)-80)
				}
				got, want = got[:min(len(got), end)], want[:end]
				if compared++; got != want {
					t.Errorf("%s %s, %s:\ngot  %q\nwant %q", family, name, path, got, want)
				}
			}
		}
	}
	if compared < 88*len(shapes) {
		t.Errorf("%d prompts were compared", compared)
	}
}
