package api

import (
	"encoding/base64"
	"encoding/json/jsontext"
	"slices"
	"strings"
)

// responsesRefusals are what needs a server that keeps things, or other models.
var responsesRefusals = []refusal{
	{"previous_response_id", nil, "responses are not stored: send the whole conversation as input"},
	{"conversation", nil, "conversations are not stored: send the whole conversation as input"},
	{"prompt", nil, "prompts are not stored: send instructions and input"},
	{"background", literal("false"), "answers are made while the client waits"},
	{"moderation", nil, unknown},
	{"modalities", literal(`["text"]`, "[]"), "only text is supported"},
}

// translateResponses reads a request of /v1/responses.
func translateResponses(in *object) (*translation, *responseShape) {
	t := newTranslation(in)
	t.paths = strings.NewReplacer(".format.grammar", ".format", ".allowed_tools", "", ".function", "", ".custom", "", ".json_schema", "")
	s := &responseShape{tools: map[string]responseTool{}, echo: map[string]jsontext.Value{}}
	for _, r := range repeated {
		if v := in.fields[r.field]; v != nil {
			s.echo[r.field] = v
		}
	}
	refuse(in, responsesRefusals)
	t.same(extensions...)
	t.same("model", "temperature", "top_p", "stream", "parallel_tool_calls", "user")
	s.model = in.string("model")
	t.rename(in, "max_output_tokens", "max_tokens")
	if v := in.string("truncation"); v != "" && v != "disabled" && v != "auto" {
		in.fail("truncation", "%q is neither auto nor disabled", shorten(v, 40))
	}
	in.object("metadata")
	in.bool("store", false)
	t.responsesInclude(s)
	t.responsesReasoning()
	t.responsesText()
	t.responsesTools(s)
	if v := in.string("instructions"); v != "" {
		t.message("instructions", pair{"role", "system"}, pair{"content", v})
	}
	t.responsesInput(s)
	return t, s
}

func (t *translation) responsesInclude(s *responseShape) {
	v := t.in.take("include", "an array of strings", '[')
	if v == nil {
		return
	}
	for _, e := range elements(v) {
		if e.Kind() != '"' {
			t.in.fail("include", "want strings, not %s", kindName(e.Kind()))
			return
		}
		switch text(e) {
		case "message.output_text.logprobs":
			t.set("logprobs", true, "include")
			t.same("top_logprobs")
		case "reasoning.encrypted_content":
			s.sealed = true
		}
	}
}

// responsesReasoning reads how hard to think.
func (t *translation) responsesReasoning() {
	o := t.in.object("reasoning")
	if o == nil {
		return
	}
	defer t.in.inner(o)
	switch effort := o.string("effort"); effort {
	case "":
	case "none":
		t.thinking(false, "reasoning.effort")
	default:
		t.set("reasoning_effort", knownEffort(effort), "reasoning.effort")
	}
}

// responsesText reads the form of the answer's text.
func (t *translation) responsesText() {
	o := t.in.object("text")
	if o == nil {
		return
	}
	defer t.in.inner(o)
	t.rename(o, "verbosity", "verbosity")
	f := o.object("format")
	if f == nil {
		return
	}
	defer o.inner(f)
	switch kind := f.string("type"); kind {
	case "text", "json_object":
		t.set("response_format", pairs{{"type", kind}}, "text.format")
	case "json_schema":
		schema := f.take("schema", "an object", '{')
		if schema == nil {
			f.fail("schema", "is missing")
			return
		}
		inner := pairs{{"name", f.needed("name")}, {"schema", schema}}
		for _, field := range []string{"strict", "description"} {
			if v := f.fields[field]; v != nil {
				inner = append(inner, pair{field, v})
			}
		}
		t.set("response_format", pairs{{"type", kind}, {"json_schema", inner}}, "text.format")
	default:
		f.fail("type", "%q is not one of text, json_object and json_schema", shorten(kind, 40))
	}
}

// responseTool is what a client calls a tool that the model knows by another, unique name.
type responseTool struct {
	namespace, name string
}

// flat is the name by which the model knows a client's tool.
func (s *responseShape) flat(namespace, name string) string {
	for flat, tool := range s.tools {
		if tool.namespace == namespace && tool.name == name {
			return flat
		}
	}
	return name
}

// responsesTools makes chat's tools of functions and custom tools, also of those in a namespace. Tools that OpenAI's servers run
// are left out: the model may call what it is offered, and nobody has to be able to.
func (t *translation) responsesTools(s *responseShape) {
	var tools []pairs
	var add func(o *object, namespace string)
	add = func(o *object, namespace string) {
		kind := o.string("type")
		switch kind {
		case "function", "custom":
			name := o.needed("name")
			flat := name
			if _, taken := s.tools[flat]; taken {
				flat = strings.TrimSuffix(namespace, "__") + "__" + name
			}
			s.tools[flat] = responseTool{namespace, name}
			f := pairs{{"name", flat}}
			if v := o.take("description", "a string", '"'); v != nil {
				f = append(f, pair{"description", v})
			}
			for _, field := range []string{"parameters", "strict"} {
				if v := o.fields[field]; v != nil && kind == "function" {
					f = append(f, pair{field, v})
				}
			}
			if v := o.fields["format"]; v != nil && kind == "custom" {
				f = append(f, pair{"format", customFormat(v)})
			}
			tools = append(tools, pairs{{"type", kind}, {kind, f}})
			t.tools = append(t.tools, o.at())
		case "namespace":
			for _, inner := range o.objects("tools") {
				add(inner, o.string("name"))
			}
		case "":
			o.fail("type", "is missing")
		}
	}
	for _, o := range t.in.objects("tools") {
		add(o, "")
	}
	if tools != nil {
		t.set("tools", tools, "tools")
	}
	t.responsesChoice(s, tools)
}

// customFormat is the format of a custom tool's input as chat has it, where a grammar stands in a field of its own.
func customFormat(v jsontext.Value) any {
	o, err := readObject(v, "")
	if err != nil || o.string("type") != "grammar" {
		return v
	}
	g := pairs{}
	for _, field := range []string{"syntax", "definition"} {
		if v := o.fields[field]; v != nil {
			g = append(g, pair{field, v})
		}
	}
	return pairs{{"type", "grammar"}, {"grammar", g}}
}

func (t *translation) responsesChoice(s *responseShape, tools []pairs) {
	const field = "tool_choice"
	v := t.in.take(field, "a string or an object", '"', '{')
	if v == nil {
		return
	}
	if v.Kind() == '"' {
		t.same(field)
		return
	}
	c := t.in.object(field)
	if c == nil {
		return
	}
	defer t.in.inner(c)
	switch kind := c.string("type"); kind {
	case "function", "custom":
		name := s.flat(c.string("namespace"), c.needed("name"))
		t.set(field, pairs{{"type", kind}, {kind, pairs{{"name", name}}}}, field)
	case "allowed_tools":
		allowed := []pairs{}
		for _, o := range c.objects("tools") {
			kind := o.string("type")
			name := s.flat(o.string("namespace"), o.string("name"))
			if slices.ContainsFunc(tools, func(tool pairs) bool { return tool[0].value == kind && tool[1].value.(pairs)[0].value == name }) {
				allowed = append(allowed, pairs{{"type", kind}, {kind, pairs{{"name", name}}}})
			} else if kind == "function" || kind == "custom" {
				o.fail("name", "%q is none of the request's %s tools", shorten(name, 60), kind)
			}
		}
		if len(allowed) == 0 {
			c.fail("tools", "names no tool that can be called")
		}
		t.set(field, pairs{{"type", kind}, {kind, pairs{{"mode", c.needed("mode")}, {"tools", allowed}}}}, field)
	default:
		c.fail("type", "%q is not one of function, custom and allowed_tools", shorten(kind, 40))
	}
}

// responsesInput makes the conversation. What an assistant thought, said and called in a row is one message.
func (t *translation) responsesInput(s *responseShape) {
	v := t.in.take("input", "a string or an array of items", '"', '[')
	if v == nil {
		if !t.in.has("input") {
			t.in.fail("input", "is missing")
		}
		return
	}
	if v.Kind() == '"' {
		t.message("input", pair{"role", "user"}, pair{"content", v})
		return
	}
	var turn assistantTurn
	var from string
	flush := func() {
		if !turn.empty() {
			t.message(from, turn.message()...)
			turn = assistantTurn{}
		}
	}
	for _, item := range t.in.objects("input") {
		kind := item.string("type")
		if kind == "" && item.has("role") {
			kind = "message"
		}
		role := item.string("role")
		mine := kind == "reasoning" || strings.HasSuffix(kind, "_call") || kind == "message" && role == "assistant"
		if !mine {
			flush()
		} else if turn.empty() {
			from = item.at()
		}
		switch kind {
		case "message":
			t.responsesMessage(item, role, &turn)
		case "reasoning":
			turn.think(reasoned(item))
		case "function_call":
			arguments := item.take("arguments", "the text of an object", '"')
			if arguments == nil {
				item.fail("arguments", "is missing")
			}
			turn.call(item.needed("call_id"), s.flat(item.string("namespace"), item.needed("name")), arguments)
		case "custom_tool_call":
			turn.custom(item.needed("call_id"), s.flat(item.string("namespace"), item.needed("name")), item.needed("input"))
		case "function_call_output", "custom_tool_call_output":
			t.message(item.at(), pair{"role", "tool"}, pair{"tool_call_id", item.needed("call_id")}, pair{"content", responsesOutput(item)})
		case "item_reference":
			item.fail("type", "items are not stored: send them whole")
		case "":
			item.fail("type", "is missing")
		default:
			item.fail("type", "%q items are not supported, only messages, reasoning and calls of functions", shorten(kind, 40))
		}
	}
	flush()
	if len(t.messages) == 0 {
		t.in.fail("input", "is empty")
	}
}

// responsesMessage makes a message, or adds an assistant's to its turn.
func (t *translation) responsesMessage(item *object, role string, turn *assistantTurn) {
	content := item.take("content", "a string or an array of parts", '"', '[')
	if !item.has("content") {
		item.fail("content", "is missing")
	}
	if content == nil {
		return
	}
	var parts []pairs
	var said []string
	if content.Kind() == '"' {
		said = []string{text(content)}
	} else {
		for _, p := range item.objects("content") {
			s := p.part()
			said = append(said, s)
			parts = append(parts, pairs{{"type", "text"}, {"text", s}})
		}
	}
	switch role {
	case "assistant":
		turn.text = append(turn.text, said...)
		if turn.text == nil {
			turn.text = []string{""}
		}
	case "user", "system", "developer":
		if parts == nil {
			t.message(item.at(), pair{"role", role}, pair{"content", strings.Join(said, "")})
		} else {
			t.message(item.at(), pair{"role", role}, pair{"content", parts})
		}
	default:
		item.fail("role", "%q is not one of user, assistant, system and developer", shorten(role, 40))
	}
}

// part is the text of a part of a message or of an output.
func (o *object) part() string {
	switch kind := o.string("type"); kind {
	case "input_text", "output_text", "text":
		return o.needed("text")
	case "refusal":
		return o.needed("refusal")
	case "":
		o.fail("type", "is missing")
	default:
		o.fail("type", "%q parts are not supported, only text", shorten(kind, 40))
	}
	return ""
}

func responsesOutput(item *object) string {
	v := item.take("output", "a string or an array of parts", '"', '[')
	if !item.has("output") {
		item.fail("output", "is missing")
	}
	if v == nil || v.Kind() == '"' {
		return text(v)
	}
	var all []string
	for _, p := range item.objects("output") {
		all = append(all, p.part())
	}
	return strings.Join(all, "\n")
}

// sealed is what encrypted_content begins with that was made here.
const sealed = "openinfer:"

// seal is reasoning in a form that clients hand back without looking into it. It is not a secret.
func seal(text string) string { return sealed + base64.StdEncoding.EncodeToString([]byte(text)) }

// reasoned is the text of an item of reasoning that an earlier answer had; none of one that was made elsewhere.
func reasoned(item *object) string {
	var all []string
	if v := item.take("content", "an array", '['); v != nil {
		for _, p := range item.objects("content") {
			if said := p.string("text"); p.string("type") != "summary_text" {
				all = append(all, said)
			}
		}
	}
	if all == nil {
		if code, ok := strings.CutPrefix(item.string("encrypted_content"), sealed); ok {
			b, err := base64.StdEncoding.DecodeString(code)
			if err != nil {
				item.fail("encrypted_content", "is not what was sent")
			}
			return valid(string(b))
		}
	}
	return strings.Join(all, "\n")
}

func valid(s string) string { return strings.ToValidUTF8(s, "\ufffd") }
