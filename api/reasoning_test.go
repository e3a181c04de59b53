package api

import (
	"context"
	"fmt"
	"iter"
	"reflect"
	"strings"
	"testing"

	"github.com/openinfer-go/openinfer/api/apitest"
	"github.com/openinfer-go/openinfer/engine"
)

// thinks is a generator whose model reasons: with marks that are tokens, or that it spells out.
func thinks(text string, opens, spelled bool) *apitest.Generator {
	gen := says(text)
	gen.Opens = opens
	gen.Reasoning = engine.Reasoning{Parser: "qwen3", Open: "<think>", Close: "</think>", Marks: []int32{apitest.Think, apitest.EndThink}}
	if spelled {
		gen.Reasoning.Marks = nil
	}
	return gen
}

// deltas joins the reasoning of a stream; its content is in text. A chunk has one of the two.
func (x streamed) reasoning(t *testing.T, index int) string {
	t.Helper()
	joined := ""
	for _, c := range x.chunks {
		d, ok := c.at("choices", 0, "delta").(map[string]any)
		if !ok || c.at("choices", 0, "index") != float64(index) {
			continue
		}
		if r, ok := d["reasoning_content"].(string); ok {
			joined += r
			if _, both := d["content"]; both {
				t.Errorf("a delta with both: %v", d)
			}
		}
	}
	return joined
}

func TestReasoning(t *testing.T) {
	for _, c := range []struct {
		name               string
		opens              bool
		answer, fields     string
		reasoning, content string
		finish             string
		tokens, spelled    int // of reasoning, with marks that are tokens and with spelled ones
	}{
		{"the model opens", false, "<think>\nhmé\n</think>\n\nHello é", "", "hmé", "Hello é", "stop", 8, 21},
		{"the template opens", true, "hm\n</think>\n\nHello", "", "hm", "Hello", "stop", 4, 11},
		{"never closed", true, "hm, hm", "", "hm, hm", "", "stop", 7, 7}, // with the end token
		{"cut inside", true, "hm, hm</think>Hello", `,"max_tokens":4`, "hm,", "", "length", 4, 4},
		{"closed twice", true, "hm</think>\n</think>Hello", "", "hm", "Hello", "stop", 3, 10},
		{"no reasoning", false, "Hello", "", "", "Hello", "stop", 0, 0},
		{"thinking off", true, "\n<b>Hello", `,"chat_template_kwargs":{"enable_thinking":false}`, "", "\n<b>Hello", "stop", 0, 0},
		{"a stop string in reasoning", true, "hm, so</think>Hello", `,"stop":["so"]`, "hm,", "", "stop", 5, 5},
		{"a stop string in content", true, "hm</think>Hello", `,"stop":["lo"]`, "hm", "Hel", "stop", 3, 10},
		{"the closing mark as a stop string", true, "hm</think>Hello", `,"stop":["</think>"]`, "hm", "", "stop", 3, 3},
		{"not shown", true, "hm</think>Hello", `,"include_reasoning":false`, "", "Hello", "stop", 3, 10},
	} {
		for _, spelled := range []bool{false, true} {
			for _, more := range []string{"", `,"logprobs":true,"return_token_ids":true`} {
				name := fmt.Sprintf("%s, spelled %v%s", c.name, spelled, more)
				gen := thinks(c.answer, c.opens, spelled)
				s := serve(t, gen, Options{})
				fields := `"n":2` + c.fields + more
				want := c.tokens * 2
				if spelled {
					want = c.spelled * 2
				}
				r := s.ok(s.post("/v1/chat/completions", chatBody(fields)))
				for i := range 2 {
					var wantReasoning any
					if c.reasoning != "" {
						wantReasoning = c.reasoning
					}
					m := r.at("choices", i, "message").(map[string]any)
					if m["reasoning_content"] != wantReasoning || m["content"] != c.content || r.at("choices", i, "finish_reason") != c.finish {
						t.Errorf("%s: %v, %v", name, m, r.at("choices", i, "finish_reason"))
					}
				}
				if n := r.at("usage", "completion_tokens_details", "reasoning_tokens"); n != float64(want) {
					t.Errorf("%s: %v reasoning tokens, want %d", name, n, want)
				}
				x := s.stream(s.post("/v1/chat/completions", chatBody(fields+`,"stream":true,"stream_options":{"include_usage":true}`)))
				for i := range 2 {
					if got := x.reasoning(t, i); got != c.reasoning || x.text[i] != c.content || x.finish[i] != c.finish {
						t.Errorf("%s, streamed: %q, %q, %q", name, got, x.text[i], x.finish[i])
					}
					if ids, _ := r.at("choices", i, "token_ids").([]any); !reflect.DeepEqual(x.ids[i], ids) {
						t.Errorf("%s: streamed ids %v, whole %v", name, x.ids[i], ids)
					}
				}
				if !reflect.DeepEqual(x.usage.at("usage"), r.at("usage")) {
					t.Errorf("%s: streamed usage %v, whole %v", name, x.usage.at("usage"), r.at("usage"))
				}
				if more == "" {
					continue
				}
				for i := range 2 {
					var entries []any
					for _, chunk := range x.chunks {
						if l, ok := chunk.at("choices", 0, "logprobs", "content").([]any); ok && chunk.at("choices", 0, "index") == float64(i) {
							entries = append(entries, l...)
						}
					}
					if !reflect.DeepEqual(entries, r.at("choices", i, "logprobs", "content")) {
						t.Errorf("%s: streamed log probabilities differ from the whole ones", name)
					}
				}
			}
		}
	}
}

// A model that does not reason is left alone, and so are completions of one that does.
func TestNoReasoning(t *testing.T) {
	const answer = "<think>hm</think>Hello"
	s := serve(t, says(answer), Options{})
	r := s.ok(s.post("/v1/chat/completions", chatBody("")))
	if r.at("choices", 0, "message", "content") != answer || r.at("usage").(map[string]any)["completion_tokens_details"] != nil {
		t.Errorf("%v", r.v)
	}
	gen := thinks(answer, true, false)
	s = serve(t, gen, Options{})
	r = s.ok(s.post("/v1/completions", `{"model":"M","prompt":"p","max_tokens":99}`))
	if r.at("choices", 0, "text") != answer || len(gen.Requests()[0].Marks) != 0 {
		t.Errorf("%v, marks %v", r.v, gen.Requests()[0].Marks)
	}
}

// Characters that spell a mark are text where the mark is a token.
func TestSpelledOutMarkIsText(t *testing.T) {
	s := serve(t, spelling{thinks("What </think> means", true, false)}, Options{})
	r := s.ok(s.post("/v1/chat/completions", chatBody("")))
	if got := r.at("choices", 0, "message", "reasoning_content"); got != "What </think> means" {
		t.Errorf("%v", r.v)
	}
}

// spelling is a generator whose model writes no mark as one token.
type spelling struct{ *apitest.Generator }

func (s spelling) Generate(ctx context.Context, r engine.Request) (iter.Seq[engine.Event], error) {
	r.Marks = nil
	return s.Generator.Generate(ctx, r)
}

func TestReasoningHasNoMarkHoweverItEnds(t *testing.T) {
	const answer = "<think>hm</think>Hello</think>!"
	for n := 1; n <= len(answer); n++ {
		s := serve(t, thinks(answer, false, true), Options{})
		r := s.ok(s.post("/v1/chat/completions", chatBody(fmt.Sprintf(`"max_tokens":%d`, n))))
		reasoning, _ := r.at("choices", 0, "message", "reasoning_content").(string)
		content := r.at("choices", 0, "message", "content").(string)
		if !strings.HasPrefix("hm", reasoning) || !strings.HasPrefix("Hello!", strings.TrimSuffix(content, "<")) {
			t.Errorf("%d tokens: %q and %q", n, reasoning, content)
		}
	}
}
