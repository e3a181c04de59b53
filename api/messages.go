package api

import (
	"encoding/json/jsontext"
	"fmt"
	"slices"
)

// roles that a message may have. Which orders of them make sense is the template's to say.
var roles = []string{"system", "developer", "user", "assistant", "tool", "function"}

// checkMessages checks the shape of a conversation: templates raise no error for most of what
// can be wrong with it and print nonsense instead. The error names the element.
func checkMessages(o *object) jsontext.Value {
	messages := o.take("messages", "an array of messages", '[')
	if messages == nil {
		if !o.has("messages") {
			o.fail("messages", "is missing")
		}
		return nil
	}
	count := 0
	for i, v := range elements(messages) {
		count++
		m, err := readObject(v, fmt.Sprintf("%smessages[%d].", o.path, i))
		if err != nil {
			if o.err == nil {
				o.err = asError(err)
			}
			return nil
		}
		if checkMessage(m); m.err != nil {
			o.err = m.err
			return nil
		}
	}
	if count == 0 {
		o.fail("messages", "is empty")
	}
	return messages
}

func checkMessage(m *object) {
	role := m.string("role")
	switch {
	case m.err != nil:
		return
	case !m.has("role"):
		m.fail("role", "is missing")
	case !slices.Contains(roles, role):
		m.fail("role", "%q is not one of %q", shorten(role, 40), roles)
	}
	m.string("name")
	m.string("tool_call_id")
	reasons := false
	for _, name := range []string{"reasoning_content", "reasoning", "thinking"} {
		m.string(name)
		reasons = reasons || m.has(name)
	}
	m.string("refusal")
	if role == "assistant" && m.has("audio") {
		m.fail("audio", "only text is supported")
	}

	calls := 0
	if v := m.take("tool_calls", "an array", '['); v != nil {
		if role != "assistant" && len(v) > len("[]") {
			m.fail("tool_calls", "only an assistant's message has them")
		}
		for i, call := range elements(v) {
			calls++
			checkToolCall(m, fmt.Sprintf("tool_calls[%d]", i), call)
		}
	}
	if f := m.object("function_call"); f != nil {
		calls++
		checkFunction(m, f)
	}
	checkContent(m, role == "assistant" && (calls > 0 || reasons))
}

func checkToolCall(m *object, name string, raw jsontext.Value) {
	call, err := readObject(raw, m.path+name+".")
	if err != nil {
		if m.err == nil {
			m.err = asError(err)
		}
		return
	}
	call.string("id")
	if kind := call.string("type"); kind != "" && kind != "function" {
		call.fail("type", "%q is not function", shorten(kind, 40))
	}
	if f := call.object("function"); f != nil {
		checkFunction(call, f)
	} else {
		call.fail("function", "is missing")
	}
	if m.err == nil {
		m.err = call.err
	}
}

// checkFunction checks the name and the arguments of a call, which are a JSON object or its text.
func checkFunction(parent, f *object) {
	if f.string("name") == "" {
		f.fail("name", "is missing or empty")
	}
	if args := f.take("arguments", "an object or the text of one", '"', '{'); args != nil && args.Kind() == '"' {
		if s := text(args); s != "" {
			if _, err := parseObject([]byte(s)); err != nil {
				f.fail("arguments", "not the text of a JSON object: %s", err)
			}
		}
	}
	if parent.err == nil {
		parent.err = f.err
	}
}

// checkContent wants a string or an array of text parts; only an assistant's message that calls
// tools or reasons may have none.
func checkContent(m *object, optional bool) {
	content := m.take("content", "a string or an array of parts", '"', '[')
	if content == nil {
		if !m.has("content") && !optional {
			m.fail("content", "is missing")
		}
		return
	}
	if content.Kind() == '"' {
		return
	}
	parts := 0
	for i, v := range elements(content) {
		parts++
		part, err := readObject(v, fmt.Sprintf("%scontent[%d].", m.path, i))
		if err != nil {
			if m.err == nil {
				m.err = asError(err)
			}
			return
		}
		switch kind := part.string("type"); {
		case part.err != nil:
		case kind == "text":
			if part.string("text"); !part.has("text") {
				part.fail("text", "is missing")
			}
		case kind == "":
			part.fail("type", "is missing")
		default:
			part.fail("type", "%q parts are not supported, only text", shorten(kind, 40))
		}
		if part.err != nil {
			m.err = part.err
			return
		}
	}
	if parts == 0 && !optional {
		m.fail("content", "has no parts")
	}
}
