package api

import (
	"bytes"
	"encoding/json/jsontext"
	"fmt"
	"io"
	"slices"
	"strings"
)

// roles that a message may have. Which orders of them make sense is the template's to say.
var roles = []string{"system", "developer", "user", "assistant", "tool", "function"}

// checkMessages checks the shape of a conversation: templates raise no error for most of what
// can be wrong with it and print nonsense instead. The error names the element. What it returns is
// what templates get: calls of custom tools are those of functions.
func checkMessages(o *object) jsontext.Value {
	messages := o.take("messages", "an array of messages", '[')
	if messages == nil {
		if !o.has("messages") {
			o.fail("messages", "is missing")
		}
		return nil
	}
	count, custom := 0, false
	for i, v := range elements(messages) {
		count++
		m, err := readObject(v, fmt.Sprintf("%smessages[%d].", o.path, i))
		if err != nil {
			if o.err == nil {
				o.err = asError(err)
			}
			return nil
		}
		if custom = checkMessage(m) || custom; m.err != nil {
			o.err = m.err
			return nil
		}
	}
	if count == 0 {
		o.fail("messages", "is empty")
	}
	if custom {
		return withFunctions(messages)
	}
	return messages
}

// checkMessage checks one message, and reports whether it calls custom tools.
func checkMessage(m *object) (custom bool) {
	role := m.string("role")
	switch {
	case m.err != nil:
		return false
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
			custom = checkToolCall(m, fmt.Sprintf("tool_calls[%d]", i), call) || custom
		}
	}
	if f := m.object("function_call"); f != nil {
		calls++
		checkFunction(m, f)
	}
	checkContent(m, role == "assistant" && (calls > 0 || reasons))
	return custom
}

// checkToolCall checks one call, and reports whether it is of a custom tool.
func checkToolCall(m *object, name string, raw jsontext.Value) (custom bool) {
	call, err := readObject(raw, m.path+name+".")
	if err != nil {
		if m.err == nil {
			m.err = asError(err)
		}
		return false
	}
	call.string("id")
	switch kind := call.string("type"); kind {
	case "", "function":
		if f := call.object("function"); f != nil {
			checkFunction(call, f)
		} else {
			call.fail("function", "is missing")
		}
	case "custom":
		custom = true
		if c := call.object("custom"); c != nil {
			if c.string("name") == "" {
				c.fail("name", "is missing or empty")
			}
			c.needed("input")
			call.inner(c)
		} else {
			call.fail("custom", "is missing")
		}
	default:
		call.fail("type", "%q is not one of function and custom", shorten(kind, 40))
	}
	m.inner(call)
	return custom
}

// withFunctions makes calls of functions of the calls of custom tools in messages that have been checked.
func withFunctions(messages jsontext.Value) jsontext.Value {
	list := []jsontext.Value{}
	for _, v := range elements(messages) {
		m := members(v)
		for i, field := range m {
			calls, ok := field.value.(jsontext.Value)
			if field.key != "tool_calls" || !ok || calls.Kind() != '[' {
				continue
			}
			made := []jsontext.Value{}
			for _, call := range elements(calls) {
				c, err := readObject(call, "")
				if err != nil || c.string("type") != "custom" {
					made = append(made, call.Clone())
					continue
				}
				inner := c.object("custom")
				f := pairs{{"type", "function"}, {"function", customCall(inner.string("name"), inner.string("input"))}}
				if c.has("id") {
					f = append(pairs{{"id", c.fields["id"]}}, f...)
				}
				made = append(made, raw(f))
			}
			m[i].value = made
		}
		list = append(list, raw(m))
	}
	return raw(list)
}

// members are those of an object that has been parsed, in order.
func members(v jsontext.Value) pairs {
	out := pairs{}
	dec := jsontext.NewDecoder(bytes.NewReader(v))
	_, err := dec.ReadToken()
	for err == nil && dec.PeekKind() != '}' {
		var name jsontext.Token
		if name, err = dec.ReadToken(); err != nil {
			break
		}
		key := name.String()
		var value jsontext.Value
		value, err = dec.ReadValue()
		out = append(out, pair{key, value.Clone()})
	}
	if err != nil {
		panic("api: " + err.Error())
	}
	return out
}

// checkFunction checks the name and the arguments of a call, which are a JSON object or its text, as a model wrote it: keys may come
// twice, and escapes may be no characters. Missing, null and empty text are no arguments.
func checkFunction(parent, f *object) {
	if f.string("name") == "" {
		f.fail("name", "is missing or empty")
	}
	if args := f.take("arguments", "an object or the text of one", '"', '{'); args != nil && args.Kind() == '"' {
		if s := strings.TrimSpace(text(args)); s != "" && s != "null" {
			if why := noObject(s); why != "" {
				f.fail("arguments", "not the text of a JSON object: %s", why)
			}
		}
	}
	if parent.err == nil {
		parent.err = f.err
	}
}

// noObject says why a text is none of a JSON object; "" when it is one.
func noObject(s string) string {
	if at := tooDeep([]byte(s)); at >= 0 {
		return fmt.Sprintf("at byte %d: nested more than %d deep", at, maxDepth)
	}
	dec := jsontext.NewDecoder(strings.NewReader(s), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	v, err := dec.ReadValue()
	if err != nil {
		return asError(syntaxError(err)).message
	}
	if v.Kind() != '{' {
		return "it is " + kindName(v.Kind())
	}
	if _, err := dec.ReadToken(); err != io.EOF {
		return "there is text after the object"
	}
	return ""
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
