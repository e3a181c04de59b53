package api

import (
	"time"

	"github.com/openinfer-go/openinfer/engine"
)

// ollamaShape makes the objects of /api/chat and /api/generate.
type ollamaShape struct {
	model string // as the client wrote it
	chat  bool   // else generate
	raw   bool   // generate, without a template

	begun *call // of a stream: one whose arguments are coming
	calls int   // that were begun
}

// answer is one object: a piece of an answer or, with more members, its end.
func (s *ollamaShape) answer(at time.Time, text, thinking string, more ...pair) pairs {
	return s.calling(at, text, thinking, nil, more...)
}

// calling is an answer that calls tools.
func (s *ollamaShape) calling(at time.Time, text, thinking string, calls []call, more ...pair) pairs {
	out := pairs{{"model", s.model}, {"created_at", at.UTC().Format(time.RFC3339Nano)}}
	if s.chat {
		m := pairs{{"role", "assistant"}, {"content", text}}
		if thinking != "" {
			m = append(m, pair{"thinking", thinking})
		}
		if calls != nil {
			m = append(m, pair{"tool_calls", ollamaCalls(calls)})
		}
		out = append(out, pair{"message", m})
	} else {
		out = append(out, pair{"response", text})
		if thinking != "" {
			out = append(out, pair{"thinking", thinking})
		}
	}
	return append(out, more...)
}

// ollamaCalls are calls with their arguments as objects. What was cut off is left out: done_reason says why.
func ollamaCalls(calls []call) []pairs {
	out := []pairs{}
	for i, c := range calls {
		if arguments, ok := c.object(); ok {
			out = append(out, pairs{{"id", c.id}, {"function", pairs{{"index", i}, {"name", c.name}, {"arguments", arguments}}}})
		}
	}
	return out
}

// ended are the members of an answer's end; durations are in nanoseconds.
func (s *ollamaShape) ended(g *generation, c *choice, now time.Time) []pair {
	reason := "stop"
	if c.finish == engine.FinishLength {
		reason = "length"
	}
	prefill, decode := time.Duration(0), time.Duration(0)
	if !c.firstToken.IsZero() {
		prefill, decode = c.firstToken.Sub(g.arrival), c.lastToken.Sub(c.firstToken)
	}
	return []pair{{"done", true}, {"done_reason", reason}, {"total_duration", int64(now.Sub(g.arrival))}, {"load_duration", 0},
		{"prompt_eval_count", len(c.prompt.ids)}, {"prompt_eval_duration", int64(prefill)},
		{"eval_count", c.usage.Completion}, {"eval_duration", int64(decode)}}
}

// scores are the log probabilities of tokens, when asked for.
func (s *ollamaShape) scores(g *generation, tokens []engine.Token) []pair {
	if g.logprobs == nil || len(tokens) == 0 {
		return nil
	}
	return []pair{{"logprobs", g.spell.chat(tokens, *g.logprobs).Content}}
}

func (s *ollamaShape) whole(g *generation) any {
	c, now := &g.choices[0], time.Now()
	return s.calling(now, c.text.String(), c.reasoning.String(), c.calls, append(s.scores(g, c.tokens), s.ended(g, c, now)...)...)
}

func (s *ollamaShape) chunks(g *generation, c *choice, grown []piece, tokens []engine.Token, end bool) []any {
	now := time.Now()
	more := s.scores(g, tokens)
	out := s.grow(now, grown, more)
	if !end {
		return out
	}
	return append(s.flush(out, now), s.answer(now, "", "", s.ended(g, c, now)...))
}

// grow adds the objects of what an answer grew by. A call is one object, once it is whole.
func (s *ollamaShape) grow(now time.Time, pieces []piece, more []pair) []any {
	var out []any
	if len(pieces) == 0 && more != nil {
		pieces = []piece{{}}
	}
	for _, p := range pieces {
		if p.kind == argumentsPiece {
			s.begun.arguments += p.text
			continue
		}
		out = s.flush(out, now)
		content, thinking := p.text, ""
		switch p.kind {
		case callPiece:
			s.begun = &call{id: p.call.id, name: p.call.name}
			s.calls++
			continue
		case reasoningPiece:
			content, thinking = "", p.text
		}
		out = append(out, s.answer(now, content, thinking, append(more, pair{"done", false})...))
		more = nil
	}
	if more != nil { // the tokens of a call
		out = append(out, s.answer(now, "", "", append(more, pair{"done", false})...))
	}
	return out
}

// flush sends the call that is whole now.
func (s *ollamaShape) flush(out []any, now time.Time) []any {
	if s.begun == nil {
		return out
	}
	c := *s.begun
	s.begun = nil
	calls := ollamaCalls([]call{c})
	if len(calls) == 0 {
		return out
	}
	f := calls[0][1].value.(pairs)
	f[0].value = s.calls - 1
	m := pairs{{"role", "assistant"}, {"content", ""}, {"tool_calls", calls}}
	return append(out, pairs{{"model", s.model}, {"created_at", now.UTC().Format(time.RFC3339Nano)}, {"message", m}, {"done", false}})
}

func (s *ollamaShape) usage(*generation) any { return nil }
