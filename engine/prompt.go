package engine

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/openinfer-go/openinfer/models/chat"
	"github.com/openinfer-go/openinfer/models/tokenizer"
)

// Tokenize turns text into token ids; control tokens written in text are honoured. addSpecial adds
// what the tokenizer adds around a text (begin of text).
func (e *Engine) Tokenize(model, text string, addSpecial bool) ([]int32, error) {
	return e.TokenizeAtMost(model, text, addSpecial, 0)
}

// TokenizeAtMost is Tokenize for a caller who can use so many tokens: more are ErrContextLength, and
// a text that cannot but have more is not tokenized to its end. 0: as many as there are.
func (e *Engine) TokenizeAtMost(model, text string, addSpecial bool, tokens int) ([]int32, error) {
	m, err := e.ready(model)
	if err != nil {
		return nil, err
	}
	ids := m.tok.Encode(text, tokenizer.Options{AddSpecial: addSpecial, Limit: tokens})
	if ids == nil && tokens > 0 {
		return nil, tooManyTokens(model, tokens)
	}
	return ids, nil
}

func tooManyTokens(model string, tokens int) error {
	return fmt.Errorf("%w: the prompt for model %s has more than %d tokens", ErrContextLength, model, tokens)
}

// Detokenize turns ids into text, special tokens included. Invalid UTF-8 becomes U+FFFD.
func (e *Engine) Detokenize(model string, ids []int32) (string, error) {
	m, err := e.ready(model)
	if err != nil {
		return "", err
	}
	for i, id := range ids {
		if id < 0 || int(id) >= m.info.Vocab {
			return "", &InvalidError{"tokens", fmt.Sprintf("tokens[%d]: id %d is not in the vocabulary of %s, [0, %d)", i, id, model, m.info.Vocab)}
		}
	}
	return m.tok.Decode(ids, false), nil
}

// TokenText returns what a token stands for: as text, in which parts of characters are U+FFFD, and
// its exact bytes, which must not be modified.
func (e *Engine) TokenText(model string, id int32) (string, []byte, error) {
	m, err := e.ready(model)
	if err != nil {
		return "", nil, err
	}
	if id < 0 || int(id) >= m.info.Vocab {
		return "", nil, &InvalidError{"tokens", fmt.Sprintf("id %d is not in the vocabulary of %s, [0, %d)", id, model, m.info.Vocab)}
	}
	b := m.tok.TokenBytes(id)
	return strings.ToValidUTF8(string(b), "\uFFFD"), b, nil
}

// RenderChat renders a conversation by the model's own template and turns it into ids. Text from
// messages never becomes a control token (a special token, or an added one that the template's
// source has, such as <think>; what an assistant's turn holds of the latter keeps its meaning), and
// nothing is added around what the template wrote: a begin-of-text token is there when the template
// put it there. What is wrong with a conversation is an InvalidError on "messages" (or an element of
// it, or "chat_template_kwargs"), and so is a model without a template.
func (e *Engine) RenderChat(model string, p ChatPrompt) (RenderedChat, error) {
	m, err := e.ready(model)
	if err != nil {
		return RenderedChat{}, err
	}
	if m.chat == nil {
		return RenderedChat{}, &InvalidError{"messages", m.chatErr.Error()}
	}
	messages, err := chat.ParseMessages(p.Messages)
	if err != nil {
		return RenderedChat{}, chatError("messages", err)
	}
	if !m.chat.WritesCalls() {
		messages = writtenCalls(messages, m.info.Tools.Parser)
	}
	kwargs, err := chat.ParseObject(p.Kwargs)
	if err != nil {
		return RenderedChat{}, chatError("chat_template_kwargs", err)
	}
	var tools any
	if len(p.Tools) > 0 {
		if m.info.Tools.inSystem {
			messages, err = systemTools(messages, p.Tools)
		} else {
			tools, err = chat.ParseJSON(p.Tools)
		}
		if err != nil {
			return RenderedChat{}, chatError("tools", err)
		}
	}
	prompt, err := m.chat.Render(messages, chat.Options{
		AddGenerationPrompt: p.AddGenerationPrompt, ContinueFinalMessage: p.ContinueFinal, Kwargs: kwargs, Tools: tools,
	})
	if err != nil {
		return RenderedChat{}, chatError("messages", err)
	}
	segments := make([]tokenizer.Segment, len(prompt.Segments))
	for i, s := range prompt.Segments {
		segments[i] = tokenizer.Segment(s)
	}
	ids := m.tok.EncodeSegments(segments, tokenizer.Options{Marks: m.marks, Limit: p.MaxTokens})
	if ids == nil && p.MaxTokens > 0 {
		return RenderedChat{}, tooManyTokens(model, p.MaxTokens)
	}
	return RenderedChat{prompt.Text, ids, m.info.Reasoning.goesOn(prompt, p.ContinueFinal)}, nil
}

// systemTools puts tools into the first system message, which is made if there is none, as the text of a list of functions.
func systemTools(messages []chat.Message, tools json.RawMessage) ([]chat.Message, error) {
	var list []struct {
		Function json.RawMessage `json:"function"`
	}
	if err := json.Unmarshal(tools, &list); err != nil {
		return nil, err
	}
	functions := make([]string, len(list))
	for i, t := range list {
		functions[i] = string(t.Function)
	}
	text := chat.Member{Key: "tools", Value: "[" + strings.Join(functions, ", ") + "]"}
	messages = slices.Clone(messages)
	i := slices.IndexFunc(messages, func(m chat.Message) bool { return m.Role() == "system" })
	if i < 0 {
		i = 0
		messages = slices.Insert(messages, 0, chat.Message{Fields: chat.Object{{Key: "role", Value: "system"}, {Key: "content", Value: ""}}})
	}
	messages[i].Fields = append(slices.Clone(messages[i].Fields), text)
	return messages, nil
}

// writtenCalls puts the calls of earlier turns into their text, as the model writes them, for a template that would leave them out.
func writtenCalls(messages []chat.Message, format string) []chat.Message {
	messages = slices.Clone(messages)
	for i, m := range messages {
		v, _ := m.Fields.Get("tool_calls")
		list, _ := v.([]any)
		var calls []string
		for _, c := range list {
			call, _ := c.(chat.Object)
			f, _ := call.Get("function")
			function, _ := f.(chat.Object)
			name, _ := function.Get("name")
			arguments, _ := function.Get("arguments")
			text := "{}"
			switch a := arguments.(type) {
			case chat.Object:
				text = a.JSON()
			case string:
				if s := strings.TrimSpace(a); s != "" && s != "null" {
					text = s
				}
			}
			named := chat.Object{{Key: "name", Value: name}}.JSON()
			calls = append(calls, strings.TrimSuffix(named, "}")+`, "arguments": `+text+"}")
		}
		if calls == nil {
			continue
		}
		text := strings.Join(calls, "\n")
		switch format {
		case "phi4_mini_json":
			text = "functools[" + strings.Join(calls, ", ") + "]"
		case "hermes":
			text = "<tool_call>\n" + strings.Join(calls, "\n</tool_call>\n<tool_call>\n") + "\n</tool_call>"
		}
		fields := slices.DeleteFunc(slices.Clone(m.Fields), func(f chat.Member) bool { return f.Key == "tool_calls" || f.Key == "content" })
		var content any = text
		switch said := m.Content().(type) {
		case string:
			if said != "" {
				content = said + "\n" + text
			}
		case []any:
			content = append(slices.Clone(said), chat.Object{{Key: "type", Value: "text"}, {Key: "text", Value: "\n" + text}})
		}
		messages[i] = chat.Message{Fields: append(fields, chat.Member{Key: "content", Value: content})}
	}
	return messages
}

// chatError is an error of the chat package as the caller's fault.
func chatError(field string, err error) error {
	var e *chat.Error
	if errors.As(err, &e) {
		return &InvalidError{e.Field, e.Message}
	}
	return &InvalidError{field, err.Error()}
}
