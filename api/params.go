package api

import (
	"encoding/json/jsontext"
	"math"
	"slices"
	"strconv"

	"github.com/openinfer-go/openinfer/engine"
)

// Limits of a request that OpenAI does not set, or sets lower.
const (
	maxN         = 128
	maxLogprobs  = 20
	maxStops     = 32
	maxPrompts   = 1024
	maxLogitBias = 100
	// completionTokens is how long a completion may get when nobody said.
	completionTokens = 16
)

// params are the fields that chat and completions share.
type params struct {
	stream          bool
	includeUsage    bool
	continuousUsage bool

	n         int
	maxTokens int    // 0: not given
	maxField  string // the field that gave it
	sampling  engine.SamplingParams
	minTokens int
	stop      []string

	includeStop, ignoreEOS, keepSpecial bool
	stopTokenIDs                        []int32

	logprobs       *int // of the answer's tokens: how many of the most likely ones
	promptLogprobs *int
	tokensAsIDs    bool // write tokens of log probabilities as token_id:N
	returnIDs      bool
	cacheSalt      string

	service
}

// readParams reads the shared fields; what the model's checkpoint recommends is the default.
// minMaxTokens is the least value of max_tokens: 0 where a prompt may be asked for alone.
func readParams(o *object, m engine.ModelInfo, minMaxTokens int64) params {
	d := m.Defaults
	p := params{
		stream:    o.bool("stream", false),
		n:         1,
		minTokens: 0,
		sampling: engine.SamplingParams{
			Temperature:       o.number("temperature", 0, 2, false, d.Temperature),
			TopP:              o.number("top_p", 0, 1, true, d.TopP),
			TopK:              d.TopK,
			MinP:              o.number("min_p", 0, 1, false, d.MinP),
			PresencePenalty:   o.number("presence_penalty", -2, 2, false, d.PresencePenalty),
			FrequencyPenalty:  o.number("frequency_penalty", -2, 2, false, d.FrequencyPenalty),
			RepetitionPenalty: o.number("repetition_penalty", 0, 100, true, d.RepetitionPenalty),
			Seed:              o.integer("seed", math.MinInt64, math.MaxInt64),
		},
		includeStop: o.bool("include_stop_str_in_output", false),
		ignoreEOS:   o.bool("ignore_eos", false),
		keepSpecial: !o.bool("skip_special_tokens", true),
		tokensAsIDs: o.bool("return_tokens_as_token_ids", false),
		returnIDs:   o.bool("return_token_ids", false),
		cacheSalt:   o.string("cache_salt"),
	}
	if o.has("cache_salt") && p.cacheSalt == "" {
		o.fail("cache_salt", "is empty")
	}
	if options := o.object("stream_options"); options != nil {
		if !p.stream {
			o.fail("stream_options", "needs stream to be true")
		}
		p.includeUsage = options.bool("include_usage", false)
		p.continuousUsage = options.bool("continuous_usage_stats", false) && p.includeUsage
		if o.err == nil {
			o.err = options.err
		}
	}
	if k := o.integer("top_k", -1, math.MaxInt32); k != nil {
		p.sampling.TopK = max(int(*k), 0) // vLLM's -1 is off, too
	}
	if n := o.integer("n", 1, maxN); n != nil {
		p.n = int(*n)
	}
	for _, field := range []string{"max_tokens", "max_completion_tokens"} { // the later one wins
		if n := o.integer(field, minMaxTokens, math.MaxInt32); n != nil {
			p.maxTokens, p.maxField = int(*n), field
		}
	}
	if n := o.integer("min_tokens", 0, math.MaxInt32); n != nil {
		p.minTokens = int(*n)
		if p.maxField != "" && p.minTokens > p.maxTokens {
			o.fail("min_tokens", "%d exceeds %s of %d", p.minTokens, p.maxField, p.maxTokens)
		}
	}
	if n := o.integer("prompt_logprobs", 0, maxLogprobs); n != nil {
		count := int(*n)
		p.promptLogprobs = &count
		if p.stream {
			o.fail("prompt_logprobs", "is not available with stream")
		}
	}
	p.stop = readStop(o)
	if v := o.take("stop_token_ids", "an array of token ids", '['); v != nil {
		p.stopTokenIDs = o.tokenIDs("stop_token_ids", v, m.Vocab)
	}
	p.sampling.LogitBias = readLogitBias(o, m.Vocab)
	return p
}

func readStop(o *object) []string {
	v := o.take("stop", "a string or an array of strings", '"', '[')
	if v == nil {
		return nil
	}
	var stop []string
	if v.Kind() == '"' {
		stop = []string{text(v)}
	} else {
		for i, s := range elements(v) {
			if i == maxStops {
				o.fail("stop", "more than %d strings", maxStops)
				return nil
			}
			if s.Kind() != '"' {
				o.fail("stop["+strconv.Itoa(i)+"]", "want a string, not %s", kindName(s.Kind()))
				return nil
			}
			stop = append(stop, text(s))
		}
	}
	if slices.Contains(stop, "") {
		o.fail("stop", "a stop string is empty")
	}
	return stop
}

func readLogitBias(o *object, vocab int) map[int32]float32 {
	bias := o.object("logit_bias")
	if bias == nil || len(bias.fields) == 0 {
		return nil
	}
	out := make(map[int32]float32, len(bias.fields))
	for key := range bias.fields {
		id, err := strconv.Atoi(key)
		if err != nil || strconv.Itoa(id) != key { // +5 and 05 would name one token twice
			o.fail("logit_bias", "%q is not a token id", shorten(key, 40))
			return nil
		}
		if id < 0 || id >= vocab {
			o.fail("logit_bias", "token id %d is not in the vocabulary, [0, %d)", id, vocab)
			return nil
		}
		out[int32(id)] = bias.number(key, -maxLogitBias, maxLogitBias, false, 0)
	}
	if o.err == nil {
		o.err = bias.err
	}
	return out
}

// budget settles max_tokens for a prompt of so many tokens. byDefault 0 means the rest of the
// context. promptField is what a too long prompt is blamed on. cut: more tokens than there is room for mean all of it.
func (p *params) budget(prompt, context, byDefault int, promptField string, cut bool) (int, error) {
	room := context - prompt
	switch {
	case cut && room > 0 && p.maxTokens > room:
		return room, nil
	case cut && room <= 0:
		e := invalid(promptField, "prompt is too long: %d tokens > %d maximum", prompt, context-1)
		e.code = "context_length_exceeded"
		return 0, e
	case p.maxField != "" && p.maxTokens > room, room < 0:
		e := invalid(promptField, "%d tokens of prompt", prompt)
		if p.maxField != "" {
			e = invalid(p.maxField, "%d exceeds the context length: with %d tokens of prompt that makes %d, and the model's context has %d",
				p.maxTokens, prompt, prompt+p.maxTokens, context)
		} else {
			e.message += " exceed the model's context length of " + strconv.Itoa(context)
		}
		e.code = "context_length_exceeded"
		return 0, e
	case p.maxField != "":
		return p.maxTokens, nil
	case room == 0:
		e := invalid(promptField, "%d tokens of prompt leave no room for an answer in the model's context length of %d", prompt, context)
		e.code = "context_length_exceeded"
		return 0, e
	case byDefault > 0:
		return min(byDefault, room), nil
	}
	return room, nil
}

// refusal is a known field that is not supported. It is harmless, so let through, with a value
// that asks for nothing.
type refusal struct {
	field    string
	harmless func(jsontext.Value) bool // nil: only null is
	why      string
}

const (
	oldTools  = "is not supported: tools and tool_choice took its place"
	noForm    = "is not supported here: response_format and structured_outputs say what an answer looks like"
	noAdapter = "adapters are not supported"
	unknown   = "is not supported"
)

// refusals of both endpoints, of chat and of completions.
var (
	refusals = []refusal{
		{"structural_tag", nil, noForm}, {"json_schema", nil, noForm}, {"regex", nil, noForm}, {"ebnf", nil, noForm},
		{"grammar", empty, noForm},
		{"best_of", literal("1"), "best_of above 1 is not supported"},
		{"use_beam_search", literal("false"), unknown},
		{"logits_processors", empty, unknown}, {"logit_processors", empty, unknown},
		{"bad_words", empty, unknown}, {"allowed_token_ids", nil, unknown},
		{"truncate_prompt_tokens", nil, "prompts are never cut"},
		{"kv_transfer_params", empty, unknown}, {"vllm_xargs", empty, unknown},
		{"lora", empty, noAdapter}, {"lora_request", empty, noAdapter}, {"lora_path", empty, noAdapter},
		{"lora_name", empty, noAdapter}, {"lora_id", empty, noAdapter}, {"lora_adapters", empty, noAdapter},
		{"adapter", empty, noAdapter}, {"adapters", empty, noAdapter}, {"adapter_id", empty, noAdapter},
		{"adapter_name", empty, noAdapter}, {"adapter_source", empty, noAdapter},
	}
	chatRefusals = []refusal{
		{"functions", empty, oldTools}, {"function_call", literal(`"none"`, `"auto"`), oldTools},
		{"modalities", literal(`["text"]`, "[]"), "only text is supported"}, {"audio", nil, "only text is supported"},
		{"prediction", nil, unknown}, {"web_search_options", nil, unknown},
		{"verbosity", literal(`"medium"`), unknown}, {"documents", empty, unknown},
		{"chat_template", nil, "the model's own template is used"},
		{"echo", literal("false"), "is not supported for chat"}, {"suffix", empty, "is not supported for chat"},
		{"thinking_token_budget", nil, unknown},
		{"mm_processor_kwargs", empty, "only text is supported"}, {"media_io_kwargs", empty, "only text is supported"},
	}
	completionRefusals = []refusal{
		{"suffix", empty, unknown},
		{"prompt_embeds", empty, unknown},
	}
)

// refuse fails on the first known but unsupported field.
func refuse(o *object, lists ...[]refusal) {
	for _, list := range lists {
		for _, r := range list {
			if v := o.fields[r.field]; v != nil && (r.harmless == nil || !r.harmless(v)) {
				o.fail(r.field, "%s", r.why)
			}
		}
	}
}

func empty(v jsontext.Value) bool { return literal(`""`, "[]", "{}")(v) }

func literal(want ...string) func(jsontext.Value) bool {
	return func(v jsontext.Value) bool {
		v = v.Clone()
		if v.Compact() != nil {
			return false
		}
		if n, ok := int64(0), false; v.Kind() == '0' {
			if n, ok = whole(v); ok {
				return slices.Contains(want, strconv.FormatInt(n, 10))
			}
		}
		return slices.Contains(want, string(v))
	}
}
