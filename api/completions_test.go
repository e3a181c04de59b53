package api

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/openinfer-go/openinfer/api/apitest"
	"github.com/openinfer-go/openinfer/engine"
)

func TestCompletionPrompts(t *testing.T) {
	gen := answers(func(r engine.Request) apitest.Answer {
		return apitest.Answer{Text: fmt.Sprintf("<%d>", r.Prompt[len(r.Prompt)-1])}
	})
	s := serve(t, gen, Options{})
	for _, c := range []struct {
		prompt string
		texts  []string
	}{
		{`"a"`, []string{"<97>"}},
		{`["a","b"]`, []string{"<97>", "<98>"}},
		{`[1,2.0,3]`, []string{"<3>"}},
		{`[[1,2],[3]]`, []string{"<2>", "<3>"}},
	} {
		body := `{"model":"M","n":2,"stream_options":null,"prompt":` + c.prompt
		whole := s.ok(s.post("/v1/completions", body+`}`))
		parts := s.stream(s.post("/v1/completions", body+`,"stream":true}`))
		if n := len(whole.at("choices").([]any)); n != 2*len(c.texts) || len(parts.text) != n {
			t.Errorf("%s: %d choices, %d streamed", c.prompt, n, len(parts.text))
		}
		for i := range 2 * len(c.texts) {
			if got := whole.at("choices", i, "text"); got != c.texts[i/2] || parts.text[i] != got || whole.at("choices", i, "index") != float64(i) {
				t.Errorf("%s choice %d: %q, streamed %q, want %q", c.prompt, i, got, parts.text[i], c.texts[i/2])
			}
		}
		var prompts int
		for _, r := range gen.Requests()[len(gen.Requests())-len(c.texts):] {
			prompts += len(r.Prompt)
		}
		if got := whole.at("usage", "prompt_tokens"); got != float64(prompts) {
			t.Errorf("%s: %v prompt tokens, want %d", c.prompt, got, prompts)
		}
	}
	seen := map[string]bool{}
	for _, r := range gen.Requests() {
		if seen[r.ID] {
			t.Errorf("two requests called %s", r.ID)
		}
		seen[r.ID] = true
	}
}

func TestEcho(t *testing.T) {
	gen := says("xy")
	s := serve(t, gen, Options{})
	for _, c := range []struct{ prompt, fields, want string }{
		{`"Q: é"`, `"echo":true`, "Q: éxy"},
		{`"Q"`, `"echo":true,"n":2`, "Qxy"},
		{`[72,105]`, `"echo":true`, "Hixy"},
		{`[256,72,105]`, `"echo":true,"logprobs":0`, "<s>Hixy"},
		{`"Q: 2+2? A: 4"`, `"echo":true,"max_tokens":0,"logprobs":1`, "Q: 2+2? A: 4"},
		{`["Q","R"]`, `"echo":true,"max_tokens":0,"n":2`, "Q"},
		{`"Q"`, `"echo":true,"max_tokens":1,"logprobs":1,"n":3`, "Qx"},
	} {
		body := `{"model":"M","prompt":` + c.prompt + `,` + c.fields
		whole := s.ok(s.post("/v1/completions", body+`}`))
		parts := s.stream(s.post("/v1/completions", body+`,"stream":true,"stream_options":{"include_usage":true}}`))
		if got := whole.at("choices", 0, "text"); got != c.want || parts.text[0] != c.want {
			t.Errorf("%s %s: %q, streamed %q, want %q", c.prompt, c.fields, got, parts.text[0], c.want)
		}
		if !reflect.DeepEqual(whole.at("usage"), parts.usage.at("usage")) {
			t.Errorf("%s %s: usage %v, streamed %v", c.prompt, c.fields, whole.at("usage"), parts.usage.at("usage"))
		}
		joined := map[int]map[string][]any{}
		for _, ch := range parts.chunks {
			l, ok := ch.at("choices", 0, "logprobs").(map[string]any)
			if !ok {
				continue
			}
			i := int(ch.at("choices", 0, "index").(float64))
			if joined[i] == nil {
				joined[i] = map[string][]any{}
			}
			for k, v := range l {
				joined[i][k] = append(joined[i][k], v.([]any)...)
			}
		}
		for i := range whole.at("choices").([]any) {
			l, ok := whole.at("choices", i, "logprobs").(map[string]any)
			if ok != strings.Contains(c.fields, "logprobs") {
				t.Errorf("%s %s: logprobs %v", c.prompt, c.fields, l)
			}
			for k, v := range l {
				if !reflect.DeepEqual(v, any(joined[i][k])) {
					t.Errorf("%s %s: choice %d %s %v\nstreamed %v", c.prompt, c.fields, i, k, v, joined[i][k])
				}
			}
		}
	}
	r := s.ok(s.post("/v1/completions", `{"model":"M","prompt":"Q: 2+2? A: 4","max_tokens":0,"echo":true,"logprobs":1}`))
	lists := r.at("choices", 0, "logprobs").(map[string]any)
	for k, v := range lists {
		if len(v.([]any)) != 13 { // begin of text and 12 bytes
			t.Errorf("%s has %d entries", k, len(v.([]any)))
		}
	}
	if first, second := r.at("choices", 0, "logprobs", "token_logprobs", 0), r.at("choices", 0, "logprobs", "token_logprobs", 1); first != nil || second == nil {
		t.Errorf("token_logprobs begin with %v, %v", first, second)
	}
	if u := r.at("usage"); r.at("usage", "completion_tokens") != 0.0 || r.at("choices", 0, "finish_reason") != "length" {
		t.Errorf("usage %v", u)
	}
	s.refused(s.post("/v1/completions", `{"model":"M","prompt":"Q","max_tokens":0}`), 400, "max_tokens")
}

func TestLegacyLogprobs(t *testing.T) {
	const text = "aé🙂b c"
	s := serve(t, says(text), Options{})
	r := s.ok(s.post("/v1/completions", `{"model":"M","prompt":"p","logprobs":2,"return_token_ids":true,"max_tokens":50}`))
	tokens := r.at("choices", 0, "logprobs", "tokens").([]any)
	offsets := r.at("choices", 0, "logprobs", "text_offset").([]any)
	ids := r.at("choices", 0, "token_ids").([]any)
	if len(tokens) != len(text)+1 || len(offsets) != len(tokens) || len(ids) != len(tokens) {
		t.Fatalf("%d tokens, %d offsets, %d ids", len(tokens), len(offsets), len(ids))
	}
	chars := []rune(text)
	for i := range len(text) {
		at := int(offsets[i].(float64))
		if want := utf8.RuneCountInString(text[:i+1]); want-1 != at && utf8.FullRuneInString(text[i:]) && utf8.RuneStart(text[i]) {
			t.Errorf("token %d at %d, want %d", i, at, want-1)
		}
		if tok := tokens[i].(string); len(tok) == 1 && tok != string(chars[at]) {
			t.Errorf("token %d is %q, the text has %q there", i, tok, chars[at])
		}
	}
	if got := tokens[1]; got != `bytes:\xc3` {
		t.Errorf("half a character is %q", got)
	}
	if got, want := offsets[len(text)], float64(len(chars)); got != want || tokens[len(text)] != "<|im_end|>" {
		t.Errorf("the end token %q is at %v, want %v", tokens[len(text)], got, want)
	}
	top := r.at("choices", 0, "logprobs", "top_logprobs", 0).(map[string]any)
	if len(top) != 2 || top["a"] == nil || top["b"] == nil {
		t.Errorf("top_logprobs %v", top)
	}
}

func TestTextCursor(t *testing.T) {
	for _, c := range []struct {
		piece   string
		tokens  []string
		offsets []int
	}{
		{"ab cd", []string{"ab", " c", "d"}, []int{0, 2, 4}},
		{"Hi", []string{"<s>", " H", "i", "</s>"}, []int{0, 0, 1, 2}},    // hidden control tokens, dropped space
		{"é!", []string{"\xc3", "\xa9", "!"}, []int{0, 0, 1}},            // split character
		{"\ufffdz", []string{"\xc3", "z"}, []int{0, 1}},                  // half a character shown as U+FFFD
		{"abc", []string{"ab", "cSTOP", "x"}, []int{0, 2, 3}},            // cut inside a token
		{"日本", []string{"日", "\xe6\x9c", "\xac", ""}, []int{0, 1, 1, 2}}, // bytes
	} {
		var at textCursor
		at.next("..") // what came before
		at.next(c.piece)
		for i, tok := range c.tokens {
			if got := at.offset(); got != c.offsets[i]+2 {
				t.Errorf("%q token %d %q: offset %d, want %d", c.piece, i, tok, got, c.offsets[i]+2)
			}
			at.pass([]byte(tok))
		}
	}
}

func TestTokenize(t *testing.T) {
	s := serve(t, says(""), Options{})
	r := s.ok(s.post("/tokenize", `{"model":"M","prompt":"hé","return_token_strs":true}`))
	if r.at("count") != 4.0 || r.at("max_model_len") != 4096.0 || r.at("tokens", 0) != 256.0 || r.at("tokens", 1) != 104.0 || r.at("token_strs", 0) != "<s>" {
		t.Errorf("%v", r.v)
	}
	r = s.ok(s.post("/tokenize", `{"model":"M","prompt":"","add_special_tokens":false}`))
	if tokens, ok := r.at("tokens").([]any); r.at("count") != 0.0 || !ok || len(tokens) != 0 || r.has("token_strs") {
		t.Errorf("%v", r.v)
	}
	for _, c := range []struct {
		fields string
		count  float64
	}{{``, 21}, {`,"add_generation_prompt":false`, 10}, {`,"continue_final_message":true`, 8}} {
		r = s.ok(s.post("/tokenize", `{"model":"M",`+hi+c.fields+`}`))
		if r.at("count") != c.count {
			t.Errorf("%s: %v", c.fields, r.at("count"))
		}
	}
	r = s.ok(s.post("/detokenize", `{"model":"M","tokens":[256,104,195,169]}`))
	if r.at("prompt") != "<s>hé" {
		t.Errorf("%v", r.v)
	}
	s.refused(s.post("/detokenize", `{"model":"M","tokens":[300]}`), 400, "tokens[0]")
	s.refused(s.post("/detokenize", `{"model":"M"}`), 400, "tokens")
	s.refused(s.post("/tokenize", `{"model":"M"}`), 400, "prompt")
	s.refused(s.post("/tokenize", `{"prompt":"x"}`), 400, "model")
	s.refused(s.post("/tokenize", `{"model":"nobody","prompt":"x"}`), 404, "model")
	one := serve(t, &apitest.Generator{Names: []string{"only"}}, Options{})
	if r := one.ok(one.post("/tokenize", `{"prompt":"x"}`)); r.at("count") != 2.0 {
		t.Errorf("%v", r.v)
	}
}
