package api

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/openinfer-go/openinfer/api/apitest"
	"github.com/openinfer-go/openinfer/engine"
)

const hi = `"messages":[{"role":"user","content":"hi"}]`

func chatBody(fields string) string {
	if fields != "" {
		fields = "," + fields
	}
	return `{"model":"M",` + hi + fields + `}`
}

func TestChatWhole(t *testing.T) {
	s := serve(t, says("Grüße 🙂"), Options{})
	r := s.ok(s.post("/v1/chat/completions", chatBody("")))
	for _, want := range []struct {
		path []any
		want any
	}{
		{[]any{"object"}, "chat.completion"}, {[]any{"model"}, "M"},
		{[]any{"choices", 0, "index"}, 0.0}, {[]any{"choices", 0, "message", "role"}, "assistant"},
		{[]any{"choices", 0, "message", "content"}, "Grüße 🙂"}, {[]any{"choices", 0, "finish_reason"}, "stop"},
		{[]any{"choices", 0, "logprobs"}, nil}, {[]any{"usage", "completion_tokens"}, 13.0},
		{[]any{"usage", "prompt_tokens_details", "cached_tokens"}, 0.0},
	} {
		if got := r.at(want.path...); got != want.want {
			t.Errorf("%v is %v, want %v", want.path, got, want.want)
		}
	}
	// <|im_start|> user \n hi <|im_end|> \n <|im_start|> assistant \n
	if p, c, all := r.at("usage", "prompt_tokens"), r.at("usage", "completion_tokens").(float64), r.at("usage", "total_tokens"); p != 21.0 || all != 21+c {
		t.Errorf("usage %v", r.at("usage"))
	}
	if id := r.at("id").(string); !strings.HasPrefix(id, "chatcmpl-") {
		t.Errorf("id %q", id)
	}
}

// Streamed text equals whole text at every limit, with stop strings and without.
func TestStreamEqualsWhole(t *testing.T) {
	const text = "é🙂 x: abcx 日本"
	s := serve(t, says(text), Options{})
	for _, stop := range []string{`null`, `"abc"`, `["ab","abc"]`, `["本\nUser:"]`, `[]`} {
		for limit := 1; limit <= len(text)+2; limit++ {
			fields := fmt.Sprintf(`"max_tokens":%d,"stop":%s,"return_token_ids":true`, limit, stop)
			for _, path := range []string{"/v1/chat/completions", "/v1/completions"} {
				body := chatBody(fields)
				content := []any{"choices", 0, "message", "content"}
				if path == "/v1/completions" {
					body = `{"model":"M","prompt":"p",` + fields + `}`
					content = []any{"choices", 0, "text"}
				}
				whole := s.ok(s.post(path, body))
				parts := s.stream(s.post(path, body[:len(body)-1]+`,"stream":true}`))
				if got, want := parts.text[0], whole.at(content...); got != want {
					t.Fatalf("%s limit %d stop %s: streamed %q, whole %q", path, limit, stop, got, want)
				}
				if strings.Contains(parts.text[0], "\ufffd") || !strings.HasPrefix(text, parts.text[0]) {
					t.Fatalf("%s limit %d stop %s: %q", path, limit, stop, parts.text[0])
				}
				if got, want := parts.finish[0], whole.at("choices", 0, "finish_reason"); got != want {
					t.Fatalf("%s limit %d: finish %q, whole %q", path, limit, got, want)
				}
				if got, want := parts.ids[0], whole.at("choices", 0, "token_ids"); !reflect.DeepEqual(any(got), want) {
					t.Fatalf("%s limit %d: ids %v, whole %v", path, limit, got, want)
				}
			}
		}
	}
}

func TestStreamUsage(t *testing.T) {
	s := serve(t, answers(func(engine.Request) apitest.Answer { return apitest.Answer{Text: "abc", Cached: 16} }), Options{})
	for _, c := range []struct {
		options string
		usage   bool
	}{{"null", false}, {`{}`, false}, {`{"include_usage":false}`, false}, {`{"include_usage":true}`, true},
		{`{"continuous_usage_stats":true}`, false}} {
		got := s.stream(s.post("/v1/chat/completions", chatBody(`"stream":true,"stream_options":`+c.options)))
		if (got.usage != nil) != c.usage {
			t.Errorf("%s: usage chunk: %v", c.options, got.usage)
		}
		for i, ch := range got.chunks[:len(got.chunks)-1] {
			if ch.has("usage") {
				t.Errorf("%s: chunk %d has usage", c.options, i)
			}
		}
		if c.usage {
			if u := got.usage; u.at("usage", "completion_tokens") != 4.0 || u.at("usage", "prompt_tokens_details", "cached_tokens") != 16.0 {
				t.Errorf("usage %v", u.v)
			}
		}
	}
	got := s.stream(s.post("/v1/completions", `{"model":"M","prompt":"p","stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":true}}`))
	last := 0.0
	for i, ch := range got.chunks {
		n, ok := ch.at("usage", "completion_tokens").(float64)
		if !ok || n < last || ch.at("usage", "prompt_tokens") != 2.0 {
			t.Errorf("chunk %d: usage %v after %v", i, ch.at("usage"), last)
		}
		last = n
	}
	if last != 4 {
		t.Errorf("usage ends at %v", last)
	}
}

func TestManyChoices(t *testing.T) {
	s := serve(t, says("üb"), Options{})
	fields := `"n":3,"temperature":1,"seed":7,"max_tokens":8`
	whole := s.ok(s.post("/v1/chat/completions", chatBody(fields)))
	got := s.stream(s.post("/v1/chat/completions", chatBody(fields+`,"stream":true,"stream_options":{"include_usage":true}`)))
	for i := range 3 {
		if whole.at("choices", i, "index") != float64(i) || whole.at("choices", i, "message", "content") != "üb" {
			t.Errorf("choice %d: %v", i, whole.at("choices", i))
		}
		if got.text[i] != "üb" || got.finish[i] != "stop" {
			t.Errorf("streamed choice %d: %q %q", i, got.text[i], got.finish[i])
		}
	}
	for _, u := range []tree{whole, *got.usage} {
		if u.at("usage", "completion_tokens") != 12.0 || u.at("usage", "prompt_tokens") != 21.0 || u.at("usage", "total_tokens") != 33.0 {
			t.Errorf("usage %v", u.at("usage"))
		}
	}
}

func TestChatLogprobs(t *testing.T) {
	for _, infinite := range []bool{false, true} {
		s := serve(t, answers(func(engine.Request) apitest.Answer {
			return apitest.Answer{Text: "aé!", Infinite: infinite}
		}), Options{})
		fields := `"logprobs":true,"top_logprobs":2,"return_token_ids":true`
		whole := s.ok(s.post("/v1/chat/completions", chatBody(fields)))
		list := whole.at("choices", 0, "logprobs", "content").([]any)
		ids := whole.at("choices", 0, "token_ids").([]any)
		if len(list) != 5 || len(ids) != 5 { // a, two halves of é, !, end
			t.Fatalf("%d entries, %d ids", len(list), len(ids))
		}
		if n := len(whole.at("prompt_token_ids").([]any)); n != 21 {
			t.Errorf("%d prompt ids", n)
		}
		for i := range 4 {
			e := tree{list[i]}
			if e.at("bytes", 0) != ids[i] || len(e.at("top_logprobs").([]any)) != 2 || e.at("top_logprobs", 0, "bytes", 0) != ids[i] {
				t.Errorf("entry %d: %v", i, e.v)
			}
			if lp, ok := e.at("logprob").(float64); !ok || lp > 0 || lp < minLogprob {
				t.Errorf("entry %d: %v", i, e.v)
			}
		}
		if infinite && list[1].(map[string]any)["logprob"] != -9999.0 {
			t.Errorf("minus infinity is %v", list[1])
		}
		if s := list[1].(map[string]any)["token"]; s != "\ufffd" {
			t.Errorf("half a character is %q", s)
		}
		var streamedEntries []any
		for _, c := range s.stream(s.post("/v1/chat/completions", chatBody(fields+`,"stream":true`))).chunks {
			if l, ok := c.at("choices", 0, "logprobs", "content").([]any); ok {
				streamedEntries = append(streamedEntries, l...)
			}
		}
		if !reflect.DeepEqual(streamedEntries, list) {
			t.Errorf("streamed %v\nwhole %v", streamedEntries, list)
		}
	}
	s := serve(t, says("x"), Options{})
	r := s.ok(s.post("/v1/chat/completions", chatBody(`"logprobs":true`)))
	if l := r.at("choices", 0, "logprobs", "content", 0, "top_logprobs").([]any); len(l) != 0 {
		t.Errorf("top_logprobs nobody asked for: %v", l)
	}
}

func TestPromptLogprobs(t *testing.T) {
	s := serve(t, says("x"), Options{})
	r := s.ok(s.post("/v1/completions", `{"model":"M","prompt":"ab","prompt_logprobs":1}`))
	list := r.at("choices", 0, "prompt_logprobs").([]any)
	if len(list) != 3 || list[0] != nil { // begin of text, a, b
		t.Fatalf("%v", list)
	}
	if e := (tree{list[1]}); e.at("97", "decoded_token") != "a" || e.at("97", "rank") != 1.0 {
		t.Errorf("%v", list[1])
	}
	r = s.ok(s.post("/v1/chat/completions", chatBody(`"prompt_logprobs":0`)))
	if list := r.at("prompt_logprobs").([]any); len(list) != 21 || list[0] != nil || list[1] == nil {
		t.Errorf("%v", list)
	}
}

// What a request says reaches the engine, and what it does not say is the checkpoint's default.
func TestChatParameters(t *testing.T) {
	gen := says("x")
	s := serve(t, gen, Options{})
	s.ok(s.post("/v1/chat/completions", chatBody(
		`"temperature":0.5,"top_p":0.9,"top_k":40,"min_p":0.1,"presence_penalty":1,"frequency_penalty":-1,"repetition_penalty":1.1,`+
			`"logit_bias":{"65":-100,"66":2.5},"seed":16.0,"stop":["A","B"],"n":2,"max_tokens":50,"max_completion_tokens":5,"min_tokens":2,`+
			`"ignore_eos":true,"stop_token_ids":[5,6],"cache_salt":"s","skip_special_tokens":false,"include_stop_str_in_output":true,`+
			`"user":"u","N":5,"temperatur":9,"metadata":{"a":1}`)))
	s.ok(s.post("/v1/chat/completions", chatBody(`"temperature":null,"max_tokens":null,"seed":null,"top_k":-1`)))
	s.ok(s.post("/v1/completions", `{"model":"M","prompt":"p"}`))
	r := gen.Requests()
	seed := int64(16)
	want := engine.Request{ID: r[0].ID, Model: "M", Prompt: r[0].Prompt, N: 2, MaxTokens: 5, MinTokens: 2, Stop: []string{"A", "B"},
		Sampling: engine.SamplingParams{Temperature: .5, TopP: .9, TopK: 40, MinP: .1, PresencePenalty: 1, FrequencyPenalty: -1,
			RepetitionPenalty: 1.1, LogitBias: map[int32]float32{65: -100, 66: 2.5}, Seed: &seed},
		IncludeStop: true, StopTokenIDs: []int32{5, 6}, IgnoreEOS: true, KeepSpecial: true, CacheSalt: "s", Key: r[0].Key}
	if !reflect.DeepEqual(r[0], want) {
		t.Errorf("got  %+v\nwant %+v", r[0], want)
	}
	if k := r[0].Key; k == "" || k == "u" || r[1].Key != "" {
		t.Errorf("whose requests they are: %q and %q, want a hash and nobody's", k, r[1].Key)
	}
	want = engine.Request{ID: r[1].ID, Model: "M", Prompt: r[1].Prompt, N: 1, MaxTokens: 4096 - 21,
		Sampling: engine.SamplingParams{Temperature: 1, TopP: 1, RepetitionPenalty: 1}}
	if !reflect.DeepEqual(r[1], want) {
		t.Errorf("got  %+v\nwant %+v", r[1], want)
	}
	if r[2].MaxTokens != 16 {
		t.Errorf("a completion may have %d tokens", r[2].MaxTokens)
	}
}

func TestMessages(t *testing.T) {
	gen := says("x")
	s := serve(t, gen, Options{})
	const user = `{"role":"user","content":"u"}`
	for _, c := range []struct{ messages, param, prompt string }{
		{`[{"role":"user","content":[{"type":"text","text":"one "},{"type":"text","text":"two"}]}]`, "", "user\none two"},
		{`[` + user + `,{"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"1","content":"r"}]`, "", "tool\nr"},
		{`[{"role":"user","content":""}]`, "", "user\n"},
		{`[]`, "messages", ""},
		{`null`, "messages", ""},
		{`{}`, "messages", ""},
		{`"hi"`, "messages", ""},
		{`[` + user + `,7]`, "messages[1]", ""},
		{`[null]`, "messages[0]", ""},
		{`[{}]`, "messages[0].role", ""},
		{`[` + user + `,{"role":"boss","content":"x"}]`, "messages[1].role", ""},
		{`[{"role":5,"content":"x"}]`, "messages[0].role", ""},
		{`[{"role":"user"}]`, "messages[0].content", ""},
		{`[{"role":"user","content":null}]`, "messages[0].content", ""},
		{`[{"role":"assistant","content":null}]`, "messages[0].content", ""},
		{`[{"role":"user","content":5}]`, "messages[0].content", ""},
		{`[{"role":"user","content":{"type":"text","text":"x"}}]`, "messages[0].content", ""},
		{`[{"role":"user","content":[]}]`, "messages[0].content", ""},
		{`[{"role":"user","content":["x"]}]`, "messages[0].content[0]", ""},
		{`[{"role":"user","content":[{"type":"text","text":"x"},{"type":"image_url","image_url":{"url":"u"}}]}]`, "messages[0].content[1].type", ""},
		{`[{"role":"user","content":[{"type":"input_audio","input_audio":{}}]}]`, "messages[0].content[0].type", ""},
		{`[{"role":"user","content":[{"type":"text"}]}]`, "messages[0].content[0].text", ""},
		{`[{"role":"user","content":[{"type":"text","text":7}]}]`, "messages[0].content[0].text", ""},
		{`[{"role":"user","content":[{"text":"x"}]}]`, "messages[0].content[0].type", ""},
		{`[{"role":"assistant","content":null,"tool_calls":[{"function":{"name":"f","arguments":"{"}}]}]`, "messages[0].tool_calls[0].function.arguments", ""},
		{`[{"role":"assistant","content":null,"tool_calls":[{"id":"1"}]}]`, "messages[0].tool_calls[0].function", ""},
		{`[{"role":"assistant","tool_calls":[{"function":{"arguments":"{}"}}]}]`, "messages[0].tool_calls[0].function.name", ""},
		{`[{"role":"user","content":"x","tool_calls":[{"function":{"name":"f"}}]}]`, "messages[0].tool_calls", ""},
		{`[` + user + `,{"role":"system","content":"x"}]`, "messages", ""}, // the template's own rule
	} {
		for _, stream := range []string{"false", "true"} {
			before := len(gen.Requests())
			a := s.post("/v1/chat/completions", `{"model":"M","messages":`+c.messages+`,"stream":`+stream+`}`)
			if c.param != "" {
				if msg := s.refused(a, 400, c.param); !strings.Contains(msg, c.param) {
					t.Errorf("%s: %s", c.messages, msg)
				}
				if len(gen.Requests()) != before {
					t.Errorf("%s reached the engine", c.messages)
				}
				continue
			}
			if a.status != 200 {
				t.Errorf("%s: %d %s", c.messages, a.status, a.body)
				continue
			}
			text, _ := gen.Detokenize("M", gen.Requests()[before].Prompt)
			if !strings.Contains(text, c.prompt+"<|im_end|>") {
				t.Errorf("%s: prompt %q", c.messages, text)
			}
		}
	}
}

func TestReasoningEffortReachesTheTemplate(t *testing.T) {
	for _, c := range []struct{ kwargs, want string }{
		{``, `{"reasoning_effort":"low"}`}, {`{}`, `{"reasoning_effort":"low"}`}, {`{ }`, `{"reasoning_effort":"low"}`},
		{`{"a":1}`, `{"reasoning_effort":"low","a":1}`}, {`{"reasoning_effort":"x"}`, `{"reasoning_effort":"x"}`},
	} {
		fields := hi + `,"reasoning_effort":"low"`
		if c.kwargs != "" {
			fields += `,"chat_template_kwargs":` + c.kwargs
		}
		o, err := parseObject([]byte(`{` + fields + `}`))
		if err != nil {
			t.Fatal(err)
		}
		if p, _ := readChatPrompt(o); string(p.Kwargs) != c.want || o.err != nil {
			t.Errorf("%s: %s (%v), want %s", c.kwargs, p.Kwargs, o.err, c.want)
		}
	}
}
