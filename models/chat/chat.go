// Package chat renders conversations by a checkpoint's own chat template.
//
// Statements of a template are carried out by a Jinja library; operators, filters and methods by
// this package, with Python's meaning, so that the text is the reference library's, byte for byte,
// or there is an error where that raises. A template is hostile input: its source, nesting, loops,
// text and recursion are bounded. The package does not tokenize; it says which parts of a prompt
// may hold control tokens (Segment).
//
// Refused by name although the reference may render it: templates over 512 KiB, nested deeper than
// 60 statements or 120 operations; integers past 64 bits; dict keys that are not strings; printing
// functions, ranges and generators; the names self and lipsum; filters that only web pages use
// (truncate, urlize, xmlattr and the like); includes and imports; break within a with, set or
// filter body; filtered loops over three names.
//
// Invariant: text that came with a request never becomes a control token that the template did
// not write, and joined segments are the prompt's text.
package chat

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/ardanlabs/jinja"
)

// ErrNoTemplate: the checkpoint has no chat template; only completions are possible. Answer 400.
var ErrNoTemplate = errors.New("the model has no chat template: use completions")

// Tokens are the tokenizer's strings that a template sees or writes.
type Tokens struct {
	// Named are the special tokens by the names of tokenizer_config.json: bos_token, eos_token,
	// pad_token, unk_token and so on. A template sees those that are set.
	Named map[string]string
	// Special are the texts of all special tokens; Added those of the other added tokens. Added
	// ones count as control tokens only where the template's source has their text.
	Special, Added []string
}

// Template is a compiled chat template. It is safe for concurrent use.
type Template struct {
	template *jinja.Template
	tokens   map[string]string
	control  *control
	used     map[rune]bool // private-use characters of the source
	// lists says for which roles the template reads contents that are lists of parts.
	lists map[string]bool
	// systems: the text of a system message at the start appears.
	systems     bool
	arguments   argumentForm
	content     callContent
	writesCalls bool
}

// Marks are those of Tokens.Added that count as control tokens, since the template's source has
// their text.
func (t *Template) Marks() []string {
	var marks []string
	for text, special := range t.control.all {
		if !special {
			marks = append(marks, text)
		}
	}
	return marks
}

// Options are what a request says beside its messages.
type Options struct {
	AddGenerationPrompt bool
	// ContinueFinalMessage ends the prompt with the last message's text, open for more.
	ContinueFinalMessage bool
	Tools                any    // a list of objects as ParseJSON gives it, or nil
	Documents            any    // likewise
	Kwargs               Object // more variables: chat_template_kwargs
	// AsGiven hands the messages to the template as they are, as the reference does. Otherwise
	// what clients send and some templates cannot read is put in another form of the same
	// meaning. A list of text parts becomes their joined text for a template that reads no
	// lists from that role. Reasoning of earlier turns has all its names. Arguments of calls are
	// objects or their text, and what is beside calls null or empty text, whichever the template
	// reads; calls without an id get one. When the template raises an error, it is tried again with
	// empty text for the null content of an assistant, with one call a turn or with other ids, and with
	// both; and then in another order (orders.go has the rule).
	AsGiven bool
	// Now is the clock of strftime_now; zero is the time of day.
	Now time.Time
}

// Prompt is a rendered conversation.
type Prompt struct {
	Text     string
	Segments []Segment // joined, they are Text
}

// Compile prepares a template. An error names the line and what is wrong or not supported; a
// template that would be rendered otherwise than the reference does is refused.
func Compile(source string, tokens Tokens) (*Template, error) {
	if source == "" {
		return nil, ErrNoTemplate
	}
	if !utf8.ValidString(source) {
		return nil, fmt.Errorf("chat template: not UTF-8")
	}
	translated, err := translate(source)
	if err != nil {
		return nil, err
	}
	compiled, err := compile(translated)
	if err != nil {
		return nil, fmt.Errorf("chat template: %w", err)
	}
	t := &Template{
		template: compiled, tokens: maps.Clone(tokens.Named),
		control: newControl(tokens.Special, tokens.Added, source), used: map[rune]bool{}, lists: map[string]bool{},
	}
	note(t.used, source)
	t.probe()
	return t, nil
}

func compile(source string) (t *jinja.Template, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%v", r)
		}
	}()
	return jinja.Compile(source)
}

// note collects the characters that cannot serve as marks.
func note(used map[rune]bool, text string) {
	if strings.IndexByte(text, marksByte) < 0 {
		return
	}
	for _, r := range text {
		if r >= marksBegin {
			used[r] = true
		}
	}
}

// probe finds out which roles' contents may be lists of parts: both parts must appear, and not as
// the printed form of the list.
func (t *Template) probe() {
	turn := func(role string, content any) Message {
		return Message{Object{{"role", role}, {"content", content}}}
	}
	part := func(text string) any { return Object{{"type", "text"}, {"text", text}} }
	parts := []any{part("oneQX"), part("twoQX")}
	calls := Message{Object{{"role", "assistant"}, {"content", ""}, {"tool_calls", []any{Object{
		{"id", "call00000"}, {"type", "function"}, {"function", Object{{"name", "f"}, {"arguments", Object{{"a", "b"}}}}}}}}}}
	for role, messages := range map[string][]Message{
		"system":    {turn("system", parts), turn("user", "u")},
		"developer": {turn("developer", parts), turn("user", "u")},
		"user":      {turn("user", parts)},
		"assistant": {turn("user", "u"), turn("assistant", parts), turn("user", "u")},
		"tool":      {turn("user", "u"), calls, turn("tool", parts)},
	} {
		ops := probeOps
		p, err := t.render(messages, Options{AddGenerationPrompt: true}, &ops)
		one, two := strings.Index(p.Text, "oneQX"), strings.LastIndex(p.Text, "twoQX")
		if err == nil && one >= 0 && one < two {
			between := p.Text[one:two]
			t.lists[role] = !strings.ContainsAny(between, `'"{}`)
		}
	}
	ops := probeOps
	p, err := t.render([]Message{turn("system", "oneQX"), turn("user", "u")}, Options{AddGenerationPrompt: true}, &ops)
	t.systems = err == nil && strings.Contains(p.Text, "oneQX")
	t.probeCalls()
}

// Render writes the prompt of a conversation. Errors are of type *Error.
func (t *Template) Render(messages []Message, o Options) (Prompt, error) {
	if len(messages) == 0 {
		return Prompt{}, errorAt("messages", "must not be empty")
	}
	if o.ContinueFinalMessage && o.AddGenerationPrompt {
		return Prompt{}, errorAt("continue_final_message", "cannot be combined with add_generation_prompt")
	}
	ops := maxOps
	if o.AsGiven {
		return t.render(messages, o, &ops)
	}
	if err := checkKwargs(o.Kwargs); err != nil {
		return Prompt{}, err
	}
	given := make([]Message, len(messages))
	for i, m := range withIDs(messages) {
		if given[i] = withReasoning(m); !t.lists[m.Role()] {
			given[i] = joinParts(given[i])
		}
		var err error
		if given[i], err = t.withCalls(fmt.Sprintf("messages[%d]", i), given[i]); err != nil {
			return Prompt{}, err
		}
	}
	return t.ordered(given, o, &ops)
}

// otherForms are what messages are changed into when a template raises an error; each says whether it changed anything.
var otherForms = []func([]Message) ([]Message, bool){withText, alone, both(alone), withShortIDs, both(withShortIDs)}

// both is a change and withText.
func both(change func([]Message) ([]Message, bool)) func([]Message) ([]Message, bool) {
	return func(m []Message) ([]Message, bool) {
		m, some := change(m)
		m, text := withText(m)
		return m, some && text
	}
}

// readable renders messages, if need be with what some templates cannot read in another form.
func (t *Template) readable(given []Message, o Options, ops *int) (Prompt, error) {
	p, err := t.render(given, o, ops)
	if err == nil {
		return p, nil
	}
	for _, change := range otherForms {
		changed, some := change(given)
		if !some {
			continue
		}
		if p, err = t.render(changed, o, ops); err == nil {
			return p, nil
		}
	}
	return Prompt{}, err // of the form that is the easiest to read: what remains is the conversation's
}

// render runs the template once; what it takes comes off ops.
func (t *Template) render(messages []Message, o Options, ops *int) (p Prompt, err error) {
	used := maps.Clone(t.used)
	size := 0
	visit := func(text string) {
		size += len(text)
		note(used, text)
	}
	for _, m := range messages {
		texts(m.Fields, visit)
	}
	for _, v := range []any{o.Tools, o.Documents, o.Kwargs} {
		texts(v, visit)
	}
	s := &state{now: o.Now, marks: newMarks(t.control, used), keys: map[*jinja.Dict]origin{}, ops: *ops, text: maxText + 32*size}
	if s.now.IsZero() {
		s.now = time.Now()
	}
	vars, err := t.variables(s, messages, o)
	if err != nil {
		return Prompt{}, err
	}
	defer func() {
		*ops = max(s.ops, 0)
		if r := recover(); r != nil {
			p, err = Prompt{}, errorAt("messages", "the chat template cannot render this conversation: %v", r)
		}
	}()
	text, err := t.template.RenderValues(vars)
	if err != nil {
		return Prompt{}, asError(err)
	}
	if o.ContinueFinalMessage {
		if text, err = s.marks.continued(text, messages[len(messages)-1]); err != nil {
			return Prompt{}, err
		}
	}
	return Prompt{Text: s.marks.plain(text), Segments: s.marks.segments(text)}, nil
}

// texts visits every string of a value.
func texts(v any, visit func(string)) {
	switch v := v.(type) {
	case string:
		visit(v)
	case []any:
		for _, item := range v {
			texts(item, visit)
		}
	case Object:
		for _, m := range v {
			visit(m.Key)
			texts(m.Value, visit)
		}
	}
}

func (t *Template) variables(s *state, messages []Message, o Options) (map[string]jinja.Value, error) {
	vars := s.functions()
	for name, text := range t.tokens {
		vars[name] = jinja.NewString(text)
	}
	list := make([]jinja.Value, len(messages))
	for i, m := range messages {
		list[i] = s.message(m)
	}
	vars["messages"] = jinja.NewList(list)
	vars["tools"] = s.value(o.Tools, fromClient)
	vars["documents"] = s.value(o.Documents, fromClient)
	vars["add_generation_prompt"] = jinja.NewBool(o.AddGenerationPrompt)
	for _, m := range o.Kwargs {
		if strings.HasPrefix(m.Key, "oi__") || strings.HasPrefix(m.Key, "__") {
			return nil, errorAt("chat_template_kwargs."+m.Key, "is a reserved name")
		}
		if slices.Contains(ownFields, m.Key) {
			return nil, errorAt("chat_template_kwargs."+m.Key, "is a field of the request itself")
		}
		if slices.Contains(settings, m.Key) {
			return nil, errorAt("chat_template_kwargs."+m.Key, "is not a variable of the template")
		}
		vars[m.Key] = s.value(m.Value, fromClient)
	}
	return vars, nil
}

// Names that are no variables: fields of the request, and parameters of the reference's own function.
var (
	ownFields = []string{"messages", "tools", "documents", "add_generation_prompt", "continue_final_message"}
	settings  = []string{"conversation", "chat_template", "tokenize", "tokenizer_kwargs", "return_dict", "return_tensors", "return_assistant_tokens_mask"}
)

// checkKwargs checks the switches that templates read as true or false: "false" would be true.
func checkKwargs(kwargs Object) error {
	for _, key := range []string{"enable_thinking", "thinking"} {
		v, _ := kwargs.Get(key)
		if _, ok := v.(bool); !ok && v != nil {
			return errorAt("chat_template_kwargs."+key, "must be true or false, not %s", jsonType(v))
		}
	}
	return nil
}

// message is a turn as the template sees it. Its role is checked text and stays unmarked: some
// templates make a control token of it.
func (s *state) message(m Message) jinja.Value {
	from := fromClient
	if m.Role() == "assistant" {
		from = fromModel
	}
	v := jinja.NewDict()
	d := v.AsDict()
	for _, f := range m.Fields {
		if f.Key == "role" {
			d.Set("role", jinja.NewString(m.Role()))
			continue
		}
		d.Set(f.Key, s.value(f.Value, from))
	}
	s.keys[d] = from
	// The reference gives templates both names of the reasoning.
	if r, ok := d.Get("reasoning_content"); ok && !d.Has("thinking") {
		d.Set("thinking", r)
	} else if r, ok := d.Get("thinking"); ok && !d.Has("reasoning_content") {
		d.Set("reasoning_content", r)
	}
	return v
}

func (s *state) value(v any, from origin) jinja.Value {
	switch v := v.(type) {
	case nil:
		return none
	case bool:
		return jinja.NewBool(v)
	case int64:
		return jinja.NewInt(v)
	case float64:
		return jinja.NewFloat(v)
	case string:
		return jinja.NewString(s.marks.mark(v, from))
	case []any:
		items := make([]jinja.Value, len(v))
		for i, item := range v {
			items[i] = s.value(item, from)
		}
		return jinja.NewList(items)
	case Object:
		d := jinja.NewDict()
		for _, m := range v {
			d.AsDict().Set(m.Key, s.value(m.Value, from))
		}
		s.keys[d.AsDict()] = from
		return d
	}
	return undefined
}

// continued cuts a rendered conversation after the text of its last message.
func (m *marks) continued(text string, last Message) (string, error) {
	final := ""
	switch c := last.Content().(type) {
	case string:
		final = c
	case []any:
		for _, p := range c {
			if o, ok := p.(Object); ok {
				if v, ok := o.Get("text"); ok {
					final, _ = v.(string)
				}
			}
		}
	default:
		return "", errorAt("continue_final_message", "the last message has no text to continue")
	}
	v := m.view(text)
	stripped := strings.TrimFunc(final, isSpace)
	at := strings.LastIndex(v.plain, stripped)
	if at < 0 {
		return "", errorAt("continue_final_message", "the template does not print the text of the last message")
	}
	if strings.HasPrefix(v.plain[at:], final) { // the template keeps the space at its end
		stripped = final
	}
	return v.cut(0, at+len(stripped)), nil
}
