package answers

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"

	"github.com/openinfer-go/openinfer/api"
	"github.com/openinfer-go/openinfer/api/apitest"
	"github.com/openinfer-go/openinfer/engine"
)

// got is an answer as a client has it.
type got struct {
	content, reasoning, finish string
	calls                      []gotCall
}

type gotCall struct{ name, args string }

// message is what chat replies and the deltas of their streams have.
type message struct {
	Content   *string `json:"content"`
	Reasoning *string `json:"reasoning_content"`
	Calls     []struct {
		Index    int    `json:"index"`
		ID       string `json:"id"`
		Type     string `json:"type"`
		Function struct {
			Name      string `json:"name"`
			Arguments string `json:"arguments"`
		} `json:"function"`
	} `json:"tool_calls"`
}

type reply struct {
	Choices []struct {
		Message message `json:"message"`
		Delta   message `json:"delta"`
		Finish  *string `json:"finish_reason"`
	} `json:"choices"`
}

// session asks one server for one answer in every way.
type session struct {
	t      *testing.T
	gen    *replay
	server *httptest.Server
	what   string
}

func (s *session) post(path, body string) string {
	s.t.Helper()
	resp, err := s.server.Client().Post(s.server.URL+path, "application/json", strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != 200 {
		s.t.Fatalf("%s: %s: %d %s, %v", s.what, path, resp.StatusCode, text, err)
	}
	return string(text)
}

func body(limit int, stream bool) string {
	return fmt.Sprintf(`{"model":"M","messages":[{"role":"user","content":"hi"}],"tools":%s,"max_tokens":%d,"stream":%t}`, toolsJSON, limit, stream)
}

// whole asks for an answer that is not a stream.
func (s *session) whole(limit int) got {
	s.t.Helper()
	text := s.post("/v1/chat/completions", body(limit, false))
	var r reply
	if err := json.Unmarshal([]byte(text), &r); err != nil || len(r.Choices) != 1 || r.Choices[0].Finish == nil {
		s.t.Fatalf("%s: %v in %s", s.what, err, text)
	}
	m, g := r.Choices[0].Message, got{finish: *r.Choices[0].Finish}
	if m.Content != nil {
		g.content = *m.Content
	}
	if m.Reasoning != nil {
		g.reasoning = *m.Reasoning
	}
	for _, c := range m.Calls {
		g.calls = append(g.calls, gotCall{c.Function.Name, c.Function.Arguments})
	}
	return g
}

// streamed asks for the same as a stream, and holds it to what clients rely on: a call has its id and name once, before its arguments, calls are
// counted, nothing is empty, and one chunk ends the answer.
func (s *session) streamed(limit int) got {
	s.t.Helper()
	var g got
	ids := map[string]bool{}
	text := s.post("/v1/chat/completions", body(limit, true))
	for line := range strings.Lines(text) {
		data, ok := strings.CutPrefix(strings.TrimSpace(line), "data: ")
		if !ok || data == "[DONE]" {
			continue
		}
		var r reply
		if err := json.Unmarshal([]byte(data), &r); err != nil || len(r.Choices) != 1 {
			s.t.Fatalf("%s: %v in %s", s.what, err, data)
		}
		if g.finish != "" {
			s.t.Fatalf("%s: a chunk behind the end: %s", s.what, data)
		}
		d := r.Choices[0].Delta
		if d.Content != nil {
			g.content += *d.Content
		}
		if d.Reasoning != nil {
			g.reasoning += *d.Reasoning
		}
		for _, c := range d.Calls {
			switch {
			case c.ID != "":
				if c.Index != len(g.calls) || ids[c.ID] || c.Type != "function" || c.Function.Name == "" {
					s.t.Fatalf("%s: call %d begins with %s", s.what, len(g.calls), data)
				}
				ids[c.ID] = true
				g.calls = append(g.calls, gotCall{c.Function.Name, c.Function.Arguments})
			case c.Index != len(g.calls)-1 || c.Function.Name != "" || c.Function.Arguments == "":
				s.t.Fatalf("%s: call %d goes on with %s", s.what, len(g.calls)-1, data)
			default:
				g.calls[c.Index].args += c.Function.Arguments
			}
		}
		if f := r.Choices[0].Finish; f != nil {
			g.finish = *f
		}
	}
	if !strings.HasSuffix(text, "data: [DONE]\n\n") {
		s.t.Fatalf("%s: a stream without an end: %s", s.what, text)
	}
	return g
}

// equal reports what an answer lacks of what was written.
func (w want) equal(g got) error {
	finish := "stop"
	if len(w.calls) > 0 {
		finish = "tool_calls"
	}
	if space := strings.NewReplacer(" ", "", "\n", ""); w.loose {
		g.content, w.content = space.Replace(g.content), space.Replace(w.content)
	}
	switch {
	case g.content != w.content:
		return fmt.Errorf("content %q, want %q", g.content, w.content)
	case g.reasoning != w.reasoning:
		return fmt.Errorf("reasoning %q, want %q", g.reasoning, w.reasoning)
	case len(g.calls) != len(w.calls):
		return fmt.Errorf("calls %v, want %v", g.calls, w.calls)
	case g.finish != finish:
		return fmt.Errorf("finish reason %q, want %q", g.finish, finish)
	}
	for i, c := range g.calls {
		var args map[string]any
		if err := json.Unmarshal([]byte(c.args), &args); err != nil {
			return fmt.Errorf("arguments %q: %v", c.args, err)
		}
		if c.name != w.calls[i].name || !reflect.DeepEqual(args, w.calls[i].args) {
			return fmt.Errorf("call %d is %s %q, want %s %q", i, c.name, args, w.calls[i].name, w.calls[i].args)
		}
	}
	return nil
}

// beginning reports what an answer that was cut off has that the whole one has not.
func (g got) beginning(of got) error {
	// An answer may end in what looks like the beginning of markup and is one character of it.
	content := g.content
	if !strings.HasPrefix(of.content, content) && len(content) > 0 {
		content = content[:len(content)-1]
	}
	switch {
	case !strings.HasPrefix(of.content, strings.TrimRight(content, " \n")):
		return fmt.Errorf("content %q of %q", g.content, of.content)
	case !strings.HasPrefix(of.reasoning, g.reasoning):
		return fmt.Errorf("reasoning %q of %q", g.reasoning, of.reasoning)
	case len(g.calls) > len(of.calls):
		return fmt.Errorf("calls %q of %q", g.calls, of.calls)
	case g.finish != "length":
		return fmt.Errorf("finish reason %q", g.finish)
	}
	for i, c := range g.calls {
		if all := of.calls[i]; c.name != all.name || !strings.HasPrefix(all.args, c.args) || i < len(g.calls)-1 && c.args != all.args {
			return fmt.Errorf("call %q of %q", c, all)
		}
	}
	return nil
}

const answersOfEach = 48

// TestAnswersOfRealTokenizers writes answers in every format, with and without reasoning, and has them come as tokens of real vocabularies: control
// tokens as such and spelled out, tokens as the tokenizer would have them and others that spell the same, one an event and several. It is what was
// written, streamed or not; and so is as much of it as a token limit lets through.
func TestAnswersOfRealTokenizers(t *testing.T) {
	t.Parallel()
	for i := range formats {
		f := &formats[i]
		for j, name := range f.vocabs {
			t.Run(f.name+"/"+name, func(t *testing.T) {
				t.Parallel()
				v := loadVocabulary(t, name, append([]string{"<think>", "</think>"}, f.marks...)...)
				gen := &replay{Generator: &apitest.Generator{Names: []string{"M"}}, v: v}
				gen.Tools = engine.ToolFormat{Parser: f.name, Marks: v.marks(f.marks...)}
				s := &session{t: t, gen: gen, server: httptest.NewTestServer(t, api.New(gen, api.Options{}))}
				calls, cut := 0, 0
				for seed := range uint64(answersOfEach) {
					r := rand.New(rand.NewPCG(seed, uint64(10*i+j)))
					w := &writer{Rand: r, format: f, tokens: r.IntN(4) > 0}
					think := w.tokens && r.IntN(2) == 0
					expected := w.answer(think)
					gen.Reasoning = engine.Reasoning{}
					if think {
						gen.Reasoning = engine.Reasoning{Parser: "qwen3", Open: "<think>", Close: "</think>", Marks: v.marks("<think>", "</think>")}
					}
					how := spelling(seed % 3)
					gen.tokens, gen.events = v.spell(w.parts, how, r), nil
					s.what = fmt.Sprintf("answer %d: %+v", seed, w.parts)
					all := s.whole(4000)
					if err := expected.equal(all); err != nil {
						t.Errorf("%s:\n%v", s.what, err)
						continue
					}
					calls += len(all.calls)
					s.check(4000, all)
					gen.events = r
					s.check(4000, all)
					s.shapes(all)
					for range 4 {
						limit := 1 + r.IntN(len(gen.tokens))
						gen.events = nil
						part := s.whole(limit)
						if limit < len(gen.tokens) {
							if err := part.beginning(all); err != nil {
								t.Errorf("%s,\ncut off after %d tokens, %q: %v", s.what, limit, v.Decode(gen.tokens[:limit], false), err)
							}
							cut += len(part.calls)
						}
						s.check(limit, part)
						gen.events = r
						s.check(limit, part)
					}
				}
				if calls < answersOfEach || cut < answersOfEach/2 {
					t.Errorf("%d calls and %d in answers that were cut off: too few to mean anything", calls, cut)
				}
			})
		}
	}
}

// check compares a stream with the answer that is none.
func (s *session) check(limit int, whole got) {
	s.t.Helper()
	if g := s.streamed(limit); !reflect.DeepEqual(g, whole) {
		s.t.Errorf("%s, %d tokens:\nstreamed %q\nwhole    %q", s.what, limit, g, whole)
	}
}
