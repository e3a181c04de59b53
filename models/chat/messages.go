package chat

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Error is a conversation that cannot be rendered; answer 400.
type Error struct {
	Field   string // the element at fault: messages[2].content
	Message string
	// Raised: the template itself refused the conversation, with this message.
	Raised bool
}

func (e *Error) Error() string { return e.Field + ": " + e.Message }

func errorAt(field, format string, a ...any) error {
	return &Error{Field: field, Message: fmt.Sprintf(format, a...)}
}

// Message is one turn of a conversation: the request's object, keys in order.
type Message struct{ Fields Object }

// Role returns who speaks.
func (m Message) Role() string {
	v, _ := m.Fields.Get("role")
	s, _ := v.(string)
	return s
}

// Content returns nil, a string or a list of parts.
func (m Message) Content() any {
	v, _ := m.Fields.Get("content")
	return v
}

// Reasons reports whether a turn comes with its reasoning.
func (m Message) Reasons() bool {
	return slices.ContainsFunc(reasoningNames, func(name string) bool {
		_, ok := m.Fields.Get(name)
		return ok
	})
}

// reasoningNames are the names of a turn's reasoning; the first one that is there counts.
var reasoningNames = []string{"reasoning_content", "reasoning", "thinking"}

var roles = []string{"system", "developer", "user", "assistant", "tool", "function"}

// ParseMessages reads the messages of a request and checks their shape: roles, contents, parts
// and tool calls. Errors are of type *Error and name the element. Keys that are null say nothing
// and are dropped, but for content, and so is a list of no tool calls.
func ParseMessages(raw []byte) ([]Message, error) {
	if len(raw) == 0 {
		return nil, errorAt("messages", "is required")
	}
	v, err := ParseJSON(raw)
	if err != nil {
		return nil, errorAt("messages", "%v", err)
	}
	list, ok := v.([]any)
	if !ok {
		return nil, errorAt("messages", "must be an array, not %s", jsonType(v))
	}
	if len(list) == 0 {
		return nil, errorAt("messages", "must not be empty")
	}
	out := make([]Message, len(list))
	for i, item := range list {
		if out[i], err = parseMessage(fmt.Sprintf("messages[%d]", i), item); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func parseMessage(at string, v any) (Message, error) {
	o, ok := v.(Object)
	if !ok {
		return Message{}, errorAt(at, "must be an object, not %s", jsonType(v))
	}
	o = slices.DeleteFunc(o, func(m Member) bool {
		list, ok := m.Value.([]any)
		return m.Value == nil && m.Key != "content" || ok && len(list) == 0 && m.Key == "tool_calls"
	})
	m := Message{o}
	role, ok := o.Get("role")
	if !ok {
		return m, errorAt(at+".role", "is required")
	}
	name, ok := role.(string)
	if !ok {
		return m, errorAt(at+".role", "must be a string, not %s", jsonType(role))
	}
	if !slices.Contains(roles, name) {
		return m, errorAt(at+".role", "%q is not one of %s", name, strings.Join(roles, ", "))
	}
	for _, key := range []string{"name", "tool_call_id", "reasoning_content", "reasoning", "thinking", "refusal"} {
		if v, ok := o.Get(key); ok {
			if _, ok := v.(string); !ok {
				return m, errorAt(at+"."+key, "must be a string, not %s", jsonType(v))
			}
		}
	}
	calls, err := checkToolCalls(at+".tool_calls", o)
	if err != nil {
		return m, err
	}
	return m, checkContent(at+".content", m, calls)
}

func checkContent(at string, m Message, calls bool) error {
	content, present := m.Fields.Get("content")
	switch c := content.(type) {
	case nil:
		_, function := m.Fields.Get("function_call")
		if m.Role() == "assistant" && (calls || function || m.Reasons()) {
			return nil
		}
		if !present {
			return errorAt(at, "is required")
		}
		return errorAt(at, "must be a string or an array of parts, not null")
	case string:
		return nil
	case []any:
		if len(c) == 0 {
			return errorAt(at, "must not be an empty array")
		}
		for i, p := range c {
			if err := checkPart(fmt.Sprintf("%s[%d]", at, i), p); err != nil {
				return err
			}
		}
		return nil
	}
	return errorAt(at, "must be a string or an array of parts, not %s", jsonType(content))
}

func checkPart(at string, v any) error {
	o, ok := v.(Object)
	if !ok {
		return errorAt(at, "must be an object, not %s", jsonType(v))
	}
	kind, ok := o.Get("type")
	name, isString := kind.(string)
	if !ok || !isString {
		return errorAt(at+".type", "must be a string")
	}
	if name != "text" {
		return errorAt(at, "parts of type %q are not supported: the model reads text only", name)
	}
	if text, ok := o.Get("text"); !ok {
		return errorAt(at+".text", "is required")
	} else if _, ok := text.(string); !ok {
		return errorAt(at+".text", "must be a string, not %s", jsonType(text))
	}
	return nil
}

func checkToolCalls(at string, o Object) (some bool, err error) {
	v, ok := o.Get("tool_calls")
	if !ok {
		return false, nil
	}
	calls, ok := v.([]any)
	if !ok {
		return false, errorAt(at, "must be an array, not %s", jsonType(v))
	}
	for i, c := range calls {
		at := fmt.Sprintf("%s[%d]", at, i)
		call, ok := c.(Object)
		if !ok {
			return false, errorAt(at, "must be an object, not %s", jsonType(c))
		}
		f, _ := call.Get("function")
		function, ok := f.(Object)
		if !ok {
			return false, errorAt(at+".function", "must be an object, not %s", jsonType(f))
		}
		if name, _ := function.Get("name"); jsonType(name) != "a string" {
			return false, errorAt(at+".function.name", "must be a string, not %s", jsonType(name))
		}
		switch arguments, _ := function.Get("arguments"); arguments.(type) {
		case nil, string, Object:
		default:
			return false, errorAt(at+".function.arguments", "must be a string or an object, not %s", jsonType(arguments))
		}
	}
	return len(calls) > 0, nil
}

// joinParts makes one string of a content of text parts, in order.
func joinParts(m Message) Message {
	parts, ok := m.Content().([]any)
	if !ok {
		return m
	}
	var b strings.Builder
	for _, p := range parts {
		o, ok := p.(Object)
		if !ok {
			return m
		}
		v, _ := o.Get("text")
		text, ok := v.(string)
		if !ok {
			return m
		}
		b.WriteString(text)
	}
	return Message{m.Fields.with("content", b.String())}
}

// withReasoning gives an assistant's reasoning all names that clients send and templates read.
func withReasoning(m Message) Message {
	if m.Role() != "assistant" {
		return m
	}
	for _, name := range reasoningNames {
		v, ok := m.Fields.Get(name)
		if !ok {
			continue
		}
		for _, other := range reasoningNames {
			if _, ok := m.Fields.Get(other); !ok {
				m.Fields = m.Fields.with(other, v)
			}
		}
		return m
	}
	return m
}

// withText gives assistants' turns without content an empty one, and says whether there were any.
func withText(messages []Message) (out []Message, changed bool) {
	out = slices.Clone(messages)
	for i, m := range out {
		if m.Role() == "assistant" && m.Content() == nil {
			out[i], changed = Message{m.Fields.with("content", "")}, true
		}
	}
	return out, changed
}

// asError makes any failure of a render an *Error.
func asError(err error) error {
	var e *Error
	if err == nil || errors.As(err, &e) {
		return err
	}
	return errorAt("messages", "the chat template cannot render this conversation: %v", err)
}
