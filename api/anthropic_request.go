package api

import (
	"encoding/json/jsontext"
	"strings"
)

// anthropicRefusals are what Anthropic's API has and a text model served alone does not.
var anthropicRefusals = []refusal{
	{"mcp_servers", empty, "servers of tools are not called from here: offer their tools in tools"},
	{"container", nil, "code is not run here"},
}

// translateMessages reads a request of /v1/messages; shown: its answer has blocks of thinking.
func translateMessages(in *object) (t *translation, shown bool) {
	t = newTranslation(in)
	t.paths = strings.NewReplacer(".function.parameters", ".input_schema", ".function", "", ".json_schema", "")
	refuse(in, anthropicRefusals)
	t.same(extensions...)
	t.same("model", "max_tokens", "temperature", "top_p", "top_k", "stream")
	t.rename(in, "stop_sequences", "stop")
	in.take("stop_sequences", "an array of strings", '[')
	if meta := in.object("metadata"); meta != nil {
		if meta.string("user_id"); meta.err == nil {
			t.rename(meta, "user_id", "user")
		}
		in.inner(meta)
	}
	shown = t.anthropicThinking()
	if !shown {
		t.set("include_reasoning", false, "thinking")
	}
	t.anthropicOutput()
	t.anthropicTools()
	t.anthropicSystem()
	t.anthropicTurns()
	return t, shown
}

// anthropicThinking reads whether the model is to think, which Anthropic's do not unless they are asked to, and
// whether the client wants to see it.
func (t *translation) anthropicThinking() (shown bool) {
	const field = "thinking"
	if !t.in.has(field) {
		t.thinking(false, field)
		return false
	}
	o := t.in.object(field)
	if o == nil {
		return false
	}
	defer t.in.inner(o)
	if d := o.string("display"); d != "" && d != "summarized" && d != "omitted" {
		o.fail("display", "%q is neither summarized nor omitted", shorten(d, 40))
	}
	o.integer("budget_tokens", 1, 1<<31-1)
	switch kind := o.string("type"); kind {
	case "enabled", "adaptive":
		t.thinking(true, field)
		return o.string("display") != "omitted"
	case "disabled":
		t.thinking(false, field)
	default:
		o.fail("type", "%q is not one of enabled, adaptive and disabled", shorten(kind, 40))
	}
	return false
}

// anthropicOutput reads output_config, and output_format, which came before it.
func (t *translation) anthropicOutput() {
	format := func(o *object, field string) {
		f := o.object(field)
		if f == nil {
			return
		}
		if kind := f.string("type"); kind != "json_schema" {
			f.fail("type", "%q is not json_schema", shorten(kind, 40))
		}
		schema := f.take("schema", "an object", '{')
		if schema == nil {
			f.fail("schema", "is missing")
		} else {
			t.set("response_format", jsonSchema(schema, true), f.at())
		}
		o.inner(f)
	}
	format(t.in, "output_format")
	if o := t.in.object("output_config"); o != nil {
		format(o, "format")
		if effort := o.string("effort"); effort != "" {
			t.set("reasoning_effort", knownEffort(effort), "output_config.effort")
		}
		t.in.inner(o)
	}
}

// knownEffort is the nearest of the efforts that chat templates know.
func knownEffort(effort string) string {
	switch effort {
	case "xhigh", "max":
		return "high"
	case "minimal":
		return "low"
	}
	return effort
}

// jsonSchema is the response_format that asks for what a schema allows.
func jsonSchema(schema jsontext.Value, strict bool) pairs {
	return pairs{{"type", "json_schema"}, {"json_schema", pairs{{"name", "answer"}, {"schema", schema}, {"strict", strict}}}}
}

// anthropicSystem makes the system prompt: paragraphs, when it comes in blocks.
func (t *translation) anthropicSystem() {
	v := t.in.take("system", "a string or an array of text blocks", '"', '[')
	if v == nil {
		return
	}
	var all []string
	add := func(s string) {
		// Claude Code begins its system prompt with a line of its own accounts, another one for every request, behind
		// which no prefix would ever be found again
		if strings.HasPrefix(s, "x-anthropic-billing-header:") {
			_, s, _ = strings.Cut(s, "\n")
		}
		if s != "" {
			all = append(all, s)
		}
	}
	if v.Kind() == '"' {
		add(text(v))
	} else {
		for _, b := range t.in.objects("system") {
			if kind := b.string("type"); kind != "text" {
				b.fail("type", "%q blocks are not supported here, only text", shorten(kind, 40))
			}
			add(b.needed("text"))
		}
	}
	if len(all) > 0 && t.in.err == nil {
		t.message("system", pair{"role", "system"}, pair{"content", strings.Join(all, "\n")})
	}
}

// needed is a string that must be there.
func (o *object) needed(field string) string {
	s := o.string(field)
	if !o.has(field) {
		o.fail(field, "is missing")
	}
	return s
}

// anthropicTurns makes the messages. An assistant's at the end is what the answer goes on with.
func (t *translation) anthropicTurns() {
	if !t.in.has("messages") {
		t.in.fail("messages", "is missing")
	}
	turns, last := 0, ""
	for _, m := range t.in.objects("messages") {
		turns++
		last = m.string("role")
		switch last {
		case "user", "system":
			t.anthropicUser(m, last)
		case "assistant":
			if t.anthropicAssistant(m) {
				last = "tool_use"
			}
		default:
			m.fail("role", "%q is not one of user, assistant and system", shorten(last, 40))
		}
	}
	if turns == 0 {
		t.in.fail("messages", "is empty")
	}
	if last == "assistant" {
		t.set("continue_final_message", true, "messages")
	}
}

// anthropicUser makes a message of a user's, or a system's, text, and one of each result of a tool.
func (t *translation) anthropicUser(m *object, role string) {
	content := m.take("content", "a string or an array of blocks", '"', '[')
	switch {
	case !m.has("content"):
		m.fail("content", "is missing")
	case content == nil:
	case content.Kind() == '"':
		t.message(m.at(), pair{"role", role}, pair{"content", content})
	default:
		var parts []pairs
		said := false
		flush := func() {
			if len(parts) > 0 {
				t.message(m.at(), pair{"role", role}, pair{"content", parts})
				parts, said = nil, true
			}
		}
		for _, b := range m.objects("content") {
			switch kind := b.string("type"); {
			case kind == "text":
				parts = append(parts, pairs{{"type", "text"}, {"text", b.needed("text")}})
			case kind == "tool_result" && role == "user":
				flush()
				said = true
				t.message(b.at(), pair{"role", "tool"}, pair{"tool_call_id", b.needed("tool_use_id")}, pair{"content", toolResult(b)})
			default:
				b.unsupported(kind)
			}
		}
		if flush(); !said && m.err == nil {
			m.fail("content", "has no blocks")
		}
	}
}

// unsupported refuses a block by its type.
func (o *object) unsupported(kind string) {
	if kind == "" {
		o.fail("type", "is missing")
	} else {
		o.fail("type", "%q blocks are not supported here, only text and those of tools and thinking", shorten(kind, 40))
	}
}

// toolResult is the text of a tool's result.
func toolResult(b *object) string {
	b.bool("is_error", false)
	v := b.take("content", "a string or an array of text blocks", '"', '[')
	if v == nil {
		return ""
	}
	if v.Kind() == '"' {
		return text(v)
	}
	var all []string
	for _, part := range b.objects("content") {
		if kind := part.string("type"); kind != "text" {
			part.fail("type", "%q blocks are not supported in a tool's result, only text", shorten(kind, 40))
		}
		all = append(all, part.needed("text"))
	}
	return strings.Join(all, "\n")
}

// anthropicAssistant makes one message of what the assistant thought, said and called, and reports whether it called.
func (t *translation) anthropicAssistant(m *object) (calls bool) {
	content := m.take("content", "a string or an array of blocks", '"', '[')
	if !m.has("content") {
		m.fail("content", "is missing")
	}
	if content == nil {
		return false
	}
	if content.Kind() == '"' {
		t.message(m.at(), pair{"role", "assistant"}, pair{"content", content})
		return false
	}
	var turn assistantTurn
	for _, b := range m.objects("content") {
		switch kind := b.string("type"); kind {
		case "text":
			turn.text = append(turn.text, b.needed("text"))
		case "thinking":
			turn.think(b.needed("thinking"))
		case "redacted_thinking": // there is nothing in it to read
		case "tool_use":
			input := b.take("input", "an object", '{')
			if input == nil {
				input = jsontext.Value("{}")
			}
			turn.call(b.needed("id"), b.needed("name"), input)
		default:
			b.unsupported(kind)
		}
	}
	t.message(m.at(), turn.message()...)
	return len(turn.calls) > 0
}

// assistantTurn gathers what one message of an assistant is made of.
type assistantTurn struct {
	text      []string
	reasoning []string
	calls     []pairs
}

func (a *assistantTurn) think(text string) {
	if text != "" {
		a.reasoning = append(a.reasoning, text)
	}
}

// call adds a call; arguments are an object or the text of one.
func (a *assistantTurn) call(id, name string, arguments jsontext.Value) {
	a.calls = append(a.calls, pairs{{"id", id}, {"type", "function"}, {"function", pairs{{"name", name}, {"arguments", arguments}}}})
}

// custom adds a call of a custom tool.
func (a *assistantTurn) custom(id, name, input string) {
	a.calls = append(a.calls, pairs{{"id", id}, {"type", "custom"}, {"custom", pairs{{"name", name}, {"input", input}}}})
}

func (a *assistantTurn) empty() bool { return a.text == nil && a.reasoning == nil && a.calls == nil }

func (a *assistantTurn) message() []pair {
	out := []pair{{"role", "assistant"}, {"content", strings.Join(a.text, "")}}
	if a.reasoning != nil {
		out = append(out, pair{"reasoning_content", strings.Join(a.reasoning, "\n")})
	}
	if a.calls != nil {
		out = append(out, pair{"tool_calls", a.calls})
	}
	return out
}

// anthropicTools makes tools and the choice of them.
func (t *translation) anthropicTools() {
	var tools []pairs
	for _, o := range t.in.objects("tools") {
		if kind := o.string("type"); kind != "" && kind != "custom" {
			o.fail("type", "%q tools are run by Anthropic's servers or known to its models alone; offer one with an input_schema", shorten(kind, 60))
		}
		schema := o.take("input_schema", "an object", '{')
		if schema == nil {
			o.fail("input_schema", "is missing")
		}
		f := pairs{{"name", o.needed("name")}}
		if o.string("description"); o.has("description") {
			f = append(f, pair{"description", o.fields["description"]})
		}
		f = append(f, pair{"parameters", schema})
		if o.bool("strict", false) {
			f = append(f, pair{"strict", true})
		}
		tools = append(tools, pairs{{"type", "function"}, {"function", f}})
	}
	if tools != nil {
		t.set("tools", tools, "tools")
	}
	c := t.in.object("tool_choice")
	if c == nil {
		return
	}
	defer t.in.inner(c)
	if c.bool("disable_parallel_tool_use", false) {
		t.set("parallel_tool_calls", false, "tool_choice.disable_parallel_tool_use")
	}
	c.string("name") // also where it says nothing, it is a string
	switch kind := c.string("type"); kind {
	case "auto", "none":
		t.set("tool_choice", kind, "tool_choice")
	case "any":
		t.set("tool_choice", "required", "tool_choice")
	case "tool":
		t.set("tool_choice", pairs{{"type", "function"}, {"function", pairs{{"name", c.needed("name")}}}}, "tool_choice")
	default:
		c.fail("type", "%q is not one of auto, any, tool and none", shorten(kind, 40))
	}
}
