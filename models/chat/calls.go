package chat

import (
	"encoding/json/jsontext"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// Calls of tools in earlier turns. Clients send arguments as an object or as its text, and each form is what some templates read and
// others garble or leave out: what a template does is found out once, and arguments are put in the form that it reads.

// argumentForm is how a template reads arguments.
type argumentForm uint8

const (
	asObjects argumentForm = iota
	asText
	asEither // text is printed as it is
)

// callContent is what stands beside calls where a client sends no text: templates print null as None, or print calls only
// beside null.
type callContent uint8

const (
	asSent callContent = iota
	emptyText
	null
)

// probeCalls finds out in which form the template reads calls and what is beside them, and whether it writes calls at all.
func (t *Template) probeCalls() {
	type result struct {
		text         string
		read, writes bool
	}
	render := func(content, arguments any) result {
		call := Object{{"id", "call00000"}, {"type", "function"}, {"function", Object{{"name", "nameQX"}, {"arguments", arguments}}}}
		ops := probeOps
		p, err := t.render([]Message{
			{Object{{"role", "user"}, {"content", "u"}}},
			{Object{{"role", "assistant"}, {"content", content}, {"tool_calls", []any{call}}}},
			{Object{{"role", "tool"}, {"tool_call_id", "call00000"}, {"content", "r"}}}, // whose name would be a trace of the call
		}, Options{AddGenerationPrompt: true}, &ops)
		return result{p.Text, err == nil, err == nil && strings.Contains(p.Text, "nameQX")}
	}
	object, text := Object{{"keyQX", "valueQX"}}, `{"keyQX": "valueQX"}`
	ofObject, ofText := render("", object), render("", text)
	nullObject, nullText := render(nil, object), render(nil, text)
	shown, nullShown := ofObject.writes || ofText.writes, nullObject.writes || nullText.writes
	switch {
	case !shown && nullShown:
		t.content = null
		ofObject, ofText = nullObject, nullText
	case nullObject.read && nullObject.text != ofObject.text, nullText.read && nullText.text != ofText.text:
		t.content = emptyText
	}
	switch {
	case ofObject.read && ofText.read && ofObject.text == ofText.text:
		t.arguments = asEither
	case ofText.read && !ofObject.read:
		t.arguments = asText
	}
	t.writesCalls = shown || nullShown || !ofObject.read && !ofText.read
}

// WritesCalls reports whether the template prints the calls of earlier turns.
func (t *Template) WritesCalls() bool { return t.writesCalls }

// withCalls puts calls, and what is beside them, in the form that the template reads. at is what errors call the message.
func (t *Template) withCalls(at string, m Message) (Message, error) {
	v, _ := m.Fields.Get("tool_calls")
	calls, _ := v.([]any)
	if len(calls) == 0 {
		return m, nil
	}
	out := make([]any, len(calls))
	for i, c := range calls {
		call, _ := c.(Object)
		f, _ := call.Get("function")
		function, _ := f.(Object)
		arguments, _ := function.Get("arguments")
		text, isText := arguments.(string)
		if text = strings.TrimSpace(text); isText && (text == "" || text == "null") || arguments == nil {
			arguments, isText = Object{}, false
		}
		switch o, isObject := arguments.(Object); {
		case isText && t.arguments == asObjects:
			read, err := readArguments(text)
			if err != nil {
				return m, errorAt(fmt.Sprintf("%s.tool_calls[%d].function.arguments", at, i), "not the text of a JSON object: %v", err)
			}
			arguments = read
		case isObject && t.arguments == asText:
			arguments = o.JSON()
		}
		out[i] = call.with("function", function.with("arguments", arguments))
	}
	fields := m.Fields.with("tool_calls", out)
	switch content := m.Content(); {
	case content == nil && t.content == emptyText:
		fields = fields.with("content", "")
	case content == "" && t.content == null:
		fields = fields.with("content", nil)
	}
	return Message{fields}, nil
}

// readArguments reads the text of an object as Python's json does: of a key that comes twice the last value counts, and a
// character that is none is the replacement character.
func readArguments(text string) (Object, error) {
	d := jsontext.NewDecoder(strings.NewReader(text), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	v, err := parseValue(d, 0)
	if err != nil {
		return nil, err
	}
	o, ok := lastValues(v).(Object)
	if !ok {
		return nil, fmt.Errorf("it is %s", jsonType(v))
	}
	if _, err := d.ReadToken(); err != io.EOF {
		return nil, fmt.Errorf("there is text after it")
	}
	return o, nil
}

// JSON is the text of an object as Python's json.dumps writes it, with characters as they are.
func (o Object) JSON() string {
	var b strings.Builder
	dump(&b, o)
	return b.String()
}

func dump(b *strings.Builder, v any) {
	quote := func(s string) {
		q, _ := jsontext.AppendQuote(nil, s) // text of a request is valid
		b.Write(q)
	}
	switch v := v.(type) {
	case bool:
		b.WriteString(strconv.FormatBool(v))
	case int64:
		b.WriteString(strconv.FormatInt(v, 10))
	case float64:
		b.WriteString(formatFloat(v))
	case string:
		quote(v)
	case []any:
		b.WriteByte('[')
		for i, item := range v {
			if i > 0 {
				b.WriteString(", ")
			}
			dump(b, item)
		}
		b.WriteByte(']')
	case Object:
		b.WriteByte('{')
		for i, m := range v {
			if i > 0 {
				b.WriteString(", ")
			}
			quote(m.Key)
			b.WriteString(": ")
			dump(b, m.Value)
		}
		b.WriteByte('}')
	default:
		b.WriteString("null")
	}
}

// withIDs gives ids to calls that have none and to their results, by which templates find the call of a result: the first one of the
// same name that has none, or else in order.
func withIDs(messages []Message) []Message {
	out, made := slices.Clone(messages), 0
	for i, m := range messages {
		v, _ := m.Fields.Get("tool_calls")
		list, _ := v.([]any)
		calls, changed := slices.Clone(list), false
		for n, c := range calls {
			call, _ := c.(Object)
			if id, _ := call.Get("id"); id != nil && id != "" {
				continue
			}
			made++
			id := shortID(made)
			calls[n], changed = call.with("id", id), true
			f, _ := call.Get("function")
			function, _ := f.(Object)
			name, _ := function.Get("name")
			if at := resultWithoutID(out[i+1:], name); at >= 0 {
				r := &out[i+1+at]
				r.Fields = r.Fields.with("tool_call_id", id)
			}
		}
		if changed {
			out[i] = Message{m.Fields.with("tool_calls", calls)}
		}
	}
	return out
}

// resultWithoutID is the index of the first result without an id of a call of that name, or of any if none is named so; -1: there is none.
func resultWithoutID(messages []Message, name any) int {
	first := -1
	for i, r := range messages {
		if r.Role() != "tool" {
			break
		}
		if id, _ := r.Fields.Get("tool_call_id"); id != nil && id != "" {
			continue
		}
		switch of, named := r.Fields.Get("name"); {
		case named && of == name:
			return i
		case first < 0 && !named:
			first = i
		}
	}
	return first
}

// shortID is an id that every template takes: some want nine letters and digits.
func shortID(n int) string { return fmt.Sprintf("call%05d", n) }

// withShortIDs writes all ids so, and says whether there were any.
func withShortIDs(messages []Message) (out []Message, changed bool) {
	out = slices.Clone(messages)
	ids := map[any]string{}
	short := func(o Object, key string) Object {
		id, ok := o.Get(key)
		if !ok {
			return o
		}
		if ids[id] == "" {
			ids[id] = shortID(len(ids) + 1)
		}
		changed = true
		return o.with(key, ids[id])
	}
	for i, m := range out {
		m.Fields = short(m.Fields, "tool_call_id")
		v, _ := m.Fields.Get("tool_calls")
		if list, _ := v.([]any); len(list) > 0 {
			calls := make([]any, len(list))
			for n, c := range list {
				call, _ := c.(Object)
				calls[n] = short(call, "id")
			}
			m.Fields = m.Fields.with("tool_calls", calls)
		}
		out[i] = m
	}
	return out, changed
}

// alone makes turns of one call each of turns with several, each before its own result, and says whether there were any: some
// templates write no more than one.
func alone(messages []Message) (out []Message, changed bool) {
	for i := 0; i < len(messages); i++ {
		m := messages[i]
		v, _ := m.Fields.Get("tool_calls")
		list, _ := v.([]any)
		if len(list) < 2 {
			out = append(out, m)
			continue
		}
		changed = true
		results := messages[i+1:]
		for n, r := range results {
			if r.Role() != "tool" {
				results = results[:n]
				break
			}
		}
		i += len(results)
		taken := make([]bool, len(results))
		for n, call := range list {
			one := m.Fields.with("tool_calls", []any{call})
			if n > 0 {
				one = one.with("content", "")
				for _, name := range reasoningNames {
					one = one.without(name)
				}
			}
			out = append(out, Message{one})
			if at := resultOf(call, n, results, taken); at >= 0 {
				taken[at] = true
				out = append(out, results[at])
			}
		}
		for n, r := range results {
			if !taken[n] {
				out = append(out, r)
			}
		}
	}
	return out, changed
}

// resultOf is the index of the result of the call that is the n-th of its turn: by its id, or where there is none by its place.
func resultOf(call any, n int, results []Message, taken []bool) int {
	c, _ := call.(Object)
	id, _ := c.Get("id")
	for i, r := range results {
		if of, ok := r.Fields.Get("tool_call_id"); ok && of == id && !taken[i] {
			return i
		}
	}
	if n < len(results) && !taken[n] {
		if _, named := results[n].Fields.Get("tool_call_id"); !named || id == nil {
			return n
		}
	}
	return -1
}
