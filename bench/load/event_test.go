package load

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"
)

// FuzzEvent holds the parser of the hot path to encoding/json on what is JSON, and to not failing on what is none.
func FuzzEvent(f *testing.F) {
	for _, s := range []string{
		`{"id":"c","choices":[{"index":0,"delta":{"role":"assistant","content":"a \"usage\":{} \\"},"finish_reason":null}]}`,
		`{"choices": [{"text": "x\u00e9", "logprobs": {"content": [1, 2], "text": "no"}, "finish_reason": "stop"}], "usage": {"prompt_tokens": 12, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 8}}}`,
		`{"choices":[],"usage":{"prompt_tokens":1,"total_tokens":4,"completion_tokens":3}}`,
		`{"choices":[{"delta":{"reasoning_content":"hm","content":null}}],"usage":null}`,
		`{"choices":[{"delta":{"reasoning":"hm"}},{"delta":{"tool_calls":[{"function":{"arguments":"{\"text\":1}"}}]}}]}`,
		`{"choices":[{"delta":{"tool_calls":[]}}]}`,
		`{"error":{"message":"x","code":500}}`, `{"error":null,"choices":[{}]}`, `{"\u0063hoices":[{"text":"a"}]}`,
		`[1]`, `{`, `{"choices":[{"text":"a}]}`, `{"choices":{"text":"a"}}`, `{"usage":3}`, "", `{"a":` + strings.Repeat("[", 200), `{"choices":[{"text":"\`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		e := event{keep: true}
		err := e.parse(data)
		var want struct {
			Choices *[]struct {
				Text  string
				Delta struct {
					Content, Reasoning string
					ReasoningContent   string `json:"reasoning_content"`
					Calls              []any  `json:"tool_calls"`
				}
				Finish string `json:"finish_reason"`
			}
			Usage *struct {
				Prompt     int `json:"prompt_tokens"`
				Completion int `json:"completion_tokens"`
			}
			Error json.RawMessage
		}
		// Names that come twice, differ in case, or stand for other types are read differently, which no server needs.
		if json.Unmarshal(data, &want) != nil || !plain(data) {
			return
		}
		if err != nil {
			t.Fatalf("%s: %v", data, err)
		}
		output, finish, text := false, "", ""
		if want.Choices != nil {
			for _, c := range *want.Choices {
				output = output || c.Text+c.Delta.Content+c.Delta.Reasoning+c.Delta.ReasoningContent != "" || len(c.Delta.Calls) > 0
				if c.Finish != "" {
					finish = c.Finish
				}
				text += c.Text + c.Delta.Content
			}
		}
		if e.output != output || e.choices != (want.Choices != nil && len(*want.Choices) > 0) || (e.usage != (want.Usage != nil)) ||
			len(text) != len(e.text) && !strings.Contains(string(data), `\`) {
			t.Fatalf("%s: %+v, text %q; want output %v, text %q", data, e, e.text, output, text)
		}
		if want.Usage != nil && (e.prompt != want.Usage.Prompt || e.completion != want.Usage.Completion) {
			t.Fatalf("%s: usage %d, %d", data, e.prompt, e.completion)
		}
		if !strings.Contains(finish, `\`) && !strings.Contains(string(data), `\`) && e.finish != finish {
			t.Fatalf("%s: finish %q, want %q", data, e.finish, finish)
		}
		if (e.err != nil) != (want.Error != nil && string(want.Error) != "null") {
			t.Fatalf("%s: error %s", data, e.err)
		}
	})
}

// plain says that no object of data has a name twice, but for case, and every name that matters is spelled as it should be.
func plain(data []byte) bool {
	p := parser{b: data}
	ok := true
	var value func() bool
	value = func() bool {
		switch p.peek() {
		case '{':
			var names []string
			return p.object(func(key []byte) bool {
				name := strings.ToLower(string(key))
				if slices.Contains(names, name) || strings.ToLower(name) != string(key) || strings.ContainsFunc(name, func(c rune) bool { return c > 127 }) || name == "message" {
					ok = false
				}
				names = append(names, name)
				return value()
			})
		case '[':
			return p.array(value)
		}
		return p.skip()
	}
	return value() && ok
}

// BenchmarkEvent is what a chunk costs to understand.
func BenchmarkEvent(b *testing.B) {
	data := []byte(`{"id":"cmpl-yebdwm3ssdf6yx73b4ze3tuua6","object":"text_completion","created":1700000000,"model":"m","system_fingerprint":"fp","choices":[{"index":0,"text":" word","logprobs":null,"finish_reason":null,"stop_reason":null}],"usage":{"prompt_tokens":12,"total_tokens":20,"completion_tokens":8,"prompt_tokens_details":{"cached_tokens":0}}}`)
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	var e event
	for b.Loop() {
		if e.parse(data) != nil || !e.output || e.completion != 8 {
			b.Fatal(e)
		}
	}
}

func TestRetryAfterIsSecondsOrADate(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for s, want := range map[string]time.Duration{"": 0, "3": 3 * time.Second, "-1": 0, "soon": 0, "Fri, 02 Jan 2026 03:04:15 GMT": 10 * time.Second, "Fri, 02 Jan 2026 03:04:00 GMT": 0} {
		if got := retryAfter(s, now); got != want {
			t.Errorf("%q: %v, want %v", s, got, want)
		}
	}
}
