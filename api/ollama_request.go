package api

import (
	"encoding/json/jsontext"

	"github.com/openinfer-go/openinfer/engine"
)

var (
	// ollamaGenerateRefusals are what /api/generate has and is not served.
	ollamaGenerateRefusals = []refusal{
		{"suffix", empty, unknown},
		{"images", empty, "only text is supported"},
		{"template", empty, "the model's own template is used"},
		{"context", empty, "is not supported; /api/chat takes a conversation"},
		{"width", literal("0"), "only text is supported"}, {"height", literal("0"), "only text is supported"}, {"steps", literal("0"), "only text is supported"},
	}
	// ollamaOptionRefusals are options that would change the answer and are not served.
	ollamaOptionRefusals = []refusal{
		{"mirostat", literal("0"), unknown},
		{"tfs_z", literal("1"), unknown},
		{"typical_p", literal("1"), unknown},
	}
)

// ollamaFields reads what chat and generate share.
func (t *translation) ollamaFields(m engine.ModelInfo, s *ollamaShape) {
	in := t.in
	t.same(extensions...)
	s.raw = !s.chat && in.bool("raw", false)
	t.set("stream", in.bool("stream", true), "stream")
	t.ollamaOptions(m)
	t.ollamaFormat()
	t.ollamaThink(s)
	count := in.integer("top_logprobs", 0, maxLogprobs)
	if in.bool("logprobs", false) {
		if s.raw {
			n := int64(0)
			if count != nil {
				n = *count
			}
			t.set("logprobs", n, "logprobs")
		} else {
			t.set("logprobs", true, "logprobs")
			t.same("top_logprobs")
		}
	}
	if in.has("tools") {
		if !s.chat {
			in.fail("tools", "is not supported here; /api/chat has it")
		}
		for _, tool := range in.objects("tools") {
			if kind := tool.string("type"); kind == "custom" {
				tool.fail("type", "custom tools are not part of this API, only functions are")
			}
		}
		t.same("tools")
	}
}

// ollamaOptions reads options; those that are for Ollama's own machinery are ignored.
func (t *translation) ollamaOptions(m engine.ModelInfo) {
	o := t.in.object("options")
	if o == nil {
		return
	}
	defer t.in.inner(o)
	for field, to := range map[string]string{
		"temperature": "temperature", "top_p": "top_p", "top_k": "top_k", "min_p": "min_p", "seed": "seed", "stop": "stop",
		"repeat_penalty": "repetition_penalty", "presence_penalty": "presence_penalty", "frequency_penalty": "frequency_penalty",
	} {
		t.rename(o, field, to)
	}
	if n := o.integer("num_predict", -2, 1<<31-1); n != nil && *n > 0 {
		t.set("max_tokens", *n, "options.num_predict")
	}
	if n := o.integer("num_ctx", 1, 1<<31-1); n != nil && m.MaxModelLen > 0 && *n > int64(m.MaxModelLen) {
		o.fail("num_ctx", "%d exceeds the model's context length of %d", *n, m.MaxModelLen)
	}
	refuse(o, ollamaOptionRefusals)
}

// ollamaFormat reads format: "json", or a schema.
func (t *translation) ollamaFormat() {
	v := t.in.take("format", `"json" or a schema`, '"', '{')
	switch {
	case v == nil:
	case v.Kind() == '{':
		t.set("response_format", jsonSchema(v, true), "format")
	case text(v) == "json":
		t.set("response_format", pairs{{"type", "json_object"}}, "format")
	case text(v) != "":
		t.in.fail("format", "%q is neither json nor a schema", shorten(text(v), 40))
	}
}

// ollamaThink reads think: whether to, or how hard.
func (t *translation) ollamaThink(s *ollamaShape) {
	const field = "think"
	v := t.in.take(field, "a boolean or one of low, medium and high", 't', 'f', '"')
	if v == nil || s.raw {
		return
	}
	switch v.Kind() {
	case 't':
		t.thinking(true, field)
	case 'f':
		t.thinking(false, field)
		t.set("include_reasoning", false, field)
	default:
		switch effort := text(v); effort {
		case "low", "medium", "high", "max":
			t.thinking(true, field)
			t.set("reasoning_effort", knownEffort(effort), field)
		default:
			t.in.fail(field, "%q is not one of low, medium and high", shorten(effort, 40))
		}
	}
}

// ollamaMessages makes the conversation of /api/chat. It differs from chat's in small things.
func (t *translation) ollamaMessages() {
	for _, m := range t.in.objects("messages") {
		m.refuseUnless("images", "only text is supported", empty)
		role := m.needed("role")
		out := []pair{{"role", role}}
		for _, field := range []string{"content", "thinking", "tool_calls", "tool_call_id"} {
			if v := m.fields[field]; v != nil {
				out = append(out, pair{field, v})
			}
		}
		if !m.has("content") && !(role == "assistant" && (m.has("tool_calls") || m.has("thinking"))) {
			out = append(out, pair{"content", ""}) // left out when empty
		}
		if name := m.fields["tool_name"]; name != nil {
			out = append(out, pair{"name", name})
		} else if name := m.fields["name"]; name != nil {
			out = append(out, pair{"name", name})
		}
		t.message(m.at(), out...)
	}
}

// ollamaPrompt makes a conversation of one turn of the prompt of /api/generate, or with raw hands it on as it is.
func (t *translation) ollamaPrompt() {
	if t.in.bool("raw", false) {
		t.in.refuseUnless("system", "is not used with raw: there is no template", empty)
		t.same("prompt")
		return
	}
	if system := t.in.string("system"); system != "" {
		t.message("system", pair{"role", "system"}, pair{"content", system})
	}
	t.message("prompt", pair{"role", "user"}, pair{"content", jsontext.Value(t.in.fields["prompt"])})
}
