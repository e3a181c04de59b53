package api

import (
	"encoding/json/jsontext"
	"encoding/json/v2"
	"net/http"
	"strconv"
	"strings"
)

// translation turns a request of another API into the request of chat or completions that asks for the same, so that
// every field is read, bounded and refused in one place. It remembers what was made of what: errors name the
// client's own fields.
type translation struct {
	in     *object
	fields map[string]jsontext.Value
	names  map[string]string // a field made here: the client's
	paths  *strings.Replacer // and, of what stands behind a field's name; nil: nothing differs

	messages []jsontext.Value
	sources  []string // by message: the client's field it was made of
	tools    []string // by tool, likewise; nil: as they are
	kwargs   []member // variables of the chat template that a client's own win over
}

// member is one of an object's, in order.
type member struct {
	name  string
	value jsontext.Value
}

func newTranslation(in *object) *translation {
	return &translation{in: in, fields: map[string]jsontext.Value{}, names: map[string]string{}}
}

// extensions are fields of OpenInfer's own, which every API has.
var extensions = []string{"sla", "priority", "keep_alive", "cache_salt", "chat_template_kwargs"}

// same takes fields over as they are.
func (t *translation) same(fields ...string) {
	for _, f := range fields {
		if v := t.in.fields[f]; v != nil {
			t.fields[f] = v
		}
	}
}

// rename takes a field of an object over under another name.
func (t *translation) rename(from *object, field, to string) {
	if v := from.fields[field]; v != nil {
		t.set(to, v, from.path+field)
	}
}

// set makes a field of what the client calls source.
func (t *translation) set(field string, v any, source string) {
	t.fields[field] = raw(v)
	t.names[field] = source
}

// message adds a message made of what the client calls source.
func (t *translation) message(source string, members ...pair) {
	t.messages = append(t.messages, raw(pairs(members)))
	t.sources = append(t.sources, source)
}

// thinking tells the chat template whether to have the model reason. Templates call it by two names.
func (t *translation) thinking(on bool, source string) {
	for _, name := range []string{"enable_thinking", "thinking"} {
		t.kwargs = append(t.kwargs, member{name, raw(on)})
	}
	t.names["chat_template_kwargs"] = source
}

// object is the request that was made. What it was made of is let go: only names are kept, for blame.
func (t *translation) object() *object {
	if t.messages != nil {
		t.fields["messages"] = raw(t.messages)
	}
	for _, m := range t.kwargs {
		if v := t.fields["chat_template_kwargs"]; v == nil || v.Kind() == '{' {
			t.fields["chat_template_kwargs"] = withMember(v, m.name, m.value)
		}
	}
	o := &object{fields: t.fields}
	t.in, t.fields, t.messages, t.kwargs = nil, nil, nil, nil
	return o
}

// blame puts the client's own field in the place of one that was made of it.
func (t *translation) blame(err error) error {
	if err == nil {
		return nil
	}
	e := *asError(err)
	if e.param == "" {
		return &e
	}
	own := t.own(e.param)
	if rest, ok := strings.CutPrefix(e.message, e.param+":"); ok {
		e.message = own + ":" + rest
	}
	e.param = own
	return &e
}

// own is what the client calls a field.
func (t *translation) own(param string) string {
	if rest, ok := strings.CutPrefix(param, "messages["); ok {
		index, _, _ := strings.Cut(rest, "]")
		if i, err := strconv.Atoi(index); err == nil && i < len(t.sources) {
			return t.sources[i]
		}
	}
	if rest, ok := strings.CutPrefix(param, "tools["); ok && t.tools != nil {
		index, rest, _ := strings.Cut(rest, "]")
		if i, err := strconv.Atoi(index); err == nil && i < len(t.tools) {
			return t.tools[i] + t.paths.Replace(rest)
		}
	}
	root := param
	if i := strings.IndexAny(param, ".["); i >= 0 {
		root = param[:i]
	}
	rest := param[len(root):]
	if t.paths != nil {
		rest = t.paths.Replace(rest)
	}
	if name, ok := t.names[root]; ok {
		return name + rest
	}
	return root + rest
}

// count answers how many tokens a conversation of another API has, as its model's template renders it.
func (h *Handler) count(w *reply, r *http.Request, translate func(*object) *translation, body func(int) any) error {
	in, release, err := h.readRequest(w, r)
	if err != nil {
		return err
	}
	defer release()
	t := translate(in)
	if err := in.failure(); err != nil {
		return err
	}
	o := t.object()
	m, err := h.readModel(o, false)
	if err != nil {
		return t.blame(err)
	}
	w.model = m.Name
	if m, err = h.await(w, r, m, false); err != nil {
		return err
	}
	refuse(o, refusals, chatRefusals)
	conversation, _ := readChatPrompt(o)
	if err := o.failure(); err != nil {
		return t.blame(err)
	}
	rendered, err := h.gen.RenderChat(m.Name, conversation)
	if err != nil {
		return t.blame(err)
	}
	return w.json(http.StatusOK, body(len(rendered.IDs)))
}

// raw is v as JSON. What is made here can be written.
func raw(v any) jsontext.Value {
	if r, ok := v.(jsontext.Value); ok {
		return r
	}
	b, err := json.Marshal(v)
	if err != nil {
		panic("api: " + err.Error())
	}
	return b
}

// inner hands an error of a part of a request on to the whole.
func (o *object) inner(part *object) {
	if o.err == nil && part.err != nil {
		o.err = part.err
	}
}

// objects ranges over an array of objects, whose fields errors name; it ends at the first error.
func (o *object) objects(name string) func(func(int, *object) bool) {
	return func(yield func(int, *object) bool) {
		array := o.take(name, "an array", '[')
		if array == nil {
			return
		}
		for i, v := range elements(array) {
			e, err := readObject(v, o.path+name+"["+strconv.Itoa(i)+"].")
			if err != nil {
				if o.err == nil {
					o.err = asError(err)
				}
				return
			}
			more := yield(i, e)
			if o.inner(e); !more || o.err != nil {
				return
			}
		}
	}
}

// at is the object's own name.
func (o *object) at() string { return strings.TrimSuffix(o.path, ".") }

// refuseUnless fails on a field whose value is not harmless.
func (o *object) refuseUnless(field, why string, harmless func(jsontext.Value) bool) {
	if v := o.fields[field]; v != nil && (harmless == nil || !harmless(v)) {
		o.fail(field, "%s", why)
	}
}
